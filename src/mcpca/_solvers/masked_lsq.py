"""Least squares where contexts lack features: ``f = sum_i w_i ||S_i - A_(i) B_i A_(i)^T - s_i I_(i)||_F^2``, B, s >= 0.

Only entries that a context has are in its term; ``masked`` has the notation, and the penalty that f has besides.
Without a ``floor`` the noise s_i is 0. With ``E_i = A_(i) B_i A_(i)^T + s_i I_(i) - S_i`` (zero where a feature is
missing) the derivatives are

    A: 4 sum_i w_i E_i A_(i) B_i       b_ij: 2 w_i a_j^T E_i a_j       s_i: 2 w_i tr E_i

and their change along (dA, dB, ds) follows with ``dSigma_i = dA_(i) B_i A_(i)^T + A_(i) B_i dA_(i)^T + A_(i) dB_i
A_(i)^T + ds_i I_(i)``, which replaces E_i, plus 4 sum_i w_i E_i (dA_(i) B_i + A_(i) dB_i) and 4 w_i da_j^T E_i a_j.
Cost of a product O(k p^2 r), memory O(k p (p + r)).

In a complete problem noise raises all loadings alike and hardly turns the axes. Here the part of an axis that a context
sees differs between contexts, and so does what noise adds to its loadings: a floor keeps that out of the axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._linalg.bounded_newton import Evaluated, descend
from .._utils.types import Array
from .masked import Masked, inverses, masked_loadings, unit_length


class _Point:
    """f at A (p, r), B (k, r) and s (k,); x holds all three."""

    def __init__(self, data: Masked, A: Array, B: Array, s: Array, floor: bool) -> None:
        A, B = unit_length(A, B)
        self.data = data
        self.A = A
        self.B = B
        self.s = s
        self.floor = floor
        self.x = np.concatenate([A.ravel(), B.ravel(), s])
        self.rows = data.rows_of(A)
        self.G = self.rows.transpose(0, 2, 1) @ self.rows
        self.E = (self.rows * B[:, None, :]) @ self.rows.transpose(0, 2, 1) - data.S
        diagonal = np.arange(len(A))
        self.E[:, diagonal, diagonal] += s[:, None] * data.mask
        self.EA = self.E @ self.rows
        w = data.weights
        unseen_weights = data.unseen.T @ B  # (p, r)
        unseen_squares = data.unseen @ A**2  # (k, r)
        self.unseen_weights = unseen_weights
        self.value = float(w @ np.einsum("kfg,kfg->k", self.E, self.E)) + data.penalty_of_squares * float(
            np.vdot(B, unseen_squares)
        )
        self.gradient_A = (
            4 * np.einsum("k,kfj,kj->fj", w, self.EA, B) + 2 * data.penalty_of_squares * unseen_weights * A
        )
        gradient_B = 2 * w[:, None] * np.einsum("kfj,kfj->kj", self.rows, self.EA) + data.penalty_of_squares * (
            unseen_squares
        )
        gradient_s = 2 * w * np.einsum("kff->k", self.E) * floor
        self.gradient = np.concatenate([self.gradient_A.ravel(), gradient_B.ravel(), gradient_s])

    def split(self, v: Array) -> tuple[Array, Array, Array]:
        """Return the parts of a vector that belong to A, B and s."""
        p, r = self.A.shape
        k = len(self.B)
        return v[: p * r].reshape(p, r), v[p * r : (p + k) * r].reshape(k, r), v[(p + k) * r :]

    def hessian(self, d: Array) -> Array:
        """Return the exact Hessian times d."""
        data, A, B, rows, G = self.data, self.A, self.B, self.rows, self.G
        dA, dB, ds = self.split(d)
        ds = ds * self.floor
        w = data.weights
        dM = data.rows_of(dA)
        # dSigma_i A_(i), term by term, from r x r products.
        inner = B[:, :, None] * (dM.transpose(0, 2, 1) @ rows) + dB[:, :, None] * G
        dSA = dM @ (B[:, :, None] * G) + rows @ inner + ds[:, None, None] * rows
        EdM = self.E @ dM
        out_A = 4 * np.einsum("k,kfj->fj", w, (dSA + EdM) * B[:, None, :] + self.EA * dB[:, None, :])
        out_B = np.einsum("kfj,kfj->kj", rows, dSA) + 2 * np.einsum("kfj,kfj->kj", dM, self.EA)
        trace = 2 * np.einsum("kfj,kfj,kj->k", dM, rows, B) + np.einsum("kjj,kj->k", G, dB) + ds * data.sizes
        out_A += 2 * data.penalty_of_squares * (self.unseen_weights * dA + (data.unseen.T @ dB) * A)
        out_B = 2 * w[:, None] * out_B + 2 * data.penalty_of_squares * (data.unseen @ (A * dA))
        return np.concatenate([out_A.ravel(), out_B.ravel(), 2 * w * trace * self.floor])

    def preconditioner(self, free: Array) -> Callable[[Array], Array]:
        """Return the inverses of the blocks of alternating least squares: one for each feature and each context."""
        data, B, G, w = self.data, self.B, self.G, self.data.weights
        r = B.shape[1]
        BGB = w[:, None, None] * (B[:, :, None] * G * B[:, None, :])
        by_feature = 4 * np.einsum("kf,kab->fab", data.mask.astype(float), BGB)
        diagonal = np.arange(r)
        by_feature[:, diagonal, diagonal] += 2 * data.penalty_of_squares * self.unseen_weights
        of_features = inverses(by_feature)
        # Loadings and noise of a context together: the identity is one more atom beside the a_j a_j^T.
        atoms = np.zeros((len(B), r + 1, r + 1))
        atoms[:, :r, :r] = G**2
        atoms[:, :r, r] = atoms[:, r, :r] = np.einsum("kjj->kj", G)
        atoms[:, r, r] = data.sizes
        _, free_B, free_s = self.split(free)
        of_contexts = inverses(2 * w[:, None, None] * atoms, np.column_stack([free_B, free_s]))

        def apply(v: Array) -> Array:
            vA, vB, vs = self.split(v)
            A = np.matmul(of_features, vA[:, :, None])[:, :, 0]
            own = np.matmul(of_contexts, np.column_stack([vB, vs])[:, :, None])[:, :, 0]
            return np.concatenate([A.ravel(), own[:, :r].ravel(), own[:, r]])

        return apply

    @property
    def tangent_size(self) -> float:
        """Norm of the gradient by A on the unit spheres, as ``lsq`` reports it."""
        return float(np.linalg.norm(self.gradient_A - self.A * np.einsum("fj,fj->j", self.A, self.gradient_A)))


@dataclass(frozen=True)
class LeastSquares:
    """A (p, r) with unit columns, B (k, r), noise (k,), f, its gradient relative to the data, and steps taken."""

    A: Array
    B: Array
    noise: Array
    value: float
    gradient: float
    n_iter: int


def minimise_squares(data: Masked, A: Array, *, floor: bool, tol: float, max_iter: int) -> LeastSquares:
    """Go down from A (p, r) to where the gradient is ``tol`` of the squared norm of the data."""
    p, r = A.shape
    k = len(data.S)
    scale = float(data.weights @ np.einsum("kfg,kfg->k", data.S, data.S)) or 1.0

    def at(x: Array) -> _Point:
        A = x[: p * r].reshape(p, r)
        # B and s are at their best for A, which never raises f: steps are about A, and the others follow.
        return _Point(data, A, *masked_loadings(data, A, floor=floor), floor)

    def goal(point: Evaluated) -> float:
        # Done by the gradient; a decrement below the rounding of f ends it in any case.
        assert isinstance(point, _Point)
        return np.inf if point.tangent_size <= 0.5 * tol * scale else 1e-15 * scale

    lower = np.zeros((p + k) * r + k)
    lower[: p * r] = -np.inf
    end = descend(at, np.concatenate([A.ravel(), np.zeros(k * (r + 1))]), lower, goal, max_iter)
    point = end.point
    assert isinstance(point, _Point)
    return LeastSquares(point.A, point.B, point.s, point.value, point.tangent_size / scale, end.n_iter)
