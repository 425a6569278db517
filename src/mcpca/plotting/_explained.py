"""How much of each context the model explains, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.fitted import fitted
from .._utils.optional import require
from ._common import FONT_SIZE, MARK, axes_or_new, put_row_names, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FILL = "#6baed6"  # light enough for a dark line over it
_MOST_WITH_GAPS = 60  # bars; beyond this, gaps of a pixel or less would appear at random


def plot_variance_explained(
    source: Any,
    *,
    order: Literal["given", "sorted"] = "given",
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw for each context the share of its squared covariance that the MCPCs explain, as a bar.

    The share is ``||P(S_i)||_F^2 / ||S_i||_F^2``, P being the projection on the span of the ``a_j a_j^T``. It is
    between 0 and 1, and 1 if ``S_i = A diag(b) A^T`` for some b. The dashed line is the same for all contexts together,
    ``sum_i ||P(S_i)||^2 / sum_i ||S_i||^2``. Bars are not divided among MCPCs: these are not orthogonal, and the share
    of a single one can be negative (see ``MCPCA.variance_explained``).

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or data with the fit of ``mcpca.tl.mcpca``.
    order : {"given", "sorted"}
        The order of the contexts in the fit, or the best explained first.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of contexts.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    A context without variance has no bar. If the model was fitted by passes over the rows, ``||S_i||^2`` is an
    estimate, and so are the bars; error bars of one standard error are then drawn.
    """
    fit = fitted(source, key)
    if order not in ("given", "sorted"):
        raise ValueError(f"order={order!r}; choose 'given' or 'sorted'.")
    norms = np.where(fit.squared_norms > 0, fit.squared_norms, np.inf)  # a context without variance has the share 0
    shares = fit.explained / norms
    k = len(shares)
    rows = np.argsort(-shares, kind="stable") if order == "sorted" else np.arange(k)
    names = [fit.contexts[i] for i in rows]
    ax = axes_or_new(ax, (3.6 + width_of(names), min(max(0.26 * k, 1.2), 9) + 0.7))
    ax.barh(range(k), shares[rows], height=0.8 if k <= _MOST_WITH_GAPS else 1.0, color=_FILL)
    if fit.norm_errors is not None and fit.norm_errors.any():
        # The error of 1 / norm, to first order: that of the norm is the only one.
        errors = (shares * fit.norm_errors / norms)[rows]
        ax.errorbar(shares[rows], range(k), xerr=errors, fmt="none", ecolor=MARK, elinewidth=1)
    # The ratio of sums, not the mean of the bars: contexts with more variance count more.
    overall = float(fit.explained.sum() / (fit.squared_norms.sum() or 1))
    ax.axvline(overall, color="0.15", linestyle="--", linewidth=1)
    ax.annotate(
        f"all: {overall:.1%}",
        (overall, 1),
        xytext=(-3 if overall > 0.5 else 3, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if overall > 0.5 else "left",
        va="bottom",
        fontsize=FONT_SIZE,
    )
    ax.set_xlim(0, max(1, 1.02 * float(shares.max())))  # estimates can exceed 1
    # Upside down: the first context is at the top.
    ax.set_ylim(k - 0.5, -0.5)
    put_row_names(ax, names)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=FONT_SIZE)
    ax.xaxis.set_major_formatter(require("matplotlib.ticker", "plot").PercentFormatter(1, decimals=0))
    ax.set_xlabel("squared covariance explained", fontsize=FONT_SIZE)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax
