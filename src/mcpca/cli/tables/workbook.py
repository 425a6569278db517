"""Sheets of Excel workbooks (.xlsx), read in batches by openpyxl; a ``Table`` for ``tabular``, like ``delimited``.

A sheet is read as its CSV would be: the first row that is not empty has the names of columns, empty columns and rows at
the edges are left out, and numbers that are stored as text are numbers. What CSV does not have is said: several sheets,
merged cells, formulas without a stored value, names that Excel has turned into dates.
"""

from __future__ import annotations

import datetime
import re
import shlex
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..._utils.optional import require
from ..._utils.printing import counted
from ._errors import UnusableFileError, did_you_mean, quoted_names, reason, short
from .columns import check_table_columns
from .data import Reading
from .dialect import is_number
from .labels import MISSING

_HEAD_ROWS = 100  # looked at
_BATCH_CELLS = 2**19  # Python objects at a time
_MERGED = re.compile(rb'<mergeCell ref="([A-Z]+[0-9]+:[A-Z]+[0-9]+)"')
_SCAN_BYTES = 2**20
_ERRORS = frozenset({"#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!"})  # values of formulas that failed
_MISSING = frozenset({"#N/A", *MISSING})
# Control characters, as Excel writes them; _x005F_ is the underscore of a text that looks like one.
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_MOST_DATES = 20  # kept for a message


class WorkbookTable:
    """A sheet of a workbook; ``columns``, ``text``, ``index`` and ``read`` as in ``DelimitedTable``.

    Attributes
    ----------
    sheet : str
    dates : dict of str to list of (str, str)
        Cells that hold a date, with the date as text, by column; those of the header by the column "header".
    """

    nested: frozenset[str] = frozenset()

    def __init__(self, path: Path, reading: Reading) -> None:
        require("openpyxl", "excel")
        self.path = path
        self.read = 0.0
        self._missing = _MISSING | set(reading.na_values)
        self._decimal = reading.decimal
        self.dates: dict[str, list[tuple[str, str]]] = {"header": []}
        self._n_blank = 0
        self._has_formulas_checked = False
        with self._opened() as book:
            self.sheet = _chosen_sheet(book, reading.sheet, path)
            self.where = str(path) if len(book.worksheets) == 1 else f"{path}, sheet {self.sheet!r}"
            rows = _rows(book[self.sheet])
            above, header = next((i, row) for i, row in enumerate(rows) if any(map(_has_value, row)))
            head = [list(row) for row in islice(rows, _HEAD_ROWS)]
        self._check_merged()
        # ``_first`` is the number in the sheet, from 1, of the first row below the header.
        self._first = above + 2 if reading.header else above + 1
        data = head if reading.header else [list(header), *head]
        widths = [_width(row) for row in ([header, *head] if reading.header else data)]
        self._n_empty = max(map(len, [header, *head])) - max(widths)
        self.columns = self._names(header, max(widths), reading)
        check_table_columns(self.columns, self.where)
        if not any(_has_value(value) for row in data for value in row):
            raise UnusableFileError(self.where, "has a header but no rows.")
        self.index = "" if self.columns[0] == "" else None
        self.text = frozenset(
            name
            for j, name in enumerate(self.columns)
            if not all(self._is_number(row[j]) for row in data if j < len(row))
        )

    @property
    def format(self) -> str:
        """The format in words."""
        return f"Excel, sheet {self.sheet!r}"

    @property
    def left_out(self) -> list[str]:
        """What is not read, in words."""
        parts = [counted(self._n_empty, "empty column")] if self._n_empty else []
        parts += [counted(self._n_blank, "empty row")] if self._n_blank else []
        return [f"{' and '.join(parts)} at the end of {self.where}."] if parts else []

    def place(self, row: int, column: str) -> str:
        """Return where a value is in the file, in words; ``row`` is counted from 0."""
        return f"cell {self._cell(row, self.columns.index(column))}"

    def batches(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow record batches of these columns; missing values are null. Each call is a new pass."""
        pa = require("pyarrow", "cli")
        position = {name: j for j, name in enumerate(self.columns)}
        wanted = [position[name] for name in [*numbers, *texts]]
        self.dates = {"header": self.dates["header"]}
        width = len(self.columns)
        step = int(np.clip(_BATCH_CELLS // width, 1, 2**14))
        with self._opened() as book:
            sheet = book[self.sheet]
            n_rows = max(sheet.max_row or 1, 1)
            rows = islice(_rows(sheet), self._first - 1, None)
            done = 0  # rows so far
            gap: tuple[int, int] | None = None
            for block in self._blocks(rows, step):
                columns = list(zip(*(self._padded(row, width, done + i) for i, row in enumerate(block)), strict=True))
                arrays = []
                for k, j in enumerate(wanted):
                    is_text = k >= len(numbers)
                    values = (self._texts if is_text else self._numbers)(columns[j], j, done)
                    arrays.append(pa.array(values, pa.string() if is_text else pa.float64()))
                    if gap is None and arrays[-1].null_count:
                        gap = (done + columns[j].index(None), j) if None in columns[j] else None
                done += len(block)
                self.read = min((self._first + done) / n_rows, 1.0)
                yield pa.RecordBatch.from_arrays(arrays, names=[*numbers, *texts])
        if gap is not None and not self._has_formulas_checked:
            self._check_formula(*gap)

    # Cells

    def _blocks(self, rows: Iterator[Any], step: int) -> Iterator[list[Any]]:
        """Yield rows in blocks, without empty ones at the end."""
        blank = 0
        block: list[Any] = []
        for row in rows:
            if not any(map(_has_value, row)):
                blank += 1
                continue
            # Empty rows in between are rows without values, which are an error later on.
            block += [()] * blank
            blank = 0
            block.append(row)
            if len(block) >= step:
                yield block
                block = []
        self._n_blank = blank
        if block:
            yield block

    def _padded(self, row: Sequence[Any], width: int, i: int) -> list[Any]:
        """Return a row with as many cells as there are columns."""
        beyond = next((j for j in range(width, len(row)) if _has_value(row[j])), None)
        if beyond is not None:
            raise UnusableFileError(
                self.where,
                f"cell {self._cell(i, beyond)} has {short(row[beyond], 40)!r}, right of the last column that the "
                f"header names ({short(self.columns[-1])!r}); name its column, or remove it.",
            )
        values = list(row[:width])
        return values + [None] * (width - len(values))

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, str):
            bare = value.strip()
            # The value of a formula that failed: the error names the cell when the column is read.
            return bare in self._missing or bare in _ERRORS or is_number(bare, self._decimal)
        return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))

    def _numbers(self, values: Sequence[Any], j: int, done: int) -> list[float | None]:
        """Return a column of cells as numbers."""
        out: list[float | None] = []
        for i, value in enumerate(values):
            if value is None or type(value) in (int, float):
                out.append(None if value is None else float(value))
                continue
            bare = value.strip() if isinstance(value, str) else None
            if bare is not None and bare in self._missing:
                out.append(None)
            elif bare is not None and is_number(bare, self._decimal):
                out.append(float(bare.replace(self._decimal, ".") if self._decimal != "." else bare))
            else:
                raise self._not_a_number(value, done + i, j)
        return out

    def _not_a_number(self, value: Any, i: int, j: int) -> UnusableFileError:
        where = f"cell {self._cell(i, j)} has {short(_text(value), 40)!r} in column {short(self.columns[j])!r}"
        if isinstance(value, str) and value.strip() in _ERRORS:
            return UnusableFileError(self.where, f"{where}, a formula that failed; correct it in Excel, or clear it.")
        na = f", or pass --na-values {shlex.quote(short(value))} if it means a missing value"
        return UnusableFileError(
            self.where,
            f"{where}, which is otherwise numbers; correct it, leave the column out with --drop"
            f"{na if isinstance(value, str) else ''}.",
        )

    def _texts(self, values: Sequence[Any], j: int, done: int) -> list[str | None]:
        """Return a column of cells as text; dates are remembered."""
        out: list[str | None] = []
        for i, value in enumerate(values):
            out.append(None if value is None else _text(value))
            if isinstance(value, (datetime.date, datetime.time)):
                seen = self.dates.setdefault(self.columns[j], [])
                if len(seen) < _MOST_DATES:
                    seen.append((self._cell(done + i, j), _text(value)))
        return out

    def _names(self, header: Sequence[Any], width: int, reading: Reading) -> list[str]:
        """Return the names of the columns."""
        if not reading.header:
            return [str(j + 1) for j in range(width)]
        row = self._first - 1
        cells = [header[j] if j < len(header) else None for j in range(width)]
        names = ["" if value is None else _text(value).strip() for value in cells]
        letters = require("openpyxl.utils", "excel").get_column_letter
        unnamed = [j for j, name in enumerate(names) if not name and j > 0]
        if unnamed:
            filled = sum(map(bool, names))
            title = "; remove what stands above the table" if filled <= max(1, width // 2) else ""
            raise UnusableFileError(
                self.where,
                f"cell {letters(unnamed[0] + 1)}{row} is empty, and row {row}, the first that is not empty, has the "
                f"names of columns; only the first column may be without one{title}.",
            )
        numbers = [v for v in cells if isinstance(v, float) or (isinstance(v, str) and is_number(v, "."))]
        numbers = [v for v in numbers if not str(v).isdecimal()]
        if len(numbers) > 1 or (numbers and len(numbers) == len(names)):
            raise UnusableFileError(
                self.where,
                f"has no header: row {row} is numbers ({quoted_names(numbers, 3)}); add a row with the names of "
                "columns, or pass --no-header, which calls them 1, 2, 3 and so on.",
            )
        self.dates["header"] = [
            (f"{letters(j + 1)}{row}", name)
            for j, (value, name) in enumerate(zip(cells, names, strict=True))
            if isinstance(value, (datetime.date, datetime.time))
        ]
        return names

    def _cell(self, i: int, j: int) -> str:
        """Return the name of a cell, such as C17; i and j are counted from 0, i from the first row of data."""
        return f"{require('openpyxl.utils', 'excel').get_column_letter(j + 1)}{self._first + i}"

    # The file

    @contextmanager
    def _opened(self, formulas: bool = False) -> Iterator[Any]:
        """Open the workbook, with stored values in place of formulas unless these are asked for."""
        with _opened_book(self.path, formulas) as book:
            yield book

    def _check_merged(self) -> None:
        """Raise if cells of the sheet are merged: all but the first of them are empty."""
        with self._opened() as book:
            # openpyxl reads merged cells only of sheets that it holds in memory as a whole.
            part = getattr(book[self.sheet], "_worksheet_path", None)
        if part is None:
            return
        ranges: list[str] = []
        with zipfile.ZipFile(self.path) as archive, archive.open(part) as file:
            rest = b""
            while block := file.read(_SCAN_BYTES):
                found = rest + block
                matches = list(_MERGED.finditer(found))
                ranges += [match[1].decode() for match in matches]
                # What follows the last match, so that none is found twice, and no more than one can be long.
                rest = found[matches[-1].end() if matches else 0 :][-64:]
        if ranges:
            raise UnusableFileError(
                self.where,
                f"has merged cells ({quoted_names(ranges, 3)}), of which only the first has a value; unmerge them "
                "and fill in the others.",
            )

    def _check_formula(self, i: int, j: int) -> None:
        """Raise if a cell without a value is a formula."""
        self._has_formulas_checked = True
        row = self._first + i
        with self._opened(formulas=True) as book:
            cells = next(islice(_rows(book[self.sheet]), row - 1, None), ())
        value = cells[j] if j < len(cells) else None
        if isinstance(value, str) and value.startswith("="):
            raise UnusableFileError(
                self.where,
                f"cell {self._cell(i, j)} is a formula without a stored value ({short(value, 40)!r}): the workbook was "
                "not saved by a spreadsheet; open it in one and save it.",
            )


def sheets_with_columns(path: Path, columns: Sequence[str]) -> list[str]:
    """Return the visible sheets whose header has all these columns."""
    found = []
    with _opened_book(path) as book:
        for sheet in book.worksheets:
            header = next((row for row in _rows(sheet) if any(map(_has_value, row))), ())
            if sheet.sheet_state == "visible" and set(columns) <= {_text(v).strip() for v in header if v is not None}:
                found.append(sheet.title)
    return found


@contextmanager
def _opened_book(path: Path, formulas: bool = False) -> Iterator[Any]:
    """Open a workbook for one pass, with stored values in place of formulas unless these are asked for."""
    openpyxl = require("openpyxl", "excel")
    # A file and not a path, of which openpyxl would look at the ending.
    with path.open("rb") as file:
        try:
            with warnings.catch_warnings():  # about parts of workbooks that are not tables
                warnings.simplefilter("ignore")
                book = openpyxl.load_workbook(file, read_only=True, data_only=not formulas)
        except MemoryError:
            raise
        except Exception as error:  # openpyxl raises many kinds
            raise UnusableFileError(path, f"is a truncated or damaged workbook ({reason(error)}).") from error
        try:
            yield book
        finally:
            book.close()


def _chosen_sheet(book: Any, name: str | None, path: Path) -> str:
    """Return the sheet that is named, or the only visible one with something in it."""
    titles = [sheet.title for sheet in book.worksheets]
    filled = [sheet.title for sheet in book.worksheets if any(any(map(_has_value, row)) for row in _rows(sheet))]
    if name is not None:
        if name not in titles:
            raise UnusableFileError(
                path, f"has no sheet {name!r} (--sheet); {did_you_mean(name, titles)}it has {quoted_names(titles)}."
            )
        if name not in filled:
            raise UnusableFileError(path, f"its sheet {name!r} is empty (--sheet); it has {quoted_names(titles)}.")
        return name
    visible = [sheet.title for sheet in book.worksheets if sheet.sheet_state == "visible" and sheet.title in filled]
    if len(visible) == 1:
        return str(visible[0])
    if visible:
        raise UnusableFileError(
            path,
            f"has {len(visible)} sheets with something in them: {quoted_names(visible)}; choose one with --sheet "
            f"{shlex.quote(visible[0])}, say.",
        )
    if filled:
        raise UnusableFileError(
            path,
            f"has nothing in its visible sheets; the hidden sheet {filled[0]!r} is read with --sheet "
            f"{shlex.quote(filled[0])}.",
        )
    raise UnusableFileError(path, f"is a workbook without any value (sheets: {quoted_names(titles)}).")


def _rows(sheet: Any) -> Iterator[Sequence[Any]]:
    """Yield the values of all rows of a sheet, empty ones too, each up to its last cell."""
    # What the sheet says of its own size is often wrong.
    sheet.reset_dimensions()
    yield from sheet.iter_rows(values_only=True)


def _has_value(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and not value.strip())


def _width(row: Sequence[Any]) -> int:
    """Return the number of cells up to the last with a value."""
    return next((j + 1 for j in range(len(row) - 1, -1, -1) if _has_value(row[j])), 0)


def _text(value: Any) -> str:
    """Return a cell as the text that a CSV would have for it."""
    if isinstance(value, str):
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat(" ")
    return str(value)
