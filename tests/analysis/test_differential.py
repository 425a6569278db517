"""Differential variance: ratios and intervals by hand, p by a slow twin, planted ratios found, bad input named."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from stored_fit import stored_fit
from test_designs import with_loadings

from mcpca.analysis import differential_variance


def log_ratio_and_error(v, second, blocks=None):
    """By the definition: contexts are the units, or the blocks are."""
    if blocks is None:
        a, b = v[~second], v[second]
        shares = [x.var(ddof=1) / len(x) / x.mean() ** 2 for x in (a, b)]
        return np.log(b.mean() / a.mean()), np.sqrt(sum(shares))
    a, b = (np.array([v[(blocks == g) & one].mean() for g in np.unique(blocks)]) for one in (~second, second))
    d = b / b.mean() - a / a.mean()
    return np.log(b.mean() / a.mean()), d.std(ddof=1) / np.sqrt(len(d))


def p_twin(v, second, blocks):
    """All ways to assign the groups within blocks, one after the other."""
    blocks_or_none = blocks if blocks is not None and len(np.unique(blocks)) > 1 else None

    def size(groups):
        ratio, error = log_ratio_and_error(v, groups, blocks_or_none)
        return abs(ratio / error)

    codes = np.zeros(len(v), int) if blocks is None else blocks
    members = [np.flatnonzero(codes == g) for g in np.unique(codes)]
    ways = []
    for way in itertools.product(*(itertools.combinations(m, int(second[m].sum())) for m in members)):
        groups = np.zeros(len(v), bool)
        groups[[i for one in way for i in one]] = True
        ways.append(size(groups))
    return (np.array(ways) >= size(second) * (1 - 1e-9)).mean()


@pytest.mark.parametrize("blocks", [None, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]])
def test_ratio_interval_and_p_are_those_of_twins(rng, blocks):
    blocks = None if blocks is None else np.array(blocks)
    second = np.array([0, 1, 0, 1, 1, 0, 0, 1, 0, 1], dtype=bool)
    B = np.sort(rng.gamma(2, 1, (10, 3)) * [3, 2, 1])[:, ::-1]
    model = with_loadings(B)
    found = differential_variance(model, np.where(second, "b", "a"), block=blocks)
    assert found.groups == ("a", "b")
    for j in range(3):
        v, row = model.loadings_[:, j], found.table.iloc[j]
        ratio, error = log_ratio_and_error(v, second, blocks)
        assert np.log(row["ratio"]) == pytest.approx(ratio)
        assert row["log2_ratio"] == pytest.approx(ratio / np.log(2))
        assert row["p"] == pytest.approx(p_twin(v, second, blocks))
        if blocks is None:
            a, b = v[~second] / v[~second].mean(), v[second] / v[second].mean()
            freedom = scipy.stats.ttest_ind(a, b, equal_var=False).df
        else:
            freedom = len(np.unique(blocks)) - 1
        half = scipy.stats.t(freedom).ppf(0.975) * error
        np.testing.assert_allclose(np.log(row[["lower", "upper"]].astype(float)), [ratio - half, ratio + half])


def test_a_planted_ratio_is_found_and_pairs_make_it_sure():
    rng = np.random.default_rng(3)
    patient, after = np.repeat(np.arange(10), 2), np.tile([False, True], 10)
    B = rng.gamma(2, 1, (10, 3))[patient] * np.exp(0.1 * rng.standard_normal((20, 3))) * [9, 3, 1]
    B[after, 1] *= 2
    groups = np.where(after, "after", "before")
    model = with_loadings(B)
    found = differential_variance(model, groups, block=patient, reference="before")
    j = int(np.argmin([abs(model.loadings_[:, i].sum() - B[:, 1].sum()) for i in range(3)]))
    name = f"MCPC {j + 1}"
    assert found.significant == [name]
    row = found.table.loc[name]
    assert row["lower"] < 2 < row["upper"]
    assert row["upper"] / row["lower"] < 1.5
    assert row["p"] == 2 / 1024
    assert "10 contexts of after over that in 10 of before, by all 1,024 rearrangements within pairs" in str(found)
    assert f"{name} by a factor of {row['ratio']:.2g}" in str(found)
    assert differential_variance(model, groups).significant == []
    # The other way round it is one over it.
    other = differential_variance(model, groups, block=patient, reference="after").table
    np.testing.assert_allclose(other["ratio"], 1 / found.table["ratio"])
    np.testing.assert_allclose(other["lower"], 1 / found.table["upper"])
    np.testing.assert_allclose(other["p"], found.table["p"])


def test_the_level_is_kept_for_skewed_loadings():
    """Exact whatever the distribution; 400 tests with 5 against 7 exponential loadings."""
    rng = np.random.default_rng(0)
    p = np.concatenate(
        [
            differential_variance(with_loadings(rng.gamma(1, 1, (12, 4))), [0] * 5 + [1] * 7).table["p"]
            for _ in range(100)
        ]
    )
    assert scipy.stats.binomtest(int((p <= 0.05).sum()), len(p), 0.05).pvalue > 0.01
    assert scipy.stats.binomtest(int((p <= 0.5).sum()), len(p), 0.5).pvalue > 0.01


def test_groups_in_every_form(rng):
    B = rng.gamma(2, 1, (9, 2))
    model = with_loadings(B)
    names = [str(name) for name in model.contexts_]
    labels = ["y", "x", "x", "y", "x", "y", "x", "y", "y"]
    plain = differential_variance(model, labels).table
    listed = {"x": [n for n, g in zip(names, labels, strict=True) if g == "x"]}
    listed["y"] = [n for n in names if n not in listed["x"]]
    pd.testing.assert_frame_equal(differential_variance(model, listed).table, plain)
    pd.testing.assert_frame_equal(differential_variance(model, dict(zip(names, labels, strict=True))).table, plain)
    some = differential_variance(model, {"x": listed["x"], "y": listed["y"][:3]})
    assert some.n_contexts == (4, 3)
    ages = np.array([50, 20, 30, 60, 10, 70, 25, 80, 90])
    by_age = differential_variance(model, ages, split=50)
    assert by_age.groups == ("< 50", ">= 50")
    pd.testing.assert_frame_equal(by_age.table, plain)
    X = np.vstack([rng.standard_normal((30, 4)) * np.sqrt([b[0], b[1], 0.1, 0.1]) for b in B])
    adata, fitted = stored_fit(X, np.repeat(names, 30), 2)
    adata.obs["group"] = np.repeat(labels, 30)
    pd.testing.assert_frame_equal(
        differential_variance(adata, "group").table, differential_variance(fitted, labels).table
    )


def test_what_a_group_lacks_and_what_does_not_vary():
    B = np.column_stack([np.arange(1.0, 9), np.where(np.arange(8) < 4, 2.0 + np.arange(8), 0), np.full(8, 0.5)])
    model = with_loadings(B)
    j = {name: i for i, name in enumerate(("grows", "absent", "constant"))}
    order = [int(np.argmin(np.abs(B - model.loadings_[:, [i]]).sum(axis=0))) for i in range(3)]
    found = differential_variance(model, ["a"] * 4 + ["b"] * 4).table
    absent, constant = found.iloc[order.index(j["absent"])], found.iloc[order.index(j["constant"])]
    assert absent["ratio"] == 0
    assert np.isnan(absent["lower"])
    assert absent["p"] == 2 / 70
    assert constant["ratio"] == 1
    assert np.isnan(constant["p"])


def test_random_rearrangements_have_a_seed(rng):
    model = with_loadings(rng.gamma(2, 1, (40, 2)))
    first, again = (differential_variance(model, np.arange(40) % 2, random_state=1) for _ in range(2))
    pd.testing.assert_frame_equal(first.table, again.table)
    assert "random 9,999 rearrangements" in str(first)
    with pytest.raises(ValueError, match="permutations=10 gives no p-value below"):
        differential_variance(model, np.arange(40) % 2, permutations=10)


def test_bad_input_is_named(rng):
    model = with_loadings(rng.gamma(2, 1, (6, 2)))
    with pytest.raises(ValueError, match="groups has 3 values, 'a', 'b', 'c'; pass two groups, or split"):
        differential_variance(model, list("aabbcc"))
    with pytest.raises(ValueError, match="groups has 5 contexts of 'a' and 1 of 'b', and 2 of each are needed"):
        differential_variance(model, list("aaaaab"))
    with pytest.raises(ValueError, match=r"groups has shape \(5,\)"):
        differential_variance(model, list("aabbb"))
    with pytest.raises(ValueError, match="reference='c' is none of the two groups, 'a', 'b'"):
        differential_variance(model, list("aaabbb"), reference="c")
    with pytest.raises(ValueError, match="block: 1 of 5 blocks have contexts of both groups, and 2 are needed"):
        differential_variance(model, list("ababab"), block=[0, 0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"groups\['x'\]='7' is not a context"):
        differential_variance(model, {"x": ["7", "1"], "y": ["2", "3"]})
    with pytest.raises(ValueError, match="groups names context '1' more than once"):
        differential_variance(model, {"x": ["0", "1"], "y": ["1", "3"]})
    with pytest.raises(ValueError, match="groups names 3 groups, 'x', 'y', 'z'; pass two"):
        differential_variance(model, {"x": ["0"], "y": ["1"], "z": ["2"]})
    with pytest.raises(ValueError, match="correction='holm'; choose"):
        differential_variance(model, list("aaabbb"), correction="holm")
    silent = differential_variance(model, list("ababaa"), block=[0, 0, 1, 1, 2, 2])
    assert "1 of 3 blocks have one group only: '2'." in str(silent)
    assert silent.n_contexts == (2, 2)
