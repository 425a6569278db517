"""Maximum likelihood where contexts lack features: each context has the Gaussian density of the features that it has.

With ``Sigma_i = A_(i) B_i A_(i)^T + diag(d_i)`` on the features of context i (``masked`` has the notation), and zeros
for all others in ``C_i = Sigma_i^-1``, the negative log-likelihood is

    L = sum_i n_i/2 (log det Sigma_i + tr C_i S_i),      Q_i = C_i - C_i S_i C_i,
    A: sum_i n_i Q_i A_(i) B_i     b_ij: n_i/2 a_j^T Q_i a_j     log d_if: n_i/2 d_if (Q_i)_ff.

Along a change ``dSigma_i`` of the model ``dQ_i = C_i dSigma_i C_i - C_i dSigma_i Q_i - Q_i dSigma_i C_i``; the first
term alone, with Q_i = 0 elsewhere, is Fisher's information, which is never indefinite and serves the first steps.
Woodbury's identity gives C_i from r x r inverses: ``C = D^-1 - U K^-1 U^T``, ``U = D^-1 A_(i) B^(1/2)``, ``K = I +
B^(1/2) A_(i)^T D^-1 A_(i) B^(1/2)``, for loadings of zero, too.

The noise d_if is ``s_i`` ("isotropic"), ``s`` ("pooled"), ``psi_f`` ("diagonal") or ``s_i psi_f`` ("scaled"): its
logarithm is linear in the parameters, which ``_Noise`` expands and sums. Cost O(k p^2 r) a product, memory O(k p^2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._linalg.bounded_newton import descend
from .._utils.types import Array
from .masked import Masked, inverses, unit_length

_FISHER_STEPS = 6  # steps with Fisher's information, before the Hessian itself


class _Noise(NamedTuple):
    """How the logarithms of noise variances (k, p) follow from their parameters, and gradients the other way."""

    kind: str
    k: int
    p: int

    @property
    def size(self) -> int:
        return {"isotropic": self.k, "pooled": 1, "diagonal": self.p, "scaled": self.k + self.p}[self.kind]

    def expand(self, t: Array) -> Array:
        """Return log d (k, p), or a change of it, of the parameters t."""
        if self.kind == "diagonal":
            return np.broadcast_to(t, (self.k, self.p))
        if self.kind == "scaled":
            return np.asarray(t[: self.k, None] + t[self.k :])
        return np.broadcast_to(t[:, None], (self.k, self.p))

    def reduce(self, g: Array) -> Array:
        """Return the sums over contexts and features (k, p) that belong to the parameters: the adjoint of expand."""
        if self.kind == "pooled":
            return np.array([g.sum()])
        if self.kind == "diagonal":
            return np.asarray(g.sum(axis=0))
        if self.kind == "scaled":
            return np.concatenate([g.sum(axis=1), g.sum(axis=0)])
        return np.asarray(g.sum(axis=1))

    def parameters(self, d: Array, mask: Array) -> Array:
        """Return the parameters nearest to noise variances d (k, p) of the observed features."""
        log_d = np.where(mask, np.log(d), 0)
        weights = mask.astype(float)
        overall = log_d.sum() / weights.sum()
        of_contexts = log_d.sum(axis=1) / weights.sum(axis=1)
        of_features = log_d.sum(axis=0) / weights.sum(axis=0)
        if self.kind == "pooled":
            return np.array([overall])
        if self.kind == "diagonal":
            return np.asarray(of_features)
        if self.kind == "scaled":
            return np.concatenate([of_contexts, of_features - overall])
        return np.asarray(of_contexts)

    def published(self, t: Array) -> Array:
        """Return the noise as fits publish it: (k,) by context, (p,) if diagonal, (k, p) if scaled."""
        if self.kind == "diagonal":
            return np.exp(t)
        if self.kind == "scaled":
            return np.exp(self.expand(t))
        return np.asarray(np.exp(np.broadcast_to(t, (self.k,))))


class _Point:
    """L at A (p, r), B (k, r) and noise parameters t; x holds all three."""

    def __init__(self, data: Masked, noise: _Noise, A: Array, B: Array, t: Array, exact: bool) -> None:
        A, B = unit_length(A, B)
        self.data = data
        self.noise = noise
        self.A = A
        self.B = B
        self.t = t
        self.exact = exact
        self.x = np.concatenate([A.ravel(), B.ravel(), t])
        n = data.weights
        self.D = np.exp(noise.expand(t))
        inverse = np.where(data.mask, 1 / self.D, 0)
        self.rows = data.rows_of(A)
        root = np.sqrt(B)[:, None, :]
        U = inverse[:, :, None] * self.rows * root
        K = np.eye(A.shape[1]) + (self.rows * root).transpose(0, 2, 1) @ U
        UK = U @ np.linalg.inv(K)
        self.C = -UK @ U.transpose(0, 2, 1)
        diagonal = np.arange(len(A))
        self.C[:, diagonal, diagonal] += inverse
        logdet = np.where(data.mask, np.log(self.D), 0).sum(axis=1) + np.linalg.slogdet(K)[1]
        fit = np.einsum("kfg,kfg->k", self.C, data.S)
        self.unseen_weights = data.unseen.T @ B  # (p, r)
        unseen_squares = data.unseen @ A**2  # (k, r)
        penalty = data.penalty_of_likelihood
        self.value = float(n @ (logdet + fit)) / 2 + penalty * float(np.vdot(B, unseen_squares))
        # C S C by Woodbury: C X = X / D - U K^-1 (U^T X).
        CS = inverse[:, :, None] * data.S - UK @ (U.transpose(0, 2, 1) @ data.S)
        self.Q = self.C - (CS * inverse[:, None, :] - (CS @ UK) @ U.transpose(0, 2, 1))
        self.F = self.C @ self.rows
        self.H = self.Q @ self.rows
        self.Q_diagonal = np.einsum("kff->kf", self.Q)
        self.P = self.rows.transpose(0, 2, 1) @ self.F
        gradient_A = np.einsum("k,kfj,kj->fj", n, self.H, B) + 2 * penalty * self.unseen_weights * A
        gradient_B = n[:, None] / 2 * np.einsum("kfj,kfj->kj", self.rows, self.H) + penalty * unseen_squares
        gradient_t = noise.reduce(n[:, None] / 2 * self.D * self.Q_diagonal)
        self.gradient = np.concatenate([gradient_A.ravel(), gradient_B.ravel(), gradient_t])

    def split(self, v: Array) -> tuple[Array, Array, Array]:
        """Return the parts of a vector that belong to A, B and the noise."""
        p, r = self.A.shape
        k = len(self.B)
        return v[: p * r].reshape(p, r), v[p * r : (p + k) * r].reshape(k, r), v[(p + k) * r :]

    def hessian(self, d: Array) -> Array:
        """Return the Hessian, or Fisher's information, times d."""
        data, B, rows, C, F, n = self.data, self.B, self.rows, self.C, self.F, self.data.weights
        dA, dB, dt = self.split(d)
        dM = data.rows_of(dA)
        dlog = np.where(data.mask, self.noise.expand(dt), 0)
        dD = self.D * dlog
        CdM = C @ dM
        dSF = self._change(F, self.P, dM, dB, dD)
        # Under Fisher's information Q is 0, its mean.
        dQ_rows = C @ dSF
        dQ_diagonal = np.einsum("kfj,kfj->kf", 2 * CdM * B[:, None, :] + F * dB[:, None, :], F)
        dQ_diagonal += np.einsum("kfg,kg->kf", C**2, dD)
        out_A = dQ_rows * B[:, None, :]
        out_B = np.einsum("kfj,kfj->kj", rows, dQ_rows)
        out_D = self.D * dQ_diagonal
        if self.exact:
            Q, H = self.Q, self.H
            dSH = self._change(H, rows.transpose(0, 2, 1) @ H, dM, dB, dD)
            QdM = Q @ dM
            more = -(C @ dSH) - Q @ dSF
            out_A += (more + QdM) * B[:, None, :] + H * dB[:, None, :]
            out_B += np.einsum("kfj,kfj->kj", rows, more) + 2 * np.einsum("kfj,kfj->kj", dM, H)
            cross = np.einsum("kfj,kfj->kf", CdM * B[:, None, :] + F * dB[:, None, :], H)
            cross += np.einsum("kfj,kfj->kf", F * B[:, None, :], QdM)
            cross += np.einsum("kfg,kg->kf", C * Q, dD)
            out_D += -2 * self.D * cross + self.Q_diagonal * dD
        penalty = 2 * data.penalty_of_likelihood
        by_A = np.einsum("k,kfj->fj", n, out_A)
        by_A += penalty * (self.unseen_weights * dA + (data.unseen.T @ dB) * self.A)
        by_B = n[:, None] / 2 * out_B + penalty * (data.unseen @ (self.A * dA))
        return np.concatenate([by_A.ravel(), by_B.ravel(), self.noise.reduce(n[:, None] / 2 * out_D)])

    def _change(self, X: Array, inner: Array, dM: Array, dB: Array, dD: Array) -> Array:
        """Return ``dSigma_i X_i`` (k, p, r), ``inner`` being ``A_(i)^T X_i``."""
        B = self.B
        return np.asarray(
            dM @ (B[:, :, None] * inner)
            + self.rows @ (B[:, :, None] * (dM.transpose(0, 2, 1) @ X) + dB[:, :, None] * inner)
            + dD[:, :, None] * X
        )

    def preconditioner(self, free: Array) -> Callable[[Array], Array]:
        """Return the inverses of diagonal blocks of the information: by feature, by context, and noise alone."""
        n = self.data.weights
        B, P = self.B, self.P
        BPB = n[:, None, None] * (B[:, :, None] * P * B[:, None, :])
        C_diagonal = np.einsum("kff->kf", self.C)
        by_feature = np.einsum("kf,kab->fab", C_diagonal, BPB)
        diagonal = np.arange(B.shape[1])
        by_feature[:, diagonal, diagonal] += 2 * self.data.penalty_of_likelihood * self.unseen_weights
        of_features = inverses(by_feature)
        of_contexts = inverses(n[:, None, None] / 2 * P**2, self.split(free)[1])
        of_noise = self.noise.reduce(n[:, None] / 2 * (self.D * C_diagonal) ** 2)
        of_noise = np.where(of_noise > 0, of_noise, 1)

        def apply(v: Array) -> Array:
            vA, vB, vt = self.split(v)
            A = np.matmul(of_features, vA[:, :, None])[:, :, 0]
            B = np.matmul(of_contexts, vB[:, :, None])[:, :, 0]
            return np.concatenate([A.ravel(), B.ravel(), vt / of_noise])

        return apply


class Maximum(NamedTuple):
    """The answer: A (p, r), B (k, r), noise as published, -log-likelihood, decrement per parameter, steps taken.

    ``variances`` (k, p) is the noise of all features in all contexts.
    """

    A: Array
    B: Array
    noise: Array
    variances: Array
    value: float
    decrement: float
    n_iter: int


def maximise_masked(
    data: Masked, A: Array, B: Array, variances: Array, floor: Array, kind: str, goal: float, max_iter: int
) -> Maximum:
    """Climb from A (p, r), B (k, r) and noise ``variances`` (k, p), which stay above ``floor`` (k,).

    Ends where the Newton decrement per parameter, a squared distance in standard errors, is at most ``goal``.
    """
    k, p = data.mask.shape
    noise = _Noise(kind, k, p)
    t = noise.parameters(np.maximum(variances, floor[:, None]), data.mask)
    x = np.concatenate([A.ravel(), B.ravel(), t])
    lower = np.full(x.shape, -np.inf)
    lower[A.size : A.size + B.size] = 0
    log_floor = np.log(floor)
    if kind == "isotropic":
        lower[A.size + B.size :] = log_floor
    elif kind in ("pooled", "diagonal"):
        lower[A.size + B.size :] = log_floor.min()
    # Scales of columns, and of scaled noise, are no parameters of the model.
    n_parameters = x.size - A.shape[1] - (kind == "scaled")
    steps = 0

    def start(x: Array, exact: bool) -> Callable[[Array], _Point]:
        def at(x: Array) -> _Point:
            A = x[: p * r].reshape(p, r)
            B = x[p * r : (p + k) * r].reshape(k, r)
            return _Point(data, noise, A, B, x[(p + k) * r :], exact)

        return at

    r = A.shape[1]
    point = None
    for exact, most in ((False, min(_FISHER_STEPS, max_iter)), (True, max_iter)):
        end = descend(start(x, exact), x, lower, lambda _: goal * n_parameters, most)
        point = end.point
        x = point.x
        steps += end.n_iter
    assert isinstance(point, _Point)
    return Maximum(
        point.A, point.B, noise.published(point.t), point.D, point.value, end.decrement / n_parameters, steps
    )
