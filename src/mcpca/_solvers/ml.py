"""Maximum likelihood, solver "ml": ``Sigma_i = A B_i A^T + noise`` with B >= 0.

This is the paper's fourth facet (supplement, "Connection to maximum likelihood estimation"; Definition SI-2.10) with
room for noise, which real covariances have and which bounds the likelihood when r < p.

Stage 1 (``ml_starts``) is a joint diagonalisation of the core in r dimensions with the weights of a likelihood. Stage 2
(``scoring``) maximises the likelihood itself, in a core that grows until the gradient in all features is small
(``growing``). Every accepted step raises the likelihood; a stage that cannot improve returns what it was given.

The noise is ``s_i I`` ("isotropic"), ``s I`` ("pooled"), or, in ``ml_diagonal``, ``diag(psi)`` for all contexts
("diagonal") and ``s_i diag(psi)`` ("scaled"). Without noise (None) the model has no density outside the span of A,
which is then that of the top singular vectors, and the likelihood is that of the scores in it: minus the paper's common
log-likelihood loss (Definition SI-2.12), up to a constant.

All stages work in units in which the mean variance of a feature is 1, so that floors are plain numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._covariances.interface import Covariances, project
from .._covariances.subspace import Core, compress, orthonormal
from .._utils.progress import Search
from .._utils.types import Array
from .growing import GrowingCore, Patience
from .interface import Settings, SolverResult
from .likelihood import unit_columns
from .ml_diagonal import factor_analysis, fit_feature_noise, guess_unique_variances
from .ml_estimate import NOISE_FLOOR, Estimate, largest_decrement, largest_distance
from .ml_starts import Start, likely_start, pool_if, start_by_size, start_by_squares, widened
from .scoring import ScoringData, maximise_likelihood, outside_gradient_in_features

_RELATIVE_NOISE_FLOOR = 1e-4  # of the pooled noise: a context with few samples may seem to have none
_SINGULAR = 1e-10  # share of the variance of a context outside its top r directions that is rounding only
_NO_NOISE = 1e-8  # below this there is no noise to speak of, and stage 1 is all there is to do
_MOST_CORES = 30
_IDLE_FACTOR = 0.8  # a round that leaves more than this share of the decrement is one of those that ``Patience`` counts


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Maximise the likelihood; noise and weights of contexts as in ``settings``.

    Cost O(k p^2 r) whenever the core is made anew, a few times, and O(k q^2 r + k r^3) a step in it; memory
    O(k q (q + r)) besides the covariances.
    """
    p = S.n_features
    kind = settings.noise
    n = settings.degrees_of_freedom
    trace = S.variances().sum(axis=1)
    # The mean variance of a feature. What follows is in these units, and ``_result`` goes back to those of the data.
    unit = float(trace.mean()) / p
    if kind in ("diagonal", "scaled"):
        estimate = _by_feature(S, unit, trace / unit, r, settings)
    else:
        part = core.leading(r)
        start = start_by_size(S, part, r, trace / unit, unit, settings)
        if kind is None:
            estimate = _without_noise(S, unit, start.A, start.B, settings)
        elif p > r and float(np.median(start.noise)) < _NO_NOISE:
            # Exactly low rank: a likelihood without bound, whose limit stage 1 has reached.
            estimate = Estimate(start.A, start.B, pool_if(kind, np.maximum(start.noise, NOISE_FLOOR), n), 0.0, 1)
        else:
            estimate = _in_growing_cores(S, trace / unit, unit, part, start, settings)
    distance = float(np.sqrt(max(estimate.decrement, 0.0)))
    message = _message(distance, distance <= largest_distance(settings))
    return _result(estimate, unit, distance, message, settings)


def solve_one(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """One context: the axes of probabilistic PCA (in features divided by their noise if that is diagonal)."""
    p = S.n_features
    unit = float(S.variances().sum(axis=1)[0]) / p
    if settings.noise in ("diagonal", "scaled"):
        estimate = factor_analysis(S, unit, r, settings)
        if settings.noise == "scaled" and estimate.noise is not None:  # one factor s says nothing beside psi
            estimate = replace(estimate, noise=estimate.noise[None])
        distance = float(np.sqrt(max(estimate.decrement, 0.0)))
        return _result(estimate, unit, distance, "One context: factor analysis.", settings)
    progress = Search(settings.report, "likelihood", 1)
    progress.step()
    w, C = np.linalg.eigh(core.tensor[0] / unit)
    w = w[::-1]
    # Tipping and Bishop's solution: the noise is the mean of the eigenvalues that are left out.
    left_out = float(S.variances().sum()) / unit - float(w[:r].sum())
    noise = max(left_out / (p - r), NOISE_FLOOR) if r < p else NOISE_FLOOR
    level = 0.0 if settings.noise is None else noise
    # An eigenvalue is the variance of the component and of the noise together; what exceeds the noise is the loading.
    A, B = unit_columns(core.lift(C[:, ::-1][:, :r]), np.maximum(w[None, :r] - level, 0))
    progress.finish()
    estimate = Estimate(A, B, None if settings.noise is None else np.full(1, noise), 0.0, 1)
    return _result(estimate, unit, 0.0, "One context: the axes are those of PCA.", settings)


def _result(estimate: Estimate, unit: float, distance: float, message: str, settings: Settings) -> SolverResult:
    """Go back from units of the mean variance of a feature to those of the data."""
    noise = None if estimate.noise is None else estimate.noise * unit
    converged = distance <= largest_distance(settings)
    return SolverResult(
        estimate.A, max(1, estimate.n_iter), converged, message, estimate.B * unit, noise, gradient=distance
    )


def _message(distance: float, converged: bool) -> str:
    if distance == 0:
        return (
            "Covariances have rank r up to rounding: the likelihood is unbounded, and its limit, the weighted "
            "diagonalisation of stage 1, is the answer."
        )
    if converged:
        return f"Converged: {distance:.1e} standard errors (root mean square) from the maximum."
    if not np.isfinite(distance):
        return (
            "Stage 2 could not start: components are nearly collinear, and these are those of stage 1. Lower the rank."
        )
    return (
        f"Stage 2 stopped {distance:.1e} standard errors (root mean square) from the maximum, where it could not "
        "improve further or ran out of max_iter."
    )


# Stage 2 ------------------------------------------------------------------------------------------------------------


def _without_noise(S: Covariances, unit: float, A: Array, B: Array, settings: Settings) -> Estimate:
    """Climb in the span of A: the likelihood of scores."""
    U = orthonormal(A)
    # (k, r, r), as if these r coordinates were all features: no direction is outside, so ``rest`` is zero and the model
    # a likelihood of scores alone.
    T = project(S, U) / unit
    # A noise at the floor, held fixed, stands in for none: it only keeps Omega_i regular where loadings are zero.
    floor = np.full(S.n_contexts, NOISE_FLOOR)
    data = ScoringData(T, np.einsum("kjj->k", T), settings.degrees_of_freedom, U.shape[1], floor, "fixed")
    point, decrement, steps = maximise_likelihood(
        data, U.T @ A, B, data.floor, largest_decrement(settings), settings.max_iter
    )
    return Estimate(U @ point.A, point.model.B, None, decrement, steps)


def _in_growing_cores(
    S: Covariances, trace: Array, unit: float, core: Core, start: Start, settings: Settings
) -> Estimate:
    """Climb in the core; let it grow until the gradient in all features is small, too."""
    n = settings.degrees_of_freedom
    tol = largest_decrement(settings)
    growing = widened(S, GrowingCore.from_core(S, core, unit), start.noise, unit, settings)
    start, floor, n_iter = _start_above_floor(S, core, growing, trace, start, unit, str(settings.noise), settings)
    A = start.A
    B = start.B
    s = start.noise
    decrement = np.inf
    patience = Patience(_IDLE_FACTOR)
    progress = Search(settings.report, "likelihood", _MOST_CORES)
    for _ in range(_MOST_CORES):
        # Made anew in every round, since the core is; ``trace`` is over all features and stays.
        data = ScoringData(growing.tensor, trace, n, len(A), floor, str(settings.noise))
        has_all_features = growing.basis is None
        # Half of what is allowed is left to directions outside the core, if there are any.
        goal = tol if has_all_features else tol / 2
        point, decrement, steps = maximise_likelihood(data, growing.inside(A), B, s, goal, settings.max_iter)
        n_iter += steps
        progress.step()
        moved = growing.lift(point.A)
        # The last change is one of the three blocks of the next basis (``subspace.grow``).
        change = moved - A
        A = moved
        B = point.model.B
        s = point.model.s
        if has_all_features:
            break
        # Within the core the decrement is known; the part of A's gradient outside it adds its own.
        gradient, outside = outside_gradient_in_features(S, unit, np.ones(len(A)), A, point.model)
        decrement += outside
        if patience.is_lost(decrement) or decrement <= tol:
            break
        growing.grow(A, gradient, change)
    progress.finish()
    return Estimate(A, B, s, decrement, n_iter)


def _by_feature(S: Covariances, unit: float, trace: Array, r: int, settings: Settings) -> Estimate:
    """Climb with noise that differs between features: ``diag(psi)``, or ``s_i diag(psi)`` if it is "scaled"."""
    n = settings.degrees_of_freedom
    is_scaled = settings.noise == "scaled"
    # Contexts with much noise would decide psi, unless all are brought to one size.
    weights = n / np.maximum(trace, NOISE_FLOOR * trace.max()) if is_scaled else n
    psi = guess_unique_variances(S, weights, r) / unit
    # The top singular vectors are those of the noisiest features, unless features are put on a common scale.
    scale = 1 / np.sqrt(psi)
    white = S.scaled(scale)
    core = compress(white, r)
    trace = white.variances().sum(axis=1) / unit
    start = start_by_size(white, core, r, trace, unit, settings)
    floor = None
    n_iter = 0
    if is_scaled:
        growing = widened(white, GrowingCore.from_core(white, core.leading(r), unit), start.noise, unit, settings)
        start, floor, n_iter = _start_above_floor(white, core, growing, trace, start, unit, "isotropic", settings)
    start = Start(*unit_columns(start.A / scale[:, None], start.B), start.noise)
    estimate = fit_feature_noise(S, unit, start, psi, floor, settings)
    return replace(estimate, n_iter=estimate.n_iter + n_iter)


def _start_above_floor(
    S: Covariances,
    core: Core,
    growing: GrowingCore,
    trace: Array,
    start: Start,
    unit: float,
    kind: str,
    settings: Settings,
) -> tuple[Start, Array, int]:
    """Return where to climb from, the least noise of each context (k,), and the steps taken to find out.

    The floor is from the first core, and held for all: a bound that moves with the core could lower the likelihood
    between rounds.
    """
    n = settings.degrees_of_freedom
    p, r = start.A.shape
    singular = (p > r) & _singular(growing.tensor, trace, r)
    floor = _noise_floor(singular, start.noise, n)
    if n @ singular > n.sum() / 2:
        # Most contexts say nothing of their noise, and the likelihood may be largest far from all covariances. So the
        # start is the one that is closest to them.
        start, n_iter = start_by_squares(S, core, start, unit, settings)
    else:
        data = ScoringData(growing.tensor, trace, n, p, floor, kind)
        start, n_iter = likely_start(growing, data, start, settings)
    return start._replace(noise=pool_if(kind, np.maximum(start.noise, floor), n)), floor, n_iter


def _noise_floor(singular: Array, noise: Array, n: Array) -> Array:
    """Return the smallest noise allowed in each context (k,); ``singular`` (k,) have rank r or less.

    A covariance of rank r or less says nothing about its noise: the likelihood would grow without bound if A held all
    of it, at the expense of all others. Such a context keeps the noise of the pool.
    """
    # The noise of the pool, each context with the weight that it has in the likelihood.
    level = float(n @ noise) / float(n.sum())
    regular_floor = max(NOISE_FLOOR, _RELATIVE_NOISE_FLOOR * level)
    return np.where(singular, max(NOISE_FLOOR, level), regular_floor)


def _singular(T: Array, trace: Array, r: int) -> Array:
    """Return which covariances (k,), with T of them in some directions, have rank r or less up to rounding."""
    # Rank r means tr(S)^2 <= r ||S||^2 by Cauchy and Schwarz; only contexts that pass need their eigenvalues.
    squares = np.einsum("kab,kab->k", T, T)
    singular = squares * r >= (1 - _SINGULAR) * trace**2
    for i in np.flatnonzero(singular):
        # If r directions of the core hold all of the variance, the covariance has rank r or less.
        w = np.linalg.eigvalsh(T[i])
        singular[i] = trace[i] - w[-r:].sum() <= _SINGULAR * trace[i]
    return np.asarray(singular)
