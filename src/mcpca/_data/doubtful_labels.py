"""Warnings for names of contexts that may be the same, or missing: "A" next to "a ", "NA".

The names are kept as they are, since only the user knows. ``read_contexts`` and the other doors for labels call
``warn_of_doubtful``; the command line uses the pieces for messages of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._utils.user_warnings import warn
from .._utils.wording import listed, quoted
from ..exceptions import DoubtfulLabelsWarning
from .labels import MISSING_TEXTS, SEPARATOR


def alike(names: Iterable[Any]) -> list[list[str]]:
    """Return groups of texts that differ only by blanks or case."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if isinstance(name, str):
            # casefold also makes "ß" and "SS" alike. str, because np.str_ would show its type in messages.
            groups.setdefault(" ".join(name.split()).casefold(), []).append(str(name))
    return [group for group in groups.values() if len(group) > 1]


def missing_by_name(names: Iterable[Any]) -> list[str]:
    """Return names that other programs write for missing labels, and crossed names with such a part."""
    # A label that is missing in one column makes the whole combination doubtful: "NA / b".
    texts = (name for name in names if isinstance(name, str))
    return [str(name) for name in texts if any(part.strip() in MISSING_TEXTS for part in name.split(SEPARATOR))]


def told_alike(groups: list[list[str]]) -> str:
    """Return the sentence that says which names differ only by blanks or case."""
    shown = listed([" and ".join(map(repr, group)) for group in groups])
    return f"contexts that differ only by blanks or case are kept apart: {shown}; write them alike if they are one"


def warn_of_doubtful(names: Iterable[Any]) -> None:
    """Issue a ``DoubtfulLabelsWarning`` for names that may be the same context, or a missing label."""
    # Read twice below, which an iterator would not allow.
    names = list(names)
    if groups := alike(names):
        warn(f"y: {told_alike(groups)}.", DoubtfulLabelsWarning)
    if missing := missing_by_name(names):
        warn(
            f"y: {quoted(missing)} reads as a missing label and is kept as a context of its own; "
            "make it None or NaN, or drop its rows, if it is one.",
            DoubtfulLabelsWarning,
        )
