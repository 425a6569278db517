"""Kaplan-Meier curves of rows with high and low scores on one MCPC, as in the paper's Fig. 3F."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.component_names import component_index
from .._utils.optional import require
from .._utils.types import Array
from ._common import BLUE, FONT_SIZE, LINE_HEIGHT, MARK, axes_or_new
from ._forest import p_text, ratio_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Solid and dashed, to be told apart without colours.
_LOOKS = {"high": (MARK, "-"), "low": (BLUE, "--")}
_BELOW_LABEL = 34  # points from the axis down to the first line of numbers at risk: ticks and label are above


def plot_survival(
    result: Any,
    component: Any = None,
    *,
    intervals: bool = True,
    at_risk: bool = True,
    label: str = "time",
    ax: Axes | None = None,
) -> Axes:
    """Draw the Kaplan-Meier curves of rows with high and with low scores on one MCPC.

    Above them are the hazard ratio for one standard deviation of the score, with its 95% interval and p-value in Cox's
    model, and the p-value of the log-rank test between the two curves.

    Parameters
    ----------
    result : Survival
        What ``mcpca.analysis.survival`` returned.
    component : int or str, optional
        The MCPC, by its place among those of the result or by name; by default the one with the smallest p-value.
    intervals : bool
        Whether to shade the 95% interval of each curve.
    at_risk : bool
        Whether to write below the axis how many rows are still at risk.
    label : str
        Label of the axis of time, with its unit: "months since diagnosis".
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure. Axes of yours need some room below for the numbers at risk.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Small ticks on a curve are times at which rows left without an event. The p-value is that of one MCPC, which is not
    corrected for their number: ``result.table`` has it corrected. Intervals are Greenwood's on the scale of
    ``log(-log S)``, as lifelines has them.
    """
    if not hasattr(result, "curves") or not hasattr(result, "joint"):
        raise TypeError(f"result is a {type(result).__name__}; pass what analysis.survival returned.")
    names = [str(name) for name in result.table.index]
    p = result.table["p"].to_numpy(dtype=float)
    # NaN, a model without a solution, is the smallest for argmin.
    j = int(np.argmin(np.where(np.isnan(p), np.inf, p))) if component is None else component_index(component, names)
    curves = result.curves[result.curves["component"] == names[j]]
    ax = axes_or_new(ax, (4.8, 3.9 if at_risk else 3.4))
    last = float(curves["time"].max())
    for group, (colour, line) in _LOOKS.items():
        own = curves[curves["group"] == group]
        t, s = own["time"].to_numpy(), own["survival"].to_numpy()
        n = int(own["at_risk"].iloc[0])
        ax.step(t, s, where="post", color=colour, linestyle=line, linewidth=1.7, label=f"{group} (n = {n:,})", zorder=3)
        if intervals:
            lower, upper = own["lower"].to_numpy(), own["upper"].to_numpy()
            ax.fill_between(t, lower, upper, step="post", color=colour, alpha=0.13, linewidth=0, zorder=1)
        # A time without a step: nobody had an event, so whoever left was censored.
        left = np.append(False, s[1:] == s[:-1])
        ax.plot(t[left], s[left], "|", color=colour, markersize=6, markeredgewidth=0.9, zorder=4)
    ax.set_xlim(0, 1.02 * last)
    ax.set_ylim(0, 1.04)
    ax.xaxis.set_major_locator(require("matplotlib.ticker", "plot").MaxNLocator(6))
    ax.set_xlabel(label, fontsize=FONT_SIZE)
    ax.set_ylabel("share without the event", fontsize=FONT_SIZE)
    ax.set_title(_in_words(result, names[j]), fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(title=f"score on {names[j]}", title_fontsize=FONT_SIZE, fontsize=FONT_SIZE, frameon=False)
    if at_risk:
        _write_at_risk(ax, curves, last)
    return ax


def _in_words(result: Any, name: str) -> str:
    row = result.table.loc[name]
    cox = "Cox's model has no solution"
    if np.isfinite(row["hazard_ratio"]):
        interval = f"{ratio_text(row['lower'])} to {ratio_text(row['upper'])}"
        cox = f"hazard ratio {ratio_text(row['hazard_ratio'])} ({interval}), p = {p_text(row['p'])}"
    return f"{name}: {cox}\nlog-rank p = {p_text(row['logrank_p'])}, {int(row['events']):,} events"


def _write_at_risk(ax: Any, curves: Any, last: float) -> None:
    """Write the numbers at risk below the ticks of the axis."""
    ticks = [float(t) for t in ax.get_xticks() if 0 <= t <= last]
    style: dict[str, Any] = {
        "xycoords": ("data", "axes fraction"),
        "textcoords": "offset points",
        "va": "center",
        "annotation_clip": False,
    }
    line = LINE_HEIGHT * (FONT_SIZE - 1)
    for i, (group, (colour, _)) in enumerate(_LOOKS.items()):
        own = curves[curves["group"] == group]
        y = -_BELOW_LABEL - (i + 1) * line
        for t, n in zip(ticks, numbers_at_risk(own["time"].to_numpy(), own["at_risk"].to_numpy(), ticks), strict=True):
            ax.annotate(f"{n:,}", (t, 0), (0, y), ha="center", fontsize=FONT_SIZE - 1, color="0.25", **style)
        ax.annotate(group, (0, 0), (-26, y), ha="right", fontsize=FONT_SIZE - 1, color=colour, **style)
    ax.annotate("at risk", (0, 0), (-26, -_BELOW_LABEL), ha="right", fontsize=FONT_SIZE - 1, color="0.35", **style)


def numbers_at_risk(times: Array, at_risk: Array, when: Any) -> list[int]:
    """Return how many rows are under observation at each time of ``when``; ``times`` (m,) are sorted.

    ``at_risk`` (m,) counts the rows just before each time, and all of these stay until it.
    """
    places = np.searchsorted(times, when, side="left")
    return [int(at_risk[i]) if i < len(times) else 0 for i in places]
