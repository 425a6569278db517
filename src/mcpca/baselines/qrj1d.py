"""QRJ1D: ``J(V) = sum_i ||off(V M_i V^T)||^2`` by rotations and triangular shears in turn.

V is a product of orthogonal factors, found by Jacobi rotations, and unit upper triangular ones, found by shears
``row_j += a row_l``, l > j, each with the a that minimises J. Only row and column j change, so with
``N = sum_i R_i R_i^T`` taken without column j

    a = -N_jl / N_ll,   and afterwards   N_j. += a N_l.

while the rest of N stays. Shears into row j with l = j + 1, ..., r are therefore one sweep of Gauss and Seidel on
``N_LL a = -N_Lj``, that is a triangular system: all r (r - 1) / 2 shears of a phase cost r small solves, and give what
they give one by one.
"""

from __future__ import annotations

import numpy as np

from .._linalg.jacobi import jacobi_sweeps, squares_angle
from .._utils.types import Array
from ._interface import Limits, MethodOutput, Problem, method
from ._whitening import whiten

_BALANCE_EVERY = 3  # sweeps between two balancings of rows, as in the author's description


@method(
    "qrj1d",
    title="QRJ1D, joint diagonalisation by QR factors",
    citation="B. Afsari, Simple LU and QR based non-orthogonal matrix joint diagonalization, LNCS 3889 (2006)",
    assumptions="r linearly independent components; no two with proportional loadings.",
    cost="O(k p^3) to compress, O(k r^3) a sweep, many sweeps",
    in_paper=True,
)
def qrj1d(problem: Problem, *, tol: float = 1e-6, max_iter: int = 500, time_limit: float | None = None) -> MethodOutput:
    """QRJ1D, after whitening by the mean.

    A sweep is a phase of rotations and a phase of shears; every third sweep rows are brought to equal norm over all
    contexts, since J depends on their scale. Converged when a sweep changes V by no more than ``tol``, relative to its
    rows. Cost O(k r^3) a sweep, memory O(k r^2).
    """
    limits = Limits(tol, 1e-15, "It is the largest change of V in a sweep.", max_iter, time_limit)
    k = len(problem.S)
    r = problem.r
    white, root = whiten(problem.small, np.full(k, 1 / k))
    V = np.eye(r)
    sweeps = 0
    converged = r == 1
    while limits.allow(sweeps, converged):
        # From the whitened matrices each time, so that rounding does not build up over many sweeps.
        M = V @ white @ V.T
        turn, _ = jacobi_sweeps(M, np.eye(r), r, squares_angle, 1)
        R = np.ascontiguousarray((turn.T @ M @ turn).transpose(1, 0, 2))
        change = _shear(R) @ turn.T
        V = change @ V
        sweeps += 1
        if sweeps % _BALANCE_EVERY == 0:
            # R is that of the new V, since ``_shear`` works in place.
            V /= np.sqrt(np.linalg.norm(R, axis=(1, 2)) / np.sqrt(k))[:, None]
        # At convergence both factors are the identity, and entries off the diagonal are what the sweep has done.
        np.fill_diagonal(change, 0)
        converged = bool(np.abs(change).max() <= limits.tol)
    A = problem.lift(root @ np.linalg.inv(V))
    return MethodOutput(A, converged, problem.compression + limits.clock.ending(converged, sweeps, "sweeps"))


def _shear(R: Array) -> Array:
    """Shear each row of ``R`` (r, k, r) by those after it, in place; return the unit upper triangular factor."""
    r = len(R)
    factor = np.eye(r)
    # N (r, r) are inner products of rows over all contexts; below it is updated with each row, not computed anew.
    N = np.tensordot(R, R, axes=([1, 2], [1, 2]))
    for j in range(r - 1):
        column = R[:, :, j]
        within = N - column @ column.T  # without column j
        after = slice(j + 1, r)
        # Lower triangular: shear l sees what the shears before it have done, as if they were taken one by one.
        system = np.tril(within[after, after])
        pivots = np.diag(system)
        used = pivots > np.finfo(float).eps * np.diag(N)[after]
        # A row that vanishes outside column j has nothing to shear by.
        np.fill_diagonal(system, np.where(used, pivots, 1))
        a = np.linalg.solve(system, np.where(used, -within[after, j], 0))
        factor[j] += a @ factor[after]
        R[j] += np.tensordot(a, R[after], axes=1)
        R[:, :, j] += R[:, :, after] @ a
        # Without column j only row and column j of N have changed; then column j, all of which has, is added back.
        row = within[j] + a @ within[after]
        row[j] += row[after] @ a
        within[j] = within[:, j] = row
        N = within + R[:, :, j] @ R[:, :, j].T
    return factor
