"""What is left after r components, against noise."""

from dataclasses import replace

import numpy as np
import pytest

from mcpca._covariances.context_covariances import covariances_of
from mcpca._data.contexts import read_contexts
from mcpca._rank.noise_test import ResidualTest
from mcpca._rank.noise_units import refitted
from mcpca._rank.null_draws import _wishart
from mcpca._rank.residual_sums import top_pair
from mcpca._rank.shared_axes import shared_excess
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
    """Null covariances of every context outside r directions, in units of noise (k, draws, p, p)."""
    test.sums.grow(r)
    return np.array(list(test.levels_in_units.over_null(test.V[:, :r], range(draws), lambda Z, _: Z)))


def test_spread_is_its_definition(planted):
    """Twin: contexts one by one, in coordinates outside the leading eigenvectors."""
    test = residual_test(planted.X, planted.y)
    for r in (0, 2, 3):
        scaled = [test.data.scaled(i) for i in range(6)]
        frame = np.linalg.eigh(sum(149 * S @ S for S in scaled))[1][:, ::-1]
        Q = frame[:, r:]
        m = 15 - r
        sizes = np.array([np.trace(Q.T @ S @ Q) / m for S in scaled])
        weights = sizes**2 / np.mean(sizes**2)
        total = np.zeros((m, m))
        for S, size, weight in zip(scaled, sizes, weights, strict=True):
            D = Q.T @ S @ Q / size - np.eye(m)
            total += 149 * weight * D @ D
        np.testing.assert_allclose(test.levels_in_units.known(r).spread, np.linalg.eigvalsh(total)[-1], rtol=1e-9)


def test_pooled_residual_is_its_definition(planted):
    test = residual_test(planted.X, planted.y)
    test.sums.grow(2)
    P = np.eye(15) - test.V[:, :2] @ test.V[:, :2].T
    pooled = np.mean([P @ test.data.scaled(i) @ P / np.trace(P @ test.data.scaled(i)) * 13 for i in range(6)], axis=0)
    value, vector = test.sums.pooled(2).top()
    np.testing.assert_allclose(value, np.linalg.eigvalsh(pooled)[-1], rtol=1e-9)
    np.testing.assert_allclose(pooled @ vector, value * vector, atol=1e-8)


def test_white_noise_has_the_edge_of_marchenko_and_pastur(rng):
    k, n, p = 9, 2000, 40
    test = residual_test(rng.standard_normal((k * n, p)), np.repeat(np.arange(k), n))
    law, drawn = test.level(0), test.level(0, thorough=True)
    for level in (law, drawn):
        assert level.spread == pytest.approx(p * (np.sqrt(k) + 1) ** 2, rel=0.15)
        assert level.null_mean == pytest.approx(p * (np.sqrt(k) + 1) ** 2, rel=0.05)
        assert not level.above_noise
    # The law and rows with random signs tell the same, from different sources.
    assert law.null_mean != drawn.null_mean
    assert law.null_mean == pytest.approx(drawn.null_mean, abs=2 * law.null_sd)


def test_signs_keep_the_variance_of_every_feature_in_every_context(planted):
    test = residual_test(planted.X * np.linspace(0.1, 10, 15), planted.y)
    drawn = null_covariances(test, 0)
    for i, null in enumerate(drawn):
        S = test.data.scaled(i)
        for Z in null:
            np.testing.assert_allclose(np.diag(Z), np.diag(S), rtol=1e-5)
            off = Z - np.diag(np.diag(Z))
            assert np.abs(off).max() < 0.5 * np.abs(S - np.diag(np.diag(S))).max()


def test_draws_are_outside_the_removed_directions(planted):
    for rows in (True, False):
        test = residual_test(planted.X, planted.y, rows=rows)
        for size, Z in zip(test.sums.sizes(3), null_covariances(test, 3)[:, 0], strict=True):
            np.testing.assert_allclose(Z @ test.V[:, :3], 0, atol=1e-6)
            # As much noise as there is outside three directions, whatever the leverage of features in these.
            assert np.trace(Z) / 12 == pytest.approx(size, rel=0.15)


def test_rotated_signs_keep_the_total_variance_and_no_more(planted):
    test = residual_test(planted.X * np.linspace(0.1, 10, 15), planted.y, null="isotropic")
    np.testing.assert_array_equal(test.data.features, 1)
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


@pytest.mark.parametrize("scales", ["by feature", "units"])
def test_noise_of_features_is_not_structure(scales):
    """Noise that differs between features, or features in other units: the axes are still all that is found."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        k, n, p = 8, 200, 25
        A = np.linalg.qr(rng.standard_normal((p, 3)))[0]
        scores = rng.standard_normal((k * n, 3)) * np.sqrt(np.repeat(rng.uniform(1, 4, (k, 3)), n, axis=0))
        sd = np.exp(0.5 * rng.standard_normal(p))
        X = scores @ A.T
        X = X + sd * rng.standard_normal(X.shape) if scales == "by feature" else (X + rng.standard_normal(X.shape)) * sd
        assert residual_test(X, np.repeat(np.arange(k), n)).directions_above_noise() == 3


def test_a_weak_axis_that_all_contexts_share_is_found_in_the_pool():
    k, n, p = 12, 300, 30
    found = []
    by_pool = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((k * n, p)), np.repeat(np.arange(k), n)
        axis = np.linalg.qr(rng.standard_normal((p, 1)))[0][:, 0]
        # 2.7 times the variance from which on pooled PCA sees an axis at all.
        X += np.sqrt(2.7 * np.sqrt(p / (k * n))) * rng.standard_normal((k * n, 1)) * axis
        test = residual_test(X, y)
        found.append(test.directions_above_noise())
        assert abs(test.V[:, 0] @ axis) > 0.7
        assert test.together == 1
        level = test.levels[0]
        assert level.above_noise
        # The spread of the contexts alone would not have told.
        by_pool += test.shared
        assert (level.spread - level.null_mean > 4 * level.null_sd) != bool(test.shared)
    assert found == [1, 1, 1, 1]
    assert by_pool >= 1


def pooled_parallel_analysis(X, y, rng):
    """Twin: pooled eigenvalues above the largest of 20 with random signs."""
    centred = X - np.array([X[y == i].mean(axis=0) for i in np.unique(y)])[y]
    values = np.linalg.eigvalsh(centred.T @ centred)
    flipped = [centred * rng.choice([-1.0, 1.0], X.shape) for _ in range(20)]
    return int((values > max(np.linalg.eigvalsh(rows.T @ rows)[-1] for rows in flipped)).sum())


def test_near_the_threshold_as_many_are_found_as_by_pooled_parallel_analysis():
    k, n, p = 6, 100, 20
    ours = theirs = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, 9])
        X, y = rng.standard_normal((k * n, p)), np.repeat(np.arange(k), n)
        axis = np.linalg.qr(rng.standard_normal((p, 1)))[0][:, 0]
        X += np.sqrt(2.2 * np.sqrt(p / (k * n))) * rng.standard_normal((k * n, 1)) * axis
        ours += residual_test(X, y).directions_above_noise() >= 1
        theirs += pooled_parallel_analysis(X, y, rng) >= 1
    assert ours >= theirs >= 8


@pytest.mark.parametrize("units", [0.0, 1.0])
def test_the_pool_of_noise_is_above_it_in_three_of_a_hundred(units):
    """Few rows for as many features, alike or in other units: a unit by chance would make directions."""
    k, n, p = 10, 30, 40
    excess = []
    for seed in range(100):
        rng = np.random.default_rng([seed, 10])
        X = rng.standard_normal((k * n, p)) * np.exp(units * rng.standard_normal(p))
        excess.append(shared_excess(residual_test(X, np.repeat(np.arange(k), n)).levels_in_units, 0, 2.0)[0])
    assert np.mean(excess) == pytest.approx(0, abs=0.3)
    assert 0.8 < np.std(excess) < 1.2
    assert np.mean(np.array(excess) > 2) <= 0.06


def test_the_pool_does_not_know_of_units(rng, planted):
    scale = np.exp(rng.standard_normal(15))
    one, other = (residual_test(X, planted.y).levels_in_units for X in (planted.X, planted.X * scale))
    for r in (0, 3):
        values = [top_pair(of.in_units_of_rest(of.sums.pooled(r).matrix(), r))[0] for of in (one, other)]
        assert values[0] == pytest.approx(values[1], rel=0.02)
    for r in (0, 2):
        # Features have variance 1 on average outside r directions, and trace m.
        assert np.trace(one.in_units_of_rest(one.sums.pooled(r).matrix(), r)) == pytest.approx(15 - r)


def test_other_units_are_other_levels(planted):
    levels = residual_test(planted.X, planted.y).levels_in_units
    before = levels.known(3)
    scale = replace(levels.scale, features=2 * levels.scale.features, contexts=levels.scale.contexts / 4)
    other = levels.in_units(scale)
    # Units that cancel out are the same noise, from nothing that was known before.
    assert other.levels == {}
    assert other.known(3).spread == pytest.approx(before.spread, rel=1e-9)
    assert levels.known(3) is before
    assert refitted(levels, 15) is None
    unequal = levels.in_units(replace(levels.scale, contexts=levels.scale.contexts * np.geomspace(0.5, 2, 6)))
    np.testing.assert_allclose(refitted(unequal, 3).sums.sizes(3), 1, rtol=0.05)


@pytest.mark.parametrize("rows_alike", [True, False])
def test_heavy_tails_are_not_structure(rows_alike):
    """A few long rows make directions of their own, as large as those of axes."""
    k, n, p = 8, 150, 20
    for seed in range(4):
        rng = np.random.default_rng(seed)
        lengths = np.ones((k * n, 1)) if rows_alike else np.sqrt(3 / rng.chisquare(5, size=(k * n, 1)))
        X = rng.standard_t(4, (k * n, p)) if rows_alike else lengths * rng.standard_normal((k * n, p))
        assert residual_test(X, np.repeat(np.arange(k), n), seed=seed).directions_above_noise() == 0


def test_contexts_of_a_few_rows_change_nothing(rng, planted):
    """Two rows have no covariance to speak of, but m / 1 times as much of it in one direction."""
    X = np.vstack([planted.X, 5 * rng.standard_normal((20, 15))])
    y = np.append(planted.y, np.repeat(np.arange(10, 20), 2))
    with_small, without = residual_test(X, y), residual_test(planted.X, planted.y)
    assert with_small.data.varying.tolist() == list(range(6))
    assert with_small.directions_above_noise() == without.directions_above_noise() == 3


def test_clear_cases_need_no_draw():
    clear = make_contexts(8, 40, 3, n_samples=200, noise=0.2, random_state=0)
    test = residual_test(clear.X, clear.y)
    test.null.over = None  # a draw would be a call
    assert test.directions_above_noise() == 3
    assert test.level(2).excess > 100
    assert abs(test.level(3).excess) < 3


def test_draws_and_the_law_give_the_same_answer(planted):
    test = residual_test(planted.X, planted.y)
    for r in range(5):
        assert test.level(r, thorough=True).above_noise is (r < 3)
        assert len(test.levels_in_units.drawn[r].spreads) >= 2


def test_lanczos_finds_the_directions_of_many_features(rng):
    k, n, p = 3, 250, 460  # beyond the bound up to which all eigenvectors are found
    A = np.linalg.qr(rng.standard_normal((p, 4)))[0]
    X = 3 * rng.standard_normal((k * n, 4)) @ A.T + rng.standard_normal((k * n, p))
    test = residual_test(X, np.repeat(np.arange(k), n))
    assert test.directions_above_noise() == 4
    assert test.V.shape[1] < p
    np.testing.assert_allclose(test.V.T @ test.V, np.eye(test.V.shape[1]), atol=1e-10)
