"""Sums over the rows of each context in a block of rows, dense or CSR."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import csr_rows
from .scatter import dense_pieces, keeps_digits

_SINGLE_ROWS = 2**12
_DENSE = 2**20  # numbers of sparse rows that are made dense


class Sum(NamedTuple):
    """An addition to total number ``total`` at ``key``: all of it (...), rows by index, or ``Flat`` places."""

    total: int
    key: Any
    value: Any


class Flat(NamedTuple):
    """A key for values (m,) that go to ``places`` (m,) of a total laid out flat; places may repeat."""

    places: Array


def runs(codes: Array) -> tuple[Array, Array]:
    """Return the values of ``codes`` (n,), in which equal ones stand together, and where their runs begin and end."""
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return codes[starts], np.append(starts, len(codes))


def by_context(Z: Array, codes: Array) -> tuple[Array, Array, Array]:
    """Return the rows of ``Z`` in the order of their contexts, the contexts, and the bounds of their runs."""
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        Z, codes = Z[order], codes[order]
    return Z, *runs(codes)


def rows_of(codes: Array, start: int, stop: int) -> tuple[Array, list[slice | Array]]:
    """Return which contexts from ``start`` to ``stop`` are in ``codes``, and their rows: slices where in order."""
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        present, bounds = runs(codes[order])
        rows: list[slice | Array] = [*np.split(order, bounds[1:-1])]
    else:
        present, bounds = runs(codes)
        rows = [slice(a, b) for a, b in pairwise(bounds.tolist())]
    wanted = (present >= start) & (present < stop)
    return present[wanted], [rows[j] for j in np.flatnonzero(wanted)]


def consecutive(X: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop`` of X as a view, also where X is CSR: SciPy would copy them."""
    if not scipy.sparse.issparse(X):
        return X[start:stop]
    return csr_rows(X, start, stop, X.dtype, canonical=True)


def transposed(X: Any, Z: Array) -> Array:
    """Return ``X^T Z``; products in single precision are sums over a few thousand rows, added up in double."""
    if Z.dtype == np.float64 or len(Z) <= _SINGLE_ROWS:
        return np.asarray(X.T @ Z)
    total = np.zeros((X.shape[1], Z.shape[1]))
    for start in range(0, len(Z), _SINGLE_ROWS):
        stop = min(start + _SINGLE_ROWS, len(Z))
        total += consecutive(X, start, stop).T @ Z[start:stop]
    return total


def centred(Z: Array, factor: Any) -> Array:
    """Return ``Z`` (n, m) less its mean, times ``factor``: scores of all rows of a context.

    With means of zero ``(X - 1 m^T)^T Z`` is ``X^T Z``, at a fraction of the price of a correction in all features.
    What is left of a large mean is its rounding, which large X would multiply: it is taken off in turn.
    """
    Z = Z - Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)
    Z -= Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)
    Z *= factor
    return Z


def multiplied(Z: Array, codes: Array, W: Array) -> Array:
    """Return rows ``z_t W[codes_t]`` for matrices W (k, m, m), in the order of Z."""
    out = np.empty_like(Z)
    for i, rows in zip(*rows_of(codes, 0, len(W)), strict=True):
        out[rows] = Z[rows] @ W[i]
    return out


def sums_by_context(X: Any, codes: Array) -> tuple[Array, Any]:
    """Return the contexts in ``codes`` and the sums of their rows in float64: dense (k', p), or CSR where X is."""
    # A product with an indicator reads rows once, in their order: five times as fast as sums of sorted rows.
    present, index = np.unique(codes, return_inverse=True)
    shape = len(present), len(codes)
    indicator = scipy.sparse.csr_array((np.ones(len(codes)), (index, np.arange(len(codes)))), shape=shape)
    return present, scipy.sparse.csr_array(indicator @ X) if scipy.sparse.issparse(X) else np.asarray(indicator @ X)


def sums_of_runs(X: Any, codes: Array) -> tuple[Array, Array]:
    """Return what ``sums_by_context`` does, dense (k', p), where the rows of a context stand together."""
    present, bounds = runs(codes)
    if not scipy.sparse.issparse(X):
        return present, np.add.reduceat(X, bounds[:-1], axis=0, dtype=np.float64)
    parts = [slice(*X.indptr[[a, b]].tolist()) for a, b in pairwise(bounds.tolist())]
    return present, np.stack([np.bincount(X.indices[part], X.data[part], X.shape[1]) for part in parts])


def entries_by_context(X: Any, codes: Array) -> tuple[Flat, Array]:
    """Return what ``sums_by_context`` does for sparse X entry by entry, with places in a total (k, p).

    Larger than the sums, which is no matter within a machine, and three times as fast to add where a block has few rows
    of each of many contexts.
    """
    places = np.repeat(codes.astype(np.int64) * X.shape[1], np.diff(X.indptr))
    places += X.indices
    return Flat(places), X.data.astype(np.float64)


def squares_by_context(X: Any, codes: Array, means: Array) -> tuple[Array, Any]:
    """Return the contexts in ``codes`` and sums of ``(x - mean)^2`` over their rows, for sparse X less ``mean^2``.

    An entry of a sparse row that is not stored adds 0 to the latter, so that the result is as sparse as X.
    """
    if not scipy.sparse.issparse(X):
        return sums_by_context((X - means[codes]) ** 2, codes)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    values = X.data.astype(np.float64)
    values *= values - 2 * means[codes[rows], X.indices]
    return sums_by_context(scipy.sparse.csr_array((values, X.indices, X.indptr), shape=X.shape), codes)


def second_moments(X: Any, codes: Array) -> list[Sum]:
    """Return the sums of rows, to total 0, (k, p), and of ``x x^T``, to total 1, (k, p, p), of the contexts in X.

    Sparse rows are made dense some at a time; products are in float64, since rows are not centred.
    """
    present, rows = rows_of(codes, 0, int(codes.max()) + 1)
    p = X.shape[1]
    sums, squares = np.zeros((len(present), p)), np.zeros((len(present), p, p))
    for j, own in enumerate(rows):
        for piece in dense_pieces(X[own], max(1, _DENSE // p)):
            Z = piece.astype(np.float64, copy=False)
            sums[j] += np.ones(len(Z)) @ Z
            squares[j] += Z.T @ Z
    return [Sum(0, present, sums), Sum(1, present, squares)]


def scatters_among(features: Array, means: Array, X: Any, codes: Array) -> list[Sum]:
    """Return the scatters of some ``features`` about known ``means`` (k, m), to total 0, (k, m, m)."""
    Z = X[:, features]
    Z = (Z.toarray() if scipy.sparse.issparse(Z) else Z) - means[codes]
    Z, present, bounds = by_context(Z, codes)
    return [Sum(0, present, np.stack([Z[a:b].T @ Z[a:b] for a, b in pairwise(bounds.tolist())]))]


def scatter_uncentred(X: Any, mean: Array) -> Array | None:
    """Return ``(X - 1 m^T)^T (X - 1 m^T)`` from ``X^T X``, without a copy of X; None where digits would be lost.

    Only for dense float64, and where 12 digits are left.
    """
    if scipy.sparse.issparse(X) or X.dtype != np.float64:
        return None
    S = X.T @ X
    before = np.diagonal(S).copy()
    half = np.ones(len(X)) @ X - 0.5 * len(X) * mean
    S -= np.outer(half, mean)
    S -= np.outer(mean, half)
    return S if keeps_digits(before, np.diagonal(S)) else None


def add(totals: list[Array], item: Sum) -> None:
    """Add ``item`` to the total that it names; rows by index are distinct, and their values may be CSR."""
    total, key, value = totals[item.total], item.key, item.value
    if isinstance(key, Flat):
        np.add.at(total.reshape(-1), key.places, value)
    elif not scipy.sparse.issparse(value):
        total[key] += value
    else:
        bounds = value.indptr  # a product of sparse matrices has no duplicates
        for j, i in enumerate(key.tolist()):
            part = slice(bounds[j], bounds[j + 1])
            total[i, value.indices[part]] += value.data[part]
