"""The fitted Gaussian model, ``x ~ N(mean_i, A B_i A^T + noise)``: densities, expected scores, new contexts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.scaling import exponent
from .._solvers.likelihood import Likelihood, fit_contexts, likelihood_of
from .._utils.types import Array

FLOOR = 1e-9  # of the mean variance of a feature, as in the solver


@dataclass(frozen=True)
class GaussianModel:
    """Components ``A`` (p, r), loadings ``B`` (k, r), noise by context (k,) or, if ``diagonal``, by feature (p,).

    Diagonal noise is unit noise in features divided by its standard deviations: ``scale`` (p,) and ``white`` (p, r) are
    those factors and A in such features, and ``s`` (k,) the noise that is left.
    """

    A: Array
    B: Array
    noise: Array
    diagonal: bool

    @property
    def exponent(self) -> int:
        """The power of two of data that this is a model of; 0 unless they are far from 1."""
        largest = max(float(self.B.max(initial=0)), float(self.noise.max(initial=0)))
        return exponent(float(np.sqrt(largest)), np.float64)

    def times_power(self, e: int) -> GaussianModel:
        """Return the model of data times ``2^e``."""
        return GaussianModel(self.A, np.ldexp(self.B, 2 * e), np.ldexp(self.noise, 2 * e), self.diagonal)

    @property
    def scale(self) -> Array | None:
        """Factors that make the noise isotropic, None where it is."""
        return 1 / np.sqrt(self.noise) if self.diagonal else None

    @property
    def white(self) -> Array:
        """Components in features times ``scale``."""
        return self.A if self.scale is None else self.scale[:, None] * self.A

    @property
    def s(self) -> Array:
        """Isotropic noise of each context (k,) in features times ``scale``."""
        return np.ones(len(self.B)) if self.diagonal else self.noise

    def likelihood(self, S: Covariances, n: Array, contexts: Array | None = None) -> Likelihood:
        """Return the model beside covariances ``S``, of the given contexts (indices) or of all in their order."""
        index = np.arange(len(self.B)) if contexts is None else contexts
        return likelihood_of(S, self.white, self.B[index], self.s[index], n, scale=self.scale)

    def log_likelihoods(self, model: Likelihood) -> Array:
        """Mean log-density of a row in each context of ``model`` (k,)."""
        p = len(self.A)
        jacobian = 0.0 if self.scale is None else 2 * float(np.log(self.scale).sum())
        return np.asarray(-(p * np.log(2 * np.pi) + model.deviances - jacobian) / 2)

    def fit_new(self, S: Covariances) -> Likelihood:
        """Fit loadings (and isotropic noise) of new contexts on these components."""
        k, r = S.n_contexts, self.A.shape[1]
        start = likelihood_of(S, self.white, np.zeros((k, r)), np.ones(k), np.ones(k), scale=self.scale)
        s = np.ones(k)
        floor = 0.0
        if not self.diagonal:
            variance = S.variances().sum(axis=1) / len(self.A)
            floor = max(float(variance.max()) * FLOOR, np.finfo(float).tiny)
            s = np.maximum(start.rest / start.outside if start.outside else variance / 2, floor)
        B = np.maximum(np.einsum("kjj->kj", start.R) - s[:, None] * np.diag(start.N), 0)
        start = likelihood_of(S, self.white, B, s, np.ones(k), scale=self.scale)
        return fit_contexts(start, noise_free=not self.diagonal, floor=floor)

    def posterior_projection(self, i: int | None, weights: Array) -> Array:
        """Return ``B_i A^T Sigma_i^-1`` (r, p); ``i`` None takes loadings and noise averaged by ``weights`` (k,)."""
        share = weights / weights.sum()
        b = share @ self.B if i is None else self.B[i]
        s = float(share @ self.s) if i is None else float(self.s[i])
        white = self.white
        # B P W with P = (B + s N)^-1 and W = N A^T; (B + s N)^-1 N = (G B + s)^-1 needs no inverse of G.
        G = white.T @ white
        projection = b[:, None] * np.linalg.solve(G * b + s * np.eye(len(b)), white.T)
        return np.asarray(projection if self.scale is None else projection * self.scale)
