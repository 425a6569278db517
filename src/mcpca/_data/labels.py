"""Labels of rows: an array, the name of a column, or several columns that are crossed; and their codes."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.array_api import to_host
from .._utils.types import Array
from .alignment import columns_of, in_row_order
from .detect import Kind, input_kind
from .label_kinds import plain_label, plain_labels, sort_key

SEPARATOR = " / "  # between the names of crossed contexts
# What other programs write where a value is missing; as a label it is a text like any other.
MISSING_TEXTS = frozenset({"NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"})
_SHOWN = 10
_ONE_EACH = (
    "pass one context label per row, text or a number say, tuple(label) for a list and str(sorted(label)) for a set."
)


class Coded(NamedTuple):
    """Labels as ``codes`` (n,), positions in ``categories``, -1 where a label is missing; like a categorical's."""

    codes: Array
    categories: Array


# By the name of a column


def label_columns(X: Any, y: Any, kind: Kind | None = None) -> list[str]:
    """Return the columns that ``y`` names, of a DataFrame or of an AnnData's ``obs``; none where y is labels.

    A string is the name of a column. A list of strings is several of them, unless it has an entry for every row or
    none is a column.
    """
    if not isinstance(y, str) and not (isinstance(y, (list, tuple)) and y and all(isinstance(v, str) for v in y)):
        return []
    kind = input_kind(X) if kind is None else kind
    table, where = (X.obs, "adata.obs") if kind is Kind.ANNDATA else (X, "X")
    columns = columns_of(table)
    if isinstance(y, str):
        if columns is None and kind in (Kind.SEQUENCE, Kind.MAPPING):
            return []  # separate contexts take no y, which is an error where they are read
        return check_columns([y], columns or [], "y", where, "or the labels themselves")
    if columns is None or len(set(y) & set(columns)) == 0 or len(y) == len(table):
        return []
    return check_columns(list(y), columns, "y", where, "or the labels themselves")


def check_columns(
    names: list[str], columns: list[Any], argument: str, where: str, otherwise: str, is_not: str = "is not a column of"
) -> list[str]:
    """Return ``names``; raise where one is no column, with the nearest, or is one twice."""
    for name in names:
        if name not in columns:
            own = [str(c) for c in columns]
            some = ", ".join(repr(c) for c in own[:_SHOWN]) or "none"
            more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
            near = difflib.get_close_matches(name, own, n=3)
            hint = f"; did you mean {' or '.join(map(repr, near))}? Pass" if near else "; pass"
            raise ValueError(
                f"{argument}={name!r} {is_not} {where}, which has {some}{more}{hint} the name of one, {otherwise}."
            )
        if columns.count(name) > 1 or names.count(name) > 1:
            raise ValueError(f"{argument}={name!r} names a column of {where} twice; give every column its own name.")
    return names


def take_labels(X: Any, y: Any, kind: Kind | None = None) -> tuple[Any, Any]:
    """Return X without the columns that ``y`` names, and the labels in them; labels that are given go by their index.

    An AnnData has its labels in ``obs`` and stays as it is. Several columns are crossed.
    """
    if y is None:
        return X, None
    kind = input_kind(X) if kind is None else kind
    names = label_columns(X, y, kind)
    if not names:
        return X, in_row_order(X, y, kind)
    table = X.obs if kind is Kind.ANNDATA else X
    if len(names) == 1:
        labels = table[names[0]]
    elif hasattr(X, "npartitions"):
        raise ValueError(f"y={names}: columns of a Dask DataFrame are not crossed; make one of them, and name it.")
    else:
        labels = cross_labels([table[name] for name in names])
    return X if kind is Kind.ANNDATA else without_columns(X, names), labels


def without_columns(X: Any, names: Sequence[str]) -> Any:
    """Return a DataFrame without these columns where it has them; anything else as it is."""
    columns = columns_of(X) if names else None
    if columns is None or not set(names) & set(columns):
        return X
    return X[[c for c in columns if c not in names]]


def cross_labels(columns: Sequence[Any]) -> Coded:
    """Return the combinations of labels that occur, "a / b", in the order of the first column, then the second, ...

    A row that lacks a label in one column lacks one here.
    """
    coded = [read_labels(column) for column in columns]
    codes = coded[0].codes.astype(np.int64)
    missing = codes < 0
    for own in coded[1:]:
        codes = codes * len(own.categories) + own.codes
        missing |= own.codes < 0
    found, positions = np.unique(codes[~missing], return_inverse=True)
    index = np.full(len(codes), -1, dtype=np.intp)
    index[~missing] = positions
    parts: list[list[str]] = []
    for own in reversed(coded):
        found, place = np.divmod(found, max(len(own.categories), 1))
        parts.insert(0, [str(name) for name in own.categories[place]])
    return Coded(index, np.array(distinct([SEPARATOR.join(names) for names in zip(*parts, strict=True)])))


def distinct(names: list[str]) -> list[str]:
    """Return names that are all different as text; raise where two are not."""
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"Different labels have the same name as text: {twice[:5]}; rename them so that names differ.")
    return names


# As codes


def read_labels(y: Any) -> Coded:
    """Return the labels that occur, and the position of each row's among them; -1 where it is missing or masked.

    Names are sorted, or in the order of a categorical's categories; unused categories are left out.
    """
    y = _polars_enum(_from_xarray(y))
    accessor = getattr(y, "cat", y)
    codes, categories = getattr(accessor, "codes", None), getattr(accessor, "categories", None)
    if codes is not None and categories is not None:
        codes = np.asarray(codes)
        used, index = np.unique(codes, return_inverse=True)
        first = int((used < 0).any())  # the code of what is missing sorts first
        return Coded(index - first, name_array([plain_label(categories[c]) for c in used[first:]]))
    try:
        given = np.asarray(to_host(y))
    except ValueError as error:
        raise ValueError(f"y has labels of different lengths ({error}); {_ONE_EACH}") from error
    masked = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else np.zeros(given.shape, dtype=bool)
    if given.ndim == 2 and given.shape[1] == 1:
        given, masked = given[:, 0], masked[:, 0]
    if given.ndim != 1:
        return Coded(np.zeros(given.shape, dtype=np.intp), name_array([]))
    labels = plain_labels(given)
    missing = masked | _missing(labels)
    index = np.full(len(labels), -1, dtype=np.intp)
    known = labels[~missing]
    if labels.dtype != object:
        names, index[~missing] = np.unique(known, return_inverse=True)
        return Coded(index, names)
    plain = {label: plain_label(label) for label in _hashable(known.tolist())}
    ordered = sorted_names(plain.values())
    position = {name: i for i, name in enumerate(ordered)}
    places = {label: position[name] for label, name in plain.items()}
    index[~missing] = [places[v] for v in known.tolist()]
    return Coded(index, name_array(ordered))


def sorted_names(names: Iterable[Any]) -> list[Any]:
    """Return each name once, in the order of contexts: mixed types by type first."""
    try:
        return sorted(set(names), key=sort_key)
    except TypeError as error:
        raise TypeError(f"y has labels that have no order ({error}); pass them as text: y.astype(str).") from error


def _hashable(labels: list[Any]) -> set[Any]:
    """Return the labels that occur; raise where they are lists, sets or anything else that cannot be looked up."""
    try:
        return set(labels)
    except TypeError as error:
        kinds = sorted({type(v).__name__ for v in labels if getattr(type(v), "__hash__", None) is None})
        raise TypeError(f"y has labels of type {', '.join(kinds) or 'unknown'} ({error}); {_ONE_EACH}") from error


def encode_labels(y: Any, n: int) -> tuple[Array, Array]:
    """Return the context names that occur in y, one label for each of n rows, and the index of each row's name."""
    coded = read_labels(y)
    check_labels(coded.codes.shape, n, missing=int((coded.codes < 0).sum()))
    return coded.categories, coded.codes


def check_labels(shape: tuple[int, ...], n: int, missing: int) -> None:
    """Raise where labels are not one for each of n rows."""
    if len(shape) != 1 or shape[0] != n:
        raise ValueError(f"y has shape {shape} and X has {n} rows; pass one context label per row.")
    if missing:
        raise ValueError(f"y has {missing} missing labels; drop those rows, or give them a context of their own.")


def rows_by_context(codes: Array, k: int = 0) -> list[slice | Array]:
    """Return the rows of each context, for rows with contexts ``codes`` (n,) from 0 to k - 1, or to the largest code.

    Slices where the rows of every context stand together and in order, row numbers otherwise.
    """
    counts = np.bincount(codes, minlength=k)
    ends = np.cumsum(counts)
    if (np.diff(codes) >= 0).all():
        return [slice(end - n, end) for end, n in zip(ends.tolist(), counts.tolist(), strict=True)]
    # A stable sort keeps the rows of a context in the order of the matrix, which reads from disk depend on.
    return list(np.split(np.argsort(codes, kind="stable"), ends[:-1]))


def name_array(names: Sequence[Any]) -> Array:
    """Keep strings as strings and integers as integers; anything else as objects."""
    for kinds in (str, (int, np.integer)):
        if all(isinstance(n, kinds) and not isinstance(n, bool) for n in names):
            return np.array(names)
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _polars_enum(y: Any) -> Any:
    """Return a polars Series of type Enum, whose categories have an order, as codes; anything else as it is."""
    if type(y).__module__.partition(".")[0] != "polars" or type(getattr(y, "dtype", None)).__name__ != "Enum":
        return y
    physical = y.to_physical().to_numpy().astype(np.float64)  # NaN where the label is null
    return Coded(np.where(np.isnan(physical), -1, physical).astype(np.intp), np.array(y.dtype.categories.to_list()))


def _from_xarray(y: Any) -> Any:
    """Return what a DataArray of xarray holds, read into memory; so are columns of an AnnData that is read lazily."""
    if type(y).__module__.partition(".")[0] != "xarray":
        return y
    y = y.data
    return y.compute() if hasattr(y, "compute") else y


def _missing(labels: Array) -> Array:
    """Which labels are NaN, None, NaT or pandas' NA (n,)."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind in "mM":
        return np.isnat(labels)
    if labels.dtype != object:
        return np.zeros(len(labels), dtype=bool)
    return np.array([is_missing(v) for v in labels.tolist()], dtype=bool)


def is_missing(value: Any) -> bool:
    """Whether a label equals nothing, not itself either; pandas' NA does not even say that."""
    if isinstance(value, tuple):
        return any(map(is_missing, value))
    if value is np.ma.masked:
        return True
    different = value is None or value != value
    # Arrays as labels differ element by element: what they are is told where labels are looked up.
    return type(different).__name__ == "NAType" or (np.ndim(different) == 0 and bool(different))


def is_missing_text(text: str, na_values: Collection[str] = ()) -> bool:
    """Whether a label read from a text file is missing: blank, or one of ``na_values``.

    The texts in ``MISSING_TEXTS`` are not missing by themselves: "NA" is also the code of Namibia.
    """
    bare = text.strip()
    return bare == "" or bare in na_values
