"""What is done to raw counts equals what scanpy does, to the gene: these run by ``make test-scanpy``."""

import numpy as np
import pytest
import scipy.sparse as sp

from mcpca._data.contexts import read_contexts
from mcpca._data.preprocessed import fit_and_preprocess
from mcpca._data.variable_features import variable_features
from mcpca._linalg.loess import loess

# scanpy and what it imports warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def counts(rng):
    """1,200 genes of three programmes in 500 cells; many genes are rare, so that there are ties."""
    n, p = 500, 1200
    programmes = rng.normal(size=(3, p)) * (rng.random((3, p)) < 0.1)
    rates = rng.gamma(0.4, 1.0, p) * np.exp(rng.normal(size=(n, 3)) @ programmes).clip(max=50)
    X = rng.poisson(rates * rng.lognormal(0, 0.4, (n, 1)))
    X[:, 5], X[:, 6] = 0, 2
    return X.astype(np.float32), rng.choice(["a", "b", "c"], n)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("n_top", [50, 400, 1100])
@pytest.mark.parametrize("batch_key", [None, "batch"])
def test_highly_variable_genes(counts, form, n_top, batch_key):
    sc = pytest.importorskip("scanpy", reason="make test-scanpy installs it")
    pytest.importorskip("skmisc", reason="make test-scanpy installs it")
    ad = pytest.importorskip("anndata")
    X, batch = counts
    adata = ad.AnnData(form(X), obs={"batch": batch})
    theirs = sc.pp.highly_variable_genes(
        adata, n_top_genes=n_top, flavor="seurat_v3", batch_key=batch_key, inplace=False
    )
    ours = variable_features(read_contexts(form(X), batch), n_top, by_context=batch_key is not None)
    np.testing.assert_array_equal(ours.chosen, np.flatnonzero(theirs["highly_variable"]))
    np.testing.assert_array_equal(ours.ranks, theirs["highly_variable_rank"])
    np.testing.assert_allclose(ours.normalized_variances, theirs["variances_norm"], rtol=1e-11)
    np.testing.assert_allclose(ours.means, theirs["means"], rtol=1e-12)
    np.testing.assert_allclose(ours.variances, theirs["variances"], rtol=1e-11, atol=1e-14)
    if batch_key is not None:
        np.testing.assert_array_equal(ours.n_groups, theirs["highly_variable_nbatches"])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("n_empty", [0, 3])
def test_log1p(counts, form, dtype, n_empty):
    sc = pytest.importorskip("scanpy", reason="make test-scanpy installs it")
    ad = pytest.importorskip("anndata")
    X = counts[0].astype(dtype)
    X[:n_empty] = 0
    theirs = ad.AnnData(form(X.copy()))
    # Of sparse rows scanpy 1.11 takes the median over all cells, of dense ones and on Dask over those with counts.
    target = None if form is np.asarray or not n_empty else float(np.median(X.sum(axis=1)[n_empty:]))
    sc.pp.normalize_total(theirs, target_sum=target)
    sc.pp.log1p(theirs)
    ours = fit_and_preprocess("log1p", read_contexts(form(X), counts[1]))
    rows = ours.sources[0].gather(slice(0, len(X)))
    assert rows.dtype == theirs.X.dtype
    eps = np.finfo(rows.dtype).eps
    np.testing.assert_allclose(_dense(rows), _dense(theirs.X), rtol=8 * eps, atol=8 * eps)


def _dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.parametrize("n", [60, 997, 5000])
@pytest.mark.parametrize("ties", [False, True])
def test_loess_of_scikit_misc(rng, n, ties):
    skmisc = pytest.importorskip("skmisc.loess", reason="make test-scanpy installs it")
    x = np.log10(rng.integers(1, 300, n)) if ties else rng.normal(size=n)
    y = np.sin(x) + 0.1 * rng.normal(size=n)
    model = skmisc.loess(x, y, span=0.3, degree=2)
    model.fit()
    np.testing.assert_allclose(loess(x, y), model.outputs.fitted_values, rtol=1e-10, atol=1e-12)
