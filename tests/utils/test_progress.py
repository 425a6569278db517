"""Progress: when it shows, where, that it leaves nothing behind, and that no stage starts again."""

import inspect
import io
import os
import pty
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import mcpca
from mcpca import (
    MCPCA,
    ContextMoments,
    analysis,
    baselines,
    choose_rank,
    decompose,
    select_rank,
    tl,
)
from mcpca._utils import progress
from mcpca._utils.progress import ProgressLine, Search, reporting, shown, silent, within
from mcpca.cli._console import Console
from mcpca.datasets import make_contexts
from mcpca.report import write_report


class Screen(io.StringIO):
    """A stderr that says it is a terminal; ``lines`` is what one would see on it."""

    def isatty(self):
        return True

    def wipe(self):
        self.seek(0)
        self.truncate()

    def lines(self):
        out = []
        for line in self.getvalue().split("\n"):
            seen, column = [], 0
            for part in line.split("\r"):
                column = 0
                seen[column : column + len(part)] = part
            out.append("".join(seen).rstrip())
        return out


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def screen(monkeypatch):
    """A terminal; pytest puts its own stderr in place between a fixture and a test."""
    screen = Screen()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=screen, modules=sys.modules))
    monkeypatch.setenv("COLUMNS", "80")
    return screen


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "_now", clock)
    return clock


@pytest.fixture
def at_once(monkeypatch):
    """Lines come at once, and are drawn often."""
    monkeypatch.setattr(progress, "WAIT", 0.0)
    monkeypatch.setattr(progress, "_BEAT_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)


@pytest.fixture(scope="module")
def data():
    return make_contexts(6, 12, 3, n_samples=60, noise=0.3, random_state=0)


# When and where ---------------------------------------------------------------------------------------------------


def test_nothing_for_two_seconds_then_a_line_that_goes_away(screen, clock):
    with reporting(None, "fit") as report:
        report("basis", 0, 4)
        clock.now += 1.0
        report("basis", 1, 4)
        assert screen.getvalue() == ""
        clock.now += 1.1
        report("basis", 2, 4)
        assert screen.lines() == ["[mcpca] ############............ 2/4 basis, after 2 s, 2 s left"]
        clock.now += 0.05
        report("basis", 3, 4)  # drawn again at most ten times a second
        assert "3/4" not in screen.getvalue()
        clock.now += 200
        report("loadings", 0, 1)
        assert screen.lines() == ["[mcpca] ........................ 0/1 loadings, after 3 min"]
    assert screen.lines() == [""]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_finds_the_line_empty(screen, clock, error):
    def fail():
        with reporting(None, "fit") as report:
            clock.now += 5
            report("basis", 1, 4)
            assert "1/4 basis" in screen.lines()[0]
            raise error

    with pytest.raises(error):
        fail()
    assert screen.lines() == [""]
    assert screen.getvalue().endswith("\r")


def test_logs_stay_clean(capsys, clock):
    with reporting(None, "fit") as report:
        for done in range(5):
            clock.now += 60
            report("basis", done, 4)
    assert capsys.readouterr().err == ""


def test_the_environment_switches_off_what_is_not_asked_for(screen, clock, monkeypatch):
    monkeypatch.setenv("MCPCA_PROGRESS", "0")
    for verbose, drawn in ((None, False), (True, True)):
        with reporting(verbose, "fit") as report:
            clock.now += 60
            report("basis", 1, 4)
        assert bool(screen.getvalue()) == drawn


def test_what_is_off_is_off(screen, clock, data):
    with reporting(False, "fit") as report:
        clock.now += 60
        report("basis", 1, 4)
    assert screen.getvalue() == ""


def test_a_step_that_tells_nothing_shows_the_time(screen, at_once):
    with reporting(None, "standard errors"):
        deadline = time.monotonic() + 10
        while "standard errors" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "\r[mcpca] standard errors\r" in screen.getvalue()
    assert screen.lines() == [""]
    assert not [thread for thread in threading.enumerate() if thread.name == "mcpca-progress"]


def test_a_detail_is_no_stage_of_its_own(screen, clock):
    """The time left is that of the stage, whatever is being worked on; work of an earlier run does not count."""
    line = ProgressLine("")
    line("2b", 10, 40, "nls")
    clock.now += 10
    line("2b", 20, 40, "minf")
    assert screen.lines() == ["############............ 20/40 2b, minf, after 10 s, 20 s left"]


def test_the_beat_waits_as_well_and_stops_when_cleared(screen, clock):
    line = ProgressLine(wait=2.0)
    line._begin("scores")
    clock.now += 1
    line.beat()
    assert screen.getvalue() == ""
    clock.now += 2
    line.beat()
    assert screen.lines() == ["[mcpca] scores, after 3 s"]
    clock.now += 1
    line.beat()
    assert screen.lines() == ["[mcpca] scores, after 4 s"]
    line.clear()
    clock.now += 10
    line.beat()  # whoever cleared it prints now
    assert screen.lines() == [""]


def test_notebooks_have_a_line(monkeypatch, capsys, clock):
    class ZMQInteractiveShell:
        pass

    class Shell(ZMQInteractiveShell):  # as hosted notebooks have
        pass

    ipython = ModuleType("IPython")
    ipython.get_ipython = Shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with reporting(None, "fit") as report:
        clock.now += 3
        report("basis", 1, 2)
    assert capsys.readouterr().err.startswith("\r[mcpca] ############............ 1/2 basis, after 3 s")
    ipython.get_ipython = lambda: SimpleNamespace()  # a terminal's IPython, whose stderr is a file
    with reporting(None, "fit") as report:
        clock.now += 3
        report("basis", 1, 2)
    assert capsys.readouterr().err == ""


def test_other_threads_draw_nothing(screen, at_once):
    def call():
        with reporting(None, "fit") as report:
            report("basis", 1, 2)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()
    assert screen.getvalue() == ""


def test_no_stderr_and_a_broken_one_do_no_harm(monkeypatch, at_once):
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=None, modules={}))
    with reporting(None, "fit") as report:
        report("basis", 1, 2)

    class Gone(Screen):
        def write(self, text):
            raise OSError("gone")

    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=Gone(), modules={}))
    with reporting(None, "fit") as report:
        report("basis", 1, 2)


def test_a_line_is_no_wider_than_the_screen(screen, at_once, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with reporting(None, "fit") as report:
        report("a stage with a rather long name", 1, 2)
        assert screen.lines() == ["[mcpca] ############............ 1/2 a"]


def test_a_warning_goes_over_the_line(screen, at_once):
    with reporting(None, "fit") as report:
        report("basis", 1, 2)
        warning = "module.py:1: UserWarning: this is worth a line of its own"
        screen.write(f"{warning}\n")
        assert screen.lines()[0] == warning


def test_true_shows_at_once_and_keeps_finished_stages(screen, clock):
    with reporting(True, "fit") as report:
        for done in range(3):
            report("basis", done, 2)
        report("loadings", 0, 2)
        assert screen.lines() == [
            "[mcpca] ######################## 2/2 basis",
            "[mcpca] ........................ 0/2 loadings",
        ]
    assert screen.lines() == ["[mcpca] ######################## 2/2 basis", ""]


def test_true_prints_lines_in_a_log(capsys, clock):
    with reporting(True, "fit") as report:
        for done in range(5):
            report("basis", done, 4)
            clock.now += 6
    assert capsys.readouterr().err.splitlines() == [
        "[mcpca] basis: 0/4",
        "[mcpca] basis: 2/4, after 12 s, 12 s left",
        "[mcpca] basis: 4/4, after 24 s",
    ]


def test_one_call_one_line(screen, at_once):
    with reporting(None, "outer") as report:
        report("contexts", 0, 2)
        with reporting(None, "inner") as inner, reporting(True, "more") as more:
            assert inner is silent
            assert more is silent
        assert "contexts" in screen.lines()[0]
    calls = []
    with reporting(None, "outer"), reporting(lambda *call: calls.append(call), "inner") as report:
        report("basis", 0, 1)
    assert calls == [("basis", 0, 1)]
    with reporting(None, "next") as report:
        assert isinstance(report, ProgressLine)


def test_functions_without_the_option_show_that_they_work(screen, at_once):
    @shown("trees")
    def slow(x, *, y=1):
        """Say so."""
        time.sleep(0.1)
        return x + y

    assert slow(1, y=2) == 3
    assert slow.__doc__ == "Say so."
    assert "\r[mcpca] trees\r" in screen.getvalue()


def test_the_command_line_draws_with_the_same_code(screen, clock, capsys):
    console = Console()
    with console.phase("fit"):
        for done in (0, 17, 33, 50):
            console.progress("pass 1", done, 100)
            clock.now += 2
        assert screen.lines() == ["mcpca: ############............ 50/100 pass 1, after 6 s, 6 s left"]
        console.note("features are many")
        with reporting(None, "scores") as report:  # the library has no line of its own in a command
            assert report is silent
        assert screen.lines() == [""]
    assert capsys.readouterr().err == "mcpca: features are many\n"
    quiet = Console(quiet=True)
    with quiet.phase("fit"), reporting(None, "scores") as report:
        quiet.progress("pass 1", 1, 2)
        assert report is silent
    assert "1/2" not in screen.getvalue()


def test_on_a_real_terminal(tmp_path):
    """A traceback starts on a line of its own, and the line was there."""
    program = (
        "import time\n"
        "from mcpca import decompose\n"
        "from mcpca._utils import progress\n"
        "progress.WAIT, progress._BEAT_SECONDS = 0.0, 0.05\n"
        "with progress.reporting(None, 'fit') as report:\n"
        "    report('basis', 1, 2)\n"
        "    time.sleep(0.3)\n"
        "    raise ValueError('stop')\n"
    )
    main, child = pty.openpty()
    done = subprocess.run([sys.executable, "-c", program], stderr=child, check=False)
    os.close(child)
    text = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # all is read
            break
        if not part:
            break
        text += part
        if b"ValueError: stop" in text:
            break
    os.close(main)
    assert done.returncode == 1
    screen = Screen()
    screen.write(text.decode().replace("\r\n", "\n"))
    assert "1/2 basis" in text.decode()
    assert screen.lines()[0] == "Traceback (most recent call last):"


# Stages -----------------------------------------------------------------------------------------------------------


def check_stages(calls):
    """Counts of a stage never fall, its total stays, and it comes to its end."""
    assert calls
    for stage in dict.fromkeys(stage for stage, _, _ in calls):
        counts = [done for name, done, _ in calls if name == stage]
        totals = {total for name, _, total in calls if name == stage}
        assert counts == sorted(counts), stage
        assert len(totals) == 1, stage
        assert counts[-1] == totals.pop(), stage


def hard(seed=0):
    """Few contexts, a rank that is too high: components are taken out one by one, and once more to all digits."""
    rng = np.random.default_rng(seed)
    blocks = [rng.standard_normal((40, 9)) for _ in range(2)]
    return np.stack([np.cov(X, rowvar=False) for X in blocks])


DOORS = {
    "mspm": lambda d, v: MCPCA(3, random_state=0, verbose=v).fit(d.X, d.y),
    "lsq": lambda d, v: MCPCA(3, solver="lsq", random_state=0, verbose=v).fit(d.X, d.y),
    "ml": lambda d, v: MCPCA(3, solver="ml", random_state=0, verbose=v).fit(d.X, d.y),
    "ml, diagonal": lambda d, v: MCPCA(3, solver="ml", noise="diagonal", random_state=0, verbose=v).fit(d.X, d.y),
    "ml, scaled": lambda d, v: MCPCA(3, solver="ml", noise="scaled", random_state=0, verbose=v).fit(d.X, d.y),
    "ml, no noise": lambda d, v: MCPCA(3, solver="ml", noise=None, random_state=0, verbose=v).fit(d.X, d.y),
    "orthogonal": lambda d, v: MCPCA(3, orthogonal=True, random_state=0, verbose=v).fit(d.X, d.y),
    "orthogonal ml": lambda d, v: MCPCA(3, solver="ml", orthogonal=True, random_state=0, verbose=v).fit(d.X, d.y),
    "weights": lambda d, v: MCPCA(3, context_weights=range(1, 7), random_state=0, verbose=v).fit(d.X, d.y),
    "automatic rank": lambda d, v: MCPCA(random_state=0, verbose=v).fit(d.X, d.y),
    "paper's rule": lambda d, v: MCPCA(rank_range=[1, 2, 3], random_state=0, verbose=v).fit(d.X, d.y),
    "by passes": lambda d, v: MCPCA(3, random_state=0, verbose=v).fit(scipy.sparse.csr_matrix(d.X), d.y),
    "partial_fit": lambda d, v: MCPCA(3, random_state=0, verbose=v).partial_fit(d.X, d.y),
    "moments": lambda d, v: MCPCA(3, random_state=0, verbose=v).fit(ContextMoments().update(d.X, d.y)),
    "select_rank": lambda d, v: select_rank(d.X, d.y, random_state=0, verbose=v),
    "select_rank, ranks": lambda d, v: select_rank(d.X, d.y, ranks=[2, 5, 9], random_state=0, verbose=v),
    "choose_rank": lambda d, v: choose_rank(mcpca.context_covariances(d.X, d.y).covariances, random_state=0, verbose=v),
    "decompose": lambda d, v: decompose(hard(), 8, random_state=0, verbose=v),
    "covariances": lambda d, v: mcpca.context_covariances(scipy.sparse.csr_matrix(d.X + 1e4), d.y, verbose=v),
    "baseline": lambda d, v: baselines.run("ffdiag", d.X, 3, d.y, verbose=v),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("door", DOORS)
def test_no_stage_starts_again(data, door):
    calls = []
    DOORS[door](data, lambda *call: calls.append(call))
    check_stages(calls)


@pytest.mark.filterwarnings("ignore::mcpca.UncertainRankWarning")
def test_a_search_that_goes_up_in_steps_is_one_stage():
    """Halves do not agree at the largest rank: ranks are tried from below, in several goes."""
    rng = np.random.default_rng(3)
    made = make_contexts(4, 40, 30, n_samples=150, noise=0.1, random_state=rng)
    calls = []
    select_rank(
        made.X, made.y, criteria=(), cos_sim_threshold=0.999, random_state=0, verbose=lambda *c: calls.append(c)
    )
    check_stages(calls)
    assert len([done for stage, done, _ in calls if stage == "ranks"]) >= 2 * 3  # both halves, in three goes at least


def test_the_noise_test_tells_of_every_context():
    """Where it draws rows: those with heavy tails."""
    calls = []
    X = np.random.default_rng(0).standard_t(3, (600, 12))
    select_rank(X, np.repeat(np.arange(6), 100), criteria=(), random_state=0, verbose=lambda *call: calls.append(call))
    check_stages(calls)
    counts = [done for stage, done, _ in calls if stage == "noise test"]
    assert len(counts) > 6


def test_what_a_fitted_model_does_is_told(data):
    calls = []
    model = MCPCA(3, solver="ml", random_state=0).fit(data.X, data.y)
    model.set_params(verbose=lambda *call: calls.append(call))
    blocks = [data.X[data.y == name] for name in model.contexts_]
    for call in (
        lambda: model.transform(blocks),
        lambda: model.transform(scipy.sparse.csr_matrix(data.X), data.y),
        lambda: model.loadings_for(data.X, data.y),
        lambda: model.score(data.X, data.y),
        lambda: model.presence(),
    ):
        calls.clear()
        call()
        check_stages(calls)
    for call in (model.bootstrap, model.replicability):
        calls.clear()
        call(data.X, data.y, 2, random_state=0, verbose=lambda *call: calls.append(call))
        check_stages(calls)


def test_the_report_and_analyses_draw_one_line(data, screen, at_once, tmp_path):
    pytest.importorskip("plotly")
    model = MCPCA(3, random_state=0).fit(data.X, data.y)
    screen.wipe()
    write_report(model, tmp_path / "report.html", X=data.X, y=data.y)
    assert screen.lines() == [""]
    assert "scores" not in screen.getvalue()  # what the report asks of the model has no line of its own


def test_a_search_counts_what_it_does_not_need():
    calls = []
    told = Search(lambda *call: calls.append(call), "noise test", 10)
    told.step(2)
    told.at_most(4)
    told.at_most(7)  # more than was promised: nothing falls
    told.step(9)
    told.finish()
    assert calls == [("noise test", done, 10) for done in (0, 2, 6, 10)]
    within(lambda *call: calls.append(call), "second start")("basis", 0, 1)
    assert calls[-1] == ("second start: basis", 0, 1)


# The parameter ----------------------------------------------------------------------------------------------------


def test_every_door_has_the_same_default():
    doors = [MCPCA, MCPCA.bootstrap, MCPCA.replicability, select_rank, choose_rank, decompose, baselines.run]
    doors += [mcpca.context_covariances, analysis.contextual_embeddings]
    assert {inspect.signature(door).parameters["verbose"].default for door in doors} == {None}


def tell(stage, done, total):
    """Progress as a function of a module."""


class ToStream:
    """Progress as an object with a stream, which cannot be copied."""

    def __init__(self):
        self.stream = open(os.devnull, "w")  # noqa: SIM115

    def __call__(self, stage, done, total):
        self.stream.write(stage)


def test_clones(data):
    assert clone(MCPCA(2, verbose=tell)).verbose is tell
    line = ProgressLine()
    assert clone(MCPCA(2, verbose=line)).verbose is line
    told = ToStream()
    model = MCPCA(2, random_state=0, verbose=told).fit(data.X, data.y)
    with pytest.raises(TypeError):
        clone(model)
    assert model.replicability(data.X, data.y, 1, random_state=0).cosines.shape == (1, 2)  # which fits it again
    assert model.bootstrap(data.X, data.y, 2, random_state=0).angles.shape == (2, 2)
    told.stream.close()


@pytest.mark.parametrize("verbose", ["yes", 1.5, object()])
def test_what_means_nothing_is_refused(data, verbose):
    for call in (
        lambda: MCPCA(2, verbose=verbose).fit(data.X, data.y),
        lambda: select_rank(data.X, data.y, verbose=verbose),
        lambda: baselines.run("ffdiag", data.X, 2, data.y, verbose=verbose),
    ):
        with pytest.raises(ValueError, match=r"verbose=.*; pass True, False or a function"):
            call()


def test_an_anndata_is_fitted_with_progress(data, screen, at_once):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(data.X, obs={"patient": data.y.astype(str)})
    tl.mcpca(adata, "patient", n_comps=3)
    assert "components" in screen.getvalue()
    assert "scores" in screen.getvalue()
    screen.wipe()
    tl.rank(adata, "patient", criteria=())
    assert "noise test" in screen.getvalue()
    assert screen.lines() == [""]
    screen.wipe()
    tl.mcpca(adata, "patient", n_comps=3, verbose=False)
    assert screen.getvalue() == ""
