"""``mcpca moments --batch --covariates``: sites keep their rows, and the model is that of all of them."""

import json

import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA, ContextMoments
from mcpca.cli import main
from mcpca.datasets import make_contexts

FEATURES = [f"g{j}" for j in range(6)]
ROWS = ["--context", "diagnosis", "--index", "patient"]
NUISANCE = ["--batch", "run", "--covariates", "age,stage"]


def table():
    """Rows of two sites, each with a run and a stage that the other does not have."""
    rng = np.random.default_rng(0)
    truth = make_contexts(3, 6, 2, n_samples=60, noise=0.2, random_state=0)
    n = len(truth.X)
    site = np.where(np.arange(n) % 2, "b", "a")
    run = np.where(site == "a", rng.choice(["1", "2"], n), rng.choice(["2", "10"], n))
    stage = np.where(site == "a", rng.choice(["I", "II"], n), rng.choice(["II", "III"], n))
    age = rng.integers(20, 80, n)
    X = truth.X + np.outer(run == "2", 3 * rng.standard_normal(6)) + np.outer(age / 20, rng.standard_normal(6))
    frame = pd.DataFrame(X, columns=FEATURES)
    return frame.assign(
        patient=[f"p{i}" for i in range(n)], diagnosis=np.array(["x", "y", "z"])[truth.y], run=run, age=age, stage=stage
    ), site


@pytest.fixture
def sites(tmp_path):
    """Files of rows, and of their moments."""
    frame, site = table()
    for name in "ab":
        frame[site == name].to_csv(tmp_path / f"{name}.csv", index=False)
        out = str(tmp_path / f"{name}.moments")
        assert main(["moments", str(tmp_path / f"{name}.csv"), *ROWS, *NUISANCE, "-o", out, "-q"]) == 0
    frame.to_csv(tmp_path / "all.csv", index=False)
    return tmp_path


def test_merged_moments_are_fitted_without_batch_and_covariates(sites, capsys):
    frame, _ = table()
    merged, out = str(sites / "all.moments"), sites / "out"
    assert main(["merge", str(sites / "a.moments"), str(sites / "b.moments"), "-o", merged]) == 0
    assert "6 features, with batch and covariates 'age', 'stage'; sums over 180 rows" in capsys.readouterr().out
    assert main(["fit", merged, "-r", "2", "-o", str(out), "-q", "--no-report", "--no-picture"]) == 0
    nuisance = {"batch": frame["run"].to_numpy(), "covariates": frame[["age", "stage"]]}
    whole = MCPCA(2, random_state=0).fit(frame[FEATURES], frame["diagnosis"].to_numpy(), **nuisance)
    np.testing.assert_allclose(pd.read_csv(out / "components.csv", index_col=0), whole.components_, atol=1e-8)
    np.testing.assert_allclose(pd.read_csv(out / "loadings.csv", index_col=0), whole.loadings_, rtol=1e-8)
    # The model knows what it removed: scores of rows are those of residuals.
    command = ["transform", str(out), str(sites / "all.csv"), *ROWS, *NUISANCE, "--center", "context"]
    assert main([*command, "-o", str(sites / "scores.csv"), "-q"]) == 0
    scores = pd.read_csv(sites / "scores.csv", index_col=0)[["MCPC 1", "MCPC 2"]]
    expected = whole.transform(frame[FEATURES], frame["diagnosis"].to_numpy(), **nuisance)
    np.testing.assert_allclose(scores, expected, atol=1e-8)
    capsys.readouterr()
    assert main(["doctor", merged]) == 0
    assert "from 180 rows; a fit removes batch and covariates 'age', 'stage'" in capsys.readouterr().out


def test_moments_of_a_formula_have_its_columns(sites):
    pytest.importorskip("formulaic")
    out = sites / "log.moments"
    command = [
        "moments",
        str(sites / "a.csv"),
        *ROWS,
        "--drop",
        "run",
        "--drop",
        "stage",
        "--covariates",
        "np.log(age)",
    ]
    assert main([*command, "-o", str(out), "-q"]) == 0
    frame, site = table()
    frame = frame[site == "a"].reset_index(drop=True)
    expected = ContextMoments().update(
        frame[FEATURES], frame["diagnosis"].to_numpy(), covariates=np.log(frame["age"].to_numpy())
    )
    loaded = ContextMoments.load(out).covariances().covariances
    np.testing.assert_allclose(loaded, expected.covariances().covariances, atol=1e-10)


def test_what_does_not_go_together_is_one_line(sites, capsys):
    plain = [str(sites / "b.csv"), *ROWS, "--drop", "run", "--drop", "stage", "--drop", "age"]
    assert main(["moments", *plain, "-o", str(sites / "plain.moments"), "-q"]) == 0
    capsys.readouterr()
    files = [str(sites / "a.moments"), str(sites / "plain.moments")]
    assert main(["merge", *files, "-o", str(sites / "c"), "--json"]) != 0
    told = json.loads(capsys.readouterr().out)
    assert "come with neither batch nor covariates, and those before with batch and covariates" in json.dumps(told)
    assert main(["fit", files[0], "-r", "2", "--batch", "run", "-o", str(sites / "d")]) != 0
    assert "--batch is for files of rows" in capsys.readouterr().err
    assert not (sites / "c").exists()


def test_a_batch_of_one_row_is_warned_of(sites, capsys):
    frame, _ = table()
    frame.loc[0, "run"] = "alone"
    frame.to_csv(sites / "x.csv", index=False)
    command = ["moments", str(sites / "x.csv"), *ROWS, "--drop", "age", "--drop", "stage", "--batch", "run"]
    assert main([*command, "-o", str(sites / "x.moments")]) == 0
    assert "1 of 10 batches within contexts are a single row ('alone' in 'x' for one)" in capsys.readouterr().err
