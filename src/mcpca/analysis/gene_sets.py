"""Sets of features by name, from GMT files or as given; whose members are among the features at hand."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.arguments import check_integer
from .._utils.types import Array

_WEIGHT = re.compile(r",[-+.\deE]+$")  # as in TP53,1.0; names may have commas of their own


def read_gmt(path: Any) -> dict[str, list[str]]:
    """Read a GMT file: a set in each line, as its name, a description, and its members, between tabs.

    Parameters
    ----------
    path : path
        Also compressed, as ``.gmt.gz``. Weights after members (``TP53,1.0``), as Enrichr writes them, are left out.

    Returns
    -------
    dict {name: members}
        In the order of the file; a member that comes twice counts once.

    Notes
    -----
    A line without members, a name that comes twice, and a file that is no text are errors which name the line: half a
    file would give p-values that look right.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is no GMT file, which is text between tabs ({error}); pass another file.") from error
    sets: dict[str, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, *rest = (field.strip() for field in line.split("\t"))
        members = [_WEIGHT.sub("", member) for member in rest[1:] if member]
        if not name or not members:
            raise ValueError(
                f"{path}, line {number}: a set is a name, a description and at least one member, between tabs; got "
                f"{len(rest) + 1} field(s), the first {name[:40]!r}."
            )
        if name in sets:
            raise ValueError(f"{path}, line {number}: the set {name!r} comes twice; give sets names of their own.")
        sets[name] = list(dict.fromkeys(members))
    if not sets:
        raise ValueError(f"{path} holds no sets; pass a GMT file with at least one.")
    return sets


def read_sets(sets: Any, argument: str = "sets") -> dict[tuple[str, str], list[str]]:
    """Return {(collection, name): members} of a dict of sets, a GMT file, several, or a dict {collection: either}."""
    if isinstance(sets, (str, os.PathLike)):
        return {(_stem(sets), name): members for name, members in read_gmt(sets).items()}
    if isinstance(sets, Mapping):
        found: dict[tuple[str, str], list[str]] = {}
        for name, value in sets.items():
            if isinstance(value, (Mapping, str, os.PathLike)):
                found |= {(str(name), own): members for (_, own), members in read_sets(value, argument).items()}
            else:
                if not isinstance(value, Iterable):
                    raise TypeError(
                        f"{argument}[{str(name)!r}] is a {type(value).__name__}; pass its members as a list."
                    )
                members = list(dict.fromkeys(str(member) for member in value))
                if not members:
                    raise ValueError(f"{argument}[{str(name)!r}] has no members; leave it out.")
                found["", str(name)] = members
        if not found:
            raise ValueError(f"{argument} is empty; pass at least one set.")
        return found
    if isinstance(sets, Sequence) and sets and all(isinstance(one, (str, os.PathLike)) for one in sets):
        stems = [_stem(one) for one in sets]
        if len(set(stems)) < len(stems):
            raise ValueError(f"{argument} has files of the same name, {stems}; pass a dict {{collection: file}}.")
        return {pair: members for one in sets for pair, members in read_sets(one, argument).items()}
    raise TypeError(
        f"{argument} is a {type(sets).__name__}; pass a dict {{name: members}}, the path of a GMT file, several of "
        "them, or a dict {collection: file}."
    )


def _stem(path: Any) -> str:
    return Path(path).name.removesuffix(".gz").removesuffix(".gmt")


@dataclass(frozen=True)
class Membership:
    """Which of N features are in which of s sets: ``matrix`` (s, N) of 0 and 1, with ``names`` and ``collections``.

    ``totals`` (s,) counts all members of each set, features or not.
    """

    matrix: Any
    names: list[str]
    collections: list[str]
    totals: Array

    @property
    def sizes(self) -> Array:
        """Members of each set among the features (s,)."""
        return np.asarray(self.matrix.sum(axis=1)).ravel().astype(np.int64)


def membership(sets: Any, features: Sequence[str], min_size: int, max_size: int | None) -> Membership:
    """Find the members of sets among features; keep sets with ``min_size`` to ``max_size`` of them."""
    low = check_integer(min_size, "min_size", 1)
    high = len(features) if max_size is None else check_integer(max_size, "max_size", low)
    read = read_sets(sets)
    at = {name: i for i, name in enumerate(features)}
    if len(at) < len(features):
        twice = next(name for name in features if list(features).count(name) > 1)
        raise ValueError(f"Feature {twice!r} comes more than once; give features names of their own.")
    inside = {pair: [at[member] for member in members if member in at] for pair, members in read.items()}
    if not any(inside.values()):
        raise ValueError(_strangers(read.values(), features))
    kept = {pair: own for pair, own in inside.items() if low <= len(own) <= high}
    if not kept:
        largest = max(map(len, inside.values()))
        raise ValueError(
            f"No set has {low} to {high} members among the {len(features)} features; the largest has {largest}. Change "
            "min_size or max_size."
        )
    lengths = [len(own) for own in kept.values()]
    rows = np.repeat(np.arange(len(kept)), lengths)
    columns = np.concatenate([np.array(own) for own in kept.values()])
    matrix = scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(kept), len(features)))
    totals = np.array([len(read[pair]) for pair in kept])
    return Membership(matrix, [name for _, name in kept], [collection for collection, _ in kept], totals)


def _strangers(members: Iterable[Sequence[str]], features: Sequence[str]) -> str:
    """Explain that no member of a set is a feature, and whether only the case of letters differs."""
    first = next(iter(members))[:3]
    every = {one.casefold() for some in members for one in some}
    same = sum(name.casefold() in every for name in features)
    hint = f" {same} would be but for upper and lower case." if same else ""
    return (
        f"No member of any set is a feature: sets have {first}, features are {list(features[:3])}.{hint} Use the same "
        "names, by names= or by renaming."
    )
