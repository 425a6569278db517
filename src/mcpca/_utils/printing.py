"""How results are printed: in words, a screenful at most, and in a notebook with a small table. No array is dumped."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .component_names import mcpc_name
from .types import Array
from .wording import listed

NAMED = 8  # names in a sentence
_ROWS = 12  # of a table in a notebook


class Shown(ABC):
    """A result that says in words what it holds.

    A class has ``_words``, sentences of which the first tells most, and ``_rows``, columns by name for a small table.
    """

    @abstractmethod
    def _words(self) -> list[str]:
        """Return sentences about the result, the most telling first."""

    def _rows(self) -> Mapping[str, Sequence[Any]]:
        return {}

    def summary(self) -> str:
        """Say in words what was found."""
        return " ".join(self._words())

    def __str__(self) -> str:
        """Return ``summary()``."""
        return self.summary()

    def __repr__(self) -> str:
        """Return one line: what it is, and the first sentence."""
        return f"<{type(self).__name__}: {self._words()[0]}>"

    def _repr_html_(self) -> str:
        """Return the words and a small table, for notebooks."""
        return f"<p>{html.escape(self.summary())}</p>{_table(self._rows())}"


def _table(columns: Mapping[str, Sequence[Any]]) -> str:
    if not columns:
        return ""
    n = len(next(iter(columns.values())))
    rows = [[_cell(values[i]) for values in columns.values()] for i in range(min(n, _ROWS))]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>and {n - _ROWS} more rows</p>" if n > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}"
    return html.escape(str(value))


def mcpcs(r: int) -> list[str]:
    """Return the names of r MCPCs, for a column of a table."""
    return [mcpc_name(j) for j in range(r)]


def listed_mcpcs(chosen: Any) -> str:
    """Return the names of the MCPCs for which ``chosen`` (r,) is true."""
    return listed([mcpc_name(j) for j in np.flatnonzero(np.asarray(chosen)).tolist()], NAMED)


def counted(n: int, thing: str) -> str:
    """Return a number with a noun, in the plural by an s where it is not 1."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def span(values: Any, form: str = ".3g") -> str:
    """Return the least and the largest of some values, "0.79 to 0.95", or one number where they look the same."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not known.size:
        return "not known"
    low, high = format(float(known.min()), form), format(float(known.max()), form)
    return low if low == high else f"{low} to {high}"


def extremes(values: Any, form: str = ".2g") -> str:
    """Return the least and the largest of r values with the MCPCs that have them, "1.2 (MCPC 2) to 30 (MCPC 7)"."""
    known = np.asarray(values, dtype=np.float64)
    if len(known) == 1 or not np.isfinite(known).all():
        return span(known, form)
    low, high = int(np.argmin(known)), int(np.argmax(known))
    return f"{known[low]:{form}} ({mcpc_name(low)}) to {known[high]:{form}} ({mcpc_name(high)})"


def around(ranks: Array, rank: int | None) -> slice:
    """Return which of ``ranks`` a small table has room for: those around a chosen one."""
    at = 0 if rank is None else int(np.searchsorted(ranks, rank))
    first = max(0, min(at - _ROWS // 2, len(ranks) - _ROWS))
    return slice(first, first + _ROWS)


def contexts_in_words(what: str, contexts: Array, counts: Array, p: int) -> list[str]:
    """Say how much the moments of contexts were made of."""
    words = [
        f"{what} of {counted(len(contexts), 'context')} and {counted(p, 'feature')}, from "
        f"{counted(int(np.sum(counts)), 'row')}."
    ]
    return (
        [*words, f"Contexts have {span(counts, ',.0f')} rows: {listed(contexts.tolist(), NAMED)}."]
        if len(contexts)
        else words
    )
