"""The context of each row: codes and names, crossed where several columns are given."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._data import labels
from ..._data.labels import is_missing_text
from ..._utils.types import Array

MISSING = frozenset({"", *labels.MISSING_TEXTS})  # in place of a number
_NUMBER = re.compile(r"(\d+)")


class Labels(NamedTuple):
    """The context of each row, as ``encode_labels`` takes it: -1 in ``codes`` where there is none."""

    codes: Array
    categories: list[str]

    def counts(self) -> Array:
        """Rows of each category."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.categories))

    def take(self, kept: Array) -> Labels:
        """Return the labels of these rows."""
        return Labels(self.codes[kept], self.categories)

    def names(self) -> Array:
        """Return the name of each row's context, empty where there is none."""
        return np.array([*self.categories, ""], dtype=object)[self.codes]


class LabelBuilder:
    """Collects labels that come in blocks, as texts; missing ones are null, blank, and ``na_values``."""

    def __init__(self, na_values: Collection[str] = ()) -> None:
        self._na_values = na_values
        self._codes: list[Array] = []
        self._known: dict[str, int] = {}

    def add(self, column: Any) -> None:
        """Add an Arrow array of texts."""
        encoded = column.dictionary_encode()
        own = encoded.dictionary.to_pylist()
        to = np.array([*(-1 if text is None else self._code(text) for text in own), -1], dtype=np.int32)
        self._codes.append(to[encoded.indices.fill_null(len(own)).to_numpy(zero_copy_only=False)])

    def _code(self, text: str) -> int:
        return -1 if is_missing_text(text, self._na_values) else self._known.setdefault(text, len(self._known))

    def finish(self) -> Labels:
        """Return all labels, the names in natural order."""
        codes = np.concatenate(self._codes) if self._codes else np.zeros(0, dtype=np.int32)
        return _ordered(codes, list(self._known))


def labels_of_texts(texts: Iterable[Any], na_values: Collection[str] = ()) -> Labels:
    """Return labels from values of any type, by their text."""
    known: dict[str, int] = {}
    codes = []
    for value in texts:
        text = "" if labels.is_missing(value) else str(value)
        codes.append(-1 if is_missing_text(text, na_values) else known.setdefault(text, len(known)))
    return _ordered(np.array(codes, dtype=np.int32), list(known))


def same_label(name: str, n: int) -> Labels:
    """Return one context for n rows."""
    return Labels(np.zeros(n, dtype=np.int32), [name])


def crossed(columns: Sequence[Labels]) -> Labels:
    """Return the labels that combine several: "fiction / 1820". A row is without one where any of them is missing."""
    if len(columns) == 1:
        return columns[0]
    found = labels.cross_labels(columns)
    return Labels(found.codes.astype(np.int32), found.categories.tolist())


def stacked(parts: Sequence[Labels]) -> Labels:
    """Return the labels of several files one after the other."""
    known: dict[str, int] = {}
    codes = []
    for part in parts:
        to = np.array([*(known.setdefault(name, len(known)) for name in part.categories), -1], dtype=np.int32)
        codes.append(to[part.codes])
    # Files are in the order of their names; categories of one file keep the order they have there.
    joined = np.concatenate(codes)
    return Labels(joined, list(known)) if len(parts) == 1 else _ordered(joined, list(known))


def natural(text: str) -> list[Any]:
    """Return a key by which "b2" comes before "b10"."""
    return [(0, int(t), "") if t.isdecimal() else (1, 0, t) for t in _NUMBER.split(text) if t]


def _ordered(codes: Array, names: list[str]) -> Labels:
    order = sorted(range(len(names)), key=lambda i: (natural(names[i]), names[i]))
    to = np.full(len(names) + 1, -1, dtype=np.int32)
    to[order] = np.arange(len(names))
    return Labels(to[codes], [names[i] for i in order])
