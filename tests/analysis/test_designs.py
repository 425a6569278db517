"""Designs on loadings: p-values equal slow twins, blocks and confounders do what they should, bad input is named."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from stored_fit import stored_fit

from mcpca import MCPCA
from mcpca.analysis import associate, describe
from mcpca.analysis._arrangements import plan
from mcpca.analysis._design_tests import between_contexts, partial_tests
from mcpca.analysis._weights import Sampled, Weights


def with_loadings(B, n_samples=1000):
    """A fit that has the loadings B (k, r): to diagonal covariances, which have no noise."""
    k, r = B.shape
    return MCPCA(r, random_state=0).fit_covariances(B[:, :, None] * np.eye(r), n_samples=np.broadcast_to(n_samples, k))


def residuals(v, D):
    return v - D @ np.linalg.lstsq(D, v, rcond=None)[0]


def partial_f(v, X, D):
    """The F statistic of X beside D, by two fits."""
    before, after = (residuals(v, M) @ residuals(v, M) for M in (D, np.column_stack([D, X])))
    q, freedom = X.shape[1], len(v) - np.linalg.matrix_rank(np.column_stack([D, X]))
    return (before - after) / q / (after / freedom)


def freedman_lane_twin(v, X, Z, blocks):
    """p of X by all permutations of residuals within blocks, one after the other."""
    D = np.column_stack([blocks[:, None] == np.unique(blocks), Z]).astype(float)
    e, observed = residuals(v, D), partial_f(v, X, D)
    fitted = v - e
    members = [np.flatnonzero(blocks == b) for b in np.unique(blocks)]
    larger = n = 0
    for way in itertools.product(*(itertools.permutations(m) for m in members)):
        moved = np.empty_like(e)
        for places, m in zip(way, members, strict=True):
            moved[m] = e[list(places)]
        larger += partial_f(fitted + moved, X, D) >= observed * (1 - 1e-9)
        n += 1
    return larger / n


# Numbers


def test_a_design_without_blocks_is_the_partial_f_test_with_students_interval(rng):
    V, X, Z = rng.gamma(1, 1, (30, 3)), rng.standard_normal((30, 1)), rng.standard_normal((30, 2))
    w = rng.uniform(0.2, 3, 30)
    ways = plan(np.zeros(30, dtype=int), None, 0)
    for weights in (None, w):
        found = partial_tests(V, X, Z, ways, weights, rng, 0.9)
        root = np.sqrt(np.ones(30) if weights is None else w)
        D = root[:, None] * np.column_stack([np.ones(30), Z, X])
        for j in range(3):
            v = root * V[:, j]
            beta, rest, *_ = np.linalg.lstsq(D, v, rcond=None)
            se = np.sqrt(rest[0] / 26 * np.linalg.inv(D.T @ D)[3, 3])
            t = scipy.stats.t(26)
            assert found.effects[0, j] == pytest.approx(beta[3])
            assert found.p_values[j] == pytest.approx(2 * t.sf(abs(beta[3] / se)))
            assert found.lower[0, j] == pytest.approx(beta[3] - t.ppf(0.95) * se)
            assert found.upper[0, j] == pytest.approx(beta[3] + t.ppf(0.95) * se)
            assert found.F[j] == pytest.approx(partial_f(v, D[:, 3:], D[:, :3]))


@pytest.mark.parametrize("c", [0, 1])
@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("blocks", [[0] * 6, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0, 1, 1, 1, 2, 2, 2, 2, 3, 3]])
def test_all_rearrangements_are_those_of_a_slow_twin(rng, blocks, q, c):
    blocks = np.array(blocks)
    k = len(blocks)
    V, Z = rng.gamma(1, 1, (k, 2)) + 10 * rng.random(blocks.max() + 1)[blocks][:, None], rng.standard_normal((k, c))
    X = ((np.arange(k)[:, None] + np.arange(q)) % 3).astype(float)
    codes = None if c else np.unique(X, axis=0, return_inverse=True)[1].reshape(-1)
    found = partial_tests(V, X, Z, plan(blocks, codes, 0), None, rng)
    twin = [freedman_lane_twin(v, X, Z, blocks) for v in V.T]
    np.testing.assert_allclose(found.p_values, twin, atol=1e-12)


def test_sign_flips_are_those_of_the_differences_also_with_weights(rng):
    """Within pairs the design is a regression of differences through zero, whose sign flips are enumerated."""
    k = 16
    blocks, x, V = np.repeat(np.arange(8), 2), rng.standard_normal(k), rng.gamma(1, 1, (k, 1))
    for w in (None, rng.uniform(0.1, 4, k)):
        codes = x if w is None else None
        found = partial_tests(V, x[:, None], np.empty((k, 0)), plan(blocks, codes, 0), w, rng)
        root = np.sqrt(1 / (1 / (np.ones(k) if w is None else w)).reshape(8, 2).sum(axis=1))
        d, z = root * (V[::2, 0] - V[1::2, 0]), root * (x[::2] - x[1::2])
        flips = np.array(list(itertools.product([-1, 1], repeat=8)))
        sizes = np.abs((flips * d) @ z)
        assert found.p_values[0] == pytest.approx((sizes >= abs(d @ z) * (1 - 1e-9)).mean())


def test_random_rearrangements_agree_with_all_and_stay_within_blocks(rng):
    blocks = np.array([0, 2, 1, 2, 1, 2, 2, 0, 3])
    places, signs = next(plan(blocks, None, 0).batches(10**6, rng))
    assert len(places) == 2 * 2 * 24
    ways = plan(np.repeat(np.arange(4), 5), None, 500)
    assert not ways.exact
    places, signs = next(ways.batches(500, rng))
    assert (signs == 1).all()
    assert (np.repeat(np.arange(4), 5)[places] == np.repeat(np.arange(4), 5)).all()
    V, x = rng.standard_normal((12, 2)), np.repeat([0.0, 1.0], 6)
    exact = partial_tests(V, x[:, None], np.empty((12, 0)), plan(np.zeros(12, int), x, 0), None, rng).p_values
    many = plan(np.zeros(12, int), None, 20_000)
    close = partial_tests(V, x[:, None], np.empty((12, 0)), many, None, rng).p_values
    np.testing.assert_allclose(close, exact, atol=0.015)
    flips = plan(np.repeat(np.arange(30), 2), None, 100)
    places, signs = next(flips.batches(100, rng))
    assert (places == np.arange(60)).all()
    assert (signs[:, ::2] == signs[:, 1::2]).all()
    assert abs(signs.mean()) < 0.1


def test_blocks_may_differ_by_anything_and_units_do_not_matter(rng):
    blocks = np.repeat(np.arange(5), 4)
    V, x = rng.gamma(1, 1, (20, 2)), rng.standard_normal((20, 1))
    Z = rng.standard_normal((20, 1))
    ways = plan(blocks, None, 999)
    first = partial_tests(V, x, Z, ways, None, np.random.default_rng(0))
    moved = 1e3 * V + 1e6 * rng.random(5)[blocks][:, None]
    other = partial_tests(moved, 7 * x, 1e-5 * Z + blocks[:, None], ways, None, np.random.default_rng(0))
    np.testing.assert_allclose(other.p_values, first.p_values)
    np.testing.assert_allclose(other.effects, first.effects * 1e3 / 7, rtol=1e-6)


def test_variance_between_contexts_is_that_beyond_sampling(rng):
    k, m = 400, 50
    s2 = rng.uniform(0.1, 5, (k, 1)) * np.ones(m)
    V = 1.5 * rng.standard_normal((k, m)) + np.sqrt(s2) * rng.standard_normal((k, m)) + 3
    tau2 = between_contexts(V, rng.standard_normal((k, 2)), np.zeros(k, int), s2)
    assert tau2.mean() == pytest.approx(1.5**2, rel=0.05)
    assert (between_contexts(np.ones((k, m)), np.empty((k, 0)), np.zeros(k, int), s2) == 0).all()


# The call


@pytest.fixture(scope="module")
def paired():
    """Ten patients before and after, and one that has two samples before."""
    rng = np.random.default_rng(5)
    patient = np.append(np.repeat(np.arange(10), 2), [10, 10])
    after = np.append(np.tile([False, True], 10), [False, False])
    B = rng.gamma(2, 1, (11, 3))[patient] * np.exp(0.1 * rng.standard_normal((22, 3)))
    B[after, 0] *= 1.6
    table = pd.DataFrame(
        {
            "time": pd.Categorical(np.where(after, "after", "before"), ["before", "after"]),
            "patient": [f"P{i}" for i in patient],
            "age": rng.normal(50, 9, 22),
            "sex": np.where(patient % 2, "f", "m"),
            "stage": pd.Categorical.from_codes(np.arange(22) % 4, ["I", "II", "III", "IV"], ordered=True),
            "cells": rng.integers(50, 3000, 22),
        },
        index=[str(i) for i in range(22)],
    )
    return with_loadings(B, table["cells"].to_numpy()), table


def test_pairs_show_what_a_test_without_them_does_not(paired):
    model, table = paired
    assert associate(model, table["time"]).significant == []
    found = associate(model, table["time"], block=table["patient"])
    name = found.table["p"].idxmin()
    assert found.table.loc[name, "p"] == 2 / 1024
    assert found.significant == [name]
    assert found.least_p == 2 / 1024
    assert "against time, by all 1,024 sign flips within pairs" in str(found)
    assert "1 of 11 blocks has one value of time and says nothing about it: 'P10'." in str(found)
    b = model.loadings_[:, found.table.index.get_loc(name)]
    d = (b[1::2] - b[::2])[:10]
    assert found.table.loc[name, "effect"] == pytest.approx(d.mean())
    # The pair that says nothing of the effect has a difference too, which is all error.
    se = np.sqrt(((d - d.mean()) @ (d - d.mean()) + (b[20] - b[21]) ** 2) / 10 / 10)
    half = scipy.stats.t(10).ppf(0.975) * se
    np.testing.assert_allclose(
        found.table.loc[name, ["lower", "upper"]].astype(float), [d.mean() - half, d.mean() + half]
    )
    # The same by a formula, by names of columns, by an array, and whatever the order of the table.
    for other in (
        associate(model, "time", data=table.iloc[::-1], block="patient"),
        associate(model, table["time"].tolist(), block=table["patient"].tolist()),
    ):
        np.testing.assert_allclose(other.table["p"], found.table["p"])
        assert abs(other.table.loc[name, "effect"]) == pytest.approx(d.mean())


def test_each_term_has_its_rows_and_one_is_of_interest(paired):
    model, table = paired
    found = associate(model, "time * sex + age", data=table)
    assert found.covariate == "time"
    assert list(found.effects.loc["MCPC 1"].index) == [
        ("time", "time[T.after]"),
        ("sex", "sex[T.m]"),
        ("age", "age"),
        ("time:sex", "time[T.after]:sex[T.m]"),
    ]
    assert "against time, beside sex, age, by a partial F-test" in str(found)
    of_time = found.effects.xs("time", level="term")
    np.testing.assert_array_equal(of_time["p"], found.table["p"])
    # Main effects without the interaction; the interaction beside all.
    D = np.column_stack([np.ones(22), table["sex"] == "m", table["age"]]).astype(float)
    X = (table["time"] == "after").to_numpy(dtype=float)[:, None]
    F = [partial_f(b, X, D) for b in model.loadings_.T]
    np.testing.assert_allclose(found.table["partial F"], F)
    both = associate(model, "time * sex + age", data=table, test="time:sex")
    F = [partial_f(b, X * D[:, 1:2], np.column_stack([D, X])) for b in model.loadings_.T]
    np.testing.assert_allclose(both.table["partial F"], F)
    np.testing.assert_allclose(both.effects, found.effects)


def test_a_factor_of_several_levels_is_one_test_with_an_effect_for_each(paired):
    model, table = paired
    found = associate(model, "stage + age", data=table)
    assert "effect" not in found.table
    assert len(found.effects.loc["MCPC 2", "stage"]) == 3
    trend = associate(model, "trend(stage) + age", data=table)
    D = np.column_stack([np.ones(22), table["age"]])
    F = [partial_f(b, table["stage"].cat.codes.to_numpy(float)[:, None], D) for b in model.loadings_.T]
    np.testing.assert_allclose(trend.table["partial F"], F)
    # One ordered categorical alone is a trend as well.
    alone = associate(model, table["stage"], weights=np.ones(22))
    np.testing.assert_allclose(alone.table["p"], associate(model, "trend(stage)", data=table).table["p"])
    split = associate(model, table["stage"], split="III", weights=np.ones(22))
    grouped = associate(model, "C(stage, levels=['I', 'II', 'III', 'IV']) + age", data=table)
    assert split.effects.index[0][2] == "stage >= III"
    np.testing.assert_allclose(grouped.table["p"], found.table["p"])


def test_confounders_take_what_is_theirs():
    """The loading follows depth alone; stage goes with depth."""
    rng = np.random.default_rng(0)
    depth = np.linspace(-1, 1, 24)
    stage = np.where(depth + 0.3 * rng.standard_normal(24) > 0, "late", "early")
    model = with_loadings(np.column_stack([2 + depth + 0.2 * rng.random(24), rng.gamma(5, 0.1, 24)]))
    table = pd.DataFrame({"stage": stage, "depth": depth}, index=[str(i) for i in range(24)])
    assert associate(model, table["stage"]).significant == ["MCPC 1"]
    assert associate(model, "stage + depth", data=table).significant == []
    assert associate(model, "stage + depth", data=table, test="depth").significant == ["MCPC 1"]


def test_contexts_with_few_rows_count_less():
    """Weights by errors are nearly equal where contexts differ by much, and nearly the rows where they do not."""
    rng = np.random.default_rng(1)
    n = np.where(np.arange(40) % 2, 40_000, 200)
    x = np.repeat([0.0, 1.0], 20)
    alike = rng.chisquare(n - 1) / (n - 1)
    apart = rng.gamma(2, 1, 40)
    model = with_loadings(np.column_stack([5 * alike, apart]), n)
    plain, rows, errors = (
        associate(model, x, weights=weights).effects["effect"].to_numpy() for weights in (np.ones(40), "rows", "errors")
    )
    assert errors[0] == pytest.approx(rows[0], rel=0.05)
    assert abs(errors[1] - plain[1]) < 0.1 * abs(rows[1] - plain[1])
    assert "those with few rows count less" in str(associate(model, x, weights="errors"))
    given = associate(model, x, weights=dict(zip(model.contexts_, 3 * n, strict=True)))
    np.testing.assert_allclose(given.effects["effect"], rows)


def test_errors_are_those_of_variances_of_gaussian_rows(rng):
    """Against the spread of variances, standard deviations, logarithms and means of 4,000 samples of 50 rows."""
    rows = 1.7 * rng.standard_normal((4000, 50))
    variance = rows.var(axis=1, ddof=1)[:, None]
    values = {"loadings": variance, "sd": np.sqrt(variance), "mean": rows.mean(axis=1)[:, None]}
    for what, v in values.items():
        for scale in ("linear", "log")[: 1 if what == "mean" else 2]:
            V = v if scale == "linear" else np.log(v)
            constant = Weights("errors", np.full(4000, 50.0), scale)._constants(V, Sampled(what, variance))
            assert constant[0] / 50 == pytest.approx(V.var(), rel=0.1), (what, scale)


def test_weights_by_errors_find_more_where_rows_are_unequal():
    """In 60 data sets with nearly equal loadings but for a factor of 1.15, measured by 20 to 2,000 rows."""
    found = {"none": 0, "errors": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = np.exp(rng.uniform(np.log(20), np.log(2000), 24)).astype(int)
        x = np.repeat([0.0, 1.0], 12)
        b = rng.gamma(100, 0.01, 24) * np.where(x, 1.15, 1) * rng.chisquare(n - 1) / (n - 1)
        model = with_loadings(b[:, None], n)
        for kind, weights in (("none", np.ones(24)), ("errors", "errors")):
            found[kind] += associate(model, x, weights=weights).table["p"].iloc[0] <= 0.05
    assert found["errors"] >= found["none"] + 10


def test_logarithms_and_ranks(paired):
    model, table = paired
    B = model.loadings_
    x = (table["time"] == "after").to_numpy(float)[:, None]
    log = associate(model, "time + age", data=table, scale="log")
    D = np.column_stack([np.ones(22), table["age"]])
    np.testing.assert_allclose(log.table["partial F"], [partial_f(np.log(b), x, D) for b in B.T])
    rank = associate(model, "time + age", data=table, scale="rank")
    ranks = scipy.stats.rankdata(B, axis=0)
    np.testing.assert_allclose(rank.table["partial F"], [partial_f(b, x, D) for b in ranks.T])
    # Without a design, too; Spearman's correlation has ranks anyway.
    plain = associate(model, table["time"], scale="log")
    t = scipy.stats.ttest_ind(np.log(B[x[:, 0] == 1]), np.log(B[x[:, 0] == 0]))
    np.testing.assert_allclose(plain.table["t-test"], t.statistic)
    assert "Logarithms were compared." in str(plain)
    assert "Ranks of the contexts were compared." in str(rank)


def test_zeros_have_the_logarithm_of_a_hundredth_of_the_mean():
    B = np.array([[0.0, 1], [1e-9, 2], [2, 1], [4, 3], [6, 1], [12, 4]])
    model = with_loadings(B)
    x = np.arange(6.0)
    found = associate(model, x, weights=np.ones(6), scale="log")
    first = np.log(np.maximum(B[:, 0], B[:, 0].mean() / 100))
    slope = np.polyfit(x, first, 1)[0]
    assert found.table.loc["MCPC 1", "effect"] == pytest.approx(slope)
    assert "Logarithms were compared; 2 below 1% of the mean of their MCPC count as that." in str(found)


def test_pcs_are_tested_in_the_same_design(rng):
    """Rows whose spread along one axis follows treatment within patients, and an AnnData of them."""
    k, r, p, n = 16, 2, 8, 80
    patient, after = np.repeat(np.arange(8), 2), np.tile([0, 1], 8)
    B = rng.gamma(3, 0.5, (8, r))[patient] * np.where(after[:, None] & [1, 0], 2.5, 1)
    A = np.linalg.qr(rng.standard_normal((p, r)))[0]
    X = np.vstack([(rng.standard_normal((n, r)) * np.sqrt(b)) @ A.T for b in B]) + 0.1 * rng.standard_normal((k * n, p))
    y = np.repeat([f"sample {i:02}" for i in range(k)], n)
    adata, model = stored_fit(X, y, r)
    for name, values in {"after": after, "patient": [f"P{i}" for i in patient], "depth": rng.random(k)}.items():
        adata.obs[name] = np.repeat(values, n)
    found = associate(adata, "after + depth", block="patient", n_pcs=4)
    assert found.model == "design"
    assert list(found.pc_sds.columns[:3]) == ["effect", "lower", "upper"]
    # By hand: the standard deviations of the first PC, in the same design.
    W = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:4].T
    sds = np.array([(X[y == name] @ W).std(axis=0, ddof=1) for name in model.contexts_])
    depth = adata.obs["depth"].to_numpy()[::n]
    D = np.column_stack([patient[:, None] == np.arange(8), depth]).astype(float)
    F = [partial_f(v, after[:, None].astype(float), D) for v in sds.T]
    np.testing.assert_allclose(found.pc_sds["partial F"], F, rtol=1e-6)
    table = pd.DataFrame({"after": after, "depth": depth, "patient": patient}, index=model.contexts_)
    again = associate(model, "after + depth", data=table, block="patient", X=X, y=y, n_pcs=4)
    pd.testing.assert_frame_equal(again.table, found.table)
    assert "adjusted_p" in found.table
    assert "In the same design" in str(found) or not found.significant
    # Errors of standard deviations and means as weights, and other quantities of the scores.
    for of in ("sd", "mean"):
        assert np.isfinite(
            associate(adata, "after", block="patient", of=of, weights="errors", n_pcs=3).table["p"]
        ).all()
    card = describe(model, association=again)["MCPC 1"]
    assert "against after in 16 contexts, beside depth, by all 256 sign flips within pairs: F = " in card


def test_random_permutations_have_a_seed_and_are_enough(paired):
    model, table = paired
    big = {"block": np.arange(22) % 2, "random_state": 3}
    first, again = (associate(model, table["age"], **big) for _ in range(2))
    pd.testing.assert_frame_equal(first.table, again.table)
    assert "random 9,999 rearrangements within blocks" in str(first)
    assert first.least_p == 1 / 10_000
    np.testing.assert_array_equal(first.table["p"], first.effects["p"])
    with pytest.raises(ValueError, match="permutations=20 gives no p-value below"):
        associate(model, table["age"], block=np.arange(22) % 2, permutations=20)
    assert "rearrangements, at level" in str(associate(model, "age + sex", data=table, permutations=500))


def test_what_does_not_vary_has_no_test():
    B = np.column_stack([np.full(12, 2.0), np.arange(1, 13)])
    found = associate(with_loadings(B), np.arange(12.0) % 5, block=np.repeat([0, 1, 2], 4))
    assert found.table["p"].isna().sum() == 1
    assert found.table["effect"].isna().sum() == 1


def test_few_blocks_allow_no_small_p():
    rng = np.random.default_rng(0)
    found = associate(with_loadings(rng.gamma(2, 1, (8, 2))), [0, 1] * 4, block=np.repeat(range(4), 2))
    assert found.least_p == 2 / 16
    assert "So few contexts allow no p-value below 0.12" in str(found)


# Bad input


def test_labels_of_another_length_and_missing_values_are_named(paired):
    model, table = paired
    with pytest.raises(ValueError, match=r"block has shape \(21,\); pass one value for each of the 22 contexts"):
        associate(model, table["time"], block=table["patient"].tolist()[:21])
    with pytest.raises(ValueError, match=r"weights has shape \(3,\)"):
        associate(model, table["time"], weights=[1, 2, 3])
    with pytest.raises(ValueError, match=r"data\['age'\] has shape \(5,\); pass one value for each of the 22 contexts"):
        associate(model, "age", data={"age": [1, 2, 3, 4, 5]})
    gaps = table.assign(age=table["age"].where(table.index != "7"), sex=table["sex"].where(table.index != "3"))
    with pytest.raises(ValueError, match=r"data\['age'\] has no value for 1 of 22 contexts: '7'\. Add values"):
        associate(model, "time + age", data=gaps)
    with pytest.raises(ValueError, match=r"data\['sex'\] has no value for 1 of 22 contexts: '3'"):
        associate(model, "sex", data=gaps)
    assert associate(model, "time + age + sex", data=gaps, missing="drop").n_contexts == 20
    with pytest.raises(ValueError, match="block has no value for 1 of 22 contexts: '3'"):
        associate(model, "time", data=gaps, block="sex")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("time +* age", r"operator '\+\*' is incorrectly used at character 6, time »\+\*« age"),
        ("time + (age", r"at character 8, time \+ »\(«age"),
        ("tme + age", "data has no column 'tme'; did you mean 'time'?"),
        ("1", "names no covariate"),
        ("age + double", "'double' is collinear: it follows from 'age'; drop it"),
        ("time + copy", r"'copy\[T.b\]' is collinear: it follows from 'time\[T.after\]'"),
        ("age + constant", "'constant' has the same value in all contexts"),
        ("constant + age", "'constant' has the same value in all contexts"),
        ("time + name", "no degrees of freedom; it needs at least 24 contexts|collinear"),
    ],
)
def test_formulas_that_cannot_be_tested(paired, formula, message):
    model, table = paired
    copy = np.where(table["time"] == "after", "b", "a")
    extended = table.assign(double=2 * table["age"] + 1, copy=copy, constant=1.0, name=table.index.map("x{}".format))
    with pytest.raises(ValueError, match=message) as raised:
        associate(model, formula, data=extended)
    assert "\n" not in str(raised.value)


def test_too_few_contexts_for_the_design():
    model = with_loadings(np.random.default_rng(0).gamma(2, 1, (6, 2)))
    table = pd.DataFrame(np.random.default_rng(1).random((6, 5)), columns=list("abcde"), index=list("012345"))
    with pytest.raises(
        ValueError, match=r"an intercept and 5 columns \(a, b, c, d, e\) for 6 contexts, which leaves no"
    ):
        associate(model, "a + b + c + d + e", data=table)
    with pytest.raises(ValueError, match="it needs at least 7 contexts"):
        associate(model, "a + b + c + d + e", data=table)
    with pytest.raises(ValueError, match=r"3 blocks and 3 columns .* for 6 contexts"):
        associate(model, "a + b + c", data=table, block=[0, 0, 1, 1, 2, 2])


def test_blocks_in_which_nothing_varies(paired):
    model, table = paired
    with pytest.raises(ValueError, match=r"'sex' varies within none of the 11 blocks, 'P0'.* leave block out"):
        associate(model, "sex + age", data=table, block="patient")
    with pytest.raises(ValueError, match="block: covariate varies within none of the 11 blocks"):
        associate(model, table["sex"], block=table["patient"])
    with pytest.raises(ValueError, match=r"'sex\[T.m\]' is constant within blocks, which take it out already"):
        associate(model, "time + sex", data=table, block="patient")


def test_options_that_do_not_go_together(paired):
    model, table = paired
    with pytest.raises(ValueError, match="data has no effect, because covariate is not a formula"):
        associate(model, table["time"], data=table)
    with pytest.raises(ValueError, match="is a formula, and there is no table"):
        associate(model, "time + age")
    with pytest.raises(ValueError, match="test='age' has no effect, because covariate is not a formula"):
        associate(model, table["time"], test="age")
    with pytest.raises(ValueError, match="test='aeg' is not a term of the formula; did you mean 'age'"):
        associate(model, "time + age", data=table, test="aeg")
    with pytest.raises(ValueError, match="tests='t-test' has no effect, because a design is tested by"):
        associate(model, table["time"], block=table["patient"], tests="t-test")
    with pytest.raises(ValueError, match="split='III' has no effect, because covariate is a formula"):
        associate(model, "stage", data=table, split="III")
    with pytest.raises(ValueError, match="block='patent' is not a column of data; did you mean 'patient'"):
        associate(model, "time", data=table, block="patent")
    with pytest.raises(ValueError, match="weights='cels'; choose 'errors' or 'rows'"):
        associate(model, table["time"], weights="cels")
    with pytest.raises(ValueError, match="weights of context '4' is 0; pass positive numbers"):
        associate(model, table["time"], weights=table["cells"].where(table.index != "4", 0))
    with pytest.raises(ValueError, match="weights has category values"):
        associate(model, table["time"], weights=table["sex"])
    with pytest.raises(ValueError, match="weights='errors' has no effect on ranks"):
        associate(model, table["time"], weights="errors", scale="rank")
    with pytest.raises(ValueError, match="scale='sqrt'; choose one of"):
        associate(model, table["time"], scale="sqrt")
    with pytest.raises(TypeError, match="data is a list; pass a DataFrame indexed by context"):
        associate(model, "time", data=[1, 2])
    by_column = associate(model, "time", data=table, weights="cells").table
    pd.testing.assert_frame_equal(by_column, associate(model, "time", data=table, weights=table["cells"]).table)
    S = model.loadings_[:, :, None] * np.eye(3)
    unknown = MCPCA(3, random_state=0).fit_covariances(S)
    with pytest.raises(ValueError, match="weights='rows' needs the rows of each context"):
        associate(unknown, table["time"].tolist(), weights="rows")
