"""The paper's own solver, the multi-subspace power method (``_solvers.mspm``), in the form of the others."""

from __future__ import annotations

import numpy as np

from .._covariances.stack import CovarianceStack
from .._covariances.subspace import compress
from .._solvers import Settings, get_solver
from .._utils.arguments import check_integer, check_real
from .._utils.progress import silent
from ._interface import MethodOutput, Problem, method


@method(
    "mspm",
    title="MCPCA by the multi-subspace power method",
    citation="K. Wang et al., Multi-context principal component analysis; see CITATION.cff",
    assumptions="r linearly independent components; no two with proportional loadings.",
    cost="O(k p^3) to compress to q, O(k q^2 r) to O(k q^2 r^2)",
    contexts=(1, None),
    in_paper=True,
)
def mspm(problem: Problem, *, tol: float = 1e-7, max_iter: int = 200) -> MethodOutput:
    """Find the components of ``MCPCA(r, solver="mspm")``; see there for ``tol`` and ``max_iter``."""
    tol = check_real(tol, "tol", 1e-15, 1e-2, "It is the length of a step on the unit sphere.")
    max_iter = check_integer(max_iter, "max_iter", 1)
    k = len(problem.S)
    # Degrees of freedom weigh contexts in a likelihood only; the power method does not look at them.
    settings = Settings(problem.rng, tol, max_iter, silent, np.ones(k))
    S = CovarianceStack(problem.S)
    result = get_solver("mspm", False, k)(S, compress(S, problem.r), problem.r, settings)
    return MethodOutput(result.components, result.converged, (result.message,))
