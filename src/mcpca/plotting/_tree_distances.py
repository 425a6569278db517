"""How far trees of contexts are from a known tree, by the number of MCPCs or PCs: the paper's Fig. S4C, E, G, I."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._utils.optional import require
from ._common import CATEGORIES, FONT_SIZE, MARKERS, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEATURE_LABELS = {
    "loadings": "loadings of MCPCs",
    "means": "means of PCs",
    "covariances": "covariances of PCs",
    "variances": "variances of PCs",
}
_APART = 0.045  # of the axis: lines that lie on one another are drawn a little apart
_LINES = ("-", "--", "-.", ":")


def plot_tree_distances(table: Any, *, normalized: bool = False, ax: Axes | None = None) -> Axes:
    """Draw the distance of trees of contexts to the known tree against the number of MCPCs or PCs.

    Parameters
    ----------
    table : DataFrame
        What ``mcpca.analysis.tree_distances`` returned for several models or numbers of PCs.
    normalized : bool
        Whether to draw the distance over its largest possible value, from 0 to 1, rather than the number of clades that
        only one of the two trees has.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    At 0 a tree is the known one; its marker is filled there, and open elsewhere. Distances are whole numbers, so lines
    are drawn a little apart to be seen where they are equal.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.analysis import tree_distances
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_tree_distances
    >>> truth = make_contexts(n_contexts=4, n_features=8, n_components=4, random_state=0)
    >>> models = [MCPCA(r, random_state=0).fit(truth.X, truth.y) for r in (2, 3, 4)]
    >>> ax = plot_tree_distances(tree_distances(models, "((0, 1), (2, 3));", X=truth.X, y=truth.y))
    """
    column = "normalized" if normalized else "distance"
    if not hasattr(table, "columns") or not {"features", "number", column} <= set(table.columns):
        raise TypeError(f"table is a {type(table).__name__} without distances; pass what tree_distances returned.")
    features = list(dict.fromkeys(table["features"]))
    if len(features) > len(MARKERS):
        raise ValueError(
            f"table has {len(features)} kinds of features, and lines can be told apart for up to 8; draw some at a "
            "time."
        )
    largest = float(table[column].max()) or 1.0
    ax = axes_or_new(ax, (6.2, 3.3))
    ax.axhline(0, color="0.75", linewidth=0.8, zorder=0)
    for i, name in enumerate(features):
        own = table[table["features"] == name].sort_values("number")
        x, y = own["number"].to_numpy(), own[column].to_numpy(dtype=float)
        shown = y + _APART * largest * (i - (len(features) - 1) / 2) / max(1, len(features) / 2)
        colour = CATEGORIES[i]
        line = _LINES[i % len(_LINES)]
        label = FEATURE_LABELS.get(str(name), str(name))
        look: dict[str, Any] = {"color": colour, "marker": MARKERS[i], "markersize": 5.5}
        ax.plot(x, shown, linestyle=line, linewidth=1.3, markerfacecolor="white", label=label, zorder=2, **look)
        ax.plot(x[y == 0], shown[y == 0], linestyle="none", zorder=3, **look)
    ticker = require("matplotlib.ticker", "plot")
    whole: dict[str, Any] = {"integer": True, "min_n_ticks": 1}
    ax.xaxis.set_major_locator(ticker.MaxNLocator(10, **whole))
    if not normalized:
        ax.yaxis.set_major_locator(ticker.MaxNLocator(8, **whole))
    ax.set_ylim(-0.09 * largest, 1.09 * largest)
    ax.set_xlabel("number of MCPCs or PCs", fontsize=FONT_SIZE)
    of = "share of clades" if normalized else "clades"
    ax.set_ylabel(f"{of} in one tree only", fontsize=FONT_SIZE)
    n_right = {name: int((table[column][table["features"] == name] == 0).sum()) for name in features}
    best = [FEATURE_LABELS.get(str(name), str(name)) for name in features if n_right[name] == max(n_right.values()) > 0]
    right = f"most often by {', '.join(best)}" if best else "by none"
    ax.set_title(f"distance to the known tree\n0, filled: the same tree, {right}", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    style: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "title_fontsize": FONT_SIZE, "borderaxespad": 0}
    ax.legend(title="contexts compared by", loc="upper left", bbox_to_anchor=(1.02, 1), handlelength=3, **style)
    return ax
