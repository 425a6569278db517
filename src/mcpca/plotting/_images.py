"""MCPCs of images, drawn as images; the demonstration and the paper's figures draw with it too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from .._results.fitted import Fitted, fitted
from .._utils.arguments import check_integer, refuse_without_effect
from .._utils.component_names import component_index
from .._utils.optional import require
from .._utils.types import Array
from ..sharing import carrying_contexts
from ._common import DIVERGING, FONT_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Place = TypeVar("_Place")
_LONGEST_TITLE = 21  # characters that fit above an image
_IMAGE_WIDTH = 1.45  # inches
_IMAGE_HEIGHTS = (0.4, 4)  # inches, at least and at most: images of one row or one column must be visible


@overload
def plot_component_images(
    source: Any,
    shape: tuple[int, int],
    *,
    components: Sequence[int | str] | None = None,
    titles: Sequence[str] | None = None,
    n_columns: int = 6,
    key: str = "mcpca",
    ax: None = None,
) -> Figure: ...


@overload
def plot_component_images(
    source: Any,
    shape: tuple[int, int],
    *,
    components: Sequence[int | str] | None = None,
    titles: Sequence[str] | None = None,
    n_columns: int = 6,
    key: str = "mcpca",
    ax: _Place,
) -> _Place: ...


def plot_component_images(
    source: Any,
    shape: tuple[int, int],
    *,
    components: Sequence[int | str] | None = None,
    titles: Sequence[str] | None = None,
    n_columns: int = 6,
    key: str = "mcpca",
    ax: Any = None,
) -> Any:
    """Draw MCPCs as images: orange is positive, white is 0, purple is negative. Each image has its own scale.

    Parameters
    ----------
    source : MCPCA or AnnData
        A model fitted to images, one pixel per feature, or data with the fit of ``mcpca.tl.mcpca``.
    shape : (height, width)
        Shape of the images; they must have been flattened in C order.
    components : sequence of int or str, optional
        The MCPCs to draw, by column of ``components_`` (0 is MCPC 1) or name; by default all.
    titles : sequence of str, optional
        One for each image; by default the name of the MCPC and the contexts that carry it, which are those with at
        least half of its largest loading.
    n_columns : int
        Number of images side by side.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Figure, SubFigure, Axes or sequence of Axes, optional
        Where to draw: a figure or a part of one, which is filled with a grid, or axes, one for each image. By default a
        new figure.

    Returns
    -------
    matplotlib Figure, or ``ax`` if it was passed
    """
    fit = fitted(source, key).with_all_features()
    pixels = fit.over_var()  # in an AnnData every feature is a pixel, fitted or not
    shape = check_image_shape(shape, len(pixels))
    n_columns = check_integer(n_columns, "n_columns", 1)
    chosen = _check_components(components, fit.names)
    if titles is None:
        titles = component_titles(fit, chosen)
    elif len(titles) != len(chosen):
        raise ValueError(f"titles has {len(titles)} entries, but {len(chosen)} images are drawn; pass one for each.")
    # (images, pixels)
    images = pixels[:, chosen].T
    if ax is None:
        ax = require("matplotlib.pyplot", "plot").figure(figsize=images_size(len(chosen), shape, n_columns))
    # A Figure or SubFigure, and no Axes.
    if hasattr(ax, "subplots"):
        draw_image_grid(ax, images, shape, titles, n_columns)
        return ax
    refuse_without_effect("n_columns", n_columns, 6, "axes are given, one for each image", "drop it, or pass a figure")
    # np.ravel takes the 2-D arrays that pyplot.subplots returns.
    axes = [ax] if hasattr(ax, "imshow") else list(np.ravel(ax))
    if len(axes) != len(chosen):
        raise ValueError(
            f"ax has {len(axes)} axes, but {len(chosen)} images are drawn; pass one for each, or a figure."
        )
    for image_ax, image, title in zip(axes, images, titles, strict=True):
        _draw_titled(image_ax, image, shape, title)
    return ax


def component_titles(fit: Fitted, chosen: Sequence[int]) -> list[str]:
    """Return two lines for each MCPC: its name, and the contexts that carry it."""
    return [f"{fit.names[j]}\n{_carrying_text(fit.loadings[:, j], fit.contexts)}" for j in chosen]


def draw_image_grid(
    figure: Any, images: Array, shape: tuple[int, int], titles: Sequence[str], n_columns: int
) -> list[Axes]:
    """Draw images (m, n_pixels) on an empty figure or part of one; return their axes."""
    if hasattr(figure, "set_layout_engine"):  # a SubFigure has the layout of its figure
        # "compressed" knows that images keep their aspect; "constrained" would leave the titles without a margin.
        figure.set_layout_engine("compressed", h_pad=0.06)
    n_columns = min(n_columns, len(images))
    grid = figure.subplots(math.ceil(len(images) / n_columns), n_columns, squeeze=False).ravel()
    for ax, image, title in zip(grid, images, titles, strict=False):
        _draw_titled(ax, image, shape, title)
    for ax in grid[len(images) :]:
        ax.set_axis_off()
    return list(grid[: len(images)])


def draw_image(ax: Axes, image: Array, shape: tuple[int, int]) -> None:
    """Draw one image on a colour scale that is symmetric around 0."""
    # Symmetric, so that white is 0 in every image.
    largest = float(np.abs(image).max()) or 1
    ax.imshow(image.reshape(shape), cmap=DIVERGING, vmin=-largest, vmax=largest, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_color("0.8")


def _draw_titled(ax: Axes, image: Array, shape: tuple[int, int], title: str) -> None:
    draw_image(ax, image, shape)
    ax.set_title(title, fontsize=FONT_SIZE)


def images_size(n: int, shape: tuple[int, int], n_columns: int) -> tuple[float, float]:
    """Return width and height in inches of a figure of n images with two lines of title each."""
    lowest, highest = _IMAGE_HEIGHTS
    height = min(max(_IMAGE_WIDTH * shape[0] / shape[1], lowest), highest)
    return _IMAGE_WIDTH * min(n, n_columns) + 0.2, (height + 0.48) * math.ceil(n / n_columns)


def check_image_shape(shape: Any, n_features: int) -> tuple[int, int]:
    """Return ``shape`` as two positive ints whose product is ``n_features``."""
    try:
        height, width = (check_integer(side, "side", 1) for side in shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"shape={shape!r} is not (height, width), two integers >= 1; pass for example (8, 8)."
        ) from None
    if height * width != n_features:
        raise ValueError(
            f"shape={shape!r} has {height * width} pixels, but the model has {n_features} features; pass the (height, "
            f"width) of the images, with height * width = {n_features}."
        )
    return height, width


def _check_components(components: Sequence[int | str] | None, names: Sequence[str]) -> list[int]:
    if components is None:
        return list(range(len(names)))
    chosen = [component_index(j, names, "components entry") for j in components]
    if not chosen:
        raise ValueError(f"components is empty; pass at least one of 0 to {len(names) - 1}, or None for all.")
    return chosen


def _carrying_text(b: Array, contexts: Sequence[str]) -> str:
    """Name the contexts that carry an MCPC, in one short line."""
    carrying = carrying_contexts(b)
    if len(carrying) == len(contexts) > 1:
        return "all contexts"
    if len(carrying) == 0:
        return "no context"
    # In the order of the contexts, so that titles of different MCPCs can be compared.
    names = ", ".join(contexts[i] for i in sorted(carrying))
    if len(names) <= _LONGEST_TITLE:
        return names
    # The strongest context, cut if need be, and how many there are beside it.
    more = f" + {len(carrying) - 1} more" if len(carrying) > 1 else ""
    room = _LONGEST_TITLE - len(more)
    strongest = contexts[carrying[0]]
    return (strongest if len(strongest) <= room else f"{strongest[: room - 1]}…") + more
