"""The fitted Gaussian model, ``x ~ N(mean_i, A B_i A^T + noise)``: densities, expected scores, new contexts.

A ``FittedModel`` with noise makes one on demand; ``scores`` (expected scores), ``new_contexts`` (loadings and held-out
likelihood), ``_inference`` (standard errors and tests) and ``_rank.criteria`` (held-out likelihood) work on it. The
mathematics in r dimensions is that of ``_solvers.likelihood``; this class brings diagonal noise to its isotropic form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.scaling import exponent
from .._solvers.likelihood import Likelihood, fit_contexts, likelihood_of
from .._utils.types import Array

# The least noise, as a share of the mean variance of a feature; the solver has the same. With less, a context whose
# covariance is singular could have a likelihood without bound.
FLOOR = 1e-9


@dataclass(frozen=True)
class GaussianModel:
    """Components ``A`` (p, r), loadings ``B`` (k, r), ``noise`` variances (k,), or (p,) by feature if ``diagonal``.

    Dividing every feature by the standard deviation of its diagonal noise makes that noise the identity. ``scale`` (p,)
    holds these factors, ``white`` (p, r) is A in the scaled features, and ``s`` (k,) the isotropic noise there.
    """

    A: Array
    B: Array
    noise: Array
    diagonal: bool

    @property
    def exponent(self) -> int:
        """The power of two that the data of this model are of the order of; 0 unless they are far from 1."""
        # Loadings and noise are variances; the exponent is that of the data, hence the root.
        largest_variance = max(float(self.B.max(initial=0)), float(self.noise.max(initial=0)))
        return exponent(float(np.sqrt(largest_variance)), np.float64)

    def times_power(self, e: int) -> GaussianModel:
        """Return the model of data times ``2^e``."""
        return GaussianModel(self.A, np.ldexp(self.B, 2 * e), np.ldexp(self.noise, 2 * e), self.diagonal)

    @property
    def scale(self) -> Array | None:
        """Factors (p,) that make the noise isotropic; None if it is isotropic as it stands."""
        return 1 / np.sqrt(self.noise) if self.diagonal else None

    @property
    def white(self) -> Array:
        """Components (p, r) in the scaled features."""
        return self.A if self.scale is None else self.scale[:, None] * self.A

    @property
    def s(self) -> Array:
        """Isotropic noise variance of each context (k,) in the scaled features."""
        return np.ones(len(self.B)) if self.diagonal else self.noise

    def likelihood(self, S: Covariances, n: Array, contexts: Array | None = None) -> Likelihood:
        """Return the model together with covariances ``S``, of the ``contexts`` (indices), or of all in their order."""
        # B and s in the order of S, in which a context may be missing, or be in another place.
        index = np.arange(len(self.B)) if contexts is None else contexts
        return likelihood_of(S, self.white, self.B[index], self.s[index], n, scale=self.scale)

    def log_likelihoods(self, model: Likelihood) -> Array:
        """Return the mean log-density of a row in each context of ``model`` (k,)."""
        p = len(self.A)
        # Densities of scaled features are turned into those of the features: dx' = det(diag(scale)) dx.
        jacobian = 0.0 if self.scale is None else 2 * float(np.log(self.scale).sum())
        return np.asarray(-(p * np.log(2 * np.pi) + model.deviances - jacobian) / 2)

    def fit_new(self, S: Covariances) -> Likelihood:
        """Fit the loadings, and isotropic noise, of new contexts with these components."""
        k = S.n_contexts
        p, r = self.A.shape
        s = np.ones(k)
        floor = 0.0
        # The projection of S on the components does not depend on B and s, which are placeholders here.
        projected = likelihood_of(S, self.white, np.zeros((k, r)), s, np.ones(k), scale=self.scale)
        if not self.diagonal:
            variance = S.variances().sum(axis=1) / p
            floor = max(float(variance.max()) * FLOOR, np.finfo(float).tiny)
            # The variance outside the span of A is noise; if A spans everything, half of all variance is a start.
            s = projected.rest / projected.outside if projected.outside else variance / 2
            s = np.maximum(s, floor)
        # E[R_i] = B_i + s_i N, so these are moment estimates of the loadings: a start near the maximum.
        B = np.maximum(np.einsum("kjj->kj", projected.R) - s[:, None] * np.diag(projected.N), 0)
        start = replace(projected, B=B, s=s)
        # Diagonal noise is shared by all contexts, so a new one brings no noise variance of its own to fit.
        return fit_contexts(start, noise_free=not self.diagonal, floor=floor)

    def posterior_projection(self, i: int | None, weights: Array) -> Array:
        """Return ``B_i A^T Sigma_i^-1`` (r, p), which takes a centred row to its expected scores.

        ``i`` None takes loadings and noise averaged by ``weights`` (k,) instead of those of one context.
        """
        share = weights / weights.sum()
        b = share @ self.B if i is None else self.B[i]
        s = float(share @ self.s) if i is None else float(self.s[i])
        white = self.white
        # B A^T Sigma^-1 = B P W with P = (B + s N)^-1, W = N A^T; (B + s N)^-1 N = (G B + s)^-1 needs no inverse of G,
        # which is ill-conditioned where components are nearly parallel.
        G = white.T @ white
        # ``G * b`` is G diag(b), (r, r).
        projection = b[:, None] * np.linalg.solve(G * b + s * np.eye(len(b)), white.T)
        # The rows to come are not scaled, so the scaling becomes part of the matrix.
        return np.asarray(projection if self.scale is None else projection * self.scale)
