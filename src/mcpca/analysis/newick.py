"""Trees as sets of clades: read from Newick, written to it, and compared by Robinson and Foulds' distance.

A clade is the set of leaves below an inner node. The clades determine a tree up to the order of children, so trees are
compared as sets of them. ``trees`` is the only user.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from .._utils.types import Array

_TOKEN = re.compile(
    r"""\s*(?:
    '((?:[^']|'')*)'                       # a name in single quotes, in which '' is a quote
    |([(),;])                              # structure
    |(:\s*[^(),;\s]+)                      # the length of a branch
    |(\[[^]]*\])                           # a comment
    |([^(),:;'\[\]\s][^(),:;'\[\]]*)      # a name without quotes, which may contain spaces
    )""",
    re.VERBOSE,
)
Clades = set[frozenset[str]]


def clades_of_newick(text: str, argument: str = "known") -> tuple[Clades, list[str]]:
    """Read a tree in Newick format: the leaves below each inner node but the root, and all leaves.

    Parameters
    ----------
    text : str
        Such as ``((human, chimp), gorilla);``. Branch lengths, names of inner nodes and comments in brackets are
        ignored; nodes may have any number of children. Names with special characters are in single quotes; spaces need
        none.
    argument : str
        Its name in errors.
    """
    if not isinstance(text, str):
        raise TypeError(f"{argument} is a {type(text).__name__}; pass a tree in Newick format: '((a, b), c);'.")
    if "(" not in text:
        raise ValueError(
            f"{argument}={text[:60]!r} is not a tree in Newick format, such as '((a, b), c);': there are no leaves in "
            "brackets. Pass the text of the tree, not the name of a file."
        )
    at = 0
    leaves: list[str] = []
    clades = set()
    open_nodes: list[set[str]] = []  # leaves seen so far below each node whose bracket is open, the outermost first
    is_complete = False
    after_node = False  # whether a leaf or a closing bracket came last, after which only , ) ; or a label may follow

    def fail(why: str) -> ValueError:
        return ValueError(f"{argument} is not a tree in Newick format: {why} at character {at} of {text[:60]!r}.")

    # Without the white space at the end, which is no token.
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise fail("unexpected text")
        if is_complete:
            raise fail("it goes on after its end")
        # Exactly one of these is not None; lengths and comments fall through.
        quoted, sign, length, comment, plain = match.groups()
        if sign == "(":
            if after_node:
                raise fail("a comma is missing")
            open_nodes.append(set())
        elif sign == ")":
            if len(open_nodes) < 1 or not after_node:
                raise fail("a bracket closes that is empty or was not opened")
            below = open_nodes.pop()
            # The root is the clade of all leaves, which every tree has: it is not added.
            if open_nodes:
                clades.add(frozenset(below))
                open_nodes[-1] |= below
            after_node = True
        elif sign == ",":
            if not open_nodes or not after_node:
                raise fail("a comma has nothing before it or no bracket around it")
            after_node = False
        elif sign == ";":
            is_complete = True
        elif length is None and comment is None:
            name = quoted.replace("''", "'") if quoted is not None else plain.strip()
            if not after_node:  # after a closing bracket it names the inner node
                leaves.append(name)
                if open_nodes:
                    open_nodes[-1].add(name)
                after_node = True
        at = match.end()
    if open_nodes or not leaves:
        raise fail("a bracket is not closed" if open_nodes else "there are no leaves")
    if len(set(leaves)) < len(leaves):
        # Clades are sets of names, in which two leaves of one name would be one.
        repeated = next(name for name in leaves if leaves.count(name) > 1)
        raise ValueError(f"{argument} has the leaf {repeated!r} more than once; give leaves different names.")
    # A node with a single child, or one around all leaves, is no clade that trees could differ in.
    return {clade for clade in clades if 1 < len(clade) < len(leaves)}, leaves


def clades_of_linkage(linkage: Array, names: Sequence[str], *, levels: bool = False) -> Clades:
    """Return the leaves below each inner node but the root of SciPy's linkage matrix (k - 1, 4).

    With ``levels`` the linkage is that of ``linkage_of_clades``, where a node at the height of its parent is no clade.
    """
    # Node i < k is leaf i; row j of the linkage makes node k + j of the two nodes in its first two columns.
    below = [frozenset([name]) for name in names]
    heights = [0.0] * len(names)
    is_part = [False] * (2 * len(names) - 1)
    for a, b, height, *_ in linkage:
        below.append(below[int(a)] | below[int(b)])
        heights.append(float(height))
        for child in (int(a), int(b)):
            is_part[child] = levels and heights[child] == height
    k = len(names)
    return {clade for clade, part in zip(below[k:-1], is_part[k:-1], strict=True) if len(clade) > 1 and not part}


def linkage_of_clades(clades: Clades, names: Sequence[str]) -> Array:
    """Return SciPy's linkage matrix (k - 1, 4) of a tree: a node is one level above the highest of its children.

    A node with several children is as many joins at one height. Cost O(k^2) for k leaves.
    """
    # The largest cluster so far that holds each leaf; smaller clades are joined before those that contain them.
    cluster = {name: i for i, name in enumerate(names)}
    height = [0.0] * len(names)
    rows = []
    for clade in [*sorted(clades, key=lambda one: (len(one), min(map(cluster.__getitem__, one)))), frozenset(names)]:
        parts = sorted({cluster[name] for name in clade})
        level = 1 + max(height[part] for part in parts)
        joined = parts[0]
        for part in parts[1:]:
            rows.append([joined, part, level, 0])
            joined = len(height)
            height.append(level)
        for name in clade:
            cluster[name] = joined
    # SciPy's fourth column: the number of leaves below.
    below = [1] * len(names)
    for row in rows:
        row[3] = below[int(row[0])] + below[int(row[1])]
        below.append(int(row[3]))
    return np.array(rows, dtype=np.float64)


def newick_of_linkage(linkage: Array, names: Sequence[str]) -> str:
    """Return SciPy's linkage matrix as a tree in Newick format, with branch lengths: half of the distances.

    The path between two leaves through the node that joins them is then as long as their distance.
    """
    parts = [_newick_name(name) for name in names]
    heights = [0.0] * len(names)
    for a, b, distance, _ in linkage:
        # From a child to its parent: half the difference of the distances at which they were joined.
        inside = ",".join(f"{parts[i]}:{(distance - heights[i]) / 2:.6g}" for i in (int(a), int(b)))
        parts.append(f"({inside})")
        heights.append(float(distance))
    return parts[-1] + ";"


def restricted(clades: Clades, leaves: Collection[str]) -> Clades:
    """Return the clades of the tree reduced to these leaves, without those that hold a single leaf or all of them."""
    inside = frozenset(leaves)
    return {clade & inside for clade in clades if 1 < len(clade & inside) < len(inside)}


def splits(clades: Clades, leaves: Sequence[str]) -> Clades:
    """Return the splits of the leaves in two that the edges of the tree make, regardless of its root.

    Each is given by the side without the first leaf. Splits with a single leaf on one side, which every tree has, are
    left out.
    """
    all_leaves = frozenset(leaves)
    # One fixed side, or the two clades below the root would count as two splits, which are the same one.
    sides = {all_leaves - clade if leaves[0] in clade else clade for clade in clades}
    return {side for side in sides if 1 < len(side) < len(all_leaves) - 1}


def robinson_foulds(first: Clades, second: Clades, leaves: Sequence[str], *, rooted: bool = True) -> int:
    """Return the number of clades (rooted) or splits (unrooted) that only one of two trees has."""
    if not rooted:
        first = splits(first, leaves)
        second = splits(second, leaves)
    return len(first ^ second)


def _newick_name(name: str) -> str:
    """Return a name for Newick, in quotes unless it has no special characters."""
    return name if re.fullmatch(r"[\w.+-]+", name) else "'" + name.replace("'", "''") + "'"
