"""Columns that are no features: doctor leaves them out, and a fit that consists of one of them says so."""

import json
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest

from mcpca import MCPCA, ContextMoments, DominantFeatureWarning
from mcpca._model.dominance import dominant_feature
from mcpca.cli import main
from mcpca.datasets import make_contexts


@pytest.fixture
def table():
    """Features of one scale, text for contexts, and four columns that are none."""
    data = make_contexts(4, 8, 3, n_samples=60, noise=0.2, random_state=0)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(data.X, columns=["ACTB", "CD3E", "CD8A", "GNLY", "LYZ", "MS4A1", "NKG7", "PPBP"])
    n = len(frame)
    return frame.assign(
        type=[f"t{i}" for i in data.y],
        n_counts=rng.poisson(3000, n),
        depth=rng.normal(5e4, 1e4, n),
        stage=rng.integers(1, 4, n),
        visit=np.sort(rng.integers(0, 90, n)),
    )


def fits(X, y, **options):
    """Return the warnings of a fit that are about a dominant feature."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MCPCA(random_state=0, **options).fit(X, y)
    return [w.message for w in caught if issubclass(w.category, DominantFeatureWarning)]


@pytest.mark.parametrize(
    "options",
    [{"n_components": r} for r in (1, 2, 3)]
    + [{"n_components": 3, "solver": solver} for solver in ("lsq", "ml")]
    + [{"n_components": 3, "orthogonal": True}],
)
def test_a_fit_that_is_one_column_says_so(table, options):
    (warning,) = fits(table.drop(columns=["n_counts", "stage", "visit"]), "type", **options)
    assert "The feature 'depth' is nearly all of" in str(warning)
    assert "Leave it out of X if it is not a measurement, or bring features to one scale" in str(warning)
    assert warning.dominance.weight > 0.99
    clean = table.drop(columns=["n_counts", "stage", "visit", "depth"])
    assert fits(clean, "type", **options) == []


def test_scaled_features_are_not_warned_of(table):
    X = table.drop(columns="type")
    assert len(fits(X.to_numpy(), table["type"], n_components=3)) == 1
    assert fits((X / X.std()).to_numpy(), table["type"], n_components=3) == []


def test_moments_tell_it_too_and_features_without_names_are_counted(table):
    moments = ContextMoments().update(table[["ACTB", "CD3E", "depth", "LYZ"]].to_numpy(), table["type"])
    (warning,) = fits(moments, None, n_components=2)
    assert "Feature 2 (counted from 0) is nearly all of 2 of 2 MCPCs" in str(warning)


@pytest.mark.parametrize("r", [1, 4, 8])
def test_axes_along_features_are_no_alarm(r):
    """Every MCPC is one feature, each another one: a planted model, or scores of PCA."""
    rng = np.random.default_rng(1)
    deviations = np.sqrt(rng.uniform(0.2, 1, size=(5, 8)) * np.geomspace(10, 0.1, 8))
    X = np.concatenate([rng.normal(size=(300, 8)) * s for s in deviations])
    assert fits(X, np.repeat(np.arange(5), 300), n_components=r) == []
    U = np.linalg.svd(X - X.mean(0), full_matrices=False)
    assert fits(U[0] * U[1], None, n_components=r) == []


def test_one_or_two_features_are_no_alarm():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)) * [1000, 1], np.arange(90) % 3
    assert fits(X[:, :1], y, n_components=1) == []
    assert fits(X, y, n_components=1) == []


def test_one_mcpc_of_several_is_dominated_only_if_its_feature_has_all_variance():
    A = np.eye(5)[:, :3]
    assert dominant_feature(A, lambda: np.array([[200.0, 1, 1, 1, 1]])) is None
    dominance = dominant_feature(A, lambda: np.array([[900.0, 1, 1, 1, 1]]))
    assert (dominance.feature, dominance.n_components, dominance.rank) == (0, 1, 3)


def test_doctor_leaves_out_what_is_no_feature_and_its_command_is_clean(table, tmp_path, capsys):
    path = tmp_path / "cells.csv"
    table.to_csv(path, index=False)
    fit = ["fit", str(path), "-c", "type", "-r", "3", "--no-report", "--no-picture", "--no-scores", "-q"]
    assert main([*fit, "-o", str(tmp_path / "all")]) == 0
    printed = capsys.readouterr().err
    assert "mcpca: warning: the feature 'depth' is nearly all of 3 of 3 MCPCs (|weight| 0.99" in printed
    assert "Leave it out with --drop depth if it is not a measurement" in printed
    assert "depth" in str(json.loads((tmp_path / "all" / "run.json").read_text())["warnings"])
    assert main(["doctor", str(path), "--json"]) == 0
    diagnosis = json.loads(capsys.readouterr().out)
    reasons = {name: reason.split(" times")[0] for name, reason in diagnosis["no_features"].items()}
    assert reasons.pop("depth").startswith("its variance is ")
    assert reasons == {
        "n_counts": "a name of metadata",
        "visit": "whole numbers in order",
        "stage": "few whole numbers among measurements",
    }
    words = shlex.split(diagnosis["command"])
    assert [words[i + 1] for i, word in enumerate(words) if word == "--drop"] == ["n_counts", "stage", "visit", "depth"]
    out = tmp_path / "clean"
    assert main([*words[1:], "-r", "3", "--no-report", "--no-picture", "-q", "-o", str(out)]) == 0
    assert "nearly all" not in capsys.readouterr().err
    assert pd.read_csv(out / "components.csv")["feature"].tolist() == list(table.columns[:8])
    # What the user names is not doubted.
    assert main(["doctor", str(path), "--features", "depth", "--features", "ACTB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["no_features"] == {}


def test_doctor_looks_into_folders(table, tmp_path, capsys):
    folder = tmp_path / "regions"
    folder.mkdir()
    for name, part in table.groupby("type"):
        part.drop(columns=["type", "depth", "visit", "stage"]).to_csv(folder / f"{name}.csv", index=False)
    assert main(["doctor", str(folder), "--json"]) == 0
    diagnosis = json.loads(capsys.readouterr().out)
    assert diagnosis["no_features"] == {"n_counts": "a name of metadata"}
    assert diagnosis["command"].endswith("--drop n_counts")


@pytest.mark.parametrize("kind", ["counts", "answers", "family", "spread"])
def test_doctor_has_no_suspects_among_features_of_one_kind(tmp_path, capsys, kind):
    rng = np.random.default_rng(0)
    columns = {
        "counts": rng.poisson(rng.gamma(2, 20, size=8), size=(120, 8)),
        "answers": rng.integers(1, 6, size=(120, 8)),
        "family": rng.normal(size=(120, 8)) * [1000, 1, 1, 1, 1, 1, 1, 1],
        "spread": rng.normal(size=(120, 8)) * np.geomspace(10, 0.1, 8),
    }[kind]
    names = [f"emb_{j}" for j in range(8)] if kind == "family" else list("ABCDEFGH")
    frame = pd.DataFrame(columns, columns=names).assign(who=list("xyz") * 40)
    frame.to_csv(tmp_path / "x.csv", index=False)
    assert main(["doctor", str(tmp_path / "x.csv"), "--json"]) == 0
    diagnosis = json.loads(capsys.readouterr().out)
    assert diagnosis["no_features"] == {}
    assert "--drop" not in diagnosis["command"]
