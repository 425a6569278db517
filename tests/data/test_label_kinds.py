"""Labels of a kind fit and come back from a file, or are refused where they are read; masks are not dropped."""

import datetime
import decimal
import html
import json

import numpy as np
import pandas as pd
import pytest

import mcpca
from mcpca import MCPCA, ContextMoments, context_covariances, decompose, match_components
from mcpca._data.label_kinds import labels_from_json, labels_to_json
from mcpca._results.context_values import context_values
from mcpca.analysis._rows import per_row
from mcpca.datasets import make_contexts

K, P, R = 4, 6, 2
DAYS = np.arange(K).astype("m8[D]")
UTC, BERLIN = datetime.UTC, datetime.timezone(datetime.timedelta(hours=1))


@pytest.fixture(scope="module")
def data():
    drawn = make_contexts(n_contexts=K, n_features=P, n_components=R, n_samples=12, random_state=0)
    order = np.random.default_rng(0).permutation(len(drawn.X))
    return drawn.X[order], np.unique(drawn.y, return_inverse=True)[1][order]


def objects(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def stamps(**zone):
    return pd.date_range("2020-01-03", periods=K, **zone)


# K labels of each kind, in the order that contexts have.
KINDS = {
    "datetime64[ns]": np.datetime64("2020-01-01", "ns") + DAYS,
    "datetime64[D]": np.datetime64("2020-01-01") + DAYS,
    "months": np.arange("2020-01", "2020-05", dtype="M8[M]"),
    "nanoseconds": np.datetime64("2020-01-01", "ns") + np.arange(K).astype("m8[ns]"),
    "the year 20000": np.datetime64("20000-01-01", "s") + DAYS,
    "timedelta64": DAYS,
    "Series of dates": pd.Series(stamps()),
    "with a time zone": pd.Series(stamps(tz="Europe/Berlin")),
    "Timestamp": objects(list(stamps())),
    "Period": pd.Series(pd.period_range("2020Q1", periods=K, freq="Q")),
    "Interval": pd.cut(pd.Series(np.arange(K)), K),
    "Interval of dates": pd.cut(pd.Series(stamps()), K),
    "categories of dates": pd.Categorical(stamps()),
    "datetime": objects([datetime.datetime(2020, 1, 1, i, tzinfo=UTC) for i in range(K)]),
    "datetime with and without zone": objects(
        [
            datetime.datetime(2020, 1, 1, 1, tzinfo=BERLIN),
            datetime.datetime(2020, 1, 1, 1, tzinfo=UTC),
            datetime.datetime(2020, 1, 2),
            datetime.datetime(2020, 1, 3),
        ]
    ),
    "date": objects([datetime.date(2020, 1, 1 + i) for i in range(K)]),
    "time": objects([datetime.time(i, 30) for i in range(K)]),
    "timedelta": objects([datetime.timedelta(i, i, i) for i in range(K)]),
    "tuple": objects([("a", i) for i in range(K)]),
    "nested and mixed tuples": objects(
        [(1, "b"), ("a", (1, b"x")), ("a", (2, b"x")), ("b", datetime.date(2020, 1, 1))]
    ),
    "MultiIndex": pd.MultiIndex.from_product([["a", "b"], [1, 2]]),
    "bytes": np.array([b"\x00a", b"b", b"b\xff", b"c"]),
    "bytes with an end": objects([bytes([i, 0]) for i in range(K)]),
    "float": np.arange(K) / 3,
    "nullable": pd.Series(np.arange(K), dtype="Int64"),
    "nullable text": pd.Series(list("abcd"), dtype="string"),
}


def taken(labels, index):
    return labels.iloc[index].reset_index(drop=True) if isinstance(labels, pd.Series) else labels[index]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_a_kind_are_fitted_and_saved(data, tmp_path, kind):
    X, index = data
    y = taken(KINDS[kind], index)
    model, expected = MCPCA(R, random_state=0).fit(X, y), MCPCA(R, random_state=0).fit(X, index)
    assert (model.loadings_ == expected.loadings_).all()
    names = model.contexts_.tolist()
    own = getattr(KINDS[kind], "dtype", None)
    dates = isinstance(own, np.dtype) and own.kind in "mM"
    assert (np.array(names, dtype=own) == KINDS[kind]).all() if dates else names == list(KINDS[kind])
    model.save(tmp_path / "model")
    loaded = MCPCA.load(tmp_path / "model")
    assert loaded.contexts_.tolist() == names
    assert [type(name) for name in loaded.contexts_.tolist()] == [type(name) for name in names]
    assert (loaded.transform(X, y) == expected.transform(X, index)).all()
    assert loaded.score(X, y) == expected.score(X, index)
    # Contexts apart, by the same names; weights by name, which the file keeps too.
    parts = {name: X[index == i] for i, name in enumerate(names)}
    apart = MCPCA(R, random_state=0, context_weights=dict.fromkeys(names, 1.0)).fit(parts)
    assert apart.contexts_.tolist() == names
    apart.save(tmp_path / "apart")
    assert MCPCA.load(tmp_path / "apart").context_weights == apart.context_weights
    # Moments, from two sites.
    both = ContextMoments().update(X[::2], taken(y, np.arange(len(X))[::2]))
    both = both.merge(ContextMoments().update(X[1::2], taken(y, np.arange(len(X))[1::2])))
    both.save(tmp_path / "moments")
    assert ContextMoments.load(tmp_path / "moments").contexts.tolist() == both.contexts.tolist() == names


def test_one_date_is_one_context_whoever_wrote_it(data):
    X, index = data
    fitted = MCPCA(R, random_state=0).fit(X, (np.datetime64("2020-01-01", "ns") + DAYS)[index])
    day = [datetime.datetime(2020, 1, 1 + i) for i in range(K)]
    for labels in (objects(day), pd.Series(day), objects([pd.Timestamp(d) for d in day]), pd.Categorical(day)):
        assert (fitted.transform(X, taken(labels, index)) == fitted.transform(X, objects(day)[index])).all()
    mean = X[index == 0].mean(axis=0)
    given = fitted.transform(X, objects(day)[index], center={pd.Timestamp("2020-01-01"): mean})
    np.testing.assert_allclose(given, fitted.transform(X, objects(day)[index]), atol=1e-12)


def test_weights_by_whole_numbers_come_back(data, tmp_path):
    model = MCPCA(R, random_state=0, context_weights={i: i + 1.0 for i in range(K)}).fit(*data)
    model.save(tmp_path / "model")
    assert MCPCA.load(tmp_path / "model").context_weights == {i: i + 1.0 for i in range(K)}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"pickle": "gA=="}, "a name of unknown kind 'pickle'"),
        ({"date": "yesterday"}, "is not a valid date"),
        ({"tuple": 3}, "is not a valid tuple"),
        ({"bytes": "not base 64!"}, "is not a valid bytes"),
        ([1], "is not a name of a context"),
        ({"date": "2020-01-01", "time": "10:00"}, "is not a name of a context"),
        (None, "is not a name of a context"),
    ],
)
def test_what_is_no_label_in_a_file(value, message):
    with pytest.raises(ValueError, match=message):
        labels_from_json([value])
    assert labels_from_json(labels_to_json(["a", 1, 0.5, True])) == ["a", 1, 0.5, True]


@pytest.mark.parametrize(
    ("label", "error", "message"),
    [
        (lambda i: [i], TypeError, r"y has labels of type list .*tuple\(label\) for a list"),
        (lambda i: {i}, TypeError, "y has labels of type set .*for a set"),
        (lambda i: {"a": i}, TypeError, "y has labels of type dict"),
        (lambda i: np.arange(i + 2), TypeError, "y has labels of type ndarray"),
        (lambda i: (i, [i]), TypeError, "y has labels of type .*unhashable type: 'list'"),
        (frozenset, TypeError, "y has the label frozenset"),
        (complex, TypeError, "y has the label .*, a complex, which cannot name a context; pass text"),
        (lambda i: decimal.Decimal(i), TypeError, "a Decimal, which cannot name a context"),
        (lambda i: (i, complex(i)), TypeError, "a complex, which cannot name a context"),
    ],
    ids=["list", "set", "dict", "array", "list in a tuple", "frozenset", "complex", "Decimal", "complex in a tuple"],
)
def test_labels_that_name_no_context(data, label, error, message):
    X, index = data
    unfitted = MCPCA(R)
    values = [label(range(i) if label is frozenset else int(i)) for i in index]
    with pytest.raises(error, match=message):
        unfitted.fit(X, objects(values))
    assert not hasattr(unfitted, "components_")


def test_labels_of_dtypes_that_name_no_context(data):
    X, index = data
    with pytest.raises(ValueError, match=r"y has complex labels \(dtype complex128\); pass text"):
        MCPCA(R).fit(X, index + 1j)
    with pytest.raises(ValueError, match="y has labels of several fields"):
        MCPCA(R).fit(X, np.array([(i, 1) for i in index], dtype=[("a", int), ("b", int)]))
    with pytest.raises(ValueError, match=r"y has labels of different lengths .*; pass one context label per row"):
        MCPCA(R).fit(X, [[1] * (i + 1) for i in index])
    with pytest.raises(TypeError, match="X has the label 0j, a complex"):
        MCPCA(R).fit({complex(i): X[index == i] for i in range(K)})


@pytest.mark.parametrize("kind", ["tuple", "bytes", "Interval of dates", "Period", "datetime64[ns]"])
def test_pages_and_tables_call_contexts_by_their_text(data, kind):
    report = pytest.importorskip("mcpca.report")
    pytest.importorskip("plotly")
    X, index = data
    y = taken(KINDS[kind], index)
    model = MCPCA(R, random_state=0).fit(X, y)
    page = report.render(model, X=X, y=y)
    names = [str(name) for name in model.contexts_.tolist()]
    assert all(json.dumps(name)[1:-1] in page or html.escape(name) in page for name in names)
    anndata = pytest.importorskip("anndata")
    column = pd.Categorical(y) if isinstance(y, pd.Series) else list(y)
    adata = anndata.AnnData(X, obs=pd.DataFrame({"k": column}, index=[f"c{i}" for i in range(len(X))]))
    mcpca.tl.mcpca(adata, "k", n_comps=R)
    assert adata.uns["mcpca"]["loadings"].index.tolist() == names
    np.testing.assert_allclose(mcpca.tl.model(adata).loadings_, model.loadings_, atol=1e-10)


# Masks


def hidden(values, which):
    return np.ma.masked_array(values, which)


@pytest.mark.parametrize("kind", ["whole numbers", "dates", "text", "objects", "column", "tuples with gaps"])
def test_a_masked_label_is_missing(data, kind):
    X, index = data
    labels = {
        "whole numbers": index,
        "dates": np.datetime64("2020-01-01") + DAYS[index],
        "text": index.astype(str),
        "objects": objects([f"c{i}" for i in index]),
        "column": index[:, None],
        "tuples with gaps": None,
    }[kind]
    gone = index == 1
    if labels is None:
        y = objects([("a", None) if g else ("a", int(i)) for g, i in zip(gone, index, strict=True)])
    else:
        y = hidden(labels, gone if labels.ndim == 1 else gone[:, None])
    for method in (MCPCA(R).fit, context_covariances, ContextMoments().update):
        with pytest.raises(ValueError, match="y has 12 missing labels; drop those rows"):
            method(X, y)
    fitted = MCPCA(R, random_state=0).fit(X, index)
    with pytest.raises(ValueError, match="y has 12 missing labels"):
        fitted.transform(X, y)
    with pytest.raises(ValueError, match="y has 12 missing labels"):
        fitted.score(X, y)


def test_a_mask_that_hides_nothing(data):
    X, index = data
    found = MCPCA(R, random_state=0).fit(hidden(X, False), hidden(index, False))
    assert (found.loadings_ == MCPCA(R, random_state=0).fit(X, index).loadings_).all()


def test_masks_of_numbers_are_not_dropped(data):
    X, index = data
    S = context_covariances(X, index)
    fitted = MCPCA(R, random_state=0).fit(X, index)
    A, B = fitted.components_, fitted.loadings_
    one = np.zeros((K, P, P), dtype=bool)
    one[1, 2, 2] = True
    bad_S, first = hidden(S.covariances, one), np.arange(K) == 0
    weights = hidden(np.ones(K), first)
    refused = [
        (lambda: MCPCA(R).fit_covariances(bad_S), "S has 1 masked values"),
        (lambda: MCPCA(R).fit(bad_S), "S has 1 masked values"),
        (lambda: decompose(bad_S, R), "S has 1 masked values"),
        (lambda: fitted.loadings_for(bad_S), "X has 1 masked values"),
        (lambda: fitted.loadings_for(bad_S[1]), "X has 1 masked values"),
        (lambda: MCPCA(R).fit_covariances(S.covariances, hidden(S.n_samples, first)), "n_samples has 1 masked values"),
        (lambda: MCPCA(R, context_weights=weights).fit(X, index), "context_weights has 1 masked values"),
        (lambda: fitted.transform(X, center=hidden(X[0], np.arange(P) == 2)), "center has 1 masked values"),
        (lambda: fitted.transform(hidden(X, X[3, 3] < X)), "X has .* masked values"),
        (lambda: fitted.inverse_transform(hidden(np.ones((3, R)), np.eye(3, R) == 1)), "X has 2 masked values"),
        (lambda: match_components(hidden(A, A > 0.5), A), "masked values"),
        (lambda: mcpca.nonnegative_loadings(S.covariances, hidden(A, A > 0.5)), "A has .* masked values"),
        (lambda: mcpca.facets(S.covariances, A, hidden(B, B[0, 0] == B)), "B has .* masked values"),
    ]
    for number, (call, message) in enumerate(refused):
        with pytest.raises(ValueError, match=message):
            pytest.fail(f"case {number} gave {call()}")
    values = context_values(hidden(np.arange(K), first), [str(i) for i in range(K)], "age", missing="drop")
    assert values.missing.tolist() == [True, False, False, False]
    assert per_row(hidden(np.arange(K), first), K, None, "groups", fitted).tolist() == [None, 1, 2, 3]


def test_a_mask_of_features_has_no_gaps(data):
    anndata = pytest.importorskip("anndata")
    X, index = data
    adata = anndata.AnnData(X, obs=pd.DataFrame({"k": index.astype(str)}, index=[f"c{i}" for i in range(len(X))]))
    with pytest.raises(ValueError, match="mask_var has 1 masked values; True or False is needed for each feature"):
        mcpca.tl.mcpca(adata, "k", n_comps=R, mask_var=hidden(np.ones(P, dtype=bool), np.arange(P) == 0))
