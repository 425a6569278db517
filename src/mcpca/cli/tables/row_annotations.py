"""Groups, batch and covariates of rows, from columns of the files to what the estimator takes.

Readers give every such column as text (``Labels``). Covariates whose values are all numbers become numbers again; a
formula is computed here, since the estimator gets bare rows, without the columns that it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._data.formulas import FORMULA_EXTRA, design_of_formula, formula_variables
from ..._utils.optional import require
from ..._utils.types import Array
from .labels import Labels, crossed_labels

_OPERATORS = re.compile(r"[+*:~()`]|\s-\s")


def covariate_columns(text: str | None) -> list[str]:
    """Return the columns that ``--covariates`` names: separated by commas, or in a formula."""
    if text is None:
        return []
    if _OPERATORS.search(text):
        return list(formula_variables(text, "covariates"))
    return [name.strip() for name in text.split(",") if name.strip()]


def annotations_of(
    columns: Mapping[str, Labels], groups: tuple[str, ...], batch: tuple[str, ...], covariates: str | None
) -> dict[str, Any]:
    """Return ``groups``, ``batch`` and ``covariates`` as the estimator takes them; those that are given."""
    result: dict[str, Any] = {}
    for name, names in (("groups", groups), ("batch", batch)):
        if names:
            result[name] = _texts(crossed_labels([columns[column] for column in names]))
    if covariates is not None:
        values = {name: _values(columns[name]) for name in covariate_columns(covariates)}
        result["covariates"] = _computed(covariates, values) if _OPERATORS.search(covariates) else values
    return result


def _texts(labels: Labels) -> Array:
    """Return the label of each row, None where there is none: the estimator then names the row."""
    return np.array([*labels.categories, None], dtype=object)[labels.codes]


def _values(labels: Labels) -> Array:
    """Return numbers if all are numbers, missing ones as NaN; otherwise labels."""
    try:
        numbers = [float(text) for text in labels.categories]
    except ValueError:
        return _texts(labels)
    return np.array([*numbers, np.nan])[labels.codes]


def _computed(formula: str, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the columns of a formula by name; missing values are left to it where the formula needs none."""
    missing = [name for name, column in values.items() if any(v is None or v != v for v in column.tolist())]
    # Formulas would drop such rows: the estimator's error names them.
    if missing:
        return {name: values[name] for name in missing}
    pd = require("pandas", FORMULA_EXTRA)
    table = {name: column if column.dtype != object else pd.Categorical(column) for name, column in values.items()}
    design = design_of_formula(formula, table, "covariates")
    matrix = design.apply(table)
    return {name: matrix[:, j] for j, name in enumerate(design.columns)}
