"""What all tables of results need: pandas, the MCPCs that were asked for, corrected p-values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from .._data.detect import is_anndata
from .._results.context_values import ContextValues
from .._utils.component_names import component_indices, unknown
from .._utils.optional import require
from .._utils.types import Array

ANALYSIS_EXTRA = "analysis"


def pandas() -> Any:
    """Return pandas, or explain how to install it: it is not a dependency of the core."""
    return require("pandas", ANALYSIS_EXTRA)


def chosen_components(components: Any, names: Sequence[str]) -> list[int]:
    """Return the column numbers of the MCPCs asked for; None asks for all of them."""
    return list(range(len(names))) if components is None else component_indices(components, names)


def of_table(value: Any, data: Any, argument: str, source: Any) -> Any:
    """Return the column of ``data`` that ``value`` names, or ``value`` itself if it is no name of one."""
    if not isinstance(value, str) or data is None:
        return value
    known = list(data) if isinstance(data, Mapping) else list(data.columns)
    if value in known:
        return data[value]
    if is_anndata(source) and value in source.obs.columns:
        return value
    raise ValueError(unknown(value, argument, known, "a column of data"))


def names_of_values(read: ContextValues, values: Array) -> list[str]:
    """Return values of contexts as their user knows them."""
    if read.kind == "category":
        return [read.categories[int(code)] for code in values]
    return [f"{value:g}" if read.kind == "number" else str(value) for value in values]


def bonferroni(p: Array) -> Array:
    """Return p-values times their number, at most 1; NaN (no test) counts as a test and stays NaN.

    Counting it is conservative, and keeps the correction the same for all covariates.
    """
    return np.asarray(np.minimum(p * len(p), 1))


def false_discoveries(p: Array) -> Array:
    """Return the p-values (m,) adjusted by Benjamini and Hochberg; NaN (no test) counts as 1 and stays NaN."""
    # SciPy refuses NaN. As 1 it counts as a test that found nothing, as in ``bonferroni``.
    known = np.where(np.isnan(p), 1.0, p)
    adjusted = np.asarray(false_discovery_control(known)) if len(known) else known
    return np.where(np.isnan(p), np.nan, adjusted)
