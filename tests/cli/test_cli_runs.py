"""What is done with runs: comparing two, repeating one whose files were moved, replacing results, opening pages."""

import io
import json
import os
import shutil
import subprocess
import sys
import time
import webbrowser

import numpy as np
import pandas as pd
import pytest
from reading_reports import content
from table_files import exact_csv, frame, write_folder

from mcpca import MCPCA, compare_models
from mcpca._utils import atomic_files
from mcpca._utils.atomic_files import is_abandoned, staged_folder, staged_for
from mcpca.cli import _outputs, main
from mcpca.cli._console import Failure

QUIET = ["--no-report", "--no-picture", "--no-context-test", "-q"]
CSV = ["--context", "group", "--index", "cell"]


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a table and two runs on it: one of rank 2, one of rank 3 with other options."""
    folder = tmp_path_factory.mktemp("runs")
    frame().to_csv(folder / "table.csv", index=False)
    assert main(["fit", str(folder / "table.csv"), *CSV, "-r", "2", "-o", str(folder / "two"), *QUIET]) == 0
    options = ["-r", "3", "--solver", "lsq", "--seed", "5", "-o", str(folder / "three"), *QUIET]
    assert main(["fit", str(folder / "table.csv"), *CSV, *options]) == 0
    return folder


def copied(runs, folder):
    """The table and the first run in a folder of their own, moved together."""
    folder.mkdir()
    shutil.copy(runs / "table.csv", folder)
    shutil.copytree(runs / "two", folder / "two")
    return folder


# Comparing -----------------------------------------------------------------------------------------------------------


def test_compare_says_what_the_library_says_and_what_changed(runs, run):
    code, out, _ = run("compare", runs / "two", runs / "three")
    assert code == 0
    models = [MCPCA.load(runs / name / "model.mcpca") for name in ("two", "three")]
    expected = compare_models(*models, names=("two", "three"))
    assert out.startswith("\n".join(expected._words()))
    assert "2 of 2 MCPCs of two come back in three (|cos| >= 0.9); 1 of the 3 in three is new." in out
    for line in ("--rank: 2 -> 3", "--solver: mspm -> lsq", "--seed: 0 -> 5"):
        assert f"\n  {line}\n" in out
    # By what was asked for alone: the data and versions are the same, and "rank" would say the same as "--rank".
    assert out.partition("What changed:\n")[2].count("\n") == 3


def test_a_run_is_the_same_as_itself_and_its_repetition(runs, run, tmp_path):
    assert run("repeat", runs / "two", "-o", tmp_path / "again", "-q")[0] == 0
    for other in (
        runs / "two",
        tmp_path / "again",
        tmp_path / "again" / "model.mcpca",
        tmp_path / "again" / "run.json",
    ):
        code, out, err = run("compare", runs / "two", other)
        assert code == 0, err
        assert out.startswith("The two models are the same to the last bit: 2 MCPCs of 4 contexts and 6 features.")
        assert "Nothing that is known of the two runs differs." in out


def test_compare_tells_other_data_rows_and_warnings(runs, run, tmp_path):
    table = frame().iloc[:-8].assign(g0=lambda t: t["g0"] * 1.001)
    table.loc[table.index[0], "group"] = "c1 "
    table.to_csv(tmp_path / "table.csv", index=False)
    # Two labels that differ by a blank: a warning that the first run did not have.
    assert run("fit", tmp_path / "table.csv", *CSV, "-r", 2, "--min-samples", 2, "-o", tmp_path / "new", *QUIET)[0] == 0
    _, out, _ = run("compare", runs / "two", tmp_path / "new", "--json")
    told = json.loads(out)
    changes = {change["what"]: (change["first"], change["second"]) for change in told["changes"]}
    assert changes["rows"] == ("120", "111")
    assert changes["--min-samples"] == ("0", "2")
    inputs = [json.loads((path / "run.json").read_text())["inputs"][0] for path in (runs / "two", tmp_path / "new")]
    assert changes["data table.csv"] == tuple(f"{e['bytes']:,} bytes, SHA-256 {e['sha256'][:12]}" for e in inputs)
    assert changes["warning"][0] == "not given"
    assert "'c1 '" in changes["warning"][1]
    assert (told["identical"], told["same"], told["come_back"], told["gone"]) == (False, False, 2, [])
    assert [pair["cosine"] > 0.99 for pair in told["pairs"]] == [True, True]


def test_compare_writes_a_page_or_a_folder(runs, run, tmp_path):
    page = tmp_path / "comparison.html"
    assert run("compare", runs / "two", runs / "three", "--out", page, "--title", "<b>mine")[0] == 0
    shown = content(page.read_text())
    assert shown["title"] == "<b>mine"
    assert {change["what"]: change["second"] for change in shown["changes"]}["--rank"] == "3"
    assert page.stat().st_size < 200_000  # without Plotly
    assert run("compare", runs / "two", runs / "three", "--out", page)[0] == 5
    folder = tmp_path / "compared"
    for force in ([], ["--force"]):
        code, out, err = run("compare", runs / "two", runs / "three", "--out", folder, *force)
        assert code == 0, err
    files = ["changes.csv", "compared_loadings.csv", "comparison.html", "comparison.json", "matched_mcpcs.csv"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert f"Wrote {folder}: {', '.join(files)}" in out
    expected = compare_models(
        *(MCPCA.load(runs / name / "model.mcpca") for name in ("two", "three")), names=("two", "three")
    )
    loadings = exact_csv(folder / "compared_loadings.csv")
    np.testing.assert_array_equal(loadings["difference"], expected.loading_table["difference"])
    matched = exact_csv(folder / "matched_mcpcs.csv")
    np.testing.assert_array_equal(matched["|cos|"], expected.table["|cos|"])
    assert run("compare", runs / "two", runs / "three", "--force")[0] == 2
    assert run("compare", runs / "two", runs / "three", "--open")[0] == 2
    assert run("compare", runs / "two", runs / "three", "-o", tmp_path / "x.csv")[0] == 5


def test_a_model_without_its_record_is_compared_as_a_model(runs, run, tmp_path):
    alone = tmp_path / "alone.mcpca"
    shutil.copy(runs / "three" / "model.mcpca", alone)
    code, out, err = run("compare", runs / "two", alone)
    assert code == 0
    assert "alone.mcpca is a model without its run.json" in err
    assert "  rank: 2 -> 3\n" in out
    assert "--solver" not in out
    # Beside the record of another model it has none either.
    other = shutil.copytree(runs / "two", tmp_path / "other")
    shutil.copy(alone, other / "model.mcpca")
    assert "is a model without its run.json" in run("compare", runs / "two", other)[2]
    code, _, err = run("compare", runs / "two", runs / "table.csv")
    assert code == 3
    assert "is not a fitted model" in err


# Repeating -----------------------------------------------------------------------------------------------------------


def test_paths_are_relative_and_a_folder_moved_with_its_data_is_repeated(runs, run, tmp_path):
    record = json.loads((runs / "two" / "run.json").read_text())
    assert record["options"]["data"] == [entry["path"] for entry in record["inputs"]] == ["../table.csv"]
    moved = copied(runs, tmp_path / "elsewhere")
    # Not the original, which is where the record was written: another file there must not matter.
    original = json.loads((moved / "two" / "run.json").read_text())
    (moved / "two" / "run.json").write_text(json.dumps(original | {"folder": str(tmp_path / "gone")}))
    code, out, err = run("repeat", moved / "two", "-o", tmp_path / "again", "-q")
    assert code == 0, err
    assert f"The same numbers as in {moved / 'two'}, to the last bit." in out
    again = json.loads((tmp_path / "again" / "run.json").read_text())
    assert again["inputs"][0]["path"] == "../elsewhere/table.csv"


def test_results_that_are_moved_alone_and_old_records_are_repeated(runs, run, tmp_path):
    alone = shutil.copytree(runs / "two", tmp_path / "deep" / "er" / "two")
    assert run("repeat", alone, "-o", tmp_path / "again", "-q")[0] == 0
    record = json.loads((alone / "run.json").read_text())
    for key in ("folder", "kind"):
        record.pop(key)
    record["format_version"] = 1
    record["options"]["data"] = [str(runs / "table.csv")]
    record["inputs"][0]["path"] = str(runs / "table.csv")
    (alone / "run.json").write_text(json.dumps(record))
    code, out, err = run("repeat", alone / "run.json", "-o", tmp_path / "third", "-q")
    assert code == 0, err
    assert "The same numbers" in out


def test_on_another_drive_paths_are_absolute(runs, run, tmp_path, monkeypatch):
    def no_way(*args):
        raise ValueError("path is on mount 'C:', start on mount 'D:'")

    monkeypatch.setattr(os.path, "relpath", no_way)
    assert run("fit", runs / "table.csv", *CSV, "-r", 2, "-o", tmp_path / "out", *QUIET)[0] == 0
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["options"]["data"] == [record["inputs"][0]["path"]] == [str(runs / "table.csv")]
    assert run("repeat", tmp_path / "out", "-o", tmp_path / "again", "-q")[0] == 0


def test_moved_files_are_found_by_their_checksum(runs, run, tmp_path):
    here = copied(runs, tmp_path / "here")
    record = json.loads((here / "two" / "run.json").read_text())
    (here / "two" / "run.json").write_text(json.dumps(record | {"folder": str(here / "two")}))
    archive = tmp_path / "archive" / "2026"
    archive.mkdir(parents=True)
    (archive / "notes.txt").write_text("of no use")
    shutil.move(here / "table.csv", archive / "renamed.csv")
    code, _, err = run("repeat", here / "two", "-o", tmp_path / "again", "-q")
    assert code == 3
    assert "table.csv: is not there any more" in err
    assert "--data" in err
    for n, place in enumerate((tmp_path / "archive", archive / "renamed.csv")):
        code, out, err = run("repeat", here / "two", "-o", tmp_path / f"again{n}", "-q", "--data", place)
        assert code == 0, err
        assert "to the last bit" in out
    # A file of the same name and length, with other bytes.
    text = (archive / "renamed.csv").read_text()
    (archive / "renamed.csv").unlink()
    (archive / "table.csv").write_text(text.replace("c1", "c2", 1))
    code, _, err = run("repeat", here / "two", "-o", tmp_path / "third", "-q", "--data", archive)
    assert code == 3
    assert f"{archive / 'table.csv'} is not 'table.csv' of the run in {here / 'two'} (SHA-256 " in err
    assert record["inputs"][0]["sha256"][:12] in err
    (archive / "table.csv").unlink()
    code, _, err = run("repeat", here / "two", "-o", tmp_path / "third", "-q", "--data", archive)
    assert code == 3
    assert "'table.csv' of the run in" in err
    assert (
        f"was not found ({record['inputs'][0]['bytes']:,} bytes, SHA-256 {record['inputs'][0]['sha256'][:12]})" in err
    )
    assert run("repeat", here / "two", "--data", tmp_path / "nowhere")[0] == 3
    assert not (tmp_path / "third").exists()


def test_a_folder_of_contexts_labels_and_lists_are_found_again(run, tmp_path):
    data = tmp_path / "regions"
    data.mkdir()
    write_folder(data)
    (data / "drop.txt").write_text("g5\n")
    assert run("fit", data, "-r", 2, "--drop", f"@{data / 'drop.txt'}", "-o", tmp_path / "out", *QUIET)[0] == 0
    names = sorted(path.name for path in data.iterdir())
    shutil.move(data, tmp_path / "archive")
    code, out, err = run("repeat", tmp_path / "out", "-o", tmp_path / "again", "-q", "--data", tmp_path / "archive")
    assert code == 0, err
    assert "to the last bit" in out
    first = next(name for name in names if name.startswith("c0"))
    # One that matches none of the others is named; one that is of no use is, too.
    (tmp_path / "archive" / first).rename(tmp_path / "archive" / "other.csv")
    code, _, err = run("repeat", tmp_path / "out", "-o", tmp_path / "third", "-q", "--data", tmp_path / "archive")
    assert code == 3
    assert f"other.csv was called {first!r} in the run, where contexts are named after files" in err
    (tmp_path / "archive" / "other.csv").rename(tmp_path / "archive" / first)
    (tmp_path / "more.txt").write_text("nothing")
    words = ["--data", tmp_path / "archive", "--data", tmp_path / "more.txt"]
    code, _, err = run("repeat", tmp_path / "out", "-o", tmp_path / "third", "-q", *words)
    assert code == 3
    assert "more.txt has no file that the run in" in err


def test_one_of_two_files_is_not_blamed_for_the_other(run, tmp_path):
    rows = frame()
    rows.iloc[:60].to_csv(tmp_path / "a.csv", index=False)
    rows.iloc[60:].to_csv(tmp_path / "b.csv", index=False)
    assert run("fit", tmp_path / "a.csv", tmp_path / "b.csv", *CSV, "-r", 2, "-o", tmp_path / "out", *QUIET)[0] == 0
    (tmp_path / "new").mkdir()
    shutil.move(tmp_path / "a.csv", tmp_path / "new" / "first.csv")
    # The second is where it was; the first is found by its content, whatever it is called now.
    code, out, err = run("repeat", tmp_path / "out", "-o", tmp_path / "1", "-q", "--data", tmp_path / "new")
    assert code == 0, err
    assert "to the last bit" in out
    (tmp_path / "b.csv").unlink()
    code, _, err = run("repeat", tmp_path / "out", "-o", tmp_path / "2", "--data", tmp_path / "new" / "first.csv")
    assert code == 3
    assert "'b.csv' of the run in" in err
    assert "was not found" in err


def test_a_run_on_stdin_is_repeated_from_a_file_of_the_same_bytes(runs, run, tmp_path, monkeypatch):
    piped = io.TextIOWrapper(io.BytesIO((runs / "table.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert run("fit", "-", *CSV, "-r", 2, "-o", tmp_path / "out", *QUIET)[0] == 0
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["options"]["data"], record["inputs"][0]["path"]) == (["-"], "stdin")
    assert run("repeat", tmp_path / "out", "-o", tmp_path / "again", "-q")[0] == 3
    code, out, err = run("repeat", tmp_path / "out", "-o", tmp_path / "again", "-q", "--data", runs / "table.csv")
    assert code == 0, err
    assert "to the last bit" in out


def test_a_choice_of_rank_is_recorded_and_repeated(runs, run, tmp_path):
    words = ["rank", runs / "table.csv", *CSV, "--ranks", "1-3", "--criteria", "none", "--seed", 3, "-q"]
    assert run(*words, "-o", tmp_path / "rank")[0] == 0
    record = json.loads((tmp_path / "rank" / "run.json").read_text())
    assert (record["kind"], record["seed"], record["results"]["rank"]) == ("rank", 3, 2)
    assert record["options"]["ranks"] == [1, 2, 3]
    assert {"rank.csv", "rank.json"} <= record["outputs"].keys()
    code, out, err = run("repeat", tmp_path / "rank", "-o", tmp_path / "again", "--json", "-q")
    assert code == 0, err
    told = json.loads(out)
    assert told["same"]
    assert told["rank"] == 2
    for name in ("rank.csv", "rank.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "rank" / name).read_bytes()
    record["outputs"]["rank.csv"] = "0" * 64
    (tmp_path / "rank" / "run.json").write_text(json.dumps(record))
    code, _, err = run("repeat", tmp_path / "rank", "-o", tmp_path / "third", "-q")
    assert "the results differ" in err
    assert "rank.csv" in err
    code, _, err = run("compare", tmp_path / "rank", runs / "two")
    assert code == 3
    assert "there is no model in it" in err


def test_a_rank_of_nothing_is_repeated_too(run, tmp_path):
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.standard_normal((120, 6))).add_prefix("f").assign(group=np.repeat(list("abcd"), 30))
    noise.to_csv(tmp_path / "noise.csv", index=False)
    words = ["rank", tmp_path / "noise.csv", "-c", "group", "--criteria", "none", "-q", "-o", tmp_path / "rank"]
    assert run(*words)[0] == 4
    code, out, err = run("repeat", tmp_path / "rank", "-o", tmp_path / "again", "-q")
    assert code == 0, err
    assert "to the last bit" in out


# Replacing -----------------------------------------------------------------------------------------------------------

KEPT_BY_OTHERS = [".DS_Store", "Thumbs.db", "desktop.ini", ".~lock.loadings.csv#", "~$loadings.xlsx", "._run.json"]


def aged(path):
    os.utime(path, (time.time() - 60,) * 2)
    return path


def test_force_is_not_stopped_by_what_systems_and_killed_runs_leave(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("run.json", *KEPT_BY_OTHERS):
        (out / name).write_text("old")
    aged(out / "run.json")
    (out / ".report.html.0a1b2c3d.tmp").write_text("half")
    aged(out / ".report.html.0a1b2c3d.tmp")
    beside = tmp_path / ".out.0123abcd.tmp"
    beside.mkdir()
    (beside / "scree.csv").write_text("half")
    aged(beside)
    # Not ours: something else is in it, another target, no folder of this kind.
    mine = tmp_path / ".out.89abcdef.tmp"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    aged(mine)
    others = [aged(mine), tmp_path / ".other.0123abcd.tmp", tmp_path / ".out.tmp"]
    for path in others[1:]:
        path.mkdir()
        aged(path)
    with pytest.raises(Failure, match="replace it with --force"):
        _outputs.check_folder(out, False)
    _outputs.check_folder(out, True)
    with _outputs.new_folder(out, True) as folder:
        (folder / "run.json").write_text("new")
    assert [path.name for path in out.iterdir()] == ["run.json"]
    assert (out / "run.json").read_text() == "new"
    assert not beside.exists()
    assert all(path.exists() for path in others)
    (out / "notes.lock").write_text("mine")
    with pytest.raises(Failure, match=r"holds 'notes.lock', which mcpca did not write"):
        _outputs.check_folder(out, True)


def test_a_folder_of_that_name_is_not_one_of_a_system(tmp_path):
    (tmp_path / "out" / ".DS_Store").mkdir(parents=True)
    with pytest.raises(Failure, match="which mcpca did not write"):
        _outputs.check_folder(tmp_path / "out", True)


def test_without_force_nothing_is_removed(tmp_path):
    """What a run was killed at while it replaced results may be the only copy of the old ones."""
    old = tmp_path / ".out.0123abcd.tmp"
    old.mkdir()
    (old / "run.json").write_text("old results")
    aged(old)
    with _outputs.new_folder(tmp_path / "out", False) as folder:
        (folder / "run.json").write_text("new")
    assert (old / "run.json").read_text() == "old results"


def test_what_another_process_writes_is_left_alone(tmp_path):
    """A process holds its folder while it writes; once it is killed, the folder is anyone's to remove."""
    pytest.importorskip("fcntl")
    # The module alone, which needs nothing of the package: to import that takes seconds.
    script = (
        "import pathlib, runpy, sys, time\n"
        "staged_folder = runpy.run_path(sys.argv[1])['staged_folder']\n"
        "with staged_folder(pathlib.Path(sys.argv[2]), replace=True) as folder:\n"
        "    (folder / 'scree.csv').write_text('half'); print(folder.name, flush=True); time.sleep(60)"
    )
    out = tmp_path / "out"
    words = [sys.executable, "-c", script, atomic_files.__file__, str(out)]
    writer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        staging = tmp_path / writer.stdout.readline().strip()
        assert staged_for(staging) == "out"
        aged(staging)
        assert not is_abandoned(staging)
        with _outputs.new_folder(out, True) as folder:
            (folder / "run.json").write_text("new")
        assert (staging / "scree.csv").exists()
        writer.kill()
        writer.wait()
        assert is_abandoned(staging)
        with _outputs.new_folder(out, True) as folder:
            (folder / "run.json").write_text("newer")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


def test_a_file_that_is_being_written_stops_force(tmp_path):
    pytest.importorskip("fcntl")
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text("old")
    with _outputs.new_file(out / "report.html", False) as staging:
        aged(staging)
        with pytest.raises(Failure, match=r"another process is writing '\.report\.html\..*tmp'"):
            _outputs.check_folder(out, True)
    _outputs.check_folder(out, True)


def test_without_locks_age_decides(tmp_path, monkeypatch):
    monkeypatch.setattr("mcpca._utils.atomic_files.fcntl", None)
    with staged_folder(tmp_path / "out", replace=False) as staging:
        (staging / "run.json").write_text("x")
        aged(staging)
        assert not is_abandoned(staging)
        for path in (staging / "run.json", staging):
            os.utime(path, (time.time() - 2 * 86400,) * 2)
        assert is_abandoned(staging)
    link = tmp_path / ".out.0123abcd.tmp"
    link.symlink_to(tmp_path / "out")
    assert not is_abandoned(link)


# Opening -------------------------------------------------------------------------------------------------------------


class Browser(webbrowser.BaseBrowser):
    """A browser that takes down what it was asked for."""

    def __init__(self, takes=True):
        super().__init__()
        self.takes, self.opened = takes, []

    def open(self, url, new=0, autoraise=True):
        self.opened.append(url)
        return self.takes


@pytest.fixture
def no_screen(monkeypatch):
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)


def test_pages_are_opened_in_the_browser(runs, run, tmp_path, monkeypatch, no_screen):
    pytest.importorskip("plotly")
    browser = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    page = tmp_path / "a page.html"
    code, out, err = run("report", runs / "two", "--open", "-o", page, "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["opened"] is True
    assert browser.opened == [page.as_uri()]
    assert "%20" in browser.opened[0]
    assert run("compare", runs / "two", runs / "three", "-o", tmp_path / "c", "--open", "-q")[0] == 0
    assert browser.opened[1] == (tmp_path / "c" / "comparison.html").as_uri()
    words = [*CSV, "-r", 2, "--no-picture", "--no-context-test", "-q", "--open", "-o", tmp_path / "fit"]
    assert run("fit", runs / "table.csv", *words)[0] == 0
    assert browser.opened[2] == (tmp_path / "fit" / "report.html").as_uri()
    code, _, err = run("fit", runs / "table.csv", *words, "--no-report")
    assert code == 2
    assert "--open has no effect" in err


@pytest.mark.parametrize("why", ["none", "refuses", "terminal", "ssh"])
def test_without_a_browser_the_place_of_the_page_is_told(runs, run, tmp_path, monkeypatch, no_screen, why):
    pytest.importorskip("plotly")
    browser = Browser(takes=False)

    def get():
        if why == "none":
            raise webbrowser.Error("could not locate runnable browser")
        # For the terminal, which it would take.
        return webbrowser.GenericBrowser("false") if why == "terminal" else browser

    monkeypatch.setattr(webbrowser, "get", get)
    if why == "ssh":
        monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22")
    page = tmp_path / "report.html"
    code, out, err = run("report", runs / "two", "--open", "-o", page)
    assert code == 0
    assert f"Wrote {page}" in out
    assert f"no browser could be opened here; the page is {page}." in err
    assert page.exists()
    assert len(browser.opened) == (why == "refuses")
