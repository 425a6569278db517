"""MuData: a modality by name, everywhere in ``mcpca.tl``, with the answer of its AnnData."""

import anndata
import mudata
import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import mcpca
from mcpca import MCPCA, tl
from mcpca.datasets import make_contexts

getattr(mudata, "set_options", dict)(pull_on_update=False)  # what 0.4 does, and versions before warn of otherwise

DATA = make_contexts(4, 8, 2, n_samples=60, noise=0.3, random_state=0)
NAMES = [f"cell {i}" for i in range(len(DATA.y))]


def modality(prefix, rows):
    obs = pd.DataFrame({"own": [f"p{c}" for c in DATA.y[rows]]}, index=[NAMES[i] for i in rows])
    return anndata.AnnData(DATA.X[rows].copy(), obs=obs, var=pd.DataFrame(index=[f"{prefix}{j}" for j in range(8)]))


def two_modalities():
    """Return a MuData in which patients are known to ``mdata.obs`` alone; "prot" lacks some cells of "rna"."""
    drawn = np.random.default_rng(0)
    rows = drawn.permutation(len(NAMES))
    mdata = mudata.MuData({"rna": modality("g", rows), "prot": modality("a", np.sort(rows[:200]))})
    of_cell = pd.Series([f"p{c}" for c in DATA.y], index=NAMES)
    mdata.obs["patient"] = of_cell.loc[mdata.obs_names]
    mdata.obs["donor"] = [f"d{int(name.split()[1]) % 7}" for name in mdata.obs_names]
    mdata.obs["stage"] = [float(patient[1]) for patient in mdata.obs["patient"]]
    return mdata


def alone(mdata, mod):
    """Return the AnnData of a modality with the joint columns, as a user would make it."""
    adata = mdata.mod[mod].copy()
    for column in mdata.obs.columns:
        adata.obs[column] = mdata.obs.loc[adata.obs_names, column]
    return adata


def same_results(one, other, key="mcpca"):
    assert np.array_equal(one.obsm[f"X_{key}"], other.obsm[f"X_{key}"])
    assert np.array_equal(one.varm["MCPCs"], other.varm["MCPCs"])
    for name in ("loadings", "corrected_loadings"):
        assert_frame_equal(one.uns[key][name], other.uns[key][name])


@pytest.mark.parametrize("mod", ["rna", "prot"])
def test_contexts_of_the_joint_table_give_the_fit_of_the_modality(mod):
    mdata = two_modalities()
    expected = alone(mdata, mod)
    columns = list(mdata.mod[mod].obs.columns)
    tl.mcpca(mdata, "patient", n_comps=2, mod=mod)
    tl.mcpca(expected, "patient", n_comps=2)
    same_results(mdata.mod[mod], expected)
    # Columns of the joint table were there for the time of the call, and what was found stays.
    assert list(mdata.mod[mod].obs.columns) == [*columns, "mcpca_context"]
    assert not {"mcpca"} & set(mdata.mod["prot" if mod == "rna" else "rna"].uns)


def test_the_modalitys_own_column_comes_first():
    mdata = two_modalities()
    mdata.obs["own"] = "one for all"
    expected = mdata.mod["rna"].copy()
    tl.mcpca(mdata, "own", n_comps=2, mod="rna")
    tl.mcpca(expected, "own", n_comps=2)
    same_results(mdata.mod["rna"], expected)


def test_every_function_takes_a_modality():
    mdata = two_modalities()
    expected = alone(mdata, "rna")
    options = {"n_comps": 2, "batch": "donor"}
    tl.mcpca(mdata, "patient", mod="rna", **options)
    tl.mcpca(expected, "patient", **options)
    for source, mod in ((mdata, {"mod": "rna"}), (expected, {})):
        tl.rank(source, "patient", ranks=[1, 2], key_added="chosen", groups="donor", **mod)
        tl.replicability(source, n_splits=2, groups="donor", **mod)
        tl.context_dependence(source, n_splits=1, n_permutations=19, **mod)
        tl.bootstrap(source, n=2, **mod)
        tl.associate(source, "stage", n_pcs=2, **mod)
    rna = mdata.mod["rna"]
    assert rna.uns["chosen"]["rank"]["json"] == expected.uns["chosen"]["rank"]["json"]
    stored, plain = rna.uns["mcpca"], expected.uns["mcpca"]
    for name in ("replicability", "context_dependence"):
        assert_frame_equal(stored[name]["table"], plain[name]["table"])
    assert_frame_equal(stored["bootstrap"]["lower"], plain["bootstrap"]["lower"])
    assert_frame_equal(stored["associations"]["stage"]["table"], plain["associations"]["stage"]["table"])
    assert np.array_equal(tl.model(mdata, mod="rna").components_, tl.model(expected).components_)
    assert "patient" not in rna.obs


def test_new_cells_and_a_fit_in_another_mudata():
    mdata, new = two_modalities(), two_modalities()
    tl.mcpca(mdata, "patient", n_comps=2, mod="prot")
    fit = mdata.mod["prot"]
    plain = tl.transform(alone(new, "prot"), "patient", model=fit, copy=True).obsm["X_mcpca"]
    copied = tl.transform(new, "patient", model=mdata, mod="prot", copy=True)
    assert isinstance(copied, mudata.MuData)
    assert np.array_equal(copied.mod["prot"].obsm["X_mcpca"], plain)
    assert "X_mcpca" not in new.mod["prot"].obsm
    tl.transform(new, "patient", model=mdata, mod="prot")
    assert np.array_equal(new.mod["prot"].obsm["X_mcpca"], plain)
    # An AnnData of new cells, and a MuData with the fit.
    B = tl.loadings_for(alone(new, "prot"), "patient", model=mdata, mod="prot")
    assert_frame_equal(B, tl.loadings_for(new, "patient", model=fit, mod="prot"))


def test_a_copy_is_a_mudata_and_leaves_the_first_alone():
    mdata = two_modalities()
    copied = tl.mcpca(mdata, "patient", n_comps=2, mod="rna", copy=True)
    tl.mcpca(mdata, "patient", n_comps=2, mod="prot")
    assert "mcpca" in copied.mod["rna"].uns
    assert "mcpca" not in copied.mod["prot"].uns
    assert "mcpca" not in mdata.mod["rna"].uns


def test_one_modality_needs_no_name_and_a_backed_file_is_read(tmp_path):
    mdata = two_modalities()
    single = mudata.MuData({"rna": mdata.mod["rna"]})
    tl.mcpca(single, "own", n_comps=2)
    mdata.write_h5mu(tmp_path / "cells.h5mu")
    backed = mudata.read_h5mu(tmp_path / "cells.h5mu", backed="r")
    tl.mcpca(backed, "own", n_comps=2, mod="rna")
    # Blocks of a file are added in another order.
    assert np.allclose(backed.mod["rna"].obsm["X_mcpca"], single.mod["rna"].obsm["X_mcpca"], rtol=1e-8, atol=1e-10)
    # What was found is written with the MuData.
    single.write_h5mu(tmp_path / "fitted.h5mu")
    same_results(mudata.read_h5mu(tmp_path / "fitted.h5mu").mod["rna"], single.mod["rna"])


def test_pictures_and_models_take_the_modality_itself():
    mdata = two_modalities()
    tl.mcpca(mdata, "patient", n_comps=2, mod="rna")
    mcpca.pl.plot_loadings(mdata.mod["rna"])
    message = r"This is a MuData with the modalities 'rna', 'prot'; pass one of them, as in mdata.mod\['rna'\]"
    for call in (
        lambda: mcpca.pl.plot_loadings(mdata),
        lambda: MCPCA(2).fit(mdata, "patient"),
        lambda: tl.model(mdata, mod="rna").transform(mdata),
        lambda: mcpca.select_rank(mdata, "patient"),
        lambda: mcpca.report.render(mdata),
        lambda: mcpca.analysis.associate(mdata, "stage"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    # The way out that is named.
    mdata.push_obs(["patient"], mods=["rna"])
    model = MCPCA(2, random_state=0).fit(mdata.mod["rna"], "patient")
    assert np.array_equal(model.components_, mdata.mod["rna"].varm["MCPCs"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"mod is not given, and the MuData has 2 modalities: 'rna', 'prot'; name one of them"),
        ({"mod": "RNA"}, r"mod='RNA' is not a modality; there are 'rna', 'prot'. Did you mean 'rna'\?"),
        ({"mod": "rna", "n_comps": 200}, r"n_components=200 is out of bounds"),
        ({"mod": "rna", "groups": "doner"}, r"groups='doner' is not a column of adata.obs.*did you mean 'donor'\?"),
    ],
)
def test_bad_input_leaves_everything_as_it_was(options, message):
    mdata = two_modalities()
    before = mdata.mod["rna"].obs.copy()
    with pytest.raises(ValueError, match=message):
        tl.mcpca(mdata, "patient", **options)
    assert_frame_equal(mdata.mod["rna"].obs, before)
    assert not mdata.mod["rna"].uns


def test_other_bad_input():
    mdata = two_modalities()
    with pytest.raises(ValueError, match=r"mod='rna' has no effect, because adata is not a MuData; drop it"):
        tl.mcpca(mdata.mod["rna"], "own", mod="rna")
    with pytest.raises(ValueError, match=r"view of a MuData, which takes no results; call mdata.copy\(\)"):
        tl.mcpca(mdata[:100], "patient", mod="rna")
    with pytest.raises(TypeError, match=r"adata is a ndarray, not an AnnData"):
        tl.mcpca(DATA.X, "patient")
    mdata.mod["rna"].obs_names = [f"other {i}" for i in range(len(NAMES))]
    with pytest.raises(ValueError, match=r"mdata.obs lacks 240 of the 240 rows of the modality: 'other 0'.*update\(\)"):
        tl.mcpca(mdata, "patient", mod="rna")
