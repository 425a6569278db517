"""Columns of rows that have one value in each context (sex and stage of a patient), found for the report.

Columns that are no features are looked through only when a report is written: ``constant_columns`` makes another pass
over these columns alone, which ends where none of them is constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..._utils.optional import require
from ..._utils.types import Array
from .dialect import is_number
from .labels import MISSING, LabelBuilder, Labels

if TYPE_CHECKING:
    from .tabular import Table

MOST_COLUMNS = 50  # that are looked through, and of a table of contexts
_MOST_NAMES = 50  # of a column that was found, and not asked for
_MOST_FOUND = 20


def values_of(labels: Labels, decimal: str = ".") -> list[Any]:
    """Return numbers if all values are numbers, text otherwise; None where nothing is known."""
    texts: list[Any] = [*labels.categories, None]
    if labels.categories and all(is_number(text.strip(), decimal) for text in labels.categories):
        texts = [float(text.strip().replace(decimal, ".")) for text in labels.categories] + [None]
    return [texts[code] for code in labels.codes.tolist()]


class RowColumns(Protocol):
    """Columns of the rows of one file that are no features."""

    names: list[str]

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, tuple[Array, list[Any]]]]:
        """Yield codes of some rows, -1 where missing, and the values that these stand for, by column."""


class ColumnsOfTable:
    """Those of a table."""

    def __init__(self, table: Table, taken: Sequence[str], na_values: Sequence[str]) -> None:
        self._table = table
        self._na_values = {*na_values, *MISSING}
        unused = set(table.columns) - set(taken) - table.nested
        self.names = [name for name in table.columns if name in unused][:MOST_COLUMNS]

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, tuple[Array, list[Any]]]]:
        """Yield them batch by batch."""
        for batch in self._table.batches([], names):
            labels = {}
            for i, name in enumerate(names):
                builder = LabelBuilder(self._na_values)
                builder.add(batch.column(i))
                labels[name] = builder.finish()
            yield {name: (of.codes, list(of.categories)) for name, of in labels.items()}


class ColumnsOfObs:
    """Those of an AnnData."""

    def __init__(self, obs: Any, taken: Sequence[str]) -> None:
        self._obs = obs
        self.names = [str(name) for name in obs.columns if str(name) not in taken][:MOST_COLUMNS]

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, tuple[Array, list[Any]]]]:
        """Yield all rows at once: they are in memory."""
        pandas = require("pandas", "anndata")
        found = {name: pandas.factorize(self._obs[name]) for name in names}
        yield {name: (np.asarray(codes), list(values)) for name, (codes, values) in found.items()}


def constant_columns(
    parts: Sequence[RowColumns | None], codes: Array, contexts: Sequence[str], decimal: str
) -> dict[str, dict[str, Any]]:
    """Return columns that have one value in each context, and not the same in all, as ``ContextTable.columns`` are.

    ``codes`` (n,) are contexts of the rows of all parts, -1 for rows that are left out. At most 20 columns, of numbers
    or of up to 50 names; none that only repeats the names of the contexts.
    """
    if not parts or any(part is None for part in parts):
        return {}
    readable = [part for part in parts if part is not None]
    names = [name for name in readable[0].names if all(name in part.names for part in readable)]
    known: dict[str, dict[int, Any]] = {name: {} for name in names}
    first = 0
    for part in readable:
        # A column that turned out to vary is not asked for again.
        for batch in part.batches(list(known)) if known else ():
            m = len(next(iter(batch.values()))[0]) if batch else 0
            _add(known, batch, codes[first : first + m])
            first += m
            if not known:
                return {}
    return _shown(known, contexts, decimal)


def _add(known: dict[str, dict[int, Any]], batch: Mapping[str, tuple[Array, list[Any]]], contexts: Array) -> None:
    """Add the values of some rows; a column that has two in a context is removed."""
    for name, (values, meaning) in batch.items():
        if name not in known:
            continue
        is_known = (contexts >= 0) & (values >= 0)
        pairs = np.unique(np.stack([contexts[is_known], values[is_known]], axis=1), axis=0)
        for context, value in pairs.tolist():
            if known[name].setdefault(context, meaning[value]) != meaning[value]:
                del known[name]
                break


def _shown(known: Mapping[str, dict[int, Any]], contexts: Sequence[str], decimal: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, by_code in known.items():
        values = by_code.values()
        texts = [value for value in values if isinstance(value, str)]
        if texts and len(texts) == len(values) and all(is_number(text.strip(), decimal) for text in texts):
            by_code = {code: float(text.strip().replace(decimal, ".")) for code, text in by_code.items()}
            texts = []
        distinct = set(by_code.values())
        repeats = all(str(by_code.get(code)) == context for code, context in enumerate(contexts))
        if len(distinct) < 2 or repeats or (texts and len(distinct) > _MOST_NAMES):
            continue
        found[name] = {contexts[code]: value for code, value in by_code.items()}
    return dict(list(found.items())[:_MOST_FOUND])
