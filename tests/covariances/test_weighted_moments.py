"""Distances of rows, their weights, and moments of weighted rows in whatever form the rows come."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chi2

from mcpca._covariances.passes import Passes
from mcpca._covariances.weighted_moments import (
    ShrunkSource,
    bin_centres,
    nearest,
    shrunk_rows,
    weighted_moments,
    weighted_spread,
    weights_of,
)
from mcpca._data.contexts import read_contexts
from mcpca._data.sources import as_source
from mcpca._model.gaussian import GaussianModel
from mcpca._model.outlyingness import row_distances
from tests.support.same_rows import assert_same_rows
from tests.twins import squared_distances, weighted_scatter

K, P, R = 3, 7, 2


@pytest.fixture
def rows(rng):
    """Rows of three contexts in mixed order, far from 0, with many zeros and a few far out."""
    X = 5 + rng.standard_normal((90, P)) * rng.exponential(size=(90, 1))
    X[rng.random(X.shape) < 0.3] = 0
    return X, rng.permutation(np.repeat(np.arange(K), 30))


@pytest.fixture
def gaussians(rng):
    """Models with each kind of noise; a loading is 0."""
    A = rng.standard_normal((P, R))
    A /= np.linalg.norm(A, axis=0)
    B = rng.exponential(size=(K, R))
    B[1, 0] = 0
    s, psi = rng.uniform(0.5, 2, K), rng.uniform(0.5, 2, P)
    return {
        "isotropic": GaussianModel.with_noise(A, B, s, "isotropic"),
        "diagonal": GaussianModel.with_noise(A, B, psi, "diagonal"),
        "scaled": GaussianModel.with_noise(A, B, np.outer(s, psi), "scaled"),
    }


def covariance(gaussian, i):
    noise = gaussian.feature_noise(gaussian.s)[i]
    return gaussian.A @ np.diag(gaussian.B[i]) @ gaussian.A.T + np.diag(noise)


@pytest.mark.parametrize("kind", ["isotropic", "diagonal", "scaled"])
def test_distances_are_those_of_the_inverse_covariance(kind, gaussians, rows, rng):
    gaussian = gaussians[kind]
    means = rng.standard_normal((K, P))
    distances = row_distances(gaussian, means)
    for i in range(K):
        expected = squared_distances(rows[0], means[i], covariance(gaussian, i))
        np.testing.assert_allclose(distances.squared(rows[0] - means[i], i), expected, rtol=1e-10)
        log_determinant = np.linalg.slogdet(covariance(gaussian, i))[1]
        np.testing.assert_allclose(distances.log_determinants[i], log_determinant, rtol=1e-12)


def test_rows_in_the_span_are_never_at_a_negative_distance(gaussians):
    tiny = GaussianModel(gaussians["isotropic"].A, 1e12 * np.ones((K, R)), np.full(K, 1e-6))
    Z = 1e-3 * tiny.A.T
    assert (row_distances(tiny, np.zeros((K, P))).squared(Z, 0) >= 0).all()


def forms(X, y, tmp_path):
    """The same rows in every form that is read in blocks."""
    import dask.array
    import h5py
    import pandas as pd

    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = X
    blocks = {i: X[y == i] for i in range(K)}
    yield X, y
    yield list(blocks.values()), None
    yield blocks, None
    yield pd.DataFrame(X), y
    yield sp.csr_array(X), y
    yield sp.csc_array(X), y
    yield h5py.File(tmp_path / "rows.h5")["X"], y
    yield lambda: iter([X[:13], X[13:60], X[60:]]), y
    yield dask.array.from_array(X, chunks=(25, P)), y


def test_weighted_moments_of_every_form_are_those_of_a_loop(rows, gaussians, tmp_path):
    X, y = rows
    means = np.stack([X[y == i].mean(axis=0) for i in range(K)])
    distances = row_distances(gaussians["isotropic"], means)
    d2 = np.empty(len(X))
    for i in range(K):
        d2[y == i] = squared_distances(X[y == i], means[i], covariance(gaussians["isotropic"], i))
    w = (3 + P) / (3 + np.maximum(d2, nearest(P)))
    twins = [weighted_scatter(X[y == i], w[y == i]) for i in range(K)]
    for form, labels in forms(X, y, tmp_path):
        found = weighted_moments(read_contexts(form, labels), distances, 3.0, Passes.silent(), "weights")
        np.testing.assert_allclose(found.totals, [w[y == i].sum() for i in range(K)], rtol=1e-12)
        np.testing.assert_allclose(found.means, [mean for mean, _ in twins], rtol=1e-11)
        np.testing.assert_allclose(found.scatters, [scatter for _, scatter in twins], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.log_sum, np.log1p(d2 / 3).sum(), rtol=1e-12)
        assert found.histogram.sum() == len(X)
        spread = weighted_spread(read_contexts(form, labels), distances, 3.0, Passes.silent(), "weights")
        np.testing.assert_allclose(spread[0], found.totals, rtol=1e-12)
        np.testing.assert_allclose(spread[1], found.means, rtol=1e-12)
        np.testing.assert_allclose(spread[2], np.einsum("kpp->k", found.scatters) / found.totals / P, rtol=1e-10)


def test_distances_are_counted_in_bins_two_percent_wide(rows, gaussians):
    X, y = rows
    means = np.zeros((K, P))
    distances = row_distances(gaussians["isotropic"], means)
    contexts = read_contexts(X, y)
    found = weighted_moments(contexts, distances, np.inf, Passes.silent(), "weights")
    d2 = np.sort(np.concatenate([distances.squared(X[y == i], i) for i in range(K)]))
    counted = np.repeat(bin_centres(P), found.histogram.astype(int))
    np.testing.assert_allclose(counted, d2, rtol=0.012)


def test_infinite_degrees_of_freedom_give_the_ordinary_moments(rows, gaussians):
    X, y = rows
    distances = row_distances(gaussians["isotropic"], np.full((K, P), 3.0))
    found = weighted_moments(read_contexts(X, y), distances, np.inf, Passes.silent(), "weights")
    for i in range(K):
        block = X[y == i]
        np.testing.assert_allclose(found.means[i], block.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.scatters[i] / 29, np.cov(block.T), rtol=1e-9, atol=1e-9)


def test_large_means_cost_no_digits(rows, gaussians):
    X, y = rows
    far = 1e9 + 1e3 * np.arange(P)

    def scatters(X):
        means = np.stack([X[y == i].mean(axis=0) for i in range(K)])
        distances = row_distances(gaussians["isotropic"], means)
        return weighted_moments(read_contexts(X, y), distances, 3.0, Passes.silent(), "weights").scatters

    np.testing.assert_allclose(scatters(X + far), scatters(X), rtol=1e-5, atol=1e-4)


def test_a_constant_feature_has_no_scatter(rows, gaussians):
    X, y = rows
    X[:, 2] = 0.1
    means = np.stack([X[y == i].mean(axis=0) for i in range(K)])
    distances = row_distances(gaussians["isotropic"], means)
    S = weighted_moments(read_contexts(X, y), distances, 3.0, Passes.silent(), "weights").scatters
    assert not S[:, 2].any()
    assert not S[:, :, 2].any()
    assert S[:, 3, 3].all()


def test_no_row_weighs_more_for_being_nearer_than_one_in_a_thousand():
    assert chi2.cdf(nearest(30), 30) == pytest.approx(1e-3)
    w = weights_of(np.array([0.0, nearest(30), 30.0, 1e9]), 30, 4.0)
    assert w[0] == w[1] == 34 / (4 + nearest(30))
    assert w[2] == 1
    assert w[3] < 1e-7
    assert (weights_of(np.array([0.0, 1e9]), 30, np.inf) == 1).all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_shrunk_rows_have_the_weighted_moments(rows, gaussians, form):
    X, y = rows
    contexts = read_contexts(form(X), y)
    means = np.stack([X[y == i].mean(axis=0) for i in range(K)])
    distances = row_distances(gaussians["isotropic"], means)
    moments = weighted_moments(contexts, distances, 3.0, Passes.silent(), "weights")
    # About the weighted means, with the weights of the distances from the others: the first order of both is the same.
    shrunk = shrunk_rows(contexts, distances, 3.0, moments.totals)
    for i in range(K):
        Z = shrunk.block(i)
        shift = moments.means[i] - means[i]
        expected = (moments.scatters[i] + moments.totals[i] * np.outer(shift, shift)) * 30 / moments.totals[i]
        np.testing.assert_allclose(Z.T @ Z, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_shrunk_rows_are_a_source(rows, gaussians, form):
    X, y = rows
    distances = row_distances(gaussians["isotropic"], np.ones((K, P)))
    codes = np.where(np.arange(len(y)) < 4, -1, y)
    twin = np.zeros_like(X)
    for i in range(K):
        Z = X[codes == i] - 1
        twin[codes == i] = np.sqrt((i + 1) * weights_of(distances.squared(Z, i), P, 2.0))[:, None] * Z
    source = ShrunkSource(as_source(form(X), "X"), codes, distances, 2.0, np.arange(1.0, K + 1))
    assert_same_rows(source, twin)
