"""The starts of maximum likelihood: no fit ends below the truth, whatever the noise of contexts."""

import numpy as np
import pytest

from mcpca import context_covariances, decompose
from mcpca._covariances import subspace
from mcpca._covariances.stack import CovarianceStack
from mcpca._model.gaussian import GaussianModel
from mcpca._solvers import growing, ml_starts
from mcpca._solvers.ml_starts import same_components, weighted_directions, weighted_without_noise


def unequal_noise(seed, k=6, p=20, r=4, n=100, *, orthonormal=False):
    """Covariances of rows whose noise is 225 times stronger in one context than in another, and the truth."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((p, r))
    A = np.linalg.qr(A)[0] if orthonormal else A / np.linalg.norm(A, axis=0)
    B = rng.uniform(0.5, 2, (k, r)) * (rng.random((k, r)) < 0.5)
    B[rng.integers(k, size=r), np.arange(r)] = 1.0  # none is absent everywhere
    s = rng.permutation(np.geomspace(0.1, 1.5, k)) ** 2
    y = np.repeat(np.arange(k), n)
    X = (rng.standard_normal((k * n, r)) * np.sqrt(B[y])) @ A.T
    X += rng.standard_normal((k * n, p)) * np.sqrt(s[y])[:, None]
    return context_covariances(X, y).covariances, A, B, s


def log_likelihood(S, n, A, B, noise, kind="isotropic"):
    model = GaussianModel.with_noise(A, B, noise, kind)
    weights = np.full(len(S), n - 1.0)
    return float(weights @ model.log_likelihoods(model.likelihood(CovarianceStack(S), weights)))


@pytest.mark.parametrize("orthogonal", [False, True])
def test_no_fit_ends_below_the_likelihood_of_the_truth(orthogonal):
    """A component that only quiet contexts have is lost if noisy ones choose the directions to begin with."""
    gains = []
    for seed in range(24):
        S, *truth = unequal_noise(seed, orthonormal=orthogonal)
        fit = decompose(S, 4, solver="ml", orthogonal=orthogonal, n_samples=100, random_state=seed)
        found = log_likelihood(S, 100, fit.components, fit.loadings, fit.noise)
        gains.append(found - log_likelihood(S, 100, *truth))
    assert min(gains) > -1e-6


def test_large_problems_have_the_second_start_where_noise_differs(monkeypatch):
    """The limit is lowered, since large problems would take long."""
    monkeypatch.setattr(ml_starts, "_SMALL_PROBLEM", 0)
    S, *truth = unequal_noise(24)  # loses a component if it starts by size
    fit = decompose(S, 4, solver="ml", n_samples=100, random_state=0)
    assert log_likelihood(S, 100, fit.components, fit.loadings, fit.noise) > log_likelihood(S, 100, *truth)
    monkeypatch.setattr(ml_starts, "LIKE_NOISE", np.inf)
    lost = decompose(S, 4, solver="ml", n_samples=100, random_state=0)
    assert log_likelihood(S, 100, lost.components, lost.loadings, lost.noise) < log_likelihood(S, 100, *truth) - 100


@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_core_of_many_features_is_widened_where_noise_differs(orthogonal, monkeypatch):
    """Fewer features count as many here: the core has 11 of 120 directions, those of the noisiest contexts."""
    monkeypatch.setattr(growing, "ALL_FEATURES", 5)
    monkeypatch.setattr(subspace, "ALL_FEATURES", 5)

    def gain(seed):
        S, *truth = unequal_noise(seed, p=120, n=60, orthonormal=orthogonal)
        fit = decompose(S, 4, solver="ml", orthogonal=orthogonal, n_samples=60, random_state=seed)
        found = log_likelihood(S, 60, fit.components, fit.loadings, fit.noise)
        return found - log_likelihood(S, 60, *truth)

    seeds = [2, 6]
    assert min(map(gain, seeds)) > 0
    monkeypatch.setattr(ml_starts, "_UNLIKE_NOISE", np.inf)
    assert min(map(gain, seeds)) < -100


def test_directions_are_singular_vectors_of_weighted_covariances(rng):
    S, *_ = unequal_noise(0)
    trace, n, noise = np.einsum("kpp->k", S), rng.uniform(20, 90, 6), rng.uniform(0.01, 1, 6)
    D = [np.sqrt(m) / t * (C - s * np.eye(20)) for C, t, m, s in zip(S, trace, n, noise, strict=True)]
    twin = np.linalg.svd(np.hstack(D))[0][:, :4]
    np.testing.assert_allclose(np.abs((weighted_directions(S, trace, noise, n, 4) * twin).sum(axis=0)), 1)


def test_weighted_covariances_without_noise_equal_their_definition(rng):
    S, *_ = unequal_noise(1)
    n = rng.uniform(20, 90, 6)
    D = weighted_without_noise(S[:, :12, :12], np.einsum("kpp->k", S), 20, 4, n)
    for i, C in enumerate(S):
        w, V = np.linalg.eigh(C[:12, :12])
        noise = (np.trace(C) - w[-4:].sum()) / 16  # of the 16 directions that are left, 8 are outside the core
        twin = (V * np.maximum(w - noise, 0)) @ V.T * np.sqrt(n[i]) / np.trace(C)
        np.testing.assert_allclose(D[i], twin, atol=1e-12)
        assert np.linalg.eigvalsh(D[i])[0] > -1e-12


def test_same_components_are_so_in_any_order_and_sign(rng):
    A = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    assert same_components(A, -A[:, [2, 0, 1]])
    assert same_components(2 * A, A)
    assert not same_components(A[:, [0, 0, 1]], A)
    assert not same_components(A, A @ np.array([[1, 0, 0], [0, 0.8, -0.6], [0, 0.6, 0.8]]))


def test_full_rank_takes_the_higher_of_two_maxima(monkeypatch):
    """Of all directions there is no choice: the power method takes the place of the start by weight."""
    found, first = [], []
    for seed in range(5):
        S, *_ = unequal_noise(seed, 6, 5, 5)
        fit = decompose(S, 5, solver="ml", n_samples=100, random_state=seed)
        found.append(log_likelihood(S, 100, fit.components, fit.loadings, fit.noise))
        with monkeypatch.context() as patch:
            patch.setattr(ml_starts, "_power_start_in", lambda *_: None)
            fit = decompose(S, 5, solver="ml", n_samples=100, random_state=seed)
            first.append(log_likelihood(S, 100, fit.components, fit.loadings, fit.noise))
    gains = np.array(found) - first
    assert gains.min() > -0.1  # the two climbs end within their tolerance
    assert gains.max() > 1
