"""Products with covariances by passes over rows: equal to those with the array, whatever the rows are."""

import threading

import h5py
import numpy as np
import pytest
import scipy.sparse
from random_csr import random_csr
from threadpoolctl import ThreadpoolController, threadpool_limits

from mcpca import MCPCA, NothingAboveNoiseError, context_covariances, match_components
from mcpca._covariances import fit_data, gram_passes, kernels, passes, row_groups, row_sample, streamed
from mcpca._covariances.passes import Passes
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.streamed import StreamedCovariances
from mcpca._data import context_sums
from mcpca._data.contexts import read_contexts
from mcpca._utils import parallel
from mcpca.datasets import make_contexts


def always_by_passes(monkeypatch):
    """Fit by passes over the rows where they are: small files are not loaded either."""
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    monkeypatch.setattr(fit_data, "loaded_if_small", lambda contexts, report: contexts)


def sparse_problem(rng, k=5, p=30, n=40, density=0.3):
    """Rows with zeros, far from centred, in mixed order; labels."""
    X = (rng.random((k * n, p)) < density) * (3 + rng.standard_normal((k * n, p)))
    y = rng.permutation(np.repeat(np.arange(k), n))
    for i in range(k):  # contexts of unequal size and spread
        X[y == i] *= 1 + i * rng.random(p)
    return X, y


@pytest.fixture(params=["dense", "memmap", "csr", "csc", "hdf5", "blocks"])
def kind(request, tmp_path):
    """A function that gives rows as another kind of matrix."""

    def make(X):
        if request.param == "memmap":
            held = np.memmap(tmp_path / "rows.bin", dtype=X.dtype, shape=X.shape, mode="w+")
            held[:] = X
            return held
        if request.param == "hdf5":
            file = h5py.File(tmp_path / "rows.h5", "w")
            request.addfinalizer(file.close)
            return file.create_dataset("X", data=X, chunks=(7, X.shape[1]))
        if request.param == "blocks":
            return lambda: (X[i : i + 9] for i in range(0, len(X), 9))
        return {"dense": np.asarray, "csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_matrix}[request.param](X)

    return make


@pytest.fixture(params=[True, False], ids=["one piece", "many pieces"])
def cut(request, monkeypatch):
    """Everything at once, or in small pieces, contexts larger than what may be held included."""
    if not request.param:
        monkeypatch.setattr(row_groups, "_PIECE_BYTES", 2000)
        monkeypatch.setattr(row_groups, "SCAN_BYTES", 3000)
        monkeypatch.setattr(row_groups, "_PIECES_PER_GROUP", 2)
        monkeypatch.setattr(streamed, "memory_limit", lambda: 6000)
        monkeypatch.setattr(gram_passes, "memory_limit", lambda: 6000)
        monkeypatch.setattr(row_groups, "memory_limit", lambda: 6000)
        monkeypatch.setattr(row_sample, "memory_limit", lambda: 6000)


def test_products_are_those_of_the_array(rng, kind, cut):
    X, y = sparse_problem(rng)
    S = CovarianceStack(context_covariances(X, y).covariances)
    found = StreamedCovariances.of(read_contexts(kind(X), y), 4, Passes.silent())
    k = found.n_contexts
    p = found.n_features
    np.testing.assert_allclose(found.means, [X[y == i].mean(axis=0) for i in range(k)])
    # Before another pass has found them on its way; then by passes that do.
    np.testing.assert_allclose(found.traces(), S.traces(), rtol=1e-9)
    A = rng.standard_normal((p, 3))
    same = {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(
        np.concatenate(list(found.congruences(A))), np.concatenate(list(S.congruences(A))), **same
    )
    np.testing.assert_allclose(found.variances_along(A), S.variances_along(A), **same)
    for W in (rng.standard_normal((k, 3)), rng.standard_normal((k, 3, 3))):
        np.testing.assert_allclose(found.combine(A, W), S.combine(A, W), **same)
    np.testing.assert_allclose(found.variances(), S.variances(), **same)
    np.testing.assert_allclose(found.whole(), S.whole(), **same)
    weights = rng.random(k)
    np.testing.assert_allclose(found.pooled(weights), S.pooled(weights), **same)
    Q = np.linalg.qr(A)[0]
    gram = sum(s @ s for s in S.values)
    np.testing.assert_allclose(found._gram_times(Q), gram @ Q, **same)


def test_products_of_scaled_features_and_weighted_contexts(rng, cut):
    X, y = sparse_problem(rng)
    S = CovarianceStack(context_covariances(X, y).covariances)
    scale = rng.random(30) + 0.5
    weights = rng.random(5) + 0.5
    found = (
        StreamedCovariances.of(read_contexts(scipy.sparse.csr_array(X), y), 4, Passes.silent())
        .scaled(scale)
        .weighted(weights)
    )
    twin = S.scaled(scale).weighted(weights)
    A = np.linalg.qr(rng.standard_normal((30, 3)))[0]
    np.testing.assert_allclose(found._gram_times(A), sum(s @ s for s in twin.values) @ A)
    np.testing.assert_allclose(found.variances_along(A), twin.variances_along(A))
    np.testing.assert_allclose(found.traces(), twin.traces())
    np.testing.assert_allclose(
        found.combine(A, weights[:, None] * np.ones(3)), twin.combine(A, weights[:, None] * np.ones(3))
    )
    np.testing.assert_allclose(found.variances(), twin.variances())


@pytest.mark.parametrize("product", ["congruences", "combine"])
def test_traces_come_with_another_pass(rng, product):
    X, y = sparse_problem(rng)
    X[y == 1] *= 1e-6  # a small context loses no digits beside large ones
    X[3] = 0  # a row without entries
    S = CovarianceStack(context_covariances(X, y).covariances)
    found = StreamedCovariances.of(read_contexts(scipy.sparse.csr_array(X), y), 4, Passes.silent())
    A = rng.standard_normal((30, 3))
    if product == "congruences":
        list(found.congruences(A))
    else:
        found.combine(A, np.ones((5, 3)))
    before = found.passes.ledger.n_passes
    np.testing.assert_allclose(found.traces(), S.traces(), rtol=1e-9)
    assert found.passes.ledger.n_passes == before


@pytest.mark.parametrize(
    ("p", "k", "r", "noise"), [(24, 2, 3, 0.1), (60, 6, 4, 1.0), (150, 3, 5, 0.3), (230, 12, 8, 0.3), (40, 240, 6, 0.3)]
)
def test_same_model_with_and_without_covariances(monkeypatch, p, k, r, noise):
    """The switch between the two ways is for speed and memory: A and B are the same to 1e-6."""
    data = make_contexts(k, p, r, n_samples=120, noise=noise, random_state=1)
    explicit = MCPCA(r, random_state=0).fit(data.X, data.y)
    assert explicit.n_passes_ is None
    always_by_passes(monkeypatch)
    shuffled = np.random.default_rng(0).permutation(len(data.y))
    passing = MCPCA(r, random_state=0, tol=1e-7).fit(scipy.sparse.csr_array(data.X[shuffled]), data.y[shuffled])
    assert passing.n_passes_ >= 3
    assert passing.basis_error_ is None
    assert passing.basis_residual_ < 1e-7
    np.testing.assert_allclose(passing.components_, explicit.components_, atol=1e-6)
    np.testing.assert_allclose(passing.loadings_, explicit.loadings_, atol=1e-6 * explicit.loadings_.max())
    np.testing.assert_allclose(passing.means_, explicit.means_, atol=1e-12)
    np.testing.assert_allclose(passing.singular_values_[:r], explicit.singular_values_[:r], rtol=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": "lsq", "tol": 1e-7},
        {"solver": "ml", "tol": 1e-9},
        {"solver": "ml", "noise": "pooled", "tol": 1e-9},
        {"solver": "ml", "noise": "diagonal", "tol": 1e-9},
        {"solver": "ml", "noise": "scaled", "tol": 1e-9},
        {"solver": "ml", "noise": None, "tol": 1e-9},
        {"orthogonal": True, "tol": 1e-7},
        {"orthogonal": True, "solver": "ml", "tol": 1e-7},
        {"context_weights": [1.0, 2.0, 3.0, 1.0, 2.0, 3.0], "tol": 1e-7},
    ],
    ids=str,
)
def test_every_solver_goes_by_passes(monkeypatch, parameters):
    data = make_contexts(6, 40, 4, n_samples=200, noise=0.2, random_state=2)
    explicit = MCPCA(4, random_state=0, **parameters).fit(data.X, data.y)
    always_by_passes(monkeypatch)
    passing = MCPCA(4, random_state=0, **parameters).fit(data.X, data.y)
    assert passing.n_passes_ > 3
    np.testing.assert_allclose(passing.components_, explicit.components_, atol=1e-6)
    np.testing.assert_allclose(passing.loadings_, explicit.loadings_, atol=1e-6 * explicit.loadings_.max())
    if explicit.noise_variance_ is not None:
        np.testing.assert_allclose(passing.noise_variance_, explicit.noise_variance_, rtol=1e-5)


def test_one_context_is_pca_by_passes_too(rng, monkeypatch):
    from sklearn.decomposition import PCA

    X = rng.standard_normal((80, 30)) @ np.diag(np.linspace(3, 0.1, 30)) + 5
    always_by_passes(monkeypatch)
    model = MCPCA(4, tol=1e-7).fit(X)
    pca = PCA(4).fit(X)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * pca.components_.T, axis=0)), 1, atol=1e-9)
    np.testing.assert_allclose(model.loadings_[0], pca.explained_variance_, rtol=1e-9)


def test_threads_and_pieces_change_nothing(rng, monkeypatch):
    """Same pieces, other threads: the same bits. Other pieces: the same up to rounding."""
    X, y = sparse_problem(rng, 8, 60, 50)
    always_by_passes(monkeypatch)
    models = []
    for workers, piece in ((1, 4000), (3, 4000), (2, 2**24)):
        monkeypatch.setattr(passes, "n_workers", lambda workers=workers: workers)
        monkeypatch.setattr(row_groups, "_PIECE_BYTES", piece)
        models.append(MCPCA(3, random_state=0).fit(scipy.sparse.csr_array(X), y))
    np.testing.assert_array_equal(models[0].components_, models[1].components_)
    np.testing.assert_array_equal(models[0].loadings_, models[1].loadings_)
    np.testing.assert_allclose(models[0].components_, models[2].components_, atol=1e-6)


def test_large_means_cost_no_digits(rng, monkeypatch):
    data = make_contexts(4, 30, 3, n_samples=200, noise=0.1, random_state=0)
    always_by_passes(monkeypatch)
    near = MCPCA(3, random_state=0).fit(data.X, data.y)
    far = MCPCA(3, random_state=0).fit(data.X + 1e6, data.y)
    np.testing.assert_allclose(far.components_, near.components_, atol=1e-6)


def test_single_precision_is_summed_in_double(monkeypatch):
    data = make_contexts(6, 60, 4, n_samples=300, noise=0.2, random_state=0)
    always_by_passes(monkeypatch)
    double = MCPCA(4, random_state=0).fit(data.X, data.y)
    single = MCPCA(4, random_state=0).fit(scipy.sparse.csr_array(data.X.astype(np.float32)), data.y)
    assert single.components_.dtype == single.loadings_.dtype == single.means_.dtype == np.float32
    np.testing.assert_allclose(single.components_, double.components_, atol=2e-5)
    # A thousand equal blocks of ones added one after the other would stop at 2^24 in single precision.
    total = np.zeros((1, 1))
    for value in (2.0**24, 1.0):
        context_sums.add([total], context_sums.Sum(0, np.array([0]), np.array([[value]], dtype=np.float32)))
    assert total[0, 0] == 2**24 + 1


def test_blas_makes_way_for_our_threads():
    blas = ThreadpoolController().select(user_api="blas")
    with threadpool_limits(2):
        with parallel.blas_aside():
            assert parallel.n_workers() == 2
            assert {library["num_threads"] for library in blas.info()} == {1}
            with parallel.blas_aside():
                assert parallel.n_workers() == 2
            names = [*parallel.each(lambda _: threading.get_ident(), range(2), parallel.n_workers())]
            assert threading.get_ident() not in names
        assert {library["num_threads"] for library in blas.info()} == {2}
        assert parallel.n_workers() == 2


def test_squares_of_runs_of_any_lengths(rng):
    counts = np.array([1, 3, 1, 2, 7, 3])
    bounds = np.concatenate([[0], np.cumsum(counts)])
    Z = rng.standard_normal((bounds[-1], 4)).astype(np.float32)
    found = context_sums.squares_of_runs(Z, bounds)
    assert found.dtype == np.float64
    for square, first, stop in zip(found, bounds[:-1], bounds[1:], strict=True):
        np.testing.assert_allclose(square, Z[first:stop].T @ Z[first:stop], rtol=1e-5)


@pytest.mark.parametrize("layout", [np.asarray, scipy.sparse.csr_array])
def test_rows_that_stand_together_are_summed_and_taken_without_a_copy(rng, layout):
    X, y = sparse_problem(rng)
    order = np.argsort(y, kind="stable")
    X, y = layout(X[order]), y[order] + 3
    present, sums = context_sums.sums_of_runs(X, y)
    twin, expected = context_sums.sums_by_context(X, y)
    np.testing.assert_array_equal(present, twin)
    np.testing.assert_allclose(sums, expected.toarray() if layout is not np.asarray else expected, rtol=1e-13, atol=0)
    part = context_sums.consecutive(X, 5, 17)
    if layout is np.asarray:
        assert np.shares_memory(part, X)
    else:
        assert np.shares_memory(part.data, X.data)
        assert np.shares_memory(part.indices, X.indices)
        part = part.toarray()
        X = X.toarray()
    np.testing.assert_array_equal(part, X[5:17])


def test_sums_by_entry_are_sums_by_context(rng):
    X, y = sparse_problem(rng)
    totals = [np.zeros((5, 30)), np.zeros((5, 30))]
    for start in range(0, len(X), 37):
        block = scipy.sparse.csr_array(X[start : start + 37])
        codes = y[start : start + 37].astype(np.int32)
        context_sums.add(totals, context_sums.Sum(0, *context_sums.sums_by_context(block, codes)))
        context_sums.add(totals, context_sums.Sum(1, *context_sums.entries_by_context(block, codes)))
    for total in totals:
        np.testing.assert_allclose(total, [X[y == i].sum(axis=0) for i in range(5)], rtol=1e-12)


def test_products_of_whole_contexts_are_those_of_the_pooled_covariance(rng):
    dense, codes = sparse_problem(rng)[0], np.repeat(np.arange(5), 40)
    V, factors = rng.standard_normal((30, 3)), rng.uniform(1, 2, 5)
    centred = np.vstack([part - part.mean(axis=0) for part in np.split(dense, 5)])
    want = centred.T @ (np.repeat(factors, 40)[:, None] * centred) @ V
    for rows in (scipy.sparse.csr_array(dense), dense):
        (item,) = kernels.pooled_products(V, factors, rows, codes)
        np.testing.assert_allclose(item.value, want, atol=1e-10)


@pytest.mark.parametrize("waiting", [1, 2000, 2**23])
def test_scores_of_many_contexts_are_squared_together(rng, monkeypatch, waiting):
    """At every block, at every few of them, and at the end; rows of a context are in many blocks."""
    X, y = rng.standard_normal((3000, 6)), rng.permutation(np.arange(3000) % 230)
    monkeypatch.setattr(passes, "_WAITING_NUMBERS", waiting)
    monkeypatch.setattr(row_groups, "_PIECE_BYTES", 2**12)
    monkeypatch.setattr(row_groups, "_PIECES_PER_GROUP", 3)
    V = np.linalg.qr(rng.standard_normal((6, 4)))[0]
    squared = []
    together = context_sums.squared
    monkeypatch.setattr(context_sums, "squared", lambda items: squared.append(len(items)) or together(items))
    contexts = read_contexts(X, y)
    (core,) = StreamedCovariances.with_means(contexts, Passes.silent()).congruences(V)
    np.testing.assert_allclose(core, V.T @ context_covariances(X, y).covariances @ V, atol=1e-12)
    n_groups = -(-sum(squared) // 3)
    assert n_groups > 10
    assert len(squared) == n_groups if waiting == 1 else len(squared) < n_groups / 2
    assert (len(squared) == 1) == (waiting == 2**23)


def test_squares_that_overflow_are_reported_though_scores_do_not(rng):
    X, y = 1e30 * rng.standard_normal((600, 5)).astype(np.float32), np.arange(600) % 220
    rows = StreamedCovariances.with_means(read_contexts(X, y), Passes.silent())
    with pytest.raises(ValueError, match="too large for float32: its squares overflow"):
        list(rows.congruences(np.eye(5)[:, :2]))


def test_what_a_pass_has_found_is_not_asked_for_again(rng):
    X, y = sparse_problem(rng)
    S = CovarianceStack(context_covariances(X, y).covariances)
    found = StreamedCovariances.of(read_contexts(X, y), 4, Passes.silent())
    U = np.linalg.qr(rng.standard_normal((30, 6)))[0]
    inside = U @ rng.standard_normal((6, 3))
    outside = rng.standard_normal((30, 3))
    passes = []
    for A in (U, inside, outside):
        got = np.concatenate(list(found.congruences(A)))
        np.testing.assert_allclose(got, np.concatenate(list(S.congruences(A))), rtol=1e-9, atol=1e-10)
        passes.append(found.passes.ledger.n_passes)
    assert np.diff(passes).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("offset", "dtype", "n_passes"), [(0, float, 1), (30, float, 1), (1e4, float, 3), (0, "f4", 2)]
)
def test_covariances_of_rows_elsewhere_take_one_pass_where_that_is_safe(rng, kind, cut, offset, dtype, n_passes):
    """Where means are far larger than deviations, and in single precision, means are found first."""
    X, y = sparse_problem(rng)
    X = (X + offset).astype(dtype)
    names = np.unique(y)
    centred = np.empty_like(X, dtype=float)
    for name in names:
        centred[y == name] = X[y == name] - X[y == name].mean(axis=0, dtype=float)
    expected = np.stack([np.cov(centred[y == name].T) for name in names])
    stages = []
    found = context_covariances(kind(X), y, verbose=lambda stage, done, total: stages.append(stage))
    np.testing.assert_allclose(found.covariances, expected, rtol=0, atol=(1e-11 if dtype is float else 2e-5))
    np.testing.assert_allclose(found.means, [X[y == name].mean(axis=0, dtype=float) for name in names], rtol=1e-6)
    np.testing.assert_array_equal(found.covariances, found.covariances.transpose(0, 2, 1))
    passes = {stage for stage in stages if stage.startswith("pass")}
    assert not passes or len(passes) == n_passes  # none where all rows are dense and in memory


def test_contexts_in_single_precision_beside_others_lose_no_digits(rng):
    single = (rng.standard_normal((500, 6)) + 20).astype(np.float32)
    double = rng.standard_normal((400, 6))
    found = context_covariances({"single": scipy.sparse.csr_array(single), "double": scipy.sparse.csr_array(double)})
    for S, X in zip(found.covariances, (single, double), strict=True):
        np.testing.assert_allclose(S, np.cov(X.T.astype(float)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "scaled and weighted"])
def test_products_for_the_basis_bring_the_core_with_them(rng, kind, cut, plain):
    X, y = sparse_problem(rng)
    S = CovarianceStack(context_covariances(X, y).covariances)
    found = StreamedCovariances.of(read_contexts(kind(X), y), 4, Passes.silent())
    if not plain:
        scale = rng.random(30) + 0.5
        weights = rng.random(5) + 0.5
        S = S.scaled(scale).weighted(weights)
        found = found.scaled(scale).weighted(weights)
    U = found.basis(6, 3).vectors
    passes = found.passes.ledger.n_passes
    got = np.concatenate(list(found.congruences(U)))
    assert found.passes.ledger.n_passes == passes
    np.testing.assert_allclose(got, np.concatenate(list(S.congruences(U))), rtol=1e-8, atol=1e-9 * np.abs(got).max())


@pytest.mark.parametrize(
    ("name", "value"), [("_covariances.pass_results._MOST_CORE_NUMBERS", 0), ("_linalg.eigenbasis._BLOCKS", 2)]
)
def test_a_core_that_is_not_known_takes_a_pass(rng, monkeypatch, name, value):
    """Too large to be kept, or in directions that a restart has left out."""
    X, y = sparse_problem(rng, p=120)
    monkeypatch.setattr(f"mcpca.{name}", value)
    S = CovarianceStack(context_covariances(X, y).covariances)
    found = StreamedCovariances.of(read_contexts(X, y), 4, Passes.silent())
    U = found.basis(6, 3).vectors
    passes = found.passes.ledger.n_passes
    got = np.concatenate(list(found.congruences(U)))
    assert found.passes.ledger.n_passes == passes + 1
    np.testing.assert_allclose(got, np.concatenate(list(S.congruences(U))), rtol=1e-8, atol=1e-9 * np.abs(got).max())


def test_sparse_rows_are_never_made_dense(rng, monkeypatch):
    import tracemalloc

    X = random_csr(rng, 3000, 4000, 0.005)
    y = rng.integers(4, size=3000)
    contexts = read_contexts(X, y)
    tracemalloc.start()
    StreamedCovariances.of(contexts, 10, Passes.silent())._gram_times(np.linalg.qr(rng.standard_normal((4000, 10)))[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.25 * 3000 * 4000 * 8


def test_norms_are_estimated_with_their_errors(rng):
    X, y = sparse_problem(rng, 6, 80, 60)
    S = CovarianceStack(context_covariances(X, y).covariances)
    found = StreamedCovariances.of(read_contexts(X, y), 12, Passes.silent())
    found.basis(4, 4)
    gap = (found.squared_norms() - S.squared_norms()) / found.norm_errors()
    assert (found.norm_errors() < 0.3 * S.squared_norms()).all()
    assert np.abs(gap).max() < 5


def test_thousands_of_contexts(monkeypatch):
    data = make_contexts(2000, 50, 5, n_samples=12, noise=0.1, density=0.5, random_state=0)
    explicit = MCPCA(5, random_state=0).fit(data.X, data.y)
    always_by_passes(monkeypatch)
    passing = MCPCA(5, random_state=0, tol=1e-7).fit(data.X, data.y)
    np.testing.assert_allclose(passing.components_, explicit.components_, atol=1e-6)
    np.testing.assert_allclose(passing.loadings_, explicit.loadings_, atol=1e-6 * explicit.loadings_.max())


def test_rank_is_chosen_on_all_features_by_passes(monkeypatch):
    """Three axes that the most variable features have no part in."""
    data = make_contexts(5, 300, 3, n_samples=200, noise=0.1, random_state=0)
    loud = np.random.default_rng(0).standard_normal((len(data.X), 40)) * 0.3
    X = np.hstack([data.X, loud])
    assert X[:, 300:].var(axis=0).min() > X[:, :300].var(axis=0).max()
    always_by_passes(monkeypatch)
    model = MCPCA(random_state=0).fit(scipy.sparse.csr_array(X), data.y)
    assert model.n_components_ == 3
    assert match_components(data.components, model.components_[:300]).cosines.min() > 0.98
    choice = model.rank_choice_
    assert choice.replicability.agreement.min() > 0.9
    assert choice.dependence.dependent.all()


@pytest.mark.parametrize("scales", [1.0, 20.0])
def test_noise_by_passes_has_no_rank(monkeypatch, scales):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((1200, 320)) * scales ** rng.uniform(-0.5, 0.5, 320)
    always_by_passes(monkeypatch)
    with pytest.raises(NothingAboveNoiseError):
        MCPCA(random_state=0).fit(X, np.repeat(np.arange(6), 200))


def test_sparse_covariances_scores_and_loadings(rng):
    X, y = sparse_problem(rng)
    sparse = scipy.sparse.csr_matrix(X)
    ours = context_covariances(sparse, y)
    dense = context_covariances(X, y)
    np.testing.assert_allclose(ours.covariances, dense.covariances, atol=1e-12)
    model = MCPCA(3, random_state=0).fit(sparse, y)
    np.testing.assert_allclose(model.transform(sparse, y), model.transform(X, y), atol=1e-10)
    np.testing.assert_allclose(model.transform(sparse), model.transform(X), atol=1e-10)
    np.testing.assert_allclose(
        model.transform(sparse, y, center="own"), model.transform(X, y, center="own"), atol=1e-10
    )
    np.testing.assert_allclose(model.loadings_for(sparse, y), model.corrected_loadings_, atol=1e-9)
    np.testing.assert_allclose(model.loadings_for(sparse, y, corrected=False), model.loadings_, atol=1e-9)
    np.testing.assert_allclose(model.score(sparse, y), model.score(X, y))
    noisy = MCPCA(3, solver="ml", random_state=0).fit(sparse, y)
    np.testing.assert_allclose(
        noisy.transform(sparse, y, posterior=True), noisy.transform(X, y, posterior=True), atol=1e-9
    )
    replicated = model.replicability(sparse, y, n_splits=1, random_state=0)
    np.testing.assert_allclose(
        replicated.cosines, model.replicability(X, y, n_splits=1, random_state=0).cosines, atol=1e-6
    )


def test_scatters_of_blocks_with_and_without_centred_rows_add_up(rng):
    """Of a context some blocks may be multiplied as they are, and others, near its mean, only after it is taken off."""
    X = rng.standard_normal((40, 6)) + 1
    X[0, 2] = X[1:, 2].mean()  # the mean of all, and alone in its block
    mean = X.mean(axis=0)
    blocks = [X[:1], X[1:]]
    assert context_sums.scatter_uncentred(blocks[0], mean) is None
    assert context_sums.scatter_uncentred(blocks[1], mean) is not None
    parts = [kernels.centred_scatters(mean[None], block, np.zeros(len(block), dtype=int)) for block in blocks]
    scatter, sums = (sum(part[total].value[0] for part in parts) for total in (0, 1))
    np.testing.assert_allclose(sums, 0, atol=1e-12)
    np.testing.assert_allclose(scatter - np.outer(sums, sums) / 40, np.cov(X.T) * 39, atol=1e-12)
