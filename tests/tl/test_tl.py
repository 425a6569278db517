"""AnnData at home: what ``mcpca.tl`` computes, what it stores, and that it comes back from files."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from same_rows import assert_same_rows

import mcpca
from mcpca import (
    MCPCA,
    DroppedContextsWarning,
    IdentifiabilityWarning,
    NothingAboveNoiseError,
    RankSelection,
    RawCountsWarning,
)
from mcpca._data.anndata_rows import space_of
from mcpca._data.sources import ColumnSource, as_source
from mcpca._results.anndata_layout import keys_of
from mcpca._results.fitted import fitted
from mcpca.datasets import make_contexts

ad = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

# anndata announces at each write to Zarr how its next version will write.
pytestmark = [
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding:UserWarning"),
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning"),
]

K, P, R, N = 6, 12, 3, 50
GENES = np.array([f"gene{j}" for j in range(P)])
PATIENTS = ["p5", "p4", "p0", "p1", "p2", "p3"]
FORMS = np.array(["a/b", "c"])
MASK = np.arange(P) % 4 != 1


def draw(seed=3, **options):
    """Cells in random order; form and period together say the context, and two columns of var are masks."""
    data = make_contexts(K, P, R, n_samples=N, noise=0.1, random_state=seed, **options)
    order = np.random.default_rng(seed).permutation(len(data.X))
    y = data.y[order]
    X = data.X[order] + 0.1 * y[:, None]
    X[np.abs(X) < 0.05] = 0
    obs = pd.DataFrame(
        {
            "patient": pd.Categorical([f"p{i}" for i in y], categories=PATIENTS),
            "form": FORMS[y % 2],
            "period": y // 2,
        },
        index=[f"cell{i}" for i in range(len(y))],
    )
    return ad.AnnData(sp.csr_matrix(X), obs=obs, var=pd.DataFrame({"chosen": MASK}, index=GENES))


@pytest.fixture
def adata():
    return draw()


def dense(adata):
    return adata.X.toarray()


def same(stored, twin, path="uns"):
    """Every value equals its twin, in kind and content; text arrays may change their type in a file."""
    if hasattr(twin, "keys") and not isinstance(twin, pd.DataFrame):
        assert sorted(stored) == sorted(twin), path
        return all(same(stored[name], twin[name], f"{path}[{name!r}]") for name in twin)
    if isinstance(twin, pd.DataFrame):
        assert list(stored.index) == list(twin.index), path
        assert list(stored.columns) == list(twin.columns), path
        assert list(map(str, stored.dtypes)) == list(map(str, twin.dtypes)), path
        np.testing.assert_array_equal(stored.to_numpy(), twin.to_numpy(), err_msg=path)
    elif isinstance(twin, np.ndarray) and twin.dtype == object:
        assert [str(v) for v in stored] == twin.tolist(), path
    elif isinstance(twin, np.ndarray):
        assert stored.dtype == twin.dtype, path
        np.testing.assert_array_equal(stored, twin, err_msg=path)
    else:
        assert stored == twin, path
        assert type(stored) is type(twin), path
    return True


def same_model(model, twin):
    for name in ("components_", "loadings_", "projection_", "means_", "singular_values_", "n_samples_per_context_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(twin, name), err_msg=name)
    assert model.contexts_.tolist() == [str(name) for name in twin.contexts_]
    assert model.n_components_ == twin.n_components_
    assert (model.n_iter_, model.n_passes_) == (twin.n_iter_, twin.n_passes_)
    assert (
        getattr(model, "feature_names_in_", np.array([])).tolist()
        == getattr(twin, "feature_names_in_", np.array([])).tolist()
    )
    for facet in ("reconstruction_error", "variance_explained", "offdiagonal_correlation", "likelihood_loss"):
        np.testing.assert_array_equal(getattr(model, facet)(per="context"), getattr(twin, facet)(per="context"))
    np.testing.assert_array_equal(model.variance_explained(per="component"), twin.variance_explained(per="component"))
    np.testing.assert_array_equal(model.squared_norms(), twin.squared_norms())
    return True


# What is computed


def test_the_results_are_those_of_the_model(adata):
    assert mcpca.tl.mcpca(adata, "patient", n_comps=R) is None
    model = MCPCA(R, random_state=0).fit(adata, "patient")
    np.testing.assert_array_equal(adata.varm["MCPCs"], model.components_)
    np.testing.assert_array_equal(adata.varm["MCPCs_projection"], model.projection_.T)
    np.testing.assert_allclose(adata.obsm["X_mcpca"], model.transform(adata), atol=1e-12)
    table = adata.uns["mcpca"]["loadings"]
    np.testing.assert_array_equal(table, model.loadings_)
    assert table.index.tolist() == PATIENTS  # the order of the categories
    assert table.columns.tolist() == ["MCPC 1", "MCPC 2", "MCPC 3"]
    assert adata.obs["mcpca_context"].astype(str).tolist() == adata.obs["patient"].astype(str).tolist()
    contexts = adata.uns["mcpca"]["contexts"]
    assert contexts["n_samples"].tolist() == [N] * K
    np.testing.assert_array_equal(contexts["variance_explained"], model.variance_explained(per="context"))
    np.testing.assert_array_equal(contexts["reconstruction_error"], model.reconstruction_error(per="context"))
    params = adata.uns["mcpca"]["params"]
    assert params["version"] == mcpca.__version__
    assert (params["context_key"], params["n_comps"], params["random_state"]) == ("patient", R, 0)
    diagnostics = adata.uns["mcpca"]["diagnostics"]
    assert diagnostics["likelihood_loss"] == model.likelihood_loss()
    assert diagnostics["n_samples"] == N * K
    assert same_model(mcpca.tl.model(adata), model)
    np.testing.assert_array_equal(mcpca.tl.model(adata).landscape().curvatures, model.landscape().curvatures)
    np.testing.assert_array_equal(adata.uns["mcpca"]["landscape"]["F"], model.landscape().F)


def test_scores_are_centred_overall_or_by_context(adata):
    mcpca.tl.mcpca(adata, "patient", n_comps=R, center="context", key_added="own")
    model = MCPCA(R, random_state=0).fit(adata, "patient")
    np.testing.assert_allclose(adata.obsm["X_own"], model.transform(adata, "patient"), atol=1e-12)
    assert set(adata.varm) == {"own_MCPCs", "own_MCPCs_projection"}
    assert set(adata.uns) == {"own"}
    np.testing.assert_allclose(
        adata.obsm["X_own"][adata.obs["patient"] == "p2"].mean(axis=0), 0, atol=1e-12
    )  # fmt: skip
    mcpca.tl.mcpca(adata, "patient", n_comps=R)
    np.testing.assert_allclose(adata.obsm["X_mcpca"].mean(axis=0), 0, atol=1e-12)
    assert np.abs(adata.obsm["X_mcpca"][adata.obs["patient"] == "p2"].mean(axis=0)).max() > 0.01


def test_layers_masks_and_formats_give_the_same(adata):
    X = dense(adata)
    twin = MCPCA(R, random_state=0).fit(X[:, MASK], adata.obs["patient"])
    forms = {"csr": adata.X, "csc": adata.X.tocsc(), "dense": X, "single": X.astype(np.float32)}
    for name, matrix in forms.items():
        adata.layers[name] = matrix
    for name, atol in (("csr", 1e-9), ("csc", 1e-9), ("dense", 1e-9), ("single", 1e-5)):
        mcpca.tl.mcpca(adata, "patient", n_comps=R, layer=name, mask_var="chosen", key_added=name)
        A = adata.varm[f"{name}_MCPCs"]
        np.testing.assert_array_equal(A[~MASK], 0)
        np.testing.assert_allclose(A[MASK], twin.components_, atol=atol)
        np.testing.assert_allclose(adata.uns[name]["loadings"], twin.loadings_, atol=atol)
        np.testing.assert_allclose(adata.obsm[f"X_{name}"], twin.transform(X[:, MASK]), atol=10 * atol)
        # Scores are the centred rows times the projection in genes.
        centre = X.mean(axis=0)
        np.testing.assert_allclose(
            (X - centre) @ adata.varm[f"{name}_MCPCs_projection"], adata.obsm[f"X_{name}"], atol=1e-4
        )
        assert adata.uns[name]["features"].tolist() == GENES[MASK].tolist()
    assert adata.varm["single_MCPCs"].dtype == np.float32
    assert adata.uns["csr"]["params"]["mask_var"] == "chosen"


def test_highly_variable_is_taken_unless_told_otherwise(adata):
    adata.var["highly_variable"] = MASK
    mcpca.tl.mcpca(adata, "patient", n_comps=R)
    assert (adata.varm["MCPCs"] == 0).all(axis=1).tolist() == (~MASK).tolist()
    assert adata.uns["mcpca"]["params"]["mask_var"] == "highly_variable"
    mcpca.tl.mcpca(adata, "patient", n_comps=R, mask_var=None)
    assert (adata.varm["MCPCs"] != 0).all()
    mcpca.tl.mcpca(adata, "patient", n_comps=R, mask_var=~MASK)
    assert (adata.varm["MCPCs"] == 0).all(axis=1).tolist() == MASK.tolist()
    np.testing.assert_array_equal(adata.uns["mcpca"]["params"]["mask_var"], ~MASK)


def test_columns_of_a_source(adata):
    X, columns = dense(adata)[:31], np.array([7, 2, 3, 11])
    assert_same_rows(ColumnSource(as_source(X, "X"), columns), X[:, columns])
    assert_same_rows(ColumnSource(as_source(sp.csr_matrix(X), "X"), columns), X[:, columns])


@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_backed_matrices_are_read_and_not_loaded(adata, tmp_path, layout):
    adata.X = adata.X if layout == "csr" else dense(adata)
    adata.var["highly_variable"] = MASK
    adata.layers["twice"] = 2 * adata.X
    adata.write_h5ad(tmp_path / "a.h5ad")
    mcpca.tl.mcpca(adata, "patient", n_comps=R)
    backed = ad.read_h5ad(tmp_path / "a.h5ad", backed="r")
    assert not space_of(backed, None, None, "auto").source.in_memory
    mcpca.tl.mcpca(backed, "patient", n_comps=R)
    np.testing.assert_allclose(backed.varm["MCPCs"], adata.varm["MCPCs"], atol=1e-9)
    np.testing.assert_allclose(backed.obsm["X_mcpca"], adata.obsm["X_mcpca"], atol=1e-9)
    mcpca.tl.mcpca(backed, "patient", n_comps=R, layer="twice", mask_var=None, key_added="all")
    mcpca.tl.mcpca(adata, "patient", n_comps=R, mask_var=None, key_added="all")
    np.testing.assert_allclose(backed.uns["all"]["loadings"], 4 * adata.uns["all"]["loadings"], atol=1e-8)
    with pytest.raises(ValueError, match="copy=True would copy the file"):
        mcpca.tl.mcpca(backed, "patient", n_comps=R, copy=True)
    with pytest.raises(ValueError, match=r"adata is a view of a backed AnnData.*to_memory\(\)"):
        mcpca.tl.mcpca(backed[:100], "patient", n_comps=R)
    backed.file.close()


def test_sparse_rows_are_not_made_dense(adata, monkeypatch):
    """By passes, as where there are many features."""
    mcpca.tl.mcpca(adata, "patient", n_comps=R, tol=1e-9, mask_var="chosen", key_added="stack")
    monkeypatch.setattr("mcpca._covariances.fit_data.MOST_NUMBERS", 0)

    def refuse(*args, **options):
        raise AssertionError("made dense")

    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array):
        monkeypatch.setattr(kind, "toarray", refuse)
        monkeypatch.setattr(kind, "todense", refuse)
    mcpca.tl.mcpca(adata, "patient", n_comps=R, mask_var="chosen")
    assert adata.uns["mcpca"]["diagnostics"]["n_passes"] > 0
    assert adata.uns["mcpca"]["diagnostics"]["basis_error"] <= 0.1
    assert adata.uns["stack"]["params"]["tol"] == 1e-9
    np.testing.assert_allclose(adata.varm["MCPCs"], adata.varm["stack_MCPCs"], atol=1e-3)
    mcpca.tl.mcpca(adata, "patient", n_comps=R, tol=1e-9, mask_var="chosen")
    np.testing.assert_allclose(adata.varm["MCPCs"], adata.varm["stack_MCPCs"], atol=1e-6)


# Contexts


def test_crossed_contexts_with_few_rows_and_none(adata):
    few = np.flatnonzero((adata.obs["form"] == "c") & (adata.obs["period"] == 2))[7:]
    adata = adata[np.setdiff1d(np.arange(adata.n_obs), few)].copy()
    adata.obs["form"] = adata.obs["form"].where(np.arange(adata.n_obs) >= 4)
    with pytest.raises(ValueError, match=r"4 of \d+ rows have no label \(NaN\)\. missing='drop' leaves"):
        mcpca.tl.mcpca(adata, ["form", "period"], n_comps=R)
    with (
        pytest.warns(DroppedContextsWarning, match=r"1 of 6 contexts have fewer than min_samples=10 .* 'c / 2' \(7\)"),
        pytest.warns(DroppedContextsWarning, match=r"4 of \d+ rows have no context"),
    ):
        mcpca.tl.mcpca(adata, ["form", "period"], n_comps=R, missing="drop")
    stored = adata.uns["mcpca"]
    assert stored["loadings"].index.tolist() == ["a/b / 0", "a/b / 1", "a/b / 2", "c / 0", "c / 1"]
    assert stored["levels"]["form"].tolist() == ["a/b"] * 3 + ["c"] * 2
    assert stored["levels"]["period"].tolist() == ["0", "1", "2", "0", "1"]
    assert stored["dropped"]["contexts"]["n_samples"].to_dict() == {"c / 2": 7}
    assert stored["dropped"]["n_missing"] == 4
    assert [text[:1] for text in stored["diagnostics"]["warnings"]] == ["1", "4"]
    # The model knows only the others, and every row has scores.
    used = adata.obs["form"].notna() & ~((adata.obs["form"] == "c") & (adata.obs["period"] == 2))
    labels = adata.obs["form"][used] + " / " + adata.obs["period"][used].astype(str)
    twin = MCPCA(R, random_state=0).fit(dense(adata)[used], labels)
    np.testing.assert_allclose(stored["loadings"], twin.loadings_, atol=1e-9)
    np.testing.assert_allclose(adata.obsm["X_mcpca"], twin.transform(dense(adata)), atol=1e-9)
    assert adata.obs["mcpca_context"].notna().tolist() == used.tolist()
    assert adata.obs["mcpca_context"][used].astype(str).tolist() == labels.tolist()
    with pytest.warns(DroppedContextsWarning):
        mcpca.tl.mcpca(adata, ["form", "period"], n_comps=R, missing="drop", center="context")
    assert np.isfinite(adata.obsm["X_mcpca"]).all(axis=1).tolist() == used.tolist()
    np.testing.assert_allclose(adata.obsm["X_mcpca"][used], twin.transform(dense(adata)[used], labels), atol=1e-9)


def test_weights_go_by_context(adata):
    weights = {f"p{i}": i + 1.0 for i in range(K)}
    mcpca.tl.mcpca(adata, "patient", n_comps=2, solver="lsq", context_weights=weights)
    twin = MCPCA(2, solver="lsq", context_weights=weights, random_state=0).fit(adata, "patient")
    np.testing.assert_allclose(adata.uns["mcpca"]["loadings"], twin.loadings_, atol=1e-9)
    order = [float(name[1]) + 1 for name in adata.uns["mcpca"]["loadings"].index]
    np.testing.assert_allclose(adata.uns["mcpca"]["params"]["context_weights"], np.array(order) / np.mean(order))
    with pytest.raises(ValueError, match="context_weights lacks"):
        mcpca.tl.mcpca(adata, "patient", n_comps=2, context_weights={"p0": 1.0})


# Principal components


def with_pca(adata, d=8, key=None):
    """What scanpy's PCA leaves: scores, and axes with zeros for genes left out."""
    X = dense(adata)[:, MASK]
    mean = X.mean(axis=0)
    axes = np.zeros((P, d))
    axes[MASK] = np.linalg.svd(X - mean, full_matrices=False)[2][:d].T
    adata.obsm[key or "X_pca"] = (X - mean) @ axes[MASK]
    adata.varm[key or "PCs"] = axes
    return adata


@pytest.mark.parametrize("key", ["X_pca", "mine"])
def test_fits_on_principal_components_are_told_in_genes(adata, key):
    with_pca(adata, key=None if key == "X_pca" else key)
    axes = adata.varm["PCs" if key == "X_pca" else key]
    mcpca.tl.mcpca(adata, "patient", n_comps=R, obsm=key)
    twin = MCPCA(R, random_state=0).fit(adata.obsm[key], adata.obs["patient"])
    np.testing.assert_allclose(adata.varm["MCPCs"], axes @ twin.components_, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(adata.varm["MCPCs"], axis=0), 1)
    np.testing.assert_array_equal(adata.varm["MCPCs"][~MASK], 0)
    np.testing.assert_array_equal(adata.uns["mcpca"]["components"], twin.components_)
    centred = dense(adata) - dense(adata).mean(axis=0)
    np.testing.assert_allclose(centred @ adata.varm["MCPCs_projection"], adata.obsm["X_mcpca"], atol=1e-10)
    assert same_model(mcpca.tl.model(adata), twin)


def test_other_columns_of_obsm_stay_out_of_var(adata):
    with_pca(adata)
    mcpca.tl.mcpca(adata, "patient", n_comps=R)  # leaves MCPCs in varm, which must not be taken for those to come
    adata.obsm["lsi"] = pd.DataFrame(adata.obsm["X_pca"], columns=[f"d{j}" for j in range(8)], index=adata.obs_names)
    mcpca.tl.mcpca(adata, "patient", n_comps=R, obsm="lsi")
    assert set(adata.varm) == {"PCs"}
    assert adata.uns["mcpca"]["features"].tolist() == [f"d{j}" for j in range(8)]
    drawn = fitted(adata)
    np.testing.assert_array_equal(drawn.components, adata.uns["mcpca"]["components"])
    np.testing.assert_allclose(drawn.projection @ drawn.components, np.eye(R), atol=1e-12)


# What is stored


def rich(adata):
    """A fit with everything that can be stored."""
    adata.obs.loc[adata.obs_names[:3], "form"] = None
    few = np.flatnonzero((adata.obs["form"] == "c") & (adata.obs["period"] == 2))[8:]
    adata = adata[np.setdiff1d(np.arange(adata.n_obs), few)].copy()
    with pytest.warns(DroppedContextsWarning):
        mcpca.tl.mcpca(
            adata, ["form", "period"], n_comps=None, solver="ml", mask_var="chosen", missing="drop", key_added="fit"
        )
    return adata


@pytest.mark.parametrize("form", ["h5ad", "zarr"])
def test_everything_comes_back_from_files(adata, tmp_path, form):
    adata = rich(adata)
    with_pca(adata)
    mcpca.tl.mcpca(adata, "patient", n_comps=2, obsm="X_pca", solver="ml", noise="diagonal", min_samples=5)
    mcpca.tl.mcpca(adata, "patient", rank_range=range(1, 4), n_seed_pairs=2, key_added="paper", min_samples=5)
    path = tmp_path / f"a.{form}"
    adata.write_h5ad(path) if form == "h5ad" else adata.write_zarr(path)
    back = ad.read_h5ad(path) if form == "h5ad" else ad.read_zarr(path)
    assert adata.uns["fit"]["params"]["layer"] is None
    assert adata.uns["fit"]["loadings"].index[0] == "a/b / 0"
    for key in ("fit", "mcpca", "paper"):
        assert same(back.uns[key], adata.uns[key])
        names = keys_of(key)
        np.testing.assert_array_equal(back.obsm[names.scores], adata.obsm[names.scores])
        for name in (names.components, names.projection):
            np.testing.assert_array_equal(back.varm[name], adata.varm[name])
        pd.testing.assert_series_equal(back.obs[names.context], adata.obs[names.context])
        model, twin = mcpca.tl.model(back, key), mcpca.tl.model(adata, key)
        assert same_model(model, twin)
        assert model.get_params() == twin.get_params()
        pictured, expected = fitted(back, key), fitted(adata, key)
        np.testing.assert_array_equal(pictured.loadings, expected.loadings)
        assert pictured.contexts == expected.contexts
        assert pictured.labels.tolist() == expected.labels.tolist()
    model = mcpca.tl.model(back, "fit")
    np.testing.assert_array_equal(model.standard_errors().angles, mcpca.tl.model(adata, "fit").standard_errors().angles)
    assert isinstance(model.rank_choice_, RankSelection)
    assert model.rank_choice_.rank == adata.uns["fit"]["rank"]["rank"] == model.n_components_
    assert mcpca.tl.model(back, "paper").rank_choice_.scores.shape == (3, 2)


@pytest.mark.parametrize("options", [{"solver": "mspm"}, {"solver": "lsq", "orthogonal": True}, {"solver": "ml"}])
def test_the_model_is_rebuilt_as_it_was(adata, options):
    mcpca.tl.mcpca(adata, "patient", n_comps=R, mask_var="chosen", **options)
    twin = MCPCA(R, random_state=0, **options).fit(adata[:, MASK].copy(), "patient")
    model = mcpca.tl.model(adata[:50])  # rows may be lost
    assert same_model(model, twin)
    assert {**model.get_params(), "tol": 0} == {**twin.get_params(), "tol": 0}
    new = draw(seed=4)[:, MASK].copy()
    np.testing.assert_array_equal(model.transform(new, "patient"), twin.transform(new, "patient"))
    np.testing.assert_array_equal(model.loadings_for(new, "patient"), twin.loadings_for(new, "patient"))
    if options["solver"] == "ml":
        np.testing.assert_array_equal(model.presence().p_values, twin.presence().p_values)
        np.testing.assert_array_equal(adata.uns["mcpca"]["contexts"]["noise_variance"], twin.noise_variance_)
    with pytest.raises(ValueError, match=r"was made on 9 features, of which adata has lost 8 \('gene2', "):
        mcpca.tl.model(adata[:, :2])


def test_params_repeat_the_run(adata):
    mcpca.tl.mcpca(adata, "patient", n_comps=R, random_state=np.random.default_rng(5))
    seed = adata.uns["mcpca"]["params"]["random_state"]
    assert isinstance(seed, int)
    first = adata.varm["MCPCs"]
    mcpca.tl.mcpca(adata, "patient", n_comps=R, random_state=seed)
    np.testing.assert_array_equal(adata.varm["MCPCs"], first)


def test_copies_and_views(adata):
    before = adata.copy()
    result = mcpca.tl.mcpca(adata, "patient", n_comps=R, copy=True)
    assert set(result.obsm) == {"X_mcpca"}
    assert not adata.obsm
    assert not adata.uns
    assert adata.obs.equals(before.obs)
    view = adata[adata.obs["patient"] != "p5"]
    with pytest.warns(ad.ImplicitModificationWarning):
        mcpca.tl.mcpca(view, "patient", n_comps=R)
    assert view.uns["mcpca"]["loadings"].index.tolist() == ["p4", "p0", "p1", "p2", "p3"]
    assert not adata.uns


def test_a_fit_that_fails_leaves_everything_as_it_was(adata):
    mcpca.tl.mcpca(adata, "patient", n_comps=R)
    before = adata.copy()
    adata.X.data[7] = before.X.data[7] = np.nan
    with pytest.raises(ValueError, match="contains 1 NaN"):
        mcpca.tl.mcpca(adata, ["form", "period"], n_comps=2)
    assert same(adata.uns["mcpca"], before.uns["mcpca"])
    np.testing.assert_array_equal(adata.obsm["X_mcpca"], before.obsm["X_mcpca"])
    assert adata.obs.equals(before.obs)
    assert set(adata.varm) == set(before.varm)


# The rank


def test_rank_is_returned_and_stored(adata):
    selection = mcpca.tl.rank(adata, "patient", criteria=())
    twin = mcpca.select_rank(adata, "patient", criteria=(), random_state=0)
    assert selection.rank == twin.rank == R
    stored = adata.uns["mcpca"]["rank"]
    assert (stored["rank"], stored["reason"]) == (R, selection.reason)
    assert RankSelection.from_json(stored["json"]).reason == selection.reason
    pd.testing.assert_frame_equal(stored["table"], selection.table)
    with pytest.raises(ValueError, match="key='mcpca' names no fit"):
        mcpca.tl.model(adata)
    # A fit of the same rows and features keeps it, one of others does not.
    mcpca.tl.mcpca(adata, "patient", n_comps=2)
    assert adata.uns["mcpca"]["rank"]["rank"] == R
    assert mcpca.tl.model(adata).rank_choice_ is None  # it was given
    mcpca.tl.mcpca(adata, "patient", n_comps=2, mask_var="chosen")
    assert "rank" not in adata.uns["mcpca"]
    mcpca.tl.mcpca(adata, "patient")
    assert adata.uns["mcpca"]["rank"]["rank"] == R == adata.obsm["X_mcpca"].shape[1]
    mcpca.tl.rank(adata, "patient", criteria=(), null="features")
    assert adata.uns["mcpca"]["loadings"].shape == (K, R)  # beside the fit
    with pytest.warns(mcpca.SmallContextsWarning, match=rf"1 of {K + 1} contexts.*stay in the fit: 'few' \(3\)"):
        chosen = mcpca.tl.rank(_with_few(adata), "patient", min_samples=2, criteria=())
    with pytest.warns(mcpca.SmallContextsWarning, match=r"'few' \(3\)"):
        fitted = mcpca.tl.mcpca(_with_few(adata), "patient", min_samples=2, copy=True)
    assert fitted.uns["mcpca"]["rank"]["reason"] == chosen.reason


def _with_few(adata):
    """The same with a context of three rows."""
    other = adata.copy()
    other.obs["patient"] = ["few"] * 3 + [str(name) for name in adata.obs["patient"][3:]]
    return other


def test_ranks_of_many_features_are_looked_for_by_passes(adata, monkeypatch):
    monkeypatch.setattr("mcpca._covariances.fit_data.MOST_NUMBERS", 0)
    chosen = mcpca.tl.rank(adata, "patient", criteria=())
    twin = mcpca.select_rank(dense(adata), adata.obs["patient"], criteria=(), random_state=0)
    assert chosen.rank == twin.rank
    np.testing.assert_allclose(chosen.replicability.agreement, twin.replicability.agreement, atol=1e-3)
    assert adata.uns["mcpca"]["rank"]["reason"] == chosen.reason


def test_noise_is_refused(rng):
    noise = ad.AnnData(rng.standard_normal((400, 10)), obs={"batch": np.repeat(["a", "b", "c", "d"], 100)})
    noise.obs_names = [f"c{i}" for i in range(400)]
    with pytest.raises(NothingAboveNoiseError, match="Nothing is above noise"):
        mcpca.tl.mcpca(noise, "batch")
    assert not noise.uns
    assert mcpca.tl.rank(noise, "batch", criteria=()).rank == 0


# New contexts


def test_loadings_for_finds_features_by_name(adata):
    mcpca.tl.mcpca(adata, "patient", n_comps=R, mask_var="chosen")
    model = mcpca.tl.model(adata)
    new = draw(seed=9)
    expected = model.loadings_for(new[:, MASK].X, new.obs["patient"])
    extra = ad.AnnData(sp.csr_matrix(np.ones((new.n_obs, 2))), obs=new.obs, var=pd.DataFrame(index=["x", "y"]))
    wide = ad.concat([new, extra], axis=1, merge="same")
    wide = wide[:, np.random.default_rng(1).permutation(wide.n_vars)].copy()
    wide.obs = new.obs
    for source in (adata, model):
        table = mcpca.tl.loadings_for(wide, "patient", model=source)
        assert table.index.tolist() == new.obs["patient"].cat.categories.tolist()
        assert table.columns.tolist() == ["MCPC 1", "MCPC 2", "MCPC 3"]
        np.testing.assert_allclose(table, expected, atol=1e-9)
    one = mcpca.tl.loadings_for(wide, model=adata)
    assert one.index.tolist() == ["all"]
    np.testing.assert_allclose(one.iloc[0], model.loadings_for(new[:, MASK].X), atol=1e-9)
    only = wide[wide.obs["patient"] == "p3"].copy()  # one context is fine here
    np.testing.assert_allclose(mcpca.tl.loadings_for(only, "patient", model=adata), table.loc[["p3"]], atol=1e-9)
    with pytest.raises(ValueError, match=r"adata lacks 8 of the 9 features of the fit: 'gene2', 'gene3'.* and 3 more"):
        mcpca.tl.loadings_for(new[:, :2].copy(), "patient", model=adata)
    with pytest.raises(ValueError, match="model has no names of features to find those of adata by"):
        mcpca.tl.loadings_for(new, "patient", model=MCPCA(2, random_state=0).fit(dense(adata), adata.obs["patient"]))
    with pytest.raises(TypeError, match="model is a str; pass the AnnData with a fit"):
        mcpca.tl.loadings_for(new, "patient", model="mcpca")


def test_loadings_for_takes_the_noise_out_unless_told_otherwise(adata):
    adata.X = dense(adata) + 0.5 * np.random.default_rng(0).standard_normal(adata.shape)
    mcpca.tl.mcpca(adata, "patient", n_comps=R)
    stored = adata.uns["mcpca"]
    table = mcpca.tl.loadings_for(adata, "patient", model=adata)
    np.testing.assert_allclose(table, stored["corrected_loadings"], atol=1e-8)
    assert table.attrs["loadings"] == "corrected loadings: the noise of each context is taken out"
    table = mcpca.tl.loadings_for(adata, "patient", model=adata, corrected=False)
    np.testing.assert_allclose(table, stored["loadings"], atol=1e-8)
    assert table.attrs["loadings"] == "loadings as fitted: the noise of each context is in them"
    assert (stored["loadings"].to_numpy() > stored["corrected_loadings"].to_numpy() + 0.05).any()
    # An older version knew neither.
    for name in ("corrected_loadings", "noise_variance"):
        del stored[name]
    table = mcpca.tl.loadings_for(adata, "patient", model=adata)
    np.testing.assert_allclose(table, stored["loadings"], atol=1e-8)
    assert "a fit of an older mcpca has no corrected ones" in table.attrs["loadings"]


def test_loadings_for_fits_on_a_layer(adata):
    adata.layers["log"] = adata.X * 2
    mcpca.tl.mcpca(adata, "patient", n_comps=R, layer="log")
    np.testing.assert_allclose(
        mcpca.tl.loadings_for(adata, "patient", model=adata), adata.uns["mcpca"]["corrected_loadings"], atol=1e-8
    )
    del adata.layers["log"]
    with pytest.raises(ValueError, match=r"layer='log' is not in adata\.layers, which has none"):
        mcpca.tl.loadings_for(adata, "patient", model=adata)


def test_loadings_for_fits_on_principal_components(adata):
    with_pca(adata)
    mcpca.tl.mcpca(adata, "patient", n_comps=R, obsm="X_pca")
    loadings = adata.uns["mcpca"]["corrected_loadings"]
    np.testing.assert_allclose(mcpca.tl.loadings_for(adata, "patient", model=adata), loadings, atol=1e-8)
    # From genes, whose mean does not matter, and in any order.
    genes = draw()[:, ::-1].copy()
    genes.X = dense(genes) + 5
    np.testing.assert_allclose(mcpca.tl.loadings_for(genes, "patient", model=adata), loadings, atol=1e-8)
    # On components that were computed anew the same numbers would mean something else.
    other = with_pca(draw(seed=8))
    with pytest.raises(ValueError, match="is on other components than those of the fit"):
        mcpca.tl.loadings_for(other, "patient", model=adata)
    other.obsm["X_pca"] = dense(other) @ adata.varm["PCs"]
    del other.varm["PCs"]
    expected = mcpca.tl.model(adata).loadings_for(other.obsm["X_pca"], other.obs["patient"])
    np.testing.assert_allclose(mcpca.tl.loadings_for(other, "patient", model=adata), expected, atol=1e-9)
    # Axes that were replaced after the fit are not those of the fit.
    adata.varm["PCs"] = np.roll(adata.varm["PCs"], 1, axis=1)
    del other.obsm["X_pca"]
    with pytest.raises(ValueError, match=r"adata\.obsm\['X_pca'\] is not there\. The axes of the fit are not known"):
        mcpca.tl.loadings_for(other, "patient", model=adata)


# Bad input


@pytest.mark.parametrize(
    ("change", "arguments", "error", "message"),
    [
        (None, {"context_key": "pateint"}, ValueError, r"context_key='pateint' is not a column of adata.obs, which has "
         r"'patient', 'form', 'period'; did you mean 'patient'\?"),
        (None, {"context_key": ["form", "epoch"]}, ValueError, "context_key='epoch' is not a column of adata.obs"),
        (None, {"context_key": 3}, TypeError, "context_key=3; pass the name of a column"),
        (lambda a: a.obs.insert(0, "one", "x"), {"context_key": "one"}, ValueError,
         r"context_key='one' has one context only, 'x'.*sc\.pp\.pca"),
        (lambda a: a.obs.insert(0, "id", np.arange(a.n_obs)), {"context_key": "id"}, ValueError,
         "0 of 300 contexts have min_samples=10 rows or more, and the largest of them has 1. 2 are needed"),
        (lambda a: setattr(a, "var_names", ["g", "g", "h", "h", *GENES[4:]]), {}, ValueError,
         r"2 names that more than one feature has: 'g', 'h'\. .*adata\.var_names_make_unique\(\)"),
        (None, {"layer": "logs"}, ValueError, "layer='logs' is not in adata.layers, which has none"),
        (lambda a: a.obsm.__setitem__("X_pca", np.ones((a.n_obs, 3))), {"obsm": "pca"}, ValueError,
         r"obsm='pca' is not in adata.obsm, which has 'X_pca'; did you mean 'X_pca'\?"),
        (lambda a: a.obsm.__setitem__("X_pca", np.ones((a.n_obs, 3))), {"obsm": "X_pca", "mask_var": "chosen"},
         ValueError, "mask_var='chosen' selects features of var"),
        (lambda a: a.obsm.__setitem__("X_pca", np.ones((a.n_obs, 3))), {"obsm": "X_pca", "layer": "log"},
         ValueError, "layer='log' and obsm='X_pca' are both given"),
        (None, {"mask_var": "chose"}, ValueError, r"mask_var='chose' is not a column of adata.var.*mean 'chosen'\?"),
        (None, {"mask_var": np.ones(5, bool)}, ValueError, r"mask_var=<ndarray> has dtype bool and shape \(5,\)"),
        (None, {"mask_var": np.ones(P)}, ValueError, "mask_var=<ndarray> has dtype float64"),
        (None, {"mask_var": np.zeros(P, bool)}, ValueError, "selects none of the 12 features"),
        (None, {"center": "own"}, ValueError, "center='own'; choose 'overall' or 'context'"),
        (None, {"missing": "keep"}, ValueError, "missing='keep'; choose 'error' or 'drop'"),
        (None, {"min_samples": 1}, ValueError, "min_samples=1 is out of bounds: min_samples >= 2"),
        (None, {"n_comps": 40}, ValueError, "n_components=40 is out of bounds"),
        (None, {"key_added": "a/b"}, ValueError, "key_added='a/b'; pass a name without '/'"),
        (None, {"random_state": "x"}, ValueError, "random_state='x' is a str"),
        (None, {"orthogonl": True}, TypeError, r"no parameter 'orthogonl'; did you mean 'orthogonal'\?"),
        (None, {"colour": "red"}, TypeError, "no parameter 'colour'; there are 'context_weights', "),
        (lambda a: setattr(a, "X", None), {}, ValueError, "its X is None"),
    ],
)  # fmt: skip
def test_bad_input(adata, change, arguments, error, message):
    if change is not None:
        change(adata)
    keys = set(adata.uns), set(adata.obsm), set(adata.varm), set(adata.obs)
    with pytest.raises(error, match=message):
        mcpca.tl.mcpca(adata, **{"context_key": "patient", "n_comps": R, **arguments})
    assert (set(adata.uns), set(adata.obsm), set(adata.varm), set(adata.obs)) == keys


def test_files_of_older_anndata_have_no_none(adata):
    mcpca.tl.rank(adata, "patient", criteria=())
    mcpca.tl.mcpca(adata, "patient", n_comps=R, solver="ml", noise=None)
    for part in (adata.uns["mcpca"]["params"], adata.uns["mcpca"]["rank"]["data"], adata.uns["mcpca"]["diagnostics"]):
        for name in [name for name, value in part.items() if value is None]:
            del part[name]
    model = mcpca.tl.model(adata)
    assert model.noise is None
    assert model.n_passes_ is None
    mcpca.tl.mcpca(adata, "patient", n_comps=2)
    assert adata.uns["mcpca"]["rank"]["rank"] == R
    np.testing.assert_allclose(
        mcpca.tl.loadings_for(adata, "patient", model=adata), adata.uns["mcpca"]["corrected_loadings"]
    )


def test_no_anndata(adata, monkeypatch):
    for call in (mcpca.tl.mcpca, mcpca.tl.rank):
        with pytest.raises(TypeError, match=r"adata is a ndarray, not an AnnData; .*takes everything else"):
            call(np.eye(3), "patient")
    monkeypatch.setitem(sys.modules, "anndata", None)
    for call in (mcpca.tl.mcpca, mcpca.tl.rank):
        with pytest.raises(ImportError, match=r'pip install "mcpca\[anndata\]"'):
            call(adata, "patient")
    with pytest.raises(ImportError, match=r'pip install "mcpca\[anndata\]"'):
        mcpca.tl.model(adata)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[anndata\]"'):
        mcpca.tl.loadings_for(adata, model=adata)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_raw_counts_are_warned_of(rng, form):
    programs = rng.gamma(1, 4, (3, P))
    y = rng.integers(0, 4, 400)
    counts = rng.poisson(rng.gamma(1, 1, (400, 3)) @ programs).astype(np.float32)
    counts[:, 0] = 0
    raw = ad.AnnData(sp.csr_matrix(counts) if form == "csr" else counts, obs={"batch": y.astype(str)})
    raw.obs_names = [f"c{i}" for i in range(400)]
    raw.layers["log"] = np.log1p(counts)
    raw.layers["few"] = np.minimum(counts, 10)
    raw.layers["signed"] = counts - 1
    message = r"adata\.X looks like raw counts .*sc\.pp\.normalize_total\(adata\) and sc\.pp\.log1p\(adata\)"
    with pytest.warns(RawCountsWarning, match=message) as caught:
        mcpca.tl.mcpca(raw, "batch", n_comps=2)
    assert caught[0].filename == __file__  # the line of the caller
    assert "raw counts" in raw.uns["mcpca"]["diagnostics"]["warnings"][0]
    with pytest.warns(RawCountsWarning):
        mcpca.tl.rank(raw, "batch", criteria=(), ranks=[1])
    for layer in ("log", "few", "signed"):  # a warning would be an error
        mcpca.tl.mcpca(raw, "batch", n_comps=2, layer=layer)


def test_warnings_of_the_fit_are_issued_and_kept(adata):
    twice = ad.concat([adata, adata], keys=["u", "v"], label="copy", index_unique="-")  # contexts that are the same
    with pytest.warns(IdentifiabilityWarning, match="proportional loadings") as caught:
        mcpca.tl.mcpca(twice, "copy", n_comps=2)
    assert caught[0].filename == __file__
    assert twice.uns["mcpca"]["diagnostics"]["warnings"].tolist() == [str(caught[0].message)]
    B = twice.uns["mcpca"]["loadings"].to_numpy()
    np.testing.assert_allclose(B[0], B[1], rtol=1e-9)


# In company


def test_three_lines_to_a_figure(adata):
    plt = pytest.importorskip("matplotlib.pyplot")
    assert mcpca.pl is mcpca.plotting
    mcpca.tl.mcpca(adata, "patient", n_comps=R)
    ax = mcpca.pl.plot_loadings(mcpca.tl.model(adata))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["p5", "p4", "p0", "p1", "p2", "p3"]
    plt.close("all")


@pytest.mark.filterwarnings("ignore")  # of scanpy and what it imports
def test_neighbours_and_umap_of_scanpy(adata, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # compiling takes ten times as long as what is compiled for
    sc = pytest.importorskip("scanpy")
    sc.pp.pca(adata, n_comps=8)
    mcpca.tl.mcpca(adata, "patient", n_comps=R, obsm="X_pca")
    np.testing.assert_allclose(np.linalg.norm(adata.varm["MCPCs"], axis=0), 1, rtol=1e-6)
    sc.pp.neighbors(adata, use_rep="X_mcpca", n_neighbors=5)
    sc.tl.umap(adata, maxiter=5)
    assert adata.obsm["X_umap"].shape == (N * K, 2)
    # The nearest neighbours are those of the scores.
    distances = adata.obsp["distances"].toarray()
    Z = adata.obsm["X_mcpca"]
    near = np.argsort(((Z - Z[0]) ** 2).sum(axis=1))[1:5]
    assert set(near) <= set(np.flatnonzero(distances[0]))


@pytest.mark.parametrize("suffix", ["", "h5ad"])
def test_a_chosen_solver_is_stored_and_comes_back(adata, tmp_path, suffix):
    mcpca.tl.mcpca(adata, "patient", n_comps=R, solver="auto")
    twin = MCPCA(R, solver="auto", random_state=0).fit(adata, "patient")
    if suffix:
        adata.write_h5ad(tmp_path / "fit.h5ad")
        adata = ad.read_h5ad(tmp_path / "fit.h5ad")
    model = mcpca.tl.model(adata)
    assert (model.solver, model.solver_, model.noise_) == ("auto", twin.solver_, twin.noise_)
    assert model.solver_choice_.to_json() == twin.solver_choice_.to_json()
    stored = adata.uns["mcpca"]["solver"]
    assert (stored["solver"], stored["noise"], stored["reason"]) == (
        twin.solver_,
        twin.noise_ or "none",
        twin.solver_choice_.reason,
    )
    assert stored["table"].index[0] == twin.solver_choice_.best
    assert fitted(adata, "mcpca").noise == twin.noise_
    # Another fit under this key leaves nothing of the choice.
    mcpca.tl.mcpca(adata, "patient", n_comps=R)
    assert "solver" not in adata.uns["mcpca"]
    assert mcpca.tl.model(adata).solver_choice_ is None
