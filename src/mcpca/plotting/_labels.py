"""Labels that keep clear of one another: beside points, and as ticks that thin out or shrink where room is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.types import Array
from ._common import CHARACTER, FONT_SIZE, LINE, size_in_points

_ANGLES = np.deg2rad([0, 25, -25, 50, -50, 80, -80, 115, -115, 150, -150, 180])
_SHRINK = 0.85  # axes may become this much smaller when the layout is made
_SMALLEST = 6  # points of a font


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
        Where each text should stand as seen from its point; by default to its right.
    obstacles : ndarray (n, 2), optional
        Points that no text should cover.
    gaps : sequence of float
        Distances from the point that are tried, in points. A text beyond the first has a thin line to its point.

    Returns
    -------
    list of int
        The texts that found a place; the others are left out.
    """
    if len(texts) == 0:
        return []
    ax.apply_aspect()
    scale = 72 / ax.figure.dpi * _SHRINK

    def in_points(xy: Any) -> Any:
        return np.asarray(ax.transData.transform(xy)) * scale

    places = in_points(np.asarray(anchors))
    hidden = np.zeros((0, 2)) if obstacles is None or len(obstacles) == 0 else in_points(obstacles)
    low, high = (in_points(ax.transData.inverted().transform(corner)) for corner in _corners(ax))
    taken: list[Array] = []  # boxes: left, bottom, right, top
    written = []
    for number, (place, text) in enumerate(zip(places, texts, strict=True)):
        width, height = (len(text) * CHARACTER + 0.4) * font_size, LINE * font_size
        preferred = 0.0 if angles is None else float(angles[number])
        found = _free_place(place, width, height, preferred, gaps, taken, hidden, low, high)
        if found is None:
            continue
        box, gap = found
        taken.append(box)
        written.append(number)
        offset = (box[:2] + box[2:]) / 2 - place
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


def _free_place(
    place: Array,
    width: float,
    height: float,
    preferred: float,
    gaps: Sequence[float],
    taken: Sequence[Array],
    obstacles: Array,
    low: Array,
    high: Array,
) -> tuple[Array, float] | None:
    half = np.array([width, height]) / 2
    for gap in gaps:
        for angle in preferred + _ANGLES:
            middle = place + np.array([math.cos(angle), math.sin(angle)]) * (half + gap)
            box = np.concatenate([middle - half, middle + half])
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


def name_rows(ax: Any, places: Array, names: Sequence[str], span: float) -> None:
    """Name places on the vertical axis; ``span`` is the length of the axis in data units.

    Letters become smaller where rows are narrow, down to 6 points, and then only every second name is written, every
    third, and so on.
    """
    row = size_in_points(ax)[1] * _SHRINK / max(span, 1e-9)  # points per unit
    gap = row * (min(abs(np.diff(places))) if len(places) > 1 else span)
    size = min(FONT_SIZE, max(_SMALLEST, gap / LINE))
    step = max(1, math.ceil(LINE * size / gap - 1e-9))
    ax.set_yticks(places[::step], labels=names[::step], fontsize=size)
