"""What a command shows while it works: on a terminal, in a pipe, after errors; and stages that never go back."""

import io
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from random_csr import random_csr
from table_files import frame

from mcpca._utils import progress
from mcpca._utils.progress import ProgressLine, Search
from mcpca._utils.stages import Stage, kind_of, uneven
from mcpca.cli import _fitting, main
from mcpca.cli._console import Console

CSV = ["--context", "group", "--index", "cell"]


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Pipe(io.StringIO):
    """A stderr that is a file, or with ``terminal`` one that can be redrawn."""

    def __init__(self, terminal=False):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "_now", clock)
    return clock


@pytest.fixture
def pipe(monkeypatch):
    pipe = Pipe()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=pipe, modules={}))
    monkeypatch.setenv("COLUMNS", "120")
    return pipe


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "plain.csv"
    frame().to_csv(path, index=False)
    return path


def no_threads_of_progress():
    return not [thread for thread in threading.enumerate() if thread.name == "mcpca-progress"]


# In a pipe ---------------------------------------------------------------------------------------------------------


def test_lines_every_ten_seconds_from_the_start_of_the_command(pipe, clock):
    """Phases are short, and none of them is silent for ten seconds; all of them together are not."""
    line = Console()._line
    for phase in ("reading", "fit", "contexts"):
        with line.live(phase):
            for done in range(6):
                clock.now += 1
                line.beat()
                line("halves", done + 1, 6)
    assert pipe.getvalue().splitlines() == [
        "mcpca: halves: 3/6, after 10 s, 2 s left",  # the fourth is just ending
    ]


def test_a_stage_that_tells_nothing_has_its_lines(pipe, clock):
    console = Console()
    with console.phase("fit"):
        console.progress("basis", 0, 1)
        for _ in range(35):
            clock.now += 1
            console._line.beat()
    assert pipe.getvalue().splitlines() == [f"mcpca: basis: 0/1, after {n} s" for n in (10, 20, 30)]


def test_before_the_first_report_a_line_names_the_phase(pipe, clock):
    console = Console()
    with console.phase("scores"):
        clock.now += 12
        console._line.beat()
        console.note("features are many")  # after which there are lines as before
        clock.now += 12
        console._line.beat()
    assert pipe.getvalue().splitlines() == ["mcpca: scores, after 12 s", "mcpca: scores, after 24 s"]


def test_nothing_in_runs_of_less_than_ten_seconds_and_when_quiet(pipe, clock):
    console = Console()
    quiet = Console(quiet=True)
    with console.phase("fit"):
        for done in range(10):
            console.progress("resamples", done, 10)
            clock.now += 0.99
            console._line.beat()
    assert pipe.getvalue() == ""
    with quiet.phase("fit"):
        for done in range(10):
            quiet.progress("resamples", done, 10)
            clock.now += 60
        assert no_threads_of_progress()
    assert pipe.getvalue() == ""


def test_the_thread_writes_by_itself_and_ends(pipe, monkeypatch):
    monkeypatch.setattr(progress, "_BEAT_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_TEXT_SECONDS", 0.05)
    console = Console()
    with console.phase("fit"):
        deadline = time.monotonic() + 10
        while pipe.getvalue().count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not no_threads_of_progress()
    lines = pipe.getvalue().splitlines()
    assert len(lines) >= 3
    assert set(lines) == {"mcpca: fit"}
    assert no_threads_of_progress()


# On a terminal -----------------------------------------------------------------------------------------------------


def shown(line, screen):
    """Return the last line that was drawn."""
    return [part for part in screen.getvalue().split("\r") if part.strip()][-1].rstrip()


def test_a_bar_only_where_its_length_is_known(pipe, clock):
    pipe.terminal = True
    line = ProgressLine("")
    clock.now += 5
    line(uneven("components"), 3, 6)
    assert shown(line, pipe) == "############............ 3/6 components, after 5 s"
    clock.now += 5
    line(uneven("components"), 5, 6)
    assert shown(line, pipe) == "####################.... 5/6 components, after 10 s"  # and no time left
    search = Search(line, "noise test", 720)
    assert shown(line, pipe) == "noise test, after 10 s"
    clock.now += 5
    search.step(15)
    assert shown(line, pipe) == "noise test, 15 of at most 720, after 15 s"
    heading = Stage("pass 3, basis", "pass")
    for rows in (0, 1000, 2000, 4500, 5500):
        line(heading, rows, 10_000)
        clock.now += 1
    assert shown(line, pipe) == "pass 3, basis, 55%, after 19 s, 3 s left in this pass"


def test_a_bar_does_not_go_back(pipe, clock):
    pipe.terminal = True
    line = ProgressLine("")
    for done in (4, 2, 8, 1):
        clock.now += 1
        line("resamples", done, 8)
    bars = [part.count("#") for part in pipe.getvalue().split("\r") if "resamples" in part]
    assert bars == sorted(bars)
    assert len(bars) == 4


# Whole commands ----------------------------------------------------------------------------------------------------


class Watched:
    """Every report of a command, with the phase it came in."""

    def __init__(self, monkeypatch):
        self.calls = []
        self.phase = ""
        original_call, original_begin = ProgressLine.__call__, ProgressLine._begin

        def call(line, stage, done, total, detail=""):
            self.calls.append((self.phase, stage, done, total))
            original_call(line, stage, done, total, detail)

        def begin(line, doing):
            # A phase of the same name is another call of the library.
            self.phase = f"{doing} {len(self.calls)}"
            original_begin(line, doing)

        monkeypatch.setattr(ProgressLine, "__call__", call)
        monkeypatch.setattr(ProgressLine, "_begin", begin)

    def check(self):
        assert self.calls
        for key in dict.fromkeys(call[:2] for call in self.calls):
            counts = [done for phase, stage, done, _ in self.calls if (phase, stage) == key]
            totals = {total for phase, stage, _, total in self.calls if (phase, stage) == key}
            assert counts == sorted(counts), key
            assert len(totals) == 1, key
            assert counts[-1] == totals.pop(), key

    def stages(self):
        return {str(stage) for _, stage, _, _ in self.calls}


OPTIONS = {
    "automatic rank": ([], {"noise test", "ranks"}),
    "auto solver": (["--rank", "2", "--solver", "auto"], {"covariances", "halves"}),
    "bootstrap": (["--rank", "2", "--replicability", "--bootstrap", "6"], {"resamples", "halves", "permutations"}),
    "robust": (["--rank", "2", "--robust", "--no-context-test"], {"reweighting"}),
    "cross-fit": (["--rank", "2", "--cross-fit", "2", "--no-context-test"], {"cross-fit"}),
    "ml": (["--rank", "2", "--solver", "ml", "--no-context-test"], {"likelihood"}),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_no_stage_of_a_command_goes_back(table, tmp_path, monkeypatch, case):
    options, stages = OPTIONS[case]
    watched = Watched(monkeypatch)
    command = ["fit", str(table), *CSV, *options, "-o", str(tmp_path / "out"), "--no-report", "--no-picture"]
    assert main(command) == 0
    watched.check()
    assert stages <= watched.stages()
    assert no_threads_of_progress()


def test_no_pass_over_streamed_rows_goes_back(tmp_path, monkeypatch):
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    X = random_csr(rng, 600, 6000, 0.05)  # whose covariances would take a gigabyte
    obs = pd.DataFrame({"group": pd.Categorical([f"c{i % 3}" for i in range(600)])}, index=map(str, range(600)))
    anndata.AnnData(X, obs=obs).write_h5ad(tmp_path / "cells.h5ad")
    watched = Watched(monkeypatch)
    command = ["fit", str(tmp_path / "cells.h5ad"), "-c", "group", "--rank", "2", "--max-memory", "1"]
    assert main([*command, "-o", str(tmp_path / "out"), "--no-report", "--no-picture", "--no-scores"]) == 0
    watched.check()
    passes = [stage for _, stage, _, _ in watched.calls if stage.startswith("pass ")]
    assert {kind_of(stage) for stage in passes} == {"pass"}
    assert len(set(passes)) > 1
    assert "reading" in watched.stages()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_an_error_leaves_no_thread(table, tmp_path, monkeypatch, capsys, error):
    def fail(*args, **options):
        assert not no_threads_of_progress()  # the command has one
        raise error("stop")

    monkeypatch.setattr(_fitting.MCPCA, "fit", fail)
    assert main(["fit", str(table), *CSV, "--rank", "2", "-o", str(tmp_path / "out")]) > 0
    assert no_threads_of_progress()
    assert "mcpca: " in capsys.readouterr().err


def test_ctrl_c_of_a_real_process(table, tmp_path):
    """Lines come in a pipe while nothing is reported, stdout stays clean, and the process ends at once."""
    program = textwrap.dedent(
        """
        import sys, time
        from mcpca._utils import progress
        progress._TEXT_SECONDS, progress._BEAT_SECONDS = 0.2, 0.05
        from mcpca.cli import _fitting, main
        _fitting.MCPCA.fit = lambda *args, **options: time.sleep(60)
        sys.exit(main(sys.argv[1:]))
        """
    )
    options = [*CSV, "--rank", "2", "-o", str(tmp_path / "out"), "--json"]
    command = [sys.executable, "-c", program, "fit", str(table), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    lines = []
    while len(lines) < 3:
        line = process.stderr.readline()
        assert line, "ended before it was interrupted"
        if re.match(r"mcpca: (fit|reading)", line):
            lines.append(line)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - began < 15
    assert process.returncode == 130
    assert "interrupted" in err
    assert out.startswith('{"ok": false')
    assert len(out.splitlines()) == 1
