"""Rows on disk: a first look at some, a first pass for means and products, contexts gathered a panel at a time."""

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse
import sklearn
from test_streamed import always_by_passes, sparse_problem

from mcpca import MCPCA, context_covariances
from mcpca._covariances import row_groups, row_sample, streamed
from mcpca._covariances.passes import Passes
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.streamed import StreamedCovariances
from mcpca._data import sparse_products
from mcpca._data.contexts import read_contexts
from mcpca._data.disk import DenseDiskSource
from mcpca.datasets import make_contexts


def on_disk(tmp_path, request, X):
    file = h5py.File(tmp_path / "rows.h5", "w")
    request.addfinalizer(file.close)
    return file.create_dataset("X", data=X, chunks=(64, X.shape[1]))


def test_a_sample_of_rows_on_disk_is_rows_of_their_contexts(tmp_path, request, rng):
    X, y = rng.standard_normal((4000, 6)), rng.integers(30, size=4000)
    y[1000:] %= 29  # the last context has few rows, and may have none in the sample
    contexts = read_contexts(on_disk(tmp_path, request, X), y)
    chosen, sample = row_sample.sample_of(contexts, 1 / 8, 100)
    assert 0.1 * 4000 < sample.n_samples.sum() < 0.15 * 4000
    rows_of = {tuple(x): label for x, label in zip(X, y, strict=True)}
    for position, i in enumerate(chosen):
        block = sample.block(position)
        assert len(block) == sample.n_samples[position] > 1
        assert {rows_of[tuple(x)] for x in block} == {contexts.names[i]}
    assert row_sample.sample_of(contexts, 1 / 8, 1000) is None
    again = row_sample.sample_of(read_contexts(X, y), 1 / 8, 100)
    np.testing.assert_array_equal(again.contexts.n_samples, sample.n_samples)  # the same of rows in memory


def test_a_first_look_saves_passes_and_changes_nothing(tmp_path, request, monkeypatch):
    data = make_contexts(8, 400, 4, n_samples=500, noise=0.3, random_state=3)
    order = np.random.default_rng(0).permutation(len(data.y))
    X, y = on_disk(tmp_path, request, data.X[order]), data.y[order]
    always_by_passes(monkeypatch)
    seen = MCPCA(4, random_state=0, tol=1e-3).fit(X, y)
    monkeypatch.setattr(streamed, "_SAMPLE_SHARE", 0.0)
    blind = MCPCA(4, random_state=0, tol=1e-3).fit(X, y)
    assert seen.n_passes_ < blind.n_passes_
    np.testing.assert_allclose(seen.components_, blind.components_, atol=1e-3)


@pytest.mark.parametrize("row", [3, 963, 1994, 12345])  # the second and third are among those that are looked at first
def test_nan_on_disk_is_named_by_its_row(tmp_path, request, rng, monkeypatch, row):
    always_by_passes(monkeypatch)
    X, y = rng.standard_normal((20_000, 12)), rng.integers(6, size=20_000)
    X[row, 7] = np.nan
    stored = on_disk(tmp_path, request, X)
    sample = row_sample.sample_of(read_contexts(stored, y), 1 / 16, 100)
    assert (sample is None) == (row in (963, 1994))
    with pytest.raises(ValueError, match=rf"1 NaN and 0 infinite .* within rows {row} to {row}, in feature\(s\) 7"):
        MCPCA(3).fit(stored, y)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("offset", [0, 1e5])
def test_the_first_pass_over_rows_on_disk_finds_means_and_products(tmp_path, request, layout, offset):
    data = make_contexts(8, 60, 4, n_samples=300, noise=0.3, random_state=3)
    order = np.random.default_rng(0).permutation(len(data.y))
    X, y = data.X[order] + offset, data.y[order]
    stored = on_disk(tmp_path, request, X)
    if layout == "csr":
        anndata.io.write_elem(stored.file, "sparse", scipy.sparse.csr_matrix(X))
        stored = anndata.io.sparse_dataset(stored.file["sparse"])
    found = StreamedCovariances.of(read_contexts(stored, y), 10, Passes.silent())
    assert found.passes.ledger.n_passes == 1
    moments = context_covariances(X, y)
    np.testing.assert_allclose(found.means, moments.means, rtol=1e-13, atol=1e-13)
    S = moments.covariances
    V = found.known.multiplied
    assert V.shape == (60, 10)
    np.testing.assert_allclose(found.sketch, sum(S @ (S @ V)), rtol=1e-6, atol=1e-6 * np.abs(found.sketch).max())
    U = found.basis(4, 4).vectors
    np.testing.assert_allclose(U @ (U.T @ data.components), data.components, atol=0.1)
    exact = np.linalg.eigh(sum(S @ S))[1][:, -4:]
    np.testing.assert_allclose(np.linalg.svd(U.T @ exact)[1], 1, atol=1e-9)


def test_where_no_basis_is_asked_for_one_pass_finds_the_means(tmp_path, request):
    data = make_contexts(8, 60, 4, n_samples=300, noise=0.3, random_state=3)
    contexts = read_contexts(on_disk(tmp_path, request, data.X), data.y)
    S = CovarianceStack(context_covariances(data.X, data.y).covariances)
    found = StreamedCovariances.with_means(contexts, Passes.silent())
    np.testing.assert_allclose(found.variances_along(data.components), S.variances_along(data.components), rtol=1e-10)
    assert found.passes.ledger.n_passes == 2
    gap = (found.squared_norms() - S.squared_norms()) / found.norm_errors()
    assert np.abs(gap).max() < 5


def test_contexts_on_disk_that_are_larger_than_memory_get_their_means_first(tmp_path, request, monkeypatch):
    data = make_contexts(3, 60, 4, n_samples=400, noise=0.3, random_state=3)
    X, y = on_disk(tmp_path, request, data.X), data.y.copy()
    y[:300] = y[-1]  # contexts of 100, 400 and 700 rows
    always_by_passes(monkeypatch)
    monkeypatch.setattr(streamed, "_SAMPLE_SHARE", 0.5)
    whole = MCPCA(4, random_state=0, tol=1e-7).fit(X, y)
    with sklearn.config_context(working_memory=0.25):
        cut = MCPCA(4, random_state=0, tol=1e-7).fit(X, y)
    assert cut.n_passes_ > whole.n_passes_
    np.testing.assert_allclose(cut.means_, whole.means_, atol=1e-12)
    np.testing.assert_allclose(cut.components_, whole.components_, atol=1e-6)


def test_one_panel_of_rows_is_held_at_a_time(tmp_path, request, rng, monkeypatch):
    """Contexts from disk are gathered in the same memory, which is given back after the basis."""
    X, y = sparse_problem(rng, k=8, n=50)
    monkeypatch.setattr(row_groups, "memory_limit", lambda: 30_000)  # of 96,000 bytes
    monkeypatch.setattr(row_sample, "memory_limit", lambda: 30_000)
    found = StreamedCovariances.of(read_contexts(on_disk(tmp_path, request, X), y), 4, Passes.silent())
    places = set()
    take = found.passes.room.take
    monkeypatch.setattr(
        type(found.passes.room), "take", lambda self, *what: places.add((out := take(*what)).ctypes.data) or out
    )
    found._gram_times(np.linalg.qr(rng.standard_normal((30, 3)))[0])
    assert len(places) <= 2  # room for the first, and for a larger one
    found.basis(4, 3)
    assert not found.passes.room._buffers


def test_a_pass_begins_with_the_panel_that_the_one_before_has_left(tmp_path, request, monkeypatch):
    data = make_contexts(8, 60, 4, n_samples=100, noise=0.3, random_state=3)
    order = np.random.default_rng(0).permutation(len(data.y))
    contexts = read_contexts(on_disk(tmp_path, request, data.X[order]), data.y[order])
    monkeypatch.setattr(row_groups, "memory_limit", lambda: 3 * 100 * 60 * 8)
    gather = DenseDiskSource.gather
    gathered = []

    def counted(self, rows, room=None):
        gathered.append(len(rows))
        return gather(self, rows, room)

    monkeypatch.setattr(DenseDiskSource, "gather", counted)
    found = StreamedCovariances.of(contexts, 4, Passes.silent())
    V = np.linalg.qr(found.sketch)[0]
    gathered.clear()
    products = [found._gram_times(V) for _ in range(3)]
    # Panels of 300, 300 and 200 rows; the first pass of three goes back, as it is the second of all.
    assert found.passes.ledger.n_passes == 4
    assert gathered == [200, 300, 300, *(300, 200), *(300, 300)]
    S = context_covariances(data.X, data.y).covariances
    for product in products:
        np.testing.assert_allclose(product, sum(S @ (S @ V)), rtol=1e-10, atol=1e-12)
    found.passes.room.clear()
    gathered.clear()
    np.testing.assert_array_equal(found._gram_times(V), products[1])
    assert gathered == [300, 300, 200]  # nothing is left, so all are read


@pytest.mark.parametrize("sorted_indices", [True, False])
def test_rows_go_straight_to_their_contexts_where_that_is_compiled(tmp_path, request, rng, monkeypatch, sorted_indices):
    """The same totals to the last bit as by way of the order of the file, also of rows with unsorted entries."""
    numba = pytest.importorskip("numba")
    if numba.config.DISABLE_JIT:
        pytest.skip("Numba's compiler is switched off")
    X, y = sparse_problem(rng, k=8, n=50)
    rows = scipy.sparse.csr_matrix(X)
    if not sorted_indices:
        for i in range(rows.shape[0]):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            order = rng.permutation(rows.indptr[i + 1] - rows.indptr[i])
            rows.data[part], rows.indices[part] = rows.data[part][order], rows.indices[part][order]
    file = h5py.File(tmp_path / "rows.h5", "w")
    request.addfinalizer(file.close)
    anndata.io.write_elem(file, "X", rows)
    contexts = read_contexts(anndata.io.sparse_dataset(file["X"]), rng.permutation(y))
    monkeypatch.setattr(row_groups, "memory_limit", lambda: 30_000)
    monkeypatch.setattr(row_sample, "memory_limit", lambda: 30_000)
    monkeypatch.setattr(sparse_products, "_WORTHWHILE_BYTES", 0)
    V = np.linalg.qr(rng.standard_normal((30, 3)))[0]

    def product():
        with sparse_products.compiled_products(1):
            return StreamedCovariances.with_means(contexts, Passes.silent())._gram_times(V)

    straight = product()
    monkeypatch.setattr(row_groups, "compiled_rows", lambda: False)
    np.testing.assert_array_equal(product(), straight)
    S = context_covariances(rows.toarray(), contexts.names[contexts.codes(contexts.sources[0])]).covariances
    np.testing.assert_allclose(straight, sum(S @ (S @ V)), rtol=1e-6, atol=1e-9)
    # An index of no feature is told of as it is without compiled loops.
    wrong = rows.indices.copy()
    wrong[1000] = 30
    file["X/indices"][...] = wrong
    with pytest.raises(ValueError, match=r"X: .* have indices from .* to 30, where 0 to 29 .* the file is damaged"):
        product()
