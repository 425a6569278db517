"""Pearson residuals equal those of scanpy, entry by entry: these run by ``make test-scanpy``."""

import numpy as np
import pytest
import scipy.sparse as sp

from mcpca import Preprocess
from mcpca._data.contexts import read_contexts
from mcpca._data.preprocessed import fit_and_preprocess

# scanpy and what it imports warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def counts(rng):
    X = rng.poisson(rng.lognormal(0, 1, (400, 1)) * rng.gamma(0.5, 3.0, 90)).astype(float)
    # scanpy divides 0 by 0 where a row or a feature has no counts.
    X[X.sum(axis=1) == 0, 0] = 1
    X[0, X.sum(axis=0) == 0] = 1
    return X


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("options", [{}, {"theta": 10.0}, {"clip": 30.0}, {"clip": 3.0}, {"clip": np.inf}])
def test_normalize_pearson_residuals(counts, form, options):
    sc = pytest.importorskip("scanpy", reason="make test-scanpy installs it")
    ad = pytest.importorskip("anndata")
    adata = ad.AnnData(counts.copy())
    sc.experimental.pp.normalize_pearson_residuals(adata, **options)
    labels = np.arange(400) % 3
    prepared = fit_and_preprocess(Preprocess("pearson", **options), read_contexts(form(counts), labels))
    for i in range(3):
        np.testing.assert_allclose(prepared.dense_block(i), adata.X[labels == i], rtol=1e-9, atol=1e-10)


def test_variable_genes_of_residuals_of_all(counts):
    """Sums are over all genes, as they are if scanpy is asked for residuals first and the genes afterwards."""
    sc = pytest.importorskip("scanpy", reason="make test-scanpy installs it")
    pytest.importorskip("skmisc", reason="make test-scanpy installs it")
    ad = pytest.importorskip("anndata")
    adata = ad.AnnData(counts.copy())
    sc.pp.highly_variable_genes(adata, n_top_genes=30, flavor="seurat_v3")
    sc.experimental.pp.normalize_pearson_residuals(adata)
    theirs = adata[:, adata.var["highly_variable"]].X
    contexts = read_contexts(sp.csr_array(counts), np.zeros(400, dtype=int))
    prepared = fit_and_preprocess(Preprocess("pearson", n_top=30), contexts)
    np.testing.assert_allclose(prepared.dense_block(0), theirs, rtol=1e-9, atol=1e-10)
