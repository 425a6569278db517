"""Ratios of variance between two groups of contexts, with their intervals: one line for each MCPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._utils.component_names import component_indices
from .._utils.optional import require
from .._utils.types import Array
from ._common import BLUE, FONT_SIZE, MARK, axes_or_new, points_from, put_row_names, shorten, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NOT_SIGNIFICANT = "0.55"
_MOST_WITH_TEXT = 40  # MCPCs; beyond this, numbers would overlap
_WIDEST = 6.0  # in powers of two: an interval that ends beyond is drawn to the edge, with an arrow
_LONGEST_GROUP = 24  # characters
_TEXT_WIDTH = 132  # points that the column of numbers takes


def plot_differential_variance(
    result: Any,
    *,
    components: Any = None,
    order: Literal["given", "ratio"] = "given",
    ax: Axes | None = None,
) -> Axes:
    """Draw how many times as much of each MCPC one group of contexts has as the other, with intervals.

    Filled points are significant after correction: orange where the group that is compared has more, blue where it has
    less. Beside them are the ratio, its interval, and the corrected p-value that decided.

    Parameters
    ----------
    result : DifferentialVariance
        What ``mcpca.analysis.differential_variance`` returned.
    components : int, str, or sequence of these, optional
        Which MCPCs to draw, by column or name; by default all.
    order : {"given", "ratio"}
        The order of the MCPCs, or the largest ratio first.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of MCPCs. Axes of yours need some room at
        the right for the numbers.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    The axis is logarithmic and has one ratio at its middle: twice and half as much are equally far from it. An interval
    that leaves the picture ends in an arrow, and so does the point of an MCPC that one group lacks altogether.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.analysis import differential_variance
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_differential_variance
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> found = differential_variance(model, ["early"] * 3 + ["late"] * 3)
    >>> ax = plot_differential_variance(found, order="ratio")
    """
    if not hasattr(result, "table") or not hasattr(result, "groups"):
        raise TypeError(f"result is a {type(result).__name__}; pass what analysis.differential_variance returned.")
    if order not in ("given", "ratio"):
        raise ValueError(f"order={order!r}; choose 'given' or 'ratio'.")
    names = [str(name) for name in result.table.index]
    rows = list(range(len(names))) if components is None else component_indices(components, names)
    ratios = result.table["ratio"].to_numpy()
    if order == "ratio":
        rows.sort(key=lambda j: -ratios[j] if np.isfinite(ratios[j]) or ratios[j] > 0 else np.inf)
    table = result.table.iloc[rows]
    m = len(rows)
    with np.errstate(divide="ignore"):
        center, low, high = (np.log2(table[name].to_numpy(dtype=float)) for name in ("ratio", "lower", "upper"))
    edge = _edge(center, low, high)
    shown = [names[j] for j in rows]
    ax = axes_or_new(ax, (3.4 + width_of(shown) + _TEXT_WIDTH / 72, min(max(0.3 * m, 1.2), 9) + 1.0))
    ax.axvline(0, color="0.4", linewidth=0.9, zorder=1)
    for i in range(m):
        _draw_row(ax, i, center[i], low[i], high[i], edge, bool(table["significant"].iloc[i]))
    ax.set_xlim(-edge, edge)
    # Upside down: the first MCPC is at the top.
    ax.set_ylim(m - 0.4, -0.6)
    put_row_names(ax, shown)
    ax.tick_params(axis="y", length=0, pad=7)
    _ratios_along(ax, edge)
    reference, compared = (shorten(name, _LONGEST_GROUP) for name in result.groups)
    ax.set_xlabel(f"variance in {compared} / variance in {reference}", fontsize=FONT_SIZE)
    _above(ax, ax.transAxes, 0, f"← more in {reference}", "left", BLUE)
    _above(ax, ax.transAxes, 1, f"more in {compared} →", "right", MARK)
    if m <= _MOST_WITH_TEXT:
        _write_numbers(ax, table, str(result.correction), float(result.alpha))
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax


def _edge(center: Array, low: Array, high: Array) -> float:
    """Return the power of two up to which the axis goes on both sides."""
    ends = np.abs(np.concatenate([center, low, high]))
    ends = ends[np.isfinite(ends)]
    return float(np.clip(1.08 * ends.max() if len(ends) else 1.0, 1.0, _WIDEST))


def _draw_row(ax: Any, i: int, center: float, low: float, high: float, edge: float, significant: bool) -> None:
    """Draw one MCPC: an interval, a point, and arrows where they leave the picture."""
    if np.isnan(center):  # neither group has any of it
        return
    color = (MARK if center > 0 else BLUE) if significant else _NOT_SIGNIFICANT
    if np.isfinite([low, high]).all():
        ax.plot(np.clip([low, high], -edge, edge), [i, i], color=color, linewidth=1.8, solid_capstyle="butt", zorder=2)
    for side, beyond in ((-1, low < -edge or center < -edge), (1, high > edge or center > edge)):
        if beyond:
            ax.plot([side * edge], [i], marker="<" if side < 0 else ">", color=color, clip_on=False, zorder=3)
    if abs(center) <= edge:
        face = color if significant else "white"
        ax.plot([center], [i], marker="o", markersize=6.5, color=color, markerfacecolor=face, zorder=4)


def _ratios_along(ax: Any, edge: float) -> None:
    """Label the axis, which is in powers of two, by the ratios themselves."""
    step = 0.5 if edge < 1.6 else 1 if edge < 4 else 2
    ticks = np.arange(-np.floor(edge / step), np.floor(edge / step) + 1) * step
    ax.xaxis.set_major_locator(require("matplotlib.ticker", "plot").FixedLocator(ticks))
    texts = [f"{2**tick:.2g}" if tick >= 0 or step < 1 else f"1/{2**-tick:.0f}" for tick in ticks]
    ax.xaxis.set_major_formatter(require("matplotlib.ticker", "plot").FixedFormatter(texts))
    ax.tick_params(axis="x", labelsize=FONT_SIZE)
    ax.grid(axis="x", color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)


def _write_numbers(ax: Any, table: Any, correction: str, alpha: float) -> None:
    """Write ratio, interval and corrected p at the right of each line, under the names of these columns."""
    m = len(table)
    beside = points_from(ax, "right")
    # Heights as fractions of the axes, which has its first line at the top.
    heights = 1 - (np.arange(m) + 0.6) / (m + 0.2)
    style = {"transform": beside, "va": "center", "fontsize": FONT_SIZE - 1, "clip_on": False}
    for i, height in enumerate(heights):
        row = table.iloc[i]
        strong = {"fontweight": "bold"} if row["significant"] else {"color": "0.35"}
        known = np.isfinite(row["lower"])
        interval = f" ({_ratio_text(row['lower'])} to {_ratio_text(row['upper'])})" if known else ""
        ax.text(10, height, _ratio_text(row["ratio"]) + interval, **style, **strong)
        ax.text(_TEXT_WIDTH, height, _p_text(float(row[correction])), ha="right", **style, **strong)
    _above(ax, beside, 10, f"ratio ({100 * (1 - alpha):.3g}% interval)", "left", "0.35")
    _above(ax, beside, _TEXT_WIDTH, "adj. p" if correction == "bonferroni" else "q", "right", "0.35")


def _above(ax: Any, transform: Any, x: float, text: str, side: str, color: str) -> None:
    """Write on the line above the axes."""
    size = FONT_SIZE - 1
    ax.annotate(
        text,
        (x, 1),
        xycoords=transform,
        xytext=(0, 4),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=size,
        color=color,
    )


def _ratio_text(ratio: float) -> str:
    """Return a ratio with two digits that count: 0.51, 1.0, 12."""
    if np.isnan(ratio):
        return "–"
    if ratio == 0 or np.isinf(ratio):
        return "0" if ratio == 0 else "∞"
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:#.2g}"


def _p_text(p: float) -> str:
    if np.isnan(p):
        return "–"
    if p >= 0.995:
        return "1"
    return f"{p:.2g}" if p >= 1e-3 else f"{p:.0e}"
