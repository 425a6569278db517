"""Compiled loops over the entries of CSR rows: what NumPy and SciPy find in several readings."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse

numba = pytest.importorskip("numba")

from mcpca._utils import row_kernels  # noqa: E402

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="Numba's compiler is switched off")


@pytest.fixture(params=[(np.float32, np.int32), (np.float64, np.int32), (np.float64, np.int64)])
def X(request, rng):
    dtype, index = request.param
    rows = scipy.sparse.csr_array((rng.random((30, 20)) * (rng.random((30, 20)) < 0.4)).astype(dtype))
    rows.data[:3] = -rows.data[:3]
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    return rows


def put(X, rows, order):
    """Rows of X put where they are in ``order``, and what was found."""
    lengths = np.diff(X.indptr)[rows]
    starts = np.concatenate([[0], np.cumsum(lengths[order])])
    places = np.empty(len(rows), dtype=np.int64)
    places[order] = starts[:-1]
    data, indices = np.full(starts[-1], np.nan, dtype=X.dtype), np.full(starts[-1], -1, dtype=np.int32)
    found = row_kernels.put_rows(X, rows, places, data, indices)
    return scipy.sparse.csr_array((data, indices, starts), shape=(len(rows), X.shape[1])), found


def test_rows_go_where_they_belong(rng, X):
    rows = np.array([3, 3, 7, 11, 29, 0])  # one of them twice
    order = rng.permutation(len(rows))
    found, kind = put(X, rows, order)
    assert kind == row_kernels.CANONICAL
    np.testing.assert_array_equal(found.toarray(), X.toarray()[rows[order]])


def test_what_is_wrong_with_indices_is_found_in_wanted_rows_only(X):
    rows = np.array([4, 5])
    first, second = (int(X.indptr[i]) for i in rows)
    assert X.indptr[6] - second > 1
    assert second - first > 1
    for entry, value, kind in (
        (first, X.indices[first + 1], row_kernels.UNSORTED),  # the same twice
        (second - 1, 0, row_kernels.UNSORTED),
        (first, -1, row_kernels.OUTSIDE),
        (second - 1, 20, row_kernels.OUTSIDE),
    ):
        wrong = X.copy()
        wrong.indices[entry] = value
        assert put(wrong, rows, np.arange(2))[1] == kind
        assert put(wrong, rows[1:], np.arange(1))[1] == row_kernels.CANONICAL


def test_sums_and_squares(X):
    bounds = np.array([0, 1, 12, 30])
    exact = X.toarray().astype(np.float64)
    sums = row_kernels.sums_of_runs(X, bounds)
    np.testing.assert_array_equal(sums, [exact[a:b].sum(axis=0) for a, b in pairwise(bounds)])
    # Each square is rounded as the rows are, and their sum is not.
    squares = (X.toarray() ** 2).astype(np.float64)
    np.testing.assert_allclose(row_kernels.squared_lengths(X), squares.sum(axis=1), rtol=1e-14)


@pytest.mark.parametrize("fold", [False, True])
def test_bits_are_added_up_as_whole_numbers(rng, X, fold):
    weights = rng.integers(2**63, size=20).astype(np.uint64)
    expected = []
    for i in range(30):
        part = slice(X.indptr[i], X.indptr[i + 1])
        bits = [int.from_bytes(value.tobytes(), "little") for value in X.data[part]]
        if fold:
            bits = [b ^ (b >> 32) for b in bits]
        expected.append(sum(b * int(w) for b, w in zip(bits, weights[X.indices[part]], strict=True)) % 2**64)
    assert row_kernels.weighted_bits(X, weights, fold).tolist() == expected
