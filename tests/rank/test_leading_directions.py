"""Noise along the directions of one half, in the rows of the other; and tails that only draws know."""

import numpy as np
import pytest

from mcpca import context_covariances
from mcpca._data.contexts import read_contexts
from mcpca._rank.leading_directions import in_directions, largest_rank, noise_directions
from mcpca._rank.noise_test import ResidualTest
from mcpca._rank.sample_fits import Method, SampleFits, Sweep
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts


def half_fits(X, y, largest=10):
    return SampleFits(read_contexts(X, y), Sweep(largest, 0, 1, silent, Method()))


def test_noise_of_any_size_is_white_in_rows_that_did_not_choose_the_directions():
    rng = np.random.default_rng(0)
    sizes = 10 ** rng.uniform(-1, 1, 80)
    y = np.repeat(np.arange(4), 500)
    first, second = (rng.standard_normal((2000, 80)) * sizes for _ in range(2))
    directions = noise_directions(half_fits(first, y))
    moments, rows = in_directions(read_contexts(second, y), directions, rng)
    assert moments.covariances.shape == (4, 10, 10)
    np.testing.assert_allclose(moments.covariances.mean(axis=0), np.eye(10), atol=0.15)
    # By the definition, row by row.
    np.testing.assert_allclose(np.asarray(rows.block(1)), second[y == 1] @ directions, atol=1e-9)
    # The same rows have more variance along the directions that they chose.
    own, _ = in_directions(read_contexts(first, y), directions, rng)
    assert np.trace(own.covariances.mean(axis=0)) > 1.1 * np.trace(moments.covariances.mean(axis=0))


def test_axes_are_as_many_directions_above_noise():
    halves = [make_contexts(6, 80, 4, n_samples=300, noise=0.3, random_state=1)]
    X, y = halves[0].X, halves[0].y
    odd = np.arange(len(y)) % 2 == 1
    directions = noise_directions(half_fits(X[~odd], y[~odd]))
    moments, rows = in_directions(read_contexts(X[odd], y[odd]), directions, np.random.default_rng(0))
    assert ResidualTest(moments, rows, "isotropic", 0, 1).directions_above_noise() == 4


def test_a_feature_that_never_varies_has_no_part():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 50))
    X[:, 7] = 3.0
    directions = noise_directions(half_fits(X, np.repeat([0, 1], 200)))
    assert np.isfinite(directions).all()
    assert not directions[7].any()


@pytest.mark.parametrize(("p", "r"), [(2000, 30), (40, 20), (3, 1), (2, 1)])
def test_ranks_leave_half_of_all_directions(p, r):
    assert largest_rank(p) == r


def noise_test_of(X, y):
    moments = context_covariances(X, y) if y is not None else context_covariances(X)
    return ResidualTest(moments, read_contexts(X, y), "auto", 0, 1)


@pytest.mark.parametrize("seed", range(3))
def test_large_entries_are_no_directions(seed):
    """In the law of white noise a feature that has large entries in one context is one; rows with signs keep them."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(12), 150)
    heavy = noise_test_of(rng.standard_t(4, (1800, 150)), y)
    assert heavy.directions_above_noise() == 0
    assert heavy.has_drawn
    light = noise_test_of(rng.standard_normal((1800, 150)), y)
    assert light.directions_above_noise() == 0
    assert not light.has_drawn


def test_a_feature_that_others_determine_does_not_hide_the_rest():
    """Divided by its unique standard deviation, a fourteenth of the whole, it would be the top direction by itself."""
    rng = np.random.default_rng(34)
    Q = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    X = rng.standard_normal((300, 12)) * np.sqrt([4.0] * 6 + [0.2] * 6) @ Q
    assert noise_test_of(X, None).directions_above_noise() in (5, 6)
