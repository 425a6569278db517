"""Batch and covariates of an AnnData, by names of columns of ``obs``: stored with the fit, and used again."""

import numpy as np
import pandas as pd
import pytest

import mcpca
from mcpca import MCPCA
from mcpca.datasets import make_contexts

anndata = pytest.importorskip("anndata")


@pytest.fixture
def cells():
    truth = make_contexts(5, 20, 3, n_samples=80, noise=0.3, random_state=0)
    rng = np.random.default_rng(1)
    n = len(truth.y)
    batch = rng.integers(3, size=n)
    depth = rng.uniform(1, 5, n)
    X = truth.X + 2 * rng.standard_normal((5, 3, 20))[truth.y, batch] + 3 * np.log(depth)[:, None]
    obs = pd.DataFrame(
        {"patient": truth.y.astype(str), "batch": batch, "depth": depth, "sex": rng.choice(["f", "m"], n)},
        index=[f"cell {i}" for i in range(n)],
    )
    return anndata.AnnData(X, obs=obs)


@pytest.fixture
def plain(cells):
    """The same fit of the rows themselves, and its arguments."""
    said = {"batch": cells.obs["batch"].to_numpy()}
    said["covariates"] = pd.DataFrame(
        {"sex": cells.obs["sex"].to_numpy(), "log": np.log(cells.obs["depth"].to_numpy())}
    )
    y = cells.obs["patient"].to_numpy()
    return MCPCA(3, random_state=0).fit(cells.X, y, **said), y, said


def test_names_of_columns_are_what_they_name(cells, plain, tmp_path):
    model, y, said = plain
    mcpca.tl.mcpca(cells, "patient", n_comps=3, batch="batch", covariates="sex + np.log(depth)", center="context")
    cells.write(tmp_path / "cells.h5ad")
    read = anndata.read_h5ad(tmp_path / "cells.h5ad")
    stored = mcpca.tl.model(read)
    np.testing.assert_allclose(stored.components_, model.components_, atol=1e-12)
    np.testing.assert_allclose(read.obsm["X_mcpca"], model.transform(cells.X, y, **said), atol=1e-10)
    np.testing.assert_allclose(read.uns["mcpca"]["nuisance"]["table"]["share"], model.nuisance_.shares)
    assert read.uns["mcpca"]["nuisance"]["what"] == "batch and 'sex', 'depth'"
    assert read.uns["mcpca"]["params"]["covariates"] == "sex + np.log(depth)"


def test_new_rows_lose_what_the_fit_removed(cells, plain):
    model, y, said = plain
    mcpca.tl.mcpca(cells, "patient", n_comps=3, batch="batch", covariates="sex + np.log(depth)")
    new = anndata.AnnData(cells.X, obs=cells.obs[["patient", "batch", "sex", "depth"]], var=cells.var)
    mcpca.tl.transform(new, "patient", model=cells, batch="batch", covariates=["depth", "sex"])
    np.testing.assert_allclose(new.obsm["X_mcpca"], model.transform(cells.X, y, **said), atol=1e-10)
    loadings = mcpca.tl.loadings_for(
        new, "patient", model=cells, batch="batch", covariates="sex + np.log(depth)", corrected=False
    )
    np.testing.assert_allclose(loadings, model.loadings_, rtol=1e-8)


def test_rows_that_were_not_fitted_have_no_scores(cells):
    cells.obs.loc[cells.obs_names[:5], "patient"] = None
    with pytest.warns(mcpca.DroppedContextsWarning):
        mcpca.tl.mcpca(cells, "patient", n_comps=3, missing="drop", batch="batch")
    assert np.isnan(cells.obsm["X_mcpca"][:5]).all()
    assert np.isfinite(cells.obsm["X_mcpca"][5:]).all()


def test_halves_and_resamples_lose_it_too(cells):
    mcpca.tl.mcpca(cells, "patient", n_comps=3, batch="batch", covariates="sex + np.log(depth)")
    assert mcpca.tl.replicability(cells, n_splits=2, rng=0).n_replicating == 3
    assert (mcpca.tl.bootstrap(cells, n=4, rng=0).angle_bounds < 20).all()
    assert mcpca.tl.rank(cells, "patient", batch="batch", covariates="sex + np.log(depth)").rank == 3


def test_values_are_refused_where_names_are_stored(cells):
    with pytest.raises(TypeError, match=r"batch is a ndarray; pass the name of a column of adata\.obs"):
        mcpca.tl.mcpca(cells, "patient", n_comps=3, batch=cells.obs["batch"].to_numpy())
    with pytest.raises(ValueError, match=r"covariates='dept' is not a column of adata\.obs.*did you mean 'depth'"):
        mcpca.tl.mcpca(cells, "patient", n_comps=3, covariates="dept")
    assert "mcpca" not in cells.uns


def test_groups_are_remembered_and_split_together(cells, tmp_path):
    cells.obs["donor"] = [f"{patient}-{i % 8}" for i, patient in enumerate(cells.obs["patient"])]
    mcpca.tl.mcpca(cells, "patient", n_comps=3, batch="batch", covariates="depth", groups="donor")
    result = mcpca.tl.replicability(cells, n_splits=3, rng=0)
    y = cells.obs["patient"].to_numpy()
    said = {"batch": cells.obs["batch"].to_numpy(), "covariates": cells.obs[["depth"]].to_numpy()}
    model = MCPCA(3, random_state=0).fit(cells.X, y, **said)
    expected = model.replicability(cells.X, y, n_splits=3, groups=cells.obs["donor"].to_numpy(), random_state=0, **said)
    np.testing.assert_allclose(result.cosines, expected.cosines, atol=1e-10)
    cells.write(tmp_path / "cells.h5ad")
    stored = anndata.read_h5ad(tmp_path / "cells.h5ad").uns["mcpca"]["replicability"]
    assert stored["by"] == "groups" == result.by
    assert mcpca.tl.replicability(cells, n_splits=2, by="rows", rng=0).by == "rows"
    assert mcpca.tl.bootstrap(cells, n=4, rng=0).angles.shape == (4, 3)


def test_nuisance_is_checked_and_never_left_out_silently(cells):
    mcpca.tl.mcpca(cells, "patient", n_comps=3)
    cells.obs["twice"] = 2 * cells.obs["depth"]
    with pytest.raises(ValueError, match="'depth', 'twice' are collinear"):
        mcpca.tl.loadings_for(cells, "patient", model=cells, covariates=["depth", "twice"])
    with pytest.raises(ValueError, match="batch with missing='union': nuisance is removed from complete rows"):
        mcpca.tl.mcpca(cells, "patient", n_comps=3, solver="ml", missing_features="union", batch="batch")
