"""Tables whose lines are features and whose columns are rows (``--transpose``): genes x samples.

The first column, or the one that ``--index`` names, has the names of features, and the header those of rows. Contexts
are in a file of their own (``--labels``), or in a line of the table: then its cells are read as text first.

The table is held in memory as a whole, at about twice the size of its numbers while it is turned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..._utils.optional import require
from ..._utils.printing import counted
from ..._utils.types import Array
from ._errors import UnusableFileError, quoted_names, short
from .columns import choose_features, matching_columns
from .data import ANNOTATION_OPTIONS, Budget, FilePart, Reading, column_positions
from .dialect import is_number
from .labels import MISSING, labels_of_texts
from .tabular import Gaps, RisingColumns, Table, batch_matrix


def read_transposed(
    table: Table,
    reading: Reading,
    wanted: Sequence[str] | None,
    budget: Budget,
    report_share: Callable[[float], None] = lambda share: None,
) -> FilePart:
    """Read a table of features by rows; what ``tabular.read_table`` returns of the same table turned."""
    names_column = _names_column(table, reading)
    # Columns that a pattern of --drop matches are left out here; whether each matches anything is asked at the end.
    dropped = set(_matching(reading.drop, table.columns))
    samples = [name for name in table.columns if name != names_column and name not in dropped]
    if not samples:
        raise UnusableFileError(
            table.where, f"has no column left for rows; its columns are {quoted_names(table.columns)} (--transpose)."
        )
    # Lines that say something of the samples; with a file of labels, that has the contexts.
    contexts = [] if reading.labels is not None else list(reading.context)
    lines = list(dict.fromkeys([*contexts, *reading.annotation_columns]))
    text = [name for name in samples if name in table.text]
    if text and not lines:
        raise _text_error(text, table, names_column)
    numbers, texts = ([], [*samples, names_column]) if lines else (samples, [names_column])
    names: list[str] = []
    blocks: list[Array] = []
    said: dict[str, list[Any]] = {}
    left_out: list[str] = []
    done = 0  # lines of earlier batches
    for batch in table.batches(numbers, texts):
        if not batch.num_rows:
            continue
        report_share(table.read)
        here = ["" if name is None else name.strip() for name in batch.column(len(samples)).to_pylist()]
        if lines:
            for i in [i for i, name in enumerate(here) if name in lines]:
                said[here[i]] = [batch.column(j)[i].as_py() for j in range(len(samples))]
            # Lines that are left out may be text as well.
            no_features = {*lines, *_matching(reading.drop, here)}
            left_out += [name for name in here if name in no_features and name not in lines]
            is_feature = np.array([name not in no_features for name in here])
            X = _numbers(batch, samples, is_feature, table, done, reading)
            here = [name for name in here if name not in no_features]
        else:
            X = batch_matrix(batch, len(samples))
        names += here
        done += batch.num_rows
        if not budget.take(2 * X.nbytes):  # as it is read, and turned
            raise UnusableFileError(
                table.where,
                f"takes more than --max-memory ({reading.max_bytes / 2**20:,.0f} MB) once turned (--transpose), which "
                "is done in memory; raise --max-memory, or save it with one line per row.",
            )
        blocks.append(X)
    if not names:
        raise UnusableFileError(table.where, "has a header but no lines of features.")
    column_positions([*said, *names], lines, table.where, f"line (--context, {ANNOTATION_OPTIONS})")
    _check_names(names, table, names_column)
    X = np.ascontiguousarray(np.concatenate(blocks).T)
    budget.give_back(X.nbytes)
    blocks.clear()
    features, others = _chosen(names, [*table.columns, *left_out], reading, wanted, table.where)
    if features != names:
        X = np.ascontiguousarray(X[:, column_positions(names, features, table.where, "features")])
    gaps = Gaps(features)
    gaps.look(X, 0)
    gaps.check(table.where, len(samples), samples)
    rising = RisingColumns(len(features))
    rising.look(X)
    by_line = {name: labels_of_texts(map(_plain_text, values), reading.na_values) for name, values in said.items()}
    return FilePart(
        table.where,
        len(samples),
        features,
        [X],
        labels=[by_line[name] for name in contexts],
        row_names=samples,
        others=others,
        row_numbers=[features[j] for j in rising.columns()],
        notes=list(table.left_out),
        date_cells={name: cell for cell, name in getattr(table, "dates", {}).get(names_column, [])},
        annotations={name: by_line[name] for name in reading.annotation_columns},
    )


def _names_column(table: Table, reading: Reading) -> str:
    if reading.index is not None:
        column_positions(table.columns, [reading.index], table.where, "column (--index)")
        return reading.index
    return table.columns[0] if table.index is None else table.index


def _numbers(
    batch: Any, samples: Sequence[str], is_feature: Array, table: Table, first: int, reading: Reading
) -> Array:
    """Return the lines of a batch of text that are features, as numbers (m, n); ``first`` counts the lines before."""
    pa = require("pyarrow", "cli")
    pc = require("pyarrow.compute", "cli")
    missing = pa.array(sorted({*MISSING, "#N/A", *reading.na_values}))
    X = np.empty((len(samples), int(is_feature.sum())))
    for j, name in enumerate(samples):
        column = pc.utf8_trim_whitespace(batch.column(j).filter(pa.array(is_feature)))
        column = pc.if_else(pc.is_in(column, value_set=missing), None, column)
        if reading.decimal != ".":
            column = pc.replace_substring(column, reading.decimal, ".")
        try:
            X[j] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid as error:
            values = batch.column(j).to_pylist()
            bad = [
                i
                for i in np.flatnonzero(is_feature).tolist()
                if values[i] is not None
                and values[i].strip() not in {*MISSING, *reading.na_values}
                and not is_number(values[i].strip(), reading.decimal)
            ]
            what = f"{table.place(first + bad[0], name)} has {short(values[bad[0]], 40)!r}" if bad else short(error)
            raise UnusableFileError(
                table.where,
                f"{what}, which is no number; correct it, leave the line or column out with --drop, or pass "
                "--na-values if it means a missing value.",
            ) from error
    return X.T


def _plain_text(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _check_names(names: Sequence[str], table: Table, column: str) -> None:
    """Raise if a feature has no name, or two have the same."""
    if "" in names:
        place = table.place(list(names).index(""), column)
        raise UnusableFileError(
            table.where,
            f"{place} is empty, where the name of a feature should be; name it, or choose the column of names with "
            "--index.",
        )
    seen: set[str] = set()
    repeated = list(dict.fromkeys(name for name in names if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
    if repeated:
        raise UnusableFileError(
            table.where,
            f"has {counted(len(repeated), 'name')} of features more than once in the column {column!r}: "
            f"{quoted_names(repeated)}; make them unique, or choose another column of names with --index.",
        )


def _chosen(
    names: list[str], others: Sequence[str], reading: Reading, wanted: Sequence[str] | None, where: str
) -> tuple[list[str], list[str]]:
    """Return the features among the names of lines, and those that were not asked for.

    ``others`` are names that --drop may match besides.
    """
    # A pattern of --drop is about columns of the file or about features; one that matches neither is a mistake.
    dropped = set(matching_columns(reading.drop, list(dict.fromkeys([*others, *names])), "--drop", where))
    free = [name for name in names if name not in dropped]
    return choose_features(free, replace(reading, drop=()), wanted, where)


def _matching(patterns: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns that match any of the patterns, if any does."""
    matched: list[str] = []
    for pattern in patterns:
        try:
            matched += matching_columns([pattern], columns, "--drop", "")
        except UnusableFileError:  # it is about features, or a mistake, which ``_chosen`` finds
            continue
    return matched


def _text_error(text: Sequence[str], table: Table, names_column: str) -> UnusableFileError:
    return UnusableFileError(
        table.where,
        f"has {counted(len(text), 'column')} of text among the rows (--transpose): {quoted_names(text)}; leave out "
        f"what is no row with --drop, or name the column with the names of features ({names_column!r} is taken) with "
        "--index. Contexts in a line of the table are named with --context.",
    )
