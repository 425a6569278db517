"""Analytic Pearson residuals: the formula with dense arrays, to 1e-11, from sparse rows that stay sparse."""

import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from mcpca._data.low_rank_rows import LowRankRows
from mcpca._data.pearson import CountSums, PearsonResiduals

N, P = 300, 80


@pytest.fixture
def counts(rng):
    """Depths over three decades, means from 1e-4 to 100; a row and a feature without counts."""
    X = rng.poisson(rng.lognormal(0, 1.5, (N, 1)) * rng.gamma(0.3, 3.0, P)).astype(float)
    X[5] = 0
    X[:, 7] = 0
    X[11, 3] = 5000  # clipped
    return X


def plain(X, fitted=None, theta=100.0, clip=None):
    """The definition; ``fitted`` are the rows that shares and clip are of."""
    fitted = X if fitted is None else fitted
    mu = X.sum(axis=1, keepdims=True) * (fitted.sum(axis=0) / fitted.sum())
    clip = np.sqrt(len(fitted)) if clip is None else clip
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = (X - mu) / np.sqrt(mu + mu**2 / theta)
    return np.where(mu > 0, np.clip(residuals, -clip, clip), 0)


def residuals_of(X, columns=None, theta=None, clip=None):
    return PearsonResiduals.fitted(CountSums.of(X, X.sum(axis=1)), columns, theta, clip)


@pytest.mark.parametrize("theta", [None, 1.0, 200.0])
@pytest.mark.parametrize("clip", [None, 15.0, np.inf])
def test_sparse_and_dense_equal_the_definition(counts, theta, clip):
    made = residuals_of(counts, theta=theta, clip=clip)
    expected = plain(counts, theta=100.0 if theta is None else theta, clip=clip)
    totals = counts.sum(axis=1)
    sparse = made.of(sp.csr_array(counts), totals, np.float64)
    assert isinstance(sparse, LowRankRows)
    assert sparse.entries.nnz == np.count_nonzero(counts)
    np.testing.assert_allclose(sparse.toarray(), expected, atol=1e-10)
    np.testing.assert_allclose(made.of(counts, totals, np.float64), expected, atol=1e-12)
    assert expected.max() == (np.sqrt(N) if clip is None else clip) or np.isinf(clip)
    assert not expected[5].any()
    assert not expected[:, 7].any()


def test_few_terms_and_an_error_that_is_not_seen():
    """Over six decades of totals and nine of shares."""
    shares = np.geomspace(1e-9, 1, 500)
    totals = np.geomspace(10, 1e7, 200)
    X = sp.csr_array((200, 500))
    for most, terms in ((1, 4), (100, 9), (10_000, 21)):
        made = PearsonResiduals(shares * most / 1e7, (10.0, 1e7), 100.0, 1e9)
        mu = totals[:, None] * made.shares
        found = made.of(X, totals, np.float64)
        assert found.left.shape[1] == made.n_terms(np.float64) <= terms
        np.testing.assert_allclose(found.toarray(), -np.sqrt(mu / (1 + mu / 100)), atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision(counts, dtype):
    made = residuals_of(counts)
    for block in (sp.csr_array(counts.astype(dtype)), counts.astype(dtype)):
        found = made.of(block, counts.sum(axis=1), dtype)
        assert found.dtype == dtype
        found = found.toarray() if isinstance(found, LowRankRows) else found
        # Beside residuals of up to 17.
        np.testing.assert_allclose(found, plain(counts), atol=5e-6 if dtype == np.float32 else 1e-11)
    assert made.n_terms(np.float32) < made.n_terms(np.float64) < 20


def test_new_rows_have_shares_and_clip_of_the_fit(counts, rng):
    """Also with totals far outside those of the fit, and counts in a feature that had none."""
    counts = counts[counts.sum(axis=1) > 20]
    made = residuals_of(counts)
    new = rng.poisson(np.geomspace(1e-3, 1e4, 40)[:, None] * rng.gamma(0.3, 3.0, P)).astype(float)
    new[:, 7] = 3
    totals = new.sum(axis=1)
    assert totals.min() < made.totals[0] < made.totals[1] < totals.max()
    found = made.of(sp.csr_array(new), totals, np.float64).toarray()
    np.testing.assert_allclose(found, plain(new, counts), atol=1e-10)
    # Row by row, and all at once.
    one = made.of(sp.csr_array(new[:1]), totals[:1], np.float64).toarray()
    np.testing.assert_allclose(one, found[:1], atol=1e-10)


def test_some_features_of_rows_with_all_totals(counts):
    columns = np.array([1, 3, 4, 7, 20])
    made = residuals_of(counts, columns)
    found = made.of(sp.csr_array(counts[:, columns]), counts.sum(axis=1), np.float64)
    np.testing.assert_allclose(found.toarray(), plain(counts)[:, columns], atol=1e-11)


def test_where_zeros_are_clipped_blocks_are_dense(counts):
    few = counts[:60]
    made = residuals_of(few)
    assert not made.keeps_sparse
    assert residuals_of(counts).keeps_sparse
    found = made.of(sp.csr_array(few), few.sum(axis=1), np.float64)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, plain(few), atol=1e-12)
    assert found.min() == -np.sqrt(60)


def test_one_total_for_all_rows():
    X = np.tile([3.0, 1.0, 0.0, 4.0], (200, 1))
    X[::2] = [1.0, 3.0, 4.0, 0.0]
    made = residuals_of(X)
    assert made.totals == (8.0, 8.0)
    np.testing.assert_allclose(made.of(sp.csr_array(X), X.sum(axis=1), np.float64).toarray(), plain(X), atol=1e-11)


def test_sums_add_up(counts):
    parts = [CountSums.of(sp.csr_array(counts[i : i + 70]), counts[i : i + 70].sum(axis=1)) for i in range(0, N, 70)]
    whole = CountSums.merged(parts)
    np.testing.assert_array_equal(whole.features, counts.sum(axis=0))
    totals = counts.sum(axis=1)
    n_empty = int((totals == 0).sum())
    assert (whole.n_rows, whole.n_empty) == (N, n_empty)
    assert n_empty > 0
    assert (whole.smallest, whole.largest) == (totals[totals > 0].min(), totals.max())
    with pytest.raises(ValueError, match="X has no counts at all"):
        residuals_of(np.zeros((4, 3)))


@pytest.mark.parametrize("clip", [None, np.inf])
def test_files_and_pickles(counts, clip):
    made = residuals_of(counts, clip=clip)
    block, totals = sp.csr_array(counts), counts.sum(axis=1)
    expected = made.of(block, totals, np.float64).toarray()
    text = json.dumps(made.to_json(), allow_nan=False)
    for again in (PearsonResiduals.from_json(made.shares, json.loads(text)), pickle.loads(pickle.dumps(made))):
        assert (again.totals, again.theta, again.clip) == (made.totals, made.theta, made.clip)
        np.testing.assert_array_equal(again.of(block, totals, np.float64).toarray(), expected)
    with pytest.raises(ValueError, match="out of bounds"):
        PearsonResiduals.from_json(-made.shares, json.loads(text))
