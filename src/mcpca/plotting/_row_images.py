"""Rows that are images, drawn as images: examples of each context, and their means: the paper's Figures S2D and 2F."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from .._results.fitted import fitted
from .._results.fitted_rows import rows_of_fit, sampled_rows
from .._utils.arguments import check_integer
from .._utils.component_names import context_index
from .._utils.optional import require
from ._common import FONT_SIZE, shorten, width_of
from ._images import check_image_shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = 0.75  # inches
_MOST_CONTEXTS = 12
_MOST_ROWS = 20_000  # of a context, whose mean is taken


def plot_row_images(
    source: Any,
    shape: tuple[int, int],
    X: Any = None,
    y: Any = None,
    *,
    contexts: Sequence[Any] | None = None,
    n: int = 8,
    mean: bool = True,
    key: str = "mcpca",
    ax: Figure | None = None,
) -> Figure:
    """Draw rows as images, some of each context, with the mean of the context first; white is the largest value.

    Parameters
    ----------
    source : MCPCA or AnnData
        A model fitted to images, one pixel per feature, or data with the fit of ``mcpca.tl.mcpca``.
    shape : (height, width)
        Shape of the images; they must have been flattened in C order.
    X, y
        For a model: rows with their contexts in any form that ``fit`` accepts, except Dask. An AnnData brings its own.
    contexts : sequence of names, optional
        By default the first 12.
    n : int
        Number of rows of each context, drawn at random, always the same ones; or all if there are fewer.
    mean : bool
        Whether to draw the mean of each context first, of at most 20,000 of its rows.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Figure, optional
        An empty figure to draw on; by default a new one.

    Returns
    -------
    matplotlib Figure

    Notes
    -----
    Each image has its own scale, from its smallest to its largest value.
    """
    fit = fitted(source, key)
    n = check_integer(n, "n", 1)
    if ax is not None and not hasattr(ax, "set_layout_engine"):
        raise TypeError(f"ax is a {type(ax).__name__}; this needs a whole Figure, for a grid of images.")
    space = rows_of_fit(source, fit, key, X, y)
    shape = check_image_shape(shape, len(space.components))
    wanted = fit.contexts[:_MOST_CONTEXTS] if contexts is None else contexts
    chosen = [context_index(name, fit.contexts, "contexts: entry") for name in wanted]
    if not chosen:
        raise ValueError("contexts is empty; pass at least one name, or None for the first 12.")
    images = []
    for i in chosen:
        position = [space.position(i, fit.contexts)]
        drawn = sampled_rows(space, position, n).rows
        examples = list(drawn.toarray() if scipy.sparse.issparse(drawn) else np.asarray(drawn))
        if mean:
            examples.insert(0, np.asarray(sampled_rows(space, position, _MOST_ROWS).rows.mean(axis=0)).ravel())
        images.append(examples)
    names = [shorten(fit.contexts[i]) for i in chosen]
    columns = max(map(len, images))
    height = min(max(_PANEL * shape[0] / shape[1], 0.3), 2.0)
    figure = ax
    if figure is None:
        size = (_PANEL * columns + width_of(names) + 0.3, (height + 0.06) * len(chosen) + 0.35)
        figure = require("matplotlib.pyplot", "plot").figure(figsize=size)
    assert figure is not None
    figure.set_layout_engine("compressed")
    grid: Any = figure.subplots(len(chosen), columns, squeeze=False)
    for panel in grid.ravel():
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
    for axes, examples, name in zip(grid, images, names, strict=True):
        for panel, image in zip(axes, examples, strict=False):
            panel.imshow(image.reshape(shape), cmap="gray", interpolation="nearest")
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=FONT_SIZE)
    if mean:
        grid[0, 0].set_title("mean", fontsize=FONT_SIZE)
    return figure
