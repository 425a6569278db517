"""Unconstrained nonlinear optimisation of the squared error by L-BFGS, with the exact gradient (``_squares``).

It stands for Tensorlab's "minf", the quasi-Newton method among the paper's competitors.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .._utils.types import Array
from ._interface import End, Limits, MethodOutput, Problem, best_of, method
from ._squares import core_of, squared_error, starting_point

_PAIRS = 30  # of steps and gradients that L-BFGS keeps


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

    Converged when no entry of the gradient exceeds ``tol``, the data having squared norm 1 as a whole. Cost O(k q^2 r)
    an iteration, memory O(k q (q + r)). ``extras["error"]`` is the relative squared error.
    """
    limits = Limits(tol, 1e-16, "It is the largest entry of a gradient.", max_iter, time_limit)
    core, notes = core_of(problem)
    T = core.tensor
    q = T.shape[1]
    r = problem.r

    def objective(x: Array) -> tuple[float, Array]:
        AB = x.reshape(-1, r)  # A above B
        value = squared_error(T, AB[:q], AB[q:])
        return value.f, value.gradient.ravel()

    def watch(x: Array) -> None:
        if limits.clock.over:
            raise StopIteration

    # With ftol at 0 only the gradient decides when it has converged.
    # A line search may take more than one evaluation, hence twice as many as iterations.
    options = {
        "maxcor": _PAIRS,
        "gtol": limits.tol,
        "ftol": 0,
        "maxiter": limits.max_iter,
        "maxfun": 2 * limits.max_iter,
        "maxls": 40,
    }

    def attempt() -> End:
        x = np.vstack(starting_point(problem, core, "random")).ravel()
        best = minimize(objective, x, jac=True, method="L-BFGS-B", callback=watch, options=options)
        # SciPy's status: 0 is convergence, 1 a limit of iterations, 99 our own StopIteration. 2 is a line search that
        # cannot go lower, which means that only rounding is left.
        return End(best.x.reshape(-1, r)[:q], 2 * float(best.fun), int(best.nit), best.status in (0, 2))

    end = best_of(n_starts, limits.clock, attempt)
    notes += limits.clock.ending(end.converged, end.steps, "iterations")
    return MethodOutput(core.lift(end.components), end.converged, notes, {"error": end.error})
