"""Fisher scoring for A, B >= 0 and the noise in the coordinates of a core; ``likelihood`` has the equations.

The part of A outside its span is solved for exactly. The rest, r^2 + k (r + 1) unknowns, goes by conjugate gradients,
preconditioned by pairs (as if the scores' precisions were diagonal) and by contexts (their exact information).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._check import Array
from ..likelihood import Likelihood
from ..subspace import images
from ._diagonalise import solve_pairs
from ._newton import conjugate_gradients

_CG_STEPS = 30
_BACKTRACKS = 15


@dataclass(frozen=True)
class Data:
    """Covariances in core coordinates ``T`` (k, q, q), all of their variance ``trace`` (k,), weights ``n`` (k,), p.

    ``floor`` (k,) bounds the noise from below; ``noise`` says which of it is free.
    """

    T: Array
    trace: Array
    n: Array
    p: int
    floor: Array
    noise: str


class Point(NamedTuple):
    """A (q, r) in core coordinates, the model there, and ``T_i a_j`` (r, k, q)."""

    A: Array
    model: Likelihood
    TA: Array


def evaluate(data: Data, A: Array, B: Array, s: Array) -> Point:
    """Return the model at unit columns with the same ``A B_i A^T``."""
    norms = np.linalg.norm(A, axis=0)
    A, B = A / norms, B * norms**2
    r = A.shape[1]
    TA = images(data.T, A)
    cross = (TA.reshape(-1, TA.shape[2]) @ A).reshape(r, -1, r)
    G = A.T @ A
    N = np.linalg.inv(G)
    R = (N @ cross.reshape(r, -1)).reshape(-1, r) @ N
    R = np.ascontiguousarray(R.reshape(cross.shape).transpose(1, 0, 2))
    rest = np.maximum(data.trace - np.einsum("kab,ab->k", R, G), 0)
    return Point(A, Likelihood(G, B, s, R, rest, data.n, data.p - r), TA)


def climb(data: Data, A: Array, B: Array, s: Array, tol: float, max_iter: int) -> tuple[Point, float, int]:
    """Fisher scoring from (A, B, s); return the point, the decrement left, and the number of steps.

    The decrement is twice what one more step would gain in log-likelihood, divided by the number of parameters: the
    mean square distance to the maximum in standard errors. Cost O(k q^2 r + k r^3) a step and O(k r^3) for each
    conjugate-gradient step in it.
    """
    point = evaluate(data, A, B, s)
    parameters = A.size + B.size + len(s)
    decrement = np.inf
    for step in range(max_iter):
        direction = _scoring_direction(data, point)
        if direction is None:
            return point, decrement, step
        dA, dB, ds, gain = direction
        decrement = gain / parameters
        if decrement <= tol:
            return point, decrement, step
        trial = None
        for t in 0.5 ** np.arange(_BACKTRACKS):
            B = np.maximum(point.model.B + t * dB, 0)
            s = np.maximum(point.model.s * np.exp(np.clip(t * ds, -2, 2)), data.floor)
            trial = _try(data, point.A + t * dA, B, s)
            if trial is not None and trial.model.value < point.model.value - 1e-4 * t * gain:
                break
            trial = None
        if trial is None:  # no gain that this precision can see
            return point, decrement, step
        point = trial
    return point, decrement, max_iter


def _try(data: Data, A: Array, B: Array, s: Array) -> Point | None:
    try:
        point = evaluate(data, A, B, s)
        return point if np.isfinite(point.model.value) else None
    except np.linalg.LinAlgError:
        return None


def _scoring_direction(data: Data, point: Point) -> tuple[Array, Array, Array, float] | None:
    """Return (dA, dB, dlog s) and how much log-likelihood it promises, twice over; None if there is no way up."""
    A, model, _ = point
    (k, r), q = model.B.shape, len(A)
    shared, fixed = data.noise == "pooled", data.noise == "fixed"
    gX, gb, gs = model.gradient()
    # Loadings on their way to 0 and within a tenth of a standard error of it go there on their own: bending the joint
    # step at the bound could make it go down.
    own = model.n[:, None] / 2 * np.einsum("kjj->kj", model.P) ** 2
    free = (0.1 / np.sqrt(own) < model.B) | (gb < 0)
    moving = np.full(k, not fixed)
    if data.noise == "isotropic":
        moving = (model.s > data.floor) | (gs < 0)
    m = 1 if shared else k

    def pack(X: Array, b: Array, s: Array) -> Array:
        s = np.where(moving, s, 0)
        return np.concatenate([X.ravel(), np.where(free, b, 0).ravel(), s.sum(keepdims=True) if shared else s])

    def unpack(v: Array) -> tuple[Array, Array, Array]:
        return v[: r * r].reshape(r, r), v[r * r : -m].reshape(k, r), np.broadcast_to(v[-m:], (k,))

    try:
        block = model.context_information()
        if shared:
            common = float(block[:, r, r].sum())
            block = block[:, :r, :r]
        mask = free if shared else np.column_stack([free, moving])
        size = np.maximum(np.einsum("kjj->kj", block), np.finfo(float).tiny)
        block = np.where(mask[:, :, None] & mask[:, None, :], block, 0)
        width = np.arange(block.shape[1])
        block[:, width, width] = np.where(mask, size * (1 + 1e-10), 1)
        inverse = np.linalg.inv(block)
        outside = model.outside_information()
        outside_inverse = np.linalg.inv(outside + 1e-12 * max(float(np.diag(outside).max()), 1e-300) * np.eye(r))
    except np.linalg.LinAlgError:
        return None
    H, K = model.pair_information()

    def precondition(v: Array) -> Array:
        X, b, s = unpack(v)
        EX = solve_pairs(H, K, X)
        bs = b if shared else np.column_stack([b, s])
        out = np.matmul(inverse, bs[:, :, None])[:, :, 0]
        return pack(EX, out[:, :r], s / (k * common) if shared else out[:, r])

    def information(v: Array) -> Array:
        return pack(*model.information(*unpack(v)))

    g = pack(gX, gb, gs)
    d = conjugate_gradients(information, g, precondition, rtol=0.03, max_iter=_CG_STEPS)
    X, dB, ds = unpack(d)
    alone = np.where(free | (model.B <= 0), 0, -gb / own)
    dB = dB + np.maximum(alone, -model.B)
    gain = -float(np.vdot(g, d)) - float(np.vdot(gb, np.maximum(alone, -model.B)))
    dA = A @ X
    if q > r:
        gZ = outside_gradient(point)
        dZ = -gZ @ outside_inverse
        gain -= float(np.vdot(gZ, dZ))
        dA = dA + dZ
    if not (np.isfinite(gain) and gain > 0):
        return None
    return dA, dB, np.array(ds), gain


def outside_gradient(point: Point) -> Array:
    """Return the derivative of L by the part of A outside its span, (q, r)."""
    A, model, TA = point
    Y = TA.reshape(-1, TA.shape[2]).T @ score_weights(model)
    return np.asarray(A @ (model.N @ (A.T @ Y)) - Y)


def score_weights(model: Likelihood) -> Array:
    """Return ``n_i/s_i N P_i B_i`` as (r k, r), contexts second."""
    F = model.N @ model.P * ((model.n / model.s)[:, None] * model.B)[:, None, :]
    return np.ascontiguousarray(F.transpose(1, 0, 2)).reshape(-1, F.shape[2])
