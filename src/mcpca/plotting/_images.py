"""MCPCs of images, drawn as images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._check import Array, check_integer
from .._namespace import to_host
from .._optional import require
from ._common import DIVERGING, FONT_SIZE, component_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..estimator import MCPCA

_LONGEST_NAME = 21  # characters that fit above an image
_WIDTH = 1.45  # inches of an image


def plot_component_images(
    model: MCPCA,
    shape: tuple[int, int],
    *,
    components: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    n_columns: int = 6,
) -> Figure:
    """Draw MCPCs as images: orange is positive, white 0, purple negative, each image on its own scale.

    Parameters
    ----------
    model : MCPCA
        A model fitted to images, one pixel per feature.
    shape : (height, width)
        Of the images; rows were flattened in C order.
    components : sequence of int, optional
        Which MCPCs, as columns of ``components_`` (so 0 is MCPC 1); by default all.
    titles : sequence of str, optional
        One for each image; by default the name of the MCPC and the contexts that carry it: those with at least half of
        its largest loading.
    n_columns : int
        Images side by side.

    Returns
    -------
    matplotlib Figure
    """
    check_is_fitted(model)
    shape = check_shape(shape, model.n_features_in_)
    n_columns = check_integer(n_columns, "n_columns", 1)
    chosen = _check_components(components, model.n_components_)
    if titles is None:
        titles = component_titles(model, chosen)
    elif len(titles) != len(chosen):
        raise ValueError(f"titles has {len(titles)} entries, but {len(chosen)} images are drawn; pass one for each.")
    plt = require("matplotlib.pyplot", "plot")
    figure: Figure = plt.figure(figsize=images_size(len(chosen), shape, n_columns))
    draw_images(figure, to_host(model.components_)[:, chosen].T, shape, titles, n_columns)
    return figure


def component_titles(model: MCPCA, chosen: Sequence[int]) -> list[str]:
    """Return two lines for each MCPC: its name, and the contexts that carry it."""
    names, contexts = component_names(model), [str(name) for name in model.contexts_]
    return [f"{names[j]}\n{_strongest(to_host(model.loadings_)[:, j], contexts)}" for j in chosen]


def carrying_contexts(b: Array) -> Array:
    """Return the contexts with at least half of the largest loading in ``b`` (k,), the strongest first."""
    order = np.argsort(-b, kind="stable")
    return np.asarray(order[(b[order] >= b.max() / 2) & (b[order] > 0)])


def draw_images(
    figure: Figure, images: Array, shape: tuple[int, int], titles: Sequence[str], n_columns: int
) -> list[Axes]:
    """Draw images (m, n_pixels) on an empty figure and return their axes."""
    # "compressed" knows that images keep their aspect; "constrained" would leave the titles without a margin.
    figure.set_layout_engine("compressed", h_pad=0.06)
    n_columns = min(n_columns, len(images))
    grid = figure.subplots(math.ceil(len(images) / n_columns), n_columns, squeeze=False).ravel()
    for ax, image, title in zip(grid, images, titles, strict=False):
        draw_image(ax, image, shape)
        ax.set_title(title, fontsize=FONT_SIZE)
    for ax in grid[len(images) :]:
        ax.set_axis_off()
    return list(grid[: len(images)])


def draw_image(ax: Axes, image: Array, shape: tuple[int, int]) -> None:
    """Draw one image on a colour scale that is symmetric around 0."""
    largest = float(np.abs(image).max()) or 1
    ax.imshow(image.reshape(shape), cmap=DIVERGING, vmin=-largest, vmax=largest, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_color("0.8")


def images_size(n: int, shape: tuple[int, int], n_columns: int) -> tuple[float, float]:
    """Inches for a figure of n images with two lines of title each."""
    # Bounds, for an image of one row or one column should still be seen.
    height = min(max(_WIDTH * shape[0] / shape[1], 0.4), 4)
    return _WIDTH * min(n, n_columns) + 0.2, (height + 0.48) * math.ceil(n / n_columns)


def check_shape(shape: Any, n_features: int) -> tuple[int, int]:
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


def _check_components(components: Sequence[int] | None, r: int) -> list[int]:
    if components is None:
        return list(range(r))
    chosen = [check_integer(j, "components entry", 0, r - 1, "They count from 0, as columns.") for j in components]
    if not chosen:
        raise ValueError(f"components is empty; pass at least one of 0 to {r - 1}, or None for all.")
    return chosen


def _strongest(b: Array, contexts: Sequence[str]) -> str:
    """Name the contexts that carry an MCPC, in one short line."""
    carrying = carrying_contexts(b)
    if len(carrying) == len(contexts) > 1:
        return "all contexts"
    if len(carrying) == 0:
        return "no context"
    names = ", ".join(contexts[i] for i in sorted(carrying))
    if len(names) <= _LONGEST_NAME:
        return names
    more = f" + {len(carrying) - 1} more" if len(carrying) > 1 else ""
    room = _LONGEST_NAME - len(more)
    first = contexts[carrying[0]]
    return (first if len(first) <= room else f"{first[: room - 1]}…") + more
