"""Products of CSR with dense matrices, compiled by Numba: one and a half to two and a half times as fast as SciPy's.

SciPy adds the dense row that belongs to an entry to a row of the result, and reads and writes the latter each time.
Here as much of the result as three vectors of 64 bytes hold stays in registers while the entries of a sparse row are
added up. For the transpose, where each entry has another row of the result, it is the dense factor that stays there.
Entries are added in SciPy's order; sums differ from SciPy's by rounding, where processors round a product and a sum at
once. What is left is mostly the time in which the cache delivers rows, so these begin where lines of the cache do.

Importing this module imports Numba, which takes half a second: ``_data.sparse_products`` knows when that pays. What is
compiled is kept on disk, in the folder that Numba chooses, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic, models, register_model

from .types import Array

# What a vector holds: the widest register there is, and a line of the cache. Where registers are narrower a vector
# takes two of them or four.
_VECTOR_BYTES = 64
# Vectors that are multiplied with an entry. Fewer read entries more often; more do not fit into registers everywhere.
_VECTORS = 3


def lanes(dtype: Any) -> int:
    """Return how many numbers a vector holds, and so the fewest columns that can be multiplied."""
    return _VECTOR_BYTES // int(np.dtype(dtype).itemsize)


def times(X: Any, V: Array) -> Array:
    """Return ``X V`` for CSR X (n, p) and V (p, m), both float32 or both float64, m at least ``lanes``."""
    # Its rows are read in the order of the indices. The copy costs p m beside nnz m.
    if not V.flags.c_contiguous or V.ctypes.data % _VECTOR_BYTES:
        V, given = _aligned(np.empty, V.shape, V.dtype), V
        V[:] = given
    out = np.empty((X.shape[0], V.shape[1]), dtype=V.dtype)
    for places in _tiles(V):
        _times(X.indptr, X.indices, X.data, V.reshape(-1), out.reshape(-1), V.shape[1], *places)
    return out


def transposed_times(X: Any, Z: Array) -> Array:
    """Return ``X^T Z`` for CSR X (n, p) and Z (n, m), likewise."""
    Z = np.ascontiguousarray(Z)
    out = _aligned(np.zeros, (X.shape[1], Z.shape[1]), Z.dtype)
    for places in _tiles(Z):
        _transposed_times(X.indptr, X.indices, X.data, Z.reshape(-1), out.reshape(-1), Z.shape[1], *places)
    return out


def _aligned(make: Callable[..., Array], shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array that begins where a line of the cache does, so that rows of it are in as few lines as can be."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    room = make(n_bytes + _VECTOR_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % _VECTOR_BYTES
    return np.asarray(room[start : start + n_bytes].view(dtype).reshape(shape))


def _tiles(V: Array) -> Iterator[tuple[np.uintp, np.uintp | None, np.uintp | None]]:
    """Yield where vectors begin that are multiplied together: up to three, None where fewer hold the columns.

    Columns come in equal shares. Vectors may overlap, as none reaches beyond its share; what is in two of them is
    computed twice.
    """
    m, wide = V.shape[1], lanes(V.dtype)
    n = -(-m // (_VECTORS * wide))
    for i in range(n):
        first, stop = m * i // n, m * (i + 1) // n
        starts = [*range(first, stop - wide, wide), stop - wide]
        b, c = [np.uintp(start) for start in starts[1:]] + [None] * (_VECTORS - len(starts))
        yield np.uintp(starts[0]), b, c


class _Vector(types.Type):
    """Type of a vector in compiled code, which has none of its own."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.n = 8 * _VECTOR_BYTES // dtype.bitwidth
        super().__init__(f"Vector({dtype}, {self.n})")


class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: _Vector) -> None:
        number = manager.lookup(vector.dtype).get_data_type()
        super().__init__(manager, vector, ir.VectorType(number, vector.n))


register_model(_Vector)(_VectorModel)


def _place(context: Any, builder: Any, array_type: Any, array: Any, place: Any) -> Any:
    """Return the pointer to the vector at ``place`` of a 1-D array."""
    start = context.make_array(array_type)(context, builder, array).data
    vector = context.get_value_type(_Vector(array_type.dtype))
    return builder.bitcast(builder.gep(start, [place]), vector.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _zeros(typing: Any, array: Any) -> Any:
    """Make a vector of zeros, of the type of the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return _Vector(array.dtype)(array), generate


@intrinsic  # type: ignore[untyped-decorator]
def _load(typing: Any, array: Any, place: Any) -> Any:
    """Return the vector that begins at ``place``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _place(context, builder, signature.args[0], *arguments)
        return builder.load(pointer, align=signature.args[0].dtype.bitwidth // 8)

    return _Vector(array.dtype)(array, types.uintp), generate


@intrinsic  # type: ignore[untyped-decorator]
def _store(typing: Any, array: Any, place: Any, vector: Any) -> Any:
    """Write the vector to ``place`` and what follows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.uintp, vector), generate


@intrinsic  # type: ignore[untyped-decorator]
def _plus(typing: Any, total: Any, number: Any, vector: Any) -> Any:
    """Return ``total + number * vector``, rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, number, vector = arguments
        kind = vector.type
        nothing = ir.Constant(kind, ir.Undefined)
        first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None)
        factor = builder.shuffle_vector(first, nothing, everywhere)
        return builder.fadd(builder.fmul(factor, vector, flags=("contract",)), total, flags=("contract",))

    return total(total, number, vector), generate


def _compiled(function: Callable[..., Any]) -> Any:
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that can be written to
        return njit(nogil=True)(function)


def _times_of_rows(
    indptr: Array, indices: Array, data: Array, V: Array, out: Array, width: int, a: Any, b: Any, c: Any
) -> None:
    # Unsigned, since a signed index would be tested for counting from the end. What is done for b and c is left out by
    # the compiler where these are None, which is a type.
    m = np.uintp(width)
    for i in range(len(indptr) - 1):
        x = y = z = _zeros(V)
        for entry in range(indptr[i], indptr[i + 1]):
            number = data[entry]
            row = np.uintp(indices[entry]) * m
            x = _plus(x, number, _load(V, row + a))
            if b is not None:
                y = _plus(y, number, _load(V, row + b))
            if c is not None:
                z = _plus(z, number, _load(V, row + c))
        row = np.uintp(i) * m
        _store(out, row + a, x)
        if b is not None:
            _store(out, row + b, y)
        if c is not None:
            _store(out, row + c, z)


def _transposed_times_of_rows(
    indptr: Array, indices: Array, data: Array, Z: Array, out: Array, width: int, a: Any, b: Any, c: Any
) -> None:
    m = np.uintp(width)
    for i in range(len(indptr) - 1):
        row = np.uintp(i) * m
        x = y = z = _load(Z, row + a)
        if b is not None:
            y = _load(Z, row + b)
        if c is not None:
            z = _load(Z, row + c)
        for entry in range(indptr[i], indptr[i + 1]):
            number = data[entry]
            row = np.uintp(indices[entry]) * m
            # All are read before one is written: what is in two of them must be added once.
            in_x = in_y = in_z = _plus(_load(out, row + a), number, x)
            if b is not None:
                in_y = _plus(_load(out, row + b), number, y)
            if c is not None:
                in_z = _plus(_load(out, row + c), number, z)
            _store(out, row + a, in_x)
            if b is not None:
                _store(out, row + b, in_y)
            if c is not None:
                _store(out, row + c, in_z)


_times = _compiled(_times_of_rows)
_transposed_times = _compiled(_transposed_times_of_rows)
