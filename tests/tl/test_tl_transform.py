"""Scores of new rows on a fit that another AnnData holds: those of ``MCPCA.transform``, found and centred by name."""

import numpy as np
import pytest
import scipy.sparse as sp

import mcpca
from mcpca import MCPCA
from mcpca.datasets import make_contexts

ad = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

K, P, R, N = 5, 10, 3, 40
GENES = np.array([f"gene{j}" for j in range(P)])


def draw(seed=3):
    """Cells whose means differ between patients, with numbers and text for patients."""
    data = make_contexts(K, P, R, n_samples=N, noise=0.1, random_state=1)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.X))
    y = data.y[order]
    X = data.X[order] + 0.3 * y[:, None]
    X[np.abs(X) < 0.05] = 0
    obs = pd.DataFrame({"patient": [f"p{i}" for i in y], "number": y}, index=[f"cell{i}" for i in range(len(y))])
    return ad.AnnData(sp.csr_matrix(X), obs=obs, var=pd.DataFrame(index=GENES))


@pytest.fixture
def reference():
    cells = draw()
    mcpca.tl.mcpca(cells, "patient", n_comps=R)
    return cells


@pytest.fixture
def new():
    return draw(4)[:70].copy()


def test_scores_are_those_of_the_model(reference, new):
    model = MCPCA(R, random_state=0).fit(reference, "patient")
    assert mcpca.tl.transform(new, model=reference) is None
    np.testing.assert_array_equal(new.obsm["X_mcpca"], model.transform(new))
    for name, center in {"own": "own", "zero": np.zeros(P), "all": "overall"}.items():
        mcpca.tl.transform(new, "patient", model=reference, key_added=name, center=center)
        np.testing.assert_array_equal(new.obsm[f"X_{name}"], model.transform(new, "patient", center=center))
    mcpca.tl.mcpca(reference, "patient", n_comps=R, solver="ml", key_added="ml")
    mcpca.tl.transform(new, "patient", model=reference, key="ml", posterior=True)
    shrunk = MCPCA(R, solver="ml", random_state=0).fit(reference, "patient").transform(new, "patient", posterior=True)
    np.testing.assert_array_equal(new.obsm["X_ml"], shrunk)
    how = new.uns["mcpca"]["transform"]
    assert (how["key"], how["ignored"], how["posterior"]) == ("mcpca", 0, False)
    assert new.uns["own"]["transform"]["center"] == "own"
    assert new.uns["zero"]["transform"]["context_key"] == "patient"


def test_the_rows_of_the_fit_have_its_scores(reference):
    """Centred overall without labels, and by context with them: as ``tl.mcpca`` stores them."""
    again = draw()
    mcpca.tl.transform(again, model=reference)
    np.testing.assert_array_equal(again.obsm["X_mcpca"], reference.obsm["X_mcpca"])
    mcpca.tl.mcpca(reference, "patient", n_comps=R, center="context", key_added="by")
    mcpca.tl.transform(again, "patient", model=reference, key="by")
    np.testing.assert_allclose(again.obsm["X_by"], reference.obsm["X_by"], atol=1e-12)


def test_features_and_contexts_go_by_name(reference, new):
    mcpca.tl.transform(new, "patient", model=reference)
    scores = new.obsm["X_mcpca"]
    # Other genes beside, in another order, as text and as a model with numbers for contexts.
    wide = sp.hstack([new.X, sp.csr_matrix(np.ones((new.n_obs, 2)))]).tocsr()
    names = pd.DataFrame(index=[*GENES, "other1", "other2"])
    turned = ad.AnnData(wide, obs=new.obs, var=names)[:, ::-1].copy()
    mcpca.tl.transform(turned, "patient", model=reference)
    np.testing.assert_allclose(turned.obsm["X_mcpca"], scores, atol=1e-12)
    assert turned.uns["mcpca"]["transform"]["ignored"] == 2
    by_number = MCPCA(R, random_state=0).fit(reference, "number")
    mcpca.tl.transform(new, "number", model=by_number, key_added="number")
    np.testing.assert_array_equal(new.obsm["X_number"], scores)
    with pytest.raises(ValueError, match="adata lacks 2 of the 10 features of the fit: 'gene0', 'gene9'"):
        mcpca.tl.transform(new[:, 1:-1].copy(), model=reference)


def test_layers_of_the_fit_are_remembered(new):
    reference = draw()
    reference.layers["log"] = reference.X * 3
    new.layers["log"], new.layers["raw"] = new.X * 3, new.X
    mcpca.tl.mcpca(reference, "patient", n_comps=R, layer="log")
    mcpca.tl.transform(new, model=reference)
    model = mcpca.tl.model(reference)
    np.testing.assert_allclose(new.obsm["X_mcpca"], model.transform(new.layers["log"]), atol=1e-12)
    mcpca.tl.transform(new, model=reference, layer="raw", key_added="raw")
    assert [new.uns[key]["transform"]["layer"] for key in ("mcpca", "raw")] == ["log", "raw"]
    np.testing.assert_allclose(new.obsm["X_raw"], model.transform(new.layers["raw"]), atol=1e-12)


def pca_of(adata, q=6, mean=None):
    """Components as scanpy stores them: ``(x - mean) @ PCs`` of all rows."""
    X = adata.X.toarray()
    mean = X.mean(axis=0) if mean is None else mean
    axes = np.linalg.svd(X - mean, full_matrices=False)[2][:q].T
    adata.obsm["X_pca"], adata.varm["PCs"] = (X - mean) @ axes, axes
    return mean, axes


@pytest.mark.parametrize("on_dask", [False, True])
def test_fits_on_principal_components(new, on_dask):
    """New rows are put on the components of the fit, with the mean of that PCA."""
    reference = draw()
    mean, axes = pca_of(reference)
    mcpca.tl.mcpca(reference, "patient", n_comps=R, obsm="X_pca")
    Z = (new.X.toarray() - mean) @ axes
    model = mcpca.tl.model(reference)
    if on_dask:
        new.X = pytest.importorskip("dask.array").from_array(new.X.toarray(), chunks=(30, P))
    mcpca.tl.transform(new, "patient", model=reference)
    labels = new.obs["patient"].to_numpy()
    np.testing.assert_allclose(new.obsm["X_mcpca"], model.transform(Z, labels), atol=1e-10)
    new.obsm["X_pca"] = Z  # already there
    mcpca.tl.transform(new, model=reference, key_added="there")
    np.testing.assert_allclose(new.obsm["X_there"], model.transform(Z), atol=1e-12)


def test_the_mean_of_a_pca_must_be_known(new):
    reference = draw()
    pca_of(reference)
    mcpca.tl.mcpca(reference, "patient", n_comps=R, obsm="X_pca")
    scaled = reference.copy()
    scaled.X = scaled.X * 2  # no longer what the components were made of
    with pytest.raises(ValueError, match="mean that the components in obsm='X_pca' were centred by is not known"):
        mcpca.tl.transform(new, model=scaled)
    mcpca.tl.transform(new, "patient", model=scaled, center="own")  # for which that mean makes no difference
    twin = new.copy()
    mcpca.tl.transform(twin, "patient", model=reference, center="own", key_added="twin")
    np.testing.assert_allclose(new.obsm["X_mcpca"], twin.obsm["X_twin"], atol=1e-10)


def test_backed_and_dask_rows(reference, new, tmp_path):
    mcpca.tl.transform(new, "patient", model=reference, key_added="memory")
    new.write_h5ad(tmp_path / "new.h5ad")
    backed = ad.read_h5ad(tmp_path / "new.h5ad", backed="r")
    mcpca.tl.transform(backed, "patient", model=reference)
    np.testing.assert_allclose(backed.obsm["X_mcpca"], new.obsm["X_memory"], atol=1e-12)
    da = pytest.importorskip("dask.array")
    new.X = da.from_array(new.X.toarray(), chunks=(25, P))
    mcpca.tl.transform(new, "patient", model=reference)
    assert isinstance(new.obsm["X_mcpca"], np.ndarray)
    np.testing.assert_allclose(new.obsm["X_mcpca"], new.obsm["X_memory"], atol=1e-12)
    assert isinstance(new.X, da.Array)


@pytest.mark.parametrize("center", [None, "own"])
def test_rows_without_a_context(reference, new, center):
    twin = new[5:].copy()
    mcpca.tl.transform(twin, "patient", model=reference, center=center)
    new.obs.loc[new.obs_names[:5], "patient"] = None
    with pytest.raises(ValueError, match="5 of 70 rows have no label"):
        mcpca.tl.transform(new, "patient", model=reference, center=center)
    mcpca.tl.transform(new, "patient", model=reference, center=center, missing="drop")
    assert np.isnan(new.obsm["X_mcpca"][:5]).all()
    np.testing.assert_allclose(new.obsm["X_mcpca"][5:], twin.obsm["X_mcpca"], atol=1e-12)


def test_copies_and_files(reference, new, tmp_path):
    copied = mcpca.tl.transform(new, ["patient"], model=reference, copy=True)
    assert "X_mcpca" not in new.obsm
    assert not new.uns
    copied.write_h5ad(tmp_path / "new.h5ad")
    again = ad.read_h5ad(tmp_path / "new.h5ad")
    np.testing.assert_array_equal(again.obsm["X_mcpca"], copied.obsm["X_mcpca"])
    assert list(again.uns["mcpca"]["transform"]["context_key"]) == ["patient"]
    # A fit that comes later takes the key.
    mcpca.tl.mcpca(copied, "patient", n_comps=2, min_samples=2)
    assert "transform" not in copied.uns["mcpca"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "file"}, TypeError, "model is a str; pass the AnnData with a fit"),
        ({"model": "new"}, ValueError, "key='mcpca' names no fit"),
        ({"context_key": "stage"}, ValueError, "context_key='stage' is not a column of adata.obs"),
        ({"context_key": "other"}, ValueError, "Contexts 'q' were not seen in fit .*center='own'"),
        ({"missing": "drop"}, ValueError, "missing='drop' has no effect, because without context_key"),
        ({"context_key": "patient", "missing": "no"}, ValueError, "missing='no'; choose"),
        ({"context_key": "empty", "missing": "drop"}, ValueError, "no row has a label"),
        ({"center": "mean"}, ValueError, "center='mean'; choose"),
        ({"key_added": "a/b"}, ValueError, "key_added='a/b'"),
        ({"layer": "raw"}, ValueError, "layer='raw' is not in adata.layers"),
        (
            {"context_key": "gaps", "missing": "drop", "center": "own", "posterior": True},
            ValueError,
            "missing='drop' with center='own' and posterior=True",
        ),
    ],
)
def test_bad_input_changes_nothing(reference, new, arguments, error, message):
    new.obs["other"], new.obs["empty"], new.obs["gaps"] = "q", None, new.obs["patient"]
    new.obs.loc[new.obs_names[0], "gaps"] = None
    arguments = {"model": reference} | arguments
    if isinstance(arguments["model"], str) and arguments["model"] == "new":
        arguments["model"] = new
    with pytest.raises(error, match=message):
        mcpca.tl.transform(new, **arguments)
    assert not new.obsm
    assert not new.uns


def test_scores_of_a_fit_are_not_replaced(reference, new):
    mcpca.tl.mcpca(new, "patient", n_comps=2, min_samples=2)
    before = new.obsm["X_mcpca"].copy()
    with pytest.raises(ValueError, match="key_added='mcpca': adata has a fit of its own"):
        mcpca.tl.transform(new, model=reference)
    np.testing.assert_array_equal(new.obsm["X_mcpca"], before)
    mcpca.tl.transform(new, model=reference, key_added="other")
    assert new.obsm["X_other"].shape == (70, R)


@pytest.mark.parametrize("layer", [None, "logged"])
def test_rows_without_some_features_of_the_fit(layer):
    truth = make_contexts(5, 20, 3, n_samples=80, noise=0.3, random_state=0)
    obs = pd.DataFrame({"patient": truth.y.astype(str)}, index=[f"cell {i}" for i in range(len(truth.y))])
    fitted = ad.AnnData(truth.X, obs=obs)
    if layer is not None:
        fitted.layers[layer] = truth.X
    mcpca.tl.mcpca(fitted, "patient", n_comps=3, layer=layer)
    panel = fitted[:, fitted.var_names[3:]].copy()
    panel = ad.AnnData(panel.X, obs=obs, var=panel.var, layers=dict(panel.layers))
    with pytest.raises(ValueError, match="0"):
        mcpca.tl.transform(panel, "patient", model=fitted)
    model = mcpca.tl.model(fitted)
    with pytest.warns(mcpca.exceptions.MissingFeaturesWarning, match="3"):
        mcpca.tl.transform(panel, "patient", model=fitted, missing_features="union")
    with pytest.warns(mcpca.exceptions.MissingFeaturesWarning):
        expected = model.transform(panel.to_df(), obs["patient"].to_numpy(), missing="union")
    np.testing.assert_allclose(panel.obsm["X_mcpca"], expected, atol=1e-10)
    with pytest.warns(mcpca.exceptions.MissingFeaturesWarning):
        loadings = mcpca.tl.loadings_for(panel, "patient", model=fitted, missing_features="union")
    assert np.corrcoef(loadings.to_numpy().ravel(), model.corrected_loadings_.ravel())[0, 1] > 0.95
    with pytest.raises(ValueError, match="missing_features='some'; choose 'error' or 'union'"):
        mcpca.tl.transform(panel, "patient", model=fitted, missing_features="some")


def test_contexts_that_lack_genes(tmp_path):
    truth = make_contexts(8, 20, 3, n_samples=120, noise=0.3, density=0.7, random_state=0)
    rng = np.random.default_rng(0)
    genes = np.array([f"gene {j:02d}" for j in range(20)])
    panels = []
    for i in range(8):
        kept = np.sort(rng.choice(20, 16, replace=False))
        rows = truth.X[truth.y == i][:, kept]
        obs = pd.DataFrame({"patient": [f"p{i}"] * len(rows)}, index=[f"{i}-{t}" for t in range(len(rows))])
        panels.append(ad.AnnData(rows, obs=obs, var=pd.DataFrame(index=genes[kept])))
    cells = ad.concat(panels, join="outer")
    with pytest.raises(ValueError, match="NaN"):
        mcpca.tl.mcpca(cells, "patient", n_comps=3, solver="ml")
    with pytest.warns(mcpca.exceptions.MissingFeaturesWarning):
        mcpca.tl.mcpca(cells, "patient", n_comps=3, solver="ml", missing_features="union")
    A = pd.DataFrame(cells.varm["MCPCs"], index=cells.var_names).loc[genes].to_numpy()
    assert mcpca.ascore(truth.components, A) > 0.97
    cells.write(tmp_path / "cells.h5ad")
    model = mcpca.tl.model(ad.read_h5ad(tmp_path / "cells.h5ad"))
    assert model.missing == "union"
    with pytest.warns(mcpca.exceptions.MissingFeaturesWarning):
        scores = model.transform(cells.X, cells.obs["patient"].to_numpy())
    np.testing.assert_allclose(scores, cells.obsm["X_mcpca"], atol=1e-12)


def test_rows_without_a_context_are_not_missing_features():
    truth = make_contexts(4, 12, 2, n_samples=60, noise=0.3, random_state=0)
    obs = pd.DataFrame({"patient": truth.y.astype(str)}, index=[f"cell {i}" for i in range(len(truth.y))])
    obs.loc[obs.index[:3], "patient"] = None
    cells = ad.AnnData(truth.X, obs=obs)
    with pytest.warns(mcpca.DroppedContextsWarning):
        mcpca.tl.mcpca(cells, "patient", n_comps=2, missing="drop")
    assert cells.uns["mcpca"]["params"]["missing"] == "drop"
    assert mcpca.tl.model(cells).missing == "error"
