"""Which axes differ between contexts: the variance of each axis in every context, beside what labels do by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._inference.dependence_result import ContextDependence
from .._results.anndata_inference import stored_dependence
from .._utils.component_names import mcpc_name
from .._utils.optional import require
from ._common import BAND, BLUE, FONT_SIZE, axes_or_new, put_row_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "0.5"
_AREA = 26.0  # of the point of the largest context, in square points
_SMALLEST = 0.15  # share of that area that the smallest has at least
_JITTER = 0.24  # of the height of a row, to either side: points of many contexts would cover each other


def plot_context_dependence(source: Any, *, key: str = "mcpca", ax: Axes | None = None) -> Axes:
    """Draw the variance of each MCPC in every context as points, to see which differ between contexts.

    A row is an MCPC and a point a context, larger for one with more rows. Variances are those of axes in rows that they
    were not fitted to, over their mean; all are 1 for an axis that is in all contexts alike, but for chance. The grey
    band is what chance does: the standard deviation of variances with permuted labels. Points of MCPCs that differ are
    filled, the others are open, and the q-value is at the right.

    Parameters
    ----------
    source : ContextDependence or AnnData
        What ``context_dependence`` returned, or data in which ``mcpca.tl.context_dependence`` has stored it.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose height follows the number of MCPCs.

    Returns
    -------
    matplotlib Axes
    """
    result = source if isinstance(source, ContextDependence) else stored_dependence(source, key)
    if result is None:
        raise TypeError(
            f"source is a {type(source).__name__} without a test of contexts; pass what context_dependence returned, "
            "or an AnnData after mcpca.tl.context_dependence."
        )
    v = result.variances
    k, r = v.shape
    ax = axes_or_new(ax, (6.2, min(max(0.32 * r, 1.0), 9) + 0.9))
    band = np.sqrt(result.null_means / (result.n_samples - 1).sum())
    ax.barh(range(r), 2 * band, left=1 - band, height=0.8, color=BAND)
    ax.axvline(1, color=_GREY, linewidth=0.8)
    size = _AREA * np.maximum(result.n_samples / result.n_samples.max(), _SMALLEST)
    # The same place in every row, so that a context can be followed down the picture.
    offsets = np.linspace(-_JITTER, _JITTER, k) if k > 1 else np.zeros(1)
    dependent = result.dependent
    for j in range(r):
        colour = BLUE if dependent[j] else _GREY
        ax.scatter(
            v[:, j],
            j + offsets,
            s=size,
            facecolors=colour if dependent[j] else "none",
            edgecolors=colour,
            linewidths=0.7,
            alpha=0.8,
        )
        ax.annotate(
            f"q = {result.q_values[j]:.2g}",
            (1, j),
            xytext=(4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=FONT_SIZE,
            color="0.15" if dependent[j] else _GREY,
        )
    # Ratios of variances: as far from 1 to either side, unless some context has none.
    if (v > 0).all():
        ax.set_xscale("log", base=2)
        plain = require("matplotlib.ticker", "plot").FuncFormatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_major_formatter(plain)
    ax.set_ylim(r - 0.5, -0.5)
    put_row_names(ax, [mcpc_name(j) for j in range(r)])
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=FONT_SIZE)
    ax.set_xlabel("variance in a context over its mean (grey: standard deviation by chance)", fontsize=FONT_SIZE)
    # The sum is said in the title: single rows do not show it.
    ax.set_title(f"{result.in_words().split(';')[0]} (p = {result.p_value:.2g})", fontsize=FONT_SIZE, loc="left")
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax
