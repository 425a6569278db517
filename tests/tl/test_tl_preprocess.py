"""Raw counts in an AnnData: results are those of the AnnData that was normalised before, and are repeated later."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import mcpca
from mcpca import Preprocess, RawCountsWarning, tl
from mcpca.analysis import describe
from twins import log1p_of_counts

anndata = pytest.importorskip("anndata")

N, P, R = 400, 20, 2


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    A = rng.gamma(1.0, 1.0, (P, 3))
    activity = rng.gamma(2.0, 1.0, (N, 3)) * np.repeat(rng.gamma(1.0, 1.0, (4, 3)), 100, axis=0)
    return rng.poisson(activity @ A.T + 0.5).astype(np.float32)


def annotated(X, form=sp.csr_matrix):
    obs = pd.DataFrame(
        {"context": pd.Categorical(np.repeat(list("abcd"), 100)), "depth": np.linspace(0.5, 3, N)},
        index=[f"cell {i}" for i in range(N)],
    )
    adata = anndata.AnnData(form(X), obs=obs)
    adata.var_names = [f"g{j}" for j in range(P)]
    adata.var["highly_variable"] = np.arange(P) % 2 == 0
    return adata


@pytest.fixture
def raw(counts):
    return annotated(counts)


@pytest.fixture
def normalised(counts):
    return annotated(log1p_of_counts(counts).astype(np.float32))


def on_dask(X):
    da = pytest.importorskip("dask.array")
    return da.from_array(X, chunks=(90, P)).map_blocks(sp.csr_matrix)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, np.asarray, on_dask])
@pytest.mark.parametrize("mask_var", ["auto", None])
def test_is_the_fit_of_normalised_rows(counts, normalised, form, mask_var):
    """Totals are over all genes, also where only some are fitted."""
    adata = annotated(counts, form)
    tl.mcpca(adata, "context", n_comps=R, preprocess="log1p", mask_var=mask_var)
    tl.mcpca(normalised, "context", n_comps=R, mask_var=mask_var)
    np.testing.assert_allclose(adata.varm["MCPCs"], normalised.varm["MCPCs"], atol=2e-6)
    np.testing.assert_allclose(adata.obsm["X_mcpca"], normalised.obsm["X_mcpca"], atol=1e-5)
    assert (adata.varm["MCPCs"][1::2] == 0).all() == (mask_var == "auto")
    summary = adata.uns["mcpca"]["preprocess"]["summary"]
    assert summary.startswith(f"Rows were brought to a total of {np.median(counts.sum(axis=1)):g}")


def test_raw_counts_without_it_still_warn(raw):
    with pytest.warns(RawCountsWarning, match="Pass preprocess='log1p'"):
        tl.mcpca(raw, "context", n_comps=R)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.mcpca(raw, "context", n_comps=R, preprocess="log1p")


def test_what_was_done_is_stored_and_repeated(raw, normalised, counts, tmp_path):
    for adata, steps in ((raw, "log1p"), (normalised, None)):
        tl.mcpca(adata, "context", n_comps=R, preprocess=steps)
    expected = normalised.obsm["X_mcpca"]
    raw.write_h5ad(tmp_path / "raw.h5ad")
    backed = anndata.read_h5ad(tmp_path / "raw.h5ad", backed="r")
    for adata in (raw, backed):
        model = tl.model(adata)
        assert model.preprocess == "log1p"
        np.testing.assert_allclose(model.transform(adata), expected, atol=1e-5)
        first, second = (tl.replicability(a, n_splits=2, rng=0) for a in (raw, normalised))
        np.testing.assert_allclose(first.cosines, second.cosines, atol=1e-4)
        new = annotated(counts[::-1].copy())
        tl.transform(new, model=adata)
        np.testing.assert_allclose(new.obsm["X_mcpca"][::-1], expected, atol=1e-5)
        loadings = tl.loadings_for(annotated(counts), "context", model=adata)
        wanted = tl.loadings_for(normalised, "context", model=normalised)
        np.testing.assert_allclose(loadings, wanted, atol=1e-5)
    backed.file.close()


def test_genes_in_another_order_and_genes_that_are_gone(raw, counts):
    tl.mcpca(raw, "context", n_comps=R, preprocess=Preprocess(n_top=8))
    expected = raw.obsm["X_mcpca"]
    turned = raw[:, ::-1].copy()
    np.testing.assert_allclose(tl.model(turned).transform(turned), expected, atol=1e-5)
    tl.replicability(turned, n_splits=2, rng=0)
    # A gene that was not chosen is part of the totals.
    other = int(np.flatnonzero(~raw.varm["MCPCs"].any(axis=1))[0])
    fewer = raw[:, np.arange(P) != other].copy()
    with pytest.raises(ValueError, match=f"has lost 1 \\('g{other}'\\)"):
        tl.replicability(fewer, n_splits=2)


def test_most_variable_genes(raw, normalised):
    tl.mcpca(raw, "context", n_comps=R, preprocess=Preprocess(n_top=8))
    fitted = raw.varm["MCPCs"].any(axis=1)
    assert fitted.sum() == 8
    assert list(raw.uns["mcpca"]["features"]) == list(raw.var_names[fitted])
    tl.mcpca(normalised, "context", n_comps=R, mask_var=fitted)
    np.testing.assert_allclose(raw.varm["MCPCs"], normalised.varm["MCPCs"], atol=2e-6)
    with pytest.raises(ValueError, match="mask_var and n_top=8 both select features"):
        tl.mcpca(raw, "context", n_comps=R, mask_var="highly_variable", preprocess=Preprocess(n_top=8))


def test_size_factors_in_obs(raw, counts):
    spec = Preprocess(size_factors="depth")
    tl.mcpca(raw, "context", n_comps=R, preprocess=spec, mask_var=None)
    expected = annotated(log1p_of_counts(counts, factors=np.linspace(0.5, 3, N)).astype(np.float32))
    tl.mcpca(expected, "context", n_comps=R, mask_var=None)
    np.testing.assert_allclose(raw.obsm["X_mcpca"], expected.obsm["X_mcpca"], atol=1e-5)
    assert tl.model(raw).preprocess == spec
    # Later rows bring their own.
    new = annotated(counts)[:50].copy()
    tl.transform(new, model=raw)
    np.testing.assert_allclose(new.obsm["X_mcpca"], expected.obsm["X_mcpca"][:50], atol=1e-5)
    del new.obs["depth"]
    with pytest.raises(ValueError, match=r"size_factors='depth' is no column of adata.obs"):
        tl.transform(new, model=raw)
    with pytest.raises(ValueError, match=r"size_factors='dept' is no column of adata.obs"):
        tl.mcpca(raw, "context", n_comps=R, preprocess=Preprocess(size_factors="dept"))


def test_rank(raw, normalised):
    options = {"ranks": [1, 2], "criteria": (), "mask_var": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mcpca.UncertainRankWarning)
        first = tl.rank(raw, "context", preprocess="log1p", **options)
        second = tl.rank(normalised, "context", **options)
    assert (first.rank, first.reason) == (second.rank, second.reason)
    tl.mcpca(raw, "context", n_comps=1, mask_var=None, preprocess="log1p")
    assert "rank" in raw.uns["mcpca"]
    # A rank that was chosen on other rows does not stay.
    tl.rank(raw, "context", preprocess="log1p", **options)
    with pytest.warns(RawCountsWarning):
        tl.mcpca(raw, "context", n_comps=1, mask_var=None)
    assert "rank" not in raw.uns["mcpca"]


def test_components_are_no_counts(raw):
    raw.obsm["X_pca"] = raw.X[:, :5].toarray()
    with pytest.raises(ValueError, match="preprocess with obsm='X_pca': rows there are no counts"):
        tl.mcpca(raw, "context", n_comps=R, obsm="X_pca", preprocess="log1p")


def test_cards_plots_and_reports(raw, normalised, tmp_path):
    pytest.importorskip("plotly")
    plt = pytest.importorskip("matplotlib.pyplot")
    from mcpca._results.fitted import fitted
    from mcpca._results.fitted_rows import rows_of_fit
    from mcpca.report import write_report

    tl.mcpca(raw, "context", n_comps=R, preprocess=Preprocess(n_top=8))
    said = "Rows were brought to a total of"
    assert all(said in card for card in describe(raw).values())
    assert all(said in card for card in describe(tl.model(raw)).values())
    # Rows that plots draw are prepared ones.
    space = rows_of_fit(raw, fitted(raw), "mcpca", None, None)
    columns = np.flatnonzero(raw.varm["MCPCs"].any(axis=1))
    np.testing.assert_allclose(space.contexts.dense_block(0), normalised.X[:100, columns].toarray(), atol=1e-5)
    mcpca.plotting.plot_scores(raw, 0)
    plt.close("all")
    write_report(raw, tmp_path / "report.html")
    assert said in (tmp_path / "report.html").read_text()
