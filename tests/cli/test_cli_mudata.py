"""MuData on disk: commands read one of its modalities, as they read an .h5ad with the same rows."""

import json
import warnings

import anndata
import mudata
import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA
from mcpca.cli import main
from mcpca.datasets import make_contexts

DATA = make_contexts(3, 6, 2, n_samples=40, noise=0.3, random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write cells.h5mu, in which patients are known to the joint table alone, and each modality as .h5ad with them."""
    path = tmp_path_factory.mktemp("mudata")
    getattr(mudata, "set_options", dict)(pull_on_update=False)
    names = [f"cell {i}" for i in range(len(DATA.y))]
    some = np.random.default_rng(0).permutation(len(names))[:100]
    parts = {}
    for mod, rows in (("rna", np.arange(len(names))), ("prot", some)):
        obs = pd.DataFrame({"phase": np.where(rows % 2, "G1", "S")}, index=[names[i] for i in rows])
        var = pd.DataFrame(index=[f"{mod}{j}" for j in range(6)])
        parts[mod] = anndata.AnnData(DATA.X[rows].copy(), obs=obs, var=var)
    mdata = mudata.MuData(parts)
    mdata.obs["patient"] = pd.Categorical([f"p{DATA.y[int(name.split()[1])]}" for name in mdata.obs_names])
    mdata.write_h5mu(path / "cells.h5mu")
    with warnings.catch_warnings():  # zarr has some of its own about names
        warnings.simplefilter("ignore")
        mdata.write_zarr(path / "cells.zarr")
    mudata.MuData({"rna": parts["rna"]}).write_h5mu(path / "single.h5mu")
    for mod, adata in parts.items():
        adata.obs["patient"] = mdata.obs.loc[adata.obs_names, "patient"]
        adata.write_h5ad(path / f"{mod}.h5ad")
    return path


def fitted(*words, out):
    assert main(["fit", *map(str, words), "--rank", "2", "--no-report", "--out", str(out), "--quiet"]) == 0
    return MCPCA.load(out / "model.mcpca")


@pytest.mark.parametrize("mod", ["rna", "prot"])
@pytest.mark.parametrize("name", ["cells.h5mu", "cells.zarr"])
def test_a_modality_is_fitted_as_its_own_file_is(folder, tmp_path, name, mod):
    model = fitted(folder / name, "--mod", mod, "--context", "patient", out=tmp_path / "mudata")
    plain = fitted(folder / f"{mod}.h5ad", "--context", "patient", out=tmp_path / "anndata")
    assert list(model.contexts_) == ["p0", "p1", "p2"]
    assert np.array_equal(model.components_, plain.components_)
    assert np.array_equal(model.loadings_, plain.loadings_)
    assert list(model.feature_names_in_) == [f"{mod}{j}" for j in range(6)]
    # By the name of the modality, which a repetition needs, too.
    assert "--mod" in json.loads((tmp_path / "mudata" / "run.json").read_text())["command"]


def test_the_doctor_names_the_modality_in_its_command(folder, capsys):
    assert main(["doctor", str(folder / "cells.h5mu"), "--mod", "rna"]) == 0
    said = capsys.readouterr().out
    assert "MuData, modality 'rna' (h5ad): 120 rows (obs), 6 features (var)" in said
    assert "obs 'patient': " in said
    assert "cells.h5mu --context phase --mod rna" in said


def test_one_modality_needs_no_name(folder, capsys):
    assert main(["doctor", str(folder / "single.h5mu")]) == 0
    said = capsys.readouterr().out
    assert "MuData, modality 'rna'" in said
    assert "--mod" not in said


def test_new_rows_come_from_a_modality_as_well(folder, tmp_path):
    fitted(folder / "rna.h5ad", "--context", "patient", out=tmp_path / "fit")
    for name, words in (("a", [folder / "cells.h5mu", "--mod", "rna"]), ("b", [folder / "rna.h5ad"])):
        out = str(tmp_path / f"{name}.csv")
        assert main(["transform", str(tmp_path / "fit"), *map(str, words), "--out", out, "--quiet"]) == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["cells.h5mu"],
            3,
            "is a MuData: --mod is not given, and the MuData has 2 modalities: 'rna', 'prot'; name one",
        ),
        (["cells.h5mu", "--mod", "RNA"], 3, "--mod='RNA' is not a modality; there are 'rna', 'prot'. Did you mean"),
        (["rna.h5ad", "--mod", "rna"], 2, "is no MuData, and --mod rna is for one; drop the option"),
        (["cells.h5mu", "--mod", "rna", "--context", "patients"], 3, "patient"),
    ],
)
@pytest.mark.parametrize("command", ["doctor", "fit"])
def test_bad_input(folder, tmp_path, monkeypatch, capsys, command, words, code, message):
    monkeypatch.chdir(folder)
    given = [] if "--context" in words or command == "doctor" else ["--context", "patient"]
    assert main([command, *words, *given, *(["--out", str(tmp_path / "out")] if command == "fit" else [])]) == code
    assert message in " ".join(capsys.readouterr().err.split())
