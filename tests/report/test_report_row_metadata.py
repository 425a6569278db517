"""Metadata in the report: what is embedded is the source's, for every form of rows and tables; mistakes are named."""

import base64
import re

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from reading_reports import content, unpacked
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import mcpca
from mcpca import MCPCA
from mcpca.datasets import make_contexts
from mcpca.report import render, write_report

K, P, R = 4, 8, 2
NAMES = np.array(["lung", "skin", "gut", "bone"])


@pytest.fixture(scope="module")
def planted():
    truth = make_contexts(n_contexts=K, n_features=P, n_components=R, n_samples=30, random_state=0)
    order = np.random.default_rng(1).permutation(len(truth.y))  # contexts do not stand together
    X = pd.DataFrame(truth.X[order], columns=[f"gene {j}" for j in range(P)], index=[f"cell {i}" for i in order])
    y = NAMES[truth.y[order]]
    return X, y, MCPCA(R, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def table(planted):
    X, _, _ = planted
    rng = np.random.default_rng(2)
    depth = rng.gamma(2, 1e4, len(X))
    depth[5] = np.nan
    phase = rng.choice(["G1", "S", "G2M", None], len(X))
    plate = pd.Categorical(rng.choice(["late", "early"], len(X)), categories=["late", "never", "early"])
    return pd.DataFrame(
        {"phase": phase, "depth": depth, "plate": plate, "good": rng.random(len(X)) < 0.5, "n": np.arange(len(X))},
        index=X.index,
    )


def column_of(rows, name):
    """A column of rows as values: text, numbers, None where not known."""
    column = next(c for c in rows if c["name"] == name)
    values = np.frombuffer(base64.b64decode(column["data"]), dtype="<" + column["kind"]).tolist()
    if column["categories"] is None:
        return [None if np.isnan(v) else v for v in values]
    return [None if v < 0 else column["categories"][v] for v in values]


def names_of(metadata):
    names = metadata["names"]
    if names["names"] is not None:
        return names["names"]
    return (np.frombuffer(base64.b64decode(names["data"]), dtype="<u4") + 1).tolist()


def expected(table, rows, name):
    values = table[name].tolist()
    return [None if pd.isna(values[i]) else str(values[i]) if name != "depth" else values[i] for i in rows]


def check_rows(page, model, X, y, table, numbers_of):
    """Rows in the page have the scores of the model, and the values of the table, in the order of the contexts."""
    data = content(page)
    rows = numbers_of(data)
    scores = np.concatenate([unpacked(sample["scores"]) for sample in data["rows"]["contexts"]])
    shown = [sample["shown"] for sample in data["rows"]["contexts"]]
    assert len(rows) == sum(shown) > 0
    assert [y[i] for i in rows] == np.repeat(model.contexts_, shown).tolist()
    np.testing.assert_allclose(scores, model.transform(X, y)[rows], atol=4e-5 * np.abs(scores).max())
    for name in ("phase", "plate", "good"):
        assert column_of(data["metadata"]["rows"], name) == expected(table, rows, name)
    depth = [np.nan if v is None else v for v in column_of(data["metadata"]["rows"], "depth")]
    np.testing.assert_allclose(depth, table["depth"].to_numpy()[rows], rtol=1e-7)
    return data


def by_name(X):
    places = {name: i for i, name in enumerate(X.index)}
    return lambda data: [places[name] for name in names_of(data["metadata"])]


def by_number(data):
    return [number - 1 for number in names_of(data["metadata"])]


def test_rows_of_a_frame_have_their_names_scores_and_metadata(planted, table):
    X, y, model = planted
    data = check_rows(render(model, X=X, y=y, row_metadata=table), model, X, y, table, by_name(X))
    plate = next(c for c in data["metadata"]["rows"] if c["name"] == "plate")
    assert plate["categories"] == ["late", "early"]  # in pandas' order, without the one that no row has
    assert next(c for c in data["metadata"]["rows"] if c["name"] == "phase")["categories"] == ["G1", "G2M", "S"]


def test_a_table_is_put_in_the_order_of_the_rows_by_index(planted, table):
    X, y, model = planted
    page = render(model, X=X, y=y, row_metadata=table.sample(frac=1, random_state=0))
    check_rows(page, model, X, y, table, by_name(X))


@pytest.mark.parametrize("max_rows", [20, 10_000])
@pytest.mark.parametrize("form", ["array", "sparse", "chunks", "memory map"])
def test_rows_without_names_have_their_numbers(planted, table, form, max_rows, tmp_path):
    X, y, model = planted
    array = X.to_numpy()
    model = MCPCA(R, random_state=0).fit(array, y)
    blocks = [array[:50], array[50:]]
    np.save(tmp_path / "X.npy", array)
    rows = {
        "array": array,
        "sparse": scipy.sparse.csr_array(array),
        "chunks": lambda: iter(blocks),
        "memory map": np.load(tmp_path / "X.npy", mmap_mode="r"),
    }[form]
    columns = {name: table[name].to_numpy() for name in table}
    columns["plate"] = table["plate"].reset_index(drop=True)  # a Series: categories have an order
    page = render(model, X=rows, y=y, row_metadata=columns, max_rows=max_rows)
    check_rows(page, model, array, y, table, by_number)


def test_separate_contexts_take_one_table_or_one_each(planted, table):
    X, y, model = planted
    contexts = {name: X[y == name] for name in model.contexts_}
    together = pd.concat([table[y == name] for name in contexts])
    one = render(model, X=contexts, row_metadata=together.reset_index(drop=True))
    each = render(model, X=contexts, row_metadata={name: table[y == name] for name in contexts})
    check_rows(each, model, X, y, table, by_name(X))
    for name in ("phase", "good"):
        values = [column_of(content(page)["metadata"]["rows"], name) for page in (one, each)]
        assert values[0] == values[1]
    fewer = {name: table[y == name].drop(columns="phase" if name == "gut" else []) for name in contexts}
    with pytest.raises(ValueError, match=r"row_metadata has the columns .* give all contexts the same columns"):
        render(model, X=contexts, row_metadata=fewer)


def test_rows_on_dask_and_columns_of_x(planted, table):
    dask = pytest.importorskip("dask.array")
    X, y, _ = planted
    array = X.to_numpy()
    model = MCPCA(R, random_state=0).fit(array, y)
    page = render(model, X=dask.from_array(array, chunks=(40, P)), y=y, row_metadata=table.reset_index(drop=True))
    check_rows(page, model, array, y, table, by_number)
    wide = pd.concat([X, table[["phase", "good"]]], axis=1)
    data = content(render(planted[2], X=wide, y=y, row_metadata=["phase", "good"]))
    rows = by_name(X)(data)
    assert column_of(data["metadata"]["rows"], "phase") == expected(table, rows, "phase")


def test_a_pipeline_keeps_names_and_metadata(planted, table):
    X, y, _ = planted
    pipeline = make_pipeline(PCA(6, svd_solver="full"), MCPCA(R, random_state=0)).fit(X, y)
    data = content(render(pipeline, X=X, y=y, row_metadata=table))
    rows = by_name(X)(data)
    assert column_of(data["metadata"]["rows"], "phase") == expected(table, rows, "phase")


@pytest.fixture(scope="module")
def adata(planted, table):
    X, y, _ = planted
    obs = table.copy()
    obs["donor"] = y
    obs["sex"] = pd.Categorical(np.where(np.isin(y, ["lung", "gut"]), "f", "m"))
    obs["age"] = pd.Series(y, index=X.index).map({"lung": 30, "skin": 41.5, "gut": 7, "bone": np.nan})
    obs["same"] = "all"
    obs["barcode"] = [f"b{i}" for i in range(len(X))]
    made = anndata.AnnData(X.to_numpy(), obs=obs, var=pd.DataFrame(index=X.columns))
    mcpca.tl.mcpca(made, "donor", n_comps=R, random_state=0)
    return made


def test_an_anndata_brings_its_metadata(adata, planted, table):
    X, _, _ = planted
    data = content(render(adata))
    found = {c["name"]: c for c in data["metadata"]["contexts"]}
    assert set(found) == {"sex", "age"}  # "donor" repeats the contexts, "same" tells nothing
    contexts = data["contexts"]
    sexes = [found["sex"]["categories"][code] for code in found["sex"]["values"]]
    assert dict(zip(contexts, sexes, strict=True)) == {"lung": "f", "gut": "f", "skin": "m", "bone": "m"}
    ages = dict(zip(contexts, found["age"]["values"], strict=True))
    assert ages == {"lung": 30, "skin": 41.5, "gut": 7, "bone": None}
    rows = by_name(X)(data)
    assert {c["name"] for c in data["metadata"]["rows"]} == {"phase", "depth", "plate", "good", "n"}
    for name in ("phase", "good"):
        assert column_of(data["metadata"]["rows"], name) == expected(table, rows, name)
    nothing = content(render(adata, context_metadata={}, row_metadata=[]))["metadata"]
    assert nothing["contexts"] == nothing["rows"] == []
    named = content(render(adata, row_metadata="phase"))["metadata"]["rows"]
    assert [c["name"] for c in named] == ["phase"]
    with pytest.raises(ValueError, match=r"row_metadata='stage' is not a column of adata.obs"):
        render(adata, row_metadata=["stage"])


def test_an_anndata_beside_a_model_brings_it_too(adata, planted):
    X, y, _ = planted
    model = MCPCA(R, random_state=0).fit(X, y)
    metadata = content(render(model, X=adata, y="donor"))["metadata"]
    assert {c["name"] for c in metadata["contexts"]} == {"sex", "age"}
    assert set(metadata["names"]["names"]) == set(X.index)


# Contexts


def test_context_metadata_by_index_by_position_and_by_name(planted):
    _, _, model = planted
    order = model.contexts_.tolist()
    frame = pd.DataFrame({"tissue": ["soft", "soft", "hard"], "dose": [1.5, np.nan, 3]}, index=["gut", "lung", "bone"])
    by_frame = content(render(model, context_metadata=frame))["metadata"]["contexts"]
    tissue = {"gut": "soft", "lung": "soft", "bone": "hard"}
    dose = {"gut": 1.5, "bone": 3.0}
    same = [
        {"tissue": tissue, "dose": pd.Series(dose)},
        {"tissue": [tissue.get(c) for c in order], "dose": np.array([dose.get(c, np.nan) for c in order])},
    ]
    for columns in same:
        assert content(render(model, context_metadata=columns))["metadata"]["contexts"] == by_frame
    soft, hard = (by_frame[0]["categories"].index(word) for word in ("soft", "hard"))
    assert dict(zip(order, by_frame[0]["values"], strict=True)) == {"gut": soft, "lung": soft, "bone": hard, "skin": -1}
    assert dict(zip(order, by_frame[1]["values"], strict=True)) == {"gut": 1.5, "lung": None, "bone": 3, "skin": None}
    assert content(render(model))["metadata"] == {"contexts": [], "rows": [], "names": None}


def test_contexts_that_are_numbers_are_found_by_text():
    truth = make_contexts(n_contexts=3, n_features=6, n_components=2, random_state=0)
    model = MCPCA(2, random_state=0).fit(truth.X, truth.y)
    metadata = content(render(model, context_metadata={"site": {"2": "b", "0": "a", "1": "b10"}}))["metadata"]
    assert metadata["contexts"] == [{"name": "site", "categories": ["a", "b", "b10"], "values": [0, 2, 1]}]


def test_names_are_in_natural_order_whatever_their_length():
    from mcpca._utils.natural_order import natural

    names = ["b10", "b2", "a", "b" + "9" * 5000, "10", "9", "b02"]
    assert sorted(names, key=lambda name: (natural(name), name))[:6] == ["9", "10", "a", "b02", "b2", "b10"]


WRONG_CONTEXTS = [
    ([1, 2, 3, 4], TypeError, "context_metadata is a list; pass a DataFrame indexed by context, or a dict"),
    ({"dose": [1, 2]}, ValueError, "context_metadata['dose'] has 2 values, and the model has 4 contexts"),
    ({"dose": "high"}, TypeError, "context_metadata['dose'] is a str; pass one value for each context"),
    (pd.DataFrame({"a": [1, 2]}, index=["x", "y"]), ValueError, "context_metadata is by 'x', 'y', and none of these"),
    (pd.DataFrame({"a": [1, 2]}, index=["gut", "gut"]), ValueError, "names contexts more than once: 'gut'"),
    (
        pd.DataFrame([[1, 2]] * 4, index=["lung", "skin", "gut", "bone"], columns=["a", "a"]),
        ValueError,
        "context_metadata has columns of the same name: 'a'",
    ),
    ({f"c{i}": [1, 2, 3, 4] for i in range(51)}, ValueError, "has 51 columns, and a report shows at most 50"),
]


@pytest.mark.parametrize(("given", "error", "text"), WRONG_CONTEXTS)
def test_wrong_context_metadata(planted, given, error, text):
    with pytest.raises(error, match=re.escape(text)):
        render(planted[2], context_metadata=given)


def test_rows_of_a_table_that_are_no_context_are_told(planted):
    frame = pd.DataFrame({"a": [1, 2]}, index=["gut", "heart"])
    with pytest.warns(UserWarning, match=r"1 rows that are no context of the model and are left out: 'heart'"):
        render(planted[2], context_metadata=frame)


def test_wrong_row_metadata(planted, table):
    X, y, model = planted
    with pytest.raises(ValueError, match=r"row_metadata\['a'\] has 3 values and X has 120 rows; pass one for each"):
        render(model, X=X, y=y, row_metadata={"a": [1, 2, 3]})
    with pytest.raises(TypeError, match=r"row_metadata\['a'\] is a str; pass one value for each row"):
        render(model, X=X, y=y, row_metadata={"a": "text"})
    with pytest.raises(ValueError, match="row_metadata has no effect, because no rows are given"):
        render(model, row_metadata=table)
    with pytest.raises(ValueError, match="row_names has no effect, because no rows are given"):
        render(model, row_names=["a"])
    with pytest.raises(ValueError, match="row_names has 1 entries and X has 120 rows"):
        render(model, X=X, y=y, row_names=["a"])
    with pytest.raises(TypeError, match=r"row_metadata=\['phase'\] names columns, and X is a ndarray without names"):
        render(model, X=X.to_numpy(), y=y, row_metadata=["phase"])
    with pytest.raises(TypeError, match="row_metadata is a int; pass a DataFrame, a dict of columns, or names"):
        render(model, X=X, y=y, row_metadata=3)


def test_the_page_stays_small(planted, tmp_path):
    X, y, _ = planted
    big = np.tile(X.to_numpy(), (50, 1))
    labels = np.tile(y, 50)
    model = MCPCA(R, random_state=0).fit(big, labels)
    rng = np.random.default_rng(0)
    n = len(big)
    columns = {f"c{i}": rng.integers(40, size=n).astype(str) for i in range(5)} | {"x": rng.normal(size=n)}
    names = [f"{'N' * 1000}{i}" for i in range(n)]
    sizes = [
        len(render(model, X=big, y=labels, **more))
        for more in ({}, {"row_metadata": columns}, {"row_metadata": columns, "row_names": names})
    ]
    shown = 4 * 500
    # One byte a code and four a number, times 4/3; names are cut at 200 characters.
    assert sizes[1] - sizes[0] < 4 / 3 * shown * (5 + 4) + 6 * 500
    assert shown * 200 < sizes[2] - sizes[1] < shown * 205
    texts = {"essay": [f"{i} {'word' * 100}" for i in range(n)]}
    data = content(render(model, X=big, y=labels, row_metadata=texts))["metadata"]["rows"][0]
    assert (data["kind"], len(data["categories"]), max(map(len, data["categories"]))) == ("i2", shown, 200)
    many = {f"essay {c}": [f"{c} {i} {'word' * 100}" for i in range(n)] for c in range(6)}
    with pytest.raises(ValueError, match=r"row_metadata would take 2\.\d MB of the page, and may take 2; pass fewer"):
        render(model, X=big, y=labels, row_metadata=many)


def test_hostile_metadata_is_escaped_and_the_same_call_gives_the_same_bytes(planted, tmp_path):
    X, y, model = planted
    bad = "</script><script>alert(1)</script>"
    arguments = {
        "context_metadata": {bad: [bad, "\ud800", "=1+1", "&amp;"]},
        "row_metadata": {bad: [bad] * len(X)},
        "row_names": [bad] * len(X),
    }
    paths = [write_report(model, tmp_path / f"{i}.html", X=X, y=y, **arguments) for i in range(2)]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    assert texts[0] == texts[1]
    assert bad not in texts[0]
    assert content(texts[0])["metadata"]["contexts"][0]["categories"].count(bad) == 1
