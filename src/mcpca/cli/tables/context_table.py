"""A table with a line for each context (``--context-table``), for the report.

``reading`` reads it as soon as contexts are known, so that its errors come before a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._utils.printing import counted
from ._errors import UnusableFileError, quoted_names, short
from .constant_columns import MOST_COLUMNS, values_of
from .data import Reading
from .kinds import file_kind
from .labels import MISSING, LabelBuilder, Labels, crossed_labels
from .tabular import Table, open_table


@dataclass(frozen=True)
class ContextTable:
    """Columns of contexts: values by the name of the context; what was left out; what looks like a mistake."""

    columns: dict[str, dict[str, Any]]
    notes: list[str]
    oddities: list[str]


def read_context_table(path: Path, reading: Reading, contexts: Sequence[str]) -> ContextTable:
    """Read a table with a line for each context.

    The column of contexts is the one that ``--context`` names (several are crossed), and otherwise the first. ``NA``
    and the like are missing here, as empty cells are. A column of which all values are numbers is one of numbers.
    """
    kind = file_kind(path)
    if not kind.is_table:
        raise UnusableFileError(path, f"is not a table of contexts ({kind.format}); pass CSV, TSV, .xlsx or Parquet.")
    # Options about features are meant for the files of rows, and not for this one.
    table = open_table(path, kind, Reading(encoding=reading.encoding if kind.format == "text" else None))
    named = [name for name in reading.context if name in table.columns]
    of_contexts = list(reading.context) if reading.context and len(named) == len(reading.context) else table.columns[:1]
    columns = [name for name in table.columns if name not in of_contexts and name not in table.nested]
    if not columns:
        raise UnusableFileError(
            path, f"has the contexts in {quoted_names(of_contexts)} and no other column; add what is known of them."
        )
    shown = columns[:MOST_COLUMNS]
    labels = _read(table, [*of_contexts, *shown], reading)
    names = crossed_labels([labels[name] for name in of_contexts])
    rows = _rows_of_contexts(names, contexts, path, of_contexts)
    notes = []
    others = [name for name in names.categories if name not in set(contexts)]
    if others:
        notes.append(f"{counted(len(others), 'line')} of {path} about no context of the rows: {quoted_names(others)}.")
    if len(columns) > len(shown):
        notes.append(f"all but the first {MOST_COLUMNS} of {len(columns)} columns of {path}.")
    absent = [name for name in contexts if name not in rows]
    oddities = []
    if absent:
        oddities.append(
            f"{counted(len(absent), 'context')} of {len(contexts)} not in {path}, and shown as not known: "
            f"{quoted_names(absent)}."
        )
    decimal = "," if reading.decimal == "," else "."
    values = {name: values_of(labels[name], decimal) for name in shown}
    return ContextTable(
        {name: {context: of[row] for context, row in rows.items()} for name, of in values.items()}, notes, oddities
    )


def _read(table: Table, names: Sequence[str], reading: Reading) -> dict[str, Labels]:
    builders = [LabelBuilder({*reading.na_values, *MISSING}) for _ in names]
    for batch in table.batches([], names):
        for i, builder in enumerate(builders):
            builder.add(batch.column(i))
    return {name: builder.finish() for name, builder in zip(names, builders, strict=True)}


def _rows_of_contexts(names: Labels, contexts: Sequence[str], path: Path, columns: Sequence[str]) -> dict[str, int]:
    """Return the line of each context; raise if one has two, or if none has one."""
    what = f"its column {short(columns[0])!r}" if len(columns) == 1 else f"its columns {quoted_names(columns)}"
    counts = names.counts()
    repeated = [name for name, n in zip(names.categories, counts.tolist(), strict=True) if n > 1]
    known = set(contexts)
    if any(name in known for name in repeated):
        raise UnusableFileError(
            path,
            f"{what} has {quoted_names([name for name in repeated if name in known])} in more than one line; keep one "
            "line for each context.",
        )
    rows = {names.categories[code]: row for row, code in enumerate(names.codes.tolist()) if code >= 0}
    found = {name: rows[name] for name in contexts if name in rows}
    if not found:
        raise UnusableFileError(
            path,
            f"{what} has none of the contexts {quoted_names(contexts)}; it has {quoted_names(list(rows))}. Put the "
            "contexts into its first column, or into one of the name that --context has.",
        )
    return found
