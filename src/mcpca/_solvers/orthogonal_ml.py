"""Orthonormal components by maximum likelihood: what ``orthogonal=True`` means for solver "ml".

The model is ``Sigma_i = A B_i A^T + s_i^2 I`` with A orthonormal (the paper's "Theory of orthogonal MCPCA", with
noise). Axes of Sigma_i are then those of A, so for given A the best B and s follow from the variances
``h_ij = a_j^T S_i a_j``: ``t_ij = b_ij + s_i^2`` is the larger of h_ij and s_i^2, and s_i^2 is the mean of all
variances that it exceeds (``_noise_level``). What is left is a function of h, raised as in ``orthogonal``, which gives
the start. Small problems have a second one, the same for weighted covariances without noise (``ml_starts`` says why).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.stack import images
from .._covariances.subspace import Core, orthonormal
from .._linalg.stiefel import Landscape, complete_frame, maximise_over_frames, nearest_orthonormal
from .._utils.progress import Search, silent, within
from .._utils.types import Array
from . import orthogonal
from .growing import GrowingCore
from .interface import Settings, SolverResult
from .ml_starts import LIKE_NOISE, context_weights, same_components, weighted_directions, widened

_MOST_CORES = 40
_TWO_STARTS_UP_TO = 10**7  # k q^2 r
_START_TOL = 1e-4
_POLAR_STEPS = 5  # before Newton's method: they cannot fail, but converge linearly
# s^2 is not taken below the first of these times the variance of a context, where rounding would decide the
# likelihood, nor below the second times that of the largest, so that squares of 1 / s^2 are finite.
_RESOLUTION = 1e-13
_SMALLEST = 1e-30
_NOISE_FLOOR = 1e-9  # of the mean variance of a feature
_TINY = float(np.finfo(float).tiny)


class OrthogonalMaximum(NamedTuple):
    """Orthonormal columns (q, r), loadings b (k, r), noise s^2 (k,), the steps taken, and whether they converged.

    ``value`` is twice the log-likelihood per sample, but for a constant that all ends in one core share.
    """

    components: Array
    loadings: Array
    noise: Array
    n_iter: int
    converged: bool
    value: float


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Orthonormal components by maximum likelihood; without noise, in the span of those of least squares.

    With noise the core is made anew, from A, the gradient in all features and the last change, until A stays.
    """
    start = orthogonal.solve(S, core, r, settings)
    noisy = settings.noise is not None
    # Without noise there is no density outside the span of A, which therefore cannot move.
    basis = core.leading(r).basis if noisy else start.components
    progress = Search(settings.report, "likelihood", _MOST_CORES)
    A, end, n_iter = _in_growing_cores(S, GrowingCore(S, basis), start.components, settings, progress)
    n_iter += start.n_iter
    progress.finish()
    # Only a context with more noise than others can hide what they have (``ml_starts``).
    if noisy and float(end.noise.max()) > LIKE_NOISE * float(end.noise.min()):
        second = _second_start(S, core, r, end.noise, settings)
        # Axes that the first start has led to already are not climbed from again.
        if second is not None and not same_components(second, A):
            progress = Search(within(settings.report, "second start"), "likelihood", _MOST_CORES)
            wider = None if basis is None else orthonormal(np.hstack([basis, second]))
            other = _in_growing_cores(S, GrowingCore(S, wider), second, settings, progress)
            progress.finish()
            n_iter += other[2]
            if other[1].value > end.value:
                A, end, _ = other
    message = "Converged; orthonormal components of maximum likelihood."
    if not end.converged:
        message = f"The likelihood could still rise after max_iter={settings.max_iter} steps; raise max_iter."
    if not noisy:
        # What noise was split off within the span belongs to the components.
        return SolverResult(A, n_iter, end.converged, message, end.loadings + end.noise[:, None], None)
    return SolverResult(A, n_iter, end.converged, message, end.loadings, end.noise)


def _second_start(S: Covariances, core: Core, r: int, noise: Array, settings: Settings) -> Array | None:
    """Return orthonormal components (p, r) of least squares for weighted covariances without ``noise`` (k,).

    Within their top r directions, found in all features if these are few, else in a core. None for large problems.
    """
    growing = widened(S, GrowingCore.from_core(S, core.leading(r)), noise, 1.0, settings)
    q = S.n_features if growing.basis is None else growing.basis.shape[1]
    if S.n_contexts * q * q * r > _TWO_STARTS_UP_TO or q == r:
        return None
    n = settings.degrees_of_freedom
    trace = S.variances().sum(axis=1)
    U = weighted_directions(growing.tensor, trace, noise, n, r)
    D = context_weights(trace, n)[:, None, None] * (U.T @ growing.tensor @ U - noise[:, None, None] * np.eye(r))
    start = orthogonal.solve_orthogonal_core(D, r, tol=_START_TOL, max_iter=settings.max_iter, report=silent)
    return growing.lift(U @ start.components)


def _in_growing_cores(
    S: Covariances, growing: GrowingCore, A: Array, settings: Settings, progress: Search
) -> tuple[Array, OrthogonalMaximum, int]:
    """Climb from A (p, r) until it stays; return the components, the maximum in the last core, and all steps."""
    r = A.shape[1]
    n = settings.degrees_of_freedom
    noisy = settings.noise is not None
    trace = S.variances().sum(axis=1)
    n_iter = 0
    for _ in range(_MOST_CORES):
        progress.step()
        has_all_features = growing.basis is None
        inside = A if has_all_features else nearest_orthonormal(growing.inside(A))
        end = _solve_in_core(growing.tensor, trace, inside, S.n_features, settings)
        n_iter += end.n_iter
        moved = end.components if has_all_features else nearest_orthonormal(growing.lift(end.components))
        change = moved - A
        A = moved
        if has_all_features or not noisy or float(np.linalg.norm(change)) <= settings.tol * np.sqrt(r):
            break
        # The derivative of the likelihood by h_ij, and so by A: 2 sum_i slope_ij S_i a_j.
        # The factor does not matter: ``grow`` scales columns to length one.
        s2 = end.noise[:, None]
        slope = n[:, None] * (1 / s2 - 1 / (s2 + end.loadings))
        growing.grow(A, orthogonal.stiefel_tangent(A, S.combine(A, slope)), change)
    return A, end, n_iter


def _solve_in_core(T: Array, trace: Array, start: Array, p: int, settings: Settings) -> OrthogonalMaximum:
    """Call ``solve_likelihood`` for slices T of covariances with the given ``trace`` (k,) in p features.

    Without noise nothing is left outside T, whose coordinates are then all the features there are.
    """
    noisy = settings.noise is not None
    r = start.shape[1]
    return solve_likelihood(
        T,
        np.maximum(trace - np.einsum("kqq->k", T), 0) if noisy else np.zeros(len(T)),
        r,
        n=settings.degrees_of_freedom,
        p=p if noisy else r,
        floor=max(_NOISE_FLOOR * float(trace.mean()) / p, _TINY),
        start=start,
        pooled_noise=settings.noise == "pooled",
        tol=settings.tol,
        max_iter=settings.max_iter,
    )


def solve_likelihood(
    T: Array,
    rest: Array,
    r: int,
    *,
    n: Array,
    p: int,
    floor: float,
    start: Array,
    pooled_noise: bool,
    tol: float,
    max_iter: int,
) -> OrthogonalMaximum:
    """Maximise the Gaussian likelihood of ``S_i ~ A diag(b_i) A^T + s_i^2 I``, A orthonormal, ``b_i >= 0``.

    Parameters
    ----------
    T : ndarray (k, q, q)
        ``U^T S_i U`` in an orthonormal basis U that holds A.
    rest : ndarray (k,)
        ``trace(S_i) - trace(T_i)``, the variance outside the basis.
    r : int
        Number of components.
    n : ndarray (k,)
        Weights of contexts: sample sizes.
    p : int
        Number of features.
    floor : float
        The smallest s^2 allowed; positive. Below 1e-13 of a context's variance rounding would decide: it stops there.
    start : ndarray (q, r)
        Orthonormal columns.
    pooled_noise : bool
        One s^2 for all contexts.
    tol, max_iter : float, int
        Converged when one more step would raise the log-likelihood per sample by less than ``tol`` times p.

    Returns
    -------
    OrthogonalMaximum
        The noise of all contexts is equal if it is pooled. It has converged if the gain that is left, which is the
        squared gradient over the curvature, is as small as ``tol`` asks.

    Notes
    -----
    A few polar steps, ``A <- polar [M_j a_j]`` with ``M_j = sum_i n_i (1/s_i^2 - 1/t_ij) T_i``, which maximise a
    minorant, and then Newton steps on the likelihood with b and s eliminated. Cost O(k q^2 r) a step.
    """
    total = np.einsum("iqq->i", T) + rest
    # Variances of contexts may differ by orders of magnitude; the likelihood only needs that none overflows.
    size = float(total.max(initial=0)) / p
    size = size if size > 0 else 1.0
    T = np.ascontiguousarray(T, dtype=np.float64) / size
    total = total / size
    low = np.maximum(floor / size, np.maximum(_RESOLUTION * total, _SMALLEST))
    # One s^2 has to keep to the bounds of all contexts.
    low = np.full_like(low, low.max()) if pooled_noise else low
    # Shares, so that the value is a mean per sample and ``tol`` means the same for any number of them.
    weights = np.asarray(n, dtype=np.float64) / np.sum(n, dtype=np.float64)

    def landscape(h: Array) -> Landscape:
        # A variance of zero may come out below it by rounding.
        return likelihood_landscape(np.maximum(h, 0), total, weights, p, low, pooled_noise)

    A, polar_steps = _polar_steps(T, start, landscape, min(_POLAR_STEPS, max_iter))
    end = maximise_over_frames(T, complete_frame(A), r, landscape, max_iter=max_iter - polar_steps, tol=tol)
    A = nearest_orthonormal(end.frame[:, :r])  # rounding has built up over the steps
    h = np.maximum(orthogonal.variances_by_axis(T, A), 0)
    noise = _noise_level(h, total, weights, p, low, pooled_noise)[0]
    loadings = np.maximum(h - noise, 0).T
    # What rounding of h does to the likelihood cannot be gained.
    rounding = float(np.finfo(float).eps * (total / noise).max())
    converged = end.gain <= max(tol, rounding) * p
    s2 = np.maximum(noise * size, floor)  # dividing and multiplying may lose the last digit
    loadings = np.ascontiguousarray(loadings) * size
    return OrthogonalMaximum(A, loadings, s2, polar_steps + end.n_iter, bool(converged), end.value)


def likelihood_landscape(h: Array, total: Array, n: Array, p: int, floor: Array, pooled: bool) -> Landscape:
    """Return twice the log-likelihood, without its constant, with b and s^2 at their best for h (r, k).

    ``-sum_i n_i [sum_j log t_ij + (p - r) log s_i^2 + sum_j h_ij / t_ij + (total_i - sum_j h_ij) / s_i^2]``. As b and
    s are optimal its derivative is ``n_i (1/s_i^2 - 1/t_ij)``; the second derivative has ``n_i / h_ij^2`` on the
    diagonal and couples entries through s^2, which is the mean of what they leave.
    """
    # h, t, ``slope`` and ``bend`` are (r, k); total, n and s2 are (k,).
    r = len(h)
    s2, pool = _noise_level(h, total, n, p, floor, pooled)
    # t = h where b > 0: with b eliminated h / t is 1 there, and the term that is left, -n log h, has second derivative
    # n / h^2.
    t = np.maximum(h, s2)
    free = h > s2  # the others have b = 0: their variance is in s^2
    outside = _variance_outside(h, total, p)
    value = -float(n @ ((np.log(t) + h / t).sum(axis=0) + (p - r) * np.log(s2) + outside / s2))
    slope = np.where(free, n * (1 / s2 - 1 / t), 0)
    bend = np.where(free, n / t**2, 0)
    # At the floor s^2 does not follow h.
    # Elsewhere it is a mean over ``pool``: a free entry that takes dh more leaves it n dh / pool less, and 1 / s^2
    # rises by that over s^4.
    follows = np.where((s2 > floor) & (pool > 0), 1 / np.maximum(pool, _TINY), 0) / s2**2

    def coupling(change: Array) -> Array:
        sums = n * np.where(free, change, 0).sum(axis=0)
        return np.asarray(np.where(free, n * follows * (sums.sum() if pooled else sums), 0))

    return Landscape(value, slope, bend, coupling)


def _variance_outside(h: Array, total: Array, p: int) -> Array:
    """Return the variance of each context outside the components: none, whatever rounding says, when r = p."""
    return np.zeros_like(total) if len(h) == p else np.maximum(total - h.sum(axis=0), 0)


def _noise_level(h: Array, total: Array, n: Array, p: int, floor: Array, pooled: bool) -> tuple[Array, Array]:
    """Return the best s^2 (k,) for h (r, k), and the weight of the variances that it is the mean of (k,).

    An entry has b > 0 when it exceeds the mean of all that does not, the complement included. With entries sorted,
    largest first, let s^2(m) be the mean of all but the first m: where entry m + 1 fails to exceed s^2(m), the later
    ones fail too, so the number of entries with b > 0 is the length of a run.
    """
    r, k = h.shape
    outside = _variance_outside(h, total, p)
    dimensions = np.full(k, float(p - r))  # of the complement
    values = h.T
    weights = np.broadcast_to(n[:, None], values.shape) if pooled else np.ones_like(values)
    if pooled:  # one row for all contexts
        values = values.reshape(1, -1)
        weights = weights.reshape(1, -1)
        outside = np.array([n @ outside])
        dimensions = np.array([n @ dimensions])
    # The smallest come last, so that what is not above s^2 is a tail, and its mean a quotient of two cumulative sums.
    order = np.argsort(-values, axis=1, kind="stable")
    values = np.take_along_axis(values, order, 1)
    weights = np.take_along_axis(weights, order, 1)
    # Sums from the small end: nothing cancels.
    sums = np.cumsum(np.column_stack([outside, (weights * values)[:, ::-1]]), axis=1)[:, ::-1]
    counts = np.cumsum(np.column_stack([dimensions, weights[:, ::-1]]), axis=1)[:, ::-1]
    # Column m is s^2(m), the mean of all but the m largest; nothing is left to count for m = r without a complement.
    means = np.maximum(sums / np.where(counts > 0, counts, 1), floor[: len(values), None])
    exceeds = values > means[:, :-1]
    if p == r:
        exceeds[:, -1] = False  # without a complement the smallest entry is the noise
    m = np.logical_and.accumulate(exceeds, axis=1).sum(axis=1, keepdims=True)
    s2 = np.take_along_axis(means, m, 1)[:, 0]
    pool = np.take_along_axis(counts, m, 1)[:, 0]
    # Per context the sums above have weight 1 for n_i.
    return (np.repeat(s2, k), np.repeat(pool, k)) if pooled else (s2, pool * n)


def _polar_steps(T: Array, A: Array, objective: Callable[[Array], Landscape], max_iter: int) -> tuple[Array, int]:
    """Repeat ``A <- polar factor of [M_j a_j]``, ``M_j = sum_i slope_ij T_i``, as long as that raises f."""
    A = nearest_orthonormal(np.asarray(A, dtype=np.float64))
    r = A.shape[1]
    TA = images(T, A)
    here = objective(np.einsum("jiq,qj->ji", TA, A))
    for n_iter in range(max_iter):
        # Column j is M_j a_j, half the gradient. For fixed b and s f is linear in h, which bounds it from below. Slopes
        # are >= 0, so that M_j is positive semi-definite and sum_j a_j^T M_j a_j convex in A: its tangent, which the
        # polar factor maximises, bounds f from below again.
        pull = np.matmul(here.slope[:, None, :], TA)[:, 0].T
        U, sigma, Vt = np.linalg.svd(pull, full_matrices=False)
        if sigma[-1] <= r * np.finfo(float).eps * sigma[0]:
            return A, n_iter  # the polar factor is not unique: some component is all noise
        trial = U @ Vt
        TA = images(T, trial)
        turned = objective(np.einsum("jiq,qj->ji", TA, trial))
        if not turned.value > here.value:
            return A, n_iter
        A = trial
        here = turned
    return A, max_iter
