"""How a text separates its columns, whether it has a header, which columns are numbers: from its first lines."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._errors import UnusableFileError, plural, short, some
from .cells import plain
from .columns import MAX_COLUMNS, check_columns, too_many_columns
from .data import Reading
from .kinds import damaged_gzip
from .labels import MISSING

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
_HEAD, _LONGEST = 2**18, 2**26  # characters looked at, and of the longest first lines
_LINES = 100
_SPARE_LINES = 1000  # beyond those that are needed, before labels are given up
_BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Dialect:
    """What the first lines tell.

    Attributes
    ----------
    delimiter, encoding, decimal : str
    header_lines : int
        Lines up to the end of the header; 0 without one.
    columns : list of str
        One name per column; the unnamed first column of names of rows is "".
    text : frozenset of str
        Columns that are no numbers in the first lines.
    longest : int
        Bytes of the longest of these lines, at least.
    """

    delimiter: str
    encoding: str
    decimal: str
    header_lines: int
    columns: list[str]
    text: frozenset[str]
    longest: int

    @property
    def index(self) -> str | None:
        """The column of names of rows that has no name itself."""
        return "" if self.columns and self.columns[0] == "" else None


@contextmanager
def open_text(path: Path, compression: str | None, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Open a text, unpacked; what is wrong with it while it is read becomes an ``UnusableFileError``."""
    try:
        with gzip.open(path, "rb") if compression else path.open("rb") as raw:
            yield io.TextIOWrapper(raw, encoding=encoding, newline="")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UnusableFileError(
            path,
            f"is not in the encoding {encoding} (byte 0x{byte:02x}); pass --encoding latin-1, say.",
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged_gzip(path, error) from error
    except csv.Error as error:
        raise UnusableFileError(path, f"cannot be read as a table ({error}).") from error


def bounded_lines(file: Any, where: Any) -> Iterator[str]:
    """Yield the lines of an opened text; one that is longer than any line of a table can be raises."""
    while line := file.readline(_LONGEST):
        if len(line) == _LONGEST and not line.endswith(("\n", "\r")):
            raise UnusableFileError(where, f"has a line of more than {_LONGEST:,} characters; it is no table.")
        yield line


def label_lines(file: Any, path: Path, n: int) -> list[str]:
    """Return n lines of an opened text, or more but for empty ones at its end; far more are not held, and raise."""
    lines: list[str] = []
    for line in bounded_lines(file, path):
        lines.append(line.removesuffix("\n").removesuffix("\r"))
        if len(lines) > 2 * n + _SPARE_LINES:
            raise UnusableFileError(path, f"has more than {len(lines) - 1:,} labels for {plural(n, 'row')}.")
    while len(lines) > n and not lines[-1].strip():  # the last labels may be empty, and so may lines at the end
        lines.pop()
    return lines


def dialect_of(path: Path, compression: str | None, reading: Reading) -> Dialect:
    """Look at the first lines of a text; options of ``reading`` take the place of guesses."""
    encoding = reading.encoding or _encoding_of(path, compression)
    lines, whole = _first_lines(path, compression, encoding)
    where = str(path)
    try:
        delimiter = reading.delimiter or _delimiter_of(lines, whole, where)
        reader = csv.reader(lines, delimiter=delimiter)
        records = [next(record for record in reader if any(record))]
        header_lines = reader.line_num if reading.header else 0
        records += [record for record in reader if record]
    except csv.Error as error:
        raise UnusableFileError(where, f"cannot be read as a table ({error}).") from error
    if not whole and len(records) > 1:
        records.pop()  # its end may be missing
    if len(records[0]) > MAX_COLUMNS:
        raise too_many_columns(len(records[0]), where)
    columns, data = _header_of(records, reading, where)
    check_columns(columns, where)
    text = _text_columns(columns, data, reading, where)
    longest = max(len(line.encode(encoding, "replace")) for line in lines)
    return Dialect(delimiter, encoding, reading.decimal, header_lines, columns, text, longest)


def _encoding_of(path: Path, compression: str | None) -> str:
    try:
        with gzip.open(path, "rb") if compression else path.open("rb") as file:
            head = file.read(4)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged_gzip(path, error) from error
    return next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")


def _first_lines(path: Path, compression: str | None, encoding: str) -> tuple[list[str], bool]:
    """Return some of the first lines, with their ends, and whether these are all there are."""
    with open_text(path, compression, encoding) as file:
        text = file.read(_HEAD)
        while text and len(text) < _LONGEST and (text.count("\n") < 3 and text.count("\r") < 3):
            more = file.read(len(text))
            if not more:
                break
            text += more
        whole = not file.read(1)
    if "\0" in text:
        raise UnusableFileError(path, "is binary, and of no format that is known here; mcpca doctor --help lists them.")
    lines = list(io.StringIO(text, newline=""))  # by ends of lines alone: texts may hold other separators
    if not whole and len(text) >= _LONGEST and len(lines) < 2:
        raise UnusableFileError(path, f"has no end of line in its first {len(text):,} characters; it is no table.")
    if len(lines) > _LINES:
        lines, whole = lines[:_LINES], False
    if not any(line.strip() for line in lines):
        raise UnusableFileError(path, "has only empty lines.")
    return lines, whole


def _delimiter_of(lines: list[str], whole: bool, where: str) -> str:
    """Return the delimiter that gives every line the same number of fields, or explain which lines differ."""
    counts = {d: _counts(lines, whole, d) for d in DELIMITERS if any(d in line for line in lines)}
    fitting = {d: n[-1] for d, n in counts.items() if _consistent(n)}
    if not counts:
        return ","  # a single column
    if not fitting:
        raise _ragged(lines, counts, where)
    best = max(fitting, key=lambda d: fitting[d])
    if best == " " and any("  " in line.strip() for line in lines):
        raise _runs_of_spaces(where)
    return best


def _counts(lines: list[str], whole: bool, delimiter: str) -> list[int]:
    """Return the number of fields in each record; the last one may be cut, and does not count unless it is alone.

    One each where a field is longer than any can be: that is not the delimiter.
    """
    try:
        counts = [len(record) for record in csv.reader(lines, delimiter=delimiter) if any(record)]
    except csv.Error:
        return [1] * len(lines)
    return counts if whole or len(counts) < 3 else counts[:-1]


def _consistent(counts: list[int]) -> bool:
    """Whether lines have as many fields as one another; the header may lack a name for names of rows, as R writes."""
    body = set(counts[1:]) or {counts[0]}
    return len(body) == 1 and (width := body.pop()) > 1 and counts[0] in (width, width - 1)


def _ragged(lines: list[str], counts: dict[str, list[int]], where: str) -> UnusableFileError:
    common = {d: Counter(n).most_common(1)[0] for d, n in counts.items()}
    best = max(counts, key=lambda d: (common[d][0] > 1, common[d][1]))
    width = counts[best][0]
    odd = next((i for i, n in enumerate(counts[best]) if n != width), len(counts[best]) - 1)
    reader = csv.reader(lines, delimiter=best)
    number = [reader.line_num for record in reader if any(record)][odd]
    rival = next((d for d in counts if d != best and odd < len(counts[d]) and counts[d][odd] == width), None)
    if rival is not None:
        return UnusableFileError(
            where,
            f"has mixed delimiters: line 1 is separated by {DELIMITERS[best]} and line {number} by "
            f"{DELIMITERS[rival]}; write it with one of them.",
        )
    if best == " " and any("  " in line for line in lines):
        return _runs_of_spaces(where)
    return UnusableFileError(
        where,
        f"has {width} fields in line 1 and {counts[best][odd]} in line {number} (separated by {DELIMITERS[best]}): "
        f"{short(lines[number - 1])!r}; every line needs the same number.",
    )


def _runs_of_spaces(where: str) -> UnusableFileError:
    return UnusableFileError(where, "is separated by runs of spaces; write it with commas or tabs.")


def _header_of(records: list[list[str]], reading: Reading, where: str) -> tuple[list[str], list[list[str]]]:
    """Return the names of columns and the records of data."""
    if not reading.header:
        return [str(i + 1) for i in range(len(records[0]))], records
    names, data = [plain(name.strip()) for name in records[0]], records[1:]
    numbers = [name for name in names if is_number(name, ".") and not name.isdecimal()]
    if len(numbers) > 1 or (numbers and len(numbers) == len(names)):
        raise UnusableFileError(
            where,
            f"has no header: its first line is numbers ({some(numbers, 3)}); add a line with the names of columns, or "
            "pass --no-header, which calls them 1, 2, 3 and so on.",
        )
    if not data:
        raise UnusableFileError(where, "has a header and no rows.")
    if len(data[0]) == len(names) + 1:
        if not any(record[-1].strip() for record in data):
            raise UnusableFileError(where, "has a delimiter at the end of its lines and none in the header; remove it.")
        names = ["", *names]
    unnamed = [i for i, name in enumerate(names) if not name and i > 0]
    if unnamed:
        raise UnusableFileError(
            where, f"has no name for column {unnamed[0] + 1} in its header; only the first may be without one."
        )
    return names, data


def _text_columns(columns: list[str], data: list[list[str]], reading: Reading, where: str) -> frozenset[str]:
    """Return the columns that are no numbers; commas within numbers are an error that says what to do about them."""
    text, decimal, missing = set(), reading.decimal, MISSING | set(reading.na_values)
    for i, name in enumerate(columns):
        values = [record[i].strip() for record in data if i < len(record)]
        if all(value in missing or is_number(value, decimal) for value in values):
            continue
        known = [value for value in values if value not in missing]
        if decimal == "." and all(_THOUSANDS.fullmatch(v) or is_number(v, ".") for v in known):
            grouped = next(value for value in known if "," in value)
            raise UnusableFileError(
                where,
                f"has commas between thousands ({grouped!r} in column {short(name)!r}), or decimal commas "
                "(--decimal ','); write numbers without them.",
            )
        commas = [value for value in known if _DECIMAL_COMMA.fullmatch(value)]
        if commas and decimal == "." and all(is_number(v.replace(",", ".", 1), ".") for v in known):
            raise UnusableFileError(
                where, f"has numbers with decimal commas ({commas[0]!r} in column {short(name)!r}); pass --decimal ','."
            )
        text.add(name)
    return frozenset(text)


def is_number(text: str, decimal: str) -> bool:
    """Whether a text is a number, with this decimal point."""
    try:
        float(text.replace(decimal, ".") if decimal != "." else text)
    except ValueError:
        return False
    return "_" not in text
