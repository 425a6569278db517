"""Orthonormal components by maximum likelihood: against dense formulas, slow twins and Flury's model."""

import numpy as np
import pytest
from axes import axes_apart, noisy_covariances, orthonormal

from mcpca import MCPCA
from mcpca._model.common_components import common_principal_components
from mcpca._solvers import orthogonal, orthogonal_ml


def solve(T, r, tol=1e-9, max_iter=200):
    return orthogonal.solve_orthogonal_core(T, r, tol=tol, max_iter=max_iter, report=lambda stage, done, total: None)


def dense_log_likelihood(S, n, A, b, s2):
    """Gaussian log-likelihood, up to its constant, with every covariance written out."""
    total = 0.0
    for Si, ni, bi, s in zip(S, n, b, s2, strict=True):
        Sigma = A @ np.diag(bi) @ A.T + s * np.eye(len(Si))
        total -= ni / 2 * (np.linalg.slogdet(Sigma)[1] + np.trace(np.linalg.solve(Sigma, Si)))
    return total


def planted_noise(rng, k, p, r, n, noise):
    A = orthonormal(rng, p, r)
    B = np.abs(rng.standard_normal((k, r))) * (rng.random((k, r)) < 0.7) + 0.1
    rows = [(rng.standard_normal((n, r)) * np.sqrt(b)) @ A.T + noise * rng.standard_normal((n, p)) for b in B]
    return A, B, np.stack([np.cov(X, rowvar=False) for X in rows])


def to_core(S, q):
    U = np.linalg.eigh(np.einsum("kpq,kqs->ps", S, S))[1][:, ::-1][:, :q]
    T = U.T @ S @ U
    return U, T, np.einsum("kpp->k", S) - np.einsum("kqq->k", T)


def fit_likelihood(T, rest, r, n, p, start, shared, floor=1e-9, max_iter=200, tol=1e-11):
    end = orthogonal_ml.solve_likelihood(
        T, rest, r, n=n, p=p, floor=floor, start=start, pooled_noise=shared, tol=tol, max_iter=max_iter
    )
    return end.components, end.loadings, end.noise, end.n_iter, end.converged


@pytest.mark.parametrize("shared", [False, True])
def test_likelihood_recovers_what_was_planted(rng, shared):
    A, B, S = planted_noise(rng, 6, 10, 3, 20000, 0.3)
    U, T, rest = to_core(S, 6)
    C, b, s2, n_iter, converged = fit_likelihood(T, rest, 3, np.full(6, 20000), 10, solve(T, 3).components, shared)
    assert converged
    assert n_iter < 30
    assert axes_apart(U @ C, A) < 0.02
    order = np.abs(A.T @ U @ C).argmax(axis=1)
    np.testing.assert_allclose(b[:, order], B, atol=0.06)
    np.testing.assert_allclose(s2, 0.09, rtol=0.02)
    assert len(np.unique(s2)) == (1 if shared else 6)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("q", "r", "noise"), [(8, 3, 0.3), (8, 3, 2.0), (8, 8, 0.5), (8, 1, 1.0)])
def test_likelihood_never_falls_and_ends_stationary(rng, shared, q, r, noise):
    _, _, S = planted_noise(rng, 4, 8, r, 25, noise)
    n = np.array([25, 10, 60, 30])
    _, T, rest = to_core(S, q)
    start = orthonormal(rng, q, r)
    values = []
    for max_iter in (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 300):
        C, b, s2, _, converged = fit_likelihood(T, rest, r, n, 8, start, shared, max_iter=max_iter)
        assert (b >= 0).all()
        values.append(dense_log_likelihood(T, n, C, b, s2))
    assert (np.diff(values) >= -1e-11 * abs(values[-1])).all()
    assert converged
    # B and s are the best for this A, and no small rotation of A raises the likelihood.
    for _ in range(20):
        scaled = b * np.exp(0.02 * rng.standard_normal(b.shape))
        level = s2 * np.exp(0.02 * rng.standard_normal(1 if shared else 4))
        assert dense_log_likelihood(T, n, C, scaled, level) <= values[-1] + 1e-9
        near = np.linalg.svd(C + 1e-3 * rng.standard_normal(C.shape), full_matrices=False)
        turned = near[0] @ near[2]
        assert dense_log_likelihood(T, n, turned, b, s2) <= values[-1] + 1e-9


def test_likelihood_in_the_core_is_the_full_one(rng):
    """With the variance outside given as a number the answer is that of all features, where the core holds A."""
    _, _, S = planted_noise(rng, 5, 9, 2, 40, 0.5)
    n = np.full(5, 40)
    _, T, rest = to_core(S, 9)
    full = fit_likelihood(T, rest, 2, n, 9, solve(T, 2).components, False)
    basis = np.linalg.qr(np.column_stack([full[0], rng.standard_normal((9, 3))]))[0]
    inner = basis.T @ T @ basis
    outside = np.einsum("kpp->k", T) - np.einsum("kqq->k", inner)
    C, b, s2, _, _ = fit_likelihood(inner, outside, 2, n, 9, solve(inner, 2).components, False)
    assert axes_apart(basis @ C, full[0]) < 1e-6
    np.testing.assert_allclose(s2, full[2], rtol=1e-7)
    np.testing.assert_allclose(np.sort(b, axis=1), np.sort(full[1], axis=1), atol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_noise_level_by_trying_every_split(rng, shared):
    k, r, p = 3, 4, 6
    n = np.array([0.5, 0.2, 0.3])
    h = rng.exponential(size=(r, k))
    total = h.sum(axis=0) + rng.exponential(size=k)
    floor = np.full(k, 1e-3)
    best = orthogonal_ml.likelihood_landscape(h, total, n, p, floor, shared).value

    def value(log_s2):
        s2 = np.maximum(np.exp(log_s2) * np.ones(k), floor)
        t = np.maximum(h, s2)
        return -n @ ((np.log(t) + h / t).sum(axis=0) + (p - r) * np.log(s2) + (total - h.sum(axis=0)) / s2)

    grid = np.linspace(-6, 3, 6001)
    if shared:
        slow = max(value(x) for x in grid)
    else:
        slow = sum(max(value(np.where(np.arange(k) == i, x, 0.0)) for x in grid[::3]) for i in range(k))
        slow -= (k - 1) * value(np.zeros(k))
    assert best == pytest.approx(slow, abs=1e-5)
    assert best >= slow - 1e-12


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_likelihood_of_degenerate_slices(rng, shared, scale):
    q = 4
    low_rank = rng.standard_normal((3, q, 2))
    stacks = [
        np.zeros((3, q, q)),
        np.stack([np.eye(q), np.zeros((q, q)), 1e-9 * np.eye(q)]),
        low_rank @ low_rank.transpose(0, 2, 1),
        noisy_covariances(rng, 3, q, 9),
    ]
    for T in stacks:
        for r, p in [(1, q), (q, q), (2, 7), (q, 7)]:
            start = solve(scale * T, r).components
            floor = scale * 1e-8
            n = np.array([5, 9, 2])
            C, b, s2, _, _ = fit_likelihood(scale * T, np.zeros(3), r, n, p, start, shared, floor=floor, max_iter=60)
            np.testing.assert_allclose(C.T @ C, np.eye(r), atol=1e-12)
            assert np.isfinite(b).all()
            assert (b >= 0).all()
            assert (s2 >= floor).all()
            assert np.isfinite(s2).all()


def test_full_rank_likelihood_is_common_principal_components(rng):
    """With r = p the noise is one of the variances, and the model Flury's."""
    S = noisy_covariances(rng, 4, 5, 40)
    n = np.array([40, 20, 60, 30])
    C, b, s2, _, converged = fit_likelihood(S, np.zeros(4), 5, n - 1, 5, solve(S, 5).components, False)
    assert converged
    cpc = common_principal_components(S, n)
    assert axes_apart(C, cpc.components) < 1e-6
    np.testing.assert_allclose(np.sort(b + s2[:, None], axis=1), np.sort(cpc.variances, axis=1), rtol=1e-5)


def test_without_noise_at_full_rank_is_flurys_model(rng):
    S = noisy_covariances(rng, 4, 5, 40)
    model = MCPCA(5, solver="ml", noise=None, orthogonal=True, random_state=0).fit_covariances(S, n_samples=50)
    flury = common_principal_components(S, [50] * 4)
    assert axes_apart(model.components_, flury.components) < 1e-4
    np.testing.assert_allclose(model.loadings_, flury.variances, rtol=1e-3)


def test_orthogonal_axes_and_noise_by_feature_do_not_go_together(rng):
    with pytest.raises(ValueError, match="standardise the features first"):
        MCPCA(2, solver="ml", noise="diagonal", orthogonal=True).fit(rng.standard_normal((20, 4)))
