"""Parts of sentences for errors, warnings and results: bounded lists, "did you mean", numbers with enough digits.

The only module that uses difflib, and the only one that writes "and 3 more".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .types import Array

LISTED = 5  # names that an error or a warning lists; the rest is counted
_MOST_DIGITS = 17  # significant digits that tell any two float64 apart
# difflib compares with every name, and is quadratic in their length: all columns of a wide table would take seconds.
_MOST_COMPARED = 2000
_LONGEST_COMPARED = 200  # characters; a longer name is not a slip of the keyboard


def beside(value: float, bound: float, digits: int = 2, kind: str = "f") -> str:
    """Return a value with enough digits to show on which side of ``bound`` it lies.

    0.8996 is "0.90" by itself, but "0.8996" next to a bound of 0.9, because 0.90 would not be below it. ``kind`` is the
    format: "f", "g" or "e".
    """
    for n in range(digits, _MOST_DIGITS + 1):
        # The text is read back: what counts is on which side of the bound the printed number lies.
        text = f"{value:.{n}{kind}}"
        if (float(text) > bound, float(text) < bound) == (value > bound, value < bound):
            return text
    return repr(float(value))


def listed(names: Array | Sequence[Any], most: int = LISTED) -> str:
    """Return the first ``most`` names, separated by commas, and how many more there are; "none" for an empty list."""
    return (", ".join(map(str, names[:most])) or "none") + _and_more(len(names), most)


def quoted(names: Array | Sequence[Any], most: int = LISTED) -> str:
    """Return the same with text in quotes and numbers as they are: 'a b', 3 and 7 more."""
    # From NumPy 2 on ``repr`` of a scalar is "np.str_('a')", which is not what a user has typed.
    python_values = [name.item() if isinstance(name, np.generic) else name for name in names[:most]]
    return (", ".join(map(repr, python_values)) or "none") + _and_more(len(names), most)


def _and_more(n: int, most: int) -> str:
    return f" and {n - most:,} more" if n > most else ""


def close_names(name: Any, known: Iterable[Any], most: int = 3) -> list[str]:
    """Return those of the ``known`` names that ``name`` may be a misspelling of, the closest first.

    Case and spaces are ignored, since difflib counts them like any other character.
    """
    candidates = [str(one) for one in known][:_MOST_COMPARED]
    by_plain_name = {plain_name(one): one for one in reversed(candidates)}  # reversed: the first of those alike wins
    text = plain_name(str(name))
    if len(text) >= _LONGEST_COMPARED:
        return []
    # Answered with the names as they are spelt, not with the plain ones that were compared.
    return [by_plain_name[one] for one in difflib.get_close_matches(text, list(by_plain_name), n=most)]


def nearest(name: Any, known: Iterable[Any]) -> str:
    """Ask whether one of the ``known`` names was meant, or list some of them if none is spelt like ``name``."""
    names = [str(one) for one in known]
    close = close_names(name, names)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"there are {quoted(names)}."


def plain_name(name: str) -> str:
    """Return a name without spaces and capitals, by which slips of the keyboard are found."""
    return "".join(name.split()).casefold()
