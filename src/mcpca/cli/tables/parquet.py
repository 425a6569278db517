"""Parquet, read in batches by Arrow; a ``Table`` for ``tabular``, like ``delimited``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._utils.optional import require
from ._errors import UnusableFileError, reason, short
from .columns import check_table_columns

_BATCH_BYTES = 2**25  # of rows read at a time, about
_MOST_BATCH_ROWS = 2**16
_PANDAS_INDEX = "__index_level_0__"  # how pandas stores an index without a name


class ParquetTable:
    """A Parquet file; ``columns``, ``text``, ``index`` and ``read`` as in ``DelimitedTable``."""

    format = "Parquet"
    left_out: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        self.read = 0.0
        pa = require("pyarrow", "cli")
        parquet = require("pyarrow.parquet", "cli")
        try:
            # The footer alone, which has names, types and the number of rows: no row is read yet.
            with parquet.ParquetFile(str(path)) as file:
                schema = file.schema_arrow
                self.n_rows = int(file.metadata.num_rows)
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(error) from error
        self.columns = [str(name) for name in schema.names]
        check_table_columns(self.columns, self.where)
        if self.n_rows == 0:
            raise UnusableFileError(self.where, "has no rows.")
        types = dict(zip(self.columns, schema.types, strict=True))
        # By type and not by content: Parquet says what a column is, and text that looks like numbers is text.
        is_numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
        self.text = frozenset(name for name, kind in types.items() if not any(test(kind) for test in is_numeric))
        self.nested = frozenset(name for name, kind in types.items() if pa.types.is_nested(kind))
        self.index = _index_of_pandas(schema.metadata or {}, self.columns)

    def batches(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow record batches of these columns; missing values are null."""
        pa = require("pyarrow", "cli")
        parquet = require("pyarrow.parquet", "cli")
        # Eight bytes a number: wide tables get fewer rows at a time, and narrow ones no more than need be.
        step = int(np.clip(_BATCH_BYTES // (8 * max(len(numbers), 1)), 1, _MOST_BATCH_ROWS))
        wanted = [*numbers, *texts]
        # Named before Arrow fails on the cast with a message about types.
        lists = [name for name in texts if name in self.nested]
        if lists:
            raise UnusableFileError(self.where, f"its column {lists[0]!r} holds lists, which are not text.")
        try:
            with parquet.ParquetFile(str(self.path)) as file:
                n = 0
                for batch in file.iter_batches(batch_size=step, columns=wanted):
                    n += batch.num_rows
                    self.read = n / self.n_rows
                    # By name, so that nothing depends on the order in which Arrow gives the columns.
                    chosen = [batch.column(batch.schema.get_field_index(name)) for name in wanted]
                    chosen[len(numbers) :] = [_texts(pa, column) for column in chosen[len(numbers) :]]
                    yield pa.RecordBatch.from_arrays(chosen, names=wanted)
        except pa.ArrowCancelled:  # Ctrl-C, which Arrow has caught
            raise KeyboardInterrupt from None
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(error) from error

    def place(self, row: int, column: str) -> str:
        """Return where a value is in the file, in words; ``row`` is counted from 0."""
        return f"row {row + 1:,}, column {short(column)!r}"

    def _damaged(self, error: Exception) -> UnusableFileError:
        return UnusableFileError(
            self.where, f"is a truncated or damaged Parquet file ({reason(error)}); copy it again."
        )


def _index_of_pandas(metadata: Mapping[bytes, bytes], columns: Sequence[str]) -> str | None:
    """Return the column that was the index of a DataFrame, if pandas has written one."""
    try:
        stored = json.loads(metadata.get(b"pandas", b"{}"))["index_columns"]
    # Without an index, or written by something else.
    except (ValueError, KeyError, TypeError):
        stored = []
    names = [name for name in stored if isinstance(name, str) and name in columns]
    if len(names) == 1:
        return names[0]
    return _PANDAS_INDEX if _PANDAS_INDEX in columns else None


def _texts(pa: Any, column: Any) -> Any:
    """Return a column as strings; NaN becomes null, and not the text "nan"."""
    if pa.types.is_floating(column.type):
        column = pa.array(column.to_numpy(zero_copy_only=False), from_pandas=True)
    return column.cast(pa.string())
