"""The features at both poles of one MCPC, as bars; ``mcpca.poles`` chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.fitted import fitted, resolve_feature_names
from .._utils.component_names import component_index
from .._utils.optional import require
from ..poles import poles
from ._common import CHARACTER_WIDTH, DIVERGING, FONT_SIZE, axes_or_new, shorten
from ._labels import name_places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_FEATURE = 40  # characters of a name; features have longer ones than contexts
_POLE_GAP = 0.6  # rows between the poles


def plot_top_features(
    source: Any,
    component: Any,
    *,
    n: int = 10,
    by: Literal["components", "projection"] = "components",
    names: str | Sequence[Any] | None = None,
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw the features with the most positive and the most negative entries of one MCPC.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or an AnnData with a fit.
    component : int or str
        The MCPC, by column (0 is MCPC 1) or name.
    n : int
        Number of features at each pole; fewer if fewer have that sign.
    by : {"components", "projection"}
        The entries of ``a_j``, by which a row changes when its score grows by 1; or those of ``projection_[j]``, the
        weights of the features in the score.
    names : sequence of str, or str, optional
        Names of the features of the fit; for an AnnData also of all features in ``var``, or the name of a column of
        ``var`` (gene symbols, say).
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose height follows the number of features.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    The sign of an MCPC is a convention: neither pole is preferred. On axes that are too small for all names the
    font becomes smaller, and beyond that names are left out.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_top_features
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> ax = plot_top_features(model, "MCPC 1", n=5)
    """
    fit = fitted(source, key).with_all_features()
    j = component_index(component, fit.names)
    if by not in ("components", "projection"):
        raise ValueError(f"by={by!r}; choose 'components' or 'projection'.")
    matrix = fit.components if by == "components" else fit.projection.T
    ends = poles(matrix, resolve_feature_names(source, fit, names, key), j, n)
    n_positive = len(ends.positive.names)
    labels = [shorten(name, _LONGEST_FEATURE) for name in ends.positive.names + ends.negative.names[::-1]]
    values = np.concatenate([ends.positive.values, ends.negative.values[::-1]])
    # From the most positive at the top to the most negative at the bottom.
    places = -np.arange(len(values), dtype=np.float64)
    # A gap only where there are two poles to separate.
    if 0 < n_positive < len(values):
        places[n_positive:] -= _POLE_GAP
    longest = max(map(len, labels), default=0)
    ax = axes_or_new(ax, (3.4 + longest * CHARACTER_WIDTH * FONT_SIZE / 72, 0.9 + 0.21 * len(values)))
    palette = require("matplotlib", "plot").colormaps[DIVERGING]
    # Two shades for two signs; lengths already show the sizes.
    colours = [palette(0.8 if value > 0 else 0.2) for value in values]
    ax.barh(places, values, height=0.74, color=colours, edgecolor="0.25", linewidth=0.6)
    ax.axvline(0, color="0.25", linewidth=0.8)
    # initial: an MCPC of zeros has no features at either pole.
    bottom = float(places.min(initial=0)) - 0.7
    ax.set_ylim(bottom, 0.7)
    ax.margins(x=0.05)
    if len(values):
        name_places(ax, places, labels, 0.7 - bottom)
    what = "entry of" if by == "components" else "weight in the score on"
    ax.set_xlabel(f"{what} {fit.names[j]}", fontsize=FONT_SIZE)
    ax.tick_params(axis="x", labelsize=FONT_SIZE)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax
