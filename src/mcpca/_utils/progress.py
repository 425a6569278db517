"""Progress of long calls: one line on stderr, redrawn in place, on a terminal or in a notebook.

``verbose`` means the same wherever it is a parameter:

* None, the default: nothing for the first two seconds of a call; then a line that disappears at the end, provided that
  somebody is watching: stderr is a terminal or Python runs in a notebook, and this is the main thread of the main
  process. Logs and pipes get nothing. MCPCA_PROGRESS=0 in the environment switches it off, for example in notebooks
  that are executed only to be stored.
* True: from the start, and finished stages stay on the screen; without a terminal, lines of text every ten seconds,
  also if nothing is reported.
* False: nothing.
* A function of (stage, done, total). Within a call ``done`` never decreases in a stage, and ``total`` does not change.

A stage has one bar, which never goes back. There is none for stages whose length is not known (``stages.Stage``), and a
time left only where parts take about equal times and it is known well enough (``time_left``).

One call, one line: a public function that is called by another public function draws nothing of its own. The line is
redrawn every second even if the work, a single large decomposition say, has nothing to report but the time.

A public function opens ``reporting`` (or is decorated with ``shown``) and hands the report it gets down to the solvers,
which call it, through ``Search`` if the length of a stage is not known beforehand.
"""

from __future__ import annotations

import multiprocessing
import numbers
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from .stages import Stage, kind_of
from .time_left import Pace
from .types import Report

_P = ParamSpec("_P")
_T = TypeVar("_T")

WAIT = 2.0  # seconds of a call before anything is shown
SWITCH = "MCPCA_PROGRESS"  # environment variable; "0" switches off progress that nobody asked for
_REDRAW_SECONDS = 0.1  # at most ten drawings a second, however often a solver reports
_BEAT_SECONDS = 1.0  # between drawings if nothing is reported, so that the time goes on
_TEXT_SECONDS = 10.0  # between lines of text if there is no screen, so that logs stay short
_BAR_WIDTH = 24
# Whether a line is being drawn further up in the calls: then this one draws none.
_is_reporting: ContextVar[bool] = ContextVar("is_reporting", default=False)


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def reporting(verbose: Any, doing: str) -> Iterator[Report]:
    """Yield the function that reports progress while the body runs; ``doing`` is shown until it reports a stage."""
    check_verbose(verbose)
    # A call within another call has no line of its own, but a function of the user is still called.
    if _is_reporting.get():
        line = None
    elif isinstance(verbose, ProgressLine):
        line = verbose
    else:
        line = _line_for(verbose)
    # Set also where nothing is drawn: with verbose=False the calls inside stay silent too, whatever their default.
    token = _is_reporting.set(True)
    try:
        if line is None:
            yield verbose if callable(verbose) else silent
        else:
            with line.live(doing):
                yield line
    finally:
        _is_reporting.reset(token)


def shown(doing: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate a function that has no ``verbose`` and reports no stages, so that the line shows it at work."""

    def with_line(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with reporting(None, doing):
                return function(*args, **kwargs)

        return call

    return with_line


def check_verbose(verbose: Any) -> None:
    """Raise if ``verbose`` is none of the values above."""
    if verbose is not None and not callable(verbose) and not isinstance(verbose, (bool, numbers.Integral)):
        raise ValueError(
            f"verbose={verbose!r}; pass True, False or a function of (stage, done, total), or None, which shows "
            "progress on a terminal and in a notebook."
        )


def _line_for(verbose: Any) -> ProgressLine | None:
    """Return the line that None or True asks for; None for False and for functions."""
    if verbose is not None:
        # The user has asked for it: at once, also without a screen, and finished stages stay.
        return ProgressLine(keep=True, away=True) if verbose and not callable(verbose) else None
    # Several threads or processes would draw over one another.
    alone = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    wanted = os.environ.get(SWITCH) != "0"
    return ProgressLine(wait=WAIT) if wanted and alone and on_screen() else None


def on_screen() -> bool:
    """Whether a line on stderr can be redrawn in place: on a terminal, and in a notebook."""
    return _is_terminal() or _in_notebook()


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # stderr is None without a console, or was closed
        return False


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")  # not imported: code in a notebook's kernel has it loaded
    shell = getattr(ipython, "get_ipython", lambda: None)()
    # The shell of Jupyter; that of IPython on a terminal is another, and its stderr is a terminal anyway. By name, and
    # base classes too, since other notebooks derive their own.
    return any(cls.__name__ == "ZMQInteractiveShell" for cls in type(shell).__mro__)


class ProgressLine:
    """Draws stages on stderr; a ``Report`` that is called from one thread.

    Parameters
    ----------
    prefix : str
    wait : float
        Seconds before the first drawing.
    keep : bool
        Leave finished stages on the screen, a line each.
    away : bool
        Without a screen, write lines of text every ten seconds.
    """

    def __init__(self, prefix: str = "[mcpca] ", *, wait: float = 0.0, keep: bool = False, away: bool = False) -> None:
        self._prefix = prefix
        self._wait = wait
        self._keep = keep
        self._away = away
        self._lock = threading.RLock()  # the thread of ``live`` draws too
        self._width = 0  # characters of the line that is on the screen
        # Of the line itself, which may serve several calls: lines of text are ten seconds apart from its start on.
        self._line_began = self._last_text = _now()
        self._begin("")

    def _begin(self, doing: str) -> None:
        """Start the time of a call."""
        now = _now()
        self._stage = doing
        self._detail = ""
        self._done = 0
        self._total = 0
        self._pace = Pace(now, 0)  # of the stage, for the time left
        self._call_began = now
        self._last_drawn = now
        self._drawable = bool(doing)  # whether there is a line that a beat may draw again

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """Report that ``done`` of ``total`` parts of a stage are done; ``detail`` says what is being worked on."""
        with self._lock:
            now = _now()
            is_new = stage != self._stage
            if is_new:
                self._stage = stage
                # Parts that were done before, as after a restart from a checkpoint, say nothing of the pace.
                self._pace = Pace(now, done)
            # A bar never goes back, whoever reports.
            self._done = done = done if is_new else max(done, self._done)
            self._pace.reached(now, done)
            self._total = total
            self._detail = detail
            self._drawable = True
            # State is kept up to date meanwhile, so that the first drawing shows where the work is.
            if now - self._call_began < self._wait:
                return
            # Lines that stay are never skipped for having come too soon after the last one.
            stays = self._keep and (is_new or done >= total)
            if on_screen():
                if stays or is_new or now - self._last_drawn >= _REDRAW_SECONDS:
                    self._draw(now)
            elif self._away and (stays or now - self._last_text >= _TEXT_SECONDS):
                self._write_text(now)

    @contextmanager
    def live(self, doing: str) -> Iterator[None]:
        """Redraw the line every second while the body runs, and remove it at the end; ``doing`` is the first stage.

        Without a screen, the thread that would redraw it writes a line of text every ten seconds.
        """
        self._begin(doing)
        stop = threading.Event()
        thread = None
        try:
            if on_screen() or self._away:
                # A daemon, so that it cannot keep the interpreter alive.
                thread = threading.Thread(target=self._beat_until, args=(stop,), daemon=True, name="mcpca-progress")
                thread.start()
            yield
        finally:
            # Joined before the line is removed: a last beat would draw it again.
            stop.set()
            if thread is not None and thread.is_alive():
                thread.join()
            self.clear()

    def clear(self) -> None:
        """Remove the line from the screen, so that other text can be printed; the next report brings it back."""
        with self._lock:
            if self._width:
                self._write("\r" + " " * self._width + "\r")
            self._width = 0
            self._drawable = False

    def beat(self) -> None:
        """Draw the line again, with the time that has passed; without a screen, write a line if one is due."""
        with self._lock:
            now = _now()
            if not on_screen():
                if self._away and now - self._last_text >= _TEXT_SECONDS:
                    self._write_text(now)
                return
            # Half a beat: a line that a report has just drawn need not be drawn again.
            is_due = now - self._call_began >= self._wait and now - self._last_drawn >= _BEAT_SECONDS / 2
            if self._drawable and is_due:
                self._draw(now)

    def _beat_until(self, stop: threading.Event) -> None:
        # Nothing can be drawn before the wait is over; the first beat comes then.
        pause = max(self._wait, _BEAT_SECONDS)
        while not stop.wait(pause):
            self.beat()
            pause = _BEAT_SECONDS

    def _draw(self, now: float) -> None:
        bar = ""
        if self._total > 0 and kind_of(self._stage) in ("even", "uneven"):
            # The bar stays within its width even if a report goes beyond its total.
            filled = _BAR_WIDTH * min(self._done, self._total) // self._total
            bar = f"{'#' * filled}{'.' * (_BAR_WIDTH - filled)} {self._done}/{self._total} "
        finished = self._keep and self._done >= self._total > 0
        elapsed = now - self._call_began
        after = f", after {_duration(elapsed)}" if elapsed >= 1 and not finished else ""
        # No wider than the screen: a line that has wrapped cannot be drawn over.
        text = f"{self._prefix}{bar}{self._text()}{self._part(', ')}{after}{self._time_left(now)}"
        text = text[: shutil.get_terminal_size().columns - 1]
        # The cursor is left at the start, so that a warning is printed over the line and not behind it.
        self._write(f"\r{text.ljust(self._width)}" + ("\n" if finished else "\r"))
        self._width = 0 if finished else len(text)
        self._last_drawn = now
        self._drawable = not finished

    def _write_text(self, now: float) -> None:
        """Write a line of text, with the time since the line began."""
        elapsed = now - self._line_began
        count = f": {self._done}/{self._total}" if self._total > 0 else ""
        count = self._part(": ") or count
        after = f", after {_duration(elapsed)}" if elapsed >= 1 else ""
        self._write(f"{self._prefix}{self._text() or 'at work'}{count}{after}{self._time_left(now)}\n")
        self._last_text = now

    def _text(self) -> str:
        return f"{self._stage}, {self._detail}" if self._detail else self._stage

    def _part(self, before: str) -> str:
        """Return words for how far a stage is that has no bar; nothing for others, and before anything is done."""
        kind = kind_of(self._stage)
        if kind == "bounded" and self._done > 0:
            return f"{before}{self._done} of at most {self._total}"
        # Rounded down: 100% is all of it.
        return f"{before}{100 * self._done // self._total}%" if kind == "pass" and self._total > 0 else ""

    def _time_left(self, now: float) -> str:
        """Return words for the time left, or nothing if it is not known well enough."""
        kind = kind_of(self._stage)
        left = self._pace.left(now, self._total) if kind in ("even", "pass") else None
        if left is None:
            return ""
        return f", {_duration(left)} left" + (" in this pass" if kind == "pass" else "")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):  # stderr is gone, which is no reason to stop computing
            self._width = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgressLine:
        """Return itself: there is one screen, and scikit-learn's ``clone`` copies the parameter ``verbose``."""
        return self


def _now() -> float:
    return time.monotonic()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Search:
    """Reports a stage of which only the greatest length is known: parts that turn out to be unnecessary count as done.

    ``done`` grows up to ``most``, which does not change, as ``verbose`` promises.
    """

    def __init__(self, report: Report, stage: str, most: int) -> None:
        self._report = report
        self._stage = Stage(stage, "bounded")
        self._done = 0
        self._most = max(int(most), 1)
        # So that the stage is on the screen while its first part is being worked on.
        report(stage, 0, self._most)

    def step(self, n: int = 1) -> None:
        """Report that ``n`` more parts are done."""
        self._reach(self._done + n)

    def at_most(self, remaining: int) -> None:
        """Report that no more than ``remaining`` parts can still come."""
        self._reach(self._most - remaining)

    def finish(self) -> None:
        """Report that everything is done."""
        self._reach(self._most)

    def _reach(self, done: int) -> None:
        done = min(done, self._most)
        # ``at_most`` is an upper bound, which may say less than is known already: done must not decrease.
        if done > self._done:
            self._done = done
            self._report(self._stage, done, self._most)


def within(report: Report, whole: str) -> Report:
    """Return a report that prefixes stages with ``whole``: for a method that is a step of another, maybe repeatedly."""
    return lambda stage, done, total: report(Stage(f"{whole}: {stage}", kind_of(stage)), done, total)
