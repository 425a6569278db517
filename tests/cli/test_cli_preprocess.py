"""``--normalize``, ``--hvg`` and ``--target-sum``: raw counts in files are prepared as they are read."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from mcpca import MCPCA, Preprocess
from mcpca.cli import main
from mcpca.cli.tables import data as tables_data

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
N, P = 240, 20
QUIET = ("--no-report", "--no-picture", "--no-context-test")


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(1)
    A = rng.gamma(1.0, 1.0, (P, 3))
    activity = rng.gamma(2.0, 1.0, (N, 3)) * np.repeat(rng.gamma(1.0, 1.0, (3, 3)), 80, axis=0)
    return rng.poisson(activity @ A.T + 0.5).astype(np.float32), np.repeat(["a", "b", "c"], 80)


@pytest.fixture
def file(counts, tmp_path):
    X, y = counts
    adata = anndata.AnnData(sp.csr_matrix(X), obs=pd.DataFrame({"tissue": y}, index=[f"cell {i}" for i in range(N)]))
    adata.var_names = [f"g{j}" for j in range(P)]
    adata.var["highly_variable"] = np.arange(P) < 5
    adata.write_h5ad(tmp_path / "cells.h5ad")
    return tmp_path / "cells.h5ad"


@pytest.fixture
def run(capsys):
    def run_command(*words):
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_command


@pytest.mark.parametrize("max_memory", [None, 1])
def test_fit_repeat_and_transform(file, counts, tmp_path, run, max_memory, monkeypatch):
    X, y = counts
    words = ["fit", file, "-c", "tissue", "--normalize", "log1p", "--hvg", 8, "-r", 2, "-o", tmp_path / "out", *QUIET]
    if max_memory:
        # One megabyte is the least that can be asked for, and the file is smaller.
        monkeypatch.setattr(tables_data.Budget, "take", lambda self, n_bytes: False)
    code, out, err = run(*words)
    assert code == 0, err
    assert "raw counts" not in err
    assert "8 of 20 features were used." in out
    # By var['highly_variable'] no gene is left out before totals are taken.
    expected = MCPCA(2, preprocess=Preprocess(n_top=8), random_state=0).fit(X, y)
    model = MCPCA.load(tmp_path / "out" / "model.mcpca")
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-5)
    assert list(model.feature_names_in_) == [f"g{j}" for j in expected.preprocess_.columns]
    assert list(model.preprocess_.feature_names_in) == [f"g{j}" for j in range(P)]
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert {name: record["options"][name] for name in ("normalize", "hvg", "target_sum")} == {
        "normalize": "log1p",
        "hvg": 8,
        "target_sum": None,
    }
    diagnostics = json.loads((tmp_path / "out" / "diagnostics.json").read_text())
    assert diagnostics["preprocess"] == model.preprocess_.summary()
    code, out, err = run("repeat", tmp_path / "out", "-o", tmp_path / "again", "--json")
    assert code == 0, err
    assert json.loads(out)["same"]
    code, _, err = run("transform", tmp_path / "out", file, "-o", tmp_path / "scores.csv")
    assert code == 0, err
    first = pd.read_csv(tmp_path / "scores.csv", index_col="row")
    second = pd.read_csv(tmp_path / "out" / "scores.csv", index_col="row")
    np.testing.assert_array_equal(first, second.drop(columns="context"))


def test_pearson_residuals(file, counts, tmp_path, run):
    X, y = counts
    words = ("-c", "tissue", "--normalize", "pearson", "--hvg", 8, "-r", 2)
    code, out, err = run("fit", file, *words, "-o", tmp_path / "out", *QUIET)
    assert code == 0, err
    assert "Pearson residuals" in out
    model = MCPCA.load(tmp_path / "out" / "model.mcpca")
    expected = MCPCA(2, preprocess=Preprocess("pearson", n_top=8), random_state=0).fit(X, y)
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-5)
    code, _, err = run("transform", tmp_path / "out", file, "-o", tmp_path / "scores.csv")
    assert code == 0, err
    scores = pd.read_csv(tmp_path / "scores.csv", index_col="row")
    np.testing.assert_allclose(scores, expected.transform(X), rtol=1e-3, atol=1e-4)
    code, _, err = run("fit", file, *words, "--target-sum", 1000, "-o", tmp_path / "no", *QUIET)
    assert code != 0
    assert "--target-sum" in err


def test_a_given_total_in_a_table_of_text(counts, tmp_path, run):
    X, y = counts
    table = pd.DataFrame(X.astype(int), columns=[f"g{j}" for j in range(P)]).assign(tissue=y)
    table.to_csv(tmp_path / "cells.csv", index=False)
    words = ("-c", "tissue", "--normalize", "log1p", "--target-sum", 1000)
    code, _, err = run("fit", tmp_path / "cells.csv", *words, "-r", 2, "-o", tmp_path / "out", *QUIET)
    assert code == 0, err
    model = MCPCA.load(tmp_path / "out" / "model.mcpca")
    assert model.preprocess_.target_sum == 1000
    expected = MCPCA(2, preprocess=Preprocess(target_sum=1000), random_state=0).fit(X, y)
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-5)
    code, out, err = run("loadings", tmp_path / "out", tmp_path / "cells.csv", "-c", "tissue", "--json")
    assert code == 0, err
    np.testing.assert_allclose(json.loads(out)["loadings"], expected.loadings_for(X, y), rtol=1e-3, atol=1e-5)


def test_rank(file, run):
    code, out, err = run("rank", file, "-c", "tissue", "--normalize", "log1p", "--criteria", "none", "--json")
    assert code == 0, err
    assert "raw counts" not in err
    assert json.loads(out)["rank"] >= 1


def test_raw_counts_are_warned_of_by_the_option(file, tmp_path, run):
    _, _, err = run("fit", file, "-c", "tissue", "-r", 2, "-o", tmp_path / "out", *QUIET)
    assert "the values look like raw counts; --normalize log1p prepares them" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hvg", "8"], "--hvg has no effect: it is for raw counts; pass --normalize log1p"),
        (["--target-sum", "8"], "--target-sum has no effect"),
        (["--normalize", "log1p", "--mask-var", "highly_variable"], "totals of rows are over all features"),
        (["--normalize", "log1p", "--obsm", "X_pca"], "--normalize is for counts, and --obsm X_pca has none"),
        (["--normalize", "log1p", "--hvg", "21"], "--hvg 21 is out of bounds: it goes from 1 to 20"),
        (["--normalize", "log2p"], "'log2p' is not"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "rank"])
def test_errors(file, tmp_path, run, options, message, command):
    code, _, err = run(command, file, "-c", "tissue", *options, "-o", tmp_path / "out")
    assert code != 0
    assert message in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_moments_have_no_rows(file, tmp_path, run):
    assert run("moments", file, "-c", "tissue", "-o", tmp_path / "m")[0] == 0
    code, _, err = run("fit", tmp_path / "m", "--normalize", "log1p", "-o", tmp_path / "out")
    assert code != 0
    assert "--normalize prepares rows, and moments do not have them" in err
