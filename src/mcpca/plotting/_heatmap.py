"""A matrix as colours, with the names of its rows and columns, and its numbers where there is room.

``plot_loadings``, ``plot_components`` and ``plot_angles`` draw with it, in this order: ``draw_heatmap``, ``add_bar``,
``_common.settle`` and ``write_numbers``, which must know the final size of the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._utils.types import Array
from ._common import (
    CHARACTER_WIDTH,
    FONT_SIZE,
    LINE_HEIGHT,
    axes_beside,
    put_column_names,
    put_row_names,
    size_in_points,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_MAX_NUMBERED_CELLS = 100  # beyond this colours say more than numbers
_MAX_OUTLINED_CELLS = 1000  # beyond this the lines between cells would hide them
_LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in brightness (ITU-R BT.601)
_DARK_BELOW = 0.55  # brightness, 1 being white


def draw_heatmap(
    ax: Axes,
    values: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    colours: Any,
    largest: float,
    smallest: float = 0,
    font_size: float = FONT_SIZE,
) -> AxesImage:
    """Draw ``values`` (k, r) on a scale from ``smallest`` to ``largest``; names that do not fit are thinned out."""
    k, r = values.shape
    image = ax.imshow(values, cmap=colours, vmin=smallest, vmax=largest, aspect="auto", interpolation="nearest")
    put_row_names(ax, rows, font_size)
    put_column_names(ax, columns, font_size)
    ax.tick_params(length=0)
    ax.spines[:].set_color("0.8")
    if k * r <= _MAX_OUTLINED_CELLS:
        # Minor ticks between cells carry the grid; major ones in the middle carry the names.
        ax.set_xticks(np.arange(r - 1) + 0.5, minor=True)
        ax.set_yticks(np.arange(k - 1) + 0.5, minor=True)
        ax.grid(which="minor", color="0.9", linewidth=0.8)
        ax.tick_params(which="minor", length=0)
    return image


def write_numbers(
    ax: Axes,
    image: AxesImage,
    number: Callable[[float], str],
    annotate: bool | Literal["auto"],
    font_size: float = FONT_SIZE,
) -> None:
    """Write the numbers of a heatmap into its cells: always, or ("auto") if they are few and fit; never for NaN."""
    # imshow masks NaN.
    values: Array = np.ma.filled(np.ma.asarray(image.get_array()), np.nan)
    k, r = values.shape
    if annotate is False or (annotate == "auto" and k * r > _MAX_NUMBERED_CELLS):
        return
    texts = [["" if np.isnan(value) else number(value) for value in row] for row in values]
    width, height = size_in_points(ax)
    longest = max(len(text) for row in texts for text in row) + 1
    # All or none: numbers in some cells only would look like a selection.
    fits = longest * CHARACTER_WIDTH * font_size < width / r and LINE_HEIGHT * font_size < height / k
    if annotate == "auto" and not fits:
        return
    for (i, j), dark in np.ndenumerate(is_dark(image.cmap(image.norm(values)))):
        if texts[i][j]:
            ax.text(j, i, texts[i][j], ha="center", va="center", fontsize=font_size, color="white" if dark else "0.15")


def check_annotate(annotate: Any) -> None:
    """Raise if ``annotate`` is none of the choices."""
    if not isinstance(annotate, bool) and annotate != "auto":
        raise ValueError(f"annotate={annotate!r}; choose True, False or 'auto'.")


def add_bar(ax: Axes, image: AxesImage, label: str) -> Any:
    """Add a colour bar to the right of a heatmap, as high as the heatmap."""
    bar = ax.figure.colorbar(image, cax=axes_beside(ax, 8, 12))
    bar.set_label(label, fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.outline.set_edgecolor("0.8")
    return bar


def is_dark(colours: Any) -> Array:
    """Whether white text is easier to read than black on colours (..., 3 or 4)."""
    return np.asarray(np.asarray(colours)[..., :3] @ _LUMA < _DARK_BELOW)
