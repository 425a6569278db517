"""Least squares: a stationary point of ``f(A, B) = sum_i ||S_i - A diag(b_i) A^T||_F^2`` with B >= 0.

This is the paper's definition of MCPCA, of which the power method is an approximation. B is eliminated: for given A it
is a small non-negative least-squares problem (``loadings``). What is left is a function of A that does not change when
a column is scaled, so A moves on a product of unit spheres. With ``E_i = A B_i A^T - T_i``, ``G = A^T A``,
``K = B^T B`` and o the elementwise product, column j of the derivatives is that of

    gradient        4 sum_i b_ij E_i a_j
    Hessian on dA   4 [dA (K o G) + A (K o (A^T dA)^T) + sum_i b_ij E_i da_j + A ((dB^T B) o G) + sum_i db_ij E_i a_j],

dB being what dA does to the positive loadings. ``sum_i b_ij E_i`` is formed once in an iteration, after which a
product with the exact Hessian costs O(r q^2 + k q r), no more than with Gauss and Newton's approximation. ``K o G``,
the Hessian of alternating least squares, is the preconditioner. Every accepted step lowers f.

The core spans some of the features only, and a stationary point in it is not yet one of f. So the gradient is taken in
all features, and while it is not small the core is made anew from A, the gradient, and the last change of A.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.stack import images
from .._covariances.subspace import ALL_FEATURES, Core, grow, slices
from .._linalg.newton import conjugate_gradients
from .._utils.progress import Search
from .._utils.types import Array
from .._utils.wording import beside
from . import mspm
from .interface import Settings, SolverResult
from .loadings import solve_loadings

_CORES, _PATIENCE = 40, 4
_CG_STEPS = 120
_BACKTRACKS = 25
_INNER = 0.1  # the gradient in the core is taken this far below the one in all features


class _Point(NamedTuple):
    """A (q, r), its loadings B (k, r), ``T_i a_j`` as (r, k, q), and f less the constant ``sum_i ||T_i||^2``."""

    A: Array
    B: Array
    TA: Array
    f: float


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Start from the power method and go down to a stationary point.

    Cost that of the power method, O(k q^2 r) for each Newton step, and O(k p^2 r) whenever the core is made anew;
    memory O(k q (q + r) + r q^2).
    """
    start = mspm.solve(S, core, r, settings)
    A, n_iter = start.components, start.n_iter
    scale = float(S.squared_norms().sum())
    change = np.zeros((len(A), 0))
    part = core.leading(r)
    basis, T = part.basis, part.tensor if part.mixture is None else None
    gradient, size, stalled = _full_gradient(S, A), np.inf, 0
    told = Search(settings.report, "refinement", _CORES)
    for attempt in range(_CORES):
        told.step()
        size, before = float(np.linalg.norm(gradient)) / scale, size
        stalled = stalled + 1 if size > 0.9 * before else 0
        if size <= settings.tol or stalled == _PATIENCE:
            break
        if attempt or len(A) <= ALL_FEATURES:
            basis, T = grow(basis, A, gradient, change), None
        if T is None:
            T = slices(S, basis)
        goal = settings.tol if basis is None else max(settings.tol, _INNER * size)
        C, steps = _descend(T, A if basis is None else basis.T @ A, 0.5 * goal * scale, settings.max_iter)
        n_iter += steps
        A, previous = C if basis is None else basis @ C, A
        change = A - previous
        gradient = _full_gradient(S, A)
    told.finish()
    converged = size <= settings.tol
    message = (
        f"Stationary: the projected gradient is {size:.1e} of the squared norm of the data."
        if converged
        else f"The projected gradient is {beside(size, settings.tol, 1, 'e')} of the squared norm of the data, above "
        f"tol={settings.tol:g}; "
        "raise max_iter, or lower the rank."
    )
    return SolverResult(A, n_iter, converged, message, gradient=size)


def _full_gradient(S: Covariances, A: Array) -> Array:
    """Return the gradient (p, r) in all features, tangent to the spheres, at the best loadings; two passes over S."""
    G = A.T @ A
    B = solve_loadings(G**2, S.variances_along(A))
    return _tangent(A, 4 * (A @ ((B.T @ B) * G) - S.combine(A, B)))


def _descend(T: Array, A: Array, goal: float, max_iter: int) -> tuple[Array, int]:
    """Newton's method until the gradient is below ``goal``; return A and the number of steps."""
    point = _evaluate(T, A / np.linalg.norm(A, axis=0))
    for step in range(max_iter):
        A, B = point.A, point.B
        G, K = A.T @ A, B.T @ B
        EA = (B[None] * G[:, None, :]) @ A.T - point.TA  # E_i a_j as (r, k, q)
        gradient = _tangent(A, 4 * np.matmul(B.T[:, None, :], EA)[:, 0].T)
        size = float(np.linalg.norm(gradient))
        if size <= goal:
            return A, step
        d = _newton_direction(T, point, G, K, EA, gradient, max(min(0.1, goal / size), 1e-3))
        slope = float(np.vdot(gradient, d))
        for t in 0.5 ** np.arange(_BACKTRACKS):
            trial = A + t * d
            trial_point = _evaluate(T, trial / np.linalg.norm(trial, axis=0))
            if trial_point.f <= point.f + 1e-4 * t * slope:
                break
        else:  # f cannot be lowered any more at this precision
            return A, step
        point = trial_point
    return point.A, max_iter


def _evaluate(T: Array, A: Array) -> _Point:
    TA = images(T, A)
    h = np.einsum("rkq,qr->kr", TA, A)
    G2 = (A.T @ A) ** 2
    B = solve_loadings(G2, h)
    return _Point(A, B, TA, float(np.vdot(B, B @ G2 - 2 * h)))


def _newton_direction(T: Array, point: _Point, G: Array, K: Array, EA: Array, gradient: Array, rtol: float) -> Array:
    A, B = point.A, point.B
    r = A.shape[1]
    k, q, _ = T.shape
    # sum_i b_ij E_i, (r, q, q)
    E = (A * K[:, None, :]) @ A.T - (B.T @ T.reshape(k, q * q)).reshape(r, q, q)
    free = B > 0
    system = np.where(free[:, :, None] & free[:, None, :], G**2, np.eye(r))
    try:
        inverse = np.linalg.inv(system)
        size = np.diag(K).max(initial=0)
        preconditioner = np.linalg.inv(4 * (K * G + 1e-12 * size * np.eye(r)))
    except np.linalg.LinAlgError:  # two columns coincide
        return -gradient / max(4 * float(np.diag(K).max(initial=0)), np.finfo(float).tiny)

    def hessian(dA: Array) -> Array:
        Q = A.T @ dA
        change = np.matmul(EA, dA.T[:, :, None])[:, :, 0].T + B @ (Q * G).T
        dB = -2 * np.matmul(inverse, np.where(free, change, 0)[:, :, None])[:, :, 0]
        dB = np.where(free, dB, 0)
        out = dA @ (K * G) + A @ (K * Q.T + (dB.T @ B) * G)
        out += np.matmul(E, dA.T[:, :, None])[:, :, 0].T + np.matmul(dB.T[:, None, :], EA)[:, 0].T
        return _tangent(A, 4 * out)

    def precondition(g: Array) -> Array:
        return _tangent(A, g @ preconditioner)

    return conjugate_gradients(hessian, gradient, precondition, rtol=rtol, max_iter=_CG_STEPS)


def _tangent(A: Array, Z: Array) -> Array:
    return np.asarray(Z - A * np.einsum("qr,qr->r", A, Z))
