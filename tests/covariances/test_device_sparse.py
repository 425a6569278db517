"""Sparse rows on other devices: the answers of SciPy, with the rows where they are."""

import inspect
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from strict_arrays import strict_arrays

from mcpca import MCPCA, ContextMoments, context_covariances, decompose
from mcpca._covariances import device_kernels, device_panels, fit_data, kernels
from mcpca._covariances.checkpoint import Checkpoint
from mcpca._covariances.device_panels import DevicePanels, panels_of
from mcpca._covariances.device_rows import SparseDeviceSource, read_device_contexts
from mcpca._covariances.passes import Passes, run_pass
from mcpca._covariances.stack import CovarianceStack
from mcpca._covariances.streamed import StreamedCovariances
from mcpca._data.contexts import read_contexts
from mcpca._utils.array_api import to_host
from mcpca._utils.device_csr import DeviceCSR
from mcpca._utils.progress import silent
from mcpca.datasets import make_contexts

strict = strict_arrays()
pytest.importorskip("array_api_compat")

import fake_cupyx  # noqa: E402  # imports array-api-strict

FITTED = ("components_", "loadings_", "projection_", "means_", "singular_values_")
TOL = {"float64": 1e-8, "float32": 2e-4}
# PyTorch says once in every process that its CSR is in beta, and unchecked.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse (.* tensor support|invariant checks):UserWarning")


class Torch:
    """PyTorch on the CPU, or on the GPU where there is one."""

    def __init__(self, monkeypatch):
        self.torch = pytest.importorskip("torch")
        self.device = self.torch.device("cuda:0" if self.torch.cuda.is_available() else "cpu")

    def __call__(self, X):
        X = scipy.sparse.csr_array(X)
        parts = (self.torch.tensor(part, device=self.device) for part in (X.indptr, X.indices, X.data))
        return self.torch.sparse_csr_tensor(*parts, size=X.shape)

    def layouts(self, X):
        return [self(X).to_sparse_coo(), self(X).to_sparse_csc()]

    def owns(self, x, dtype):
        return isinstance(x, self.torch.Tensor) and x.device == self.device and x.dtype == getattr(self.torch, dtype)

    def refuse(self, monkeypatch, most):
        """Raise where more than ``most`` numbers, or a sparse tensor, come to the host."""
        for name in ("cpu", "numpy", "tolist", "__array__"):
            allowed = getattr(self.torch.Tensor, name)

            def call(x, *args, allowed=allowed, **options):
                assert str(x.layout) == "torch.strided"
                assert x.numel() <= most, f"{x.numel()} numbers come to the host"
                return allowed(x, *args, **options)

            monkeypatch.setattr(self.torch.Tensor, name, call)


class CuPy:
    """The stand-in for CuPy."""

    def __init__(self, monkeypatch):
        fake_cupyx.install(monkeypatch)

    def __call__(self, X):
        return fake_cupyx.csr_matrix(scipy.sparse.csr_matrix(X))

    def layouts(self, X):
        twice = scipy.sparse.csr_matrix(X)  # every entry in two halves
        halves = (np.repeat(twice.data, 2) / 2, np.repeat(twice.indices, 2), 2 * twice.indptr)
        doubled = scipy.sparse.csr_matrix(halves, shape=twice.shape)
        return [fake_cupyx.spmatrix(scipy.sparse.csc_matrix(X)), fake_cupyx.csr_matrix(doubled)]

    def owns(self, x, dtype):
        return getattr(x, "device", None) == fake_cupyx.DEVICE and x.dtype == getattr(strict, dtype)

    def refuse(self, monkeypatch, most):
        cls = type(fake_cupyx.send(np.zeros(1)))
        allowed = cls.to_device

        def call(x, *args, **options):
            assert x.size <= most, f"{x.size} numbers come to the host"
            return allowed(x, *args, **options)

        monkeypatch.setattr(cls, "to_device", call)


@pytest.fixture(params=[Torch, CuPy])
def library(request, monkeypatch):
    return request.param(monkeypatch)


@pytest.fixture(scope="module")
def data():
    truth = make_contexts(6, 30, 3, n_samples=80, noise=0.1, random_state=3)
    rng = np.random.default_rng(0)
    keep = rng.random(truth.X.shape) < 0.4
    keep[:, 7] = False  # a feature without entries
    keep[::50] = False  # and rows without
    order = rng.permutation(len(truth.X))
    return scipy.sparse.csr_array((truth.X + 0.5) * keep)[order], truth.y[order]


@pytest.fixture(params=["formed", "passes", "small panels"])
def route(request, monkeypatch):
    if request.param != "formed":
        monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    if request.param == "small panels":
        small_panels(monkeypatch)
    return request.param


def small_panels(monkeypatch):
    """Contexts of more than 33 rows have several panels, of which the last is shorter; the others share some."""
    monkeypatch.setattr(device_panels, "_PIECE_ROWS", 33)
    monkeypatch.setattr(device_panels, "_PANEL_NUMBERS", 70)


def assert_same(found, expected, tol=1e-8):
    np.testing.assert_allclose(to_host(found), expected, rtol=tol, atol=tol * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_fit_is_that_of_scipy(library, data, route, dtype):
    X, y = data[0].astype(dtype), data[1]
    plain = MCPCA(3, random_state=0).fit(X, y)
    model = MCPCA(3, random_state=0).fit(library(X), y)
    for name in FITTED:
        assert library.owns(getattr(model, name), dtype), name
        assert_same(getattr(model, name), getattr(plain, name), TOL[dtype])
    assert (model.n_passes_ is None) == (route == "formed")
    assert model.contexts_.tolist() == plain.contexts_.tolist()
    assert_same(model.reconstruction_error("context"), plain.reconstruction_error("context"), TOL[dtype])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of what "auto" chooses here
@pytest.mark.parametrize("options", [{"solver": "ml"}, {"solver": "lsq"}, {"orthogonal": True}, {"solver": "auto"}])
def test_solvers(library, data, monkeypatch, options):
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    plain, model = (MCPCA(3, random_state=0, **options).fit(X, data[1]) for X in (data[0], library(data[0])))
    assert model.n_passes_ > 0
    for name in ("components_", "loadings_"):
        assert_same(getattr(model, name), getattr(plain, name), 1e-5)


def test_all_forms_of_input_are_one(library, data, route):
    X, y = data
    blocks = {f"c{i}": X[y == i] for i in range(6)}
    plain = MCPCA(3, random_state=0).fit(blocks)
    sorted_rows = np.argsort(y, kind="stable")
    mixed = {name: library(block.astype(np.float32 if name == "c2" else np.float64)) for name, block in blocks.items()}
    forms = {
        "dict": ({name: library(block) for name, block in blocks.items()}, None),
        "list": (list(map(library, blocks.values())), None),
        "labels": (library(X), y),
        "labels in order": (library(X[sorted_rows]), y[sorted_rows]),
        "two precisions": (mixed, None),
        **{f"layout {i}": (other, y) for i, other in enumerate(library.layouts(X))},
    }
    for form, (rows, labels) in forms.items():
        model = MCPCA(3, random_state=0).fit(rows, labels)
        for name in FITTED:
            assert library.owns(getattr(model, name), "float64"), form
            assert_same(getattr(model, name), getattr(plain, name), 1e-5 if form == "two precisions" else 1e-8)


@pytest.mark.parametrize("most_numbers", [fit_data.MOST_NUMBERS, 0])
@pytest.mark.parametrize("solver", ["mspm", "ml"])
def test_rows_stay_where_they_are(library, rng, monkeypatch, solver, most_numbers):
    """No more than a number for each row comes to the host in a fit, nor in scores, and so no context does."""
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", most_numbers)
    truth = make_contexts(3, 20, 3, n_samples=1500, noise=0.1, random_state=3)
    X, y = scipy.sparse.csr_array(truth.X * (rng.random(truth.X.shape) < 0.3)), truth.y
    rows, batch = library(X), rng.integers(0, 2, len(y))
    most = len(y) + 1
    assert all(X[y == i].nnz > 1.5 * most for i in range(3))
    library.refuse(monkeypatch, most)
    with pytest.raises(AssertionError, match="come to the host"):  # as what copies rows has it
        context_covariances(rows, y)
    model = MCPCA(3, solver=solver, random_state=0).fit(rows, y)
    assert (model.n_passes_ is None) == (most_numbers > 0)
    MCPCA(3, random_state=0).fit(rows, y, batch=batch)
    for labels, center in ((y, None), (y, "own"), (None, "overall")):
        assert library.owns(model.transform(rows, labels, center=center), "float64")


def test_the_twins_are_those_of_all_kernels():
    functions = {f for _, f in inspect.getmembers(kernels, inspect.isfunction) if f.__module__ == kernels.__name__}
    # Not of what chooses a kernel, nor of kernels for rows that are read here.
    here = {kernels.adds_by_row, kernels.adds_by_entry, kernels.score_rows, kernels.pooled_products}
    assert functions - here == set(device_kernels._TWINS)


def test_a_pass_has_the_totals_of_the_host(library, data, rng, monkeypatch):
    small_panels(monkeypatch)
    X, y = data
    # Contexts of 3, 33, 34 and 150 rows among others: whole panels, shared ones, and several for one context.
    y = np.repeat(np.arange(7), [3, 33, 34, 150, 100, 80, 80])[rng.permutation(480)]
    here, there = read_contexts(X, y), read_device_contexts(library(X), y)
    k, p, m = 7, 30, 4
    A, means, W = rng.standard_normal((p, m)), rng.standard_normal((k, p)), rng.standard_normal((k, m, m))
    scores = kernels.CentredScores(A, means @ A)
    lengths = kernels.SquareLengths(means, rng.uniform(1, 2, p))
    cases = [
        (partial(kernels.row_sums, False), [(k, p)]),
        (partial(kernels.row_sums_and_sketch, False, A, W[:, 0]), [(k, p), (p, m)]),
        (partial(kernels.score_scatters, scores), [(k, m, m)]),
        (partial(kernels.score_squares, scores), [(k, m)]),
        (partial(kernels.combined_products, scores, W), [(p, m), (k, m)]),
        (partial(kernels.combined_products, scores, W[:, 0]), [(p, m), (k, m)]),
        (partial(kernels.feature_squares, means), [(k, p)]),
        (partial(kernels.with_row_squares, partial(kernels.score_squares, scores), lengths, 1), [(k, m), (k, 1)]),
        (partial(kernels.with_row_squares, kernels.nothing, lengths, 0), [(k, 1)]),
        (partial(kernels.centred_scatters, means), [(k, p, p), (k, p)]),
    ]
    on_device = Passes(silent, Checkpoint(None, {}), 1.0, device=panels_of(there))
    assert len(on_device.device.groups) == 6  # the first two contexts share a panel
    assert max(map(len, on_device.device.groups)) == 3
    for kernel, shapes in cases:
        totals = [[np.zeros(shape) for shape in shapes] for _ in range(2)]
        run_pass(here, Passes.silent(), "test", kernel, totals[0])
        run_pass(there, on_device, "test", kernel, totals[1])
        for expected, found in zip(*totals, strict=True):
            assert np.abs(expected).max() > 0
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("nuisance", [False, True])
@pytest.mark.parametrize("small", [False, True])
def test_products_are_those_of_the_covariances(library, data, rng, monkeypatch, small, nuisance):
    if small:
        small_panels(monkeypatch)
    X, y = data
    batch = rng.integers(0, 2, len(y)) if nuisance else None
    host = MCPCA(3, random_state=0).fit(X, y, batch=batch)  # checks the batch, and has the right covariances below
    assert host.n_passes_ is None
    seen = {}

    def keep(contexts, width, passes):
        seen["contexts"], seen["passes"] = contexts, passes
        return of(contexts, width, passes)

    of = StreamedCovariances.of
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    monkeypatch.setattr(StreamedCovariances, "of", keep)
    MCPCA(3, random_state=0, tol=1e-7).fit(library(X), y, batch=batch)
    monkeypatch.undo()
    library.__init__(monkeypatch)
    streamed = of(seen["contexts"], 8, seen["passes"])
    assert isinstance(streamed.passes.device, DevicePanels)
    S = streamed.whole()
    if not nuisance:
        np.testing.assert_allclose(S, context_covariances(X, y).covariances, atol=1e-10)
    A, w, W = rng.standard_normal((30, 4)), rng.uniform(1, 2, (6, 4)), rng.standard_normal((6, 4, 4))
    s, v = rng.uniform(1, 2, 30), rng.uniform(1, 2, 6)
    both = [
        (streamed, CovarianceStack(S)),
        (streamed.scaled(s), CovarianceStack(S).scaled(s)),
        (streamed.weighted(v), CovarianceStack(S).weighted(v)),
    ]
    for found, expected in both:
        for weights in (w, W):
            np.testing.assert_allclose(found.combine(A, weights), expected.combine(A, weights), atol=1e-8)
        np.testing.assert_allclose(found.variances_along(A), expected.variances_along(A), rtol=1e-9)
        np.testing.assert_allclose(found.variances(), expected.variances(), atol=1e-10)
        np.testing.assert_allclose(found.traces(), np.einsum("kpp->k", expected.whole()), rtol=1e-9)
        cores = [np.concatenate(list(c.congruences(A))) for c in (found, expected)]
        np.testing.assert_allclose(*cores, atol=1e-8)
        basis, exact = found.basis(6, 3), expected.basis(6, 3)
        np.testing.assert_allclose(basis.singular_values[:3], exact.singular_values[:3], rtol=1e-8)
        gram = np.einsum("kpq,kqr->pr", expected.whole(), expected.whole())
        V = np.linalg.qr(rng.standard_normal((30, 5)))[0]
        np.testing.assert_allclose(found._gram_times(V), gram @ V, atol=1e-9 * np.abs(gram).max())
        errors = np.abs(found.squared_norms() - expected.squared_norms())
        assert (errors <= 5 * found.norm_errors() + 1e-8).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scores(library, data, dtype):
    X, y = data[0].astype(dtype), data[1]
    mean = np.asarray(X.mean(axis=0))
    plain, model = (MCPCA(3, solver="ml", random_state=0).fit(rows, y) for rows in (X, library(X)))
    cases = [
        {},
        {"y": y},
        {"y": y, "center": "own"},
        {"center": "own"},
        {"center": mean},
        {"y": y, "center": {0: mean}},
        {"posterior": True},
        {"y": y, "posterior": True},
        {"y": y, "center": "overall", "posterior": True},
    ]
    for case in cases:
        found = model.transform(library(X), **case)
        assert library.owns(found, dtype)
        assert_same(found, plain.transform(X, **case), TOL[dtype])
        assert_same(plain.transform(library(X), **case), plain.transform(X, **case), TOL[dtype])
    blocks = [X[y == i] for i in range(6)]
    for found, expected in zip(model.transform(list(map(library, blocks))), plain.transform(blocks), strict=True):
        assert library.owns(found, dtype)
        assert_same(found, expected, TOL[dtype])
    outlying = model.outlyingness(library(X), y)
    assert library.owns(outlying, dtype)
    assert_same(outlying, plain.outlyingness(X, y), TOL[dtype])


def test_what_needs_the_host_takes_rows_there(library, data):
    X, y = data
    rows = library(X)
    plain, model = (MCPCA(3, solver="ml", random_state=0).fit(x, y) for x in (X, rows))
    blocks = {i: X[y == i] for i in range(6)}
    there = {i: library(block) for i, block in blocks.items()}
    assert_same(model.score(rows, y), plain.score(X, y))
    assert_same(model.score(there), plain.score(blocks))
    assert_same(model.loadings_for(rows, y), plain.loadings_for(X, y), 1e-7)
    assert_same(model.loadings_for(there), plain.loadings_for(blocks), 1e-7)
    assert_same(ContextMoments().update(rows, y).means, plain.means_)
    assert_same(context_covariances(rows, y).covariances, context_covariances(X, y).covariances)
    for options in ({"robust": True}, {"cross_fit": 2}):
        plain, model = (MCPCA(2, random_state=0, **options).fit(x, y) for x in (X, rows))
        assert library.owns(model.components_, "float64")
        for name in ("components_", "loadings_"):
            assert_same(getattr(model, name), getattr(plain, name), 1e-6)


@pytest.mark.parametrize(
    ("options", "most_numbers"), [({}, 0), ({}, fit_data.MOST_NUMBERS), ({"rank_range": [2, 3]}, 0)]
)
def test_the_rank_is_chosen_as_on_the_host(library, data, monkeypatch, options, most_numbers):
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", most_numbers)
    X, y = data
    chosen, expected = (MCPCA(random_state=0, **options).fit(x, y) for x in (library(X), X))
    assert chosen.n_components_ == expected.n_components_
    assert (chosen.n_passes_ is None) == (most_numbers > 0)
    assert_same(chosen.components_, expected.components_, 1e-6)
    assert library.owns(chosen.components_, "float64")


def test_batch_and_covariates(library, data, route, rng):
    X, y = data
    said = {"batch": rng.integers(0, 3, len(y)), "covariates": rng.standard_normal((len(y), 2))}
    plain, model = (MCPCA(3, random_state=0, tol=1e-7).fit(x, y, **said) for x in (X, library(X)))
    for name in ("components_", "loadings_"):
        assert_same(getattr(model, name), getattr(plain, name), 1e-6)
    assert_same(model.transform(library(X), y, **said), plain.transform(X, y, **said), 1e-6)
    dense = MCPCA(3, random_state=0, tol=1e-7).fit(DeviceCSR.of(library(X)).toarray(), y, **said)
    assert_same(dense.components_, plain.components_, 1e-6)


def test_sizes_far_from_one(library, data, route):
    X, y = data
    plain = MCPCA(3, random_state=0).fit(X, y)
    model = MCPCA(3, random_state=0).fit(library(X * 2.0**60), y)
    assert_same(model.components_, plain.components_)
    assert_same(model.means_, np.ldexp(plain.means_, 60))
    with pytest.raises(ValueError, match="X is too large for float32"):
        MCPCA(3).fit(library(X.astype(np.float32) * np.float32(1e25)), y)


def test_a_checkpoint_resumes_with_the_same_rows_only(library, data, monkeypatch, tmp_path):
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)
    X, y = data
    expected = MCPCA(3, tol=1e-7, random_state=0).fit(library(X), y)
    add_gram, calls = DevicePanels.add_gram, []

    def interrupted(self, gram, totals):
        calls.append(gram)
        if len(calls) == 3:
            raise KeyboardInterrupt
        add_gram(self, gram, totals)

    monkeypatch.setattr(DevicePanels, "add_gram", interrupted)
    with pytest.raises(KeyboardInterrupt):
        MCPCA(3, tol=1e-7, random_state=0).fit(library(X), y, checkpoint=tmp_path / "saved")
    other = X.copy()
    other.data[17] += 1
    with pytest.raises(ValueError, match="the rows"):
        MCPCA(3, tol=1e-7, random_state=0).fit(library(other), y, checkpoint=tmp_path / "saved")
    before = len(calls)
    model = MCPCA(3, tol=1e-7, random_state=0).fit(library(X), y, checkpoint=tmp_path / "saved")
    assert 0 < len(calls) - before < expected.n_passes_ - 2  # two of the basis, and that of the means, are on file
    assert model.n_passes_ == expected.n_passes_
    np.testing.assert_array_equal(to_host(model.components_), to_host(expected.components_))


def test_rows_of_a_csr_matrix(library, data, rng):
    X = data[0]
    csr = DeviceCSR.of(library(X))
    for rows in (slice(None), slice(5, 40), slice(7, 7), np.array([3, 3, 0, 479, 50]), np.array([], dtype=int)):
        np.testing.assert_array_equal(csr.rows(rows).to_host().toarray(), X.toarray()[rows])
    np.testing.assert_array_equal(csr.transposed().to_host().toarray(), X.toarray().T)
    np.testing.assert_array_equal(to_host(csr.rows(slice(0, 9)).toarray()), X.toarray()[:9])
    source = SparseDeviceSource(library(X), "X")
    assert (source.shape, source.dtype, source.sparse) == (X.shape, np.float64, True)
    firsts, blocks = zip(*source.scan(2000), strict=True)
    assert len(firsts) > 5
    np.testing.assert_array_equal(scipy.sparse.vstack(blocks).toarray(), X.toarray())


def test_errors(library, data, route):
    X, y = data
    bad = X.copy()
    bad.data[3] = np.nan
    cases = [
        ((library(bad), y), "contains 1 NaN"),
        ((library(X), y[:-1]), "y has shape .* and X has 480 rows"),
        (([library(X), library(X[:, :5])],), "context 0 has 30 and context 1 has 5"),
        (([library(X), X],), "X mixes arrays of different libraries or devices"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            MCPCA(3).fit(*arguments)
    model = MCPCA(3, random_state=0).fit(library(X), y)
    with pytest.raises(ValueError, match="contains 1 NaN"):
        model.transform(library(bad))
    with pytest.raises(ValueError, match="X has 5 features, but MCPCA is expecting 30"):
        model.transform(library(X[:, :5]))
    with pytest.raises(TypeError, match=r"covariances and scores may not; make them dense by to(_dense|array)\(\)"):
        model.inverse_transform(library(X[:, :3]))


def test_layouts_and_gradients_of_torch(data):
    torch = pytest.importorskip("torch")
    X, y = data
    dense = torch.tensor(X.toarray())
    with pytest.raises(TypeError, match=r"torch.sparse_bsr\) that does not become CSR .* pass X.to_dense"):
        MCPCA(3).fit(dense.to_sparse_bsr((2, 2)), y)
    with pytest.raises(TypeError, match="covariances and scores may not"):
        decompose(torch.tensor(context_covariances(X, y).covariances).to_sparse(), 3)
    rows = dense.to_sparse_csr().requires_grad_()
    model = MCPCA(3, random_state=0).fit(rows, y)
    assert not model.components_.requires_grad
    assert not model.transform(rows, y).requires_grad
    counts = (4 * dense).round()
    expected = MCPCA(3, random_state=0).fit(counts.numpy(), y)
    assert_same(
        MCPCA(3, random_state=0).fit(counts.to(torch.int32).to_sparse_csr(), y).components_, expected.components_
    )


def test_sparse_arrays_of_jax_are_refused():
    class BCOO:
        __module__ = "jax.experimental.sparse.bcoo"
        shape, dtype, ndim, n_sparse = (4, 3), np.dtype(float), 2, 2

        def todense(self):
            return np.eye(4, 3)

    with pytest.raises(TypeError, match=r"sparse array of JAX \(BCOO\), which is not supported; pass X.todense\(\)"):
        MCPCA(1).fit(BCOO(), [0, 0, 1, 1])
