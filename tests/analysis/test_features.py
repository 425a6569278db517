"""Features and rows at the poles of MCPCs: feature_scores, top_features, sample_scores, top_samples, group_medians."""

import sys

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from stored_fit import stored_fit

import mcpca
import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca._results.fitted import fitted
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def data():
    return make_contexts(6, 12, 3, n_samples=40, noise=0.1, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(3, random_state=0).fit(data.X, data.y)


# Features


def test_without_a_pca_feature_scores_are_A_and_the_projection(model):
    A, P = analysis.feature_scores(model), analysis.feature_scores(model, by="projection")
    np.testing.assert_allclose(A, model.components_)
    np.testing.assert_allclose(P.T, model.projection_)
    assert list(A.columns) == ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert A.index[0] == "feature 1"


@pytest.mark.parametrize("whiten", [False, True])
def test_scores_are_mapped_back_through_a_pca(data, whiten):
    """A score grows by 1 where a row moves by the feature scores; and features weighted by those of the projection
    give the scores."""
    genes = pd.DataFrame(data.X, columns=[f"gene {j}" for j in range(12)])
    pca = PCA(5, whiten=whiten).fit(genes)
    Z = pca.transform(genes)
    model = MCPCA(3, random_state=0).fit(Z, data.y)
    A = analysis.gene_scores(model, pca=pca)
    P = analysis.gene_scores(model, pca=pca, by="projection")
    assert list(A.index) == list(genes.columns)
    scores = model.transform(Z, center="overall")
    centred = genes.to_numpy() - genes.to_numpy().mean(axis=0)
    np.testing.assert_allclose(centred @ P.to_numpy(), scores, atol=1e-8)
    moved = pd.DataFrame(genes.to_numpy() + A["MCPC 2"].to_numpy(), columns=genes.columns)
    gain = model.transform(pca.transform(moved), center="overall") - scores
    np.testing.assert_allclose(gain, np.tile([0, 1, 0], (len(genes), 1)), atol=1e-8)
    plain = analysis.gene_scores(model, pca=pca.components_, names=genes.columns)
    assert np.allclose(plain, A) != whiten


@pytest.mark.parametrize("scaler", [None, StandardScaler(), MinMaxScaler(), RobustScaler(), "passthrough"])
@pytest.mark.parametrize("axes", [PCA(5), PCA(5, whiten=True), TruncatedSVD(5, random_state=0), "passthrough"])
def test_a_pipeline_is_a_source(data, scaler, axes):
    """Scores are those of the whole pipeline; features come back through all of its steps, as defined for one PCA."""
    genes = pd.DataFrame(data.X * np.arange(1, 13), columns=[f"gene {j}" for j in range(12)])
    steps = [clone(step) if hasattr(step, "fit") else step for step in (scaler, axes) if step is not None]
    pipeline = make_pipeline(*steps, MCPCA(3, random_state=0)).fit(genes, data.y)
    table = analysis.sample_scores(pipeline, X=genes.assign(patient=data.y), y="patient")
    scores = pipeline[-1].transform(pipeline[:-1].transform(genes), center="overall")
    np.testing.assert_allclose(table.iloc[:, 1:], scores, atol=1e-8)
    blocks = analysis.sample_scores(pipeline, X={c: genes[data.y == c] for c in range(6)})
    pd.testing.assert_frame_equal(blocks.sort_index(), table.sort_index())
    P, A = (analysis.feature_scores(pipeline, by=by) for by in ("projection", "components"))
    assert list(P.index) == list(A.index) == list(genes.columns)
    centred = genes.to_numpy() - genes.to_numpy().mean(axis=0)
    np.testing.assert_allclose(centred @ P.to_numpy(), scores, atol=1e-8)
    moved = pipeline.transform(genes + A["MCPC 2"].to_numpy()) - pipeline.transform(genes)
    np.testing.assert_allclose(moved, np.tile([0, 1, 0], (len(genes), 1)), atol=1e-8)
    if steps:
        by_hand = analysis.feature_scores(pipeline[-1], pca=pipeline[:-1], names=genes.columns)
        pd.testing.assert_frame_equal(by_hand, A)


def test_all_analyses_take_a_pipeline(data):
    pipeline = make_pipeline(PCA(5), MCPCA(3, random_state=0)).fit(data.X, data.y)
    model, Z = pipeline[-1], pipeline[:-1].transform(data.X)
    given, by_hand = {"X": data.X, "y": data.y}, {"X": Z, "y": data.y}
    for name, arguments in {
        "associate": ([1, 2, 3, 4, 5, 6],),
        "link_recall": ({"own": [("0", "1"), ("2", "3")]},),
        "tree_distances": ("((0,1),(2,(3,(4,5))));",),
    }.items():
        function = getattr(analysis, name)
        first, second = (function(one, *arguments, **rows) for one, rows in ((pipeline, given), (model, by_hand)))
        first, second = (getattr(one, "table", one) for one in (first, second))
        pd.testing.assert_frame_equal(first, second)
    assert analysis.context_tree(pipeline).newick() == analysis.context_tree(model).newick()
    first, second = (
        analysis.compare_with_pca(one, n_top=20, **rows).pairs for one, rows in ((pipeline, given), (model, by_hand))
    )
    pd.testing.assert_frame_equal(first, second)
    assert "feature 12" in analysis.describe(pipeline, n=12)["MCPC 1"]
    assert fitted(pipeline).features[0] == "pca0"


def test_other_sources_are_refused(data):
    for source, told in [
        (None, "source is a NoneType; pass a fitted MCPCA, a Pipeline that ends in one, or an AnnData"),
        (MCPCA, "source is the class MCPCA"),
        (PCA(2).fit(data.X), "source is a PCA"),
        (make_pipeline(PCA(2)).fit(data.X), "source is a Pipeline that ends in a PCA"),
    ]:
        with pytest.raises(TypeError, match=told):
            analysis.feature_scores(source)
    with pytest.raises(NotFittedError):
        analysis.feature_scores(make_pipeline(PCA(2), MCPCA(2)))
    pipeline = make_pipeline(Normalizer(), PCA(5), MCPCA(2, random_state=0)).fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"source, step 'normalizer', is a Normalizer without components_"):
        analysis.feature_scores(pipeline)


def test_genes_of_a_fit_on_the_pcs_of_an_anndata(data):
    """``mcpca.tl`` maps a fit on PCs to genes by itself: no ``pca`` is needed."""
    pca = PCA(5).fit(data.X)
    obs = pd.DataFrame({"patient": data.y.astype(str)}, index=[f"cell {i}" for i in range(240)])
    adata = anndata.AnnData(data.X, obs=obs)
    adata.var_names = [f"gene {j}" for j in range(12)]
    adata.obsm["X_pca"], adata.varm["PCs"] = pca.transform(data.X), pca.components_.T
    mcpca.tl.mcpca(adata, "patient", n_comps=3, obsm="X_pca")
    for by in ("components", "projection"):
        expected = analysis.feature_scores(mcpca.tl.model(adata), pca=pca, names=adata.var_names, by=by)
        pd.testing.assert_frame_equal(analysis.feature_scores(adata, by=by), expected)
    assert set(analysis.top_features(adata, 2)["feature"]) <= set(adata.var_names)


def test_axes_of_a_pca_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match=r"shape \(20, 12\).*fit is on 12 PCs.*transposed"):
        analysis.feature_scores(model, pca=np.zeros((20, 12)))
    with pytest.raises(ValueError, match="pca is a PCA without components_: fit it first"):
        analysis.feature_scores(model, pca=PCA(3))
    with pytest.raises(TypeError, match="pca is a str"):
        analysis.feature_scores(model, pca="X_pca")
    with pytest.raises(ValueError, match="NaN or infinite"):
        analysis.feature_scores(model, pca=np.full((12, 4), np.nan))
    with pytest.raises(ValueError, match="names has 2 entries, but pca has 14 features"):
        analysis.feature_scores(model, pca=np.eye(12, 14), names=["a", "b"])
    with pytest.raises(ValueError, match=r"not orthonormal \(products are off by 1\)"):
        analysis.feature_scores(model, pca=np.eye(12, 4))
    with pytest.raises(ValueError, match="by='rows'; choose"):
        analysis.feature_scores(model, by="rows")


def test_top_features_are_the_extremes_of_each_column(model):
    table = analysis.top_features(model, 3)
    A = analysis.feature_scores(model)
    assert len(table) == 3 * 2 * 3
    for (component, pole), own in table.groupby(["component", "pole"]):
        ordered = A[component].sort_values(ascending=pole == "negative")
        assert own["feature"].tolist() == ordered.index[:3].tolist()
        np.testing.assert_allclose(own["score"], ordered[:3])
        assert own["rank"].tolist() == [1, 2, 3]
    again = analysis.top_features(A, 3, components=["MCPC 2", 0])
    assert again["component"].unique().tolist() == ["MCPC 2", "MCPC 1"]


def test_a_table_of_feature_scores_is_taken_as_it_is(model):
    with pytest.raises(ValueError, match="names has no effect, because source is a table of feature scores"):
        analysis.top_features(pd.DataFrame(model.components_), names=list("abcdefghijkl"))
    with pytest.raises(ValueError, match="not numeric"):
        analysis.top_features(pd.DataFrame({"MCPC 1": ["a", "b"]}))
    with pytest.raises(ValueError, match="not finite"):
        analysis.top_features(pd.DataFrame({"MCPC 1": [np.nan, 1]}))


# Rows


@pytest.mark.parametrize("center", ["overall", "context"])
@pytest.mark.parametrize("form", ["array", "sparse", "frame", "dict"])
def test_scores_of_rows_are_those_of_transform(data, model, form, center):
    order = np.random.default_rng(0).permutation(len(data.X))  # rows of a context need not be together
    X, y = data.X[order], data.y[order]
    names = [f"row {i}" for i in range(len(X))]
    given = {
        "array": (X, y),
        "sparse": (scipy.sparse.csr_array(X), y),
        "frame": (pd.DataFrame(X, index=names), y),
        "dict": ({c: data.X[data.y == c] for c in range(6)}, None),
    }[form]
    table = analysis.sample_scores(model, X=given[0], y=given[1], center=center)
    if form == "dict":
        X, y = data.X, data.y  # one context after the other, as they were drawn
    expected = model.transform(X, y if center == "context" else None)
    np.testing.assert_allclose(table.iloc[:, 1:], expected, atol=1e-10)
    assert table["context"].tolist() == [str(label) for label in y]
    assert table.index[1] == ("row 1" if form == "frame" else 1)


@pytest.mark.parametrize("stored", ["overall", "context"])
@pytest.mark.parametrize("center", ["overall", "context"])
@pytest.mark.parametrize("place", ["X", "layer", "obsm", "mask"])
def test_scores_of_an_anndata(data, place, center, stored):
    mask = np.arange(12) < 9 if place == "mask" else None
    where = {"layer": "logs"} if place == "layer" else {"obsm": "X_pca"} if place == "obsm" else {}
    adata, model = stored_fit(data.X, data.y, 3, mask=mask, center=stored, unused=5, **where)
    table = analysis.sample_scores(adata, center=center)
    X = data.X if mask is None else data.X[:, mask]
    n = len(X) - 5
    expected = model.transform(X[:n], data.y[:n]) if center == "context" else model.transform(X[:n])
    np.testing.assert_allclose(table.iloc[:n, 1:], expected, atol=1e-8)
    assert table["context"].isna().to_numpy().nonzero()[0].tolist() == list(range(n, n + 5))
    assert table.index[0] == "row 0"


def test_top_samples_are_the_extremes(data, model):
    names = np.array([f"sentence {i}" for i in range(len(data.X))])
    table = analysis.top_samples(model, 4, components="MCPC 2", names=names, X=data.X, y=data.y)
    z = model.transform(data.X)[:, 1]
    order = np.argsort(z)
    positive, negative = (table[table["pole"] == pole] for pole in ("positive", "negative"))
    assert positive["row"].tolist() == order[::-1][:4].tolist()
    assert negative["row"].tolist() == order[:4].tolist()
    assert positive["name"].tolist() == names[order[::-1][:4]].tolist()
    assert positive["context"].tolist() == [str(c) for c in data.y[order[::-1][:4]]]
    np.testing.assert_allclose(negative["score"], z[order[:4]])


def test_rows_without_a_context_are_at_no_pole(data):
    X = data.X.copy()
    X[-3:] *= 1000
    adata, _ = stored_fit(X, data.y, 3, unused=3)
    assert analysis.top_samples(adata, 5)["row"].max() < len(X) - 3
    adata.obs["work"] = ["a", "b"] * 120
    assert analysis.group_medians(adata, "work")["n"].tolist() == [119, 118]


def test_group_medians_are_medians(data, model):
    works = np.random.default_rng(1).choice(["a", "b", "c"], len(data.X)).astype(object)
    works[:7] = None
    works[7] = "single"
    table = analysis.group_medians(model, works, X=data.X, y=data.y, min_rows=2)
    Z = model.transform(data.X)
    assert table.index.tolist() == ["a", "b", "c"]
    for name in "abc":
        np.testing.assert_allclose(table.loc[name].iloc[1:].astype(float), np.median(Z[works == name], axis=0))
        assert table.at[name, "n"] == (works == name).sum()


def test_tables_go_by_the_names_of_rows(data, model):
    """A table with an order of its own, and with more or fewer rows, gives each row its own value."""
    rng = np.random.default_rng(2)
    X = pd.DataFrame(data.X, index=[f"cell {i}" for i in range(240)])
    works = pd.Series(rng.choice(["a", "b"], 240), index=X.index)
    expected = analysis.group_medians(model, works.to_numpy(), X=X, y=data.y)
    more = pd.concat([works, pd.Series("c", index=["cell x", "cell y"])]).sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(analysis.group_medians(model, more, X=X, y=data.y), expected)
    fewer = works.iloc[100:].sample(frac=1, random_state=0)
    assert analysis.group_medians(model, fewer, X=X, y=data.y)["n"].sum() == 140
    # Rows of an array have no names; an index 0, 1, ... names other rows than these.
    with pytest.raises(ValueError, match=r"groups has an index with other names .* and groups begins with 0, 1, 2\."):
        analysis.group_medians(model, works.reset_index(drop=True), X=X, y=data.y)
    pd.testing.assert_frame_equal(analysis.group_medians(model, works, X=data.X, y=data.y), expected)
    top = analysis.top_samples(model, 2, names=works.sample(frac=1, random_state=0), X=X, y=data.y)
    assert top["name"].tolist() == works.iloc[top["row"]].tolist()
    adata, _ = stored_fit(data.X, data.y, 3)
    by_row = pd.Series(works.to_numpy(), index=adata.obs_names)
    shuffled = analysis.group_medians(adata, by_row.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(shuffled, analysis.group_medians(adata, by_row))
    with pytest.raises(ValueError, match=r"groups has an index with other names .* and groups begins with 'x0'"):
        analysis.group_medians(model, works.set_axis([f"x{i}" for i in range(240)]), X=X, y=data.y)
    with pytest.raises(ValueError, match="groups names row 'cell 3' more than once"):
        analysis.group_medians(model, pd.concat([works, works.iloc[3:4]]), X=X, y=data.y)


def test_missing_pandas_names_the_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[analysis\]"'):
        analysis.feature_scores(model)


def test_bad_input_about_rows(data, model):
    with pytest.raises(ValueError, match="A fitted model keeps no rows: pass X and y"):
        analysis.sample_scores(model)
    with pytest.raises(ValueError, match="center='none'; choose"):
        analysis.sample_scores(model, X=data.X, y=data.y, center="none")
    with pytest.raises(ValueError, match=r"n=200 rows at each of two poles, but there are 240; n <= 120"):
        analysis.top_samples(model, 200, X=data.X, y=data.y)
    with pytest.raises(ValueError, match=r"names has shape \(3,\); pass one value for each of the 240 rows"):
        analysis.top_samples(model, 2, names=["a", "b", "c"], X=data.X, y=data.y)
    with pytest.raises(ValueError, match=r"groups='work' would be a column of obs, which only an AnnData has"):
        analysis.group_medians(model, "work", X=data.X, y=data.y)
    with pytest.raises(ValueError, match="no group of min_rows=1000 rows; the largest has 40: lower min_rows"):
        analysis.group_medians(model, data.y, X=data.X, y=data.y, min_rows=1000)
    with pytest.raises(ValueError, match="the largest has 0: give rows a group"):
        analysis.group_medians(model, [None] * 240, X=data.X, y=data.y)
    adata, _ = stored_fit(data.X, data.y, 3, obs={"work": data.y})
    with pytest.raises(ValueError, match=r"groups='wrok' is not a column of adata\.obs; did you mean 'work'"):
        analysis.group_medians(adata, "wrok")
    with pytest.raises(ValueError, match=r"components=1\.5 is not an integer"):
        analysis.top_features(model, components=1.5)
    with pytest.raises(ValueError, match=r"components=7 is out of bounds: 0 <= components <= 2"):
        analysis.top_samples(model, 2, components=7, X=data.X, y=data.y)
