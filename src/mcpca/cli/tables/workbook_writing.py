"""Tables as Excel workbooks (.xlsx), one sheet each: numbers with all their digits, and text that stays text.

Names such as MARCH1, 1-Mar or =1+1 are stored as text in cells of the format "text", so that Excel neither runs them
nor turns them into dates, also when a cell is edited. Equal tables give equal files: the time of writing is left out.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._utils.optional import require
from ..._utils.printing import counted

# Of a sheet, the header among the rows, and of a cell.
MOST_ROWS = 1_048_576
MOST_COLUMNS = 16_384
_MOST_CHARACTERS = 32_767
_TEXT_FORMAT = "@"
# Characters that XML does not have, and underscores that would read like one of them.
_ESCAPED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]|_(?=x[0-9A-Fa-f]{4}_)")
_TIMES = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*")
_NO_TIME = rb"\g<1>1980-01-01T00:00:00Z"
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip has


def too_large(n_rows: int, n_columns: int) -> str | None:
    """Return why a table is too large for a sheet, or None."""
    if n_rows + 1 > MOST_ROWS:
        return f"{counted(n_rows, 'row')}, and a sheet of Excel has {MOST_ROWS - 1:,} besides the header"
    if n_columns > MOST_COLUMNS:
        return f"{counted(n_columns, 'column')}, and a sheet of Excel has {MOST_COLUMNS:,}"
    return None


def write_workbook(columns: Mapping[str, Any], target: Any, sheet: str = "table") -> None:
    """Write columns of equal length to a binary file; NaN is left empty, and infinities are text."""
    openpyxl = require("openpyxl", "excel")
    lists = [values.tolist() if isinstance(values, np.ndarray) else list(values) for values in columns.values()]
    n = len(lists[0]) if lists else 0
    if why := too_large(n, len(lists)):
        raise ValueError(f"the table has {why}.")
    book = openpyxl.Workbook(write_only=True)
    page = book.create_sheet(sheet)
    page.freeze_panes = "B2"  # names stay in view
    page.append([_text_cell(page, name) for name in columns])
    for row in zip(*lists, strict=True):
        page.append([_cell(page, value) for value in row])
    written = io.BytesIO()
    book.save(written)
    _without_times(written, target)


def _cell(page: Any, value: Any) -> Any:
    """Return what openpyxl writes for a value."""
    if isinstance(value, str):
        return _text_cell(page, value)
    if isinstance(value, float):
        if value != value:
            return None
        return value if abs(value) != np.inf else _text_cell(page, str(value))
    return value if value is None or isinstance(value, (bool, int)) else _text_cell(page, str(value))


def _text_cell(page: Any, text: str) -> Any:
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"a text has {len(text):,} characters, and a cell of Excel {_MOST_CHARACTERS:,}.")
    cell = require("openpyxl.cell", "excel").WriteOnlyCell(
        page, _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
    )
    # After the value, of which openpyxl makes a formula if it begins with "=".
    cell.data_type = "s"
    cell.number_format = _TEXT_FORMAT
    return cell


def _without_times(written: io.BytesIO, target: Any) -> None:
    """Copy a workbook entry by entry, without the times at which it was made."""
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as copy:
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename == "docProps/core.xml":
                content = _TIMES.sub(_NO_TIME, content)
            new = zipfile.ZipInfo(entry.filename, _FIRST_DATE)
            new.compress_type = zipfile.ZIP_DEFLATED
            copy.writestr(new, content)
