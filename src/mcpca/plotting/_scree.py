"""Scree of the flattening: the singular values behind a choice of rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._namespace import to_host
from .._optional import require
from ._common import FONT_SIZE, MARK, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..estimator import MCPCA

_BLUE = "#08519c"


def plot_scree(model: MCPCA, *, ax: Axes | None = None) -> Axes:
    """Draw the singular values of ``[S_1, ..., S_k]`` on a log scale, with the rank of the model marked.

    Parameters
    ----------
    model : MCPCA
        A fitted model.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
    """
    check_is_fitted(model)
    sigma, r = np.asarray(to_host(model.singular_values_), dtype=np.float64), model.n_components_
    ax = axes_or_new(ax, (5.5, 3.4))
    index = np.arange(1, len(sigma) + 1)
    # A singular value that is 0 but for rounding would stretch the axis to where nothing is to be seen.
    floor = np.finfo(np.float64).eps * sigma[0]
    seen = sigma > floor
    ax.plot(index[seen], sigma[seen], color="0.6", linewidth=1, zorder=1)
    for part, face in ((seen & (index <= r), _BLUE), (seen & (index > r), "white")):
        ax.scatter(index[part], sigma[part], s=26, facecolor=face, edgecolor=_BLUE, zorder=2)
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
    ax.set_yscale("log")
    ax.set_xlim(0.4, len(sigma) + 0.6)
    ax.xaxis.set_major_locator(require("matplotlib.ticker", "plot").MaxNLocator(integer=True))
    ax.set_xlabel("index")
    ax.set_ylabel("singular value")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
