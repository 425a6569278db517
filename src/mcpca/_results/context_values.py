"""One value per context (a stage, a year, a treatment), in whichever form the user has it.

Contexts are the samples in an analysis of loadings. What is known about them comes as a dict or Series by name, as an
array in the order of the contexts, or as a column of an AnnData's ``obs`` that is constant within contexts. Plots and
analyses read such arguments (``covariate``, ``time``, ``annotations``) by ``context_values`` and get numbers, dates or
categories.
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
from .._utils.wording import nearest, quoted
from .anndata_layout import keys_of, obs_columns


@dataclass(frozen=True)
class ContextValues:
    """Values of k contexts.

    Attributes
    ----------
    kind : {"number", "date", "category"}
    values : ndarray (k,)
        float64, datetime64, or for categories their position in ``categories`` as int, -1 where missing.
    missing : ndarray (k,) of bool
        Contexts without a value; "number" and "date" have NaN and NaT there.
    categories : list of str
        The categories that occur, in the order of a pandas categorical, otherwise sorted, with numbers within them
        sorted by size. Empty for numbers and dates.
    ordered : bool
        Whether the order of the categories is meaningful: True for an ordered categorical.
    """

    kind: Literal["number", "date", "category"]
    values: Array
    missing: Array
    categories: list[str]
    ordered: bool = False

    @property
    def positions(self) -> Array:
        """Positions of the contexts on an axis (k,): the values themselves, or 0, 1, ... as floats for categories."""
        return self.values.astype(np.float64) if self.kind == "category" else self.values


def context_values(
    covariate: Any,
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
    covariate : dict or Series {context: value}; array-like (k,); or str
        Values by name of the context, of which those of other contexts are ignored; or values in the order of
        ``contexts``; or, if ``source`` is an AnnData, the name of a column of its ``obs`` that is constant within
        contexts. Numbers, dates (``datetime64``), or anything else as categories; a pandas categorical keeps its order.
    contexts : sequence of k str
    argument : str
        Name of the argument in errors.
    source, key
        The AnnData and the name of the fit in it, for columns of ``obs``.
    missing : {"error", "drop"}
        What to do if a context has no value (absent, None or NaN): raise, or mark it as ``missing``.

    Returns
    -------
    ContextValues
    """
    if missing not in ("error", "drop"):
        raise ValueError(f"missing={missing!r}; choose 'error' or 'drop'.")
    # The categories of a pandas categorical, in its order; None for values of any other type.
    order: list[Any] | None = None
    ordered = False
    if isinstance(covariate, str):
        covariate = _obs_column(covariate, contexts, argument, source, key)
    # A Series of categories has them under ``cat``, a Categorical and a CategoricalIndex themselves.
    categorical = getattr(covariate, "cat", covariate)
    if getattr(categorical, "categories", None) is not None:
        order = list(categorical.categories)
        ordered = bool(categorical.ordered)
    # A list has an ``index`` method too; only a Series has both. A Series goes by name, whatever its order.
    if isinstance(covariate, Mapping) or (hasattr(covariate, "index") and hasattr(covariate, "items")):
        values = _by_name(covariate, contexts, argument)
    else:
        values = _by_position(covariate, len(contexts), argument)
    # Values are a plain list of k objects from here on, whatever they came in.
    typed = _typed(values, order, ordered)
    if typed.missing.all():
        raise ValueError(f"{argument} has no value for any of the {len(contexts)} contexts; pass at least one.")
    if missing == "error" and typed.missing.any():
        without = [contexts[i] for i in np.flatnonzero(typed.missing).tolist()]
        raise ValueError(
            f"{argument} has no value for {len(without)} of {len(contexts)} contexts: {quoted(without)}. Add values "
            "for these contexts, or leave them out with missing='drop'."
        )
    return typed


def _by_name(covariate: Any, contexts: Sequence[str], argument: str) -> list[Any]:
    by_name: dict[str, Any] = {}
    for name, value in covariate.items():
        # Two keys may become one text, such as 1 and "1".
        if str(name) in by_name:
            raise ValueError(f"{argument} names context {str(name)!r} more than once; pass one value per context.")
        by_name[str(name)] = value
    # Most likely the keys are names of something else, which an error about missing values would not say.
    if not any(name in by_name for name in contexts):
        first = next(iter(by_name), None)
        hint = "it is empty." if first is None else f"{first!r} is none; {nearest(first, contexts)}"
        raise ValueError(f"{argument} names no context of the fit: {hint} Use the names of the contexts as keys.")
    return [by_name.get(name) for name in contexts]


def _by_position(covariate: Any, k: int, argument: str) -> list[Any]:
    # A list may hold objects of several kinds, which an array would turn into text.
    is_list = isinstance(covariate, (list, tuple)) or hasattr(covariate, "categories")
    values = list(covariate) if is_list else to_host(covariate)
    shape = (len(values),) if isinstance(values, list) else np.shape(values)
    if len(shape) != 1 or shape[0] != k:
        raise ValueError(
            f"{argument} has shape {shape}; pass one value for each of the {k} contexts, in their order, or a dict "
            "{context: value}."
        )
    return list(values)


def _obs_column(name: str, contexts: Sequence[str], argument: str, source: Any, key: str) -> Any:
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
    context = keys_of(key).context
    table = obs_columns(source, list(dict.fromkeys([name, context])))
    rows = table[[name]].assign(context=table[context].astype(object).to_numpy())
    # Rows that were not fitted need not agree with anything.
    rows = rows[rows["context"].notna()]
    # dropna=False: a context with a value in some rows and none in others is not constant either.
    n_values = rows.groupby("context", observed=True)[name].nunique(dropna=False)
    mixed = n_values[n_values > 1]
    if len(mixed):
        context = mixed.index[0]
        values = rows.loc[rows["context"] == context, name].drop_duplicates().tolist()
        raise ValueError(
            f"{argument}={name!r} is not constant within contexts: {len(mixed)} of {len(contexts)} have several "
            f"values, {context!r} for example {quoted(values)}. Pass a column with one value per context, or a dict "
            "{context: value} with the median, say."
        )
    # The first row of each context stands for all; a Series, as it keeps the order of a categorical.
    by_context = rows.drop_duplicates("context").set_index("context")[name]
    by_context.index = by_context.index.map(str)
    return by_context


def _typed(values: list[Any], order: list[Any] | None, ordered: bool) -> ContextValues:
    """Tell numbers, dates and categories apart; ``order`` are the categories of a categorical, else None."""
    missing = np.array([is_missing(value) for value in values])
    known = [value for value, absent in zip(values, missing, strict=True) if not absent]
    if order is None and known:
        if all(map(_is_number, known)):
            # An infinite number has no place on an axis, and counts as missing too.
            numbers = np.array([np.nan if is_missing(value) else value for value in values], float)
            return ContextValues("number", numbers, ~np.isfinite(numbers), [])
        if all(isinstance(value, np.datetime64) or hasattr(value, "isoformat") for value in known):
            # NumPy 2.5 deprecates a NaT without a unit.
            dates = [np.datetime64("NaT", "ns") if is_missing(value) else value for value in values]
            return ContextValues("date", np.array(dates, dtype="datetime64[ns]"), missing, [])
    # Categories that no context has would make empty groups, in tests and in legends.
    occurring = {str(value) for value in known}
    all_categories = sorted(occurring, key=_natural_sort_key) if order is None else [str(value) for value in order]
    categories = [name for name in all_categories if name in occurring]
    position = {name: i for i, name in enumerate(categories)}
    codes = [-1 if is_missing(value) else position[str(value)] for value in values]
    return ContextValues("category", np.array(codes), missing, categories, ordered)


def _is_number(value: Any) -> bool:
    # True and False are two categories, not numbers.
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _natural_sort_key(name: str) -> list[Any]:
    """Sort "visit 2" before "visit 10": text as text, and digits within it as numbers."""
    # Pairs of the same types throughout, so that digits and text can be compared. ``isdecimal`` is what ``\d`` matches
    # and ``int`` reads; ``isdigit`` would accept superscripts too.
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
