"""Blocks of rows, dense, CSR or CSR plus low rank: the ``Source`` interface, and what its implementations share.

A matrix is never held as a whole; it is read in blocks of consecutive rows (``scan``) or by row numbers (``gather``).
What a pass does to a block is in ``context_sums`` and above.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .._utils.wording import listed
from .low_rank_rows import LowRankRows

RowBlock: TypeAlias = np.ndarray | scipy.sparse.csr_array | scipy.sparse.csr_matrix

# Size of a block that is read at a time, 32 MB: large enough for a read from disk and a product to outweigh what each
# block costs besides, small enough to be held next to any result. malloc reuses the memory of arrays up to this size;
# larger ones go back to the system, and the next block costs fresh pages.
SCAN_BYTES = 2**25


class Source(Protocol):
    """Rows of one matrix, in memory or not.

    Blocks may be views of the caller's data, so they must not be written to. Sparse blocks are ``csr_array`` with
    sorted indices and without duplicates, whatever the matrix has, or ``LowRankRows``.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
        Precision of the blocks: float32 for float32, float64 for all other real numbers.
    in_memory : bool
        Whether ``gather`` is cheap for rows in any order; otherwise only reading in order is.
    sparse : bool
        Whether blocks are CSR, or CSR plus low rank (then ``low_rank`` is True).
    nbytes : int
        About how many bytes all rows take as blocks.
    stored_dtype : dtype, optional
        What the matrix itself has, where that is not ``dtype``: counts may be integers.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    in_memory: bool
    sparse: bool
    nbytes: int

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order; row numbers may repeat. Memory: at most twice the result, and one block."""
        ...

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block) in order; a block has at most about ``max_bytes``, at least a row."""
        ...


def block_dtype(dtype: Any, where: str) -> np.dtype[Any]:
    """Return float32 for float32 and float64 for other real numbers; raise for anything else."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} has dtype {dtype}; pass real numbers.")
    if dtype.kind not in "biuf":
        raise ValueError(f"{where} has dtype {dtype}, which is not numeric; pass integers or floats.")
    # float16 has too small a range for squares; and BLAS knows neither it, nor integers, nor long doubles.
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64)


def check_matrix_shape(shape: Any, where: str) -> tuple[int, int]:
    """Return (rows, features) of a matrix; raise if it is not 2-D or has no feature."""
    if len(shape) != 2:
        raise ValueError(f"{where} must be 2-D (n_samples, n_features), got shape {tuple(shape)}; reshape it.")
    n, p = int(shape[0]), int(shape[1])
    if p == 0:
        raise ValueError(f"{where} has 0 feature(s) (shape=({n}, 0)) while a minimum of 1 is required.")
    return n, p


def row_numbers(rows: slice | Array, n: int, where: str) -> Array:
    """Return the numbers of the rows asked for (int64), each within [0, n)."""
    if isinstance(rows, slice):
        return np.arange(*rows.indices(n))
    numbers = np.asarray(rows)
    # A mask must not pass: its True and False would be read as row numbers 1 and 0. An empty list is float64 in NumPy,
    # which is why only arrays with entries are tested.
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(
            f"rows of {where}: an array of dtype {numbers.dtype} and shape {numbers.shape}; pass a slice or a 1-D "
            "array of integers (np.flatnonzero(mask) for a mask)."
        )
    numbers = numbers.astype(np.int64, copy=False)
    # Negative numbers do not count from the end: sources search for sorted numbers, and would not find them.
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < n):
        raise IndexError(
            f"rows of {where}: {numbers.min()} to {numbers.max()} are asked for and it has {n}; pass row numbers from "
            f"0 to {n - 1}."
        )
    return numbers


def as_range(rows: slice | Array, n: int) -> tuple[int, int] | None:
    """Return (first, past the last) for a slice of consecutive rows, and None for anything else."""
    if not isinstance(rows, slice):
        return None
    start, stop, step = rows.indices(n)
    # slice(5, 3) is empty: (5, 5), so that lengths computed from it are not negative.
    return (start, max(start, stop)) if step == 1 else None


class Room:
    """Reusable memory for one large block after another.

    Fresh pages have to be mapped and zeroed by the system, which takes longer than filling them; so a buffer is kept
    under its name. Its content is lost when the same name is taken again; until then it may serve a second time.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}
        self._content: tuple[Any, Any] | None = None

    def take(self, name: str, size: int, dtype: Any) -> Array:
        """Return an uninitialised array (size,), from the buffer of this name if that is large enough."""
        self._content = None
        # A larger buffer serves a smaller request, so a pass allocates about as often as its blocks grow.
        buffer = self._buffers.get(name)
        if buffer is None or buffer.dtype != dtype or len(buffer) < size:
            # Both references go before the larger buffer is made, or the two would be held at the same time.
            buffer = None
            self._buffers.pop(name, None)
            buffer = self._buffers[name] = np.empty(size, dtype=dtype)
        return buffer[:size]

    def keep(self, key: Any, block: Any) -> None:
        """Remember a block that is in the buffers by its key, until one of them is taken again."""
        self._content = key, block

    def kept(self, key: Any) -> Any:
        """Return the block of this key, or None."""
        return self._content[1] if self._content is not None and self._content[0] == key else None

    def clear(self) -> None:
        """Release all buffers."""
        self._content = None
        self._buffers.clear()


def csr_block(data: Array, indices: Array, indptr: Array, p: int, dtype: Any, canonical: bool = False) -> Any:
    """Build a CSR block around these arrays, which are copied only if their type or the order of entries must change.

    ``canonical`` says that indices are known to be sorted and without duplicates; otherwise that takes one pass over
    them.
    """
    return as_canonical(csr_array_of(data, indices, indptr, p, dtype), canonical)


def csr_array_of(data: Array, indices: Array, indptr: Array, p: int, dtype: Any) -> Any:
    """Return a CSR matrix (n, p) around these arrays, with indices in whatever order they are."""
    # SciPy's compiled routines need indices and indptr of the same type. Indices that are int64 already stay so, since
    # to narrow them would take a copy.
    wide = indices.dtype != np.int32 or indptr[-1] > np.iinfo(np.int32).max
    index = np.int64 if wide else np.int32
    # The arrays are set afterwards because SciPy's constructor copies views of less than half of an array.
    block = scipy.sparse.csr_array((len(indptr) - 1, p), dtype=dtype)
    block.data = data.astype(dtype, copy=False)
    block.indices = indices.astype(index, copy=False)
    block.indptr = indptr.astype(index, copy=False)
    return block


def times_power(block: Any, e: int) -> Any:
    """Return a copy of a dense or CSR block, or of an array on a device, times ``2^e``; exact barring overflow."""
    if isinstance(block, np.ndarray):
        return np.ldexp(block, e)
    if isinstance(block, LowRankRows):
        return block.times_power(e)
    if not scipy.sparse.issparse(block):
        # The array API has no ldexp. In two halves, because 2^e alone may be beyond the range of single precision.
        return block * 2.0 ** (e // 2) * 2.0 ** (e - e // 2)
    # 0 times a power of two is 0, so the pattern of a sparse block, and with it its canonical form, is kept.
    data = np.ldexp(block.data, e)
    return csr_block(data, block.indices, block.indptr, block.shape[1], block.dtype, canonical=True)


def largest(block: Any) -> float:
    """Return the largest finite absolute value in a dense or CSR block, 0 if there is none."""
    if isinstance(block, LowRankRows):
        # Of the low rank a bound: the size of a block need not be exact.
        return max(largest(block.entries), block.largest_of_low_rank())
    values = block.data if scipy.sparse.issparse(block) else np.asarray(block)
    # Two reductions instead of np.abs, which would copy the block.
    # As floats before the sign is changed: booleans have no negative, and that of the least int8 is no int8.
    size = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    return size if np.isfinite(size) else float(np.abs(values[np.isfinite(values)]).max(initial=0))


def csr_rows(X: Any, start: int, stop: int, dtype: Any, canonical: bool) -> Any:
    """Return rows ``start`` to ``stop`` of a CSR matrix as a ``csr_block`` around views of its arrays."""
    # Pointers count from the first entry of the whole matrix; only these few are copied, to count from 0.
    pointers = X.indptr[start : stop + 1]
    part = slice(int(pointers[0]), int(pointers[-1]))
    return csr_block(X.data[part], X.indices[part], pointers - pointers[0], X.shape[1], dtype, canonical)


def as_canonical(block: Any, known: bool = False) -> Any:
    """Return a CSR block with sorted indices and no duplicates: itself, or a copy, since it may be a view."""
    # The flag alone spares SciPy the pass over all indices by which it would find that out.
    if known:
        block.has_canonical_format = True
    elif not block.has_canonical_format:
        block = block.copy()
        block.sum_duplicates()
    return block


def in_asked_order(pieces: list[Any], order: Array) -> Any:
    """Stack pieces, CSR or dense, whose rows are in the order of the file; return the rows in the order asked for.

    ``order`` (n,) is the argsort of the row numbers asked for. Empties ``pieces``. Memory: twice the result.
    """
    if isinstance(pieces[0], np.ndarray):
        stacked = np.concatenate(pieces)
        pieces.clear()
        out = np.empty_like(stacked)
        out[order] = stacked
        return out
    block = pieces[0] if len(pieces) == 1 else scipy.sparse.csr_array(scipy.sparse.vstack(pieces, format="csr"))
    pieces.clear()
    if np.array_equal(order, np.arange(len(order))):
        return block
    # Row j of the block belongs at order[j]; so row i of the result is row inverse[i] of the block.
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    return block[inverse]


def equal_blocks(n: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield (first, past the last) of blocks of ``step`` rows."""
    # Callers divide bytes by the size of a row, which gives 0 for very long rows, and range refuses that.
    step = max(step, 1)
    for first in range(0, n, step):
        yield first, min(first + step, n)


def csr_blocks(indptr: Array, entry_bytes: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (first, past the last) of blocks of rows whose entries and pointers take at most ``max_bytes``."""
    n = len(indptr) - 1
    first = 0
    while first < n:
        start = int(indptr[first])

        def size(stop: int, first: int = first, start: int = start) -> int:
            return (int(indptr[stop]) - start) * entry_bytes + (stop - first) * indptr.itemsize

        # The size grows with the end of the block, so the last end that fits is found by bisection.
        ends = range(first + 1, n + 1)
        stop = first + max(1, bisect_right(ends, max_bytes, key=size))
        yield first, stop
        first = stop


def check_block(block: RowBlock, first_row: int, where: str) -> None:
    """Raise if a block has NaN or infinite values; the error says how many and where. Cost: one sum.

    ``first_row`` is the number of the block's first row in the matrix.
    """
    X: Any = block.entries if isinstance(block, LowRankRows) else block
    sparse = scipy.sparse.issparse(X)
    values: Array = X.data if sparse else np.asarray(X)
    if has_finite_sum(values):
        return
    bad = ~np.isfinite(values)
    # All values are finite, and only their sum has overflowed.
    if not bad.any():
        return
    if sparse:
        positions = np.flatnonzero(bad)
        # side="right" steps over empty rows, which have the same pointer as the row after them.
        rows = np.searchsorted(X.indptr, positions, side="right") - 1
        columns = X.indices[positions]
    else:
        rows, columns = np.nonzero(bad)
    raise ValueError(
        f"{where} contains {int(np.isnan(values).sum())} NaN and {int(np.isinf(values).sum())} infinite (inf) values "
        f"within rows {first_row + int(rows.min())} to {first_row + int(rows.max())}, in feature(s) "
        f"{listed(np.unique(columns))}; impute or drop them before fitting."
    )


def stored(block: Any) -> Array:
    """Return the values that a block of rows stores: all of a dense one, those of the entries of any other."""
    if isinstance(block, LowRankRows):
        block = block.entries
    return np.asarray(block.data if scipy.sparse.issparse(block) else block)


def has_finite_sum(values: Array) -> bool:
    """Whether the sum of all values is finite, in which case they all are.

    The converse does not hold, since a sum of finite numbers may overflow: False only means that each has to be looked
    at. One read and no temporary, where ``np.isfinite(values).all()`` makes a mask.
    """
    # In double, where sums of single precision cannot overflow. inf - inf gives NaN, which is not finite either.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)))
