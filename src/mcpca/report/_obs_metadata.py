"""Metadata that an AnnData brings: columns of ``obs`` that are constant within contexts, and columns of the rows shown.

Found without being asked for, and so bounded: few columns, of numbers or of few names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from .._results.anndata_layout import obs_columns
from .._utils.optional import require
from .._utils.types import Array
from ._metadata import Column, as_column, bytes_of

MOST_FOUND = 20  # columns that nobody has asked for
MOST_NAMES = 50  # of a column: more are rather names of rows
_MOST_BYTES = 1_000_000  # of columns of rows


def found_context_columns(adata: Any, codes: Array, contexts: list[str], without: Collection[str]) -> list[Column]:
    """Return the columns of ``obs`` that have one value in each context, and not the same in all.

    ``codes`` (n,) are positions in ``contexts``, -1 for rows of no context. Missing values do not count against a
    column; a context of nothing else is not known. Columns that only repeat the names of the contexts are left out.
    Costs O(n) for each column of ``obs``.
    """
    pandas = require("pandas", "anndata")
    is_row = codes >= 0
    found: list[Column] = []
    for name in _candidates(adata, without):
        if len(found) == MOST_FOUND:
            break
        values = obs_columns(adata, [name])[name]
        of_values, distinct = pandas.factorize(values)  # -1 where missing
        known = is_row & (np.asarray(of_values) >= 0)
        value_of = constant_codes(codes[known], np.asarray(of_values)[known], len(contexts))
        if value_of is None or len(set(value_of[value_of >= 0].tolist())) < 2:
            continue
        # One row of each context stands for it; of those without a value, any: they are set to "not known".
        column = as_column(name, _taken(values, distinct, value_of))
        if column.categories is not None and (len(column.categories) > MOST_NAMES or _repeats(column, contexts)):
            continue
        found.append(column)
    return found


def constant_codes(contexts: Array, values: Array, k: int) -> Array | None:
    """Return the one value of each of k contexts (k,), -1 for none; None if a context has several."""
    least = np.full(k, np.iinfo(np.int64).max)
    most = np.full(k, -1, dtype=np.int64)
    np.minimum.at(least, contexts, values)
    np.maximum.at(most, contexts, values)
    is_known = most >= 0
    return None if (least[is_known] != most[is_known]).any() else most


def _taken(values: Any, distinct: Any, value_of: Array) -> Any:
    """Return the value of each context as a Series, which keeps the kind of the column and its categories."""
    pandas = require("pandas", "anndata")
    series = pandas.Series(distinct)
    if hasattr(values, "cat"):
        series = series.astype(values.dtype)
    return series.reindex(value_of)  # -1 is no position, and gives a missing value


def _repeats(column: Column, contexts: list[str]) -> bool:
    names = column.categories or []
    return all(code >= 0 and names[code] == context for code, context in zip(column.values, contexts, strict=True))


def found_row_columns(adata: Any, numbers: Array, contexts: list[str], without: Collection[str]) -> list[Column]:
    """Return columns of ``obs`` for the rows at ``numbers``: those that differ between rows, within some bytes.

    ``contexts`` are those of these rows; a column that repeats them is left out.
    """
    found: list[Column] = []
    size = 0
    for name in _candidates(adata, without):
        column = as_column(name, obs_columns(adata, [name])[name].iloc[numbers])
        is_known = np.isfinite(column.values) & ((column.values >= 0) | (column.categories is None))
        n_values = len(np.unique(column.values[is_known]))
        if n_values < 2 or (column.categories is not None and (n_values > MOST_NAMES or _repeats(column, contexts))):
            continue
        if len(found) < MOST_FOUND and size + bytes_of(column) <= _MOST_BYTES:
            size += bytes_of(column)
            found.append(column)
    return found


def _candidates(adata: Any, without: Collection[str]) -> list[str]:
    names = [str(name) for name in adata.obs.columns]
    return [name for name in names if name not in without and names.count(name) == 1]
