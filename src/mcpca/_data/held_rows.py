"""Rows of files and prepared rows of few features, held in memory where they fit, so that passes need not read them.

A fit passes over the rows some ten times. Where it uses 2,000 of 20,000 features, a tenth or two of the entries are
all that it needs, and to read and select them again in every pass would cost far more than the fit itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn import get_config

from .._utils.parallel import each, is_aside, n_workers
from .._utils.progress import silent
from .._utils.types import Array, Report
from .blocks import SCAN_BYTES, Source, csr_block
from .low_rank_rows import LowRankRows, stacked
from .read_ahead import blocks_ahead
from .row_steps import row_totals
from .sources import as_source

_SPARE = 1.1  # of the memory that rows are likely to take


def memory_limit() -> int:
    """Return how many bytes of rows may be held, or gathered at a time: scikit-learn's ``working_memory``."""
    return int(float(get_config()["working_memory"]) * 2**20)


class RowsRead:
    """Tells how many of n rows have been read, and stays silent after the last."""

    def __init__(self, report: Report, stage: str, n: int) -> None:
        self._report = report
        self._stage = stage
        self._n = n
        self._done = 0

    def add(self, rows: int) -> None:
        """Tell of so many rows more."""
        if self._done < self._n:
            self._done = min(self._done + rows, self._n)
            self._report(self._stage, self._done, self._n)


def held(source: Any, limit: int, report: Report = silent, stage: str = "preparing rows") -> Source | None:
    """Return the rows of a source as a matrix in memory; None where they take more than ``limit`` bytes.

    Cost: one pass, or the part of it after which the limit is known to be exceeded. Memory: little more than the
    result, or two and a half times it if rows get longer from block to block.
    """
    progress = RowsRead(report, stage, source.shape[0])
    if not source.sparse:
        if source.nbytes > limit:
            return None
        rows = np.empty(source.shape, dtype=source.dtype)
        for first, block in blocks_ahead(source, SCAN_BYTES):
            rows[first : first + block.shape[0]] = block
            progress.add(block.shape[0])
        return as_source(rows, "X")
    blocks: list[Any] = []
    data, indices = _Growing(source.dtype), _Growing(np.dtype(np.int32))
    lengths = [np.zeros(1, dtype=np.int64)]
    taken = 0
    n_threads = n_workers() if is_aside() else 1
    for _, block in blocks_ahead(source, SCAN_BYTES):
        X: Any = block
        progress.add(X.shape[0])
        is_low_rank = isinstance(X, LowRankRows)
        entries = X.entries if is_low_rank else X
        taken += entries.data.nbytes + entries.indices.nbytes + entries.indptr.nbytes
        taken += X.left.nbytes if is_low_rank else 0
        if taken > limit:
            return None
        if is_low_rank:
            blocks.append(X)
            continue
        # If the others are like these, and no more than may be held.
        most = limit // (X.data.itemsize + X.indices.itemsize)
        likely = min(int(_SPARE * len(X.data) * source.shape[0] / max(X.shape[0], 1)), most)
        # In two threads: to touch memory for the first time takes longer than to copy.
        list(each(partial(_grow, likely), [(data, X.data), (indices, X.indices)], n_threads))
        lengths.append(np.diff(X.indptr))
    if blocks:
        return as_source(stacked(blocks), "X")
    pointers = np.cumsum(np.concatenate(lengths))
    return as_source(
        csr_block(data.whole(), indices.whole(), pointers, source.shape[1], source.dtype, canonical=True), "X"
    )


def _grow(likely: int, part: tuple[_Growing, Array]) -> None:
    array, values = part
    array.append(values, likely)


class _Growing:
    """An array that grows at its end, in memory that is taken once if its length was foreseen.

    What is not written to yet has an address and takes no memory.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._array = np.empty(0, dtype=dtype)
        self._n = 0

    def append(self, values: Array, likely: int) -> None:
        """Add values; ``likely`` is how long the whole may become, for when more memory has to be taken."""
        n = self._n + len(values)
        dtype = np.result_type(self._array, values)
        if n > len(self._array) or dtype != self._array.dtype:
            array = np.empty(max(likely, n + n // 2), dtype=dtype)
            array[: self._n] = self._array[: self._n]
            self._array = array
        self._array[self._n : n] = values
        self._n = n

    def whole(self) -> Array:
        """Return the array: a view of the memory that was taken."""
        return self._array[: self._n]


class TotalledSource:
    """Another source, whose rows leave their totals behind as they are read in order."""

    def __init__(self, source: Any, progress: RowsRead) -> None:
        self._source = source
        self._progress = progress
        self.shape = source.shape
        self.dtype = source.dtype
        self.stored_dtype = getattr(source, "stored_dtype", source.dtype)
        self.in_memory = source.in_memory
        self.sparse = source.sparse
        self.nbytes = source.nbytes
        # NaN until the row has been read.
        self.totals = np.full(source.shape[0], np.nan)

    def gather(self, rows: Any) -> Any:
        """Return these rows in this order."""
        return self._source.gather(rows)

    def scan(self, max_bytes: int) -> Any:
        """Yield (number of the first row, block)."""
        for first, block in blocks_ahead(self._source, max_bytes):
            self.totals[first : first + block.shape[0]] = row_totals(block)
            self._progress.add(block.shape[0])
            yield first, block
