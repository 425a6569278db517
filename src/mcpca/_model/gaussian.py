"""The fitted Gaussian model, ``x ~ N(mean_i, A B_i A^T + noise)``: densities, expected scores, new contexts.

A ``FittedModel`` with noise makes one on demand; ``scores`` (expected scores), ``new_contexts`` (loadings and held-out
likelihood), ``_inference`` (standard errors and tests) and ``_rank.criteria`` (held-out likelihood) work on it. The
mathematics in r dimensions is that of ``_solvers.likelihood``; this class brings noise that differs between features to
its isotropic form.
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
    """``Sigma_i = A B_i A^T + s_i diag(psi)``: components ``A`` (p, r), loadings ``B`` (k, r), noise ``s`` (k,).

    ``psi`` (p,) is None if the noise of all features is alike. ``kind`` says which of the noise is unknown:

    =========== ================== ===================================
    kind        s                  psi
    =========== ================== ===================================
    "isotropic" one per context    None
    "pooled"    the same k times   None
    "diagonal"  ones               variance of each feature
    "scaled"    one per context    of mean 1, shared by all contexts
    =========== ================== ===================================

    Dividing every feature by ``sqrt(psi)`` makes its noise isotropic. ``scale`` (p,) holds these factors, ``white``
    (p, r) is A in the scaled features, where s is the noise.
    """

    A: Array
    B: Array
    s: Array
    psi: Array | None = None
    kind: str = "isotropic"

    @classmethod
    def with_noise(cls, A: Array, B: Array, noise: Array, kind: str | None) -> GaussianModel:
        """Take ``noise`` as fits publish it: (k,) by context, (p,) if "diagonal", (k, p) if "scaled".

        ``kind`` None is a noise floor beside loadings that were found without one: isotropic.
        """
        if kind == "diagonal":
            return cls(A, B, np.ones(len(B)), noise, kind)
        if kind == "scaled":
            s = noise.mean(axis=1)
            # The rows are s_i psi, so that any of them would do; their sum rounds least.
            return cls(A, B, s, noise.sum(axis=0) / s.sum(), kind)
        return cls(A, B, noise, None, kind or "isotropic")

    @property
    def noise(self) -> Array:
        """The noise in the form of ``with_noise``."""
        if self.kind == "scaled":
            return self.feature_noise(self.s)
        return self.s if self.psi is None else self.psi

    def feature_noise(self, s: Array) -> Array:
        """Return the noise variances (k, p) of all features in contexts whose noise is ``s`` (k,)."""
        return np.outer(s, np.ones(len(self.A)) if self.psi is None else self.psi)

    @property
    def own_noise(self) -> bool:
        """Whether each context has a noise variance of its own, which is an unknown beside its loadings."""
        return self.kind in ("isotropic", "scaled")

    @property
    def exponent(self) -> int:
        """The power of two that the data of this model are of the order of; 0 unless they are far from 1."""
        # Loadings and noise are variances; the exponent is that of the data, hence the root.
        largest_noise = float(self.s.max(initial=0)) * (1.0 if self.psi is None else float(self.psi.max(initial=0)))
        return exponent(float(np.sqrt(max(float(self.B.max(initial=0)), largest_noise))), np.float64)

    def times_power(self, e: int) -> GaussianModel:
        """Return the model of data times ``2^e``."""
        B = np.ldexp(self.B, 2 * e)
        if self.kind == "diagonal":
            assert self.psi is not None
            return replace(self, B=B, psi=np.ldexp(self.psi, 2 * e))
        return replace(self, B=B, s=np.ldexp(self.s, 2 * e))

    @property
    def scale(self) -> Array | None:
        """Factors (p,) that make the noise isotropic; None if it is isotropic as it stands."""
        return None if self.psi is None else 1 / np.sqrt(self.psi)

    @property
    def white(self) -> Array:
        """Components (p, r) in the scaled features."""
        return self.A if self.scale is None else self.scale[:, None] * self.A

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
        """Fit the loadings of new contexts with these components, and their noise s unless that is "diagonal"."""
        k = S.n_contexts
        p, r = self.A.shape
        s = np.ones(k)
        floor = 0.0
        # The projection of S on the components does not depend on B and s, which are placeholders here.
        projected = likelihood_of(S, self.white, np.zeros((k, r)), s, np.ones(k), scale=self.scale)
        # Diagonal noise is shared by all contexts, so a new one brings no noise variance of its own to fit. Pooled
        # noise is shared, too, but a context that was not among those pooled may well have another.
        noise_free = self.kind != "diagonal"
        if noise_free:
            # tr(A R_i A^T) = tr(R_i G), and what is outside the span of A.
            variance = (np.einsum("kab,ab->k", projected.R, projected.G) + projected.rest) / p
            floor = max(float(variance.max()) * FLOOR, np.finfo(float).tiny)
            # The variance outside the span of A is noise; if A spans everything, half of all variance is a start.
            s = projected.rest / projected.outside if projected.outside else variance / 2
            s = np.maximum(s, floor)
        # E[R_i] = B_i + s_i N, so these are moment estimates of the loadings: a start near the maximum.
        B = np.maximum(np.einsum("kjj->kj", projected.R) - s[:, None] * np.diag(projected.N), 0)
        return fit_contexts(replace(projected, B=B, s=s), noise_free=noise_free, floor=floor)

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
