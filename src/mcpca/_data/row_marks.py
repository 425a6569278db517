"""Marks of each context's rows, by which a resumed fit recognises the rows it began with.

The mark of a row is ``sum_j w_j f(x_j) mod 2^64`` of the bits of its values, with their upper half folded onto the
lower (a change of sign alone would vanish in pairs otherwise) and odd weights by feature. The mark of a context is the
sum of a non-linear function of the marks of its rows, so it depends neither on their order nor on the blocks they come
in, and marks from several blocks or machines are added. Sparse and dense rows have the same marks.

Marks compare rows to the last bit, and have to read them. The fingerprints of moments in
``_covariances/moment_fingerprints.py`` serve another purpose: they recognise contexts by rounded moments once the rows
are gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import csr_blocks
from .low_rank_rows import LowRankRows
from .sparse_products import row_kernels

# Values whose bits are copied at a time, 512 kB as uint64. With many more, the copy leaves the cache before it is used;
# with far fewer, calls cost more than the work.
_BITS_AT_A_TIME = 2**16


def marks_of(X: Any, codes: Array, k: int) -> Array:
    """Return the contribution of rows X (n, p), dense or CSR, to the marks (k,) of k contexts.

    ``codes`` (n,) are the contexts of the rows. Cost O(nnz), a tenth of one pass with 40 directions.
    """
    # X (n, p), weights (p,), rows (n,) and marks (k,); all sums wrap around at 2^64, in which order does not matter.
    if isinstance(X, LowRankRows):
        X = X.entries  # made of the rows, as all the rest is
    n, p = X.shape
    rows = np.empty(n, dtype=np.uint64)
    weights = _mixed(np.arange(p, dtype=np.uint64)) | np.uint64(1)  # odd: multiplication mod 2^64 loses no bit
    kernels = row_kernels(X)
    if kernels is not None:
        rows = kernels.weighted_bits(X, weights, fold=X.dtype == np.float64)
    elif scipy.sparse.issparse(X):
        for i, stop in csr_blocks(X.indptr, 8, 8 * _BITS_AT_A_TIME):
            # SciPy allows arrays that are longer than the entries: only what the pointers cover counts.
            bounds = X.indptr[i : stop + 1]
            entries = slice(int(bounds[0]), int(bounds[-1]))
            terms = _folded(X.data[entries])
            terms *= weights[X.indices[entries]]
            # Row sums as differences of a running sum: exact mod 2^64 and, unlike np.add.reduceat, right for empty
            # rows. +0.0 has no bits set, so it adds nothing whether it is stored or not.
            running = np.zeros(len(terms) + 1, dtype=np.uint64)
            np.cumsum(terms, out=running[1:])
            rows[i:stop] = np.diff(running[bounds - bounds[0]])
    else:
        step = max(1, _BITS_AT_A_TIME // p)
        for i in range(0, n, step):
            np.einsum("ij,j->i", _folded(X[i : i + step]), weights, out=rows[i : i + step])
    marks = np.zeros(k, dtype=np.uint64)
    # Mixed before they are added: a sum of linear marks would not notice values that move between rows.
    np.add.at(marks, codes, _mixed(rows))
    return marks


def _mixed(x: Array) -> Array:
    """Spread what is in the bits of ``x`` (uint64) over all of them (the finaliser of SplitMix64)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def _folded(values: Array) -> Array:
    """Return the bits of float32 or float64 values, as uint64."""
    if values.dtype.itemsize == 4:
        # 32 bits leave room in 64: there is nothing to fold.
        return values.view(np.uint32).astype(np.uint64)
    bits = values.view(np.uint64)
    return np.asarray(bits ^ (bits >> np.uint64(32)))
