"""One name for each MCPC, from every door: messages, tables, pictures, files, AnnData."""

import json
import re

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from reading_reports import content

import mcpca
import mcpca.analysis as analysis
from mcpca import MCPCA
from mcpca._utils.component_names import as_called_now, component_names
from mcpca.cli import main
from mcpca.datasets import make_contexts
from mcpca.report import write_report

R = 3
NAMES = [f"MCPC {j}" for j in range(1, R + 1)]


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return make_contexts(6, 8, R, n_samples=40, noise=0.1, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return MCPCA(R, random_state=0).fit(data.X, data.y)


@pytest.fixture(scope="module")
def adata(data):
    obs = pd.DataFrame({"patient": data.y.astype(str)}, index=[f"cell {i}" for i in range(len(data.X))])
    made = anndata.AnnData(data.X, obs=obs)
    mcpca.tl.mcpca(made, "patient", n_comps=R)
    return made


def of_tables(source, **rows):
    """Names in the tables of analyses."""
    covariate = np.arange(6)
    return {
        "gene_scores": analysis.gene_scores(source).columns,
        "top_features": analysis.top_features(source, 2)["component"].unique(),
        "sample_scores": analysis.sample_scores(source, **rows).columns[1:],
        "top_samples": analysis.top_samples(source, 2, **rows)["component"].unique(),
        "associate": analysis.associate(source, covariate).table.index,
        "compare_with_pca": analysis.compare_with_pca(source, n_pcs=2, n_top=5, **rows).best["component"].unique(),
        "describe": list(analysis.describe(source)),
    }


def of_pictures(source):
    names = {"loadings": mcpca.pl.plot_loadings(source).get_xticklabels()}
    names["angles"] = mcpca.pl.plot_angles(source).get_xticklabels()
    found = {door: [label.get_text() for label in labels] for door, labels in names.items()}
    return found | {"features": [mcpca.pl.plot_top_features(source, j).get_xlabel()[-6:] for j in range(R)]}


def of_anndata(adata):
    stored = adata.uns["mcpca"]
    new = mcpca.tl.loadings_for(adata, "patient", model=adata)
    return {
        "uns loadings": stored["loadings"].columns,
        "uns shares": stored["variance_shares"].columns,
        "loadings_for": new.columns,
        "loadings_for a model": mcpca.tl.loadings_for(adata, "patient", model=mcpca.tl.model(adata)).columns,
    }


def of_files(data, folder):
    """Names in what the commands write."""
    table = pd.DataFrame(data.X, columns=list("abcdefgh")).assign(patient=data.y)
    table.to_csv(folder / "rows.csv", index=False)
    out = folder / "out"
    assert main(["fit", str(folder / "rows.csv"), "-c", "patient", "-r", str(R), "-o", str(out), "-q"]) == 0
    found = {}
    for name in ("components", "projection", "loadings", "scores"):
        found[name] = [c for c in pd.read_csv(out / f"{name}.csv").columns if "MCPC" in c or "mcpc" in c]
    found["diagnostics"] = list(json.loads((out / "diagnostics.json").read_text())["variance_explained_by_component"])
    for command in ("transform", "loadings"):
        path = folder / f"{command}.csv"
        rows = [str(folder / "rows.csv"), "-c", "patient", "-o", str(path), "-q"]
        assert main([command, str(out), *rows]) == 0
        found[f"mcpca {command}"] = [c for c in pd.read_csv(path).columns if c.lower().startswith("mcpc")]
    return found


def test_every_door_has_the_same_names(data, model, adata, tmp_path):
    write_report(model, tmp_path / "report.html", X=data.X, y=data.y)
    doors = {f"{door} of a model": names for door, names in of_tables(model, X=data.X, y=data.y).items()}
    doors |= {f"{door} of an AnnData": names for door, names in of_tables(adata).items()}
    doors |= {f"picture of {door}": names for door, names in (of_pictures(model) | of_pictures(adata)).items()}
    doors |= of_anndata(adata) | of_files(data, tmp_path)
    doors["report"] = content((tmp_path / "report.html").read_text())["mcpcs"]
    assert {door: list(names) for door, names in doors.items()} == dict.fromkeys(doors, NAMES)


def test_warnings_call_mcpcs_as_pictures_do(rng):
    """Loadings of two of three MCPCs are proportional."""
    A, B = np.linalg.qr(rng.normal(size=(8, 3)))[0], np.array([[9, 2, 1.8], [4.5, 4, 0.9], [3, 0.5, 0.6], [6, 1, 1.2]])
    S = np.einsum("pr,kr,qr->kpq", A, B, A)
    with pytest.warns(mcpca.IdentifiabilityWarning) as caught:
        model = MCPCA(3, random_state=0).fit_covariances(S, n_samples=[50] * 4)
    (pair,) = [pair for pair in model.proportional_loadings() if pair.first != pair.second]
    labels = [label.get_text() for label in mcpca.pl.plot_loadings(model).get_xticklabels()]
    told = re.findall(r"MCPC \d+", str(caught[0].message))
    assert told == [labels[pair.first], labels[pair.second]]
    assert "mcpca" not in str(caught[0].message)
    with pytest.raises(ValueError, match="not identifiable: MCPC 1 and MCPC 3 have proportional loadings"):
        mcpca.cramer_rao_bound(A, B, 1.0, 50)
    with pytest.raises(ValueError, match="not identifiable: MCPC 2 is in no context"):
        mcpca.cramer_rao_bound(A, B * [1, 0, 1], 1.0, 50)


def test_scikit_learn_keeps_its_convention(data, model):
    assert model.get_feature_names_out().tolist() == ["mcpca0", "mcpca1", "mcpca2"]
    frame = MCPCA(R, random_state=0).set_output(transform="pandas").fit_transform(data.X, data.y)
    assert list(frame.columns) == ["mcpca0", "mcpca1", "mcpca2"]


def test_classes_of_users(data):
    """A class that goes by another name has the same MCPCs; one that names its MCPCs is heard."""

    class Mine(MCPCA):
        pass

    class Named(MCPCA):
        def get_feature_names_out(self, input_features=None):
            return np.array(["growth", "stress", "age"], dtype=object)

    for cls, names in ((Mine, NAMES), (Named, ["growth", "stress", "age"])):
        fitted = cls(R, random_state=0).fit(data.X, data.y)
        assert component_names(fitted) == list(analysis.gene_scores(fitted).columns) == names


def test_tables_of_an_anndata_can_be_joined(adata):
    loadings, table = adata.uns["mcpca"]["loadings"], analysis.associate(adata, np.arange(6)).table
    joined = loadings.T.join(table, how="inner")
    assert joined.index.tolist() == NAMES
    np.testing.assert_allclose(joined["0"], adata.uns["mcpca"]["loadings"].loc["0"])


def test_files_of_older_versions_are_read(adata):
    old = adata.copy()
    for name in ("loadings", "variance_shares"):
        old.uns["mcpca"][name].columns = [f"MCPC{j + 1}" for j in range(R)]
    assert {door: list(names) for door, names in of_tables(old).items()} == dict.fromkeys(of_tables(old), NAMES)
    np.testing.assert_array_equal(mcpca.tl.model(old).loadings_, mcpca.tl.model(adata).loadings_)
    assert as_called_now(["MCPC1", "MCPC 12", "growth"]) == ["MCPC 1", "MCPC 12", "growth"]
