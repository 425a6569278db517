"""Labels that do not overlap: beside points, and as ticks that shrink or thin out where room is short.

``place_labels`` is greedy: labels are placed in order of importance, each at the first free position around its point,
and those without one are left out. Everything is measured in points (1/72 inch).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.types import Array
from ._common import CHARACTER_WIDTH, FONT_SIZE, LAYOUT_SHRINKS_TO, LINE_HEIGHT, size_in_points

# Directions in which a label is tried, seen from its preferred one, the nearest first.
_TRIED_ANGLES = np.deg2rad([0, 25, -25, 50, -50, 80, -80, 115, -115, 150, -150, 180])
_SMALLEST_FONT = 6  # points


def place_labels(
    ax: Any,
    anchors: Array,
    texts: Sequence[str],
    *,
    angles: Array | None = None,
    obstacles: Array | None = None,
    gaps: Sequence[float] = (4, 10, 18),
    font_size: float = FONT_SIZE,
    color: str = "0.15",
) -> list[int]:
    """Write texts beside points, the first ones first, where they touch neither each other nor the obstacles.

    Parameters
    ----------
    ax : matplotlib Axes
        With its final limits.
    anchors : ndarray (m, 2)
        In data coordinates.
    texts : sequence of m str
    angles : ndarray (m,), optional
        Preferred direction of each text from its point; by default to the right.
    obstacles : ndarray (n, 2), optional
        Points that no text should cover.
    gaps : sequence of float
        Distances from the point that are tried, in points. A text farther away than the first is joined to its point
        by a thin line.

    Returns
    -------
    list of int
        The indices of the texts that found a place; the others are not drawn.
    """
    if len(texts) == 0:
        return []
    # Equal scales change the limits when the figure is drawn, and with them where points are.
    ax.apply_aspect()
    scale = 72 / ax.figure.dpi * LAYOUT_SHRINKS_TO

    def in_points(xy: Any) -> Any:
        return np.asarray(ax.transData.transform(xy)) * scale

    points = in_points(np.asarray(anchors))
    # points (m, 2), blocked (n, 2), all in points (1/72 inch), as the layout will leave them
    blocked = np.zeros((0, 2)) if obstacles is None or len(obstacles) == 0 else in_points(obstacles)
    # Corners of the axes on the same scale as the points.
    low, high = (in_points(ax.transData.inverted().transform(corner)) for corner in _corners(ax))
    taken: list[Array] = []  # boxes: left, bottom, right, top
    written = []
    for number, (point, text) in enumerate(zip(points, texts, strict=True)):
        width = (len(text) * CHARACTER_WIDTH + 0.4) * font_size
        height = LINE_HEIGHT * font_size
        preferred = 0.0 if angles is None else float(angles[number])
        position = _free_position(point, width, height, preferred, gaps, taken, blocked, low, high)
        if position is None:
            continue
        box, gap = position
        taken.append(box)
        written.append(number)
        # An offset in points stays right when the layout moves the axes.
        offset = (box[:2] + box[2:]) / 2 - point
        ax.annotate(
            text,
            anchors[number],
            offset,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=font_size,
            color=color,
            zorder=5,
            arrowprops={"arrowstyle": "-", "color": "0.5", "linewidth": 0.5, "shrinkB": 2} if gap > gaps[0] else None,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
        )
    return written


def _free_position(
    point: Array,
    width: float,
    height: float,
    preferred: float,
    gaps: Sequence[float],
    taken: Sequence[Array],
    obstacles: Array,
    low: Array,
    high: Array,
) -> tuple[Array, float] | None:
    """Return the first box within ``low`` and ``high`` that nothing else uses, and its distance from the point."""
    half = np.array([width, height]) / 2
    for gap in gaps:
        for angle in preferred + _TRIED_ANGLES:
            # On an ellipse around the point: the box is ``gap`` away both beside and above it.
            middle = point + np.array([math.cos(angle), math.sin(angle)]) * (half + gap)
            box = np.concatenate([middle - half, middle + half])
            # Boxes are (left, bottom, right, top). Two overlap if each begins before the other ends, both ways.
            outside = (box[:2] < low).any() or (box[2:] > high).any()
            if outside or any((box[:2] < other[2:]).all() and (other[:2] < box[2:]).all() for other in taken):
                continue
            if ((obstacles > box[:2]) & (obstacles < box[2:])).all(axis=1).any():
                continue
            return box, gap
    return None


def _corners(ax: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    box = ax.get_window_extent()
    return (box.x0, box.y0), (box.x1, box.y1)


def name_places(ax: Any, places: Array, names: Sequence[str], span: float) -> None:
    """Put names at any ``places`` on the vertical axis; ``span`` is the length of the axis in data units.

    The font becomes smaller where rows are narrow, down to 6 points; beyond that only every second, third, ... name is
    written.
    """
    points_per_unit = size_in_points(ax)[1] * LAYOUT_SHRINKS_TO / max(span, 1e-9)
    # The smallest distance between neighbours decides, as there may be gaps between groups of rows.
    gap = points_per_unit * (min(abs(np.diff(places))) if len(places) > 1 else span)
    size = min(FONT_SIZE, max(_SMALLEST_FONT, gap / LINE_HEIGHT))
    # 1e-9 against rounding: a font that just fits must not lose every second name.
    step = max(1, math.ceil(LINE_HEIGHT * size / gap - 1e-9))
    ax.set_yticks(places[::step], labels=names[::step], fontsize=size)
