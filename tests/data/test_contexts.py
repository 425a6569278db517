"""Every form of input gives the same model."""

import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA, context_covariances
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def data():
    return make_contexts(4, 8, 3, n_samples=60, noise=0.2, random_state=3)


@pytest.fixture(scope="module")
def blocks(data):
    return [data.X[data.y == i] + 10.0 * i for i in range(4)]


@pytest.fixture(scope="module")
def base(blocks):
    return MCPCA(3, random_state=0).fit(blocks)


def same(model, base, atol=1e-9):
    np.testing.assert_allclose(model.components_, base.components_, atol=atol)
    np.testing.assert_allclose(model.loadings_, base.loadings_, atol=atol)
    return True


def test_covariances_are_numpys(blocks):
    moments = context_covariances(blocks)
    np.testing.assert_allclose(moments.covariances, [np.cov(b, rowvar=False) for b in blocks], atol=1e-12)
    np.testing.assert_allclose(moments.means, [b.mean(axis=0) for b in blocks])
    assert moments.n_samples.tolist() == [60] * 4
    assert moments.contexts.tolist() == [0, 1, 2, 3]


def test_chunks_equal_whole(blocks, monkeypatch):
    whole = context_covariances(blocks)
    monkeypatch.setattr("mcpca._covariances.context_covariances._LEAST_COPY_NUMBERS", 8 * 7)  # 7 rows at a time
    chunked = context_covariances(blocks)
    np.testing.assert_allclose(chunked.covariances, whole.covariances, atol=1e-12)


@pytest.mark.parametrize("shuffled", [False, True])
def test_workers_do_not_change_the_covariances(rng, monkeypatch, shuffled):
    y = np.repeat(np.arange(40), 25)
    X, y = rng.standard_normal((1000, 6)), rng.permutation(y) if shuffled else y
    results = []
    for workers in (1, 2, 5):
        monkeypatch.setattr("mcpca._covariances.context_covariances.n_workers", lambda workers=workers: workers)
        results.append(context_covariances(X, y).covariances)
    np.testing.assert_allclose(results[1], results[0], atol=1e-13)
    np.testing.assert_array_equal(results[2], results[1])


def test_nan_in_one_of_many_contexts_is_found_by_the_workers(rng, monkeypatch):
    monkeypatch.setattr("mcpca._covariances.context_covariances.n_workers", lambda: 2)
    X = rng.standard_normal((1000, 6))
    X[777, 3] = np.nan
    with pytest.raises(
        ValueError, match=r"context 31, contains 1 NaN and 0 infinite \(inf\) values, in feature\(s\) 3"
    ):
        context_covariances(X, np.repeat(np.arange(40), 25))


def test_a_large_mean_costs_no_accuracy(rng):
    X = rng.standard_normal((100, 3))
    shifted = context_covariances([X + 1e7]).covariances
    np.testing.assert_allclose(shifted[0], np.cov(X, rowvar=False), atol=1e-7)


def test_tuple_dict_series_equal_list(blocks, base):
    assert same(MCPCA(3, random_state=1).fit(tuple(blocks)), base)
    named = MCPCA(3, random_state=1).fit(dict(zip("abcd", blocks, strict=True)))
    assert same(named, base)
    assert named.contexts_.tolist() == list("abcd")
    series = pd.Series(blocks, index=list("abcd"))
    assert MCPCA(3, random_state=1).fit(series).contexts_.tolist() == list("abcd")
    assert same(MCPCA(3, random_state=1).fit(series), base)


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: y,
        lambda y: y.tolist(),
        lambda y: np.array(["w", "x", "y", "z"])[y],
        lambda y: np.array(["w", "x", "y", "z"], dtype=object)[y],
        lambda y: pd.Series(np.array(["w", "x", "y", "z"])[y]),
        lambda y: pd.Categorical.from_codes(y, ["q", "p", "o", "n", "unused"]),
        lambda y: pd.Series(pd.Categorical.from_codes(y, ["q", "p", "o", "n", "unused"])),
        lambda y: y[:, None],
        lambda y: y * 10 - 5,
    ],
    ids=["int", "list", "str", "object", "series", "categorical", "cat-series", "column", "spaced"],
)
def test_labels_of_every_kind_in_any_order(blocks, base, labels, rng):
    X, y = np.vstack(blocks), np.repeat(np.arange(4), 60)
    shuffle = rng.permutation(240)
    model = MCPCA(3, random_state=2).fit(X[shuffle], labels(y[shuffle]))
    assert same(model, base)
    assert len(model.contexts_) == 4


def test_categories_keep_their_order(blocks):
    y = pd.Categorical(np.repeat(["late", "early", "mid", "last"], 60), ["early", "mid", "late", "never", "last"])
    assert MCPCA(3).fit(np.vstack(blocks), y).contexts_.tolist() == ["early", "mid", "late", "last"]


def test_mixed_label_types_do_not_crash(blocks):
    y = np.repeat(np.array(["a", 1, "b", 2], dtype=object), 60)
    assert MCPCA(3).fit(np.vstack(blocks), y).contexts_.tolist() == [1, 2, "a", "b"]


def test_covariances_equal_rows(blocks, base):
    S = np.stack([np.cov(b, rowvar=False) for b in blocks])
    assert same(MCPCA(3, random_state=1).fit(S), base)
    model = MCPCA(3, random_state=1).fit_covariances(
        S, n_samples=60, feature_names=[f"f{i}" for i in range(8)], context_names=list("abcd")
    )
    assert same(model, base)
    assert model.contexts_.tolist() == list("abcd")
    assert model.feature_names_in_.tolist() == [f"f{i}" for i in range(8)]
    assert model.n_samples_per_context_.tolist() == [60] * 4
    assert model.means_ is None


def test_reordered_columns_are_aligned_by_name(blocks, base, rng):
    names = [f"gene{i}" for i in range(8)]
    frames = [pd.DataFrame(b, columns=names)[list(rng.permutation(names))] for b in blocks]
    frames[0] = frames[0][names]
    model = MCPCA(3, random_state=1).fit(frames)
    assert same(model, base)
    assert model.feature_names_in_.tolist() == names


def test_nested_lists_are_one_matrix(rng):
    X = rng.standard_normal((20, 4))
    assert same(MCPCA(2).fit(X.tolist()), MCPCA(2).fit(X))


def test_integers_booleans_and_nullable_columns_are_numbers(rng):
    X = rng.integers(0, 5, (40, 3))
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 2, "c": pd.array(X[:, 2], dtype="Int64")})
    expected = MCPCA(2).fit(np.column_stack([X[:, 0], X[:, 1] > 2, X[:, 2]]).astype(float))
    assert same(MCPCA(2).fit(frame), expected)


def test_float32_rows_give_float32_models(blocks, base):
    model = MCPCA(3, random_state=0).fit([b.astype(np.float32) for b in blocks])
    assert model.components_.dtype == model.loadings_.dtype == model.means_.dtype == np.float32
    assert model.transform(blocks[0].astype(np.float32)).dtype == np.float32
    assert same(model, base, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scale_of_rows_costs_no_accuracy(blocks, base, scale, dtype):
    model = MCPCA(3, random_state=0).fit([(b * scale).astype(dtype) for b in blocks])
    atol = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(model.components_, base.components_, atol=atol)
    np.testing.assert_allclose(model.loadings_ / scale**2, base.loadings_, atol=atol)


def test_input_is_not_changed_or_copied_into_the_model(blocks):
    before = [b.copy() for b in blocks]
    MCPCA(3).fit(blocks)
    for b, old in zip(blocks, before, strict=True):
        np.testing.assert_array_equal(b, old)


def test_read_only_and_fortran_and_strided_arrays(blocks, base):
    frozen = [b.copy() for b in blocks]
    for b in frozen:
        b.setflags(write=False)
    assert same(MCPCA(3, random_state=1).fit(frozen), base)
    assert same(MCPCA(3, random_state=1).fit([np.asfortranarray(b) for b in blocks]), base)
    assert same(MCPCA(3, random_state=1).fit([np.repeat(b, 2, axis=1)[:, ::2] for b in blocks]), base)
