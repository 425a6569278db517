"""Variable features from one pass equal those of the plain formula, wherever rows are; tests of scanpy's are apart."""

import numpy as np
import pytest
import scipy.sparse as sp

from mcpca._data import count_tables
from mcpca._data.contexts import read_contexts
from mcpca._data.count_tables import NumberedRows, merged, table_of
from mcpca._data.variable_features import variable_features
from mcpca._linalg.loess import loess

N, P, TOP = 240, 160, 25


@pytest.fixture
def counts(rng):
    """Counts of features with gamma rates, some of them beyond all bins; 12 features vary more than the others."""
    rates = rng.gamma(0.7, 3.0, P)
    X = rng.poisson(rates * rng.lognormal(0, 0.3, (N, 1)))
    X[:, :12] = rng.poisson(np.maximum(rates[:12], 2) * rng.gamma(0.3, 1 / 0.3, (N, 12)))
    X[:3, 20] = [300, 5000, 300]
    X[:, 30] = 0
    X[:, 31] = 2
    return X.astype(float)


@pytest.fixture
def labels(rng):
    return rng.choice(["a", "b", "c"], N)


def plain(X, groups, n_top):
    """The definition, with dense arrays and a loop over groups."""
    normalized, ranks = [], []
    for group in np.unique(groups):
        Xg = X[groups == group]
        n = len(Xg)
        mean, var = Xg.mean(axis=0), Xg.var(axis=0, ddof=1)
        varies = Xg.min(axis=0) < Xg.max(axis=0)
        scale = np.ones(X.shape[1])
        scale[varies] = np.sqrt(10 ** loess(np.log10(mean[varies]), np.log10(var[varies])))
        clipped = np.minimum(Xg, mean + np.sqrt(n) * scale)
        normalized.append(((clipped - mean) ** 2).sum(axis=0) / (n - 1) / scale**2)
        rank = np.empty(X.shape[1])
        rank[np.argsort(-np.round(normalized[-1], 9), kind="stable")] = np.arange(X.shape[1])
        ranks.append(np.where(rank < n_top, rank, np.nan))
    order = sorted(
        range(X.shape[1]),
        key=lambda j: (
            np.inf if np.isnan([r[j] for r in ranks]).all() else np.nanmedian([r[j] for r in ranks]),
            -sum(r[j] == r[j] for r in ranks),
            j,
        ),
    )
    return np.sort(order[:n_top]), np.mean(normalized, axis=0)


def forms(X, labels, tmp_path):
    import anndata as ad

    yield X, labels
    yield X.astype(np.int32), labels
    yield sp.csr_matrix(X.astype(np.float32)), labels
    yield sp.csc_array(X), labels
    yield {name: sp.csr_array(X[labels == name]) for name in "abc"}, None
    path = tmp_path / "counts.h5ad"
    ad.AnnData(sp.csr_matrix(X), obs={"label": labels}).write_h5ad(path)
    yield ad.read_h5ad(path, backed="r").X, labels


@pytest.mark.parametrize("by_context", [False, True])
@pytest.mark.parametrize("n_top", [TOP, 1, P])
def test_every_form_equals_the_definition(counts, labels, tmp_path, by_context, n_top):
    chosen, normalized = plain(counts, labels if by_context else np.zeros(N), n_top)
    assert counts.max() > count_tables._MOST_BINS
    for X, y in forms(counts, labels, tmp_path):
        found = variable_features(read_contexts(X, y), n_top, by_context=by_context)
        np.testing.assert_array_equal(found.chosen, chosen)
        np.testing.assert_allclose(found.normalized_variances, normalized, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found.means, counts.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.variances, counts.var(axis=0, ddof=1), rtol=1e-10, atol=1e-12)


def test_features_that_vary_are_found(counts, labels):
    found = variable_features(read_contexts(counts, labels), TOP)
    assert set(range(12)) <= set(found.chosen.tolist())
    assert np.median(found.ranks[:12]) < 8


@pytest.mark.parametrize("by_context", [False, True])
def test_rows_on_dask(counts, labels, by_context, monkeypatch):
    da = pytest.importorskip("dask.array")
    here = variable_features(read_contexts(counts, labels), TOP, by_context=by_context)
    X = da.from_array(counts, chunks=(37, P)).map_blocks(sp.csr_array)
    there = variable_features(read_contexts(X, labels), TOP, by_context=by_context)
    np.testing.assert_array_equal(there.normalized_variances, here.normalized_variances)
    np.testing.assert_array_equal(there.ranks, here.ranks)
    monkeypatch.setattr(count_tables, "MOST_PAIRS", 10)
    by_two_passes = variable_features(read_contexts(X, labels), TOP, by_context=by_context)
    np.testing.assert_allclose(by_two_passes.normalized_variances, here.normalized_variances, rtol=1e-10)


@pytest.mark.parametrize("by_context", [False, True])
def test_two_passes_where_a_table_would_be_too_large(counts, labels, monkeypatch, by_context):
    contexts = read_contexts(sp.csr_array(counts), labels)
    one = variable_features(contexts, TOP, by_context=by_context)
    monkeypatch.setattr(count_tables, "MOST_PAIRS", 10)
    two = variable_features(contexts, TOP, by_context=by_context)
    np.testing.assert_array_equal(two.chosen, one.chosen)
    np.testing.assert_allclose(two.normalized_variances, one.normalized_variances, rtol=1e-10)


def test_values_that_are_no_whole_numbers(counts, labels, tmp_path):
    X = counts * 0.3
    chosen, normalized = plain(X, np.zeros(N), TOP)
    for form, y in forms(X, labels, tmp_path):
        if form is X or (sp.issparse(form) and form.dtype == np.float64):
            found = variable_features(read_contexts(form, y), TOP)
            np.testing.assert_array_equal(found.chosen, chosen)
            np.testing.assert_allclose(found.normalized_variances, normalized, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("bins", [1, 3 * P * 2, 2**21])
@pytest.mark.parametrize("waiting", [0, 2**20])
@pytest.mark.parametrize("rows", [70, 2**31 - 1])
def test_tables_add_up(counts, labels, monkeypatch, bins, waiting, rows):
    """In blocks of any size, with few bins or none, however many rows they hold, and in any order of merging."""
    monkeypatch.setattr(count_tables, "_BINS", bins)
    monkeypatch.setattr(count_tables, "_MOST_ROWS", rows)
    monkeypatch.setattr(count_tables, "_WAITING", waiting)
    codes = np.searchsorted(["a", "b", "c"], labels)
    codes[:5] = -1
    blocks = [NumberedRows(i, counts[i : i + 31], codes[i : i + 31]) for i in range(0, N, 31)]
    whole = table_of(blocks, (3, P), "X")
    parts = [table_of([block], (3, P), "X") for block in blocks]
    again = merged([merged(parts[:3]), merged(parts[3:])])
    np.testing.assert_array_equal(whole.keys, again.keys)
    np.testing.assert_array_equal(whole.times, again.times)
    sums, squares = whole.moments()
    for i in range(3):
        np.testing.assert_array_equal(sums[i], counts[codes == i].sum(axis=0))
        np.testing.assert_array_equal(squares[i], (counts[codes == i] ** 2).sum(axis=0))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, lambda X: sp.csr_array(X.astype(np.float32))])
def test_threads_count_the_same(counts, labels, monkeypatch, workers, form):
    """A block in parts, with and without groups: against a count of every value."""
    monkeypatch.setattr(count_tables, "_ROWS_PER_PIECE", 16)
    monkeypatch.setattr(count_tables, "n_workers", lambda: workers)
    codes = np.searchsorted(["a", "b", "c"], labels)
    for groups, n_groups in ((codes, 3), (None, 1)):
        table = table_of([NumberedRows(0, form(counts), groups)], (n_groups, P), "X")
        found = dict(zip(table.keys.tolist(), table.times.tolist(), strict=True))
        cells = (0 if groups is None else codes[:, None] * P) + np.broadcast_to(np.arange(P), counts.shape)
        pairs = cells[counts > 0] * 2**32 + counts[counts > 0].astype(np.int64)
        assert found == dict(zip(*(a.tolist() for a in np.unique(pairs, return_counts=True)), strict=True))


def test_a_mixture_of_whole_and_other_numbers(counts):
    """What was counted before the first fraction is not lost."""
    X = counts.copy()
    X[200:] += 0.5
    blocks = [NumberedRows(i, X[i : i + 50], None) for i in range(0, N, 50)]
    table = table_of(blocks, (1, P), "X")
    assert table.keys is None
    np.testing.assert_allclose(table.moments()[0][0], X.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(table.moments()[1][0], (X**2).sum(axis=0), rtol=1e-13)


def test_errors(counts, labels):
    contexts = read_contexts(counts, labels)
    with pytest.raises(ValueError, match=rf"n_top={P + 1} is out of bounds: 1 <= n_top <= {P}.*X has {P} features"):
        variable_features(contexts, P + 1)
    bad = counts.copy()
    bad[7, 3] = -2
    for X in (bad, sp.csr_array(bad)):
        for by_context in (False, True):
            with pytest.raises(ValueError, match=r"X has the negative value -2 in row 7, feature 3,.*pass raw counts"):
                variable_features(read_contexts(X, labels), TOP, by_context=by_context)
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match=r"X contains 1 NaN.*rows 7 to 7, in feature"):
        variable_features(read_contexts(bad, labels), TOP)
    single = read_contexts({"a": counts[:1], "b": counts[1:]}, min_samples=1)
    with pytest.raises(ValueError, match=r"at least 2 rows.*group of 1"):
        variable_features(single, TOP, by_context=True)
