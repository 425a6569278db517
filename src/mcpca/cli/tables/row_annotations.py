"""Groups, batch and covariates of rows, from columns of the files to what the estimator takes.

Readers give every such column as text (``Labels``). Covariates whose values are all numbers become numbers again; a
formula goes with the table of its columns, since the estimator gets bare rows, without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._data.covariates import is_formula
from ..._data.formulas import check_plain, design_of_formula, formula_variables
from ..._utils.types import Array
from .labels import Labels, crossed_labels


def covariate_columns(text: str | None) -> list[str]:
    """Return the columns that ``--covariates`` names: separated by commas, or in a formula."""
    if text is None:
        return []
    if is_formula(text):
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
        result["covariates"] = (covariates, values) if is_formula(covariates) else values
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


def with_computed_columns(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return annotations with the columns of a formula in its place, for moments, which keep no formula."""
    covariates = annotations.get("covariates")
    if not isinstance(covariates, tuple):
        return dict(annotations)
    formula, values = covariates
    # Rows without a value are left to the estimator, whose error names them.
    missing = {name: column for name, column in values.items() if any(v is None or v != v for v in column.tolist())}
    if missing:
        return {**annotations, "covariates": missing}
    check_plain(formula, "covariates")
    design = design_of_formula(formula, values, "covariates")
    return {**annotations, "covariates": dict(zip(design.columns, design.matrix.T, strict=True))}
