"""The likelihood raised over A, B >= 0 and the noise, in the coordinates of a core; ``likelihood`` has the equations.

First by Fisher scoring: the part of A outside its span is solved for exactly; the rest, r^2 + k (r + 1) unknowns, goes
by conjugate gradients, preconditioned by pairs (as if the scores' precisions were diagonal) and by contexts (their
exact information). Where the model holds that converges in four or five steps. Where it has not, the exact Hessian
takes over, with the same preconditioner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._covariances.stack import images
from .._linalg.diagonalise import solve_pairs
from .._linalg.newton import conjugate_gradients
from .._utils.parallel import over_contexts, own_threads
from .._utils.types import Array
from .likelihood import Likelihood
from .observed import ObservedHessian

_SCORING_STEPS = 6  # after which the Hessian takes the place of its mean
_CG_STEPS, _NEWTON_CG_STEPS = 30, 60
_LARGE = 10**8  # k r^3 above which contexts are preconditioned by their diagonals
_BACKTRACKS = 15
_NEAR = 0.8


@dataclass(frozen=True)
class ScoringData:
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


def evaluate(data: ScoringData, A: Array, B: Array, s: Array) -> Point:
    """Return the model at unit columns with the same ``A B_i A^T``."""
    norms = np.linalg.norm(A, axis=0)
    A, B = A / norms, B * norms**2
    q, r = A.shape
    G = A.T @ A
    N = np.linalg.inv(G)
    TA, R = np.empty((r, len(B), q)), np.empty((len(B), r, r))

    def fill(part: slice) -> None:
        TA[:, part] = images(data.T[part], A)
        R[part] = N @ (TA[:, part] @ A).transpose(1, 0, 2) @ N

    over_contexts(fill, *B.shape)
    rest = np.maximum(data.trace - np.einsum("kab,ab->k", R, G), 0)
    return Point(A, Likelihood(G, B, s, R, rest, data.n, data.p - r), TA)


def climb(data: ScoringData, A: Array, B: Array, s: Array, tol: float, max_iter: int) -> tuple[Point, float, int]:
    """Fisher scoring from (A, B, s); return the point, the decrement left, and the number of steps.

    The decrement is twice what one more step would gain in log-likelihood, divided by the number of parameters: the
    mean square distance to the maximum in standard errors. Cost O(k q^2 r + k r^3) a step and O(k r^3) for each
    conjugate-gradient step in it.
    """
    with own_threads(*B.shape):
        return _climb(data, evaluate(data, A, B, s), tol, max_iter)


def _climb(data: ScoringData, point: Point, tol: float, max_iter: int) -> tuple[Point, float, int]:
    parameters = point.A.size + point.model.B.size + len(point.model.s)
    decrement = np.inf
    for step in range(max_iter):
        exact = step >= _SCORING_STEPS
        enough = _NEAR * tol * parameters
        direction = _direction(data, point, exact, enough)
        if direction is None and exact:
            direction = _direction(data, point, False, enough)
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


def _try(data: ScoringData, A: Array, B: Array, s: Array) -> Point | None:
    try:
        point = evaluate(data, A, B, s)
        return point if np.isfinite(point.model.value) else None
    except np.linalg.LinAlgError:
        return None


def _direction(data: ScoringData, point: Point, exact: bool, enough: float) -> tuple[Array, Array, Array, float] | None:
    """Return (dA, dB, dlog s) and twice the log-likelihood that it promises; None if there is no way up.

    By Fisher's information or, ``exact``, by the Hessian.
    """
    try:
        metric = _Metric(data, point)
    except np.linalg.LinAlgError:
        return None
    A, model, TA = point
    gX, gb, gs = metric.gradient
    gZ = outside_gradient(point)
    g = metric.pack(gX, gb, gs)
    alone = -float(np.vdot(gb, metric.leaving))
    # What the preconditioner alone promises, right to a few hundredths, shows that there is nothing left to gain.
    gain = alone + float(np.vdot(g, metric.precondition(g))) + float(np.vdot(gZ, gZ @ metric.outside_inverse))
    if 0 < gain <= enough:
        return np.zeros_like(A), np.zeros_like(gb), np.zeros_like(gs), gain
    if exact:
        N, r = model.N, A.shape[1]
        hessian = ObservedHessian(data.T, A, model, TA)
        full = np.concatenate([(A @ (N @ gX) + gZ).ravel(), g[r * r :]])

        def split(v: Array) -> tuple[Array, Array, Array]:
            return v[: A.size].reshape(A.shape), *metric.unpack(np.concatenate([np.zeros(r * r), v[A.size :]]))[1:]

        def times(v: Array) -> Array:
            dA, db, ds = hessian(*split(v))
            return np.concatenate([dA.ravel(), metric.pack(np.zeros((r, r)), db, ds)[r * r :]])

        def precondition(v: Array) -> Array:
            by_A = v[: A.size].reshape(A.shape)
            X = A.T @ by_A
            np.fill_diagonal(X, 0)
            inside = metric.precondition(np.concatenate([X.ravel(), v[A.size :]]))
            outside = (by_A - A @ (N @ (A.T @ by_A))) @ metric.outside_inverse
            return np.concatenate([(A @ inside[: r * r].reshape(r, r) + outside).ravel(), inside[r * r :]])

        d = conjugate_gradients(times, full, precondition, rtol=0.03, max_iter=_NEWTON_CG_STEPS)
        dA, dB, ds = split(d)
        gain = -float(np.vdot(full, d))
    else:
        d = conjugate_gradients(
            lambda v: metric.pack(*model.information(*metric.unpack(v))),
            g,
            metric.precondition,
            rtol=0.03,
            max_iter=_CG_STEPS,
        )
        X, dB, ds = metric.unpack(d)
        dZ = -gZ @ metric.outside_inverse
        dA = A @ X + dZ
        gain = -float(np.vdot(g, d)) - float(np.vdot(gZ, dZ))
    gain += alone
    if not (np.isfinite(gain) and gain > 0):
        return None
    return dA, dB + metric.leaving, np.array(ds), gain


def _inverse_blocks(block: Array, mask: Array) -> Array:
    """Invert what is free of the information of every context."""
    size = np.maximum(np.einsum("kjj->kj", block), np.finfo(float).tiny)
    width = np.arange(block.shape[1])

    def invert(part: slice) -> Array:
        free = np.where(mask[part, :, None] & mask[part, None, :], block[part], 0)
        free[:, width, width] = np.where(mask[part], size[part] * (1 + 1e-10), 1)
        return np.asarray(np.linalg.inv(free))

    return np.concatenate(over_contexts(invert, len(block), block.shape[1]))


class _Metric:
    """Which unknowns are free, how they are packed in a vector, and the preconditioner."""

    def __init__(self, data: ScoringData, point: Point) -> None:
        model = point.model
        self.k, self.r = model.B.shape
        self.shared = data.noise == "pooled"
        self.gradient = model.gradient()
        _, gb, gs = self.gradient
        # Loadings on their way to 0 and within a tenth of a standard error of it go there on their own: bending the
        # joint step at the bound could make it go down.
        own = model.n[:, None] / 2 * np.einsum("kjj->kj", model.P) ** 2
        near = model.B * np.sqrt(own) <= 0.1
        self.free = ~near | (gb < 0)
        self.leaving = np.maximum(np.where(self.free | (model.B <= 0), 0, -gb / own), -model.B)
        self.moving = np.full(self.k, data.noise != "fixed")
        if data.noise == "isotropic":
            self.moving = (model.s > data.floor) | (gs < 0)
        mask = self.free if self.shared else np.column_stack([self.free, self.moving])
        if self.k * self.r**3 > _LARGE:  # inverting a block for every context would cost more than it saves
            own_s = model.n / 2 * ((model.s[:, None] * np.einsum("kjj,jj->kj", model.P, model.N)) ** 2).sum(axis=1)
            own_s = own_s + model.n / 2 * model.outside
            self.common = float(own_s.sum())
            size = own if self.shared else np.column_stack([own, own_s])
            self.inverse = np.where(mask, 1 / np.maximum(size, np.finfo(float).tiny), 0)
        else:
            block = model.context_information()
            self.common = float(block[:, self.r, self.r].sum())
            self.inverse = _inverse_blocks(block[:, : self.r, : self.r] if self.shared else block, mask)
        outside = model.outside_information()
        ridge = 1e-12 * max(float(np.diag(outside).max()), np.finfo(float).tiny)
        self.outside_inverse = np.linalg.inv(outside + ridge * np.eye(self.r))
        self.H, self.K = model.pair_information()

    def pack(self, X: Array, b: Array, s: Array) -> Array:
        """Put a change (X, b, log s) in a vector, without what is not free."""
        s = np.where(self.moving, s, 0)
        return np.concatenate(
            [X.ravel(), np.where(self.free, b, 0).ravel(), s.sum(keepdims=True) if self.shared else s]
        )

    def unpack(self, v: Array) -> tuple[Array, Array, Array]:
        """Return (X, b, log s) of a vector."""
        k, r = self.k, self.r
        end = r * r + k * r
        return v[: r * r].reshape(r, r), v[r * r : end].reshape(k, r), np.broadcast_to(v[end:], (k,))

    def precondition(self, v: Array) -> Array:
        """Solve pairs and contexts, each on their own."""
        X, b, s = self.unpack(v)
        bs = b if self.shared else np.column_stack([b, s])
        out = self.inverse * bs if self.inverse.ndim == 2 else np.matmul(self.inverse, bs[:, :, None])[:, :, 0]
        by_s = s / (self.k * self.common) if self.shared else out[:, self.r]
        return self.pack(solve_pairs(self.H, self.K, X), out[:, : self.r], by_s)


def outside_gradient(point: Point) -> Array:
    """Return the derivative of L by the part of A outside its span, (q, r)."""
    A, model, TA = point
    k, r = model.B.shape
    weights = score_weights(model).reshape(r, k, r)

    def of(part: slice) -> Array:
        return np.asarray(TA[:, part].reshape(-1, len(A)).T @ weights[:, part].reshape(-1, r))

    Y = np.sum(over_contexts(of, k, r), axis=0)
    return np.asarray(A @ (model.N @ (A.T @ Y)) - Y)


def score_weights(model: Likelihood) -> Array:
    """Return ``n_i/s_i N P_i B_i`` as (r k, r), contexts second."""
    k, r = model.B.shape
    weights = (model.n / model.s)[:, None] * model.B
    out = np.empty((r, k, r))

    def fill(part: slice) -> None:
        out[:, part] = (model.N @ model.P[part] * weights[part, None, :]).transpose(1, 0, 2)

    over_contexts(fill, k, r)
    return out.reshape(-1, r)
