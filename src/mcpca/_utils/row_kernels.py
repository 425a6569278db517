"""Loops over the entries of CSR rows, compiled by Numba: one reading of a row where NumPy and SciPy take several.

Passes over large files put rows into the order of their contexts, look for indices that are not sorted, mark rows, and
add them up. Each is a loop over the entries that does next to nothing with them, so what counts is how often these are
read and written. Results are those of the code without Numba, to the last bit but for the order of sums of squares.

Importing this module imports Numba; ``_data.sparse_products`` knows when that pays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiling import compiled
from .types import Array

# What ``put_rows`` has found.
CANONICAL, UNSORTED, OUTSIDE = 0, 1, 2


def put_rows(X: Any, rows: Array, places: Array, data: Array, indices: Array) -> int:
    """Copy ``rows`` (m,) of CSR X to ``data`` and ``indices``, row j from entry ``places[j]`` on.

    Returns ``CANONICAL`` if entries of all these rows are sorted and distinct, ``UNSORTED`` if not, and ``OUTSIDE`` if
    one has an index of no feature, after which the rest is not copied.
    """
    return int(_put_rows(X.indptr, X.indices, X.data, X.shape[1], rows, places, data, indices))


def weighted_bits(X: Any, weights: Array, fold: bool) -> Array:
    """Return for each row of CSR X the sum mod 2^64 of the bits of its values times ``weights`` (p,), uint64 (n,).

    With ``fold`` the upper half of the bits is folded onto the lower.
    """
    bits = X.data.view(np.uint64 if X.data.dtype.itemsize == 8 else np.uint32)
    return np.asarray(_weighted_bits(X.indptr, X.indices, bits, weights, np.uint64(32 if fold else 0)))


def sums_of_runs(X: Any, bounds: Array) -> Array:
    """Return the sums (k', p) in float64 of the runs of rows between ``bounds`` of CSR X."""
    sums = np.zeros((len(bounds) - 1, X.shape[1]))
    _add_runs(X.indptr, X.indices, X.data, bounds, sums)
    return sums


def squared_lengths(X: Any) -> Array:
    """Return the squared lengths (n,) of the rows of CSR X: each square is rounded as X is, and added up in float64."""
    return np.asarray(_squared_lengths(X.indptr, X.data))


@compiled
def _put_rows(
    indptr: Array,
    from_indices: Array,
    from_data: Array,
    p: int,
    rows: Array,
    places: Array,
    data: Array,
    indices: Array,
) -> int:
    found = 0
    for j in range(len(rows)):
        to = places[j]
        before = -1
        for entry in range(indptr[rows[j]], indptr[rows[j] + 1]):
            index = from_indices[entry]
            if index <= before:
                found = 1
                if index < 0:
                    return 2
            if index >= p:
                return 2
            before = index
            indices[to] = index
            data[to] = from_data[entry]
            to += 1
    return found


@compiled
def _weighted_bits(indptr: Array, indices: Array, bits: Array, weights: Array, shift: int) -> Array:
    out = np.empty(len(indptr) - 1, dtype=np.uint64)
    for i in range(len(out)):
        total = np.uint64(0)
        for entry in range(indptr[i], indptr[i + 1]):
            value = np.uint64(bits[entry])
            if shift:
                value ^= value >> shift
            total += value * weights[indices[entry]]
        out[i] = total
    return out


@compiled
def _add_runs(indptr: Array, indices: Array, data: Array, bounds: Array, sums: Array) -> None:
    for j in range(len(sums)):
        for entry in range(indptr[bounds[j]], indptr[bounds[j + 1]]):
            sums[j, indices[entry]] += data[entry]


@compiled
def _squared_lengths(indptr: Array, data: Array) -> Array:
    out = np.empty(len(indptr) - 1)
    for i in range(len(out)):
        total = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            total += data[entry] * data[entry]
        out[i] = total
    return out
