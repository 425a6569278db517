"""Outputs of runs at the same time: one is written, the others fail, and nothing is replaced unasked."""

import os
import threading

import pytest
from table_files import frame

from mcpca.cli import _outputs, main
from mcpca.cli._console import Failure


def at_once(write, n=4):
    """Run ``write(i)`` in n threads that all come to their end at once; return the failures."""
    gate, failures = threading.Barrier(n), []

    def run(i):
        try:
            write(i, gate)
        except Failure as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.parametrize("there", ["nothing", "an empty folder"])
def test_of_runs_into_one_new_folder_all_but_one_fail(tmp_path, there):
    out = tmp_path / "deep" / "out"
    if there == "an empty folder":
        out.mkdir(parents=True)

    def write(i, gate):
        _outputs.check_folder(out, False)
        gate.wait()  # all have found that nothing is there
        with _outputs.new_folder(out, False) as folder:
            (folder / "run.json").write_text(str(i))
            (folder / "scree.csv").write_text(str(i))
            gate.wait()

    for _ in range(10):
        failures = at_once(write)
        assert len(failures) == 3
        assert all(f.code == 5 and "written by another run meanwhile" in str(f) for f in failures)
        assert len({path.read_text() for path in out.iterdir()}) == 1  # whole, from one run
        assert [path.name for path in out.parent.iterdir()] == ["out"]
        for path in out.iterdir():
            path.unlink()
        out.rmdir()


@pytest.mark.parametrize("links", [True, False])
def test_of_runs_into_one_new_file_all_but_one_fail(tmp_path, monkeypatch, links):
    """Also where the file system has no hard links."""
    out = tmp_path / "scores.csv"

    def no_link(*args):
        raise PermissionError("no links here")

    if not links:
        monkeypatch.setattr(os, "link", no_link)

    def write(i, gate):
        _outputs.check_file(out, False)
        gate.wait()
        with _outputs.new_file(out, False) as file:
            file.write_text(str(i))
            gate.wait()

    for _ in range(10):
        failures = at_once(write)
        assert [f.code for f in failures] == [5] * 3
        assert out.read_text() in "0123"
        assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]
        out.unlink()


def test_a_fit_that_ends_second_fails_and_leaves_the_first(tmp_path, capsys, monkeypatch):
    """Both started before there was a folder; by threads, since one process has one standard output."""
    table, out = tmp_path / "table.csv", tmp_path / "out"
    frame().to_csv(table, index=False)
    words = ["fit", str(table), "-c", "group", "--index", "cell", "--no-report", "--no-picture", "-q", "-o", str(out)]
    from mcpca.cli import _fitting

    fit_files, inner = _fitting.fit_files, []

    def overtaken(*args):
        found = fit_files(*args)
        if not inner:
            inner.append(None)
            assert main([*words, "--rank", "1"]) == 0
        return found

    monkeypatch.setattr(_fitting, "fit_files", overtaken)
    assert main([*words, "--rank", "2"]) == 5
    told = capsys.readouterr()
    assert told.out.count("Wrote") == 1
    assert "was written by another run meanwhile" in told.err
    assert (out / "loadings.csv").read_text().count("MCPC") == 1  # of the first to end, rank 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "table.csv"]
    monkeypatch.undo()
    assert main([*words, "--rank", "2", "--force"]) == 0
    assert (out / "loadings.csv").read_text().count("MCPC") == 2


def test_force_does_not_take_what_came_to_the_folder_meanwhile(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text("old")
    _outputs.check_folder(out, True)

    def replace():
        with _outputs.new_folder(out, True) as folder:
            (folder / "run.json").write_text("new")
            (out / "thesis.tex").write_text("mine")

    with pytest.raises(Failure, match=r"holds 'thesis.tex', which mcpca did not write"):
        replace()
    assert (out / "run.json").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
