"""Axes of loadings against a covariate: what ``plot_covariate`` and ``plot_trends`` share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._results.context_values import ContextValues
from .._utils.types import Array
from ._common import CHARACTER_WIDTH, FONT_SIZE, LAYOUT_SHRINKS_TO, LINE_HEIGHT, shorten, size_in_points

LONGEST_LABEL = 24  # characters of the name of a category or a context


def as_categories(values: ContextValues) -> ContextValues:
    """Turn numbers and dates into categories, in their order."""
    if values.kind == "category":
        return values
    # Sorted, so that the code of a value is its place among them.
    known = np.unique(values.values[~values.missing])
    codes = np.where(values.missing, -1, np.searchsorted(known, values.values))
    names = [f"{value:g}" for value in known] if values.kind == "number" else [str(day)[:10] for day in known]
    return ContextValues("category", codes, values.missing, names, ordered=True)


def _must_be_vertical(names: Sequence[str], width: float) -> bool:
    """Whether names are too long to stand side by side on ``width`` points."""
    return (max(map(len, names)) + 1) * CHARACTER_WIDTH * FONT_SIZE > width / len(names)


def room_below(names: Sequence[str], width: float) -> float:
    """Return the inches needed below a figure of ``width`` inches for vertical names; 0 if they fit side by side."""
    # 60 of 72 points to the inch: the axes do not fill the figure.
    vertical = bool(names) and _must_be_vertical(names, 60 * width)
    return max(map(len, names)) * CHARACTER_WIDTH * FONT_SIZE / 72 if vertical else 0.0


def name_categories(ax: Any, names: Sequence[str]) -> None:
    """Name categories below the axis: vertical if they are long, and thinned out if they are many."""
    n = len(names)
    width = size_in_points(ax)[0] * LAYOUT_SHRINKS_TO
    vertical = _must_be_vertical(names, width)
    step = max(1, math.ceil(LINE_HEIGHT * FONT_SIZE * n / width)) if vertical else 1
    ax.set_xticks(range(0, n, step), labels=names[::step], rotation=90 if vertical else 0)


def limits_from_zero(b: Array) -> tuple[float, float]:
    """Return limits for an axis of loadings, which start at 0 so that lengths can be compared."""
    # A little below 0, so that points at 0 are not cut in half.
    largest = float(b.max(initial=0)) or 1.0
    return -0.04 * largest, 1.08 * largest


def axis_label(label: str | None, covariate: Any, default: str) -> str:
    """Return the label of an axis: ``label``, the name of the column or Series ``covariate``, or ``default``."""
    if label is not None:
        return label
    name = covariate if isinstance(covariate, str) else getattr(covariate, "name", None)
    return shorten(name, 60) if isinstance(name, str) else default


def finish_loading_axes(ax: Any, label: str) -> None:
    """Label the vertical axis, and remove the frame on the other sides."""
    ax.set_ylabel(label, fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
