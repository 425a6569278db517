"""A core that grows with the solver, for solvers that end at a stationary point in all features.

The core of ``subspace.compress`` holds the directions that matter most for the data, not those that matter for the
answer: a stationary point in it is not yet one in all features. So ``lsq``, ``ml`` and ``orthogonal`` work in rounds.
They converge in the core, take the gradient in all features (one or two passes over the covariances), and stop if it is
small; otherwise the core is made anew with that gradient in its basis, as in LOBPCG. With few features the core is all
of them from the start, and one round is enough.
"""

from __future__ import annotations

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.subspace import ALL_FEATURES, Core, grow, slices
from .._utils.types import Array

# Rounds in a row without progress after which ``Patience`` runs out.
_MOST_IDLE_ROUNDS = 4


class GrowingCore:
    """Slices ``U^T S_i U / unit`` in a basis U (p, q) that can be replaced; None is the basis of all features.

    ``tensor`` is in memory already, or None: the slices are made when they are first asked for.
    """

    def __init__(self, S: Covariances, basis: Array | None, tensor: Array | None = None, unit: float = 1.0) -> None:
        self._S = S
        self._unit = unit
        self._tensor = tensor
        self.basis = basis

    @classmethod
    def from_core(cls, S: Covariances, core: Core, unit: float = 1.0) -> GrowingCore:
        """Start from a compressed core, or from all features if they are few."""
        # One round in all features is then cheaper than several cores.
        if S.n_features <= ALL_FEATURES or core.basis is None:
            return cls(S, None, unit=unit)
        # The slices of a mixture are combinations of contexts, and these solvers need each context.
        tensor = core.tensor if core.mixture is None else None
        return cls(S, core.basis, None if tensor is None else _in_units(tensor, unit), unit)

    @property
    def tensor(self) -> Array:
        """The slices (k, q, q)."""
        # Not before they are asked for: a start that is stationary already needs no slices, which take a pass over S.
        if self._tensor is None:
            self._tensor = _in_units(slices(self._S, self.basis), self._unit)
        return self._tensor

    def inside(self, A: Array) -> Array:
        """Take columns from features (p, r) to core coordinates (q, r): what the basis holds of them."""
        # U is orthonormal, so this is the orthogonal projection. Nothing is lost of an A that was found in this basis
        # or that ``grow`` has put in it; only a start that was made in all features may lean out.
        return A if self.basis is None else self.basis.T @ A

    def lift(self, C: Array) -> Array:
        """Take columns from core coordinates (q, r) back to features (p, r)."""
        return C if self.basis is None else self.basis @ C

    def grow(self, A: Array, gradient: Array, change: Array) -> None:
        """Make the next core, for a solver that has come to A (p, r) by ``change`` and finds ``gradient`` there."""
        self._tensor = None  # so that it can go before the next one is made
        self.basis = grow(self.basis, A, gradient, change)


def _in_units(tensor: Array, unit: float) -> Array:
    return tensor if unit == 1 else tensor / unit


class Patience:
    """Runs out when a measure of the distance left has failed to fall by a factor several rounds in a row.

    ``factor`` is the share of the last value that a round must get below to count as progress. A single bad round means
    little: the basis has just been replaced.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._last = np.inf
        self._idle = 0

    def is_lost(self, distance: float) -> bool:
        """Take note of the distance after a round; return whether to give up."""
        # The first round counts as progress, since the last distance is infinite then.
        self._idle = self._idle + 1 if distance > self._factor * self._last else 0
        self._last = distance
        return self._idle == _MOST_IDLE_ROUNDS
