"""One feature that is nearly all of most MCPCs: what is fitted is that feature, and not how features go together.

So it is with a column that is no measurement (a number of counts among expressions), or with features of very different
scales. Its covariances with the others then tilt the axes a little, and every MCPC is that feature once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from .._utils.user_warnings import warn
from ..exceptions import DominantFeatureWarning

NEAR_ONE = 0.99  # weight in an axis of length 1: two axes that have it are within 16 degrees of one another
NEARLY_ALL = 0.99  # of the variance of all features


class Dominance(NamedTuple):
    """The position of a feature, the number of MCPCs that it nearly is, of how many, and its least weight in those."""

    feature: int
    n_components: int
    rank: int
    weight: float

    def told(self, name: str, way_out: str) -> str:
        """Say it of a feature by its name."""
        of_all = f"{self.n_components} of {self.rank} MCPCs" if self.rank > 1 else "the MCPC"
        return (
            f"{name} is nearly all of {of_all} (|weight| {_down(self.weight)} or more), which then tell little of the "
            f"other features. {way_out}, or bring features to one scale (divide each by its standard deviation)."
        )


def dominant_feature(A: Array, variances: Callable[[], Array]) -> Dominance | None:
    """Return the feature that most columns of A (p, r) nearly are, or None.

    That two MCPCs are nearly the same feature is told by A. One alone (a single MCPC, or orthonormal ones) may be
    right, as where features are scores of PCA: its variance must then be nearly all, which ``variances`` (k, p) tells.
    """
    p, r = A.shape
    weights = np.abs(A)
    near = (weights >= NEAR_ONE).sum(axis=1)
    feature = int(near.argmax())
    n = int(near[feature])
    if p < 3 or n == 0:
        return None
    if n == 1 or 2 * n <= r:
        total = np.asarray(variances(), dtype=np.float64).sum(axis=0)
        if not total[feature] > NEARLY_ALL * total.sum():
            return None
    of_feature = weights[feature]
    return Dominance(feature, n, r, float(of_feature[of_feature >= NEAR_ONE].min()))


def warn_of_dominance(dominance: Dominance | None, names: Array | None) -> None:
    """Issue a ``DominantFeatureWarning`` that names the feature, if there is one, and the way out."""
    if dominance is None:
        return
    j = dominance.feature
    name = f"Feature {j} (counted from 0)" if names is None else f"The feature {str(names[j])!r}"
    warn(DominantFeatureWarning(dominance.told(name, "Leave it out of X if it is no measurement"), dominance))


def _down(weight: float) -> float:
    return float(np.floor(weight * 1e4) / 1e4)
