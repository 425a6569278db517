"""Rows of a text or Parquet table: one array if they fit into memory, blocks otherwise, with missing values counted.

One pass over the table collects everything: features, labels, names of rows, and what is odd about columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..._utils.printing import counted
from ..._utils.types import Array
from ..._utils.wording import listed
from ._errors import UnusableFileError, short
from .columns import Roles, choose_columns, text_columns_error
from .constant_columns import ColumnsOfTable
from .data import Budget, FilePart, Reading
from .delimited import DelimitedTable
from .kinds import FileKind
from .labels import LabelBuilder
from .parquet import ParquetTable
from .workbook import WorkbookTable

# Bytes of a row's name and context, about, which are held in memory even if the row itself is streamed; and what they
# may take whatever --max-memory says: too little for any computer to notice.
_ROW_BYTES = 80
_ALWAYS_ALLOWED_BYTES = 2**28
_LEAST_ROWS = 20  # in fewer, a column can rise from row to row by chance


class Table(Protocol):
    """An opened table of text or Parquet.

    Attributes
    ----------
    where : str
        The file, for errors.
    columns : list of str
    text : frozenset of str
        Columns that are not numbers.
    nested : frozenset of str
        Those of them that hold lists or records.
    index : str or None
        The column with names of rows, if the file says so itself.
    read : float
        Share of the file that the current pass has read so far.
    left_out : sequence of str
        Empty columns and rows at the edges that are not read, in words, once there was a pass.
    """

    where: str
    columns: list[str]
    text: frozenset[str]
    nested: frozenset[str]
    index: str | None
    read: float

    @property
    def format(self) -> str:
        """The format in words."""

    @property
    def left_out(self) -> Sequence[str]:
        """What is not read, in words."""

    def place(self, row: int, column: str) -> str:
        """Return where a value is in the file, in words."""

    def batches(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow record batches of these columns, from the start at each call; missing values are null."""


def open_table(path: Path, kind: FileKind, reading: Reading) -> Table:
    """Open a table of text, Parquet or a workbook."""
    if kind.format == "text":
        return DelimitedTable(path, kind.compression, reading)
    return WorkbookTable(path, reading) if kind.format == "Excel" else ParquetTable(path)


class TableBlocks:
    """The features of a table, block by block, with a new pass at each iteration: what ``as_source`` reads."""

    def __init__(self, table: Table, features: Sequence[str]) -> None:
        self._table = table
        self._features = features

    def __iter__(self) -> Iterator[Array]:
        """Yield blocks of rows."""
        # Labels and names were collected in the first pass; this one parses features alone.
        for batch in self._table.batches(self._features, []):
            if batch.num_rows:
                yield batch_matrix(batch, len(self._features))


def roles_of(table: Table, reading: Reading, wanted: Sequence[str] | None) -> Roles:
    """Return the role of each column; text among the features is an error."""
    roles = choose_columns(table.columns, reading, wanted, table.where, table.index)
    text = [name for name in roles.features if name in table.text]
    if text:
        raise text_columns_error(text, table.where)
    return replace(roles, others=[name for name in roles.others if name not in table.text])  # could be features


def read_table(
    table: Table,
    reading: Reading,
    wanted: Sequence[str] | None,
    budget: Budget,
    report_share: Callable[[float], None] = lambda share: None,
) -> FilePart:
    """Read labels, names of rows and, within ``budget``, the features; ``report_share`` gets the share done."""
    roles = roles_of(table, reading, wanted)
    p = len(roles.features)
    # A column may be both, context and group, but is read once.
    labelled = list(dict.fromkeys([*roles.contexts, *roles.annotations]))
    texts = [*labelled, *([] if roles.index is None else [roles.index])]
    # Columns of a batch: p features, then contexts and annotations, then the index if there is one.
    builders = [LabelBuilder(reading.na_values) for _ in labelled]
    row_names: list[str] | None = None if roles.index is None else []
    blocks: list[Array] | None = []
    taken_bytes = 0
    n = 0
    gaps = Gaps(roles.features)
    rising = RisingColumns(p)
    for batch in table.batches(roles.features, texts):
        if not batch.num_rows:
            continue
        report_share(table.read)
        X = batch_matrix(batch, p)
        # Counted over all rows and reported at the end: the error then says how many there are, and in which columns.
        gaps.look(X, n)
        rising.look(X)
        for i, builder in enumerate(builders):
            builder.add(batch.column(p + i))
        if row_names is not None:
            row_names += ["" if name is None else name for name in batch.column(p + len(builders)).to_pylist()]
        n += len(X)
        if n * _ROW_BYTES > max(reading.max_bytes, _ALWAYS_ALLOWED_BYTES):
            raise UnusableFileError(
                table.where,
                f"has {n:,} rows or more, whose names and contexts alone take more than --max-memory "
                f"({reading.max_bytes / 2**20:,.0f} MB); raise --max-memory.",
            )
        if blocks is not None and budget.take(X.nbytes):
            taken_bytes += X.nbytes
            blocks.append(X)
        elif blocks is not None:
            # Too large: all of it will be streamed. The pass goes on, for labels, names of rows and gaps.
            budget.give_back(taken_bytes)
            blocks = None
    if n == 0:
        raise UnusableFileError(table.where, "has a header but no rows.")
    gaps.check(table.where, n)
    columns = {name: builder.finish() for name, builder in zip(labelled, builders, strict=True)}
    labels = [columns[name] for name in roles.contexts]
    annotations = {name: columns[name] for name in roles.annotations}
    rows = TableBlocks(table, roles.features) if blocks is None else None
    row_numbers = [roles.features[j] for j in rising.columns()]
    return FilePart(
        table.where,
        n,
        roles.features,
        blocks,
        rows,
        labels,
        row_names,
        roles.others,
        row_numbers,
        list(table.left_out),
        annotations=annotations,
        date_cells={name: cell for cell, name in getattr(table, "dates", {}).get("header", [])},
        others_of_rows=ColumnsOfTable(table, [*roles.features, *roles.contexts, roles.index or ""], reading.na_values),
    )


class RisingColumns:
    """Finds columns of whole numbers that rise from each row to the next: row numbers rather than features."""

    def __init__(self, p: int) -> None:
        self._candidates = np.arange(p)
        self._last_row = np.full(p, -np.inf)
        self._n = 0

    def look(self, X: Array) -> None:
        """Look at the next rows (m, p); the cost is that of the columns which are still in question."""
        # Often after the first block: from then on a look costs nothing.
        if not len(self._candidates):
            return
        # The first rows alone rule out nearly all columns, and spare the rest of the block.
        for rows in (X[:_LEAST_ROWS], X):
            # The value before the first row is -inf, which everything exceeds; comparisons with NaN are false.
            values = rows[:, self._candidates]
            with np.errstate(invalid="ignore"):
                rises = (values[1:] > values[:-1]).all(axis=0) & (values[0] > self._last_row[self._candidates])
                is_whole = (values == np.round(values)).all(axis=0)
            self._candidates = self._candidates[rises & is_whole]
        # A copy: a view would keep the whole block in memory.
        self._last_row = X[-1].astype(np.float64)
        self._n += len(X)

    def columns(self) -> list[int]:
        """Return the columns that rose throughout."""
        return self._candidates.tolist() if self._n >= _LEAST_ROWS else []


class Gaps:
    """Counts missing and infinite values by column, and remembers the first row with one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._counts = np.zeros(len(names), dtype=np.intp)  # of each column
        self._n_rows = 0  # with a gap
        self._first_row = -1

    def look(self, X: Array, first: int) -> None:
        """Look at the next rows; ``first`` is the number of the first of them."""
        # A sum is finite only if all values are, and needs no array as large as X. It may also overflow: then look.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(X.sum(dtype=np.float64)):
                return
        is_gap = ~np.isfinite(X)
        rows = np.flatnonzero(is_gap.any(axis=1))
        if len(rows):
            # Counted from 0 over the whole table.
            self._first_row = first + int(rows[0]) if self._first_row < 0 else self._first_row
            self._n_rows += len(rows)
            self._counts += is_gap.sum(axis=0)

    def check(self, where: str, n: int, row_names: Sequence[str] | None = None) -> None:
        """Raise if any of n rows has a gap; the first is told by its name if there are names."""
        if not self._n_rows:
            return
        columns = np.flatnonzero(self._counts)
        counts = [f"{short(self._names[c])!r} ({self._counts[c]:,})" for c in columns.tolist()]
        first = f"row {self._first_row + 1:,}" if row_names is None else repr(short(row_names[self._first_row]))
        raise UnusableFileError(
            where,
            f"{self._n_rows:,} of {counted(n, 'row')} have missing or infinite values, the first in {first}, in "
            f"{counted(len(columns), 'column')}: {listed(counts)}; fill them in, drop the "
            "rows, or leave the columns out with --drop.",
        )


def batch_matrix(batch: Any, p: int) -> Array:
    """Return the first p columns of an Arrow batch as an array (m, p), NaN for null; float32 if all columns are."""
    # float32 is kept, at half the memory; one column of another type makes the whole block float64.
    kinds = {str(batch.schema.field(j).type) for j in range(p)}
    # Arrow stores columns, so the transpose is filled row by row and turned once.
    X = np.empty((p, batch.num_rows), dtype=np.float32 if kinds == {"float"} else np.float64)
    for j in range(p):
        column = batch.column(j)
        if str(column.type) not in ("float", "double"):
            column = column.cast("float64", safe=False)  # unsafe: integers beyond 2^53 lose digits
        X[j] = column.to_numpy(zero_copy_only=False)  # null becomes NaN
    return np.ascontiguousarray(X.T)
