"""Trees as sets of leaves: read from Newick, written to it, and compared by Robinson and Foulds' distance."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from .._utils.types import Array

_TOKEN = re.compile(r"\s*(?:'((?:[^']|'')*)'|([(),;])|(:\s*[^(),;\s]+)|(\[[^]]*\])|([^(),:;'\[\]\s][^(),:;'\[\]]*))")
Clades = set[frozenset[str]]


def clades_of_newick(text: str, argument: str = "known") -> tuple[Clades, list[str]]:
    """Read a tree in Newick format: the leaves below each inner node but the root, and all leaves.

    Parameters
    ----------
    text : str
        Such as ``((human, chimp), gorilla);``. Lengths of branches, names of inner nodes and comments in brackets are
        left out; nodes may have any number of children. Names with spaces or signs stand between single quotes, or
        have spaces as they are.
    argument : str
        What to call it in errors.
    """
    if not isinstance(text, str):
        raise TypeError(f"{argument} is a {type(text).__name__}; pass a tree in Newick format: '((a, b), c);'.")
    if "(" not in text:
        raise ValueError(
            f"{argument}={text[:60]!r} is no tree in Newick format, such as '((a, b), c);': there are no leaves in "
            "brackets. Pass the text of the tree, not the name of a file."
        )
    at, leaves, clades = 0, [], set()
    open_nodes: list[set[str]] = []
    closed = after_node = False

    def fail(why: str) -> ValueError:
        return ValueError(f"{argument} is no tree in Newick format: {why} at character {at} of {text[:60]!r}.")

    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise fail("cannot be read on")
        if closed:
            raise fail("it goes on after its end")
        quoted, sign, length, comment, plain = match.groups()
        if sign == "(":
            if after_node:
                raise fail("a comma is missing")
            open_nodes.append(set())
        elif sign == ")":
            if len(open_nodes) < 1 or not after_node:
                raise fail("a bracket closes that holds nothing or was not opened")
            below = open_nodes.pop()
            if open_nodes:
                clades.add(frozenset(below))
                open_nodes[-1] |= below
            after_node = True
        elif sign == ",":
            if not open_nodes or not after_node:
                raise fail("a comma has nothing before it or no bracket around it")
            after_node = False
        elif sign == ";":
            closed = True
        elif length is None and comment is None:
            name = quoted.replace("''", "'") if quoted is not None else plain.strip()
            if not after_node:  # after a bracket it names an inner node
                leaves.append(name)
                if open_nodes:
                    open_nodes[-1].add(name)
                after_node = True
        at = match.end()
    if open_nodes or not leaves:
        raise fail("a bracket is not closed" if open_nodes else "there are no leaves")
    if len(set(leaves)) < len(leaves):
        twice = next(name for name in leaves if leaves.count(name) > 1)
        raise ValueError(f"{argument} has the leaf {twice!r} more than once; every leaf has a name of its own.")
    return {clade for clade in clades if 1 < len(clade) < len(leaves)}, leaves


def clades_of_linkage(linkage: Array, names: Sequence[str]) -> Clades:
    """Return the leaves below each inner node but the root of SciPy's linkage matrix (k - 1, 4)."""
    below = [frozenset([name]) for name in names]
    for a, b, *_ in linkage:
        below.append(below[int(a)] | below[int(b)])
    return {clade for clade in below[len(names) : -1] if len(clade) > 1}


def newick_of_linkage(linkage: Array, names: Sequence[str]) -> str:
    """Return SciPy's linkage matrix as a tree in Newick format, with lengths of branches: half of the distances."""
    parts = [_quoted(name) for name in names]
    heights = [0.0] * len(names)
    for a, b, distance, _ in linkage:
        inside = ",".join(f"{parts[i]}:{(distance - heights[i]) / 2:.6g}" for i in (int(a), int(b)))
        parts.append(f"({inside})")
        heights.append(float(distance))
    return parts[-1] + ";"


def restricted(clades: Clades, leaves: Collection[str]) -> Clades:
    """Return the clades of the tree with only these leaves, without those that hold one of them, or all."""
    inside = frozenset(leaves)
    return {clade & inside for clade in clades if 1 < len(clade & inside) < len(inside)}


def splits(clades: Clades, leaves: Sequence[str]) -> Clades:
    """Return the splits of leaves in two that the edges of the tree make, without its root.

    Each as the side without the first leaf; those with a single leaf on a side, which every tree has, are left out.
    """
    every, first = frozenset(leaves), leaves[0]
    sides = {every - clade if first in clade else clade for clade in clades}
    return {side for side in sides if 1 < len(side) < len(every) - 1}


def robinson_foulds(first: Clades, second: Clades, leaves: Sequence[str], *, rooted: bool = True) -> int:
    """Return the number of clades (rooted) or splits (unrooted) that one of two trees has and the other has not."""
    if not rooted:
        first, second = splits(first, leaves), splits(second, leaves)
    return len(first ^ second)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.+-]+", name) else "'" + name.replace("'", "''") + "'"
