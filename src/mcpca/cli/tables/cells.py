"""Text in CSV that a spreadsheet would run as a formula: written with an apostrophe in front, read without it.

A text is risky if it starts with = + - @, a tab or a carriage return, after any number of apostrophes, unless it is a
number. ``plain(guarded(text)) == text`` for every text: writing adds one apostrophe, and reading removes one.
"""

from __future__ import annotations

import re
from typing import Any

from ..._utils.optional import require

# Apostrophes first: a text that was guarded before is guarded once more, so that reading gives it back as it was.
_RISKY_START = r"'*[=+\-@\t\r]"
_risky = re.compile(_RISKY_START)
# "-1.5" starts like a formula and is none; guarded, it would no longer be a number to other programs.
_number = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def guarded(text: str) -> str:
    """Return a text as it is written to CSV."""
    return f"'{text}" if _risky.match(text) and not _number.fullmatch(text) else text


def plain(text: str) -> str:
    """Return what a text was before it was written."""
    return text[1:] if text.startswith("'") and _risky.match(text) else text


def plain_column(column: Any) -> Any:
    """Return ``plain`` of an Arrow array of strings."""
    compute = require("pyarrow.compute", "cli")
    # The rule of ``plain`` as one pattern, so that no cell of a long column becomes a Python object.
    return compute.replace_substring_regex(column, pattern=f"^'({_RISKY_START})", replacement=r"\1")
