"""In which units is noise alike in all features and contexts? The scales by which the noise test divides.

A feature has variance of its own beside what it shares with others. With ``S`` the pooled covariance,

    unique variance of feature j = 1 / (S^-1)_jj,

what is left of the feature once all others have predicted it (Guttman, 1956): in a factor model nearly the variance of
its noise, while its whole variance holds that of the factors as well. Divided by these, features have noise of one
size. Near p rows the inverse is mostly chance, so correlations R are shrunk first, ``(1 - a) R + a I`` with
``a = min(1, (p / f)^2)`` for f degrees of freedom; directions in which the data do not vary at all are left out.

By the same inverse ``tr(S^-1 S_i) / p`` tells how large the noise of context i is, before anything is known of axes:
each of p directions counts the same, by its variance in the context over that in all, and most of them are noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._utils.types import Array

RESOLUTION = 1e-13  # of the largest squared variance, below which it is rounding; variances, the roots, go to 3e-7


@dataclass(frozen=True)
class NoiseScale:
    """What the covariances are divided by.

    Attributes
    ----------
    features : ndarray (p,)
        Standard deviations that features are divided by; 1 for one that does not vary.
    contexts : ndarray (k,)
        Variances of contexts in that unit, 0 for one that does not vary.
    data_rank : int
        Directions in which the data vary at all.
    """

    features: Array
    contexts: Array
    data_rank: int


def noise_scale(S: Array, freedom: Array, *, equal_features: bool) -> NoiseScale:
    """Return the scales of covariances ``S`` (k, p, p) with ``freedom`` (k,); cost O(k p^2 + p^3).

    With ``equal_features`` these are left as they are: principal components have no noise of their own to divide by.
    """
    p = S.shape[1]
    sizes = np.einsum("kpp->k", S).astype(np.float64) / p
    varying = sizes > 0
    if not varying.any():
        return NoiseScale(np.ones(p), sizes, 0)
    # Contexts at a common size: one with large numbers would be all that the others are judged by.
    weights = np.where(varying, freedom / np.where(varying, sizes, 1), 0) / freedom[varying].sum()
    pooled = pooled_covariance(S, weights)
    sd = np.sqrt(np.maximum(np.diag(pooled), 0))
    constant = sd <= np.sqrt(RESOLUTION) * sd.max()
    sd = np.where(constant, 1, sd)
    R = pooled / sd[:, None] / sd
    f = float(freedom[varying].sum())
    data_rank = _rank(R, f)
    if equal_features:
        return NoiseScale(np.ones(p), sizes, data_rank)
    a = min(1.0, (p / max(f, 1.0)) ** 2)
    if data_rank == p or a == 1:
        inverse = np.linalg.inv((1 - a) * R + a * np.eye(p))
    else:
        # In the directions that vary, or what is left of a feature that others determine would be 0.
        values, vectors = np.linalg.eigh(R)
        vectors = vectors[:, -data_rank:]
        inverse = (vectors / ((1 - a) * values[-data_rank:] + a)) @ vectors.T
    unique = 1 / np.maximum(np.diag(inverse), np.finfo(float).tiny)
    features = np.where(constant, 1, sd * np.sqrt(np.minimum(unique, p)))
    inverse = inverse / sd[:, None] / sd
    contexts = np.tensordot(S, inverse.astype(S.dtype, copy=False), axes=2).astype(np.float64) / p
    return NoiseScale(features, np.where(varying, np.maximum(contexts, 1e-3 * sizes), 0), data_rank)


def whole_scale(S: Array, freedom: Array, scale: NoiseScale) -> NoiseScale:
    """Return scales by whole standard deviations of features, in all contexts together, and sizes of contexts then."""
    sizes = np.einsum("kpp->k", S).astype(np.float64) / S.shape[1]
    varying = sizes > 0
    weights = np.where(varying, freedom / np.where(varying, sizes, 1), 0)
    variances = weights @ np.einsum("kpp->kp", S).astype(np.float64) / weights[varying].sum()
    features = np.where(variances > RESOLUTION * variances.max(), np.sqrt(variances), 1)
    contexts = np.einsum("kpp->kp", S).astype(np.float64) @ features**-2.0 / S.shape[1]
    return NoiseScale(features, np.where(varying, contexts, 0), scale.data_rank)


def drawn_together(features: Array, varying: Array, f: float) -> Array:
    """Return scales ``features`` (p,), those of ``varying`` ones without the differences that chance has made.

    By chance alone the logarithms of variances have the variance ``c = 2 / f`` or so. They are drawn together about
    their mean by ``1 - (p - 3) / (p - 1) c / their variance`` (James and Stein), or made equal if that is negative:
    features whose noise is alike are then divided by one number, and not by what chance makes of it, which would take
    away from axes.
    """
    logs = 2 * np.log(features[varying])
    if len(logs) < 4:
        return features
    deviations = logs - logs.mean()
    # Simulated variances are 1 to 1.25 times 2 / f, also where p is near f or above.
    chance = (len(logs) - 3) * 2 / max(f - len(features), 0.8 * f)
    kept = max(0.0, 1 - chance / max(float(deviations @ deviations), np.finfo(float).tiny))
    together = features.copy()
    together[varying] = np.exp((logs.mean() + kept * deviations) / 2)
    return together


def pooled_covariance(S: Array, weights: Array) -> Array:
    """Return ``sum_i weights_i S_i`` (p, p) in float64."""
    k, p, _ = S.shape
    # In the precision of S, as a copy of the stack in another would double it.
    total = weights.astype(S.dtype) @ S.reshape(k, p * p)
    return np.asarray(total.reshape(p, p).astype(np.float64))


def _rank(R: Array, f: float) -> int:
    """Return in how many directions correlations ``R`` of ``f`` degrees of freedom are not 0."""
    limit = np.sqrt(RESOLUTION)
    if f >= len(R):
        try:
            # Pivots of the factor are what each feature has beside those before it.
            pivots = np.diag(np.linalg.cholesky(R)) ** 2
        except np.linalg.LinAlgError:
            pivots = np.zeros(1)
        if pivots.min() > 100 * limit:
            return len(R)
    values = np.linalg.eigvalsh(R)
    return int((values > limit * values[-1]).sum())
