"""Context loadings B >= 0 for given components A: a batch of small non-negative least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls

from .._covariances.stack import variances_along
from .._covariances.validation import check_covariances
from .._utils.arguments import FINITE, check_unmasked
from .._utils.array_api import to_host
from .._utils.types import Array

_CHUNK, _LEAST = 2**19, 2**13  # numbers in a batch of r x r systems: at most 4 MB, an eighth of all above 64 kB


def nonnegative_loadings(S: Any, A: Any) -> Array:
    """Minimise ``sum_i ||S_i - A diag(b_i) A^T||_F^2`` over ``b_i >= 0``.

    ``<a a^T, b b^T> = (a . b)^2``, so context i is the r-dimensional problem of minimising
    ``b^T G b - 2 h_i^T b`` with ``G = (A^T A)**2`` elementwise, shared by all contexts, and
    ``h_ij = a_j^T S_i a_j``. The (p^2, r) design matrix is never formed.

    Parameters
    ----------
    S : array-like (k, p, p)
        Covariances, one per context.
    A : array-like (p, r)
        Unit columns, r <= p.

    Returns
    -------
    B : ndarray (k, r)
        Loadings.

    Notes
    -----
    Cost O(k p^2 r + k r^3), memory O(p r + k r) beside the input.
    """
    S = check_covariances(S)
    A = np.asarray(check_unmasked(to_host(A), "A", FINITE), dtype=np.float64)
    if A.ndim != 2 or A.shape[0] != S.shape[1]:
        raise ValueError(f"A must be (p, r) with p={S.shape[1]} as in S, got shape {A.shape}.")
    if not np.isfinite(A).all():
        raise ValueError("A contains NaN or infinite values; pass finite components.")
    return solve_loadings((A.T @ A) ** 2, variances_along(S, A)).astype(S.dtype, copy=False)


def solve_loadings(G: Array, H: Array) -> Array:
    """Minimise ``b^T G b - 2 h^T b`` over ``b >= 0`` for every row h of H.

    Block principal pivoting (Kim and Park, SIAM J. Sci. Comput. 33, 2011): guess which entries are positive, solve
    the equations on them, exchange every entry that breaks a sign condition, and fall back to exchanging one at a
    time when that stops helping. All rows advance together. Rows that do not finish, which needs a nearly singular
    G, are given to SciPy's active-set method.
    """
    k, r = H.shape
    step = max(1, min(_CHUNK, max(k * r * r // 8, _LEAST)) // (r * r))
    return np.concatenate([_pivot(G, H[i : i + step]) for i in range(0, k, step)]) if k else np.zeros((0, r))


def _pivot(G: Array, H: Array) -> Array:
    r = len(G)
    scale: Array = np.abs(H).max(axis=1, keepdims=True)
    H = H / np.where(scale > 0, scale, 1)  # rows of tiny contexts keep their relative accuracy
    try:
        positive = np.linalg.solve(G, H.T).T > 0
    except np.linalg.LinAlgError:
        return np.asarray(scale * _active_set(G, H))
    B = np.zeros_like(H)
    todo = np.arange(len(H))
    patience = np.full(len(H), 3)
    fewest = np.full(len(H), r + 1)
    tol = 1e-12
    identity = np.eye(r)
    for _ in range(5 * r + 10):
        P = positive[todo]
        system = np.where(P[:, :, None] & P[:, None, :], G, identity)
        try:
            b = np.linalg.solve(system, np.where(P, H[todo], 0)[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            break
        slack = b @ G - H[todo]  # the gradient, which must be >= 0 where b = 0
        wrong = np.where(P, b < -tol, slack < -tol)
        count = wrong.sum(axis=1)
        done = count == 0
        B[todo[done]] = np.maximum(b[done], 0)
        wrong, count, todo = wrong[~done], count[~done], todo[~done]
        if not len(todo):
            return np.asarray(scale * B)
        better = count < fewest[todo]
        fewest[todo] = np.where(better, count, fewest[todo])
        patience[todo] = np.where(better, 3, patience[todo] - 1)
        # Out of patience: only the last wrong entry changes side, which cannot cycle.
        single = patience[todo] < 0
        last = r - 1 - np.argmax(wrong[:, ::-1], axis=1)
        wrong[single] = identity[last[single]] > 0
        positive[todo] ^= wrong
    B[todo] = _active_set(G, H[todo])
    return np.asarray(scale * B)


def _active_set(G: Array, H: Array) -> Array:
    """Lawson and Hanson's method on a square root of G, one row at a time: slow and safe."""
    w, Q = np.linalg.eigh(G)
    w = np.maximum(w, 0)
    root = np.sqrt(w)
    inverse = np.where(w > len(w) * np.finfo(float).eps * w[-1], 1 / np.where(root > 0, root, 1), 0)
    design = root[:, None] * Q.T
    return np.array([nnls(design, inverse * (Q.T @ h))[0] for h in H])
