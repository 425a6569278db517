"""Delimited text, parsed in batches by Arrow; a ``Table`` for ``tabular``.

Arrow is fast and says little when it fails: the text is then read again with Python's csv, to name the line.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..._utils.optional import require
from ..._utils.printing import counted
from ._errors import UnusableFileError, short
from .cells import plain_column
from .comments import Uncommented, encoded
from .data import Reading
from .dialect import DELIMITERS, Dialect, bounded_lines, dialect_of, is_number, open_text
from .kinds import damaged_gzip
from .labels import MISSING

# Bytes of text that Arrow parses at a time: large enough for the threads of its parser, and for 256 lines, unless those
# are so long that a batch would fill the memory. A batch must hold at least one line.
_BATCH_BYTES = 2**22
_MOST_BATCH_BYTES = 2**28
_LINES_A_BATCH = 256


class DelimitedTable:
    """A text file with one row per line, plain or packed by gzip.

    Attributes
    ----------
    columns : list of str
    text : frozenset of str
        Columns that are not numbers, judging by the first lines.
    index : str or None
        The first column, if it has no name: it has the names of rows.
    nested : frozenset of str
        Columns of lists: none.
    dialect : Dialect
    read : float
        Share of the file that the current pass has read so far.
    n_blank : int or None
        Rows without any value at the end, if a pass has found any; they are not among the batches.
    """

    def __init__(self, path: Path, compression: str | None, reading: Reading) -> None:
        # Before the file is looked at: the error should name the missing package and not the file.
        require("pyarrow.csv", "cli")
        self.nested: frozenset[str] = frozenset()
        self.path = path
        self.where = str(path)
        self._compression = compression
        self.read = 0.0
        # --na-values also holds among numbers, so that a column with such cells is still one of numbers.
        self._missing = MISSING | set(reading.na_values)
        self.dialect: Dialect = dialect_of(path, compression, reading)
        self.columns = self.dialect.columns
        self.text = self.dialect.text
        self.index = self.dialect.index
        self.n_blank: int | None = None
        # Columns without name and value, on the right: parsed, to see that they stay empty.
        self._empty = [f"\0{i}" for i in range(self.dialect.n_empty)]

    @property
    def left_out(self) -> list[str]:
        """What a spreadsheet has left at the edges and is not read, in words."""
        parts = [counted(self.dialect.n_empty, "empty column")] if self.dialect.n_empty else []
        parts += [counted(self.n_blank, "empty row")] if self.n_blank else []
        return [f"{' and '.join(parts)} at the end of {self.where}."] if parts else []

    @property
    def format(self) -> str:
        """The format in words."""
        packed = ", gzip" if self._compression else ""
        return f"text separated by {DELIMITERS.get(self.dialect.delimiter, repr(self.dialect.delimiter))}{packed}"

    def batches(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow record batches of these columns, ``numbers`` as float64 and ``texts`` as strings.

        Missing values are null. Each call is a new pass over the file.
        """
        pa = require("pyarrow", "cli")
        width = len(numbers) + len(texts)
        held: list[Any] = []  # rows without a value, which may be the last
        try:
            with self._stream() as (stream, share):
                for batch in self._arrow_reader(stream, numbers, texts):
                    self.read = share()
                    self._check_empty(batch, width)
                    columns = batch.columns[:width]
                    # In the order of ``include_columns``: numbers, then texts, which lose the apostrophes of ``cells``.
                    columns[len(numbers) :] = map(plain_column, columns[len(numbers) :])
                    cleaned = pa.RecordBatch.from_arrays(columns, names=[*numbers, *texts])
                    n = _filled_rows(cleaned)
                    if n:
                        yield from held
                        yield cleaned.slice(0, n)
                        held = []
                    if n < cleaned.num_rows:
                        held.append(cleaned.slice(n))
            if held:
                yield from self._but_blank(held)
        except pa.ArrowCancelled:  # Ctrl-C, which Arrow has caught
            raise KeyboardInterrupt from None
        except pa.ArrowInvalid as error:
            raise self._explained(error, numbers) from error
        except UnicodeDecodeError as error:
            raise UnusableFileError(
                self.where,
                f"is not in the encoding {self.dialect.encoding} throughout ({error.reason}); pass --encoding.",
            ) from error
        except OSError as error:
            if self._compression:
                raise damaged_gzip(self.path, error) from error
            raise UnusableFileError(self.where, f"cannot be read ({error}).") from error

    @contextmanager
    def _stream(self) -> Iterator[tuple[Any, Callable[[], float]]]:
        """Open the text for Arrow; also yield a function that returns the share of it that has been read."""
        pa = require("pyarrow", "cli")
        if self.dialect.comment is not None:
            size = max(self.path.stat().st_size, 1)
            with self._lines() as lines:
                yield encoded(lines), lambda: min(lines.characters / size, 1.0)
            return
        with (
            pa.OSFile(str(self.path)) as file,
            pa.CompressedInputStream(file, self._compression) if self._compression else nullcontext(file) as stream,
        ):
            size = max(file.size(), 1)
            yield stream, lambda: file.tell() / size  # of the packed bytes, if it is packed

    @contextmanager
    def _lines(self) -> Iterator[Uncommented]:
        """Open the text as lines, without comments."""
        with open_text(self.path, self._compression, self.dialect.encoding) as file:
            yield Uncommented(bounded_lines(file, self.where), self.dialect.comment)

    def _check_empty(self, batch: Any, width: int) -> None:
        """Raise if a column that was empty in the first lines is not."""
        for i in range(len(self._empty)):
            values = batch.column(width + i)
            if values.null_count < len(values) and any(text.strip() for text in values.unique().to_pylist() if text):
                raise self._explained(ValueError("columns without names"), [])

    def _but_blank(self, held: list[Any]) -> Iterator[Any]:
        """Yield the rows of ``held``, the last of a pass, but for those that are blank in all columns."""
        if self.n_blank is None:
            # The pass may have been over a few columns: the lines themselves tell. Once, and only for such files.
            between = f'{self.dialect.delimiter}" \t\r\n'
            n = 0
            with self._lines() as lines:
                for line in lines:
                    # Lines without any field are skipped by Arrow, and are no rows.
                    n = n + bool(line.rstrip("\r\n")) if not line.strip(between) else 0
            self.n_blank = n
        left = max(sum(batch.num_rows for batch in held) - self.n_blank, 0)
        for batch in held:
            if left:
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)

    def _arrow_reader(self, stream: Any, numbers: Sequence[str], texts: Sequence[str]) -> Any:
        """Return Arrow's reader of an open file, set to the dialect."""
        pa = require("pyarrow", "cli")
        arrow_csv = require("pyarrow.csv", "cli")
        dialect = self.dialect
        batch_bytes = min(max(_BATCH_BYTES, _LINES_A_BATCH * dialect.longest), _MOST_BATCH_BYTES)
        read_options = arrow_csv.ReadOptions(
            # A line that does not fit into a block is an error, and later ones may be longer than those seen.
            block_size=max(batch_bytes, 2 * dialect.longest),
            # Names by the dialect: Arrow would not understand R's header, which lacks the name of the first column.
            column_names=[*dialect.columns, *self._empty],
            skip_rows=dialect.header_lines,
            # Arrow skips the mark of UTF-8 by itself; any other encoding goes through Python's decoder, and is slower.
            # Without comments it comes from there already.
            encoding="utf-8" if dialect.encoding == "utf-8-sig" or dialect.comment is not None else dialect.encoding,
        )
        types = {name: pa.float64() for name in numbers} | {name: pa.string() for name in [*texts, *self._empty]}
        convert_options = arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=[*numbers, *texts, *self._empty],
            null_values=sorted(self._missing),
            decimal_point=dialect.decimal,
            strings_can_be_null=False,  # whether "NA" is a missing label is for ``labels`` to decide
        )
        # Sentences in quotes may hold line ends.
        parse_options = arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True)
        return arrow_csv.open_csv(
            stream, read_options=read_options, parse_options=parse_options, convert_options=convert_options
        )

    def _explained(self, error: Exception, numbers: Sequence[str]) -> UnusableFileError:
        """Return an error that names the line on which Arrow has failed."""
        position = {name: i for i, name in enumerate(self.dialect.columns)}
        columns = [(position[name], name) for name in numbers]
        # Python's csv is far slower than Arrow, but runs only on the way to an error, up to the first bad line.
        named = len(self.dialect.columns)
        width = named + self.dialect.n_empty
        with self._lines() as lines:
            reader = csv.reader(lines, delimiter=self.dialect.delimiter)
            for record in reader:
                # Lines of the file and not records: a field in quotes may span several lines.
                if not record or reader.line_num <= self.dialect.header_lines:
                    continue
                if len(record) != width:
                    return UnusableFileError(
                        self.where,
                        f"has {width} columns and line {lines.number} has {len(record)} fields "
                        f"({short(self.dialect.delimiter.join(record), 40)!r}): another delimiter, a truncated line, "
                        "or a stray quote; correct that line.",
                    )
                beyond = next((value for value in record[named:] if value.strip()), None)
                if beyond is not None:
                    return UnusableFileError(
                        self.where,
                        f"line {lines.number} has {short(beyond, 40)!r} right of the last column that the header names "
                        f"({short(self.dialect.columns[-1])!r}); name its column, or remove it.",
                    )
                # Only after the width, without which a field could not be told from its neighbour.
                for i, name in columns:
                    value = record[i].strip()
                    if value not in self._missing and not is_number(value, self.dialect.decimal):
                        return UnusableFileError(
                            self.where,
                            f"line {lines.number} has {short(record[i], 40)!r} in column {short(name)!r}, which is "
                            "otherwise numbers; correct it, leave the column out with --drop, or pass --na-values "
                            f"{shlex.quote(short(value))} if it means a missing value.",
                        )
        return UnusableFileError(self.where, f"cannot be read as a table ({short(error, 200)}).")

    def place(self, row: int, column: str) -> str:
        """Return where a value is in the file, in words; ``row`` is counted from 0."""
        with self._lines() as lines:
            reader = csv.reader(lines, delimiter=self.dialect.delimiter)
            rows = (record for record in reader if record and reader.line_num > self.dialect.header_lines)
            next(islice(rows, row, None), None)
            return f"line {lines.number}, column {short(column)!r}"


def _filled_rows(batch: Any) -> int:
    """Return the number of rows up to the last one with a value in any column."""
    pc = require("pyarrow.compute", "cli")
    n = batch.num_rows
    last = batch.slice(n - 1) if n else batch
    # The last row has a value nearly always, and nearly always in its first columns.
    if any(value not in (None, "") for column in last.columns for value in column.to_pylist()):
        return int(n)
    filled = 0
    for column in batch.columns:
        is_value = column.is_valid()
        if "string" in str(column.type):
            is_value = pc.and_(is_value, pc.fill_null(pc.not_equal(column, ""), False))
        rows = np.flatnonzero(is_value.to_numpy(zero_copy_only=False))
        filled = max(filled, int(rows[-1]) + 1 if len(rows) else 0)
    return filled
