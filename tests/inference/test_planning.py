"""Plans from pilots."""

import numpy as np
import pytest

from mcpca import cramer_rao_bound


@pytest.fixture
def pilot(rng):
    A = rng.standard_normal((30, 2))
    return A / np.linalg.norm(A, axis=0), np.array([[1.5, 0.3], [0.3, 1.2], [0.8, 0.8], [1.0, 0.2]]), np.full(4, 0.5)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr("mcpca._inference.planning._DRAWS", 10)


def test_a_small_pilot_asks_for_more_and_a_large_one_does_not(pilot):
    plain = cramer_rao_bound(*pilot, 100)
    small = cramer_rao_bound(*pilot, 100, pilot_samples=20, random_state=0)
    large = cramer_rao_bound(*pilot, 100, pilot_samples=2000, random_state=0)
    assert np.mean(small.angles / plain.angles) > 1.02
    np.testing.assert_allclose(large.angles, plain.angles, rtol=0.02)
    np.testing.assert_allclose(large.loadings, plain.loadings, rtol=0.03)
    np.testing.assert_allclose(small.ascore_loss, np.mean(np.radians(small.angles) ** 2) / 2)
    assert (small.samples_for(5) >= plain.samples_for(5)).all()


def test_the_correction_does_not_depend_on_what_is_planned_and_follows_the_seed(pilot):
    first, second = (cramer_rao_bound(*pilot, n, pilot_samples=20, random_state=1) for n in (101, 401))
    np.testing.assert_allclose(first.angles, 2 * second.angles)
    np.testing.assert_allclose(first.loadings, 2 * second.loadings)
    assert not np.allclose(cramer_rao_bound(*pilot, 101, pilot_samples=20, random_state=2).angles, first.angles)


def test_noise_by_feature_is_planned_for(pilot):
    A, B, _ = pilot
    psi = np.linspace(0.2, 0.5, 30)
    plain = cramer_rao_bound(A, B, psi, 100, diagonal=True)
    corrected = cramer_rao_bound(A, B, psi, 100, diagonal=True, pilot_samples=1000, random_state=0)
    np.testing.assert_allclose(corrected.angles, plain.angles, rtol=0.05)


def test_pilots_without_an_answer_are_refused(pilot):
    with pytest.raises(ValueError, match=r"pilot_samples=1: one integer >= 2"):
        cramer_rao_bound(*pilot, 100, pilot_samples=1)
    # Two rows in each of two contexts vary in two directions, and three components take three.
    B = np.array([[2.0, 1.0, 0.5], [0.2, 1.0, 2.0]])
    with pytest.raises(ValueError, match=r"Of 10 pilots drawn .* pilot_samples=2 rows per context, 10 do not identify"):
        cramer_rao_bound(np.eye(12)[:, :3], B, 0.1, 100, pilot_samples=2, random_state=0)
