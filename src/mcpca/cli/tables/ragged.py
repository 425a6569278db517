"""Text that no delimiter divides into lines of the same number of cells: which line differs, from what, and why."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence

from ._errors import UnusableFileError, short

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
COMMENTS = ("#", "%", "!", "//")  # by which lines of comments begin


def ragged(
    lines: Sequence[str], numbers: Sequence[int], counts: Mapping[str, Sequence[int]], where: str
) -> UnusableFileError:
    """Return the error for lines that no delimiter divides alike.

    ``numbers`` are those of ``lines`` in the file, and ``counts`` the cells of each record by delimiter.
    """
    # The most likely delimiter: the one that gives the most lines the same number of cells, more than one.
    common = {d: Counter(n).most_common(1)[0] for d, n in counts.items()}
    best = max(counts, key=lambda d: (common[d][0] > 1, common[d][1]))
    width = common[best][0]
    reader = csv.reader(lines, delimiter=best)
    ends = [reader.line_num for record in reader if any(record)]
    starts = [0, *ends[:-1]]
    odd = next((i for i, n in enumerate(counts[best]) if n != width), len(counts[best]) - 1)
    number = numbers[ends[odd] - 1]
    text = short(lines[ends[odd] - 1])
    separated = f"separated by {DELIMITERS[best]}"
    # A record over many lines of the file: a quote was opened, and what follows was read as one cell.
    if ends[odd] - starts[odd] > 1 and (quote := _open_quote(lines, starts[odd], ends[odd], best)) is not None:
        return UnusableFileError(
            where,
            f"line {numbers[quote]} opens a quote that nothing closes: {short(lines[quote])!r}; close or remove it.",
        )
    # Another delimiter that gives this line the width of the others: the file was pasted together.
    rival = next((d for d in counts if d != best and odd < len(counts[d]) and counts[d][odd] == width), None)
    if rival is not None and odd > 0:
        return UnusableFileError(
            where,
            f"has mixed delimiters: line {numbers[ends[0] - 1]} is {separated} and line {number} by "
            f"{DELIMITERS[rival]}; write it with one of them.",
        )
    if best == " " and any("  " in line for line in lines):
        return runs_of_spaces(where)
    if odd > 0:
        return UnusableFileError(
            where,
            f"line {number} has {_cells(counts[best][odd])} where the header has {width} ({separated}): {text!r}; "
            "correct that line.",
        )
    # The first line differs from those below: a comment or a title, or a header that is too long or too short.
    comment = next((mark for mark in COMMENTS if lines[ends[0] - 1].startswith(mark)), None)
    way_out = (
        f"if it is a comment, pass --comment '{comment}'" if comment else "correct it, or remove a title above them"
    )
    return UnusableFileError(
        where,
        f"its first line ({number}) has {_cells(counts[best][0])} where most lines below have {width} ({separated}): "
        f"{text!r}; it should name the columns; {way_out}.",
    )


def runs_of_spaces(where: str) -> UnusableFileError:
    """Return the error for columns that are lined up with spaces."""
    return UnusableFileError(where, "is separated by runs of spaces; write it with commas or tabs.")


def _open_quote(lines: Sequence[str], start: int, end: int, delimiter: str) -> int | None:
    """Return the position of the first of some lines that has an odd number of quotes, if it cannot be right."""
    first = next((i for i in range(start, end) if lines[i].count('"') % 2), None)
    # Lines that are swallowed have cells of their own: text with line breaks has no delimiters, or few.
    swallowed = [lines[i].count(delimiter) for i in range(start, end)]
    return first if first is not None and sum(n > 0 for n in swallowed) > 1 else None


def _cells(n: int) -> str:
    return f"{n} cell" if n == 1 else f"{n} cells"


def line_of(record: Sequence[str], cell: int, number: int) -> int:
    """Return the line on which a cell of a record begins, where ``number`` is the line on which the record ends."""
    return number - sum(text.replace("\r\n", "\n").replace("\r", "\n").count("\n") for text in record[cell:])
