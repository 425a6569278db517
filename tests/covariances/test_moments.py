"""Rows in chunks, or in different places: only moments travel, and the model is that of all rows."""

import numpy as np
import pytest

from mcpca import MCPCA, ContextMoments, RankExceedsDataError, context_covariances
from mcpca._solvers import SOLVERS
from mcpca.datasets import make_contexts


@pytest.fixture(scope="module")
def data():
    return make_contexts(5, 12, 3, n_samples=80, noise=0.1, random_state=0)


def chunks(X, y, size):
    return [(X[i : i + size], y[i : i + size]) for i in range(0, len(X), size)]


def assert_moments_equal(moments, X, y, rtol=1e-12):
    for name, n, mean, M in zip(moments.contexts, moments.counts, moments.means, moments.scatters, strict=True):
        rows = X[y == name].astype(np.float64)
        assert n == len(rows)
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=rtol, atol=rtol * np.abs(rows).max())
        centred = rows - rows.mean(axis=0)
        np.testing.assert_allclose(M, centred.T @ centred, rtol=rtol, atol=rtol * (centred**2).sum())


@pytest.mark.parametrize("size", [1, 7, 200, 1000])
def test_chunks_in_any_order_give_the_moments_of_all_rows(data, rng, size):
    order = rng.permutation(len(data.X))
    X, y = data.X[order] + 100.0, data.y[order]  # a mean that is large beside the deviations
    moments = ContextMoments()
    for rows, labels in chunks(X, y, size):
        moments.update(rows, labels)
    assert moments.contexts.tolist() == [0, 1, 2, 3, 4]
    assert_moments_equal(moments, X, y, rtol=1e-10)


def test_merging_is_exact_associative_and_changes_neither_side(data):
    parts = [ContextMoments().update(data.X[i::3], data.y[i::3]) for i in range(3)]
    before = [part.scatters.copy() for part in parts]
    left = parts[0].merge(parts[1]).merge(parts[2])
    right = parts[0].merge(parts[1].merge(parts[2]))
    np.testing.assert_allclose(left.scatters, right.scatters, rtol=1e-12)
    assert_moments_equal(left, data.X, data.y)
    for part, scatters in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.scatters, scatters)
    assert repr(left) == "ContextMoments(5 contexts, 12 features, 400 rows)"


def test_hospitals_get_the_pooled_model_without_sharing_a_row(data):
    """Each has some of the contexts, and rows of shared ones."""
    names = np.array(["breast", "colon", "kidney", "liver", "lung"])[data.y]
    where = np.random.default_rng(1).integers(3, size=len(names))
    where[names == "liver"] = 2
    sites = [ContextMoments().update(data.X[where == s], names[where == s]) for s in range(3)]
    federated = MCPCA(3, random_state=0).fit(sites[2].merge(sites[0]).merge(sites[1]))
    pooled = MCPCA(3, random_state=0).fit(data.X, names)
    for name in ("components_", "loadings_", "means_", "projection_"):
        np.testing.assert_allclose(getattr(federated, name), getattr(pooled, name), atol=1e-10)
    assert federated.contexts_.tolist() == pooled.contexts_.tolist()
    np.testing.assert_allclose(federated.transform(data.X, names), pooled.transform(data.X, names), atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_partial_fit_ends_where_fit_does(data, solver):
    order = np.random.default_rng(2).permutation(len(data.X))
    X, y = data.X[order], data.y[order]
    model = MCPCA(3, solver=solver, random_state=0)
    for rows, labels in chunks(X, y, 130):
        assert model.partial_fit(rows, labels) is model
    whole = MCPCA(3, solver=solver, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.components_, whole.components_, atol=1e-6)
    np.testing.assert_allclose(model.loadings_, whole.loadings_, atol=1e-5)
    assert model.n_samples_per_context_.tolist() == [80] * 5
    assert model.moments_.counts.sum() == 400


def test_partial_fit_waits_until_there_is_enough(data):
    model = MCPCA(3, random_state=0).partial_fit(data.X[:1], data.y[:1])
    assert not hasattr(model, "components_")
    model.partial_fit(data.X[1:2], data.y[1:2])  # two rows, one direction
    assert not hasattr(model, "components_")
    assert model.moments_.counts.tolist() == [2]
    model.partial_fit(data.X[2:], data.y[2:])
    np.testing.assert_allclose(model.components_, MCPCA(3, random_state=0).fit(data.X, data.y).components_, atol=1e-8)


def test_a_refused_chunk_changes_nothing(data):
    model = MCPCA(3, random_state=0).partial_fit(data.X, data.y)
    components, counts = model.components_.copy(), model.moments_.counts.copy()
    bad = data.X[:10].copy()
    bad[3, 2] = np.nan
    for rows, message in ((bad, "1 NaN"), (data.X[:10, :5], "X has 5 features, but MCPCA is expecting 12")):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(rows, data.y[:10])
        np.testing.assert_array_equal(model.components_, components)
        np.testing.assert_array_equal(model.moments_.counts, counts)
    moments = ContextMoments().update(data.X, data.y)
    with pytest.raises(ValueError, match="These rows have 5 features, and those before have 12"):
        moments.update(data.X[:10, :5], data.y[:10])
    with pytest.raises(TypeError, match="other is a list; merge takes ContextMoments"):
        moments.merge([1])
    np.testing.assert_array_equal(moments.counts, counts)


def test_fit_starts_anew_and_partial_fit_goes_on(data):
    model = MCPCA(3, random_state=0).partial_fit(data.X[:200], data.y[:200])
    model.fit(data.X, data.y)
    assert not hasattr(model, "moments_")
    model.partial_fit(data.X[:200], data.y[:200])
    assert model.moments_.counts.sum() == 200


def test_frames_are_aligned_by_name_and_lists_by_position(data):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data.X, columns=[f"g{i}" for i in range(12)])
    moments = ContextMoments().update(frame[:200], data.y[:200])
    moments.update(frame.iloc[200:, ::-1], data.y[200:])
    assert_moments_equal(moments, data.X, data.y)
    assert MCPCA(3, random_state=0).fit(moments).feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="The set of rows to add lacks 1 of the 12 features of those before: 'g0'"):
        moments.update(frame.rename(columns={"g0": "other"}), data.y)
    blocks = [data.X[data.y == i] for i in range(5)]
    listed = ContextMoments().update([b[:40] for b in blocks]).update([b[40:] for b in blocks])
    assert_moments_equal(listed, data.X, data.y)


def test_single_precision_is_summed_in_double(data):
    moments = ContextMoments()
    for rows, labels in chunks(data.X.astype(np.float32), data.y, 50):
        moments.update(rows, labels)
    assert moments.scatters.dtype == np.float64
    assert_moments_equal(moments, data.X.astype(np.float32), data.y, rtol=1e-5)


def test_files_come_back_and_foreign_ones_are_refused(data, tmp_path):
    names = np.array(["a", "b", "c", "d", "e"])[data.y]
    moments = ContextMoments().update(data.X, names)
    moments.save(tmp_path / "site.npz")
    copy = ContextMoments.load(tmp_path / "site.npz")
    assert copy.contexts.tolist() == list("abcde")
    for name in ("counts", "means", "scatters"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(moments, name))
    with pytest.raises(ValueError, match="is not a complete MCPCA model"):
        MCPCA.load(tmp_path / "site.npz")
    MCPCA(3, random_state=0).fit(moments).save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"is not a complete set of moments .*pass what ContextMoments.save wrote"):
        ContextMoments.load(tmp_path / "model.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "site.npz").read_bytes()[:300])
    with pytest.raises(ValueError, match=r"is not a complete set of moments \(300 bytes"):
        ContextMoments.load(tmp_path / "cut.npz")


def test_errors_say_what_is_missing(data):
    with pytest.raises(ValueError, match=r"There are no rows yet; update\(X, y\) adds them"):
        ContextMoments().covariances()
    with pytest.raises(ValueError, match=r"1 of 1 contexts have fewer than 2 rows so far: 7\. A covariance needs 2"):
        ContextMoments().update(data.X[:1], [7]).covariances()
    with pytest.raises(ValueError, match="take no y"):
        MCPCA(2).fit(ContextMoments().update(data.X, data.y), data.y)
    with pytest.raises(RankExceedsDataError, match="n_components=5 exceeds the numerical rank"):
        MCPCA(5).fit(ContextMoments().update(data.X[:4], np.zeros(4)))


def test_covariances_are_those_of_the_rows(data):
    ours = ContextMoments().update(data.X, data.y).covariances()
    direct = context_covariances(data.X, data.y)
    np.testing.assert_allclose(ours.covariances, direct.covariances, rtol=1e-12)
    np.testing.assert_array_equal(ours.n_samples, direct.n_samples)


def test_numbers_of_rows_may_be_very_large():
    """Their product exceeds int64, as it may for moments that many sites have merged."""
    one = ContextMoments().update([np.eye(3), np.ones((4, 3)) + np.eye(4, 3)])
    other = ContextMoments().update([2 * np.eye(3), np.ones((4, 3)) + 3 * np.eye(4, 3)])
    one.counts = one.counts * 2**40
    other.counts = other.counts * 2**40
    together = one.merge(other, allow_duplicates=True)
    difference = other.means - one.means
    between = (one.counts.astype(float) / 2)[:, None, None] * difference[:, :, None] * difference[:, None, :]
    np.testing.assert_allclose(together.scatters, one.scatters + other.scatters + between, rtol=1e-12)
