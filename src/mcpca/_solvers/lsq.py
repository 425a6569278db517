"""Least squares, solver "lsq": a stationary point of ``f(A, B) = sum_i ||S_i - A diag(b_i) A^T||_F^2`` with B >= 0.

This is the paper's definition of MCPCA: the closest approximation of the covariance tensor in the model (Definition
SI-1.1, Proposition SI-2.5), of which the power method is an approximation. It starts from ``mspm`` and goes down, so it
never ends above it.

B is eliminated: for given A it is a small non-negative least-squares problem (``loadings``). What is left is a function
of A that does not change when a column is scaled, so A moves on a product of unit spheres. With ``E_i = A B_i A^T -
T_i``, ``G = A^T A``, ``K = B^T B`` and o the elementwise product, column j of the derivatives is that of

    gradient        4 sum_i b_ij E_i a_j
    Hessian on dA   4 [dA (K o G) + A (K o (A^T dA)^T) + sum_i b_ij E_i da_j + A ((dB^T B) o G) + sum_i db_ij E_i a_j],

dB being what dA does to the positive loadings. ``sum_i b_ij E_i`` is formed once in an iteration, after which a
product with the exact Hessian costs O(r q^2 + k q r), no more than with Gauss and Newton's approximation. ``K o G``,
the Hessian of alternating least squares, is the preconditioner. Every accepted step lowers f or, where rounding hides
that, halves its gradient.

The core spans some of the features only, and a stationary point in it is not yet one of f: ``growing`` says how the
core follows the gradient in all features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.stack import images
from .._covariances.subspace import Core
from .._linalg.newton import conjugate_gradients
from .._utils.progress import Search
from .._utils.types import Array
from .._utils.wording import beside
from . import mspm
from .growing import GrowingCore, Patience
from .interface import Settings, SolverResult
from .loadings import solve_loadings

_MOST_CORES = 40
_IDLE_FACTOR = 0.9  # a round that leaves more than this share of the gradient is one of those that ``Patience`` counts
# The gradient in the core is taken this far below the one in all features: less would make rounds that gain little,
# more would polish what the next core moves again.
_INNER_SHARE = 0.1
_CG_STEPS = 120
_BACKTRACKS = 25
_ROUNDING = 16 * np.finfo(np.float64).eps  # of f, relative
_SUFFICIENT_DECREASE = 1e-4  # Armijo's share of the decrease that the slope promises


class _Point(NamedTuple):
    """A (q, r), its loadings B (k, r), ``T_i a_j`` as (r, k, q), and f less the constant ``sum_i ||T_i||^2``."""

    A: Array
    B: Array
    TA: Array
    f: float


class _Derivatives(NamedTuple):
    """``G = A^T A`` and ``K = B^T B`` (r, r), ``E_i a_j`` as (r, k, q), and the gradient (q, r) on the spheres."""

    G: Array
    K: Array
    EA: Array
    gradient: Array


def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Start from the power method and go down to a stationary point.

    Cost that of the power method, O(k q^2 r) for each Newton step, and O(k p^2 r) whenever the core is made anew;
    memory O(k q (q + r) + r q^2).
    """
    start = mspm.solve(S, core, r, settings)
    A = start.components
    n_iter = start.n_iter
    # Gradients are measured against this: f is quadratic in S, so the ratio does not depend on units.
    scale = float(S.squared_norms().sum())
    # No change yet: a block without columns in the next basis.
    change = np.zeros((len(A), 0))
    # The first round is in the core of the power method, later ones in bases that hold the gradient found below.
    growing = GrowingCore.from_core(S, core.leading(r))
    gradient = full_gradient(S, A)
    patience = Patience(_IDLE_FACTOR)
    progress = Search(settings.report, "refinement", _MOST_CORES)
    for attempt in range(_MOST_CORES):
        progress.step()
        size = float(np.linalg.norm(gradient)) / scale
        if patience.is_lost(size) or size <= settings.tol:
            break
        if attempt:
            growing.grow(A, gradient, change)
        goal = settings.tol if growing.basis is None else max(settings.tol, _INNER_SHARE * size)
        # With a margin: whether the goal is met is decided by the gradient in all features, above.
        C, steps = descend(growing.tensor, growing.inside(A), 0.5 * goal * scale, settings.max_iter)
        n_iter += steps
        moved = growing.lift(C)
        change = moved - A
        A = moved
        gradient = full_gradient(S, A)
    progress.finish()
    converged = size <= settings.tol
    message = (
        f"Stationary: the projected gradient is {size:.1e} of the squared norm of the data."
        if converged
        else f"The projected gradient is {beside(size, settings.tol, 1, 'e')} of the squared norm of the data, above "
        f"tol={settings.tol:g}; "
        "raise max_iter, or lower the rank."
    )
    return SolverResult(A, n_iter, converged, message, gradient=size)


def full_gradient(S: Covariances, A: Array) -> Array:
    """Return the gradient (p, r) in all features, tangent to the spheres, at the best loadings; two passes over S."""
    # B is at its best for A, so by the envelope theorem the gradient is that by A alone, with B held fixed.
    G = A.T @ A
    B = solve_loadings(G**2, S.variances_along(A))
    # sum_i b_ij E_i a_j, with A B_i A^T a_j summed over i in r dimensions.
    return _tangent(A, 4 * (A @ ((B.T @ B) * G) - S.combine(A, B)))


def descend(T: Array, A: Array, goal: float, max_iter: int) -> tuple[Array, int]:
    """Newton's method until the gradient is below ``goal``; return A and the number of steps."""
    point = _point_at(T, A / np.linalg.norm(A, axis=0))
    for step in range(max_iter):
        derivatives = _derivatives(point)
        size = float(np.linalg.norm(derivatives.gradient))
        if size <= goal:
            return point.A, step
        # Superlinear convergence when the goal is near, and no wasted products while it is far.
        d = _newton_direction(T, point, derivatives, max(min(0.1, goal / size), 1e-3))
        lower = _line_search(T, point, d, float(np.vdot(derivatives.gradient, d)))
        lower = lower or _flatter(T, point, d, size)
        if lower is None:  # neither f nor its gradient can be lowered any more at this precision
            return point.A, step
        point = lower
    return point.A, max_iter


def _line_search(T: Array, point: _Point, d: Array, slope: float) -> _Point | None:
    """Halve the step d until f falls by a share of what ``slope`` promises; None if it never does."""
    for t in 0.5 ** np.arange(_BACKTRACKS):
        lower = _moved(T, point, t * d)
        if lower.f <= point.f + _SUFFICIENT_DECREASE * t * slope:
            return lower
    return None


def _flatter(T: Array, point: _Point, d: Array, size: float) -> _Point | None:
    """Return the point a whole step d away if f is the same there to rounding, and the gradient ``size / 2`` or less.

    f is flat to second order: at a gradient of 1e-8 of its scale a Newton step lowers it by about 1e-16, which rounding
    hides, while the gradient itself has eight digits left.
    """
    trial = _moved(T, point, d)
    same = trial.f <= point.f + _ROUNDING * abs(point.f)
    return trial if same and np.linalg.norm(_derivatives(trial).gradient) <= size / 2 else None


def _moved(T: Array, point: _Point, d: Array) -> _Point:
    """Return the point at A + d. Normalising columns is the retraction to the spheres; f does not see their length."""
    A = point.A + d
    return _point_at(T, A / np.linalg.norm(A, axis=0))


def _point_at(T: Array, A: Array) -> _Point:
    """Return f and the best loadings at unit columns A; by ``<a a^T, b b^T> = (a . b)^2`` only r x r products."""
    # T_i a_j is kept: its products with A are h, and the derivatives need it again.
    TA = images(T, A)
    h = np.einsum("rkq,qr->kr", TA, A)
    G2 = (A.T @ A) ** 2
    B = solve_loadings(G2, h)
    # sum_i (b_i^T G2 b_i - 2 h_i^T b_i), with no residual matrix formed.
    return _Point(A, B, TA, float(np.vdot(B, B @ G2 - 2 * h)))


def _derivatives(point: _Point) -> _Derivatives:
    A, B = point.A, point.B
    G = A.T @ A
    # A B_i A^T a_j = A (b_i o g_j), so that E_i is not formed.
    EA = (B[None] * G[:, None, :]) @ A.T - point.TA
    gradient = _tangent(A, 4 * np.matmul(B.T[:, None, :], EA)[:, 0].T)
    return _Derivatives(G, B.T @ B, EA, gradient)


def _newton_direction(T: Array, point: _Point, derivatives: _Derivatives, rtol: float) -> Array:
    """Solve Newton's equations to the relative precision ``rtol`` by preconditioned conjugate gradients."""
    A, B = point.A, point.B
    G, K, EA, gradient = derivatives
    r = A.shape[1]
    k, q, _ = T.shape
    # (r, q, q): sum_i b_ij A B_i A^T = A diag(K_j) A^T with K_j row j of K, and the sum over T is one product.
    E = (A * K[:, None, :]) @ A.T - (B.T @ T.reshape(k, q * q)).reshape(r, q, q)  # sum_i b_ij E_i
    # Loadings at the bound stay there to first order; the others follow A by their own least-squares equations.
    free = B > 0
    # One (r, r) matrix a context, with the identity for loadings at the bound, so that all are inverted as one batch.
    system = np.where(free[:, :, None] & free[:, None, :], G**2, np.eye(r))
    size = np.diag(K).max(initial=0)
    try:
        inverse = np.linalg.inv(system)
        # The ridge is for components whose loadings are all zero.
        preconditioner = np.linalg.inv(4 * (K * G + 1e-12 * size * np.eye(r)))
    except np.linalg.LinAlgError:  # two columns coincide: a gradient step may part them
        return -gradient / max(4 * float(size), np.finfo(float).tiny)

    def hessian(dA: Array) -> Array:
        Q = A.T @ dA
        # Half of what dA does to G^2 b_i - h_i, the gradient by b_i; the free loadings move so as to undo it.
        change = np.matmul(EA, dA.T[:, :, None])[:, :, 0].T + B @ (Q * G).T
        dB = -2 * np.matmul(inverse, np.where(free, change, 0)[:, :, None])[:, :, 0]
        dB = np.where(free, dB, 0)
        # The five terms of the module's docstring.
        out = dA @ (K * G) + A @ (K * Q.T + (dB.T @ B) * G)
        out += np.matmul(E, dA.T[:, :, None])[:, :, 0].T + np.matmul(dB.T[:, None, :], EA)[:, 0].T
        return _tangent(A, 4 * out)

    def precondition(g: Array) -> Array:
        # g is tangent, so that this is symmetric and positive on tangent vectors, as conjugate gradients need.
        return _tangent(A, g @ preconditioner)

    return conjugate_gradients(hessian, gradient, precondition, rtol=rtol, max_iter=_CG_STEPS)


def _tangent(A: Array, Z: Array) -> Array:
    """Project column j of Z off a_j: along what is left the columns stay on their unit spheres."""
    return np.asarray(Z - A * np.einsum("qr,qr->r", A, Z))
