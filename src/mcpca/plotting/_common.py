"""What the plotting functions share: colours, the axes to draw on, and names that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._utils.optional import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEQUENTIAL = "Blues"  # nearly white is 0, and lightness falls steadily
DIVERGING = "PuOr_r"  # white is 0, orange positive, purple negative: no hue means two things
MARK = "#b35806"  # what the reader should look at first
BLUE = "#08519c"  # data
BAND = "0.86"  # the range of noise
FONT_SIZE = 9
# Okabe and Ito's colours, which are told apart with any kind of colour vision. In black and white some are alike, so
# a category has a marker, a line or a letter of its own too.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
CHARACTER = 0.62  # mean width of a character, in font sizes
LINE = 1.25  # height of a line of text, in font sizes
_LONGEST = 32  # characters of a name


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Any:
    """Return ``ax``, or the axes of a new pyplot figure of ``size`` inches."""
    if ax is not None:
        return ax
    return require("matplotlib.pyplot", "plot").subplots(figsize=size, layout="constrained")[1]


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Return width and height of ``ax`` in points, the unit of font sizes."""
    box = ax.get_window_extent()
    return box.width * 72 / ax.figure.dpi, box.height * 72 / ax.figure.dpi


def beside(ax: Axes, offset: float, width: float, side: Literal["left", "right"] = "right") -> Any:
    """Return new axes, ``width`` points wide and as high as ``ax``, that are ``offset`` points off a side of it.

    They stay there when a layout changes the size of ``ax``, which bounds as fractions of it would not.
    """
    x = offset if side == "right" else -offset - width
    return ax.inset_axes((x, 0, width, 1), transform=points_from(ax, side))


def points_from(ax: Axes, side: Literal["left", "right"]) -> Any:
    """Return a transform with x in points to the right of a side of ``ax`` and y in fractions of its height."""
    transforms = require("matplotlib.transforms", "plot")
    # A translation by what `transAxes` makes of (0 or 1, 0): the corner, in pixels.
    corner = transforms.ScaledTranslation(float(side == "right"), 0, ax.transAxes)
    points = transforms.Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans + corner
    return transforms.blended_transform_factory(points, ax.transAxes)


def settle(ax: Axes) -> None:
    """Let the figure's layout, where it has one, give ``ax`` its size: what fits into it can then be told."""
    engine = ax.figure.get_layout_engine()
    if engine is not None:
        engine.execute(ax.figure.figure)  # of a SubFigure, the whole


def name_rows(ax: Axes, names: Sequence[str], font_size: float = FONT_SIZE) -> None:
    """Label y = 0, 1, ... with names, every so many of them that they do not overlap."""
    from ._ticks import put_names

    put_names(ax.yaxis, shortened(names), LINE * font_size)
    ax.tick_params(axis="y", labelsize=font_size)


def name_columns(ax: Axes, names: Sequence[str], font_size: float = FONT_SIZE) -> None:
    """Label x = 0, 1, ... with names: upright where columns are narrow, thinned out where they are narrower still."""
    from ._ticks import put_names

    names = shortened(names)
    width = (max(map(len, names)) + 1) * CHARACTER * font_size
    upright = width > size_in_points(ax)[0] / len(names)
    put_names(ax.xaxis, names, LINE * font_size if upright else width)
    ax.tick_params(axis="x", labelsize=font_size, rotation=90 if upright else 0)


def shorten(name: str, most: int = _LONGEST) -> str:
    """Return ``name`` in one line of at most ``most`` characters, with dollar signs that start no formula."""
    name = " ".join(name.split())
    half = (most - 1) // 2  # cut in the middle: what tells names apart is mostly at an end
    name = name if len(name) <= most else f"{name[: most - 1 - half]}…{name[len(name) - half :]}"
    return name.replace("$", r"\$")


def shortened(names: Sequence[str], most: int = _LONGEST) -> list[str]:
    """Return all of them shortened."""
    return [shorten(name, most) for name in names]


def width_of(names: Sequence[str], font_size: float = FONT_SIZE) -> float:
    """Inches that the longest of some names takes once it is shortened."""
    return max(map(len, shortened(names))) * CHARACTER * font_size / 72
