"""Rows of files and prepared rows of few features, held in memory where they fit, so that passes need not read them.

A fit passes over the rows some ten times. Where it uses 2,000 of 20,000 features, a tenth or two of the entries are
all that it needs, and to read and select them again in every pass would cost far more than the fit itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import get_config

from .._utils.progress import silent
from .._utils.types import Report
from .blocks import SCAN_BYTES, Source, csr_block
from .low_rank_rows import LowRankRows, stacked
from .read_ahead import blocks_ahead
from .row_steps import row_totals
from .sources import as_source


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

    Cost: one pass, or the part of it after which the limit is known to be exceeded. Memory: one and a half times the
    result.
    """
    progress = RowsRead(report, stage, source.shape[0])
    if not source.sparse:
        if source.nbytes > limit:
            return None
        rows = np.empty(source.shape, dtype=source.dtype)
        for first, block in source.scan(SCAN_BYTES):
            rows[first : first + block.shape[0]] = block
            progress.add(block.shape[0])
        return as_source(rows, "X")
    blocks: list[Any] = []
    data: list[Any] = []
    indices: list[Any] = []
    lengths = [np.zeros(1, dtype=np.int64)]
    taken = 0
    for _, block in source.scan(SCAN_BYTES):
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
        data.append(X.data)
        indices.append(X.indices)
        lengths.append(np.diff(X.indptr))
    if blocks:
        return as_source(stacked(blocks), "X")
    values = np.concatenate([np.zeros(0, source.dtype), *data])
    # Before the indices are joined: one of the two is in memory twice at a time.
    data.clear()
    joined = np.concatenate([np.zeros(0, np.int32), *indices])
    indices.clear()
    pointers = np.cumsum(np.concatenate(lengths))
    return as_source(csr_block(values, joined, pointers, source.shape[1], source.dtype, canonical=True), "X")


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
