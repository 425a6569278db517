"""Which columns are features, contexts, names of rows, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ._errors import UnusableFileError, nearest, plural, some
from .cells import plain
from .data import Reading, columns_named

MAX_COLUMNS = 100_000  # of a table: each column costs a little of its own, whatever its length


@dataclass(frozen=True)
class Roles:
    """Columns by what they are for; ``others`` are neither that nor dropped."""

    contexts: list[str]
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
        Features that must be there, in this order: those of a model, or of the first file of several.
    where : str
        The file, for errors.
    index : str or None
        The column with names of rows where ``reading`` names none.
    """
    contexts = [] if reading.labels is not None else list(reading.context)
    columns_named(names, contexts, where, "column (--context)")
    if reading.index is not None:
        columns_named(names, [reading.index], where, "column (--index)")
        index = reading.index
    taken = {*contexts, *([] if index is None else [index])}
    for option, patterns in (("--drop", reading.drop), ("--features", reading.features)):
        _check_overlap(option, patterns, taken, names, where)
    taken |= set(matching(reading.drop, names, "--drop", where))
    free = [name for name in names if name not in taken]
    if wanted is not None:
        columns_named(free, wanted, where, "columns for the features")
        features = list(wanted)
    elif reading.features:
        chosen = set(matching(reading.features, names, "--features", where))
        features = [name for name in free if name in chosen]
    else:
        features = free
    if not features:
        raise UnusableFileError(where, f"has no column left for features; its columns are {some(names)}.")
    kept = set(features)
    return Roles(contexts, index, features, [name for name in free if name not in kept])


def _check_overlap(option: str, patterns: Sequence[str], taken: set[str], names: Sequence[str], where: str) -> None:
    """Raise where a pattern means nothing but columns of contexts or names of rows."""
    for pattern in patterns:
        if not set(matching([pattern], names, option, where)) - taken:
            raise UnusableFileError(
                where, f"{option} {pattern!r} names what --context or --index has taken; drop one of the two."
            )


def matching(patterns: Sequence[str], names: Sequence[str], option: str, where: str) -> list[str]:
    """Return the names that any of the patterns means, in their order; a pattern that means none is an error.

    A name stands for itself, also where it has characters of patterns; ``@FILE`` for the names in a file.
    """
    known = set(names)
    found: set[str] = set()
    for pattern in patterns:
        listed = _names_in(pattern[1:], option) if pattern.startswith("@") and pattern not in known else [pattern]
        for entry in listed:
            own = {entry} if entry in known else {name for name in names if fnmatchcase(name, entry)}
            if not own:
                raise UnusableFileError(
                    where, f"{option} {entry!r} names no column; {nearest(entry, list(names))}it has {some(names, 10)}."
                )
            found |= own
    return [name for name in names if name in found]


def check_columns(names: Sequence[str], where: str) -> None:
    """Raise where there are too many columns, or two of one name."""
    if len(names) > MAX_COLUMNS:
        raise too_many_columns(len(names), where)
    seen: set[str] = set()
    twice = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if twice:
        raise UnusableFileError(
            where,
            f"has {plural(len(set(twice)), 'column name')} more than once: {some(dict.fromkeys(twice))}; rename them "
            "(or pass --no-header where the first line is data).",
        )


def too_many_columns(n: int, where: str) -> UnusableFileError:
    """Return the error for a table that is too wide."""
    return UnusableFileError(
        where,
        f"has {n:,} columns, and tables are read up to {MAX_COLUMNS:,}; transpose it where its rows are the features, "
        "else save it as .npy, .npz or .h5ad.",
    )


def text_columns_error(names: Sequence[str], where: str) -> UnusableFileError:
    """Return the error for columns among the features that are no numbers."""
    first = names[0]
    quoted = f"'{first}'" if not first.replace("_", "").isalnum() else first
    return UnusableFileError(
        where,
        f"has {plural(len(names), 'column')} of text among the features: {some(names)}; leave them out with --drop "
        f"{quoted}, or say what they are with --context or --index.",
    )


def _names_in(path: str, option: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFileError(path, f"cannot be read as the list of names for {option} ({error}).") from error
    names = [plain(line.strip()) for line in lines if line.strip()]
    if not names:
        raise UnusableFileError(path, f"has no names for {option}; write one per line.")
    return names
