"""Labels and covariates of rows beside their contexts: ``groups``, ``batch`` and ``covariates`` of a call.

They go with the rows by the rules of ``y``: a label per row, aligned by index where both have one; the name of a column
of a DataFrame, which is then not a feature, or of an AnnData's ``obs``; for a list or dict of contexts, a list or dict
of these. ``take_annotations`` reads them and takes their columns out of X; ``Annotations.attach`` puts them beside the
rows of ``Contexts``. What covariates may be is in ``covariates``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._utils.progress import silent
from .._utils.types import Array, Report
from .._utils.wording import quoted
from .alignment import in_row_order
from .contexts import Contexts, NamedBlocks, named_blocks, read_contexts
from .covariates import joined_labels, read_covariates, row_names
from .dask_graph import computed
from .detect import InputKind, input_kind
from .labels import (
    Coded,
    are_names,
    as_numbers,
    cross_labels,
    label_columns,
    read_labels,
    rows_of_codes,
    table_of,
    take_labels,
    without_columns,
)
from .preprocessed import fit_and_preprocess
from .row_designs import Coding, NuisanceDesign, SamplingGroups


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
        n = next(iter(self._lengths().values()))
        numbers, columns = coding.columns_of(self.codes(), n)
        strata = np.zeros(n, dtype=np.intp) if self.batch is None else self.batch.codes
        levels = np.array([None], dtype=object) if self.batch is None else self.batch.categories
        return NuisanceDesign(
            levels, columns, coding, [strata[rows] for rows in places], [numbers[rows] for rows in places]
        )

    def codes(self) -> dict[str, Array]:
        """Return numbers (n,), or the codes (n,) of factors, by variable."""
        return {name: v.codes if isinstance(v, Coded) else v for name, v in (self.variables or {}).items()}

    def check_lengths(self, n: int) -> None:
        """Raise unless there is one value of each argument for each of n rows."""
        for argument, length in self._lengths().items():
            if length != n:
                raise ValueError(f"{argument} has {length} values and X has {n} rows; pass one for each row.")

    def _lengths(self) -> dict[str, int]:
        """Return how many values there are of each argument, by the name that errors give it."""
        lengths = {name: len(coded.codes) for name, coded in (("groups", self.groups), ("batch", self.batch)) if coded}
        for name, values in (self.variables or {}).items():
            lengths[f"covariates, {name!r},"] = len(values.codes if isinstance(values, Coded) else values)
        return lengths

    def _rows_of(self, contexts: Contexts) -> list[Array]:
        """Return the rows of each context, as numbers among all rows of X or of its blocks."""
        n, places = places_of_contexts(contexts)
        self.check_lengths(n)
        return places


def places_of_contexts(contexts: Contexts) -> tuple[int, list[Array]]:
    """Return how many rows X has, and which of them each context has: numbers among all rows of X or of its blocks."""
    sources = list({id(source): source for source in contexts.sources}.values())
    n = sum(source.shape[0] for source in sources)
    if contexts.engine is not None:
        codes = contexts.engine.context_codes()
        return n, [as_numbers(rows) for rows in rows_of_codes(codes, len(contexts.names))]
    # One matrix is one source; separate contexts are a source each, in their order.
    starts = dict(zip(map(id, sources), np.cumsum([0, *(source.shape[0] for source in sources)]), strict=False))
    return n, [
        starts[id(source)] + as_numbers(rows) for source, rows in zip(contexts.sources, contexts.rows, strict=True)
    ]


class AnnotatedRows(NamedTuple):
    """X without the columns that held labels, ``y``, and the annotations; None if there are none."""

    X: Any
    y: Any
    annotations: Annotations | None

    def attach(self, contexts: Contexts) -> Contexts:
        """Return the contexts read from X and y with their annotations."""
        return contexts if self.annotations is None else self.annotations.attach(contexts)

    def contexts(self, min_samples: int = 2, *, preprocess: Any = None, report: Report = silent) -> Contexts:
        """Read the contexts, as ``read_contexts`` does, with their annotations, and rows as ``preprocess`` says."""
        contexts = read_contexts(self.X, self.y, min_samples=min_samples)
        return self.attach(fit_and_preprocess(preprocess, contexts, self.X, report))

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
        return joined_labels(read, argument)

    coded_groups = labels(groups, "groups")
    coded_batch = labels(batch, "batch")
    formula = variables = None
    if covariates is not None:
        said = by_block(covariates, named, "covariates")
        variables, formula = read_covariates(parts, said, taken, coding)
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
        if value is not None and not isinstance(value, str) and not are_names(value):
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
    if isinstance(value, str) or (are_names(value) and len(value) != len(names)):
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


def _labels(X: Any, kind: InputKind, value: Any, argument: str, taken: dict[str, None]) -> Coded:
    """Return the labels of the rows of one matrix; the columns that they are in go to ``taken``."""
    names = label_columns(X, value, kind, argument)
    if names:
        table, _ = table_of(X, kind)
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
            f"{argument} has {len(missing)} missing labels, in rows {quoted(row_names(X, kind, missing))}; drop those "
            "rows, or give them a label of their own."
        )
    return coded
