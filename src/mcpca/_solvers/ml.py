"""Maximum likelihood in ``Sigma_i = A B_i A^T + noise``, B >= 0: the paper's fourth facet, with room for noise.

Stage 1 (``_weighted``) is a joint diagonalisation of the core in r dimensions with a likelihood's weights. Stage 2
(``_scoring``) maximises the likelihood itself, in a core that is made anew from A, the gradient in all features and the
last change of A until that gradient is small. Every accepted step raises the likelihood; a stage that cannot improve
returns what it was given.

The noise is ``s_i I`` ("isotropic"), ``s I`` ("pooled"), or ``diag(psi)`` for all contexts ("diagonal"). The last
becomes ``I`` in features divided by ``sqrt(psi)``, and psi takes a scoring step of its own between cores. Without noise
(None) the model has no density outside the span of A, which is then that of the top singular vectors, and the
likelihood is that of the scores in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._covariances.interface import Covariances, project
from .._covariances.stack import variances_along
from .._covariances.subspace import ALL_FEATURES, Core, compress, grow, orthonormal, slices
from .._utils.progress import Search, within
from .._utils.types import Array
from . import lsq, mspm
from .interface import Settings, SolverResult
from .likelihood import Likelihood, likelihood_of
from .scoring import ScoringData, climb, score_weights
from .weighted import correlation_left, weighted_diagonaliser

NOISES = ("isotropic", "pooled", "diagonal", None)
_FLOOR = 1e-9  # of the mean variance of a feature: noise is not taken below it
_RELATIVE_FLOOR = 1e-4  # of the pooled noise: a context with few samples may seem to have none
_SINGULAR = 1e-10  # of the variance of a context, beside its top r directions
_COLLINEAR = 1e7
_EXACT = 1e-8  # below this there is no noise to speak of, and stage 1 is all there is to do
# Root mean square distance to the maximum, in standard errors and units of tol: 1e-3 of them by default.
_STANDARD_ERRORS = 1e4
_CORES, _PATIENCE = 30, 4
_SMALL, _TRIAL_STEPS = 10**7, 8  # k q^2 r up to which a second start is tried, and how far before the better is chosen
_DIAGONAL_ROUNDS, _WHITE_STEPS = 100, 5
_MOST_INVERTED = 4000  # features whose pooled covariance is inverted for a first guess of diagonal noise


@dataclass(frozen=True)
class _Estimate:
    """Components (p, r), loadings (k, r), noise in units of ``unit``, the decrement left, steps taken."""

    A: Array
    B: Array
    noise: Array | None
    decrement: float
    n_iter: int


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Maximise the likelihood; noise and weights of contexts as in ``settings``.

    Cost O(k p^2 r) whenever the core is made anew, a few times, and O(k q^2 r + k r^3) a step in it; memory
    O(k q (q + r)) beside the covariances.
    """
    p = S.n_features
    kind, n = settings.noise, settings.degrees_of_freedom
    trace = S.variances().sum(axis=1)
    unit = float(trace.mean()) / p  # of variance; all that follows is in it
    if kind == "diagonal":
        # The top singular vectors are those of the noisiest features, unless features are put on a common scale.
        psi = _unique_variances(S, n, r) / unit
        scale = 1 / np.sqrt(psi)
        white = S.scaled(scale)
        A, B, _ = _first_stage(white, compress(white, r), r, white.variances().sum(axis=1) / unit, unit, settings)
        found = _diagonal_noise(S, unit, *_unit_columns(A / scale[:, None], B), psi, settings)
    else:
        part = core.leading(r)
        A, B, noise = _first_stage(S, part, r, trace / unit, unit, settings)
        if kind is None:
            found = _without_noise(S, unit, A, B, settings)
        elif p > r and float(np.median(noise)) < _EXACT:
            found = _Estimate(A, B, _shared(np.maximum(noise, _FLOOR), n, kind), 0.0, 1)
        else:
            found = _in_growing_cores(S, trace / unit, unit, part, A, B, noise, settings)
    noise_found = None if found.noise is None else found.noise * unit
    distance = float(np.sqrt(max(found.decrement, 0.0)))
    converged = distance <= _STANDARD_ERRORS * settings.tol
    message = _message(distance, converged)
    return SolverResult(found.A, max(1, found.n_iter), converged, message, found.B * unit, noise_found, distance)


def _first_stage(
    S: Covariances, core: Core, r: int, trace: Array, unit: float, settings: Settings
) -> tuple[Array, Array, Array]:
    """Return components (p, r), loadings and the noise of each context, from a weighted joint diagonalisation.

    The power method helps out where that does not converge.
    """
    k, p = S.n_contexts, S.n_features
    n = settings.degrees_of_freedom
    if core.mixture is not None and p > r:
        return _power_start(S, core, r, trace, unit, settings)
    if core.basis is not None:
        U = np.eye(core.basis.shape[1], r)
        M = core.tensor[:, :r, :r] / unit
    else:
        U, _ = mspm.row_space(S.whole(), r)
        M = project(S, U) / unit
    outside = np.maximum(trace - np.einsum("kjj->k", M), 0)
    noise = outside / (p - r) if p > r and settings.noise is not None else np.zeros(k)
    if p == r and settings.noise is not None:  # no direction is left to see it in: nearly all that it can be
        noise = 0.9 * np.maximum(np.linalg.eigvalsh(M)[:, 0], 0)
    settings.report("first guess", 0, 1)
    W, converged = weighted_diagonaliser(M, noise, n, settings.rng)
    if W is None or not converged:
        A = mspm.solve(S, core, r, settings).components
        other = np.linalg.pinv(U.T @ (A if core.basis is None else core.basis.T @ A))
        W = other if W is None else min(W, other, key=lambda W: correlation_left(M, W, noise, n))
    if np.linalg.cond(W) > _COLLINEAR:  # components that coincide: any axes of their span are as good a start
        W = np.eye(r)
    B = np.maximum(variances_along(M, W.T) - noise[:, None] * np.einsum("jq,jq->j", W, W), 0)
    settings.report("first guess", 1, 1)
    return *_unit_columns(core.lift(U @ np.linalg.pinv(W)), B), noise


def _power_start(
    S: Covariances, core: Core, r: int, trace: Array, unit: float, settings: Settings
) -> tuple[Array, Array, Array]:
    """Return what ``_first_stage`` does, by the power method.

    Where contexts are so many that the core holds combinations of them, a weight for each would cost many times more
    than the power method, and stage 2 gives them their weights anyway.
    """
    A = mspm.solve(S, core, r, settings).components
    noise = np.zeros(S.n_contexts)
    if settings.noise is not None:
        inside = S.variances_along(orthonormal(A)).sum(axis=1) / unit
        noise = np.maximum(trace - inside, 0) / (S.n_features - r)
    return A, _loadings_beside_noise(S, unit, A, noise), noise


def _loadings_beside_noise(S: Covariances, unit: float, A: Array, noise: Array) -> Array:
    """Return the variances of scores less what noise has in them (k, r)."""
    W = np.linalg.pinv(A)
    own = S.variances_along(W.T) / unit
    return np.asarray(np.maximum(own - noise[:, None] * np.einsum("jp,jp->j", W, W), 0))


def _unique_variances(S: Covariances, n: Array, r: int) -> Array:
    """Return a first guess of the noise of each feature: what the others do not predict (Joreskog's, of all rows).

    With very many features, all of its variance.
    """
    p = S.n_features
    variances = n @ S.variances() / n.sum()
    if p > _MOST_INVERTED:
        return np.asarray(np.maximum(variances, variances.max() * _FLOOR) * (1 - r / (2 * p)))
    pooled = S.pooled(n / n.sum())
    ridge = np.maximum(variances, variances.max() * _FLOOR) * 1e-3
    unique = 1 / np.diag(np.linalg.inv(pooled + np.diag(ridge)))
    return np.asarray(np.maximum(unique * (1 - r / (2 * p)), ridge))


def solve_one(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """One context: the axes of probabilistic PCA (in features divided by their noise where that is diagonal)."""
    p = S.n_features
    n, kind = settings.degrees_of_freedom, settings.noise
    trace = S.variances().sum(axis=1)
    unit = float(trace[0]) / p
    psi, steps, decrement = np.ones(p), 0, 0.0
    variances = S.variances()[0] / unit
    floor = np.maximum(1e-4 * variances, _FLOOR)
    if kind == "diagonal":
        psi = _unique_variances(S, n, r) / unit
    told = Search(settings.report, "likelihood", _DIAGONAL_ROUNDS if kind == "diagonal" else 1)
    for _ in range(_DIAGONAL_ROUNDS if kind == "diagonal" else 1):
        told.step()
        steps += 1
        scale = 1 / np.sqrt(psi)
        white = S.scaled(scale) if kind == "diagonal" else S
        part = compress(white, r) if kind == "diagonal" else core
        w, C = np.linalg.eigh(part.tensor[0] / unit)
        w, V = w[::-1], part.lift(C[:, ::-1][:, :r])
        left = float(white.variances().sum()) / unit - float(w[:r].sum())
        noise = max(left / (p - r), _FLOOR) if r < p else _FLOOR
        level = 0.0 if kind is None else 1.0 if kind == "diagonal" else noise
        A, B = _unit_columns(V / scale[:, None], np.maximum(w[None, :r] - level, 0))
        if kind != "diagonal":
            break
        better, gain = _noise_step(S, unit, A, B, psi, floor, n)
        decrement = gain / (A.size + B.size + p)
        if better is None or decrement <= (_STANDARD_ERRORS * settings.tol) ** 2:
            break
        psi = better
    told.finish()
    found = None if kind is None else psi if kind == "diagonal" else np.full(1, noise)
    message = "One context: the axes are those of PCA." if kind != "diagonal" else "One context: factor analysis."
    distance = float(np.sqrt(max(decrement, 0.0)))
    converged = distance <= _STANDARD_ERRORS * settings.tol
    return SolverResult(A, steps, converged, message, B * unit, None if found is None else found * unit, distance)


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
            "Stage 2 could not start, components being all but collinear; these are those of stage 1. Lower the rank."
        )
    return (
        f"Stage 2 stopped {distance:.1e} standard errors (root mean square) from the maximum, where it could not "
        "improve further or ran out of max_iter."
    )


def _shared(noise: Array, n: Array, kind: str | None) -> Array:
    return np.full(len(n), float(n @ noise / n.sum())) if kind == "pooled" else noise


def _without_noise(S: Covariances, unit: float, A: Array, B: Array, settings: Settings) -> _Estimate:
    """Climb in the span of A: the likelihood of scores."""
    U = orthonormal(A)
    T = project(S, U) / unit
    floor = np.full(S.n_contexts, _FLOOR)
    data = ScoringData(T, np.einsum("kjj->k", T), settings.degrees_of_freedom, U.shape[1], floor, "fixed")
    point, decrement, steps = climb(
        data, U.T @ A, B, data.floor, (_STANDARD_ERRORS * settings.tol) ** 2, settings.max_iter
    )
    return _Estimate(U @ point.A, point.model.B, None, decrement, steps)


def _in_growing_cores(
    S: Covariances, trace: Array, unit: float, core: Core, A: Array, B: Array, noise: Array, settings: Settings
) -> _Estimate:
    """Climb in the core; make it anew until the gradient in all features is small, too."""
    r = B.shape[1]
    n, tol = settings.degrees_of_freedom, (_STANDARD_ERRORS * settings.tol) ** 2
    basis = core.basis if len(A) > ALL_FEATURES else None
    T = (core.tensor if basis is not None and core.mixture is None else slices(S, basis)) / unit
    level = float(n @ noise) / float(n.sum())
    # A covariance of rank r or less has no noise of its own to tell: its likelihood would grow without bound where A
    # holds all of it, at the expense of all others.
    floor = np.where((len(A) > r) & _singular(T, trace, r), max(_FLOOR, level), max(_FLOOR, _RELATIVE_FLOOR * level))
    s = _shared(np.maximum(noise, floor), n, settings.noise)
    n_iter, decrement, stalled = 0, np.inf, 0
    if T.size * r <= _SMALL:
        data = ScoringData(T, trace, n, len(A), floor, str(settings.noise))
        starts = [(A, B), _least_squares_start(S, unit, core, r, s, settings)]
        starts = starts if np.linalg.cond(starts[1][0]) < _COLLINEAR else starts[:1]
        inside_basis = [(A if basis is None else basis.T @ A, B) for A, B in starts]
        ends = [climb(data, C, B, s, tol / 2, _TRIAL_STEPS) for C, B in inside_basis]
        best = min((end[0] for end in ends), key=lambda point: point.model.value)
        A, B, s = best.A if basis is None else basis @ best.A, best.model.B, best.model.s
        n_iter = sum(end[2] for end in ends)
    told = Search(settings.report, "likelihood", _CORES)
    for _ in range(_CORES):
        data = ScoringData(T, trace, n, len(A), floor, str(settings.noise))
        C = A if basis is None else basis.T @ A
        # Half of what is allowed is left to directions outside the core, where there are any.
        point, inside, steps = climb(data, C, B, s, tol if basis is None else tol / 2, settings.max_iter)
        n_iter += steps
        told.step()
        previous, A = A, point.A if basis is None else basis @ point.A
        B, s = point.model.B, point.model.s
        if basis is None:
            decrement = inside
            break
        gradient, outside = _outside(S, unit, np.ones(len(A)), A, point.model)
        decrement, before = inside + outside, decrement
        stalled = stalled + 1 if decrement > 0.8 * before else 0
        if decrement <= tol or stalled == _PATIENCE:
            break
        basis = grow(basis, A, gradient, A - previous)
        T = slices(S, basis) / unit
    told.finish()
    return _Estimate(A, B, s, decrement, n_iter)


def _singular(T: Array, trace: Array, r: int) -> Array:
    """Return which covariances (k,), with T of them in some directions, have rank r or less up to rounding."""
    squares = np.einsum("kab,kab->k", T, T)
    found = squares * r >= (1 - _SINGULAR) * trace**2  # by Cauchy and Schwarz others have not
    for i in np.flatnonzero(found):
        w = np.linalg.eigvalsh(T[i])
        found[i] = trace[i] - w[-r:].sum() <= _SINGULAR * trace[i]
    return np.asarray(found)


def _least_squares_start(
    S: Covariances, unit: float, core: Core, r: int, noise: Array, settings: Settings
) -> tuple[Array, Array]:
    """Return the components of least squares and their loadings less the noise: a second start, of another kind."""
    A = lsq.solve(S, core, r, replace(settings, report=within(settings.report, "second start"))).components
    return A, _loadings_beside_noise(S, unit, A, noise)


def _outside(S: Covariances, unit: float, scale: Array, A: Array, model: Likelihood) -> tuple[Array, float]:
    """Return the gradient by A outside its span, in all features times ``scale``, and its share of the decrement."""
    weights = score_weights(model).reshape(A.shape[1], S.n_contexts, A.shape[1]).transpose(1, 0, 2)
    Y = S.combine(scale[:, None] * A, weights) * (scale[:, None] / unit)
    gradient = A @ (model.N @ (A.T @ Y)) - Y
    information = model.outside_information()
    gain = np.einsum("pj,pj->", gradient, gradient @ np.linalg.pinv(information, hermitian=True))
    return gradient, float(gain) / (A.size + model.B.size + len(model.s))


def _diagonal_noise(S: Covariances, unit: float, A: Array, B: Array, psi: Array, settings: Settings) -> _Estimate:
    """Alternate between A, B given the noise of each feature, and the noise given A, B."""
    n, tol = settings.degrees_of_freedom, (_STANDARD_ERRORS * settings.tol) ** 2
    variances = n @ S.variances() / n.sum() / unit
    floor = np.maximum(1e-4 * variances, _FLOOR)
    change = np.zeros((len(A), 0))
    n_iter, decrement = 0, np.inf
    told = Search(settings.report, "likelihood", _DIAGONAL_ROUNDS)
    for _ in range(_DIAGONAL_ROUNDS):
        told.step()
        try:
            moved, B_moved, left, steps = _climb_in_white(S, unit, A, B, psi, change, n, tol)
            psi_new, gain = _noise_step(S, unit, moved, B_moved, psi, floor, n)
        except np.linalg.LinAlgError:  # components have become collinear: stay with those before
            break
        n_iter += steps
        A, B, change = moved, B_moved, moved - A
        decrement = left + gain / (A.size + B.size + len(psi))
        if psi_new is None or decrement <= tol:
            break
        psi = psi_new
    told.finish()
    return _Estimate(A, B, psi, decrement, n_iter)


def _climb_in_white(
    S: Covariances, unit: float, A: Array, B: Array, psi: Array, change: Array, n: Array, tol: float
) -> tuple[Array, Array, float, int]:
    """Take a few steps for A and B in features divided by their noise; return A, B, the decrement left, the steps."""
    p, r = A.shape
    scale, ones = 1 / np.sqrt(psi), np.ones(S.n_contexts)
    white, B = _unit_columns(scale[:, None] * A, B)
    basis = np.eye(p)
    if p > max(ALL_FEATURES, 3 * r):
        model = likelihood_of(S, white, B, ones, n, scale=scale, unit=unit)
        gradient, _ = _outside(S, unit, scale, white, model)
        basis = orthonormal(np.hstack([white, gradient, scale[:, None] * change]))
    T = project(S, scale[:, None] * basis) / unit
    trace = S.variances() @ scale**2 / unit
    point, inside, steps = climb(
        ScoringData(T, trace, n, p, ones, "fixed"), basis.T @ white, B, ones, tol / 2, _WHITE_STEPS
    )
    white = basis @ point.A
    _, outside = _outside(S, unit, scale, white, point.model)
    return *_unit_columns(white / scale[:, None], point.model.B), inside + outside, steps


def _unit_columns(A: Array, B: Array) -> tuple[Array, Array]:
    size = np.linalg.norm(A, axis=0)
    return A / size, B * size**2


def _noise_step(
    S: Covariances, unit: float, A: Array, B: Array, psi: Array, floor: Array, n: Array
) -> tuple[Array | None, float]:
    """Take a scoring step for log psi given A and B, and twice its promise; None if it does not raise the likelihood.

    With ``Sigma_i^-1 = I + A J_i A^T`` in white features, the gradient is half of
    ``sum_i n_i diag(Sigma_i^-1 - Sigma_i^-1 S_i Sigma_i^-1)``; only the diagonal of the information is used.
    """
    scale = 1 / np.sqrt(psi)
    white = scale[:, None] * A
    model = likelihood_of(S, white, B, np.ones(S.n_contexts), n, scale=scale, unit=unit)
    J = model.N @ model.P @ model.N - model.N
    precision = n.sum() + np.einsum("pa,ab,pb->p", white, np.tensordot(n, J, axes=1), white, optimize=True)
    cross = model.G @ model.R @ model.G
    fitted = np.einsum("pa,ab,pb->p", white, np.einsum("k,kab->ab", n, J @ cross @ J), white, optimize=True)
    fitted += n @ S.variances() * scale**2 / unit
    SAJ = S.combine(scale[:, None] * white, n[:, None, None] * J) * (scale[:, None] / unit)
    fitted += 2 * np.einsum("pa,pa->p", white, SAJ)
    gradient = (precision - fitted) / 2
    information = precision**2 / (2 * n.sum())
    step = -gradient / np.maximum(information, np.finfo(float).tiny)
    step = np.where((psi <= floor) & (step < 0), 0, np.clip(step, -1, 1))
    gain = -float(gradient @ step)
    value = model.value + n.sum() / 2 * np.log(psi).sum()
    for t in 0.5 ** np.arange(12):
        trial = np.maximum(psi * np.exp(t * step), floor)
        scale = 1 / np.sqrt(trial)
        moved = likelihood_of(S, scale[:, None] * A, B, np.ones(S.n_contexts), n, scale=scale, unit=unit)
        if moved.value + n.sum() / 2 * np.log(trial).sum() < value - 1e-4 * t * gain:
            return trial, gain
    return None, gain
