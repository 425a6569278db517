"""Which MCPCs the data can tell apart: the paper's condition for identifiability, as a diagnostic."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._check import FINITE, Array, check_unmasked
from ._namespace import to_host
from .exceptions import IdentifiabilityWarning

# Columns of B closer than this count as proportional. Sampling error in B is rarely smaller.
DEFAULT_DEGREES = 1.0


class ProportionalPair(NamedTuple):
    """Two MCPCs whose loadings are within ``degrees`` of proportional."""

    first: int
    second: int
    degrees: float


def proportional_loadings(B: Array, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
    """Return the pairs of columns of B (k, r) whose angle is at most ``max_degrees``.

    The model is identifiable when the MCPCs are linearly independent and no two columns of B are proportional, and it
    is not when two are (or when one is zero, which is proportional to all: such columns are paired with themselves).
    """
    B = np.asarray(check_unmasked(to_host(B), "B", FINITE), dtype=np.float64)
    top = np.abs(B).max(axis=0, initial=0)
    zero = top == 0
    B = np.ldexp(B, -np.frexp(top)[1])  # squares of very small numbers would be none
    unit = B / np.where(zero, 1, np.linalg.norm(B, axis=0))
    # From the difference of unit vectors: arccos of a cosine near 1 has half the digits.
    cosines = unit.T @ unit
    gaps = np.sqrt(np.maximum(2 - 2 * cosines, 0))
    degrees = np.degrees(2 * np.arcsin(np.minimum(gaps / 2, 1)))
    near = np.triu(degrees <= max_degrees, k=1) & ~zero[:, None] & ~zero[None, :]
    pairs = [ProportionalPair(int(i), int(j), float(degrees[i, j])) for i, j in np.argwhere(near)]
    return pairs + [ProportionalPair(int(j), int(j), 0.0) for j in np.flatnonzero(zero)]


def warn_if_proportional(B: Array, names: Sequence[str]) -> None:
    """Issue one ``IdentifiabilityWarning`` that names every pair. One context is PCA and is not warned about."""
    if len(B) < 2:
        return
    pairs = proportional_loadings(B)
    if not pairs:
        return
    shown = [
        f"{names[p.first]} and {names[p.second]} ({p.degrees:.2g} degrees apart)"
        if p.first != p.second
        else f"{names[p.first]} (all loadings zero)"
        for p in pairs[:5]
    ]
    more = f" and {len(pairs) - 5} more" if len(pairs) > 5 else ""
    warnings.warn(
        f"MCPCs with proportional loadings: {'; '.join(shown)}{more}. What such MCPCs span is determined by the data, "
        f"the axes themselves are not: with {len(B)} contexts nothing tells them apart. Lower n_components, or add "
        "contexts in which they differ.",
        IdentifiabilityWarning,
        stacklevel=4,  # the caller of MCPCA.fit
    )
