"""What makes two solutions comparable: one order and sign for each, and a matching of the columns of two.

The model ``S_i = A diag(b_i) A^T`` is the same for columns in any order and of either sign. Every solver's answer goes
through ``canonical_order``, so that a fit does not depend on the seed in these respects; ``match_components`` and
``ascore``, which are public, compare solutions that may still differ in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from .._utils.arguments import FINITE, check_unmasked
from .._utils.array_api import to_host
from .._utils.printing import Shown, counted, span
from .._utils.types import Array

# Two numbers closer than this, relative to the largest, are taken as equal, so that rounding cannot decide an order or
# a sign. Larger, and different totals are sorted by the position of entries; smaller, and solutions that agree up to
# the tolerance of a solver may come in another order.
_TIE = 1e-7


def canonical_order(A: Array, B: Array) -> tuple[Array, Array, Array]:
    """Sort columns by total variance (column sums of B) and make the largest entry of each positive.

    Returns A, B and the order. Ties in the total are broken by the position of the largest entry, and of entries that
    tie for the largest the first counts: neither depends on the seed.
    """
    # A (p, r), B (k, r), peak and total (r,). Columns times -1 leave A diag(b) A^T as it is, so B has no signs to fix.
    size = np.abs(A)
    # The first of the entries that tie for the largest: argmax of a mask is its first True.
    peak = np.argmax(size >= (1 - _TIE) * size.max(axis=0), axis=0)
    A = A * np.where(A[peak, np.arange(A.shape[1])] < 0, -1, 1)
    total = B.sum(axis=0)
    top = total.max(initial=0)
    # Totals on a grid of the width of a tie: equal ones are then exactly equal, and the second key decides.
    steps = np.round(total / (top * _TIE)) if top > 0 else total
    # The last key is the first to count: larger totals first, then the position of the peak.
    order = np.lexsort((peak, -steps))
    return np.ascontiguousarray(A[:, order]), np.ascontiguousarray(B[:, order]), order


@dataclass(frozen=True, repr=False)
class Matching(Shown):
    """How the columns of one solution correspond to those of another.

    ``indices[j]`` is the column of ``A`` matched with column j of ``A_ref``; multiplied by ``signs[j]`` it has a
    positive cosine with that column, ``cosines[j]``.
    """

    indices: Array
    signs: Array
    cosines: Array

    def apply(self, A: Any) -> Array:
        """Return the columns of ``A`` in the reference's order and sign."""
        return np.asarray(to_host(A))[:, self.indices] * self.signs

    def _words(self) -> list[str]:
        moved = int((np.asarray(self.indices) != np.arange(len(self.indices))).sum())
        return [
            f"{counted(len(self.cosines), 'column')} matched, |cos| {span(self.cosines)}.",
            f"{moved} of them {'is' if moved == 1 else 'are'} in another place.",
        ]

    def _rows(self) -> dict[str, Any]:
        return {
            "column of A_ref": range(len(self.indices)),
            "column of A": self.indices,
            "sign": self.signs,
            "|cos|": self.cosines,
        }


def match_components(A: Any, A_ref: Any, *, method: str = "optimal") -> Matching:
    """Match columns up to sign by absolute cosine.

    Parameters
    ----------
    A, A_ref : array-like (p, r) and (p, s), s <= r
        Every column of ``A_ref`` gets a column of ``A`` of its own.
    method : {"optimal", "greedy"}
        "optimal" maximises the sum of ``|cos|`` (Hungarian assignment); "greedy" is the paper's: the first reference
        column takes its best match, then the second among what is left, and so on.

    Notes
    -----
    Cost O(p r s) for the cosines, then O(r^3) or O(r s).
    """
    A = _columns(A, "A")
    A_ref = _columns(A_ref, "A_ref")
    if A.shape[0] != A_ref.shape[0] or A_ref.shape[1] > A.shape[1]:
        raise ValueError(
            f"A {A.shape} and A_ref {A_ref.shape} do not match: both need the same number of rows, and A_ref at most "
            "as many columns as A. Swap them, or select columns."
        )
    lengths = np.outer(np.linalg.norm(A_ref, axis=0), np.linalg.norm(A, axis=0))
    cosines = A_ref.T @ A / np.maximum(lengths, np.finfo(float).tiny)  # (s, r); 0 for columns of zeros
    # The sign of a component is arbitrary, so only |cos| is matched; signs are read off afterwards.
    size = np.abs(cosines)
    if method == "optimal":
        # It minimises, hence the minus. With s <= r every row gets a column, and rows come back in order.
        indices = linear_sum_assignment(-size)[1]
    elif method == "greedy":
        indices = np.empty(len(size), dtype=np.intp)
        free = size.copy()
        for j in range(len(size)):
            indices[j] = np.argmax(free[j])
            free[:, indices[j]] = -1  # below any |cos|: taken
    else:
        raise ValueError(f"method={method!r}; choose 'optimal' or 'greedy'.")
    # 1 for a cosine of exactly 0: a sign of 0 would delete the column in ``apply``.
    matched = cosines[np.arange(len(size)), indices]
    return Matching(indices, np.where(matched < 0, -1.0, 1.0), np.abs(matched))


def ascore(A: Any, A_ref: Any, *, method: str = "greedy") -> float:
    """Return the paper's Ascore: the mean absolute cosine between matched columns.

    ``Ascore = (1/r) sum_j |<a_j, a'_j>|``, 1 for a perfect recovery up to order and sign. ``method="greedy"`` is the
    paper's matching, in the order of the columns of ``A_ref`` (the truth); ``"optimal"`` never scores lower.
    """
    return float(match_components(A, A_ref, method=method).cosines.mean())


def _columns(value: Any, name: str) -> Array:
    """Return components (p, r) in float64, or raise where they are no finite matrix."""
    # Accepts device arrays and lists alike: both functions are public.
    A: Array = np.asarray(check_unmasked(to_host(value), name, FINITE), dtype=np.float64)
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"{name} must be a non-empty (p, r) matrix, got shape {A.shape}.")
    if not np.isfinite(A).all():
        raise ValueError(f"{name} contains NaN or infinite values; pass finite components.")
    return A
