"""What every criterion says of the ranks that were looked at, in one figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._inference.replication import REPLICATES
from .._rank.noise_test import STANDARD_DEVIATIONS
from .._rank.selection import RankSelection
from .._results.fitted import rank_selection
from .._utils.optional import require
from .._utils.types import Array
from ._common import BLUE, FONT_SIZE, MARK, SEQUENTIAL, axes_or_new
from ._scree import draw_band, scale_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_PALE, _GREY, _UNKNOWN = "#9ecae1", "0.5", "0.8"
_COLUMNS, _WIDTH, _HEIGHT = 4, 2.75, 2.3  # panels side by side; inches of a panel
_NARROWEST = 6.0  # inches, for the text above few panels
_CHARACTER, _LINE = 0.55, 1.35  # mean width of a character and height of a line, in font sizes
_MARGIN = 0.1  # inches around the text
_DIGITS = 16  # of tick labels that fit along a heatmap
_HALVES = "split-half agreement"
# The criteria that are one curve over the ranks, and what their numbers are.
_LABELS = {
    _HALVES: "mean |cos|",
    "seed stability": "mean |cos|",
    "projection similarity": "share of components",
    "loading similarity": "share of components",
    "context consistency": "mean over other ranks",
    "held-out error": "relative squared error",
    "held-out log-likelihood": "mean per row",
    "BIC": "less is better",
}
_UNBOUNDED = ("held-out error", "held-out log-likelihood", "BIC")  # the others are at most 1


def plot_rank_selection(source: Any, *, key: str = "mcpca", ax: Figure | None = None) -> Figure:
    """Draw every criterion over the ranks, with the recommendation and the choice of each criterion alone marked.

    The first panels are of the two questions that decide: is it above noise, and does it come back in other rows. A
    criterion without numbers has no panel. Heatmaps compare pairs of ranks, where more than one was looked at.

    Parameters
    ----------
    source : RankSelection, MCPCA or AnnData
        What ``select_rank`` returned, a model that was fitted with ``n_components=None``, or data for which
        ``mcpca.tl.rank`` was run.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Figure, optional
        An empty figure to draw on; by default a new one whose size follows the number of panels.
        ``plot_rank_heatmap`` draws one panel on axes.

    Returns
    -------
    matplotlib Figure
    """
    selection = _selection(source, key)
    if ax is not None and not hasattr(ax, "set_layout_engine"):
        raise TypeError(f"ax is a {type(ax).__name__}; this needs a whole Figure, for a text above a grid of panels.")
    panels = _panels(selection)
    pairwise = {name: values for name, values in selection.pairwise.items() if len(values) > 1 and _any(values)}
    start = len(panels)
    if start % _COLUMNS + len(pairwise) > _COLUMNS:  # heatmaps are compared, so they share a row
        start = _COLUMNS * math.ceil(start / _COLUMNS)
    end = start + len(pairwise)
    columns, rows = min(end, _COLUMNS), math.ceil(end / _COLUMNS)
    if ax is None:
        figure = _with_header(selection, max(columns * _WIDTH, _NARROWEST), rows * _HEIGHT)
    else:
        figure = _with_header(selection, ax.get_figwidth(), ax.get_figheight(), ax)
    if end:
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, draw in zip(grid, panels, strict=False):
            draw(selection, panel)
            _finish(panel)
        if pairwise:
            _draw_heatmaps(grid[start:end], pairwise, selection, free=end < len(grid))
        for panel in [*grid[len(panels) : start], *grid[end:]]:
            panel.set_axis_off()
    return figure


def plot_rank_heatmap(source: Any, measure: str, *, key: str = "mcpca", ax: Axes | None = None) -> Axes:
    """Draw one measure of stability for all pairs of ranks, with the recommended rank framed.

    Parameters
    ----------
    source : RankSelection, MCPCA or AnnData
        What ``select_rank`` returned with the criterion "holdout"; a model whose ``rank_choice_`` that is; or data for
        which ``mcpca.tl.rank`` was run.
    measure : {"projection similarity", "loading similarity", "context consistency"}
        The paper's three: share of components with ``|cos| > 0.9`` between the projections of all rows and of nine
        tenths of them; share with a correlation of loadings above 0.99; Spearman's correlation of the correlations
        between contexts.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
    """
    selection = _selection(source, key)
    if measure not in selection.pairwise:
        have = ", ".join(map(repr, selection.pairwise)) or "none"
        raise ValueError(
            f"measure={measure!r} is not among the pairs of ranks that were measured ({have}); run select_rank with "
            "criteria='all', or with 'holdout' among them."
        )
    values = selection.pairwise[measure]
    ax = axes_or_new(ax, (_WIDTH + 0.9, _HEIGHT + 0.5))
    _add_scale(ax, _draw_heatmap(ax, measure, values, selection), values)
    return ax


def _selection(source: Any, key: str) -> RankSelection:
    found = rank_selection(source, key)
    if found is None:
        raise TypeError(
            f"source is a {type(source).__name__} without a RankSelection; pass what select_rank returned, a model "
            "fitted with n_components=None, or an AnnData after mcpca.tl.rank."
        )
    return found


def _with_header(selection: RankSelection, width: float, height: float, figure: Figure | None = None) -> Figure:
    """Put the recommendation in words above ``width`` x ``height`` inches for panels, or at the top of a figure."""
    fits = int((width - 2 * _MARGIN) * 72 / (_CHARACTER * FONT_SIZE))
    lines, title_size = textwrap.wrap(selection.reason, fits, break_on_hyphens=False), FONT_SIZE + 3
    if height:
        marks = "Orange: the recommended rank. " if selection.rank else ""
        marks += (
            "Ring, number in brackets: what a criterion alone would choose. Grey band: noise. Grey line: threshold."
        )
        lines += textwrap.wrap(marks, fits)
    above = _LINE * (title_size + len(lines) * FONT_SIZE) / 72 + _MARGIN
    total = above + height + _MARGIN if figure is None else height
    if figure is None:
        figure = require("matplotlib.pyplot", "plot").figure(figsize=(width, total))
    assert figure is not None
    # The layout knows of one title only, which cannot be part bold.
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - above / total), h_pad=0.07, w_pad=0.07)
    title = f"Recommended rank: {selection.rank}" if selection.rank else "Rank 0: nothing above noise"
    left, top = _MARGIN / width, 1 - _MARGIN / total
    figure.text(left, top, title, fontsize=title_size, fontweight="bold", va="top")
    below = top - _LINE * title_size / 72 / total
    figure.text(left, below, "\n".join(lines), fontsize=FONT_SIZE, va="top", linespacing=1.2)
    return figure


def _panels(selection: RankSelection) -> list[Callable[[RankSelection, Any], None]]:
    """Functions that draw what is known, those that decide first."""
    columns, found, nothing = selection.columns, selection.replicability, np.array([])
    curves = [(columns.get(name, nothing), partial(_draw_curve, name)) for name in _LABELS]
    candidates: list[tuple[Array, Callable[[RankSelection, Any], None]]] = [
        (_positive(columns.get("spread", nothing)), _draw_noise_test),
        curves[0],
        (columns.get("replicating", nothing), _draw_replicating),
        (nothing if found is None else found.agreement, _draw_components),
        (selection.scree.get("singular value", nothing), _draw_scree),
        *curves[1:],
    ]
    return [draw for values, draw in candidates if _any(values)]


def _any(values: Array) -> bool:
    return bool(np.isfinite(values).any())


def _positive(values: Array, least: float = 0) -> Array:
    """Return what has a place on a log scale, and NaN for the rest."""
    return np.where(values > least, values, np.nan)


def _draw_curve(name: str, selection: RankSelection, ax: Axes) -> None:
    values = selection.columns[name]
    _draw_line(ax, selection, name, selection.ranks, values)
    if name in (_HALVES, "seed stability"):
        ax.axhline(selection.threshold, color=_GREY, linewidth=0.8, zorder=0)
    if name not in _UNBOUNDED:  # one scale, so that panels can be compared
        ax.set_ylim(min(0, float(np.nanmin(values))) - 0.05, 1.05)
    ax.set_ylabel(_LABELS[name])


def _draw_noise_test(selection: RankSelection, ax: Axes) -> None:
    columns = selection.columns
    mean, margin = columns["noise spread"], STANDARD_DEVIATIONS * columns["noise sd"]
    # A band that reaches 0, which is nowhere on a log scale, ends at a tenth of its middle.
    draw_band(ax, selection.ranks, np.maximum(mean - margin, 0.1 * mean), mean + margin)
    _draw_line(ax, selection, "noise test", selection.ranks, _positive(columns["spread"]))
    scale_log(ax)
    ax.set_ylabel("spread of what is left")


def _draw_scree(selection: RankSelection, ax: Axes) -> None:
    sigma = selection.scree["singular value"]
    last = max([selection.votes.get("scree", 0), *selection.ranks.tolist()])
    shown = slice(0, math.ceil(1.15 * last) + 1)
    index = np.arange(1, len(sigma) + 1)[shown]
    draw_band(ax, index, selection.scree["null mean"][shown], selection.scree["null upper"][shown])
    # A singular value that is 0 but for rounding would stretch the axis to where nothing is to be seen.
    _draw_line(ax, selection, "scree", index, _positive(sigma, np.finfo(np.float64).eps * sigma[0])[shown])
    scale_log(ax)
    ax.set_xlabel("index")
    ax.set_ylabel("singular value")


def _draw_replicating(selection: RankSelection, ax: Axes) -> None:
    values = selection.columns["replicating"]
    _draw_line(ax, selection, "how many come back", selection.ranks, values)
    ax.axline((0, 0), slope=1, color=_GREY, linewidth=0.8, linestyle=":", zorder=0)
    # Where few come back at high ranks the line leaves the panel; else the curve would lie along the bottom.
    top = max(1.6 * float(np.nanmax(values)), 2)
    ax.set_ylim(-0.05 * top, top)
    ax.yaxis.set_major_locator(_integers())
    ax.set_ylabel(f"|cos| > {REPLICATES:g} (dotted: all)")


def _draw_components(selection: RankSelection, ax: Axes) -> None:
    found = selection.replicability
    assert found is not None
    number = np.arange(1, len(found.agreement) + 1)
    width = 0.8 if len(number) < 40 else 1.0  # gaps of a pixel or less would come and go
    ax.bar(number, found.agreement, width, color=np.where(found.replicates, BLUE, _PALE).tolist())
    if len(found.cosines) > 1:
        ax.errorbar(number, found.agreement, found.spread, fmt="none", ecolor=_GREY, elinewidth=0.8, capsize=1.5)
    ax.axhline(found.threshold, color=_GREY, linewidth=0.8)
    ax.set_xlim(0.4, len(number) + 0.6)
    ax.set_ylim(0, 1.05)
    ax.set_title(f"each component at rank {len(number)}")
    ax.set_xlabel("MCPC")
    ax.set_ylabel("mean |cos|, sd of splits")


def _draw_line(ax: Axes, selection: RankSelection, name: str, x: Array, y: Array) -> None:
    """Draw a curve through what is known of it, a ring around the choice of the criterion, and the recommendation."""
    known, vote = np.isfinite(y), selection.votes.get(name)
    ax.plot(x[known], y[known], color=BLUE, linewidth=1, marker="o", markersize=3.5)
    chosen = known & (x == vote)  # none for 0, and for ranks that were not looked at
    if chosen.any():
        ax.plot(x[chosen], y[chosen], "o", markersize=9, markerfacecolor="none", color="0.1")
    if selection.rank:
        ax.axvline(selection.rank, color=MARK, linestyle="--", linewidth=1, zorder=0)
    margin = 0.04 * (x[-1] - x[0]) + 0.5
    ax.set_xlim(x[0] - margin, x[-1] + margin)
    ax.set_title(name if vote is None else f"{name} ({vote})")


def _draw_heatmaps(axes: Array, pairwise: dict[str, Array], selection: RankSelection, *, free: bool) -> None:
    """Draw rank x rank measures on one scale, with its bar beside the last of them; ``free``: there is room for it."""
    for ax, (name, values) in zip(axes, pairwise.items(), strict=True):
        image = _draw_heatmap(ax, name, values, selection)
    inset = _add_scale(axes[-1], image, np.stack(list(pairwise.values())))
    inset.set_in_layout(not free)  # else all panels above would keep a margin that is empty but for the bar


def _draw_heatmap(ax: Axes, name: str, values: Array, selection: RankSelection) -> AxesImage:
    """Draw one measure of pairs of ranks, with a frame around the recommended rank."""
    colours = require("matplotlib", "plot").colormaps[SEQUENTIAL].with_extremes(bad=_UNKNOWN)
    ranks = selection.ranks
    ticks = np.arange(0, len(ranks), math.ceil(len(ranks) / (_DIGITS // len(str(ranks.max())))))
    image = ax.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    square = require("matplotlib.patches", "plot").Rectangle
    for i in np.flatnonzero(ranks == selection.rank):
        ax.add_patch(square((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=MARK, linewidth=1.2))
    ax.set_xticks(ticks, labels=ranks[ticks])
    ax.set_yticks(ticks, labels=ranks[ticks])
    ax.set_title(name)
    symmetric = name == "context consistency"
    ax.set_xlabel("rank" if symmetric else "rank, a tenth held out")
    ax.set_ylabel("rank" if symmetric else "rank, all rows")
    _set_font_sizes(ax)
    ax.spines[:].set_color("0.8")
    return image


def _add_scale(ax: Axes, image: AxesImage, values: Array) -> Axes:
    """Put the bar of all ``values`` beside a heatmap; return its axes."""
    inset = ax.inset_axes((1.06, 0, 0.07, 1))
    bar = ax.figure.colorbar(image, cax=inset, extend="min" if (values < 0).any() else "neither")
    bar.set_label("grey: not known" if np.isnan(values).any() else "", fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE - 1)
    bar.outline.set_edgecolor("0.8")
    return inset


def _integers() -> Any:
    return require("matplotlib.ticker", "plot").MaxNLocator(6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)


def _finish(ax: Axes) -> None:
    """Give a panel of curves or bars what all of them have."""
    ax.set_xlabel(ax.get_xlabel() or "rank")
    ax.xaxis.set_major_locator(_integers())
    ax.spines[["top", "right"]].set_visible(False)
    _set_font_sizes(ax)


def _set_font_sizes(ax: Axes) -> None:
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_fontsize(FONT_SIZE)
    ax.yaxis.get_offset_text().set_fontsize(FONT_SIZE - 1)
    ax.tick_params(which="both", labelsize=FONT_SIZE - 1)
