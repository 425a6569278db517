"""Tables as Excel workbooks (.xlsx), one sheet each: numbers with all their digits, and text that stays text.

Names such as MARCH1, 1-Mar or =1+1 are stored as text in cells of the format "text", so that Excel neither runs them
nor turns them into dates, also when a cell is edited. Written here and not by openpyxl, which rounds numbers to 16
digits and writes the time: here 17 digits are kept, and equal tables give equal files.

A workbook is a zip file of XML, of which a table needs five parts; ``_PARTS`` has those that are always the same.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..._utils.printing import counted

# Of a sheet, the header among the rows, and of a cell.
MOST_ROWS = 1_048_576
MOST_COLUMNS = 16_384
_MOST_CHARACTERS = 32_767
_TEXT_STYLE = 1  # the second of cellXfs below, with number format 49, which is text
# Characters that XML does not have, or changes, and underscores that would read like one of them.
_ESCAPED = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
_ROWS_AT_A_TIME = 1000
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip has, in place of the time of writing
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_SHEETML = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_PARTS = {
    "[Content_Types].xml": (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_SHEETML}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_SHEETML}.worksheet+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_SHEETML}.styles+xml"/>'
        "</Types>"
    ),
    "_rels/.rels": (
        f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        "</Relationships>"
    ),
    "xl/workbook.xml": (
        f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">'
        '<sheets><sheet name="table" sheetId="1" r:id="rId1"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": (
        f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="rId2" Type="{_OFFICE}/styles" Target="styles.xml"/>'
        "</Relationships>"
    ),
    "xl/styles.xml": (
        f'<styleSheet xmlns="{_MAIN}">'
        '<fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
        '<fills count="2"><fill><patternFill patternType="none"/></fill>'
        '<fill><patternFill patternType="gray125"/></fill></fills>'
        '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        '<cellXfs count="2"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
        '<xf numFmtId="49" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/></cellXfs>'
        '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles>'
        "</styleSheet>"
    ),
}
# The first row and column stay in view.
_SHEET_START = (
    f'<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
    '<pane xSplit="1" ySplit="1" topLeftCell="B2" activePane="bottomRight" state="frozen"/>'
    "</sheetView></sheetViews><sheetData>"
)
_SHEET_END = "</sheetData></worksheet>"


def too_large(n_rows: int, n_columns: int) -> str | None:
    """Return why a table is too large for a sheet, or None."""
    if n_rows + 1 > MOST_ROWS:
        return f"{counted(n_rows, 'row')}, and a sheet of Excel has {MOST_ROWS - 1:,} besides the header"
    if n_columns > MOST_COLUMNS:
        return f"{counted(n_columns, 'column')}, and a sheet of Excel has {MOST_COLUMNS:,}"
    return None


def write_workbook(columns: Mapping[str, Any], target: Any) -> None:
    """Write columns of equal length to a binary file; NaN is left empty, and infinities are text."""
    lists = [values.tolist() if isinstance(values, np.ndarray) else list(values) for values in columns.values()]
    if why := too_large(len(lists[0]) if lists else 0, len(lists)):
        raise ValueError(f"the table has {why}.")
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in _PARTS.items():
            archive.writestr(_entry(name), _HEAD + content)
        with archive.open(_entry("xl/worksheets/sheet1.xml"), "w") as sheet:
            sheet.write((_HEAD + _SHEET_START).encode())
            for text in _rows(columns, lists):
                sheet.write(text.encode())
            sheet.write(_SHEET_END.encode())


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _rows(columns: Mapping[str, Any], lists: list[list[Any]]) -> Iterator[str]:
    """Yield the XML of the header and of the rows, some rows at a time."""
    letters = [_letters(j) for j in range(len(lists))]
    rows = zip(*lists, strict=True) if lists else iter(())
    text = [_row(1, letters, list(columns))]
    for i, row in enumerate(rows, start=2):
        text.append(_row(i, letters, row))
        if len(text) == _ROWS_AT_A_TIME:
            yield "".join(text)
            text = []
    yield "".join(text)


def _row(i: int, letters: list[str], values: Any) -> str:
    cells = (_cell(f"{column}{i}", value) for column, value in zip(letters, values, strict=True))
    return f'<row r="{i}">{"".join(cells)}</row>'


def _cell(place: str, value: Any) -> str:
    """Return the XML of a cell; nothing for an empty one."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    # repr has the fewest digits that read back as the same number.
    if isinstance(value, (int, float)) and abs(value) != np.inf:
        return f'<c r="{place}"><v>{value!r}</v></c>'
    text = str(value)
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"a text has {len(text):,} characters, and a cell of Excel {_MOST_CHARACTERS:,}.")
    escaped = _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<c r="{place}" t="inlineStr" s="{_TEXT_STYLE}"><is><t xml:space="preserve">{escaped}</t></is></c>'


def _letters(j: int) -> str:
    """Return the name of a column, A to Z, AA and so on."""
    name = ""
    j += 1
    while j:
        j, k = divmod(j - 1, 26)
        name = chr(ord("A") + k) + name
    return name
