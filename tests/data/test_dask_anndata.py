"""Rows of an AnnData that are on Dask stay there, and the answer is the one in memory."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import mcpca
from mcpca import MCPCA, DroppedContextsWarning, RawCountsWarning, plotting
from mcpca.datasets import make_contexts

anndata = pytest.importorskip("anndata")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

R, P, Q, N = 3, 12, 6, 300


@pytest.fixture(autouse=True)
def gathered_rows_are_an_error(monkeypatch):
    """Neither NumPy nor anyone else turns a matrix on Dask into one array here; scores may come."""
    compute = da.Array.compute

    def watched(self, *args, **kwargs):
        if self.ndim == 2 and self.shape[1] in (P, Q):
            raise AssertionError(f"an array of shape {self.shape} was gathered")
        return compute(self, *args, **kwargs)

    monkeypatch.setattr(da.Array, "compute", watched)  # by which NumPy goes as well
    with dask.config.set(scheduler="synchronous"):
        yield


def on_dask(X):
    rows = da.from_array(X.toarray() if sp.issparse(X) else X, chunks=(70, X.shape[1]))
    return rows.map_blocks(sp.csr_matrix) if sp.issparse(X) else rows


@pytest.fixture(params=["dense", "sparse"])
def pair(request):
    """The same AnnData in memory and with its matrices on Dask."""
    drawn = make_contexts(n_contexts=5, n_features=P, n_components=R, n_samples=60, noise=0.1, random_state=0)
    order = np.random.default_rng(0).permutation(N)
    X, y = drawn.X[order] + 1, np.asarray(drawn.y)[order]
    X = sp.csr_matrix(X * (X > 0)) if request.param == "sparse" else X
    obs = pd.DataFrame(
        {
            "donor": pd.Categorical([f"d{v}" for v in y], categories=[f"d{v}" for v in (9, 4, 3, 2, 1, 0)]),
            "number": y,
            "half": np.arange(N) % 2,
            "small": np.where(np.arange(N) < 5, "few", y.astype(str)),
            "gaps": pd.Series(np.where(np.arange(N) % 7 == 0, None, y.astype(str))).to_numpy(),
        },
        index=[f"c{i}" for i in range(N)],
    )
    var = pd.DataFrame({"highly_variable": np.arange(P) % 2 == 1}, index=[f"g{i}" for i in range(P)])
    both = []
    for move in (lambda M: M, on_dask):
        adata = anndata.AnnData(move(X), obs=obs.copy(), var=var.copy())
        adata.layers["twice"] = move(X * 2)
        adata.obsm["X_pca"] = move(np.asarray(X[:, :Q].toarray() if sp.issparse(X) else X[:, :Q]))
        both.append(adata)
    return both


def model():
    return MCPCA(R, random_state=0)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("key", ["donor", "number", ["donor", "half"]])
@pytest.mark.parametrize("view", [False, True])
def test_fit(pair, key, view):
    here, there = (adata[20:] if view else adata for adata in pair)
    found, expected = model().fit(there, key), model().fit(here, key)
    assert found.contexts_.tolist() == expected.contexts_.tolist()
    assert_close(found.components_, expected.components_)
    assert_close(found.loadings_, expected.loadings_)
    assert found.feature_names_in_.tolist() == expected.feature_names_in_.tolist()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_fitted_model_meets_rows_there(pair):
    here, there = pair
    fitted = model().fit(here, "donor")
    scores = fitted.transform(there, "donor")
    assert isinstance(scores, da.Array)
    assert_close(scores.compute(), fitted.transform(here, "donor"))
    assert_close(fitted.transform(there).compute(), fitted.transform(here))
    assert_close(fitted.loadings_for(there, "donor"), fitted.loadings_for(here, "donor"))
    assert_close(fitted.loadings_for(there), fitted.loadings_for(here))
    assert fitted.score(there, "donor") == pytest.approx(fitted.score(here, "donor"), rel=1e-9)


def test_contexts_apart(pair):
    here = pair[0]
    names = here.obs["donor"].cat.remove_unused_categories().cat.categories
    parts = [{name: adata[adata.obs["donor"] == name] for name in names} for adata in pair]
    found, expected = model().fit(parts[1]), model().fit(parts[0])
    assert_close(found.components_, expected.components_)
    assert found.feature_names_in_.tolist() == here.var_names.tolist()
    parts[1][names[1]] = parts[1][names[1]][:, ::-1]
    assert_close(model().fit(parts[1]).components_, expected.components_)


TL = [
    {},
    {"mask_var": None},
    {"layer": "twice"},
    {"obsm": "X_pca"},
    {"center": "context"},
    {"context_key": "small", "min_samples": 12},
    {"context_key": "gaps", "missing": "drop"},
    {"context_key": ["donor", "number"]},
]


@pytest.mark.parametrize("options", TL, ids=str)
def test_tl(pair, options):
    options = {"context_key": "donor", "n_comps": R, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedContextsWarning)
        here, there = (mcpca.tl.mcpca(adata, copy=True, **options) for adata in pair)
    assert_close(there.obsm["X_mcpca"], here.obsm["X_mcpca"])
    assert isinstance(there.obsm["X_mcpca"], np.ndarray)
    assert there.obs["mcpca_context"].equals(here.obs["mcpca_context"])
    for name in here.varm:
        assert_close(there.varm[name], here.varm[name])
    assert_close(there.uns["mcpca"]["loadings"], here.uns["mcpca"]["loadings"])
    assert_close(there.uns["mcpca"]["means"], here.uns["mcpca"]["means"])
    assert_close(mcpca.tl.model(there).components_, mcpca.tl.model(here).components_)
    new, expected = (mcpca.tl.loadings_for(adata[:, ::-1], "donor", model=adata) for adata in (there, here))
    pd.testing.assert_frame_equal(new, expected, atol=1e-8)
    assert isinstance(there.X, da.Array)


def test_new_rows_on_the_axes_of_a_fit(pair):
    """Without components of their own, rows there are projected there."""
    here, there = pair
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((P, Q)))[0]
    for adata in pair:
        adata.varm["PCs"] = axes
    here.obsm["X_pca"] = np.asarray(here.X @ axes)
    mcpca.tl.mcpca(here, "donor", n_comps=R, obsm="X_pca")
    del there.obsm["X_pca"]
    found = mcpca.tl.loadings_for(there, "donor", model=here)
    assert_close(found, mcpca.tl.loadings_for(here, "donor", model=here))


def test_rank(pair):
    """As in memory; with many features no rows would come here."""
    here, there = pair
    found, expected = (mcpca.tl.rank(adata, "donor", mask_var=None, criteria=()) for adata in (there, here))
    assert found.reason == expected.reason
    assert_close(found.replicability.cosines, expected.replicability.cosines)
    assert there.uns["mcpca"]["rank"]["rank"] == found.rank


def test_counts_are_looked_at_in_the_first_rows(pair):
    whole = pair[1].copy()
    counts = np.random.default_rng(0).poisson(20, (N, P)).astype(float)
    whole.X = on_dask(sp.csr_matrix(counts) if pair[0].X.__class__.__name__ == "csr_matrix" else counts)
    with pytest.warns(RawCountsWarning, match="adata.X looks like raw counts .* in its first 70 rows"):
        mcpca.tl.mcpca(whole, "donor", n_comps=R)


def test_nan_in_rows_that_were_left_out_and_in_others(pair):
    """Rows without a context may hold anything; others are named by their numbers."""
    here, there = pair
    X = (here.X.toarray() if sp.issparse(here.X) else here.X).copy()
    X[0, 3] = np.nan  # gaps has no label there
    gone = {"context_key": "gaps", "n_comps": R, "missing": "drop", "mask_var": None, "copy": True}
    there.X = on_dask(sp.csr_matrix(X) if sp.issparse(here.X) else X)
    with pytest.warns(DroppedContextsWarning), pytest.raises(ValueError, match=r"1 NaN .* within rows 0 to 0"):
        mcpca.tl.mcpca(there, **gone)  # scores are of all rows
    X[0, 3], X[75, 3] = 0, np.nan
    there.X = on_dask(sp.csr_matrix(X) if sp.issparse(here.X) else X)
    with pytest.warns(DroppedContextsWarning), pytest.raises(ValueError, match=r"1 NaN .* within rows 75 to 75"):
        mcpca.tl.mcpca(there, **gone)


def test_a_picture_of_rows_reads_those_of_a_context(pair):
    """The same points, of which those of other contexts do not come here."""
    plt = pytest.importorskip("matplotlib.pyplot")
    points = []
    for adata in pair:
        mcpca.tl.mcpca(adata, "donor", n_comps=R)
        axes = plotting.plot_plane(adata, "d1")
        points.append(np.asarray(axes.collections[0].get_offsets()))
        plt.close("all")
    assert len(points[0]) == 60
    assert_close(np.abs(points[1]), np.abs(points[0]))


def test_rows_of_a_file(pair, tmp_path):
    """Matrices of a file that are read when they are needed; only some rows are."""
    h5py = pytest.importorskip("h5py")
    here = pair[0]
    here.write_h5ad(tmp_path / "rows.h5ad")
    with h5py.File(tmp_path / "rows.h5ad") as file:
        rows = anndata.experimental.read_elem_lazy(file["X"], chunks=(70, P))
        there = anndata.AnnData(rows, obs=here.obs, var=here.var)
        assert_close(model().fit(there, "donor").components_, model().fit(here, "donor").components_)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("key", ["donor", "number", "small"])
def test_read_lazy(pair, tmp_path, key):
    pytest.importorskip("xarray")
    here = pair[0]
    here.write_h5ad(tmp_path / "rows.h5ad")
    there = anndata.experimental.read_lazy(tmp_path / "rows.h5ad")
    found, expected = model().fit(there, key), model().fit(here, key)
    assert found.contexts_.tolist() == expected.contexts_.tolist()
    assert_close(found.components_, expected.components_)
    assert found.feature_names_in_.tolist() == here.var_names.tolist()
    assert_close(found.transform(there, key).compute(), expected.transform(here, key))
    assert found.score(there, key) == pytest.approx(expected.score(here, key), rel=1e-9)
    assert_close(found.loadings_for(there, key), expected.loadings_for(here, key))


@pytest.mark.parametrize("options", TL, ids=str)
def test_tl_of_a_file_that_is_read_lazily(pair, tmp_path, options):
    pytest.importorskip("xarray")
    here = pair[0]
    here.write_h5ad(tmp_path / "rows.h5ad")
    there = anndata.experimental.read_lazy(tmp_path / "rows.h5ad")
    options = {"context_key": "donor", "n_comps": R, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedContextsWarning)
        for adata in (here, there):
            mcpca.tl.mcpca(adata, **options)
    assert_close(there.obsm["X_mcpca"], here.obsm["X_mcpca"])
    found, expected = (adata.obs["mcpca_context"] for adata in (there, here))
    assert pd.Series(found.data).astype(object).equals(expected.reset_index(drop=True).astype(object))
    assert_close(mcpca.tl.model(there).loadings_, mcpca.tl.model(here).loadings_)
    new, expected = (mcpca.tl.loadings_for(adata, "donor", model=adata) for adata in (there, here))
    pd.testing.assert_frame_equal(new, expected, atol=1e-8)
