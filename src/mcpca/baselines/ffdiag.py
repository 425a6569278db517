"""FFDIAG and UWEDGE: joint diagonalisation by 2 x 2 least-squares problems, one for each pair of axes, all at once.

With ``R_i = V M_i V^T`` nearly diagonal, d its diagonals, ``(I + W) R_i (I + W)^T`` has to first order the entries
``R_i[l, j] + W_lj d_ij + W_jl d_il``, so the W that minimises the squares of all of them is found pair by pair in
closed form (``_linalg.diagonalise.pair_step`` returns -W). The two methods differ in what they do with it:

* FFDIAG: ``V <- (I + W) V`` with the norm of W held below ``theta`` < 1, so that V stays invertible;
* UWEDGE: ``V <- (I - W)^-1 V``.

Both stop when ``sum_i d_ij R_i[l, j] = 0`` for all pairs, so they end at the same axes or at different solutions of
these equations; neither needs definite matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._covariances.stack import congruence
from .._linalg.diagonalise import pair_step
from .._utils.arguments import check_real
from .._utils.types import Array
from ._interface import Limits, MethodOutput, Problem, method
from ._whitening import whiten

_LONGEST_STEP = 0.5  # the largest entry of a step of UWEDGE: (I + E)^-1 is a first-order correction


@method(
    "ffdiag",
    title="FFDIAG, fast Frobenius diagonalisation",
    citation="A. Ziehe, P. Laskov, G. Nolte and K.-R. Mueller, J. Mach. Learn. Res. 5 (2004)",
    assumptions="r linearly independent components; no two with proportional loadings.",
    cost="O(k p^3) to compress, O(k r^3) an iteration",
    in_paper=True,
)
def ffdiag(
    problem: Problem,
    *,
    theta: float = 0.9,
    tol: float = 1e-8,
    max_iter: int = 1000,
    time_limit: float | None = None,
) -> MethodOutput:
    """FFDIAG, after whitening by the mean.

    ``theta`` bounds the Frobenius norm of W; converged when no entry of W exceeds ``tol``. Cost O(k r^3) an iteration,
    as two matrix products, memory O(k r^2).
    """
    theta = check_real(theta, "theta", 1e-6, 1 - 1e-6, "Below 1 the update cannot become singular.")

    def update(E: Array, V: Array) -> Array:
        # A norm below 1 keeps I + W invertible; the inner maximum avoids a division by zero.
        return V - (E * min(1, theta / max(float(np.linalg.norm(E)), theta))) @ V

    return _diagonalise(problem, update, tol, max_iter, time_limit)


@method(
    "uwedge",
    title="UWEDGE, uniformly weighted exhaustive diagonalisation",
    citation="P. Tichavsky and A. Yeredor, IEEE Trans. Signal Process. 57 (2009)",
    assumptions="r linearly independent components; no two with proportional loadings.",
    cost="O(k p^3) to compress, O(k r^3) an iteration",
)
def uwedge(
    problem: Problem, *, tol: float = 1e-8, max_iter: int = 1000, time_limit: float | None = None
) -> MethodOutput:
    """UWEDGE, after whitening by the mean; converged when no entry of a step exceeds ``tol``.

    Steps with an entry above 1/2 are shortened to it. Cost O(k r^3) an iteration, memory O(k r^2).
    """

    def update(E: Array, V: Array) -> Array:
        E = E * min(1, _LONGEST_STEP / max(float(np.abs(E).max(initial=0)), _LONGEST_STEP))
        return np.asarray(np.linalg.solve(np.eye(len(E)) + E, V))

    return _diagonalise(problem, update, tol, max_iter, time_limit)


def _diagonalise(
    problem: Problem,
    update: Callable[[Array, Array], Array],
    tol: float,
    max_iter: int,
    time_limit: float | None,
) -> MethodOutput:
    """Iterate ``V <- update(E, V)`` from the identity, after whitening, until E is small."""
    limits = Limits(tol, 1e-15, "It is the largest entry of a step.", max_iter, time_limit)
    k = len(problem.S)
    # After whitening the components are orthogonal up to noise, and so V, their inverse, is well-conditioned.
    white, root = whiten(problem.small, np.full(k, 1 / k))
    V = np.eye(problem.r)
    steps = 0
    converged = False
    while limits.allow(steps, converged):
        # (r, k, r), contexts in the middle. From the whitened matrices each time: updating R would let rounding build
        # up.
        R = congruence(white, V.T)
        d = np.einsum("jej->ej", R)
        E = pair_step(R, d)
        V = update(E, V)
        # The scale of a row is free; unit length is what the authors of both methods take.
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        steps += 1
        converged = bool(np.abs(E).max(initial=0) <= limits.tol)
    # Rows of V are directions to project on; components are the columns of the inverse.
    A = problem.lift(root @ np.linalg.inv(V))
    return MethodOutput(A, converged, problem.compression + limits.clock.ending(converged, steps, "iterations"))
