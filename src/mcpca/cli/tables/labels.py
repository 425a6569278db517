"""The context of each row, as codes and names; several columns are crossed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._data import labels
from ..._data.labels import is_missing_text
from ..._utils.natural_order import natural
from ..._utils.types import Array

MISSING = frozenset({"", *labels.MISSING_TEXTS})  # texts that stand for a missing number


class Labels(NamedTuple):
    """The context of each row, as ``encode_labels`` takes it: ``codes`` (n,) into ``categories``, -1 for none."""

    codes: Array
    categories: list[str]

    def counts(self) -> Array:
        """Return the number of rows of each category."""
        # bincount refuses -1; minlength, since the last categories may have no rows.
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.categories))

    def names(self) -> Array:
        """Return the name of each row's context, empty where there is none."""
        # -1 is the last entry, which is empty.
        return np.array([*self.categories, ""], dtype=object)[self.codes]


class LabelBuilder:
    """Collects labels that arrive in blocks of text; null, blank and ``na_values`` are missing."""

    def __init__(self, na_values: Collection[str] = ()) -> None:
        self._na_values = na_values
        self._codes: list[Array] = []
        self._known: dict[str, int] = {}

    def add(self, column: Any) -> None:
        """Add an Arrow array of strings."""
        # Only the distinct texts of a block become Python objects. The -1 at the end is for null.
        encoded = column.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        code_of = np.array([*(-1 if text is None else self._code(text) for text in texts), -1], dtype=np.int32)
        self._codes.append(code_of[encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)])

    def _code(self, text: str) -> int:
        return -1 if is_missing_text(text, self._na_values) else self._known.setdefault(text, len(self._known))

    def finish(self) -> Labels:
        """Return all labels, with the names in natural order."""
        codes = np.concatenate(self._codes) if self._codes else np.zeros(0, dtype=np.int32)
        return _ordered(codes, list(self._known))


def labels_of_texts(texts: Iterable[Any], na_values: Collection[str] = ()) -> Labels:
    """Return labels from values of any type, by their text."""
    known: dict[str, int] = {}
    codes = []
    for value in texts:
        # NaN and None would otherwise become the labels "nan" and "None".
        text = "" if labels.is_missing(value) else str(value)
        codes.append(-1 if is_missing_text(text, na_values) else known.setdefault(text, len(known)))
    return _ordered(np.array(codes, dtype=np.int32), list(known))


def same_label(name: str, n: int) -> Labels:
    """Return labels that put n rows into one context."""
    return Labels(np.zeros(n, dtype=np.int32), [name])


def crossed_labels(columns: Sequence[Labels]) -> Labels:
    """Return the labels that combine several columns: "fiction / 1820"; missing if any of them is."""
    if len(columns) == 1:
        return columns[0]
    combined = labels.cross_labels(columns)
    # int32 as everywhere here: there is a code for every row, also of data that are streamed.
    return Labels(combined.codes.astype(np.int32), combined.categories.tolist())


def stacked(parts: Sequence[Labels]) -> Labels:
    """Return the labels of several files, one below the other."""
    known: dict[str, int] = {}
    codes = []
    for part in parts:
        code_of = np.array([*(known.setdefault(name, len(known)) for name in part.categories), -1], dtype=np.int32)
        codes.append(code_of[part.codes])  # -1 stays -1: it is the last entry
    joined = np.concatenate(codes)
    # The categories of a single file keep their order, which may be that of an AnnData.
    return Labels(joined, list(known)) if len(parts) == 1 else _ordered(joined, list(known))


def _ordered(codes: Array, names: list[str]) -> Labels:
    """Return labels with their names in natural order."""
    # The name itself breaks ties such as "b2" and "b02", so that the order does not depend on the rows.
    order = sorted(range(len(names)), key=lambda i: (natural(names[i]), names[i]))
    new_code = np.full(len(names) + 1, -1, dtype=np.int32)  # the last entry is for -1
    new_code[order] = np.arange(len(names))
    return Labels(new_code[codes], [names[i] for i in order])
