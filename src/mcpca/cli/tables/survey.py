"""One pass over all columns of a table, for ``mcpca doctor``: rows, missing values, and which values there are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.labels import is_missing_text
from .tabular import RisingColumns, Table, batch_matrix

_MOST_TEXTS = 10_000  # distinct values of a column of text that are counted; with more it is not contexts
_MOST_INTEGERS = 50  # distinct integers that are counted; a column with more is rather a measurement
_PROBE_ROWS = 1000  # that show most columns not to be integers, before all rows are sorted
_LEAST_ROWS = 20  # in fewer, numbers can be in order by chance


@dataclass(frozen=True)
class Survey:
    """What is in a table.

    Attributes
    ----------
    n_rows : int
    missing : dict of str to int
        Number of values of each column that are missing or infinite.
    counts : dict of str to (dict of str to int) or None
        How often each value occurs, for text and for numbers that are few integers; None if there are too many.
    row_numbers : list of str
        Columns of whole numbers that rise from each row to the next.
    whole, ordered : frozenset of str
        Columns of whole numbers, and those of them that never fall, or never rise, and are not constant.
    variances : dict of str to float
        Of columns of numbers, without missing values.
    """

    n_rows: int
    missing: dict[str, int]
    counts: dict[str, dict[str, int] | None]
    row_numbers: list[str]
    whole: frozenset[str]
    ordered: frozenset[str]
    variances: dict[str, float]


def survey(table: Table, na_values: Collection[str] = ()) -> Survey:
    """Look at all rows of a table."""
    numbers = [name for name in table.columns if name not in table.text and name != table.index]
    # Columns of lists are text to ``Table``, but have no values that could be counted.
    texts = [name for name in table.columns if name in table.text - table.nested and name != table.index]
    n = 0
    p = len(numbers)
    gaps = np.zeros(p, dtype=np.intp)
    integers: dict[int, dict[str, int]] = {j: {} for j in range(p)}
    counts: dict[str, dict[str, int] | None] = {name: {} for name in texts}
    empty = dict.fromkeys(texts, 0)
    rising = RisingColumns(p)
    spread = _Spread(p)
    for batch in table.batches(numbers, texts):
        if not batch.num_rows:
            continue
        X = batch_matrix(batch, p)
        n += batch.num_rows
        rising.look(X)
        spread.look(X)
        finite = np.isfinite(X)
        gaps += (~finite).sum(axis=0)
        # A column is dropped at the first block that rules it out: soon only a few are sorted.
        not_integers = [j for j in integers if not _count_integers(X[:, j], finite[:, j], integers[j])]
        for j in not_integers:
            del integers[j]
        for i, name in enumerate(texts):
            empty[name] += _count_texts(batch.column(p + i), counts, name, na_values)
    # A constant column is neither contexts nor worth listing.
    few_integers = {numbers[j]: by_value for j, by_value in integers.items() if len(by_value) > 1}
    missing = dict(zip(numbers, gaps.tolist(), strict=True)) | empty
    # None stands for "many values", which is what can be said of lists.
    counts |= dict.fromkeys(table.nested)
    names = np.array(numbers, dtype=object)
    return Survey(
        n_rows=n,
        missing=missing,
        counts={**counts, **few_integers},
        row_numbers=[numbers[j] for j in rising.columns()],
        whole=frozenset(names[spread.whole]),
        ordered=frozenset(names[spread.ordered()]),
        variances=dict(zip(numbers, spread.variances().tolist(), strict=True)),
    )


class _Spread:
    """Collects the variance of each of p columns of numbers, and whether its values are whole numbers and in order."""

    def __init__(self, p: int) -> None:
        self.whole = np.ones(p, dtype=bool)
        self._never_falls = np.ones(p, dtype=bool)
        self._never_rises = np.ones(p, dtype=bool)
        # Known values of each column so far: their number, mean, and sum of squared deviations from it.
        self._n = np.zeros(p)
        self._mean = np.zeros(p)
        self._scatter = np.zeros(p)
        self._n_rows = 0
        self._last_row = np.full(p, np.nan)

    def look(self, X: Any) -> None:
        """Look at the next rows."""
        # X (m, p). A gap counts as 0, which is whole, so that it says nothing about its column.
        finite = np.isfinite(X)
        known = np.where(finite, X, 0)
        self.whole &= (known == np.round(known)).all(axis=0)
        # The last row of the block before is put on top, so that the step between blocks is compared as well.
        # Differences with NaN are NaN, and inf - inf is too.
        with np.errstate(invalid="ignore"):
            steps = np.diff(np.vstack([self._last_row, X]), axis=0)  # the first is NaN in the first block
        self._never_falls &= ~(steps < 0).any(axis=0) & finite.all(axis=0)
        self._never_rises &= ~(steps > 0).any(axis=0) & finite.all(axis=0)
        # A copy: a view would keep the whole block in memory.
        self._last_row = X[-1].astype(np.float64)
        self._n_rows += len(X)
        # Two groups of n and m values: the scatter of both is the sum of theirs and d^2 n m / (n + m), where d is the
        # difference of their means. No sum of squares, which would cancel for a column of large mean.
        m = finite.sum(axis=0)
        mean = known.sum(axis=0) / np.maximum(m, 1)
        difference = np.where(m > 0, mean - self._mean, 0)
        total = np.maximum(self._n + m, 1)
        squares = np.where(finite, known - mean, 0) ** 2
        self._scatter += squares.sum(axis=0) + difference**2 * self._n * m / total
        self._mean = self._mean + difference * m / total
        self._n = self._n + m

    def variances(self) -> Any:
        """Return the variances of all columns (p,)."""
        return self._scatter / np.maximum(self._n - 1, 1)

    def ordered(self) -> Any:
        """Return which columns are whole numbers in order (p,)."""
        # A constant column never falls either; its scatter of 0 rules it out.
        in_order = self.whole & (self._never_falls | self._never_rises) & (self._scatter > 0)
        return in_order if self._n_rows >= _LEAST_ROWS else np.zeros_like(in_order)


def _count_integers(values: Any, finite: Any, by_value: dict[str, int]) -> bool:
    """Add the values of a column to their counts; return False if they are not integers, or too many."""
    # values (m,) of one block; ``by_value`` is filled over all blocks. A probe first, since np.unique sorts.
    known = values[finite]
    head = known[:_PROBE_ROWS]
    if (head != np.round(head)).any():
        return False
    distinct, counts = np.unique(known, return_counts=True)
    if (distinct != np.round(distinct)).any():
        return False
    # One more than allowed is enough to exceed the bound: a column of many integers does not fill the dict.
    for value, count in zip(distinct[: _MOST_INTEGERS + 1].tolist(), counts.tolist(), strict=False):
        by_value[str(int(value))] = by_value.get(str(int(value)), 0) + count
    return len(by_value) <= _MOST_INTEGERS


def _count_texts(column: Any, counts: dict[str, dict[str, int] | None], name: str, na_values: Collection[str]) -> int:
    """Add the values of a column of text to ``counts[name]``, or set that to None; return how many are missing."""
    missing = 0
    by_value = counts[name]
    # Counted by Arrow: only distinct texts become Python objects. A null has None for its value.
    for entry in column.value_counts().to_pylist():
        text = entry["values"] or ""
        if is_missing_text(text, na_values):
            missing += entry["counts"]
        elif by_value is not None:
            by_value[text] = by_value.get(text, 0) + entry["counts"]
            # Names of rows, say: given up for good, but missing values are counted to the end.
            if len(by_value) > _MOST_TEXTS:
                by_value = None
                counts[name] = None
    return missing
