"""The covariances that may stand for that of a context: its own, the pooled, the model's, a multiple of the identity.

Their inner products are all that weights between them are found from, and none needs more than the stack of own
covariances S_i and products with it. With D_i the diagonal noise of the model, m_i the mean variance of context i and P
the pooled covariance:

    <S_i, A B_i A^T + D_i>    = sum_j b_ij a_j^T S_i a_j + sum_f d_if (S_i)_ff        (the same for P)
    ||A B_i A^T + D_i||^2     = b_i^T (A^T A)^2 b_i + 2 sum_jf b_ij A_fj^2 d_if + ||d_i||^2,  the square elementwise
    <., m_i I>                = m_i tr(.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._covariances.array_memory import context_chunks
from .._covariances.stack import CovarianceStack
from .._utils.array_api import to_host
from .._utils.types import Array
from .fitted_model import FittedModel

PARTS = ("own", "pooled", "model", "identity")


@dataclass(frozen=True)
class ModelCovariances:
    """``A diag(b_i) A^T + diag(d_i)`` for components A (p, r), loadings B (k, r) and noise variances D (k, p)."""

    A: Array
    B: Array
    D: Array

    @classmethod
    def of(cls, components: Any, loadings: Any, noise: Any, kind: str | None, e: int = 0) -> ModelCovariances:
        """Take loadings beside ``noise`` as fits publish both, of data that are then multiplied by ``2^-e``."""
        A = to_host(components).astype(np.float64)
        B = np.ldexp(to_host(loadings).astype(np.float64), -2 * e)
        D = np.ldexp(to_host(noise).astype(np.float64), -2 * e)
        # (k,) by context unless "diagonal", (p,), or "scaled", (k, p).
        D = D[:, None] if kind not in ("diagonal", "scaled") else D
        return cls(A, B, np.broadcast_to(D, (len(B), len(A))))

    @classmethod
    def of_fit(cls, model: FittedModel, e: int = 0) -> ModelCovariances:
        """Take loadings and noise of a fitted model; of a fit without noise, those of its noise floor."""
        if model.noise_variance is None:
            raise ValueError(
                "covariances needs the noise, and this model was saved by an older mcpca without it; fit it again."
            )
        return cls.of(model.components, model.compared_loadings(), model.noise_variance, model.noise, e)

    def inner(self, S: CovarianceStack) -> Array:
        """Return the inner product with each of k covariances (k,), or of each context with a single one."""
        return np.asarray(
            np.einsum("kj,kj->k", self.B, np.broadcast_to(S.variances_along(self.A), self.B.shape))
            + np.einsum("kf,kf->k", self.D, np.broadcast_to(S.variances(), self.D.shape))
        )

    def squared_norms(self) -> Array:
        """Return ``||.||_F^2`` (k,)."""
        across = np.einsum("kj,kj->k", self.B, self.D @ self.A**2)
        inside = np.einsum("kj,kj->k", self.B @ (self.A.T @ self.A) ** 2, self.B)
        return np.asarray(inside + 2 * across + (self.D**2).sum(axis=1))

    def traces(self) -> Array:
        """Return the total variance (k,)."""
        return np.asarray(self.B @ (self.A**2).sum(axis=0) + self.D.sum(axis=1))

    def add_to(self, C: Array, weights: Array) -> None:
        """Add ``weights`` (k,) times the covariances to a stack (k, p, p), a few contexts at a time."""
        features = np.arange(len(self.A))
        for part in context_chunks(C):
            w = weights[part, None]
            products = (self.A * (w * self.B[part])[:, None, :]) @ self.A.T
            # A product of two matrices is symmetric up to rounding only.
            C[part] += (products + products.transpose(0, 2, 1)) / 2
            C[part, features, features] += w * self.D[part]

    def stack(self) -> Array:
        """Return all covariances (k, p, p)."""
        k, p = self.D.shape
        C = np.zeros((k, p, p))
        self.add_to(C, np.ones(k))
        return C


@dataclass(frozen=True)
class CovarianceParts:
    """Own covariances (k, p, p), their average by ``freedom`` (k,), and the model's: the ``PARTS`` of a mixture.

    The pooled covariance is taken as it is. Multiplied to have the variance of each context, it gives mixtures that are
    about as close on some real data and farther on others, those with few and noisy variances.
    """

    own: Array
    freedom: Array
    pooled: Array
    model: ModelCovariances

    @classmethod
    def of(cls, own: Array, freedom: Array, model: ModelCovariances) -> CovarianceParts:
        """Pool covariances with these degrees of freedom."""
        return cls(own, freedom, CovarianceStack(own).pooled(freedom / freedom.sum()), model)

    @property
    def shares(self) -> Array:
        """The share that each context has in the pooled covariance (k,)."""
        return np.asarray(self.freedom / self.freedom.sum())

    @property
    def mean_variances(self) -> Array:
        """The mean variance of a feature (k,), by which the identity is multiplied."""
        return np.asarray(CovarianceStack(self.own).traces() / self.own.shape[1])

    def gram(self) -> Array:
        """Return the inner products (k, 4, 4) of the ``PARTS`` of every context. Cost O(k p^2 r), no p x p array."""
        own = CovarianceStack(self.own)
        pooled = CovarianceStack(self.pooled[None])
        k, p, _ = self.own.shape
        means = self.mean_variances
        P = self.pooled.ravel()
        with_pooled = np.concatenate([self.own[c].reshape(-1, p * p) @ P for c in context_chunks(self.own)])
        G = np.empty((k, 4, 4))
        G[:, 0, 0] = own.squared_norms()
        G[:, 0, 1] = with_pooled
        G[:, 0, 2] = self.model.inner(own)
        G[:, 0, 3] = p * means**2
        G[:, 1, 1] = P @ P
        G[:, 1, 2] = self.model.inner(pooled)
        G[:, 1, 3] = means * np.trace(self.pooled)
        G[:, 2, 2] = self.model.squared_norms()
        G[:, 2, 3] = means * self.model.traces()
        G[:, 3, 3] = p * means**2
        upper = np.triu_indices(4, 1)
        G[:, upper[1], upper[0]] = G[:, upper[0], upper[1]]
        return G

    def mixed(self, weights: Array) -> Array:
        """Return the parts times their ``weights`` (k, 4), summed, in place of the own covariances: no second stack."""
        means = self.mean_variances  # before own covariances are overwritten
        C = self.own
        features = np.arange(C.shape[1])
        for part in context_chunks(C):
            w = weights[part, :, None, None].astype(C.dtype)
            mixture = w[:, 0] * C[part] + w[:, 1] * self.pooled.astype(C.dtype)
            # Products behind covariances are symmetric up to rounding only.
            C[part] = (mixture + mixture.transpose(0, 2, 1)) / 2
            C[part, features, features] += (weights[part, 3] * means[part])[:, None]
        self.model.add_to(C, weights[:, 2])
        return C
