"""What the plotting functions share: names, colours and the axes to draw on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .._optional import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..estimator import MCPCA

SEQUENTIAL = "Blues"  # nearly white is 0, and lightness falls steadily
DIVERGING = "PuOr_r"  # white is 0, orange positive, purple negative: no hue means two things
MARK = "#b35806"  # what the reader should look at first
FONT_SIZE = 9
# Okabe and Ito's colours, which are told apart with any kind of colour vision. In black and white some are alike, so
# a category has a marker, a line or a letter of its own too.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def component_names(model: MCPCA) -> list[str]:
    """Return the MCPCs' names for a reader: "mcpca0" becomes "MCPC 1", any other name stays."""
    return [re.sub(r"^mcpca(\d+)$", lambda m: f"MCPC {int(m[1]) + 1}", str(n)) for n in model.get_feature_names_out()]


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Any:
    """Return ``ax``, or the axes of a new pyplot figure of ``size`` inches."""
    if ax is not None:
        return ax
    return require("matplotlib.pyplot", "plot").subplots(figsize=size, layout="constrained")[1]


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Return width and height of ``ax`` in points, the unit of font sizes."""
    box = ax.get_window_extent()
    return box.width * 72 / ax.figure.dpi, box.height * 72 / ax.figure.dpi
