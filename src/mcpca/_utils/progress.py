"""Progress of long calls: one line on stderr, drawn again and again, on a terminal or in a notebook.

``verbose`` means the same wherever it is a parameter:

* None, the default: nothing for the first two seconds of a call; then, where somebody looks on (stderr is a terminal,
  or Python runs in a notebook, and this is the main thread of the main process), a line that is taken away at the end.
  Nothing in logs and pipes, and nothing where the environment has MCPCA_PROGRESS=0: for notebooks that are run to be
  stored, say.
* True: from the start, and finished stages stay; away from a terminal lines of their own, every ten seconds.
* False: nothing.
* A function of (stage, done, total). Within a call ``done`` never falls in a stage, and ``total`` stays.

One call, one line: what a public function calls itself draws none of its own. A line is drawn every second even where
a step of linear algebra has nothing to tell but the time.
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

from .types import Report

_P = ParamSpec("_P")
_T = TypeVar("_T")

WAIT = 2.0  # seconds of a call before anything is shown
SWITCH = "MCPCA_PROGRESS"  # in the environment; 0 switches off what is not asked for
_BEAT, _DRAW, _LINES = 1.0, 0.1, 10.0  # seconds: with nothing new, with something new, away from a terminal
_BAR = 24
_telling: ContextVar[bool] = ContextVar("telling", default=False)


def silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def reporting(verbose: Any, doing: str) -> Iterator[Report]:
    """Yield what tells of progress while the body runs; ``doing`` is what it does, until it tells of a stage."""
    check_verbose(verbose)
    line = None if _telling.get() else verbose if isinstance(verbose, Line) else _line_for(verbose)
    token = _telling.set(True)
    try:
        if line is None:
            yield verbose if callable(verbose) else silent
        else:
            with line.live(doing):
                yield line
    finally:
        _telling.reset(token)


def shown(doing: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Let a function that has no ``verbose``, and tells of no stage, show that it is at work."""

    def with_line(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with reporting(None, doing):
                return function(*args, **kwargs)

        return call

    return with_line


def check_verbose(verbose: Any) -> None:
    """Raise where ``verbose`` means nothing."""
    if verbose is not None and not callable(verbose) and not isinstance(verbose, (bool, numbers.Integral)):
        raise ValueError(
            f"verbose={verbose!r}; pass True, False or a function of (stage, done, total), or None, which shows "
            "progress on a terminal and in a notebook."
        )


def _line_for(verbose: Any) -> Line | None:
    if verbose is not None:
        return Line(keep=True, away=True) if verbose and not callable(verbose) else None
    # A line of several threads or processes would be none.
    here = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    wanted = os.environ.get(SWITCH) != "0"
    return Line(wait=WAIT) if wanted and here and on_screen() else None


def on_screen() -> bool:
    """Whether what goes to stderr can be drawn over: on a terminal, and in a notebook."""
    return _is_terminal() or _in_notebook()


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # None without a console, and a stream that was closed
        return False


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")  # whoever runs in a kernel has it loaded
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


class Line:
    """Draws stages on stderr, and may be called from one thread.

    Parameters
    ----------
    prefix : str
    wait : float
        Seconds before the first drawing.
    keep : bool
        Finished stages stay, a line each.
    away : bool
        Lines every ten seconds where nothing can be drawn over.
    """

    _stage: str
    _start: float
    _told: float

    def __init__(self, prefix: str = "[mcpca] ", *, wait: float = 0.0, keep: bool = False, away: bool = False) -> None:
        self._prefix, self._wait, self._keep, self._away = prefix, wait, keep, away
        self._lock = threading.RLock()
        self._width = 0  # of what is on the screen
        self._begin("")

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Tell that ``done`` of ``total`` parts of a stage are done."""
        with self._lock:
            now = _now()
            new = stage != self._stage
            if new:
                self._stage, self._began, self._first = stage, now, done
            self._done, self._total, self._fresh = done, total, True
            if now - self._start < self._wait:
                return
            kept = self._keep and (new or done >= total)
            if on_screen():
                if kept or new or now - self._told >= _DRAW:
                    self._draw(now)
            elif self._away and (kept or now - self._told >= _LINES):
                self._told = now
                self._write(f"{self._prefix}{stage}: {done}/{total}{self._left(now)}\n")

    def _begin(self, doing: str) -> None:
        now = _now()
        self._stage, self._done, self._total, self._first = doing, 0, 0, 0
        self._start, self._began, self._told = now, now, now
        self._fresh = bool(doing)  # whether there is something to draw when nothing new is told

    @contextmanager
    def live(self, doing: str) -> Iterator[None]:
        """Draw while the body runs, ``doing`` where it tells nothing, and leave no half a line."""
        self._begin(doing)
        stop, thread = threading.Event(), None
        if on_screen():
            thread = threading.Thread(target=self._beat, args=(stop,), daemon=True, name="mcpca-progress")
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if thread is not None:
                thread.join()
            self.clear()

    def clear(self) -> None:
        """Take the line from the screen, so that others can be printed; it comes back when more is told."""
        with self._lock:
            if self._width:
                self._write("\r" + " " * self._width + "\r")
            self._width, self._fresh = 0, False

    def beat(self) -> None:
        """Draw the line with the time that has passed."""
        with self._lock:
            now = _now()
            if self._fresh and now - self._start >= self._wait and now - self._told >= _BEAT / 2:
                self._draw(now)

    def _beat(self, stop: threading.Event) -> None:
        pause = max(self._wait, _BEAT)
        while not stop.wait(pause):
            self.beat()
            pause = _BEAT

    def _draw(self, now: float) -> None:
        bar = ""
        if self._total > 0:
            filled = _BAR * min(self._done, self._total) // self._total
            bar = f"{'#' * filled}{'.' * (_BAR - filled)} {self._done}/{self._total} "
        finished = self._keep and self._done >= self._total > 0
        took = now - self._start
        after = f", after {_duration(took)}" if took >= 1 and not finished else ""
        # No wider than the screen: what has wrapped cannot be drawn over.
        text = f"{self._prefix}{bar}{self._stage}{after}{self._left(now)}"[: shutil.get_terminal_size().columns - 1]
        # The cursor waits at the start, so that a warning goes over the line and not behind it.
        self._write(f"\r{text.ljust(self._width)}" + ("\n" if finished else "\r"))
        self._width = 0 if finished else len(text)
        self._told, self._fresh = now, not finished

    def _left(self, now: float) -> str:
        """Words for the time left, once there is something to judge by."""
        if now - self._began < 1 or not self._first < self._done < self._total:
            return ""
        return f", {_duration((now - self._began) * (self._total - self._done) / (self._done - self._first))} left"

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):  # nobody looks any more, which is no reason to stop
            self._width = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Line:
        """Return itself: there is one screen."""
        return self


def _now() -> float:
    return time.monotonic()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Search:
    """A stage whose length is only bounded: what turns out not to be needed counts as done.

    ``done`` grows up to ``most``, which stays.
    """

    def __init__(self, report: Report, stage: str, most: int) -> None:
        self._report, self._stage, self._done, self._most = report, stage, 0, max(int(most), 1)
        report(stage, 0, self._most)

    def step(self, n: int = 1) -> None:
        """Tell that ``n`` parts more are done."""
        self._reach(self._done + n)

    def at_most(self, left: int) -> None:
        """Tell that no more than ``left`` parts can still come."""
        self._reach(self._most - left)

    def finish(self) -> None:
        """Tell that all is done."""
        self._reach(self._most)

    def _reach(self, done: int) -> None:
        done = min(done, self._most)
        if done > self._done:
            self._done = done
            self._report(self._stage, done, self._most)


def within(report: Report, whole: str) -> Report:
    """Return what tells of stages as parts of ``whole``: where a method is a step of another, and may come twice."""
    return lambda stage, done, total: report(f"{whole}: {stage}", done, total)
