"""Rows that are sparse plus low rank answer whatever passes ask as their dense twin does."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from random_csr import random_csr

from mcpca._covariances import kernels
from mcpca._covariances.passes import Passes
from mcpca._covariances.streamed import StreamedCovariances
from mcpca._data import context_sums
from mcpca._data.blocks import check_block, largest, stored, times_power
from mcpca._data.contexts import contexts_of_codes
from mcpca._data.low_rank_rows import LowRankRows, LowRankSource, dense_rows, stacked
from mcpca._data.projection import transposed_product
from mcpca._data.row_marks import marks_of
from mcpca._data.sources import as_source

N, P, L = 60, 25, 3


@pytest.fixture
def rows(rng):
    dense = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.3)
    dense[7] = 0
    return LowRankRows(sp.csr_array(dense), rng.normal(size=(N, L)), rng.normal(size=(P, L)))


@pytest.fixture
def twin(rows):
    return rows.entries.toarray() + rows.left @ rows.right.T


@pytest.fixture
def codes(rng):
    return rng.integers(0, 4, N)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_products(rows, twin, rng):
    V, Z = rng.normal(size=(P, 4)), rng.normal(size=(N, 4))
    M = random_csr(rng, 5, N, 0.3)
    close(rows @ V, twin @ V)
    close(rows @ V[:, 0], twin @ V[:, 0])
    close(rows.T @ Z, twin.T @ Z)
    close(Z.T @ rows, Z.T @ twin)
    close(M @ rows, M @ twin)
    close(transposed_product(sp.csr_array(M.T), rows), M @ twin)
    close(context_sums.transposed(rows, Z), twin.T @ Z)
    close(rows.mean(axis=0), twin.mean(axis=0))


@pytest.mark.parametrize(
    "part", [slice(3, 20), slice(5, 5), slice(None), slice(None, None, 3), np.array([5, 3, 3, 59])]
)
def test_rows_are_picked(rows, twin, part):
    picked = rows[part]
    close(picked.toarray(), twin[part])
    assert picked.shape == twin[part].shape
    assert picked.entries.has_canonical_format
    close(LowRankSource(rows).gather(part).toarray(), twin[part])


def test_as_a_source(rows, twin):
    source = as_source(rows, "X")
    assert source.sparse
    assert source.low_rank
    assert source.shape == (N, P)
    for size in (1, 500, 10**9):
        blocks = list(source.scan(size))
        assert [first for first, _ in blocks] == np.cumsum([0, *(block.shape[0] for _, block in blocks)])[:-1].tolist()
        close(np.concatenate([dense_rows(block) for _, block in blocks]), twin)
    assert len(list(source.scan(500))) > 3


def test_precision(rows, twin):
    single = rows.astype(np.float32)
    assert single.dtype == (single @ np.ones((P, 2), np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.toarray(), twin, atol=1e-5)
    again = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(again.toarray(), rows.toarray())


def test_sizes_and_powers(rows, twin):
    close(times_power(rows, 3).toarray(), 8 * twin)
    close(rows.toarray(), twin)  # a copy: the rows are as they were
    assert np.abs(rows.entries).max() <= largest(rows) >= np.abs(rows.left @ rows.right.T).max()
    check_block(rows, 0, "X")
    assert len(stored(rows)) == rows.entries.nnz
    bad = rows[:]
    bad.entries.data = bad.entries.data.copy()
    bad.entries.data[0] = np.nan
    with pytest.raises(ValueError, match="X contains 1 NaN"):
        check_block(bad, 0, "X")


def test_squares_by_rows_and_contexts(rows, twin, codes, rng):
    weights = rng.random(P)
    close(rows.row_squares(), (twin**2).sum(axis=1))
    close(rows.row_squares(weights), twin**2 @ weights)
    means = rng.normal(size=(4, P))
    present, squares = context_sums.squares_by_context(rows, codes, means)
    for i, found in zip(present, squares, strict=True):
        close(found, ((twin[codes == i] - means[i]) ** 2 - means[i] ** 2).sum(axis=0))


def test_sums_by_context(rows, twin, codes):
    expected = np.stack([twin[codes == i].sum(axis=0) for i in range(4)])
    close(context_sums.sums_by_context(rows, codes)[1], expected)
    order = np.argsort(codes, kind="stable")
    close(context_sums.sums_of_runs(rows[order], codes[order])[1], expected)
    single = rows.astype(np.float32)
    assert context_sums.sums_by_context(single, codes)[1].dtype == np.float64


def test_marks_tell_rows_apart(rows, codes):
    marks = marks_of(rows, codes, 4)
    np.testing.assert_array_equal(marks_of(rows[::-1], codes[::-1], 4), marks)
    assert (marks_of(rows.astype(np.float32), codes, 4) != marks).all()


def test_stacked(rows, twin):
    joined = stacked([rows[:20], rows[20:]])
    assert isinstance(joined, LowRankRows)
    close(joined.toarray(), twin)
    other = LowRankRows(rows.entries, rows.left, 2 * rows.right)
    close(stacked([rows, other]), np.concatenate([twin, other.toarray()]))


@pytest.mark.parametrize("scaled", [False, True])
def test_every_product_with_covariances(rows, twin, codes, rng, scaled):
    """Through the interface that solvers see; also with many contexts, whose sparse rows are added by entry."""
    names = np.arange(4)
    pair = []
    for source in (LowRankSource(rows), as_source(twin, "X")):
        contexts = contexts_of_codes(source, codes, names, None)
        one = StreamedCovariances.of(contexts, 5, Passes.silent())
        pair.append(one.scaled(np.linspace(1, 2, P)) if scaled else one)
    ours, theirs = pair
    V = np.linalg.qr(rng.normal(size=(P, 4)))[0]
    close(ours.means, theirs.means)
    close(ours.sketch, theirs.sketch)
    close(ours._gram_times(V), theirs._gram_times(V))
    close(ours.squared_norms(), theirs.squared_norms())
    close(ours.whole(), theirs.whole())
    close(ours.variances(), theirs.variances())
    close(ours.traces(), theirs.traces())
    close(ours.variances_along(V), theirs.variances_along(V))
    close(ours.combine(V, np.ones((4, 4))), theirs.combine(V, np.ones((4, 4))))
    assert not kernels.adds_by_entry(ours.contexts)
