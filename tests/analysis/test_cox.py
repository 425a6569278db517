"""Cox's model for clusters of rows against definitions and lifelines; corrections of models of several predictors."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from mcpca.analysis._cox import fit_cox, logrank, score_residuals, summed_by_cluster

lifelines = pytest.importorskip("lifelines")


def residuals_one_by_one(X, time, died, beta, efron):
    """Score residuals of one stratum by their definition: for each death, each row at risk."""
    n, phi = len(X), np.exp(X @ beta)
    U = np.zeros(X.shape)
    for t in np.unique(time[died]):
        risk, dying = time >= t, died & (time == t)
        d = dying.sum()
        for part in np.arange(d) / d if efron else np.zeros(d):
            weight = phi * risk * np.where(dying, 1 - part, 1)
            mean = weight @ X / weight.sum()
            for i in range(n):
                U[i] += dying[i] * (X[i] - mean) / d - weight[i] / weight.sum() * (X[i] - mean)
    return U


@pytest.fixture
def tied():
    """60 rows with many ties, two predictors, and 15 clusters."""
    rng = np.random.default_rng(8)
    return rng.standard_normal((60, 2)), rng.integers(1, 9, 60) * 1.0, rng.random(60) < 0.7, rng.permutation(60) % 15


@pytest.mark.parametrize("efron", [True, False])
def test_score_residuals_are_what_rows_add_to_the_score(tied, efron):
    X, time, died, _ = tied
    beta, strata = np.array([0.4, -0.8]), np.arange(60) % 2
    U = score_residuals(X, time, died, strata, beta, efron=efron)
    for own in (strata == 0, strata == 1):
        np.testing.assert_allclose(U[own], residuals_one_by_one(X[own], time[own], died[own], beta, efron), atol=1e-12)
    # A stratum without deaths adds nothing.
    assert not score_residuals(X, time, died & (strata == 0), strata, beta)[strata == 1].any()


def test_the_score_is_zero_at_the_maximum(tied):
    X, time, died, _ = tied
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(time=time, event=died.astype(float))
    beta = fit_cox(frame, ["a", "b"], [], "both").coefficients
    scale = np.abs(score_residuals(X, time, died, np.zeros(60), beta)).sum(axis=0)
    assert (np.abs(score_residuals(X, time, died, np.zeros(60), beta).sum(axis=0)) < 1e-4 * scale).all()


@pytest.mark.parametrize("strata", [[], ["context"]])
def test_without_ties_the_sandwich_is_that_of_lifelines(tied, strata):
    X, _, died, clusters = tied
    time = np.random.default_rng(9).exponential(1, 60)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(time=time, event=died.astype(float), context=np.arange(60) % 2)
    ours = fit_cox(frame, ["a", "b"], strata, "both", clusters)
    theirs = lifelines.CoxPHFitter().fit(
        frame[["a", "b", "time", "event", *strata]].assign(patient=clusters),
        "time",
        "event",
        strata=strata or None,
        cluster_col="patient",
    )
    np.testing.assert_allclose(ours.standard_errors, theirs.standard_errors_, rtol=1e-6)
    assert ours.n_events == len(set(clusters[died]))


def test_clustered_p_values_are_of_students_t(tied):
    X, time, died, clusters = tied
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(time=time, event=died.astype(float))
    fitted = fit_cox(frame, ["a", "b"], [], "both", clusters)
    d = fitted.n_events
    t = np.abs(fitted.coefficients / fitted.standard_errors) * np.sqrt((d - 2) / d)
    np.testing.assert_allclose(fitted.table()["p"], 2 * scipy.stats.t.sf(t, d - 2))
    np.testing.assert_allclose(fitted.joint_table()["single_p"], fitted.table()["p"])


def test_three_copies_of_each_row_change_the_logrank_test_only_without_clusters(tied):
    X, time, died, _ = tied
    frame = pd.DataFrame({"time": time, "event": died.astype(float)})
    high, strata, patient = X[:, 1] > 0.5, np.arange(60) % 2, np.arange(60)
    copies = np.repeat(patient, 3)
    once = logrank(frame, high, strata, patient)
    assert logrank(frame.iloc[copies], high[copies], strata[copies], copies) == pytest.approx(once)
    chi_squares = scipy.stats.chi2.isf(
        [logrank(frame, high, strata), logrank(frame.iloc[copies], high[copies], strata[copies]), once], 1
    )
    assert chi_squares[1] > 2 * chi_squares[0]
    # With one row in each cluster the two variances estimate the same.
    assert 0.5 < chi_squares[2] / chi_squares[0] < 2


def test_sums_over_clusters(tied):
    X, _, _, clusters = tied
    expected = pd.DataFrame(X).groupby(clusters).sum().to_numpy()
    np.testing.assert_allclose(summed_by_cluster(X, clusters), expected)


def test_joint_p_values_hold_their_level_and_naive_ones_do_not():
    """Ten scores that have nothing to do with survival: those that are chosen by p < 0.05 have it again."""
    rng = np.random.default_rng(7)
    names = [f"s{j}" for j in range(10)]
    joint = naive = 0
    for _ in range(40):
        frame = pd.DataFrame(rng.standard_normal((100, 10)), columns=names)
        frame = frame.assign(time=rng.exponential(1, 100), event=(rng.random(100) < 0.7).astype(float))
        together = fit_cox(frame, names, [], "all").joint_table()
        joint += together["p"].lt(0.05).any()
        chosen = together.index[together["single_p"] < 0.05].tolist()
        naive += bool(chosen) and fit_cox(frame, chosen, [], "chosen").table()["p"].lt(0.05).any()
    assert scipy.stats.binomtest(int(joint), 40, 0.05, "greater").pvalue > 0.01
    assert scipy.stats.binomtest(int(naive), 40, 0.05, "greater").pvalue < 0.001
