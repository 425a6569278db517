"""The law of the top eigenvalue of noise against simulation, and the scales of noise."""

import numpy as np
import pytest

from mcpca._rank.noise_law import _square_table, gaussian_sizes, pooled_top_of_noise, spread_of_noise, top_of_noise
from mcpca._rank.noise_scale import drawn_together, noise_scale
from mcpca._rank.null_draws import _wishart
from mcpca._rank.single_contexts import standard_deviations


def simulated(rng, k, m, n, lengths):
    """Twin: top eigenvalues and mean eigenvalue of ``sum n (W - I)^2``, the top one of the pooled W, and sizes."""
    total = np.zeros((m, m))
    pooled = np.zeros((m, m))
    sizes = []
    for _ in range(k):
        X = lengths(n)[:, None] * rng.standard_normal((n, m))
        W = X.T @ X
        W *= m / np.trace(W)
        total += n * (W - np.eye(m)) @ (W - np.eye(m))
        pooled += W / k
        squares = (X**2).sum(axis=1)
        sizes.append(squares / squares.mean())
    values = np.linalg.eigvalsh(total)
    return values[-1], values.mean(), np.linalg.eigvalsh(pooled)[-1], sizes


@pytest.mark.parametrize(("k", "m", "n"), [(1, 60, 300), (12, 30, 300), (8, 60, 20), (30, 20, 100)])
def test_law_of_gaussian_noise_is_that_of_simulated_noise(rng, k, m, n):
    drawn = [simulated(rng, k, m, n, np.ones)[:3] for _ in range(20)]
    tops, bulks, pools = np.array(drawn).T
    law = spread_of_noise(m, np.full(k, float(n)), np.full(k, float(n)), gaussian_sizes(k))
    assert np.mean(tops) == pytest.approx(law.mean, abs=law.sd)
    assert 0.5 < np.std(tops) / law.sd < 1.7
    assert np.mean(bulks) == pytest.approx(law.bulk, rel=0.02)
    pooled = top_of_noise(m, k * n, np.ones(1))
    assert np.mean(pools) == pytest.approx(pooled.mean, abs=pooled.sd)


def test_law_knows_long_rows(rng):
    k, m, n = 12, 40, 200
    for _ in range(5):
        top, bulk, pool, sizes = simulated(rng, k, m, n, lambda n: np.sqrt(3 / rng.chisquare(5, n)))
        weights = np.full(k, float(n))
        law = spread_of_noise(m, weights, weights, sizes)
        gaussian = spread_of_noise(m, weights, weights, gaussian_sizes(k))
        assert bulk == pytest.approx(law.bulk, rel=0.1)
        assert bulk > 1.5 * gaussian.bulk
        assert top == pytest.approx(law.mean, rel=0.4)
        assert top > gaussian.mean + 10 * gaussian.sd
        assert pool == pytest.approx(top_of_noise(m, k * n, np.concatenate(sizes)).mean, rel=0.15)


@pytest.mark.parametrize(("m", "f"), [(5, 150), (30, 300), (30, 3600), (60, 60), (80, 40)])
def test_law_of_the_pool_is_precise(rng, m, f):
    """Of covariances over their trace, and of correlations, whose diagonal does not vary: a lesser mean."""
    covariances, correlations = [], []
    for _ in range(300):
        W = _wishart(f, m, rng)
        sd = np.sqrt(np.diag(W))
        covariances.append(np.linalg.eigvalsh(W)[-1] / np.trace(W) * m)
        correlations.append(np.linalg.eigvalsh(W / sd[:, None] / sd)[-1])
    for values, unequal in ((covariances, 1.0), (correlations, 0.0)):
        law = pooled_top_of_noise(m, f, np.ones(1), unequal)
        # The mean of 300 has a standard error of 0.06.
        assert np.mean(values) == pytest.approx(law.mean, abs=0.25 * law.sd)
        assert 0.75 < np.std(values) / law.sd < 1.15
        assert np.mean(np.array(values) > law.mean + 2 * law.sd) < 0.065
    assert np.mean(covariances) > np.mean(correlations) + 0.2 * law.sd


def test_law_of_the_pool_knows_long_rows(rng):
    m, n = 40, 2400
    for _ in range(3):
        X = np.sqrt(3 / rng.chisquare(5, (n, 1))) * rng.standard_normal((n, m))
        sizes = (X**2).sum(axis=1)
        value = np.linalg.eigvalsh(X.T @ X)[-1] * m / sizes.sum()
        law = pooled_top_of_noise(m, n, sizes / sizes.mean(), 1.0)
        assert value == pytest.approx(law.mean, rel=0.15)
        assert value > pooled_top_of_noise(m, n, np.ones(1), 1.0).mean + 0.02


@pytest.mark.parametrize("g", [0.01, 0.3, 1.0, 3.0])
def test_rows_of_one_size_have_the_law_in_closed_form(g):
    # Twin: the same rows as two kinds of one size each, for which equations are solved by halving.
    table = _square_table(g, np.ones(1), np.ones(1))
    twin = _square_table(g, np.ones(2), np.full(2, 0.5))
    # At the edge itself the derivative vanishes: half of the digits.
    np.testing.assert_allclose(table, twin, rtol=1e-7)


def test_law_has_its_limits():
    """Far more rows than features: the edge is m (sqrt k + 1)^2, and weights are a unit."""
    for k in (1, 4, 100):
        weights = np.full(k, 1e7)
        law = spread_of_noise(1000, weights, weights, gaussian_sizes(k))
        assert law.mean == pytest.approx(1000 * (np.sqrt(k) + 1) ** 2, rel=0.02)
        assert law.bulk == pytest.approx(1000 * k, rel=0.01)
        other = spread_of_noise(1000, 3 * weights, weights, gaussian_sizes(k))
        assert other.mean == pytest.approx(3 * law.mean, rel=1e-6)
    # A context with a negligible weight changes nothing.
    mixed = spread_of_noise(50, np.array([500.0, 1e-9]), np.array([500.0, 500.0]), gaussian_sizes(2))
    alone = spread_of_noise(50, np.array([500.0]), np.array([500.0]), gaussian_sizes(1))
    assert mixed.mean == pytest.approx(alone.mean, rel=1e-2)
    assert top_of_noise(100, 1e4, np.ones(1)).mean == pytest.approx(1.1**2, rel=0.01)


def test_unique_variances_are_those_of_noise(rng):
    """1 / (S^-1)_jj of a factor model, where features have noise of their own and a common factor that is larger."""
    p, k = 60, 4
    A = np.linalg.qr(rng.standard_normal((p, 2)))[0]
    noise = np.exp(rng.standard_normal(p))
    S = np.stack([30 * A @ A.T + c * np.diag(noise) for c in (0.5, 1, 2, 4)])
    scale = noise_scale(S, np.full(k, 1e6), equal_features=False)
    ratio = scale.features**2 / noise
    # Up to a common factor, but for the few features that the factors are mostly in.
    assert np.std(np.log(ratio)) < 0.2
    assert np.std(np.log(np.diag(S[1]) / noise)) > 0.4
    sizes = scale.contexts / np.array([0.5, 1, 2, 4])
    assert np.ptp(np.log(sizes)) < 0.25
    assert scale.data_rank == p
    other = noise_scale(S * np.outer(noise, noise), np.full(k, 1e6), equal_features=False)
    assert np.std(np.log(other.features / noise / scale.features)) < 0.02
    equal = noise_scale(S, np.full(k, 1e6), equal_features=True)
    np.testing.assert_array_equal(equal.features, 1)


def test_differences_that_chance_makes_between_features_are_taken_away(rng):
    p, f = 40, 500
    by_chance = np.sqrt(rng.chisquare(f, size=(50, p)) / f)
    everywhere = np.ones(p, dtype=bool)
    for sd in by_chance:
        together = drawn_together(sd, everywhere, float(f))
        assert np.std(np.log(together)) < 0.6 * np.std(np.log(sd))
        assert np.mean(np.log(together)) == pytest.approx(np.mean(np.log(sd)), abs=1e-12)
    real = np.exp(rng.standard_normal(p)) * by_chance[0]
    np.testing.assert_allclose(drawn_together(real, everywhere, float(f)), real, rtol=0.02)
    some = np.arange(p) > 3
    kept = drawn_together(by_chance[0], some, float(f))
    np.testing.assert_array_equal(kept[:4], by_chance[0][:4])
    np.testing.assert_array_equal(drawn_together(real[:3], everywhere[:3], 9.0), real[:3])


def test_scales_where_covariances_are_singular(rng):
    p = 20
    B = rng.standard_normal((p, 5))
    exact = noise_scale((B @ B.T)[None], np.array([100.0]), equal_features=False)
    assert exact.data_rank == 5
    assert np.isfinite(exact.features).all()
    assert (exact.features > 0).all()
    # Fewer rows than features: correlations are not inverted, and features are divided by their sd.
    X = rng.standard_normal((8, p)) * np.arange(1, p + 1)
    S = np.cov(X.T)[None]
    few = noise_scale(S, np.array([7.0]), equal_features=False)
    assert few.data_rank == 7
    np.testing.assert_allclose(few.features, np.sqrt(np.diag(S[0])) / np.sqrt(np.trace(S[0]) / p), rtol=1e-9)
    constant = np.zeros((1, 3, 3))
    constant[0, 0, 0] = 2
    assert noise_scale(constant, np.array([9.0]), equal_features=False).features[1] == 1
    assert noise_scale(np.zeros((2, 3, 3)), np.ones(2), equal_features=False).data_rank == 0


def test_more_contexts_ask_for_more():
    bounds = [standard_deviations(k) for k in (1, 12, 100, 2000)]
    assert bounds[0] == 4
    assert (np.diff(bounds) >= 0).all()
    assert 5 < bounds[-1] < 8


@pytest.mark.parametrize(("m", "f"), [(5, 1000), (30, 300), (30, 50_000), (200, 100)])
def test_the_top_of_white_noise_is_johnstones(m, f):
    """Centre ``(sqrt(f) + sqrt(m))^2 / f`` and scale of Tracy and Widom, whose standard deviation is 1.268."""
    law = top_of_noise(m, f, np.ones(1))
    scale = (np.sqrt(f) + np.sqrt(m)) * (1 / np.sqrt(f) + 1 / np.sqrt(m)) ** (1 / 3) / f
    np.testing.assert_allclose(law.sd, 1.2680 * scale, rtol=1e-4)
    np.testing.assert_allclose(law.mean, (np.sqrt(f) + np.sqrt(m)) ** 2 / f - 1.2065 * scale, rtol=1e-4)
