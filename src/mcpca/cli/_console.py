"""What the user is told: results on stdout, progress and notes on stderr, everything as JSON where asked."""

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


class Failure(Exception):
    """An error with its exit code and a word for its kind; ``content`` goes beside it into JSON."""

    def __init__(self, message: str, code: int, kind: str, content: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.kind, self.content = code, kind, content or {}


class ReaderGoneError(Exception):
    """Whoever read our output has stopped reading."""


def output_failure(message: str) -> Failure:
    """Return the failure of what cannot be written."""
    return Failure(message, 5, "output")


class Console:
    """Where a command talks to.

    Parameters
    ----------
    as_json : bool
        One JSON object on stdout at the end, and no other text there.
    quiet : bool
        Nothing on stderr but errors and warnings.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self._bar = ProgressLine("mcpca: ", away=True)
        self.progress: Report = silent if quiet else self._bar
        self.timings: dict[str, float] = {}
        self.warnings: list[str] = []
        self.caught: list[Warning] = []  # what the library has said, as it was said

    def say(self, text: str = "") -> None:
        """Print text for a reader on stdout."""
        if not self.as_json:
            self._print(text)

    def clear(self) -> None:
        """Take the progress from the terminal."""
        self._bar.clear()

    def note(self, text: str) -> None:
        """Tell something beside the result."""
        if not self.quiet:
            self.clear()
            print(f"mcpca: {text}", file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Tell what the reader should not miss; kept for the record of the run."""
        self.warnings.append(text)
        self.clear()
        print(f"mcpca: warning: {text}", file=sys.stderr, flush=True)

    def result(self, command: str, content: dict[str, Any]) -> None:
        """Print the result as JSON, where that was asked for."""
        if self.as_json:
            self._print(to_json({"ok": True, "command": command, **content}))

    def _print(self, text: str) -> None:
        self.clear()
        try:
            print(text, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise output_failure(f"stdout cannot be written ({error.strerror}).") from error

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase; warnings of the library become lines."""
        began = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught, reporting(self.progress, name):
            warnings.simplefilter("always")
            yield
        self.timings[name] = self.timings.get(name, 0.0) + round(time.perf_counter() - began, 3)
        self.caught += [w.message for w in caught if isinstance(w.message, Warning)]
        for text in dict.fromkeys(in_words_of_the_command(str(w.message)) for w in caught if _matters(w)):
            self.warn(text)


def in_words_of_the_command(text: str) -> str:
    """Return a message of the library in one line, with options in place of Python's parameters."""
    line = " ".join(text.split()).replace("allow_duplicates=True", "--allow-duplicates")
    return line.replace("n_components", "--rank").replace("center='own'", "--center own")


def _matters(caught: warnings.WarningMessage) -> bool:
    """Whether a warning is for the user of a command and not for those who write Python."""
    # The last two are told in words of their own, with the options that help.
    told = DoubtfulLabelsWarning, DominantFeatureWarning
    return not issubclass(
        caught.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, *told)
    )


def to_json(content: Any, indent: int | None = None) -> str:
    """Return JSON text; numbers that JSON does not have become null."""
    return json.dumps(_plain(content), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
