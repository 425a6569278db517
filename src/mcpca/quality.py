"""The four facets of PCA that MCPCA generalises, as numbers.

All four need only ``A^T S_i A`` (r, r) and ``||S_i||_F`` of each context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._check import FINITE, Array, check_covariances, check_unmasked
from ._namespace import to_host
from .covariances import Covariances
from .stack import Stack


@dataclass(frozen=True)
class Facets:
    """What a decomposition keeps of each context, and what it leaves; one entry per context.

    Attributes
    ----------
    squared_norms : ndarray (k,)
        ``||S_i||_F^2``, the yardstick of the first two facets.
    squared_norm_errors : ndarray (k,)
        Standard errors of these where they are estimates, as they are when covariances are not formed; else 0.
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
    squared_norm_errors: Array
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
    given = check_unmasked(to_host(A), "A", FINITE), check_unmasked(to_host(B), "B", FINITE)
    A, B = (np.asarray(x, dtype=np.float64) for x in given)
    if A.ndim != 2 or B.ndim != 2 or A.shape[0] != S.shape[1] or B.shape != (len(S), A.shape[1]):
        raise ValueError(
            f"S {S.shape}, A {A.shape} and B {B.shape} do not fit: (k, p, p), (p, r) and (k, r) are needed."
        )
    return measure(Stack(S), A, B)


def measure(S: Covariances, A: Array, B: Array) -> Facets:
    """``facets`` for arrays known to be good."""
    return complete(score_moments(S, A), A, B)


class ScoreMoments(NamedTuple):
    """What the facets need of each context when only A is known: variances (k, r) along A, and (k,) each."""

    variances: Array
    squared_norms: Array
    squared_norm_errors: Array
    offdiagonals: Array
    offdiagonal_correlations: Array
    likelihood_losses: Array


def score_moments(S: Covariances, A: Array) -> ScoreMoments:
    """Return them from the covariances of scores; memory O(p r) beside the result for a stack."""
    A = A.astype(np.float64)
    inverse = np.linalg.pinv(A.T @ A, hermitian=True)
    parts = [_moments_of_chunk(cross, inverse) for cross in S.congruences(A)]
    h, *rest = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ScoreMoments(h, S.squared_norms(), S.norm_errors(), *rest)


def complete(moments: ScoreMoments, A: Array, B: Array) -> Facets:
    """Add what depends on the loadings."""
    A, B = A.astype(np.float64), B.astype(np.float64)
    h, norms, norm_errors, *rest = moments
    G = (A.T @ A) ** 2
    errors = norms - 2 * np.einsum("kj,kj->k", h, B) + np.einsum("kj,kj->k", B @ G, B)
    shares = h * np.linalg.lstsq(G, h.T, rcond=None)[0].T
    return Facets(norms, norm_errors, np.maximum(errors, 0), shares, *rest)


def _moments_of_chunk(cross: Array, inverse: Array) -> tuple[Array, ...]:
    """From ``A^T S_i A`` (k, r, r) of some contexts."""
    k, r, _ = cross.shape
    h = np.einsum("kjj->kj", cross).copy()
    half = (np.ascontiguousarray(cross.transpose(1, 0, 2)).reshape(r, -1).T @ inverse).reshape(k, r, r)
    scores = (half.transpose(0, 2, 1).reshape(-1, r) @ inverse).reshape(k, r, r)  # A^+ S_i A^+T
    diagonal = np.einsum("kjj->kj", scores)  # a view
    v = np.maximum(diagonal, 0)
    diagonal[:] = 0
    squares = scores * scores
    off = squares.sum(axis=(1, 2))
    weights = np.divide(1, v, out=np.zeros_like(v), where=v > 0)
    correlations = np.matmul(np.matmul(weights[:, None, :], squares), weights[:, :, None])[:, 0, 0]
    rms = np.sqrt(correlations / max(r * (r - 1), 1))
    varies = (v > 0).all(axis=1)
    diagonal[:] = np.where(varies[:, None], v, 1)
    sign, logdet = _log_determinants(scores)
    losses = np.log(diagonal).sum(axis=1) - logdet
    # The determinant of a correlation matrix; rounding makes it eps and not 0 when the matrix is singular.
    singular = ~varies | (sign <= 0) | (losses > -np.log(np.finfo(float).eps))
    return h, off, rms, np.where(singular, np.inf, np.maximum(losses, 0))


def _log_determinants(scores: Array) -> tuple[Array, Array]:
    """Signs and logarithms of determinants (k,): by Cholesky's factors, which are the faster, where they exist."""
    try:
        diagonals = np.einsum("kjj->kj", np.linalg.cholesky(scores))
    except np.linalg.LinAlgError:
        sign, logdet = np.linalg.slogdet(scores)
        return sign, logdet
    return np.ones(len(scores)), 2 * np.log(diagonals).sum(axis=1)


class FacetMethods:
    """The four facets as methods of a fitted model, which holds them in ``_facets``."""

    _facets: Facets

    def reconstruction_error(self, per: str | None = None) -> Any:
        """Return the average reconstruction error ``(1/k) sum_i ||S_i - A B_i A^T||_F^2`` of the fitted covariances.

        Minimising it is finding the closest rank-r partially symmetric tensor. ``per="context"`` gives the k terms
        ``||S_i - A B_i A^T||_F^2``; divide by ``squared_norms()`` for relative ones.
        """
        return _aggregate(self._measured().reconstruction_errors, per)

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` of each context: the yardstick for the error and the variance explained.

        Where the fit went by passes over the rows (``n_passes_``) these are estimates from random directions, with the
        standard errors ``squared_norm_errors()``, and so is what is made of them, the reconstruction error.
        """
        return self._measured().squared_norms

    def squared_norm_errors(self) -> Array:
        """Return the standard error of each of ``squared_norms()``; 0 where they are exact."""
        return self._measured().squared_norm_errors

    def variance_explained(self, per: str | None = None) -> Any:
        """Return the average squared variance explained, ``(1/k) sum_i ||P(S_i)||_F^2``.

        P is the projection on ``span{a_j a_j^T}``, and ``||S_i||^2 = ||S_i - P(S_i)||^2 + ||P(S_i)||^2``.
        ``per="context"`` gives the k terms. ``per="component"`` gives r shares that add up to the average: with
        ``P(S_i) = sum_j beta_ij a_j a_j^T`` the share of MCPC j is the average over contexts of
        ``<S_i, beta_ij a_j a_j^T> = beta_ij a_j^T S_i a_j``. For orthogonal MCPCs this is ``(a_j^T S_i a_j)^2``.
        Otherwise variance that two MCPCs could both explain is divided between them by the least-squares coefficients,
        and a share can be negative where a coefficient is.
        """
        shares = self._measured().variance_shares
        if per == "component":
            return shares.mean(axis=0)
        return _aggregate(shares.sum(axis=1), per, also="'component'")

    def offdiagonal_correlation(self, per: str | None = None, *, normalized: bool = False) -> Any:
        """Return the correlation left after projection, ``sum_i ||offdiag(A^+ S_i A^+T)||_F^2``.

        Zero when the scores are uncorrelated in every context. ``per="context"`` gives the k terms. ``normalized=True``
        gives instead the root mean square correlation between two different scores (average over contexts), which has
        no units.
        """
        measured = self._measured()
        if normalized:
            return _aggregate(measured.offdiagonal_correlations, per)
        return _aggregate(measured.offdiagonals, per, total=np.sum)

    def likelihood_loss(self, per: str | None = None) -> Any:
        """Return the common log-likelihood loss, ``sum_i log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``.

        Twice the Kullback-Leibler divergence between the Gaussian models of the scores with and without correlations;
        0 when they are uncorrelated in every context. Infinite where the scores of a context have a singular
        covariance, as with fewer than r + 1 samples or an MCPC that does not vary there. ``per="context"`` gives the k
        terms.
        """
        return _aggregate(self._measured().likelihood_losses, per, total=np.sum)

    def _measured(self) -> Facets:
        check_is_fitted(self)
        return self._facets


def _aggregate(values: Array, per: str | None, *, total: Any = np.mean, also: str = "") -> Any:
    if per is None:
        return float(total(values))
    if per == "context":
        return values
    raise ValueError(f"per={per!r}; choose None, 'context'{' or ' + also if also else ''}.")
