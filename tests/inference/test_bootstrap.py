"""Resampling with any solver: which loadings, what they are centred on, and what subsamples add."""

import numpy as np
import pytest

from mcpca import MCPCA, match_components
from mcpca._data.contexts import read_contexts
from mcpca._estimator.mcpca import fitted_model
from mcpca._inference.bootstrap import _subsample, _subsample_size
from mcpca._inference.noise_bias import bias_of_noise

K = 8
P = 12
R = 3


@pytest.fixture(scope="module")
def truth():
    """Axes that are far from orthogonal, many loadings of 0, and much noise: A (p, r), B (k, r), s (k,)."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((P, R)) + 0.6
    A /= np.linalg.norm(A, axis=0)
    B = rng.uniform(0.8, 2.5, (K, R)) * (rng.random((K, R)) < 0.6)
    return A, B, rng.uniform(0.3, 0.7, K)


@pytest.fixture(scope="module")
def rows(truth):
    A, B, s = truth
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((K, 250, R)) * np.sqrt(B)[:, None, :]
    X = Z @ A.T + np.sqrt(s)[:, None, None] * rng.standard_normal((K, 250, P))
    return X.reshape(-1, P), np.repeat(np.arange(K), 250)


def covariances(A, B, s):
    return np.einsum("pj,kj,qj->kpq", A, B, A) + s[:, None, None] * np.eye(len(A))


def corrected_less_bias(model):
    bias = bias_of_noise(fitted_model(model), model._unfitted(), np.random.default_rng(0))
    return np.maximum(model.corrected_loadings_ - bias, 0)


@pytest.mark.parametrize("solver", ["mspm", "lsq"])
@pytest.mark.parametrize("unit", [1.0, 1e-80])
def test_the_bias_of_noise_is_all_that_covariances_leave(truth, solver, unit):
    """With the covariances themselves in place of rows there is no sampling error: the answer is the truth."""
    A, B, s = truth
    model = MCPCA(R, solver=solver, random_state=0).fit_covariances(covariances(A, B, s) * unit, n_samples=100)
    order = match_components(model.components_, A).indices
    plain = model.corrected_loadings_[:, order] / unit
    assert np.abs(plain - B).max() > 0.09
    np.testing.assert_allclose(corrected_less_bias(model)[:, order] / unit, B, atol=0.004)


@pytest.mark.parametrize("options", [{"solver": "ml"}, {"orthogonal": True}, {"noise": "diagonal"}])
def test_models_without_a_known_bias_have_none(truth, options):
    model = MCPCA(R, random_state=0, **options).fit_covariances(covariances(*truth), n_samples=100)
    bias = bias_of_noise(fitted_model(model), model._unfitted(), np.random.default_rng(0))
    np.testing.assert_array_equal(bias, np.zeros((K, R)))


def test_no_noise_no_bias(truth):
    A, B, s = truth
    model = MCPCA(R, random_state=0).fit_covariances(covariances(A, B, 1e-9 * s))
    np.testing.assert_allclose(corrected_less_bias(model), model.corrected_loadings_, atol=1e-6)


def test_intervals_are_about_corrected_loadings_less_their_bias(truth, rows):
    A, B, _ = truth
    model = MCPCA(R, random_state=0).fit(*rows)
    spread = model.bootstrap(*rows, n=40, random_state=0)
    order = match_components(model.components_, A).indices
    centre = np.maximum(model.corrected_loadings_ - spread.bias, 0)
    assert ((spread.lower <= centre) & (centre <= spread.upper)).all()
    covered = (spread.lower[:, order] <= B) & (spread.upper[:, order] >= B)
    assert covered.mean() > 0.85
    assert covered[B == 0].mean() > 0.9
    assert (spread.lower[:, order][B > 0] > 0).all()
    assert spread.corrected
    assert "corrected loadings are above 0" in str(spread)
    np.testing.assert_allclose(spread.loadings.mean(axis=0), model.corrected_loadings_, atol=0.2)


def test_loadings_with_noise_if_asked_for(rows):
    model = MCPCA(R, random_state=0).fit(*rows)
    spread = model.bootstrap(*rows, n=10, corrected=False, random_state=0)
    assert not spread.corrected
    assert not spread.bias.any()
    assert "loadings, with the noise in them, are above 0" in str(spread)
    np.testing.assert_allclose(spread.loadings.mean(axis=0), model.loadings_, atol=0.2)
    # These contain the noise of about 0.5, which corrected ones do not.
    assert (spread.lower > 0.1).all()
    again = model.bootstrap(*rows, n=10, random_state=0)
    np.testing.assert_array_equal(spread.angles, again.angles)
    assert (again.loadings.mean() + 0.3) < spread.loadings.mean()


def test_refits_have_the_solver_and_noise_of_the_model(rows):
    X, y = rows
    contexts = read_contexts(X, y)
    model = MCPCA(R, solver="lsq", noise="pooled", random_state=0).fit(X, y)
    spread = model.bootstrap(X, y, n=3, random_state=5)
    stream = np.random.default_rng(5).spawn(3)[1]
    drawn = contexts.take([stream.integers(n, size=n) for n in contexts.n_samples.tolist()])
    twin = MCPCA(R, solver="lsq", noise="pooled", random_state=0).fit([drawn.block(i) for i in range(K)])
    order = match_components(twin.components_, model.components_).indices
    np.testing.assert_allclose(spread.loadings[1], twin.loadings_[:, order], atol=1e-6)


def test_subsamples_are_without_replacement():
    X = np.random.default_rng(1).standard_normal((45, 5))
    y = np.repeat([0, 1, 2], [4, 10, 31])
    contexts = read_contexts(X, y)
    drawn = _subsample(contexts, np.random.default_rng(0))
    assert drawn.n_samples.tolist() == _subsample_size(contexts.n_samples).tolist() == [3, 8, 25]
    for i in range(3):
        assert len(np.unique(drawn.rows[i])) == drawn.n_samples[i]
        assert (y[drawn.rows[i]] == i).all()


def test_a_cross_fitted_model_is_compared_with_subsamples(rows):
    X, y = rows
    few = np.concatenate([np.flatnonzero(y == i)[:40] for i in range(K)])
    plain = MCPCA(R, random_state=0).fit(X[few], y[few])
    model = MCPCA(R, cross_fit=1, random_state=0).fit(X[few], y[few])
    spread = model.bootstrap(X[few], y[few], n=30, random_state=0)
    # In units of the cross-fitted loadings.
    expected = model.corrected_loadings_.sum(axis=0)
    np.testing.assert_allclose(spread.loadings.mean(axis=0).sum(axis=0), expected, rtol=1e-10)
    # Four fifths of the rows, whose spread is half of that of new samples: both ways agree where rows are many.
    errors = plain.bootstrap(X[few], y[few], n=30, random_state=0).standard_errors
    strong = model.corrected_loadings_ > 0.8
    ratio = spread.standard_errors[strong] / errors[strong]
    assert 0.6 < np.median(ratio) < 1.4
    # Loadings with noise are not cross-fitted, and resampled as ever.
    as_fitted = [m.bootstrap(X[few], y[few], n=3, corrected=False, random_state=0) for m in (plain, model)]
    np.testing.assert_array_equal(as_fitted[0].loadings, as_fitted[1].loadings)


def test_arguments_are_checked(rows):
    model = MCPCA(R, random_state=0).fit(*rows)
    with pytest.raises(TypeError, match=r"corrected=1; pass True, or False for loadings that contain the noise"):
        model.bootstrap(*rows, n=2, corrected=1)
    with pytest.raises(ValueError, match=r"confidence=2 is out of bounds"):
        model.bootstrap(*rows, n=2, confidence=2)
