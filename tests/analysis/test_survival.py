"""survival: Cox regression and Kaplan-Meier by score, with planted hazards; needs lifelines."""

import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from stored_fit import stored_fit

import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca.analysis import hazards
from mcpca.analysis._cox import NoSolutionError, logrank
from mcpca.datasets import make_contexts

lifelines = pytest.importorskip("lifelines")


@pytest.fixture(scope="module")
def patients():
    """Rows of 4 contexts and a model; the hazard grows with MCPC 2, and differs between contexts."""
    data = make_contexts(4, 8, 3, n_samples=100, noise=0.1, random_state=0)
    model = MCPCA(3, random_state=0).fit(data.X, data.y)
    rng = np.random.default_rng(1)
    z = model.transform(data.X)[:, 1]
    hazard = np.exp(0.7 * z / z.std(ddof=1) + np.array([0, 2, -1, 1])[data.y])
    death, end = rng.exponential(1 / hazard), rng.exponential(3, len(z))
    return model, data.X, data.y, np.minimum(death, end), death <= end


def test_a_planted_hazard_is_found(patients):
    model, X, y, time, event = patients
    found = analysis.survival(model, time, event, X=X, y=y)
    table = found.table
    assert table.index.tolist() == ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert table["bonferroni"].le(0.05).tolist() == [False, True, False]
    assert table.at["MCPC 2", "lower"] < np.exp(0.7) < table.at["MCPC 2", "upper"]
    assert table.at["MCPC 2", "logrank_p"] < 1e-4
    assert table["n"].tolist() == [400] * 3
    assert table["events"].tolist() == [event.sum()] * 3
    assert found.joint.index.tolist() == ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert found.joint["p"].lt(0.05).tolist() == [False, True, False]
    assert found.selected.index.tolist() == ["MCPC 2"]
    assert "In one model of all 3 predictors, corrected for their number: MCPC 2." in found.summary()


def test_the_logrank_test_holds_its_level():
    """Survival that has nothing to do with high and low scores, in contexts with shares and hazards of their own."""
    rng = np.random.default_rng(6)
    strata = np.repeat([0, 1, 2], [20, 30, 50])
    p = []
    for _ in range(1000):
        high = rng.random(100) < np.array([0.2, 0.5, 0.7])[strata]
        time, event = rng.exponential(np.array([1, 3, 9])[strata]), rng.random(100) < 0.7
        p.append(logrank(pd.DataFrame({"time": time, "event": event.astype(float)}), high, strata))
    assert scipy.stats.binomtest(int((np.array(p) <= 0.05).sum()), 1000, 0.05).pvalue > 0.01


def test_the_model_is_that_of_lifelines(patients):
    model, X, y, time, event = patients
    own = y == 2
    age = np.random.default_rng(2).normal(60, 10, len(y))
    found = analysis.survival(
        model, time, event, X=X, y=y, contexts="2", components=[1], covariates=pd.DataFrame({"age": age})
    )
    z = model.transform(X)[own, 1]
    frame = pd.DataFrame({"time": time, "event": event, "age": age})[own].assign(score=z / z.std(ddof=1))
    expected = lifelines.CoxPHFitter().fit(frame, "time", "event").summary.loc["score"]
    row = found.table.iloc[0]
    assert row["hazard_ratio"] == pytest.approx(expected["exp(coef)"])
    assert row["p"] == pytest.approx(expected["p"])
    assert row["n"] == 100
    high = frame[z > np.median(z)]
    curve = lifelines.KaplanMeierFitter().fit(high["time"], high["event"])
    ours = found.curves[found.curves["group"] == "high"]
    np.testing.assert_allclose(ours["survival"], curve.survival_function_.iloc[:, 0])
    np.testing.assert_allclose(ours["time"], curve.survival_function_.index)
    assert ours["at_risk"].iloc[0] == 50
    assert found.joint.index.tolist() == ["age", "MCPC 2"]


def test_logrank_is_that_of_lifelines(patients):
    _, _, y, time, event = patients
    frame = pd.DataFrame({"time": time.round(1) + 0.1, "event": event.astype(float)})  # with ties
    high = np.random.default_rng(3).random(len(y)) < 0.4
    one = frame[high], frame[~high]
    expected = lifelines.statistics.logrank_test(one[0]["time"], one[1]["time"], one[0]["event"], one[1]["event"])
    assert logrank(frame, high, np.zeros(len(y))) == pytest.approx(expected.p_value)


def test_strata_take_differences_between_contexts_away():
    """Survival and scores differ between contexts, and have nothing to do with one another within: without strata the
    score is credited with the difference."""
    rng = np.random.default_rng(4)
    data = make_contexts(3, 6, 2, n_samples=120, noise=0.1, random_state=3)
    model = MCPCA(2, random_state=0).fit(data.X, data.y)
    X = data.X + 3 * np.outer(data.y, model.components_[:, 0])
    time = rng.exponential(np.exp(-1.5 * data.y))
    options = {"X": X, "y": data.y, "components": 0}
    event = np.ones(len(time), dtype=bool)
    assert analysis.survival(model, time, event, **options, stratify=False).table["p"].iloc[0] < 1e-6
    within = analysis.survival(model, time, event, **options)
    stratified = within.table
    # High is above the median of the own context: half of each, not all of the contexts with high scores.
    high = set(within.curves.query("group == 'high'")["time"].round(12))
    assert [sum(round(t, 12) in high for t in time[data.y == i]) for i in range(3)] == [60, 60, 60]
    assert stratified["p"].iloc[0] > 0.01
    assert stratified["logrank_p"].iloc[0] > 0.01


def test_logrank_holds_its_level():
    """Groups that have nothing to do with survival, in three strata that differ in it."""
    rng = np.random.default_rng(5)
    strata, p = np.repeat([0, 1, 2], 30), []
    for _ in range(300):
        frame = pd.DataFrame({"time": rng.exponential(1 + 3 * strata), "event": rng.random(90) < 0.7})
        p.append(logrank(frame, rng.random(90) < 0.5, strata))
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.001
    assert scipy.stats.binomtest(int(np.sum(np.array(p) < 0.05)), 300, 0.05).pvalue > 0.001


def test_columns_of_obs_and_missing_times(patients):
    model, X, y, time, event = patients
    gone = time.copy()
    gone[:10] = np.nan
    adata, model = stored_fit(X, y, 3, unused=20, obs={"days": gone, "dead": event})
    table = analysis.survival(adata, "days", "dead").table
    kept = slice(10, 380)
    by_hand = analysis.survival(model, time[kept], event[kept], X=X[kept], y=y[kept]).table
    pd.testing.assert_frame_equal(table, by_hand, rtol=1e-5)


def test_bad_input(patients):
    model, X, y, time, event = patients
    rows = {"X": X, "y": y}
    with pytest.raises(ValueError, match=r"time has 400 values <= 0"):
        analysis.survival(model, -time, event, **rows)
    with pytest.raises(ValueError, match=r"event has values \[2\.0\]"):
        analysis.survival(model, time, event * 2, **rows)
    with pytest.raises(ValueError, match=r"time must be numbers .* pass time as numbers, such as days"):
        analysis.survival(model, np.full(400, "long"), event, **rows)
    with pytest.raises(ValueError, match=r"event must be numbers .* pass 1 or True where the event was seen"):
        analysis.survival(model, time, np.full(400, "dead"), **rows)
    with pytest.raises(ValueError, match="time has 1 values <= 0 or infinite, the first in row 7: inf"):
        analysis.survival(model, np.where(np.arange(400) == 7, np.inf, time), event, **rows)
    with pytest.raises(ValueError, match=r"covariates has columns of the same name, \['a', 'a'\]"):
        analysis.survival(model, time, event, covariates=pd.DataFrame(np.ones((400, 2)), columns=["a", "a"]), **rows)
    with pytest.raises(ValueError, match=r"event has shape \(3,\); pass one value for each of the 400 rows"):
        analysis.survival(model, time, event[:3], **rows)
    with pytest.raises(ValueError, match="time='days' would be a column of obs, which only an AnnData has; pass 400"):
        analysis.survival(model, "days", event, **rows)
    with pytest.raises(ValueError, match="0 with event=True"):
        analysis.survival(model, time, np.zeros(400), **rows)
    with pytest.raises(ValueError, match="contexts='9' is not a context"):
        analysis.survival(model, time, event, contexts="9", **rows)
    with pytest.raises(ValueError, match="cut=1 is out of bounds"):
        analysis.survival(model, time, event, cut=1, **rows)
    with pytest.raises(ValueError, match=r"covariates has columns that are not numbers, \['sex'\]"):
        analysis.survival(model, time, event, covariates=pd.DataFrame({"sex": ["f"] * 400}), **rows)
    with pytest.raises(ValueError, match="covariates has 3 rows, and the data 400"):
        analysis.survival(model, time, event, covariates=np.zeros((3, 1)), **rows)
    with pytest.raises(ValueError, match="covariates has a column 'MCPC 1', the name of an MCPC"):
        analysis.survival(model, time, event, covariates=pd.DataFrame({"MCPC 1": time}), **rows)
    with pytest.raises(ValueError, match=r"covariates has columns named \['event'\]"):
        analysis.survival(model, time, event, covariates=pd.DataFrame({"event": time}), **rows)
    twice = pd.DataFrame({"a": time, "b": 2 * time})
    with pytest.raises(ValueError, match="Cox's model with MCPC 1 has no finite solution"):
        analysis.survival(model, time, event, covariates=twice, **rows)


def test_a_table_of_patients_may_have_an_order_of_its_own(patients):
    model, X, y, time, event = patients
    age = np.random.default_rng(5).normal(size=400)
    names = [f"p{i}" for i in range(400)]
    table = pd.DataFrame({"time": time, "event": event, "age": age}, index=names)
    rows = {"X": pd.DataFrame(X, index=names), "y": y, "components": 1}
    expected = analysis.survival(model, time, event, covariates=table[["age"]].to_numpy(), **rows).table
    other = table.sample(frac=1, random_state=0)
    found = analysis.survival(model, other["time"], other["event"], covariates=other[["age"]], **rows).table
    pd.testing.assert_frame_equal(found, expected)
    # Patients that it does not have are left out.
    assert analysis.survival(model, other["time"].iloc[:300], other["event"], **rows).table["n"].item() == 300


def test_one_model_without_a_solution_does_not_lose_the_others(patients):
    """A covariate that is the score on MCPC 1 leaves that MCPC alone without a solution."""
    model, X, y, time, event = patients
    z = pd.DataFrame({"copy": model.transform(X)[:, 0]})
    with pytest.warns(UserWarning, match="Cox's model with MCPC 1 has no finite solution"):
        found = analysis.survival(model, time, event, X=X, y=y, covariates=z)
    assert found.table["p"].isna().tolist() == [True, False, False]
    assert found.table.loc["MCPC 2", "bonferroni"] < 0.05
    assert found.joint.index.tolist() == ["copy", "MCPC 2", "MCPC 3"]
    assert found.selected.index.tolist() == ["copy", "MCPC 2"]


def test_a_joint_model_without_a_solution_does_not_lose_the_table(patients, monkeypatch):
    model, X, y, time, event = patients
    calls = []

    def cox(*arguments):
        calls.append(arguments)
        if len(calls) == 4:  # after those of three MCPCs
            raise NoSolutionError("no finite solution")
        return one_model(*arguments)

    one_model = hazards.fit_cox
    monkeypatch.setattr(hazards, "fit_cox", cox)
    with pytest.warns(UserWarning, match="joint is None: no finite solution"):
        found = analysis.survival(model, time, event, X=X, y=y)
    assert found.joint is None
    assert found.table["p"].notna().all()


def test_missing_lifelines_names_the_extra(patients, monkeypatch):
    model, X, y, time, event = patients
    monkeypatch.setitem(sys.modules, "lifelines", None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[analysis\]"'):
        analysis.survival(model, time, event, X=X, y=y)


# Models of several MCPCs


def test_the_joint_model_is_corrected_for_all_it_has(patients):
    """Interval and p of each of m predictors are those of the level 0.05 / m, with sqrt(d / (d - m)) in the errors."""
    model, X, y, time, event = patients
    found = analysis.survival(model, time, event, X=X, y=y)
    Z = model.transform(X)
    frame = pd.DataFrame(Z / Z.std(axis=0, ddof=1)).assign(time=time, event=event, context=y)
    d, m = event.sum(), 3
    fitted = lifelines.CoxPHFitter(alpha=0.05 / m).fit(frame, "time", "event", strata="context")
    errors = fitted.standard_errors_ * np.sqrt(d / (d - m))
    p = 2 * scipy.stats.norm.sf(np.abs(fitted.params_ / errors))
    np.testing.assert_allclose(found.joint["single_p"], p)
    np.testing.assert_allclose(found.joint["p"], np.minimum(m * p, 1))
    width = scipy.stats.norm.isf(0.05 / 2 / m) * errors
    np.testing.assert_allclose(found.joint["upper"], np.exp(fitted.params_ + width))
    np.testing.assert_allclose(found.joint["lower"], np.exp(fitted.params_ - width))
    # That of the selected one is lifelines' own, by its name.
    alone = lifelines.CoxPHFitter().fit(frame[[1, "time", "event", "context"]], "time", "event", strata="context")
    assert found.selected.columns.tolist() == ["hazard_ratio", "naive_lower", "naive_upper", "naive_p"]
    assert found.selected.loc["MCPC 2", "naive_p"] == pytest.approx(alone.summary["p"].item())


def test_more_predictors_than_events_leave_no_joint_model(patients):
    model, X, y, time, _ = patients
    few = np.zeros(400)
    few[[3, 150, 310]] = 1
    with pytest.warns(UserWarning, match=r"joint is None: 3 events are too few for Cox's model with 3 predictors"):
        found = analysis.survival(model, time, few, X=X, y=y, stratify=False)
    assert found.joint is None
    assert found.table["p"].notna().all()


# Rows of one patient


def test_rows_of_one_patient(patients):
    """Labels by name, by a column of obs, in any order; rows without a label are left out."""
    model, X, y, time, event = patients
    patient = np.array([f"patient {i // 4}" for i in range(400)])
    time, event = np.repeat(time[::4], 4), np.repeat(event[::4], 4)
    rows = {"X": X, "y": y, "components": 1}
    found = analysis.survival(model, time, event, cluster=patient, **rows)
    assert found.n_clusters == 100
    assert found.table["n"].item() == 400
    assert "robust to 100 clusters of rows" in found.summary()
    alone = analysis.survival(model, time, event, **rows)
    pd.testing.assert_series_equal(found.table["hazard_ratio"], alone.table["hazard_ratio"])
    for column in ("p", "logrank_p"):
        assert not np.allclose(found.table[column], alone.table[column], rtol=0.01)
    assert alone.n_clusters is None
    names = [f"row {i}" for i in range(400)]
    labels = pd.Series(patient, index=names).iloc[4:].sample(frac=1, random_state=0)
    by_name = analysis.survival(model, time, event, X=pd.DataFrame(X, index=names), y=y, components=1, cluster=labels)
    adata, _ = stored_fit(X, y, 3, obs={"days": time, "dead": event, "patient": [None] * 4 + list(patient[4:])})
    stored = analysis.survival(adata, "days", "dead", components=1, cluster="patient")
    kept = slice(4, None)
    expected = analysis.survival(
        model, time[kept], event[kept], X=X[kept], y=y[kept], components=1, cluster=patient[kept]
    )
    assert by_name.n_clusters == stored.n_clusters == expected.n_clusters == 99
    # Scores are centred by all rows or by those that are left, which no hazard ratio depends on.
    pd.testing.assert_frame_equal(by_name.table, expected.table, rtol=1e-5)
    pd.testing.assert_frame_equal(stored.joint, by_name.joint, rtol=1e-3)
    with pytest.raises(ValueError, match=r"cluster has shape \(3,\); pass one value for each of the 400 rows"):
        analysis.survival(model, time, event, cluster=patient[:3], **rows)
    with pytest.raises(ValueError, match="cluster has 2 labels in these rows, and at least 4 are needed"):
        analysis.survival(model, time, event, cluster=y // 2, **rows)
    with pytest.raises(ValueError, match="cluster='patient' would be a column of obs"):
        analysis.survival(model, time, event, cluster="patient", **rows)
