"""DataFrames of pandas and polars: labels by the name of a column, and features by theirs."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA, ContextMoments, context_covariances, select_rank
from mcpca._data.labels import cross_labels, encode_labels, read_labels
from mcpca.datasets import make_contexts

pl = pytest.importorskip("polars")

K, P, N = 5, 7, 60
GENES = [f"gene{j}" for j in range(P)]


@pytest.fixture(scope="module")
def data():
    drawn = make_contexts(K, P, 3, n_samples=N, noise=0.2, random_state=5)
    order = np.random.default_rng(0).permutation(len(drawn.X))
    return drawn.X[order], np.array(["lung", "skin", "bone", "liver", "brain"])[drawn.y[order]]


@pytest.fixture(params=["pandas", "polars"])
def library(request):
    return {"pandas": pd, "polars": pl}[request.param]


def frame_of(library, data, label="tissue"):
    """The label between features, where it is neither the first nor the last column."""
    X, y = data
    columns = {name: X[:, j] for j, name in enumerate(GENES)}
    return library.DataFrame({**{n: columns[n] for n in GENES[:2]}, label: y, **{n: columns[n] for n in GENES[2:]}})


@pytest.fixture(scope="module")
def base(data):
    return MCPCA(3, random_state=0).fit(*data)


def test_label_by_column_is_the_model_of_the_labels(library, data, base):
    X, y = data
    frame = frame_of(library, data)
    model = MCPCA(3, random_state=0).fit(frame, y="tissue")
    np.testing.assert_allclose(model.components_, base.components_, atol=1e-12)
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-12)
    assert model.contexts_.tolist() == sorted(set(y))
    assert model.feature_names_in_.tolist() == GENES
    assert model.label_columns_ == ["tissue"]
    # With the column, and without it; by label, and by the overall mean.
    for rows in (frame, frame[GENES]):
        np.testing.assert_allclose(model.transform(rows), base.transform(X), atol=1e-10)
    np.testing.assert_allclose(model.transform(frame, "tissue"), base.transform(X, y), atol=1e-10)
    np.testing.assert_allclose(model.transform(frame, y="tissue", center="own"), base.transform(X, y, center="own"))
    np.testing.assert_allclose(MCPCA(3, random_state=0).fit_transform(frame, y="tissue"), base.transform(X), atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(frame, "tissue"), base.loadings_for(X, y), atol=1e-10)
    np.testing.assert_allclose(model.loadings_for(frame), base.loadings_for(X), atol=1e-10)
    assert model.score(frame, "tissue") == pytest.approx(base.score(X, y), abs=1e-12)
    assert model.score(frame) == pytest.approx(base.score(X), abs=1e-12)
    assert not hasattr(model.fit(frame[GENES], y), "label_columns_")  # the next fit forgets it


def test_resampling_and_ranks_take_the_column(library, data, base):
    X, y = data
    frame = frame_of(library, data)
    model = MCPCA(3, random_state=0).fit(frame, "tissue")
    ours, theirs = (m.bootstrap(*rows, n=3, random_state=0) for m, rows in ((model, (frame, "tissue")), (base, (X, y))))
    np.testing.assert_allclose(ours.angles, theirs.angles, atol=1e-6)
    ours, theirs = (
        m.replicability(*rows, n_splits=1, random_state=0) for m, rows in ((model, (frame, "tissue")), (base, (X, y)))
    )
    np.testing.assert_allclose(ours.cosines, theirs.cosines, atol=1e-9)
    assert select_rank(frame, "tissue", criteria=(), random_state=0).rank == 3
    np.testing.assert_allclose(
        context_covariances(frame, "tissue").covariances, context_covariances(X, y).covariances, atol=1e-12
    )
    moments = ContextMoments().update(frame[:100], "tissue").update(frame[100:], "tissue")
    np.testing.assert_allclose(MCPCA(3, random_state=0).fit(moments).loadings_, base.loadings_, atol=1e-9)
    model = MCPCA(3, random_state=0)
    model.partial_fit(frame[:150], "tissue").partial_fit(frame[150:], "tissue")
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-9)
    np.testing.assert_allclose(np.abs(model.transform(frame)), np.abs(base.transform(X)), atol=1e-7)


def test_label_columns_are_saved(library, data, tmp_path):
    frame = frame_of(library, data)
    model = MCPCA(3, random_state=0).fit(frame, "tissue")
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(MCPCA.load(tmp_path / "model").transform(frame), model.transform(frame))


def test_crossed_columns(library, data):
    X, y = data
    half = np.where(np.arange(len(y)) % 2 == 0, "odd", "even")
    frame = frame_of(library, data)
    frame = frame.assign(half=half) if library is pd else frame.with_columns(pl.Series("half", half))
    model = MCPCA(3, random_state=0).fit(frame, ["tissue", "half"])
    joined = np.array([f"{a} / {b}" for a, b in zip(y, half, strict=True)])
    twin = MCPCA(3, random_state=0).fit(X, joined)
    assert model.contexts_.tolist() == twin.contexts_.tolist() == sorted(set(joined))
    np.testing.assert_allclose(model.loadings_, twin.loadings_, atol=1e-10)
    assert model.feature_names_in_.tolist() == GENES
    np.testing.assert_allclose(model.transform(frame, ["tissue", "half"]), twin.transform(X, joined), atol=1e-10)
    with pytest.raises(ValueError, match=r"y='halve' is not a column of X, .* did you mean 'half'\?"):
        MCPCA(3).fit(frame, ["tissue", "halve"])
    with pytest.raises(ValueError, match="y='half' names a column of X twice"):
        MCPCA(3).fit(frame, ["half", "half"])


def test_crossing_keeps_the_order_of_categories_and_drops_what_does_not_occur():
    first = pd.Categorical(["b", "a", "b", None, "b"], categories=["b", "c", "a"])
    codes, names = cross_labels([first, [2, 1, 10, 1, 2]])
    assert names.tolist() == ["b / 2", "b / 10", "a / 1"]
    assert codes.tolist() == [0, 2, 1, -1, 0]
    with pytest.raises(ValueError, match=r"same name as text: \['x / y / z'\]"):
        cross_labels([["x / y", "x"], ["z", "y / z"]])


def test_a_list_of_labels_is_not_a_list_of_columns(data):
    frame = frame_of(pd, data)[[*GENES]].iloc[:4]
    # As many strings as rows: labels, though two of them are also names of columns.
    labels = ["gene0", "gene1", "gene0", "gene1"]
    model = MCPCA(1, random_state=0).fit(frame, labels)
    assert model.contexts_.tolist() == ["gene0", "gene1"]
    assert model.n_features_in_ == P
    with pytest.raises(ValueError, match=r"y has shape \(3,\) and X has 4 rows"):
        MCPCA(1).fit(frame, ["a", "b", "c"])


def test_unknown_columns(library, data):
    frame = frame_of(library, data)
    with pytest.raises(
        ValueError, match=r"y='tisue' is not a column of X, .* did you mean 'tissue'\? Pass the name of"
    ):
        MCPCA(3).fit(frame, y="tisue")
    model = MCPCA(3, random_state=0).fit(frame, "tissue")
    for method in (model.transform, model.loadings_for, model.score, model.bootstrap, model.partial_fit):
        with pytest.raises(ValueError, match=r"did you mean 'tissue'\?"):
            method(frame, "Tissue")
    with pytest.raises(ValueError, match=r"y='tissue' is not a column of X, which has none; pass"):
        MCPCA(3).fit(data[0], y="tissue")
    with pytest.raises(ValueError, match=r"X has non-numeric columns \['tissue'\]"):
        MCPCA(3).fit(frame, data[1])
    with pytest.raises(ValueError, match="y labels the rows of one 2-D X"):
        MCPCA(3).fit([frame, frame], "tissue")


def test_a_column_that_is_there_twice(data):
    frame = frame_of(pd, data)
    with pytest.raises(ValueError, match="y='tissue' names a column of X twice"):
        MCPCA(3).fit(pd.concat([frame, frame[["tissue"]]], axis=1), "tissue")


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        (pd.Series(["a", None, "b"]), [1]),
        (pd.Series(["a", pd.NA, "b"], dtype="string"), [1]),
        (pd.Series([1.0, np.nan, 2.0]), [1]),
        (pd.Series([1, None, 2], dtype="Int64"), [1]),
        (pd.to_datetime(pd.Series(["2020-01-01", None, "2021-01-01"])), [1]),
        (pd.Categorical(["a", None, "b"], categories=["b", "z", "a"]), [1]),
        (pl.Series([None, "a", "b"]), [0]),
        (pl.Series([None, "a", "b"], dtype=pl.Enum(["b", "z", "a"])), [0]),
        (pl.Series([2, None, 1]), [1]),
    ],
)
def test_missing_labels(labels, missing):
    coded = read_labels(labels)
    assert np.flatnonzero(coded.codes < 0).tolist() == missing
    assert len(coded.categories) == 2
    assert sorted(coded.codes[coded.codes >= 0].tolist()) == [0, 1]
    with pytest.raises(ValueError, match="y has 1 missing labels; drop those rows"):
        encode_labels(labels, 3)


def test_an_enum_keeps_the_order_of_its_categories(data):
    y = data[1]
    order = ["skin", "unused", "lung", "brain", "bone", "liver"]
    names, index = encode_labels(pl.Series(y, dtype=pl.Enum(order)), len(y))
    assert names.tolist() == [name for name in order if name != "unused"]
    np.testing.assert_array_equal(names[index], y)
    names, index = encode_labels(pl.Series(y, dtype=pl.Categorical), len(y))  # whose order is that of appearance
    np.testing.assert_array_equal(names[index], y)
    assert names.tolist() == sorted(set(y))


# polars


def test_polars_frames_series_and_blocks(data, base):
    X, y = data
    frame, labels = frame_of(pl, data)[GENES], pl.Series(y)
    model = MCPCA(3, random_state=0).fit(frame, labels)
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=1e-12)
    assert model.feature_names_in_.tolist() == GENES
    np.testing.assert_allclose(model.transform(frame, labels), base.transform(X, y), atol=1e-10)
    blocks = {name: frame.filter(labels == name) for name in sorted(set(y))}
    blocks["skin"] = blocks["skin"][GENES[::-1]]  # aligned by name
    by_name = MCPCA(3, random_state=0).fit(blocks)
    np.testing.assert_allclose(by_name.loadings_, base.loadings_, atol=1e-9)
    np.testing.assert_allclose(MCPCA(3, random_state=0).fit(list(blocks.values())).loadings_, base.loadings_, atol=1e-9)
    out = model.set_output(transform="polars").transform(frame)
    assert out.columns == ["mcpca0", "mcpca1", "mcpca2"]
    np.testing.assert_array_equal(model.transform(frame[GENES[::-1]]), model.transform(frame))


def test_polars_columns_that_are_numbers_and_those_that_are_not(data):
    frame = frame_of(pl, data)
    flags = frame.with_columns((pl.col("gene1") > 0).alias("flag"), pl.col("gene2").round().cast(pl.Int32))
    twin = np.column_stack([flags[name].to_numpy().astype(float) for name in flags.columns if name != "tissue"])
    model = MCPCA(3, random_state=0).fit(flags, "tissue")
    np.testing.assert_allclose(model.loadings_, MCPCA(3, random_state=0).fit(twin, data[1]).loadings_, atol=1e-10)
    with pytest.raises(ValueError, match=r"X has non-numeric columns \['tissue', 'day'\]; drop or encode them"):
        MCPCA(3).fit(frame.with_columns(pl.lit("2020-01-01").str.to_date().alias("day")), data[1])
    nulls = frame.with_columns(pl.when(pl.col("gene3") > 1).then(None).otherwise(pl.col("gene3")).alias("gene3"))
    n = nulls["gene3"].null_count()
    bone = nulls.filter(pl.col("tissue") == "bone")["gene3"].null_count()
    assert n > bone > 0
    with pytest.raises(ValueError, match=rf"context 'bone', contains {bone} NaN .* in feature\(s\) gene3"):
        MCPCA(3).fit(nulls, "tissue")
    with pytest.raises(ValueError, match=rf"X contains {n} NaN .* in feature\(s\) gene3"):
        MCPCA(3, random_state=0).fit(frame, "tissue").transform(nulls)


def test_a_lazy_frame_is_to_be_collected(data):
    frame = frame_of(pl, data)
    model = MCPCA(3, random_state=0).fit(frame, "tissue")
    for call in (lambda f: MCPCA(3).fit(f, "tissue"), model.transform, model.loadings_for, model.score):
        with pytest.raises(TypeError, match=r"X is a polars LazyFrame.* pass X\.collect\(\)"):
            call(frame.lazy())


def test_tables_of_pyarrow_are_frames(data, base):
    pa = pytest.importorskip("pyarrow")
    X, y = data
    table = pa.table(frame_of(pd, data))
    model = MCPCA(3, random_state=0).fit(table, y="tissue")
    same = MCPCA(3, random_state=0).fit(frame_of(pl, data), y="tissue")
    np.testing.assert_array_equal(model.components_, same.components_)
    np.testing.assert_array_equal(model.loadings_, same.loadings_)
    assert model.feature_names_in_.tolist() == GENES
    # Columns in another order, without the labels, and by name again; batches of rows as well.
    mixed = table.select(GENES[::-1])
    np.testing.assert_allclose(model.transform(mixed), base.transform(X), atol=1e-10)
    batch = table.combine_chunks().to_batches()[0]
    np.testing.assert_allclose(model.transform(batch, "tissue"), base.transform(X, y), atol=1e-10)
    np.testing.assert_allclose(model.score(table, "tissue"), base.score(X, y), rtol=1e-12)
    with pytest.raises(ValueError, match=r"y='tisue' is not a column of X.*did you mean 'tissue'\?"):
        MCPCA(3).fit(table, "tisue")
    with pytest.raises(ValueError, match="X lacks 2 of the 7 features of the fit: 'gene0', 'gene1'"):
        model.transform(table.select(GENES[2:]))


def test_polars_needs_neither_pandas_nor_pyarrow():
    code = """
import sys
sys.modules["pandas"] = sys.modules["pyarrow"] = None
import numpy as np, polars as pl
from mcpca import MCPCA
X = np.random.default_rng(0).standard_normal((90, 3)) * [3, 2, 1]
frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": ["u", "v", "w"] * 30})
model = MCPCA(2, random_state=0).fit(frame, "y")
Z = model.transform(frame, "y")
assert np.allclose(Z, MCPCA(2, random_state=0).fit(X, frame["y"]).transform(X, frame["y"]))
print(model.contexts_.tolist(), model.feature_names_in_.tolist())
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['u', 'v', 'w'] ['a', 'b', 'c']"
