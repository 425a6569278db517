"""Scree of the flattening: the singular values behind a choice of rank, beside those of noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._rank.selection import RankSelection
from .._results.fitted import fitted, rank_selection
from .._utils.optional import require
from .._utils.types import Array
from ._common import BAND, BLUE, FONT_SIZE, MARK, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAME = 0.01  # relative difference of singular values of the same data; methods that pass over rows round


def plot_scree(
    source: Any, *, selection: RankSelection | None = None, key: str = "mcpca", ax: Axes | None = None
) -> Axes:
    """Draw the singular values of ``[S_1, ..., S_k]`` on a log scale, with the rank of the model marked.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or data with the fit of ``mcpca.tl.mcpca``.
    selection : RankSelection, optional
        What ``select_rank`` returned for the same data, with the criterion "scree": from it comes the grey band, the
        singular values of the same rows under random signs, from their mean to 5 standard deviations above. By default
        what the model or the AnnData holds (``rank_choice_``, ``mcpca.tl.rank``), where that has them.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
    """
    fit = fitted(source, key)
    sigma, r = fit.singular_values, fit.loadings.shape[1]
    noise = _noise(sigma, selection, rank_selection(source, key))
    ax = axes_or_new(ax, (5.5, 3.4))
    index = np.arange(1, len(sigma) + 1)
    if noise is not None:
        _draw_noise(ax, *noise)
    # A singular value that is 0 but for rounding would stretch the axis to where nothing is to be seen.
    seen = sigma > np.finfo(np.float64).eps * sigma[0]
    ax.plot(index[seen], sigma[seen], color="0.6", linewidth=1, zorder=1)
    for part, face in ((seen & (index <= r), BLUE), (seen & (index > r), "white")):
        ax.scatter(index[part], sigma[part], s=26, facecolor=face, edgecolor=BLUE, zorder=2)
    ax.axvline(r + 0.5, color=MARK, linestyle="--", linewidth=1, zorder=0)
    beyond = r > 0.8 * len(sigma)  # no room to the right of the line
    ax.annotate(
        f"rank {r}",
        (r + 0.5, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if beyond else 4, -4),
        textcoords="offset points",
        ha="right" if beyond else "left",
        va="top",
        color=MARK,
        fontsize=FONT_SIZE,
    )
    scale_log(ax)
    ax.set_xlim(0.4, len(sigma) + 0.6)
    ax.xaxis.set_major_locator(require("matplotlib.ticker", "plot").MaxNLocator(integer=True))
    ax.set_xlabel("index")
    ax.set_ylabel("singular value")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def draw_band(ax: Axes, x: Array, lower: Array, upper: Array) -> None:
    """Shade the range of noise, a little beyond both ends: a single rank has a band too."""
    known = np.isfinite(lower) & np.isfinite(upper) & (lower > 0)
    if known.any():
        x, lower, upper = (np.pad(values[known].astype(np.float64), 1, mode="edge") for values in (x, lower, upper))
        x[0], x[-1] = x[0] - 0.4, x[-1] + 0.4
        ax.fill_between(x, lower, upper, color=BAND, linewidth=0, zorder=0)


def scale_log(ax: Axes) -> None:
    """Make y logarithmic, with plain numbers where it spans less than two decades."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    ticker = require("matplotlib.ticker", "plot")
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    if high < 100 * low:
        ax.yaxis.set_major_locator(ticker.MaxNLocator(5) if high < 6 * low else ticker.LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_locator(ticker.NullLocator())


def _noise(sigma: Array, selection: Any, choice: RankSelection | None) -> tuple[Array, Array] | None:
    """Return the band as lower and upper ends at the indices of ``sigma``, or None where there is none."""
    if selection is None:
        if choice is not None and choice.scree and _same(sigma, choice.scree["singular value"]):
            return _band(choice, len(sigma))
        return None
    if not isinstance(selection, RankSelection):
        raise TypeError(
            f"selection is a {type(selection).__name__} and no RankSelection; pass what select_rank returned."
        )
    if not selection.scree:
        raise ValueError("selection has no scree; run select_rank with criteria='all', or with 'scree' among them.")
    if not _same(sigma, selection.scree["singular value"]):
        raise ValueError(
            f"selection is of other data: its largest singular value is {selection.scree['singular value'][0]:.4g}, "
            f"the model's {sigma[0]:.4g}; run select_rank on the rows that were fitted."
        )
    return _band(selection, len(sigma))


def _same(sigma: Array, other: Array) -> bool:
    m = min(len(sigma), len(other))
    return bool((np.abs(sigma[:m] - other[:m]) <= _SAME * sigma[0]).all())


def _band(selection: RankSelection, m: int) -> tuple[Array, Array]:
    return selection.scree["null mean"][:m], selection.scree["null upper"][:m]


def _draw_noise(ax: Axes, lower: Array, upper: Array) -> None:
    """Draw the band, with an edge that is seen in black and white too, and its name below its first part."""
    index = np.arange(1, len(lower) + 1)
    draw_band(ax, index, lower, upper)
    ax.plot(index, upper, color="0.5", linewidth=0.8, linestyle=":", zorder=0)
    middle = len(lower) // 2
    style: dict[str, Any] = {
        "textcoords": "offset points",
        "ha": "center",
        "va": "top",
        "color": "0.35",
        "fontsize": FONT_SIZE,
    }
    ax.annotate("noise", (index[middle], lower[middle]), (0, -3), **style)
