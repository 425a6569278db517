"""One pass over all columns of a table: rows, missing values, and which values there are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.labels import is_missing_text
from .tabular import Risers, Table, matrix_of

_MOST = 10_000  # distinct values of a text that are counted
_MOST_INTEGERS = 50


@dataclass(frozen=True)
class Survey:
    """What is in a table.

    Attributes
    ----------
    n_rows : int
    missing : dict of str to int
        Values of each column that are missing, or infinite.
    counts : dict of str to (dict of str to int) or None
        How often each value occurs, for texts and for numbers that are few integers; None where there are too many.
    counting : list of str
        Columns that count rows.
    whole, ordered : frozenset of str
        Columns of whole numbers, and those of them that never fall, or never rise, and are no constants.
    variances : dict of str to float
        Of columns of numbers, without what is missing.
    """

    n_rows: int
    missing: dict[str, int]
    counts: dict[str, dict[str, int] | None]
    counting: list[str]
    whole: frozenset[str]
    ordered: frozenset[str]
    variances: dict[str, float]


def survey(table: Table, na_values: Collection[str] = ()) -> Survey:
    """Look at all rows of a table."""
    numbers = [name for name in table.columns if name not in table.text and name != table.index]
    texts = [name for name in table.columns if name in table.text - table.nested and name != table.index]
    n, p = 0, len(numbers)
    gaps = np.zeros(p, dtype=np.intp)
    integers: dict[int, dict[str, int]] = {j: {} for j in range(p)}
    counts: dict[str, dict[str, int] | None] = {name: {} for name in texts}
    empty, risers, spread = dict.fromkeys(texts, 0), Risers(p), _Spread(p)
    for batch in table.batches(numbers, texts):
        if not batch.num_rows:
            continue
        X = matrix_of(batch, p)
        n += batch.num_rows
        risers.look(X)
        spread.look(X)
        finite = np.isfinite(X)
        gaps += (~finite).sum(axis=0)
        for j in [j for j in integers if not _count_integers(X[:, j], finite[:, j], integers[j])]:
            del integers[j]
        for i, name in enumerate(texts):
            empty[name] += _count_texts(batch.column(p + i), counts, name, na_values)
    few = {numbers[j]: found for j, found in integers.items() if len(found) > 1}
    missing = dict(zip(numbers, gaps.tolist(), strict=True)) | empty
    counts |= dict.fromkeys(table.nested)
    whole, ordered = (frozenset(np.array(numbers, dtype=object)[kind]) for kind in (spread.whole, spread.ordered()))
    variances = dict(zip(numbers, spread.variances().tolist(), strict=True))
    return Survey(n, missing, {**counts, **few}, [numbers[j] for j in risers.found()], whole, ordered, variances)


class _Spread:
    """Looks at how columns of numbers vary: their variances, whether they are whole numbers, and whether in order."""

    _FEW = 20  # rows that can be in order by chance

    def __init__(self, p: int) -> None:
        self.whole, self._rises, self._falls = (np.ones(p, dtype=bool) for _ in range(3))
        self._n, self._mean, self._scatter, self._rows = np.zeros(p), np.zeros(p), np.zeros(p), 0
        self._last = np.full(p, np.nan)

    def look(self, X: Any) -> None:
        """Look at the next rows."""
        finite = np.isfinite(X)
        known = np.where(finite, X, 0)
        self.whole &= (known == np.round(known)).all(axis=0)
        with np.errstate(invalid="ignore"):
            steps = np.diff(np.vstack([self._last, X]), axis=0)
        self._rises &= ~(steps < 0).any(axis=0) & finite.all(axis=0)
        self._falls &= ~(steps > 0).any(axis=0) & finite.all(axis=0)
        self._last, self._rows = X[-1].astype(np.float64), self._rows + len(X)
        m = finite.sum(axis=0)
        mean = known.sum(axis=0) / np.maximum(m, 1)
        difference, both = np.where(m > 0, mean - self._mean, 0), np.maximum(self._n + m, 1)
        squares = np.where(finite, known - mean, 0) ** 2
        self._scatter += squares.sum(axis=0) + difference**2 * self._n * m / both
        self._mean, self._n = self._mean + difference * m / both, self._n + m

    def variances(self) -> Any:
        """Variances of all columns (p,)."""
        return self._scatter / np.maximum(self._n - 1, 1)

    def ordered(self) -> Any:
        """Which columns are whole numbers in order (p,)."""
        in_order = self.whole & (self._rises | self._falls) & (self._scatter > 0)
        return in_order if self._rows >= self._FEW else np.zeros_like(in_order)


def _count_integers(values: Any, finite: Any, found: dict[str, int]) -> bool:
    """Count the values of a column; False where they are no integers, or too many."""
    known = values[finite]
    head = known[:1000]
    if (head != np.round(head)).any():
        return False
    distinct, counts = np.unique(known, return_counts=True)
    if (distinct != np.round(distinct)).any():
        return False
    for value, count in zip(distinct[: _MOST_INTEGERS + 1].tolist(), counts.tolist(), strict=False):
        found[str(int(value))] = found.get(str(int(value)), 0) + count
    return len(found) <= _MOST_INTEGERS


def _count_texts(column: Any, counts: dict[str, dict[str, int] | None], name: str, na_values: Collection[str]) -> int:
    """Count the values of a column of text; return how many are missing."""
    missing, found = 0, counts[name]
    for entry in column.value_counts().to_pylist():
        text = entry["values"] or ""
        if is_missing_text(text, na_values):
            missing += entry["counts"]
        elif found is not None:
            found[text] = found.get(text, 0) + entry["counts"]
            if len(found) > _MOST:
                counts[name] = found = None
    return missing
