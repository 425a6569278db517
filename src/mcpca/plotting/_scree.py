"""Scree of the flattening ``[S_1 ... S_k]``: the singular values behind a choice of rank, with those of noise.

``_ranks`` draws its panels with ``draw_band`` and ``scale_log``.
"""

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

_SAME_DATA = 0.01  # relative difference up to which singular values are of the same data: those from passes are inexact


def plot_scree(
    source: Any, *, selection: RankSelection | None = None, key: str = "mcpca", ax: Axes | None = None
) -> Axes:
    """Draw the singular values of ``[S_1, ..., S_k]`` on a log scale, with the rank of the model marked.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or data with the fit of ``mcpca.tl.mcpca``.
    selection : RankSelection, optional
        The result of ``select_rank`` for the same data, with the criterion "scree". It provides the grey band: singular
        values of the same rows under random signs, from their mean to 5 standard deviations above. By default that of
        the model (``rank_choice_``) or the AnnData (``mcpca.tl.rank``), if it has them.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
    """
    fit = fitted(source, key)
    sigma = fit.singular_values
    r = fit.loadings.shape[1]
    noise = _noise_band(sigma, selection, rank_selection(source, key))
    ax = axes_or_new(ax, (5.5, 3.4))
    index = np.arange(1, len(sigma) + 1)
    if noise is not None:
        _draw_noise(ax, *noise)
    # A singular value that is 0 up to rounding would stretch the log axis over decades of nothing.
    not_rounding = sigma > np.finfo(np.float64).eps * sigma[0]
    ax.plot(index[not_rounding], sigma[not_rounding], color="0.6", linewidth=1, zorder=1)
    # Filled up to the rank of the model, empty beyond.
    for part, face in ((not_rounding & (index <= r), BLUE), (not_rounding & (index > r), "white")):
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
    """Shade the range of noise, slightly beyond both ends so that a single rank has a band too."""
    # lower > 0: a log scale has no other place for it.
    known = np.isfinite(lower) & np.isfinite(upper) & (lower > 0)
    if known.any():
        x, lower, upper = (np.pad(values[known].astype(np.float64), 1, mode="edge") for values in (x, lower, upper))
        x[0] -= 0.4
        x[-1] += 0.4
        ax.fill_between(x, lower, upper, color=BAND, linewidth=0, zorder=0)


def scale_log(ax: Axes) -> None:
    """Make y logarithmic, with plain numbers if it spans less than two decades."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)  # fixed: other tick locators would change them
    ticker = require("matplotlib.ticker", "plot")
    # Matplotlib labels the minor ticks too where a log axis spans little, and the labels would overlap.
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    if high < 100 * low:
        # Over less than two decades powers of ten would leave one or two labels.
        ax.yaxis.set_major_locator(ticker.MaxNLocator(5) if high < 6 * low else ticker.LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_locator(ticker.NullLocator())


def _noise_band(sigma: Array, selection: Any, stored: RankSelection | None) -> tuple[Array, Array] | None:
    """Return the lower and upper ends of the band at the indices of ``sigma``, or None if there is none.

    A ``selection`` that does not belong to the data is an error; one that is ``stored`` with the fit is then ignored.
    """
    if selection is None:
        if stored is not None and stored.scree and _is_same_scree(sigma, stored.scree["singular value"]):
            return _band(stored, len(sigma))
        return None
    if not isinstance(selection, RankSelection):
        raise TypeError(
            f"selection is a {type(selection).__name__} and no RankSelection; pass what select_rank returned."
        )
    if not selection.scree:
        raise ValueError("selection has no scree; run select_rank with criteria='all', or with 'scree' among them.")
    if not _is_same_scree(sigma, selection.scree["singular value"]):
        raise ValueError(
            f"selection is of other data: its largest singular value is {selection.scree['singular value'][0]:.4g}, "
            f"the model's {sigma[0]:.4g}; run select_rank on the rows that were fitted."
        )
    return _band(selection, len(sigma))


def _is_same_scree(sigma: Array, other: Array) -> bool:
    # Relative to the largest and not each to itself: trailing ones may be 0.
    m = min(len(sigma), len(other))
    return bool((np.abs(sigma[:m] - other[:m]) <= _SAME_DATA * sigma[0]).all())


def _band(selection: RankSelection, m: int) -> tuple[Array, Array]:
    return selection.scree["null mean"][:m], selection.scree["null upper"][:m]


def _draw_noise(ax: Axes, lower: Array, upper: Array) -> None:
    """Draw the band, with an edge that is visible in black and white too, and its name below its middle."""
    index = np.arange(1, len(lower) + 1)
    draw_band(ax, index, lower, upper)
    ax.plot(index, upper, color="0.5", linewidth=0.8, linestyle=":", zorder=0)
    middle = len(lower) // 2
    ax.annotate(
        "noise",
        (index[middle], lower[middle]),
        (0, -3),
        textcoords="offset points",
        ha="center",
        va="top",
        color="0.35",
        fontsize=FONT_SIZE,
    )
