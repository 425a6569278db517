"""When MCPCs peak in groups of contexts, as a graph over time, as in the paper's Fig. 4D."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.types import Array
from ._common import (
    CATEGORIES,
    CHARACTER_WIDTH,
    FONT_SIZE,
    LAYOUT_SHRINKS_TO,
    LINE_HEIGHT,
    axes_or_new,
    shorten,
    size_in_points,
    width_of,
)
from ._heatmap import is_dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GAP = 0.7  # between groups, in lines
_CLOSE = 1.1  # a peak that is less than this times the next largest loading has a dashed frame
_LONGEST = 20  # characters of a node and of a group


def plot_temporal_order(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the order in which each MCPC peaks in groups of contexts: time from left to right, groups as lanes.

    A node is an MCPC at the time of its peak in a group, on a bar over the times with at least half (``share``) of it.
    Thick arrows follow one MCPC from group to group, thin grey ones a group from one MCPC to the next.

    Parameters
    ----------
    result : TemporalOrder
        What ``mcpca.analysis.temporal_order`` returned.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of MCPCs and groups.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    A node with a dashed frame hardly peaks: its loading is less than 1.1 times the next largest of its group. Peaks at
    one time have no arrow between them.
    """
    if not hasattr(result, "nodes") or not hasattr(result, "edges"):
        raise TypeError(f"result is a {type(result).__name__}; pass what analysis.temporal_order returned.")
    nodes = result.nodes
    groups = list(dict.fromkeys(nodes["group"]))
    components = list(dict.fromkeys(nodes["component"]))
    height = [_line_of(row, groups, components) for _, row in nodes.iterrows()]
    x = nodes["place"].to_numpy(dtype=float)
    y = -np.array(height)
    n_lines = len(groups) * (len(components) + _GAP) - _GAP
    times = result.times
    size = (min(max(5.4, 0.9 * len(times) + 1.5), 11) + width_of(groups), min(0.42 * n_lines, 9) + 1.2)
    ax = axes_or_new(ax, size)
    places = np.array(list(times.values()))
    span = float(np.ptp(places)) or 1.0
    # A node at either end needs half of its width.
    half = _half_width(components)
    points = size_in_points(ax)[0] * LAYOUT_SHRINKS_TO
    margin = span * (half + 6) / max(points - 2 * (half + 6), 1)
    ax.set_xlim(places.min() - margin, places.max() + margin)
    ax.set_ylim(-n_lines + 0.4, 0.6)
    for g in range(len(groups)):
        top = -g * (len(components) + _GAP) + 0.5
        ax.axhspan(top - len(components), top, color="0.96", linewidth=0, zorder=0)
    for i, (_, row) in enumerate(nodes.iterrows()):
        colour = CATEGORIES[components.index(row["component"]) % len(CATEGORIES)]
        ends = [times[row["first"]], times[row["last"]]]
        ax.plot(ends, [y[i], y[i]], color=colour, linewidth=5, alpha=0.3, solid_capstyle="round", zorder=1)
        _draw_node(ax, (x[i], y[i]), shorten(str(row["component"]), _LONGEST), colour, bool(row["lead"] < _CLOSE))
    for _, edge in result.edges.iterrows():
        a, b = int(edge["source"]), int(edge["target"])
        same = edge["of"] == "component"
        colour = CATEGORIES[components.index(nodes["component"].iloc[a]) % len(CATEGORIES)] if same else "0.55"
        _draw_edge(ax, (x[a], y[a]), (x[b], y[b]), colour, thick=bool(same), half=half)
    middles = [-(g * (len(components) + _GAP) + (len(components) - 1) / 2) for g in range(len(groups))]
    ax.set_yticks(middles, labels=[shorten(str(name), _LONGEST) for name in groups], fontsize=FONT_SIZE)
    _name_times(ax, list(times), places)
    dashed = bool((nodes["lead"] < _CLOSE).any())
    note = "\ndashed: another time is within 10%" if dashed else ""
    ax.set_title(f"peaks of loadings; bars: at least {result.share:.0%} of the peak{note}", fontsize=FONT_SIZE)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax


def _line_of(row: Any, groups: list[Any], components: list[Any]) -> float:
    """Return the line of a node from the top: each MCPC has one of its own in every group."""
    return float(groups.index(row["group"]) * (len(components) + _GAP) + components.index(row["component"]))


def _half_width(components: list[Any]) -> float:
    """Return half of the width of the widest node, in points."""
    longest = max(len(shorten(str(name), _LONGEST)) for name in components)
    return (longest * CHARACTER_WIDTH + 1) * FONT_SIZE / 2


def _draw_node(ax: Any, place: tuple[float, float], text: str, colour: str, close: bool) -> None:
    style: dict[str, Any] = {"boxstyle": "round,pad=0.25", "facecolor": colour, "edgecolor": "white", "linewidth": 1}
    if close:
        style |= {"facecolor": "white", "edgecolor": colour, "linestyle": "--", "linewidth": 1.4}
    rgb = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    ink = "white" if not close and is_dark(np.array(rgb)) else "0.1"
    ax.text(*place, text, ha="center", va="center", fontsize=FONT_SIZE, color=ink, bbox=style, zorder=4)


def _draw_edge(ax: Any, start: Any, end: Any, colour: str, *, thick: bool, half: float) -> None:
    """Draw an arrow between two nodes, from the side of one to the side of the other."""
    # Along a lane arrows start and end beside the box; across lanes they would start too far away from it.
    shrink = half if start[1] == end[1] else 0.62 * LINE_HEIGHT * FONT_SIZE + 3
    bend = -0.18 if start[1] != end[1] else 0.0
    arrow: dict[str, Any] = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": 1.9 if thick else 1.0,
        "shrinkA": shrink,
    }
    arrow |= {"shrinkB": shrink, "mutation_scale": 13 if thick else 9, "linestyle": "-" if thick else (0, (3, 2))}
    ax.annotate("", end, start, arrowprops=arrow | {"connectionstyle": f"arc3,rad={bend}"}, zorder=3 if thick else 2)


def _name_times(ax: Any, names: list[str], places: Array) -> None:
    """Name the times below the axis: vertical where they are close, and thinned out where they are closer still."""
    low, high = ax.get_xlim()
    unit = size_in_points(ax)[0] * LAYOUT_SHRINKS_TO / (high - low)
    gap = unit * (float(np.diff(places).min()) if len(places) > 1 else high - low)
    texts = [shorten(name, _LONGEST) for name in names]
    upright = (max(map(len, texts)) + 1) * CHARACTER_WIDTH * FONT_SIZE > gap
    step = max(1, int(np.ceil(LINE_HEIGHT * FONT_SIZE / gap))) if upright else 1
    ax.set_xticks(places[::step], labels=texts[::step], rotation=90 if upright else 0, fontsize=FONT_SIZE)
