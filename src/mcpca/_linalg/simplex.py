"""Weights that are not negative and add up to 1, by least squares: many problems with a handful of unknowns each."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from .._utils.types import Array

# Relative to the largest eigenvalue of a problem: what is below is rounding, or a direction without curvature.
_LEAST_CURVATURE = 1e-9
# By how much a larger set of positive weights must be better than a smaller one, relative to the size of the problem.
_BETTER = 1e-9
_SIGN_TOL = 1e-12


def least_on_simplex(G: Array, h: Array) -> Array:
    """Minimise ``w^T G w - 2 h^T w`` over ``w >= 0``, ``sum(w) = 1``, for each of k problems with m unknowns.

    The positive weights of a solution solve ``[G_PP 1; 1^T 0] [w_P; l] = [h_P; 1]``, so with m of them there are
    ``2^m - 1`` candidates: all are looked at, for all problems at once, and the best that is not negative is taken. Of
    candidates that are as good the one with fewest positive weights is. G (k, m, m) is made positive definite first:
    estimates of Gram matrices need not be.

    Cost O(k 2^m m^3): for m up to about 6.
    """
    k, m = h.shape
    values, vectors = np.linalg.eigh((G + G.transpose(0, 2, 1)) / 2)
    size = np.maximum(np.abs(values).max(axis=1, initial=0), np.finfo(float).tiny)
    # In units of its own size, so that neither the bounds above nor the systems depend on the unit of the data.
    values = np.maximum(values / size[:, None], _LEAST_CURVATURE)
    G = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
    h = h / size[:, None]
    best = np.full(k, np.inf)
    weights = np.zeros((k, m))
    for n in range(1, m + 1):
        for chosen in combinations(range(m), n):
            places = list(chosen)
            system = np.ones((k, n + 1, n + 1))
            system[:, :n, :n] = G[:, places][:, :, places]
            system[:, n, n] = 0
            target = np.concatenate([h[:, places], np.ones((k, 1))], axis=1)
            w = np.zeros((k, m))
            w[:, places] = np.linalg.solve(system, target[:, :, None])[:, :n, 0]
            value = np.einsum("ka,kab,kb->k", w, G, w) - 2 * np.einsum("ka,ka->k", w, h)
            better = (w >= -_SIGN_TOL).all(axis=1) & (value < best - _BETTER)
            best[better] = value[better]
            weights[better] = np.maximum(w[better], 0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
