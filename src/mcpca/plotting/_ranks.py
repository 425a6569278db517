"""A ``RankSelection`` in one figure: a panel for every criterion, and heatmaps of the measures for pairs of ranks.

A new criterion that is a curve over the ranks needs an entry in ``_CURVE_LABELS`` and, if it is not bounded by 1, in
``_UNBOUNDED``.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._inference.replication import REPLICATES
from .._rank.noise_test import STANDARD_DEVIATIONS
from .._rank.selection import RankSelection
from .._results.fitted import paper_choice, rank_selection
from .._utils.optional import require
from .._utils.types import Array
from .._utils.wording import quoted
from ._common import BLUE, FONT_SIZE, MARK, SEQUENTIAL, axes_or_new
from ._rank_choice import plot_rank_choice
from ._scree import draw_band, scale_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_PALE = "#9ecae1"  # components that do not come back
_MIDDLE = "#5a9bcb"  # recommended, but below the bound of components that replicate
_GREY = "0.5"  # thresholds
_UNKNOWN = "0.8"  # pairs of ranks without a value
_PANELS_PER_ROW = 4
_PANEL_WIDTH = 2.75  # inches
_PANEL_HEIGHT = 2.3
_NARROWEST = 6.0  # inches of the figure, for the text above few panels
# Width of a character on average, and height of a line, in font sizes, in the text above the panels: it is long, so
# that the average is more reliable than for names (``_common.CHARACTER_WIDTH``).
_TEXT_CHARACTER = 0.55
_TEXT_LINE = 1.35
_MARGIN = 0.1  # inches around the text
_TICK_DIGITS = 16  # that fit along a heatmap
_SPLIT_HALF = "split-half agreement"
# The criteria that are one curve over the ranks, and the labels of their axes.
_CURVE_LABELS = {
    _SPLIT_HALF: "mean |cos|",
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

    The first panels show the two questions that decide: is it above noise, and does it come back in other rows? A
    criterion without numbers has no panel. Heatmaps compare pairs of ranks, if more than one was examined.

    Parameters
    ----------
    source : RankSelection, MCPCA or AnnData
        The result of ``select_rank``, a model fitted with ``n_components=None``, or data for which ``mcpca.tl.rank``
        was run. Of a ``RankChoice``, or a fit with ``rank_range``, the one curve there is, as ``plot_rank_choice``
        draws it.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Figure, optional
        An empty figure to draw on; by default a new one whose size depends on the number of panels.
        ``plot_rank_heatmap`` draws one panel on axes.

    Returns
    -------
    matplotlib Figure
    """
    if ax is not None and not hasattr(ax, "set_layout_engine"):
        raise TypeError(f"ax is a {type(ax).__name__}; this needs a whole Figure, for a text above a grid of panels.")
    if paper_choice(source, key) is not None:
        drawn = plot_rank_choice(source, key=key, ax=None if ax is None else ax.add_subplot())
        return cast("Figure", drawn.figure)
    selection = _selection(source, key)
    panels = _panels(selection)
    pairwise = {name: values for name, values in selection.pairwise.items() if len(values) > 1 and _any_known(values)}
    start = len(panels)
    if start % _PANELS_PER_ROW + len(pairwise) > _PANELS_PER_ROW:  # heatmaps are compared, so they share a row
        start = _PANELS_PER_ROW * math.ceil(start / _PANELS_PER_ROW)
    end = start + len(pairwise)
    # Panels first, then empty places up to ``start``, then heatmaps up to ``end``.
    columns = min(end, _PANELS_PER_ROW)
    rows = math.ceil(end / _PANELS_PER_ROW)
    if ax is None:
        figure = _with_header(selection, max(columns * _PANEL_WIDTH, _NARROWEST), rows * _PANEL_HEIGHT)
    else:
        # The text takes its height from a figure that the caller made, and adds it to a new one.
        figure = _with_header(selection, ax.get_figwidth(), ax.get_figheight(), ax)
    if end:
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        # strict=False: the grid has places for heatmaps as well, and may have empty ones.
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
        The result of ``select_rank`` with the criterion "holdout", a model with such a ``rank_choice_``, or data for
        which ``mcpca.tl.rank`` was run.
    measure : {"projection similarity", "loading similarity", "context consistency"}
        The paper's three measures: the share of components with ``|cos| > 0.9`` between the projections of all rows
        and of nine tenths of them; the share with a correlation of loadings above 0.99; and Spearman's correlation of
        the correlations between contexts.
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
        raise ValueError(
            f"measure={measure!r} is not among those that were measured ({quoted(list(selection.pairwise))}); run "
            "select_rank with criteria='all', or with 'holdout' among them."
        )
    values = selection.pairwise[measure]
    ax = axes_or_new(ax, (_PANEL_WIDTH + 0.9, _PANEL_HEIGHT + 0.5))
    _add_scale(ax, _draw_heatmap(ax, measure, values, selection), values)
    return ax


def _selection(source: Any, key: str) -> RankSelection:
    selection = rank_selection(source, key)
    if selection is None and paper_choice(source, key) is not None:
        raise TypeError(
            "source has a choice by the paper's rule, which compares runs at one rank and no pairs of ranks; run "
            "select_rank, or draw the rule with plot_rank_choice."
        )
    if selection is None:
        raise TypeError(
            f"source is a {type(source).__name__} without a RankSelection; pass what select_rank returned, a model "
            "fitted with n_components=None, or an AnnData after mcpca.tl.rank."
        )
    return selection


def _with_header(selection: RankSelection, width: float, height: float, figure: Figure | None = None) -> Figure:
    """Write the recommendation above ``width`` x ``height`` inches for panels, or at the top of ``figure``."""
    # Wrapped by the estimated width, as nothing can be measured before the figure exists.
    characters_per_line = int((width - 2 * _MARGIN) * 72 / (_TEXT_CHARACTER * FONT_SIZE))
    lines = textwrap.wrap(selection.reason, characters_per_line, break_on_hyphens=False)
    title_size = FONT_SIZE + 3
    if height:
        marks = "Orange: the recommended rank. " if selection.rank else ""
        marks += (
            "Ring, number in brackets: what a criterion alone would choose. Grey band: noise. Grey line: threshold."
        )
        lines += textwrap.wrap(marks, characters_per_line)
    above = _TEXT_LINE * (title_size + len(lines) * FONT_SIZE) / 72 + _MARGIN
    total = above + height + _MARGIN if figure is None else height
    if figure is None:
        figure = require("matplotlib.pyplot", "plot").figure(figsize=(width, total))
    assert figure is not None
    # The text is outside of the layout, which knows only one title, and that cannot be partly bold.
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - above / total), h_pad=0.07, w_pad=0.07)
    title = f"Recommended rank: {selection.fitted_rank}" if selection.rank else "Rank 0: nothing above noise"
    # Figure coordinates: fractions of its width and height.
    left = _MARGIN / width
    top = 1 - _MARGIN / total
    figure.text(left, top, title, fontsize=title_size, fontweight="bold", va="top")
    below = top - _TEXT_LINE * title_size / 72 / total
    figure.text(left, below, "\n".join(lines), fontsize=FONT_SIZE, va="top", linespacing=1.2)
    return figure


def _panels(selection: RankSelection) -> list[Callable[[RankSelection, Any], None]]:
    """Return the functions that draw the panels with numbers, the criteria that decide first."""
    columns = selection.columns
    replicability = selection.replicability
    nothing = np.array([])
    curves = [(columns.get(name, nothing), partial(_draw_curve, name)) for name in _CURVE_LABELS]
    # What a panel shows, and the function that draws it.
    # A log scale has no place for a spread of 0: a curve of these alone makes no panel.
    candidates: list[tuple[Array, Callable[[RankSelection, Any], None]]] = [
        (_or_nan(columns.get("spread", nothing)), _draw_noise_test),
        curves[0],
        (columns.get("replicating", nothing), _draw_replicating),
        (nothing if replicability is None else replicability.agreement, _draw_components),
        (selection.scree.get("singular value", nothing), _draw_scree),
        *curves[1:],
    ]
    return [draw for values, draw in candidates if _any_known(values)]


def _any_known(values: Array) -> bool:
    return bool(np.isfinite(values).any())


def _or_nan(values: Array, above: float = 0) -> Array:
    """Return the values above a bound, which have a place on a log scale, and NaN for the others."""
    return np.where(values > above, values, np.nan)


def _draw_curve(name: str, selection: RankSelection, ax: Axes) -> None:
    values = selection.columns[name]
    _draw_marked_curve(ax, selection, name, selection.ranks, values)
    if name in (_SPLIT_HALF, "seed stability"):
        ax.axhline(selection.threshold, color=_GREY, linewidth=0.8, zorder=0)
    if name not in _UNBOUNDED:  # the same scale for all, so that panels can be compared
        ax.set_ylim(min(0, float(np.nanmin(values))) - 0.05, 1.05)
    ax.set_ylabel(_CURVE_LABELS[name])


def _draw_noise_test(selection: RankSelection, ax: Axes) -> None:
    columns = selection.columns
    mean = columns["noise spread"]
    margin = STANDARD_DEVIATIONS * columns["noise sd"]
    # A band that reaches 0, which no log scale has, ends at a tenth of its middle.
    draw_band(ax, selection.ranks, np.maximum(mean - margin, 0.1 * mean), mean + margin)
    _draw_marked_curve(ax, selection, "noise test", selection.ranks, _or_nan(columns["spread"]))
    scale_log(ax)
    ax.set_ylabel("spread of what is left")


def _draw_scree(selection: RankSelection, ax: Axes) -> None:
    sigma = selection.scree["singular value"]
    last = max([selection.votes.get("scree", 0), *selection.ranks.tolist()])
    # A little beyond the ranks in question; the rest of the scree would squeeze these together.
    shown = slice(0, math.ceil(1.15 * last) + 1)
    index = np.arange(1, len(sigma) + 1)[shown]
    draw_band(ax, index, selection.scree["null mean"][shown], selection.scree["null upper"][shown])
    # A singular value that is 0 up to rounding would stretch the log axis over decades of nothing.
    rounding = np.finfo(np.float64).eps * sigma[0]
    _draw_marked_curve(ax, selection, "scree", index, _or_nan(sigma, rounding)[shown])
    scale_log(ax)
    ax.set_xlabel("index")
    ax.set_ylabel("singular value")


def _draw_replicating(selection: RankSelection, ax: Axes) -> None:
    values = selection.columns["replicating"]
    _draw_marked_curve(ax, selection, "how many come back", selection.ranks, values)
    # As many as there are: the curve reaches the line where all components come back.
    ax.axline((0, 0), slope=1, color=_GREY, linewidth=0.8, linestyle=":", zorder=0)
    # The limit follows the curve, not the dotted line, beside which the curve might lie flat at the bottom.
    top = max(1.6 * float(np.nanmax(values)), 2)
    ax.set_ylim(-0.05 * top, top)
    ax.yaxis.set_major_locator(_integers())
    ax.set_ylabel(f"|cos| > {REPLICATES:g} (dotted: all)")


def _draw_components(selection: RankSelection, ax: Axes) -> None:
    replicability = selection.replicability
    assert replicability is not None
    agreement = replicability.agreement
    number = np.arange(1, len(agreement) + 1)
    width = 0.8 if len(number) < 40 else 1.0  # gaps of a pixel or less would appear at random
    recommended = agreement > selection.threshold
    colours = np.where(replicability.replicates, BLUE, np.where(recommended, _MIDDLE, _PALE))
    ax.bar(number, agreement, width, color=colours.tolist())
    if len(replicability.cosines) > 1:
        ax.errorbar(number, agreement, replicability.spread, fmt="none", ecolor=_GREY, elinewidth=0.8, capsize=1.5)
    for bound in sorted({replicability.threshold, selection.threshold}):
        ax.axhline(bound, color=_GREY, linewidth=0.8)
    alike = np.zeros(len(number), dtype=bool) if selection.dependence is None else ~selection.dependence.dependent
    for j in number[alike].tolist():
        ax.text(j, 0.02, "=", ha="center", va="bottom", fontsize=7)
    ax.set_xlim(0.4, len(number) + 0.6)
    ax.set_ylim(0, 1.05)
    of = len(number) if selection.kept_of is None else selection.kept_of
    ax.set_title(f"each component at rank {of}")
    ax.set_xlabel("MCPC (=: in all contexts alike)" if alike.any() else "MCPC")
    ax.set_ylabel("mean |cos|, sd of splits")


def _draw_marked_curve(ax: Axes, selection: RankSelection, name: str, x: Array, y: Array) -> None:
    """Draw a curve through its known values; mark the choice of the criterion by a ring, and the recommendation."""
    known = np.isfinite(y)
    vote = selection.votes.get(name)
    ax.plot(x[known], y[known], color=BLUE, linewidth=1, marker="o", markersize=3.5)
    chosen = known & (x == vote)  # none if the vote is 0, or a rank that was not examined
    if chosen.any():
        ax.plot(x[chosen], y[chosen], "o", markersize=9, markerfacecolor="none", color="0.1")
    if selection.rank:
        ax.axvline(selection.fitted_rank, color=MARK, linestyle="--", linewidth=1, zorder=0)
    # + 0.5: a single rank has no range to take a share of.
    margin = 0.04 * (x[-1] - x[0]) + 0.5
    ax.set_xlim(x[0] - margin, x[-1] + margin)
    ax.set_title(name if vote is None else f"{name} ({vote})")


def _draw_heatmaps(axes: Array, pairwise: dict[str, Array], selection: RankSelection, *, free: bool) -> None:
    """Draw rank x rank measures on one scale, with a colour bar beside the last; ``free``: there is room beside it."""
    for ax, (name, values) in zip(axes, pairwise.items(), strict=True):
        image = _draw_heatmap(ax, name, values, selection)
    inset = _add_scale(axes[-1], image, np.stack(list(pairwise.values())))
    inset.set_in_layout(not free)  # the layout would reserve the width of the bar in all panels above


def _draw_heatmap(ax: Axes, name: str, values: Array, selection: RankSelection) -> AxesImage:
    """Draw one measure of pairs of ranks, with a frame around the recommended rank."""
    colours = require("matplotlib", "plot").colormaps[SEQUENTIAL].with_extremes(bad=_UNKNOWN)
    ranks = selection.ranks
    # Ranks of more digits leave room for fewer of them.
    most_ticks = _TICK_DIGITS // len(str(ranks.max()))
    ticks = np.arange(0, len(ranks), math.ceil(len(ranks) / most_ticks))
    image = ax.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    square = require("matplotlib.patches", "plot").Rectangle
    # On the diagonal, if the recommended rank is among those compared; rank 0 is not.
    for i in np.flatnonzero(ranks == selection.fitted_rank):
        ax.add_patch(square((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=MARK, linewidth=1.2))
    ax.set_xticks(ticks, labels=ranks[ticks])
    ax.set_yticks(ticks, labels=ranks[ticks])
    ax.set_title(name)
    # It compares two fits to all rows; the others compare one of all rows with one of nine tenths.
    symmetric = name == "context consistency"
    ax.set_xlabel("rank" if symmetric else "rank, a tenth held out")
    ax.set_ylabel("rank" if symmetric else "rank, all rows")
    _set_font_sizes(ax)
    ax.spines[:].set_color("0.8")
    return image


def _add_scale(ax: Axes, image: AxesImage, values: Array) -> Axes:
    """Add a colour bar for ``values`` beside a heatmap; return its axes."""
    inset = ax.inset_axes((1.06, 0, 0.07, 1))
    bar = ax.figure.colorbar(image, cax=inset, extend="min" if (values < 0).any() else "neither")
    bar.set_label("grey: not known" if np.isnan(values).any() else "", fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE - 1)
    bar.outline.set_edgecolor("0.8")
    return inset


def _integers() -> Any:
    return require("matplotlib.ticker", "plot").MaxNLocator(6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)


def _finish(ax: Axes) -> None:
    """Apply the style that all panels of curves and bars share."""
    ax.set_xlabel(ax.get_xlabel() or "rank")
    ax.xaxis.set_major_locator(_integers())
    ax.spines[["top", "right"]].set_visible(False)
    _set_font_sizes(ax)


def _set_font_sizes(ax: Axes) -> None:
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_fontsize(FONT_SIZE)
    ax.yaxis.get_offset_text().set_fontsize(FONT_SIZE - 1)
    ax.tick_params(which="both", labelsize=FONT_SIZE - 1)
