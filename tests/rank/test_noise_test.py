"""What is left after r components, against noise."""

import numpy as np
import pytest

from mcpca._covariances.context_covariances import covariances_of
from mcpca._data.contexts import read_contexts
from mcpca._rank.noise_test import ResidualTest
from mcpca._rank.null_draws import _wishart
from mcpca.datasets import make_contexts


def silent(*_):
    pass


def residual_test(X, y, *, null="auto", rows=True, seed=0, workers=1):
    contexts = read_contexts(X, y)
    return ResidualTest(covariances_of(contexts, silent), contexts if rows else None, null, seed, workers)


@pytest.fixture(scope="module")
def planted():
    return make_contexts(6, 15, 3, n_samples=150, noise=0.2, random_state=0)


def null_covariances(test, r, draws=2):
    """Null covariances of every context, in the coordinates that the test uses (k, draws, m, m)."""
    Q = np.ascontiguousarray(test.V[:, r:])
    return np.array(list(test._over_null(r, Q, range(draws), lambda Z, _: Z)))


def test_spread_is_its_definition(planted):
    test = residual_test(planted.X, planted.y)
    for r in (0, 2, 3):
        total = np.zeros((15 - r, 15 - r))
        scaled = [S * 15 / np.trace(S) for S in test.data.S]
        frame = np.linalg.eigh(sum(149 * S @ S for S in scaled))[1][:, ::-1]
        Q = frame[:, r:]
        for S in scaled:
            Z = Q.T @ S @ Q
            Z = Z * len(Z) / np.trace(Z) - np.eye(len(Z))
            total += 149 * Z @ Z
        np.testing.assert_allclose(test.level(r).spread, np.linalg.eigvalsh(total)[-1], rtol=1e-9)


def test_white_noise_has_the_edge_of_marchenko_and_pastur(rng):
    k, n, p = 9, 2000, 40
    level = residual_test(rng.standard_normal((k * n, p)), np.repeat(np.arange(k), n)).level(0, thorough=True)
    assert level.spread == pytest.approx(p * (np.sqrt(k) + 1) ** 2, rel=0.15)
    assert level.null_mean == pytest.approx(p * (np.sqrt(k) + 1) ** 2, rel=0.05)
    assert not level.above_noise


def test_signs_keep_the_variance_of_every_feature_in_every_context(planted):
    X = planted.X * np.linspace(0.1, 10, 15)
    test = residual_test(X, planted.y)
    drawn = null_covariances(test, 0)
    for S, size, null in zip(test.data.S, test.data.size, drawn, strict=True):
        for Z in null:
            np.testing.assert_allclose(np.diag(Z) * size, np.diag(S), rtol=1e-5)
            off = Z - np.diag(np.diag(Z))
            assert np.abs(off).max() < 0.5 * np.abs(S / size - np.diag(np.diag(S / size))).max()


def test_rotated_signs_keep_the_total_variance_and_no_more(planted):
    X = planted.X * np.linspace(0.1, 10, 15)
    test = residual_test(X, planted.y, null="isotropic")
    for null in null_covariances(test, 0):
        for Z in null:
            np.testing.assert_allclose(np.diag(Z), 1, rtol=1e-5)


def test_principal_components_are_recognised(planted):
    centred = planted.X - planted.X.mean(axis=0)
    scores = centred @ np.linalg.svd(centred, full_matrices=False)[2].T
    assert residual_test(scores, planted.y).null.isotropic
    assert residual_test(scores.astype(np.float32), planted.y).null.isotropic
    assert not residual_test(scores, planted.y, null="features").null.isotropic
    assert not residual_test(planted.X, planted.y).null.isotropic
    assert residual_test(planted.X, planted.y, null="isotropic").null.isotropic
    # The spread does not know of rotations, and nor does isotropic noise.
    raw, turned = residual_test(planted.X, planted.y, null="isotropic"), residual_test(scores, planted.y)
    assert raw.directions_above_noise() == turned.directions_above_noise() == 3


@pytest.mark.parametrize("n", [4, 30])
def test_wishart_has_its_mean_and_rank(n):
    p = 8
    draws = np.stack([_wishart(n, p, np.random.default_rng(i)) for i in range(3000)])
    np.testing.assert_allclose(draws.mean(axis=0) / n, np.eye(p), atol=0.1)
    # Var(W_12) = n for unit variances: Bartlett's factors have the right law and not only the right mean.
    assert draws[:, 0, 1].var() == pytest.approx(n, rel=0.15)
    assert np.linalg.matrix_rank(draws[0]) == min(n, p)


def test_gaussian_stand_ins_give_the_same_answer_as_rows(planted):
    assert residual_test(planted.X, planted.y, rows=False).directions_above_noise() == 3
    assert residual_test(planted.X, planted.y).directions_above_noise() == 3


@pytest.mark.parametrize(("k", "n", "p"), [(30, 4, 100), (20, 6, 40), (4, 20, 200)])
def test_noise_in_fewer_rows_than_features_has_no_directions(k, n, p):
    """The rows are centred, so those with signs are centred again: else they would have a dimension more."""
    for seed in range(5):
        X = np.random.default_rng(seed).standard_normal((k * n, p))
        assert residual_test(X, np.repeat(np.arange(k), n), seed=seed).directions_above_noise() == 0


@pytest.mark.parametrize(
    ("k", "n", "p", "power"), [(4, 20, 50, True), (1, 300, 10, True), (2, 12, 3, False), (2, 50, 2, False)]
)
def test_power_is_that_to_see_a_factor(rng, k, n, p, power):
    X, y = rng.standard_normal((k * n, p)), np.repeat(np.arange(k), n)
    assert residual_test(X, y).has_power() is power
    assert residual_test(X, y, rows=False).has_power() is power
    # What it says it would see it sees: a factor with a tenth of the variance of every feature.
    planted = np.sqrt(0.9) * X + np.sqrt(0.1) * rng.standard_normal((k * n, 1)) * rng.choice([-1, 1], p)
    assert residual_test(planted, y).level(0, thorough=True).above_noise is power


def test_a_direction_of_one_context_does_not_drown_in_the_others(rng):
    """Forty contexts of noise, one of which has a weak direction of its own."""
    k, n, p = 40, 300, 20
    X, y = rng.standard_normal((k * n, p)), np.repeat(np.arange(k), n)
    assert residual_test(X, y).directions_above_noise() == 0
    direction = np.linalg.qr(rng.standard_normal((p, 1)))[0][:, 0]
    X[:n] += 0.95 * rng.standard_normal((n, 1)) * direction
    test = residual_test(X, y)
    assert test.directions_above_noise() == 1
    assert test.together == 0


def test_threads_change_nothing(planted):
    one, two = (residual_test(planted.X, planted.y, workers=w) for w in (1, 2))
    for r in (0, 3):
        assert one.level(r, thorough=True) == two.level(r, thorough=True)
    np.testing.assert_array_equal(one.scree_band(), two.scree_band())


def test_scree_and_its_band(planted):
    test = residual_test(planted.X, planted.y)
    sigma = np.linalg.svd(np.concatenate(list(test.data.S), axis=1))[1]
    np.testing.assert_allclose(test.singular_values(), sigma, rtol=1e-9)
    band = test.scree_band()
    assert band.shape == (10, 15)
    assert (np.diff(band, axis=1) <= 0).all()
    assert (sigma[:3] > band[:, :3].max(axis=0)).all()
    assert (sigma[3:] < band[:, 3:].min(axis=0)).all()


def test_exactly_low_rank_data_have_that_rank():
    exact = make_contexts(8, 20, 5, n_samples=100, noise=0.0, random_state=1)
    test = residual_test(exact.X, exact.y)
    assert test.data_rank == 5
    assert test.directions_above_noise() == 5


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scale_is_immaterial(planted, scale):
    one, other = residual_test(planted.X, planted.y), residual_test(scale * planted.X, planted.y)
    assert one.level(2).excess == pytest.approx(other.level(2).excess, rel=1e-3)
    assert one.level(3).excess == pytest.approx(other.level(3).excess, abs=0.01)


def test_a_context_without_variation_is_left_out(planted):
    X, y = np.vstack([planted.X, np.ones((20, 15))]), np.append(planted.y, np.full(20, 6))
    assert residual_test(X, y).directions_above_noise() == 3
