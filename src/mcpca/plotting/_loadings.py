"""Heatmap of the loadings: how much of each MCPC every context carries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._check import Array
from .._namespace import to_host
from ._common import FONT_SIZE, SEQUENTIAL, axes_or_new, component_names, size_in_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from ..estimator import MCPCA

_MAX_NUMBERS = 100  # cells; beyond it the colours say more than the numbers
_MAX_LINES = 1000  # cells; beyond it the lines between cells would hide them
_CHARACTER = 0.62  # mean width of a character, in font sizes
_LINE = 1.25  # height of a line of text, in font sizes


def plot_loadings(
    model: MCPCA,
    *,
    ax: Axes | None = None,
    normalize: Literal["component"] | None = None,
    annotate: bool | Literal["auto"] = "auto",
) -> Axes:
    """Draw B as a heatmap: contexts are rows, MCPCs are columns.

    Parameters
    ----------
    model : MCPCA
        A fitted model.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of contexts and MCPCs.
    normalize : {None, "component"}
        None shows the loadings. "component" divides each column by its maximum, so that weak MCPCs can be read; a
        column of zeros stays zero.
    annotate : bool or "auto"
        Write the numbers into the cells; "auto" does so when there are few and they fit.

    Returns
    -------
    matplotlib Axes
    """
    check_is_fitted(model)
    if normalize not in (None, "component"):
        raise ValueError(f"normalize={normalize!r}; choose None or 'component'.")
    if not isinstance(annotate, bool) and annotate != "auto":
        raise ValueError(f"annotate={annotate!r}; choose True, False or 'auto'.")
    B = np.asarray(to_host(model.loadings_), dtype=np.float64)
    label = "loading (variance)"
    if normalize == "component":
        B, label = divide_by_maxima(B), "loading / largest of its MCPC"
    rows, columns = [str(name) for name in model.contexts_], component_names(model)
    ax = axes_or_new(ax, _size(rows, len(columns)))
    image = draw_loadings(ax, B, rows, columns, annotate=annotate)
    # As high as the heatmap and of the same width in points whatever its size, which `colorbar(ax=ax)` is not.
    width = size_in_points(ax)[0]
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1 + 8 / width, 0, 12 / width, 1)))
    bar.set_label(label, fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.outline.set_edgecolor("0.8")
    return ax


def divide_by_maxima(B: Array) -> Array:
    """Return B with each column divided by its maximum; columns of zeros stay."""
    maxima = B.max(axis=0)
    return np.asarray(B / np.where(maxima > 0, maxima, 1))


def draw_loadings(
    ax: Axes,
    B: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    annotate: bool | Literal["auto"] = "auto",
    font_size: float = FONT_SIZE,
) -> AxesImage:
    """Draw any non-negative B (k, r) with the names of its rows and columns; labels that do not fit are thinned out."""
    k, r = B.shape
    largest = float(B.max())
    image = ax.imshow(B, cmap=SEQUENTIAL, vmin=0, vmax=largest or 1, aspect="auto", interpolation="nearest")
    width, height = size_in_points(ax)
    step = math.ceil(_LINE * font_size * k / height)
    ax.set_yticks(range(0, k, step), labels=rows[::step], fontsize=font_size)
    upright = (max(map(len, columns)) + 1) * _CHARACTER * font_size > width / r
    step = math.ceil(_LINE * font_size * r / width) if upright else 1
    ax.set_xticks(range(0, r, step), labels=columns[::step], fontsize=font_size, rotation=90 if upright else 0)
    ax.tick_params(length=0)
    ax.spines[:].set_color("0.8")
    if k * r <= _MAX_LINES:
        ax.set_xticks(np.arange(r - 1) + 0.5, minor=True)
        ax.set_yticks(np.arange(k - 1) + 0.5, minor=True)
        ax.grid(which="minor", color="0.9", linewidth=0.8)
        ax.tick_params(which="minor", length=0)
    texts = [[_number(value, largest) for value in row] for row in B]
    longest = max(len(text) for row in texts for text in row) + 1
    fits = k * r <= _MAX_NUMBERS and longest * _CHARACTER * font_size < width / r and _LINE * font_size < height / k
    if annotate is True or (annotate == "auto" and fits):
        _write_numbers(ax, image, B, texts, font_size)
    return image


def _write_numbers(ax: Axes, image: AxesImage, B: Array, texts: list[list[str]], font_size: float) -> None:
    red_green_blue = np.asarray(image.cmap(image.norm(B)))[..., :3]
    dark = red_green_blue @ [0.299, 0.587, 0.114] < 0.55
    for (i, j), is_dark in np.ndenumerate(dark):
        ax.text(j, i, texts[i][j], ha="center", va="center", fontsize=font_size, color="white" if is_dark else "0.15")


def _number(value: float, largest: float) -> str:
    """Write ``value`` with the decimals that give the largest value three digits."""
    if value == 0:
        return "0"
    if not 1e-3 <= largest < 1e5:
        return f"{value:.1e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(largest)))}f}"


def _size(rows: Sequence[str], r: int) -> tuple[float, float]:
    """Inches for a figure: cells, names of the rows, colour bar."""
    names = max(map(len, rows)) * _CHARACTER * FONT_SIZE / 72
    return min(max(0.65 * r, 2.5), 9) + min(names, 4) + 1.2, min(max(0.4 * len(rows), 1.6), 9) + 0.8
