"""What every criterion says of the ranks that were looked at, in one figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._check import Array
from .._optional import require
from ..replication import REPLICATES
from ..residual import STANDARD_DEVIATIONS
from ._common import FONT_SIZE, MARK, SEQUENTIAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..selection import RankSelection

_BLUE, _PALE, _BAND, _UNKNOWN = "#08519c", "#9ecae1", "0.85", "0.8"
_COLUMNS, _WIDTH, _HEIGHT = 4, 2.75, 2.3  # panels side by side; inches of a panel
_NARROWEST = 6.0  # inches, for the text above few panels
_CHARACTER, _LINE = 0.55, 1.35  # mean width of a character and height of a line, in font sizes
_MARGIN = 0.1  # inches around the text
_MAX_TICKS = 8  # numbers that fit along a heatmap
_COSINE = "mean |cos|"
_SHARES = ("split-half agreement", "seed stability", "projection similarity", "loading similarity")
# Name of the column, and what its numbers are.
_OTHERS = {
    "seed stability": _COSINE,
    "projection similarity": "share of components",
    "loading similarity": "share of components",
    "context consistency": "mean over other ranks",
    "held-out error": "relative squared error",
    "held-out log-likelihood": "mean per row",
    "BIC": "all rows",
}


def plot_rank_selection(selection: RankSelection) -> Figure:
    """Draw every criterion over the ranks, with the recommendation and the choice of each criterion alone marked.

    The first panels decide: the noise test, and agreement between halves of the rows. A criterion without numbers has
    no panel. Heatmaps compare pairs of ranks, where they are known.

    Parameters
    ----------
    selection : RankSelection
        What ``select_rank`` returned.

    Returns
    -------
    matplotlib Figure
    """
    panels = _curve_panels(selection)
    pairwise = {name: values for name, values in selection.pairwise.items() if len(values) > 1 and _any_known(values)}
    n = len(panels) + len(pairwise)
    columns, rows = max(1, min(n, _COLUMNS)), math.ceil(n / _COLUMNS)
    width = max(columns * _WIDTH, _NARROWEST)
    lines, title_size = _header(selection, width, n > 0), FONT_SIZE + 3
    header = (_LINE * (title_size + len(lines) * FONT_SIZE)) / 72 + _MARGIN
    height = header + rows * _HEIGHT + _MARGIN
    plt = require("matplotlib.pyplot", "plot")
    figure: Figure = plt.figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - header / height), h_pad=0.07, w_pad=0.07)
    title = f"Recommended rank: {selection.rank}" if selection.rank else "Rank 0: nothing above noise"
    left, top = _MARGIN / width, 1 - _MARGIN / height
    figure.text(left, top, title, fontsize=title_size, fontweight="bold", va="top")
    below = top - _LINE * title_size / 72 / height
    figure.text(left, below, "\n".join(lines), fontsize=FONT_SIZE, va="top", linespacing=1.2)
    if n:
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, draw in zip(grid, panels, strict=False):
            draw(ax)
            _finish(ax)
        _draw_heatmaps(grid[len(panels) : n], pairwise, selection)
        for ax in grid[n:]:
            ax.set_axis_off()
    return figure


def _header(selection: RankSelection, width: float, marks: bool) -> list[str]:
    """Lines of the text that is ``width`` inches wide: the reason and, above panels, what their marks mean."""
    fits = int((width - 2 * _MARGIN) * 72 / (_CHARACTER * FONT_SIZE))
    lines = textwrap.wrap(selection.reason, fits, break_on_hyphens=False)
    if marks:
        dashed = "Dashed line: the recommended rank. " if selection.rank else ""
        lines += textwrap.wrap(f"{dashed}Ring, and number in brackets: what a criterion alone would choose.", fits)
    return lines


def _any_known(values: Array | None) -> bool:
    return values is not None and bool(np.isfinite(values).any())


def _curve_panels(selection: RankSelection) -> list[Callable[[Any], None]]:
    """Functions that draw a panel each: those that decide, then the others."""
    columns, panels = selection.columns, []
    if _any_known(columns.get("spread")):
        panels.append(partial(_draw_noise_test, selection))
    if _any_known(columns.get("split-half agreement")):
        panels.append(partial(_draw_curve, selection, "split-half agreement", _COSINE))
    if _any_known(columns.get("replicating")):
        panels.append(partial(_draw_replicating, selection))
    if selection.replicability is not None and _any_known(selection.replicability.agreement):
        panels.append(partial(_draw_components, selection))
    if _any_known(selection.scree.get("singular value")):
        panels.append(partial(_draw_scree, selection))
    known = [name for name in _OTHERS if _any_known(columns.get(name))]
    return panels + [partial(_draw_curve, selection, name, _OTHERS[name]) for name in known]


def _draw_curve(selection: RankSelection, name: str, label: str, ax: Axes) -> None:
    values = selection.columns[name]
    _draw_line(ax, selection, name, selection.ranks, values)
    if name in ("split-half agreement", "seed stability"):
        ax.axhline(selection.threshold, color="0.5", linewidth=0.8, zorder=0)
    if name in _SHARES or name == "context consistency":  # one scale, so that panels can be compared
        ax.set_ylim(min(0, 1.1 * float(np.nanmin(values))), 1.05)
    ax.set_ylabel(label)


def _draw_noise_test(selection: RankSelection, ax: Axes) -> None:
    columns = selection.columns
    mean, margin = columns["noise spread"], STANDARD_DEVIATIONS * columns["noise sd"]
    # On a log scale what is not positive has no place; a band that reaches there goes on to a tenth of its middle.
    _draw_band(ax, selection.ranks, np.maximum(mean - margin, 0.1 * mean), mean + margin)
    _draw_line(ax, selection, "noise test", selection.ranks, columns["spread"], log=True)
    ax.set_ylabel("spread of what is left")


def _draw_scree(selection: RankSelection, ax: Axes) -> None:
    sigma = selection.scree["singular value"]
    end = max([selection.votes.get("scree", 0), *selection.ranks.tolist()])
    shown = slice(0, math.ceil(1.15 * end) + 1)
    index = np.arange(1, len(sigma) + 1)[shown]
    _draw_band(ax, index, selection.scree["null mean"][shown], selection.scree["null upper"][shown])
    # A singular value that is 0 but for rounding would stretch the axis to where nothing is to be seen.
    seen = np.where(sigma > np.finfo(np.float64).eps * sigma[0], sigma, np.nan)
    _draw_line(ax, selection, "scree", index, seen[shown], log=True)
    ax.set_xlabel("index")
    ax.set_ylabel("singular value")


def _draw_replicating(selection: RankSelection, ax: Axes) -> None:
    values = selection.columns["replicating"]
    _draw_line(ax, selection, "replicating", selection.ranks, values)
    ax.axline((0, 0), slope=1, color="0.5", linewidth=0.8, zorder=0)
    # Where few come back at high ranks the line goes on beyond the panel, rather than the curve along its bottom.
    ax.set_ylim(0, max(1.6 * float(np.nanmax(values)), 2))
    ax.yaxis.set_major_locator(_integers())
    ax.set_title("how many come back (line: all)")
    ax.set_ylabel(f"components, |cos| > {REPLICATES:g}")


def _draw_components(selection: RankSelection, ax: Axes) -> None:
    found = selection.replicability
    assert found is not None
    number = np.arange(1, len(found.agreement) + 1)
    ax.bar(number, found.agreement, color=np.where(found.replicates, _BLUE, _PALE).tolist())
    ax.axhline(found.threshold, color="0.5", linewidth=0.8)
    ax.set_xlim(0.4, len(number) + 0.6)
    ax.set_ylim(0, 1.05)
    ax.set_title(f"each component at rank {len(number)}")
    ax.set_xlabel("MCPC")
    ax.set_ylabel(f"{_COSINE} of halves")


def _draw_line(ax: Axes, selection: RankSelection, name: str, x: Array, y: Array, *, log: bool = False) -> None:
    """Draw a curve through what is known of it, a ring around the choice of the criterion, and the recommendation."""
    known = np.isfinite(y) & ((y > 0) | (not log))
    ax.plot(x[known], y[known], color=_BLUE, linewidth=1, marker="o", markersize=3.5)
    if log:
        _scale_log(ax)
    vote = selection.votes.get(name)
    chosen = known & (x == vote)  # a choice of 0, or beyond the ranks that were looked at, has no point
    ax.plot(x[chosen], y[chosen], linestyle="none", marker="o", markersize=9, markerfacecolor="none", color="0.1")
    if selection.rank:
        ax.axvline(selection.rank, color=MARK, linestyle="--", linewidth=1, zorder=0)
    margin = 0.04 * (x[-1] - x[0]) + 0.5
    ax.set_xlim(x[0] - margin, x[-1] + margin)
    ax.set_title(name if vote is None else f"{name} ({vote})")


def _draw_band(ax: Axes, x: Array, lower: Array, upper: Array) -> None:
    """Shade the range of noise, a little beyond both ends: a single rank has a band too."""
    known = np.isfinite(lower) & np.isfinite(upper) & (lower > 0)
    if known.any():
        x, lower, upper = (np.pad(values[known].astype(np.float64), 1, mode="edge") for values in (x, lower, upper))
        x += np.array([-0.4, *np.zeros(len(x) - 2), 0.4])
        ax.fill_between(x, lower, upper, color=_BAND, linewidth=0, zorder=0)


def _draw_heatmaps(axes: Any, pairwise: dict[str, Array], selection: RankSelection) -> None:
    """Draw rank x rank measures on one scale, with its colour bar beside the last of them."""
    colours = require("matplotlib", "plot").colormaps[SEQUENTIAL].with_extremes(bad=_UNKNOWN)
    ranks, step = selection.ranks, math.ceil(len(selection.ranks) / _MAX_TICKS)
    ticks, image = np.arange(0, len(ranks), step), None
    for ax, (name, values) in zip(axes, pairwise.items(), strict=True):
        image = ax.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        ax.set_xticks(ticks, labels=ranks[ticks])
        ax.set_yticks(ticks, labels=ranks[ticks])
        ax.tick_params(length=2, labelsize=FONT_SIZE - 1)
        ax.spines[:].set_color("0.8")
        for i in np.flatnonzero(ranks == selection.rank):
            ax.add_patch(_square(i))
        symmetric = name == "context consistency"
        ax.set_title(name, fontsize=FONT_SIZE)
        ax.set_xlabel("rank" if symmetric else "rank, a tenth held out", fontsize=FONT_SIZE)
        ax.set_ylabel("rank" if symmetric else "rank, all rows", fontsize=FONT_SIZE)
    if image is not None:
        below = any((values < 0).any() for values in pairwise.values())
        bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.06, 0, 0.07, 1)), extend="min" if below else "neither")
        bar.ax.tick_params(labelsize=FONT_SIZE - 1)
        bar.outline.set_edgecolor("0.8")


def _square(i: int) -> Any:
    """Return the outline of cell (i, i)."""
    patches = require("matplotlib.patches", "plot")
    return patches.Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=MARK, linewidth=1.2)


def _integers() -> Any:
    return require("matplotlib.ticker", "plot").MaxNLocator(5, integer=True, min_n_ticks=1)


def _scale_log(ax: Axes) -> None:
    ax.set_yscale("log")


def _finish(ax: Any) -> None:
    """Give a panel of curves or bars what all of them have."""
    ax.set_xlabel(ax.get_xlabel() or "rank")
    ax.xaxis.set_major_locator(_integers())
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_fontsize(FONT_SIZE)
    ax.tick_params(which="both", labelsize=FONT_SIZE - 1)
    ax.spines[["top", "right"]].set_visible(False)
