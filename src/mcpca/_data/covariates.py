"""Covariates of rows as variables: numbers, or factors, by name.

``annotations`` reads groups, batch and covariates of a call; what covariates may be is told here. Factors (text,
categoricals, booleans) become an indicator for every level but the first. A table or dict has a variable for each
column; a formula combines the columns of X that it names, or those of a table beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._utils.types import Array
from .._utils.wording import quoted
from .alignment import column_names, in_row_order, row_index
from .dask_graph import computed
from .detect import InputKind
from .formulas import check_plain, formula_variables
from .labels import Coded, are_names, check_column_names, read_labels, sorted_names, table_of
from .row_designs import Coding

# What only formulas have in them; a name of a column that has some of these is looked up first.
_OPERATORS = re.compile(r"[+*:~()`]|\s-\s")


class Covariates(NamedTuple):
    """Variables of all rows, numbers (n,) or ``Coded`` by name, and the formula over them, if there is one."""

    variables: dict[str, Any]
    formula: str | None


def read_covariates(
    parts: list[tuple[Any, InputKind]], said: list[Any], taken: dict[str, None], coding: Coding | None
) -> Covariates:
    """Read what is ``said`` of each of the matrices in ``parts``; columns that hold it go to ``taken``.

    With the ``coding`` of a fit, variables are those of the fit, in its levels.
    """
    formula = _formula(parts[0], said[0], coding)
    tables = [_variables(*part, one, formula, taken, coding) for part, one in zip(parts, said, strict=True)]
    return Covariates(_coded_variables(tables, coding), formula)


def row_names(X: Any, kind: InputKind, rows: Array) -> list[Any]:
    """Return the names of some rows, or their numbers where they have none."""
    index = row_index(X, kind)
    return list((rows if index is None else np.asarray(index)[rows]).tolist())


def joined_labels(parts: list[Coded], argument: str) -> Coded:
    """Return the labels of several blocks as one, with the labels of all blocks in one order."""
    if len(parts) == 1:
        return parts[0]
    names = sorted_names([name for part in parts for name in part.categories.tolist()], argument)
    position = {name: i for i, name in enumerate(names)}
    categories = np.empty(len(names), dtype=object)
    categories[:] = names
    codes = [np.array([position[name] for name in part.categories.tolist()])[part.codes] for part in parts]
    return Coded(np.concatenate(codes), categories)


def _formula(part: tuple[Any, InputKind], value: Any, coding: Coding | None) -> str | None:
    """Return the formula that covariates are, if they are one: text that is no column and has an operator in it."""
    if coding is not None:
        return coding.formula
    if _is_formula_of_table(value):
        value = value[0]
    elif not isinstance(value, str):
        return None
    else:
        columns = column_names(table_of(*part)[0]) or []
        if value in columns or not is_formula(value):
            return None
    check_plain(value, "covariates")
    return str(value)


def is_formula(text: str) -> bool:
    """Whether text has an operator in it, and so is a formula and not the name of a column."""
    return _OPERATORS.search(text) is not None


def _is_formula_of_table(value: Any) -> bool:
    """Whether covariates are a formula and the table that it is about."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    return is_pair and (isinstance(value[1], Mapping) or column_names(value[1]) is not None)


def _variables(
    X: Any, kind: InputKind, value: Any, formula: str | None, taken: dict[str, None], coding: Coding | None
) -> dict[str, Any]:
    """Return the variables of the rows of one matrix by name, each numbers (n,) or ``Coded``."""
    raw = _columns(X, kind, value, formula, taken, coding)
    if coding is not None:
        missing = [name for name in coding.names if name not in raw]
        if missing:
            raise ValueError(
                f"covariates lack {quoted(missing)}, which the model was fitted with; pass {quoted(coding.names)}."
            )
        raw = {name: raw[name] for name in coding.names}
    return {name: _variable(X, kind, name, computed(column)) for name, column in raw.items()}


def _columns(
    X: Any, kind: InputKind, value: Any, formula: str | None, taken: dict[str, None], coding: Coding | None
) -> dict[str, Any]:
    """Return the columns that covariates are or name, as they are."""
    if _is_formula_of_table(value):
        table = value[1]
        known = list(table) if isinstance(table, Mapping) else list(column_names(table) or [])
        names = list(formula_variables(value[0], "covariates") if coding is None else coding.names)
        names = check_column_names(names, known, "covariates", "the table", "in the formula")
        return {name: in_row_order(X, table[name], kind, "covariates") for name in names}
    table, where = table_of(X, kind)
    if isinstance(value, str) or are_names(value):
        if formula is not None and isinstance(value, str):
            names = list(formula_variables(formula, "covariates"))
        else:
            names = [value] if isinstance(value, str) else list(value)
        names = check_column_names(names, column_names(table) or [], "covariates", where, "or their values")
        taken.update(dict.fromkeys(names))
        return {name: table[name] for name in names}
    names_of = column_names(value)
    if names_of is not None:
        value = in_row_order(X, value, kind, "covariates")
        return {str(name): value[name] for name in names_of}
    if isinstance(value, Mapping):
        return {str(name): in_row_order(X, column, kind, "covariates") for name, column in value.items()}
    name = getattr(value, "name", None)
    value = computed(in_row_order(X, value, kind, "covariates"))
    # A categorical keeps its levels only as it is.
    if hasattr(value, "cat") or hasattr(value, "categories"):
        return {"covariate" if name is None else str(name): value}
    values = np.asarray(value)
    if values.ndim == 1:
        fitted = None if coding is None or len(coding.names) != 1 else coding.names[0]
        return {fitted or ("covariate" if name is None else str(name)): value}
    if values.ndim != 2:
        raise ValueError(f"covariates have shape {values.shape}; pass (n,) or (n, c), one row for each row of X.")
    c = values.shape[1]
    fitted_names = None if coding is None or len(coding.names) != c else coding.names
    return {name: values[:, j] for j, name in enumerate(fitted_names or [f"covariate {j + 1}" for j in range(c)])}


def _variable(X: Any, kind: InputKind, name: str, column: Any) -> Any:
    """Return a column as numbers (n,) or, if it is a factor, as ``Coded``; raise where values are missing."""
    values = _numbers(column)
    if values is None:
        coded = read_labels(column, f"covariates, {name!r},")
        missing = np.flatnonzero(coded.codes < 0) if coded.codes.ndim == 1 else np.empty(0)
        result: Any = coded
        shape = coded.codes.shape
    else:
        missing = np.flatnonzero(~np.isfinite(values)) if values.ndim == 1 else np.empty(0)
        result = values
        shape = values.shape
    if len(shape) != 1:
        raise ValueError(f"covariates, {name!r}, has shape {shape}; pass one value per row.")
    if len(missing):
        raise ValueError(
            f"covariates, {name!r}, has {len(missing)} missing or infinite values, in rows "
            f"{quoted(row_names(X, kind, missing))}; drop those rows, or fill the values in."
        )
    return result


def _numbers(column: Any) -> Array | None:
    """Return a column as float64, or None if it is a factor."""
    if hasattr(column, "cat") and hasattr(getattr(column, "dtype", None), "categories"):
        return None
    if hasattr(column, "categories"):
        return None
    dtype = getattr(column, "dtype", None)
    # pandas' own numbers, which may be missing: NA becomes NaN.
    if dtype is not None and not isinstance(dtype, np.dtype) and getattr(dtype, "kind", "O") in "iuf":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = np.asarray(column)
    if np.ma.is_masked(column):
        values = np.ma.filled(np.ma.asarray(column).astype(np.float64), np.nan)
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype == object and all(
        v is None or (isinstance(v, (int, float, np.number)) and not isinstance(v, bool)) for v in values.ravel()
    ):
        return values.astype(np.float64)
    return None


def _coded_variables(tables: list[dict[str, Any]], coding: Coding | None) -> dict[str, Any]:
    """Return the variables of all blocks together, with the levels of the fit if there is one."""
    names = list(tables[0])
    for table in tables[1:]:
        if set(table) != set(names):
            raise ValueError(
                f"covariates are {quoted(list(table))} in one context and {quoted(names)} in another; give all of them "
                "the same ones."
            )
    joined: dict[str, Any] = {}
    for name in names:
        parts = [table[name] for table in tables]
        factors = [part for part in parts if isinstance(part, Coded)]
        if factors and len(factors) < len(parts):
            raise ValueError(
                f"covariates, {name!r}, are numbers in some contexts and labels in others; use one of them."
            )
        joined[name] = joined_labels(factors, "covariates") if factors else np.concatenate(parts)
    return joined if coding is None else _in_levels(joined, coding)


def _in_levels(variables: dict[str, Any], coding: Coding) -> dict[str, Any]:
    """Return variables with factors in the levels of the fit."""
    result: dict[str, Any] = {}
    for name, levels in coding.variables:
        values = variables[name]
        if (levels is None) == isinstance(values, Coded):
            was, now = ("numbers", "labels") if levels is None else ("labels", "numbers")
            raise ValueError(f"covariates, {name!r}, were {was} in the fit and are {now} here; pass {was}.")
        if levels is not None:
            position = {level: i for i, level in enumerate(levels)}
            unknown = [level for level in values.categories.tolist() if level not in position]
            if unknown:
                raise ValueError(
                    f"covariates, {name!r}, have levels that the fit does not have: {quoted(unknown)} (known: "
                    f"{quoted(levels)}); leave these rows out."
                )
            codes = np.array([position[level] for level in values.categories.tolist()], dtype=np.intp)[values.codes]
            values = Coded(codes, np.array(levels, dtype=object))
        result[name] = values
    return result
