"""Where ``ml`` starts: stage 1, joint diagonalisations of the core in r dimensions with the weights of a likelihood.

The likelihood has more than one maximum, and which one is reached depends on the r directions that stage 1 works in.
There are two ways to choose them:

* ``start_by_size``: the top singular vectors of ``[S_1 ... S_k]``, where large covariances count most. A context with
  much noise is large. Its noise may then take the place of a component that only quiet contexts have, and a maximum
  without that component is far below the highest.
* ``start_by_weight``: the same of ``sqrt(n_i) / tr_i (T_i - s_i I)``: noise taken off, and every context brought to
  one size, with the weight of its rows.

``likely_start`` compares them, and where they lead to different maxima a third: the power method on the latter, with
eigenvalues below zero set to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._covariances.interface import Covariances, project
from .._covariances.stack import CovarianceStack, variances_along
from .._covariances.subspace import Core, compress, numerical_rank, orthonormal
from .._utils.parallel import over_contexts
from .._utils.progress import within
from .._utils.types import Array
from . import lsq, mspm
from .growing import GrowingCore
from .interface import Settings
from .likelihood import unit_columns
from .ml_estimate import largest_decrement
from .scoring import Maximum, ScoringData, maximise_likelihood
from .weighted import correlation_left, weighted_diagonaliser

_LEAST_VARIANCE = 1e-12  # of that of the largest context, below which contexts are not brought to its size
_COLLINEAR = 1e7  # condition of A above which two components are one
_SMALL_PROBLEM = 10**7  # k q^2 r up to which a climb from a second start, and eigenvectors of contexts, cost little
LIKE_NOISE = 2.0  # factor between noise variances of contexts within which no context hides what others have
_UNLIKE_NOISE = 4.0  # above which a core that was chosen by size may lack it
_SUBSPACE_STEPS = 4  # passes over the covariances; a component stands out of weighted noise by a factor of ten or so
_TRIAL_STEPS = 8  # that each start gets before the highest is chosen: it is where a start leads that counts
# |cos| above which a component of one start is that of the other, and log-units within which two maxima are one.
_SAME_COMPONENT = 0.95
_SAME_MAXIMUM = 0.1


class Start(NamedTuple):
    """Components (p, r) of unit length, loadings (k, r) and the noise of each context (k,)."""

    A: Array
    B: Array
    noise: Array


def start_by_size(S: Covariances, core: Core, r: int, trace: Array, unit: float, settings: Settings) -> Start:
    """Diagonalise in the top r singular vectors of the data; the power method helps out if that does not converge.

    ``trace`` (k,) is in units of ``unit``.
    """
    p = S.n_features
    # At r = p such a core has no basis, and each context is taken from S itself below.
    if core.mixture is not None and p > r:
        return _power_start(S, core, r, trace, unit, settings)
    # The r directions in which stage 1 works: the first r of the core, or the top singular vectors of all features.
    if core.basis is not None:
        U = np.eye(core.basis.shape[1], r)
        M = core.tensor[:, :r, :r] / unit
    else:
        U, _ = mspm.row_space(S.whole(), r)
        M = project(S, U) / unit
    settings.report("first guess", 0, 1)
    noise = _noise_outside(M, trace, p, settings)

    def components() -> Array:
        A = mspm.solve(S, core, r, settings).components
        return A if core.basis is None else core.basis.T @ A

    start = _diagonalised(M, U, noise, settings, components)
    settings.report("first guess", 1, 1)
    return start._replace(A=core.lift(start.A))


def start_by_weight(T: Array, trace: Array, p: int, noise: Array, r: int, settings: Settings) -> Start:
    """Diagonalise in the top r singular vectors of weighted covariances without noise; components are (q, r).

    T (k, q, q) are the covariances in some core, ``noise`` (k,) a guess. Cost that of ``weighted_directions``.
    """
    n = settings.degrees_of_freedom
    U = weighted_directions(T, trace, noise, n, r)
    M = U.T @ T @ U
    return _diagonalised(
        M,
        U,
        _noise_outside(M, trace, p, settings),
        settings,
        lambda: _power_method(weighted_without_noise(T, trace, p, r, n), r, settings),
    )


def start_by_squares(S: Covariances, core: Core, first: Start, unit: float, settings: Settings) -> tuple[Start, int]:
    """Return the components of least squares beside the noise of the ``first`` start, and the steps taken.

    The first start itself if these components coincide: the likelihood inverts A^T A.
    """
    quiet = replace(settings, report=within(settings.report, "second start"))
    result = lsq.solve(S, core, first.A.shape[1], quiet)
    A = result.components
    if np.linalg.cond(A) > _COLLINEAR:
        return first, result.n_iter
    return first._replace(A=A, B=_loadings_beside(S, unit, A, first.noise)), result.n_iter


def weighted_directions(T: Array, trace: Array, noise: Array, n: Array, r: int) -> Array:
    """Return the top r left singular vectors (q, r) of ``[D_1 ... D_k]``, ``D_i = sqrt(n_i) / tr_i (T_i - s_i I)``.

    Eigenvalues below zero stay: setting them to zero would take the eigenvectors of every context, and changes the
    largest directions little. Cost O(k q^3), as one product; memory besides T that of a few contexts.
    """
    weights = context_weights(trace, n)
    k, q, _ = T.shape
    diagonal = np.arange(q)

    def squared(part: slice) -> Array:
        D = weights[part, None, None] * T[part]
        D[:, diagonal, diagonal] -= (weights * noise)[part, None]
        F = D.reshape(-1, q)
        return np.asarray(F.T @ F)

    # Singular vectors of [D_1 ... D_k] are eigenvectors of sum_i D_i^2.
    squares = np.sum(over_contexts(squared, k, q), axis=0)
    return np.asarray(np.linalg.eigh(squares)[1][:, : -r - 1 : -1])


def widened(S: Covariances, growing: GrowingCore, noise: Array, unit: float, settings: Settings) -> GrowingCore:
    """Return a core that also has the directions of weighted covariances, where it lacks them.

    A core of some directions only was chosen by size, and may not hold what quiet contexts have. Where their ``noise``
    (k,) differs much, the top eigenvectors of ``sum_i sqrt(n_i) / tr_i S_i`` are added: a few passes over S.
    """
    if growing.basis is None or float(noise.max()) <= _UNLIKE_NOISE * float(noise.min()):
        return growing
    p, q = growing.basis.shape
    weights = context_weights(S.variances().sum(axis=1), settings.degrees_of_freedom)
    Q = settings.rng.standard_normal((p, q))
    for _ in range(_SUBSPACE_STEPS):
        Q = orthonormal(S.combine(Q, np.broadcast_to(weights[:, None], (len(weights), Q.shape[1]))))
    return GrowingCore(S, orthonormal(np.hstack([growing.basis, Q])), unit=unit)


def weighted_without_noise(T: Array, trace: Array, p: int, r: int, n: Array) -> Array:
    """Return ``sqrt(n_i) / tr_i (T_i - s_i I)_+`` (k, q, q), s_i the mean of all but the top r of p eigenvalues.

    Cost O(k q^3) for the eigenvectors of every context.
    """
    w, V = np.linalg.eigh(T)
    # What is outside the core belongs to the eigenvalues that are left out. At r = p none is: the smallest is a bound.
    left_out = np.maximum(trace - w[:, -r:].sum(axis=1), 0)
    noise = left_out / (p - r) if p > r else np.maximum(w[:, 0], 0)
    excess = np.maximum(w - noise[:, None], 0) * context_weights(trace, n)[:, None]
    return np.asarray((V * excess[:, None, :]) @ V.transpose(0, 2, 1))


def context_weights(trace: Array, n: Array) -> Array:
    """Return ``sqrt(n_i) / tr_i`` (k,), the factors that bring contexts to one size; finite without variance, too."""
    return np.asarray(np.sqrt(n) / np.maximum(trace, _LEAST_VARIANCE * trace.max()))


def likely_start(growing: GrowingCore, data: ScoringData, first: Start, settings: Settings) -> tuple[Start, int]:
    """Return where to climb from, given the start by size, and the steps taken to find out.

    Where two starts have the same components they lead to the same maximum, and only one is climbed from. Where they
    lead to different maxima, a third start is tried. Large problems have a second only where the noise differs between
    contexts, no third, and take no steps if two agree.
    """
    p, r = first.A.shape
    k, q, _ = data.T.shape
    is_small = k * q * q * r <= _SMALL_PROBLEM
    if not is_small and (q == r or float(first.noise.max()) <= LIKE_NOISE * float(first.noise.min())):
        return first, 0
    quiet = replace(settings, report=within(settings.report, "second start"))
    if q > r:
        second = _or_none(lambda: start_by_weight(data.T, data.trace, p, first.noise, r, quiet))
    else:  # no choice of directions: the whole space
        second = _or_none(lambda: _power_start_in(data, r, quiet))
    here = first._replace(A=growing.inside(first.A))
    if second is None or (not is_small and same_components(here.A, second.A)):
        return first, 0
    # At full rank the likelihood has many maxima, which differ by little and are reached slowly: climbs go to the end.
    steps = _TRIAL_STEPS if q > r else settings.max_iter
    ends = [_climb(data, second, settings, steps)]
    if q == r or not same_components(here.A, ends[0].point.A):
        ends.append(_climb(data, here, settings, steps))
        apart = abs(ends[0].point.model.value - ends[1].point.model.value) > _SAME_MAXIMUM
        if is_small and q > r and apart:
            quiet = replace(settings, report=within(settings.report, "third start"))
            third = _or_none(lambda: _power_start_in(data, r, quiet))
            ends += [] if third is None else [_climb(data, third, settings, steps)]
    best = min((end.point for end in ends), key=lambda point: point.model.value)
    n_iter = sum(end.n_iter for end in ends)
    return Start(growing.lift(best.A), best.model.B, best.model.s), n_iter


def _climb(data: ScoringData, start: Start, settings: Settings, steps: int) -> Maximum:
    """Climb from a start, at most so many steps."""
    s = pool_if(data.noise, np.maximum(start.noise, data.floor), data.n)
    return maximise_likelihood(data, start.A, start.B, s, largest_decrement(settings) / 2, steps)


def same_components(A: Array, C: Array) -> bool:
    """Whether each column of A (q, r) is close to a column of C of its own."""
    cosines = np.abs(A.T @ C) / np.linalg.norm(A, axis=0)[:, None]
    partners = cosines.argmax(axis=1)
    return bool(cosines.max(axis=1).min() > _SAME_COMPONENT) and len(set(partners.tolist())) == A.shape[1]


def pool_if(kind: str | None, noise: Array, n: Array) -> Array:
    """Return the noise of each context (k,), or for "pooled" its mean k times."""
    return np.full(len(n), float(n @ noise / n.sum())) if kind == "pooled" else noise


# Pieces of a start ---------------------------------------------------------------------------------------------------


def _diagonalised(M: Array, U: Array, noise: Array, settings: Settings, components: Callable[[], Array]) -> Start:
    """Return the start in the directions U (q, r), in which the covariances are ``M`` (k, r, r).

    ``components`` gives those of the power method (q, r), for where the diagonalisation does not converge.
    """
    n = settings.degrees_of_freedom
    W, converged = weighted_diagonaliser(M, noise, n, settings.rng)
    if W is None or not converged:
        # The diagonaliser that belongs to components: its rows are orthogonal, in U, to all of them but one.
        other = np.linalg.pinv(U.T @ components())
        W = other if W is None else min(W, other, key=lambda W: correlation_left(M, W, noise, n))
    if np.linalg.cond(W) > _COLLINEAR:  # components that coincide: any axes of their span are as good a start
        W = np.eye(len(W))
    # Noise of variance s_i has the variance s_i |w_j|^2 in score j; what is left of a score's variance is its loading.
    # Without noise this is B_i = Diag(A^-1 S_i A^-T), the paper's maximum for given A (Proposition SI-2.11, its proof).
    B = np.maximum(variances_along(M, W.T) - noise[:, None] * np.einsum("jq,jq->j", W, W), 0)
    return Start(*unit_columns(U @ np.linalg.pinv(W), B), noise)


def _noise_outside(M: Array, trace: Array, p: int, settings: Settings) -> Array:
    """Guess the noise of each context (k,) from the variance outside the r directions of ``M`` (k, r, r)."""
    k, r, _ = M.shape
    if settings.noise is None:
        return np.zeros(k)
    if p > r:
        # As in probabilistic PCA: the mean variance of the p - r directions that are left.
        return np.asarray(np.maximum(trace - np.einsum("kjj->k", M), 0) / (p - r))
    # No direction is left to see it in. The smallest eigenvalue bounds it from above; loadings need some of that, too.
    return np.asarray(0.9 * np.maximum(np.linalg.eigvalsh(M)[:, 0], 0))


def _power_start(S: Covariances, core: Core, r: int, trace: Array, unit: float, settings: Settings) -> Start:
    """Return the start by size, by the power method.

    Where contexts are so many that the core holds combinations of them, a weight for each would cost many times more
    than the power method, and stage 2 gives them their weights anyway.
    """
    A = mspm.solve(S, core, r, settings).components
    noise = np.zeros(S.n_contexts)
    if settings.noise is not None:
        # The trace of S_i within the span of A, for which columns have to be orthonormal.
        inside = S.variances_along(orthonormal(A)).sum(axis=1) / unit
        noise = np.maximum(trace - inside, 0) / (S.n_features - r)
    return Start(A, _loadings_beside(S, unit, A, noise), noise)


def _loadings_beside(S: Covariances, unit: float, A: Array, noise: Array) -> Array:
    """Return the variances of the scores ``A^+ x`` less what noise has in them (k, r)."""
    W = np.linalg.pinv(A)
    variances = S.variances_along(W.T) / unit
    return np.asarray(np.maximum(variances - noise[:, None] * np.einsum("jp,jp->j", W, W), 0))


def _power_method(D: Array, r: int, settings: Settings) -> Array:
    """Return the components (q, r) of the power method for the slices ``D`` (k, q, q).

    LinAlgError if they have fewer than r singular values above rounding, as without noise they may.
    """
    stack = CovarianceStack(D)
    core = compress(stack, r)
    if numerical_rank(core.singular_values, stack) < r:
        raise np.linalg.LinAlgError(f"fewer than {r} directions")
    return mspm.solve(stack, core, r, settings).components


def _power_start_in(data: ScoringData, r: int, settings: Settings) -> Start | None:
    """Return the start by the power method on weighted covariances without noise; None if its components coincide."""
    D = weighted_without_noise(data.T, data.trace, data.p, r, data.n)
    A = _power_method(D, r, settings)
    # The likelihood inverts A^T A, whose condition is the square of this one.
    if np.linalg.cond(A) > _COLLINEAR:
        return None
    inside = np.einsum("kjj->k", project(CovarianceStack(data.T), orthonormal(A)))
    rest = np.maximum(data.trace - inside, 0)
    noise = rest / (data.p - r) if data.p > r else data.floor
    return Start(A, _loadings_beside(CovarianceStack(data.T), 1.0, A, noise), noise)


def _or_none(make: Callable[[], Start | None]) -> Start | None:
    """Return what ``make`` returns, or None if its matrices are singular: a second start is not worth an error."""
    try:
        return make()
    except np.linalg.LinAlgError:
        return None
