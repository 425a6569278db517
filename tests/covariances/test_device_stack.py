"""Arrays on other devices: the answers of NumPy, in arrays of the same library, device and precision."""

import copy
import importlib.util
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse
from strict_arrays import strict_arrays

from mcpca import (
    MCPCA,
    ContextMoments,
    RankExceedsDataError,
    ascore,
    choose_rank,
    context_covariances,
    decompose,
    facets,
    nonnegative_loadings,
    select_rank,
)
from mcpca._covariances import array_memory, device_rows
from mcpca._covariances.stack import CovarianceStack
from mcpca._data.contexts import named_blocks
from mcpca._data.detect import is_source_like
from mcpca._data.sources import as_source
from mcpca._solvers import SOLVERS
from mcpca._utils import array_api
from mcpca._utils.array_api import is_device_array, to_host
from mcpca.datasets import make_contexts

strict = strict_arrays()
pytest.importorskip("array_api_compat")

FITTED = ("components_", "loadings_", "projection_", "means_", "singular_values_")
METHODS = [(solver, orthogonal) for orthogonal in (False, True) for solver in SOLVERS]


class Strict:
    """array-api-strict on one of its devices; all but the first refuse to become NumPy arrays by themselves."""

    def __init__(self, device):
        self.device = strict.Device(device)
        self.float32, self.float64 = strict.float32, strict.float64

    def __call__(self, x):
        return strict.asarray(x, device=self.device)

    def owns(self, x, dtype):
        return x.device == self.device and x.dtype == getattr(self, dtype) and x.__array_namespace__() is strict


class Torch:
    """PyTorch on the CPU, or on the GPU where there is one."""

    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.device = self.torch.device("cuda:0" if self.torch.cuda.is_available() else "cpu")

    def __call__(self, x):
        return self.torch.tensor(x, device=self.device)

    def owns(self, x, dtype):
        return isinstance(x, self.torch.Tensor) and x.device == self.device and x.dtype == getattr(self.torch, dtype)


class Jax:
    """JAX with float64."""

    def __init__(self):
        import jax

        jax.config.update("jax_enable_x64", True)
        self.put, self.type = jax.device_put, jax.Array

    def __call__(self, x):
        return self.put(x)

    def owns(self, x, dtype):
        return isinstance(x, self.type) and x.dtype == dtype


@pytest.fixture(params=["strict", "torch", *(["jax"] if importlib.util.find_spec("jax") else [])])
def library(request):
    return {"strict": lambda: Strict("device1"), "torch": Torch, "jax": Jax}[request.param]()


def draw(k, noise=0.1):
    density = 0.7 if k > 6 else 1.0
    return make_contexts(k, 12, 3, n_samples=60, density=density, noise=noise, random_state=k)


@pytest.fixture(scope="module")
def data():
    return draw(6)


@pytest.fixture(scope="module")
def S(data):
    return context_covariances(data.X, data.y).covariances


def assert_same(found, expected, tol=1e-8):
    np.testing.assert_allclose(to_host(found), expected, rtol=tol, atol=tol * max(1.0, float(np.abs(expected).max())))


@pytest.mark.filterwarnings("ignore::mcpca.IdentifiabilityWarning")  # one context: loadings of one row
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", [1, 2, 6, 250])
@pytest.mark.parametrize(("solver", "orthogonal"), METHODS)
def test_decompose_and_fit_give_the_answer_of_numpy(library, solver, orthogonal, k, dtype):
    truth, tol = draw(k), 1e-8 if dtype == "float64" else 1e-4
    X, y = truth.X.astype(dtype), truth.y
    covariances = context_covariances(X, y).covariances
    options = {"solver": solver, "orthogonal": orthogonal, "random_state": 0}

    expected = decompose(covariances, 3, **options)
    found = decompose(library(covariances), 3, **options)
    for name in ("components", "loadings", "singular_values", "noise"):
        if getattr(expected, name) is None:
            assert getattr(found, name) is None
            continue
        assert library.owns(getattr(found, name), dtype), name
        assert_same(getattr(found, name), getattr(expected, name), tol)
    assert found.converged == expected.converged

    plain, model = MCPCA(3, **options).fit(X, y), MCPCA(3, **options).fit(library(X), y)
    for name in (*FITTED, *(["noise_variance_"] if solver == "ml" else [])):
        assert library.owns(getattr(model, name), dtype), name
        assert_same(getattr(model, name), getattr(plain, name), tol)
    assert model.contexts_.tolist() == plain.contexts_.tolist()
    assert isinstance(model.n_samples_per_context_, np.ndarray)
    np.testing.assert_allclose(model.reconstruction_error("context"), plain.reconstruction_error("context"), atol=tol)


@pytest.mark.parametrize("noise", ["pooled", "diagonal", None])
def test_all_kinds_of_noise(library, S, noise):
    expected = decompose(S, 3, solver="ml", noise=noise, n_samples=60, random_state=0)
    found = decompose(library(S), 3, solver="ml", noise=noise, n_samples=60, random_state=0)
    assert_same(found.components, expected.components)
    assert_same(found.loadings, expected.loadings)
    if noise:
        assert_same(found.noise, expected.noise)


def test_all_forms_of_input_are_one(library, data):
    order = np.random.default_rng(0).permutation(len(data.X))
    blocks = [data.X[data.y == i] for i in range(6)]
    names = list("abcdef")
    plain = MCPCA(3, random_state=0).fit(blocks)
    forms = {
        "list": (list(map(library, blocks)), None),
        "tuple": (tuple(map(library, blocks)), None),
        "dict": (dict(zip(names, map(library, blocks), strict=True)), None),
        "labels": (library(data.X), data.y),
        "labels on the device": (library(data.X), library(data.y)),
        "shuffled": (library(data.X[order]), data.y[order].tolist()),
        "stack": (library(context_covariances(blocks).covariances), None),
    }
    for form, (X, y) in forms.items():
        model = MCPCA(3, random_state=0).fit(X, y)
        for name in FITTED:
            if form == "stack" and name == "means_":
                assert model.means_ is None
                continue
            assert library.owns(getattr(model, name), "float64"), (form, name)
            assert_same(getattr(model, name), getattr(plain, name))
        assert model.contexts_.tolist() == (names if form == "dict" else list(range(6)))
        assert model.n_features_in_ == 12


def test_chunks_of_contexts_and_rows_add_up(library, data, monkeypatch):
    monkeypatch.setattr(array_memory, "_DEVICE_CHUNK_NUMBERS", 2 * 12 * 12)
    monkeypatch.setattr(device_rows, "_ROW_CHUNK_NUMBERS", 7 * 12)
    order = np.random.default_rng(0).permutation(len(data.X))
    for solver in SOLVERS:
        plain = MCPCA(3, solver=solver, random_state=0).fit(data.X, data.y)
        model = MCPCA(3, solver=solver, random_state=0).fit(library(data.X[order] + 100), data.y[order])
        assert_same(model.components_, plain.components_, 1e-7)
        assert_same(model.means_, plain.means_ + 100)


def test_products_are_those_of_a_stack(library, rng, monkeypatch):
    X = rng.standard_normal((7, 30, 9))
    values = X.transpose(0, 2, 1) @ X
    A, w, W = rng.standard_normal((9, 4)), rng.uniform(1, 2, (7, 4)), rng.standard_normal((7, 4, 4))
    monkeypatch.setattr(array_memory, "_DEVICE_CHUNK_NUMBERS", 3 * 81)
    here, there = CovarianceStack(values), CovarianceStack(library(values))
    for stack in (there, there.scaled(np.ones(9)), there.weighted(np.ones(7))):
        assert (stack.n_contexts, stack.n_features, stack.dtype) == (7, 9, np.float64)
        for method, arguments in {
            "whole": (),
            "variances": (),
            "squared_norms": (),
            "norm_errors": (),
            "variances_along": (A,),
            "pooled": (w[:, 0],),
        }.items():
            found = getattr(stack, method)(*arguments)
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, getattr(here, method)(*arguments), rtol=1e-12)
        for weights in (w, W):
            np.testing.assert_allclose(stack.combine(A, weights), here.combine(A, weights), rtol=1e-10, atol=1e-9)
        found, expected = (np.concatenate(list(c.congruences(A))) for c in (stack, here))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    s = rng.uniform(1, 2, 9)
    np.testing.assert_allclose(there.scaled(s).whole(), here.scaled(s).whole(), rtol=1e-12)
    np.testing.assert_allclose(there.weighted(w[:, 0]).whole(), here.weighted(w[:, 0]).whole(), rtol=1e-12)


@pytest.mark.parametrize("p", [9, 260])
def test_basis_also_where_squares_lose_it(library, rng, p):
    """Singular values from 1 to 1e-9: the Gram matrix knows the first half of them only."""
    Q = np.linalg.qr(rng.standard_normal((p, 6)))[0]
    for smallest in (1e-2, 1e-9):
        spectrum = np.geomspace(1, smallest, 6)
        values = np.stack([(Q * spectrum * c) @ Q.T for c in (1, 2, 3)])
        values = (values + values.transpose(0, 2, 1)) / 2
        found, expected = (stack.basis(6, 6) for stack in (CovarianceStack(library(values)), CovarianceStack(values)))
        np.testing.assert_allclose(found.singular_values, np.sqrt(14) * spectrum, rtol=1e-5)
        np.testing.assert_allclose(np.abs(np.diag(found.vectors.T @ expected.vectors)), 1, atol=1e-6)


@pytest.mark.parametrize("device", ["no_float64", "no_x64"])
def test_devices_without_float64(device, data):
    """As Apple's GPUs and JAX by default: covariances of rows there, decomposed on the host."""
    library, order = Strict(device), np.random.default_rng(0).permutation(len(data.X))
    X, y = data.X.astype(np.float32)[order], data.y[order]
    for solver in SOLVERS:
        plain = MCPCA(3, solver=solver, random_state=0).fit(X, y)
        model = MCPCA(3, solver=solver, random_state=0).fit(library(X), y)
        for name in FITTED:
            assert library.owns(getattr(model, name), "float32")
            assert_same(getattr(model, name), getattr(plain, name), 1e-4)
        assert_same(model.transform(library(X), y), plain.transform(X, y), 1e-3)
    low = np.diag(np.array([1, 1e-4, 1e-5], dtype=np.float32))[None]
    assert_same(decompose(library(low), 3).singular_values, [1, 1e-4, 1e-5], 1e-6)


def test_other_precisions_become_float64(library):
    S = np.eye(4)[None] * np.arange(1, 5)
    for integers in (S.astype(np.int64), S.astype(np.int32)):
        assert library.owns(decompose(library(integers), 2).components, "float64")


def test_half_precision_and_gradients_of_torch(data, S):
    torch = pytest.importorskip("torch")
    half = torch.tensor(S).to(torch.bfloat16)
    half = (half + half.mT) / 2 + torch.eye(12, dtype=torch.bfloat16)  # rounding must not make it indefinite
    assert decompose(half, 2).components.dtype == torch.float64
    assert to_host(half).dtype == np.float64
    X = torch.tensor(data.X, requires_grad=True)
    model = MCPCA(3, random_state=0).fit(X, data.y)
    assert_same(model.components_, MCPCA(3, random_state=0).fit(data.X, data.y).components_)
    assert not model.components_.requires_grad
    assert not model.transform(X, data.y).requires_grad
    assert not decompose(torch.tensor(S, requires_grad=True), 2).components.requires_grad


# Scores


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scores_are_of_the_kind_of_the_rows(library, data, dtype):
    X, y = data.X.astype(dtype), data.y
    tol = 1e-8 if dtype == "float64" else 1e-4
    order = np.random.default_rng(0).permutation(len(X))
    plain = MCPCA(3, solver="ml", random_state=0).fit(X, y)
    model = MCPCA(3, solver="ml", random_state=0).fit(library(X), y)
    mean = X.mean(axis=0)
    cases = [
        {},
        {"y": y},
        {"y": y, "center": "own"},
        {"center": "own"},
        {"center": "overall"},
        {"center": mean},
        {"y": y, "center": {0: mean}},
        {"posterior": True},
        {"y": y, "posterior": True},
        {"y": y, "center": "overall", "posterior": True},
    ]
    for case in cases:
        for rows in (slice(None), order):
            given = {**case, "y": case["y"][rows]} if "y" in case else case
            expected = plain.transform(X[rows], **given)
            on_device = model.transform(library(X[rows]), **given)
            assert library.owns(on_device, dtype), case
            assert_same(on_device, expected, tol)
            assert_same(plain.transform(library(X[rows]), **given), expected, tol)  # the model may be NumPy's
            on_host = model.transform(X[rows], **given)
            assert isinstance(on_host, np.ndarray)
            assert_same(on_host, expected, tol)
    Z = plain.transform(X, y)
    for given in ({}, {"y": y}, {"center": library(mean)}):
        host_given = {"center": mean} if "center" in given else given
        back = model.inverse_transform(library(Z), **given)
        assert library.owns(back, dtype)
        assert_same(back, plain.inverse_transform(Z, **host_given), tol)
        assert isinstance(model.inverse_transform(Z, **given), np.ndarray)


def test_scores_of_lists_and_dicts(library, data):
    blocks = [data.X[data.y == i] for i in range(6)]
    rows = list(map(library, blocks))
    plain, model = MCPCA(3, random_state=0).fit(blocks), MCPCA(3, random_state=0).fit(rows)
    for found, expected in zip(model.transform(rows), plain.transform(blocks), strict=True):
        assert library.owns(found, "float64")
        assert_same(found, expected)
    for found, expected in zip(model.inverse_transform(model.transform(rows)), blocks, strict=True):
        assert to_host(found).shape == expected.shape
    named = MCPCA(3, random_state=0).fit({"a": rows[0], "b": rows[1]})
    assert list(named.transform({"b": rows[1]})) == ["b"]
    assert library.owns(MCPCA(3, random_state=0).fit_transform(library(data.X), data.y), "float64")


def test_a_model_that_mixes_precisions_takes_the_wider(library, data):
    model = MCPCA(3, random_state=0).fit(library(data.X), data.y)
    assert library.owns(model.transform(library(data.X.astype(np.float32))), "float64")
    blocks = [library(data.X[data.y == i].astype(np.float32 if i else np.float64)) for i in range(6)]
    assert library.owns(MCPCA(3, random_state=0).fit(blocks).components_, "float64")


# What needs the host


def test_everything_else_takes_device_arrays_to_the_host(library, data, S):
    X, y, on_device = data.X, data.y, library(data.X)
    plain = MCPCA(3, solver="ml", random_state=0).fit(X, y)
    model = MCPCA(3, solver="ml", random_state=0).fit(on_device, y)
    np.testing.assert_allclose(model.score(on_device, y), plain.score(X, y))
    np.testing.assert_allclose(model.loadings_for(on_device, y), plain.loadings_for(X, y), atol=1e-8)
    np.testing.assert_allclose(model.loadings_for(library(S)), plain.loadings_for(S), atol=1e-8)
    np.testing.assert_allclose(model.loadings_for(library(S[0])), plain.loadings_for(S[0]), atol=1e-8)
    np.testing.assert_allclose(model.presence().p_values, plain.presence().p_values, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors().angles, plain.standard_errors().angles, rtol=1e-6)
    found, expected = (m.bootstrap(x, y, n=3, random_state=0) for m, x in ((model, on_device), (plain, X)))
    np.testing.assert_allclose(found.loadings, expected.loadings, rtol=1e-6, atol=1e-6)
    found, expected = (m.replicability(x, y, n_splits=1, random_state=0) for m, x in ((model, on_device), (plain, X)))
    np.testing.assert_allclose(found.cosines, expected.cosines, atol=1e-6)
    assert model.proportional_loadings() == []
    assert select_rank(on_device, y, criteria=(), random_state=0).rank == 3
    assert select_rank(library(S), n_samples=60, criteria=(), random_state=0).rank == 3
    assert choose_rank(library(S), [2, 3], random_state=0).rank == 3
    assert ascore(model.components_, plain.components_) > 1 - 1e-8
    B = nonnegative_loadings(library(S), model.components_)
    np.testing.assert_allclose(B, nonnegative_loadings(S, plain.components_), atol=1e-8)
    measured = facets(library(S), model.components_, model.loadings_)
    np.testing.assert_allclose(measured.squared_norms, plain.squared_norms())
    np.testing.assert_allclose(ContextMoments().update(on_device, y).means, plain.means_)
    np.testing.assert_allclose(context_covariances(on_device, y).covariances, S, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"rank_range": [2, 3]}])
def test_the_rank_is_chosen_as_on_the_host(library, data, options):
    plain = MCPCA(random_state=0, **options).fit(data.X, data.y)
    model = MCPCA(random_state=0, **options).fit(library(data.X), data.y)
    assert model.n_components_ == plain.n_components_ == 3
    assert library.owns(model.components_, "float64")
    assert_same(model.components_, plain.components_)


def test_arrays_are_no_chunks_and_chunks_may_be_arrays(library, data):
    rows, order = library(data.X), [3, 3, 0, 359]
    assert not is_source_like(rows)
    assert named_blocks(rows) is None
    for source in (as_source(rows, "X"), device_rows.DeviceSource(rows, "X")):
        assert (source.shape, source.dtype, source.nbytes) == (data.X.shape, np.float64, data.X.nbytes)
        np.testing.assert_array_equal(source.gather(np.array(order)), data.X[order])
        firsts, blocks = zip(*source.scan(7 * 12 * 8), strict=True)
        assert firsts == tuple(range(0, 360, 7))
        np.testing.assert_array_equal(np.concatenate(blocks), data.X)
    plain = MCPCA(3, random_state=0).fit(data.X, data.y)
    chunked = MCPCA(3, random_state=0).fit(lambda: map(library, np.split(data.X, 4)), data.y)
    assert isinstance(chunked.components_, np.ndarray)
    assert_same(chunked.components_, plain.components_)


def test_a_model_of_a_device_takes_sparse_rows(library, data):
    sparse = scipy.sparse.csr_array(data.X)
    blocks = {i: scipy.sparse.csr_array(data.X[data.y == i]) for i in range(6)}
    plain, model = (MCPCA(3, random_state=0).fit(X, data.y) for X in (data.X, library(data.X)))
    Z = model.transform(sparse, data.y)
    assert isinstance(Z, np.ndarray)
    assert_same(Z, plain.transform(data.X, data.y))
    for i, scores in model.transform(blocks).items():
        assert_same(scores, Z[data.y == i])
    assert_same(model.loadings_for(sparse, data.y), plain.loadings_for(data.X, data.y))
    assert_same(model.score(sparse, data.y), plain.score(data.X, data.y))


def test_a_checkpoint_has_nothing_to_keep(library, data, tmp_path):
    model = MCPCA(3, random_state=0).fit(library(data.X), data.y, checkpoint=tmp_path / "saved")
    assert library.owns(model.components_, "float64")
    assert model.n_passes_ is None
    assert list(tmp_path.iterdir()) == []


def test_context_weights(library, data):
    weights = np.arange(1.0, 7)
    plain = MCPCA(3, context_weights=weights, random_state=0).fit(data.X, data.y)
    model = MCPCA(3, context_weights=library(weights), random_state=0).fit(library(data.X), data.y)
    assert_same(model.components_, plain.components_)


def test_files_copies_and_pickles(library, data, tmp_path):
    model = MCPCA(3, solver="ml", random_state=0).fit(library(data.X), data.y)
    model.save(tmp_path / "model.npz")
    loaded = MCPCA.load(tmp_path / "model.npz")
    for name in (*FITTED, "noise_variance_"):
        assert isinstance(getattr(loaded, name), np.ndarray)
        np.testing.assert_array_equal(getattr(loaded, name), to_host(getattr(model, name)))
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert library.owns(again.components_, "float64")
        assert_same(again.transform(library(data.X)), to_host(model.transform(library(data.X))))


def test_a_model_can_change_its_home(library, data):
    model = MCPCA(3, random_state=0).fit(library(data.X), data.y)
    assert isinstance(model.fit(data.X, data.y).components_, np.ndarray)
    assert library.owns(model.fit(library(data.X), data.y).components_, "float64")


# Errors


def bad(S, i, change):
    S = S.copy()
    change(S[i])
    return S


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_errors_of_covariances_are_those_of_numpy(library, S, dtype):
    def nan(M):
        M[2, 3] = np.nan

    def skew(M):
        M[2, 3] += 1

    def negative(M):
        M -= 2 * np.linalg.eigvalsh(M)[-1] * np.eye(len(M))

    S = S.astype(dtype)
    for values, message in (
        (bad(S, 4, nan), r"S contains 1 NaN or infinite values, in context\(s\) 4; recompute"),
        (bad(S, 4, skew), r"S\[4\] is not symmetric: \|S - S\^T\| reaches 1"),
        (bad(S, 4, negative), r"S\[4\] is not positive semi-definite: its smallest eigenvalue is -"),
        (S[0], r"S must be a \(k, p, p\) stack of covariances, got shape \(12, 12\). A single matrix is S\[None\]"),
        (S[:0], "S is empty: shape"),
        (S + 1j, "Complex data not supported: S has dtype complex"),
    ):
        with pytest.raises(ValueError, match=message):
            decompose(library(values), 3)
        with pytest.raises(ValueError, match=message):
            MCPCA(3).fit_covariances(library(values))
    with pytest.raises(ValueError, match="r=13 is out of bounds"):
        decompose(library(S), 13)
    with pytest.raises(ValueError, match="a stack of covariances, which takes no y"):
        MCPCA(3).fit(library(S), np.zeros(6))
    with pytest.raises(RankExceedsDataError, match="all zero"):
        decompose(library(np.zeros((2, 3, 3))), 1)


def test_semidefinite_covariances_pass(library, rng):
    X = rng.standard_normal((5, 3, 20))
    singular = X.transpose(0, 2, 1) @ X
    expected = decompose(singular, 2, random_state=0)
    assert_same(decompose(library(singular), 2, random_state=0).loadings, expected.loadings)


@pytest.mark.parametrize("returned", [strict.tril, lambda M: M * np.nan, lambda M: -strict.tril(M)])
def test_a_factor_is_not_believed(S, monkeypatch, returned):
    """Some libraries do not raise where there is no Cholesky factor."""
    library = Strict("device1")
    monkeypatch.setattr(strict.linalg, "cholesky", returned)
    assert_same(decompose(library(S), 3, random_state=0).loadings, decompose(S, 3, random_state=0).loadings)
    with pytest.raises(ValueError, match=r"S\[1\] is not positive semi-definite"):
        decompose(library(np.stack([S[0], -S[1]])), 3)


def test_errors_of_rows_are_those_of_numpy(library, data):
    X = data.X.copy()
    X[data.y == 2, 5] = np.inf
    X[0, 1] = np.nan
    cases = [
        ((library(X), data.y), r"X, context 0, contains 1 NaN and 0 infinite \(inf\) values, in feature\(s\) 1;"),
        (([library(data.X), library(X[5:])],), r"X, context 1, contains 0 NaN and 60 infinite \(inf\) values"),
        ((library(data.X), data.y[:-1]), "y has shape .* and X has 360 rows"),
        ((library(data.X[0]),), r"X must be 2-D \(n_samples, n_features\), got shape \(12,\)"),
        (({"a": library(data.X), "b": library(data.X[:, :5])},), "context 'a' has 12 and context 'b' has 5"),
        (([library(data.X[:1]), library(data.X)],), r"1 of 2 contexts have fewer than 2 samples: 0 \(n_samples = 1\)"),
        ((library(data.X + 1j), data.y), "Complex data not supported: X has dtype complex"),
        ((library(data.X.astype(np.float32) * np.float32(1e25)), data.y), "X is too large for float32"),
        (
            ([library(data.X), data.X],),
            "X mixes arrays of different libraries or devices: context 0 is a .* context 1 ",
        ),
        (([library(data.X)], data.y), "y labels the rows of one 2-D X"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            MCPCA(3).fit(*arguments)
    model = MCPCA(3, random_state=0).fit(library(data.X), data.y)
    before = to_host(model.components_).copy()
    with pytest.raises(ValueError, match="context 0, contains 1 NaN"):
        model.fit(library(X), data.y)
    np.testing.assert_array_equal(to_host(model.components_), before)
    for rows, message in (
        (X, "X contains 1 NaN and 60 infinite"),
        (data.X[:, :4], "X has 4 features, but MCPCA is expecting 12 features"),
        (data.X[:0], "X has 0 samples"),
    ):
        with pytest.raises(ValueError, match=message):
            model.transform(library(rows))
    with pytest.raises(ValueError, match="X has 2 columns, but scores of this model have 3"):
        model.inverse_transform(library(data.X[:, :2]))


def test_devices_are_not_mixed(data):
    one, two = Strict("device1"), Strict("device2")
    with pytest.raises(ValueError, match=r"context 'a' is a .*device1.* context 'b' a .*device2.*Move all contexts"):
        MCPCA(3).fit({"a": one(data.X), "b": two(data.X)})


def test_without_array_api_compat_the_extra_is_named(data, monkeypatch):
    X = Strict("device1")(data.X)
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[devices\]"'):
        MCPCA(3).fit(X, data.y)


# NumPy stays as it was


def test_numpy_imports_no_other_library():
    code = (
        "import sys, numpy as np; from mcpca import MCPCA, decompose;"
        "X = np.random.default_rng(0).standard_normal((90, 5)); y = np.repeat([0, 1, 2], 30);"
        "m = MCPCA(2, random_state=0).fit(X, y); m.inverse_transform(m.transform(X, y)); m.transform([X[:30]] * 3);"
        "decompose(np.stack([np.cov(X.T)] * 2), 2);"
        "print([n for n in ('array_api_compat', 'array_api_strict', 'torch', 'jax', 'cupy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_a_device_array(library):
    assert is_device_array(library(np.zeros(2)))
    for x in (np.zeros(2), np.float64(1), np.ma.zeros(2), [library(np.zeros(2))], 1.0, "a", None, range(3)):
        assert not is_device_array(x)
        assert to_host(x) is x


def test_a_closed_file_is_not_asked_for_its_shape(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        dataset = file.create_dataset("X", data=np.eye(3))
    assert not is_device_array(dataset)


def test_the_widest_float_is_found_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for device, expected in (("device2", strict.float64), ("no_x64", strict.float32)):
            assert array_api.widest_float(Strict(device)(np.zeros(2, dtype=np.float32))) == expected
