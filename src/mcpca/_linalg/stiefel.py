"""Newton's method for a function of the variances along orthonormal axes, ``h_ij = a_j^T T_i a_j``.

A frame ``V = [A, complement]`` moves by ``V Cayley(X)``, ``X = [[W, -K^T], [K, 0]]`` with W skew, where X solves
Newton's equations by conjugate gradients, preconditioned by the curvature of each single rotation. A step is taken
only if it raises the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from .newton import conjugate_gradients

_CG_STEPS = 60
_HALVINGS = 30
_MAX_TURN = 0.7  # the largest entry of X in one step
_ROUNDING = 1e-14


class Landscape(NamedTuple):
    """f at h (r, k): its value, first derivatives (r, k), and second ones as a diagonal (r, k) plus ``coupling``."""

    value: float
    slope: Array
    bend: Array
    coupling: Callable[[Array], Array] | None


class Climb(NamedTuple):
    """Where ``climb`` ended: the frame (q, q), f, the norm of its gradient, about what one more step would gain.

    ``step`` is the largest rotation of the last step, in radians.
    """

    frame: Array
    value: float
    gradient: float
    gain: float
    step: float
    n_iter: int


def complete(A: Array) -> Array:
    """Return an orthogonal (q, q) matrix whose first columns are the orthonormal columns of A."""
    frame: Array = np.linalg.qr(A, mode="complete")[0]
    frame[:, : A.shape[1]] = A
    return frame


def nearest_orthonormal(A: Array) -> Array:
    """Return the polar factor: the nearest matrix with orthonormal columns."""
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    return np.asarray(U @ Vt)


def climb(
    T: Array,
    frame: Array,
    r: int,
    objective: Callable[[Array], Landscape],
    *,
    max_iter: int,
    tol: float,
) -> Climb:
    """Raise ``objective(h)`` over the first r axes of ``frame`` until a step turns no axis by more than ``tol``.

    Newton's equations are solved to the precision that pays off, the step is halved until f rises. One step costs
    O(k q^2 r), one iteration of conjugate gradients O(min(k, r) q r) more.
    """
    k, q, _ = T.shape
    flat = T.reshape(k * q, q)

    def look(frame: Array) -> tuple[Array, Landscape]:
        images = (frame[:, :r].T @ flat.T).reshape(r, k, q)  # a_j^T T_i
        return images, objective(np.einsum("jiq,qj->ji", images, frame[:, :r]))

    images, here = look(frame)
    step, first_gain, n_iter = np.inf, 0.0, 0
    while True:
        # Everything below is in coordinates of the frame, and X stands for its first r columns (q, r).
        Y = (images.reshape(r * k, q) @ frame).reshape(r, k, q)
        G = 2 * np.matmul(here.slope[:, None, :], Y)[:, 0].T
        g = _skew_part(G, r)
        norm = np.sqrt(_inner(g, g, r))
        P = _pair_curvature(Y, T, here, r)
        gain = _inner(g, g / P, r) / 2
        first_gain = max(first_gain, gain)
        if step <= tol or n_iter >= max_iter or not gain > 0:
            break
        # Superlinear where it is near; only a good direction where it is far.
        X = _newton_direction(T, frame, Y, G, g, P, here, min(0.1, np.sqrt(gain / first_gain)))
        slope = _inner(g, X, r)
        turn = float(np.abs(X).max())
        t = min(1.0, _MAX_TURN / turn)
        allowance = _ROUNDING * max(abs(here.value), 1.0)
        for _ in range(_HALVINGS):
            trial = frame @ _cayley(t * X)
            images_there, there = look(trial)
            if there.value >= here.value + 1e-4 * t * slope - allowance:
                break
            t /= 2
        else:
            break  # nothing that rounding lets us see
        n_iter += 1
        stalled = there.value <= here.value + allowance and t * turn >= step
        frame, images, here, step = trial, images_there, there, t * turn
        if stalled:
            step = 0.0  # f no longer tells steps apart, and they no longer shrink
    return Climb(frame, here.value, float(norm), gain, float(step), n_iter)


def _inner(X: Array, Z: Array, r: int) -> float:
    """Inner product in which the rotation of each pair is a unit vector; X and Z hold kept pairs twice."""
    return float((X[:r] * Z[:r]).sum() / 2 + (X[r:] * Z[r:]).sum())


def _skew_part(E: Array, r: int) -> Array:
    """Gradient over X of the linear function ``<E, X>``."""
    return np.concatenate([E[:r] - E[:r].T, E[r:]])


def _pair_curvature(Y: Array, T: Array, here: Landscape, r: int) -> Array:
    """Minus the second derivative of f along the rotation of each pair, made positive: (q, r)."""
    q = Y.shape[2]
    h = np.einsum("jij->ji", Y[:, :, :r])
    product = here.slope @ h.T
    own = np.diag(product)
    steep = np.matmul(here.bend[:, None, :], Y**2)[:, 0].T  # sum_i bend_ij R_lj^2, (q, r)
    kept = 2 * (own[:, None] + own[None, :] - product - product.T) - 4 * (steep[:r] + steep[:r].T)
    # The variances of dropped axes are not computed: their mean stands in.
    spread = (np.einsum("iqq->i", T) - h.sum(axis=0)) / max(q - r, 1)
    dropped = 2 * (own - here.slope @ spread) - 4 * steep[r:]
    P = np.abs(np.concatenate([kept, dropped]))
    top = float(P.max(initial=0))
    return np.maximum(P, 1e-9 * top) if top > 0 else np.ones_like(P)


def _newton_direction(
    T: Array, frame: Array, Y: Array, G: Array, g: Array, P: Array, here: Landscape, precision: float
) -> Array:
    """Solve ``-Hess X = g`` by preconditioned conjugate gradients, stopping at a direction of positive curvature.

    ``Hess X`` is the skew part of ``2 sum_i slope_ij T_i x_j + 2 sum_i (f'' dh)_ij T_i a_j``, with
    ``dh_ij = 2 a_j^T T_i x_j``, and of ``-(X G + G X)/2``, which is the second-order term of the exponential.
    """
    (k, q, _), r = T.shape, len(Y)
    mixed = (here.slope @ T.reshape(k, q * q)).reshape(r, q, q) if r <= 4 * k else None
    Gt, Gb = G[:r], G[r:]

    def minus_hessian(X: Array) -> Array:
        lifted = frame @ X
        if mixed is not None:
            moved = np.matmul(mixed, lifted.T[:, :, None])[:, :, 0].T
        else:  # r products would not fit where the k slices do
            turned = (lifted.T @ T.reshape(k * q, q).T).reshape(r, k, q)
            moved = np.matmul(here.slope[:, None, :], turned)[:, 0].T
        change = 2 * np.matmul(Y, X.T[:, :, None])[:, :, 0]
        bent = here.bend * change
        if here.coupling is not None:
            bent = bent + here.coupling(change)
        E = 2 * (frame.T @ moved) + 2 * np.matmul(bent[:, None, :], Y)[:, 0].T
        W, K = X[:r], X[r:]
        E[:r] -= (W @ Gt - K.T @ Gb + Gt @ W) / 2
        E[r:] -= (K @ (Gt + Gt.T) + Gb @ W) / 2
        return -_skew_part(E, r)

    # Kept pairs are held twice: in these units the inner product is the plain one.
    unit = np.concatenate([np.full((r, 1), np.sqrt(0.5)), np.ones((q - r, 1))])
    X = conjugate_gradients(
        lambda v: unit * minus_hessian(v / unit), -unit * g, lambda v: v / P, rtol=precision, max_iter=_CG_STEPS
    )
    return np.asarray(X / unit)


def _cayley(X: Array) -> Array:
    """Return the rotation ``(I - X/2)^-1 (I + X/2)`` of the skew matrix with first columns X: exp to second order."""
    q, r = X.shape
    full = np.zeros((q, q))
    full[:, :r] = X
    full[:r, r:] = -X[r:].T
    return np.asarray(np.linalg.solve(np.eye(q) - full / 2, np.eye(q) + full / 2))
