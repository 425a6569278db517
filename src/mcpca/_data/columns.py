"""Some of the columns of a matrix: found by name, and selected block by block where it is not in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .._utils.wording import quoted
from .blocks import RowBlock, Source, as_canonical


class ColumnSource:
    """Columns of another source, in the order given. All columns are read, and one block of them is held at a time."""

    def __init__(self, source: Source, columns: Array) -> None:
        self._source, self._columns = source, columns
        n, p = source.shape
        self.shape = n, len(columns)
        self.dtype, self.sparse, self.in_memory = source.dtype, source.sparse, source.in_memory
        self.nbytes = int(source.nbytes * (len(columns) / p))

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order."""
        return self._select(self._source.gather(rows))

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block); ``max_bytes`` is of what is read."""
        for first, block in self._source.scan(max_bytes):
            yield first, self._select(block)

    def _select(self, block: Any) -> Any:
        chosen = block[:, self._columns]
        return as_canonical(chosen) if self.sparse else np.asarray(chosen)


def in_memory(X: Any) -> bool:
    """Whether a matrix is an array or a SciPy sparse matrix whose columns can be taken out of it at once."""
    return scipy.sparse.issparse(X) or (isinstance(X, np.ndarray) and not isinstance(X, np.memmap))


# By name


def positions_of(known: Sequence[Any], own: Sequence[Any], where: str, whose: str, way_out: str) -> Array | None:
    """Return the positions of ``known`` names among a matrix's ``own``; None where they are the same in this order."""
    if len(own) == len(known) and all(a == b for a, b in zip(own, known, strict=True)):
        return None
    place = {name: j for j, name in enumerate(own)}
    lacking = [name for name in known if name not in place]
    if lacking:
        raise ValueError(
            f"{where} lacks {len(lacking)} of the {len(known)} features {whose}: {quoted(lacking)}. {way_out}"
        )
    if len(place) < len(own):
        wanted, seen, twice = set(known), set(), []
        for name in own:
            twice += [name] if name in seen and name in wanted else []
            seen.add(name)
        if twice:
            raise ValueError(f"{where} has several features called {quoted(twice)}; give every one its own name.")
    return np.array([place[name] for name in known], dtype=np.intp)


def frame_columns(X: Any, places: Array) -> Any:
    """Return these columns of a DataFrame (pandas, polars, Dask), in this order."""
    if hasattr(X, "npartitions"):
        return X[[X.columns[j] for j in places]]
    return X.iloc[:, places] if hasattr(X, "iloc") else X[:, places.tolist()]
