"""Nonlinear least squares: Levenberg and Marquardt's method on ``f(A, B) = 1/2 sum_i ||T_i - A diag(b_i) A^T||^2``.

The Gauss-Newton matrix is never formed. With G, K as in ``_squares`` its product with (dA, dB) is

    2 [dA (G o K) + A (K o (dA^T A)) + A (G o (dB^T B))]   and   2 B (G o (A^T dA))^T + dB (G o G),

which costs O((q + k) r^2), whatever the size of the data; conjugate gradients with the blocks ``2 G o K`` and ``G o G``
as preconditioner solve the damped equations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._linalg.newton import conjugate_gradients
from .._utils.types import Array
from ._interface import End, Limits, MethodOutput, Problem, best_of, method
from ._squares import balancing, core_of, squared_error, starting_point

_CG_STEPS = 150
_CG_RTOL = 1e-2
_FIRST_DAMPING = 1e-3  # of the curvature along the largest column
_LEAST_DAMPING = 1e-13  # of the same: the scale of a column is free, so the equations are singular without any
_ABOUT: dict[str, Any] = {
    "citation": "N. Vervliet, O. Debals, L. Sorber, M. Van Barel and L. De Lathauwer, Tensorlab 3.0 (2016); L. Sorber, "
    "M. Van Barel and L. De Lathauwer, SIAM J. Optim. 23 (2013)",
    "assumptions": "r linearly independent components, no two with proportional loadings; a start from which the least "
    "error is reached.",
    "cost": "O(k p^3) to compress to q, O(k q^2 r) an iteration, O((q + k) r^2) an inner one",
    "in_paper": True,
}


@method("nls", title="nonlinear least squares, random start", **_ABOUT)
def nls(
    problem: Problem, *, n_starts: int = 1, tol: float = 1e-13, max_iter: int = 500, time_limit: float | None = None
) -> MethodOutput:
    """Least squares with B of any sign; of ``n_starts`` random starts the least error is kept.

    Converged when a step lowers f by less than ``tol`` times ``sum_i ||T_i||^2``. Cost O(k q^2 r) an iteration and
    O((q + k) r^2) for each of its inner ones; memory O(k q (q + r)). ``extras["error"]`` is the relative squared error.
    """
    return _solve(problem, "random", n_starts, tol, max_iter, time_limit)


@method("nls_svd", title="nonlinear least squares, start by SVD", **_ABOUT)
def nls_svd(
    problem: Problem, *, tol: float = 1e-13, max_iter: int = 500, time_limit: float | None = None
) -> MethodOutput:
    """``nls`` from the top r left singular vectors of the flattening; no random number is used."""
    return _solve(problem, "svd", 1, tol, max_iter, time_limit)


@method("nls_jennrich", title="nonlinear least squares, start by Jennrich's algorithm", **_ABOUT)
def nls_jennrich(
    problem: Problem, *, n_starts: int = 1, tol: float = 1e-13, max_iter: int = 500, time_limit: float | None = None
) -> MethodOutput:
    """``nls`` from the components of Jennrich's algorithm, each start with a pencil of its own."""
    return _solve(problem, "jennrich", n_starts, tol, max_iter, time_limit)


def _solve(
    problem: Problem, kind: str, n_starts: int, tol: float, max_iter: int, time_limit: float | None
) -> MethodOutput:
    """Minimise from starts of the given kind; ``_squares.starting_point`` has the kinds."""
    limits = Limits(tol, 1e-16, "It is a share of the squared norm of the data.", max_iter, time_limit)
    core, notes = core_of(problem)

    def attempt() -> End:
        A, B = starting_point(problem, core, kind)
        return _descend(core.tensor, A, B, limits)

    end = best_of(n_starts, limits.clock, attempt)
    notes += limits.clock.ending(end.converged, end.steps, "iterations")
    return MethodOutput(core.lift(end.components), end.converged, notes, {"error": end.error})


def _descend(T: Array, A: Array, B: Array, limits: Limits) -> End:
    """Go down from A and B by damped Gauss-Newton steps; ``sum_i ||T_i||^2`` is 1."""
    q = len(A)
    f, gradient = squared_error(T, A, B)
    # A and B being balanced, 2 |a_j|^4 is the curvature along a_j.
    curvature = float((A**2).sum(axis=0).max()) ** 2
    damping = _FIRST_DAMPING * curvature
    growth = 2.0
    for step in range(limits.max_iter):
        if limits.clock.over:
            return End(A, 2 * f, step, False)
        # d (q + k, r): the change of A above that of B.
        d = _direction(A, B, gradient, damping)
        # What the quadratic model of f says that the step gains, to be compared with what it does gain.
        curved = float(np.vdot(d, _gauss_newton(A, B, A.T @ A, B.T @ B, d)))
        promised = -float(np.vdot(gradient, d)) - 0.5 * curved
        trial = squared_error(T, A + d[:q], B + d[q:])
        gain = f - trial.f
        if gain > 0 and promised > 0:
            A = A + d[:q]
            B = B + d[q:]
            of_A, of_B = balancing(A, B)
            A = A * of_A
            B = B * of_B
            f = trial.f
            # The chain rule for columns that have been multiplied; f itself does not see it.
            gradient = np.vstack([trial.gradient[:q] / of_A, trial.gradient[q:] / of_B])
            # Nielsen's rule: the better the model of f, the less damping; failed steps make it grow ever faster.
            damping *= max(1 / 3, 1 - (2 * gain / promised - 1) ** 3)
            damping = max(damping, _LEAST_DAMPING * curvature)
            growth = 2.0
            if gain <= limits.tol:
                return End(A, 2 * f, step + 1, True)
        # The step failed, but even its model promises nothing that ``tol`` could see: only rounding is left.
        elif promised <= limits.tol:
            return End(A, 2 * f, step + 1, True)
        else:
            damping *= growth
            growth *= 2
    return End(A, 2 * f, limits.max_iter, False)


def _direction(A: Array, B: Array, gradient: Array, damping: float) -> Array:
    """Solve ``(J^T J + damping I) d = -gradient`` by preconditioned conjugate gradients."""
    q, r = A.shape
    G, K = A.T @ A, B.T @ B
    # Both are positive semi-definite by Schur's theorem.
    # The blocks of A and of B, as if the other were held fixed: one (r, r) inverse serves all rows.
    for_a = np.linalg.inv(2 * G * K + damping * np.eye(r))
    for_b = np.linalg.inv(G**2 + damping * np.eye(r))

    def operator(d: Array) -> Array:
        return _gauss_newton(A, B, G, K, d) + damping * d

    def precondition(d: Array) -> Array:
        return np.vstack([d[:q] @ for_a, d[q:] @ for_b])

    return conjugate_gradients(operator, gradient, precondition, rtol=_CG_RTOL, max_iter=_CG_STEPS)


def _gauss_newton(A: Array, B: Array, G: Array, K: Array, d: Array) -> Array:
    """Return ``J^T J d`` for d (q + k, r), dA above dB."""
    q = len(A)
    dA, dB = d[:q], d[q:]
    P = A.T @ dA
    # J itself has k q^2 rows; by <a a^T, b b^T> = (a . b)^2 its products need Gram matrices only.
    for_a = 2 * (dA @ (G * K) + A @ (K * P.T + G * (dB.T @ B)))
    return np.vstack([for_a, 2 * B @ (G * P).T + dB @ G**2])
