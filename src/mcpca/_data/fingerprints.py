"""Fingerprints of rows and parameters, by which a checkpoint recognises the fit that it belongs to.

The mark of a row is ``sum_j w_j f(x_j) mod 2^64``, where f folds the upper half of the bits of a value onto the lower
(otherwise changes of sign, in the highest bit, would cancel in pairs) and w_j are odd weights by feature. The mark of a
context is the sum of a non-linear function of the marks of its rows. So it depends neither on the order of the rows nor
on the blocks they come in, and since f(0) = 0 a sparse row has the same mark as its dense copy. Cost O(nnz): a tenth of
one pass with 40 directions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array

# Values of dense rows whose bits are folded at a time: half a megabyte as uint64, small enough for a cache.
_VALUES_AT_A_TIME = 2**16


def _mixed(x: Array) -> Array:
    """Return a hash of each of ``x`` (uint64): the finaliser of SplitMix64, in which every bit affects all others."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _folded(values: Array) -> Array:
    """Return the bits of float32 or float64 values as uint64, the upper half of float64 folded onto the lower."""
    if values.dtype.itemsize == 4:
        return values.view(np.uint32).astype(np.uint64)
    bits = values.view(np.uint64)
    return np.asarray(bits ^ (bits >> np.uint64(32)))


def marks_of(X: Any, codes: Array, k: int) -> Array:
    """Return what these rows (n, p), dense or CSR, add to the marks (k,) of k contexts; ``codes`` (n,) are theirs."""
    n, p = X.shape
    weights = _mixed(np.arange(p, dtype=np.uint64)) | np.uint64(1)
    if scipy.sparse.issparse(X):
        # Sums of rows are differences of cumulative sums, which wrap around modulo 2^64 as the marks do.
        sums = np.zeros(X.nnz + 1, dtype=np.uint64)
        first = int(X.indptr[0])
        stop = int(X.indptr[-1])
        np.cumsum(_folded(X.data[first:stop]) * weights[X.indices[first:stop]], out=sums[1:])
        rows = sums[X.indptr[1:] - first] - sums[X.indptr[:-1] - first]
    else:
        rows = np.empty(n, dtype=np.uint64)
        step = max(1, _VALUES_AT_A_TIME // p)
        for i in range(0, n, step):
            np.einsum("ij,j->i", _folded(X[i : i + step]), weights, out=rows[i : i + step])
    marks = np.zeros(k, dtype=np.uint64)
    np.add.at(marks, codes, _mixed(rows))
    return marks


def digest(value: Any) -> Any:
    """Return a parameter as JSON that differs for different values: arrays by bytes, generators by state."""
    if isinstance(value, np.random.Generator):
        return ["Generator", digest(value.bit_generator.state)]
    if isinstance(value, np.random.RandomState):
        return ["RandomState", digest(value.get_state(legacy=False))]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()
        return ["array", value.dtype.str, list(value.shape), content]
    if isinstance(value, Mapping) or (hasattr(value, "items") and hasattr(value, "index")):  # a Series
        return ["mapping", sorted(([digest(name), digest(item)] for name, item in value.items()), key=repr)]
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return ["sequence", [digest(item) for item in value]]
    if hasattr(value, "__array__"):
        return digest(np.asarray(value))
    return [type(value).__name__, repr(value)]
