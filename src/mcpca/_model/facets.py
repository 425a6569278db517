"""The four facets of PCA that MCPCA generalises, as numbers.

All four need only ``A^T S_i A`` (r, r) and ``||S_i||_F`` of each context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.scaling import stack_in_range
from .._covariances.stack import CovarianceStack
from .._covariances.validation import check_covariances
from .._utils.arguments import FINITE, check_unmasked
from .._utils.array_api import to_host
from .._utils.printing import Shown, counted, span
from .._utils.types import Array

_SQUARES = ("squared_norms", "squared_norm_errors", "reconstruction_errors", "variance_shares", "offdiagonals")


@dataclass(frozen=True, repr=False)
class Facets(Shown):
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
        What each component adds to ``||S_i||_F^2 - ||S_i - A diag(b_i) A^T||_F^2``, the part that is explained:
        ``b_ij (2 a_j^T S_i a_j - sum_l b_il (a_j . a_l)^2)``, which is ``b_ij a_j^T S_i a_j`` where b_i is the best.
    offdiagonals : ndarray (k,)
        ``||offdiag(A^+ S_i A^+T)||_F^2``.
    offdiagonal_correlations : ndarray (k,)
        Root mean square of the correlations between different scores; free of units.
    likelihood_losses : ndarray (k,)
        ``log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``, twice a Kullback-Leibler divergence.
    exponent : int
        All squares are in units of ``16^exponent``, the fourth power of the data's; 0 unless data are far from 1.
    """

    squared_norms: Array
    squared_norm_errors: Array
    reconstruction_errors: Array
    variance_shares: Array
    offdiagonals: Array
    offdiagonal_correlations: Array
    likelihood_losses: Array
    exponent: int = 0

    def in_units(self, name: str) -> Array:
        """Return the squares called ``name`` in units of the data; raise where they are no numbers there."""
        values: Array = getattr(self, name)
        with np.errstate(over="ignore", under="ignore"):
            found = np.ldexp(values, 4 * self.exponent)
        if np.isfinite(found).sum() < np.isfinite(values).sum() or (found == 0).sum() > (values == 0).sum():
            raise ValueError(
                f"{name} are fourth powers of the data, of about 2^{self.exponent}, and no numbers of float64. Divide "
                "the data by a constant, or ask for shares: explained_share()."
            )
        return found

    def explained_shares(self, total: bool) -> tuple[Any, Any]:
        """Return the share explained of each context (k,), or of all in ``total``, and its standard error."""
        explained, norms, errors = self.variance_shares.sum(axis=1), self.squared_norms, self.squared_norm_errors
        if total:
            explained, norms, errors = explained.sum(), norms.sum(), np.sqrt((errors**2).sum())
        norm = np.where(norms > 0, norms, np.nan)  # what does not vary has no share
        share = explained / norm
        return share, np.abs(share) * errors / norm

    def _words(self) -> list[str]:
        k, r = self.variance_shares.shape
        error, explained = self._shares()
        total = self.squared_norms.sum() or 1.0
        return [
            f"{counted(r, 'MCPC')} in {counted(k, 'context')}: of the squared norms they explain "
            f"{self.variance_shares.sum() / total:.1%}, and these loadings leave an error of "
            f"{self.reconstruction_errors.sum() / total:.1%}.",
            f"By context: explained {span(explained, '.1%')}, error {span(error, '.1%')}, correlation between scores "
            f"{span(self.offdiagonal_correlations)}, likelihood loss {span(self.likelihood_losses)}.",
        ]

    def _rows(self) -> dict[str, Any]:
        error, explained = self._shares()
        return {
            "context": range(len(error)),
            "explained": explained,
            "error": error,
            "score correlation": self.offdiagonal_correlations,
            "likelihood loss": self.likelihood_losses,
        }

    def _shares(self) -> tuple[Array, Array]:
        """Return reconstruction errors and what is explained as shares of the squared norms (k,)."""
        norms = np.where(self.squared_norms > 0, self.squared_norms, np.nan)
        return self.reconstruction_errors / norms, self.variance_shares.sum(axis=1) / norms


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
    S, e = stack_in_range(S)
    found = replace(measure(CovarianceStack(S), A, np.ldexp(B, -2 * e)), exponent=e)
    return replace(found, exponent=0, **{name: found.in_units(name) for name in _SQUARES}) if e else found


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
    shares = B * (2 * h - B @ (A.T @ A) ** 2)
    explained = shares.sum(axis=1)
    norms = np.maximum(norms, explained)  # which they are, also where they were estimated
    return Facets(norms, norm_errors, norms - explained, shares, rest[0], rest[1], rest[2])


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
