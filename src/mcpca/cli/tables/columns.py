"""Which columns of a table are features, contexts, names of rows, or none of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ..._utils.printing import counted
from ..._utils.wording import listed
from ._errors import UnusableFileError, UselessOptionError, did_you_mean, quoted_names, short
from .cells import plain
from .data import ANNOTATION_OPTIONS, Reading, column_positions

MAX_COLUMNS = 100_000  # of a table: each column costs Arrow time and memory, whatever its length


@dataclass(frozen=True)
class Roles:
    """Columns by their role; ``others`` have none and were not dropped."""

    contexts: list[str]
    annotations: list[str]
    index: str | None
    features: list[str]
    others: list[str]


def choose_columns(
    names: Sequence[str], reading: Reading, wanted: Sequence[str] | None, where: str, index: str | None = None
) -> Roles:
    """Return the role of each column of a table.

    Parameters
    ----------
    names : sequence of str
        Columns of the table.
    reading : Reading
    wanted : sequence of str or None
        Features that must be there, in this order: those of a model, or of the first of several files.
    where : str
        The file, for errors.
    index : str or None
        The column with names of rows if ``reading`` names none.
    """
    # With --labels, --context names columns of that file and not of this one.
    contexts = [] if reading.labels is not None else list(reading.context)
    # For its error, which names what is missing; the positions are not needed here.
    column_positions(names, contexts, where, "column (--context)")
    annotations = reading.annotation_columns
    column_positions(names, annotations, where, f"column ({ANNOTATION_OPTIONS})")
    if reading.index is not None:
        column_positions(names, [reading.index], where, "column (--index)")
        index = reading.index
    # Before the features are chosen: a context or an index is never a feature, whatever the patterns match.
    of_rows = {*contexts, *([] if index is None else [index])}
    taken = of_rows | set(annotations)
    # To drop what annotates rows says no more than that it is no feature: doctor suggests it for every text column.
    for option, patterns, used in (("--drop", reading.drop, of_rows), ("--features", reading.features, taken)):
        _check_overlap(option, patterns, used, of_rows, names, where)
    features, others = choose_features(names, reading, wanted, where, taken)
    return Roles(contexts, annotations, index, features, others)


def choose_features(
    names: Sequence[str],
    reading: Reading,
    wanted: Sequence[str] | None,
    where: str,
    taken: set[str] | frozenset[str] = frozenset(),
) -> tuple[list[str], list[str]]:
    """Return the features among ``names``, and the columns that are neither features, ``taken``, nor dropped."""
    excluded = taken | set(matching_columns(reading.drop, names, "--drop", where))
    free = [name for name in names if name not in excluded]
    # By name, and in the order of the model or of the first file, whatever the order of the columns here.
    if wanted is not None:
        column_positions(free, wanted, where, "columns for the features")
        features = list(wanted)
    elif reading.features:
        # In the order of the file: that of the patterns, as they happened to be typed, should not matter.
        chosen = set(matching_columns(reading.features, names, "--features", where))
        features = [name for name in free if name in chosen]
    else:
        features = free
    if not features:
        raise UnusableFileError(where, f"has no column left for features; its columns are {quoted_names(names)}.")
    # A set, since a table may have 100,000 columns and a list would be searched for each.
    chosen = set(features)
    return features, [name for name in free if name not in chosen]


def _check_overlap(
    option: str, patterns: Sequence[str], used: set[str], of_rows: set[str], names: Sequence[str], where: str
) -> None:
    """Raise if a pattern matches nothing but columns that are ``used``: for contexts, names of rows, annotations."""
    for pattern in patterns:
        # A wide pattern may well match a context among others; only one that matches nothing else is a mistake.
        matched = set(matching_columns([pattern], names, option, where))
        if not matched - used:
            others = "--context or --index" if matched <= of_rows else f"--context, --index or {ANNOTATION_OPTIONS}"
            raise UselessOptionError(
                where, f"{option} {pattern!r} matches only what {others} names; drop one of the two."
            )


def matching_columns(patterns: Sequence[str], names: Sequence[str], option: str, where: str) -> list[str]:
    """Return the names that match any of the patterns, in their order; a pattern that matches none is an error.

    A pattern that is the name of a column stands for that one, even if it has wildcards in it; ``@FILE`` stands for the
    names in a file.
    """
    known = set(names)
    matched: set[str] = set()
    for pattern in patterns:
        is_file = pattern.startswith("@") and pattern not in known
        for entry in _names_in(pattern[1:], option) if is_file else [pattern]:
            # The exact name first, since names may have brackets in them. fnmatch would ignore case on Windows.
            matches = {entry} if entry in known else {name for name in names if fnmatchcase(name, entry)}
            if not matches:
                hint = did_you_mean(entry, names)
                raise UnusableFileError(
                    where, f"{option} {entry!r} names no column; {hint}it has {quoted_names(names, 10)}."
                )
            matched |= matches
    return [name for name in names if name in matched]


def check_table_columns(names: Sequence[str], where: str) -> None:
    """Raise if there are too many columns, or two of one name."""
    if len(names) > MAX_COLUMNS:
        raise too_many_columns(len(names), where)
    if len(set(names)) < len(names):
        positions: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            positions.setdefault(name, []).append(i + 1)
        repeated = {name: places for name, places in positions.items() if len(places) > 1}
        shown = [
            f"{short(name)!r} (columns {listed(places[:-1])} and {places[-1]})" for name, places in repeated.items()
        ]
        raise UnusableFileError(
            where,
            f"has {counted(len(repeated), 'column name')} more than once: {listed(shown)}; rename them "
            "(or pass --no-header if the first line is data).",
        )


def too_many_columns(n: int, where: str) -> UnusableFileError:
    """Return the error for a table that is too wide."""
    return UnusableFileError(
        where,
        f"has {n:,} columns, and tables are read up to {MAX_COLUMNS:,}; transpose it if its rows are the features, "
        "else save it as .npy, .npz or .h5ad.",
    )


def text_columns_error(names: Sequence[str], where: str) -> UnusableFileError:
    """Return the error for columns of text among the features."""
    first = names[0]
    # Names that a shell would take apart are shown in quotes, so that the advice can be copied.
    as_typed = f"'{first}'" if not first.replace("_", "").isalnum() else first
    return UnusableFileError(
        where,
        f"has {counted(len(names), 'column')} of text among the features: {quoted_names(names)}; leave them out with "
        f"--drop {as_typed}, or say what they are with --context or --index.",
    )


def _names_in(path: str, option: str) -> list[str]:
    """Return the names in a file, one per line."""
    try:
        # Editors on Windows put a byte-order mark in front, which would become part of the first name.
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UnusableFileError(path, f"cannot be read as the list of names for {option} ({told}).") from error
    # A list may be cut from one of our tables, where risky names have an apostrophe in front.
    names = [plain(line.strip()) for line in lines if line.strip()]
    if not names:
        raise UnusableFileError(path, f"has no names for {option}; write one per line.")
    return names
