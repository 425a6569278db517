"""Solvers where contexts lack features: complete the covariances, solve the complete problem, go down in the exact one.

The complete solvers need all of every covariance. So entries that a context does not have are filled in, at first by
the average over contexts that have them (at the level of this context), later by the model of the last round. ``mspm``
(or ``ml``) on the completed stack gives a start that the exact objective, over observed entries only, goes down from.
Rounds go on as long as they lower it. For a likelihood the completion is the E-step of EM, the expected covariance
given the observed features,

    S_mo = T S_oo,   S_mm = T S_oo T^T + Sigma_mm - T Sigma_om,   T = Sigma_mo Sigma_oo^-1.

Cost that of a few complete fits and O(k p^2 r) a step; memory a few stacks (k, p, p).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._covariances.stack import as_stack
from .._covariances.subspace import compress
from .._linalg.canonical import ascore
from .._utils.progress import Search, silent
from .._utils.types import Array
from .._utils.wording import beside
from . import ml, mspm
from .interface import Settings, SolverResult
from .masked import Masked, filled
from .masked_lsq import LeastSquares, minimise_squares
from .masked_ml import Maximum, maximise_masked
from .ml_estimate import NOISE_FLOOR, largest_decrement, largest_distance

_MOST_ROUNDS = 6
# Mean |cos| between the axes of a start and those found before from which on both lead to the same point.
_SAME = 0.999
_GAIN = 1e-6  # a round that lowers the objective by less than this share is the last
_RELATIVE_NOISE_FLOOR = 1e-4  # of the noise of all contexts, as in ``ml``


def solve_squares(data: Masked, r: int, settings: Settings) -> SolverResult:
    """Return a stationary point of the squared error over observed entries, beside a floor if noise is isotropic."""
    floor = settings.noise == "isotropic"
    best, n_iter = _by_squares(data, r, floor, settings)
    converged = best.gradient <= settings.tol
    message = (
        f"Stationary: the projected gradient is {best.gradient:.1e} of the squared norm of the data."
        if converged
        else f"The projected gradient is {beside(best.gradient, settings.tol, 1, 'e')} of the squared norm of the "
        f"data, above tol={settings.tol:g}; raise max_iter, or lower the rank."
    )
    return SolverResult(
        best.A, max(1, n_iter), converged, message, best.B, best.noise if floor else None, gradient=best.gradient
    )


def _by_squares(data: Masked, r: int, floor: bool, settings: Settings) -> tuple[LeastSquares, int]:
    stack = first_guess(data)
    best: LeastSquares | None = None
    n_iter = 0
    progress = Search(settings.report, "refinement", _MOST_ROUNDS)
    for _ in range(_MOST_ROUNDS):
        progress.step()
        S = as_stack(_weighted(stack, data.weights))
        start = mspm.solve(S, compress(S, r), r, replace(settings, report=silent))
        if best is not None and ascore(start.components, best.A) > _SAME:
            break
        found = minimise_squares(data, start.components, floor=floor, tol=settings.tol, max_iter=settings.max_iter)
        n_iter += start.n_iter + found.n_iter
        if best is not None and not found.value < (1 - _GAIN) * best.value:
            break
        best = found
        stack = filled(
            data, (found.A * found.B[:, None, :]) @ found.A.T + found.noise[:, None, None] * np.eye(len(found.A))
        )
    progress.finish()
    assert best is not None
    return best, n_iter


def solve_likelihood(
    data: Masked, r: int, settings: Settings, start: Maximum | None = None
) -> tuple[SolverResult, Maximum]:
    """Return the maximum of the likelihood of observed features; ``start`` is where another fit has ended."""
    kind = str(settings.noise)
    # Units in which the mean variance of an observed feature is 1.
    unit = data.unit
    scaled = replace(data, S=data.S / unit)
    if start is None:
        best, n_iter = _by_likelihood(scaled, r, kind, settings)
    else:
        variances = start.variances / unit
        best = maximise_masked(
            scaled,
            start.A,
            start.B / unit,
            variances,
            _least_noise(scaled, r, variances),
            kind,
            largest_decrement(settings),
            settings.max_iter,
        )
        n_iter = best.n_iter
    distance = float(np.sqrt(max(best.decrement, 0.0)))
    converged = distance <= largest_distance(settings)
    words = "Converged" if converged else "Stopped, where it could not improve further or ran out of max_iter,"
    best = best._replace(B=best.B * unit, noise=best.noise * unit, variances=best.variances * unit)
    message = f"{words}: {distance:.1e} standard errors (root mean square) from the maximum."
    return SolverResult(best.A, max(1, n_iter), converged, message, best.B, best.noise, distance), best


def _by_likelihood(data: Masked, r: int, kind: str, settings: Settings) -> tuple[Maximum, int]:
    squares, n_iter = _by_squares(replace(data, weights=np.ones(len(data.S))), r, True, settings)
    s = squares.noise
    level = float(data.weights @ s) / float(data.weights.sum())
    variances = np.repeat(np.maximum(s, 1e-2 * max(level, NOISE_FLOOR))[:, None], data.S.shape[1], axis=1)
    floor = _least_noise(data, r, variances)
    goal = largest_decrement(settings)
    best = maximise_masked(data, squares.A, squares.B, variances, floor, kind, goal, settings.max_iter)
    n_iter += best.n_iter
    # The complete solver has starts of its own, which may lead to a higher maximum.
    progress = Search(settings.report, "likelihood", _MOST_ROUNDS)
    for _ in range(_MOST_ROUNDS):
        progress.step()
        S = as_stack(expected(data, best.A, best.B, best.variances))
        quiet = replace(settings, report=silent)
        complete = ml.solve(S, compress(S, r), r, quiet)
        assert complete.loadings is not None
        assert complete.noise is not None
        if ascore(complete.components, best.A) > _SAME:
            break
        again = maximise_masked(
            data,
            complete.components,
            complete.loadings,
            _by_feature(complete.noise, kind, data.mask.shape),
            floor,
            kind,
            goal,
            settings.max_iter,
        )
        n_iter += complete.n_iter + again.n_iter
        gain = best.value - again.value
        if gain > 0:
            best = again
        # In units of the log-likelihood: less than a thousandth is another way to the same maximum.
        if gain < 1e-3:
            break
    progress.finish()
    return best, n_iter


def expected(data: Masked, A: Array, B: Array, variances: Array) -> Array:
    """Return the expected covariances (k, p, p) given the observed features, for noise ``variances`` (k, p)."""
    out = np.empty_like(data.S)
    for S, m, b, d, full in zip(data.S, data.mask, B, variances, out, strict=True):
        Sigma = (A * b) @ A.T + np.diag(d)
        if m.all():
            full[:] = S
            continue
        # Rows of T for observed features are those of the identity, so that one product completes all blocks.
        T = np.zeros_like(Sigma)
        T[:, m] = np.linalg.solve(Sigma[np.ix_(m, m)], Sigma[m]).T
        full[:] = T @ S @ T.T + Sigma - T @ Sigma
        full[:] = (full + full.T) / 2
    return out


def completed(data: Masked, A: Array, B: Array) -> Array:
    """Return the stack with missing entries from the model ``A B_i A^T``; with none missing, the stack itself."""
    return data.S if data.mask.all() else filled(data, (A * B[:, None, :]) @ A.T)


def first_guess(data: Masked) -> Array:
    """Return the stack with missing entries from the average of contexts that have them; 0 where none has."""
    seen = (data.mask[:, :, None] & data.mask[:, None, :]).astype(float)
    average = data.S.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    # At the level of the context: its variance against the average of the same features.
    traces = np.einsum("kff->k", data.S)
    usual = data.mask @ np.diag(average)
    level = traces / np.where(usual > 0, usual, 1)
    return filled(data, level[:, None, None] * average)


def _weighted(stack: Array, weights: Array) -> Array:
    """Return ``sqrt(w_i) S_i``, of which the plain squared error is the weighted one of S."""
    return stack if np.ptp(weights) == 0 else stack * np.sqrt(weights / weights.mean())[:, None, None]


def _by_feature(noise: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """Return noise as published as variances (k, p)."""
    if kind in ("isotropic", "pooled"):
        noise = noise[:, None]
    return np.broadcast_to(noise, shape)


def _least_noise(data: Masked, r: int, variances: Array) -> Array:
    """Return the smallest noise allowed in each context (k,).

    A context with no more degrees of freedom than components may lie in their span, where its likelihood has no bound:
    it keeps the noise of all contexts.
    """
    s = np.where(data.mask, variances, 0).sum(axis=1) / data.mask.sum(axis=1)
    level = float(data.weights @ s) / float(data.weights.sum())
    hidden = data.weights <= r
    return np.where(hidden, max(NOISE_FLOOR, level), max(NOISE_FLOOR, _RELATIVE_NOISE_FLOOR * level))
