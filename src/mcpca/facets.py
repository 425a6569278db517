"""The four facets of PCA that MCPCA generalises, as numbers.

All four need only ``A^T S_i A`` (r, r) and ``||S_i||_F`` of each context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._check import Array, check_covariances
from .subspace import _times, context_chunks

_PER = {"reconstruction": (None, "context"), "variance": (None, "context", "component", "both")}


@dataclass(frozen=True)
class Facets:
    """What a decomposition keeps of each context, and what it leaves; one entry per context.

    Attributes
    ----------
    squared_norms : ndarray (k,)
        ``||S_i||_F^2``, the yardstick of the first two facets.
    reconstruction_errors : ndarray (k,)
        ``||S_i - A diag(b_i) A^T||_F^2``.
    variance_shares : ndarray (k, r)
        ``<S_i, beta_ij a_j a_j^T>``, which add up over j to ``||P(S_i)||_F^2``; P projects on the span of the
        ``a_j a_j^T`` and beta are its coefficients.
    offdiagonals : ndarray (k,)
        ``||offdiag(A^+ S_i A^+T)||_F^2``.
    offdiagonal_correlations : ndarray (k,)
        Root mean square of the correlations between different scores; free of units.
    likelihood_losses : ndarray (k,)
        ``log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``, twice a Kullback-Leibler divergence.
    """

    squared_norms: Array
    reconstruction_errors: Array
    variance_shares: Array
    offdiagonals: Array
    offdiagonal_correlations: Array
    likelihood_losses: Array


def facets(S: Any, A: Any, B: Any) -> Facets:
    """Measure how well ``S_i ~ A diag(b_i) A^T`` holds, context by context.

    Parameters
    ----------
    S : array-like (k, p, p)
    A : array-like (p, r)
        Linearly independent unit columns.
    B : array-like (k, r)

    Notes
    -----
    Cost O(k p^2 r + k r^3), memory O(p r) beside the result.
    """
    S = check_covariances(S)
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    if A.ndim != 2 or B.ndim != 2 or A.shape[0] != S.shape[1] or B.shape != (len(S), A.shape[1]):
        raise ValueError(
            f"S {S.shape}, A {A.shape} and B {B.shape} do not fit: (k, p, p), (p, r) and (k, r) are needed."
        )
    return measure(S, A, B)


def measure(S: Array, A: Array, B: Array) -> Facets:
    """``facets`` for arrays known to be good."""
    A, B = A.astype(np.float64), B.astype(np.float64)
    inverse = np.linalg.pinv(A.T @ A, hermitian=True)
    G = (A.T @ A) ** 2
    parts = [_measure_chunk(S[part], A, B[part], G, inverse) for part in context_chunks(S)]
    return Facets(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _measure_chunk(S: Array, A: Array, B: Array, G: Array, inverse: Array) -> tuple[Array, ...]:
    cross = A.T @ _times(S, A)  # A^T S_i A
    h = np.einsum("kjj->kj", cross)
    norms = np.einsum("kpq,kpq->k", S, S, dtype=np.float64)
    errors = norms - 2 * np.einsum("kj,kj->k", h, B) + np.einsum("kj,jl,kl->k", B, G, B, optimize=True)
    shares = h * np.linalg.lstsq(G, h.T, rcond=None)[0].T
    scores = inverse @ cross @ inverse  # A^+ S_i A^+T
    variances = np.einsum("kjj->kj", scores)
    off = np.maximum(np.einsum("kjl,kjl->k", scores, scores) - (variances**2).sum(axis=1), 0)
    scale = np.sqrt(np.maximum(variances, 0))
    unit = np.where(scale > 0, scale, 1)
    correlations = scores / unit[:, :, None] / unit[:, None, :]
    r = A.shape[1]
    np.einsum("kjj->kj", correlations)[:] = 1
    rms = np.sqrt(np.maximum((correlations**2).sum(axis=(1, 2)) - r, 0) / max(r * (r - 1), 1))
    sign, logdet = np.linalg.slogdet(correlations)
    # log det Diag(C) - log det C is -log det of the correlation matrix, and infinite when that is singular.
    singular = (sign <= 0) | (scale.min(axis=1, initial=np.inf) == 0) | (logdet < np.log(np.finfo(float).eps))
    losses = np.where(singular, np.inf, np.maximum(-logdet, 0))
    return norms, np.maximum(errors, 0), shares, off, rms, losses
