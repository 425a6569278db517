"""Context loadings B >= 0 for given components A: the paper's non-negative least squares, for all contexts at once.

This is the last step of Algorithm 1 (supplement, section "MCPCA"). Every solver that returns no loadings of its own
ends in ``solve_loadings``, which ``lsq`` and the baselines call at every step; ``nonnegative_loadings`` is the same for
users, with checks. The design matrix of the textbook formulation has
p^2 rows and r columns; it is never formed, by the identity in ``nonnegative_loadings``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls

from .._covariances.stack import variances_along
from .._covariances.validation import check_covariances
from .._utils.arguments import FINITE, check_unmasked
from .._utils.array_api import to_host
from .._utils.parallel import over_contexts
from .._utils.types import Array

# Numbers in a batch of r x r systems: 2 MB at most, and no more than an eighth of what all contexts together would
# take, so that memory stays small beside the data; but 1 MB at least, below which calls cost more than arithmetic.
# Systems are of half the size at most, as a rule, and take a quarter of that.
_BATCH_NUMBERS = 2**18
_SMALLEST_BATCH_NUMBERS = 2**17
_SIGN_TOL = 1e-12  # an entry is negative when it is below minus this; targets are scaled to 1
_WELL_CONDITIONED = 1e3  # in the 1-norm: up to which the inverse of G is used, which loses as many digits
_GUESSING_STEPS = 12  # of the first guess, at most
_PATIENCE = 3  # rounds without fewer wrong signs before a row exchanges one entry at a time


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
        Components: unit columns, r <= p.

    Returns
    -------
    B : ndarray (k, r)
        Loadings.

    Notes
    -----
    Cost O(k p^2 r + k r^3), memory O(p r + k r) besides the input.
    """
    S = check_covariances(S)
    A = np.asarray(check_unmasked(to_host(A), "A", FINITE), dtype=np.float64)
    if A.ndim != 2 or A.shape[0] != S.shape[1]:
        raise ValueError(f"A must be (p, r) with p={S.shape[1]} as in S, got shape {A.shape}.")
    if not np.isfinite(A).all():
        raise ValueError("A contains NaN or infinite values; pass finite components.")
    # In float64 to the end, whatever S is in: squared cosines of similar components make G ill-conditioned.
    return solve_loadings((A.T @ A) ** 2, variances_along(S, A)).astype(S.dtype, copy=False)


def solve_loadings(G: Array, H: Array) -> Array:
    """Minimise ``b^T G b - 2 h^T b`` over ``b >= 0`` for every row h of H.

    Block principal pivoting (Kim and Park, SIAM J. Sci. Comput. 33, 2011): guess which entries are positive, solve
    the equations on them, exchange every entry that breaks a sign condition, and fall back to exchanging one at a
    time when that stops helping. All rows advance together. Rows that do not finish, which takes a nearly singular G,
    are given to SciPy's active-set method.
    """
    k, r = H.shape
    if not k:
        return np.zeros((0, r))
    scale: Array = np.abs(H).max(axis=1, keepdims=True)
    H = H / np.where(scale > 0, scale, 1)  # rows of tiny contexts keep their relative accuracy
    try:
        inverse = np.linalg.inv(G)
    except np.linalg.LinAlgError:
        return np.asarray(scale * _active_set(G, H))
    is_well_conditioned = np.linalg.norm(G, 1) * np.linalg.norm(inverse, 1) < _WELL_CONDITIONED
    K = inverse if is_well_conditioned else None
    # For all rows at once: its many small steps would wait for one another in threads.
    positive = _first_guess(G, H, H @ inverse)
    # Rows with systems of about one size go together: all systems of a batch are brought to the largest.
    counts = positive.sum(axis=1)
    order = np.argsort(counts if K is None else np.minimum(counts, r - counts), kind="stable")
    numbers = min(_BATCH_NUMBERS, max(k * r * r // 8, _SMALLEST_BATCH_NUMBERS))
    parts = over_contexts(lambda part: _pivot(G, K, H[order[part]], positive[order[part]]), k, r, numbers)
    B = np.empty_like(H)
    B[order] = np.concatenate(parts)
    return np.asarray(scale * B)


def _pivot(G: Array, K: Array | None, H: Array, positive: Array) -> Array:
    """Solve the problems of all rows of H by block principal pivoting, from a guess of which entries are ``positive``.

    A row is done when its solution on them is >= 0 and its gradient elsewhere is >= 0: the optimality conditions, which
    are sufficient since the problem is convex. ``K`` is the inverse of G, if that may be used.
    """
    # G (r, r); H, B and ``positive`` (m, r), one row for each context of the batch. ``positive`` is changed.
    r = len(G)
    B = np.zeros_like(H)
    todo = np.arange(len(H))
    patience = np.full(len(H), _PATIENCE)
    # More than there can be, so that the first round counts as progress.
    fewest_wrong = np.full(len(H), r + 1)
    identity = np.eye(r)
    for _ in range(5 * r + 10):
        P = positive[todo]
        try:
            b = _with_zeros(G, K, H[todo], P)
        except np.linalg.LinAlgError:
            break
        # G b - h, half the gradient.
        gradient = b @ G - H[todo]
        wrong = np.where(P, b < -_SIGN_TOL, gradient < -_SIGN_TOL)
        count = wrong.sum(axis=1)
        done = count == 0
        # Values between -_SIGN_TOL and 0 are rounding.
        B[todo[done]] = np.maximum(b[done], 0)
        wrong = wrong[~done]
        count = count[~done]
        todo = todo[~done]
        if not len(todo):
            return B
        better = count < fewest_wrong[todo]
        fewest_wrong[todo] = np.where(better, count, fewest_wrong[todo])
        patience[todo] = np.where(better, _PATIENCE, patience[todo] - 1)
        # Out of patience: only the last wrong entry changes side, which cannot cycle.
        single = patience[todo] < 0
        last = r - 1 - np.argmax(wrong[:, ::-1], axis=1)
        wrong[single] = identity[last[single]] > 0
        positive[todo] ^= wrong
    # Also after a singular system: rows that were done before it keep their solution.
    B[todo] = _active_set(G, H[todo])
    return B


def _first_guess(G: Array, H: Array, b: Array) -> Array:
    """Return which entries (m, r) are likely to be > 0, by projected gradient steps from ``b``, until no sign changes.

    A step is one product for all rows, a hundredth of what a round of exact solutions takes, and G is well conditioned
    as a rule: a few steps with Nesterov's momentum save most rounds.
    """
    b = np.maximum(b, 0)
    # Perron: the largest eigenvalue of a matrix without negative entries is at most its largest row sum.
    largest = np.linalg.norm(G, 1)
    ahead = b
    weight = 1.0
    for _ in range(_GUESSING_STEPS):
        before = b
        b = np.maximum(ahead - (ahead @ G - H) / largest, 0)
        if not ((b > 0) ^ (before > 0)).any():
            break
        next_weight = (1 + np.sqrt(1 + 4 * weight * weight)) / 2
        ahead = b + (weight - 1) / next_weight * (b - before)
        weight = next_weight
    return np.asarray(b > 0)


def _with_zeros(G: Array, K: Array | None, H: Array, P: Array) -> Array:
    """Return b (m, r) with ``(G b - h)_P = 0`` that is 0 off P, for every row, by the smaller of two systems.

    One has the positive entries as unknowns. The other has multipliers l of the zeros Z, and takes ``K = G^-1``: from
    ``G b + l = h`` with l = 0 on P follows ``b = K h - K l``, and ``b_Z = 0`` is ``K_ZZ l_Z = (K h)_Z``.
    """
    if K is None:
        return _solve_on(G, H, P)
    by_zeros = 2 * P.sum(axis=1) >= P.shape[1]
    b = np.empty_like(H)
    b[~by_zeros] = _solve_on(G, H[~by_zeros], P[~by_zeros])
    Z = ~P[by_zeros]
    free = H[by_zeros] @ K
    b[by_zeros] = np.where(Z, 0, free - _solve_on(K, free, Z) @ K)
    return b


def _solve_on(M: Array, V: Array, members: Array) -> Array:
    """Solve ``M_SS x_S = v_S`` for the members S of each row (m, r); x is 0 elsewhere. Systems are of their number."""
    counts = members.sum(axis=1)
    most = int(counts.max(initial=0))
    out = np.zeros_like(V)
    if most == 0:
        return out
    # Members of each row first; rows with fewer have the identity for the rest.
    index = np.argsort(~members, axis=1, kind="stable")[:, :most]
    used = np.arange(most) < counts[:, None]
    system = M[index[:, :, None], index[:, None, :]]
    if not used.all():
        system = np.where(used[:, :, None] & used[:, None, :], system, np.eye(most))
    values = np.where(used, np.take_along_axis(V, index, axis=1), 0)
    np.put_along_axis(out, index, np.linalg.solve(system, values[:, :, None])[:, :, 0], axis=1)
    return out


def _active_set(G: Array, H: Array) -> Array:
    """Lawson and Hanson's method, which the paper uses, one row at a time: slow and safe.

    ``b^T G b - 2 h^T b`` is ``||R b - R^-T h||^2`` up to a constant for any root ``R^T R = G``; the pseudoinverse of
    the root stands in if G is singular.
    """
    w, Q = np.linalg.eigh(G)
    # An elementwise square of a Gram matrix is positive semi-definite (Schur): eigenvalues below zero are rounding.
    w = np.maximum(w, 0)
    root = np.sqrt(w)
    inverse = np.where(w > len(w) * np.finfo(float).eps * w[-1], 1 / np.where(root > 0, root, 1), 0)
    design = root[:, None] * Q.T
    return np.array([nnls(design, inverse * (Q.T @ h))[0] for h in H])
