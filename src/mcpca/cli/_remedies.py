"""Options that make a table readable, for ``mcpca doctor``: decimal commas, comments, no header, encodings, sheets.

A remedy is tried, not inferred from the error: the table is opened with it, and it is kept if that makes a table of
numbers. Opening reads the first lines only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from .tables import Reading, UnusableFileError
from .tables._errors import quoted_names
from .tables.kinds import FileKind, open_unpacked
from .tables.ragged import COMMENTS
from .tables.tabular import Table, open_table
from .tables.workbook import sheets_with_columns

_ENCODINGS = ("utf-16-le", "utf-16-be", "cp1252", "latin-1")
_MOST_AT_ONCE = 3  # remedies together
_LEAST_NUMBERS = 2  # columns of numbers that a table of rows has


class _Remedy(NamedTuple):
    """Values for fields of ``Reading``, and what they are for in words."""

    changes: dict[str, Any]
    words: str


def opened(path: Path, kind: FileKind, reading: Reading) -> tuple[Table, Reading, list[str]]:
    """Open a table, with remedies if need be; return it, the reading with the remedies, and these in words."""
    try:
        return open_table(path, kind, reading), reading, []
    except UnusableFileError as error:
        for remedies in _together(_remedies(path, kind, reading, str(error))):
            changes = {name: value for remedy in remedies for name, value in remedy.changes.items()}
            remedied = replace(reading, **changes)
            try:
                table = open_table(path, kind, remedied)
            except UnusableFileError:
                continue
            if sum(name not in table.text for name in table.columns) >= _LEAST_NUMBERS:
                return table, remedied, [remedy.words for remedy in remedies]
        raise


def _together(remedies: list[_Remedy]) -> Iterator[tuple[_Remedy, ...]]:
    """Yield one remedy after another, then two at once, and so on; never two for the same field."""
    for n in range(1, _MOST_AT_ONCE + 1):
        for chosen in combinations(remedies, n):
            if len({name for remedy in chosen for name in remedy.changes}) == n:
                yield chosen


def _remedies(path: Path, kind: FileKind, reading: Reading, error: str) -> list[_Remedy]:
    """Return what could help; options that were given are kept."""
    if kind.format == "Excel":
        return _sheet_remedies(path, reading)
    if kind.format != "text":
        return []
    remedies = []
    if reading.encoding is None and ("encoding" in error or "UTF-16" in error):
        told = "not UTF-8: read as {}; look whether names with accents are right"
        remedies += [_Remedy({"encoding": name}, told.format(name)) for name in _ENCODINGS]
    if reading.comment is None:
        told = "lines that begin with {!r} are comments"
        remedies += [_Remedy({"comment": mark}, told.format(mark)) for mark in COMMENTS if _begins(path, kind, mark)]
    if reading.decimal == ".":
        remedies.append(_Remedy({"decimal": ","}, "numbers have decimal commas"))
    if reading.header:
        remedies.append(_Remedy({"header": False}, "there is no header: columns are called 1, 2, 3 and so on"))
    return remedies


def _sheet_remedies(path: Path, reading: Reading) -> list[_Remedy]:
    if reading.sheet is not None:
        return []
    names = sheets_with_columns(path, ())
    return [_Remedy({"sheet": name}, f"sheets: {quoted_names(names)}; {name!r} is taken") for name in names]


def _begins(path: Path, kind: FileKind, mark: str) -> bool:
    """Whether the first line of a text that is not blank begins with a mark, in any encoding of ASCII letters."""
    with open_unpacked(path, kind.compression) as file:
        head: bytes = file.read(2**10)
    text = head.replace(b"\0", b"").lstrip(b"\xff\xfe\xef\xbb\xbf \t\r\n")
    return text.startswith(mark.encode())
