"""Lines of a text without those that are comments (``--comment``), which keep their numbers in the file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any


class Uncommented:
    """The lines that do not begin with ``comment``; ``number`` is that of the last one in the file, from 1."""

    def __init__(self, lines: Iterable[str], comment: str | None) -> None:
        self._lines = lines
        self._comment = comment
        self.number = 0
        self.characters = 0  # of all lines so far, comments too

    def __iter__(self) -> Iterator[str]:
        """Yield lines with their ends."""
        for line in self._lines:
            self.number += 1
            self.characters += len(line)
            # By lines alone, also within quotes: whoever wrote the comments did not look at quotes either.
            if self._comment is None or not line.startswith(self._comment):
                yield line


class _EncodedLines(io.RawIOBase):
    """Lines as bytes in UTF-8."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__()
        self._lines = iter(lines)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` with what is left of a line, or with the next; return how many bytes."""
        while not len(self._rest):
            line = next(self._lines, None)
            if line is None:
                return 0
            self._rest = memoryview(line.encode("utf-8"))
        n = min(len(buffer), len(self._rest))
        buffer[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n


def encoded(lines: Iterable[str], buffer_bytes: int = 2**20) -> io.BufferedReader:
    """Return lines as a binary file in UTF-8."""
    return io.BufferedReader(_EncodedLines(lines), buffer_bytes)
