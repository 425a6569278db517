"""Sets of features by name, from GMT files or dicts, and which of their members are among the features of a fit.

``enrichment`` needs the membership as a sparse matrix, ``link_recall`` the sets themselves.
"""

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

_WEIGHT = re.compile(r",[-+.\deE]+$")  # as in TP53,1.0; a name may contain other commas


def read_gmt(path: Any) -> dict[str, list[str]]:
    """Read a GMT file: each line is a set, with its name, a description and its members separated by tabs.

    Parameters
    ----------
    path : path
        May be compressed, as ``.gmt.gz``. Weights after members (``TP53,1.0``), as Enrichr writes them, are dropped.

    Returns
    -------
    dict {name: members}
        In the order of the file; repeated members count once.

    Notes
    -----
    A line without members, a repeated name and a file that is not text are errors that name the line: half a file would
    give p-values that look right.
    """
    path = Path(path)
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            # Read within the block, since errors of decoding and decompression come only here.
            lines = file.read().splitlines()
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is not a GMT file, which is text separated by tabs ({error}); pass another file."
        ) from error
    sets: dict[str, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        # rest[0] is the description, which may be empty.
        name, *rest = (field.strip() for field in line.split("\t"))
        members = [_WEIGHT.sub("", member) for member in rest[1:] if member]
        if not name or not members:
            raise ValueError(
                f"{path}, line {number}: a set is a name, a description and at least one member, separated by tabs; "
                f"got {len(rest) + 1} field(s), the first {name[:40]!r}."
            )
        if name in sets:
            raise ValueError(f"{path}, line {number}: the set {name!r} comes twice; give sets different names.")
        # Without repetitions, which would count twice in sizes and overlaps; in the order of the file.
        sets[name] = list(dict.fromkeys(members))
    if not sets:
        raise ValueError(f"{path} holds no sets; pass a GMT file with at least one.")
    return sets


def read_sets(sets: Any, argument: str = "sets") -> dict[tuple[str, str], list[str]]:
    """Return {(collection, name): members} of a dict of sets, a GMT file, several, or a dict {collection: either}."""
    if isinstance(sets, (str, os.PathLike)):
        return {(_stem(sets), name): members for name, members in read_gmt(sets).items()}
    if isinstance(sets, Mapping):
        by_name: dict[tuple[str, str], list[str]] = {}
        for name, value in sets.items():
            # A str is a path here and never a member: members come in a sequence.
            if isinstance(value, (Mapping, str, os.PathLike)):  # name is that of a collection
                # The name given by the user replaces the one from the file.
                inner = read_sets(value, argument)
                by_name |= {(str(name), set_name): members for (_, set_name), members in inner.items()}
            else:
                if not isinstance(value, Iterable):
                    raise TypeError(
                        f"{argument}[{str(name)!r}] is a {type(value).__name__}; pass its members as a list."
                    )
                members = list(dict.fromkeys(str(member) for member in value))
                if not members:
                    raise ValueError(f"{argument}[{str(name)!r}] has no members; leave it out.")
                by_name["", str(name)] = members
        if not by_name:
            raise ValueError(f"{argument} is empty; pass at least one set.")
        return by_name
    if isinstance(sets, Sequence) and sets and all(isinstance(one, (str, os.PathLike)) for one in sets):
        stems = [_stem(one) for one in sets]
        # Collections are told apart by these names, and q-values are computed within them.
        if len(set(stems)) < len(stems):
            raise ValueError(f"{argument} has files of the same name, {stems}; pass a dict {{collection: file}}.")
        return {pair: members for one in sets for pair, members in read_sets(one, argument).items()}
    raise TypeError(
        f"{argument} is a {type(sets).__name__}; pass a dict {{name: members}}, the path of a GMT file, several of "
        "them, or a dict {collection: file}."
    )


def _stem(path: Any) -> str:
    """Return the name of a file without its endings, which names the collection."""
    return Path(path).name.removesuffix(".gz").removesuffix(".gmt")


@dataclass(frozen=True)
class Membership:
    """Which of N features are in which of s sets.

    Attributes
    ----------
    matrix : sparse array (s, N) of 0 and 1
    names, collections : list of s str
    totals : ndarray (s,) of int
        All members of each set, whether they are features or not.
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
    """Find the members of sets among the features; keep sets that have ``min_size`` to ``max_size`` of them."""
    low = check_integer(min_size, "min_size", 1)
    high = len(features) if max_size is None else check_integer(max_size, "max_size", low)
    members_of = read_sets(sets)
    # One lookup per member; the many that were not measured are skipped.
    position = {name: i for i, name in enumerate(features)}
    if len(position) < len(features):
        repeated = next(name for name in features if list(features).count(name) > 1)
        raise ValueError(f"Feature {repeated!r} comes more than once; give features different names.")
    columns_of = {
        pair: [position[member] for member in members if member in position] for pair, members in members_of.items()
    }
    # Names of another kind (identifiers, another species) are a mistake, not a negative result.
    if not any(columns_of.values()):
        raise ValueError(_no_member_is_a_feature(members_of.values(), features))
    # By the members among the features: those that were not measured cannot be at a pole.
    sized = {pair: columns for pair, columns in columns_of.items() if low <= len(columns) <= high}
    if not sized:
        largest = max(map(len, columns_of.values()))
        raise ValueError(
            f"No set has {low} to {high} members among the {len(features)} features; the largest has {largest}. Change "
            "min_size or max_size."
        )
    lengths = [len(columns) for columns in sized.values()]
    row_indices = np.repeat(np.arange(len(sized)), lengths)
    column_indices = np.concatenate([np.array(columns) for columns in sized.values()])
    # (s, N), with a 1 for each member: all overlaps of a pole are then one product.
    matrix = scipy.sparse.csr_array(
        (np.ones(len(row_indices)), (row_indices, column_indices)), shape=(len(sized), len(features))
    )
    totals = np.array([len(members_of[pair]) for pair in sized])
    return Membership(matrix, [name for _, name in sized], [collection for collection, _ in sized], totals)


def _no_member_is_a_feature(sets: Iterable[Sequence[str]], features: Sequence[str]) -> str:
    """Explain that no member of a set is a feature, and whether only upper and lower case differ (mouse and human)."""
    first = next(iter(sets))[:3]
    # Gene symbols of mouse and human differ by case alone, a frequent mistake.
    folded = {member.casefold() for members in sets for member in members}
    n_same = sum(name.casefold() in folded for name in features)
    hint = f" {n_same} differ only by upper and lower case." if n_same else ""
    return (
        f"No member of any set is a feature: sets have {first}, features are {list(features[:3])}.{hint} Use the same "
        "names, with names= or by renaming."
    )
