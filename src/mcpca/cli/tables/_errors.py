"""The error for files that cannot be used, and names shortened so that it stays on one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..._utils.wording import LISTED, close_names, quoted

_NAME_LENGTH = 60  # characters; a name in a file may be a whole page
_CLASS_NAME = re.compile(r"\b[A-Z]\w*(?:Error|Exception|ZipFile|GzipFile): ")


class UnusableFileError(ValueError):
    """A file does not hold what was asked of it; the message names the file, what is wrong, and the way out."""

    def __init__(self, where: Any, message: str) -> None:
        super().__init__(f"{where}: {message}")


class UselessOptionError(UnusableFileError):
    """An option has no effect on the files it was given for: the option is wrong, and not the file."""


@contextmanager
def foreign_bytes(path: Any, format: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into an ``UnusableFileError``.

    Not for text, which is parsed by code of this package: a bug of ours should look like one.
    """
    try:
        yield
    # These three say what to do by themselves: the file is not to blame for a missing package, or too little memory.
    except (UnusableFileError, ImportError, MemoryError):
        raise
    except Exception as error:
        if format == "text":
            raise
        raise UnusableFileError(path, f"cannot be read as {format}; it may be damaged ({reason(error)}).") from error


def reason(error: BaseException) -> str:
    """Return what an error of a library says, short, and without names of Python's classes."""
    return short(_CLASS_NAME.sub("", str(error)) or "no reason is given", 160)


def short(text: Any, length: int = _NAME_LENGTH) -> str:
    """Return a text on one line, cut if it is long."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 3] + "..."


def quoted_names(names: Iterable[Any], most: int = LISTED) -> str:
    """Return the first names in quotes, each shortened, and how many more there are."""
    all_names = list(names)
    # Only those that are shown are shortened: a table may have 100,000 names.
    return quoted([*map(short, all_names[:most]), *all_names[most:]], most)


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return "did you mean ...? " if a name is close to one of ``names``, and an empty text otherwise."""
    close = close_names(name, names, 1)
    return f"did you mean {close[0]!r}? " if close else ""
