"""Names of features that a spreadsheet has turned into dates or numbers: MARCH1 into 1-Mar, 2310009E13 into 2.31E+19.

What the names were cannot be known for certain; a warning lists them, with a guess where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..._utils.wording import listed
from ._errors import short

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_OTHER_MONTHS = {"mrz": 3, "mär": 3, "mai": 5, "okt": 10, "dez": 12, "sept": 9, "märz": 3, "juni": 6, "juli": 7}
_MONTH_NUMBERS = {name: i + 1 for i, name in enumerate(_MONTHS)} | _OTHER_MONTHS
_month = "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True))
# As Excel shows the dates that it makes of names, in English and German, and as other programs write them.
_DAY_MONTH = re.compile(rf"(\d{{1,2}})(?:[-/ ]|\. ?)({_month})\.?", re.IGNORECASE)
_MONTH_DAY = re.compile(rf"({_month})[-/ ](\d{{1,2}})", re.IGNORECASE)
_ISO = re.compile(r"\d{4}-(\d{2})-(\d{2})(?:[ T]00:00:00)?")
_RIKEN = re.compile(r"\d\.\d+E\+\d{2}")  # clones such as 2310009E13
# Genes that are called like a month and a number.
_GENES = {2: "FEB", 3: "MARCH", 4: "APR", 9: "SEPT", 10: "OCT", 11: "NOV", 12: "DEC"}


def spoiled_names(names: Sequence[str], cells: Mapping[str, str]) -> list[str]:
    """Warn of names that look like dates, or like numbers in scientific notation, among others that do not.

    ``cells`` has the cells of a workbook in which dates stand, by the text of the date.
    """
    found = [name for name in names if _is_spoiled(name)]
    # Half of them or more: these are points in time, and meant to be dates.
    if not found or 2 * len(found) >= len(names):
        return []
    shown = [_with_guess(name) + (f" in {cells[name]}" if name in cells else "") for name in found]
    return [
        f"names of features look like those that Excel has turned into dates or numbers: {listed(shown)}; correct them "
        "in the file."
    ]


def _is_spoiled(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_DAY_MONTH, _MONTH_DAY, _ISO, _RIKEN))


def _with_guess(name: str) -> str:
    guess = _guess(name)
    return f"{short(name)!r}" + ("" if guess is None else f" (a name such as {guess}?)")


def _guess(name: str) -> str | None:
    """Return the gene that a date may have been."""
    if match := _DAY_MONTH.fullmatch(name):
        month, number = _MONTH_NUMBERS[match[2].lower()], int(match[1])
    elif match := _MONTH_DAY.fullmatch(name):
        month, number = _MONTH_NUMBERS[match[1].lower()], int(match[2])
    elif match := _ISO.fullmatch(name):
        month, number = int(match[1]), int(match[2])
    else:
        return None
    return f"{_GENES[month]}{number}" if month in _GENES else None
