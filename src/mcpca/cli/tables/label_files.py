"""Labels in a file of their own: one per line, an .npy, or columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ._errors import UnusableFileError, plural
from .arrays import read_npy
from .cells import plain
from .data import Reading, columns_named
from .delimited import DelimitedTable
from .dialect import label_lines, open_text
from .kinds import kind_of
from .labels import LabelBuilder, Labels, crossed, labels_of_texts
from .parquet import ParquetTable


def labels_from(path: Path, n: int, reading: Reading) -> Labels:
    """Return the labels of n rows."""
    kind = kind_of(path)
    if kind.format == "npy":
        values = read_npy(path)
        if values.ndim != 1:
            raise UnusableFileError(path, f"has shape {values.shape}; labels are 1-D, one for each row.")
        if reading.context:
            raise UnusableFileError(
                path, "is an array of labels without columns, of which --context names one; drop it."
            )
        labels = labels_of_texts(values.tolist(), reading.na_values)
    elif kind.format not in ("text", "Parquet"):
        raise UnusableFileError(path, f"is no table of labels ({kind.format}); write one label per line.")
    elif reading.context:
        # The columns of contexts are all that is read of this table: none is a feature.
        asked = Reading(context=reading.context, delimiter=reading.delimiter, encoding=reading.encoding)
        table = DelimitedTable(path, kind.compression, asked) if kind.format == "text" else ParquetTable(path)
        labels = crossed(_columns_of(table, reading))
    elif kind.format == "text":
        with open_text(path, kind.compression, reading.encoding or "utf-8-sig") as file:
            lines = label_lines(file, path, n)
        labels = labels_of_texts(map(plain, lines), reading.na_values)
    else:
        raise UnusableFileError(path, "is a table; name its column of contexts with --context.")
    if len(labels.codes) != n:
        raise UnusableFileError(
            path,
            f"has {plural(len(labels.codes), 'label')} for {plural(n, 'row')}; write one per row"
            + (", without a header (or name its column with --context)." if len(labels.codes) == n + 1 else "."),
        )
    return labels


def _columns_of(table: DelimitedTable | ParquetTable, reading: Reading) -> Sequence[Labels]:
    columns_named(table.columns, reading.context, table.where, "column (--context)")
    builders = [LabelBuilder(reading.na_values) for _ in reading.context]
    for batch in table.batches([], reading.context):
        for i, builder in enumerate(builders):
            builder.add(batch.column(i))
    return [builder.finish() for builder in builders]
