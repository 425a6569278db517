"""One feature that is nearly all of most MCPCs: the fit then describes that feature, not how features vary together.

That happens with a column that is not a measurement (a total count among expressions), or with features on very
different scales: the covariances of that feature with the others tilt the axes only a little, and every MCPC is nearly
the same feature again. Every fit is checked: ``_estimator.fitting`` finds the feature, ``MCPCA`` warns, and the command
line adds how to leave the column out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from .._utils.user_warnings import warn
from ..exceptions import DominantFeatureWarning

# The least |weight| of a feature, in an axis of unit length, that makes the axis nearly that feature. Two such axes are
# within 16 degrees of each other (2 arccos 0.99), which independent components hardly ever are.
NEAR_ONE = 0.99
# Share of the total variance of all features above which a feature is nearly all of it.
NEARLY_ALL = 0.99


class Dominance(NamedTuple):
    """A dominant ``feature`` (position), in ``n_components`` of ``rank`` MCPCs, and its least ``weight`` in those."""

    feature: int
    n_components: int
    rank: int
    weight: float

    def sentence(self, name: str, way_out: str) -> str:
        """Return the warning for a feature called ``name``; ``way_out`` is how to leave it out."""
        which = f"{self.n_components} of {self.rank} MCPCs" if self.rank > 1 else "the MCPC"
        # Rounded down, so that "or more" stays true.
        weight = float(np.floor(self.weight * 1e4) / 1e4)
        return (
            f"{name} is nearly all of {which} (|weight| {weight} or more), which then say little about the other "
            f"features. {way_out}, or bring features to one scale (divide each by its standard deviation)."
        )


def dominant_feature(A: Array, variances: Callable[[], Array]) -> Dominance | None:
    """Return the feature that most columns of A (p, r) nearly are, or None.

    If two MCPCs are nearly the same feature, A alone shows it. A single one may be right (one MCPC in all, or
    orthonormal ones, as when features are scores of PCA): the feature must then also have nearly all of the variance,
    for which ``variances`` computes the variances of the features (k, p).
    """
    p, r = A.shape
    # (p, r). Columns have unit length, so a weight of 0.99 leaves 2% of the squared length to all other features.
    weights = np.abs(A)
    n_near = (weights >= NEAR_ONE).sum(axis=1)
    feature = int(n_near.argmax())
    n = int(n_near[feature])
    # Of two features one is always large in an axis.
    if p < 3 or n == 0:
        return None
    # A alone settles all other cases: variances are computed only here.
    if n == 1 or 2 * n <= r:
        total = np.asarray(variances(), dtype=np.float64).sum(axis=0)
        if not total[feature] > NEARLY_ALL * total.sum():
            return None
    weights_of_feature = weights[feature]
    # The least of those that count, so that "or more" in the sentence holds for each of them.
    least = float(weights_of_feature[weights_of_feature >= NEAR_ONE].min())
    return Dominance(feature, n, r, least)


def warn_of_dominance(dominance: Dominance | None, names: Array | None) -> None:
    """Issue a ``DominantFeatureWarning`` that names the feature, if there is one, and the way out."""
    if dominance is None:
        return
    j = dominance.feature
    name = f"Feature {j} (counted from 0)" if names is None else f"The feature {str(names[j])!r}"
    warn(DominantFeatureWarning(dominance.sentence(name, "Leave it out of X if it is not a measurement"), dominance))
