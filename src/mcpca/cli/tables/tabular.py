"""Rows of a table: into one array while they fit into memory, by blocks otherwise, with missing values counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..._utils.types import Array
from ._errors import UnusableFileError, plural, short
from .columns import Roles, choose_columns, text_columns_error
from .data import Budget, FilePart, Reading
from .labels import LabelBuilder

_ROW = 80  # bytes of a row's name and context, which are in memory also where the row is not
_ALWAYS = 2**28  # bytes that these may take in any case


class Table(Protocol):
    """An opened table of text or Parquet."""

    where: str
    columns: list[str]
    text: frozenset[str]
    nested: frozenset[str]
    index: str | None
    read: float

    @property
    def format(self) -> str:
        """What it is, in words."""

    def batches(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow record batches of these columns."""


class TableBlocks:
    """The features of a table, block by block, a new pass at each iteration: what ``as_source`` takes."""

    def __init__(self, table: Table, features: Sequence[str]) -> None:
        self._table, self._features = table, features

    def __iter__(self) -> Iterator[Array]:
        """Yield blocks of rows."""
        for batch in self._table.batches(self._features, []):
            if batch.num_rows:
                yield matrix_of(batch, len(self._features))


def roles_of(table: Table, reading: Reading, wanted: Sequence[str] | None) -> Roles:
    """Return the roles of columns; features must be numbers."""
    roles = choose_columns(table.columns, reading, wanted, table.where, table.index)
    text = [name for name in roles.features if name in table.text]
    if text:
        raise text_columns_error(text, table.where)
    return replace(roles, others=[name for name in roles.others if name not in table.text])


def read_table(
    table: Table,
    reading: Reading,
    wanted: Sequence[str] | None,
    budget: Budget,
    tell: Callable[[float], None] = lambda share: None,
) -> FilePart:
    """Read labels, names of rows and, within ``budget``, the features, in one pass; ``tell`` gets the share done."""
    roles = roles_of(table, reading, wanted)
    p = len(roles.features)
    texts = [*roles.contexts, *([] if roles.index is None else [roles.index])]
    builders = [LabelBuilder(reading.na_values) for _ in roles.contexts]
    row_names: list[str] | None = None if roles.index is None else []
    blocks: list[Array] | None = []
    taken, n = 0, 0
    gaps, risers = _Gaps(roles.features), Risers(p)
    for batch in table.batches(roles.features, texts):
        if not batch.num_rows:
            continue
        tell(table.read)
        X = matrix_of(batch, p)
        gaps.look(X, n)
        risers.look(X)
        for i, builder in enumerate(builders):
            builder.add(batch.column(p + i))
        if row_names is not None:
            row_names += ["" if name is None else name for name in batch.column(p + len(builders)).to_pylist()]
        n += len(X)
        if n * _ROW > max(reading.max_bytes, _ALWAYS):
            raise UnusableFileError(
                table.where,
                f"has {n:,} rows or more, whose names and contexts alone take more than --max-memory "
                f"({reading.max_bytes / 2**20:,.0f} MB); raise --max-memory.",
            )
        if blocks is not None and budget.take(X.nbytes):
            taken += X.nbytes
            blocks.append(X)
        elif blocks is not None:
            budget.give_back(taken)
            blocks = None
    if n == 0:
        raise UnusableFileError(table.where, "has a header and no rows.")
    gaps.check(table.where, n)
    labels = [builder.finish() for builder in builders]
    rows = TableBlocks(table, roles.features) if blocks is None else None
    counting = [roles.features[j] for j in risers.found()] if wanted is None else []
    return FilePart(table.where, n, roles.features, blocks, rows, labels, row_names, roles.others, counting)


class Risers:
    """Looks for columns of whole numbers that rise from each row to the next: numbers of rows rather than features."""

    _FEW = 20  # rows in which that can be by chance

    def __init__(self, p: int) -> None:
        self._columns, self._last, self._n = np.arange(p), np.full(p, -np.inf), 0

    def look(self, X: Array) -> None:
        """Look at the next rows; the cost is that of the columns which are still in question."""
        if not len(self._columns):
            return
        # Nearly all columns fall out by their first rows.
        for rows in (X[: self._FEW], X):
            own = rows[:, self._columns]
            with np.errstate(invalid="ignore"):
                rising = (own[1:] > own[:-1]).all(axis=0) & (own[0] > self._last[self._columns])
                whole = (own == np.round(own)).all(axis=0)
            self._columns = self._columns[rising & whole]
        self._last = X[-1].astype(np.float64)
        self._n += len(X)

    def found(self) -> list[int]:
        """Return the columns that rose throughout."""
        return self._columns.tolist() if self._n >= self._FEW else []


class _Gaps:
    """Counts missing and infinite values by column, and remembers the first row with one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._counts, self._rows, self._first = names, np.zeros(len(names), dtype=np.intp), 0, -1

    def look(self, X: Array, first: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(X.sum(dtype=np.float64)):
                return
        bad = ~np.isfinite(X)
        rows = np.flatnonzero(bad.any(axis=1))
        if len(rows):
            self._first = first + int(rows[0]) if self._first < 0 else self._first
            self._rows += len(rows)
            self._counts += bad.sum(axis=0)

    def check(self, where: str, n: int) -> None:
        if not self._rows:
            return
        columns = np.flatnonzero(self._counts)
        shown = ", ".join(f"{short(self._names[c])!r} ({self._counts[c]:,})" for c in columns[:5])
        more = f" and {len(columns) - 5:,} more" if len(columns) > 5 else ""
        raise UnusableFileError(
            where,
            f"{self._rows:,} of {plural(n, 'row')} have missing or infinite values, the first in row "
            f"{self._first + 1:,}, in {plural(len(columns), 'column')}: {shown}{more}; fill them in, drop the rows, or "
            "leave the columns out with --drop.",
        )


def matrix_of(batch: Any, p: int) -> Array:
    """Return the first p columns of a batch as an array, NaN where null; float32 where all of them are."""
    kinds = {str(batch.schema.field(j).type) for j in range(p)}
    X = np.empty((p, batch.num_rows), dtype=np.float32 if kinds == {"float"} else np.float64)
    for j in range(p):
        column = batch.column(j)
        if str(column.type) not in ("float", "double"):
            column = column.cast("float64", safe=False)  # integers beyond 2^53 lose digits as they would anywhere
        X[j] = column.to_numpy(zero_copy_only=False)  # null becomes NaN
    return np.ascontiguousarray(X.T)
