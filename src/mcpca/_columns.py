"""Some of the columns of a matrix: selected block by block where it is not in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from ._blocks import Rows, Source, as_canonical
from ._check import Array


class ColumnSource:
    """Columns of another source, in the order given. All columns are read, and one block of them is held at a time."""

    def __init__(self, source: Source, columns: Array) -> None:
        self._source, self._columns = source, columns
        n, p = source.shape
        self.shape = n, len(columns)
        self.dtype, self.sparse, self.in_memory = source.dtype, source.sparse, source.in_memory
        self.nbytes = int(source.nbytes * (len(columns) / p))

    def gather(self, rows: slice | Array) -> Rows:
        """Return these rows in this order."""
        return self._select(self._source.gather(rows))

    def scan(self, max_bytes: int) -> Iterator[tuple[int, Rows]]:
        """Yield (number of the first row, block); ``max_bytes`` is of what is read."""
        for first, block in self._source.scan(max_bytes):
            yield first, self._select(block)

    def _select(self, block: Any) -> Any:
        chosen = block[:, self._columns]
        return as_canonical(chosen) if self.sparse else np.asarray(chosen)


def in_memory(X: Any) -> bool:
    """Whether a matrix is an array or a SciPy sparse matrix whose columns can be taken out of it at once."""
    return scipy.sparse.issparse(X) or (isinstance(X, np.ndarray) and not isinstance(X, np.memmap))
