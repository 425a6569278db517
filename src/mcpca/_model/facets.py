"""The four facets of PCA that MCPCA generalises, as numbers: how well ``S_i ~ A diag(b_i) A^T`` holds.

The facets are the paper's: reconstruction error, variance explained, correlation left between the scores, and the
common log-likelihood loss. All four need only ``A^T S_i A`` (r, r) and ``||S_i||_F`` of each context, so they come in
two steps: ``score_moments`` in one pass over the covariances, for A alone, and ``complete`` once B is known. That lets
``decompose_checked`` take the right-hand side of least squares from the same pass. The last two facets, which most fits
are never asked for, wait in between as the ``A^T S_i A`` if these are small. ``facet_measures`` turns the result into
the numbers that the methods of ``MCPCA`` return.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.packed import InCore
from .._covariances.scaling import stack_in_range
from .._covariances.stack import CovarianceStack, each_congruence
from .._covariances.validation import check_covariances
from .._utils.arguments import FINITE, check_unmasked
from .._utils.array_api import to_host
from .._utils.parallel import over_contexts
from .._utils.printing import Shown, counted, span
from .._utils.types import Array

# The fields of ``Facets`` that are fourth powers of the data, and so change with its units.
_SQUARES = ("squared_norms", "squared_norm_errors", "reconstruction_errors", "variance_shares", "offdiagonals")
# Those of the correlation between scores, which may be computed when they are first asked for.
_OF_SCORES = ("offdiagonals", "offdiagonal_correlations", "likelihood_losses")
# Numbers in the covariances of scores that wait until then: 8 MB. Larger ones do if they are an eighth of the S_i.
_SMALL_NUMBERS = 2**20


@dataclass(frozen=True, repr=False)
class Facets(Shown):
    """What a decomposition keeps of each context, and what it leaves; one entry per context.

    Attributes
    ----------
    squared_norms : ndarray (k,)
        ``||S_i||_F^2``, the yardstick of the first two facets.
    squared_norm_errors : ndarray (k,)
        Standard errors of ``squared_norms`` if they are estimates, as they are when covariances are never formed; else
        0.
    reconstruction_errors : ndarray (k,)
        ``||S_i - A diag(b_i) A^T||_F^2``.
    variance_shares : ndarray (k, r)
        What each component adds to the part explained, ``||S_i||_F^2 - ||S_i - A diag(b_i) A^T||_F^2``:
        ``b_ij (2 a_j^T S_i a_j - sum_l b_il (a_j . a_l)^2)``, which is ``b_ij a_j^T S_i a_j`` for the b_i of least
        squares.
    offdiagonals : ndarray (k,)
        ``||offdiag(A^+ S_i A^+T)||_F^2``.
    offdiagonal_correlations : ndarray (k,)
        Root mean square of the correlations between different scores; free of units.
    likelihood_losses : ndarray (k,)
        ``log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``, twice a Kullback-Leibler divergence.
    exponent : int
        All squares are in units of ``16^exponent``, because they are fourth powers of the data; 0 unless the data are
        far from 1.
    """

    squared_norms: Array
    squared_norm_errors: Array
    reconstruction_errors: Array
    variance_shares: Array
    offdiagonals: Array
    offdiagonal_correlations: Array
    likelihood_losses: Array
    exponent: int = 0

    def __getattr__(self, name: str) -> Any:
        """Compute what was deferred; Python asks here only for what an object does not have."""
        make = self.__dict__.get("_of_scores")
        if name not in _OF_SCORES or make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__.update(zip(_OF_SCORES, make(), strict=True))
        # Only after the values are there, for another thread that asks meanwhile.
        self.__dict__["_of_scores"] = None
        return self.__dict__[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return the numbers, all of them: what makes them does not go into a copy or a file."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def in_units(self, name: str) -> Array:
        """Return the squares called ``name`` in the units of the data; raise if they overflow or underflow there."""
        values: Array = getattr(self, name)
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.ldexp(values, 4 * self.exponent)
        # Counted and compared, because infinities and zeros that were there before are no fault of the scaling.
        overflows = np.isfinite(scaled).sum() < np.isfinite(values).sum()
        underflows = (scaled == 0).sum() > (values == 0).sum()
        if overflows or underflows:
            raise ValueError(
                f"{name} are fourth powers of the data, which are about 2^{self.exponent}, and are out of the range of "
                "float64. Divide the data by a constant, or ask for shares: explained_share()."
            )
        return scaled

    def explained_shares(self, total: bool) -> tuple[Any, Any]:
        """Return the share explained of each context (k,), or of all of them in ``total``, and its standard error."""
        explained = self.variance_shares.sum(axis=1)
        norms = self.squared_norms
        errors = self.squared_norm_errors
        if total:
            explained = explained.sum()
            norms = norms.sum()
            errors = np.sqrt((errors**2).sum())  # the estimates of different contexts are independent
        norms = np.where(norms > 0, norms, np.nan)  # a context that does not vary has no share
        share = explained / norms
        # What is explained is exact; to first order d(e / n) = -(e / n) dn / n.
        return share, np.abs(share) * errors / norms

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


def with_exponent(facets: Facets, exponent: int) -> Facets:
    """Return the same numbers in units of ``16^exponent``; what was deferred stays so."""
    return _deferred(**(vars(facets) | {"exponent": exponent}))


def _deferred(**known: Any) -> Facets:
    """Return facets with these attributes; ``_of_scores()`` returns the others, and is called when one is asked for."""
    facets = object.__new__(Facets)
    vars(facets).update(known)
    return facets


def facets(S: Any, A: Any, B: Any) -> Facets:
    """Measure how well ``S_i ~ A diag(b_i) A^T`` holds, context by context.

    Parameters
    ----------
    S : array-like (k, p, p)
        Covariances.
    A : array-like (p, r)
        Linearly independent unit columns.
    B : array-like (k, r)
        Loadings.

    Returns
    -------
    Facets

    Notes
    -----
    Cost O(k p^2 r + k r^3), memory O(p r) on top of the result.
    """
    S = check_covariances(S)
    A = np.asarray(check_unmasked(to_host(A), "A", FINITE), dtype=np.float64)
    B = np.asarray(check_unmasked(to_host(B), "B", FINITE), dtype=np.float64)
    if A.ndim != 2 or B.ndim != 2 or A.shape[0] != S.shape[1] or B.shape != (len(S), A.shape[1]):
        raise ValueError(
            f"S {S.shape}, A {A.shape} and B {B.shape} do not fit: (k, p, p), (p, r) and (k, r) are needed."
        )
    # Norms are squared twice over in the data: far from 1 they are taken of S 4^-e, and scaled back at the end.
    S, e = stack_in_range(S)
    # Loadings are variances, in the unit of S.
    scaled = with_exponent(measure(CovarianceStack(S), A, np.ldexp(B, -2 * e)), e)
    if e == 0:
        return scaled
    return replace(scaled, exponent=0, **{name: scaled.in_units(name) for name in _SQUARES})


def measure(S: Covariances, A: Array, B: Array) -> Facets:
    """``facets`` for arrays that have been checked."""
    return complete(score_moments(S, A), A, B)


class ScoreMoments(NamedTuple):
    """What the facets need of each context when only A is known: ``variances`` along A (k, r), the rest (k,).

    ``inside`` (k,) is the variance in the span of A. ``covariances`` (k, r, r) are those of the scores, ``A^+ S_i
    A^+T``, or None if they were not kept. ``of_scores`` returns what the facets need of them, ``_OF_SCORES``.
    """

    variances: Array
    inside: Array
    covariances: Array | None
    squared_norms: Array
    squared_norm_errors: Array
    of_scores: Callable[[], tuple[Array, ...]]


def score_moments(S: Covariances, A: Array, *, keep: bool = False, within: InCore | None = None) -> ScoreMoments:
    """Return the moments from ``A^T S_i A``, a chunk of contexts at a time; memory O(p r) on top for a stack.

    With ``keep`` also the covariances of the scores, O(k r^2). ``within`` are the covariances in the span of A, where
    they are known: O(k r^3) in place of O(k p^2 r). The ``A^T S_i A``, or ``within``, are held until facets of them are
    asked for, if they are at most 8 MB or an eighth of the S_i.
    """
    A = A.astype(np.float64)
    # A^+ = (A^T A)^-1 A^T, so the covariance of the scores is N (A^T S_i A) N. A pseudoinverse, because users may
    # measure components that are (nearly) dependent.
    N = np.linalg.pinv(A.T @ A, hermitian=True)
    k = S.n_contexts
    p, r = A.shape
    of_scores: Callable[[], tuple[Array, ...]]
    if within is not None:
        variances, inside = within.variances_along(), within.inner_products(N)
        of_scores = partial(_of_core, within, N, keep)
    elif not keep and k * r * r <= max(_SMALL_NUMBERS, k * p * p // 8):
        cross = np.empty((k, r, r))
        each_congruence(S, A, cross.__setitem__)
        variances, inside = _along(cross, N)
        of_scores = partial(_of_cross, cross, N)
    else:
        # Each ``cross`` is (k', r, r), some of the contexts.
        chunks = each_congruence(S, A, lambda _, cross: (*_along(cross, N), *_of_scores(_scores(cross, N), keep)))
        variances, inside, *found = _joined(chunks)
        of_scores = partial(tuple, found)
    scores = None
    if keep:
        *found, scores = of_scores()
        of_scores = partial(tuple, found)
    return ScoreMoments(variances, inside, scores, S.squared_norms(), S.norm_errors(), of_scores)


def _of_core(within: InCore, N: Array, keep: bool) -> tuple[Array, ...]:
    """Return ``_of_scores`` of all contexts from covariances in the span of A."""
    return _joined(within.each_congruence(lambda _, C: _of_scores(C, keep), N))


def _of_cross(cross: Array, N: Array) -> tuple[Array, ...]:
    """Return ``_of_scores`` of all contexts from the ``A^T S_i A`` (k, r, r)."""
    k, r, _ = cross.shape
    return _joined(over_contexts(lambda part: _of_scores(_scores(cross[part], N), keep=False), k, r))


def _joined(chunks: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Return each array of all chunks, the contexts of one after those of the other."""
    return tuple(np.concatenate(column) for column in zip(*chunks, strict=True))


def complete(moments: ScoreMoments, A: Array, B: Array) -> Facets:
    """Add what depends on the loadings; neither the covariances nor a (p, p) product is needed for it."""
    # Errors are small differences of large norms: in float32 those of a good fit would be rounding.
    A = A.astype(np.float64)
    B = B.astype(np.float64)
    # ||S - A b A^T||^2 = ||S||^2 - 2 sum_j b_j a_j^T S a_j + sum_jl b_j b_l (a_j . a_l)^2, split by component j.
    shares = B * (2 * moments.variances - B @ (A.T @ A) ** 2)
    explained = shares.sum(axis=1)
    # True norms are at least as large; estimated ones, and those of exact fits up to rounding, may not be.
    norms = np.maximum(moments.squared_norms, explained)
    return _deferred(
        _of_scores=moments.of_scores,
        squared_norms=norms,
        squared_norm_errors=moments.squared_norm_errors,
        reconstruction_errors=norms - explained,
        variance_shares=shares,
        exponent=0,
    )


def _along(cross: Array, N: Array) -> tuple[Array, Array]:
    """Return the variances along A (k, r), and that in its span (k,), from ``cross``, the ``A^T S_i A`` (k, r, r)."""
    # A view of the diagonal would keep the whole chunk alive.
    variances = np.einsum("kjj->kj", cross).copy()
    # tr(A A^+ S_i) = tr(N A^T S_i A), as a product of vectors, since both are symmetric.
    return variances, cross.reshape(len(cross), -1) @ N.ravel()


def _scores(cross: Array, N: Array) -> Array:
    """Return ``N cross_i N = A^+ S_i A^+T`` (k, r, r), the covariances of the scores."""
    k, r, _ = cross.shape
    # Two products of (k r, r) by (r, r): matmul of k small matrices is slower.
    half = (np.ascontiguousarray(cross.transpose(1, 0, 2)).reshape(r, -1).T @ N).reshape(k, r, r)
    return (half.transpose(0, 2, 1).reshape(-1, r) @ N).reshape(k, r, r)


def _of_scores(C: Array, keep: bool) -> tuple[Array, ...]:
    """Return ``_OF_SCORES``, (k,) each, of covariances of scores C (k, r, r), and with ``keep`` C itself.

    C is written to on the way.
    """
    r = C.shape[1]
    diagonal = np.einsum("kjj->kj", C)  # a view: what is written here is written into C
    score_variances = np.maximum(diagonal, 0)

    diagonal[:] = 0
    squares = C * C
    offdiagonals = squares.sum(axis=(1, 2))
    # sum_jl C_jl^2 / (v_j v_l), the squared correlations; scores that do not vary have none.
    inverse_variances = np.divide(1, score_variances, out=np.zeros_like(score_variances), where=score_variances > 0)
    rows_scaled = np.matmul(inverse_variances[:, None, :], squares)  # (k, 1, r)
    squared_correlations = np.matmul(rows_scaled, inverse_variances[:, :, None])[:, 0, 0]
    # Over the r (r - 1) ordered pairs; a single score has no pair, and a sum of 0.
    correlations = np.sqrt(squared_correlations / max(r * (r - 1), 1))

    all_vary = (score_variances > 0).all(axis=1)
    # Ones keep the logarithms finite where a score does not vary; the loss there is set to infinity below.
    diagonal[:] = np.where(all_vary[:, None], score_variances, 1)
    sign, logdet = _log_determinants(C)
    losses = np.log(diagonal).sum(axis=1) - logdet
    # exp(-loss) is the determinant of a correlation matrix: of a singular one, rounding leaves about eps and not 0.
    singular = ~all_vary | (sign <= 0) | (losses > -np.log(np.finfo(float).eps))
    # Hadamard's inequality makes a loss >= 0; rounding may not.
    losses = np.where(singular, np.inf, np.maximum(losses, 0))
    if not keep:
        return offdiagonals, correlations, losses
    diagonal[:] = score_variances
    return offdiagonals, correlations, losses, C


def _log_determinants(scores: Array) -> tuple[Array, Array]:
    """Return signs and logarithms of determinants (k,): by Cholesky where all are definite, which is faster than LU."""
    try:
        # NumPy raises if one matrix of the chunk is not positive definite; LU then decides for all of them, with signs.
        diagonals = np.einsum("kjj->kj", np.linalg.cholesky(scores))
    except np.linalg.LinAlgError:
        sign, logdet = np.linalg.slogdet(scores)
        return sign, logdet
    return np.ones(len(scores)), 2 * np.log(diagonals).sum(axis=1)
