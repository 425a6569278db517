"""Contexts in a file of their own (``--labels``): one per line, an .npy, or columns of a table.

A table that has a column with the names of the rows is matched by name; everything else by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..._utils.printing import counted
from ._errors import UnusableFileError, UselessOptionError, quoted_names
from .arrays import array_in_words, read_npy
from .cells import plain
from .data import Reading, column_positions
from .dialect import label_lines, open_text
from .kinds import FileKind, file_kind
from .labels import LabelBuilder, Labels, crossed_labels, labels_of_texts
from .tabular import Table, open_table
from .workbook import sheets_with_columns

_MOST_CANDIDATES = 200  # columns that are searched for names of rows
_NAMED_SHARE = 0.5  # of the names of rows that a column has to hold to be taken for the column of names


@dataclass
class RowLabels:
    """What a file of labels says of rows.

    Attributes
    ----------
    labels : Labels
    annotations : dict of str to Labels
        Columns that were asked for besides.
    notes, says : list of str
        As in ``TableData``.
    """

    labels: Labels
    annotations: dict[str, Labels] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)


def labels_from(
    path: Path,
    n: int,
    reading: Reading,
    names: Sequence[str] | None = None,
    annotations: Sequence[str] = (),
    sheet: str | None = None,
) -> RowLabels:
    """Return the labels of n rows.

    Parameters
    ----------
    path : Path
    n : int
    reading : Reading
    names : sequence of str or None
        Names of the rows, if they have any.
    annotations : sequence of str
        Columns that are to be read as well.
    sheet : str or None
        The sheet, if it is a workbook; None is the one with the columns of ``reading.context``.
    """
    kind = file_kind(path)
    if kind.is_table and reading.context:
        return _from_table(path, kind, n, reading, names, annotations, sheet)
    if annotations:
        raise UnusableFileError(
            path,
            f"is no table with columns, and --transpose looks for {quoted_names(annotations)} there; pass a table of "
            "rows and name its column of contexts with --context.",
        )
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
    elif kind.format == "text":
        # utf-8-sig reads UTF-8 with and without a mark, which would otherwise be part of the first label.
        with open_text(path, kind.compression, reading.encoding or "utf-8-sig") as file:
            lines = label_lines(file, path, n, reading.comment)
        labels = labels_of_texts(map(plain, lines), reading.na_values)
    else:
        raise UnusableFileError(path, "is a table; name its column of contexts with --context.")
    _check_number(path, len(labels.codes), n)
    return RowLabels(labels)


def _check_number(path: Path, n_labels: int, n: int) -> None:
    # Labels are matched to rows by position alone: with one too many or too few, all that follow it would be wrong.
    if n_labels != n:
        raise UnusableFileError(
            path,
            f"has {counted(n_labels, 'label')} for {counted(n, 'row')}; write one per row"
            + (", without a header (or name its column with --context)." if n_labels == n + 1 else "."),
        )


def _from_table(
    path: Path,
    kind: FileKind,
    n: int,
    reading: Reading,
    names: Sequence[str] | None,
    annotations: Sequence[str],
    sheet: str | None,
) -> RowLabels:
    if kind.format == "Excel" and sheet is None:
        found = sheets_with_columns(path, reading.context)
        sheet = found[0] if len(found) == 1 else None
    # Options about features are meant for the file of rows, and not for this one.
    label_reading = Reading(
        context=reading.context,
        delimiter=reading.delimiter,
        encoding=reading.encoding,
        comment=reading.comment,
        sheet=sheet,
    )
    table = open_table(path, kind, label_reading)
    column_positions(table.columns, reading.context, table.where, "column (--context)")
    what = "column (--groups, --batch or --covariates)"
    column_positions(table.columns, annotations, table.where, what)
    wanted = list(dict.fromkeys([*reading.context, *annotations]))
    columns = _read_columns(table, wanted, reading)
    names_column = None if names is None else _column_of_names(table, names)
    said = RowLabels(crossed_labels([columns[name] for name in reading.context]))
    said.annotations = {name: columns[name] for name in annotations}
    if names_column is None:
        # Samples of a transposed table are in the order of somebody's columns, and a sheet rarely is.
        if names is not None and reading.transpose:
            raise _no_names(table, names)
        _check_number(path, len(said.labels.codes), n)
        return said
    assert names is not None
    return _matched(said, _texts_of(table, names_column), names, names_column, table.where, reading)


def _read_columns(table: Table, names: Sequence[str], reading: Reading) -> dict[str, Labels]:
    builders = [LabelBuilder(reading.na_values) for _ in names]
    # Batch by batch, and only these columns: the table may hold the rows themselves.
    for batch in table.batches([], names):
        for i, builder in enumerate(builders):
            builder.add(batch.column(i))
    return {name: builder.finish() for name, builder in zip(names, builders, strict=True)}


def _texts_of(table: Table, column: str) -> list[str]:
    texts: list[str] = []
    for batch in table.batches([], [column]):
        texts += ["" if text is None else text.strip() for text in batch.column(0).to_pylist()]
    return texts


def _column_of_names(table: Table, names: Sequence[str]) -> str | None:
    """Return the column that has the most names of rows, the first of several, if it has half of them.

    One pass over the first column and those of text: the table may hold the rows themselves.
    """
    known = {name.strip() for name in names}
    first = table.columns[0] if table.index is None else table.index
    texts = [column for column in table.columns if column in table.text - table.nested and column != first]
    columns = [*([] if first in table.nested else [first]), *texts][:_MOST_CANDIDATES]
    found: list[set[str]] = [set() for _ in columns]
    for batch in table.batches([], columns):
        for i, names_here in enumerate(found):
            values = batch.column(i).unique().to_pylist()
            names_here |= known.intersection(text.strip() for text in values if text is not None)
    best = max(range(len(columns)), key=lambda i: len(found[i]), default=None)
    if best is None or len(found[best]) < max(_NAMED_SHARE * len(known), 1):
        return None
    return columns[best]


def _no_names(table: Table, names: Sequence[str]) -> UnusableFileError:
    return UnusableFileError(
        table.where,
        f"has no column with the names of the rows, {quoted_names(names)}: its columns are "
        f"{quoted_names(table.columns)}; add one, so that contexts are matched by name.",
    )


def _matched(
    said: RowLabels, keys: Sequence[str], names: Sequence[str], column: str, where: str, reading: Reading
) -> RowLabels:
    """Return what is said of each row, by its name."""
    position: dict[str, int] = {}
    repeated: dict[str, None] = {}
    for i, key in enumerate(keys):
        if position.setdefault(key, i) != i and key:
            repeated[key] = None
    wanted = [name.strip() for name in names]
    known = set(wanted)
    if repeated := {key: None for key in repeated if key in known}:
        raise UnusableFileError(
            where,
            f"names {counted(len(repeated), 'row')} more than once in its column {column!r}: "
            f"{quoted_names(repeated)}; one line per row is needed.",
        )
    missing = [name for name in wanted if name not in position]
    extra = [key for key in keys if key and key not in known]
    # Rows that nothing is said of are rows without a context, and left out on the same request.
    if missing and not reading.drop_unlabelled:
        more = f"; it has {quoted_names(extra)}, which the data do not have" if extra else ""
        raise UnusableFileError(
            where,
            f"says nothing of {counted(len(missing), 'row')} of the data: {quoted_names(missing)} (by its column "
            f"{column!r}){more}. Correct the names, or leave these rows out with --drop-unlabelled.",
        )
    rows = np.array([position.get(name, -1) for name in wanted], dtype=np.intp)

    def by_name(labels: Labels) -> Labels:
        codes = np.append(labels.codes, np.int32(-1))  # the last entry is for rows that are not named
        return Labels(codes[rows], labels.categories)

    result = RowLabels(by_name(said.labels), {name: by_name(labels) for name, labels in said.annotations.items()})
    result.says.append(f"contexts are matched to rows by name, in the column {column!r} of {where}.")
    if extra:
        result.notes.append(f"{counted(len(extra), 'line')} of {where} about other rows: {quoted_names(extra)}.")
    return result
