"""Names of contexts that read as one, or as none: kept as they are, and told."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ..exceptions import DoubtfulLabelsWarning
from .labels import MISSING_TEXTS, SEPARATOR

_SHOWN = 5


def alike(names: Iterable[Any]) -> list[list[str]]:
    """Return groups of texts that differ only by blanks or by upper and lower case."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if isinstance(name, str):
            groups.setdefault(" ".join(name.split()).casefold(), []).append(str(name))
    return [group for group in groups.values() if len(group) > 1]


def missing_by_name(names: Iterable[Any]) -> list[str]:
    """Return texts that other programs write where a label is missing, also those that have one crossed with others."""
    texts = (name for name in names if isinstance(name, str))
    return [str(name) for name in texts if any(part.strip() in MISSING_TEXTS for part in name.split(SEPARATOR))]


def told_alike(groups: list[list[str]]) -> str:
    """Say which names differ by blanks or case only."""
    return (
        f"contexts that differ only by blanks or case are kept apart: {_some(groups)}; write them alike if they are one"
    )


def _some(groups: list[list[str]]) -> str:
    shown = ", ".join(" and ".join(map(repr, group)) for group in groups[:_SHOWN])
    return shown + (f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else "")


def warn_of_doubtful(names: Iterable[Any], stacklevel: int = 4) -> None:
    """Issue a ``DoubtfulLabelsWarning`` where names of contexts read as one, or as none."""
    names = list(names)
    if groups := alike(names):
        warnings.warn(f"y: {told_alike(groups)}.", DoubtfulLabelsWarning, stacklevel=stacklevel)
    if missing := missing_by_name(names):
        warnings.warn(
            f"y: {_some([[name] for name in missing])} reads as a missing label and is kept as a context of its own; "
            "make it None or NaN, or drop its rows, if it is one.",
            DoubtfulLabelsWarning,
            stacklevel=stacklevel,
        )
