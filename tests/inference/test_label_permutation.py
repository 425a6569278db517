"""Permutations of labels: the fast sums against rows that are moved and centred one permutation at a time."""

import numpy as np
import pytest

from mcpca._data.annotations import take_annotations
from mcpca._inference import label_permutation
from mcpca._inference.label_permutation import (
    LabelTest,
    dispersion,
    dispersion_beyond_scale,
    over_splits,
    tail_of_sum,
    units_of_groups,
    units_of_rows,
    upper_tail,
    without_common_scale,
)
from mcpca._utils.progress import silent


def contexts_with(counts, groups=None):
    y = np.repeat(np.arange(len(counts)), counts)
    return take_annotations(np.zeros((len(y), 2)), y, groups=groups, batch=None, covariates=None).contexts(), y


def centred(Z, y):
    return Z - np.stack([Z[y == i].mean(axis=0) for i in range(y.max() + 1)])[y]


def slow_variances(Z, y, k):
    """v_ij by its definition: variances about the mean of the context, over their own mean by freedom."""
    v = np.stack([Z[y == i].var(axis=0, ddof=1) for i in range(k)])
    freedom = np.bincount(y, minlength=k) - 1
    return v / (freedom @ v / freedom.sum()), freedom


def slow_dispersion(Z, y, k):
    v, freedom = slow_variances(Z, y, k)
    return sum(freedom[i] * (v[i] - 1) ** 2 for i in range(k))


def test_observed_variances_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    contexts, y = contexts_with([4, 9, 30])
    Z = centred(rng.standard_normal((43, 3)) * [1, 2, 3], y)
    test = LabelTest.of(Z, y, units_of_rows(contexts, rng), 3)
    v, freedom = test.variances(test.observed)
    expected, expected_freedom = slow_variances(Z, y, 3)
    np.testing.assert_allclose(v, expected, rtol=1e-12)
    np.testing.assert_array_equal(freedom, expected_freedom)
    np.testing.assert_allclose(dispersion(v, freedom), slow_dispersion(Z, y, 3), rtol=1e-12)


def test_permuted_statistics_are_those_of_moved_rows():
    rng = np.random.default_rng(1)
    contexts, y = contexts_with([4, 7, 12])
    n = np.array([4, 7, 12])
    Z = centred(rng.standard_normal((23, 3)), y)
    test = LabelTest.of(Z, y, units_of_rows(contexts, rng), 3)
    fast = test.permuted(dispersion, 5, np.random.default_rng(7), 1, silent)
    # The same stream: rows, enlarged by what centring took, are moved to the places of contexts.
    stream = np.random.default_rng(7).spawn(1)[0]
    orders = stream.permuted(np.tile(np.arange(23), (5, 1)), axis=1)
    enlarged = Z * np.sqrt(n / (n - 1))[y][:, None]
    slow = [slow_dispersion(enlarged[order], y, 3) for order in orders]
    np.testing.assert_allclose(fast, slow, rtol=1e-10)


def test_threads_and_batches_do_not_change_the_answer(monkeypatch):
    rng = np.random.default_rng(2)
    contexts, y = contexts_with([20, 30])
    test = LabelTest.of(centred(rng.standard_normal((50, 2)), y), y, units_of_rows(contexts, rng), 2)
    monkeypatch.setattr(label_permutation, "_BATCH_LABELS", 500)
    one = test.permuted(dispersion, 35, np.random.default_rng(0), 1, silent)
    two = test.permuted(dispersion, 35, np.random.default_rng(0), 2, silent)
    assert one.shape == (35, 2)
    np.testing.assert_array_equal(one, two)
    assert len(np.unique(one[:, 0])) == 35


def test_blocks_of_rows_keep_the_sizes_of_contexts(monkeypatch):
    monkeypatch.setattr(label_permutation, "_MOST_UNITS", 10)
    rng = np.random.default_rng(3)
    contexts, y = contexts_with([10, 14, 8])
    units = units_of_rows(contexts, rng)
    size = np.bincount(units.of_rows)
    assert set(size.tolist()) == {1, 4}
    # Blocks are of one context each.
    assert all(len(set(y[units.of_rows == u])) == 1 for u in range(len(size)))
    Z = centred(rng.standard_normal((32, 2)), y)
    test = LabelTest.of(Z, y, units, 3)
    seen = []
    test.permuted(lambda v, freedom: seen.append(freedom) or v[..., 0, :], 20, rng, 1, silent)
    np.testing.assert_array_equal(np.unique(np.concatenate(seen), axis=0), [[9, 13, 7]])
    # The observed statistic does not know of blocks.
    rows = LabelTest.of(Z, y, label_permutation.Units(np.arange(32), np.zeros(32, int), np.ones(32, bool)), 3)
    np.testing.assert_allclose(test.observed, rows.observed)


def test_nested_groups_trade_contexts_and_crossed_ones_stay_within():
    nested = np.repeat(np.arange(6), 5)
    contexts, _ = contexts_with([15, 15], groups=nested)
    units = units_of_groups(contexts)
    np.testing.assert_array_equal(units.of_rows, nested)
    np.testing.assert_array_equal(units.strata, 0)
    assert units.is_drawn.all()
    crossed = np.tile(np.repeat(np.arange(3), 5), 2)
    contexts, y = contexts_with([15, 15], groups=crossed)
    units = units_of_groups(contexts)
    assert len(units.strata) == 6
    assert not units.is_drawn.any()
    # Each permutation leaves every context one cell of each group: sums of a mark of the group do not change.
    mark = np.choose(crossed, [1.0, 10.0, 100.0])
    test = LabelTest.of(np.sqrt(mark)[:, None], y, units, 2)
    seen = []
    test.permuted(lambda v, freedom: seen.append(v) or v[..., 0, :], 50, np.random.default_rng(0), 1, silent)
    np.testing.assert_allclose(np.concatenate(seen), 1.0)


def test_one_group_in_each_context_says_nothing():
    rng = np.random.default_rng(4)
    contexts, y = contexts_with([20, 20, 20], groups=np.repeat(np.arange(3), 20))
    Z = centred(rng.standard_normal((60, 2)) * np.array([1.0, 3.0, 9.0])[y][:, None], y)
    test = LabelTest.of(Z, y, units_of_groups(contexts), 3)
    null = test.permuted(dispersion, 99, rng, 1, silent)
    observed = dispersion(*test.variances(test.observed))
    np.testing.assert_allclose(null, np.broadcast_to(observed, null.shape))
    np.testing.assert_array_equal(upper_tail(observed, null), 1.0)
    assert tail_of_sum(observed, null) == 1.0


def test_beyond_scale_ignores_one_factor_a_context():
    rng = np.random.default_rng(5)
    contexts, y = contexts_with([30, 40, 50])
    Z = centred(rng.standard_normal((120, 3)), y)
    factor = np.array([1.0, 5.0, 0.1])[y][:, None]
    units = units_of_rows(contexts, rng)
    plain = LabelTest.of(Z, y, units, 3)
    scaled = LabelTest.of(Z * factor, y, units, 3).without_scale()
    expected = dispersion_beyond_scale(*plain.variances(plain.observed))
    np.testing.assert_allclose(dispersion_beyond_scale(*scaled.variances(scaled.observed)), expected, rtol=1e-8)
    v, _ = scaled.variances(scaled.observed)
    np.testing.assert_allclose(v.mean(axis=1), 1.0, rtol=1e-8)


def test_scales_of_contexts_are_those_of_turns_by_hand():
    rng = np.random.default_rng(3)
    v = rng.gamma(2.0, 0.5, (3, 7, 4)) * rng.gamma(2.0, 1.0, (3, 7, 1))
    freedom = rng.integers(3, 30, (3, 7)).astype(float)
    relative, scale = without_common_scale(v, freedom)
    for b in range(3):
        c = np.ones(7)
        for _ in range(200):
            m = np.average(v[b] / c[:, None], axis=0, weights=freedom[b])
            c *= (v[b] / c[:, None] / m).mean(axis=1)
        np.testing.assert_allclose(scale[b, :, 0], c, rtol=1e-5)
        m = np.average(v[b] / c[:, None], axis=0, weights=freedom[b])
        np.testing.assert_allclose(relative[b], v[b] / c[:, None] / m, rtol=1e-5)


def test_tails_count_ties_and_the_data_themselves():
    null = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    np.testing.assert_allclose(upper_tail(np.array([2.0, 5.0]), null), [0.75, 1.0])
    assert upper_tail(np.array(9.0), null[:, 0]) == pytest.approx(0.25)
    # An axis that no permutation changes has no say.
    assert tail_of_sum(np.array([9.0, 5.0]), null) == pytest.approx(0.25)


def test_splits_that_agree_keep_their_p_value_and_others_lose():
    np.testing.assert_allclose(over_splits(np.array([[0.01, 0.2], [0.01, 0.2]])), [0.01, 0.2])
    np.testing.assert_allclose(over_splits(np.array([0.011, 0.989])), 0.5)
    assert over_splits(np.array([1.0, 1.0])) == 1.0
    assert 0.3 < over_splits(np.array([0.001, 1.0])) < 0.5
    # Never below its level, for scores that depend on each other in any degree: the variance of their mean is below 1.
    rng = np.random.default_rng(0)
    from scipy.special import ndtr

    for shared in (0.0, 0.5, 0.9):
        z = np.sqrt(shared) * rng.standard_normal(20_000) + np.sqrt(1 - shared) * rng.standard_normal((4, 20_000))
        assert np.mean(over_splits(ndtr(z)) <= 0.05) < 0.053
