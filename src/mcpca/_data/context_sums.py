"""Sums over the rows of each context in a block of rows, dense or CSR: what kernels of passes are made of.

Functions take a block X (n, p) and the contexts of its rows, ``codes`` (n,). A kernel returns a list of ``Sum``, each
an addition to one of the totals of the pass, and ``add`` carries them out: in this process as blocks are read, or after
workers have combined them (``dask_tasks.combined_sums``). Passes themselves are in ``_covariances``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import csr_rows
from .low_rank_rows import LowRankRows
from .scatter import dense_pieces, keeps_digits
from .sparse_products import row_kernels, times, transposed_times

# Rows that a product in single precision sums over before it is added up in double. The rounding error of a sum grows
# with its length, so more rows lose digits; fewer make products too small to be fast.
_SINGLE_PRECISION_ROWS = 2**12
# Numbers in the dense copy of some sparse rows (8 MB). A larger one takes memory, a smaller one makes products slow.
_DENSE_COPY_NUMBERS = 2**20


class Sum(NamedTuple):
    """An addition of ``value`` to total number ``total`` at ``key``: all of it (...), rows by index, or one below."""

    total: int
    key: Any
    value: Any


class Flat(NamedTuple):
    """A key for values (m,) that go to ``places`` (m,) of the flattened total; places may repeat."""

    places: Array


class Squared(NamedTuple):
    """A key for scores (n, m) of which ``Z_i^T Z_i`` is added to row i of the total, for the ``codes`` (n,) of rows.

    With many contexts a block has few rows of each, and the matrices (k', m, m) of one are larger than its scores:
    those of many blocks are ``squared`` together.
    """

    codes: Array


def squared(items: list[Sum]) -> Sum:
    """Return the sum of all items, at least one, that are ``Squared`` and of one total."""
    codes = np.concatenate([item.key.codes for item in items])
    Z, present, bounds = by_context(np.concatenate([item.value for item in items]), codes)
    return Sum(items[0].total, present, squares_of_runs(Z, bounds))


def runs(codes: Array) -> tuple[Array, Array]:
    """Return the values of ``codes`` (n,), of which equal ones stand together, and the bounds of their runs."""
    # There is at least one row, which begins a run. k' runs have k' + 1 bounds, the last of them n.
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return codes[starts], np.append(starts, len(codes))


def by_context(Z: Array, codes: Array) -> tuple[Array, Array, Array]:
    """Return the rows of ``Z`` in the order of their contexts, the contexts, and the bounds of their runs."""
    if (codes[1:] < codes[:-1]).any():
        # Stable: the rows of a context are summed in the order in which they came, which fixes the rounding.
        order = np.argsort(codes, kind="stable")
        Z = Z[order]
        codes = codes[order]
    return Z, *runs(codes)


def rows_of_contexts(codes: Array, start: int, stop: int) -> tuple[Array, list[slice | Array]]:
    """Return which contexts from ``start`` to ``stop`` are in ``codes``, and their rows: slices if codes are sorted."""
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        present, bounds = runs(codes[order])
        rows: list[slice | Array] = [*np.split(order, bounds[1:-1])]
    else:
        present, bounds = runs(codes)
        rows = [slice(a, b) for a, b in pairwise(bounds.tolist())]
    wanted = (present >= start) & (present < stop)
    return present[wanted], [rows[j] for j in np.flatnonzero(wanted)]


def contexts_between(X: Any, codes: Array, start: int, stop: int) -> tuple[Any, Array, Array, Array]:
    """Return the rows of contexts from ``start`` to ``stop``, in their order, with contexts and bounds as ``runs``.

    Rows, and their codes, are views if the codes are sorted; there is at least one.
    """
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        X, codes = X[order], codes[order]
    a, b = np.searchsorted(codes, [start, stop]).tolist()
    codes = codes[a:b]
    return consecutive(X, a, b), codes, *runs(codes)


def consecutive(X: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop`` of X as a view, also if X is CSR, whose slices SciPy copies."""
    if not scipy.sparse.issparse(X):
        return X[start:stop]
    # Blocks of a ``Source`` are canonical, so nothing has to be checked.
    return csr_rows(X, start, stop, X.dtype, canonical=True)


def transposed(X: Any, Z: Array) -> Array:
    """Return ``X^T Z``; in single precision it is summed over a few thousand rows at a time, which add up in double."""
    if Z.dtype == np.float64 or len(Z) <= _SINGLE_PRECISION_ROWS:
        return transposed_times(X, Z)
    # The total is float64; only the products of single pieces are in single precision.
    total = np.zeros((X.shape[1], Z.shape[1]))
    for start in range(0, len(Z), _SINGLE_PRECISION_ROWS):
        stop = min(start + _SINGLE_PRECISION_ROWS, len(Z))
        total += transposed_times(consecutive(X, start, stop), Z[start:stop])
    return total


def products_of_runs(X: Any, Z: Array, bounds: Array) -> Array:
    """Return ``X_j^T Z_j`` (k', p, m) for the runs of rows between ``bounds``, in the precision of Z, or better.

    For few sparse rows a run it is a single product, with the matrix that has run j in its columns j p to (j + 1) p: a
    product for each would take longer to call than to compute.
    """
    n_runs = len(bounds) - 1
    shape = n_runs, X.shape[1], Z.shape[1]
    if scipy.sparse.issparse(X) and np.diff(bounds).max() <= _SINGLE_PRECISION_ROWS:
        return transposed_times(_spread(X, bounds), Z).reshape(shape)
    products = np.empty(shape)
    for product, (a, b) in zip(products, pairwise(bounds.tolist()), strict=True):
        product[...] = transposed(consecutive(X, a, b), Z[a:b])
    return products


def scores_of_runs(X: Any, Y: Array, bounds: Array) -> Array:
    """Return ``X_j Y_j`` (n, s) for the runs of rows between ``bounds`` and matrices Y (k', p, s)."""
    if scipy.sparse.issparse(X):
        return times(_spread(X, bounds), Y.reshape(-1, Y.shape[2]))
    out = np.empty((X.shape[0], Y.shape[2]), dtype=Y.dtype)
    for Yj, (a, b) in zip(Y, pairwise(bounds.tolist()), strict=True):
        out[a:b] = consecutive(X, a, b) @ Yj
    return out


def squares_of_runs(Z: Array, bounds: Array) -> Array:
    """Return ``Z_j^T Z_j`` (k', m, m) in float64 for the runs of rows between ``bounds``."""
    m = Z.shape[1]
    counts = np.diff(bounds)
    out = np.empty((len(counts), m, m))
    # Runs of one length are multiplied together: with many contexts a block has a row or two of each.
    for count in np.unique(counts).tolist():
        runs = np.flatnonzero(counts == count)
        if count > _SINGLE_PRECISION_ROWS:
            for j in runs.tolist():
                of_run = Z[bounds[j] : bounds[j + 1]]
                out[j] = transposed(of_run, of_run)
            continue
        of_runs = Z[bounds[runs][:, None] + np.arange(count)]
        out[runs] = np.matmul(of_runs.transpose(0, 2, 1), of_runs)
    return out


def _spread(X: Any, bounds: Array) -> Any:
    """Return CSR X (n, p) as (n, k' p), with run j of its rows in columns j p to (j + 1) p; values are shared."""
    n_runs = len(bounds) - 1
    p = X.shape[1]
    dtype = np.int32 if max(n_runs * p, len(X.data)) < 2**31 else np.int64
    shifts = np.repeat(np.arange(n_runs, dtype=dtype) * p, np.diff(X.indptr[bounds]))
    indices = X.indices.astype(dtype) + shifts
    spread = scipy.sparse.csr_array((X.shape[0], n_runs * p), dtype=X.dtype)
    # Set and not passed: the constructor would look at all indices again.
    spread.data, spread.indices, spread.indptr = X.data, indices, X.indptr.astype(dtype, copy=False)
    return spread


def centred(Z: Array, factor: Any) -> Array:
    """Return ``Z`` (n, m), scores of all rows of a context, less its mean and times ``factor``.

    If the columns of Z sum to zero, then ``(X - 1 m^T)^T Z = X^T Z``: centring m scores replaces centring p features.
    """
    Z = Z - Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)
    # If the mean was large, its rounding error is left in every entry, and X^T would multiply the sum of these by a
    # large m. A second round takes it off.
    Z -= Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)
    Z *= factor
    return Z


def multiplied(Z: Array, codes: Array, W: Array) -> Array:
    """Return the rows ``z_t W[codes_t]`` for matrices W (k, m, m), in the order of Z."""
    out = np.empty_like(Z)
    # One product per context present; W[codes], a matrix (m, m) per row, would be far larger than Z.
    for i, rows in zip(*rows_of_contexts(codes, 0, len(W)), strict=True):
        out[rows] = Z[rows] @ W[i]
    return out


def sums_by_context(X: Any, codes: Array) -> tuple[Array, Any]:
    """Return the contexts in ``codes`` and the sums of their rows in float64: dense (k', p), or CSR where X is."""
    # A product with an indicator matrix (k', n) reads rows once, in their order: five times as fast as sorting them.
    present, indicator = _indicator(codes)
    sums = indicator @ X
    return present, scipy.sparse.csr_array(sums) if scipy.sparse.issparse(X) else np.asarray(sums)


def _indicator(codes: Array) -> tuple[Array, Any]:
    """Return the contexts in ``codes`` (n,), and the CSR matrix (k', n) with ones for the rows of each."""
    present, index = np.unique(codes, return_inverse=True)
    # Its ones are float64, and so are the sums, also of float32 rows.
    shape = len(present), len(codes)
    return present, scipy.sparse.csr_array((np.ones(len(codes)), (index, np.arange(len(codes)))), shape=shape)


def sums_of_runs(X: Any, codes: Array) -> tuple[Array, Array]:
    """Return the same as ``sums_by_context``, always dense (k', p), if the rows of each context stand together."""
    present, bounds = runs(codes)
    if isinstance(X, LowRankRows):
        left = np.add.reduceat(X.left, bounds[:-1], axis=0, dtype=np.float64)
        return present, sums_of_runs(X.entries, codes)[1] + left @ X.right.T
    if not scipy.sparse.issparse(X):
        # No run is empty, for which reduceat would return the row at its bound instead of 0.
        return present, np.add.reduceat(X, bounds[:-1], axis=0, dtype=np.float64)
    kernels = row_kernels(X)
    if kernels is not None:
        return present, kernels.sums_of_runs(X, bounds)
    # The ones are float64, and so are the sums, whatever the rows are. Unlike bincount it does not hold Python's lock.
    return present, np.asarray(_spread(X, bounds).T @ np.ones(X.shape[0])).reshape(len(present), X.shape[1])


def entries_by_context(X: Any, codes: Array) -> tuple[Flat, Array]:
    """Return the entries of sparse X and their places in a total (k, p): ``sums_by_context`` before any addition.

    That is larger than the sums, which does not matter within one machine, and three times as fast to add if a block
    has few rows of each of many contexts.
    """
    # int64, because places go up to k p, which may be beyond int32.
    places = np.repeat(codes.astype(np.int64) * X.shape[1], np.diff(X.indptr))
    places += X.indices
    return Flat(places), X.data.astype(np.float64)


def squares_by_context(X: Any, codes: Array, means: Array) -> tuple[Array, Any]:
    """Return the contexts in ``codes`` and sums over rows of ``(x - m)^2``, or ``(x - m)^2 - m^2`` if X is sparse.

    The latter, ``x (x - 2 m)``, is 0 for entries that are not stored, so the result is as sparse as X. The caller
    adds ``n m^2``.
    """
    if isinstance(X, LowRankRows):
        present, indicator = _indicator(codes)
        return present, X.squares_by(indicator) - 2 * means[present] * (indicator @ X)
    if not scipy.sparse.issparse(X):
        return sums_by_context((X - means[codes]) ** 2, codes)
    # The row of each stored entry (nnz,): the matrix of means is read only where X has an entry.
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    values = X.data.astype(np.float64)
    values *= values - 2 * means[codes[rows], X.indices]
    # Same pattern as X, so the index arrays are shared and not copied.
    return sums_by_context(scipy.sparse.csr_array((values, X.indices, X.indptr), shape=X.shape), codes)


def moment_sums(X: Any, codes: Array) -> list[Sum]:
    """Return the sums of rows, to total 0, (k, p), and of ``x x^T``, to total 1, (k, p, p), of the contexts in X.

    Sparse rows are made dense some at a time; products are in float64, since rows are not centred.
    """
    # Sums for the contexts present only, (k', p) and (k', p, p): a block has rows of few of many contexts.
    present, rows = rows_of_contexts(codes, 0, int(codes.max()) + 1)
    p = X.shape[1]
    sums = np.zeros((len(present), p))
    squares = np.zeros((len(present), p, p))
    for j, rows_of_context in enumerate(rows):
        for piece in dense_pieces(X[rows_of_context], max(1, _DENSE_COPY_NUMBERS // p)):
            Z = piece.astype(np.float64, copy=False)
            sums[j] += np.ones(len(Z)) @ Z
            squares[j] += Z.T @ Z
    return [Sum(0, present, sums), Sum(1, present, squares)]


def scatter_uncentred(X: Any, mean: Array) -> Array | None:
    """Return ``(X - 1 m^T)^T (X - 1 m^T)`` from ``X^T X``, without a copy of X; None if too few digits would be left.

    Only for dense float64, and if 12 digits are left.
    """
    if not isinstance(X, np.ndarray) or X.dtype != np.float64:
        return None
    S = X.T @ X
    # A copy, because S is changed in place and ``np.diagonal`` is a view of it.
    before = np.diagonal(S).copy()
    # With s = X^T 1 the scatter is S - s m^T - m s^T + n m m^T = S - h m^T - m h^T for h = s - n m / 2,
    # whatever m is.
    half = np.ones(len(X)) @ X - 0.5 * len(X) * mean
    S -= np.outer(half, mean)
    S -= np.outer(mean, half)
    return S if keeps_digits(before, np.diagonal(S)) else None


def add(totals: list[Array], item: Sum) -> None:
    """Add ``item`` to the total that it names; row indices are distinct, and the rows may be CSR."""
    total, key, value = totals[item.total], item.key, item.value
    if isinstance(key, Flat):
        # ``+=`` with repeated places would keep only the last addition to each. The total is contiguous, so that
        # reshape gives a view of it and not a copy.
        np.add.at(total.reshape(-1), key.places, value)
    elif not scipy.sparse.issparse(value):
        # Contexts mostly come one after the other. Of a slice no copy is made, in which index arrays are added.
        if key is not ... and len(key) and (np.diff(key) == 1).all():
            key = slice(int(key[0]), int(key[-1]) + 1)
        total[key] += value
    else:
        # Fancy assignment is right because a product of sparse matrices has no duplicate entries.
        bounds = value.indptr
        for j, i in enumerate(key.tolist()):
            part = slice(bounds[j], bounds[j + 1])
            total[i, value.indices[part]] += value.data[part]
