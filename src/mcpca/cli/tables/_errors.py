"""One error for files that cannot be used, with names shortened for one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_SHOWN, _LENGTH = 5, 60


class UnusableFileError(ValueError):
    """A file does not hold what was asked of it; the message names the file, what is wrong, and the way out."""

    def __init__(self, where: Any, message: str) -> None:
        super().__init__(f"{where}: {message}")


@contextmanager
def foreign_bytes(path: Any, format: str) -> Iterator[None]:
    """Turn whatever a library raises on the bytes of a damaged file into an ``UnusableFileError``.

    Not for text, which is parsed here: a mistake of ours should look like one.
    """
    try:
        yield
    except (UnusableFileError, ImportError, MemoryError):
        raise
    except Exception as error:
        if format == "text":
            raise
        raise UnusableFileError(
            path, f"cannot be read as {format}; it may be damaged ({type(error).__name__}: {short(error, 160)})."
        ) from error


def some(names: Iterable[Any], shown: int = _SHOWN) -> str:
    """Return the first few names in quotes, each on one line and of bounded length, and how many more there are."""
    listed = list(names)
    text = ", ".join(repr(short(name)) for name in listed[:shown])
    return text + (f" and {len(listed) - shown:,} more" if len(listed) > shown else "")


def short(text: Any, length: int = _LENGTH) -> str:
    """Return a text in one line, cut where it is long."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 3] + "..."


def plural(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def nearest(name: str, names: Sequence[str]) -> str:
    """Return "did you mean ...? " where a name is close to one of ``names``, and an empty text otherwise."""
    # difflib compares with each name: too slow for all columns of a wide table.
    close = difflib.get_close_matches(name, names[:2000], n=1) if len(name) < 200 else []
    return f"did you mean {close[0]!r}? " if close else ""
