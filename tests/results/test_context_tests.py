"""Tests of columns against a covariate of contexts: SciPy's by tables, a count over all arrangements where few."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from mcpca._results import context_tests
from mcpca._results.context_tests import arrangements, compare_with_covariate, n_arrangements, rank_correlations


def scipys(test, v, x):
    """The same test by SciPy: statistic and p by tables."""
    groups = [v[x == g] for g in np.unique(x)]
    found = {
        "spearman": lambda: scipy.stats.spearmanr(v, x),
        "t-test": lambda: scipy.stats.ttest_ind(v[x == 1], v[x == 0]),
        "anova": lambda: scipy.stats.f_oneway(*groups),
    }[test]()
    return found.statistic, found.pvalue


@pytest.mark.parametrize(("test", "levels"), [("spearman", 9), ("t-test", 2), ("anova", 3)])
def test_many_contexts_are_compared_as_scipy_does(rng, test, levels):
    V, x = rng.standard_normal((30, 5)).round(1) + 100, (np.arange(30) % levels).astype(float)  # with ties
    assert n_arrangements(x) > context_tests.MOST_ARRANGEMENTS
    found = compare_with_covariate(test, V, x)
    for j in range(5):
        np.testing.assert_allclose([found.statistics[j], found.p_values[j]], scipys(test, V[:, j], x))


CASES = {
    "spearman": [[3, 1, 4, 9, 5, 2.0], [1, 1, 2, 2, 3, 3, 4.0]],
    "t-test": [[0, 0, 0, 0, 1, 1.0], [1, 0, 1, 0, 1, 0, 0, 0.0]],
    "anova": [[0, 0, 1, 1, 2, 2, 2.0], [2, 2, 0, 1, 1, 1.0]],
}


@pytest.mark.parametrize(("test", "x"), [(test, x) for test, cases in CASES.items() for x in cases])
def test_few_contexts_are_compared_in_all_orders(rng, test, x):
    x = np.array(x)
    V = rng.gamma(0.5, 1, (len(x), 2))
    if test == "spearman":
        V = V.round(1)  # with ties
    found = compare_with_covariate(test, V, x)
    orders = np.array(sorted(set(itertools.permutations(x))))  # each comes as often as any other
    for j in range(2):
        statistic, _ = scipys(test, V[:, j], x)
        others = np.array([scipys(test, V[:, j], order)[0] for order in orders])
        assert found.statistics[j] == pytest.approx(statistic)
        assert found.p_values[j] == pytest.approx(np.mean(np.abs(others) >= abs(statistic) * (1 - 1e-9)))


def test_arrangements_are_all_there_are():
    ways = arrangements(np.array([2.0, 0, 1, 1, 0]))
    assert len(ways) == n_arrangements(np.array([2, 0, 1, 1, 0])) == 30
    assert {tuple(way) for way in ways} == set(itertools.permutations([0.0, 0, 1, 1, 2]))


@pytest.mark.parametrize(("test", "sizes"), [("t-test", [30, 2]), ("t-test", [9, 3]), ("anova", [10, 2, 2])])
def test_few_contexts_with_skewed_loadings_err_no_more_often_than_said(test, sizes):
    """Welch's test of 2 contexts and 30 rejects a quarter of these at 5%, and an eighth at 0.5%."""
    rng = np.random.default_rng(0)
    x = np.repeat(np.arange(len(sizes)), sizes).astype(float)
    p = compare_with_covariate(test, rng.gamma(0.5, 1, (len(x), 4000)), x).p_values
    for level in (0.05, 0.005):
        assert scipy.stats.binomtest(int((p <= level).sum()), 4000, level, alternative="greater").pvalue > 0.001
    assert (p <= 0.05).mean() > 0.03  # it is no less than a test


def test_by_tables_skewed_loadings_of_many_contexts_stay_at_their_level():
    rng = np.random.default_rng(1)
    p = compare_with_covariate("t-test", rng.gamma(0.5, 1, (35, 4000)), (np.arange(35) < 10).astype(float)).p_values
    assert abs((p <= 0.05).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 4000)


@pytest.mark.parametrize("k", [4, 6, 9, 12])
def test_a_perfect_order_is_as_rare_as_it_is(k):
    """By the table of Student's t its p would be 0."""
    found = compare_with_covariate("spearman", np.arange(k)[:, None] ** 2.0, np.arange(k))
    assert (found.statistics[0], found.p_values[0]) == (1, pytest.approx(2 / math.factorial(k)))


@pytest.mark.parametrize("test", ["t-test", "anova"])
def test_groups_that_do_not_vary_within_are_evidence(test):
    x = np.repeat([0.0, 1], [4, 3])
    found = compare_with_covariate(test, x[:, None] * 0.1 + 0.3, x)
    assert np.isinf(found.statistics[0])
    assert found.p_values[0] == pytest.approx(1 / 35)


@pytest.mark.parametrize("test", ["spearman", "t-test", "anova"])
def test_random_arrangements_come_close_to_all(rng, monkeypatch, test):
    V, x = rng.standard_normal((10, 4)), np.repeat([0.0, 1], 5)
    exact = compare_with_covariate(test, V, x).p_values
    monkeypatch.setattr(context_tests, "MOST_ARRANGEMENTS", 0)
    monkeypatch.setattr(context_tests, "_BLOCK_NUMBERS", 700)  # in several blocks
    p = compare_with_covariate(test, V, x, 4000, rng).p_values
    np.testing.assert_allclose(p, exact, atol=4 * 0.5 / np.sqrt(4000) + 1e-3)
    assert compare_with_covariate(test, x[:, None], x, 50, np.random.default_rng(0)).p_values[0] >= 1 / 51


@pytest.mark.parametrize("test", ["spearman", "t-test", "anova"])
@pytest.mark.parametrize("k", [10, 60])
def test_constant_columns_have_no_test(test, k):
    found = compare_with_covariate(test, np.column_stack([np.full(k, 0.1), np.arange(k)]), np.arange(k) % 2)
    assert np.isnan(found.p_values).tolist() == [True, False]
    assert np.isnan(found.statistics).tolist() == [True, False]


def test_rank_correlations_are_scipys(rng):
    V, W = rng.standard_normal((12, 3)).round(1), rng.standard_normal((12, 2))
    expected = [[scipy.stats.spearmanr(v, w).statistic for w in W.T] for v in V.T]
    np.testing.assert_allclose(rank_correlations(V, W), expected)
    assert np.isnan(rank_correlations(np.ones((12, 1)), W)).all()
