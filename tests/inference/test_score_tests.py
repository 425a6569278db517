"""Tests of presence by the spread of the rows."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from scipy.stats import t as student

from mcpca import MCPCA, match_components
from mcpca.datasets import make_contexts

STEP = 1e-5


@pytest.fixture(scope="module")
def fitted():
    data = make_contexts(6, 9, 3, n_samples=150, noise=0.5, density=0.6, random_state=4)
    return data, MCPCA(3, solver="ml", random_state=0).fit(data.X, data.y)


def densities(theta, A, X):
    """Log-densities of rows; theta holds the loadings and log s."""
    C = (A * theta[:-1]) @ A.T + np.exp(theta[-1]) * np.eye(len(A))
    return multivariate_normal.logpdf(X, cov=C)


def restricted_fit(A, X, j, start, noise_free):
    """The maximum with b_j = 0, other loadings >= 0, and the noise that of the start unless it is free."""
    bounds = [(0, 0 if m == j else None) for m in range(A.shape[1])]
    bounds.append((None, None) if noise_free else (start[-1], start[-1]))
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000}
    return minimize(lambda theta: -densities(theta, A, X).sum(), start, bounds=bounds, options=options).x


def information(theta, A):
    """Fisher's information of the loadings and log s, for one row."""
    C = (A * theta[:-1]) @ A.T + np.exp(theta[-1]) * np.eye(len(A))
    changes = [np.outer(a, a) for a in A.T] + [np.exp(theta[-1]) * np.eye(len(A))]
    solved = [np.linalg.solve(C, change) for change in changes]
    return np.array([[np.trace(first @ second) / 2 for first in solved] for second in solved])


@pytest.mark.parametrize("noise", ["isotropic", "pooled"])
def test_statistics_equal_derivatives_of_densities(fitted, noise):
    """The score of b_ij, less its regression on the other scores by the information, studentised."""
    data, _ = fitted
    model = MCPCA(3, solver="ml", noise=noise, random_state=0).fit(data.X, data.y)
    tests = model.presence(data.X, data.y)
    A = model.components_
    for i in range(2):
        X = data.X[data.y == model.contexts_[i]]
        n = len(X)
        # Covariances divide by n - 1: rows that have them as their mean squares.
        X = (X - X.mean(axis=0)) * np.sqrt(n / (n - 1))
        for j in range(3):
            start = np.append(
                np.where(np.arange(3) == j, 0, model.loadings_[i] + 0.01), np.log(model.noise_variance_[i])
            )
            theta = restricted_fit(A, X, j, start, noise_free=noise == "isotropic")
            steps = np.eye(4) * STEP
            g = np.array([densities(theta + d, A, X) - densities(theta - d, A, X) for d in steps]).T / (2 * STEP)
            others = [m for m in range(3) if m != j and theta[m] > 1e-7] + [3] * (noise == "isotropic")
            known = information(theta, A)
            psi = g[:, j] - g[:, others] @ np.linalg.solve(known[np.ix_(others, others)], known[others, j])
            t = np.sqrt(n) * psi.mean() / psi.std(ddof=1)
            np.testing.assert_allclose(tests.statistics[i, j], t, rtol=2e-3, atol=2e-3)
            skewness = np.mean((psi - psi.mean()) ** 3) / psi.std(ddof=1) ** 3
            g1 = np.clip(skewness, -np.sqrt(8), np.sqrt(8)) / np.sqrt(n)
            corrected = t + g1 * t**2 / 3 + g1**2 * t**3 / 27 + g1 / 6
            np.testing.assert_allclose(tests.p_values[i, j], student.sf(corrected, n - 1), rtol=0.05, atol=1e-10)


def test_planted_loadings_are_found_by_every_solver(fitted):
    data, _ = fitted
    for solver in ("ml", "mspm", "lsq"):
        model = MCPCA(3, solver=solver, random_state=0).fit(data.X, data.y)
        tests = model.presence(data.X, data.y)
        assert tests.test == "score"
        order = match_components(model.components_, data.components).indices
        assert tests.present[:, order][data.loadings > 0.3].all()
        assert tests.present[:, order][data.loadings == 0].mean() < 0.2
        assert (model.presence(data.X, data.y, method="holm").adjusted >= tests.adjusted - 1e-15).all()


def test_level_is_kept_where_rows_have_heavy_tails():
    """Rows of a t with 4 degrees of freedom: the likelihood ratio finds twice as many absent loadings as it may."""
    rng = np.random.default_rng(0)
    p_values = {"score": [], "likelihood ratio": []}
    for seed in range(8):
        truth = make_contexts(8, 10, 3, n_samples=2, density=0.5, random_state=seed)
        blocks = []
        for b in truth.loadings:
            X = (rng.standard_normal((100, 3)) * np.sqrt(b)) @ truth.components.T + 0.4 * rng.standard_normal((100, 10))
            blocks.append(X * np.sqrt(2 / rng.chisquare(4, size=(100, 1))))
        model = MCPCA(3, solver="ml", random_state=0).fit(blocks)
        order = match_components(model.components_, truth.components).indices
        for tests in (model.presence(blocks), model.presence()):
            p_values[tests.test] += tests.p_values[:, order][truth.loadings == 0].tolist()
    levels = {test: np.mean(np.array(values) <= 0.05) for test, values in p_values.items()}
    assert len(p_values["score"]) > 60
    assert levels["score"] <= 0.07
    assert levels["likelihood ratio"] >= 0.1


def test_two_rows_say_nothing(fitted):
    """A context of two rows, which are at the same distance from their mean: there is no spread to compare with."""
    data, _ = fitted
    blocks = [data.X[data.y == name] for name in np.unique(data.y)]
    blocks[1] = blocks[1][:2]
    model = MCPCA(3, solver="ml", random_state=0).fit(blocks)
    tests = model.presence(blocks)
    np.testing.assert_array_equal(tests.p_values[1], 1)
    assert np.isfinite(tests.p_values).all()
    assert np.isfinite(model.standard_errors(blocks).loadings).all()


def test_words_say_which_test(fitted):
    data, model = fitted
    assert "score tests by the spread of the rows" in model.presence(data.X, data.y).summary()
    assert "likelihood-ratio tests for Gaussian rows" in model.presence().summary()


def test_no_noise_no_test(fitted):
    data, _ = fitted
    model = MCPCA(9, random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"presence\(\) needs noise in every context"):
        model.presence(data.X, data.y)
