"""associate: tests equal SciPy's, planted associations are found, false positives stay at their level, PCA is asked."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.optimize import minimize
from stored_fit import stored_fit
from unequal_noise import fitted_to, two_groups

import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca._results.context_tests import compare_with_covariate
from mcpca.analysis._models import added_categories, added_linear, added_logistic, penalised_likelihood
from mcpca.analysis._rows import moments_by_code
from mcpca.analysis.association import beyond_pca
from mcpca.datasets import make_contexts
from mcpca.exceptions import UnequalNoiseWarning


def fit_with(B, n=60, noise=0.3, seed=0, A=None, p=15, shift=None):
    """Rows with loadings B (k, r) on random MCPCs, and the model; ``shift`` (k, p) moves the means."""
    rng = np.random.default_rng(seed)
    k, r = B.shape
    if A is None:
        A = rng.standard_normal((p, r))
        A /= np.linalg.norm(A, axis=0)
    X = np.vstack([(rng.standard_normal((n, r)) * np.sqrt(b)) @ A.T for b in B])
    X += noise * rng.standard_normal(X.shape)
    y = np.array([f"patient {i}" for i in np.repeat(np.arange(k), n)])
    if shift is not None:
        X += np.repeat(shift, n, axis=0)
    return MCPCA(r, random_state=0).fit(X, y), X, y, A


def balanced(rng, groups, size, r):
    """Values (groups * size, r) that have nothing to do with the group: the same ones in each, in another order."""
    values = rng.gamma(4, 0.25, (size, r))
    return np.vstack([rng.permuted(values, axis=0) for _ in range(groups)])


def by_name(values):
    return {f"patient {i}": value for i, value in enumerate(values)}


# The noise


def test_noise_that_follows_the_covariate_is_no_association():
    """Both groups have the very same loadings, and noise of standard deviation 0.3 and 0.9."""
    X, y, *_ = two_groups()
    model = fitted_to(X, y)
    covariate = {name: ("noisy" if name.startswith("noisy") else "quiet") for name in model.contexts_}
    found = analysis.associate(model, covariate)
    assert found.significant == []
    assert found.table["p"].min() > 0.2
    assert "These are corrected loadings: the noise of each context is taken out." in str(found)
    assert found.loadings == "corrected loadings: the noise of each context is taken out"
    fooled = analysis.associate(model, covariate, corrected=False)
    assert fooled.significant == ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert "These are loadings as fitted: the noise of each context is in them." in str(fooled)
    # Loadings of a fit with noise are one kind, whatever is asked for.
    beside = fitted_to(X, y, noise="isotropic")
    for corrected in (True, False):
        again = analysis.associate(beside, covariate, corrected=corrected)
        pd.testing.assert_frame_equal(again.table, found.table)
        assert "These are loadings of a fit with noise, which is not part of them." in str(again)
    with pytest.raises(
        ValueError, match="corrected=False has no effect, because it is about loadings, and of='sd' tests"
    ):
        analysis.associate(model, covariate, of="sd", X=X, y=y, corrected=False)
    assert "These are" not in str(analysis.associate(model, covariate, of="sd", X=X, y=y, n_pcs=0))


def test_an_anndata_of_an_older_version_has_loadings_as_fitted():
    X, y, *_ = two_groups()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnequalNoiseWarning)
        adata, model = stored_fit(X, y, 3)
    groups = [name.split()[0] for name in model.contexts_]
    now = analysis.associate(adata, groups, n_pcs=0)
    pd.testing.assert_frame_equal(now.table, analysis.associate(model, groups).table)
    del adata.uns["mcpca"]["corrected_loadings"]
    old = analysis.associate(adata, groups, n_pcs=0)
    pd.testing.assert_frame_equal(old.table, analysis.associate(model, groups, corrected=False).table)
    assert "a fit of an older mcpca has no corrected ones" in str(old)


# The tests


def test_moments_by_context_are_numpys(rng):
    Z, codes = rng.standard_normal((50, 3)) + 100, rng.integers(-1, 4, 50)
    codes[codes == 3] = 1
    codes[0] = 3
    mean, variance = moments_by_code(Z, codes, 5)
    for i in range(3):
        np.testing.assert_allclose(mean[i], Z[codes == i].mean(axis=0))
        np.testing.assert_allclose(variance[i], Z[codes == i].var(axis=0, ddof=1))
    np.testing.assert_allclose(mean[3], Z[0])
    assert np.isnan(variance[3:]).all()
    assert np.isnan(mean[4]).all()


def test_linear_model_is_the_partial_correlation(rng):
    others, v, x = rng.standard_normal((40, 2)), rng.standard_normal(40), rng.standard_normal(40)
    D = np.column_stack([np.ones(40), others, v])
    beta, rest, *_ = np.linalg.lstsq(D, x, rcond=None)
    se = np.sqrt(rest[0] / 36 * np.linalg.inv(D.T @ D)[3, 3])
    found = added_linear(v, x, others)
    assert found.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(beta[3] / se), 36))
    assert found.coefficient == pytest.approx(beta[3] * np.std(v, ddof=1))
    alone = added_linear(v, x, np.empty((40, 0)))
    assert alone.p_value == pytest.approx(scipy.stats.pearsonr(v, x).pvalue)
    assert np.isnan(added_linear(others[:, 0] * 2 + 1, x, others).p_value)  # adds nothing


def test_categories_without_others_are_anova(rng):
    v, codes = rng.standard_normal(30), np.arange(30) % 3
    found = added_categories(v, codes, np.empty((30, 0)))
    assert found.p_value == pytest.approx(compare_with_covariate("anova", v[:, None], codes).p_values[0])


def firths_twin(D, x, fixed=None):
    """Maximise the penalised log-likelihood by a general optimiser; the last coefficient may be fixed."""

    def loss(free):
        beta = free if fixed is None else np.append(free, fixed)
        p = 1 / (1 + np.exp(-D @ beta))
        information = np.linalg.slogdet(D.T @ (D * (p * (1 - p))[:, None]))[1]
        return np.logaddexp(0, D @ beta).sum() - x @ (D @ beta) - information / 2

    found = minimize(loss, np.zeros(D.shape[1] - (fixed is not None)), tol=1e-10)
    return -found.fun, found.x


@pytest.mark.parametrize("separated", [False, True])
def test_logistic_model_is_the_penalised_likelihood_ratio(rng, separated):
    others, v = rng.standard_normal((40, 2)), rng.standard_normal(40)
    x = (others[:, 0] + v + (0 if separated else rng.logistic(size=40)) > 0).astype(float)
    D = np.column_stack(
        [np.ones(40), (others - others.mean(0)) / others.std(0, ddof=1), (v - v.mean()) / v.std(ddof=1)]
    )
    (after, beta), (before, _) = firths_twin(D, x), firths_twin(D, x, 0.0)
    found = added_logistic(v, x, others)
    assert found.statistic == pytest.approx(2 * (after - before), abs=1e-5)
    assert found.coefficient == pytest.approx(beta[-1], abs=1e-3)
    assert found.p_value == pytest.approx(scipy.stats.chi2.sf(found.statistic, 1))
    value, own = penalised_likelihood(D, x, 4)
    assert (value, own) == (pytest.approx(after, abs=1e-6), pytest.approx(beta, abs=1e-3))
    # Others that follow from one another are one; a column that follows from them adds nothing.
    doubled = added_logistic(v, x, np.column_stack([others, others.sum(axis=1)]))
    assert doubled.p_value == pytest.approx(found.p_value, abs=1e-6)
    assert np.isnan(added_logistic(others[:, 0], x, others).p_value)


@pytest.mark.parametrize(("k", "c"), [(12, 1), (20, 2)])
def test_logistic_model_of_few_contexts_holds_its_level(k, c):
    """Without the penalty 12 to 14% of these would be below 0.05: groups of few are nearly separated by the others."""
    rng = np.random.default_rng(12)
    x = np.repeat([0.0, 1], k // 2)
    p = [added_logistic(rng.gamma(2, 1, k), x, rng.standard_normal((k, c)) + x[:, None]).p_value for _ in range(400)]
    assert scipy.stats.binomtest(int(np.sum(np.array(p) < 0.05)), 400, 0.05, alternative="greater").pvalue > 0.01


def test_a_logistic_model_finds_what_is_there():
    rng = np.random.default_rng(13)
    x = np.repeat([0.0, 1], 15)
    p = [added_logistic(rng.normal(1.5 * x), x, rng.standard_normal((30, 2)) + x[:, None]).p_value for _ in range(100)]
    assert np.mean(np.array(p) < 0.05) > 0.7


@pytest.mark.parametrize("model", ["linear", "logistic", "ancova"])
def test_models_hold_their_level(model):
    rng = np.random.default_rng(11)
    test = {"linear": added_linear, "logistic": added_logistic, "ancova": added_categories}[model]
    p = []
    for _ in range(300):
        others = rng.standard_normal((60, 2))
        x = others[:, 0] + rng.standard_normal(60)
        x = {"linear": x, "logistic": (x > 0).astype(float), "ancova": np.digitize(x, [-0.7, 0.7])}[model]
        v = others[:, 1] + rng.standard_normal(60)  # goes with the others, and not with x beyond them
        p.append(test(v, x, others).p_value)
    assert scipy.stats.binomtest(int(np.sum(np.array(p) < 0.05)), 300, 0.05).pvalue > 0.001


# Planted associations


def test_a_planted_association_of_loadings_is_found_with_the_papers_tests():
    """Stages I to IV; the loading of one of four MCPCs grows with them, beside others that do not."""
    rng = np.random.default_rng(5)
    stage = np.repeat([0, 1, 2, 3], 8)
    B = balanced(rng, 4, 8, 4)
    B[:, 2] = 0.5 + stage + 0.3 * rng.random(32)
    model, X, y, A = fit_with(B, seed=5)
    which = int(np.argmax(np.abs(A[:, 2] @ model.components_)))
    names = np.array(["I", "II", "III", "IV"])
    ordered = pd.Series(
        pd.Categorical(names[stage], categories=names, ordered=True), index=[f"patient {i}" for i in range(32)]
    )
    found = analysis.associate(model, ordered, split="III")
    assert found.tests == ("spearman", "t-test")
    assert found.significant == [f"MCPC {which + 1}"]
    assert found.beyond_pca is None
    assert found.model is None
    assert "PCs were not tested: for that pass X and y" in str(found)
    b = model.corrected_loadings_[:, which]
    at = [int(name.split()[1]) for name in model.contexts_]
    row = found.table.iloc[which]
    assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(b, stage[at]).statistic)
    late = stage[at] >= 2
    assert row["t-test_p"] == pytest.approx(scipy.stats.ttest_ind(b[late], b[~late]).pvalue)
    assert row["p"] == max(row["spearman_p"], row["t-test_p"])
    assert row["bonferroni"] == pytest.approx(4 * row["p"])
    np.testing.assert_allclose(found.table["fdr"], scipy.stats.false_discovery_control(found.table["p"]))
    # The same from scores: their spread grows with the stage, their mean does not.
    for of, expected in (("variance", [which]), ("sd", [which]), ("mean", [])):
        again = analysis.associate(model, ordered, split="III", of=of, X=X, y=y)
        assert again.significant == [f"MCPC {j + 1}" for j in expected]
    permuted = analysis.associate(model, ordered, split="III", permutations=400, random_state=0)
    assert permuted.significant == found.significant
    assert permuted.table["p"].min() >= 1 / 401


def test_power_and_level_beside_a_planted_association():
    """Fitted anew each time: the planted MCPC is found, and the others, whose loadings are drawn without regard to the
    stage, are found no more often than 5% of the time, though they share the fit with it."""
    stage, hits, others = np.repeat([0, 1, 2, 3], 8), [], []
    for seed in range(30):
        rng = np.random.default_rng(100 + seed)
        B = rng.gamma(4, 0.25, (32, 4))
        B[:, 2] = 0.5 + 0.5 * stage + 0.3 * rng.random(32)
        model, _, _, A = fit_with(B, seed=100 + seed)
        p = analysis.associate(model, by_name(stage)).table["p"].to_numpy()
        which = int(np.argmax(np.abs(A[:, 2] @ model.components_)))
        hits.append(p[which] < 0.05 / 4)
        others += np.delete(p < 0.05, which).tolist()
    assert np.mean(hits) > 0.9
    assert scipy.stats.binomtest(sum(others), len(others), 0.05, alternative="greater").pvalue > 0.01


def test_false_positives_stay_at_their_level():
    """A covariate that has nothing to do with the loadings: p-values are uniform, and a family of 5 errs in 5%."""
    rng = np.random.default_rng(6)
    B = rng.gamma(2, 0.5, (24, 5))
    model, *_ = fit_with(B, n=30, seed=6)
    p, family = [], []
    for i in range(200):
        x = rng.standard_normal(24) if i % 2 else np.where(rng.permutation(24) < 12, "a", "b")
        table = analysis.associate(model, x).table
        p += table["p"].tolist()
        family.append(table["significant"].any())
    # MCPCs share a covariate but are all but independent of one another.
    assert abs(np.mean(np.array(p) < 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1000)
    assert scipy.stats.binomtest(int(np.sum(family)), 200, 0.05, alternative="greater").pvalue > 0.01


def test_beyond_pca_is_told_where_pca_is_blind():
    """Two MCPCs that trade places: what one gains along the PCs the other loses, so no PC varies with the stage."""
    rng = np.random.default_rng(7)
    stage = np.repeat([0.0, 1.0], 20)
    u, v = np.linalg.qr(rng.standard_normal((12, 2)))[0].T
    # Over all contexts both axes vary alike, so the PCs are u and v, along which the two add up to the same.
    A = np.column_stack([u + 0.9 * v, u - 0.9 * v])
    A /= np.linalg.norm(A, axis=0)
    B = np.column_stack([1 + 0.8 * stage, 1.8 - 0.8 * stage]) * rng.gamma(40, 1 / 40, (40, 1))
    model, X, y, _ = fit_with(B, n=150, noise=0.1, seed=7, A=A)
    group = by_name(np.where(stage > 0, "late", "early"))
    found = analysis.associate(model, group, X=X, y=y, n_pcs=2)
    assert found.model == "logistic"
    assert found.significant == ["MCPC 1", "MCPC 2"]
    assert found.beyond_pca == ["MCPC 1", "MCPC 2"]
    assert not found.pc_sds["significant"].any()
    assert "Beyond PCA: MCPC 1, MCPC 2." in found.summary()


def test_each_condition_of_beyond_pca_counts_by_itself():
    """The first MCPC meets all of them; each of the others fails one, and so do all where a PC is significant."""
    table = pd.DataFrame(
        {
            "significant": [True, False, True, True, True],
            "p": [0.001, 0.001, 0.02, 0.001, 0.001],
            "adjusted_p": [0.01, 0.01, 0.01, 0.2, np.nan],
        }
    )
    pcs = pd.DataFrame({"p": [0.01, np.nan, 0.5], "significant": [False, False, False]})
    assert beyond_pca(table, pcs, 0.05).tolist() == [True, False, False, False, False]
    assert not beyond_pca(table, pcs.assign(significant=[False, False, True]), 0.05).any()


def test_what_a_pc_shows_is_not_beyond_pca():
    """One MCPC that is a PC: its spread goes with the stage in PCA as well."""
    rng = np.random.default_rng(8)
    stage = np.repeat([0.0, 1.0], 15)
    A = np.linalg.qr(rng.standard_normal((12, 2)))[0]
    B = np.column_stack([3 + 3 * stage, balanced(rng, 2, 15, 1)])
    model, X, y, _ = fit_with(B, n=80, seed=8, A=A)
    found = analysis.associate(model, by_name(stage), X=X, y=y, n_pcs=5)
    assert found.significant == ["MCPC 1"]
    assert found.pc_sds["significant"].any()
    assert found.beyond_pca == []
    rows = [X[y == name] for name in model.contexts_]
    v = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][0]
    sds = [np.std(block @ v, ddof=1) for block in rows]
    x = [stage[int(name.split()[1])] for name in model.contexts_]
    rho = scipy.stats.spearmanr(sds, x)
    least = 2 / math.comb(30, 15)  # no p-value is below that of the two rarest ways to choose 15 of 30 contexts
    assert found.pc_sds["spearman_p"].iloc[0] == pytest.approx(max(rho.pvalue, least), rel=1e-6)
    assert found.pc_sds["spearman"].iloc[0] == pytest.approx(rho.statistic)
    # Standard deviations and not variances, which a t-test tells apart.
    compared = analysis.associate(model, by_name(stage), split=1, X=X, y=y, n_pcs=5).pc_sds
    late = np.array(x) == 1
    t = scipy.stats.ttest_ind(np.array(sds)[late], np.array(sds)[~late])
    assert compared["t-test_p"].iloc[0] == pytest.approx(max(t.pvalue, least), rel=1e-6)
    assert compared["t-test"].iloc[0] == pytest.approx(t.statistic, rel=1e-6)


def test_what_pc_means_explain_is_not_beyond_pca():
    """The loading goes with the stage only through the position of the context, which the mean of a PC tells."""
    rng = np.random.default_rng(9)
    place = rng.standard_normal(60)
    stage = place + 0.3 * rng.standard_normal(60)
    A = np.linalg.qr(rng.standard_normal((10, 2)))[0]
    shift = 5 * np.outer(place, A[:, 1])
    B = np.column_stack([1 + 0.8 / (1 + np.exp(-3 * (place + 0.5 * rng.standard_normal(60)))), np.ones(60)])
    model, X, y, _ = fit_with(B, n=100, noise=0.1, seed=9, A=A, shift=shift)
    found = analysis.associate(model, by_name(stage), X=X, y=y, n_pcs=3)
    which = f"MCPC {int(np.argmax(np.abs(A[:, 0] @ model.components_))) + 1}"
    assert found.significant == [which]
    assert found.model == "linear"
    assert found.pc_means["in_model"].iloc[0]
    assert found.table.loc[which, "adjusted_p"] > 0.05
    assert which not in found.beyond_pca


def test_means_of_scores_are_compared_with_means_of_pcs():
    """The stage moves contexts along one axis, which the mean of a PC shows as well; no spread has to do with it."""
    rng = np.random.default_rng(14)
    stage = np.repeat([0.0, 1.0], 15)
    A = np.linalg.qr(rng.standard_normal((10, 2)))[0]
    B = np.array([4.0, 2]) * rng.gamma(50, 1 / 50, (30, 2))
    model, X, y, _ = fit_with(B, n=100, seed=14, A=A, shift=np.outer(stage, A[:, 1]))
    found = analysis.associate(model, by_name(stage), X=X, y=y, n_pcs=4, of="mean")
    which = f"MCPC {int(np.argmax(np.abs(A[:, 1] @ model.components_))) + 1}"
    assert which in found.significant
    assert not found.pc_sds["significant"].any()
    assert found.pc_means["significant"].any()
    assert found.beyond_pca == []
    assert "Of the means of 4 overall PCs" in found.summary()


def test_means_that_a_pc_shows_are_not_beyond_pca_without_a_model_either():
    """4 contexts of each group bear no PC mean in the model; that of PC 1 goes with the group as the MCPC's does, and
    its standard deviation does not."""
    rng = np.random.default_rng(15)
    late = np.repeat([0.0, 1.0], 4)
    A = np.linalg.qr(rng.standard_normal((6, 1)))[0]
    B = 4 * np.tile([1.0, 1.1, 1.2, 1.3], 2)[:, None]
    model, X, y, _ = fit_with(B, n=200, seed=15, A=A, shift=3 * np.outer(late, A[:, 0]))
    group = by_name(np.where(late > 0, "late", "early"))
    found = analysis.associate(model, group, X=X, y=y, n_pcs=1, of="mean")
    assert found.significant == ["MCPC 1"]
    assert not found.pc_means["in_model"].any()
    assert found.table["adjusted_p"].item() < 0.05
    assert not found.pc_sds["significant"].any()
    assert found.pc_sds["p"].item() > found.table["p"].item()
    assert found.beyond_pca == []


def test_so_few_contexts_that_nothing_can_be_significant_are_told():
    """4 contexts in the order of the covariate: 2 of 24 orders are as good, so p is 1/12 at best."""
    data = make_contexts(4, 10, 3, n_samples=30, noise=0.1, random_state=0)
    model = MCPCA(3, random_state=0).fit(data.X, data.y)
    stage = pd.Series(np.argsort(np.argsort(model.loadings_[:, 0])), index=model.contexts_, name="stage")
    found = analysis.associate(model, stage)
    assert found.table["spearman"].iloc[0] == 1
    assert found.least_p == found.table["p"].iloc[0] == pytest.approx(2 / 24)
    assert found.significant == []
    assert "against stage, by Spearman's" in found.summary()
    assert "no p-value below 0.083, and 3 tests need 0.017: nothing can be significant." in found.summary()
    assert "nothing can be" not in analysis.associate(fit_with(np.ones((10, 2)), n=30)[0], range(10)).summary()


def test_few_contexts_bear_few_pc_means():
    """The stage moves contexts along three PCs alike, so the means of all go with it; 6 contexts bear one of them."""
    rng = np.random.default_rng(10)
    stage = np.repeat([0.0, 1.0], 6)
    A = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    B = np.array([9.0, 6, 4]) * rng.gamma(50, 1 / 50, (12, 3))
    shift = 2 * np.outer(stage, A.sum(axis=1))
    model, X, y, _ = fit_with(B, n=100, seed=10, A=A, shift=shift)
    found = analysis.associate(model, by_name(np.where(stage > 0, "b", "a")), X=X, y=y, n_pcs=3)
    assert (found.pc_means["p"] < 0.05).sum() > 1
    size = found.pc_means["t-test"].abs()
    assert found.pc_means["in_model"].tolist() == (size == size.max()).tolist()


# Forms


def test_covariates_of_an_anndata_are_columns_of_obs():
    data = make_contexts(8, 10, 2, n_samples=30, noise=0.1, random_state=0)
    stage = np.array(list("aabbccdd"))[data.y]
    adata, model = stored_fit(data.X, data.y, 2, obs={"stage": stage})
    found = analysis.associate(adata, "stage", n_pcs=4)
    assert found.tests == ("anova",)
    assert found.model == "ancova"
    assert len(found.pc_sds) == 4
    by_hand = analysis.associate(model, list("aabbccdd"), X=data.X, y=data.y, n_pcs=4)
    pd.testing.assert_frame_equal(found.table, by_hand.table)
    without = analysis.associate(adata, "stage", n_pcs=0)
    assert without.beyond_pca is None
    pd.testing.assert_frame_equal(without.table, found.table[without.table.columns])


def test_contexts_without_a_value_can_be_left_out():
    model, *_ = fit_with(np.random.default_rng(0).gamma(2, 1, (10, 2)), n=30)
    given = by_name(range(10)) | {"patient 3": np.nan}
    with pytest.raises(ValueError, match="covariate has no value for 1 of 10 contexts"):
        analysis.associate(model, given)
    assert analysis.associate(model, given, missing="drop").n_contexts == 9


def test_bad_input():
    model, X, y, _ = fit_with(np.random.default_rng(0).gamma(2, 1, (10, 2)), n=30)
    numbers, letters = by_name(range(10)), by_name("aaabbbcccc")
    with pytest.raises(ValueError, match="of='spread' is unknown"):
        analysis.associate(model, numbers, of="spread")
    with pytest.raises(ValueError, match="of='mean' needs rows; pass X and y"):
        analysis.associate(model, numbers, of="mean")
    with pytest.raises(ValueError, match="y is given without X"):
        analysis.associate(model, numbers, y=y)
    with pytest.raises(ValueError, match="alpha=0 is out of bounds"):
        analysis.associate(model, numbers, alpha=0, permutations=100)
    with pytest.raises(ValueError, match="correction='holm'; choose"):
        analysis.associate(model, numbers, correction="holm")
    with pytest.raises(ValueError, match=r"tests='wilcoxon'; choose 'auto' or some of"):
        analysis.associate(model, numbers, tests="wilcoxon")
    with pytest.raises(ValueError, match=r"tests=None; choose 'auto' or some of"):
        analysis.associate(model, numbers, tests=None)
    with pytest.raises(ValueError, match="split='late' is not a number, and covariate has numbers"):
        analysis.associate(model, numbers, split="late")
    with pytest.raises(ValueError, match="'spearman', but covariate has categories without an order"):
        analysis.associate(model, letters, tests=["spearman"])
    with pytest.raises(ValueError, match="'t-test', but covariate has 3 values; pass split"):
        analysis.associate(model, letters, tests=["t-test"])
    with pytest.raises(ValueError, match="'anova', but covariate has numbers"):
        analysis.associate(model, numbers, tests=["anova"])
    with pytest.raises(ValueError, match="split='b' needs an order"):
        analysis.associate(model, letters, split="b")
    with pytest.raises(ValueError, match="would compare 1 with 9 contexts, and needs 2 of each"):
        analysis.associate(model, numbers, split=9)
    with pytest.raises(ValueError, match="same value in all contexts"):
        analysis.associate(model, by_name([1] * 10))
    with pytest.raises(ValueError, match="10 categories for 10 contexts"):
        analysis.associate(model, by_name("abcdefghij"))
    with pytest.raises(ValueError, match=r"permutations=20 gives no p-value below 0.048, .* pass at least 40"):
        analysis.associate(model, numbers, permutations=20)
    with pytest.raises(ValueError, match="values for 3 contexts, and tests need at least 4"):
        analysis.associate(model, {"patient 0": 1, "patient 1": 2, "patient 2": 3}, missing="drop")
    ordered = pd.Series(pd.Categorical(list("aaabbbcccc"), ordered=True), index=list(numbers))
    with pytest.raises(ValueError, match=r"split='z' is not one of the categories, which are \['a', 'b', 'c'\]"):
        analysis.associate(model, ordered, split="z")
    with pytest.raises(ValueError, match="Context 'patient 2' has fewer than 2 rows in the data given"):
        analysis.associate(model, numbers, X=X[y != "patient 2"], y=y[y != "patient 2"], of="mean")


def test_dates_are_numbers():
    model, *_ = fit_with(np.random.default_rng(0).gamma(2, 1, (10, 2)), n=30)
    days = np.datetime64("2020-01-01") + np.arange(10) * np.timedelta64(30, "D")
    dates, numbers = (analysis.associate(model, values) for values in (days, np.arange(10.0)))
    pd.testing.assert_frame_equal(dates.table, numbers.table)
    assert analysis.associate(model, days, split=days[5]).tests == ("spearman", "t-test")
