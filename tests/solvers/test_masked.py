"""Objectives of contexts that lack features: values, derivatives and preconditioners against slow twins."""

from __future__ import annotations

import numpy as np
import pytest

from mcpca._solvers import masked_lsq, masked_ml
from mcpca._solvers.masked import Masked, inverses, masked_loadings
from mcpca._solvers.masked_start import expected

K, P, R = 4, 7, 2


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def data(rng):
    mask = rng.random((K, P)) < 0.7
    mask[:, :3] = True
    X = rng.standard_normal((K, 50, P))
    S = np.einsum("knf,kng->kfg", X, X) / 50 * (mask[:, :, None] & mask[:, None, :])
    return Masked(S, mask, rng.random(K) + 0.5, 20.0)


def point_of(data, rng, kind):
    """Return a function from x to a point, and an x with positive loadings and noise."""
    A = rng.standard_normal((P, R))
    A /= np.linalg.norm(A, axis=0)
    B = rng.random((K, R)) + 0.1
    size = P * R
    if kind == "lsq":

        def at(x):
            return masked_lsq._Point(
                data, x[:size].reshape(P, R), x[size : size + K * R].reshape(K, R), x[size + K * R :], True
            )

        return at, np.concatenate([A.ravel(), B.ravel(), rng.random(K)])
    noise = masked_ml._Noise(kind, K, P)

    def at(x):
        parts = x[:size].reshape(P, R), x[size : size + K * R].reshape(K, R), x[size + K * R :]
        return masked_ml._Point(data, noise, *parts, True)

    return at, np.concatenate([A.ravel(), B.ravel(), 0.2 * rng.standard_normal(noise.size)])


KINDS = ["lsq", "isotropic", "pooled", "diagonal", "scaled"]


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_those_of_differences(data, rng, kind):
    at, x = point_of(data, rng, kind)
    d = rng.standard_normal(x.size)
    point = at(x)
    h = 1e-6
    slope = (at(x + h * d).value - at(x - h * d).value) / (2 * h)
    np.testing.assert_allclose(point.gradient @ d, slope, rtol=1e-5, atol=1e-6)
    h = 1e-4
    curvature = (at(x + h * d).value - 2 * point.value + at(x - h * d).value) / h**2
    np.testing.assert_allclose(d @ point.hessian(d), curvature, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_symmetric_and_preconditioners_positive(data, rng, kind):
    at, x = point_of(data, rng, kind)
    point = at(x)
    u, v = rng.standard_normal((2, x.size))
    np.testing.assert_allclose(u @ point.hessian(v), v @ point.hessian(u), rtol=1e-8)
    precondition = point.preconditioner(np.ones(x.size, dtype=bool))
    np.testing.assert_allclose(u @ precondition(v), v @ precondition(u), rtol=1e-8)
    assert u @ precondition(u) > 0


def test_the_likelihood_is_that_of_the_observed_features(data, rng):
    at, x = point_of(data, rng, "isotropic")
    point = at(x)
    A, B, t = point.split(x)
    value = 0.0
    for S, own, b, log_s, n in zip(data.S, data.mask, B, t, data.weights, strict=True):
        Sigma = (A[own] * b) @ A[own].T + np.exp(log_s) * np.eye(own.sum())
        fit = np.trace(np.linalg.solve(Sigma, S[np.ix_(own, own)]))
        value += n / 2 * (np.linalg.slogdet(Sigma)[1] + fit)
    unseen = sum(b @ (A[~own] ** 2).sum(axis=0) for b, own in zip(B, data.mask, strict=True))
    np.testing.assert_allclose(point.value, value + data.penalty_of_likelihood * unseen, rtol=1e-10)


def test_loadings_are_at_their_best(data, rng):
    A = rng.standard_normal((P, R))
    A /= np.linalg.norm(A, axis=0)
    B, s = masked_loadings(data, A, floor=True)
    best = masked_lsq._Point(data, A, B, s, True).value
    for _ in range(20):
        other = np.maximum(B + 0.05 * rng.standard_normal(B.shape), 0)
        noise = np.maximum(s + 0.05 * rng.standard_normal(K), 0)
        assert masked_lsq._Point(data, A, other, noise, True).value >= best


def test_expected_covariances_are_those_of_the_conditional_distribution(data, rng):
    A = rng.standard_normal((P, R))
    B = rng.random((K, R))
    d = rng.random((K, P)) + 0.1
    out = expected(data, A, B, d)
    for i, own in enumerate(data.mask):
        Sigma = (A * B[i]) @ A.T + np.diag(d[i])
        T = Sigma[np.ix_(~own, own)] @ np.linalg.inv(Sigma[np.ix_(own, own)])
        S = data.S[i][np.ix_(own, own)]
        np.testing.assert_allclose(out[i][np.ix_(own, own)], S, atol=1e-12)
        np.testing.assert_allclose(out[i][np.ix_(~own, own)], T @ S, atol=1e-12)
        lost = Sigma[np.ix_(~own, ~own)] - T @ Sigma[np.ix_(own, ~own)]
        np.testing.assert_allclose(out[i][np.ix_(~own, ~own)], T @ S @ T.T + lost, atol=1e-12)


def test_inverses_leave_held_entries_alone():
    blocks = np.array([[[2.0, 1.0], [1.0, 3.0]]])
    free = np.array([[True, False]])
    np.testing.assert_allclose(inverses(blocks, free)[0, 0], [0.5, 0], rtol=1e-6)
