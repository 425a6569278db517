"""Tree of the contexts by the similarity of their loadings; ``mcpca.context_tree`` has the clustering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.cluster.hierarchy import leaves_list

from .._results.fitted import Fitted, fitted
from .._utils.arguments import refuse_without_effect
from .._utils.optional import require
from .._utils.types import Array
from ..context_tree import context_linkage
from ._annotations import (
    add_legend,
    draw_strips,
    legend_width,
    read_annotations,
    strips_width,
    write_letters,
)
from ._common import CHARACTER_WIDTH, FONT_SIZE, axes_or_new, put_row_names, settle, shorten_all, width_of
from ._loadings import check_normalize, normalized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METRIC_LABELS = {
    "correlation": "1 - correlation",
    "cosine": "1 - cosine",
    "euclidean": "distance",
}


def plot_context_tree(
    source: Any,
    *,
    method: Literal["average", "complete", "single", "weighted", "ward"] = "average",
    metric: Literal["correlation", "cosine", "euclidean"] = "correlation",
    normalize: Literal["component", "context"] | None = None,
    corrected: bool = True,
    annotations: Any = None,
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw the hierarchical clustering of contexts by their loadings as a tree, with its leaves on the right.

    Two branches join at the distance of their clusters.

    Parameters
    ----------
    source : MCPCA, AnnData or ContextTree
        A fitted model, or data with the fit of ``mcpca.tl.mcpca``; of at least two contexts. Or a tree that
        ``mcpca.analysis.context_tree`` made, also of PCs, or a known tree, which ``ContextTree.from_newick`` reads;
        these have a method and metric of their own.
    method : {"average", "complete", "single", "weighted", "ward"}
        Distance between two clusters; "ward" needs ``metric="euclidean"``.
    metric : {"correlation", "cosine", "euclidean"}
        Distance between two contexts. The first two do not depend on the total variance of a context; "correlation"
        needs at least two MCPCs.
    normalize : {None, "component", "context"}
        Divide the loadings of each MCPC, or of each context, by their maximum first; otherwise MCPCs with much variance
        dominate.
    corrected : bool
        Whether to take the noise of each context out of its loadings first; otherwise contexts are also close because
        they have the same noise. False takes ``loadings_``.
    annotations : optional
        What is known about the contexts, drawn as thin columns beside the leaves; as in ``plot_loadings``.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of contexts.

    Returns
    -------
    matplotlib Axes
        Leaves are at y = 0, 1, ..., k - 1 from the top.

    Notes
    -----
    Cost O(k^2 r), and O(k^3) for the best order of leaves if there are at most 500.
    """
    check_normalize(normalize)
    contexts, tree, label = (
        _made(source, method, metric, normalize, corrected)
        if hasattr(source, "linkage")
        else _of_loadings(fitted(source, key), method, metric, normalize, corrected)
    )
    k = len(contexts)
    # An empty list without annotations: widths are then 0.
    columns = read_annotations(annotations, contexts, source, key)
    # Contexts from top to bottom; the place of context i is where i is in it.
    order = leaves_list(tree)
    names = [contexts[i] for i in order]
    width = 3.2 + width_of(names) + strips_width(columns) / 72
    height = min(max(0.26 * k, 1.6), 9) + 0.7
    ax = axes_or_new(ax, (width + legend_width(columns, height), height))
    segments = branches(tree, order)
    lines = require("matplotlib.collections", "plot").LineCollection(segments, colors="0.25", linewidths=_line_width(k))
    ax.add_collection(lines, autolim=False)  # limits are set below
    largest = float(segments[:, :, 0].max()) or 1.0
    # The root is at the left: distances grow to the left, and the first leaf is at the top.
    ax.set_xlim(1.04 * largest, 0)
    ax.set_ylim(k - 0.5, -0.5)
    ax.yaxis.tick_right()
    put_row_names(ax, names)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=FONT_SIZE)
    # Levels of a known tree are whole numbers.
    whole = getattr(source, "metric", "") is None
    ax.xaxis.set_major_locator(require("matplotlib.ticker", "plot").MaxNLocator(5, integer=whole))
    ax.set_xlabel(label, fontsize=FONT_SIZE)
    ax.spines[["top", "left", "right"]].set_visible(False)
    if columns:
        strips = draw_strips(ax, columns, order, "right")
        add_legend(ax, columns, strips_width(columns) + _names_width(names) + 12)
        settle(ax)
        write_letters(strips, columns, order)
    return ax


def _of_loadings(
    fit: Fitted, method: str, metric: str, normalize: str | None, corrected: bool
) -> tuple[list[str], Array, str]:
    """Return the contexts, their linkage by loadings, and the label of its axis."""
    k, r = fit.loadings.shape
    if k < 2:
        raise ValueError("source has 1 context, and a tree needs at least 2; fit more contexts.")
    if metric == "correlation" and r < 2:
        raise ValueError("source has 1 MCPC, and metric='correlation' needs at least 2; pass metric='euclidean'.")
    compared = fit.compared(corrected)
    tree = context_linkage(normalized(compared.values, normalize), method=method, metric=metric)
    return fit.contexts, tree, f"{_METRIC_LABELS[metric]} of {compared.name}s"


def _made(tree: Any, method: str, metric: str, normalize: str | None, corrected: bool) -> tuple[list[str], Array, str]:
    """Return the same of a tree that was made before, to which none of the options apply."""
    remake = "drop it, or pass it to context_tree"
    for name, value, default, way_out in (
        ("method", method, "average", remake),
        ("metric", metric, "correlation", remake),
        ("corrected", corrected, True, remake),
        ("normalize", normalize, None, "drop it"),
    ):
        refuse_without_effect(name, value, default, "source is a tree that was made before", way_out)
    if tree.metric is None:
        return tree.contexts, tree.linkage, tree.features
    return tree.contexts, tree.linkage, f"{_METRIC_LABELS[tree.metric]} of {tree.features}"


def branches(tree: Array, order: Array) -> Array:
    """Return the segments of a tree (k - 1, 4, 2): child, up, across, down to the other child.

    x is the distance at which clusters join, y the place of leaves in ``order``. SciPy's ``dendrogram`` is recursive
    and fails on a chain of thousands of clusters; this is not.
    """
    k = len(order)
    # Clusters are numbered as in a linkage matrix: leaves 0 to k - 1, then one per row of the tree.
    height = np.zeros(2 * k - 1)
    place = np.zeros(2 * k - 1)
    place[order] = np.arange(k)
    segments = np.empty((k - 1, 4, 2))
    for m, (a, b, distance, _) in enumerate(tree):
        first = int(a)
        second = int(b)
        # A row of the linkage joins earlier clusters only, so both children have their places by now.
        height[k + m] = distance
        place[k + m] = (place[first] + place[second]) / 2
        segments[m] = [
            (height[first], place[first]),
            (distance, place[first]),
            (distance, place[second]),
            (height[second], place[second]),
        ]
    return segments


def _line_width(k: int) -> float:
    """Return a line width at which the branches of k contexts do not touch."""
    return 1.0 if k <= 60 else 0.6


def _names_width(names: Sequence[str]) -> float:
    """Return the points that the longest name takes."""
    return max(map(len, shorten_all(names))) * CHARACTER_WIDTH * FONT_SIZE
