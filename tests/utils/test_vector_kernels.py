"""Compiled products of CSR with dense matrices: those of SciPy, whatever the widths, types and rows."""

import numpy as np
import pytest
import scipy.sparse

numba = pytest.importorskip("numba")

from mcpca._utils import vector_kernels  # noqa: E402

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="Numba's compiler is switched off")


def whole_numbers(rng, n, p, dtype):
    """CSR with empty rows, one of them the last, whose products with whole numbers are exact."""
    numbers = rng.integers(-9, 10, (n, p)) * (rng.random((n, p)) < 0.2) * (rng.random((n, 1)) < 0.8)
    numbers[-1] = 0
    X = scipy.sparse.csr_array(numbers.astype(dtype))
    assert (np.diff(X.indptr) == 0).any()
    return X


# Of one vector of each length, full or not; of two and three; and of more than three in two shares and in three.
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 40, 48, 49, 104])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_those_of_scipy(rng, m, dtype):
    X = whole_numbers(rng, 40, 30, dtype)
    V = rng.integers(-9, 10, (30, m)).astype(dtype)
    Z = rng.integers(-9, 10, (40, m)).astype(dtype)
    XV, XtZ = vector_kernels.times(X, V), vector_kernels.transposed_times(X, Z)
    np.testing.assert_array_equal(XV, X @ V)
    np.testing.assert_array_equal(XtZ, X.T @ Z)
    assert XV.dtype == XtZ.dtype == dtype


def test_rounding_is_of_the_precision(rng):
    X = scipy.sparse.csr_array(rng.random((300, 200)) * (rng.random((300, 200)) < 0.3))
    V = rng.standard_normal((200, 40))
    exact = X @ V
    for dtype in (np.float32, np.float64):
        found = vector_kernels.times(X.astype(dtype), V.astype(dtype))
        eps = np.finfo(dtype).eps
        assert np.abs(found - exact).max() < 60 * eps * np.abs(exact).max()


def test_wide_indices_views_and_other_orders(rng):
    X = whole_numbers(rng, 40, 30, np.float64)
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    V = rng.integers(-9, 10, (30, 24)).astype(float)
    Z = rng.integers(-9, 10, (40, 24)).astype(float)
    read_only = V.copy()
    read_only.flags.writeable = False
    for rows in (X, wide):
        for dense in (V, np.asfortranarray(V), np.repeat(V, 2, axis=1)[:, ::2], read_only):
            np.testing.assert_array_equal(vector_kernels.times(rows, dense), X @ V)
        np.testing.assert_array_equal(vector_kernels.transposed_times(rows, np.asfortranarray(Z)), X.T @ Z)


@pytest.mark.parametrize("m", [12, 17, 40, 48])
def test_products_are_multiplied_again_without_a_copy(rng, m):
    """Their first columns, too, where as many vectors hold them, beside whatever is in the others."""
    X = whole_numbers(rng, 40, 30, np.float32)
    product = vector_kernels.times(X, rng.integers(-9, 10, (30, m)).astype(np.float32))
    assert np.shares_memory(vector_kernels._padded(product), product)
    np.testing.assert_array_equal(vector_kernels.transposed_times(X, product), X.T @ product)
    part = product[:, : m - 1]
    assert np.shares_memory(vector_kernels._padded(part), product) == (m != 17)  # 16 take a vector less
    np.testing.assert_array_equal(vector_kernels.transposed_times(X, part), X.T @ part)
    for other in (product[:, 1:], product[::2], product[:0], product.copy()):
        assert not np.shares_memory(vector_kernels._padded(other), product)


def test_rows_without_entries_give_zeros():
    X = scipy.sparse.csr_array((5, 7), dtype=np.float32)
    assert not vector_kernels.times(X, np.ones((7, 16), np.float32)).any()
    assert not vector_kernels.transposed_times(X, np.ones((5, 16), np.float32)).any()
    nothing = scipy.sparse.csr_array((0, 7), dtype=np.float32)
    assert vector_kernels.times(nothing, np.ones((7, 16), np.float32)).shape == (0, 16)
