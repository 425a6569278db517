"""Errors in halves that were not fitted: the formulas, what they do not see, and when features are principal axes."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mcpca._covariances import fit_data
from mcpca._covariances.context_covariances import context_covariances
from mcpca._data.contexts import read_contexts
from mcpca._inference.held_out import (
    ANISOTROPIC,
    OFF_DIAGONAL,
    Half,
    Matrices,
    SharedAxes,
    deciding_error,
    errors,
    log_likelihood,
)
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts
from twins import compose, held_out_errors

K, P, R = 4, 7, 3


def rows(seed=0, n=60, noise=0.4):
    return make_contexts(K, P, R, n_samples=n, noise=noise, random_state=seed)


def half_of(data):
    return Half(read_contexts(data.X, data.y), R, 1e-7)


def prediction(rng):
    A = rng.standard_normal((P, R))
    return SharedAxes(A / np.linalg.norm(A, axis=0), rng.gamma(2.0, size=(K, R)))


def test_errors_are_those_of_the_formulas(rng):
    data = rows()
    half = half_of(data)
    model = prediction(rng)
    S = context_covariances(data.X, data.y).covariances
    M = compose(model.A, model.B)
    weights = np.array([1.0, 2.0, 0.5, 3.0])
    for w, given in ((np.ones(K), None), (weights, weights)):
        expected = held_out_errors(S, M, w)
        for of in (model, Matrices(model.matrices())):
            found = errors(half, of, given)
            np.testing.assert_allclose([found[OFF_DIAGONAL], found[ANISOTROPIC]], expected, rtol=1e-10)


def test_errors_have_no_unit(rng):
    data = rows()
    model = prediction(rng)
    plain = errors(half_of(data), model)
    scaled = errors(Half(read_contexts(2.0**30 * data.X, data.y), R, 1e-7), SharedAxes(model.A, 2.0**60 * model.B))
    assert scaled == pytest.approx(plain, rel=1e-12)


def test_noise_is_left_aside(rng):
    half = half_of(rows())
    M = prediction(rng).matrices()
    plain = errors(half, Matrices(M))
    by_feature = errors(half, Matrices(M + np.eye(P) * rng.uniform(1, 9, (K, 1, P))))
    alike = errors(half, Matrices(M + np.eye(P) * rng.uniform(1, 9, (K, 1, 1))))
    assert by_feature[OFF_DIAGONAL] == pytest.approx(plain[OFF_DIAGONAL], rel=1e-10)
    assert by_feature[ANISOTROPIC] > 2 * plain[ANISOTROPIC]
    assert alike == pytest.approx(plain, rel=1e-10)


def test_one_of_the_errors_does_not_depend_on_the_axes_of_the_features(rng):
    data = rows()
    model = prediction(rng)
    Q = np.linalg.qr(rng.standard_normal((P, P)))[0]
    plain = errors(half_of(data), model)
    turned = errors(Half(read_contexts(data.X @ Q, data.y), R, 1e-7), SharedAxes(Q.T @ model.A, model.B))
    assert turned[ANISOTROPIC] == pytest.approx(plain[ANISOTROPIC], rel=1e-10)
    assert abs(turned[OFF_DIAGONAL] - plain[OFF_DIAGONAL]) > 1e-3


def test_the_truth_has_the_lowest_error(rng):
    """Sampling adds the same to all models, whatever they say."""
    data = rows(n=5000)
    half = half_of(data)
    truth = errors(half, SharedAxes(data.components, data.loadings))
    for model in (
        SharedAxes(data.components, 1.2 * data.loadings),
        SharedAxes(data.components, data.loadings[::-1]),
        Matrices(np.zeros((K, P, P))),
        prediction(rng),
    ):
        assert all(errors(half, model)[name] > truth[name] + 0.01 for name in truth)
    assert errors(half, Matrices(np.zeros((K, P, P)))) == pytest.approx({OFF_DIAGONAL: 1.0, ANISOTROPIC: 1.0})


def test_nothing_to_judge_is_not_a_number():
    data = make_contexts(3, 1, 1, n_samples=20, random_state=0)
    found = errors(Half(read_contexts(data.X, data.y), 1, 1e-7), SharedAxes(np.ones((1, 1)), np.ones((3, 1))))
    assert np.isnan(list(found.values())).all()


def test_errors_by_passes_differ_by_the_norms_alone(rng, monkeypatch):
    """Squared norms are estimates there, the same for all models: differences of errors, times them, are exact."""
    data = rows()
    models = [prediction(rng), prediction(rng)]
    dense = half_of(data)
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    passed = half_of(data)
    assert passed.data.moments is None  # by passes indeed

    def gap(half):
        size = half.squared_norms.sum() - (half.variances**2).sum()
        return size * np.subtract(*(errors(half, model)[OFF_DIAGONAL] for model in models))

    assert gap(passed) == pytest.approx(gap(dense), rel=1e-8)


def test_the_log_likelihood_is_that_of_a_gaussian_with_the_variances_of_the_fitted_half(rng):
    fitted, other = half_of(rows(0)), half_of(rows(1))
    model = SharedAxes(prediction(rng).A, 0.05 * np.ones((K, R)))  # below all variances, so that no floor is met
    C = model.matrices()
    S = fitted.array
    total = 0.0
    for i in range(K):
        np.fill_diagonal(C[i], np.diag(S[i]))
        X = rows(1).X[rows(1).y == i]
        X = X - X.mean(axis=0)
        density = multivariate_normal(np.zeros(P), C[i])
        # The covariance divides by n - 1: a sum of squares that is n / (n - 1) times as large.
        total += density.logpdf(X * np.sqrt(len(X) / (len(X) - 1))).mean() / (K * P)
    assert log_likelihood(fitted, other, model) == pytest.approx(total, rel=1e-10)


def test_a_feature_that_does_not_vary_in_one_half_does_not_decide():
    data = rows()
    X = data.X.copy()
    X[data.y == 0, 2] = 1.0
    fitted = Half(read_contexts(X, data.y), R, 1e-7)
    found = log_likelihood(fitted, half_of(data), SharedAxes(np.eye(P)[:, :R], np.zeros((K, R))))
    assert np.isfinite(found)
    assert found > -10


def is_principal(X, y):
    return deciding_error(fit_data.without_basis(read_contexts(X, y), R, silent)) == ANISOTROPIC


@pytest.mark.parametrize("noise", [0.0, 0.4, 2.0])
def test_principal_axes_are_recognised(rng, noise):
    data = make_contexts(6, 12, R, n_samples=200, noise=noise, random_state=1)
    shifted = data.X + rng.standard_normal((6, 12))[data.y]
    assert not is_principal(shifted, data.y)
    Q = np.linalg.eigh(np.cov(shifted.T))[1]
    assert is_principal(shifted @ Q, data.y)
    # About the mean of all rows, as a PCA is; also for small numbers, and if rows were dropped after it.
    assert is_principal(1e-100 * shifted @ Q, data.y)
    kept = rng.random(len(data.y)) < 0.8
    assert is_principal((shifted @ Q)[kept], data.y[kept])
    assert not is_principal(shifted[:, :1], data.y)


def test_units_of_features_do_not_make_principal_axes(rng):
    data = make_contexts(6, 12, R, n_samples=200, noise=0.4, random_state=1)
    noisy = data.X + np.geomspace(0.1, 20, 12) * rng.standard_normal(data.X.shape)
    assert not is_principal(noisy, data.y)
    assert not is_principal(data.X * np.geomspace(1e-3, 1e3, 12), data.y)
    Q = np.linalg.eigh(np.cov(data.X.T))[1]
    assert is_principal(data.X @ Q * np.geomspace(1e-3, 1e3, 12), data.y)
