"""The likelihood maximised over A, B >= 0 and the noise, in the coordinates of a core: stage 2 of ``ml``.

``likelihood`` has the equations. First by Fisher scoring: the part of A outside its span is solved for exactly; the
rest, r^2 + k (r + 1) unknowns, by conjugate gradients, preconditioned by pairs (as if the precisions of scores were
diagonal) and by contexts (their exact information). If the model holds, that converges in four or five steps. If it has
not converged by then, the exact Hessian (``observed``) takes over, with the same preconditioner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.stack import images
from .._linalg.diagonalise import solve_pairs
from .._linalg.newton import conjugate_gradients
from .._utils.parallel import over_contexts, own_threads
from .._utils.types import Array
from .likelihood import Likelihood, unit_columns
from .observed import ObservedHessian

_SCORING_STEPS = 6  # after which the Hessian takes the place of its mean, the information
# Products in one direction. A product with the information costs O(k r^3), one with the Hessian O(k q^2 r).
_SCORING_CG_STEPS = 30
_NEWTON_CG_STEPS = 60
_CG_RTOL = 0.03  # of the equations: a direction, not a solution, is wanted
# k r^3 above which the information of a context is taken as diagonal in the preconditioner: inverting a block for every
# context would cost more than it saves.
_DIAGONAL_BLOCKS_FROM = 10**8
_BACKTRACKS = 15
_SUFFICIENT_GAIN = 1e-4  # Armijo's share of what the direction promises
_LARGEST_LOG_NOISE_STEP = 2.0  # in one step the noise changes by a factor of e^2 at the most
# What the preconditioner alone promises is right to a few hundredths, so below this share of tol nothing is left to
# gain.
_SURELY_CONVERGED = 0.8
_NEAR_ZERO_LOADING = 0.1  # standard errors


@dataclass(frozen=True)
class ScoringData:
    """Covariances in core coordinates ``T`` (k, q, q), all of their variance ``trace`` (k,), weights ``n`` (k,), p.

    ``floor`` (k,) bounds the noise from below; ``noise`` says which of it is free: "isotropic", "pooled" or "fixed".
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


class Maximum(NamedTuple):
    """Where the climb ended, the decrement left there, and the number of steps.

    The decrement is twice what one more step would gain in log-likelihood, divided by the number of parameters: the
    mean square distance to the maximum in standard errors.
    """

    point: Point
    decrement: float
    n_iter: int


class _Direction(NamedTuple):
    """A step (dA, dB, dlog s) and twice the log-likelihood that it promises."""

    dA: Array
    dB: Array
    dlog_s: Array
    gain: float


def likelihood_at(data: ScoringData, A: Array, B: Array, s: Array) -> Point:
    """Return the model at unit columns with the same ``A B_i A^T``."""
    A, B = unit_columns(A, B)
    q, r = A.shape
    G = A.T @ A
    N = np.linalg.inv(G)
    TA = np.empty((r, len(B), q))
    R = np.empty((len(B), r, r))

    def fill(part: slice) -> None:
        # R_i = W T_i W^T with the pseudoinverse W = N A^T; T_i A is kept, since gradient and Hessian need it again.
        TA[:, part] = images(data.T[part], A)
        R[part] = N @ (TA[:, part] @ A).transpose(1, 0, 2) @ N

    over_contexts(fill, *B.shape)
    # ``trace`` is over all features, so that ``rest`` has the variance outside the core too. Rounding may make it
    # negative.
    rest = np.maximum(data.trace - np.einsum("kab,ab->k", R, G), 0)
    return Point(A, Likelihood(G, B, s, R, rest, data.n, data.p - r), TA)


def maximise_likelihood(data: ScoringData, A: Array, B: Array, s: Array, tol: float, max_iter: int) -> Maximum:
    """Climb from (A, B, s) until the decrement is at most ``tol``.

    Cost O(k q^2 r + k r^3) a step and O(k r^3) for each conjugate-gradient step in it.
    """
    with own_threads(*B.shape):
        return _ascend(data, likelihood_at(data, A, B, s), tol, max_iter)


def _ascend(data: ScoringData, point: Point, tol: float, max_iter: int) -> Maximum:
    parameters = point.A.size + point.model.B.size + len(point.model.s)
    enough = _SURELY_CONVERGED * tol * parameters
    decrement = np.inf
    for step in range(max_iter):
        exact = step >= _SCORING_STEPS
        direction = _direction(data, point, exact, enough)
        if direction is None and exact:
            # The Hessian may be indefinite; the information never is.
            direction = _direction(data, point, False, enough)
        if direction is None:
            return Maximum(point, decrement, step)
        # The gain is -g^T d, and with d = -I^-1 g that is the squared distance to the maximum in the metric of the
        # information: a sum over parameters of squares in standard errors.
        decrement = direction.gain / parameters
        if decrement <= tol:
            return Maximum(point, decrement, step)
        higher = _line_search(data, point, direction)
        if higher is None:  # no gain that this precision can see
            return Maximum(point, decrement, step)
        point = higher
    return Maximum(point, decrement, max_iter)


def _line_search(data: ScoringData, point: Point, direction: _Direction) -> Point | None:
    """Halve the step, bent at the bounds, until the likelihood rises by a share of what was promised; None if never."""
    dA, dB, dlog_s, gain = direction
    limit = _LARGEST_LOG_NOISE_STEP
    # ``value`` is the negative log-likelihood, and ``gain`` minus its slope along the step.
    for t in 0.5 ** np.arange(_BACKTRACKS):
        # The noise moves on its logarithm, which keeps it positive, and by a bounded factor: far from the maximum the
        # quadratic model knows nothing of its scale.
        B = np.maximum(point.model.B + t * dB, 0)
        s = np.maximum(point.model.s * np.exp(np.clip(t * dlog_s, -limit, limit)), data.floor)
        # Columns need not stay of unit length: ``likelihood_at`` gives their scale to B.
        trial = _likelihood_or_none(data, point.A + t * dA, B, s)
        if trial is not None and trial.model.value < point.model.value - _SUFFICIENT_GAIN * t * gain:
            return trial
    return None


def _likelihood_or_none(data: ScoringData, A: Array, B: Array, s: Array) -> Point | None:
    """Return the model, or None if it has no density up to rounding."""
    try:
        point = likelihood_at(data, A, B, s)
        return point if np.isfinite(point.model.value) else None
    except np.linalg.LinAlgError:
        return None


# Directions ---------------------------------------------------------------------------------------------------------


def _direction(data: ScoringData, point: Point, exact: bool, enough: float) -> _Direction | None:
    """Return a direction by Fisher's information or, ``exact``, by the Hessian; None if there is no way up.

    If the preconditioner alone shows that no more than ``enough`` is left to gain, the direction is zero.
    """
    try:
        # It inverts the information, which may be singular for components that coincide.
        metric = _Metric(data, point)
    except np.linalg.LinAlgError:
        return None
    # gX, gb, gs are (r, r), (k, r), (k,); gZ is (q, r).
    gX, gb, gs = metric.gradient
    gZ = outside_gradient(point)
    g = metric.pack(gX, gb, gs)
    leaving_gain = -float(np.vdot(gb, metric.leaving))
    promised = leaving_gain + float(np.vdot(g, metric.precondition(g)))
    promised += float(np.vdot(gZ, gZ @ metric.outside_inverse))
    # This spares the last direction, which would only be solved for to find that it is not needed.
    if 0 < promised <= enough:
        return _Direction(np.zeros_like(point.A), np.zeros_like(gb), np.zeros_like(gs), promised)
    if exact:
        dA, dB, dlog_s, gain = _newton_direction(data, point, metric, g, gZ)
    else:
        dA, dB, dlog_s, gain = _scoring_direction(point, metric, g, gZ)
    gain += leaving_gain
    if not (np.isfinite(gain) and gain > 0):
        return None
    return _Direction(dA, dB + metric.leaving, np.array(dlog_s), gain)


def _scoring_direction(point: Point, metric: _Metric, g: Array, gZ: Array) -> _Direction:
    """Solve ``I d = -g`` with Fisher's information; Z, which is orthogonal to the rest, in closed form."""
    d = conjugate_gradients(
        lambda v: metric.pack(*point.model.information(*metric.unpack(v))),
        g,
        metric.precondition,
        rtol=_CG_RTOL,
        max_iter=_SCORING_CG_STEPS,
    )
    X, dB, dlog_s = metric.unpack(d)
    # The same (r, r) information for each direction outside the span, so that one small inverse serves all.
    dZ = -gZ @ metric.outside_inverse
    gain = -float(np.vdot(g, d)) - float(np.vdot(gZ, dZ))
    return _Direction(point.A @ X + dZ, dB, dlog_s, gain)


def _newton_direction(data: ScoringData, point: Point, metric: _Metric, g: Array, gZ: Array) -> _Direction:
    """Solve ``H d = -g`` with the exact Hessian, in which X and Z are coupled.

    So vectors hold dA (q r) as a whole in place of X (r^2), and the same packed dB and dlog s after it.
    """
    A, model, TA = point
    N = model.N
    r = A.shape[1]
    square = r * r
    # dA is free here to scale columns, too, but the preconditioner returns X_jj = 0, so that no step does.
    hessian = ObservedHessian(data.T, A, model, TA)
    # The gradient by X is A^T times that by A, so A N gX is its part in the span of A.
    full = np.concatenate([(A @ (N @ metric.gradient[0]) + gZ).ravel(), g[square:]])

    def split(v: Array) -> tuple[Array, Array, Array]:
        # ``metric`` knows vectors that begin with X: zeros stand in for it.
        _, dB, dlog_s = metric.unpack(np.concatenate([np.zeros(square), v[A.size :]]))
        return v[: A.size].reshape(A.shape), dB, dlog_s

    def times(v: Array) -> Array:
        dA, dB, dlog_s = hessian(*split(v))
        return np.concatenate([dA.ravel(), metric.pack(np.zeros((r, r)), dB, dlog_s)[square:]])

    def precondition(v: Array) -> Array:
        # Split a gradient by A into its X and Z, solve for each, and put the solutions together again.
        by_A = v[: A.size].reshape(A.shape)
        X = A.T @ by_A
        # X_jj = 0, since the scale of a column belongs to B.
        np.fill_diagonal(X, 0)
        inside = metric.precondition(np.concatenate([X.ravel(), v[A.size :]]))
        outside = (by_A - A @ (N @ (A.T @ by_A))) @ metric.outside_inverse
        return np.concatenate([(A @ inside[:square].reshape(r, r) + outside).ravel(), inside[square:]])

    d = conjugate_gradients(times, full, precondition, rtol=_CG_RTOL, max_iter=_NEWTON_CG_STEPS)
    return _Direction(*split(d), -float(np.vdot(full, d)))


class _Metric:
    """Which unknowns are free, how they are packed in a vector, and the preconditioner.

    A vector holds X (r^2), b (k r) and log s: one entry for every context, or one for all if the noise is pooled.
    """

    def __init__(self, data: ScoringData, point: Point) -> None:
        model = point.model
        self.k, self.r = model.B.shape
        self.pooled = data.noise == "pooled"
        self.gradient = model.gradient()
        _, gb, gs = self.gradient
        # The information of b_ij on its own, and so its standard error.
        loading_information = model.n[:, None] / 2 * np.einsum("kjj->kj", model.P) ** 2
        # Loadings on their way to 0 that are within a tenth of a standard error of it take a step there of their own:
        # bending the joint step at the bound could turn it downhill.
        near_zero = model.B * np.sqrt(loading_information) <= _NEAR_ZERO_LOADING
        self.free = ~near_zero | (gb < 0)
        self.leaving = np.maximum(np.where(self.free | (model.B <= 0), 0, -gb / loading_information), -model.B)
        # Noise at its floor that the gradient pushes further down stays there.
        self.moving = np.full(self.k, data.noise != "fixed")
        if data.noise == "isotropic":
            self.moving = (model.s > data.floor) | (gs < 0)
        self._set_context_inverses(model, loading_information)
        outside = model.outside_information()
        # The ridge is for components without loadings, whose direction the data do not see.
        ridge = 1e-12 * max(float(np.diag(outside).max()), np.finfo(float).tiny)
        self.outside_inverse = np.linalg.inv(outside + ridge * np.eye(self.r))
        self.H, self.K = model.pair_information()

    def _set_context_inverses(self, model: Likelihood, loading_information: Array) -> None:
        """Set ``inverse`` of the information of (b_i, log s_i): blocks (k, r + 1, r + 1), or diagonals (k, r + 1).

        Pooled noise is not an unknown of one context: then b_i alone, and ``noise_information`` (of log s, summed over
        contexts) serves for the noise.
        """
        mask = self.free if self.pooled else np.column_stack([self.free, self.moving])
        if self.k * self.r**3 > _DIAGONAL_BLOCKS_FROM:
            # s^2 tr(P N P N) by the diagonals of P and N alone, which takes no product of matrices.
            scaled = model.s[:, None] * np.einsum("kjj,jj->kj", model.P, model.N)
            of_noise = model.n / 2 * (scaled**2).sum(axis=1) + model.n / 2 * model.outside
            self.noise_information = float(of_noise.sum())
            size = loading_information if self.pooled else np.column_stack([loading_information, of_noise])
            self.inverse = np.where(mask, 1 / np.maximum(size, np.finfo(float).tiny), 0)
        else:
            block = model.context_information()
            self.noise_information = float(block[:, self.r, self.r].sum())
            self.inverse = _inverse_blocks(block[:, : self.r, : self.r] if self.pooled else block, mask)

    def pack(self, X: Array, b: Array, s: Array) -> Array:
        """Put a change (X, b, log s) in a vector, without what is not free."""
        # On what is free the adjoint of ``unpack``, so that products with the information stay symmetric: a pooled log
        # s moves the noise of all contexts alike, and its derivative is the sum of theirs.
        s = np.where(self.moving, s, 0)
        b = np.where(self.free, b, 0)
        return np.concatenate([X.ravel(), b.ravel(), s.sum(keepdims=True) if self.pooled else s])

    def unpack(self, v: Array) -> tuple[Array, Array, Array]:
        """Return (X, b, log s) of a vector."""
        k, r = self.k, self.r
        end = r * r + k * r
        return v[: r * r].reshape(r, r), v[r * r : end].reshape(k, r), np.broadcast_to(v[end:], (k,))

    def precondition(self, v: Array) -> Array:
        """Solve the equations of pairs and of contexts, each as if the others were at rest."""
        X, b, s = self.unpack(v)
        bs = b if self.pooled else np.column_stack([b, s])
        out = self.inverse * bs if self.inverse.ndim == 2 else np.matmul(self.inverse, bs[:, :, None])[:, :, 0]
        # ``unpack`` repeats the pooled entry k times, and ``pack`` adds the k up again.
        by_s = s / (self.k * self.noise_information) if self.pooled else out[:, self.r]
        return self.pack(solve_pairs(self.H, self.K, X), out[:, : self.r], by_s)


def _inverse_blocks(block: Array, mask: Array) -> Array:
    """Invert what is free of the information of every context; the rest gets the identity."""
    size = np.maximum(np.einsum("kjj->kj", block), np.finfo(float).tiny)
    width = np.arange(block.shape[1])

    def invert(part: slice) -> Array:
        free = np.where(mask[part, :, None] & mask[part, None, :], block[part], 0)
        # The ridge keeps two components with proportional columns of P from making a block singular.
        free[:, width, width] = np.where(mask[part], size[part] * (1 + 1e-10), 1)
        return np.asarray(np.linalg.inv(free))

    return np.concatenate(over_contexts(invert, len(block), block.shape[1]))


def outside_gradient(point: Point) -> Array:
    """Return the derivative of L by the part of A outside its span, (q, r)."""
    A, model, TA = point
    k, r = model.B.shape
    # (r, k, q) and (r, k, r) flatten alike, so that the sum over contexts and components is one product.
    weights = score_weights(model).reshape(r, k, r)

    def of_contexts(part: slice) -> Array:
        return np.asarray(TA[:, part].reshape(-1, len(A)).T @ weights[:, part].reshape(-1, r))

    # Y = sum_i n_i/s_i T_i W^T P_i B_i; A N A^T projects on the span of A.
    Y = np.sum(over_contexts(of_contexts, k, r), axis=0)
    return np.asarray(A @ (model.N @ (A.T @ Y)) - Y)


def outside_gradient_in_features(
    S: Covariances, unit: float, scale: Array, A: Array, model: Likelihood
) -> tuple[Array, float]:
    """Return ``outside_gradient`` in all features times ``scale`` (p,), (p, r), and its share of the decrement.

    One pass over the covariances, which are divided by ``unit``. Here A is (p, r), that of the scaled features.
    """
    weights = score_weights(model).reshape(A.shape[1], S.n_contexts, A.shape[1]).transpose(1, 0, 2)
    Y = S.combine(scale[:, None] * A, weights) * (scale[:, None] / unit)
    gradient = A @ (model.N @ (A.T @ Y)) - Y
    information = model.outside_information()
    # A component without loadings has neither information nor gradient: the pseudoinverse leaves it out.
    gain = np.einsum("pj,pj->", gradient, gradient @ np.linalg.pinv(information, hermitian=True))
    return gradient, float(gain) / (A.size + model.B.size + len(model.s))


def score_weights(model: Likelihood) -> Array:
    """Return ``n_i/s_i N P_i B_i`` as (r k, r), contexts second."""
    k, r = model.B.shape
    weights = (model.n / model.s)[:, None] * model.B
    out = np.empty((r, k, r))

    def fill(part: slice) -> None:
        out[:, part] = (model.N @ model.P[part] * weights[part, None, :]).transpose(1, 0, 2)

    over_contexts(fill, k, r)
    return out.reshape(-1, r)
