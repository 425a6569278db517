"""Labels and covariates of rows beside their contexts: ``groups``, ``batch`` and ``covariates`` of a call.

They go with the rows by the rules of ``y``: a label per row, aligned by index where both have one; the name of a column
of a DataFrame, which is then not a feature, or of an AnnData's ``obs``; for a list or dict of contexts, a list or dict
of these. ``take_annotations`` reads them and takes their columns out of X; ``Annotations.attach`` puts them beside the
rows of ``Contexts``.

Covariates are variables: numbers, or factors (text, categoricals, booleans), each of which becomes an indicator for
every level but the first. A table or dict has one for each column; a formula combines the columns of X that it names,
or those of a table beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._utils.types import Array
from .._utils.wording import quoted
from .alignment import column_names, in_row_order, row_index
from .contexts import Contexts, NamedBlocks, named_blocks
from .dask_graph import computed
from .detect import InputKind, input_kind
from .formulas import check_plain, formula_variables
from .labels import (
    Coded,
    check_column_names,
    cross_labels,
    label_columns,
    read_labels,
    rows_by_context,
    sorted_names,
    take_labels,
    without_columns,
)
from .row_designs import Coding, NuisanceDesign, SamplingGroups

# What only formulas have in them; a name of a column that has some of these is looked up first.
_OPERATORS = re.compile(r"[+*:~()`]|\s-\s")


@dataclass(frozen=True)
class Annotations:
    """Groups, strata and variables of all n rows, in the order of the rows of X or of its blocks one after the other.

    Attributes
    ----------
    groups, batch : Coded or None
    variables : dict {name: numbers (n,) or Coded} or None
    formula : str or None
    columns : tuple of str
        Columns of X that held them, and are therefore not features.
    """

    groups: Coded | None = None
    batch: Coded | None = None
    variables: Mapping[str, Any] | None = None
    formula: str | None = None
    columns: tuple[str, ...] = ()

    def of_rows(self, rows: Array) -> Annotations:
        """Return those of some rows: an index or a mask."""

        def some(values: Any) -> Any:
            return Coded(values.codes[rows], values.categories) if isinstance(values, Coded) else values[rows]

        return replace(
            self,
            groups=None if self.groups is None else some(self.groups),
            batch=None if self.batch is None else some(self.batch),
            variables=None if self.variables is None else {name: some(v) for name, v in self.variables.items()},
        )

    def attach(self, contexts: Contexts) -> Contexts:
        """Return the contexts with their groups and their nuisance; raise unless there is one value for every row."""
        places = self._rows_of(contexts)
        groups = None
        if self.groups is not None:
            groups = SamplingGroups([self.groups.codes[rows] for rows in places], self.groups.categories)
        nuisance = None
        if self.batch is not None or self.variables is not None:
            nuisance = self._design(places)
            if contexts.engine is not None:
                nuisance = replace(nuisance, rows=places)
        return replace(contexts, groups=groups, nuisance=nuisance)

    def _design(self, places: Sequence[Array]) -> NuisanceDesign:
        variables = self.variables or {}
        coding = Coding(
            tuple(
                (name, tuple(values.categories.tolist()) if isinstance(values, Coded) else None)
                for name, values in variables.items()
            ),
            self.formula,
        )
        n = next(iter(self.lengths().values()))
        numbers, columns = coding.columns_of(self.codes(), n)
        strata = np.zeros(n, dtype=np.intp) if self.batch is None else self.batch.codes
        levels = np.array([None], dtype=object) if self.batch is None else self.batch.categories
        return NuisanceDesign(
            levels, columns, coding, [strata[rows] for rows in places], [numbers[rows] for rows in places]
        )

    def codes(self) -> dict[str, Array]:
        """Return numbers (n,), or the codes (n,) of factors, by variable."""
        return {name: v.codes if isinstance(v, Coded) else v for name, v in (self.variables or {}).items()}

    def lengths(self) -> dict[str, int]:
        """Return how many values there are of each argument, by the name that errors give it."""
        lengths = {name: len(coded.codes) for name, coded in (("groups", self.groups), ("batch", self.batch)) if coded}
        for name, values in (self.variables or {}).items():
            lengths[f"covariates, {name!r},"] = len(values.codes if isinstance(values, Coded) else values)
        return lengths

    def _rows_of(self, contexts: Contexts) -> list[Array]:
        """Return the rows of each context, as numbers among all rows of X or of its blocks."""
        sources = list({id(source): source for source in contexts.sources}.values())
        n = sum(source.shape[0] for source in sources)
        for argument, length in self.lengths().items():
            if length != n:
                raise ValueError(f"{argument} has {length} values and X has {n} rows; pass one for each row.")
        if contexts.engine is not None:
            codes = contexts.engine.context_codes()
            labelled = np.flatnonzero(codes >= 0)  # rows without a context have -1
            return [labelled[rows] for rows in rows_by_context(codes[labelled], len(contexts.names))]
        # One matrix is one source; separate contexts are a source each, in their order.
        starts = dict(zip(map(id, sources), np.cumsum([0, *(source.shape[0] for source in sources)]), strict=False))
        return [
            starts[id(source)] + (np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)
            for source, rows in zip(contexts.sources, contexts.rows, strict=True)
        ]


class AnnotatedRows(NamedTuple):
    """X without the columns that held labels, ``y``, and the annotations; None if there are none."""

    X: Any
    y: Any
    annotations: Annotations | None

    def attach(self, contexts: Contexts) -> Contexts:
        """Return the contexts read from X and y with their annotations."""
        return contexts if self.annotations is None else self.annotations.attach(contexts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of X that held groups, batch or covariates."""
        return () if self.annotations is None else self.annotations.columns


def take_annotations(
    X: Any, y: Any, *, groups: Any = None, batch: Any = None, covariates: Any = None, coding: Coding | None = None
) -> AnnotatedRows:
    """Return X without label columns, labels, and what else is said of the rows.

    Parameters
    ----------
    X, y
        As in ``MCPCA.fit``.
    groups, batch : labels (n,), str or list of str
    covariates : array (n,) or (n, c), table, dict, str or list of str
    coding : Coding, optional
        Of a fit: covariates are then read as it has them.
    """
    if groups is None and batch is None and covariates is None:
        return AnnotatedRows(*take_labels(X, y), None)
    kind = input_kind(X)
    named = named_blocks(X, kind)
    blocks = [X] if named is None else named.blocks
    parts = [(block, input_kind(block)) for block in blocks]
    taken: dict[str, None] = {}

    def labels(value: Any, argument: str) -> Coded | None:
        if value is None:
            return None
        said = by_block(value, named, argument)
        read = [_labels(*part, one, argument, taken) for part, one in zip(parts, said, strict=True)]
        return _joined(read, argument)

    coded_groups = labels(groups, "groups")
    coded_batch = labels(batch, "batch")
    formula = variables = None
    if covariates is not None:
        said = by_block(covariates, named, "covariates")
        formula = _formula(parts[0], said[0], coding)
        tables = [_variables(*part, one, formula, taken, coding) for part, one in zip(parts, said, strict=True)]
        variables = _coded_variables(tables, coding)
    columns = tuple(taken)
    # y before the columns are taken out: it may be one of them.
    if named is None:
        X, y = take_labels(X, y, kind)
        X = X if kind is InputKind.ANNDATA else without_columns(X, columns)
    elif columns:
        blocks = [block if k is InputKind.ANNDATA else without_columns(block, columns) for block, k in parts]
        X = dict(zip(named.names.tolist(), blocks, strict=True)) if named.by_name else blocks
    annotations = Annotations(coded_groups, coded_batch, variables, formula, columns)
    return AnnotatedRows(X, y, annotations)


def annotations_of_obs(adata: Any, *, groups: Any = None, batch: Any = None, covariates: Any = None) -> AnnotatedRows:
    """Return what columns of ``obs`` say of the rows of an AnnData; ``covariates`` may be a formula over them.

    Names only, since these are stored with a fit.
    """
    for argument, value in (("groups", groups), ("batch", batch), ("covariates", covariates)):
        is_names = isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, str) for v in value)
        if value is not None and not isinstance(value, str) and not is_names:
            raise TypeError(
                f"{argument} is a {type(value).__name__}; pass the name of a column of adata.obs, or a list of names."
            )
    return take_annotations(adata, None, groups=groups, batch=batch, covariates=covariates)


def by_block(value: Any, named: NamedBlocks | None, argument: str) -> list[Any]:
    """Return what an argument says of each block of rows: of the one matrix, or of every context."""
    if named is None:
        return [value]
    names = named.names.tolist()
    # Names of columns hold for every block; a list with an entry for each block is not one of names.
    is_names = isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, str) for v in value)
    if isinstance(value, str) or (is_names and len(value) != len(names)):
        return [value] * len(names)
    if isinstance(value, Mapping) and set(value) == set(names):
        return [value[name] for name in names]
    if isinstance(value, (list, tuple)) and len(value) == len(names):
        return list(value)
    k = len(names)
    shape = "dict {context: values}" if named.by_name else f"list of {k} arrays"
    raise ValueError(
        f"{argument} is a {type(value).__name__}, and X holds {k} separate contexts; pass a {shape}, with one "
        "value for each row of a context, or the name of a column."
    )


# Labels


def _table(X: Any, kind: InputKind) -> tuple[Any, str]:
    return (X.obs, "adata.obs") if kind is InputKind.ANNDATA else (X, "X")


def _labels(X: Any, kind: InputKind, value: Any, argument: str, taken: dict[str, None]) -> Coded:
    """Return the labels of the rows of one matrix; the columns that they are in go to ``taken``."""
    names = label_columns(X, value, kind, argument)
    if names:
        table, _ = _table(X, kind)
        taken.update(dict.fromkeys(names))
        columns = [computed(table[name]) for name in names]
        coded = read_labels(columns[0], argument) if len(names) == 1 else cross_labels(columns, argument)
    else:
        coded = read_labels(computed(in_row_order(X, value, kind, argument)), argument)
    if coded.codes.ndim != 1:
        raise ValueError(f"{argument} has shape {coded.codes.shape}; pass one label per row.")
    missing = np.flatnonzero(coded.codes < 0)
    if len(missing):
        raise ValueError(
            f"{argument} has {len(missing)} missing labels, in rows {quoted(_row_names(X, kind, missing))}; drop those "
            "rows, or give them a label of their own."
        )
    return coded


def _row_names(X: Any, kind: InputKind, rows: Array) -> list[Any]:
    index = row_index(X, kind)
    return list((rows if index is None else np.asarray(index)[rows]).tolist())


def _joined(parts: list[Coded], argument: str) -> Coded:
    """Return the labels of several blocks as one, with the labels of all blocks in one order."""
    if len(parts) == 1:
        return parts[0]
    names = sorted_names([name for part in parts for name in part.categories.tolist()], argument)
    position = {name: i for i, name in enumerate(names)}
    categories = np.empty(len(names), dtype=object)
    categories[:] = names
    codes = [np.array([position[name] for name in part.categories.tolist()])[part.codes] for part in parts]
    return Coded(np.concatenate(codes), categories)


# Covariates


def _formula(part: tuple[Any, InputKind], value: Any, coding: Coding | None) -> str | None:
    """Return the formula that covariates are, if they are one: text that is no column and has an operator in it."""
    if coding is not None:
        return coding.formula
    if _is_formula_of_table(value):
        value = value[0]
    elif not isinstance(value, str):
        return None
    else:
        columns = column_names(_table(*part)[0]) or []
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
    table, where = _table(X, kind)
    is_names = isinstance(value, str) or (
        isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, str) for v in value)
    )
    if is_names:
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
            f"{quoted(_row_names(X, kind, missing))}; drop those rows, or fill the values in."
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
        joined[name] = _joined(factors, "covariates") if factors else np.concatenate(parts)
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
