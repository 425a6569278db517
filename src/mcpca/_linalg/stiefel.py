"""Newton's method for a function of the variances along orthonormal axes, ``h_ij = a_j^T T_i a_j``.

Every criterion for orthonormal components is such a function: least squares and likelihood (``_solvers.orthogonal``,
``_solvers.orthogonal_ml``) and Flury's common components (``_model.common_components``), each of which hands in its own
``Landscape``. Axes are kept as the first columns of a frame ``V = [A, complement]``, an orthogonal (q, q) matrix, which
moves by ``V Cayley(X)`` with ``X = [[W, -K^T], [K, 0]]``, W skew: rotations of pairs of axes among the first r, and of
these into the complement (the Stiefel manifold). X solves Newton's equations by conjugate gradients, preconditioned by
the curvature of each single rotation. A step is taken only if it raises the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from .newton import conjugate_gradients

# Bounds of the inner loops: a Newton direction from fewer steps is less exact, and still goes up; a step halved that
# often is below 1e-9 of itself, where f cannot tell it from none.
_CG_STEPS = 60
_HALVINGS = 30
_MAX_TURN = 0.7  # the largest entry of X in one step, 40 degrees: a second-order model says little beyond
_ROUNDING = 1e-14  # share of f below which a change of it is noise
_SUFFICIENT_RISE = 1e-4  # Armijo's share of what the slope promises
_FLATTEST = 1e-9  # of the largest curvature: the preconditioner takes none as smaller


class Landscape(NamedTuple):
    """f at h (r, k): its value, first derivatives (r, k), and second ones as a diagonal (r, k) plus ``coupling``."""

    value: float
    slope: Array
    bend: Array
    coupling: Callable[[Array], Array] | None


class FrameMaximum(NamedTuple):
    """Where the ascent ended: the frame (q, q), f, the norm of its gradient, about what one more step would gain.

    ``step`` is the largest rotation of the last step, in radians.
    """

    frame: Array
    value: float
    gradient: float
    gain: float
    step: float
    n_iter: int


class _Place(NamedTuple):
    """A frame (q, q), the images ``a_j^T T_i`` of its first r axes as (r, k, q), and f there."""

    frame: Array
    images: Array
    f: Landscape


def complete_frame(A: Array) -> Array:
    """Return an orthogonal (q, q) matrix whose first columns are the orthonormal columns of A."""
    # The columns beyond r are orthogonal to the span of A, whatever signs QR gives the first r.
    frame: Array = np.linalg.qr(A, mode="complete")[0]
    frame[:, : A.shape[1]] = A  # QR may have turned their signs
    return frame


def nearest_orthonormal(A: Array) -> Array:
    """Return the polar factor: the nearest matrix with orthonormal columns."""
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    return np.asarray(U @ Vt)


def maximise_over_frames(
    T: Array,
    frame: Array,
    r: int,
    objective: Callable[[Array], Landscape],
    *,
    max_iter: int,
    tol: float,
) -> FrameMaximum:
    """Raise ``objective(h)`` over the first r axes of ``frame`` until a step turns no axis by more than ``tol``.

    Newton's equations are solved to the precision that pays off, the step is halved until f rises. One step costs
    O(k q^2 r), one iteration of conjugate gradients O(min(k, r) q r) more.
    """
    # T (k, q, q), images and Y (r, k, q), h (r, k), and G, g, P, X (q, r).
    k, q, _ = T.shape
    flat = T.reshape(k * q, q)

    def look(frame: Array) -> _Place:
        images = (frame[:, :r].T @ flat.T).reshape(r, k, q)
        return _Place(frame, images, objective(np.einsum("jiq,qj->ji", images, frame[:, :r])))

    here = look(frame)
    step = np.inf
    first_gain = 0.0
    n_iter = 0
    while True:
        # Everything below is in coordinates of the frame, and X stands for its first r columns (q, r).
        Y = (here.images.reshape(r * k, q) @ here.frame).reshape(r, k, q)
        # With dA = V X, dh_ij = 2 a_j^T T_i V x_j, so df = <G, X> for G_j = 2 sum_i slope_ij V^T T_i a_j.
        G = 2 * np.matmul(here.f.slope[:, None, :], Y)[:, 0].T
        g = _skew_part(G, r)
        norm = np.sqrt(_inner(g, g, r))
        P = _pair_curvature(Y, T, here.f, r)
        # What a step g / P would gain if the curvature P of single rotations were all there is.
        gain = _inner(g, g / P, r) / 2
        first_gain = max(first_gain, gain)
        # ``not gain > 0`` stops at a stationary point, and at NaN.
        if step <= tol or n_iter >= max_iter or not gain > 0:
            break
        # Superlinear when the maximum is near; only a good direction while it is far.
        X = _newton_direction(T, here.frame, Y, G, g, P, here.f, min(0.1, np.sqrt(gain / first_gain)))
        allowance = _ROUNDING * max(abs(here.f.value), 1.0)
        higher, turn = _line_search(look, here, X, _inner(g, X, r), allowance)
        if higher is None:
            break  # no rise that rounding lets us see
        n_iter += 1
        stalled = higher.f.value <= here.f.value + allowance and turn >= step
        here = higher
        # When f no longer tells steps apart and they no longer shrink, rounding is all that moves the axes.
        step = 0.0 if stalled else turn
    return FrameMaximum(here.frame, here.f.value, float(norm), gain, float(step), n_iter)


def _line_search(
    look: Callable[[Array], _Place], here: _Place, X: Array, slope: float, allowance: float
) -> tuple[_Place | None, float]:
    """Halve the step X until f rises; return where it ends, None if it never rises, and its largest rotation."""
    turn = float(np.abs(X).max())
    t = min(1.0, _MAX_TURN / turn)
    for _ in range(_HALVINGS):
        trial = look(here.frame @ _cayley(t * X))
        # The allowance lets a step pass whose rise is lost in the rounding of f: near the maximum the axes still
        # improve when f no longer shows it.
        if trial.f.value >= here.f.value + _SUFFICIENT_RISE * t * slope - allowance:
            return trial, t * turn
        t /= 2
    return None, 0.0


def _inner(X: Array, Z: Array, r: int) -> float:
    """Inner product in which the rotation of each pair is a unit vector; X and Z hold pairs among the first r twice."""
    return float((X[:r] * Z[:r]).sum() / 2 + (X[r:] * Z[r:]).sum())


def _skew_part(E: Array, r: int) -> Array:
    """Gradient over X of the linear function ``<E, X>``."""
    return np.concatenate([E[:r] - E[:r].T, E[r:]])


def _pair_curvature(Y: Array, T: Array, f: Landscape, r: int) -> Array:
    """Minus the second derivative of f along the rotation of each pair, made positive: (q, r)."""
    q = Y.shape[2]
    # Turning a_j towards a_l by theta: h_j' = 2 R_jl and h_j'' = 2 (R_ll - R_jj) at theta = 0, and the reverse for h_l.
    # So f'' = sum_i slope h'' + bend h'^2; the coupling is left out, as a preconditioner need not be exact.
    h = np.einsum("jij->ji", Y[:, :, :r])
    product = f.slope @ h.T  # sum_i slope_ij h_il
    same_axis = np.diag(product)
    steep = np.matmul(f.bend[:, None, :], Y**2)[:, 0].T  # sum_i bend_ij R_lj^2, (q, r)
    among_axes = 2 * (same_axis[:, None] + same_axis[None, :] - product - product.T) - 4 * (steep[:r] + steep[:r].T)
    # The variances along the complement are not computed: their mean stands in.
    mean_outside = (np.einsum("iqq->i", T) - h.sum(axis=0)) / max(q - r, 1)
    into_complement = 2 * (same_axis - f.slope @ mean_outside) - 4 * steep[r:]
    # Away from the maximum f may curve upwards along a pair. Conjugate gradients need a positive preconditioner, and
    # the size of the curvature is still the right scale of the step.
    P = np.abs(np.concatenate([among_axes, into_complement]))
    top = float(P.max(initial=0))
    # A rotation that changes nothing to second order would otherwise get an infinite step.
    return np.maximum(P, _FLATTEST * top) if top > 0 else np.ones_like(P)


def _newton_direction(
    T: Array, frame: Array, Y: Array, G: Array, g: Array, P: Array, f: Landscape, precision: float
) -> Array:
    """Solve ``-Hess X = g`` by preconditioned conjugate gradients, stopping at a direction of positive curvature.

    ``Hess X`` is the skew part of ``2 sum_i slope_ij T_i x_j + 2 sum_i (f'' dh)_ij T_i a_j``, with
    ``dh_ij = 2 a_j^T T_i x_j``, and of ``-(X G + G X)/2``, which is the second-order term of the exponential.
    """
    k, q, _ = T.shape
    r = len(Y)
    # sum_i slope_ij T_i (r, q, q) once, unless they take more than four times the room of the k slices.
    mixed = (f.slope @ T.reshape(k, q * q)).reshape(r, q, q) if r <= 4 * k else None
    # X G needs no q x q matrix: X = [[W, -K^T], [K, 0]] is multiplied block by block.
    G_top, G_bottom = G[:r], G[r:]

    def minus_hessian(X: Array) -> Array:
        lifted = frame @ X
        if mixed is not None:
            moved = np.matmul(mixed, lifted.T[:, :, None])[:, :, 0].T
        else:
            turned = (lifted.T @ T.reshape(k * q, q).T).reshape(r, k, q)
            moved = np.matmul(f.slope[:, None, :], turned)[:, 0].T
        # dh (r, k) by the images that are known: no product with the slices.
        change = 2 * np.matmul(Y, X.T[:, :, None])[:, :, 0]
        bent = f.bend * change
        if f.coupling is not None:
            bent = bent + f.coupling(change)
        E = 2 * (frame.T @ moved) + 2 * np.matmul(bent[:, None, :], Y)[:, 0].T
        W, K = X[:r], X[r:]
        E[:r] -= (W @ G_top - K.T @ G_bottom + G_top @ W) / 2
        E[r:] -= (K @ (G_top + G_top.T) + G_bottom @ W) / 2
        return -_skew_part(E, r)

    # Pairs among the first r are held twice: in these units the inner product is the plain one.
    unit = np.concatenate([np.full((r, 1), np.sqrt(0.5)), np.ones((q - r, 1))])
    X = conjugate_gradients(
        lambda v: unit * minus_hessian(v / unit), -unit * g, lambda v: v / P, rtol=precision, max_iter=_CG_STEPS
    )
    return np.asarray(X / unit)


def _cayley(X: Array) -> Array:
    """Return the rotation ``(I - X/2)^-1 (I + X/2)`` of the skew matrix with first columns X: exp to second order."""
    q, r = X.shape
    # For a skew matrix I - X/2 is never singular, since its eigenvalues are 1 - i t, and the quotient is orthogonal
    # exactly: frames need no orthonormalising between steps.
    full = np.zeros((q, q))
    full[:, :r] = X
    full[:r, r:] = -X[r:].T
    return np.asarray(np.linalg.solve(np.eye(q) - full / 2, np.eye(q) + full / 2))
