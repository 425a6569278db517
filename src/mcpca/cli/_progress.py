"""Progress: one line that is drawn again on a terminal; elsewhere a line now and then, and none where all is quick."""

from __future__ import annotations

import sys
import time

_BAR, _DRAW_SECONDS, _LINE_SECONDS, _NAME = 24, 0.1, 10.0, 32


class Progress:
    """A function of (stage, done, total), which the library calls, with a line on stderr to end."""

    def __init__(self) -> None:
        self._stage, self._began, self._first, self._told = "", 0.0, 0, time.monotonic()
        self._drawn = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Tell that ``done`` of ``total`` parts of a stage are done."""
        now = time.monotonic()
        new = stage != self._stage or done < self._first
        if new:
            self._stage, self._began, self._first = stage, now, done
        on_terminal = sys.stderr.isatty()
        soon = now - self._told < (_DRAW_SECONDS if on_terminal else _LINE_SECONDS)
        if (soon and not (new and on_terminal)) or (done >= total and not on_terminal):
            return
        self._told = now
        left = self._left(now, done, total)
        if on_terminal:
            filled = _BAR * done // max(total, 1)
            bar = "#" * filled + "." * (_BAR - filled)
            # To the start of the line, and clear it.
            print(f"\r\x1b[K{bar} {stage[:_NAME]}{left}", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            print(f"mcpca: {stage}, {100 * done // max(total, 1)}%{left}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line from the terminal, so that others can be printed."""
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = False

    def _left(self, now: float, done: int, total: int) -> str:
        """Words for the time left, once there is something to judge by."""
        if now - self._began < 1 or not self._first < done < total:
            return ""
        seconds = (now - self._began) * (total - done) / (done - self._first)
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"
