"""Contexts in a file of their own (``--labels``): one per line, an .npy, or columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..._utils.printing import counted
from ._errors import UnusableFileError, UselessOptionError
from .arrays import array_in_words, read_npy
from .cells import plain
from .data import Reading, column_positions
from .dialect import label_lines, open_text
from .kinds import file_kind
from .labels import LabelBuilder, Labels, crossed_labels, labels_of_texts
from .tabular import Table, open_table


def labels_from(path: Path, n: int, reading: Reading) -> Labels:
    """Return the labels of n rows."""
    kind = file_kind(path)
    if kind.format == "npy":
        values = read_npy(path)
        if values.ndim != 1:
            raise UnusableFileError(path, f"holds {array_in_words(values)}; labels are a list, one for each row.")
        if reading.context:
            raise UselessOptionError(
                path, "is an array of labels without columns for --context to name; drop the option."
            )
        # Python objects, so that labels of any type become the text that a table would have for them.
        labels = labels_of_texts(values.tolist(), reading.na_values)
    elif not kind.is_table:
        raise UnusableFileError(path, f"is not a table of labels ({kind.format}); write one label per line.")
    elif reading.context:
        # Options about features are meant for the file of rows, and not for this one.
        label_reading = Reading(context=reading.context, delimiter=reading.delimiter, encoding=reading.encoding)
        labels = crossed_labels(_read_columns(open_table(path, kind, label_reading), reading))
    elif kind.format == "text":
        # utf-8-sig reads UTF-8 with and without a mark, which would otherwise be part of the first label.
        with open_text(path, kind.compression, reading.encoding or "utf-8-sig") as file:
            lines = label_lines(file, path, n)
        labels = labels_of_texts(map(plain, lines), reading.na_values)
    else:
        raise UnusableFileError(path, "is a table; name its column of contexts with --context.")
    # Labels are matched to rows by position alone: with one too many or too few, all that follow it would be wrong.
    if len(labels.codes) != n:
        raise UnusableFileError(
            path,
            f"has {counted(len(labels.codes), 'label')} for {counted(n, 'row')}; write one per row"
            + (", without a header (or name its column with --context)." if len(labels.codes) == n + 1 else "."),
        )
    return labels


def _read_columns(table: Table, reading: Reading) -> Sequence[Labels]:
    column_positions(table.columns, reading.context, table.where, "column (--context)")
    builders = [LabelBuilder(reading.na_values) for _ in reading.context]
    # Batch by batch, and only these columns: the table may hold the rows themselves.
    for batch in table.batches([], reading.context):
        for i, builder in enumerate(builders):
            builder.add(batch.column(i))
    return [builder.finish() for builder in builders]
