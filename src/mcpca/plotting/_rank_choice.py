"""The paper's rule for the rank in one picture, as its Fig. S2F: scores of pairs of runs, their mean, the threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._results.fitted import paper_choice
from .._utils.optional import require
from .._utils.printing import counted
from ._common import BLUE, FONT_SIZE, MARK, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PALE = "#c6dbef"
_WIDTH = 0.6  # of a box, of the smallest distance between ranks
_FEWEST_IN_BOX = 3  # pairs: quartiles of two values say no more than the values


def plot_rank_choice(source: Any, *, key: str = "mcpca", ax: Axes | None = None) -> Axes:
    """Draw how well runs from different seeds agree at each rank, and the rank that the paper's rule takes.

    Boxes are the scores of pairs of runs at one rank, from quartile to quartile with whiskers to the extremes. The line
    is their mean, which the rule compares with the threshold, in a band of two standard errors to either side.

    Parameters
    ----------
    source : RankChoice, MCPCA or AnnData
        What ``choose_rank`` returned, a model fitted with ``rank_range``, or data with such a fit.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Open points are ranks at which some runs had not converged: scores may be too low there. With one or two pairs of
    runs there are no boxes.

    Examples
    --------
    >>> from mcpca import choose_rank
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_rank_choice
    >>> truth = make_contexts(n_contexts=6, n_features=12, n_components=3, random_state=0)
    >>> ax = plot_rank_choice(choose_rank(truth.covariances, range(1, 4), random_state=0))
    """
    choice = paper_choice(source, key)
    if choice is None:
        raise TypeError(
            f"source is a {type(source).__name__} without a choice by the paper's rule; pass what choose_rank "
            "returned, or a model fitted with rank_range. plot_rank_selection draws what select_rank returned."
        )
    ranks = np.asarray(choice.ranks)
    # (m, pairs)
    scores = np.asarray(choice.scores)
    means = choice.mean_scores
    n_pairs = scores.shape[1]
    ax = axes_or_new(ax, (min(max(5.2, 0.22 * len(ranks) + 2), 9), 3.6))
    if n_pairs > 1:
        half = 2 * scores.std(axis=1, ddof=1) / np.sqrt(n_pairs)
        # No mean of cosines is above 1.
        ax.fill_between(ranks, means - half, np.minimum(means + half, 1), color=_PALE, linewidth=0, zorder=1)
    if n_pairs >= _FEWEST_IN_BOX:
        dark: dict[str, Any] = {"color": "0.45", "linewidth": 0.8}
        gap = int(np.diff(ranks).min()) if len(ranks) > 1 else 1
        ax.boxplot(
            scores.T,
            positions=ranks,
            widths=_WIDTH * gap,
            whis=(0, 100),
            showfliers=False,
            manage_ticks=False,
            boxprops=dark,
            whiskerprops=dark,
            capprops=dark,
            medianprops={"color": "0.25", "linewidth": 1.2},
            zorder=2,
        )
    ax.plot(ranks, means, color=BLUE, linewidth=1.4, marker="o", markersize=4, zorder=3)
    unsettled = np.zeros(len(ranks), dtype=bool) if choice.unsettled is None else np.asarray(choice.unsettled) > 0
    if unsettled.any():
        ax.plot(ranks[unsettled], means[unsettled], "o", color=BLUE, markersize=4.5, markerfacecolor="white", zorder=4)
    ax.axhline(choice.threshold, color="0.4", linestyle=":", linewidth=1, zorder=0)
    bottom = min(float(scores.min()), choice.threshold)
    margin = 0.06 * max(1 - bottom, 0.05)
    ax.set_ylim(bottom - margin, 1 + margin)
    ax.set_xlim(ranks[0] - 0.8, ranks[-1] + 0.8)
    title = "no rank above the threshold"
    if choice.rank is not None:
        ax.axvline(choice.rank, color=MARK, linestyle="--", linewidth=1.1, zorder=0)
        title = f"rank {choice.rank}, the largest above the threshold"
    note = "\nopen points: runs that had not converged" if unsettled.any() else ""
    ax.set_title(f"{title} ({choice.threshold:g}, dotted){note}", fontsize=FONT_SIZE)
    locator = require("matplotlib.ticker", "plot").MaxNLocator(12, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    ax.xaxis.set_major_locator(locator)
    ax.set_xlabel("rank", fontsize=FONT_SIZE)
    ax.set_ylabel(f"mean |cos| of {counted(n_pairs, 'pair')} of runs", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
