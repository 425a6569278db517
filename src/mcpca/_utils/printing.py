"""How results print themselves: as sentences, a screenful at most, with a small table in notebooks. Never as arrays.

Result classes of every room derive from ``Shown``; the functions below it make parts of their sentences.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .component_names import mcpc_name
from .types import Array
from .wording import listed

NAMED = 8  # names that a sentence of a result lists; the rest is counted
_TABLE_ROWS = 12  # of a table in a notebook: with the sentences, about a screenful


class Shown(ABC):
    """A result that says in words what it holds.

    A subclass implements ``_words``, its sentences, and may override ``_rows``, the columns of a small table by name.
    """

    @abstractmethod
    def _words(self) -> list[str]:
        """Return sentences about the result, the most informative first."""

    def _rows(self) -> Mapping[str, Sequence[Any]]:
        return {}

    def summary(self) -> str:
        """Describe the result in words."""
        return " ".join(self._words())

    def __str__(self) -> str:
        """Return ``summary()``."""
        return self.summary()

    def __repr__(self) -> str:
        """Return one line: the class and the first sentence."""
        return f"<{type(self).__name__}: {self._words()[0]}>"

    def _repr_html_(self) -> str:
        """Return the sentences and a small table, for notebooks."""
        return f"<p>{html.escape(self.summary())}</p>{_html_table(self._rows())}"


def _html_table(columns: Mapping[str, Sequence[Any]]) -> str:
    if not columns:
        return ""
    n = len(next(iter(columns.values())))
    # Only the rows that are shown are formatted: a table of contexts may have thousands.
    rows = [[_html_cell(values[i]) for values in columns.values()] for i in range(min(n, _TABLE_ROWS))]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>and {n - _TABLE_ROWS} more rows</p>" if n > _TABLE_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _html_cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}"
    # Names of contexts and features come from users' files, and must not be read as markup.
    return html.escape(str(value))


def mcpcs(r: int) -> list[str]:
    """Return the names of r MCPCs, for a column of a table."""
    return [mcpc_name(j) for j in range(r)]


def listed_mcpcs(chosen: Any) -> str:
    """Return the names of the MCPCs for which ``chosen`` (r,) is true."""
    return listed([mcpc_name(j) for j in np.flatnonzero(np.asarray(chosen)).tolist()], NAMED)


def counted(n: int, thing: str) -> str:
    """Return a number with its noun, with an s unless it is 1: "1 row", "1,200 rows"."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def span(values: Any, form: str = ".3g") -> str:
    """Return the smallest and the largest of some values, "0.79 to 0.95", or one number if they print alike."""
    finite = np.asarray(values, dtype=np.float64)
    # NaN marks values that could not be computed; they would make both ends NaN.
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return "not known"
    low = format(float(finite.min()), form)
    high = format(float(finite.max()), form)
    # Compared as printed: "0.9 to 0.9" would say nothing.
    return low if low == high else f"{low} to {high}"


def extremes(values: Any, form: str = ".2g") -> str:
    """Return the smallest and the largest of r values with the MCPCs that have them, "1.2 (MCPC 2) to 30 (MCPC 7)"."""
    numbers = np.asarray(values, dtype=np.float64)
    # argmin would take NaN for the least.
    if len(numbers) == 1 or not np.isfinite(numbers).all():
        return span(numbers, form)
    low = int(np.argmin(numbers))
    high = int(np.argmax(numbers))
    return f"{numbers[low]:{form}} ({mcpc_name(low)}) to {numbers[high]:{form}} ({mcpc_name(high)})"


def around(ranks: Array, rank: int | None) -> slice:
    """Return the part of ``ranks`` that a small table has room for: those around a chosen rank, or the first ones."""
    position = 0 if rank is None else int(np.searchsorted(ranks, rank))
    # The chosen rank in the middle, or closer to an end of the list if there are not enough ranks on that side.
    first = max(0, min(position - _TABLE_ROWS // 2, len(ranks) - _TABLE_ROWS))
    return slice(first, first + _TABLE_ROWS)


def contexts_in_words(what: str, contexts: Array, counts: Array, p: int) -> list[str]:
    """Describe moments or covariances of contexts: how many contexts, features and rows there are."""
    n_rows = int(np.sum(counts))
    sentence = (
        f"{what} of {counted(len(contexts), 'context')} and {counted(p, 'feature')}, from {counted(n_rows, 'row')}."
    )
    if not len(contexts):
        return [sentence]
    return [sentence, f"Contexts have {span(counts, ',.0f')} rows: {listed(contexts.tolist(), NAMED)}."]
