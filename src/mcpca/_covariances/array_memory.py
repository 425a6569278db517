"""Where a stack of covariances lies, in NumPy's memory or on a device, and how numbers get there and back.

The products of ``stack`` and ``flattening`` are written once, with functions of the array API standard that NumPy 1.26
has under the same name (``reshape``, ``matmul``). This module holds what the two memories do not share: conversion to
float64, transfers, the size of temporaries, and the calls whose names or costs differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from .._utils.array_api import from_host, is_device_array, namespace, to_host
from .._utils.types import Array

# Numbers in a temporary copy of covariances. On the host at most 4 MB, which a processor's cache may hold, and at most
# a twelfth of the stack, so that memory beside the stack stays small; but at least 64 kB, below which the overhead of
# calls dominates. On a device 128 MB: a product should be large enough to keep it busy.
_HOST_CHUNK_NUMBERS = 2**19
_HOST_CHUNK_SHARE = 12
_HOST_CHUNK_LEAST = 2**13
_DEVICE_CHUNK_NUMBERS = 2**24


class ArrayMemory(Protocol):
    """What the products need to know about the library and the device of an array (k, p, p)."""

    @property
    def xp(self) -> Any:
        """The namespace: functions of the array API standard."""

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        """Return the precision of ``x``, float32 or float64, as NumPy calls it."""

    def double(self, x: Any) -> Any:
        """Return ``x`` in float64, without a copy if it is float64 already."""

    def send(self, x: Array, dtype: Any = None) -> Any:
        """Return NumPy's ``x`` in this memory, in float64 or in another dtype of the namespace."""

    def receive(self, x: Any) -> Array:
        """Return ``x`` as a NumPy array in float64."""

    def chunk_numbers(self, values: Any) -> int:
        """Return how many numbers of ``values`` a temporary copy may hold."""

    def flattens_without_copy(self, values: Any) -> bool:
        """Whether ``values`` in float64, reshaped to rows, are a view, so that one product can take them all."""

    def diagonals(self, values: Any) -> Any:
        """Return the diagonals (k, p) of matrices (k, p, p)."""

    def dots(self, SA: Any, A: Any) -> Any:
        """Return ``a_j^T S_i a_j`` (k, m) from images ``a_j^T S_i`` (m, k, p) and A (p, m)."""

    def triangle(self, M: Any) -> Any:
        """Return R of ``M = Q R``."""

    def stacked(self, parts: list[Any]) -> Any:
        """Return ``parts`` below each other."""


class HostMemory:
    """NumPy: everything is here already, and is neither copied nor converted without need."""

    xp = np

    def dtype_of(self, x: Array) -> np.dtype[Any]:
        """Return ``x.dtype``."""
        return x.dtype

    def double(self, x: Array) -> Array:
        """Return ``x`` in float64, without a copy if it is float64 already."""
        # float64 is the common case, in which nothing is converted: products read the stack itself.
        return x.astype(np.float64, copy=False)

    def send(self, x: Array, dtype: Any = None) -> Array:
        """Return ``x`` itself, or a copy in another precision."""
        # Products do not write to what was sent, so it may be the caller's array.
        return x if dtype is None else x.astype(dtype, copy=False)

    def receive(self, x: Array) -> Array:
        """Return ``x`` in float64, without a copy if it is float64 already."""
        return x.astype(np.float64, copy=False)

    def chunk_numbers(self, values: Array) -> int:
        """Return 4 MB, less for a small stack."""
        # The floor is applied before the ceiling: of a tiny stack a chunk may be more than a twelfth, even all of it.
        return min(_HOST_CHUNK_NUMBERS, max(values.size // _HOST_CHUNK_SHARE, _HOST_CHUNK_LEAST))

    def flattens_without_copy(self, values: Array) -> bool:
        """Whether ``values`` are contiguous and in float64."""
        # Only then is ``reshape`` a view. Otherwise one product for all contexts would first copy the stack.
        return bool(values.dtype == np.float64 and values.flags.c_contiguous)

    def diagonals(self, values: Array) -> Array:
        """Return a view of the diagonals: ``np.linalg.diagonal`` is new in NumPy 2."""
        return np.asarray(np.einsum("kpp->kp", values))

    def dots(self, SA: Array, A: Array) -> Array:
        """Return the variances by einsum.

        A batched ``matmul`` would save up to a tenth of the time that this takes together with the images; but it adds
        up in another order, and iterations that stop at a tolerance then end elsewhere, by up to 1e-6 in components.
        """
        # SA (m, k, p), A (p, m): one dot product of length p for each context and column.
        return np.asarray(np.einsum("mkp,pm->km", SA, A))

    def triangle(self, M: Array) -> Array:
        """Return R alone: to form Q as well, as the standard does, takes about as many operations again."""
        return np.asarray(np.linalg.qr(M, mode="r"))

    def stacked(self, parts: list[Array]) -> Array:
        """Return ``np.concatenate``, which NumPy 1.26 does not call ``concat`` yet."""
        return np.concatenate(parts)


class DeviceMemory:
    """PyTorch, CuPy, JAX or another library of the standard, on the device of ``reference``.

    Only results of a solver's size cross over to the host: a basis (p, q), a core (k, q, q), columns (p, r).
    """

    # The reference is only asked for its library and device. It is the stack itself, so it lives as long as this does.
    def __init__(self, reference: Any) -> None:
        self._reference = reference

    @cached_property
    def xp(self) -> Any:
        """The namespace of the library, by array-api-compat."""
        return namespace(self._reference)

    def dtype_of(self, x: Any) -> np.dtype[Any]:
        """Return NumPy's name of the precision."""
        # The standard has no conversion of dtypes to NumPy's. ``as_float`` has left only these two.
        return np.dtype(np.float32 if x.dtype == self.xp.float32 else np.float64)

    def double(self, x: Any) -> Any:
        """Return ``x`` in float64, without a copy if it is float64 already."""
        return self.xp.astype(x, self.xp.float64, copy=False)

    def send(self, x: Array, dtype: Any = None) -> Any:
        """Return a copy of ``x`` on the device."""
        # In float64 whatever the stack is in: products of float32 covariances are float64 as well.
        return from_host(x, self._reference, self.xp.float64 if dtype is None else dtype)

    def receive(self, x: Any) -> Array:
        """Return a copy of ``x`` on the host."""
        # Converted on the host: a float32 result crosses over in half the bytes.
        return np.asarray(to_host(x), dtype=np.float64)

    def chunk_numbers(self, values: Any) -> int:
        """Return 128 MB, whatever the stack."""
        return _DEVICE_CHUNK_NUMBERS

    def flattens_without_copy(self, values: Any) -> bool:
        """Return False: the standard does not say what is a view, and chunks of 128 MB cost no time."""
        return False

    def diagonals(self, values: Any) -> Any:
        """Return the diagonals, on the device."""
        return self.xp.linalg.diagonal(values)

    def dots(self, SA: Any, A: Any) -> Any:
        """Return the variances as a matrix times a vector for each column of A."""
        # Batched over j: (m, k, p) by (m, p, 1) is (m, k, 1). The standard has no einsum.
        return self.xp.matmul(SA, A.T[:, :, None])[:, :, 0].T

    def triangle(self, M: Any) -> Any:
        """Return R; the standard has no way to leave Q out."""
        return self.xp.linalg.qr(M).R

    def stacked(self, parts: list[Any]) -> Any:
        """Return ``concat`` of the parts."""
        return self.xp.concat(parts)


# One object for all, so that ``memory is HOST`` tells NumPy's arrays from all others.
HOST = HostMemory()


def memory_of(values: Any) -> ArrayMemory:
    """Return the memory in which ``values`` are."""
    return DeviceMemory(values) if is_device_array(values) else HOST


def context_chunks(S: Any, memory: ArrayMemory = HOST, numbers: int | None = None) -> Iterator[slice]:
    """Yield slices of contexts whose covariances fit in one temporary: small beside the whole stack, or ``numbers``."""
    k, p, _ = S.shape
    # At least one context, even if a single covariance is larger than a chunk should be: contexts are never split.
    step = max(1, (memory.chunk_numbers(S) if numbers is None else numbers) // (p * p))
    for start in range(0, k, step):
        yield slice(start, min(start + step, k))
