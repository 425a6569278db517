"""Rows of one context on two principal components, with the MCPCs as arrows, as in the paper's Figures 1A, 3D and 3E.

A row x of context i varies along ``a_j`` with the variance ``b_ij``, so an arrow of one standard deviation is the
projection of ``sqrt(b_ij) a_j`` on the plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.fitted import fitted
from .._results.fitted_rows import rows_of_fit, sampled_rows
from .._results.row_pca import Directions, principal_directions
from .._utils.arguments import check_integer, check_real
from .._utils.component_names import component_index, component_indices, context_index
from .._utils.optional import require
from .._utils.types import Array
from ._common import DIVERGING, FONT_SIZE, axes_or_new, shorten, size_in_points
from ._labels import place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ARROWS = 8  # by default; more would cover the points
_SHORTEST_ARROW = 0.2  # of the longest one: shorter arrows are drawn only if ``components`` names them
_SMALLEST_AREA = 5.0  # of a marker, in square points
_LARGEST_AREA = 26.0
_INK = 9000  # area of all markers together, within these bounds


def plot_plane(
    source: Any,
    context: Any,
    X: Any = None,
    y: Any = None,
    *,
    components: Any = None,
    pcs: tuple[int, int] = (0, 1),
    pcs_of: Literal["context", "all"] = "context",
    color: Any = None,
    arrow: float | None = None,
    max_rows: int = 5000,
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw the rows of one context along two principal components, and the MCPCs that vary there as arrows.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or an AnnData with a fit, whose rows are drawn in the space of the fit.
    context : str
        Name of the context.
    X, y
        For a model: rows with their contexts in any form that ``fit`` accepts, except Dask. An AnnData brings its own.
    components : sequence of int or str, optional
        The MCPCs to draw, by column (0 is MCPC 1) or name. By default those with the longest arrows in this plot, at
        most 8, and none shorter than a fifth of the longest.
    pcs : (int, int)
        Which principal components; 0 is the first.
    pcs_of : {"context", "all"}
        Principal components of the rows of this context, or of the rows of all contexts together, as in the paper.
    color : int or str, optional
        The MCPC whose scores colour the points; by default the one with the largest loading in this context.
    arrow : float, optional
        Length of arrows in standard deviations: that of MCPC j ends at the projection of ``arrow sqrt(b_ij) a_j``. By
        default 2, or the larger whole number that brings the longest arrow near the rim of the points; it is written
        above the plot.
    max_rows : int
        If there are more rows, a random sample of this size is drawn, always the same one, and its size is written
        above the plot. Principal components are then those of the sample.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Points and scores are centred by the mean of the rows drawn, where the arrows start. Rows with a negative score are
    triangles, all others circles, so that they can be told apart in print without colours. Both axes have the same
    scale, so angles are those of the projections. Of sparse rows only the sample is read, and it stays sparse.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_plane
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> ax = plot_plane(model, 2, truth.X, truth.y)  # the context called 2
    """
    fit = fitted(source, key)
    i = context_index(context, fit.contexts)
    b = fit.loadings[i]
    first, second = check_pcs(pcs)
    arrow = None if arrow is None else check_real(arrow, "arrow", 0, np.inf)
    max_rows = check_integer(max_rows, "max_rows", 3)
    if pcs_of not in ("context", "all"):
        raise ValueError(f"pcs_of={pcs_of!r}; choose 'context' or 'all'.")
    coloured_by = int(np.argmax(b)) if color is None else component_index(color, fit.names, "color")
    chosen = None if components is None else component_indices(components, fit.names)
    space = rows_of_fit(source, fit, key, X, y)
    drawn = sampled_rows(space, [space.position(i, fit.contexts)], max_rows)
    # drawn.rows (m, q), V (q, 2), points (m, 2), scores (m,)
    pca_rows = drawn
    if pcs_of == "all":
        pca_rows = sampled_rows(space, np.flatnonzero(space.contexts.n_samples).tolist(), max_rows)
    # As many PCs as the larger of the two needs, and no more.
    where = f"context {str(context)!r}" if pcs_of == "context" else "X"
    directions = leading_directions(pca_rows.rows, max(first, second), where)
    V = directions.vectors[:, [first, second]]
    points = _centred_products(drawn.rows, V)
    scores = _centred_products(drawn.rows, space.projection[[coloured_by]].T)[:, 0]
    one_sd = np.sqrt(b)[:, None] * (space.components.T @ V)  # tips of arrows of one standard deviation (r, 2)
    if chosen is None:
        chosen = longest_arrows(one_sd)
    if arrow is None:
        arrow = default_length(one_sd[chosen], points)
    tips = arrow * one_sd[chosen]

    ax = axes_or_new(ax, (5.6, 4.7))
    _draw_points(ax, points, scores, f"score on {fit.names[coloured_by]} (● ≥ 0, ▼ < 0)")
    set_limits(ax, points, tips)
    draw_arrows(ax, tips, [fit.names[j] for j in chosen])
    of = "" if pcs_of == "context" else " of all rows"
    for set_label, index in ((ax.set_xlabel, first), (ax.set_ylabel, second)):
        share = directions.variances[index] / directions.total if directions.total > 0 else 0.0
        set_label(f"PC {index + 1}{of} ({share:.0%} of variance)", fontsize=FONT_SIZE)
    rows = f"{drawn.m:,} of {drawn.n:,} rows" if drawn.m < drawn.n else f"{drawn.n:,} rows"
    scale = f", arrows of {arrow:g} sd" if chosen else ""
    ax.set_title(f"context {shorten(fit.contexts[i], 40)}\n{rows}{scale}", fontsize=FONT_SIZE)
    return ax


def check_pcs(pcs: Any) -> tuple[int, int]:
    """Return the numbers of two principal components, from 0."""
    try:
        first, second = (check_integer(index, "pcs entry", 0) for index in pcs)
    except (TypeError, ValueError):
        raise ValueError(f"pcs={pcs!r} is not two integers >= 0; pass for example (0, 1) for the first two.") from None
    if first == second:
        raise ValueError(f"pcs={pcs!r} names one principal component twice; pass two different ones.")
    return first, second


def leading_directions(rows: Any, last: int, where: str) -> Directions:
    """Return the principal components of rows up to number ``last``, from 0; ``where`` is what an error calls them."""
    n, q = rows.shape
    most = min(n - 1, q)
    if last >= most:
        raise ValueError(
            f"pcs asks for principal component {last + 1} and {where} has {max(most, 0)}, of {n} rows and {q} features"
            "; choose smaller ones, or a context with more rows."
        )
    return principal_directions(rows, last + 1)


def _centred_products(rows: Any, V: Array) -> Array:
    """Return ``(x - mean)^T V`` of all rows, without a centred copy of them."""
    # Centring the products equals centring the rows, and keeps sparse rows sparse.
    products = np.asarray(rows @ V, dtype=np.float64)
    return np.asarray(products - products.mean(axis=0))


def longest_arrows(tips: Array) -> list[int]:
    """Return the arrows, of tips (r, 2), that are long enough to be drawn, the longest first."""
    length = np.linalg.norm(tips, axis=1)
    order = np.argsort(-length, kind="stable")[:_MOST_ARROWS]
    return [int(j) for j in order if length[j] > 0 and length[j] >= _SHORTEST_ARROW * length.max()]


def default_length(tips: Array, points: Array) -> float:
    """Return the length of arrows in standard deviations; ``tips`` (m, 2) are those at one standard deviation."""
    longest = float(np.linalg.norm(tips, axis=1).max(initial=0))
    # Not the largest distance, which a single row far away would decide.
    rim = float(np.quantile(np.linalg.norm(points, axis=1), 0.9))
    return float(max(2, np.round(1.2 * rim / longest))) if longest > 0 else 2.0


def set_limits(ax: Any, points: Array, tips: Array) -> None:
    """Include all points and arrows, with the same scale on both axes and room for labels."""
    everything = np.vstack([points, tips, np.zeros((1, 2))])
    low = everything.min(axis=0)
    high = everything.max(axis=0)
    # Points that coincide still need limits that differ.
    size = np.maximum(high - low, 1e-12)
    low = low - 0.08 * size
    high = high + 0.08 * size
    # The direction that needs more units per point decides the scale; the other one gets the rest as margins.
    box = np.array(size_in_points(ax))
    extra = ((high - low) / box).max() * box - (high - low)
    low = low - extra / 2
    high = high + extra / 2
    # The limits may change (auto=True): the layout changes the shape of the axes, and the scales must stay equal.
    ax.set_xlim(low[0], high[0], auto=True)
    ax.set_ylim(low[1], high[1], auto=True)
    ax.set_aspect("equal", adjustable="datalim")


def _draw_points(ax: Any, points: Array, z: Array, label: str) -> None:
    # A scale up to the largest score would leave all others pale where a few rows are far away.
    largest = float(np.quantile(np.abs(z), 0.98)) or float(np.abs(z).max()) or 1.0
    area = float(np.clip(_INK / len(points), _SMALLEST_AREA, _LARGEST_AREA))
    # Scores near 0 first, so that the extreme ones lie on top.
    order = np.argsort(np.abs(z), kind="stable")
    dots = ax.scatter(
        points[order, 0],
        points[order, 1],
        s=area,
        c=z[order],
        cmap=DIVERGING,
        vmin=-largest,
        vmax=largest,
        edgecolors="0.45",
        linewidths=0.25 if area > 9 else 0.08,  # small points would be mostly edge
        rasterized=len(points) > 2000,
        zorder=2,
    )
    # Without colours both ends of the scale are dark, so the sign has a shape too.
    circle = _marker_path("o")
    triangle = _marker_path("v")
    dots.set_paths([circle if value >= 0 else triangle for value in z[order]])
    width = size_in_points(ax)[0]
    # Pointed ends of the colour bar say that there are scores beyond it.
    beyond = "both" if np.abs(z).max() > largest else "neither"
    bar = ax.figure.colorbar(dots, cax=ax.inset_axes((1 + 8 / width, 0, 12 / width, 1)), extend=beyond)
    bar.set_label(label, fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.outline.set_edgecolor("0.8")
    for side in ("axvline", "axhline"):
        getattr(ax, side)(0, color="0.85", linewidth=0.8, zorder=1)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)


def _marker_path(name: str) -> Any:
    style = require("matplotlib.markers", "plot").MarkerStyle(name)
    return style.get_path().transformed(style.get_transform())


def draw_arrows(ax: Any, tips: Array, names: Sequence[str]) -> None:
    """Draw arrows from the origin to ``tips`` (m, 2), with names that do not cover them."""
    for tip in tips:
        # White under black, to be visible on light points, on dark ones and without colours.
        for line, head, colour in ((4.0, 15, "white"), (1.8, 12, "black")):
            ax.annotate(
                "",
                tip,
                (0, 0),
                zorder=4,
                arrowprops={
                    "arrowstyle": "-|>",
                    "mutation_scale": head,
                    "linewidth": line,
                    "color": colour,
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
            )
    # Labels must not cover arrows, which are obstacles as 40 points each.
    shafts = np.concatenate([np.linspace(0, 1, 40)[:, None] * tip for tip in tips]) if len(tips) else None
    angles = np.arctan2(tips[:, 1], tips[:, 0])
    place_labels(ax, tips, names, angles=angles, obstacles=shafts, gaps=(4, 12, 22, 34, 48), color="black")
