"""A DataArray of xarray as one matrix: its first dimension are rows, its second features.

Both go by their coordinates where they have some: features as columns of a DataFrame do, rows as its index. Labels of
rows are named as columns are, by any coordinate along the first dimension. Data on Dask stay there. Scores of a
DataArray are one again (``scores_like``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from .label_kinds import plain_label

MCPC = "mcpc"  # the dimension of MCPCs


def is_dataarray(X: Any) -> bool:
    """Whether X is a DataArray; xarray is not imported."""
    cls = type(X)
    is_of_xarray = any(base.__module__.partition(".")[0] == "xarray" for base in cls.__mro__)
    return is_of_xarray and hasattr(cls, "dims") and hasattr(cls, "isel") and not hasattr(cls, "data_vars")


def check_two_dimensions(X: Any, where: str) -> tuple[str, str]:
    """Return the dimensions of rows and of features; raise unless there are just these two."""
    dims = tuple(X.dims)
    if len(dims) == 2:
        return dims
    if len(dims) < 2:
        raise ValueError(
            f"{where} is a DataArray with the dimensions {dims}; two are needed, rows first and features second."
        )
    # ``stack`` puts the new dimension last.
    last, first = dims[1:], dims[:-1]
    raise ValueError(
        f"{where} is a DataArray with the dimensions {dims}; two are needed, rows first and features second. If only "
        f"{dims[0]!r} are rows, pass X.stack(features={last}); if {dims[-1]!r} alone are features, "
        f"X.stack(rows={first}).transpose(), with y={dims[0]!r} if these are the contexts."
    )


def dataarray_matrix(X: Any, where: str) -> tuple[Any, list[Any] | None]:
    """Return the array in a DataArray, and the names of its features: their coordinate, None if they have none."""
    _, features = check_two_dimensions(X, where)
    index = X.indexes.get(features)
    # Plain, so that a moment is the same name whichever library it comes from, and a model can be saved.
    return X.data, None if index is None else [plain_label(name, where) for name in index.tolist()]


def row_names_of(X: Any) -> Any:
    """Return the pandas index of the first dimension; None if it has none."""
    return X.indexes.get(X.dims[0]) if X.ndim else None


class RowCoordinates:
    """The coordinates along the rows of a DataArray, as a table with columns."""

    def __init__(self, X: Any) -> None:
        self._X = X
        self._dims = check_two_dimensions(X, "X")
        self.columns = [str(name) for name, c in X.coords.items() if c.dims == self._dims[:1]]
        # Those of features, by which rows cannot be labelled: most often X has to be transposed.
        self.of_features = [str(name) for name, c in X.coords.items() if c.dims == self._dims[1:]]

    @property
    def where(self) -> str:
        """What errors call this table."""
        rows, features = self._dims
        others = f" ({', '.join(map(repr, self.of_features))} go with {features!r}: X.transpose() exchanges them)"
        return f"X, a DataArray, along {rows!r}{others if self.of_features else ''}"

    def __len__(self) -> int:
        return int(self._X.shape[0])

    def __getitem__(self, name: str) -> Any:
        values = self._X.coords[name].data
        return values.compute() if hasattr(values, "compute") else values


def scores_like(X: Any, scores: Any, names: Sequence[str]) -> Any:
    """Return scores (n, r) as a DataArray with the rows of X and their coordinates, and the ``names`` of MCPCs."""
    return _with_columns(X, scores, MCPC, list(names), "scores")


def rows_like(scores: Any, rows: Any, names: Array | None) -> Any:
    """Return rows (n, p) as a DataArray with the rows of ``scores``, another DataArray, and names of features."""
    return _with_columns(scores, rows, "feature", None if names is None else names.tolist(), None)


def _with_columns(like: Any, values: Any, dimension: str, names: list[Any] | None, name: str | None) -> Any:
    xarray = require("xarray", "xarray")
    rows, columns = like.dims
    # Without values: the coordinates alone, those of columns dropped.
    coords = like.isel({columns: 0}, drop=True).coords
    result = xarray.DataArray(values, dims=(rows, dimension), coords=coords, name=name)
    return result if names is None else result.assign_coords(column_coordinate(dimension, names))


def column_coordinate(dimension: str, names: list[Any]) -> Any:
    """Return the coordinate with these names; tuples become levels, as ``stack`` makes them."""
    if names and all(isinstance(name, tuple) for name in names):
        index = require("pandas", "xarray").MultiIndex.from_tuples(names)
        index.names = [f"{dimension}_{level}" for level in range(index.nlevels)]
        return require("xarray", "xarray").Coordinates.from_pandas_multiindex(index, dimension)
    values = np.array(names)
    # Mixed types: NumPy would make text of numbers.
    return {dimension: values if len({type(name) for name in names}) == 1 else np.array(names, dtype=object)}
