"""What all tables of results need: pandas, the MCPCs that were asked for, corrected p-values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from .._utils.component_names import component_indices
from .._utils.optional import require
from .._utils.types import Array

ANALYSIS_EXTRA = "analysis"


def pandas() -> Any:
    """Return pandas, or explain how to install it: it is not a dependency of the core."""
    return require("pandas", ANALYSIS_EXTRA)


def chosen_components(components: Any, names: Sequence[str]) -> list[int]:
    """Return the column numbers of the MCPCs asked for; None asks for all of them."""
    return list(range(len(names))) if components is None else component_indices(components, names)


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
