"""Rows of robust fits: how far they move it, with weights that follow."""

import numpy as np
import pytest

from mcpca import MCPCA, match_components
from mcpca._covariances.weighted_moments import weights_of
from mcpca._inference.fisher import without_data
from mcpca._inference.row_scores import RowScores
from mcpca._inference.weighted_rows import weighted_rows
from mcpca._model.gaussian import GaussianModel
from mcpca.datasets import make_contexts


def t_rows(rng, A, B, noise_sd, n, nu):
    """Rows of a multivariate t whose scatter is that of the model."""
    rows = [
        (rng.standard_normal((n, len(b))) * np.sqrt(b)) @ A.T + noise_sd * rng.standard_normal((n, len(A))) for b in B
    ]
    return [X * np.sqrt(nu / rng.chisquare(nu, size=(n, 1))) for X in rows]


@pytest.fixture
def scattered(rng):
    """Many rows of one context, its model, and its scatter."""
    A = rng.standard_normal((5, 2))
    A /= np.linalg.norm(A, axis=0)
    model = GaussianModel(A, np.array([[2.0, 0.7]]), np.array([0.5]))
    X = t_rows(rng, A, model.B, np.sqrt(0.5), 100_000, 4.0)[0]
    return model, X, (A * model.B[0]) @ A.T + 0.5 * np.eye(5)


def row_scores(model, X):
    Z = X @ np.linalg.pinv(model.A).T
    return RowScores(Z, (X**2).sum(axis=1) - ((Z @ model.A.T) ** 2).sum(axis=1))


def test_weights_are_those_of_the_t_and_bring_the_scatter_back(scattered):
    model, X, Sigma = scattered
    rows = weighted_rows(without_data(model, np.ones(1)), [row_scores(model, X)], 4.0)[0]
    w = weights_of(np.einsum("na,na->n", X @ np.linalg.inv(Sigma), X), 5, 4.0)
    # f is 1 for a model that is the scatter itself, up to the error of so many rows.
    np.testing.assert_allclose(rows.scores, np.sqrt(w)[:, None] * (X @ np.linalg.pinv(model.A).T), rtol=0.02)
    W = np.linalg.pinv(model.A)
    np.testing.assert_allclose(rows.scores.T @ rows.scores / len(X), W @ Sigma @ W.T, rtol=0.03, atol=0.02)
    # The gain of a t with 4 degrees of freedom in 5 dimensions: (nu + p + 2) / (nu + p).
    np.testing.assert_allclose(rows.gain, 11 / 9, rtol=0.01)


def test_shape_and_size_come_back_by_their_shares(scattered):
    """The derivative of ``mean(w x x^T)`` by Sigma, in a direction that keeps its size, and in that of Sigma itself."""
    model, X, Sigma = scattered
    rows = weighted_rows(without_data(model, np.ones(1)), [row_scores(model, X)], 4.0)[0]

    def weighted(S):
        w = weights_of(np.einsum("na,na->n", X @ np.linalg.inv(S), X), 5, 4.0)
        return (X * w[:, None]).T @ X / len(X)

    H = np.outer(model.A[:, 0], model.A[:, 0])
    H = H - np.trace(np.linalg.solve(Sigma, H)) / 5 * Sigma
    eps = 1e-3
    of_shape = (weighted(Sigma + eps * H) - weighted(Sigma - eps * H)) / (2 * eps)
    np.testing.assert_allclose(np.vdot(of_shape, H) / np.vdot(H, H), 1 - 1 / rows.gain, rtol=0.05)
    of_size = (weighted(Sigma * (1 + eps)) - weighted(Sigma * (1 - eps))) / (2 * eps)
    # Offsets are (q/p - 1) / c - (q/p) / a, linear in q: their slope gives c.
    q = np.einsum("na,na->n", rows.scores @ without_data(model, np.ones(1)).P[0], rows.scores) + rows.outside / 0.5
    slope = np.polyfit(q / 5, rows.offsets, 1)[0]
    np.testing.assert_allclose(np.trace(np.linalg.solve(Sigma, of_size)) / 5, 1 - 1 / (slope + rows.gain), rtol=0.02)


def test_errors_of_robust_fits_are_their_spread_over_samples():
    rng = np.random.default_rng(0)
    truth = make_contexts(4, 8, 2, n_samples=2, random_state=7)
    A, B = truth.components, truth.loadings + 0.3
    estimates, measured = [], []
    for _ in range(16):
        blocks = t_rows(rng, A, B, 0.5, 200, 3.0)
        model = MCPCA(2, solver="ml", robust=True, random_state=0).fit(blocks)
        order = match_components(model.components_, A).indices
        estimates.append(model.loadings_[:, order])
        measured.append(model.standard_errors(blocks).loadings[:, order])
    ratio = np.std(estimates, axis=0) / np.sqrt(np.mean(np.square(measured), axis=0))
    assert 0.8 < ratio.mean() < 1.2


def test_bad_rows_cost_robust_fits_little():
    data = make_contexts(5, 8, 2, n_samples=200, noise=0.4, random_state=3)
    X = data.X.copy()
    X[::50] *= 8
    robust = MCPCA(2, solver="ml", robust=True, random_state=0).fit(X, data.y)
    clean = MCPCA(2, solver="ml", random_state=0).fit(data.X, data.y)
    spoilt = MCPCA(2, solver="ml", random_state=0).fit(X, data.y)
    reference = clean.standard_errors(data.X, data.y).angles
    np.testing.assert_allclose(robust.standard_errors(X, data.y).angles, reference, rtol=0.3)
    assert (spoilt.standard_errors(X, data.y).angles > 1.5 * reference).all()
    np.testing.assert_array_equal(robust.presence(X, data.y).present, clean.presence(data.X, data.y).present)


def test_gaussian_rows_are_not_weighted():
    data = make_contexts(4, 8, 2, n_samples=150, noise=0.4, random_state=5)
    robust, plain = (MCPCA(2, solver="ml", robust=flag, random_state=0).fit(data.X, data.y) for flag in (True, False))
    assert np.isinf(robust.degrees_of_freedom_)
    np.testing.assert_array_equal(
        robust.standard_errors(data.X, data.y).loadings, plain.standard_errors(data.X, data.y).loadings
    )
