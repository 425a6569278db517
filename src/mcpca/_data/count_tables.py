"""How often each count occurs in each feature, from one pass over rows: all sums over features follow from it exactly.

Counts are whole numbers, and few different ones occur in a feature. The table of them is therefore small however many
rows there are, and gives any ``sum_t f(x_tj)`` afterwards, also for an f that is known only after all rows have been
seen, such as clipping at a bound that depends on the mean. Tables add up, so blocks may be counted in any process.

Values that are no whole numbers have no table. Neither has data with more than ``MOST_PAIRS`` different pairs of
feature and count: of these only sums and sums of squares are kept, and what else is needed takes a second pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._utils.parallel import each, n_workers
from .._utils.types import Array
from .blocks import check_block, stored
from .context_sums import consecutive

# Pairs of feature and count in a table, at most (256 MB, and twice that while two of them are added).
MOST_PAIRS = 2**24
# A pair is one number, ``cell 2^32 + count``, so that pairs can be sorted: cells are groups times features.
_COUNTS = 2**32
# Numbers in an array that small counts are added up in (4 MB); larger counts are sorted, which takes longer.
_BINS = 2**20
# Rows after which these numbers might no longer fit into 32 bits.
_MOST_ROWS = 2**31 - 1
# Counts in that array, at most: beyond them only few entries are saved from being sorted.
_MOST_BINS = 256
# Pairs that wait, at least, before they are sorted into the table.
_WAITING = 2**20
# Entries that are compared at a time.
_CACHED = 2**16
# Rows for a thread, at least: fewer are counted faster than a thread is started.
_ROWS_PER_PIECE = 256


class NumberedRows(NamedTuple):
    """A block of rows, the number of its first, and the groups of its rows (n,).

    -1 is for rows that are left out; None, if all are in group 0.
    """

    first: int
    block: Any
    groups: Array | None


@dataclass(frozen=True)
class CountTable:
    """How often counts other than 0 occur in the cells, which are numbered ``group p + feature``.

    Attributes
    ----------
    shape : tuple of int
        Numbers of groups and of features, (g, p).
    keys, times : ndarray (m,) or None
        Pair t, ``cell 2^32 + count``, occurs ``times[t]`` times; keys are sorted. None where there is no table.
    sums, squares : ndarray (g, p) or None
        Sums of values and of their squares, where there is no table.
    """

    shape: tuple[int, int]
    keys: Array | None
    times: Array | None
    sums: Array | None = None
    squares: Array | None = None

    def moments(self) -> tuple[Array, Array]:
        """Return sums of values and of squares (g, p): exact for counts, as long as they stay below 2^53."""
        if self.sums is None or self.squares is None:
            return self.clipped_sums(np.full(self.shape, np.inf))
        return self.sums, self.squares

    def clipped_sums(self, bounds: Array) -> tuple[Array, Array]:
        """Return sums and sums of squares (g, p) of ``min(x, bound)``, for a bound (g, p) of at least 0 per cell."""
        assert self.keys is not None
        cells = self.keys // _COUNTS
        values = np.minimum(self.keys % _COUNTS, bounds.ravel()[cells])
        sums = np.bincount(cells, self.times * values, bounds.size).reshape(self.shape)
        return sums, np.bincount(cells, self.times * values**2, bounds.size).reshape(self.shape)

    def without_pairs(self) -> CountTable:
        """Return only the sums."""
        return CountTable(self.shape, None, None, *self.moments())


def table_of(blocks: Iterable[NumberedRows], shape: tuple[int, int], where: str) -> CountTable:
    """Return the table of blocks of rows. Raises if a value is negative or not finite.

    Cost O(nnz), in threads, and O(m log m) for the m entries above some tens of counts; memory 8 MB for each thread,
    16 bytes a pair and about twice a block.
    """
    n_cells = shape[0] * shape[1]
    # Small counts are added up here, cell by cell and for each thread, and become pairs at the end.
    bins: list[Array] = []
    n_binned = 0
    table = CountTable(shape, *_no_pairs())
    waiting: list[CountTable] = []
    ones = np.ones(0, dtype=np.int32)  # for all pieces of all blocks: fresh memory takes longer than counting
    for rows in blocks:
        pieces = _pieces(rows)
        if n_binned + rows.block.shape[0] > _MOST_ROWS:
            table, n_binned = merged([table, *(_table_of_bins(some, shape) for some in bins)]), 0
            bins.clear()
        n_binned += rows.block.shape[0]
        while len(bins) < len(pieces):
            bins.append(np.zeros((n_cells, min(_MOST_BINS, _BINS // n_cells)), dtype=np.int32))
        longest = max(stored(piece.block).size for piece in pieces)
        ones = ones if len(ones) >= longest else np.ones(longest, dtype=np.int32)
        counted = each(partial(_counted, shape, ones, where), [*zip(pieces, bins, strict=False)], len(pieces))
        waiting.extend(counted)
        # Not after every block, since each time all pairs are sorted again; but tables of sums are large.
        n_pairs = sum(_n_pairs(some) for some in waiting)
        if n_pairs > max(_n_pairs(table), _WAITING) or any(some.keys is None for some in waiting):
            table, waiting = merged([table, *waiting]), []
    return merged([table, *waiting, *(_table_of_bins(some, shape) for some in bins)])


def _table_of_bins(bins: Array, shape: tuple[int, int]) -> CountTable:
    cells, counts = np.nonzero(bins)
    return CountTable(shape, cells * _COUNTS + counts, bins[cells, counts].astype(np.int64))


def _pieces(rows: NumberedRows) -> list[NumberedRows]:
    """Return a block in parts for the threads. Counts add up exactly, so parts may depend on the number of threads."""
    first, block, groups = rows
    n = block.shape[0]
    n_pieces = max(1, min(n_workers(), n // _ROWS_PER_PIECE))
    ends = [n * i // n_pieces for i in range(n_pieces + 1)]
    return [
        NumberedRows(first + a, consecutive(block, a, b), None if groups is None else groups[a:b])
        for a, b in pairwise(ends)
    ]


def _counted(shape: tuple[int, int], ones: Array, where: str, piece: tuple[NumberedRows, Array]) -> CountTable:
    """Add how often small counts occur to the bins (cells, n) that come with the rows; return the table of others."""
    rows, bins = piece
    n_bins = bins.shape[1]
    # Mostly they are, and nothing else has to be asked.
    positive = scipy.sparse.issparse(rows.block) and _are_counts(rows.block.data, least=1)
    cells, values = _entries(rows, shape, where, positive=positive)
    if not positive and not _are_counts(values):
        return _sums_only(cells, values, shape)
    others = CountTable(shape, *_no_pairs())
    if n_bins < 2 or values.max(initial=0) >= n_bins:
        small = values < n_bins if n_bins > 1 else np.zeros(len(values), dtype=bool)
        keys = cells[~small].astype(np.int64) * _COUNTS + values[~small].astype(np.int64)
        others = CountTable(shape, *np.unique(keys, return_counts=True))
        cells, values = cells[small], values[small]
    if n_bins > 1:
        # Entries at the same place add up. Unlike ``np.bincount`` this leaves Python's lock to other threads.
        places = cells, values.astype(cells.dtype)
        bins += scipy.sparse.coo_array((ones[: len(cells)], places), shape=bins.shape).toarray()
    return others


def merged(tables: list[CountTable]) -> CountTable:
    """Return the table of all rows from those of some rows each."""
    shape = tables[0].shape
    if all(table.keys is not None for table in tables):
        keys, places = np.unique(np.concatenate([table.keys for table in tables]), return_inverse=True)
        times = np.bincount(places, np.concatenate([table.times for table in tables]), len(keys))
        table = CountTable(shape, keys, times.astype(np.int64))
        return table if len(keys) <= MOST_PAIRS else table.without_pairs()
    sums, squares = np.zeros(shape), np.zeros(shape)
    for table in tables:
        some = table.moments()
        sums += some[0]
        squares += some[1]
    return CountTable(shape, None, None, sums, squares)


def clipped_sums(blocks: Iterable[NumberedRows], bounds: Array, where: str) -> tuple[Array, Array]:
    """Return what ``CountTable.clipped_sums`` does, from the rows themselves: for data without a table."""
    sums, squares = np.zeros(bounds.size), np.zeros(bounds.size)
    for rows in blocks:
        cells, values = _entries(rows, bounds.shape, where)
        clipped = np.minimum(values, bounds.ravel()[cells])
        sums += np.bincount(cells, clipped, bounds.size)
        squares += np.bincount(cells, clipped**2, bounds.size)
    return sums.reshape(bounds.shape), squares.reshape(bounds.shape)


def _entries(
    numbered: NumberedRows, shape: tuple[int, ...], where: str, *, positive: bool = False
) -> tuple[Array, Array]:
    """Return the cells and values of the entries of a block that are not 0; ``positive`` if all are known to be."""
    first, block, groups = numbered
    if not positive:
        check_block(block, first, where)
    if scipy.sparse.issparse(block):
        values = block.data
        rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr)) if groups is not None else None
        columns = block.indices
    else:
        rows, columns = np.nonzero(block)
        values = block[rows, columns]
    if not positive and values.size and values.min() < 0:
        at = int(np.argmax(values < 0))
        row = int(np.searchsorted(block.indptr, at, side="right")) - 1 if rows is None else int(rows[at])
        raise ValueError(
            f"{where} has the negative value {values[at]:.3g} in row {first + row}, feature {int(columns[at])}, and "
            "variable features are chosen from counts; pass raw counts."
        )
    if groups is None:
        if positive or values.all():
            return columns, values
        used = values != 0
        return columns[used], values[used]
    of_entries = groups[rows].astype(np.int64)
    used = (of_entries >= 0) & (values != 0)
    return (of_entries * shape[1] + columns)[used], values[used]


def _are_counts(values: Array, least: int = 0) -> bool:
    """Whether all values are whole numbers, ``least`` or more, that a pair has room for."""
    # In parts that stay in a core's cache, which takes half the time.
    parts = np.array_split(values, max(1, -(-values.size // _CACHED)))
    whole = values.dtype.kind in "biu"
    return all(
        part.min(initial=least) >= least and part.max(initial=0) < _COUNTS and (whole or (part == np.floor(part)).all())
        for part in parts
    )


def _no_pairs() -> tuple[Array, Array]:
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)


def _n_pairs(table: CountTable) -> int:
    return 0 if table.keys is None else len(table.keys)


def _sums_only(cells: Array, values: Array, shape: tuple[int, int]) -> CountTable:
    size = shape[0] * shape[1]
    wide = values.astype(np.float64, copy=False)
    sums = np.bincount(cells, wide, size).reshape(shape)
    return CountTable(shape, None, None, sums, np.bincount(cells, wide**2, size).reshape(shape))
