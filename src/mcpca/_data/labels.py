"""Labels of rows: taken from an array, a column or several crossed columns, and turned into codes.

``take_labels`` separates labels from X, for every method that takes X and y. ``read_labels`` then turns labels of any
library and type into ``Coded``, integers with the names they stand for, and ``rows_by_context`` turns the integers into
rows. Which types may be labels at all is decided in ``label_kinds``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.wording import close_names, quoted
from .alignment import column_names, in_row_order
from .columns import is_arrow_table
from .detect import InputKind, input_kind
from .label_kinds import plain_label, plain_labels, sort_key
from .xarray_rows import RowCoordinates

SEPARATOR = " / "  # between the names of crossed contexts
# What other programs write for a missing value. As labels these are kept, since "NA" may well be a name, with a warning
# (``doubtful_labels``).
MISSING_TEXTS = frozenset({"NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"})
_LISTED_COLUMNS = 10  # in the error for a column that does not exist; a table of genes has thousands
_ONE_PER_ROW = (
    "pass one context label per row, such as text or a number; tuple(label) for a list, str(sorted(label)) for a set."
)


class Coded(NamedTuple):
    """Labels as a categorical: ``codes`` (n,) are positions in ``categories``, -1 where a label is missing."""

    codes: Array
    categories: Array


# Columns with labels


def label_columns(X: Any, y: Any, kind: InputKind | None = None, argument: str = "y") -> list[str]:
    """Return the columns that ``y`` names, of a DataFrame, ``obs`` or coordinates of rows; none if y is the labels.

    A string is the name of a column. A list of strings is several of them, unless it has an entry for every row or
    none of them is a column: then they are labels. ``argument`` is what errors call them.
    """
    if not isinstance(y, str) and not are_names(y):
        return []
    kind = input_kind(X) if kind is None else kind
    table, where = table_of(X, kind)
    columns = column_names(table)
    if isinstance(y, str):
        if columns is None and kind in (InputKind.SEQUENCE, InputKind.MAPPING):
            return []  # separate contexts take no y, which is an error where they are read
        return check_column_names([y], columns or [], argument, where, "or the labels themselves")
    # As many entries as rows are labels, even if columns happen to have the same names.
    if columns is None or len(set(y) & set(columns)) == 0 or len(y) == len(table):
        return []
    return check_column_names(list(y), columns, argument, where, "or the labels themselves")


def are_names(value: Any) -> bool:
    """Whether a value is a list or tuple of text, as several names of columns are."""
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, str) for v in value)


def table_of(X: Any, kind: InputKind) -> tuple[Any, str]:
    """Return the table whose columns may be named, X, ``obs`` or coordinates of rows, and what errors call it."""
    if kind is InputKind.DATAARRAY:
        coordinates = RowCoordinates(X)
        return coordinates, coordinates.where
    return (X.obs, "adata.obs") if kind is InputKind.ANNDATA else (X, "X")


def check_column_names(
    names: list[str], columns: list[Any], argument: str, where: str, otherwise: str, is_not: str = "is not a column of"
) -> list[str]:
    """Return ``names``; raise if one is not among the ``columns``, with suggestions, or occurs more than once.

    ``otherwise`` says in the error what else the argument may be.
    """
    for name in names:
        if name not in columns:
            present = [str(c) for c in columns]
            near = close_names(name, present)
            hint = f"; did you mean {' or '.join(map(repr, near))}? Pass" if near else "; pass"
            raise ValueError(
                f"{argument}={name!r} {is_not} {where}, which has {quoted(present, _LISTED_COLUMNS)}{hint} the name of "
                f"one, {otherwise}."
            )
        # Of a repeated column pandas returns a table, which is not one label per row.
        if columns.count(name) > 1 or names.count(name) > 1:
            raise ValueError(f"{argument}={name!r} names a column of {where} twice; give every column its own name.")
    return names


def take_labels(X: Any, y: Any, kind: InputKind | None = None) -> tuple[Any, Any]:
    """Return X without its label columns, and the labels of its rows.

    Where ``y`` names columns, these are taken out of X, and crossed if they are several; an AnnData, which has them in
    ``obs``, stays as it is. Where ``y`` is the labels, they are put in the order of the rows if both have an index.
    """
    if y is None:
        return X, None
    kind = input_kind(X) if kind is None else kind
    names = label_columns(X, y, kind)
    if not names:
        return X, in_row_order(X, y, kind)
    table, _ = table_of(X, kind)
    if len(names) == 1:
        labels = table[names[0]]
    # Which combinations occur is known only from the labels of all columns, and those are on the workers.
    elif hasattr(X, "npartitions"):
        raise ValueError(f"y={names}: columns of a Dask DataFrame are not crossed; join them in one, and name it.")
    else:
        labels = cross_labels([table[name] for name in names])
    return X if kind is InputKind.ANNDATA else without_columns(X, names), labels


def without_columns(X: Any, names: Sequence[str]) -> Any:
    """Return a DataFrame without those of these columns that it has; anything else as it is."""
    columns = column_names(X) if names else None
    if columns is None or not set(names) & set(columns):
        return X
    others = [c for c in columns if c not in names]
    # Selection by a list of names is what pandas, polars and Dask have in common.
    return X.select(others) if is_arrow_table(X) else X[others]


def cross_labels(columns: Sequence[Any], argument: str = "y") -> Coded:
    """Return the combinations of labels that occur, "a / b", in the order of the first column, then the second, ...

    A row that lacks a label in any column has none.
    """
    coded = [read_labels(column, argument) for column in columns]
    # A combination is a number whose digits are the codes of its columns, in the mixed radix of their numbers of
    # categories, so that sorting the numbers sorts by the first column, then the second, and so on.
    combined = coded[0].codes.astype(np.int64)
    missing = combined < 0
    # Exact while the product of the numbers of categories is below 2^63. A code of -1 spoils the number of its row,
    # which is why those rows are noted and left out.
    for column in coded[1:]:
        combined = combined * len(column.categories) + column.codes
        missing |= column.codes < 0
    present, positions = np.unique(combined[~missing], return_inverse=True)
    codes = np.full(len(combined), -1, dtype=np.intp)
    codes[~missing] = positions
    # The digits back again, the last first.
    parts: list[list[str]] = []
    for column in reversed(coded):
        # At least 1, since a column may have no label at all; there is then nothing to divide.
        present, digits = np.divmod(present, max(len(column.categories), 1))
        parts.insert(0, [str(name) for name in column.categories[digits]])
    return Coded(codes, np.array(distinct([SEPARATOR.join(names) for names in zip(*parts, strict=True)])))


def distinct(names: list[str]) -> list[str]:
    """Return ``names``, labels as text; raise if two labels that differ, such as 1 and "1", are the same text."""
    # Also caught are "a / b" crossed with "c" and "a" crossed with "b / c", which read the same.
    if len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"Different labels have the same name as text: {repeated[:5]}; rename them so that names differ."
        )
    return names


# Codes


def read_labels(y: Any, argument: str = "y") -> Coded:
    """Return labels of any library as codes; those that are missing or masked have -1.

    Categories are the labels that occur: sorted, or in the order that a categorical gives them. Labels that are not
    1-D have codes of their shape, so that the caller, who knows how many there should be, can refuse them.
    ``argument`` is what errors call the labels.
    """
    y = _polars_enum(_from_xarray(y))
    accessor = getattr(y, "cat", y)  # of a Series; a Categorical, or ``Coded``, has these itself
    codes = getattr(accessor, "codes", None)
    categories = getattr(accessor, "categories", None)
    if codes is not None and categories is not None:
        # Categories without rows are dropped, or they would become empty contexts; the order of the others is kept.
        # With the -1 sorted first, subtracting 1 makes index -1 for missing labels and 0 for the first category in use.
        used, index = np.unique(np.asarray(codes), return_inverse=True)
        first = int((used < 0).any())  # -1, for missing labels, sorts first
        return Coded(index - first, name_array([plain_label(categories[c]) for c in used[first:]]))
    try:
        values = np.asarray(to_host(y))
    except ValueError as error:
        raise ValueError(f"{argument} has labels of different lengths ({error}); {_ONE_PER_ROW}") from error
    # From y itself: np.asarray above has dropped the mask, and shows the values beneath it.
    masked = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else np.zeros(values.shape, dtype=bool)
    # A column vector, as a DataFrame with a single column gives it.
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
        masked = masked[:, 0]
    if values.ndim != 1:
        return Coded(np.zeros(values.shape, dtype=np.intp), name_array([]))
    labels = plain_labels(values)
    missing = masked | _missing(labels)
    if labels.dtype != object and not missing.any():
        return Coded(*_coded(labels))
    index = np.full(len(labels), -1, dtype=np.intp)
    present = labels[~missing]
    if labels.dtype != object:
        index[~missing], names = _coded(present)
        return Coded(index, names)
    # Objects may have mixed types, which np.unique cannot sort, and several that mean the same, such as a Timestamp and
    # a datetime: distinct labels become plain ones first, and these are sorted.
    plain = {label: plain_label(label, argument) for label in _hashable(present.tolist(), argument)}
    ordered = sorted_names(plain.values(), argument)
    position = {name: i for i, name in enumerate(ordered)}
    code_of = {label: position[name] for label, name in plain.items()}
    index[~missing] = [code_of[label] for label in present.tolist()]
    return Coded(index, name_array(ordered))


def _coded(labels: Array) -> tuple[Array, Array]:
    """Return the place (n,) of each label among the distinct ones, and these, sorted."""
    # Rows of a context mostly stand together. Then one label for each run is sorted, and not one for each row.
    starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]])) if len(labels) else np.arange(0)
    names, index = np.unique(labels[starts], return_inverse=True)
    return np.repeat(index, np.diff(starts, append=len(labels))), names


def sorted_names(names: Iterable[Any], argument: str = "y") -> list[Any]:
    """Return each name once, in the order of contexts: mixed types by type first."""
    try:
        # An order that depends on the names alone: contexts are numbered the same whatever the order of rows.
        return sorted(set(names), key=sort_key)
    except TypeError as error:
        raise TypeError(
            f"{argument} has labels that cannot be sorted ({error}); pass them as text: {argument}.astype(str)."
        ) from error


def _hashable(labels: list[Any], argument: str) -> set[Any]:
    """Return the distinct labels; raise if they are lists, sets or anything else that cannot be a dict key."""
    try:
        return set(labels)
    except TypeError as error:
        kinds = sorted({type(v).__name__ for v in labels if getattr(type(v), "__hash__", None) is None})
        raise TypeError(
            f"{argument} has labels of type {', '.join(kinds) or 'unknown'} ({error}); {_ONE_PER_ROW}"
        ) from error


def encode_labels(y: Any, n: int) -> tuple[Array, Array]:
    """Return the names of the contexts in ``y``, one label for each of n rows, and the code of each row (n,)."""
    coded = read_labels(y)
    check_labels(coded.codes.shape, n, missing=int((coded.codes < 0).sum()))
    return coded.categories, coded.codes


def check_labels(shape: tuple[int, ...], n: int, missing: int) -> None:
    """Raise unless there is one label for each of n rows, and none is missing."""
    if len(shape) != 1 or shape[0] != n:
        raise ValueError(f"y has shape {shape} and X has {n} rows; pass one context label per row.")
    if missing:
        raise ValueError(f"y has {missing} missing labels; drop those rows, or give them a context of their own.")


def rows_by_context(codes: Array, k: int = 0) -> list[slice | Array]:
    """Return the rows of each context, for rows with contexts ``codes`` (n,) from 0 to k - 1, or to the largest code.

    Slices where the rows of every context stand together and in order, row numbers otherwise.
    """
    # minlength: contexts at the end without rows get empty slices, and the result always has k entries.
    counts = np.bincount(codes, minlength=k)
    ends = np.cumsum(counts)
    if (codes[1:] >= codes[:-1]).all():
        return [slice(end - n, end) for end, n in zip(ends.tolist(), counts.tolist(), strict=True)]
    # A stable sort keeps the rows of a context in the order of the matrix, which reads from disk depend on.
    return list(np.split(np.argsort(codes, kind="stable"), ends[:-1]))


def rows_of_codes(codes: Array, k: int) -> list[slice | Array]:
    """Return the rows of each of k contexts, where rows may have none (-1)."""
    if codes.min(initial=0) >= 0:
        return rows_by_context(codes, k)
    labelled = np.flatnonzero(codes >= 0)
    # ``rows_by_context`` counts codes from 0 on, so rows with -1 are left out, and positions mapped back afterwards.
    return [labelled[part] for part in rows_by_context(codes[labelled], k)]


def n_rows(rows: slice | Array) -> int:
    """Return how many rows these are."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def as_numbers(rows: slice | Array) -> Array:
    """Return rows of a context, which ``rows_by_context`` may have as a slice, as numbers."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def name_array(names: Sequence[Any]) -> Array:
    """Return names as an array: strings as strings, integers as integers, anything else as objects."""
    # Without objects NumPy would turn [1, "a"] into two strings, and a list of tuples into a matrix.
    for kinds in (str, (int, np.integer)):
        if all(isinstance(n, kinds) and not isinstance(n, bool) for n in names):
            return np.array(names)
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _polars_enum(y: Any) -> Any:
    """Return a polars Series of type Enum as codes, to keep the order of its categories; anything else as it is."""
    if type(y).__module__.partition(".")[0] != "polars" or type(getattr(y, "dtype", None)).__name__ != "Enum":
        return y
    physical = y.to_physical().to_numpy().astype(np.float64)  # NaN where the label is null
    return Coded(np.where(np.isnan(physical), -1, physical).astype(np.intp), np.array(y.dtype.categories.to_list()))


def _from_xarray(y: Any) -> Any:
    """Return the values of an xarray DataArray, read into memory; columns of a lazily read AnnData are such arrays."""
    if type(y).__module__.partition(".")[0] != "xarray":
        return y
    # ``values`` would be a NumPy array, in which a categorical loses the order of its categories.
    y = y.data
    return y.compute() if hasattr(y, "compute") else y


def _missing(labels: Array) -> Array:
    """Return which labels are NaN, None, NaT or pandas' NA (n,)."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind in "mM":
        return np.isnat(labels)
    if labels.dtype != object:
        return np.zeros(len(labels), dtype=bool)
    return np.array([is_missing(v) for v in labels.tolist()], dtype=bool)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT, masked, pandas' NA, or a tuple with one of these."""
    if isinstance(value, tuple):
        return any(map(is_missing, value))
    if value is np.ma.masked:
        return True
    # NaN and NaT differ from themselves; pandas' NA compares to NA, which is neither true nor false.
    differs_from_itself = value is None or value != value
    if type(differs_from_itself).__name__ == "NAType":
        return True
    # Arrays compare element by element; as labels they are refused later, with an error about their type.
    return np.ndim(differs_from_itself) == 0 and bool(differs_from_itself)


def is_missing_text(text: str, na_values: Collection[str] = ()) -> bool:
    """Whether a label read from a text file is missing: blank, or one of ``na_values``.

    The texts in ``MISSING_TEXTS`` are not missing by themselves: "NA" is also the code of Namibia.
    """
    bare = text.strip()
    return bare == "" or bare in na_values
