"""Ratios with their intervals, a line for each: what ``plot_forest`` and ``plot_differential_variance`` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from .._utils.arguments import refuse_without_effect
from .._utils.optional import require
from .._utils.types import Array
from ._common import (
    BLUE,
    FONT_SIZE,
    LINE_HEIGHT,
    MARK,
    axes_or_new,
    points_from,
    put_row_names,
    size_in_points,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXT_WIDTH = 142  # points that the columns of numbers take
_NOT_SIGNIFICANT = "0.55"
_WIDEST = 6.0  # in powers of two: an interval that ends beyond is drawn to the edge, with an arrow
_LEVEL = 0.05
# The columns of a table of ``Survival``, and what its lines are.
_MODELS = {
    "joint": ("lower", "upper", "p", "one model of all, corrected for their number"),
    "selected": ("naive_lower", "naive_upper", "naive_p", "one model of those chosen in the same rows, naive"),
    "each": ("lower", "upper", "p", "a model for each"),
}
_LOGISTIC = ("coefficient", "lower", "upper", "p", "sd")  # columns of ``analysis.logistic_model``


def plot_forest(result: Any, *, model: Literal["joint", "selected", "each"] = "joint", ax: Axes | None = None) -> Axes:
    """Draw the ratio of each predictor in a joint model, with its interval: the paper's Fig. S3H.

    Points are hazard or odds ratios, orange where the risk rises with the predictor, blue where it falls. Beside them
    are the ratio for one standard deviation of the predictor, its 95% interval, and p.

    Parameters
    ----------
    result : Survival or DataFrame
        What ``mcpca.analysis.survival`` or ``mcpca.analysis.logistic_model`` returned.
    model : {"joint", "selected", "each"}
        Of a ``Survival``. "joint": one model of all MCPCs and covariates, with p-values and intervals corrected for
        their number. "selected": the paper's model, of the MCPCs that are significant on their own; its p-values are
        too small. "each": a model for each MCPC, not corrected.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of predictors. Axes of yours need some
        room at the right for the numbers.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    The axis is logarithmic: twice and half the risk are equally far from 1. An interval that leaves the picture ends
    in an arrow. A predictor without a solution has no point. The intercept of a logistic model is not drawn.
    """
    if hasattr(result, "columns") and set(_LOGISTIC) <= set(result.columns):
        refuse_without_effect("model", model, "joint", "a logistic model is one", "drop it")
        lines, what, words = _of_logistic(result), "odds", "one logistic model of all"
    elif hasattr(result, "joint"):
        lines, what = _of_survival(result, model), "hazard"
        words = _MODELS[model][3]
    else:
        raise TypeError(
            f"result is a {type(result).__name__}; pass what analysis.survival or analysis.logistic_model returned."
        )
    names, ratios, p = lines
    significant = p < _LEVEL
    ax = axes_or_new(ax, forest_size(names))
    draw_ratios(ax, names, ratios, significant)
    ax.set_xlabel(f"{what} ratio for one standard deviation", fontsize=FONT_SIZE)
    ax.set_title(words, fontsize=FONT_SIZE, loc="left", pad=20)
    write_above(ax, ax.transAxes, 0, f"← lower {what}", "left", BLUE)
    write_above(ax, ax.transAxes, 1, f"higher {what} →", "right", MARK)
    texts = [p_text(one) for one in p]
    is_naive = what == "hazard" and model == "selected"
    write_columns(ax, ratios, texts, significant, ("ratio (95% interval)", "naive p" if is_naive else "p"))
    return ax


def _of_survival(result: Any, model: str) -> tuple[list[str], Ratios, Array]:
    """Return the names, hazard ratios and p-values of a model of ``Survival``."""
    if model not in _MODELS:
        raise ValueError(f"model={model!r}; choose 'joint', 'selected' or 'each'.")
    table = result.table if model == "each" else getattr(result, model)
    if table is None:
        why = "no MCPC is significant on its own, or their model has no solution"
        why = why if model == "selected" else "the model of all has no solution"
        raise ValueError(f"result has no table for model={model!r}: {why}. Pass model='each'.")
    lower, upper, p_column, _ = _MODELS[model]
    names = [str(name) for name in table.index]
    return names, ratios_of(table, "hazard_ratio", lower, upper), table[p_column].to_numpy(dtype=float)


def _of_logistic(table: Any) -> tuple[list[str], Ratios, Array]:
    """Return the names, odds ratios for one standard deviation, and p-values of the predictors."""
    table = table[table["sd"].notna()]  # the intercept has none
    sd = table["sd"].to_numpy(dtype=float)
    logs = (table[column].to_numpy(dtype=float) for column in ("coefficient", "lower", "upper"))
    with np.errstate(over="ignore"):  # separated groups have no largest likelihood, and any ratio
        ratios = Ratios(*(np.exp(one * sd) for one in logs))
    return [str(name) for name in table.index], ratios, table["p"].to_numpy(dtype=float)


class Ratios(NamedTuple):
    """Ratios with the ends of their intervals, (m,) each."""

    ratio: Array
    lower: Array
    upper: Array


def ratios_of(table: Any, ratio: str, lower: str, upper: str) -> Ratios:
    """Return the ratios in three columns of a table."""
    return Ratios(*(table[column].to_numpy(dtype=float) for column in (ratio, lower, upper)))


def forest_size(names: Sequence[str]) -> tuple[float, float]:
    """Return the width and height in inches of a new figure with a line for each name, and numbers beside them."""
    return 3.4 + width_of(names) + _TEXT_WIDTH / 72, min(max(0.3 * len(names), 1.2), 9) + 1.0


def draw_ratios(ax: Any, names: Sequence[str], ratios: Ratios, significant: Array) -> None:
    """Draw a point and an interval for each of m ratios, on an axis of powers of two with 1 at its middle."""
    with np.errstate(divide="ignore"):
        center, low, high = (np.log2(one) for one in ratios)
    edge = _edge(center, low, high)
    m = len(names)
    ax.axvline(0, color="0.4", linewidth=0.9, zorder=1)
    for i in range(m):
        _draw_row(ax, i, center[i], low[i], high[i], edge, bool(significant[i]))
    ax.set_xlim(-edge, edge)
    # Upside down: the first is at the top.
    ax.set_ylim(m - 0.4, -0.6)
    put_row_names(ax, names)
    ax.tick_params(axis="y", length=0, pad=7)
    _ratios_along(ax, edge)
    ax.spines[["top", "right", "left"]].set_visible(False)


def write_columns(
    ax: Any, ratios: Ratios, p_texts: Sequence[str], significant: Array, headings: tuple[str, str]
) -> None:
    """Write ratio, interval and p at the right of each line, under the two headings; not where lines are too close."""
    m = len(p_texts)
    if size_in_points(ax)[1] / (m + 0.2) < LINE_HEIGHT * (FONT_SIZE - 1):
        return
    beside = points_from(ax, "right")
    # Heights as fractions of the axes, which has its first line at the top.
    heights = 1 - (np.arange(m) + 0.6) / (m + 0.2)
    style = {"transform": beside, "va": "center", "fontsize": FONT_SIZE - 1, "clip_on": False}
    for i, height in enumerate(heights):
        strong = {"fontweight": "bold"} if significant[i] else {"color": "0.35"}
        ratio, lower, upper = (float(one[i]) for one in ratios)
        interval = f" ({ratio_text(lower)} to {ratio_text(upper)})" if np.isfinite(lower) else ""
        ax.text(10, height, ratio_text(ratio) + interval, **style, **strong)
        ax.text(_TEXT_WIDTH, height, p_texts[i], ha="right", **style, **strong)
    write_above(ax, beside, 10, headings[0], "left", "0.35")
    write_above(ax, beside, _TEXT_WIDTH, headings[1], "right", "0.35")


def write_above(ax: Any, transform: Any, x: float, text: str, side: str, color: str) -> None:
    """Write on the line above the axes."""
    style = {"ha": side, "va": "bottom", "fontsize": FONT_SIZE - 1, "color": color}
    ax.annotate(text, (x, 1), xycoords=transform, xytext=(0, 4), textcoords="offset points", **style)


def ratio_text(ratio: float) -> str:
    """Return a ratio with two digits that count: 0.51, 1.0, 12."""
    if np.isnan(ratio):
        return "–"
    if ratio == 0 or np.isinf(ratio):
        return "0" if ratio == 0 else "∞"
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:#.2g}"


def p_text(p: float) -> str:
    """Return a p-value with two digits, or a power of ten where it is small."""
    if np.isnan(p):
        return "–"
    if p >= 0.995 or p == 0:
        return f"{round(p)}"
    return f"{p:.2g}" if p >= 1e-3 else f"{p:.0e}"


def _edge(center: Array, low: Array, high: Array) -> float:
    """Return the power of two up to which the axis goes on both sides."""
    ends = np.abs(np.concatenate([center, low, high]))
    ends = ends[np.isfinite(ends)]
    return float(np.clip(1.08 * ends.max() if len(ends) else 1.0, 1.0, _WIDEST))


def _draw_row(ax: Any, i: int, center: float, low: float, high: float, edge: float, significant: bool) -> None:
    """Draw one line: an interval, a point, and arrows where they leave the picture."""
    if np.isnan(center):  # there is nothing to compare
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
