"""How far trees of contexts are from a known tree, by group of rows: species by organ, and pooled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.optional import require
from ._common import CATEGORIES, FONT_SIZE, MARKERS, axes_or_new
from ._tree_distances import FEATURE_LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WORDS = {
    "distance": "clades in one tree only",
    "normalized": "share of clades in one tree only",
    "support": "mean support of the known clades in resamples",
    "right": "share of resamples with the known tree",
}
_BAND = 0.62  # of the distance between two groups, that the marks of one group take


def plot_group_trees(result: Any, *, value: str = "distance", ax: Axes | None = None) -> Axes:
    """Draw how near trees of contexts are to the known tree in each group of rows, a mark for each kind of features.

    Parameters
    ----------
    result : GroupTrees
        What ``mcpca.analysis.trees_by_group`` returned.
    value : {"distance", "normalized", "support", "right"}
        The column of ``result.table`` to draw; the last two need resamples.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    A mark is filled where the tree is the known one, and open elsewhere, whatever is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from mcpca import MCPCA
    >>> from mcpca.analysis import trees_by_group
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_group_trees
    >>> truth = make_contexts(n_contexts=4, n_features=8, n_components=3, random_state=0)
    >>> organ = np.where(np.arange(len(truth.y)) % 2, "brain", "heart")
    >>> found = trees_by_group(MCPCA(3, random_state=0), "((0, 1), (2, 3));", organ, X=truth.X, y=truth.y)
    >>> ax = plot_group_trees(found)
    """
    table = getattr(result, "table", None)
    if table is None or not {"group", "features", "distance"} <= set(getattr(table, "columns", ())):
        raise TypeError(f"result is a {type(result).__name__}; pass what trees_by_group returned.")
    if value not in _WORDS:
        raise ValueError(f"value={value!r} is unknown; choose one of {list(_WORDS)}.")
    if value not in table:
        raise ValueError(f"value={value!r} needs resamples; call trees_by_group with resamples=200, say.")
    groups = list(dict.fromkeys(table["group"]))
    features = list(dict.fromkeys(table["features"]))
    ax = axes_or_new(ax, (6.4, 0.55 * len(groups) + 1.4))
    offsets = np.linspace(-_BAND / 2, _BAND / 2, len(features)) if len(features) > 1 else np.zeros(1)
    for place in range(len(groups) - 1):
        ax.axhline(place + 0.5, color="0.9", linewidth=0.8, zorder=0)
    for i, name in enumerate(features):
        own = table[table["features"] == name]
        x = own[value].to_numpy(dtype=float)
        at = np.array([groups.index(group) for group in own["group"]]) + offsets[i]
        same = own["distance"].to_numpy() == 0
        look: dict[str, Any] = {"color": CATEGORIES[i], "marker": MARKERS[i], "linestyle": "none", "markersize": 5.5}
        ax.plot(x, at, markerfacecolor="white", label=FEATURE_LABELS.get(str(name), str(name)), zorder=2, **look)
        ax.plot(x[same], at[same], zorder=3, **look)
    counts = table.groupby("group", sort=False)["contexts"].first()
    ax.set_yticks(range(len(groups)), [f"{group} ({counts[group]})" for group in groups])
    ax.set_ylim(len(groups) - 0.5, -0.5)  # the first, all rows, at the top
    if value == "distance":
        ticker = require("matplotlib.ticker", "plot")
        whole: dict[str, Any] = {"integer": True, "min_n_ticks": 1}
        ax.xaxis.set_major_locator(ticker.MaxNLocator(8, **whole))
        ax.set_xlim(-0.06 * max(float(table[value].max()), 1), 1.06 * max(float(table[value].max()), 1))
    else:
        ax.set_xlim(-0.05, 1.05)
    ax.set_xlabel(_WORDS[value], fontsize=FONT_SIZE)
    ax.set_ylabel("rows (contexts)", fontsize=FONT_SIZE)
    ax.set_title("trees of contexts by group of rows\nfilled: the known tree", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    style: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "title_fontsize": FONT_SIZE, "borderaxespad": 0}
    ax.legend(title="contexts compared by", loc="upper left", bbox_to_anchor=(1.02, 1), **style)
    return ax
