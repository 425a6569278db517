"""How a text is written, from its first lines: encoding, delimiter, header, and which columns are numbers.

Python's ``csv.Sniffer`` guesses the delimiter from frequencies of characters; here it is the one that gives every line
the same number of fields, and if there is none, the error names the line that differs.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._utils.printing import counted
from ._errors import UnusableFileError, quoted_names, short
from .cells import plain
from .columns import MAX_COLUMNS, check_table_columns, too_many_columns
from .comments import Uncommented
from .data import Reading
from .kinds import open_unpacked
from .labels import MISSING

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
_HEAD_CHARACTERS = 2**18  # looked at; more if they hold fewer than three lines
_LONGEST_LINE = 2**26  # characters; a text without line ends is not read into memory
_HEAD_LINES = 100  # looked at
_SPARE_LABELS = 1000  # read beyond twice as many as there are rows: it is the wrong file, of whatever size
# UTF-16 is recognised by its mark alone; without one it is refused for its zero bytes (``_first_lines``).
_BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", codecs.BOM_UTF8: "utf-8-sig"}
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # by which Excel is told the delimiter
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Dialect:
    """What the first lines tell.

    Attributes
    ----------
    delimiter, encoding, decimal : str
    comment : str or None
    header_lines : int
        Lines up to the end of the header, blank ones before it too, but not comments; 0 without one.
    columns : list of str
        One name per column; "" for a first column without a name, which has the names of rows.
    n_empty : int
        Columns on the right that have no name and no value in these lines, and are not among ``columns``.
    text : frozenset of str
        Columns that are not numbers in these lines.
    longest : int
        Bytes of the longest of these lines.
    """

    delimiter: str
    encoding: str
    decimal: str
    comment: str | None
    header_lines: int
    columns: list[str]
    n_empty: int
    text: frozenset[str]
    longest: int

    @property
    def index(self) -> str | None:
        """The column with names of rows, if it is the first and has no name itself."""
        return "" if self.columns and self.columns[0] == "" else None


@contextmanager
def open_text(path: Path, compression: str | None, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Open a text, unpacked; whatever is wrong with it while it is read becomes an ``UnusableFileError``."""
    try:
        with open_unpacked(path, compression) as raw:
            yield io.TextIOWrapper(raw, encoding=encoding, newline="")  # csv wants line ends as they are
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UnusableFileError(
            path,
            f"is not in the encoding {encoding} (byte 0x{byte:02x}); pass --encoding latin-1, say.",
        ) from error
    except csv.Error as error:
        raise UnusableFileError(path, f"cannot be read as a table ({error}).") from error


def bounded_lines(file: Any, where: Any) -> Iterator[str]:
    """Yield the lines of an opened text; raise at one that is longer than a line of a table can be."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE and not line.endswith(("\n", "\r")):
            raise UnusableFileError(where, f"has a line of more than {_LONGEST_LINE:,} characters; it is not a table.")
        yield line


def label_lines(file: Any, path: Path, n: int, comment: str | None = None) -> list[str]:
    """Return the lines of an opened text without surplus blank ones at its end; raise if there are far more than n."""
    lines: list[str] = []
    for line in Uncommented(bounded_lines(file, path), comment):
        lines.append(line.removesuffix("\n").removesuffix("\r"))
        # So that a file of rows that is passed as labels by mistake is not read to its end.
        if len(lines) > 2 * n + _SPARE_LABELS:
            raise UnusableFileError(path, f"has more than {len(lines) - 1:,} labels for {counted(n, 'row')}.")
    # A blank line at the end is a missing label only as long as it is one of the n.
    while len(lines) > n and not lines[-1].strip():
        lines.pop()
    return lines


def dialect_of(path: Path, compression: str | None, reading: Reading) -> Dialect:
    """Return the dialect of a text; options in ``reading`` take the place of guesses."""
    encoding = reading.encoding or _encoding_of(path, compression)
    lines, numbers, whole = _first_lines(path, compression, encoding, reading.comment)
    where = str(path)
    separator, above = _separator_line(lines)
    lines, numbers = lines[above:], numbers[above:]
    try:
        delimiter = reading.delimiter or separator or _delimiter_of(lines, numbers, whole, where)
        reader = csv.reader(lines, delimiter=delimiter)
        records = [next(record for record in reader if any(record))]  # the header, after any blank lines
        header_lines = above + (reader.line_num if reading.header else 0)
        records += [record for record in reader if record]
    except csv.Error as error:
        raise UnusableFileError(where, f"cannot be read as a table ({error}).") from error
    if not whole and len(records) > 1:
        records.pop()  # it may be cut off
    # Before the header is judged: of a table that is transposed by mistake, its width is what should be said.
    if len(records[0]) > MAX_COLUMNS:
        raise too_many_columns(len(records[0]), where)
    columns, data, n_empty = _header_of(records, reading, where)
    check_table_columns(columns, where)
    text = _text_columns(columns, data, reading, where)
    # In bytes, which is what Arrow's blocks are measured in. "replace": only the length matters.
    longest = max(len(line.encode(encoding, "replace")) for line in lines)
    return Dialect(delimiter, encoding, reading.decimal, reading.comment, header_lines, columns, n_empty, text, longest)


def _separator_line(lines: list[str]) -> tuple[str | None, int]:
    """Return the delimiter that a first line such as "sep=;" names, and how many lines to skip for it."""
    match = _SEPARATOR_LINE.fullmatch(lines[0]) if len(lines) > 1 else None
    return (None, 0) if match is None else (match[1], 1)


def _encoding_of(path: Path, compression: str | None) -> str:
    """Return the encoding that a byte-order mark names, else UTF-8; any other shows when the text is decoded."""
    with open_unpacked(path, compression) as file:
        head = file.read(4)
    return next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")


def _first_lines(
    path: Path, compression: str | None, encoding: str, comment: str | None
) -> tuple[list[str], list[int], bool]:
    """Return the first lines, with their line ends, their numbers in the file, and whether these are all."""
    if comment is not None:
        return _first_uncommented(path, compression, encoding, comment)
    with open_text(path, compression, encoding) as file:
        text = file.read(_HEAD_CHARACTERS)
        # A wide table has a header of megabytes: read on until there are a few lines to compare.
        while text and len(text) < _LONGEST_LINE and (text.count("\n") < 3 and text.count("\r") < 3):
            # Doubling, so that a header of megabytes is not copied at every step.
            more = file.read(len(text))
            if not more:
                break
            text += more
        whole = not file.read(1)
    if "\0" in text:  # UTF-16 without its mark looks like that too
        raise UnusableFileError(path, "is a binary file of no known format; mcpca --help lists those that are read.")
    lines = list(io.StringIO(text, newline=""))  # not splitlines, which splits at form feeds and the like too
    if not whole and len(text) >= _LONGEST_LINE and len(lines) < 2:
        raise UnusableFileError(path, f"has no end of line in its first {len(text):,} characters; it is not a table.")
    if len(lines) > _HEAD_LINES:
        lines = lines[:_HEAD_LINES]
        whole = False
    if not any(line.strip() for line in lines):
        raise UnusableFileError(path, "has only empty lines.")
    return lines, list(range(1, len(lines) + 1)), whole


def _first_uncommented(
    path: Path, compression: str | None, encoding: str, comment: str
) -> tuple[list[str], list[int], bool]:
    """Return ``_first_lines`` without comments, of which there may be any number before the first line."""
    lines: list[str] = []
    numbers: list[int] = []
    characters = 0
    whole = True
    with open_text(path, compression, encoding) as file:
        uncommented = Uncommented(bounded_lines(file, path), comment)
        for line in uncommented:
            if "\0" in line:
                raise UnusableFileError(
                    path, "is a binary file of no known format; mcpca --help lists those that are read."
                )
            if len(lines) == _HEAD_LINES or (characters > _HEAD_CHARACTERS and len(lines) > 2):
                whole = False
                break
            lines.append(line)
            numbers.append(uncommented.number)
            characters += len(line)
    if not any(line.strip() for line in lines):
        raise UnusableFileError(path, f"has only empty lines and lines that begin with {comment!r} (--comment).")
    return lines, numbers, whole


def _delimiter_of(lines: list[str], numbers: list[int], whole: bool, where: str) -> str:
    """Return the delimiter that gives every line the same number of fields, or raise with the line that differs."""
    counts = {d: _field_counts(lines, whole, d) for d in DELIMITERS if any(d in line for line in lines)}
    fitting = {d: n[-1] for d, n in counts.items() if _is_consistent(n)}
    if not counts:
        return ","  # a single column
    if not fitting:
        raise _ragged(lines, numbers, counts, where)
    # Of several, the one that gives the most fields: commas within text are fewer than the delimiters around it.
    best = max(fitting, key=lambda d: fitting[d])
    if best == " " and any("  " in line.strip() for line in lines):
        raise _runs_of_spaces(where)
    return best


def _field_counts(lines: list[str], whole: bool, delimiter: str) -> list[int]:
    """Return the number of fields in each record; the last one may be cut off, and is left out if there are others.

    With a delimiter that makes a field longer than csv allows, which cannot be the right one, every record has one.
    """
    try:
        counts = [len(record) for record in csv.reader(lines, delimiter=delimiter) if any(record)]
    except csv.Error:
        return [1] * len(lines)
    return counts if whole or len(counts) < 3 else counts[:-1]


def _is_consistent(counts: list[int]) -> bool:
    """Whether all lines have the same number of fields; the header may have one fewer, as R writes names of rows."""
    widths = set(counts[1:]) or {counts[0]}
    if len(widths) > 1:
        return False
    width = widths.pop()
    return width > 1 and counts[0] in (width, width - 1)


def _ragged(lines: list[str], numbers: list[int], counts: dict[str, list[int]], where: str) -> UnusableFileError:
    """Return the error for lines that no delimiter divides alike; it names the first line that differs."""
    # The most likely delimiter: the one that gives the most lines the same number of fields, more than one.
    common = {d: Counter(n).most_common(1)[0] for d, n in counts.items()}
    best = max(counts, key=lambda d: (common[d][0] > 1, common[d][1]))
    # The first line sets the standard for the message: a reader looks there first.
    width = counts[best][0]
    # Position among the records; the last if only the header has another width than the rest.
    odd = next((i for i, n in enumerate(counts[best]) if n != width), len(counts[best]) - 1)
    reader = csv.reader(lines, delimiter=best)
    ends = [reader.line_num for record in reader if any(record)]
    first, number = numbers[ends[0] - 1], numbers[ends[odd] - 1]  # of lines in the file
    # Another delimiter that gives this line the width of the first: the file was pasted together.
    rival = next((d for d in counts if d != best and odd < len(counts[d]) and counts[d][odd] == width), None)
    if rival is not None:
        return UnusableFileError(
            where,
            f"has mixed delimiters: line {first} is separated by {DELIMITERS[best]} and line {number} by "
            f"{DELIMITERS[rival]}; write it with one of them.",
        )
    if best == " " and any("  " in line for line in lines):
        return _runs_of_spaces(where)
    return UnusableFileError(
        where,
        f"has {width} fields in line {first} and {counts[best][odd]} in line {number} (separated by "
        f"{DELIMITERS[best]}): {short(lines[ends[odd] - 1])!r}; every line needs the same number.",
    )


def _runs_of_spaces(where: str) -> UnusableFileError:
    return UnusableFileError(where, "is separated by runs of spaces; write it with commas or tabs.")


def _header_of(records: list[list[str]], reading: Reading, where: str) -> tuple[list[str], list[list[str]], int]:
    """Return the names of the columns, the records below the header, and the number of empty columns on the right."""
    if not reading.header:
        n_empty = _empty_on_the_right(records)
        return [str(i + 1) for i in range(len(records[0]) - n_empty)], records, n_empty
    names = [plain(name.strip()) for name in records[0]]
    data = records[1:]
    # Whole numbers can be names ("1", "2"), and a single number may be one too ("0.5").
    numbers = [name for name in names if is_number(name, ".") and not name.isdecimal()]
    if len(numbers) > 1 or (numbers and len(numbers) == len(names)):
        raise UnusableFileError(
            where,
            f"has no header: its first line is numbers ({quoted_names(numbers, 3)}); add a line with the names of "
            "columns, or pass --no-header, which calls them 1, 2, 3 and so on.",
        )
    if not data:
        raise UnusableFileError(where, "has a header but no rows.")
    # One field more than names: R does not name the column of names of rows. Or all lines end in a delimiter.
    if len(data[0]) == len(names) + 1:
        names = [*names, ""] if not any(record[-1].strip() for record in data) else ["", *names]
    # What a spreadsheet leaves where something was deleted: no name, and no value.
    n_empty = _empty_on_the_right([names, *data])
    names = names[: len(names) - n_empty]
    unnamed = [i for i, name in enumerate(names) if not name and i > 0]
    if unnamed:
        raise UnusableFileError(
            where, f"has no name for column {unnamed[0] + 1} in its header; only the first may be without one."
        )
    return names, data, n_empty


def _empty_on_the_right(records: list[list[str]]) -> int:
    """Return how many columns of the first record, from its end, are empty in all records; never the first column."""
    width = len(records[0])
    # The last field with something in it, record by record: in most, that is the very last.
    filled = max(
        next((i for i in range(min(len(record), width) - 1, 0, -1) if record[i].strip()), 0) for record in records
    )
    return width - filled - 1


def _text_columns(columns: list[str], data: list[list[str]], reading: Reading, where: str) -> frozenset[str]:
    """Return the columns that are not numbers; commas within numbers are an error that says what to do about them."""
    text = set()
    decimal = reading.decimal
    missing = MISSING | set(reading.na_values)
    for i, name in enumerate(columns):
        # Only the first lines are judged. If a later one is not a number, Arrow fails on it and ``delimited`` names it.
        values = [record[i].strip() for record in data if i < len(record)]
        if all(value in missing or is_number(value, decimal) for value in values):
            continue
        # Numbers with commas would pass as text, and be dropped by whoever follows the next error's advice.
        known = [value for value in values if value not in missing]
        # All values have to fit the pattern: a single comma may well be within text.
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
    return "_" not in text  # which Python allows between digits
