"""Sentences for errors, warnings and results: lists that do not run on, names that were nearly right, numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .types import Array

LISTED = 5  # names in an error or a warning; more are only counted
_MOST_DIGITS = 17  # a float64 is told from its neighbours by 17 digits
_COMPARED = 2000  # names: difflib looks at each, which takes seconds for the columns of a wide table
_LONGEST = 200  # characters of a name that may be a slip; difflib is quadratic in it


def beside(value: float, bound: float, digits: int = 2, kind: str = "f") -> str:
    """Return a value with enough digits to show on which side of ``bound`` it lies.

    0.8996 is "0.90" by itself, but "0.8996" next to a bound of 0.9, because 0.90 would not be below it. ``kind`` is the
    format: "f", "g" or "e".
    """
    for n in range(digits, _MOST_DIGITS + 1):
        text = f"{value:.{n}{kind}}"
        if (float(text) > bound, float(text) < bound) == (value > bound, value < bound):
            return text
    return repr(float(value))


def listed(names: Array | Sequence[Any], most: int = LISTED) -> str:
    """Return the first ``most`` names with commas, and how many more there are; "none" for an empty list."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return (", ".join(map(str, names[:most])) or "none") + more


def quoted(names: Array | Sequence[Any], most: int = LISTED) -> str:
    """Return the same with text in quotes and numbers as they are: 'a b', 3 and 7 more."""
    plain = [name.item() if isinstance(name, np.generic) else name for name in names[:most]]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return (", ".join(map(repr, plain)) or "none") + more


def close_names(name: Any, known: Iterable[Any], most: int = 3) -> list[str]:
    """Return those of the ``known`` names that ``name`` may be a misspelling of, the closest first.

    Case and spaces are ignored, since difflib counts them like any other character.
    """
    have = [str(one) for one in known][:_COMPARED]
    plain = {plain_name(one): one for one in reversed(have)}  # the first of several that read alike
    text = plain_name(str(name))
    return [plain[one] for one in difflib.get_close_matches(text, list(plain), n=most)] if len(text) < _LONGEST else []


def nearest(name: Any, known: Iterable[Any]) -> str:
    """Ask whether one of the ``known`` names was meant, or list some of them if none is spelt like ``name``."""
    have = [str(one) for one in known]
    near = close_names(name, have)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {quoted(have)}."


def plain_name(name: str) -> str:
    """Return a name without spaces and capitals, by which slips of the keyboard are found."""
    return "".join(name.split()).casefold()
