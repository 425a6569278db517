"""What all plots share: colours, the axes to draw on, and names that fit.

Sizes of text are estimated from the number of characters: measuring would need a renderer, and figures are drawn before
one exists. Estimates also keep plots the same with any backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._utils.optional import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEQUENTIAL = "Blues"  # nearly white is 0, and lightness falls steadily
DIVERGING = "PuOr_r"  # white is 0, orange positive, purple negative
MARK = "#b35806"  # what the reader should look at first
BLUE = "#08519c"  # data
BAND = "0.86"  # the range of noise
FONT_SIZE = 9
# Okabe and Ito's colours, which can be told apart with any kind of colour vision. In black and white some look alike,
# so a category also has a marker, a line style or a letter of its own.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
CHARACTER_WIDTH = 0.62  # on average, in font sizes; a smaller estimate would let long names overlap
LINE_HEIGHT = 1.25  # in font sizes
# The layout runs after names and labels are placed, and makes axes smaller by about this factor to make room for the
# names along them. They are placed as if it had run already.
LAYOUT_SHRINKS_TO = 0.85
_LONGEST_NAME = 32  # characters of the name of a context or an MCPC


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Any:
    """Return ``ax``, or the axes of a new pyplot figure of ``size`` inches."""
    if ax is not None:
        return ax
    # "constrained" makes room for names and legends outside of the axes, which otherwise would be cut off.
    return require("matplotlib.pyplot", "plot").subplots(figsize=size, layout="constrained")[1]


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Return width and height of ``ax`` in points, the unit of font sizes."""
    # In pixels, of which there are dpi to the inch; points are 72 to the inch.
    box = ax.get_window_extent()
    return box.width * 72 / ax.figure.dpi, box.height * 72 / ax.figure.dpi


def axes_beside(ax: Axes, offset: float, width: float, side: Literal["left", "right"] = "right") -> Any:
    """Return new axes, ``width`` points wide and as high as ``ax``, at ``offset`` points from a side of it.

    They stay there when a layout changes the size of ``ax``; bounds given as fractions of ``ax`` would move.
    """
    x = offset if side == "right" else -offset - width
    return ax.inset_axes((x, 0, width, 1), transform=points_from(ax, side))


def points_from(ax: Axes, side: Literal["left", "right"]) -> Any:
    """Return a transform with x in points to the right of a side of ``ax`` and y in fractions of its height."""
    transforms = require("matplotlib.transforms", "plot")
    # ScaledTranslation moves by the image of (0 or 1, 0) under transAxes: the lower corner of that side, in pixels.
    corner = transforms.ScaledTranslation(float(side == "right"), 0, ax.transAxes)
    points = transforms.Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans + corner
    return transforms.blended_transform_factory(points, ax.transAxes)


def settle(ax: Axes) -> None:
    """Run the layout of the figure, if it has one, so that ``ax`` has its final size and one can see what fits."""
    engine = ax.figure.get_layout_engine()
    if engine is not None:
        engine.execute(ax.figure.figure)  # the figure that a SubFigure is part of


def put_row_names(ax: Axes, names: Sequence[str], font_size: float = FONT_SIZE) -> None:
    """Label y = 0, 1, ... with names, or with every second, third, ... name if they would overlap."""
    # Here, because that module imports Matplotlib, which is optional.
    from ._ticks import put_names

    put_names(ax.yaxis, shorten_all(names), LINE_HEIGHT * font_size)
    ax.tick_params(axis="y", labelsize=font_size)


def put_column_names(ax: Axes, names: Sequence[str], font_size: float = FONT_SIZE) -> None:
    """Label x = 0, 1, ... with names: vertical where columns are narrow, thinned out where they are narrower still."""
    # See ``put_row_names``.
    from ._ticks import put_names

    names = shorten_all(names)
    # One character more, as a gap between neighbours.
    width = (max(map(len, names)) + 1) * CHARACTER_WIDTH * font_size
    upright = width > size_in_points(ax)[0] / len(names)
    put_names(ax.xaxis, names, LINE_HEIGHT * font_size if upright else width)
    ax.tick_params(axis="x", labelsize=font_size, rotation=90 if upright else 0)


def shorten(name: str, most: int = _LONGEST_NAME) -> str:
    """Return ``name`` in one line of at most ``most`` characters, with dollar signs escaped: they start formulas."""
    name = " ".join(name.split())
    if len(name) > most:
        half = (most - 1) // 2  # cut in the middle: names mostly differ at one of their ends
        name = f"{name[: most - 1 - half]}…{name[len(name) - half :]}"
    return name.replace("$", r"\$")


def shorten_all(names: Sequence[str], most: int = _LONGEST_NAME) -> list[str]:
    """Return ``shorten(name, most)`` for each name."""
    return [shorten(name, most) for name in names]


def width_of(names: Sequence[str], font_size: float = FONT_SIZE) -> float:
    """Return the inches that the longest name takes once it is shortened."""
    return max(map(len, shorten_all(names))) * CHARACTER_WIDTH * font_size / 72
