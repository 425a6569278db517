"""Which MCPCs the data can tell apart: the paper's condition for identifiability, as a diagnostic.

The paper's proposition: with linearly independent a_j, the decomposition is unique if no two columns of B are
proportional, and it is not if two are, since then ``mu^2 a a^T + c c^T`` has other pairs of axes. If the a_j are
orthogonal, only equal columns are ambiguous. Every fit is checked (``warn_if_proportional``);
``MCPCA.proportional_loadings`` and the reports list the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._utils.arguments import FINITE, check_unmasked
from .._utils.array_api import to_host
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import listed
from ..exceptions import IdentifiabilityWarning

# Columns of B closer than this count as proportional. Sampling error in B is rarely smaller, so a smaller angle would
# miss pairs that the data do not separate; a larger one reports pairs that they do.
DEFAULT_DEGREES = 1.0


class ProportionalPair(NamedTuple):
    """Two MCPCs whose loadings are within ``degrees`` of proportional; for orthogonal axes, of equal."""

    first: int
    second: int
    degrees: float


def proportional_loadings(B: Array, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
    """Return the pairs of columns of B (k, r) whose angle is at most ``max_degrees``.

    The model is identifiable if the MCPCs are linearly independent and no two columns of B are proportional. It is not
    if two are proportional, or if one is zero: a zero column is proportional to all others, and is reported as a pair
    with itself. For orthogonal MCPCs only equal columns are ambiguous; ``MCPCA.proportional_loadings`` takes that into
    account.
    """
    B = _finite(B)
    largest = np.abs(B).max(axis=0, initial=0)
    is_zero = largest == 0
    B = np.ldexp(B, -np.frexp(largest)[1])  # each column near 1: squares of very small numbers would underflow
    return _close_pairs(B / np.where(is_zero, 1, np.linalg.norm(B, axis=0)), is_zero, max_degrees)


def _finite(B: Array) -> Array:
    """Return B in float64; raise if entries are masked."""
    return np.asarray(check_unmasked(to_host(B), "B", FINITE), dtype=np.float64)


def indistinct_loadings(
    B: Array, max_degrees: float = DEFAULT_DEGREES, *, orthogonal: bool, n_features: int
) -> list[ProportionalPair]:
    """Return the pairs of MCPCs that the contexts cannot tell apart, up to ``max_degrees``.

    Their loadings are proportional or, for ``orthogonal`` MCPCs, equal: that model is identifiable if and only if the
    columns of B are distinct. The distance of two columns from equality is ``2 arcsin(|b - c| / (|b| + |c|))``, their
    angle if they have the same length. An axis without loadings is paired with itself, unless it is the one
    direction that all other axes leave.
    """
    if not orthogonal:
        return proportional_loadings(B, max_degrees)
    B = _finite(B)
    # One power of two for all columns, because here their lengths are compared.
    B = np.ldexp(B, -np.frexp(np.abs(B).max(initial=0))[1])
    norms = np.linalg.norm(B, axis=0)
    is_zero = norms <= np.finfo(float).eps * norms.max(initial=0)  # variances of 0, of which rounding may leave a trace
    # Of p orthonormal axes the last is fixed by the other p - 1, whatever its loadings.
    is_determined = bool(is_zero.sum() == 1 and B.shape[1] == n_features)
    return _close_pairs(B / (norms.max(initial=0) or 1), is_zero, max_degrees, drop_zero=is_determined)


def _close_pairs(B: Array, is_zero: Array, max_degrees: float, drop_zero: bool = False) -> list[ProportionalPair]:
    """Return pairs of columns by ``2 arcsin(|b - c| / (|b| + |c|))``, then the zero columns with themselves."""
    norms = np.linalg.norm(B, axis=0)
    # |b - c|^2 = |b|^2 + |c|^2 - 2 b . c, which also serves columns of unequal length. Cancellation leaves half the
    # digits near 0, about 1e-6 degrees: far below any angle that matters here.
    gaps = np.sqrt(np.maximum(norms[:, None] ** 2 + norms**2 - 2 * (B.T @ B), 0))
    # Two zero columns would divide 0 by 0.
    sums = np.maximum(norms[:, None] + norms, np.finfo(float).tiny)
    degrees = np.degrees(2 * np.arcsin(np.minimum(gaps / sums, 1)))
    # A zero column is proportional to all others, which this distance does not show: it is listed once, with itself.
    is_close = np.triu(degrees <= max_degrees, k=1) & ~is_zero[:, None] & ~is_zero[None, :]
    pairs = [ProportionalPair(int(i), int(j), float(degrees[i, j])) for i, j in np.argwhere(is_close)]
    if drop_zero:
        return pairs
    return pairs + [ProportionalPair(int(j), int(j), 0.0) for j in np.flatnonzero(is_zero)]


def warn_if_proportional(B: Array, names: Sequence[str], *, orthogonal: bool, n_features: int) -> None:
    """Issue one ``IdentifiabilityWarning`` that names the pairs; none for a single context, where the answer is PCA."""
    # All columns of B are proportional then, and PCA's orthogonality takes the place of the condition.
    if len(B) < 2:
        return
    pairs = indistinct_loadings(B, orthogonal=orthogonal, n_features=n_features)
    if not pairs:
        return
    kind = "equal" if orthogonal else "proportional"
    shown = listed([_in_words(pair, names) for pair in pairs])
    warn(
        f"MCPCs with {kind} loadings: {shown}. The data determine the subspace that such MCPCs span, but not the axes "
        f"themselves: with {len(B)} contexts nothing tells them apart. Lower n_components, or add contexts in which "
        "they differ.",
        IdentifiabilityWarning,
    )


def _in_words(pair: ProportionalPair, names: Sequence[str]) -> str:
    if pair.first == pair.second:
        return f"{names[pair.first]} (all loadings zero)"
    return f"{names[pair.first]} and {names[pair.second]} ({pair.degrees:.2g} degrees apart)"
