"""Contexts of two groups that differ in their noise and in nothing else."""

import warnings

import numpy as np

from mcpca import MCPCA
from mcpca.exceptions import UnequalNoiseWarning

SDS = (0.3, 0.9)  # of the noise


def two_groups(k=12, p=20, means=(0.6, 0.4, 0.3), n=200, seed=0):
    """Return rows, labels, loadings (k, r), the same ones in both groups, and axes; the first half has little noise."""
    rng = np.random.default_rng(seed)
    r = len(means)
    A = np.linalg.qr(rng.standard_normal((p, r)))[0]
    half = rng.gamma(4.0, np.array(means) / 4, size=(k // 2, r))
    B = np.concatenate([half, half])
    sds = np.repeat(SDS, k // 2)
    rows = []
    for i in range(k):
        X = (rng.standard_normal((n, r)) * np.sqrt(B[i])) @ A.T + sds[i] * rng.standard_normal((n, p))
        rows.append(X)
    labels = np.repeat([f"{'quiet' if i < k // 2 else 'noisy'} {i % (k // 2)}" for i in range(k)], n)
    return np.concatenate(rows), labels, B, A


def fitted_to(X, labels, r=3, **parameters):
    """Fit without the warning about noise, which is planted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnequalNoiseWarning)
        return MCPCA(r, random_state=0, **parameters).fit(X, labels)
