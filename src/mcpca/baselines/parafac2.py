"""PARAFAC2: ``X_i ~ P_i F diag(d_i) V^T`` with orthonormal P_i, that is ``X_i^T X_i ~ V diag(d_i) Phi diag(d_i) V^T``.

Scores of different components may be correlated, ``Phi = F^T F``, provided that the correlations are the same in all
contexts: the model of MCPCA is ``Phi = I``. The loss does not change when ``X_i`` is multiplied by an orthogonal matrix
from the left, so a square root of ``n_i S_i`` stands in for the rows, and covariances are enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from ._interface import End, Limits, MethodOutput, Problem, best_of, method

_ITERATIONS_PER_CALL = 50  # of TensorLy, between two looks at the clock


@method(
    "parafac2",
    title="PARAFAC2 (TensorLy)",
    citation="H. A. L. Kiers, J. M. F. ten Berge and R. Bro, J. Chemometr. 13 (1999)",
    assumptions="r linearly independent components; enough contexts (4 or more as a rule); correlations of scores "
    "alike in all contexts, as none are; a start from which the least error is reached.",
    cost="O(k p^3) to compress, O(k r^3) an iteration, many iterations",
)
def parafac2(
    problem: Problem, *, n_starts: int = 1, tol: float = 1e-8, max_iter: int = 2000, time_limit: float | None = None
) -> MethodOutput:
    """PARAFAC2 by TensorLy's alternating least squares, on roots of the covariances.

    Contexts weigh by their degrees of freedom, as their rows would; of ``n_starts`` random starts the least error is
    kept. Converged when an iteration lowers the root of the relative squared error, which is ``extras["error"]``, by
    less than ``tol``. Cost O(k r^3) an iteration, memory O(k r^2). Needs TensorLy.
    """
    meaning = "It is a change of the root of the relative squared error."
    limits = Limits(tol, 1e-16, meaning, max_iter, time_limit)
    fit = require("tensorly.decomposition", extra="baselines").parafac2
    w, Q = np.linalg.eigh(problem.small)
    # R_i^T R_i = weights_i M_i. Of norm 1 as a whole, so that TensorLy's tolerance is relative.
    roots = np.sqrt(np.maximum(w, 0) * problem.weights[:, None])[:, :, None] * Q.transpose(0, 2, 1)
    roots = roots / np.linalg.norm(roots)
    end = best_of(n_starts, limits.clock, lambda: _descend(fit, list(roots), problem, limits))
    notes = problem.compression + limits.clock.ending(end.converged, end.steps, "iterations")
    return MethodOutput(problem.lift(end.components), end.converged, notes, {"error": end.error})


def _descend(fit: Any, roots: list[Array], problem: Problem, limits: Limits) -> End:
    """Return where TensorLy's iteration ends, with V (r, r)."""
    state: Any = "random"
    seed = np.random.RandomState(problem.rng.integers(2**31))  # the only kind that TensorLy takes
    error = 1.0
    steps = 0
    converged = False
    # The first call is made even if time is over: there would be no components without it.
    while steps < limits.max_iter and not converged and not (steps and limits.clock.over):
        chunk = min(_ITERATIONS_PER_CALL, limits.max_iter - steps)
        # For an exact fit TensorLy takes the root of a number that rounding has made negative.
        with np.errstate(invalid="ignore"):
            state, errors = fit(
                roots, problem.r, n_iter_max=chunk, tol=limits.tol, init=state, random_state=seed, return_errors=True
            )
        steps += chunk
        ended = [0.0 if np.isnan(value) else float(value) for value in errors]
        # A call of one iteration has no error before its last; that of the call before stands in.
        before = ended[-2] if len(ended) > 1 else error
        error = ended[-1]
        converged = abs(before - error) < limits.tol
    # The third factor is V (r, r), in the coordinates of ``small``.
    return End(np.asarray(state[1][2]), error**2, steps, converged)
