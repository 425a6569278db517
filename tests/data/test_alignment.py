"""One rule for names, whatever the form: features by the names of columns, rows by their index."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mcpca import MCPCA, ContextMoments, ExtraFeaturesWarning, analysis, select_rank
from mcpca.datasets import make_contexts

ad = pytest.importorskip("anndata")
pl = pytest.importorskip("polars")

K, P, N, R = 4, 7, 50, 2
NAMES = {
    "str": [f"gene{j}" for j in range(P)],
    "np.str_": [np.str_(f"gene{j}") for j in range(P)],
    "positions": list(range(P)),
    "integers": [7157, 672, 675, 5728, 4609, 3845, 1956],  # Entrez's, say
    "dates": list(pd.date_range("2020-01-01", periods=P)),
    "tuples": [("chr1", 10 * j) for j in range(P)],
    "mixed": ["a", 1, "b", 2.5, "c", ("d", 0), None],
}
GENES = NAMES["str"]
TURNED = [3, 0, 6, 1, 5, 2, 4]


@pytest.fixture(scope="module")
def data():
    drawn = make_contexts(K, P, R, n_samples=N, noise=0.2, random_state=3)
    order = np.random.default_rng(1).permutation(K * N)
    return drawn.X[order] + np.arange(P), np.array(["a", "b", "c", "d"])[drawn.y[order]]


@pytest.fixture(scope="module")
def base(data):
    return MCPCA(R, random_state=0).fit(*data)


def frame_of(X, names=GENES, index=None):
    frame = pd.DataFrame(X, index=index)
    frame.columns = pd.Index(names, tupleize_cols=False)
    return frame


def turned(frame):
    return frame.iloc[:, TURNED]


def annotated(X, names=GENES, kind="dense"):
    matrix = {"dense": X, "csr": scipy.sparse.csr_matrix(X), "csc": scipy.sparse.csc_matrix(X)}[kind]
    adata = ad.AnnData(matrix)
    adata.var_names = names
    return adata


def assert_same_answers(model, rows, labels, base, data):
    """Every method that takes rows gives what the rows in the fitted order give."""
    X, y = data
    np.testing.assert_allclose(model.transform(rows), base.transform(X), atol=1e-10)
    np.testing.assert_allclose(model.transform(rows, labels), base.transform(X, y), atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(rows, labels), base.loadings_for(X, y), atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(rows), base.loadings_for(X), atol=1e-10)
    assert model.score(rows, labels) == pytest.approx(base.score(X, y), abs=1e-10)
    for method, options in (("replicability", {"n_splits": 1}), ("bootstrap", {"n": 2})):
        ours, theirs = (
            getattr(m, method)(*given, random_state=0, **options)
            for m, given in ((model, (rows, labels)), (base, data))
        )
        name = "cosines" if method == "replicability" else "angles"
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-6)


# Features


@pytest.mark.parametrize("kind", NAMES)
def test_columns_in_another_order(kind, data, base):
    X, y = data
    frame = frame_of(X, NAMES[kind])
    model = MCPCA(R, random_state=0).fit(frame, y)
    np.testing.assert_array_equal(model.components_, base.components_)
    if kind == "positions":
        assert not hasattr(model, "feature_names_in_")
    else:
        assert model.feature_names_in_.tolist() == NAMES[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_answers(model, turned(frame), y, base, data)
        blocks = {name: (turned(frame) if name == "b" else frame)[y == name] for name in "abcd"}
        for name, scores in model.transform(blocks).items():
            np.testing.assert_allclose(scores, base.transform({name: X[y == name]})[name], atol=1e-10)
        fitted = MCPCA(R, random_state=0).fit(blocks)
    np.testing.assert_allclose(fitted.loadings_, base.loadings_, atol=1e-10)


@pytest.mark.parametrize("kind", ["str", "np.str_", "integers"])
def test_names_are_saved(kind, data, tmp_path):
    frame = frame_of(data[0], NAMES[kind])
    model = MCPCA(R, random_state=0).fit(frame, data[1])
    model.save(tmp_path / "model")
    loaded = MCPCA.load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == NAMES[kind]
    np.testing.assert_array_equal(loaded.transform(turned(frame)), model.transform(frame))


def test_polars_columns_in_another_order(data, base):
    frame = pl.DataFrame(data[0], schema=GENES)
    model = MCPCA(R, random_state=0).fit(frame, pl.Series(data[1]))
    assert_same_answers(model, frame[:, TURNED], pl.Series(data[1]), base, data)


def test_more_columns_are_left_out_with_a_word(data, base):
    X, y = data
    frame = frame_of(X)
    model = MCPCA(R, random_state=0).fit(frame, y)
    more = turned(frame).assign(batch="first", depth=1.0)
    with pytest.warns(ExtraFeaturesWarning, match="X has 2 features that the fit does not have; .*: 'batch', 'depth'"):
        np.testing.assert_allclose(model.transform(more, y), base.transform(X, y), atol=1e-10)
    with pytest.warns(ExtraFeaturesWarning, match="X, context 'a', has 1 features"):
        model.loadings_for({"a": frame[y == "a"].assign(depth=1.0)})
    # The column of the labels needs no word.
    labelled = frame.assign(group=y)
    by_column = MCPCA(R, random_state=0).fit(labelled, "group")
    other_way = labelled[["gene5", "group", *(name for name in GENES[::-1] if name != "gene5")]]
    np.testing.assert_array_equal(by_column.transform(other_way), by_column.transform(frame))
    np.testing.assert_array_equal(by_column.loadings_for(other_way, "group"), by_column.loadings_for(frame, y))


def test_what_is_missing_is_named(data):
    X, y = data
    frame = frame_of(X)
    model = MCPCA(R, random_state=0).fit(frame, y)
    some = frame.drop(columns=["gene1", "gene4"])
    for call in (model.transform, model.loadings_for, model.score, model.replicability, model.bootstrap):
        with pytest.raises(ValueError, match="X lacks 2 of the 7 features of the fit: 'gene1', 'gene4'"):
            call(some, y)
    with pytest.raises(ValueError, match="X, context 'b', lacks 1 of the 7 features of the fit: 'gene0'"):
        model.loadings_for({"a": frame[:9], "b": frame[:9].rename(columns={"gene0": "other"})})
    with pytest.raises(ValueError, match="X has several features called 'gene2'"):
        model.transform(pd.concat([frame[GENES[::-1]], frame[["gene2"]]], axis=1))


def test_names_on_one_side_only_go_by_position_with_scikit_learns_word(data, base):
    X, y = data
    named = MCPCA(R, random_state=0).fit(frame_of(X), y)
    for rows in (X, pd.DataFrame(X)):
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            np.testing.assert_allclose(named.transform(rows), base.transform(X), atol=1e-12)
    with pytest.warns(UserWarning, match="X has feature names, but MCPCA was fitted without"):
        np.testing.assert_allclose(base.transform(frame_of(X)), base.transform(X), atol=1e-12)
    # An array has columns 0 to p - 1 in this order, so those of a frame that say so are put there.
    np.testing.assert_array_equal(base.transform(turned(pd.DataFrame(X))), base.transform(X))


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_genes_of_an_anndata_go_by_name(kind, data, base):
    X, y = data
    adata = annotated(X, kind=kind)
    adata.obs["group"] = y
    model = MCPCA(R, random_state=0).fit(adata, "group")
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_answers(model, adata, "group", base, data)
        assert_same_answers(model, adata[:, TURNED], "group", base, data)
        more = annotated(np.column_stack([X[:, TURNED], X[:, :2]]), [GENES[j] for j in TURNED] + ["x", "y"], kind)
        assert_same_answers(model, more, y, base, data)  # cut to the genes of the fit
    with pytest.raises(ValueError, match=r"X lacks 7 of the 7 features of the fit: 'gene0', .* and 2 more"):
        model.transform(annotated(X, [f"other{j}" for j in range(P)], kind))


def test_genes_of_a_backed_anndata_go_by_name(data, base, tmp_path):
    X, y = data
    model = MCPCA(R, random_state=0).fit(annotated(X), y)
    annotated(X[:, TURNED], [GENES[j] for j in TURNED], "csr").write_h5ad(tmp_path / "turned.h5ad")
    backed = ad.read_h5ad(tmp_path / "turned.h5ad", backed="r")
    np.testing.assert_allclose(model.transform(backed, y), base.transform(X, y), atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(backed, y), base.loadings_for(X, y), atol=1e-10)
    backed.file.close()


@pytest.mark.parametrize("as_list", [False, True])
def test_contexts_that_are_anndata_are_aligned(as_list, data, base):
    X, y = data
    blocks = {name: annotated(X[y == name]) for name in "abcd"}
    blocks["c"] = blocks["c"][:, TURNED]
    model = MCPCA(R, random_state=0).fit(list(blocks.values()) if as_list else blocks)
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-10)
    assert model.feature_names_in_.tolist() == GENES
    scores = model.transform(list(blocks.values()) if as_list else blocks)
    np.testing.assert_allclose(scores[2 if as_list else "c"], base.transform({"c": X[y == "c"]})["c"], atol=1e-10)
    with pytest.raises(ValueError, match=r"'d', lacks 1 of the 7 features of the first context: 'gene6'\. Select"):
        MCPCA(R).fit(blocks | {"d": blocks["d"][:, :-1]})


def test_blocks_of_frames_are_aligned(data, base):
    X, y = data
    frame = frame_of(X)

    def blocks():
        yield frame[:70]
        yield turned(frame[70:150])
        yield pl.DataFrame(X[150:, TURNED], schema=[GENES[j] for j in TURNED])

    model = MCPCA(R, random_state=0).fit(blocks, y)
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-10)
    assert model.feature_names_in_.tolist() == GENES
    np.testing.assert_allclose(model.transform(lambda: [turned(frame)], y), base.transform(X, y), atol=1e-10)
    np.testing.assert_allclose(model.transform(lambda: [X], y), base.transform(X, y), atol=1e-10)
    with pytest.raises(ValueError, match="block from row 70 on lacks 1 of the 7 features of the first block: 'gene0'"):
        MCPCA(R).fit(lambda: [frame[:70], frame[70:].rename(columns={"gene0": "x"})], y)
    with pytest.raises(ValueError, match="from row 70 on has features in addition to the 7 of the first block: 'x'"):
        MCPCA(R).fit(lambda: [frame[:70], frame[70:].assign(x=1.0)], y)


def test_dask_frames_are_aligned(data, base):
    dd = pytest.importorskip("dask.dataframe")
    X, y = data
    frame = frame_of(X)
    model = MCPCA(R, random_state=0).fit(frame, y)
    rows = dd.from_pandas(turned(frame).assign(more=1.0), npartitions=3, sort=False)
    with pytest.warns(ExtraFeaturesWarning, match="'more'"):
        np.testing.assert_allclose(model.transform(rows, y).compute(), base.transform(X, y), atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(rows[GENES[::-1]], y), base.loadings_for(X, y), atol=1e-10)
    with pytest.raises(ValueError, match="X lacks 1 of the 7 features of the fit: 'gene3'"):
        model.score(rows[[name for name in GENES if name != "gene3"]], y)


def test_chunks_that_are_added_are_aligned(data, base):
    X, y = data
    frame = frame_of(X)
    model = MCPCA(R, random_state=0).partial_fit(frame[:100], y[:100]).partial_fit(turned(frame[100:]), y[100:])
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-9)
    moments = ContextMoments().update(annotated(X[:100]), y[:100]).update(annotated(X[100:])[:, TURNED], y[100:])
    np.testing.assert_allclose(MCPCA(R, random_state=0).fit(moments).loadings_, base.loadings_, atol=1e-9)
    with pytest.raises(ValueError, match="The set of rows to add lacks 1 of the 7 features of those before: 'gene0'"):
        moments.update(frame.rename(columns={"gene0": "x"}), y)


def test_covariances_with_names_are_aligned_both_ways(data, base):
    X, y = data
    tables = {name: frame_of(X[y == name]).cov() for name in "abcd"}
    model = MCPCA(R, random_state=0).fit(frame_of(X), y)
    other_way = tables["b"].iloc[TURNED[::-1], TURNED]
    np.testing.assert_allclose(model.loadings_for(other_way), base.corrected_loadings_[1], atol=1e-10)
    fitted = MCPCA(R, random_state=0).fit_covariances(
        tables | {"b": other_way}, n_samples=pd.Series([53, 50, 51, 52], index=list("dabc"))
    )
    np.testing.assert_allclose(fitted.loadings_, base.loadings_, atol=1e-10)
    assert fitted.contexts_.tolist() == list("abcd")
    assert fitted.feature_names_in_.tolist() == GENES
    assert fitted.n_samples_per_context_.tolist() == [50, 51, 52, 53]
    with pytest.raises(ValueError, match=r"S\[1\] has rows 'x', .* where the columns of the first are 'gene0'"):
        MCPCA(R).fit_covariances([tables["a"], tables["b"].rename(index={"gene0": "x"}).sort_index(ascending=False)])


def test_means_and_weights_that_are_series_go_by_name(data):
    X, y = data
    model = MCPCA(R, random_state=0).fit(frame_of(X), y)
    mean = pd.Series(X.mean(axis=0), index=GENES)
    expected = model.transform(frame_of(X), center=mean.to_numpy())
    np.testing.assert_array_equal(model.transform(frame_of(X), center=mean.iloc[TURNED]), expected)
    np.testing.assert_allclose(
        model.inverse_transform(expected, center=mean.iloc[TURNED]),
        model.inverse_transform(expected, center=mean.to_numpy()),
    )
    with pytest.raises(ValueError, match=r"center has the index 'a', .* and the features of the fit are 'gene0'"):
        model.transform(frame_of(X), center=mean.set_axis(list("abcdefg")))
    weights = pd.Series([1.0, 2, 3, 4], index=list("dcba"))
    ours, theirs = (
        MCPCA(R, solver="lsq", random_state=0, context_weights=w).fit(X, y) for w in (weights, [4, 3, 2, 1])
    )
    np.testing.assert_array_equal(ours.loadings_, theirs.loadings_)
    with pytest.raises(ValueError, match=r"context_weights has the index 0, 1, 2, 3, and the contexts are 'a'"):
        MCPCA(R, context_weights=weights.reset_index(drop=True)).fit(X, y)


def test_rows_of_a_pipeline_go_by_the_names_of_its_first_step(data):
    X, y = data
    frame = frame_of(X, index=index_of(len(y)))
    pipe = make_pipeline(StandardScaler(), MCPCA(R, random_state=0)).fit(frame, y)
    shuffled = pd.Series(y, index=frame.index).sample(frac=1, random_state=0)
    expected = analysis.sample_scores(pipe, X=frame, y=y)
    pd.testing.assert_frame_equal(analysis.sample_scores(pipe, X=turned(frame), y=shuffled), expected)


# Rows


def index_of(n):
    return [f"cell {i}" for i in range(n)]


@pytest.mark.parametrize("index", ["text", "numbers", "default"])
def test_labels_go_by_their_index(index, data, base):
    X, y = data
    names = {"text": index_of(len(y)), "numbers": np.arange(len(y))[::-1] + 5, "default": None}[index]
    frame = frame_of(X, index=names)
    labels = pd.Series(y, index=frame.index)
    shuffled = labels.sample(frac=1, random_state=0)
    assert not shuffled.index.equals(frame.index)
    for given in (shuffled, shuffled.astype("category"), shuffled.to_frame()):
        model = MCPCA(R, random_state=0).fit(frame, given)
        np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-10)
    assert_same_answers(model, frame, shuffled, base, data)
    ours, theirs = (select_rank(*rows, criteria=(), random_state=0) for rows in ((frame, shuffled), data))
    assert ours.reason == theirs.reason
    moments = ContextMoments().update(frame, shuffled)
    np.testing.assert_allclose(moments.means, ContextMoments().update(X, y).means, atol=1e-10)
    pd.testing.assert_frame_equal(
        analysis.sample_scores(model, X=frame, y=shuffled), analysis.sample_scores(model, X=frame, y=y)
    )
    scores = model.set_output(transform="pandas").transform(frame, labels)
    np.testing.assert_allclose(
        model.inverse_transform(scores, shuffled), model.inverse_transform(scores, y), atol=1e-10
    )


def test_labels_go_by_the_names_of_cells(data, base):
    X, y = data
    adata = annotated(X)
    adata.obs_names = index_of(len(y))
    shuffled = pd.Series(y, index=adata.obs_names).sample(frac=1, random_state=0)
    model = MCPCA(R, random_state=0).fit(adata, shuffled)
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-10)
    assert_same_answers(model, adata, shuffled, base, data)


def test_an_index_with_other_names_is_an_error(data):
    X, y = data
    frame = frame_of(X, index=index_of(len(y)))
    others = pd.Series(y, index=[f"row {i}" for i in range(len(y))])
    model = MCPCA(R, random_state=0).fit(frame, y)
    message = r"y has an index with other names than the rows of X: 200 of 200 rows .* pass y\.to_numpy\(\)"
    for call in (MCPCA(R).fit, model.transform, model.score, model.loadings_for, select_rank, ContextMoments().update):
        with pytest.raises(ValueError, match=message):
            call(frame, others)
    with pytest.raises(ValueError, match=r"200 of 200 rows have no value, 'cell 0', .* and y begins with 0, 1, 2"):
        MCPCA(R).fit(frame, pd.Series(y))
    one = pd.Series(y, index=[*frame.index[:-1], "x"])
    with pytest.raises(ValueError, match="1 of 200 rows have no value, 'cell 199'"):
        MCPCA(R).fit(frame, one)
    twice = frame.set_axis([*frame.index[1:], "cell 5"])
    with pytest.raises(ValueError, match="X names row 'cell 5' more than once, and y has another index than X"):
        MCPCA(R).fit(twice, pd.Series(y, index=frame.index))
    # The same index twice over needs no order; an array has none, and neither has a list.
    MCPCA(R).fit(twice, pd.Series(y, index=twice.index))
    for rows, labels in ((X, others), (frame, others.to_numpy()), (frame, others.tolist())):
        np.testing.assert_array_equal(MCPCA(R, random_state=0).fit(rows, labels).loadings_, model.loadings_)


def test_labels_that_are_not_in_the_order_of_a_dask_frame(data, base):
    dd = pytest.importorskip("dask.dataframe")
    X, y = data
    rows, labels = dd.from_pandas(frame_of(X), npartitions=3), pd.Series(y)
    for given in (labels, labels.to_numpy(), dd.from_pandas(labels, npartitions=2)):
        model = MCPCA(R, random_state=0).fit(rows, given)
        np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-9)
    shuffled = labels.sample(frac=1, random_state=0)
    later = labels.set_axis(labels.index + 1000)
    for given in (shuffled, later, dd.from_pandas(later, npartitions=2)):
        for call in (MCPCA(R).fit, model.transform, model.loadings_for):
            with pytest.raises(ValueError, match=r"y has another index than X, a Dask DataFrame .* from 0 to 199"):
                call(rows, given)


def test_contexts_in_another_order_are_the_same_rows(data, base):
    X, y = data
    given = {name: X[y == name] for name in "dbca"}
    np.testing.assert_allclose(
        base.replicability(given, n_splits=20, random_state=0).agreement,
        base.replicability(X, y, n_splits=20, random_state=0).agreement,
        atol=0.02,
    )
    categories = pd.Categorical(y, categories=list("dcab"))
    assert base.bootstrap(X, categories, n=2, random_state=0).lower.shape == (K, R)
    with pytest.raises(ValueError, match="needs the rows that the model was fitted on"):
        base.bootstrap({"a": X[:20], "b": X[20:]}, n=2)
