"""How long a stage will still take, or that it cannot be said.

Parts of a stage are taken to need times that vary about a mean, which may drift. The pace at a report is the geometric
mean of two: of all parts since the stage began, which noise moves least, and of the latest half of them, which follows
the drift. With d of D parts done at the last report, a pace of c seconds a part, and s seconds gone since then,

    left = max(c (D - d) - s, max(c, e) (D - d - 1)),     e = (seconds since the stage began) / (d + 1),

where e is the least that the mean can still be: the part under way has not ended. So the estimate falls between
reports, and rises only if a part takes longer than the others have.

Nothing is said in the first second, before a tenth of the parts is done or three seconds are gone, and while the
standard error of the pace is above 35% of it. Stages whose parts differ by their nature must not be asked
(``progress.Stage``).
"""

from __future__ import annotations

import math

_FIRST_SECOND = 1.0
_SECONDS = 3.0
_SHARE = 0.1
_MOST_ERROR = 0.35  # standard error of the pace, as a share of it
_MOST_MARKS = 128
_TOGETHER = 0.01  # reports within this share of the time gone are one: threads end parts together


class Pace:
    """The pace of a stage that began at ``now`` with ``done`` parts of earlier work; changes with every report.

    Memory and the cost of a report and of an estimate are bounded, whatever the number of reports.
    """

    def __init__(self, now: float, done: int) -> None:
        self._marks = [(now, done)]  # times and parts done, both ascending

    def reached(self, now: float, done: int) -> None:
        """Take note that ``done`` parts are done."""
        marks = self._marks
        if done <= marks[-1][1]:
            return
        began = marks[0][0]
        if len(marks) > 1 and now - marks[-1][0] <= _TOGETHER * (now - began):
            marks[-1] = (marks[-1][0], done)
        else:
            marks.append((now, done))
        if len(marks) > _MOST_MARKS:
            # Every second one, with the first and the last.
            self._marks = [*marks[:-1:2], marks[-1]]

    def left(self, now: float, total: int) -> float | None:
        """Return the seconds until ``total`` parts are done, or None if they are not known well enough."""
        marks = self._marks
        began, first = marks[0]
        last, done = marks[-1]
        gone = now - began
        if not first < done < total or gone < _FIRST_SECOND:
            return None
        share = (done - first) / (total - first)
        if share < _SHARE and gone < _SECONDS:
            return None
        error = self._error()
        # A single report has no spread; a tenth of the stage is taken for typical.
        if share < _SHARE if error is None else error > _MOST_ERROR:
            return None
        pace = self._pace()
        least = gone / (done + 1 - first)
        remaining = total - done
        return max(pace * remaining - (now - last), max(pace, least) * (remaining - 1))

    def _pace(self) -> float:
        began, first = self._marks[0]
        last, done = self._marks[-1]
        overall = (last - began) / (done - first)
        half = first + (done - first) / 2
        since, before = max((mark for mark in self._marks if mark[1] <= half), key=lambda mark: mark[1])
        return math.sqrt(overall * (last - since) / (done - before))

    def _error(self) -> float | None:
        """Return the standard error of the overall pace as a share of it; None for a single interval."""
        pairs = list(zip(self._marks, self._marks[1:], strict=False))
        n = len(pairs)
        if n < 2:
            return None
        gone = self._marks[-1][0] - self._marks[0][0]
        overall = gone / (self._marks[-1][1] - self._marks[0][1])
        squares = sum((b[0] - a[0] - overall * (b[1] - a[1])) ** 2 for a, b in pairs)
        return math.sqrt(squares * n / (n - 1)) / gone if gone > 0 else None
