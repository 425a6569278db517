"""The report holds the model's numbers, takes any rows, and lets no name become markup."""

import base64
import hashlib
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from reading_reports import content, elements, unpacked
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from unequal_noise import fitted_to, two_groups

from mcpca import MCPCA, IdentifiabilityWarning, select_rank
from mcpca._inference.precision import Precision
from mcpca._inference.presence import Presence
from mcpca._inference.replication import Replicability
from mcpca._rank.paper_rule import choose_rank
from mcpca.datasets import make_contexts
from mcpca.report import render, write_report
from mcpca.report._encode import as_json, packed, rounded
from mcpca.report._rows import _principal_axes
from mcpca.report._words import ARXIV, AUTHORS, TITLE, YEAR

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><script>alert(3)</script>",
    "<!--<script>",
    "\u202eright to left\u2069\u0000\u2028",
    "N" * 10_000,
    "\ud800 half a character",
    "@@plotly@@ {{x}} ${y} %{z}",
    "=HYPERLINK(1)",
    "&lt;b&gt; <b>bold</b>",
]


@pytest.fixture(scope="module")
def planted():
    truth = make_contexts(n_contexts=5, n_features=12, n_components=3, n_samples=60, random_state=0)
    names = np.array(["lung", "skin", "gut", "bone", "liver"])[truth.y]
    X = pd.DataFrame(truth.X, columns=[f"gene {j}" for j in range(12)])
    return X, names, MCPCA(3, solver="ml", random_state=0).fit(X, names)


@pytest.fixture(scope="module")
def page(planted):
    X, y, model = planted
    return render(model, X=X, y=y)


def test_of_a_pipeline_is_that_of_its_model(planted):
    X, y, _ = planted
    pipeline = make_pipeline(PCA(6, svd_solver="full"), MCPCA(3, random_state=0)).fit(X, y)
    alone = render(pipeline[-1], X=pipeline[:-1].transform(X), y=y)
    data, twin = content(render(pipeline, X=X, y=y)), content(alone)
    assert data["loadings"] == twin["loadings"]
    assert data["rows"] == twin["rows"]
    with pytest.raises(TypeError, match="Pipeline that ends in a PCA; pass a fitted MCPCA"):
        render(make_pipeline(PCA(6)).fit(X))


def test_numbers_are_the_models(planted, page):
    _, _, model = planted
    data = content(page)
    assert data["contexts"] == model.contexts_.tolist()
    assert data["mcpcs"] == ["MCPC 1", "MCPC 2", "MCPC 3"]
    np.testing.assert_allclose(data["loadings"], model.loadings_, rtol=5e-5)
    of = data["ofContexts"]
    assert of["rows"] == [60] * 5
    np.testing.assert_allclose(of["explained"], model.variance_explained(per="context") / model.squared_norms(), 5e-5)
    np.testing.assert_allclose(of["error"], model.reconstruction_error(per="context") / model.squared_norms(), 5e-5)
    np.testing.assert_allclose(of["correlation"], model.offdiagonal_correlation("context", normalized=True), 5e-5)
    np.testing.assert_allclose(of["noise"], model.noise_variance_, rtol=5e-5)
    np.testing.assert_allclose(data["scree"], model.singular_values_, rtol=5e-5)
    B = model.loadings_
    np.testing.assert_allclose(data["ofMcpcs"]["share"], B.sum(axis=0) / B.sum(), rtol=5e-5)
    assert data["ofMcpcs"]["carrying"] == [(b >= b.max() / 2).sum() for b in B.T]
    G = np.abs(model.components_.T @ model.components_) - np.eye(3)
    assert data["ofMcpcs"]["nearest"] == G.argmax(axis=1).tolist()
    landscape = model.landscape()
    np.testing.assert_allclose(data["ofMcpcs"]["landscape"]["F"], landscape.F, rtol=5e-5)
    np.testing.assert_allclose(data["ofMcpcs"]["landscape"]["curvature"], landscape.curvatures, rtol=5e-3)
    assert data["ofMcpcs"]["landscape"]["certified"] == landscape.certified.tolist()


def test_poles_are_the_largest_entries(planted):
    X, _, model = planted
    data = content(render(model, n_features=4))["features"]
    assert data["count"] == 12
    for j, ends in enumerate(data["poles"]):
        a, weights = model.components_[:, j], model.projection_[j]
        for end, sign in (("positive", 1), ("negative", -1)):
            expected = [i for i in np.argsort(-sign * a)[:4] if sign * a[i] > 0]
            assert [data["names"][f] for f in ends[end]["features"]] == X.columns[expected].tolist()
            np.testing.assert_allclose(ends[end]["entries"], a[expected], rtol=5e-5)
            np.testing.assert_allclose(ends[end]["weights"], weights[expected], rtol=5e-5)


def test_rows_are_scores_and_principal_components(planted, page):
    X, y, model = planted
    rows = content(page)["rows"]
    assert rows["words"] == "All rows are in this file."
    for name, sample in zip(model.contexts_, rows["contexts"], strict=True):
        mine = X[y == name].to_numpy()
        scores = model.transform(X[y == name], y[y == name])
        assert (sample["n"], sample["used"], sample["shown"]) == (60, 60, 60)
        np.testing.assert_allclose(unpacked(sample["scores"]), scores, atol=2e-5 * np.abs(scores).max())
        np.testing.assert_allclose(
            np.array(sample["quantiles"]).T, np.quantile(scores, rows["quantiles"], axis=0), rtol=5e-4, atol=1e-3
        )
        _, s, Vt = np.linalg.svd(mine - mine.mean(axis=0), full_matrices=False)
        V = (Vt[:3] * np.sign(Vt[np.arange(3), np.abs(Vt[:3]).argmax(axis=1)])[:, None]).T
        expected = (mine - mine.mean(axis=0)) @ V
        np.testing.assert_allclose(unpacked(sample["coordinates"]), expected, atol=2e-5 * np.abs(expected).max())
        np.testing.assert_allclose(sample["axes"], model.components_.T @ V, atol=1e-4)
        np.testing.assert_allclose(sample["shares"], s[:3] ** 2 / (s**2).sum(), rtol=1e-2)


def _sparse(X, y):
    return {"X": scipy.sparse.csr_matrix(X.to_numpy()), "y": y}


def _column_sparse(X, y):
    return {"X": scipy.sparse.csc_array(X.to_numpy()), "y": y}


def _mapping(X, y):
    return {"X": {name: X[y == name] for name in np.unique(y)}}


def _in_order(X, y):
    return {"X": [X[y == name].to_numpy() for name in np.unique(y)]}


def _chunks(X, y):
    return {"X": lambda: iter(np.array_split(X.to_numpy(), 4)), "y": y}


def _anndata(X, y):
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"organ": y}, index=X.index.astype(str))
    return {"X": anndata.AnnData(X.to_numpy(), obs=obs, var=pd.DataFrame(index=X.columns)), "y": "organ"}


def _dask_array(X, y):
    array = pytest.importorskip("dask.array")
    return {"X": array.from_array(X.to_numpy(), chunks=(70, 5)), "y": array.from_array(y, chunks=70)}


def _dask_frame(X, y):
    frame = pytest.importorskip("dask.dataframe")
    return {"X": frame.from_pandas(X.assign(organ=y), npartitions=3), "y": "organ"}


def _dask_anndata(X, y):
    array = pytest.importorskip("dask.array")
    adata = _anndata(X[X.columns[::-1]], y)["X"]  # features in another order, found by name
    adata.X = array.from_array(adata.X, chunks=(70, -1))
    return {"X": adata, "y": "organ"}


def _dask_anndatas(X, y):
    return {"X": {name: _dask_anndata(X[y == name], y[y == name])["X"] for name in np.unique(y)}}


@pytest.mark.parametrize(
    "form",
    [
        _sparse,
        _column_sparse,
        _mapping,
        _in_order,
        _chunks,
        _anndata,
        _dask_array,
        _dask_frame,
        _dask_anndata,
        _dask_anndatas,
    ],
)
def test_rows_in_any_form(form, planted, page):
    X, y, model = planted
    expected, found = (
        content(text)["rows"]["contexts"] for text in (page, render(model, **form(X, y), random_state=0))
    )
    for a, b in zip(expected, found, strict=True):
        assert (a["n"], a["used"], a["shown"]) == (b["n"], b["used"], b["shown"])
        for name in ("scores", "coordinates"):
            np.testing.assert_allclose(unpacked(a[name]), unpacked(b[name]), atol=1e-3)
        for name in ("quantiles", "axes"):
            np.testing.assert_allclose(a[name], b[name], atol=1e-3)


def test_rows_are_sampled_within_contexts(planted):
    X, y, model = planted
    rows = content(render(model, X=X, y=y, max_rows=52))["rows"]
    assert [(s["shown"], s["used"], s["n"]) for s in rows["contexts"]] == [(10, 60, 60)] * 5
    assert rows["words"] == "50 rows of 300, drawn at random within contexts, are in this file."
    scores = model.transform(X, y)
    for name, sample in zip(model.contexts_, rows["contexts"], strict=True):
        distances = np.abs(unpacked(sample["scores"])[:, None] - scores[y == name][None]).max(axis=2)
        assert (distances.min(axis=1) < 1e-3).all()
        assert len(set(distances.argmin(axis=1))) == 10
    without = content(render(model, X=X, y=y, max_rows=0))["rows"]["contexts"]
    assert [s["shown"] for s in without] == [0] * 5
    np.testing.assert_allclose(without[0]["quantiles"], rows["contexts"][0]["quantiles"])


def test_rows_read_in_one_pass_where_they_are_not_in_memory(planted):
    X, y, model = planted
    passes = []

    def chunks():
        passes.append(1)
        return iter(np.array_split(X.to_numpy(), 4))

    samples = content(render(model, X=chunks, y=y, max_rows=50))["rows"]["contexts"]
    assert [(s["shown"], s["used"]) for s in samples] == [(10, 60)] * 5
    assert len(passes) <= 3  # shapes, the rows, and the look whether chunks can be read again


def test_contexts_without_rows_and_many_rows(planted):
    X, y, model = planted
    only = content(render(model, X=X[y == "gut"], y=y[y == "gut"]))["rows"]["contexts"]
    assert [s is not None for s in only] == [name == "gut" for name in model.contexts_]
    one = MCPCA(2, random_state=0).fit(np.random.default_rng(0).standard_normal((2600, 4)) * [4, 3, 2, 1])
    (sample,) = content(render(one, X=np.random.default_rng(1).standard_normal((2600, 4))))["rows"]["contexts"]
    assert (sample["n"], sample["used"], sample["shown"]) == (2600, 1000, 500)


def test_same_arguments_give_the_same_bytes(planted):
    X, y, model = planted
    first, again, other = (render(model, X=X, y=y, max_rows=50, random_state=seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("n", [3, 30, 300])
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array, np.float32])
def test_principal_components_of_wide_and_of_long_rows(kind, n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 60)) * np.r_[9, 6, 4, np.ones(57)] * (rng.random((n, 60)) < 0.5) + 3
    V, shares = _principal_axes(kind(X))
    _, s, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    m = min(3, n - 1)
    tolerance = 1e-3 if kind is np.float32 else 1e-8
    np.testing.assert_allclose(np.abs((V[:, :m] * Vt[:m].T).sum(axis=0)), 1, atol=tolerance)
    np.testing.assert_allclose(shares[:m], s[:m] ** 2 / (s**2).sum(), rtol=tolerance)
    assert (V[np.abs(V).argmax(axis=0)[:m], np.arange(m)] > 0).all()
    assert not V[:, m:].any()
    assert not shares[m:].any()


def test_models_of_every_kind_have_a_report(planted):
    X, y, model = planted
    covariances = np.stack([np.cov(X[y == name].to_numpy().T) for name in model.contexts_])
    bare = MCPCA(2, random_state=0).fit_covariances(covariances)
    data = content(render(bare))
    assert data["rows"] is None
    assert data["ofContexts"]["rows"] is None
    assert data["contexts"] == ["0", "1", "2", "3", "4"]
    # Without means of their own contexts are centred by those of the rows.
    listed = [X[y == name].to_numpy() for name in model.contexts_]
    scores = unpacked(content(render(bare, X=listed))["rows"]["contexts"][0]["scores"])
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-4)
    single = content(render(MCPCA(1, random_state=0).fit(X.to_numpy(dtype=np.float32))))
    assert single["ofMcpcs"]["nearest"] is None
    assert any(f["title"] == "One context" for f in single["findings"])


def test_rows_that_hardly_vary():
    rng = np.random.default_rng(0)
    X = {"a": rng.standard_normal((30, 4)), "b": rng.standard_normal((30, 4))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model = MCPCA(2, random_state=0).fit(X)
    alike = np.full((5, 4), 0.1, dtype=np.float32)
    for rows in (alike, scipy.sparse.csr_array(alike)):
        samples = content(render(model, X={"a": np.ones((1, 4)), "b": rows}))["rows"]["contexts"]
        assert [s["shares"] for s in samples] == [[0, 0, 0]] * 2
        assert unpacked(samples[0]["coordinates"]).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("corrected", [True, False])
def test_loadings_are_corrected_unless_told_otherwise(corrected):
    X, y, *_ = two_groups(k=6, n=60)
    model = fitted_to(X, y)
    assert (model.loadings_ - model.corrected_loadings_).max() > 0.5
    data = content(render(model, corrected=corrected))
    B = model.corrected_loadings_ if corrected else model.loadings_
    np.testing.assert_allclose(data["loadings"], B, rtol=5e-5)
    np.testing.assert_allclose(data["ofMcpcs"]["share"], B.sum(axis=0) / B.sum(), rtol=5e-5)
    words = "corrected loadings: the noise of each context is taken out"
    if not corrected:
        words = "loadings as fitted: the noise of each context is in them"
    assert data["loading"]["words"] == f"Shown are {words}."
    assert data["loading"]["name"] == ("corrected loading" if corrected else "loading")


def test_intervals_are_of_the_loadings_shown():
    X, y, *_ = two_groups(k=6, n=200, means=(4.0, 3.0, 2.0))
    model = fitted_to(X, y)
    resamples = model.bootstrap(X, y, n=2, random_state=0)
    data = content(render(model, standard_errors=resamples))
    np.testing.assert_allclose(data["intervals"]["lower"], resamples.lower, rtol=5e-5)
    with pytest.raises(ValueError, match="standard_errors is of corrected loadings, and corrected=False shows"):
        render(model, standard_errors=resamples, corrected=False)
    resamples = model.bootstrap(X, y, n=2, corrected=False, random_state=0)
    data = content(render(model, standard_errors=resamples, corrected=False))
    np.testing.assert_allclose(data["intervals"]["lower"], resamples.lower, rtol=5e-5)
    with pytest.raises(ValueError, match="standard_errors is of loadings as fitted, and corrected=True shows"):
        render(model, standard_errors=resamples)


def test_whether_mcpcs_are_of_the_contexts(planted):
    X, y, model = planted
    test = model.context_dependence(X, y, n_splits=1, n_permutations=39, random_state=0)
    data = content(render(model, context_dependence=test))
    shown = data["ofMcpcs"]["dependence"]
    assert shown["dependent"] == test.dependent.tolist()
    np.testing.assert_allclose(shown["p"], test.p_values, rtol=5e-3)
    np.testing.assert_allclose(shown["dispersion"], test.dispersion, rtol=5e-5)
    (finding,) = [f for f in data["findings"] if "between contexts" in f["title"] or "contexts alike" in f["title"]]
    assert test.in_words() in finding["text"]
    # With what comes back, the sentence is of these.
    halves = model.replicability(X, y, n_splits=1, random_state=0)
    both = content(render(model, context_dependence=test, replicability=halves))
    assert any(test.in_words(halves.replicates) in f["text"] for f in both["findings"])
    # Contexts that are alike, or differ by their scale, are a warning.
    alike = replace(test, p_value=0.4)
    titles = {f["title"]: f["level"] for f in content(render(model, context_dependence=alike))["findings"]}
    assert titles["Contexts are alike: pooled PCA would do"] == "warning"
    scale = replace(test, p_value_beyond_scale=0.4)
    titles = {f["title"]: f["level"] for f in content(render(model, context_dependence=scale))["findings"]}
    assert titles["Contexts differ by their scale only"] == "warning"
    # Without a test the page says so.
    data = content(render(model))
    assert data["ofMcpcs"]["dependence"] is None
    assert "Whether it is of the contexts is not known" in {f["title"] for f in data["findings"]}
    with pytest.raises(TypeError, match="context_dependence is a int; pass a ContextDependence"):
        render(model, context_dependence=3)
    few = replace(test, p_values=test.p_values[:2])
    with pytest.raises(ValueError, match="context_dependence is of 5 contexts and 2 MCPCs"):
        render(model, context_dependence=few)


def test_intervals_tests_and_replicability(planted):
    X, y, model = planted
    precision, presence = model.standard_errors(), model.presence()
    halves = model.replicability(X, y, n_splits=2, random_state=0)
    data = content(render(model, standard_errors=precision, presence=presence, replicability=halves))
    lower, upper = precision.intervals(model.loadings_)
    np.testing.assert_allclose(data["intervals"]["lower"], lower, rtol=5e-5)
    np.testing.assert_allclose(data["intervals"]["upper"], upper, rtol=5e-5)
    assert data["intervals"]["words"].startswith("95% intervals from Fisher's information")
    np.testing.assert_allclose(data["presence"]["adjusted"], presence.adjusted, rtol=5e-3)
    np.testing.assert_allclose(data["ofMcpcs"]["angles"]["degrees"], precision.angles, rtol=5e-5)
    np.testing.assert_allclose(data["ofMcpcs"]["replicability"]["cosines"], halves.cosines.T, rtol=5e-5)
    assert data["ofMcpcs"]["replicability"]["replicates"] == halves.replicates.tolist()
    bootstrap = model.bootstrap(X, y, n=5, random_state=0, confidence=0.9)
    data = content(render(model, standard_errors=bootstrap))
    np.testing.assert_allclose(data["intervals"]["upper"], bootstrap.upper, rtol=5e-5)
    assert data["intervals"]["words"] == "90% intervals from 5 bootstrap resamples of the rows"
    assert data["ofMcpcs"]["angles"]["words"] == "angle within which 90% of the resamples stay"


def test_rank_curves(planted):
    X, y, model = planted
    selection = select_rank(X, y, ranks=range(1, 4), criteria=(), random_state=0)
    rank = content(render(model, selection=selection))["rank"]
    assert rank["ranks"] == selection.ranks.tolist()
    np.testing.assert_allclose(
        rank["columns"]["split-half agreement"], selection.columns["split-half agreement"], rtol=5e-5
    )
    assert rank["reason"] == selection.reason
    covariances = np.stack([np.cov(X[y == name].to_numpy().T) for name in model.contexts_])
    choice = choose_rank(covariances, [1, 2], random_state=0)
    rank = content(render(model, selection=choice))["rank"]
    np.testing.assert_allclose(rank["columns"]["seed stability"], choice.mean_scores, rtol=5e-5)
    assert rank["reason"].startswith("Rank 3 was set by the analyst. The criteria say: ")
    assert content(render(model))["rank"]["columns"] == {}
    chosen = MCPCA(None, rank_range=[2, 3], random_state=0).fit(X, y)
    assert content(render(chosen))["rank"]["reason"] == chosen.rank_choice_.reason


def test_findings_name_what_is_wrong(planted):
    X, y, model = planted
    texts = {f["title"]: (f["level"], f["text"]) for f in content(render(model))["findings"]}
    assert texts["Axes are identifiable"][0] == "good"
    assert "Enough rows" in texts
    shares = model.variance_explained(per="context") / model.squared_norms()
    worst = np.argsort(shares)[:3]
    listed = ", ".join(f"{model.contexts_[i]} ({shares[i]:.1%})" for i in worst)
    assert f"The worst fit is for {listed}." in texts["How much is explained"][1]
    correlation = model.offdiagonal_correlation(normalized=True)
    assert f"correlated by {correlation:.2f} (root mean square)" in texts["Correlation left over"][1]
    some = np.arange(len(X)) % 60 < 20
    few = MCPCA(3, random_state=0).fit(X[some], y[some])
    level, text = {f["title"]: (f["level"], f["text"]) for f in content(render(few))["findings"]}["Few rows"]
    n = few.n_samples_per_context_
    assert text.startswith(f"{(n < 30).sum()} of {len(n)} contexts have fewer than 10 rows per MCPC")
    assert level == ("warning" if n.min() <= 3 else "note")


def test_findings_name_mcpcs_that_cannot_be_told_apart(planted):
    _, _, model = planted
    B = model.loadings_.copy()
    try:
        model.loadings_ = np.stack([B[:, 0], 2 * B[:, 0], 0 * B[:, 0]], axis=1)
        found = content(render(model))["findings"]
    finally:
        model.loadings_ = B
    texts = {f["title"]: f for f in found}
    assert texts["MCPCs that cannot be told apart"]["text"].startswith("The loadings of MCPC 1 and MCPC 2 (0°)")
    assert texts["Empty MCPCs"]["text"].startswith("No context has a loading on MCPC 3")
    levels = [f["level"] for f in found]
    assert levels == sorted(levels, key=["warning", "note", "good"].index)


def test_findings_say_what_replicates(planted):
    X, y, model = planted
    halves = model.replicability(X, y, n_splits=2, threshold=0, random_state=0)
    texts = {f["title"]: f["text"] for f in content(render(model, replicability=halves))["findings"]}
    assert "in each of 2 splits 3 of 3 MCPCs come back with |cos| > 0." in texts["All MCPCs replicate"]
    assert texts["All MCPCs replicate"].startswith("Rows were split")
    by_contexts = content(render(model, replicability=replace(halves, by="contexts")))
    assert by_contexts["ofMcpcs"]["replicability"]["by"] == "contexts"
    (text,) = [f["text"] for f in by_contexts["findings"] if f["title"] == "All MCPCs replicate"]
    assert text.startswith("Contexts were split into halves")
    halves = model.replicability(X, y, n_splits=2, threshold=1, random_state=0)
    texts = {f["title"]: f["text"] for f in content(render(model, replicability=halves))["findings"]}
    text = texts["Some MCPCs do not replicate"]
    told = re.search(r"more than 1 is required\): MCPC 1 \((.+)\), MCPC 2 \(.+\), MCPC 3 \(.+\)\.$", text)
    assert told is not None
    assert float(told[1]) < 1


def test_citation_is_that_of_the_project(page):
    cff = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    families, given = (re.findall(rf'{key}: "(.+)"', cff) for key in ("family-names", "given-names"))
    assert [f"{a} {b}" for a, b in zip(given, families, strict=True)] == list(AUTHORS)
    assert f'title: "{TITLE}"' in cff
    assert f'value: "arXiv:{ARXIV}"' in cff
    assert f'url: "https://arxiv.org/abs/{ARXIV}"' in cff
    assert f"year: {YEAR}" in cff
    assert all(str(one) in content(page)["citation"][form] for one in (ARXIV, YEAR) for form in ("text", "bibtex"))
    assert all(name in content(page)["citation"][form] for name in AUTHORS for form in ("text", "bibtex"))


def test_how_it_was_run(planted):
    _, _, model = planted
    run = {"date": "2026-11-16", "input": {"file": "a.csv", "rows": 300}, "ranks": [2, 3], "object": object()}
    table = dict(content(render(model, run=run))["run"])
    assert table["date"] == "2026-11-16"
    assert table["input"] == "file: a.csv, rows: 300"
    assert table["ranks"] == "2, 3"
    assert table["object"] == "object"
    assert table["parameter solver"] == "ml"
    assert table["parameter random_state"] == "0"
    assert "0x" not in "".join(table.values())  # an address would differ from run to run


# Names ------------------------------------------------------------------------------------------------------------


def test_hostile_names_do_not_become_markup():
    truth = make_contexts(n_contexts=10, n_features=10, n_components=2, n_samples=30, random_state=0)
    X = {name: truth.X[truth.y == i] for i, name in enumerate(HOSTILE)}
    columns = pd.Index(HOSTILE, dtype=object)  # the text of pandas 3 holds no half characters
    frames = {name: pd.DataFrame(rows, columns=columns) for name, rows in X.items()}
    model = MCPCA(2, random_state=0).fit(frames)
    plain = render(MCPCA(2, random_state=0).fit(truth.X, truth.y))
    hostile = render(model, X=frames, title=HOSTILE[2] + HOSTILE[4] + HOSTILE[7], run={HOSTILE[0]: HOSTILE[3]})
    # The same elements with the same attributes as in the report of plain names, and the same scripts.
    tags, attributes, scripts = elements(plain)
    hostile_tags, hostile_attributes, hostile_scripts = elements(hostile)
    assert hostile_tags == tags
    assert hostile_attributes == attributes
    assert [s for s in hostile_scripts if s[0].get("id") != "data"] == [s for s in scripts if s[0].get("id") != "data"]
    data = content(hostile)
    assert data["contexts"] == HOSTILE
    assert set(data["features"]["names"]) <= set(HOSTILE)
    assert data["title"] == HOSTILE[2] + HOSTILE[4] + HOSTILE[7]
    hostile.encode("utf-8")  # lone surrogates are escaped


def test_json_holds_nothing_that_a_browser_reads():
    text = as_json({"a": "</script><!-- & \u2028 \u202e \ud800"})
    assert text.isascii()
    assert not set("<>&") & set(text)
    with pytest.raises(ValueError, match="Out of range float"):
        as_json({"a": float("nan")})


def test_policy_allows_these_scripts_and_nothing_else(page):
    _, attributes, scripts = elements(page)
    (policy,) = [v for tag, name, v in attributes if tag == "meta" and name == "content" and "default-src" in v]
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts["default-src"] == parts["connect-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    run = [text for attributes, text in scripts if attributes.get("type") != "application/json"]
    assert len(run) == 2  # ours, and Plotly's
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in run]
    assert sorted(parts["script-src"].split()) == sorted(hashes)
    assert "unsafe-eval" not in policy
    assert not [v for _, name, v in attributes if name in ("src", "href") and not v.startswith(("#", "data:"))]


def test_rounded_and_packed():
    assert rounded([[1.23456789, np.nan], [3.0, -np.inf]]) == [[1.2346, None], [3, None]]
    assert rounded(1e-300) == 1e-300
    values = np.random.default_rng(0).standard_normal((50, 3)) * [1, 1e6, 0]
    back = unpacked(packed(values))
    assert (np.abs(back - values) <= 1.6e-5 * np.abs(values).max(axis=0)).all()
    assert unpacked(packed(np.zeros((0, 2)))).shape == (0, 2)


# Files and errors -------------------------------------------------------------------------------------------------


def test_file_is_written_as_a_whole(planted, page, tmp_path, monkeypatch):
    X, y, model = planted
    path = tmp_path / "report.html"
    assert write_report(model, str(path), X=X, y=y) == path
    assert path.read_text(encoding="utf-8") == page
    assert len(page) < 15e6
    with pytest.raises(FileExistsError, match=r"report\.html' exists; pass overwrite=True"):
        write_report(model, path)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(model, path, overwrite=True)
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == page
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    write_report(model, path, overwrite=True)
    assert path.read_text(encoding="utf-8") != page


def test_file_can_be_read_by_whom_other_files_can(planted, tmp_path):
    (tmp_path / "plain").touch()
    path = write_report(planted[2], tmp_path / "report.html")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_paths_that_cannot_be_written(planted, tmp_path):
    _, _, model = planted
    with pytest.raises(IsADirectoryError, match="is a folder; add the name of a file"):
        write_report(model, tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        write_report(model, tmp_path / "none" / "report.html")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_rows": -1}, ValueError, "max_rows >= 0"),
        ({"n_features": 0}, ValueError, "n_features >= 1"),
        ({"title": 3}, TypeError, "title is a int; pass text"),
        ({"run": "today"}, TypeError, "run is a str; pass a dict"),
        ({"y": ["a"]}, ValueError, "y labels rows, and X is None"),
        ({"random_state": -1}, ValueError, "random_state=-1 is negative"),
        ({"selection": 3}, TypeError, "selection is a int; pass a RankSelection or RankChoice"),
        ({"standard_errors": np.ones((5, 3))}, TypeError, "pass a Precision or Bootstrap"),
        (
            {"presence": Presence(*(np.zeros((4, 3)),) * 4, 0.05, "fdr")},
            ValueError,
            "presence is of 4 contexts and 3 MCPCs, and the model has 5 and 3",
        ),
        (
            {"standard_errors": Precision(np.ones(2), np.ones((5, 2)), 0.1, np.ones(5))},
            ValueError,
            "standard_errors is of 5 contexts and 2 MCPCs, and the model has 5 and 3",
        ),
        (
            {"replicability": Replicability(np.ones((2, 4)))},
            ValueError,
            "replicability is of 5 contexts and 4 MCPCs",
        ),
    ],
)
def test_wrong_arguments(arguments, error, message, planted):
    with pytest.raises(error, match=message):
        render(planted[2], **arguments)


def test_wrong_rows(planted):
    X, y, model = planted
    with pytest.raises(ValueError, match="contexts that the model was not fitted on: 'moon'; leave their rows out"):
        render(model, X={"moon": X[:5], "gut": X[5:9]})
    with pytest.raises(ValueError, match=r"X has 1 context\(s\) without names and the model has 5; pass y=labels"):
        render(model, X=X)
    with pytest.raises(ValueError, match="X, context 'gut', lacks 1 of the 12 features of the fit: 'gene 0'"):
        render(model, X={"gut": X.iloc[:9, 1:]})
    gap = X.to_numpy(copy=True)
    gap[7, 3] = np.nan
    with pytest.raises(ValueError, match="1 NaN"):
        render(model, X={"gut": gap})
    with pytest.raises(ValueError, match="1 NaN"):
        render(model, X=scipy.sparse.csr_array(gap), y=y)


def test_plotly_is_asked_for_by_name(planted, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[report\]"'):
        render(planted[2])
