"""Scatters of blocks of rows: sums of outer products, and when they keep their digits."""

import numpy as np
import pytest
import scipy.sparse

from mcpca._data.scatter import add_centred, add_outer, dense_pieces, keeps_digits


def test_outer_products_in_blocks(rng):
    x = rng.standard_normal(300)  # more than two blocks of rows
    M = rng.standard_normal((300, 300))
    total = M.copy()
    add_outer(total, -0.5, x)
    np.testing.assert_allclose(total, M - 0.5 * np.outer(x, x), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_rounded_mean_is_undone_by_the_shift(rng, dtype, room):
    """About a mean that is off, the scatter less the outer product of the shift is that about the true mean."""
    X = (rng.standard_normal((50, 6)) + 3).astype(dtype)
    mean = (X.mean(axis=0) + 0.1).astype(dtype)
    scatter = np.full((6, 6), np.nan, dtype=dtype)
    shift = np.zeros(6)
    work = np.empty((20, 6), dtype=dtype) if room else None
    for start in range(0, 50, 20):
        add_centred(X[start : start + 20], mean, scatter, shift, work=work, first=start == 0)
    add_outer(scatter, -1 / 50, shift)
    expected = np.cov(X.astype(np.float64), rowvar=False) * 49
    np.testing.assert_allclose(
        scatter, expected, rtol=1e-10 if dtype == np.float64 else 1e-4, atol=1e-3 * (dtype != np.float64)
    )


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_pieces_are_dense_and_complete(rng, make):
    X = rng.poisson(0.5, (23, 4)).astype(np.float64)
    pieces = list(dense_pieces(make(X), 5))
    assert all(isinstance(piece, np.ndarray) for piece in pieces)
    assert len(pieces) == (1 if make is np.asarray else 5)
    np.testing.assert_array_equal(np.concatenate(pieces), X)


def test_twelve_digits_are_asked_for():
    """Squares of a mean of 100 beside a variance of 1 lose four digits, those of a mean of 10 two."""
    assert keeps_digits(np.array([101.0]), np.array([1.0]))
    assert not keeps_digits(np.array([10_001.0]), np.array([1.0]))
    assert not keeps_digits(np.array([101.0, 10_001.0]), np.array([1.0, 1.0]))
    assert keeps_digits(np.zeros(1), np.zeros(1))
    assert not keeps_digits(np.ones(1), np.array([np.nan]))
