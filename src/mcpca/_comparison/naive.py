"""What a reader would try first: covariances of each context from its own rows, from all rows, or from both.

All are functions of the fitted half's covariances ``S_i`` with n_i rows, and of ``P = sum_i n_i S_i / sum_i n_i``.
They have full rank, except for the PCA, and no components that contexts share. Noise need not be taken out of them: it
is on diagonals, which errors leave aside (``_inference.held_out``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._inference.held_out import Half, Matrices, Prediction
from .._utils.types import Array


def own_covariance(half: Half, r: int) -> Prediction:
    """Return ``S_i``."""
    return Matrices(half.array)


def own_pca(half: Half, r: int) -> Prediction:
    """Return ``U (L - s) U^T`` with the r top eigenpairs (U, L) of S_i and s the mean of the other eigenvalues.

    This is probabilistic PCA of each context, the likelihood's answer for one context: like the solvers, without noise.
    Cost O(k p^3).
    """
    values, vectors = np.linalg.eigh(half.array)
    U = vectors[:, :, -r:]
    p = values.shape[1]
    noise = values[:, : p - r].mean(axis=1, keepdims=True) if r < p else 0.0
    return Matrices(np.asarray((U * np.maximum(values[:, -r:] - noise, 0)[:, None, :]) @ U.transpose(0, 2, 1)))


def scaled_pooled_covariance(half: Half, r: int) -> Prediction:
    """Return ``P tr S_i / tr P``: contexts differ in size only."""
    P = _pooled(half)
    sizes = half.variances.sum(axis=1) / max(float(np.trace(P)), np.finfo(float).tiny)
    return Matrices(sizes[:, None, None] * P)


def half_own_half_pooled(half: Half, r: int) -> Prediction:
    """Return ``(S_i + P) / 2``."""
    return Matrices((half.array + _pooled(half)) / 2)


def _pooled(half: Half) -> Array:
    return np.asarray(np.average(half.array, axis=0, weights=half.counts))


NAIVE: dict[str, Callable[[Half, int], Prediction]] = {
    "own covariance": own_covariance,
    "own PCA": own_pca,
    "scaled pooled covariance": scaled_pooled_covariance,
    "half own half pooled": half_own_half_pooled,
}
