"""The order in which people expect names: "b2" before "b10"."""

from __future__ import annotations

import re
from typing import Any

_DIGITS = re.compile(r"(\d+)")


def natural(text: str) -> list[Any]:
    """Return a sort key by which "b2" comes before "b10"."""
    # Triples, since a number and a text cannot be compared: numbers come before text, and text is compared as such.
    # Of numbers without leading zeros the longer one is larger; int() would refuse thousands of digits.
    parts = [t for t in _DIGITS.split(text) if t]
    bare = [t.lstrip("0") if t.isdecimal() else t for t in parts]
    return [(0, len(b), b) if t.isdecimal() else (1, 0, t) for t, b in zip(parts, bare, strict=True)]
