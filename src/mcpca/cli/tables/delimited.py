"""Delimited text, parsed in batches by Arrow; a ``Table`` for ``tabular``.

Arrow is fast and says little when it fails: the text is then read again with Python's csv, to name the line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..._utils.optional import require
from ._errors import UnusableFileError, short
from .cells import plain_column
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
        try:
            with (
                pa.OSFile(str(self.path)) as file,
                pa.CompressedInputStream(file, self._compression) if self._compression else nullcontext(file) as stream,
            ):
                size = max(file.size(), 1)
                for batch in self._arrow_reader(stream, numbers, texts):
                    self.read = file.tell() / size  # of the packed bytes, if it is packed
                    columns = batch.columns
                    # In the order of ``include_columns``: numbers, then texts, which lose the apostrophes of ``cells``.
                    columns[len(numbers) :] = map(plain_column, columns[len(numbers) :])
                    yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)
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
            column_names=dialect.columns,
            skip_rows=dialect.header_lines,
            # Arrow skips the mark of UTF-8 by itself; any other encoding goes through Python's decoder, and is slower.
            encoding="utf-8" if dialect.encoding == "utf-8-sig" else dialect.encoding,
        )
        types = {name: pa.float64() for name in numbers} | {name: pa.string() for name in texts}
        convert_options = arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=[*numbers, *texts],
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
        width = len(self.dialect.columns)
        with open_text(self.path, self._compression, self.dialect.encoding) as file:
            reader = csv.reader(bounded_lines(file, self.where), delimiter=self.dialect.delimiter)
            for record in reader:
                # Lines of the file and not records: a field in quotes may span several lines.
                if not record or reader.line_num <= self.dialect.header_lines:
                    continue
                if len(record) != width:
                    return UnusableFileError(
                        self.where,
                        f"has {width} columns and line {reader.line_num} has {len(record)} fields "
                        f"({short(self.dialect.delimiter.join(record), 40)!r}): another delimiter, a truncated line, "
                        "or a stray quote; correct that line.",
                    )
                # Only after the width, without which a field could not be told from its neighbour.
                for i, name in columns:
                    value = record[i].strip()
                    if value not in self._missing and not is_number(value, self.dialect.decimal):
                        return UnusableFileError(
                            self.where,
                            f"line {reader.line_num} has {short(record[i], 40)!r} in column {short(name)!r}, which is "
                            "otherwise numbers; correct it, or leave the column out with --drop.",
                        )
        return UnusableFileError(self.where, f"cannot be read as a table ({short(error, 200)}).")
