"""Pham's joint diagonalisation: the likelihood of uncorrelated scores, for positive definite matrices.

It minimises ``sum_i n_i [log det Diag(R_i) - log det R_i]`` with ``R_i = V M_i V^T``, the paper's common log-likelihood
loss (Definition SI-2.12): the information that is lost by taking scores as uncorrelated in every context. For a pair
(j, l) and ``V <- (I - H) V`` on it, to second order, with means over contexts weighted by n,

    mean(R_ll / R_jj) h_jl + h_lj = mean(R_jl / R_jj),   h_jl + mean(R_jj / R_ll) h_lj = mean(R_jl / R_ll).

Pham's step ``I - 2 H / (1 + sqrt(1 - 4 h_jl h_lj))`` lowers the criterion for any data. It touches rows and columns j
and l, and the criterion sees diagonals only, so disjoint pairs are independent: a sweep is r - 1 rounds of them.
"""

from __future__ import annotations

import numpy as np

from .._linalg.jacobi import round_robin
from .._utils.types import Array
from ._interface import Limits, MethodOutput, Problem, method
from ._whitening import Shrinkage, whiten

_LEAST_VARIANCE = 1e-13  # of a mean variance of 1: below it rounding may have made a variance negative
_SHRINKAGE = Shrinkage("pham", "shrinkage", 0.1)


@method(
    "pham",
    title="Pham's likelihood joint diagonalisation",
    citation="D.-T. Pham, SIAM J. Matrix Anal. Appl. 22 (2001)",
    assumptions="r linearly independent components; no two with proportional loadings; covariances regular within the "
    "r directions, or made so.",
    cost="O(k p^3) to compress, O(k r^3) a sweep",
)
def pham(
    problem: Problem,
    *,
    shrinkage: float | None = None,
    tol: float = 1e-8,
    max_iter: int = 200,
    time_limit: float | None = None,
) -> MethodOutput:
    """Pham's algorithm, after whitening by the mean.

    ``shrinkage`` is the share of the mean covariance that is added to each context: None means 0, and 0.1 if a
    context is singular (with less the criterion has so many minima that the start decides). Contexts weigh by their
    degrees of freedom, alike if those are unknown. Converged when no entry of a sweep's steps exceeds ``tol``. Cost
    O(k r^3) a sweep, memory O(k r^2).
    """
    limits = Limits(tol, 1e-15, "It is the largest entry of a step.", max_iter, time_limit)
    r = problem.r
    white, root = whiten(problem.small, problem.weights)
    white, notes = _SHRINKAGE.apply(problem, white, shrinkage)
    # Contexts last, so that rows and columns are gathered in contiguous pieces.
    R = np.ascontiguousarray(white.transpose(1, 2, 0))
    V = np.eye(r)
    rounds = round_robin(r, r)
    sweeps = 0
    converged = not rounds
    while limits.allow(sweeps, converged):
        largest = 0.0
        for J, L in rounds:
            to_j, to_l = _pair_steps(R[J, J], R[L, L], R[J, L], problem.weights)
            largest = max(largest, float(np.abs(to_j).max()), float(np.abs(to_l).max()))
            # (I - H) R (I - H)^T: rows, then columns, in place through views, and V with them. Indexing by arrays
            # copies, so that both assignments see the rows as they were.
            for rows in (R, R.transpose(1, 0, 2), V[:, :, None]):
                first = rows[J]
                second = rows[L]
                rows[J] = first - to_j[:, None, None] * second
                rows[L] = second - to_l[:, None, None] * first
        sweeps += 1
        converged = largest <= limits.tol
        # The scale of a row is free; unit diagonals on average keep quotients near one.
        size = np.sqrt(np.einsum("jji,i->j", R, problem.weights))
        R /= size[:, None, None] * size[:, None]
        V /= size[:, None]
    notes = problem.compression + notes + limits.clock.ending(converged, sweeps, "sweeps")
    return MethodOutput(problem.lift(root @ np.linalg.inv(V)), converged, notes)


def _pair_steps(first: Array, second: Array, cross: Array, n: Array) -> tuple[Array, Array]:
    """Return how much of row l is taken off row j, and the other way round, for m pairs given as (m, k)."""
    first = np.maximum(first, _LEAST_VARIANCE)
    second = np.maximum(second, _LEAST_VARIANCE)
    # The 2 x 2 system of the module's docstring, [[a, 1], [1, b]] (h_jl, h_lj) = (g_j, g_l), for all pairs of a round.
    g_j = (cross / first) @ n
    g_l = (cross / second) @ n
    a = (second / first) @ n
    b = (first / second) @ n
    # a b >= 1 by Cauchy and Schwarz; equal if the two are proportional over contexts and cannot be told apart.
    det = np.maximum(a * b - 1, 1e-12)
    h_j = (b * g_j - g_l) / det
    h_l = (a * g_l - g_j) / det
    # Pham shows 4 h_j h_l <= 1; the clip is for rounding.
    factor = 2 / (1 + np.sqrt(np.clip(1 - 4 * h_j * h_l, 0, None)))
    return factor * h_j, factor * h_l
