"""Rows on Dask for what reads them in this process: pictures, reports, PCA beside MCPCs, rows with missing features.

A fit goes to the rows (``dask_rows.DaskEngine``). What shows rows, or a sample of them, needs some here: ``DaskReader``
is a ``Source``, like a file. ``gather`` picks the rows asked for where they are, and only these come; ``scan`` computes
one block after the other, as ``scan`` of a file reads it; ``products`` computes ``X W`` there. At no time are all rows
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import RowBlock, Source, csr_blocks, equal_blocks, in_asked_order, row_numbers
from .dask_graph import Graph
from .dask_rows import layouts_of, whole_rows
from .dask_tasks import block_rows, gathered, loaded_block, picked_rows
from .detect import is_dask
from .lazy_files import opened
from .sources import as_source


def readable_rows(matrix: Any, where: str) -> Source:
    """Return a matrix of any kind as a ``Source`` of which rows can be read here, those on Dask included."""
    matrix = opened(matrix)
    return DaskReader(matrix, where) if is_dask(matrix) else as_source(matrix, where)


class DaskReader:
    """Rows of a Dask array that are computed as they are read. Its first block is looked at when it is made."""

    in_memory = False

    def __init__(self, X: Any, where: str) -> None:
        self._where = where
        self._array = whole_rows(X, where)
        (layout,) = layouts_of([self._array], [where])
        self._places = layout.filled()
        self.shape = layout.n_rows, int(self._array.shape[1])
        self.dtype = layout.dtype
        self.sparse = layout.sparse
        self.nbytes = layout.nbytes

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order: one computation on the blocks that hold them."""
        numbers = row_numbers(rows, self.shape[0], self._where)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        graph = Graph([self._array])
        leaves = []
        for number, place in self._places:
            a, b = np.searchsorted(ordered, [place.first, place.first + place.n_rows])
            if a < b:
                wanted = graph.put(ordered[a:b] - place.first)
                leaves.append(graph.call(picked_rows, self._key(number), place, wanted))
        if not leaves:
            empty = scipy.sparse.csr_array if self.sparse else np.empty
            return empty((0, self.shape[1]), dtype=self.dtype)
        pieces = graph.compute(graph.call(gathered, leaves))
        return in_asked_order(list(pieces), order)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block): blocks as they are, split if larger than ``max_bytes``."""
        for number, place in self._places:
            graph = Graph([self._array])
            block: Any = graph.compute(graph.call(loaded_block, self._key(number), place))
            if self.sparse:
                parts = csr_blocks(block.indptr, self.dtype.itemsize + block.indices.itemsize, max_bytes)
            else:
                parts = equal_blocks(block.shape[0], max_bytes // (self.shape[1] * self.dtype.itemsize))
            for a, b in parts:
                yield place.first + a, block if b - a == block.shape[0] else block[a:b]

    def products(self, directions: Array) -> Array:
        """Return ``X W`` (n, m) in float64 for W (p, m): one computation, of which only the products come here."""
        graph = Graph([self._array])
        known = graph.put(directions)
        leaves = [graph.call(block_rows, known, self._key(number), 0, place) for number, place in self._places]
        parts = graph.compute(graph.call(gathered, leaves))
        return np.concatenate([np.empty((0, *directions.shape[1:])), *parts])

    def _key(self, number: int) -> Any:
        return self._array.name, number, 0
