"""What is known of contexts and of rows beside the model: columns of names or of numbers, from tables to the page.

``_known`` asks for the columns of contexts (``context_columns``) and of the rows that are shown (``row_columns``);
``_obs_metadata`` finds those that an AnnData brings. ``metadata_content`` packs both for ``static/metadata.js``: names
of categories once, and a code or a number for each context or row.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.alignment import column_names, in_row_order, row_index
from .._data.contexts import named_blocks
from .._data.dask_graph import computed
from .._data.detect import InputKind, input_kind
from .._data.labels import is_missing
from .._utils.array_api import to_host
from .._utils.natural_order import natural
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from ._encode import rounded

MOST_COLUMNS = 50  # of contexts, and of rows; more cannot be told apart beside a map
MOST_ROW_BYTES = 2_000_000  # of all columns of rows in the page
_MOST_NAME_BYTES = 1_000_000  # of the names of rows; beyond it rows have their numbers
_LONGEST = 200  # characters of a value or of the name of a row


@dataclass(frozen=True)
class Column:
    """One column of metadata.

    Attributes
    ----------
    name : str
    values : ndarray (n,)
        Numbers, NaN where not known; or positions in ``categories``, -1 where not known.
    categories : list of str, or None
        Names, in the order in which they are shown; None for a column of numbers.
    """

    name: str
    values: Array
    categories: list[str] | None


def as_column(name: str, values: Any) -> Column:
    """Return values of any type as a column: numbers stay numbers, all else is names by its text.

    Names are in their natural order ("b2" before "b10"); categories of pandas in theirs, without those that no value
    has. True and false are names.
    """
    given = getattr(getattr(values, "cat", None), "categories", None)
    if given is not None and hasattr(values.cat, "codes"):
        return _of_codes(name, np.asarray(values.cat.codes), [str(category) for category in given], keep_order=True)
    array = np.asarray(values)
    if array.dtype.kind in "iuf":
        return Column(name, array.astype(np.float64), None)
    plain = array.tolist() if array.dtype.kind not in "mM" else array.astype(str).tolist()
    if array.dtype.kind in "mM":
        plain = [None if text == "NaT" else text for text in plain]
    known = [value for value in plain if not is_missing(value)]
    if known and all(_is_number(value) for value in known):
        numbers = [np.nan if is_missing(value) else float(value) for value in plain]
        return Column(name, np.array(numbers, dtype=np.float64), None)
    places: dict[str, int] = {}
    codes = [-1 if is_missing(value) else places.setdefault(str(value), len(places)) for value in plain]
    return _of_codes(name, np.array(codes, dtype=np.int32), list(places), keep_order=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_))


def _of_codes(name: str, codes: Array, names: list[str], *, keep_order: bool) -> Column:
    """Return a column of those names that occur, in the order given or in the natural one."""
    occurring = np.unique(codes[codes >= 0]).tolist()
    if not keep_order:
        # The name itself breaks ties such as "b2" and "b02".
        occurring.sort(key=lambda code: (natural(names[code]), names[code]))
    new_code = np.full(len(names) + 1, -1, dtype=np.int32)  # the last entry is for -1
    new_code[occurring] = np.arange(len(occurring))
    return Column(name, new_code[codes], [names[code] for code in occurring])


# Contexts ---------------------------------------------------------------------------------------------------------


def context_columns(table: Any, contexts: Sequence[Any]) -> list[Column]:
    """Return columns of k contexts from a DataFrame with their names as its index, or a dict of columns.

    Entries of a dict are values in the order of the ``contexts``, or a dict or Series by their names. Contexts that a
    table lacks have no known value; a warning names rows of the table that are no context.
    """
    argument = "context_metadata"
    kind = input_kind(table)
    if kind is InputKind.FRAME:
        index = row_index(table, kind)
        if index is None:
            raise TypeError(
                f"{argument} is a {type(table).__name__} without an index of contexts; pass a pandas DataFrame indexed "
                "by context, or a dict of columns."
            )
        places = _places(index.tolist(), contexts, argument)
        columns = {_name(name, argument): (table[name], places) for name in _unique_columns(table, argument)}
    elif isinstance(table, Mapping):
        columns = {_name(name, argument): _of_entry(name, entry, contexts) for name, entry in table.items()}
    else:
        raise TypeError(
            f"{argument} is a {type(table).__name__}; pass a DataFrame indexed by context, or a dict of columns."
        )
    _check_count(columns, argument)
    return [_put_in_order(as_column(name, values), places) for name, (values, places) in columns.items()]


def _of_entry(name: Any, entry: Any, contexts: Sequence[Any]) -> tuple[Any, Array]:
    """Return the values of an entry of a dict, and the place of each context among them."""
    argument = f"context_metadata[{name!r}]"
    if isinstance(entry, Mapping):
        # An array of objects: values may be of any type, and NumPy would make text of numbers beside text.
        values = np.empty(len(entry), dtype=object)
        values[:] = list(entry.values())
        return values, _places(list(entry), contexts, argument)
    index = row_index(entry) if input_kind(entry) is InputKind.SERIES else None
    if index is not None:
        return entry, _places(index.tolist(), contexts, argument)
    if isinstance(entry, str) or not hasattr(entry, "__len__"):
        raise TypeError(f"{argument} is a {type(entry).__name__}; pass one value for each context, or a dict by name.")
    if len(entry) != len(contexts):
        raise ValueError(
            f"{argument} has {len(entry)} values, and the model has {len(contexts)} contexts; pass one for each in the "
            "order of contexts_, or a dict by name."
        )
    return _objects(entry), np.arange(len(contexts))


def _objects(values: Any) -> Any:
    """Return a list as an array of objects, so that numbers beside text stay numbers; anything else as it is."""
    if not isinstance(values, (list, tuple)):
        return values
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _places(names: list[Any], contexts: Sequence[Any], argument: str) -> Array:
    """Return the place of each context among the names of a table, -1 where it is not there."""
    position: dict[Any, int] = {}
    repeated = []
    for place, name in enumerate(names):
        if name in position:
            repeated.append(name)
        position[name] = place
    if repeated:
        raise ValueError(f"{argument} names contexts more than once: {quoted(repeated)}; keep one row of each.")
    # By the label itself, and by its text where that is all a table has: 3 and "3".
    by_text = {str(name): place for name, place in position.items()}
    places = np.array([position.get(name, by_text.get(str(name), -1)) for name in contexts], dtype=np.intp)
    if (places < 0).all():
        raise ValueError(
            f"{argument} is by {quoted(names)}, and none of these is a context of the model, which has "
            f"{quoted(list(contexts))}; name its rows by the contexts."
        )
    known = set(places.tolist())
    others = [name for place, name in enumerate(names) if place not in known]
    if others:
        warn(f"{argument} has {len(others)} rows that are no context of the model and are left out: {quoted(others)}.")
    return places


def _put_in_order(column: Column, places: Array) -> Column:
    """Return the values at these places, not known where a place is -1."""
    missing = np.nan if column.categories is None else -1
    values = np.concatenate([column.values, np.array([missing], dtype=column.values.dtype)])[places]
    if column.categories is None:
        return Column(column.name, values, None)
    return _of_codes(column.name, values, column.categories, keep_order=True)


# Rows --------------------------------------------------------------------------------------------------------------


def take_row_metadata(X: Any, row_metadata: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return X without columns that are only named as metadata, and the values of each column for all rows of X.

    ``row_metadata`` is a DataFrame, a dict of columns, or names of columns of X (of ``obs``, if X is an AnnData). For
    separate contexts it is a table of all their rows one after the other, or a list or dict of tables.
    """
    if row_metadata is None:
        return X, None
    kind = input_kind(X)
    names = [row_metadata] if isinstance(row_metadata, str) else row_metadata
    if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
        return _named_columns(X, kind, list(names))
    blocks = named_blocks(X, kind)
    if blocks is not None and _is_by_context(row_metadata, blocks):
        tables = [row_metadata[name] for name in blocks.names.tolist()] if blocks.by_name else list(row_metadata)
        parts = [_columns_of(block, table) for block, table in zip(blocks.blocks, tables, strict=True)]
        _check_same_columns(parts)
        return X, {name: np.concatenate([_as_objects(part[name]) for part in parts]) for name in parts[0]}
    return X, _columns_of(X, row_metadata)


def _is_by_context(table: Any, blocks: Any) -> bool:
    """Whether there is a table for each of several contexts."""
    if isinstance(table, Mapping):
        return blocks.by_name and set(table) == set(blocks.names.tolist())
    return isinstance(table, (list, tuple)) and len(table) == len(blocks.blocks)


def _as_objects(values: Any) -> Array:
    """Return values that can be put one below the other, whatever their types."""
    return np.asarray(computed(to_host(values)), dtype=object)


def _check_same_columns(parts: list[dict[str, Any]]) -> None:
    for part in parts[1:]:
        if set(part) != set(parts[0]):
            raise ValueError(
                f"row_metadata has the columns {quoted(list(parts[0]))} in the first context and {quoted(list(part))} "
                "in another; give all contexts the same columns."
            )


def _named_columns(X: Any, kind: InputKind, names: list[str]) -> tuple[Any, dict[str, Any]]:
    if kind not in (InputKind.ANNDATA, InputKind.FRAME):
        raise TypeError(
            f"row_metadata={names!r} names columns, and X is a {type(X).__name__} without names; pass a DataFrame or a "
            "dict of columns."
        )
    table = X.obs if kind is InputKind.ANNDATA else X
    where = "adata.obs" if kind is InputKind.ANNDATA else "X"
    columns = [str(name) for name in column_names(table) or []]
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise ValueError(f"row_metadata={unknown[0]!r} is not a column of {where}, which has {quoted(columns, 10)}.")
    values = {name: table[name] for name in names}
    if kind is InputKind.FRAME:
        X = X[[name for name in column_names(X) or [] if name not in names]]
    return X, values


def _columns_of(X: Any, table: Any) -> dict[str, Any]:
    """Return the columns of a table in the order of the rows of X, by index where both have one."""
    argument = "row_metadata"
    if input_kind(table) in (InputKind.FRAME, InputKind.DASK) and column_names(table) is not None:
        columns = {_name(name, argument): table[name] for name in _unique_columns(table, argument)}
    elif isinstance(table, Mapping):
        columns = {_name(name, argument): values for name, values in table.items()}
    else:
        raise TypeError(
            f"{argument} is a {type(table).__name__}; pass a DataFrame, a dict of columns, or names of columns of X."
        )
    kind = input_kind(X)
    return {name: in_row_order(X, values, kind, argument) for name, values in columns.items()}


def row_columns(columns: Mapping[str, Any], n: int, numbers: Array) -> list[Column]:
    """Return columns of the rows at ``numbers``, out of values of all n rows; only these are looked at."""
    _check_count(columns, "row_metadata")
    found = []
    for name, values in columns.items():
        values = to_host(computed(values))
        if isinstance(values, str) or not hasattr(values, "__len__") or np.ndim(values) > 1:
            raise TypeError(f"row_metadata[{name!r}] is a {type(values).__name__}; pass one value for each row.")
        if len(values) != n:
            raise ValueError(f"row_metadata[{name!r}] has {len(values)} values and X has {n} rows; pass one for each.")
        found.append(as_column(name, values.iloc[numbers] if hasattr(values, "iloc") else _objects(values)[numbers]))
    return found


def check_row_bytes(columns: Sequence[Column]) -> None:
    """Raise if columns of rows would make the page too large."""
    size = sum(map(bytes_of, columns))
    if size > MOST_ROW_BYTES:
        largest = max(columns, key=bytes_of)
        raise ValueError(
            f"row_metadata would take {size / 1e6:.1f} MB of the page, and may take {MOST_ROW_BYTES / 1e6:g}; pass "
            f"fewer columns ({largest.name!r} takes {bytes_of(largest) / 1e6:.1f}), or a smaller max_rows."
        )


def bytes_of(column: Column) -> int:
    """Return about how many bytes a column of rows takes in the page."""
    return len(json.dumps(_row_column(column)))


def row_names_of(X: Any) -> list[str] | None:
    """Return the names of all rows: ``obs_names``, or an index that is more than numbers; None where there are none."""
    blocks = named_blocks(X)
    names: list[str] = []
    for block in [X] if blocks is None else blocks.blocks:
        index = row_index(block)
        # Without names pandas counts rows from 0; a selection of rows keeps its numbers, which are names.
        if index is None or np.array_equal(np.asarray(index), np.arange(len(index))):
            return None
        names += [str(name) for name in index]
    return names


def check_row_names(names: Any, n: int) -> list[str]:
    """Return names of n rows as text."""
    if isinstance(names, str) or not hasattr(names, "__len__"):
        raise TypeError(f"row_names is a {type(names).__name__}; pass a name for each row.")
    if len(names) != n:
        raise ValueError(f"row_names has {len(names)} entries and X has {n} rows; pass one for each.")
    return [str(name) for name in names]


# The page ------------------------------------------------------------------------------------------------------------


def metadata_content(
    contexts: Sequence[Column], rows: Sequence[Column], numbers: Array | None, names: Sequence[str] | None
) -> dict[str, Any]:
    """Return what the page has of metadata; ``numbers`` are the rows that are shown, ``names`` those of all rows."""
    return {
        "contexts": [_context_column(column) for column in contexts],
        "rows": [_row_column(column) for column in rows],
        "names": None if numbers is None else _row_names(numbers, names),
    }


def _context_column(column: Column) -> dict[str, Any]:
    values = rounded(column.values, 7) if column.categories is None else column.values.tolist()
    return {"name": _cut(column.name), "categories": _cut_all(column.categories), "values": values}


def _row_column(column: Column) -> dict[str, Any]:
    """Return a column of rows: numbers in 32 bits (seven digits), codes in 8 or 16; what is not known is NaN or -1."""
    if column.categories is None:
        kind = "<f4"
    else:
        # Signed, so that -1 stays what it is.
        kind = "<i1" if len(column.categories) < 2**7 else "<i2" if len(column.categories) < 2**15 else "<i4"
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and shown as not known
        data = base64.b64encode(column.values.astype(kind).tobytes()).decode("ascii")
    return {"name": _cut(column.name), "categories": _cut_all(column.categories), "kind": kind[1:], "data": data}


def _row_names(numbers: Array, names: Sequence[str] | None) -> dict[str, Any]:
    """Return names of the rows that are shown, or their numbers where there are none or they are too long."""
    if names is not None:
        shown = [_cut(names[number]) for number in numbers.tolist()]
        if sum(map(len, shown)) <= _MOST_NAME_BYTES:
            return {"names": shown, "data": None}
    return {"names": None, "data": base64.b64encode(numbers.astype("<u4").tobytes()).decode("ascii")}


def _cut_all(texts: list[str] | None) -> list[str] | None:
    return None if texts is None else [_cut(text) for text in texts]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"


def _name(name: Any, argument: str) -> str:
    if is_missing(name):
        raise ValueError(f"{argument} has a column without a name; give it one.")
    return str(name)


def _unique_columns(table: Any, argument: str) -> list[Any]:
    names = column_names(table) or []
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(f"{argument} has columns of the same name: {quoted(repeated)}; rename them.")
    return names


def _check_count(columns: Mapping[str, Any], argument: str) -> None:
    if len(columns) > MOST_COLUMNS:
        raise ValueError(
            f"{argument} has {len(columns)} columns, and a report shows at most {MOST_COLUMNS}; pass fewer."
        )
