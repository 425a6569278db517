"""Which products blocks of rows are multiplied with, and that a fit is the same by either."""

import sys

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_limits

from mcpca import MCPCA
from mcpca._covariances import fit_data
from mcpca._data import sparse_products
from mcpca._data.low_rank_rows import LowRankRows
from mcpca._utils.parallel import each


class Kernels:
    """Stands for compiled products, and counts what it is asked for."""

    def __init__(self):
        self.calls = []

    def times(self, X, V):
        self.calls.append("X V")
        return X @ V

    def transposed_times(self, X, Z):
        self.calls.append("X^T Z")
        return X.T @ Z


@pytest.fixture
def kernels(monkeypatch):
    stand_in = Kernels()
    monkeypatch.setattr(sparse_products, "_compiled", lambda: sparse_products._Compiled(stand_in, stand_in))
    monkeypatch.setattr(sparse_products, "_WORTHWHILE_BYTES", 1000)
    return stand_in


@pytest.fixture
def X(rng):
    return scipy.sparse.csr_array(rng.random((30, 20)) * (rng.random((30, 20)) < 0.4))


def test_compiled_products_are_for_many_sparse_rows(rng, kernels, X):
    V, Z = rng.standard_normal((20, 8)), rng.standard_normal((30, 8))
    sparse_products.times(X, V)
    with sparse_products.compiled_products(999):
        sparse_products.times(X, V)
    assert not kernels.calls
    with sparse_products.compiled_products(1000):
        # Vectors, single columns, other types and other rows are SciPy's and NumPy's.
        for V_of_scipy in (V[:, :1], V[:, 0], V.astype(np.float32)):
            np.testing.assert_allclose(sparse_products.times(X, V_of_scipy), X.toarray() @ V_of_scipy, rtol=1e-6)
        np.testing.assert_allclose(sparse_products.times(X.toarray(), V), X.toarray() @ V)
        np.testing.assert_allclose(sparse_products.times(X.tocsc(), V), X.toarray() @ V)
        assert not kernels.calls
        np.testing.assert_allclose(sparse_products.times(X, V), X.toarray() @ V)
        np.testing.assert_allclose(sparse_products.transposed_times(X, Z), X.toarray().T @ Z)
        # Of rows that are sparse plus low rank the sparse part.
        rows = LowRankRows(X, rng.standard_normal((30, 2)), rng.standard_normal((20, 2)))
        np.testing.assert_allclose(sparse_products.times(rows, V), rows.toarray() @ V)
        np.testing.assert_allclose(sparse_products.transposed_times(rows, Z), rows.toarray().T @ Z)
        # In threads as in the one that started them.
        assert len(list(each(lambda _: sparse_products.times(X, V), range(3), 2))) == 3
    assert kernels.calls == ["X V", "X^T Z", "X V", "X^T Z"] + 3 * ["X V"]
    sparse_products.times(X, V)
    assert len(kernels.calls) == 7
    # Of a sample of many rows as well.
    with sparse_products.compiled_products(1000), sparse_products.compiled_products(1):
        sparse_products.times(X, V)
        assert sparse_products.row_kernels(X) is kernels
        assert sparse_products.row_kernels(X.tocsc()) is sparse_products.row_kernels(X.astype(int)) is None
    assert len(kernels.calls) == 8
    assert sparse_products.row_kernels(X) is None


def test_without_numba_they_are_scipys(monkeypatch, rng, X):
    monkeypatch.setitem(sys.modules, "numba", None)
    sparse_products._compiled.cache_clear()
    monkeypatch.setattr(sparse_products, "_WORTHWHILE_BYTES", 0)
    V = rng.standard_normal((20, 16))
    with sparse_products.compiled_products(1):
        np.testing.assert_array_equal(sparse_products.times(X, V), X @ V)
    sparse_products._compiled.cache_clear()


def compile_everything(monkeypatch):
    """Multiply sparse rows by compiled products however few they are; skip without Numba."""
    numba = pytest.importorskip("numba")
    if numba.config.DISABLE_JIT:
        pytest.skip("Numba's compiler is switched off")
    monkeypatch.setattr(sparse_products, "_WORTHWHILE_BYTES", 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fits_agree_to_rounding(monkeypatch, rng, dtype):
    monkeypatch.setattr(fit_data, "MOST_NUMBERS", 0)  # by passes
    monkeypatch.setattr(fit_data, "loaded_if_small", lambda contexts, report: contexts)
    y = rng.permutation(np.repeat(np.arange(6), 60))
    weights = 1 + 4 * rng.random((6, 40)) * (rng.random((6, 40)) < 0.5)
    X = (rng.random((360, 40)) * weights[y] * (rng.random((360, 40)) < 0.4)).astype(dtype)
    rows = scipy.sparse.csr_array(X)
    by_scipy = MCPCA(5, tol=1e-9, random_state=0).fit(rows, y)
    compile_everything(monkeypatch)
    compiled = MCPCA(5, tol=1e-9, random_state=0).fit(rows, y)
    tolerance = 1e-3 if dtype == np.float32 else 1e-6
    np.testing.assert_allclose(compiled.components_, by_scipy.components_, atol=tolerance)
    np.testing.assert_allclose(compiled.loadings_, by_scipy.loadings_, rtol=tolerance, atol=tolerance)
    # The same bits again, and whatever the threads.
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            again = MCPCA(5, tol=1e-9, random_state=0).fit(rows, y)
        np.testing.assert_array_equal(again.components_, compiled.components_)
