"""Fingerprints of the rows of a context, from their moments: the same for rows in any order, chunks or format.

Of a context with n rows, mean m and scatter M these numbers are taken, none of which depends on the order of rows or
of features:

    n,   1^T m,   |m|^2,   tr M,   |M|^2,   |diag M|^2,   1^T M 1,   m^T M m,

each divided by what it is at most (so that cancellation does not count), rounded to six digits and hashed together
with the name of the context. Sums in another order differ in the twelfth digit or so, which changes the sixth once in a
million times. Only whole numbers can agree by chance, where their moments take few values: those have no fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.types import Array

MOST = 4096  # kept; the oldest go first
_DIGITS = 6
_FEW = 8  # different moments of whole numbers that may agree by chance
_NONE = np.zeros(0, dtype=np.uint64)


def fingerprints_of(names: Sequence[Any], counts: Array, means: Array, scatters: Array) -> Array:
    """Return the fingerprint of each context (k,), 0 where it has none. Cost O(k p^2)."""
    found = np.zeros(len(names), dtype=np.uint64)
    for i, name in enumerate(names):
        n, m, M = int(counts[i]), np.asarray(means[i], dtype=np.float64), scatters[i]
        if n > 1 and np.trace(M) > 0 and not _by_chance(n, m, M):
            digest = hashlib.sha256(f"{type(name).__name__} {name}".encode() + _rounded(n, m, M).tobytes()).digest()
            found[i] = int.from_bytes(digest[:8], "big") | 1
    return found


def _rounded(n: int, m: Array, M: Array) -> Array:
    p, e = len(m), int(np.frexp(np.sqrt(float(np.trace(M))))[1])
    m, M = np.ldexp(m, -e), np.ldexp(M, -2 * e)  # exactly: squares of very large moments would be no numbers
    total, row_sums = float(np.trace(M)), M.sum(axis=1, dtype=np.float64)
    squares = float(m @ m) + total / n  # about the mean square of a row
    ratios = [
        m.sum() / np.sqrt(p * squares),
        m @ m / squares,
        np.vdot(M, M) / total**2,
        np.square(np.diagonal(M)).sum() / total**2,
        row_sums.sum() / (p * total),
        m @ (M @ m) / (squares * total),
    ]
    # Scales go by their logarithms, whose sixth digit is that of the number.
    scales = np.log([squares, total]) + 2 * e * np.log(2)
    return np.round([n, *scales, *ratios], _DIGITS) + 0.0  # no negative zero


def _by_chance(n: int, m: Array, M: Array) -> bool:
    """Whether rows are whole numbers, and their moments so few that other rows may well have the same."""
    sums = n * m
    if np.abs(sums - np.round(sums)).max() > 1e-9 * max(1.0, float(np.abs(sums).max())):
        return False
    return len(np.unique(np.round(np.concatenate([sums, np.ravel(M[:8])]), _DIGITS))) < _FEW


def union(*parts: Array) -> Array:
    """Return all fingerprints once, in the order in which they came, the last of them where they are many."""
    everything = np.concatenate([_NONE, *parts])
    _, first = np.unique(everything, return_index=True)
    kept = everything[np.sort(first)]
    return kept[kept > 0][-MOST:]


def to_json(found: Array) -> list[str]:
    """Return fingerprints as texts, since JSON has no whole numbers of this size."""
    return [f"{value:016x}" for value in found.tolist()]


def from_json(content: Any) -> Array:
    """Return what ``to_json`` made; none where a file has none."""
    if content is None:
        return _NONE
    try:
        return union(np.array([int(text, 16) for text in content], dtype=np.uint64))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"its fingerprints of rows are not what ContextMoments.save writes ({error}).") from error
