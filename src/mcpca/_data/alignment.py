"""One rule for names: features are matched by column name and rows by index; what has no names goes by position.

It applies wherever two tables meet: contexts of one fit (``in_first_order``), new rows and a fit (``in_fitted_order``),
labels and rows (``in_row_order``), values and contexts (``by_name``).

Names are compared as they are, whatever their type. Rows have an index in pandas and as ``obs_names`` of an AnnData;
polars has none, and of a Dask DataFrame only the divisions are looked at. Columns called 0, 1, ..., p - 1 are what
pandas calls those of an array, so they count as positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from ..exceptions import ExtraFeaturesWarning
from .columns import dask_columns, frame_columns, is_arrow_table, positions_of
from .detect import InputKind, anndata_parts, index_of, input_kind, is_dask, is_source_like
from .sources import as_source, columns_source
from .xarray_rows import dataarray_matrix, is_dataarray, row_names_of

_WITHOUT = "Pass them all, fit on the features that both have, or let transform and loadings_for take missing='union'."

# Features


def column_names(X: Any) -> list[Any] | None:
    """Return the names of a DataFrame's columns (pandas, polars, Dask, pyarrow), None for anything that has none."""
    kind = type(X)
    if kind.__name__ == "LazyFrame" and kind.__module__.partition(".")[0] == "polars":
        raise TypeError("X is a polars LazyFrame, which has no rows until it is collected; pass X.collect().")
    if is_arrow_table(X):
        return list(X.column_names)
    # A coordinate of a DataArray is an attribute of it, and may be called so.
    return list(X.columns) if hasattr(X, "columns") and not is_dataarray(X) else None


class NamedMatrix(NamedTuple):
    """One matrix in any form, its kind, and the names of its features; None where they have none."""

    X: Any
    kind: InputKind
    names: list[Any] | None


def matrix_and_names(X: Any, where: str, kind: InputKind | None = None) -> NamedMatrix:
    """Return a matrix with the names of its features: columns, ``var_names``, or columns of blocks that are frames.

    What is read block by block is opened, which is how its names become known.
    """
    kind = input_kind(X) if kind is None else kind
    # The matrix of an AnnData has a kind of its own: it may be dense, sparse, in a file or on Dask.
    if kind is InputKind.ANNDATA:
        matrix, names = anndata_parts(X)
        return NamedMatrix(matrix, input_kind(matrix), names.tolist())
    if kind is InputKind.DATAARRAY:
        array, features = dataarray_matrix(X, where)
        return NamedMatrix(array, input_kind(array), features)
    # Columns before sources: a frame has its names in memory, while opening a source may read from a file.
    columns = column_names(X)
    if columns is None and is_source_like(X, kind):
        source = as_source(X, where, kind)
        return NamedMatrix(source, InputKind.SOURCE, getattr(source, "feature_names", None))
    return NamedMatrix(X, kind, columns)


def are_positions(names: Sequence[Any]) -> bool:
    """Whether names are 0, 1, ..., p - 1, which pandas gives to columns that have none."""
    return all(not isinstance(n, str) and n == j for j, n in enumerate(names))


def in_fitted_order(
    X: Any, known: Sequence[Any] | None, p: int, where: str, kind: InputKind | None = None
) -> tuple[Any, bool]:
    """Return the matrix in X with the features of a fit in their order, and whether they were matched by name.

    Parameters
    ----------
    X : one matrix, in any form that ``fit`` takes
    known : sequence of p names, or None
        Of the fitted features. Without them columns go by position: as they come, or as their integer names say.
    p : int
    where : str
        What to call it in errors.
    kind : InputKind, optional
        That of X, where the caller has asked already.

    Notes
    -----
    Features that the fit does not have are left out, with a warning unless X is an AnnData. Nothing in memory is copied
    if the order is right; what is read block by block is put in order block by block.
    """
    kind = input_kind(X) if kind is None else kind
    matrix = matrix_and_names(X, where, kind)
    names = matrix.names
    if names is None:
        return matrix.X, False
    if known is None:
        # Fitted on an array: only columns that are a permutation of its positions can be put in its order.
        is_permutation = len(names) == p and not are_positions(names) and set(names) == set(range(p))
        if not is_permutation:
            return matrix.X, False
        known = range(p)
    # A frame made of an array, without names: by position, unless the fitted features are themselves called 0, 1, ...
    if are_positions(names) and not set(known) <= set(names):
        return matrix.X, False
    # None if the features are the same ones in the same order, so that the usual case copies nothing.
    places = positions_of(known, names, where, "of the fit", _WITHOUT)
    extra = len(names) - len(known)
    # An AnnData usually holds all genes where only the variable ones were fitted: no warning.
    if extra and kind is not InputKind.ANNDATA:
        fitted = set(known)
        others = [name for name in names if name not in fitted]
        warn(
            f"{where} has {extra} features that the fit does not have; they are left out: {quoted(others)}.",
            ExtraFeaturesWarning,
        )
    return with_columns(matrix, places, where).X, True


def with_columns(matrix: NamedMatrix, places: Array | None, where: str) -> NamedMatrix:
    """Return some columns of a matrix in any form, in this order; None is all of them, as they are."""
    if places is None:
        return matrix
    X, kind, names = matrix
    chosen_names = None if names is None else [names[j] for j in places]
    # A frame stays a frame and a Dask array lazy; anything else becomes a source, which selects as it reads.
    if hasattr(X, "columns"):  # of pandas, polars or Dask
        return NamedMatrix(frame_columns(X, places), kind, chosen_names)
    if kind is InputKind.DASK:
        return NamedMatrix(dask_columns(X, places), kind, chosen_names)
    return NamedMatrix(columns_source(X, places, where, kind), InputKind.SOURCE, chosen_names)


def in_first_order(
    blocks: Sequence[Any], wheres: Sequence[str], kinds: Sequence[InputKind] | None = None
) -> tuple[list[NamedMatrix], list[Any] | None]:
    """Return the matrices of several contexts with their features in one order, and the names in that order.

    The order is that of the first context with names. All others with names must have the same ones; those without
    go by position.
    """
    kinds = [input_kind(block) for block in blocks] if kinds is None else kinds
    matrices = list(map(matrix_and_names, blocks, wheres, kinds))
    # Not simply the first context: an array, which has no names, may stand before a table that has some.
    reference = next((matrix.names for matrix in matrices if matrix.names is not None), None)
    if reference is None:
        return matrices, None
    way_out = "Select the columns that all contexts have, or fit with missing='union'."
    for i, (matrix, where) in enumerate(zip(matrices, wheres, strict=True)):
        if matrix.names is not None:
            # Exactly the same names: to leave out what some context lacks would change the fit without a word.
            places = positions_of(reference, matrix.names, where, "of the first context", way_out, exactly=True)
            matrices[i] = with_columns(matrix, places, where)
    return matrices, reference


def check_same_width(names: Sequence[Any], widths: Sequence[int]) -> None:
    """Raise where the contexts ``names`` have different numbers of features."""
    for name, p in zip(names, widths, strict=True):
        if p != widths[0]:
            raise ValueError(
                f"Contexts must share their features: context {names[0]!r} has {widths[0]} and context {name!r} has "
                f"{p}. Select the common ones, or pass DataFrames to have them aligned by name."
            )


def square_in_order(X: Any, known: Array | None) -> Any:
    """Return a pandas table whose rows and columns are both named by ``known`` in that order; anything else as it is.

    For covariances, whose rows have to be permuted with the columns.
    """
    # Columns alone must not be permuted: that would leave a matrix that is not symmetric.
    is_table = hasattr(X, "loc") and getattr(X, "ndim", 0) == 2 and not is_dask(X)
    if known is None or not is_table:
        return X
    names = known.tolist()
    index = row_index(X)
    # Otherwise it may be a table of rows and no covariance: left to the caller, who aligns its columns.
    if index is None or not index.is_unique or not set(names) <= set(index) & set(X.columns):
        return X
    return X.loc[names, names]


def covariance_tables(S: Any) -> tuple[Any, list[Any] | None, list[Any] | None]:
    """Return covariances as a stack (k, p, p), the names of features, and those of contexts if S is a dict.

    Pandas tables are put in the order of the first one's columns; a stack stays as it is and has no names.
    """
    blocks = list(S.values()) if isinstance(S, Mapping) else S
    tables = isinstance(blocks, (list, tuple)) and len(blocks) > 0 and all(hasattr(block, "loc") for block in blocks)
    if not tables:
        return blocks, None, list(S) if isinstance(S, Mapping) else None
    names = list(blocks[0].columns)
    for i, block in enumerate(blocks):
        for axis, axis_names in (("rows", list(block.index)), ("columns", list(block.columns))):
            if len(axis_names) != len(names) or set(axis_names) != set(names):
                raise ValueError(
                    f"S[{i}] has {axis} {quoted(axis_names)} where the columns of the first are {quoted(names)}; name "
                    "the rows and the columns of every covariance by the same features."
                )
    # Each (p, p) is permuted on both axes, and then stacked to (k, p, p).
    stack = np.stack([np.asarray(block.loc[names, names]) for block in blocks])
    return stack, names, list(S) if isinstance(S, Mapping) else None


# Rows


def row_index(X: Any, kind: InputKind | None = None) -> Any:
    """Return the pandas index of rows or values, also that of a DataArray, or ``obs_names`` of an AnnData, or None."""
    kind = input_kind(X) if kind is None else kind
    if kind is InputKind.ANNDATA:
        return index_of(X, "obs")
    if kind is InputKind.DATAARRAY:
        return row_names_of(X)
    # Lists and tuples have an ``index`` too, their method; only pandas' own can look names up.
    index = getattr(X, "index", None) if kind in (InputKind.FRAME, InputKind.SERIES) else None
    return index if hasattr(index, "get_indexer") else None


def in_row_order(X: Any, y: Any, kind: InputKind | None = None, argument: str = "y") -> Any:
    """Return labels y in the order of the rows of X, by index where both have one; otherwise as they are.

    ``kind`` is that of X, and ``argument`` what errors call y. Different numbers of rows are left to the caller, who
    counts them.
    """
    if y is None:
        return None
    kind = input_kind(X) if kind is None else kind
    if kind is InputKind.DASK and getattr(X, "known_divisions", False):
        _check_sorted(X, y)
    rows_index = row_index(X, kind)
    # The index of y is not even looked for if X has none: labels of a table go to the rows of an array by position.
    labels_index = None if rows_index is None else row_index(y)
    if rows_index is None or labels_index is None or len(rows_index) != len(labels_index):
        return y
    places = places_of_rows(rows_index, labels_index, argument)
    if places is None:
        return y
    return y.isel({y.dims[0]: places}) if is_dataarray(y) else y.iloc[places]


def _check_sorted(X: Any, y: Any) -> None:
    """Raise if labels cannot be in the order of a Dask DataFrame with known divisions, which is sorted by its index.

    The index itself is on the workers; its first and last name are known here, and enough to find most mistakes.
    """
    index = row_index(y)
    first = X.divisions[0]
    last = X.divisions[-1]
    # Partitions are sorted by index, so labels in the order of the rows have a sorted index within the divisions.
    if index is not None:
        differs = not index.is_monotonic_increasing or (len(index) > 0 and (index[0] < first or index[-1] > last))
    else:
        differs = getattr(y, "known_divisions", False) and (y.divisions[0], y.divisions[-1]) != (first, last)
    if differs:
        raise ValueError(
            f"y has another index than X, a Dask DataFrame that is sorted by its index, from {first!r} to {last!r}: "
            "its labels would go to the wrong rows. Sort both by the same index, or pass the labels as an array in the "
            "order of the rows."
        )


def places_of_rows(rows: Any, index: Any, argument: str, *, some_missing: bool = False) -> Array | None:
    """Return the position of each of the ``rows`` (their index) in the ``index`` of a table; None where both are equal.

    ``argument`` is what errors call the table. ``some_missing`` allows it to lack some of the rows, which then have
    -1, but not all of them: that is an index of something else.
    """
    # Before the test for repeated names: equal ones, repeated or not, leave nothing to be matched.
    if index.equals(rows):
        return None
    for names, whose in ((index, argument), (rows, "X")):
        if not names.is_unique:
            repeated = names[names.duplicated()][0]
            raise ValueError(
                f"{whose} names row {repeated!r} more than once, and {argument} has another index than X: which value "
                f"belongs to which row is ambiguous. Give every row its own name, or pass {argument}.to_numpy() in the "
                "order of the rows."
            )
    places = np.asarray(index.get_indexer(rows))
    missing = places < 0
    # -1 from ``get_indexer`` would be taken for the last row by ``iloc``, so rows without a value must not get through.
    if missing.all() if some_missing else missing.any():
        raise ValueError(
            f"{argument} has an index with other names than the rows of X: {missing.sum()} of {len(rows)} rows have no "
            f"value, {quoted(rows[missing].tolist())}, and {argument} begins with {quoted(index[:3].tolist())}. Give "
            f"both the same index, or pass {argument}.to_numpy() if it is in the order of the rows."
        )
    return places


def by_name(values: Any, names: Sequence[Any], argument: str, whose: str) -> Any:
    """Return a pandas Series in the order of ``names``, which must be its index; anything else as it is."""
    # A DataFrame has an index as well, but its values are not one for each name.
    index = None if getattr(values, "ndim", 0) != 1 else row_index(values)
    if index is None:
        return values
    if len(index) != len(names) or not index.is_unique or not set(index) == set(names):
        raise ValueError(
            f"{argument} has the index {quoted(index.tolist())}, and {whose} are {quoted(list(names))}: give it "
            f"one value for each by name, or pass {argument}.to_numpy() in their order."
        )
    return values.loc[list(names)]
