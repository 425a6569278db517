"""A value for each context (a stage, a year, a form), in whichever way the user keeps it.

Contexts are the samples of an analysis of loadings; what is known about them comes as a dict or Series by name, as an
array in the order of the contexts, or as a column of an AnnData's ``obs`` that is constant within contexts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .._data.detect import is_anndata
from .._data.labels import is_missing
from .._utils.array_api import to_host
from .._utils.component_names import unknown
from .._utils.types import Array
from .._utils.wording import nearest
from .anndata_layout import keys_of

_SHOWN = 5  # names in an error


@dataclass(frozen=True)
class ContextValues:
    """Values of k contexts.

    Attributes
    ----------
    kind : {"number", "date", "category"}
    values : ndarray (k,)
        float64, datetime64, or for categories their position in ``categories`` as int, -1 where missing.
    missing : ndarray (k,) of bool
        Where nothing is known; "number" and "date" have NaN and NaT there.
    categories : list of str
        Those that occur, in the order of a categorical, otherwise sorted, with numbers in them by size. Empty for
        numbers and dates.
    ordered : bool
        Whether the order of categories means something: an ordered categorical's.
    """

    kind: Literal["number", "date", "category"]
    values: Array
    missing: Array
    categories: list[str]
    ordered: bool = False

    @property
    def positions(self) -> Array:
        """Where to draw the contexts on an axis (k,): the values themselves, for categories 0, 1, ... as floats."""
        return self.values.astype(np.float64) if self.kind == "category" else self.values


def context_values(
    given: Any,
    contexts: Sequence[str],
    argument: str,
    *,
    source: Any = None,
    key: str = "mcpca",
    missing: str = "error",
) -> ContextValues:
    """Read a value for each context.

    Parameters
    ----------
    given : dict or Series {context: value}; array-like (k,); or str
        Contexts by name, entries beyond the k contexts being ignored; or values in the order of ``contexts``; or, where
        ``source`` is an AnnData, the name of a column of its ``obs`` that is constant within contexts. Numbers, dates
        (``datetime64``), or anything else as categories; a pandas categorical keeps its order.
    contexts : sequence of k str
    argument : str
        What to call it in errors.
    source, key
        The AnnData and the name of the fit in it, for columns of ``obs``.
    missing : {"error", "drop"}
        What to do when a context has no value (absent, None or NaN): raise, or mark it as ``missing``.

    Returns
    -------
    ContextValues
    """
    if missing not in ("error", "drop"):
        raise ValueError(f"missing={missing!r}; choose 'error' or 'drop'.")
    order: list[Any] | None = None
    ordered = False
    if isinstance(given, str):
        given = _column(given, contexts, argument, source, key)
    categorical = getattr(given, "cat", given)
    if getattr(categorical, "categories", None) is not None:
        order, ordered = list(categorical.categories), bool(categorical.ordered)
    if isinstance(given, Mapping) or (hasattr(given, "index") and hasattr(given, "items")):
        values = _by_name(given, contexts, argument)
    else:
        values = _in_order(given, len(contexts), argument)
    read = _typed(values, order, ordered)
    if read.missing.all():
        raise ValueError(f"{argument} has no value for any of the {len(contexts)} contexts; pass at least one.")
    if missing == "error" and read.missing.any():
        without = [contexts[i] for i in np.flatnonzero(read.missing).tolist()]
        raise ValueError(
            f"{argument} has no value for {len(without)} of {len(contexts)} contexts: {_some(without)}. Give them one, "
            "or leave these contexts out with missing='drop'."
        )
    return read


def _by_name(given: Any, contexts: Sequence[str], argument: str) -> list[Any]:
    by_name: dict[str, Any] = {}
    for name, value in given.items():
        if str(name) in by_name:
            raise ValueError(f"{argument} names context {str(name)!r} more than once; give every context one value.")
        by_name[str(name)] = value
    if not any(name in by_name for name in contexts):
        first = next(iter(by_name), None)
        hint = "it is empty." if first is None else f"{first!r} is none; {nearest(first, contexts)}"
        raise ValueError(f"{argument} names no context of the fit: {hint} Use the names of the contexts as keys.")
    return [by_name.get(name) for name in contexts]


def _in_order(given: Any, k: int, argument: str) -> list[Any]:
    values = list(given) if isinstance(given, (list, tuple)) or hasattr(given, "categories") else to_host(given)
    shape = (len(values),) if isinstance(values, list) else np.shape(values)
    if len(shape) != 1 or shape[0] != k:
        raise ValueError(
            f"{argument} has shape {shape}; pass one value for each of the {k} contexts, in their order, or a dict "
            "{context: value}."
        )
    return list(values)


def _column(name: str, contexts: Sequence[str], argument: str, source: Any, key: str) -> Any:
    """Return a Series {context: value} of a column of ``obs``."""
    if not is_anndata(source):
        raise ValueError(
            f"{argument}={name!r} would be a column of obs, which only an AnnData has; pass a dict {{context: value}} "
            "or an array in the order of the contexts."
        )
    if name not in source.obs.columns:
        raise ValueError(
            unknown(name, argument, source.obs.columns, "a column of adata.obs") + " Pass the name of one, or values."
        )
    rows = source.obs[[name]].assign(context=source.obs[keys_of(key).context].astype(object).to_numpy())
    rows = rows[rows["context"].notna()]
    grouped = rows.groupby("context", observed=True)[name]
    several = grouped.nunique(dropna=False)
    mixed = several[several > 1]
    if len(mixed):
        context = mixed.index[0]
        values = rows.loc[rows["context"] == context, name].drop_duplicates().tolist()
        raise ValueError(
            f"{argument}={name!r} is not constant within contexts: {len(mixed)} of {len(contexts)} have several "
            f"values, {context!r} for example {_some(values)}. Pass a column with one value per context, or a dict "
            "{context: value} with the median, say."
        )
    first = rows.drop_duplicates("context").set_index("context")[name]
    first.index = first.index.map(str)
    return first


def _typed(values: list[Any], order: list[Any] | None, ordered: bool) -> ContextValues:
    """Tell numbers, dates and categories apart."""
    absent = np.array([is_missing(value) for value in values])
    known = [value for value, gone in zip(values, absent, strict=True) if not gone]
    if order is None and known:
        if all(isinstance(value, (int, float, np.number)) and not isinstance(value, bool) for value in known):
            numbers = np.array([np.nan if gone else value for value, gone in zip(values, absent, strict=True)], float)
            return ContextValues("number", numbers, ~np.isfinite(numbers), [])
        if all(isinstance(value, np.datetime64) or hasattr(value, "isoformat") for value in known):
            dates = [np.datetime64("NaT") if gone else value for value, gone in zip(values, absent, strict=True)]
            return ContextValues("date", np.array(dates, dtype="datetime64[ns]"), absent, [])
    names = (
        sorted({str(value) for value in known}, key=_by_numbers) if order is None else [str(value) for value in order]
    )
    used = {str(value) for value in known}
    names = [name for name in names if name in used]
    position = {name: i for i, name in enumerate(names)}
    codes = [-1 if gone else position[str(value)] for value, gone in zip(values, absent, strict=True)]
    return ContextValues("category", np.array(codes), absent, names, ordered)


def _by_numbers(name: str) -> list[Any]:
    """Sort "visit 2" before "visit 10": text as text, and digits within it as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _some(values: Sequence[Any]) -> str:
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(repr(value) for value in values[:_SHOWN]) + more
