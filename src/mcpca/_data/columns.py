"""Some columns of a matrix: found by name, and selected block by block where the matrix is not in memory.

``positions_of`` is the one comparison of feature names, for contexts against each other, new data against a fit, and
blocks against the first block. ``alignment`` decides when it is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .._utils.wording import quoted
from .blocks import RowBlock, Source, as_canonical


class ColumnSource:
    """Some columns of another source, in this order. All its columns are read, and held one block at a time."""

    def __init__(self, source: Source, columns: Array) -> None:
        self._source = source
        self._columns = columns
        n, p = source.shape
        self.shape = n, len(columns)
        self.dtype = source.dtype
        self.stored_dtype = getattr(source, "stored_dtype", source.dtype)
        self.sparse = source.sparse
        self.in_memory = source.in_memory
        # By the share of columns: exact if dense; if sparse, as though entries were spread evenly.
        self.nbytes = int(source.nbytes * (len(columns) / p))

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order."""
        return self._select(self._source.gather(rows))

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block); ``max_bytes`` bounds what is read, with all columns."""
        for first, block in self._source.scan(max_bytes):
            yield first, self._select(block)

    def _select(self, block: Any) -> Any:
        selected = block[:, self._columns]
        # SciPy does not sort the indices of selected columns.
        return as_canonical(selected) if self.sparse else np.asarray(selected)


def in_memory(X: Any) -> bool:
    """Whether a matrix is an array or SciPy's, so that some of its columns can be copied at once; a map is on disk."""
    return scipy.sparse.issparse(X) or (isinstance(X, np.ndarray) and not isinstance(X, np.memmap))


# Feature names


def positions_of(
    known: Sequence[Any], names: Sequence[Any], where: str, whose: str, way_out: str, *, exactly: bool = False
) -> Array | None:
    """Return the positions of the ``known`` names among the ``names`` of a matrix; None where both are equal.

    Every known name must occur, and once. ``exactly`` also refuses names beyond those; otherwise they are skipped.

    Parameters
    ----------
    where, whose, way_out : str
        For errors: the matrix, where the known names come from ("of the fit"), and what to do.
    """
    # Also for repeated names: if both sides have them in the same places, nothing has to be looked up.
    if len(names) == len(known) and all(a == b for a, b in zip(names, known, strict=True)):
        return None
    position = {name: j for j, name in enumerate(names)}
    wanted = set(known)
    # Lists rather than differences of sets, so that errors have the names in the user's order.
    missing = [name for name in known if name not in position]
    extra = [name for name in names if name not in wanted] if exactly else []
    if missing:
        besides = f", and has {len(extra)} in addition: {quoted(extra)}" if extra else ""
        raise ValueError(
            f"{where} lacks {len(missing)} of the {len(known)} features {whose}: {quoted(missing)}{besides}. {way_out}"
        )
    if extra:
        raise ValueError(f"{where} has features in addition to the {len(known)} {whose}: {quoted(extra)}. {way_out}")
    # Repeated names do no harm as long as none of them is asked for.
    if len(position) < len(names):
        repeated = [name for name, count in Counter(names).items() if count > 1 and name in wanted]
        if repeated:
            raise ValueError(f"{where} has several features called {quoted(repeated)}; give each its own name.")
    return np.array([position[name] for name in known], dtype=np.intp)


def is_arrow_table(X: Any) -> bool:
    """Whether X is a Table or RecordBatch of pyarrow, whose ``columns`` are the values and not the names."""
    cls = type(X)
    return cls.__module__.partition(".")[0] == "pyarrow" and hasattr(cls, "column_names")


def frame_columns(X: Any, places: Array) -> Any:
    """Return these columns of a DataFrame (pandas, polars, Dask) or a Table of pyarrow, in this order."""
    if is_arrow_table(X):
        return X.select(places.tolist())
    if hasattr(X, "npartitions"):
        return X[[X.columns[j] for j in places]]
    return X.iloc[:, places] if hasattr(X, "iloc") else X[:, places.tolist()]


def dask_columns(X: Any, places: Array) -> Any:
    """Return these columns of a Dask array, in this order; its blocks may be sparse, which Dask cannot index itself."""
    # Positions are those in a whole row, so a block must not hold only part of its columns. ``meta`` is given because
    # Dask would otherwise try the function on an empty block, which lacks these columns.
    X = X.rechunk({1: -1})
    return X.map_blocks(_block_columns, places, chunks=(X.chunks[0], (len(places),)), meta=X._meta)


def _block_columns(block: Any, places: Array) -> Any:
    # COO and BSR blocks cannot be indexed.
    return (scipy.sparse.csr_array(block) if scipy.sparse.issparse(block) else block)[:, places]
