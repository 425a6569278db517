"""How widely each MCPC is shared: specific to one context, shared by some, or broad.

The labels group the columns of the loadings heatmap and stand on cards; ``carrying_contexts`` names the contexts that
texts mention.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._utils.arguments import check_real
from ._utils.array_api import to_host
from ._utils.printing import Shown, counted, mcpcs
from ._utils.types import Array

SHARING_KINDS = ("specific", "shared", "broad", "none")
_FEWEST_BROAD = 3  # contexts that an MCPC must be in to be broad, unless there are fewer in all


@dataclass(frozen=True, repr=False)
class Sharing(Shown):
    """In how many contexts each of r MCPCs varies.

    Attributes
    ----------
    labels : ndarray (r,) of str
        "specific", "shared", "broad", or "none" for an MCPC without loadings.
    effective : ndarray (r,)
        Effective number of contexts of each MCPC, between 1 and k; 0 for an MCPC without loadings.
    """

    labels: Array
    effective: Array

    def _words(self) -> list[str]:
        occurring = dict.fromkeys(self.labels.tolist())
        kinds = ", ".join(f"{int((self.labels == kind).sum())} {kind}" for kind in occurring)
        return [f"{counted(len(self.labels), 'MCPC')}: {kinds}."]

    def _rows(self) -> dict[str, Any]:
        return {"": mcpcs(len(self.labels)), "kind": self.labels, "effective contexts": self.effective}


def how_shared(B: Any, *, groups: Sequence[Hashable] | None = None, broad: float = 1 / 3) -> Sharing:
    """Say for each MCPC whether one context, some or many carry it.

    The effective number of contexts of MCPC j is ``(sum_i b_ij^2)^2 / sum_i b_ij^4``: it is m if m contexts have
    equal loadings and the others none. Loadings are squared because ``||b_ij a_j a_j^T||_F^2 = b_ij^2``, and so that
    small loadings in many contexts, which real data always have, count for little. Rounded to a whole number, 1 is
    "specific"; "broad" is at least the share ``broad`` of all contexts, and at least 3 of them (or all, if there are
    fewer); "shared" is in between.

    Parameters
    ----------
    B : array-like (k, r)
        Loadings, >= 0; ``corrected_loadings_`` rather than ``loadings_``, in which noise makes all MCPCs broad.
    groups : sequence of k labels, optional
        Contexts with the same label count as one, with the largest of their loadings: cancer types of one organ, say.
    broad : float
        Share of the contexts (or groups) from which an MCPC counts as broad.

    Returns
    -------
    Sharing

    Notes
    -----
    Cost O(k r).

    Examples
    --------
    >>> from mcpca.sharing import how_shared
    >>> how_shared([[9, 4, 3], [0, 5, 3], [0, 0, 3], [1, 0, 2]]).labels.tolist()
    ['specific', 'shared', 'broad']
    """
    B = np.asarray(to_host(B), dtype=np.float64)
    if B.ndim != 2 or 0 in B.shape:
        raise ValueError(f"B must be a (k, r) matrix of loadings, got shape {B.shape}.")
    if not np.isfinite(B).all() or B.min() < 0:
        raise ValueError("B has negative, NaN or infinite entries; loadings are finite and >= 0.")
    broad = check_real(broad, "broad", 0, 1, "It is a share of the contexts.")
    # B (k, r); (groups, r) from here on.
    if groups is not None:
        B = _largest_of_groups(B, groups)
    # effective, whole and labels (r,)
    effective = _effective(B)
    whole = np.round(effective)
    # With fewer than three contexts in all, "broad" is all of them.
    many = min(len(B), max(_FEWEST_BROAD, broad * len(B)))
    # The order decides: with a single context an MCPC is specific, although it is in all of them.
    labels = np.select([whole == 0, whole == 1, whole >= many], ["none", "specific", "broad"], "shared")
    return Sharing(labels, effective)


def carrying_contexts(b: Array) -> Array:
    """Return the contexts with at least half of the largest loading in ``b`` (k,), the strongest first."""
    # Stable, so that equal loadings stay in the order of contexts.
    order = np.argsort(-b, kind="stable")
    return np.asarray(order[(b[order] >= b.max() / 2) & (b[order] > 0)])


def _effective(B: Array) -> Array:
    largest = B.max(axis=0)
    # The number is free of the unit: scaled to at most 1, fourth powers neither overflow nor vanish.
    squares = (B / np.where(largest > 0, largest, 1)) ** 2
    return np.asarray(squares.sum(axis=0) ** 2 / np.where(largest > 0, (squares**2).sum(axis=0), 1))


def _largest_of_groups(B: Array, groups: Sequence[Hashable]) -> Array:
    if len(groups) != len(B):
        raise ValueError(f"groups has {len(groups)} labels, but B has {len(B)} contexts; pass one for each.")
    rows: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        rows.setdefault(group, []).append(i)
    return np.stack([B[members].max(axis=0) for members in rows.values()])
