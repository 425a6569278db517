"""Unconstrained nonlinear optimisation of the squared error by L-BFGS, with the exact gradient (``_squares``)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .._utils.arguments import check_integer, check_real
from .._utils.types import Array
from ._interface import Clock, End, MethodOutput, Problem, best_of, method
from ._squares import core_of, evaluate, start

_MEMORY = 30


@method(
    "minf",
    title="MINF, unconstrained nonlinear optimisation",
    citation="N. Vervliet, O. Debals, L. Sorber, M. Van Barel and L. De Lathauwer, Tensorlab 3.0 (2016); E. Acar, D. "
    "M. Dunlavy and T. G. Kolda, J. Chemometr. 25 (2011)",
    assumptions="r linearly independent components, no two with proportional loadings; a start from which the least "
    "error is reached.",
    cost="O(k p^3) to compress to q, O(k q^2 r) an iteration, many iterations",
    in_paper=True,
)
def minf(
    problem: Problem, *, n_starts: int = 1, tol: float = 1e-9, max_iter: int = 5000, time_limit: float | None = None
) -> MethodOutput:
    """L-BFGS (SciPy's), B of any sign; of ``n_starts`` random starts the least error is kept.

    Converged where no entry of the gradient exceeds ``tol``, the data having squared norm 1 as a whole. Cost O(k q^2 r)
    an iteration, memory O(k q (q + r)). ``extras["error"]`` is the relative squared error.
    """
    tol = check_real(tol, "tol", 1e-16, 1, "It is the largest entry of a gradient.")
    max_iter = check_integer(max_iter, "max_iter", 1)
    clock = Clock(time_limit)
    core, notes = core_of(problem)
    T, r = core.tensor, problem.r
    q = T.shape[1]

    def objective(x: Array) -> tuple[float, Array]:
        Z = x.reshape(-1, r)
        value = evaluate(T, Z[:q], Z[q:])
        return value.f, value.gradient.ravel()

    def watch(x: Array) -> None:
        if clock.over:
            raise StopIteration

    limits = {"maxcor": _MEMORY, "gtol": tol, "ftol": 0, "maxiter": max_iter, "maxfun": 2 * max_iter, "maxls": 40}

    def attempt() -> End:
        x = np.vstack(start(problem, core, "random")).ravel()
        found = minimize(objective, x, jac=True, method="L-BFGS-B", callback=watch, options=limits)
        # 1 is a limit of iterations, 99 our own; where a line search cannot go lower, rounding has the last word.
        return End(found.x.reshape(-1, r)[:q], 2 * float(found.fun), int(found.nit), found.status in (0, 2))

    end = best_of(n_starts, clock, attempt)
    notes += clock.ending(end.converged, end.steps, "iterations")
    return MethodOutput(core.lift(end.components), end.converged, notes, {"error": end.error})
