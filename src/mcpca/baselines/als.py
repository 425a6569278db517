"""Alternating least squares: the CP decomposition ``T_i ~ A diag(b_i) C^T`` without the constraint C = A.

Each factor in turn is the least-squares solution for the other two,
``A <- [sum_i T_i C diag(b_i)] ((C^T C) o (B^T B))^-1``, and likewise C and B. For symmetric slices A and C come to
agree, as in INDSCAL. After each iteration a longer step along its change is tried, Harshman's extrapolation.
"""

from __future__ import annotations

import numpy as np

from .._covariances.stack import images
from .._utils.types import Array
from ._interface import End, Limits, MethodOutput, Problem, best_of, method
from ._squares import core_of, starting_point

_APART = 1e-3  # 1 - |cos| between the two factors of a component from which a note says that they differ
_PLAIN_ITERATIONS = 5  # before the first extrapolation, whose direction means little from a random start
_RIDGE = 1e-14  # of the trace of a Gram matrix, which two equal columns would make singular


@method(
    "als",
    title="alternating least squares",
    citation="J. D. Carroll and J.-J. Chang, Psychometrika 35 (1970); R. A. Harshman, UCLA Working Papers in Phonetics "
    "16 (1970)",
    assumptions="r linearly independent components, no two with proportional loadings; a start from which the least "
    "error is reached, and patience.",
    cost="O(k p^3) to compress to q, O(k q^2 r) an iteration, many iterations",
    in_paper=True,
)
def als(
    problem: Problem,
    *,
    init: str = "random",
    n_starts: int = 1,
    tol: float = 1e-11,
    max_iter: int = 2000,
    time_limit: float | None = None,
) -> MethodOutput:
    """Alternating least squares without constraints, with extrapolation; the components are the mean of A and C.

    ``init`` is "random", "svd" or "jennrich", as the starts of ``nls``; of ``n_starts`` the least error is kept.
    Converged when an iteration lowers the squared error by less than ``tol`` of ``sum_i ||T_i||^2``. Cost O(k q^2 r)
    an iteration, memory O(k q (q + r)). ``extras["error"]`` is the relative squared error.
    """
    if init not in ("random", "svd", "jennrich"):
        raise ValueError(f"init={init!r} is unknown; choose 'random', 'svd' or 'jennrich'.")
    limits = Limits(tol, 1e-16, "It is a share of the squared norm of the data.", max_iter, time_limit)
    core, notes = core_of(problem)

    def attempt() -> End:
        A, B = starting_point(problem, core, init)
        C = A
        if init == "random":  # another draw, with the lengths of A
            C = np.linalg.norm(A, axis=0) * _unit(problem.rng.standard_normal(A.shape))
        return _alternate(core.tensor, A, B, C, limits)

    end = best_of(n_starts, limits.clock, attempt)
    # Each factor has its own signs; without aligning them the mean of the two could cancel.
    A, C = np.split(end.components, 2)
    cosines = np.einsum("qr,qr->r", A, C)
    apart = 1 - float(np.abs(cosines).min())
    notes += limits.clock.ending(end.converged, end.steps, "iterations")
    if apart > _APART:
        notes += (f"The two factors that should agree differ by 1 - |cos| up to {apart:.1g}.",)
    return MethodOutput(core.lift(A + C * np.where(cosines < 0, -1, 1)), end.converged, notes, {"error": end.error})


def _alternate(T: Array, A: Array, B: Array, C: Array, limits: Limits) -> End:
    """Return where the iteration ends, with unit columns of A above those of C."""
    TC = images(T, C)
    error = _error(TC, A, B, C)
    steps = 0
    converged = False
    while limits.allow(steps, converged):
        last = (A, B, C)
        error_before = error
        # Lengths of A and C are dropped as soon as they are fitted, since B, which is fitted last, takes up the scale.
        # The Gram matrix of the design is the elementwise product of the two Gram matrices.
        A = _unit(_fit(_pull(TC, B), (C.T @ C) * (B.T @ B)))
        TA = images(T, A)
        C = _unit(_fit(_pull(TA, B), (A.T @ A) * (B.T @ B)))
        B = _fit(np.einsum("rkq,qr->kr", TA, C), (A.T @ A) * (C.T @ C))
        TC = images(T, C)
        error = _error(TC, A, B, C)
        steps += 1
        converged = error_before - error <= limits.tol
        if steps > _PLAIN_ITERATIONS and not converged:
            # Only T_i c_j has to be computed for the longer step, and the next iteration begins with it.
            # A stride that is too long costs one evaluation and no more: it is kept only if it lowers the error.
            stride = np.cbrt(steps)
            far = tuple(old + stride * (new - old) for old, new in zip(last, (A, B, C), strict=True))
            TC_far = images(T, far[2])
            error_far = _error(TC_far, *far)
            if error_far < error:
                A, B, C = far
                TC = TC_far
                error = error_far
    return End(np.vstack([_unit(A), _unit(C)]), error, steps, converged)


def _error(TC: Array, A: Array, B: Array, C: Array) -> float:
    """Return ``sum_i ||T_i - A diag(b_i) C^T||^2`` if ``sum_i ||T_i||^2`` is 1, from ``T_i c_j`` as (r, k, q)."""
    h = np.einsum("rkq,qr->kr", TC, A)
    # From h and Gram matrices, with no residual formed: O(k q r), T_i c_j being known.
    return float(1 - 2 * np.vdot(B, h) + np.vdot(B, B @ ((A.T @ A) * (C.T @ C))))


def _pull(TC: Array, B: Array) -> Array:
    """Return ``sum_i b_ij T_i c_j`` (q, r) from ``T_i c_j`` as (r, k, q)."""
    return np.asarray(np.matmul(B.T[:, None, :], TC)[:, 0].T)


def _fit(target: Array, G: Array) -> Array:
    """Solve ``X G = target``, with just enough ridge that two equal columns do no harm."""
    G = G + _RIDGE * np.trace(G) * np.eye(len(G))
    return np.asarray(np.linalg.solve(G, target.T).T)


def _unit(A: Array) -> Array:
    return np.asarray(A / np.maximum(np.linalg.norm(A, axis=0), np.finfo(float).tiny))
