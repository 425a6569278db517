"""A ``SolverComparison`` in one figure: a panel for every measure, with candidates as rows."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from .._estimator.mcpca import MCPCA
from .._inference.solver_comparison import KINDS, SECONDS, SolverComparison
from .._utils.optional import require
from ._common import BLUE, FONT_SIZE, MARK, shorten_all, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_WIDTH = 1.9  # inches
_ROW_HEIGHT = 0.24
_AROUND = 1.15  # inches for the text above and the numbers below
_CHARACTER = 0.5  # width in font sizes, on average
# Filled for what can be recommended, hollow for the rest: the two differ in black and white as well.
_LOOKS: dict[str, dict[str, Any]] = {
    "solver": {"marker": "o", "color": BLUE, "markerfacecolor": BLUE},
    "baseline": {"marker": "s", "color": "0.35", "markerfacecolor": "white"},
    "naive": {"marker": "D", "color": "0.55", "markerfacecolor": "white"},
}
_FAR = 5.0  # times the distance of the third quartile from the best: candidates beyond it are not drawn to scale
_KEPT = 1.6  # of that distance that the axis shows
_MANY_TIMES = 20.0  # between the shortest and the longest time, from which on the axis is logarithmic
_BETTER = {"log-likelihood": "more is better", "agreement of halves": "more is better"}


def plot_solver_comparison(source: Any, *, ax: Figure | None = None) -> Figure:
    """Draw how solvers, baselines and naive covariances do on rows that they were not fitted to.

    A panel for each measure, a row for each candidate, the lowest error on top; bars are a standard error either way,
    over splits. The solver that is recommended is marked, and the measure that decides comes first.

    Parameters
    ----------
    source : SolverComparison or MCPCA
        The result of ``compare_solvers``, or a model fitted with ``solver="auto"``.
    ax : matplotlib Figure, optional
        An empty figure to draw on; by default a new one whose size depends on the number of candidates.

    Returns
    -------
    matplotlib Figure
    """
    comparison = _comparison(source)
    if ax is not None and not hasattr(ax, "set_layout_engine"):
        raise TypeError(f"ax is a {type(ax).__name__}; this needs a whole Figure, for a text above a row of panels.")
    means = comparison.means
    measures = [comparison.judged_by, *(name for name in means if name != comparison.judged_by)]
    measures = [name for name in measures if np.isfinite(means[name]).any()]
    # Candidates that could not be judged have no row.
    order = [i for i in comparison.order.tolist() if np.isfinite(means[comparison.judged_by][i])]
    names = [comparison.names[i] for i in order]
    if ax is None:
        size = (width_of(names) + _PANEL_WIDTH * len(measures), _AROUND + _ROW_HEIGHT * len(order))
        figure: Figure = require("matplotlib.pyplot", "plot").figure(figsize=size, layout="constrained")
    else:
        figure = ax
        figure.set_layout_engine("constrained")
    characters = int(figure.get_figwidth() * 72 / (_CHARACTER * FONT_SIZE))
    figure.suptitle(textwrap.fill(comparison.reason, characters), fontsize=FONT_SIZE, x=0.01, ha="left")
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for panel, measure in zip(panels, measures, strict=True):
        _draw(panel, comparison, measure, order)
    panels[0].set_yticks(range(len(order)), shorten_all(names))
    panels[0].set_ylim(len(order) - 0.5, -0.5)
    panels[0].tick_params(axis="y", labelsize=FONT_SIZE)
    _add_legend(figure, comparison)
    return figure


def _comparison(source: Any) -> SolverComparison:
    if isinstance(source, MCPCA):
        choice = getattr(source, "solver_choice_", None)
        if choice is None:
            raise ValueError(
                f"This model was not fitted with solver='auto' (it has solver={source.solver!r}), so that no solvers "
                "were compared; pass the result of mcpca.compare_solvers(X, y, r)."
            )
        source = choice
    if not isinstance(source, SolverComparison):
        raise TypeError(
            f"source is a {type(source).__name__}; pass the result of mcpca.compare_solvers, or a model fitted with "
            "solver='auto'."
        )
    return source


def _draw(panel: Axes, comparison: SolverComparison, measure: str, order: list[int]) -> None:
    means = comparison.means[measure]
    bars = comparison.standard_errors[measure]
    shown = means[order]
    shown = shown[np.isfinite(shown)]
    sign = -1 if measure in _BETTER else 1
    end = None if measure == SECONDS else _end_of_axis(shown, more_is_better=sign < 0)
    for y, i in enumerate(order):
        look = dict(_LOOKS[comparison.kinds[i]])
        if comparison.names[i] == comparison.best:
            look |= {"color": MARK, "markerfacecolor": MARK}
            panel.axhspan(y - 0.5, y + 0.5, color=MARK, alpha=0.1, linewidth=0)
        if end is not None and sign * (means[i] - end) > 0:
            # Beyond the axis: a pointer with the number.
            look["marker"] = ">" if sign > 0 else "<"
            panel.plot(end, y, markersize=5, clip_on=False, **look)
            side = "right" if sign > 0 else "left"
            panel.annotate(
                f"{means[i]:.3g}",
                (end, y),
                (-7 * sign, 0),
                ha=side,
                textcoords="offset points",
                va="center",
                fontsize=FONT_SIZE - 2,
            )
        elif np.isfinite(means[i]):
            error = bars[i] if np.isfinite(bars[i]) and measure != SECONDS else 0
            panel.errorbar(means[i], y, xerr=error, markersize=5, linewidth=1.2, **look)
    decides = measure == comparison.judged_by
    panel.set_title(textwrap.fill(measure, 18), fontsize=FONT_SIZE, color=MARK if decides else "black")
    panel.set_xlabel(
        "decides; less is better" if decides else _BETTER.get(measure, "less is better"), fontsize=FONT_SIZE - 1
    )
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
    panel.tick_params(axis="x", labelsize=FONT_SIZE - 1)
    panel.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    if measure == SECONDS and shown.max() > _MANY_TIMES * shown.min() > 0:
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(require("matplotlib.ticker", "plot").NullFormatter())
        return
    if end is not None:
        best = sign * (sign * shown).min()
        panel.set_xlim(*sorted((best - 0.1 * (end - best), end)))
    panel.locator_params(axis="x", nbins=3)


def _end_of_axis(values: Any, *, more_is_better: bool) -> float | None:
    """Return where to cut the axis if one candidate in four or fewer are so far out that the others would coincide."""
    sign = -1 if more_is_better else 1
    gaps = sign * values - (sign * values).min()
    most = float(np.quantile(gaps, 0.75, method="lower"))
    if most <= 0 or gaps.max() <= _FAR * most:
        return None
    return float(sign * ((sign * values).min() + _KEPT * most))


def _add_legend(figure: Figure, comparison: SolverComparison) -> None:
    """Name the kinds, if there are several, below the panels."""
    kinds = [kind for kind in KINDS if kind in comparison.kinds]
    if len(kinds) < 2:
        return
    line = require("matplotlib.lines", "plot").Line2D
    handles = [line([], [], linestyle="", **_LOOKS[kind], label=kind) for kind in kinds]
    handles.append(line([], [], linestyle="", marker="o", color=MARK, label="recommended"))
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False, fontsize=FONT_SIZE - 1)
