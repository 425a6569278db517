"""Which MCPCs the data can tell apart: the paper's condition for identifiability, as a diagnostic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._utils.arguments import FINITE, check_unmasked
from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.user_warnings import warn
from ..exceptions import IdentifiabilityWarning

# Columns of B closer than this count as proportional. Sampling error in B is rarely smaller.
DEFAULT_DEGREES = 1.0


class ProportionalPair(NamedTuple):
    """Two MCPCs whose loadings are within ``degrees`` of proportional; of equal, where axes are orthogonal."""

    first: int
    second: int
    degrees: float


def proportional_loadings(B: Array, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
    """Return the pairs of columns of B (k, r) whose angle is at most ``max_degrees``.

    The model is identifiable when the MCPCs are linearly independent and no two columns of B are proportional, and it
    is not when two are (or when one is zero, which is proportional to all: such columns are paired with themselves).
    Of orthogonal MCPCs only equal columns are not identifiable; ``MCPCA.proportional_loadings`` knows which they are.
    """
    B, zero = _in_range(B)
    return _close_pairs(B / np.where(zero, 1, np.linalg.norm(B, axis=0)), zero, max_degrees)


def _in_range(B: Array) -> tuple[Array, Array]:
    """Return columns of B (k, r), each times a power of two that brings it near 1, and which of them are 0."""
    B = np.asarray(check_unmasked(to_host(B), "B", FINITE), dtype=np.float64)
    top = np.abs(B).max(axis=0, initial=0)
    return np.ldexp(B, -np.frexp(top)[1]), top == 0  # squares of very small numbers would be none


def indistinct_loadings(
    B: Array, max_degrees: float = DEFAULT_DEGREES, *, orthogonal: bool, n_features: int
) -> list[ProportionalPair]:
    """Return the pairs of MCPCs that the contexts cannot tell apart up to ``max_degrees``.

    Their loadings are proportional, or, of ``orthogonal`` MCPCs, equal: the model is then identifiable if and only if
    the columns of B are distinct. How far two columns are from equal is ``2 arcsin(|b - c| / (|b| + |c|))``, which is
    their angle where they have the same length. An axis without loadings is paired with itself, but for the one
    direction that all other axes of the space leave.
    """
    if not orthogonal:
        return proportional_loadings(B, max_degrees)
    B = np.asarray(check_unmasked(to_host(B), "B", FINITE), dtype=np.float64)
    B = np.ldexp(B, -np.frexp(np.abs(B).max(initial=0))[1])
    norms = np.linalg.norm(B, axis=0)
    zero = norms <= np.finfo(float).eps * norms.max(initial=0)  # variances, of which rounding may leave something
    left = zero.sum() == 1 and B.shape[1] == n_features
    return _close_pairs(B / (norms.max(initial=0) or 1), zero, max_degrees, drop_zero=bool(left))


def _close_pairs(B: Array, zero: Array, max_degrees: float, drop_zero: bool = False) -> list[ProportionalPair]:
    """Return pairs of columns by ``2 arcsin(|b - c| / (|b| + |c|))``, then those of ``zero`` with themselves."""
    norms = np.linalg.norm(B, axis=0)
    # From differences: arccos of a cosine near 1 has half the digits.
    gaps = np.sqrt(np.maximum(norms[:, None] ** 2 + norms**2 - 2 * (B.T @ B), 0))
    sums = np.maximum(norms[:, None] + norms, np.finfo(float).tiny)
    degrees = np.degrees(2 * np.arcsin(np.minimum(gaps / sums, 1)))
    near = np.triu(degrees <= max_degrees, k=1) & ~zero[:, None] & ~zero[None, :]
    pairs = [ProportionalPair(int(i), int(j), float(degrees[i, j])) for i, j in np.argwhere(near)]
    return pairs + [ProportionalPair(int(j), int(j), 0.0) for j in np.flatnonzero(zero) if not drop_zero]


def warn_if_proportional(B: Array, names: Sequence[str], *, orthogonal: bool, n_features: int) -> None:
    """Issue one ``IdentifiabilityWarning`` that names every pair. One context is PCA and is not warned about."""
    if len(B) < 2:
        return
    pairs = indistinct_loadings(B, orthogonal=orthogonal, n_features=n_features)
    if not pairs:
        return
    shown = [
        f"{names[p.first]} and {names[p.second]} ({p.degrees:.2g} degrees apart)"
        if p.first != p.second
        else f"{names[p.first]} (all loadings zero)"
        for p in pairs[:5]
    ]
    more = f" and {len(pairs) - 5} more" if len(pairs) > 5 else ""
    kind = "equal" if orthogonal else "proportional"
    warn(
        f"MCPCs with {kind} loadings: {'; '.join(shown)}{more}. What such MCPCs span is determined by the data, "
        f"the axes themselves are not: with {len(B)} contexts nothing tells them apart. Lower n_components, or add "
        "contexts in which they differ.",
        IdentifiabilityWarning,
    )
