"""What a command prints: results on stdout, progress, notes and warnings on stderr, and everything as JSON if asked.

A ``Console`` is made in ``_commands`` and handed to ``run_NAME``. Errors are not printed here: they are raised as
``Failure`` and printed by ``_errors``. Progress is the line of ``_utils.progress``, with another prefix.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._utils.progress import ProgressLine, reporting, silent
from .._utils.types import Report
from ..exceptions import DominantFeatureWarning, DoubtfulLabelsWarning
from ._words import in_words_of_the_command
from .tables import stdin

# Warnings for those who write Python, and two that commands give in words of their own, with the options that help.
_WARNINGS_NOT_PRINTED = (
    *(DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning),
    *(DoubtfulLabelsWarning, DominantFeatureWarning),
)


class Failure(Exception):
    """An error with its exit code and a word for its kind; ``content`` is added to the JSON."""

    def __init__(self, message: str, code: int, kind: str, content: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.content = content or {}


class ReaderGoneError(Exception):
    """Whoever read our output has stopped reading: ``mcpca transform ... | head``."""


def output_failure(message: str) -> Failure:
    """Return the failure for an output that cannot be written."""
    return Failure(message, 5, "output")


class Console:
    """Where a command prints to.

    Parameters
    ----------
    as_json : bool
        One JSON object on stdout at the end, and no other text there.
    quiet : bool
        Nothing on stderr but errors and warnings.

    Attributes
    ----------
    progress : callable
        Reports (stage, done, total): the ``verbose`` of library functions.
    timings : dict of str to float
        Seconds of each phase.
    warnings : list of str
        What ``warn`` has printed, for the record of the run.
    caught : list of Warning
        Warnings of the library, also those that are not printed.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._line = ProgressLine("mcpca: ", away=True)
        self.progress: Report = silent if quiet else self._line
        self.timings: dict[str, float] = {}
        self.warnings: list[str] = []
        self.caught: list[Warning] = []

    def say(self, text: str = "") -> None:
        """Print a result for a human reader on stdout."""
        if not self.as_json:
            self._print(text)

    def note(self, text: str) -> None:
        """Print something about the result on stderr."""
        if not self.quiet:
            self._print_to_stderr(text)

    def warn(self, text: str) -> None:
        """Print on stderr what the user should not miss, and keep it for the record of the run."""
        self.warnings.append(stdin.told(text))
        self._print_to_stderr(f"warning: {text}")

    def result(self, command: str, content: dict[str, Any]) -> None:
        """Print the result as JSON if that was asked for."""
        if self.as_json:
            self._print(json_text({"ok": True, "command": command, **content}))

    def _print_to_stderr(self, text: str) -> None:
        # The line of progress is wiped first, or the text would be appended to it.
        self._line.clear()
        print(f"mcpca: {stdin.told(text)}", file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        self._line.clear()
        with stdout_failures():
            # Flushed, so that a full disk or a closed pipe is noticed here and not when Python ends.
            print(stdin.told(text), flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase and show progress in it; warnings of the library are printed as lines at its end."""
        began = time.perf_counter()
        # Recorded and printed at the end, in our form: a warning in between would be drawn over by the progress.
        with warnings.catch_warnings(record=True) as caught, reporting(self.progress, name):
            # Python would show a warning once per line of code and process; here every phase starts afresh.
            warnings.simplefilter("always")
            yield
        # Summed: a phase such as "merge" is entered once for every file.
        self.timings[name] = self.timings.get(name, 0.0) + round(time.perf_counter() - began, 3)
        self.caught += [w.message for w in caught if isinstance(w.message, Warning)]
        printed = [w for w in caught if not issubclass(w.category, _WARNINGS_NOT_PRINTED)]
        for text in dict.fromkeys(in_words_of_the_command(str(w.message)) for w in printed):  # each once
            self.warn(text)


@contextmanager
def stdout_failures() -> Iterator[None]:
    """Turn errors of writing to stdout into a ``Failure``, except that of a reader who has gone."""
    try:
        yield
    # An OSError too, and so first: a reader who has seen enough is no failure.
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_failure(f"stdout cannot be written ({error.strerror}).") from error


def json_text(content: Any, indent: int | None = None) -> str:
    """Return JSON; NaN and infinities, which JSON does not have, become null."""
    # allow_nan=False: should a NaN get past ``_plain``, an error is better than JSON that no parser takes.
    return json.dumps(_plain(content), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value made of types that JSON has; arrays become lists."""
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    # Before float: NumPy's float64 is a float and has ``tolist``, which makes it one of Python's.
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    # Paths, dates and whatever else has no form in JSON are written as text.
    return value if value is None or isinstance(value, (bool, int)) else stdin.told(str(value))
