"""Cells that keep a column of numbers from being one: "n.d.", "<0.1", "3%", "5 mg"."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ..._data.labels import is_missing_text
from ._errors import UnusableFileError, quoted_names, short
from .dialect import is_number
from .labels import MISSING

_LEAST_SHARE = 0.5  # of the values that have to be numbers, or numbers with something behind them
_WITH_A_UNIT = re.compile(r"[<>~=]{0,2}\s*[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?\s?(%|[^\W\d_]{1,4}|[°µ][^\W\d_]{0,2})")


class Strays(NamedTuple):
    """What is wrong in a column.

    Attributes
    ----------
    row : int
        Of the first value that is no number, counted from 0.
    value : str
        That value.
    n_strays, n_values : int
        Values that are no numbers, and all that are not missing.
    has_unit : bool
        Whether they are numbers with a unit or a percent sign.
    """

    row: int
    value: str
    n_strays: int
    n_values: int
    has_unit: bool


def find_strays(
    table: Any, names: Sequence[str], decimal: str = ".", na_values: Collection[str] = ()
) -> dict[str, Strays]:
    """Return the columns of text that are mostly numbers, or numbers with a unit. Cost: a pass over these columns."""
    names = [name for name in names if name not in table.nested]
    first: dict[str, tuple[int, str]] = {}
    counts = {name: [0, 0, 0] for name in names}  # values, of which no numbers, of which with a unit
    done = 0
    for batch in table.batches([], names):
        for j, name in enumerate(names):
            strays: set[str] = set()
            for entry in batch.column(j).value_counts().to_pylist():
                text = (entry["values"] or "").strip()
                if text in MISSING or is_missing_text(text, na_values):
                    continue
                counts[name][0] += entry["counts"]
                if not is_number(text, decimal):
                    strays.add(text)
                    counts[name][1] += entry["counts"]
                    counts[name][2] += entry["counts"] * bool(_WITH_A_UNIT.fullmatch(text))
            if strays and name not in first:
                texts = [(text or "").strip() for text in batch.column(j).to_pylist()]
                row = next(i for i, text in enumerate(texts) if text in strays)
                first[name] = (done + row, texts[row])
        done += batch.num_rows
    found = {}
    for name, (n, n_strays, n_units) in counts.items():
        is_numeric = n - n_strays >= _LEAST_SHARE * n
        if n_strays and (is_numeric or n - n_strays + n_units == n):
            found[name] = Strays(*first[name], n_strays, n, n_units == n_strays and not is_numeric)
    return found


def strays_error(table: Any, found: dict[str, Strays]) -> UnusableFileError:
    """Return the error for the first of the columns, which names value and place."""
    name = next(iter(found))
    others = f" Likewise: {quoted_names([other for other in found if other != name])}." if len(found) > 1 else ""
    return UnusableFileError(table.where, f"{stray_in_words(table, name, found[name])}.{others}")


def stray_in_words(table: Any, name: str, stray: Strays) -> str:
    """Say what is wrong in a column, where, and what to do."""
    what = f"has {short(stray.value, 40)!r} in {table.place(stray.row, name)}"
    if stray.has_unit:
        return (
            f"{what}, and so on: numbers with a sign or a unit behind them; write the numbers alone, and the unit into "
            "the name of the column"
        )
    more = f" (and {stray.n_strays - 1:,} more of {stray.n_values:,} values)" if stray.n_strays > 1 else ""
    # A value with digits was measured; one without may say that nothing was.
    is_word = not re.search(r"\d", stray.value)
    missing = f", or pass --na-values {shlex.quote(stray.value)} if it means a missing value" if is_word else ""
    return (
        f"{what}, which is otherwise numbers{more}; correct it, {'' if missing else 'or '}leave the column out with "
        f"--drop {shlex.quote(name)}{missing}"
    )
