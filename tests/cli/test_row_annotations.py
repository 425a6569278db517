"""``--groups``, ``--batch`` and ``--covariates``: columns of files that say something of rows beside their context."""

import json
import re

import numpy as np
import pytest

from mcpca import MCPCA, select_rank
from mcpca.cli import main

pytest.importorskip("pyarrow")
P = 6


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    k, donors, n = 4, 6, 20
    A = np.linalg.qr(rng.standard_normal((P, 2)))[0]
    B = rng.uniform(2, 8, (k, 2))
    scores = rng.standard_normal((k, donors, n, 2)) * np.sqrt(B)[:, None, None]
    X = scores @ A.T + 0.2 * rng.standard_normal((k, donors, 1, P)) + 0.5 * rng.standard_normal((k, donors, n, P))
    context, donor, number = np.indices((k, donors, n))
    depth = rng.standard_normal(k * donors * n)
    X = X.reshape(-1, P) + np.outer(depth, rng.standard_normal(P))
    return X, context.ravel(), (donor + donors * context).ravel(), (number % 2).ravel(), depth


@pytest.fixture
def table(rows, tmp_path):
    X, context, donor, run, depth = rows
    lines = [",".join(["tissue", "donor", "run", "depth", *(f"f{j}" for j in range(P))])]
    for i in range(len(X)):
        values = [f"t{context[i]}", f"d{donor[i]}", f"r{run[i]}", repr(float(depth[i])), *map(repr, X[i].tolist())]
        lines.append(",".join(values))
    path = tmp_path / "cells.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def run(capsys):
    """Run a command; return its exit code and what it has printed, on stdout and on stderr."""

    def run_command(*words):
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_command


def test_rank_splits_groups(table, rows, run):
    X, context, donor, _, depth = rows
    code, out_text, err = run(
        "rank",
        table,
        "-c",
        "tissue",
        "--groups",
        "donor",
        "--covariates",
        "depth",
        "--drop",
        "run",
        "--criteria",
        "none",
        "--json",
    )
    assert code == 0, err
    labels = {"groups": donor, "covariates": depth}
    expected = select_rank(X, context, criteria=(), random_state=0, **labels)
    assert json.loads(out_text)["rank"] == expected.rank == 2
    assert "groups" in json.loads(out_text)["reason"]


def test_fit_records_what_it_was_told_and_repeats_it(table, rows, tmp_path, run):
    X, context, donor, batch, depth = rows
    out = tmp_path / "out"
    code, out_text, err = run(
        "fit",
        table,
        "-c",
        "tissue",
        "--groups",
        "donor",
        "--batch",
        "run",
        "--covariates",
        "depth",
        "--no-report",
        "--no-picture",
        "--out",
        out,
    )
    assert code == 0, err
    model = MCPCA.load(out / "model.mcpca")
    assert model.n_features_in_ == P
    expected = MCPCA(random_state=0).fit(X, context, groups=donor, batch=batch, covariates={"depth": depth})
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-10)
    reading = json.loads((out / "run.json").read_text())["options"]["reading"]
    assert (reading["groups"], reading["batch"], reading["covariates"]) == (["donor"], ["run"], "depth")
    # Scores are those of rows without the nuisance.
    scores = np.loadtxt(out / "scores.csv", delimiter=",", skiprows=1, usecols=(2, 3))
    nuisance = {"batch": batch, "covariates": {"depth": depth}}
    np.testing.assert_allclose(scores, expected.transform(X, context, **nuisance), atol=1e-6)
    code, out_text, err = run("repeat", out, "--out", tmp_path / "again")
    assert code == 0, err
    assert "to the last bit" in out_text + err


def test_new_rows_lose_the_nuisance_of_the_fit(table, rows, tmp_path, run):
    X, context, _, batch, depth = rows
    out = tmp_path / "out"
    nuisance = ("--batch", "run", "--covariates", "depth")
    code, out_text, err = run(
        "fit",
        table,
        "-c",
        "tissue",
        "--rank",
        2,
        "--drop",
        "donor",
        *nuisance,
        "--no-report",
        "--no-picture",
        "--out",
        out,
    )
    assert code == 0, err
    model = MCPCA(2, random_state=0).fit(X, context, batch=batch, covariates={"depth": depth})
    scores = tmp_path / "scores.csv"
    code, out_text, err = run("transform", out, table, "-c", "tissue", *nuisance, "--out", scores)
    assert code == 0, err
    expected = model.transform(X, context, batch=batch, covariates={"depth": depth})
    np.testing.assert_allclose(np.loadtxt(scores, delimiter=",", skiprows=1, usecols=(2, 3)), expected, atol=1e-6)
    code, out_text, err = run("loadings", out, table, "-c", "tissue", *nuisance, "--json")
    assert code == 0, err
    expected = model.loadings_for(X, context, batch=batch, covariates={"depth": depth})
    np.testing.assert_allclose(json.loads(out_text)["loadings"], expected, rtol=1e-6)


def test_a_formula_of_columns(table, rows, run):
    pytest.importorskip("formulaic")
    X, context, _, batch, depth = rows
    code, out_text, err = run(
        "rank", table, "-c", "tissue", "--drop", "donor", "--covariates", "run + depth", "--criteria", "none", "--json"
    )
    assert code == 0, err
    labels = np.array(["r0", "r1"])[batch]
    expected = select_rank(X, context, covariates={"run": labels, "depth": depth}, criteria=(), random_state=0)
    assert json.loads(out_text)["rank"] == expected.rank


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--groups", "patient"), "column \\(--groups, --batch, --covariates or --row-metadata\\) 'patient'"),
        (("--groups", "donor", "--rank", "2", "--no-context-test"), "--groups.*the rank is given"),
    ],
)
def test_what_has_no_effect_or_is_not_there_is_refused(table, tmp_path, words, message, run):
    code, _, err = run("fit", table, "-c", "tissue", *words, "--drop", "run", "--out", tmp_path / "out")
    assert code in (2, 3)
    assert re.search(message, err)
