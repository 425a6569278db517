"""Tables with names of columns, written as CSV, TSV or Parquet by Arrow, and as .xlsx by ``workbook_writing``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..._utils.optional import require
from ..._utils.types import Array
from .cells import guarded
from .workbook_writing import write_workbook


def write_table(columns: Mapping[str, Any], target: Any, format: str = "csv") -> None:
    """Write columns of equal length.

    Parameters
    ----------
    columns : mapping of str to array or list (n,)
        Numbers are written with all their digits, so that reading gives the same numbers back; NaN is left empty.
        Text that a spreadsheet would run (``=1+1``) gets an apostrophe in front in CSV and TSV, which our reader
        removes again.
    target : path or binary file
    format : {"csv", "tsv", "parquet", "xlsx"}
    """
    if format == "xlsx":
        if isinstance(target, (str, Path)):
            with open(target, "wb") as file:
                write_workbook(columns, file)
        else:
            write_workbook(columns, target)
        return
    pa = require("pyarrow", "cli")
    if format != "parquet":
        # Parquet has types and is not opened as a sheet of formulas: there text is written as it is.
        columns = {guarded(name): _guarded_values(values) for name, values in columns.items()}
    table = pa.table({name: _arrow_column(pa, values) for name, values in columns.items()})
    if isinstance(target, (str, Path)):
        # Opened by Python and not by Arrow: its errors have the words of the system, and ``strerror``.
        with open(target, "wb") as file:
            _write_arrow(table, file, format)
    else:
        _write_arrow(table, target, format)


def _write_arrow(table: Any, target: Any, format: str) -> None:
    if format == "parquet":
        require("pyarrow.parquet", "cli").write_table(table, target)
        return
    # Arrow writes the shortest digits that read back as the same number.
    arrow_csv = require("pyarrow.csv", "cli")
    options = arrow_csv.WriteOptions(delimiter="\t" if format == "tsv" else ",")
    arrow_csv.write_csv(table, target, options)


def matrix_columns(prefix: str, names: Any, matrix: Array, column_names: Any) -> dict[str, Any]:
    """Return the columns of a matrix with row names in a first column called ``prefix``."""
    columns: dict[str, Any] = {prefix: [str(name) for name in names]}
    columns |= {str(name): matrix[:, j] for j, name in enumerate(column_names)}
    return columns


def _guarded_values(values: Any) -> Any:
    # Arrays of numbers have nothing to guard, and need not be walked through.
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OUS":
        return values
    return [guarded(value) if isinstance(value, str) else value for value in values]


def _arrow_column(pa: Any, values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        # As null: Arrow writes nothing for that, and "nan" for NaN, which not every reader takes.
        return pa.array(np.ascontiguousarray(values), from_pandas=True)
    return pa.array(values.tolist() if isinstance(values, np.ndarray) else values)
