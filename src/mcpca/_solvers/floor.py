"""Loadings beside a floor of noise: ``S_i ~ A diag(b_i) A^T + F_i`` with F_i diagonal, for given components A.

By the paper's least squares every loading contains noise: ``a_j^T (s I) a_j = s``, so that context i has about its
noise variance s_i in all of its loadings, however many rows it has. Here the noise is one more term of the same least
squares, of one of four kinds:

    "isotropic"  F_i = s_i I        "pooled"  F_i = s I
    "diagonal"   F_i = diag(psi)    "scaled"  F_i = s_i diag(psi)

For the first, the identity is one more atom beside the ``a_j a_j^T``: ``<a a^T, I> = 1``, ``<I, I> = p`` and
``<S_i, I> = tr S_i``, hence the batched non-negative least squares of ``loadings`` with r + 1 unknowns (``own_floor``,
which takes any other diagonal as well). The others are
shared by contexts, and alternate between two exact steps until the squared error stops falling: the loadings given F,
with ``a_j^T (S_i - F_i) a_j`` on the right-hand side, and F given the loadings, the mean (or the best matrix of rank 1)
of what the diagonals leave. All kinds need of the covariances only their variances along A and their diagonals.

``_model.decomposition`` calls this for solvers that do not model noise themselves, and for the corrected loadings of
every fit; ``_model.new_contexts`` for new contexts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from .loadings import solve_loadings

FLOORS = ("isotropic", "pooled", "diagonal", "scaled")
# Share of the variance of a context outside the span of A below which there is none but rounding.
_NOTHING_OUTSIDE = 1e-9
# Least noise of a feature: a share of its variance, and of the mean variance of features for those that do not vary.
# With none at all a feature would determine the scores, and could not be divided by its noise.
_LEAST_OF_FEATURE = 1e-4
_LEAST_OF_ALL = 1e-9
_MOST_ROUNDS = 500
_SETTLED = 1e-12  # relative change of the floor in a round; each is a contraction, by about r / p


class Floor(NamedTuple):
    """Loadings (k, r) beside a floor of noise, and its variances: (k,), (p,) if "diagonal", (k, p) if "scaled"."""

    loadings: Array
    noise: Array


def own_floor(A: Array, along: Array, inner: Array, profile: Array | None = None) -> Floor:
    """Return loadings beside ``s_i D``, a diagonal D being one more atom of the least squares; D = I if not given.

    Parameters
    ----------
    A : ndarray (p, r)
        Unit columns, r < p.
    along : ndarray (k, r)
        ``a_j^T S_i a_j``.
    inner : ndarray (k,)
        ``<S_i, D>``, which is the trace for the identity.
    profile : ndarray (p,), optional
        The diagonal of D.

    Returns
    -------
    Floor
        ``noise`` (k,) are the s_i.
    """
    p, r = A.shape
    D = np.ones(p) if profile is None else profile
    # The atom is D / ||D||, which has norm 1 as the others have: G stays well scaled.
    size = np.linalg.norm(D)
    G = np.empty((r + 1, r + 1))
    G[:r, :r] = (A.T @ A) ** 2
    G[r, :r] = G[:r, r] = D @ A**2 / size
    G[r, r] = 1
    solution = solve_loadings(G, np.column_stack([along, inner / size]))
    return Floor(np.ascontiguousarray(solution[:, :r]), solution[:, r] / size)


def shared_floor(A: Array, along: Array, variances: Array, kind: str, weights: Array) -> Floor:
    """Return loadings beside a floor that contexts share: "pooled", "diagonal" or "scaled".

    Parameters
    ----------
    A, along
        As in ``own_floor``.
    variances : ndarray (k, p)
        Diagonals of the S_i.
    weights : ndarray (k,)
        Weights of contexts in what they share, such as their degrees of freedom.

    Notes
    -----
    Cost O(k p r + k r^3) a round, memory O(k p).
    """
    squares = A**2
    G = (A.T @ A) ** 2
    share = weights / weights.sum()
    # The start: what is left if the loadings were those of least squares with an isotropic floor.
    B = own_floor(A, along, variances.sum(axis=1)).loadings
    mean = share @ variances
    least = np.maximum(_LEAST_OF_FEATURE * mean, _LEAST_OF_ALL * mean.mean())  # (p,)
    floor = _fitted_floor(variances - B @ squares.T, kind, share, least)
    for _ in range(_MOST_ROUNDS):
        B = solve_loadings(G, along - _expanded(floor, kind, variances.shape) @ squares)
        before = floor
        floor = _fitted_floor(variances - B @ squares.T, kind, share, least)
        if np.abs(floor - before).max() <= _SETTLED * max(float(np.abs(floor).max()), np.finfo(float).tiny):
            break
    return Floor(B, np.full(len(B), floor[0]) if kind == "pooled" else floor)


def _fitted_floor(left: Array, kind: str, share: Array, least: Array) -> Array:
    """Return the floor of a kind that is closest to the diagonals ``left`` (k, p); that of a feature is at least so."""
    # Squared errors of contexts are weighted by ``share``, so shared values are weighted means.
    if kind == "pooled":
        return np.asarray(np.maximum(share @ left.mean(axis=1, keepdims=True), 0))
    if kind == "diagonal":
        return np.asarray(np.maximum(share @ left, least))
    # "scaled": rank 1 in the weighted norm; by Perron and Frobenius the top singular vectors of what is not negative
    # are not negative either.
    root = np.sqrt(share)[:, None]
    U, d, Vt = np.linalg.svd(root * np.maximum(left, 0), full_matrices=False)
    by_feature = np.abs(Vt[0])
    by_context = np.abs(U[:, 0]) * d[0] / root[:, 0]
    level = max(float(share @ by_context), np.finfo(float).tiny)
    by_context = np.maximum(by_context, _LEAST_OF_FEATURE * level)
    return np.outer(by_context, np.maximum(by_feature, least / level))


def _expanded(floor: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return the floor as (k, p)."""
    # (1,) and (p,) broadcast over contexts and features as they are.
    return floor if kind == "scaled" else np.broadcast_to(floor, shape)


def outside_is_empty(rest: Array, traces: Array) -> Array:
    """Return which contexts (k,) do not vary outside the span of A, so that their noise cannot be seen.

    ``rest`` (k,) is the variance outside the span.
    """
    # A context that does not vary at all has no noise to hide.
    return np.asarray((rest <= _NOTHING_OUTSIDE * traces) & (traces > 0))


def floor_with_hidden(A: Array, along: Array, traces: Array, hidden: Array, weights: Array) -> Floor:
    """Return ``own_floor``, in which contexts with ``hidden`` noise (k,) take the mean floor of all others.

    A covariance of rank r or less may lie in the span of A, and then says nothing about its noise.
    """
    floor = own_floor(A, along, traces)
    if not hidden.any() or hidden.all():
        return floor
    noise = floor.noise.copy()
    noise[hidden] = np.average(noise[~hidden], weights=weights[~hidden])
    B = floor.loadings.copy()
    # a_j^T (s I) a_j = s.
    B[hidden] = solve_loadings((A.T @ A) ** 2, along[hidden] - noise[hidden, None])
    return Floor(B, noise)
