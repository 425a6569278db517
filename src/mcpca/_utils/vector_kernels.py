"""Products of CSR with dense matrices, compiled by Numba: at 40 columns three to four times as fast as SciPy's.

SciPy adds the dense row that belongs to an entry to a row of the result, and reads and writes the latter each time.
Here as much of the result as three vectors of 64 bytes hold stays in registers while the entries of a sparse row are
added up. For the transpose, where each entry has another row of the result, it is the dense factor that stays there.
Entries are added in SciPy's order; sums differ from SciPy's by rounding, where processors round a product and a sum at
once. What is left is mostly the time in which dense rows arrive from the cache. So they consist of whole vectors, none
of which is in two lines of it, and are called for some entries ahead.

Importing this module imports Numba; ``_data.sparse_products`` knows when that pays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

from .compiling import compiled
from .types import Array

# What a vector holds at most: the widest register there is, and a line of the cache. Where registers are narrower a
# vector takes two of them or four. And at least: few columns take a narrower one.
_VECTOR_BYTES = 64
_LEAST_BYTES = 16
# Vectors that are multiplied with an entry. Fewer read entries more often; more do not fit into registers everywhere.
_VECTORS = 3
# How many entries ahead a dense row is called for. Fewer and it comes too late; many more and it may be gone again.
_AHEAD = 16


def times(X: Any, V: Array) -> Array:
    """Return ``X V`` for CSR X (n, p) and V (p, m), both float32 or both float64."""
    out = _room(np.empty, X.shape[0], V)
    _by_tiles(_times, X, _padded(V), out, V.shape[1])
    return out[:, : V.shape[1]]


def transposed_times(X: Any, Z: Array) -> Array:
    """Return ``X^T Z`` for CSR X (n, p) and Z (n, m), likewise."""
    out = _room(np.zeros, X.shape[1], Z)
    _by_tiles(_transposed_times, X, _padded(Z), out, Z.shape[1])
    return out[:, : Z.shape[1]]


def _lanes(m: int, dtype: Any) -> int:
    """Return how many numbers the vectors hold into which m columns are cut."""
    size = int(np.dtype(dtype).itemsize)
    lanes = _LEAST_BYTES // size
    while lanes < min(m, _VECTOR_BYTES // size):
        lanes *= 2
    return lanes


def _width(V: Array) -> int:
    """Return how many numbers a row of whole vectors has for the columns of V."""
    m = int(V.shape[1])
    lanes = _lanes(m, V.dtype)
    return -(-m // lanes) * lanes


def _rows_in(base: Any, V: Array) -> Array | None:
    """Return whole rows of the ``_room`` that V is the beginning of rows of; None if ``base`` is no such room."""
    if not isinstance(base, np.ndarray) or base.dtype != np.uint8 or base.ndim != 1 or V.ctypes.data % _VECTOR_BYTES:
        return None
    start = V.ctypes.data - base.ctypes.data
    stop = start + len(V) * V.strides[0]
    if start < 0 or stop > base.nbytes:
        return None
    return np.asarray(base[start:stop].view(V.dtype).reshape(len(V), -1))


def _room(make: Callable[..., Array], n: int, V: Array) -> Array:
    """Return n rows of whole vectors for the columns of V, the first of which begins where a line of the cache does."""
    size = V.itemsize
    width = _width(V)
    room = make(n * width * size + _VECTOR_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % _VECTOR_BYTES
    return np.asarray(room[start : start + n * width * size].view(V.dtype).reshape(n, width))


def _padded(V: Array) -> Array:
    """Return V (p, m) with rows of whole vectors; whatever is at their ends does not matter to the first m columns.

    A product from here, or its first columns, has such rows already. Of all else it is a copy.
    """
    width = _width(V)
    if len(V) > 1 and V.strides[1] == V.itemsize and V.strides[0] % _VECTOR_BYTES == 0:
        whole = _rows_in(V.base, V)
        if whole is not None and whole.shape[1] == width:
            return whole
    copy = _room(np.empty, len(V), V)
    copy[:, : V.shape[1]] = V
    copy[:, V.shape[1] :] = 0
    return copy


def _by_tiles(kernel: Any, X: Any, given: Array, out: Array, m: int) -> None:
    """Call the kernel for up to three vectors at a time, in equal shares; their places are None where it is fewer.

    ``form`` has as many numbers as a vector, since the length of a tuple is part of its type.
    """
    lanes = _lanes(m, given.dtype)
    width = given.shape[1]
    form = (0,) * lanes
    n_vectors = width // lanes
    n = -(-n_vectors // _VECTORS)
    for i in range(n):
        places = [np.uintp(lanes * j) for j in range(n_vectors * i // n, n_vectors * (i + 1) // n)]
        a, b, c = places + [None] * (_VECTORS - len(places))
        kernel(X.indptr, X.indices, X.data, given.reshape(-1), out.reshape(-1), width, form, a, b, c)


class _Vector(types.Type):
    """Type of a vector in compiled code, which has none of its own."""

    def __init__(self, dtype: Any, n: int) -> None:
        self.dtype = dtype
        self.n = n
        super().__init__(f"Vector({dtype}, {n})")


class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: _Vector) -> None:
        number = manager.lookup(vector.dtype).get_data_type()
        super().__init__(manager, vector, ir.VectorType(number, vector.n))


register_model(_Vector)(_VectorModel)


def _place(context: Any, builder: Any, array_type: Any, arguments: Any, vector: Any) -> Any:
    """Return the pointer to a vector of this type; ``arguments`` begin with a 1-D array and its place there."""
    array, place = arguments[:2]
    start = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(start, [place]), context.get_value_type(vector).as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _zeros(typing: Any, array: Any, form: Any) -> Any:
    """Make a vector of zeros, of the type of the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return _Vector(array.dtype, form.count)(array, form), generate


@intrinsic  # type: ignore[untyped-decorator]
def _load(typing: Any, array: Any, place: Any, form: Any) -> Any:
    """Return the vector that begins at ``place``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _place(context, builder, signature.args[0], arguments, signature.return_type)
        return builder.load(pointer, align=signature.args[0].dtype.bitwidth // 8)

    return _Vector(array.dtype, form.count)(array, types.uintp, form), generate


@intrinsic  # type: ignore[untyped-decorator]
def _store(typing: Any, array: Any, place: Any, vector: Any) -> Any:
    """Write the vector to ``place`` and what follows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _place(context, builder, signature.args[0], arguments, vector)
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


@intrinsic  # type: ignore[untyped-decorator]
def _call_for(typing: Any, array: Any, place: Any) -> Any:
    """Have the line of the cache at ``place`` brought near."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # To be read and not written (0), as near as it gets (3), and data (1).
        builder.call(prefetch, [pointer, *(ir.Constant(number, option) for option in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.uintp), generate


# Places and rows are unsigned, since a signed index would be tested for counting from the end. What is done for b and c
# is left out by the compiler where these are None, which is a type. Rows are called for ahead only where they have
# several vectors: single ones come in time by themselves.
@compiled
def _times(
    indptr: Array, indices: Array, data: Array, V: Array, out: Array, width: int, form: Any, a: Any, b: Any, c: Any
) -> None:
    m = np.uintp(width)
    last = len(indices) - 1
    for i in range(len(indptr) - 1):
        x = y = z = _zeros(V, form)
        for entry in range(indptr[i], indptr[i + 1]):
            if b is not None:
                row = np.uintp(indices[min(entry + _AHEAD, last)]) * m
                _call_for(V, row + a)
                _call_for(V, row + b)
                if c is not None:
                    _call_for(V, row + c)
            number = data[entry]
            row = np.uintp(indices[entry]) * m
            x = _plus(x, number, _load(V, row + a, form))
            if b is not None:
                y = _plus(y, number, _load(V, row + b, form))
            if c is not None:
                z = _plus(z, number, _load(V, row + c, form))
        row = np.uintp(i) * m
        _store(out, row + a, x)
        if b is not None:
            _store(out, row + b, y)
        if c is not None:
            _store(out, row + c, z)


@compiled
def _transposed_times(
    indptr: Array, indices: Array, data: Array, Z: Array, out: Array, width: int, form: Any, a: Any, b: Any, c: Any
) -> None:
    m = np.uintp(width)
    last = len(indices) - 1
    for i in range(len(indptr) - 1):
        row = np.uintp(i) * m
        x = y = z = _load(Z, row + a, form)
        if b is not None:
            y = _load(Z, row + b, form)
        if c is not None:
            z = _load(Z, row + c, form)
        for entry in range(indptr[i], indptr[i + 1]):
            if b is not None:
                row = np.uintp(indices[min(entry + _AHEAD, last)]) * m
                _call_for(out, row + a)
                _call_for(out, row + b)
                if c is not None:
                    _call_for(out, row + c)
            number = data[entry]
            row = np.uintp(indices[entry]) * m
            _store(out, row + a, _plus(_load(out, row + a, form), number, x))
            if b is not None:
                _store(out, row + b, _plus(_load(out, row + b, form), number, y))
            if c is not None:
                _store(out, row + c, _plus(_load(out, row + c, form), number, z))
