"""Numbers in sentences."""

from __future__ import annotations

from .types import Array

_MOST_DIGITS = 17


def beside(value: float, bound: float, digits: int = 2, kind: str = "f") -> str:
    """Return a value to so many digits that it is seen on which side of the ``bound`` that is said beside it it lies.

    0.8996 is "0.90" where nothing is compared, and "0.8996" beside 0.9, since 0.90 is not below it. ``kind`` is that of
    the format, "f", "g" or "e".
    """
    for n in range(digits, _MOST_DIGITS + 1):
        text = f"{value:.{n}{kind}}"
        if (float(text) > bound, float(text) < bound) == (value > bound, value < bound):
            return text
    return repr(float(value))


def listed(names: Array | list[str], most: int = 5) -> str:
    """Return names with commas, the first few of them and how many more there are."""
    shown = ", ".join(map(str, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
