"""Orthogonal joint diagonalisation: Jacobi angles by least squares, Flury's common components by likelihood.

Both turn pairs of axes to their best angle by ``_linalg.jacobi``. A rotation of axes (j, l) changes the squared
off-diagonal entries in total only through ``R_i[j, l]``, so disjoint pairs do not disturb each other and are turned
together. Flury's model is what MCPCA generalises ("The hypothesis of common principal components" in the paper's
supplement), with A square and orthogonal.
"""

from __future__ import annotations

import numpy as np

from .._linalg.jacobi import jacobi_sweeps, squares_angle
from .._model.common_components import common_principal_components
from ._interface import Limits, MethodOutput, Problem, method
from ._whitening import Shrinkage, whiten

_SHRINKAGE = Shrinkage("cpc", "shrinkage", 1e-3)


@method(
    "jacobi",
    title="Jacobi angles",
    citation="J.-F. Cardoso and A. Souloumiac, SIAM J. Matrix Anal. Appl. 17 (1996); A. Bunse-Gerstner, R. Byers and "
    "V. Mehrmann, SIAM J. Matrix Anal. Appl. 14 (1993)",
    assumptions="A orthonormal; no two components with equal loadings in all contexts.",
    cost="O(k p^3) to compress, O(k r^3) a sweep",
    contexts=(1, None),
    in_paper=True,
)
def jacobi(
    problem: Problem, *, tol: float = 1e-9, max_iter: int = 200, time_limit: float | None = None
) -> MethodOutput:
    """Rotate pairs of axes until ``sum_i ||off(Z^T M_i Z)||^2`` is least.

    Starts from the singular directions of the flattening; converged when a sweep turns no axis by more than ``tol``
    radians. Cost O(k r^3) a sweep of r - 1 rounds of disjoint pairs, memory O(k r^2).
    """
    limits = Limits(tol, 1e-15, "It is an angle in radians.", max_iter, time_limit)
    M = problem.small
    frame = np.eye(problem.r)
    sweeps = 0
    converged = problem.r == 1
    while limits.allow(sweeps, converged):
        turned, _ = jacobi_sweeps(M, frame, problem.r, squares_angle, 1)
        # The rotation of the sweep as a whole: off its diagonal small entries are angles in radians.
        change = frame.T @ turned
        np.fill_diagonal(change, 0)
        # Rounding builds up from sweep to sweep; the first-order series of the polar factor takes it off again.
        frame = turned @ (1.5 * np.eye(problem.r) - 0.5 * turned.T @ turned)
        sweeps += 1
        converged = bool(np.abs(change).max() <= limits.tol)
    notes = problem.compression + limits.clock.ending(converged, sweeps, "sweeps")
    return MethodOutput(problem.lift(frame), converged, notes)


@method(
    "cpc",
    title="Flury's common principal components",
    citation="B. N. Flury, J. Am. Stat. Assoc. 79 (1984)",
    assumptions="A orthonormal; no two components with equal loadings; covariances regular within the r "
    "directions, or made so.",
    cost="O(k p^3) to compress, O(k r^3) a sweep, several starts",
    contexts=(1, None),
)
def cpc(problem: Problem, *, shrinkage: float | None = None) -> MethodOutput:
    """Maximum likelihood of ``S_i = A diag(lambda_i) A^T`` with A orthogonal, by ``common_principal_components``.

    ``shrinkage`` is the share of the mean covariance that is added to each context: None means 0, and 1e-3 if a
    context is singular. Contexts weigh alike. Cost O(k r^3) a sweep.
    """
    k = len(problem.S)
    white, R = whiten(problem.small, np.full(k, 1 / k))
    white, notes = _SHRINKAGE.apply(problem, white, shrinkage)
    # Back to the coordinates of the data: whitened ones, in which contexts are tested and shrunk, do not keep A
    # orthogonal.
    M = R @ white @ R.T
    common = common_principal_components((M + M.transpose(0, 2, 1)) / 2)
    notes = problem.compression + notes
    if not common.converged:
        notes += ("The likelihood had not settled.",)
    return MethodOutput(problem.lift(common.components), common.converged, notes)
