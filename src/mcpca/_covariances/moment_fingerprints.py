"""Fingerprints of the rows of a context, from their moments: the same for rows in any order, chunks or format.

``ContextMoments`` compares them to refuse rows that were added before, also where the rows themselves are not at hand.
From a context with n rows, mean m and scatter M these numbers are taken, none of which depends on the order of rows or
of features:

    n,   1^T m,   |m|^2,   tr M,   |M|^2,   |diag M|^2,   1^T M 1,   m^T M m,

each divided by an upper bound of its size (so that cancellation does no harm), rounded to six digits and hashed
together with the name of the context. Sums in another order differ in the twelfth digit or so, which changes the sixth
once in a million times. Only rows of whole numbers whose moments take few values can agree by chance: those have no
fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.types import Array

# Fingerprints that are kept, the oldest going first: 80 kB in a file. Rows that were added before them are not known.
MOST_FINGERPRINTS = 4096
# More digits and sums in another order give another fingerprint; fewer and different rows have the same.
_DIGITS = 6
# Rows of whole numbers whose moments take fewer different values than this may agree with others by chance.
_FEW_VALUES = 8
# Rows of the scatter that are looked at for that: enough to find that many different values.
_SCATTER_ROWS = 8
_NONE = np.zeros(0, dtype=np.uint64)


def fingerprints_of(names: Sequence[Any], counts: Array, means: Array, scatters: Array) -> Array:
    """Return the fingerprint of each context (k,), 0 where it has none. Cost O(k p^2)."""
    marks = np.zeros(len(names), dtype=np.uint64)
    for i, name in enumerate(names):
        n = int(counts[i])
        m = np.asarray(means[i], dtype=np.float64)
        M = scatters[i]
        # One row, or rows that are all the same, have no scatter to tell them from others.
        if n > 1 and np.trace(M) > 0 and not _may_agree_by_chance(n, m, M):
            # With the type of the name: context 1 is not context "1".
            label = f"{type(name).__name__} {name}".encode()
            # 8 of the 32 bytes: among a few thousand fingerprints two 64-bit numbers practically never agree by chance.
            digest = hashlib.sha256(label + _rounded(n, m, M).tobytes()).digest()
            marks[i] = int.from_bytes(digest[:8], "big") | 1  # never 0, which says that there is none
    return marks


def _rounded(n: int, m: Array, M: Array) -> Array:
    """Return the numbers at the top of the module, divided by their bounds and rounded (9,)."""
    p = len(m)
    # Times a power of two, which is exact: squares of very large or small moments would overflow or vanish.
    e = int(np.frexp(np.sqrt(float(np.trace(M))))[1])
    m = np.ldexp(m, -e)
    M = np.ldexp(M, -2 * e)
    total = float(np.trace(M))
    # 1^T M 1 by way of row sums in float64: the scatters of float32 rows would otherwise be added up in float32.
    row_sums = M.sum(axis=1, dtype=np.float64)
    # |m|^2 alone may be 0, as for centred rows, and could not serve as a bound of what it divides.
    squares = float(m @ m) + total / n  # about the mean square of a row
    # Each at most 1 by Cauchy and Schwarz.
    ratios = [
        m.sum() / np.sqrt(p * squares),
        m @ m / squares,
        np.vdot(M, M) / total**2,
        np.square(np.diagonal(M)).sum() / total**2,
        row_sums.sum() / (p * total),
        m @ (M @ m) / (squares * total),
    ]
    # Scales by their logarithms, of which the sixth decimal is about the sixth digit of the number.
    scales = np.log([squares, total]) + 2 * e * np.log(2)
    return np.round([n, *scales, *ratios], _DIGITS) + 0.0  # no negative zero


def _may_agree_by_chance(n: int, m: Array, M: Array) -> bool:
    """Whether rows are whole numbers with moments of so few values that other rows may well have the same."""
    # The sum of whole numbers is whole. 1e-9 allows for the rounding of the mean.
    sums = n * m
    are_whole = np.abs(sums - np.round(sums)).max() <= 1e-9 * max(1.0, float(np.abs(sums).max()))
    if not are_whole:
        return False
    values = np.concatenate([sums, np.ravel(M[:_SCATTER_ROWS])])
    return len(np.unique(np.round(values, _DIGITS))) < _FEW_VALUES


def union(*parts: Array) -> Array:
    """Return each fingerprint once, in the order in which they came; of more than ``MOST_FINGERPRINTS`` the last."""
    marks = np.concatenate([_NONE, *parts])
    # ``np.unique`` sorts; the positions of first occurrences, sorted, bring back the order in which they came.
    _, first = np.unique(marks, return_index=True)
    distinct = marks[np.sort(first)]
    return distinct[distinct > 0][-MOST_FINGERPRINTS:]


def fingerprints_to_json(marks: Array) -> list[str]:
    """Return fingerprints as hexadecimal texts: many readers of JSON round whole numbers of 64 bits."""
    return [f"{mark:016x}" for mark in marks.tolist()]


def fingerprints_from_json(content: Any) -> Array:
    """Return the fingerprints that ``fingerprints_to_json`` wrote; an empty array for a file without any."""
    if content is None:
        return _NONE
    try:
        # By ``union``, since a file may hold repeated marks or more than we keep.
        return union(np.array([int(text, 16) for text in content], dtype=np.uint64))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"its fingerprints of rows are not what ContextMoments.save writes ({error}).") from error
