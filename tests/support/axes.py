"""Orthonormal axes for tests: how to draw them, covariances around them, and whether two sets are the same."""

import numpy as np


def orthonormal(rng, q, r):
    """Return random orthonormal columns (q, r)."""
    return np.linalg.qr(rng.standard_normal((q, r)))[0]


def noisy_covariances(rng, k, q, n):
    """Return covariances (k, q, q) of n rows each, with nothing in common."""
    X = rng.standard_normal((k, q, n)) * rng.uniform(0.3, 2, (k, q, 1))
    return X @ X.transpose(0, 2, 1) / n


def axes_apart(A, reference):
    """Match columns up to order and sign; return the largest difference between matched entries."""
    best = np.abs(reference.T @ A)
    match = best.argmax(axis=1)
    assert len(set(match)) == reference.shape[1]
    M = A[:, match] * np.sign((A[:, match] * reference).sum(axis=0))
    return np.abs(M - reference).max()
