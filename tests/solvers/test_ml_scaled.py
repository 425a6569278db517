"""Noise "scaled", ``s_i psi_f``: planted, beside dense formulas, and where it is another kind of noise."""

import numpy as np
import pytest

from mcpca import MCPCA, ascore, context_covariances, cramer_rao_bound, decompose
from mcpca._covariances.stack import CovarianceStack
from mcpca._model.gaussian import GaussianModel
from mcpca._solvers.likelihood import likelihood_of
from mcpca._solvers.ml_diagonal import _precision_diagonals, noise_step

K, P, R = 8, 15, 3
N = 300


def planted(seed, k=K, p=P, r=R, n=N, spread=0.6):
    """Rows with noise ``s_i psi_f``, and the truth (A, B, s, psi)."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((p, r))
    A /= np.linalg.norm(A, axis=0)
    B = rng.uniform(0, 2, (k, r))
    s = rng.permutation(np.geomspace(0.05, 1.5, k))
    psi = np.exp(spread * rng.standard_normal(p))
    psi /= psi.mean()
    y = np.repeat(np.arange(k), n)
    X = (rng.standard_normal((k * n, r)) * np.sqrt(B[y])) @ A.T
    X += rng.standard_normal((k * n, p)) * np.sqrt(np.outer(s, psi))[y]
    return X, y, (A, B, s, psi)


def sigma(A, B, noise):
    """The covariances of the model, noise (k, p)."""
    return np.einsum("pj,kj,qj->kpq", A, B, A) + np.stack([np.diag(variances) for variances in noise])


def log_likelihood(S, n, A, B, noise, kind):
    model = GaussianModel.with_noise(A, B, noise, kind)
    weights = np.full(len(S), n - 1.0)
    return float(weights @ model.log_likelihoods(model.likelihood(CovarianceStack(S), weights)))


def test_planted_noise_is_found_and_components_are_closer_than_by_other_kinds():
    losses = {kind: [] for kind in ("isotropic", "diagonal", "scaled")}
    bounds = []
    for seed in range(4):
        X, y, (A, B, s, psi) = planted(seed)
        S = context_covariances(X, y).covariances
        for kind, found in losses.items():
            fit = decompose(S, R, solver="ml", noise=kind, n_samples=N, random_state=seed)
            found.append(1 - ascore(fit.components, A))
        bounds.append(cramer_rao_bound(A, B, np.outer(s, psi), N).ascore_loss)
        assert fit.converged
        assert fit.noise.shape == (K, P)
        np.testing.assert_allclose(fit.noise, np.outer(s, psi), rtol=0.45)
        gain = log_likelihood(S, N, fit.components, fit.loadings, fit.noise, "scaled")
        gain -= log_likelihood(S, N, A, B, np.outer(s, psi), "scaled")
        # Half a log-unit for each parameter, give or take.
        n_parameters = R * (P - 1) + K * R + K + P - 1
        assert 0.5 * n_parameters / 2 < gain < 1.6 * n_parameters / 2
    means = {kind: np.mean(found) for kind, found in losses.items()}
    assert means["scaled"] < 0.7 * min(means["diagonal"], means["isotropic"])
    assert means["scaled"] < 1.5 * np.mean(bounds)


def test_gradient_by_log_psi_against_finite_differences():
    X, y, (A, B, s, psi) = planted(5)
    S = context_covariances(X, y).covariances
    n = np.linspace(20, 90, K)
    scale = 1 / np.sqrt(psi)
    model = likelihood_of(CovarianceStack(S), scale[:, None] * A, B, s, n, scale=scale)
    precision, fitted = _precision_diagonals(CovarianceStack(S), 1.0, scale[:, None] * A, scale, model)

    def loss(log_psi):
        terms = [
            np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, T))
            for C, T in zip(sigma(A, B, np.outer(s, np.exp(log_psi))), S, strict=True)
        ]
        return float(n @ np.array(terms)) / 2

    h = 1e-5
    slopes = [(loss(np.log(psi) + h * e) - loss(np.log(psi) - h * e)) / (2 * h) for e in np.eye(P)]
    np.testing.assert_allclose((precision - fitted) / 2, slopes, rtol=1e-5, atol=1e-5)
    moved, gain = noise_step(CovarianceStack(S), 1.0, A, B, s, psi, np.full(P, 1e-6), n)
    assert gain > 0
    assert loss(np.log(moved)) < loss(np.log(psi))


def test_covariances_follow_the_units_of_features(rng):
    """With features times D the model is D Sigma_i D: psi takes the units, whose mean goes to s."""
    X, y, _ = planted(6)
    S = context_covariances(X, y).covariances
    units = np.exp(rng.standard_normal(P))
    options = {"solver": "ml", "noise": "scaled", "n_samples": N, "random_state": 0, "tol": 1e-9}
    plain = decompose(S, R, **options)
    other = decompose(S * np.outer(units, units), R, **options)
    expected = sigma(plain.components, plain.loadings, plain.noise) * np.outer(units, units)
    found = sigma(other.components, other.loadings, other.noise)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.outer(units, units).max(), rtol=1e-3)


def test_equal_features_are_isotropic_noise():
    """Covariances of the model itself, in which nothing has to be estimated."""
    _, _, (A, B, s, _) = planted(7)
    S = sigma(A, B, np.outer(s, np.ones(P)))
    fits = [decompose(S, R, solver="ml", noise=kind, n_samples=N, random_state=0) for kind in ("isotropic", "scaled")]
    for fit in fits:
        assert 1 - ascore(fit.components, A) < 1e-8
    np.testing.assert_allclose(fits[1].noise, np.outer(fits[0].noise, np.ones(P)), rtol=1e-3)
    np.testing.assert_allclose(fits[1].loadings, fits[0].loadings, atol=1e-3)


def test_one_context_is_factor_analysis():
    X, y, _ = planted(8)
    diagonal = MCPCA(R, solver="ml", noise="diagonal").fit(X[y == 0])
    scaled = MCPCA(R, solver="ml", noise="scaled").fit(X[y == 0])
    assert scaled.noise_variance_.shape == (1, P)
    np.testing.assert_array_equal(scaled.noise_variance_[0], diagonal.noise_variance_)
    np.testing.assert_array_equal(scaled.components_, diagonal.components_)
    assert scaled.score(X[y == 0]) == pytest.approx(diagonal.score(X[y == 0]), rel=1e-12)


def test_new_contexts_have_a_factor_of_their_own():
    """Rows of a fitted context, times 2: four times its loadings and noise, in the profile as fitted."""
    X, y, _ = planted(9)
    model = MCPCA(R, solver="ml", noise="scaled", random_state=0).fit(X, y)
    again = model.loadings_for(X, y)
    np.testing.assert_allclose(again, model.loadings_, atol=5e-3 * model.loadings_.max())
    np.testing.assert_allclose(model.loadings_for(2 * X[y == 3]), 4 * again[3], rtol=1e-5, atol=1e-8)


def test_a_model_survives_a_file_and_tests_of_presence_have_their_level(tmp_path):
    X, y, _ = planted(10)
    model = MCPCA(R, solver="ml", noise="scaled", random_state=0).fit(X, y)
    model.save(tmp_path / "model.mcpca")
    back = MCPCA.load(tmp_path / "model.mcpca")
    np.testing.assert_array_equal(back.noise_variance_, model.noise_variance_)
    assert back.score(X, y) == model.score(X, y)
    np.testing.assert_array_equal(back.presence().statistics, model.presence().statistics)
    errors = model.standard_errors().loadings
    assert (errors > 0).all()
    # Loadings that are many standard errors from 0 are found present.
    assert model.presence().present[model.loadings_ > 6 * errors].all()


def test_orthogonal_axes_are_refused(rng):
    with pytest.raises(ValueError, match=r"orthogonal=True with noise='scaled': orthogonal axes do not stay"):
        MCPCA(2, solver="ml", noise="scaled", orthogonal=True).fit(rng.standard_normal((20, 4)))


def test_a_bound_takes_noise_that_is_a_product():
    _, _, (A, B, s, psi) = planted(11)
    diagonal = cramer_rao_bound(A, B, psi, N, diagonal=True)
    scaled = cramer_rao_bound(A, B, np.outer(np.ones(K), psi), N)
    # psi is known to both, and s_i only to the first.
    assert (scaled.loadings > diagonal.loadings).all()
    isotropic = cramer_rao_bound(A, B, np.outer(s, np.ones(P)), N)
    np.testing.assert_allclose(isotropic.angles, cramer_rao_bound(A, B, s, N).angles)
    with pytest.raises(ValueError, match=r"noise of shape \(8, 15\) must be s_i psi_f"):
        cramer_rao_bound(A, B, 1 + np.add.outer(s, psi), N)
