"""Missing values of features: an error, or what ``--missing`` says; and ``--scale``."""

import json

import numpy as np
import pandas as pd
import pytest
from table_files import FEATURES, exact_csv, frame, planted

from mcpca import MCPCA, Preprocess
from mcpca.cli import main
from mcpca.cli.tables import Reading, UnusableFileError, read_data

NAMED = ["--index", "cell", "-c", "group"]
QUICK = ["-r", "2", "--no-report", "--no-picture"]


def with_holes():
    """Return the planted rows with some values missing."""
    X = planted()[0].copy()
    X[np.random.default_rng(5).random(X.shape) < 0.03] = np.nan
    return X


def write(path, X, text=""):
    frame().assign(**dict(zip(FEATURES, X.T, strict=True))).to_csv(path, index=False, na_rep=text)
    return str(path)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run_command(*words):
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_command


@pytest.mark.parametrize(("solver", "missing"), [("mspm", "pairwise"), ("ml", "em")])
@pytest.mark.parametrize("text", ["", "n.d."])
def test_missing_values_are_those_of_the_library(run, tmp_path, solver, missing, text):
    X = with_holes()
    path = write(tmp_path / "x.csv", X, text)
    words = ["fit", path, *NAMED, *QUICK, *(["--na-values", text] if text else [])]
    code, _, err = run(*words)
    assert code == 3
    assert "rows have missing or infinite values" in err
    assert "--missing" in err
    code, _, err = run(*words, "--solver", solver, "--missing", missing, "-o", "out")
    assert code == 0, err
    assert f"{np.isnan(X).sum()} missing values among the features ({100 * np.isnan(X).mean():.2g}% of all)" in err
    assert "contexts are tested on complete rows only" in err
    expected = MCPCA(2, solver=solver, missing=missing, random_state=0).fit(X, planted()[1])
    loadings = exact_csv("out/loadings.csv", index_col=0)
    np.testing.assert_allclose(loadings, expected.loadings_, rtol=1e-10)
    assert np.isfinite(pd.read_csv("out/scores.csv").iloc[:, 2:].to_numpy()).all()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["options"]["missing"] == missing
    assert run("repeat", "out", "-o", "again")[0] == 0
    if not text:
        code, _, err = run("transform", "out", path, "--index", "cell", "--drop", "group", "-o", "new.csv")
        assert code == 0, err
        np.testing.assert_allclose(pd.read_csv("new.csv")["MCPC 1"], pd.read_csv("out/scores.csv")["MCPC 1"], rtol=1e-9)
        assert run("loadings", "out", path, *NAMED)[0] == 0
        code, _, err = run("report", "out", path, *NAMED)
        assert (code, "was fitted with --missing, and its report has no pictures of rows" in err) == (2, True)
    if not text and solver == "mspm":
        code, _, err = run(*words[:-2], "--missing", missing, "--no-picture", "-o", "with-report")
        assert code == 0, err
        assert (tmp_path / "with-report" / "report.html").exists()


def test_streams_and_arrays_have_gaps_too(tmp_path):
    X = with_holes()
    write(tmp_path / "x.csv", X)
    reading = {"context": ("group",), "index": "cell", "gaps": True}
    for data in (
        read_data([tmp_path / "x.csv"], Reading(**reading)),
        read_data([tmp_path / "x.csv"], Reading(**reading, max_bytes=100)),
    ):
        np.testing.assert_array_equal(np.vstack([block for _, block in data.source.scan(2**20)]), X)
        assert data.says == [
            f"{np.isnan(X).sum()} missing values among the features ({100 * np.isnan(X).mean():.2g}% of all)."
        ]
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "labels.txt").write_text("\n".join(planted()[1]))
    asked = Reading(labels=tmp_path / "labels.txt", gaps=True)
    assert len(read_data([tmp_path / "x.npy"], asked).says) == 1
    X[7, 1] = np.inf
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(UnusableFileError, match=r"1 missing or infinite value in rows .*the first in row 8, column 2"):
        read_data([tmp_path / "x.npy"], asked)
    write(tmp_path / "x.csv", X)
    with pytest.raises(UnusableFileError, match=r"1 of 120 rows has infinite values, the first in row 8"):
        read_data([tmp_path / "x.csv"], Reading(**reading))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--missing", "em", "-r", "2"], "--missing em is not for --solver mspm; pass --solver ml"),
        (["--missing", "pairwise"], "--missing pairwise needs --rank R"),
        (["--missing", "pairwise", "-r", "2", "--scale"], "--scale is for complete rows"),
        (["--missing", "pairwise", "-r", "2", "--robust"], "--robust is for complete rows"),
        (["--missing", "em", "--solver", "ml", "-r", "2", "--orthogonal"], "--orthogonal cannot be combined"),
        (["--missing", "em", "--solver", "ml", "-r", "2", "--noise", "none"], "needs noise"),
        (["--comment", " "], "name a character"),
    ],
)
def test_options_that_contradict_missing_values(run, tmp_path, words, message):
    path = write(tmp_path / "x.csv", with_holes())
    code, _, err = run("fit", path, *NAMED, *words)
    assert (code, message in err) == (2, True), err


def test_scale_divides_by_standard_deviations_and_is_kept(run, tmp_path):
    X, y = planted()
    X = X * 10.0 ** np.arange(6)
    path = write(tmp_path / "x.csv", X)
    code, _, err = run("fit", path, *NAMED, *QUICK, "--scale", "-o", "out")
    assert code == 0, err
    expected = MCPCA(2, preprocess=Preprocess(None, scale=True), random_state=0).fit(X, y)
    np.testing.assert_allclose(expected.preprocess_.scales, X.std(axis=0, ddof=1), rtol=1e-10)
    components = exact_csv("out/components.csv", index_col=0)
    np.testing.assert_allclose(components, expected.components_, rtol=1e-8)
    model = MCPCA.load("out/model.mcpca")
    assert model.preprocess_.feature_names_in.tolist() == FEATURES
    run("transform", "out", path, "--index", "cell", "--drop", "group", "-o", "new.csv")
    np.testing.assert_allclose(pd.read_csv("new.csv")["MCPC 2"], pd.read_csv("out/scores.csv")["MCPC 2"], rtol=1e-9)
    code, out, _ = run("loadings", "out", path, *NAMED, "--as-fitted")
    assert code == 0
    by_hand = np.array([line.split(",")[1:] for line in out.splitlines()[1:]], dtype=float)
    np.testing.assert_allclose(by_hand, expected.loadings_, rtol=1e-8)
    rank = ["rank", path, *NAMED, "--ranks", "1-3", "--criteria", "scree", "--json"]
    tables = [json.loads(run(*rank, *more)[1])["table"] for more in ([], ["--scale"])]
    assert tables[0] != tables[1]
    code, _, err = run("fit", path, *NAMED, "--scale", "--hvg", 3)
    assert (code, "--hvg has no effect" in err) == (2, True)
    run("moments", path, *NAMED, "-o", "x.moments")
    code, _, err = run("fit", "x.moments", "-r", 2, "--scale")
    assert (code, "--scale prepares rows, and moments do not have them" in err) == (2, True)
