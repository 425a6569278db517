"""The commands give what the library gives, with names; their words, and exit codes that mean something."""

import importlib.util
import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reading_reports import content
from table_files import FEATURES, exact_csv, frame, planted, write_all, write_folder

import mcpca
from mcpca import MCPCA, ContextMoments
from mcpca._solvers import SOLVERS
from mcpca.cli import main

R = 2
TABLES = {"components", "loadings", "corrected_loadings", "scores", "projection", "diagnostics", "scree"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_all(folder)
    return folder


@pytest.fixture(scope="module")
def fitted(inputs, tmp_path_factory):
    """A folder of results, fitted once."""
    out = tmp_path_factory.mktemp("results") / "fit"
    assert main(["fit", str(inputs / "plain.csv"), *CSV, "--rank", "2", "--out", str(out), "-q"]) == 0
    return out


CSV = ["--context", "group", "--index", "cell"]


def library():
    X, y = planted()
    return MCPCA(R, random_state=0).fit(X, y)


def read(path):
    return exact_csv(path, index_col=0)


# What a fit writes -------------------------------------------------------------------------------------------------


def test_tables_hold_the_numbers_of_the_library(fitted):
    model = library()
    names = ["MCPC 1", "MCPC 2"]
    components, loadings = read(fitted / "components.csv"), read(fitted / "loadings.csv")
    assert components.index.tolist() == FEATURES
    assert loadings.index.tolist() == ["c0", "c1", "c2", "c3"]
    assert list(components.columns) == list(loadings.columns) == names
    np.testing.assert_array_equal(components, model.components_)
    np.testing.assert_array_equal(loadings, model.loadings_)
    np.testing.assert_array_equal(read(fitted / "corrected_loadings.csv"), model.corrected_loadings_)
    np.testing.assert_array_equal(read(fitted / "projection.csv"), model.projection_.T)
    np.testing.assert_array_equal(read(fitted / "scree.csv")["singular_value"], model.singular_values_)
    scores = read(fitted / "scores.csv")
    X, y = planted()
    assert scores.index.tolist() == frame()["cell"].tolist()
    assert scores["context"].tolist() == y.tolist()
    np.testing.assert_allclose(scores[names], model.transform(X), atol=1e-12)
    diagnostics = read(fitted / "diagnostics.csv")
    assert diagnostics["n_samples"].tolist() == [30] * 4
    relative = model.reconstruction_error(per="context") / model.squared_norms()
    np.testing.assert_allclose(diagnostics["relative_error"], relative, rtol=1e-12)
    summary = json.loads((fitted / "diagnostics.json").read_text())
    assert summary["rank"] == R
    assert summary["loadings"] == "loadings as fitted: the noise of each context is in them"
    assert summary["corrected_loadings"] == "corrected loadings: the noise of each context is taken out"
    assert summary["variance_explained"] == pytest.approx(
        model.variance_explained() / model.squared_norms().mean(), rel=1e-12
    )
    landscape = model.landscape()
    np.testing.assert_allclose(list(summary["F_by_component"].values()), landscape.F, rtol=1e-12)
    assert len(summary["certified_maxima"]) == landscape.certified.sum()
    assert len(summary["own_maxima"]) == landscape.own.sum()


def test_the_model_file_is_that_of_the_library(fitted):
    model = MCPCA.load(fitted / "model.mcpca")
    np.testing.assert_array_equal(model.components_, library().components_)
    assert model.feature_names_in_.tolist() == FEATURES
    assert model.contexts_.tolist() == ["c0", "c1", "c2", "c3"]


def test_the_picture_is_a_picture(fitted):
    assert (fitted / "loadings.png").read_bytes().startswith(b"\x89PNG")


def test_files_can_be_read_by_others(fitted):
    """Temporary files are for their owner only; results have the permissions of new files."""
    mask = os.umask(0)
    os.umask(mask)
    assert fitted.stat().st_mode & 0o777 == 0o777 & ~mask
    assert {path.stat().st_mode & 0o777 for path in fitted.iterdir()} == {0o666 & ~mask}


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr", "arrays.npz", "table.parquet", "continental.csv"])
def test_other_formats_give_the_same_model(inputs, tmp_path, capsys, name):
    options = ["--context", "group", *(["--index", "cell"] if "cells" not in name else [])]
    options += ["--decimal", ","] if name == "continental.csv" else []
    out = tmp_path / "out"
    arguments = [
        "fit",
        str(inputs / name),
        *options,
        "-r",
        "2",
        "-o",
        str(out),
        "--no-report",
        "--no-picture",
        "--json",
    ]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert told["diagnostics"]["features"] == 6
    np.testing.assert_allclose(read(out / "components.csv"), library().components_, atol=1e-7)


def test_parquet_tables_and_a_folder_of_contexts(tmp_path, capsys):
    data = tmp_path / "regions"
    data.mkdir()
    write_folder(data)
    out = tmp_path / "out"
    assert (
        main(["fit", str(data), "-r", "2", "-o", str(out), "--format", "parquet", "--no-report", "--no-picture"]) == 0
    )
    captured = capsys.readouterr()
    assert "left out: 'README.txt'" in captured.err
    assert captured.out.startswith("4 contexts, 120 rows, 6 features (text and Parquet)\n2 MCPCs.\n")
    assert {path.stem for path in out.glob("*.parquet")} >= TABLES
    loadings = pd.read_parquet(out / "loadings.parquet").set_index("context")
    np.testing.assert_allclose(loadings, library().loadings_, rtol=1e-6)


def test_crossed_contexts_and_streaming(tmp_path, rng):
    """1.2 MB of rows, in memory and with less memory than that."""
    X, y = planted()
    many = np.tile(X, (50, 4)) + 0.1 * rng.normal(size=(6000, 24))
    table = pd.DataFrame(many, columns=[f"f{j}" for j in range(24)])
    table.assign(group=np.tile(y, 50), half=np.arange(6000) // 3000).to_parquet(tmp_path / "x.parquet")
    asked = [
        "fit",
        str(tmp_path / "x.parquet"),
        "-c",
        "group",
        "-c",
        "half",
        "-r",
        "2",
        "-q",
        "--no-report",
        "--no-picture",
    ]
    assert main([*asked, "-o", str(tmp_path / "inside")]) == 0
    assert main([*asked, "-o", str(tmp_path / "streamed"), "--max-memory", "1"]) == 0
    assert read(tmp_path / "inside" / "loadings.csv").index.tolist() == [
        f"c{i} / {h}" for i in range(4) for h in (0, 1)
    ]
    for name in ("loadings", "components"):
        first, second = (read(tmp_path / way / f"{name}.csv") for way in ("inside", "streamed"))
        np.testing.assert_allclose(first, second, atol=1e-8)
    first, second = (read(tmp_path / way / "scores.csv") for way in ("inside", "streamed"))
    assert first["context"].tolist() == second["context"].tolist()
    np.testing.assert_allclose(first[["MCPC 1", "MCPC 2"]], second[["MCPC 1", "MCPC 2"]], atol=1e-7)


# Repeating ---------------------------------------------------------------------------------------------------------


def test_a_run_can_be_repeated_exactly(fitted, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["repeat", str(fitted / "run.json"), "--out", "again", "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["same"]
    assert told["differ"] == []
    for name in TABLES:
        assert (tmp_path / "again" / f"{name}.csv").read_bytes() == (fitted / f"{name}.csv").read_bytes()
    assert (tmp_path / "again" / "model.mcpca").read_bytes() == (fitted / "model.mcpca").read_bytes()


def test_the_record_says_how_it_was_run(fitted, inputs):
    import hashlib

    run = json.loads((fitted / "run.json").read_text())
    assert run["seed"] == 0
    assert run["versions"]["mcpca"] == mcpca.__version__
    assert run["versions"]["numpy"] == np.__version__
    assert [entry["path"] for entry in run["inputs"]] == [os.path.relpath(inputs / "plain.csv", fitted)]
    assert run["inputs"][0]["sha256"] == hashlib.sha256((inputs / "plain.csv").read_bytes()).hexdigest()
    assert run["options"]["reading"]["context"] == ["group"]
    assert run["options"]["rank"] == 2
    assert {"reading", "fit", "scores", "tables"} <= run["timings"].keys()
    for name, digest in run["outputs"].items():
        assert hashlib.sha256((fitted / name).read_bytes()).hexdigest() == digest


def test_repeating_refuses_other_data_and_tells_other_results(inputs, tmp_path, capsys):
    (tmp_path / "x.csv").write_bytes((inputs / "plain.csv").read_bytes())
    out = tmp_path / "out"
    assert (
        main(["fit", str(tmp_path / "x.csv"), *CSV, "-r", "2", "-o", str(out), "-q", "--no-report", "--no-picture"])
        == 0
    )
    run = json.loads((out / "run.json").read_text())
    run["outputs"]["loadings.csv"] = "0" * 64
    (out / "run.json").write_text(json.dumps(run))
    capsys.readouterr()
    assert main(["repeat", str(out), "-o", str(tmp_path / "again"), "-q"]) == 0
    assert "warning: the results differ from those of" in (told := capsys.readouterr().err)
    assert "loadings.csv" in told
    (tmp_path / "x.csv").write_text((inputs / "plain.csv").read_text().replace("c1", "c2", 1))
    assert main(["repeat", str(out), "-o", str(tmp_path / "third")]) == 3
    assert "x.csv has changed (SHA-256" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()
    (tmp_path / "x.csv").unlink()
    assert main(["repeat", str(out), "-o", str(tmp_path / "third")]) == 3
    assert main(["repeat", str(inputs / "plain.csv")]) == 3
    assert "is not a run.json of mcpca fit" in capsys.readouterr().err


def test_a_file_that_came_to_a_folder_is_noticed(tmp_path, capsys):
    data = tmp_path / "regions"
    data.mkdir()
    write_folder(data)
    out = tmp_path / "out"
    assert main(["fit", str(data), "-r", "2", "-o", str(out), "--no-report", "--no-picture", "-q"]) == 0
    pd.read_csv(data / "c0.csv").iloc[:-1].to_csv(data / "c9.csv", index=False)
    assert main(["repeat", str(out), "-o", str(tmp_path / "again"), "-q"]) == 3
    assert "c9.csv was not there in the run that is to be repeated" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


# Models and new data -----------------------------------------------------------------------------------------------


def test_transform_writes_scores_in_the_order_of_the_model(fitted, tmp_path, capsys):
    table = frame()
    table[["cell", "group", *FEATURES[::-1]]].assign(more=1.0).to_csv(tmp_path / "new.csv", index=False)
    X, y = planted()
    model = library()
    base = [str(tmp_path / "new.csv"), "--index", "cell"]
    for options, expected in (
        (["--drop", "group"], model.transform(X)),
        (["-c", "group", "--center", "context"], model.transform(X, y)),
        (["-c", "group", "--center", "own"], model.transform(X, y, center="own")),
    ):
        out = tmp_path / "scores.csv"
        assert main(["transform", str(fitted), *base, *options, "-o", str(out), "--force"]) == 0
        assert "that the model does not have: 'more'" in capsys.readouterr().err
        scores = read(out)
        np.testing.assert_allclose(scores[["MCPC 1", "MCPC 2"]], expected, atol=1e-12)
        assert scores.index.tolist() == table["cell"].tolist()
    assert main(["transform", str(fitted / "model.mcpca"), *base, "--drop", "group", "-q"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == '"row","MCPC 1","MCPC 2"'
    assert len(out) == 121


def test_loadings_of_new_contexts(fitted, inputs, tmp_path, capsys):
    X, y = planted()
    model = library()
    out = tmp_path / "new.parquet"
    assert main(["loadings", str(fitted), str(inputs / "cells.h5ad"), "-c", "group", "-o", str(out)]) == 0
    table = pd.read_parquet(out).set_index("context")
    assert table.index.tolist() == ["c0", "c1", "c2", "c3"]
    np.testing.assert_allclose(table, model.loadings_for(X, y), rtol=1e-6)
    capsys.readouterr()
    assert main(["loadings", str(fitted), str(inputs / "rows.npy"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["contexts"] == ["rows"]
    np.testing.assert_allclose(told["loadings"], [model.loadings_for(X)], rtol=1e-9)
    assert told["which"] == "corrected loadings: the noise of each context is taken out"


def test_which_loadings_is_said_and_can_be_chosen(fitted, inputs, tmp_path, capsys):
    model = library()
    rows = [str(inputs / "plain.csv"), *CSV]
    assert main(["loadings", str(fitted), *rows]) == 0
    told = capsys.readouterr()
    assert told.out.startswith('"context","MCPC 1","MCPC 2"')
    assert "mcpca: these are corrected loadings: the noise of each context is taken out.\n" in told.err
    assert main(["loadings", str(fitted), *rows, "--as-fitted", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(told["loadings"], model.loadings_, rtol=1e-9)
    assert told["which"] == "loadings as fitted: the noise of each context is in them"
    # What a fit prints: corrected ones, each MCPC divided by its largest.
    plain = ["--no-report", "--no-picture", "-o", str(tmp_path / "plain")]
    assert main(["fit", *rows, "--rank", "2", *plain]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("(corrected loadings: the noise of each context is taken out)")
    shown = np.array([line.split()[1:] for line in lines[at - 5 : at - 1]], dtype=float)
    np.testing.assert_allclose(shown, model.corrected_loadings_ / model.corrected_loadings_.max(axis=0), atol=0.0051)
    # The loadings of a fit with noise are of one kind.
    with_noise = ["--noise", "pooled", "--no-report", "--no-picture", "-o", str(tmp_path / "pooled")]
    assert main(["fit", *rows, "--rank", "2", *with_noise]) == 0
    assert "(loadings of a fit with noise, which is not part of them)" in capsys.readouterr().out
    pooled = MCPCA.load(tmp_path / "pooled" / "model.mcpca")
    np.testing.assert_array_equal(read(tmp_path / "pooled" / "corrected_loadings.csv"), pooled.loadings_)
    for command in (["loadings", str(tmp_path / "pooled"), *rows], ["report", str(tmp_path / "pooled")]):
        assert main([*command, "--as-fitted"]) == 2
        assert "--as-fitted has no effect: the model was fitted with noise" in capsys.readouterr().err


def test_the_report_of_loadings_as_fitted(fitted, tmp_path, capsys):
    for options, name in (([], "corrected loadings"), (["--as-fitted"], "loadings as fitted")):
        out = tmp_path / f"{len(options)}.html"
        assert main(["report", str(fitted), *options, "-o", str(out), "-q"]) == 0
        assert f"Shown are {name}:" in out.read_text(encoding="utf-8")


def test_posterior_scores_of_least_squares(fitted, inputs, tmp_path):
    X, y = planted()
    out = tmp_path / "scores.csv"
    rows = [str(inputs / "plain.csv"), *CSV, "--center", "context"]
    assert main(["transform", str(fitted), *rows, "--posterior", "-o", str(out), "-q"]) == 0
    model = library()
    found = read(out)[["MCPC 1", "MCPC 2"]].to_numpy()
    np.testing.assert_allclose(found, model.transform(X, y, posterior=True), atol=1e-12)
    assert (found.std(axis=0) < model.transform(X, y).std(axis=0)).all()  # shrunk towards the mean


def test_models_with_other_names_of_contexts_meet_texts(tmp_path, inputs):
    """A model that was fitted in Python on integers takes the labels of a file by their text."""
    X, y = planted()
    codes = np.array([int(name[1:]) for name in y])
    model = MCPCA(2, random_state=0).fit(X, codes)
    model.save(tmp_path / "m.mcpca")
    (tmp_path / "labels.txt").write_text("\n".join(map(str, codes)))
    out = tmp_path / "s.csv"
    arguments = [
        "transform",
        str(tmp_path / "m.mcpca"),
        str(inputs / "rows.npy"),
        "--labels",
        str(tmp_path / "labels.txt"),
    ]
    assert main([*arguments, "--center", "context", "-o", str(out)]) == 0
    np.testing.assert_allclose(read(out)[["MCPC 1", "MCPC 2"]], model.transform(X, codes), atol=1e-12)


def test_sites_that_share_moments_get_the_model_of_all_rows(tmp_path, capsys):
    table = frame()
    for site, rows in (("a", table[:70]), ("b", table[70:])):
        rows.to_csv(tmp_path / f"{site}.csv", index=False)
        command = ["moments", str(tmp_path / f"{site}.csv"), *CSV, "-o", str(tmp_path / f"{site}.moments")]
        assert main(command) == 0
    both = [str(tmp_path / f"{site}.moments") for site in "ab"]
    assert main(["merge", *both, "-o", str(tmp_path / "all.moments"), "-q"]) == 0
    assert ContextMoments.load(tmp_path / "all.moments").counts.sum() == 120
    assert "sums over 120 rows, without the rows themselves" in capsys.readouterr().out
    out = tmp_path / "out"
    assert (
        main(["fit", str(tmp_path / "all.moments"), "-r", "2", "-o", str(out), "-q", "--no-report", "--no-picture"])
        == 0
    )
    assert not (out / "scores.csv").exists()
    components = read(out / "components.csv")
    assert components.index.tolist() == FEATURES
    np.testing.assert_allclose(components, library().components_, atol=1e-8)
    np.testing.assert_allclose(read(out / "loadings.csv"), library().loadings_, rtol=1e-8)
    capsys.readouterr()
    assert main(["doctor", str(tmp_path / "all.moments")]) == 0
    assert "moments of 4 contexts and 6 features, from 120 rows" in capsys.readouterr().out
    whole = (tmp_path / "all.moments").read_bytes()
    (tmp_path / "half.moments").write_bytes(whole[: len(whole) // 2])
    assert main(["merge", both[0], str(tmp_path / "half.moments"), "-o", str(tmp_path / "c")]) == 3
    assert "half.moments: is a truncated or damaged zip file" in capsys.readouterr().err
    assert main(["merge", both[0], str(tmp_path / "a.csv"), "-o", str(tmp_path / "c")]) == 3
    assert "a.csv: holds no moments (text)" in capsys.readouterr().err


def test_moments_of_few_rows_are_warned_about(tmp_path, capsys):
    frame()[:20].to_csv(tmp_path / "x.csv", index=False)
    assert main(["moments", str(tmp_path / "x.csv"), *CSV, "-o", str(tmp_path / "m")]) == 0
    assert "contexts have no more rows than features" in capsys.readouterr().err


def test_automatic_rank_and_its_record(inputs, tmp_path, capsys):
    out = tmp_path / "rank"
    assert main(["rank", str(inputs / "plain.csv"), *CSV, "--criteria", "none", "-o", str(out), "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    X, y = planted()
    expected = mcpca.select_rank(X, y, criteria=(), random_state=0)
    assert told["rank"] == expected.rank == 2
    assert told["reason"] == expected.reason
    assert sorted(path.name for path in out.iterdir()) == ["rank.csv", "rank.json", "rank.png", "run.json"]
    assert read(out / "rank.csv").index.tolist() == expected.ranks.tolist()
    assert (
        main(["fit", str(inputs / "plain.csv"), *CSV, "-o", str(tmp_path / "fit"), "--no-report", "--no-picture", "-q"])
        == 0
    )
    assert "2 MCPCs. Rank 2: 2 directions are above noise" in capsys.readouterr().out
    assert (tmp_path / "fit" / "rank.csv").exists()


def test_ranks_of_many_features_are_found_by_passes(inputs, capsys, monkeypatch):
    """Where covariances would be too large for memory, as ``MCPCA(n_components=None)`` does."""
    monkeypatch.setattr("mcpca._covariances.fit_data.MOST_NUMBERS", 0)
    assert main(["rank", str(inputs / "plain.csv"), *CSV, "--criteria", "none", "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    X, y = planted()
    assert told["reason"] == mcpca.select_rank(X, y, criteria=(), random_state=0).reason
    assert told["rank"] == 2


def test_few_rows_are_told_and_fitted_with_the_smallest_model(tmp_path, capsys):
    """``fit`` and ``rank`` give one answer, and say that it is none: exit code 0. Noise in more rows: 4."""
    rng = np.random.default_rng(0)
    few = pd.DataFrame(rng.standard_normal((24, 3)), columns=["a", "b", "c"]).assign(group=["x", "y"] * 12)
    few.to_csv(tmp_path / "few.csv", index=False)
    assert main(["rank", str(tmp_path / "few.csv"), "--context", "group", "--criteria", "none", "--json"]) == 0
    captured = capsys.readouterr()
    assert "warning: Rank 1, the smallest" in captured.err
    assert json.loads(captured.out)["rank"] == 1
    out = tmp_path / "fit"
    assert main(["fit", str(tmp_path / "few.csv"), "--context", "group", "--out", str(out), "--no-report"]) == 0
    captured = capsys.readouterr()
    assert "warning: Rank 1, the smallest" in captured.err
    assert "cannot be told" in captured.out
    found = json.loads((out / "diagnostics.json").read_text())
    assert found["rank"] == 1
    assert any("24 rows of 3 features are too few" in text for text in found["warnings"])
    noise = pd.DataFrame(rng.standard_normal((80, 50))).add_prefix("f").assign(group=np.repeat(list("abcd"), 20))
    noise.to_csv(tmp_path / "noise.csv", index=False)
    for command in (["rank", "--criteria", "none"], ["fit", "--out", str(tmp_path / "none")]):
        assert main([command[0], str(tmp_path / "noise.csv"), "--context", "group", *command[1:]]) == 4
        assert "Nothing is above noise" in capsys.readouterr().err


def test_a_small_context_is_named_by_fit_and_rank(tmp_path, capsys):
    X, y = planted()
    table = pd.DataFrame(X).add_prefix("f").assign(group=[str(name) for name in y])
    table.loc[:2, "group"] = "tiny"
    table.to_csv(tmp_path / "tiny.csv", index=False)
    own = ["--context", "group"]
    assert main(["rank", str(tmp_path / "tiny.csv"), *own, "--criteria", "none", "--json"]) == 0
    captured = capsys.readouterr()
    assert "stay in the fit: 'tiny' (3)" in captured.err
    out = tmp_path / "fit"
    assert main(["fit", str(tmp_path / "tiny.csv"), *own, "--out", str(out), "--no-report"]) == 0
    assert "stay in the fit: 'tiny' (3)" in capsys.readouterr().err
    found = json.loads((out / "diagnostics.json").read_text())
    assert (found["rank"], found["rank_reason"]) == tuple(json.loads(captured.out)[name] for name in ("rank", "reason"))


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--solver", "ml", "--noise", "diagonal"], {"solver": "ml", "noise": "diagonal"}),
        (["--solver", "ml", "--noise", "none"], {"solver": "ml", "noise": None}),
        (["--solver", "lsq", "--orthogonal", "--seed", "3"], {"solver": "lsq", "orthogonal": True, "random_state": 3}),
        (["--tol", "1e-3", "--max-iter", "5"], {"tol": 1e-3, "max_iter": 5}),
        (["--robust", "--solver", "ml"], {"robust": True, "solver": "ml"}),
        (["--cross-fit", "1"], {"cross_fit": 1}),
    ],
)
def test_options_reach_the_model(inputs, tmp_path, options, parameters):
    X, y = planted()
    model = MCPCA(R, **({"random_state": 0} | parameters)).fit(X, y)
    out = tmp_path / "out"
    command = ["fit", str(inputs / "plain.csv"), *CSV, "-r", "2", *options, "-o", str(out), "-q", "--no-report"]
    assert main([*command, "--no-picture", "--center", "context"]) == 0
    np.testing.assert_array_equal(read(out / "components.csv"), model.components_)
    np.testing.assert_allclose(read(out / "corrected_loadings.csv"), model.corrected_loadings_, rtol=1e-12)
    np.testing.assert_allclose(read(out / "scores.csv")[["MCPC 1", "MCPC 2"]], model.transform(X, y), atol=1e-12)
    if parameters.get("noise") == "diagonal":
        np.testing.assert_array_equal(read(out / "noise.csv")["variance"], model.noise_variance_)
        scores = tmp_path / "posterior.csv"
        data = [str(out), str(inputs / "plain.csv"), *CSV]
        assert main(["transform", *data, "--center", "context", "--posterior", "-o", str(scores), "-q"]) == 0
        expected = model.transform(X, y, posterior=True)
        np.testing.assert_allclose(read(scores)[["MCPC 1", "MCPC 2"]], expected, atol=1e-12)


def test_noise_ends_with_4(tmp_path, capsys, rng):
    table = pd.DataFrame(rng.normal(size=(300, 8)), columns=list("abcdefgh")).assign(y=np.arange(300) % 3)
    table.to_csv(tmp_path / "noise.csv", index=False)
    asked = [str(tmp_path / "noise.csv"), "-c", "y"]
    assert main(["fit", *asked, "-o", str(tmp_path / "out"), "--json"]) == 4
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert error["exit_code"] == 4
    assert error["kind"] == "rank"
    assert captured.err.startswith("mcpca: Nothing is above noise")
    assert captured.err.endswith("Pass --rank R to fit one all the same.\n")
    assert not (tmp_path / "out").exists()
    assert main(["rank", *asked, "--criteria", "none", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert told["rank"] == 0
    assert not told["ok"]


# The report ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reports(monkeypatch):
    """Calls of the function that writes reports, which is tested elsewhere."""
    calls = []

    def write(model, path, **options):
        calls.append((model, options))
        Path(path).write_text("<html></html>")

    monkeypatch.setattr("mcpca.report.write_report", write)
    return calls


def test_a_fit_writes_the_report_with_its_rows(inputs, tmp_path, capsys, reports):
    out = tmp_path / "out"
    command = ["fit", str(inputs / "plain.csv"), *CSV, "-r", "2", "--solver", "ml", "-o", str(out), "--no-picture"]
    assert main([*command, "--title", "Cells"]) == 0
    assert capsys.readouterr().out.endswith(f"Open {out / 'report.html'} in a browser.\n")
    ((model, options),) = reports
    X, y = planted()
    assert options["title"] == "Cells"
    np.testing.assert_array_equal(options["X"].gather(slice(0, len(y))), X)
    assert options["y"].names().tolist() == y.tolist()
    assert options["run"]["command"] == shlex.join(["mcpca", *command, "--title", "Cells"])
    assert json.loads((out / "run.json").read_text())["inputs"][0]["sha256"] in options["run"]["input plain.csv"]
    # By the spread of the rows, since they are at hand.
    rows = pd.DataFrame(X, columns=model.feature_names_in_)
    np.testing.assert_allclose(options["standard_errors"].loadings, model.standard_errors(rows, y).loadings, rtol=1e-12)
    np.testing.assert_allclose(options["presence"].p_values, model.presence(rows, y).p_values, rtol=1e-9)
    # A report without rows, or with others, has the model to go by.
    few = tmp_path / "few.csv"
    few.write_text("".join((inputs / "plain.csv").read_text().splitlines(keepends=True)[:-5]))
    for rows in ([], [str(few), *CSV]):
        assert main(["report", str(out), *rows, "-o", str(tmp_path / f"{len(rows)}.html"), "-q"]) == 0
        _, options = reports[-1]
        np.testing.assert_array_equal(options["standard_errors"].loadings, model.standard_errors().loadings)


def test_report_of_a_model_with_and_without_rows(fitted, inputs, tmp_path, capsys, reports):
    out = tmp_path / "r.html"
    assert main(["report", str(fitted), "-o", str(out), "--title", "A"]) == 0
    assert out.read_text() == "<html></html>"
    rows = [str(inputs / "cells.h5ad"), "-c", "group"]
    assert main(["report", str(fitted / "model.mcpca"), *rows, "-o", str(out)]) == 5
    assert main(["report", str(fitted / "model.mcpca"), *rows, "-o", str(out), "--force"]) == 0
    alone, with_rows = (options for _, options in reports)
    assert "X" not in alone
    assert alone["run"]["seed"] == "0"
    assert with_rows["y"].names().tolist() == planted()[1].tolist()
    capsys.readouterr()
    assert main(["report", str(fitted), str(inputs / "rows.npy"), "-o", str(tmp_path / "s.html")]) == 3
    assert "nothing says which context each row is from" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html"]


def test_real_reports_are_whole_and_tell_of_the_run(inputs, tmp_path):
    pytest.importorskip("plotly")
    out = tmp_path / "out"
    command = ["fit", str(inputs / "cells.h5ad"), "-c", "group", "-r", "2", "-o", str(out), "-q", "--no-picture"]
    assert main([*command, "--title", "</script><b>Cells"]) == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert "</script><b>Cells" not in page
    assert json.loads((out / "run.json").read_text())["inputs"][0]["sha256"] in page


def test_without_plotly_there_is_no_report(monkeypatch, inputs, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    command = ["fit", str(inputs / "plain.csv"), *CSV, "-r", "2", "-o", str(tmp_path / "out"), "--no-picture"]
    assert main([*command, "--report"]) == 2
    assert 'pip install "mcpca[report]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(command) == 0
    assert "mcpca: no report: plotly is needed here" in capsys.readouterr().err
    assert not (tmp_path / "out" / "report.html").exists()


# doctor ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain.csv", "r.tsv", "table.parquet", "cells.h5ad", "cells.zarr", "arrays.npz"])
def test_the_command_that_doctor_suggests_works(inputs, tmp_path, capsys, monkeypatch, name):
    assert main(["doctor", str(inputs / name), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["usable"]
    assert told["rows"] == 120
    assert "group" in told["contexts"]
    words = shlex.split(told["command"])
    assert words[:2] == ["mcpca", "fit"]
    monkeypatch.chdir(tmp_path)
    assert main([*words[1:], "-r", "2", "-q", "--no-report", "--no-picture", "--no-scores"]) == 0
    np.testing.assert_allclose(read(tmp_path / "mcpca-output" / "components.csv"), library().components_, atol=1e-7)
    assert not (tmp_path / "mcpca-output" / "scores.csv").exists()


def test_doctor_finds_what_is_wrong_and_a_way_around(tmp_path, capsys):
    table = frame().assign(note="fine", gaps=1.0)
    table.loc[3, "gaps"] = None
    table.loc[0, "group"] = None
    table.loc[1, "group"] = "alone"
    table.to_csv(tmp_path / "x.csv", index=False)
    assert main(["doctor", str(tmp_path / "x.csv")]) == 0
    out = capsys.readouterr().out
    assert "120 rows, 7 columns of numbers, 3 of text" in out
    assert "missing values: 'gaps' (1)" in out
    assert "text 'group': 5 values" in out
    path = shlex.quote(str(tmp_path / "x.csv"))
    suggested = (
        f"mcpca fit {path} --context group --index cell --drop note --drop gaps --min-samples 2 --drop-unlabelled"
    )
    assert suggested in out
    table[["cell", "group", *FEATURES]].assign(number=range(120), period=np.arange(120) % 5).assign(
        **{f"h{j}": 0.5 for j in range(20)}
    ).dropna().to_csv(tmp_path / "z.csv", index=False)
    assert main(["doctor", str(tmp_path / "z.csv")]) == 0
    out = capsys.readouterr().out
    assert "row numbers: 'number'" in out
    assert "--context group --index number --drop cell --drop period --min-samples 2\n" in out
    assert "probably not features, and left out below: 'period' (a name of metadata)." in out
    table[FEATURES].to_csv(tmp_path / "y.csv", index=False)
    assert main(["doctor", str(tmp_path / "y.csv")]) == 3
    captured = capsys.readouterr()
    assert "no column could be contexts; if one line is one feature, pass --transpose" in captured.out
    assert "nothing says which context each row is from" in captured.err


def test_doctor_knows_counts_models_and_moments(fitted, tmp_path, capsys, rng):
    import anndata

    obs = pd.DataFrame({"type": list("ab") * 20}, index=[str(i) for i in range(40)])
    anndata.AnnData(rng.poisson(30, size=(40, 5)).astype(float), obs=obs).write_h5ad(tmp_path / "raw.h5ad")
    assert main(["doctor", str(tmp_path / "raw.h5ad")]) == 0
    out = capsys.readouterr().out
    assert "look like raw counts; --normalize log1p prepares them" in out
    assert out.endswith("--context type --normalize log1p\n")
    assert main(["doctor", str(fitted / "model.mcpca")]) == 0
    assert "a fitted model: 2 MCPCs, 4 contexts, 6 features, solver mspm" in capsys.readouterr().out
    np.save(tmp_path / "x.npy", planted()[0])
    assert main(["doctor", str(tmp_path / "x.npy")]) == 3
    assert "NumPy array of 120 x 6 numbers\n  It has no contexts: pass --labels FILE" in capsys.readouterr().out
    (tmp_path / "labels.txt").write_text("\n".join(planted()[1]))
    assert main(["doctor", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "labels.txt"), "--json"]) == 0
    words = shlex.split(json.loads(capsys.readouterr().out)["command"])
    assert words == ["mcpca", "fit", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "labels.txt")]
    obs.loc["3", "type"] = None
    obs["type"] = obs["type"].astype("category")
    anndata.AnnData(rng.normal(size=(40, 5)), obs=obs).write_h5ad(tmp_path / "gap.h5ad")
    assert main(["doctor", str(tmp_path / "gap.h5ad")]) == 0
    assert capsys.readouterr().out.endswith("--context type --drop-unlabelled\n")


# Words, help and shells --------------------------------------------------------------------------------------------


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in (
        "fit",
        "rank",
        "transform",
        "loadings",
        "moments",
        "merge",
        "report",
        "repeat",
        "compare",
        "doctor",
        "demo",
    ):
        assert f"\n  {name} " in out
    assert "4 nothing above\n  noise or no stable rank" in out


def commands():
    from mcpca.cli._app import app

    return app.commands


@pytest.mark.parametrize(
    "name", ["fit", "rank", "transform", "loadings", "moments", "merge", "report", "repeat", "compare", "doctor"]
)
def test_examples_in_help_and_documentation_are_commands(name, capsys):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "\nExamples:\n" in out
    assert f"\n  mcpca {name} " in out
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    text = page.read_text(encoding="utf-8") if page.exists() else out  # the pages are not part of source archives
    lines = [line.strip() for line in [*out.splitlines(), *text.splitlines()]]
    examples = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"mcpca {name} ")]
    assert len(examples) > 1
    for words in examples:
        commands()[name].make_context(name, words[1:])  # raises UsageError where an option is unknown


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mcpca {mcpca.__version__}\n"


def test_nothing_and_wrong_arguments_end_with_2(capsys, tmp_path):
    assert main([]) == 2
    assert "Usage: mcpca" in capsys.readouterr().err
    for arguments, message in (
        (["fti"], "mcpca: No such command 'fti'"),
        (["fit"], "mcpca: Missing argument 'DATA...'. See: mcpca fit --help"),
        (["fit", "x.csv", "--rank", "0"], "'0' is neither 'auto', 'replicating' nor a whole number from 1 on"),
        (["fit", "x.csv", "--solver", "sumed"], f"'sumed' is not one of {', '.join(map(repr, SOLVERS))}"),
        (["fit", "x.csv", "--colour"], "No such option"),
        (["fit", "x.csv", "--delimiter", "ab"], "'ab' is not one character"),
        (["fit", "x.csv", "--encoding", "klingon"], "'klingon' is not an encoding"),
        (["fit", "x.csv", "--tol", "0"], "0.0 is not above 0"),
        (["rank", "x.csv", "--ranks", "a-b"], "'a-b' is not a list of ranks"),
        (["transform", "m", "x.csv", "--center", "context"], "--center context needs --context or --labels"),
    ):
        assert main(arguments) == 2, arguments
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert main(["fit", str(tmp_path), "--nix", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


def test_a_rank_beyond_the_data_ends_with_2(inputs, tmp_path, capsys):
    command = ["fit", str(inputs / "plain.csv"), *CSV, "-o", str(tmp_path / "out")]
    assert main([*command, "--rank", "7"]) == 2
    assert "7 exceeds the number of features, 6" in capsys.readouterr().err
    table = frame().assign(copy=frame()["g0"])
    table.to_csv(tmp_path / "x.csv", index=False)
    assert main(["fit", str(tmp_path / "x.csv"), *CSV, "-o", str(tmp_path / "out"), "--rank", "7"]) == 2
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_used_end_with_3(inputs, fitted, tmp_path, capsys):
    for arguments, message in (
        (["fit", "nowhere.csv"], "nowhere.csv: there is no such file"),
        (["fit", str(inputs / "cells.h5ad"), "-c", "grup"], "did you mean 'group'?"),
        (["fit", str(inputs / "plain.csv")], "nothing says which context each row is from; pass --context COLUMN"),
        (["transform", str(inputs / "plain.csv"), "x"], "is not a fitted model (text)"),
        (["transform", str(inputs), "x"], "there is no model in it"),
        (["loadings", str(fitted), str(inputs / "labels.csv"), "-c", "group"], "no columns for the features 'g0'"),
        (["doctor", str(inputs / "nothing")], "there is no such file"),
    ):
        extra = ["-o", str(tmp_path / "out")] if arguments[0] != "doctor" else []
        assert main([*arguments, *extra]) == 3, arguments
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.startswith("mcpca: ")
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_contexts_with_one_row_are_named(tmp_path, capsys):
    table = frame()
    table.loc[0, "group"] = "alone"
    table.to_csv(tmp_path / "x.csv", index=False)
    command = [
        "fit",
        str(tmp_path / "x.csv"),
        *CSV,
        "-r",
        "2",
        "-o",
        str(tmp_path / "out"),
        "--no-report",
        "--no-picture",
    ]
    assert main(command) == 3
    assert "1 of 5 contexts have fewer than 2 rows: 'alone' (1 row)" in capsys.readouterr().err
    assert main([*command, "--min-samples", "2"]) == 0
    assert "left out: 1 context with fewer than 2 rows: 'alone' (1)." in capsys.readouterr().err


def test_warnings_are_lines_in_words_of_the_command(tmp_path, capsys, rng):
    """Two contexts that differ by a factor only: their MCPCs have proportional loadings."""
    half = rng.normal(size=(50, 3)) * [3, 2, 1]
    table = pd.DataFrame(np.concatenate([half, 2 * half]), columns=list("abc")).assign(y=["s"] * 50 + ["t"] * 50)
    table.to_csv(tmp_path / "x.csv", index=False)
    out = tmp_path / "out"
    assert (
        main(
            ["fit", str(tmp_path / "x.csv"), "-c", "y", "-r", "2", "-o", str(out), "-q", "--no-report", "--no-picture"]
        )
        == 0
    )
    err = capsys.readouterr().err
    assert err.startswith("mcpca: warning: MCPCs with proportional loadings: MCPC 1 and MCPC 2")
    assert "Lower --rank" in err
    assert json.loads((out / "run.json").read_text())["warnings"] == [err.removeprefix("mcpca: warning: ").strip()]
    assert json.loads((out / "diagnostics.json").read_text())["proportional_loadings"][0]["components"] == [
        "MCPC 1",
        "MCPC 2",
    ]


def test_whether_mcpcs_are_of_the_contexts(fitted, inputs, tmp_path, capsys):
    X, y = planted()
    expected = library().context_dependence(X, y, random_state=0)
    table = read(fitted / "context_dependence.csv")
    np.testing.assert_array_equal(table["p"], expected.p_values)
    np.testing.assert_array_equal(table["dependent"], expected.dependent)
    stored = mcpca.ContextDependence.from_json((fitted / "context_dependence.json").read_text())
    np.testing.assert_array_equal(stored.variances, expected.variances)
    summary = json.loads((fitted / "diagnostics.json").read_text())["context_dependence"]
    assert summary["outcome"] == expected.outcome
    assert summary["summary"] == str(expected)
    # Not asked for, not done.
    out = tmp_path / "without"
    command = ["fit", str(inputs / "plain.csv"), *CSV, "-r", "2", "-o", str(out), "--no-context-test", "--no-report"]
    assert main([*command, "-q"]) == 0
    assert not (out / "context_dependence.csv").exists()
    assert json.loads((out / "diagnostics.json").read_text())["context_dependence"] is None
    # The report of a model finds it beside the model.
    if importlib.util.find_spec("plotly") is not None:
        assert main(["report", str(fitted), "-o", str(tmp_path / "page.html"), "-q"]) == 0
        shown = content((tmp_path / "page.html").read_text(encoding="utf-8"))["ofMcpcs"]["dependence"]
        assert shown["dependent"] == expected.dependent.tolist()
    # What cannot be tested is a note, and the fit goes on.
    few = frame().groupby("group").head(3)
    few.to_csv(tmp_path / "few.csv", index=False)
    capsys.readouterr()
    command = ["fit", str(tmp_path / "few.csv"), *CSV, "-r", "1", "-o", str(tmp_path / "few"), "--no-report"]
    assert main(command) == 0
    assert "not tested whether MCPCs differ between contexts" in capsys.readouterr().err


def test_hostile_names_stay_on_their_lines(tmp_path, capsys):
    names = {"c0": "a\nb\x1b[31m", "c1": "=cmd()", "c2": "x" * 500, "c3": '"quoted", <script>'}
    table = frame().assign(group=[names[name] for name in planted()[1]])
    table.to_csv(tmp_path / "x.csv", index=False)
    out = tmp_path / "out"
    command = ["fit", str(tmp_path / "x.csv"), *CSV, "-r", "2", "-o", str(out), "--no-report", "--no-picture", "-q"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "a?b?[31m  " in told
    assert max(map(len, told.splitlines()[3:8])) < 60
    # A spreadsheet would run a cell that starts with an equals sign.
    assert set(read(out / "loadings.csv").index) == set(names.values()) - {"=cmd()"} | {"'=cmd()"}
    assert main(["transform", str(out), str(tmp_path / "x.csv"), *CSV, "--center", "context", "-q"]) == 0


def test_debug_shows_the_traceback_and_nothing_else_does(tmp_path, capsys):
    assert main(["fit", "nowhere.csv", "-c", "y", "-o", str(tmp_path / "out"), "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err
    assert main(["fit", "nowhere.csv", "-c", "y", "-o", str(tmp_path / "out")]) == 3
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_of_our_own_ends_with_1(monkeypatch, inputs, tmp_path, capsys):
    from mcpca.cli import _fitting

    def fail(*args, **options):
        raise ZeroDivisionError("impossible")

    monkeypatch.setattr(_fitting, "read_data", fail)
    assert main(["fit", str(inputs / "plain.csv"), *CSV, "-o", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == "mcpca: ZeroDivisionError: impossible (a bug in mcpca; --debug shows where)\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "_MCPCA_COMPLETE=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "offered"),
    [("mcpca tr", ["transform"]), ("mcpca fit --sol", ["--solver"]), ("mcpca fit FILE --context gr", ["group"])],
)
def test_commands_options_and_columns_are_completed(inputs, words, offered, capsys, monkeypatch):
    words = words.replace("FILE", str(inputs / "plain.csv"))
    monkeypatch.setenv("_MCPCA_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split("\n")[1::3] == offered


def test_interrupted_modules_end_with_130(monkeypatch, capsys):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("mcpca.demo.main", interrupt)
    assert main(["demo", "--output", "nowhere"]) == 130
    assert capsys.readouterr().err == "mcpca: interrupted.\n"


@pytest.mark.parametrize("command", ["demo", "benchmark"])
def test_modules_are_commands_with_help_of_their_own(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert out.startswith(f"usage: mcpca {command} ")
    assert "--output" in out


def test_without_click_modules_run_and_others_name_the_extra(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("mcpca.cli._")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "click", None)
    assert main(["fit", "x.csv"]) == 2
    assert (
        "'fit' needs click, which is not installed; install it with: pip install \"mcpca[cli]\""
        in capsys.readouterr().err
    )
    assert main(["--version"]) == 0
    assert main(["--help"]) == 0
    assert "  demo " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["demo", "--help"])


def test_without_arrow_the_extra_is_named(monkeypatch, inputs, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    assert main(["fit", str(inputs / "plain.csv"), *CSV, "-o", str(tmp_path / "out")]) == 2
    assert 'pip install "mcpca[cli]"' in capsys.readouterr().err


def test_a_solver_can_be_chosen(inputs, tmp_path, capsys):
    out = tmp_path / "auto"
    options = ["--rank", "2", "--solver", "auto", "--groups", "cell", "--out", str(out), "--no-report"]
    assert main(["fit", str(inputs / "plain.csv"), *CSV[:2], *options]) == 0
    X, y = planted()
    model = MCPCA(R, solver="auto", random_state=0).fit(X, y)
    loaded = MCPCA.load(out / "model.mcpca")
    np.testing.assert_array_equal(loaded.components_, model.components_)
    assert (loaded.solver, loaded.solver_, loaded.noise_) == ("auto", model.solver_, model.noise_)
    summary = json.loads((out / "diagnostics.json").read_text())
    assert (summary["solver"], summary["noise"]) == (model.solver_, model.noise_)
    assert summary["solver_reason"] == model.solver_choice_.reason
    assert f"Solver: {model.solver_choice_.reason}" in capsys.readouterr().out
    table = read(out / "solvers.csv")
    assert table.index[0] == model.solver_choice_.best
    np.testing.assert_array_equal(table, model.solver_choice_.table.drop(columns="kind"))
    again = tmp_path / "again"
    assert main(["repeat", str(out / "run.json"), "--out", str(again)]) == 0
    assert "The same numbers" in capsys.readouterr().out


def test_a_given_solver_is_said_to_be_given(fitted):
    summary = json.loads((fitted / "diagnostics.json").read_text())
    assert (summary["solver"], summary["noise"], summary["solver_reason"]) == ("mspm", None, "given")
    assert not (fitted / "solvers.csv").exists()
