"""Ratios of variance between two groups of contexts, with their intervals: one line for each MCPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._utils.component_names import component_indices
from ._common import BLUE, FONT_SIZE, MARK, axes_or_new, shorten
from ._forest import draw_ratios, forest_size, p_text, ratios_of, write_above, write_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_GROUP = 24  # characters


def plot_differential_variance(
    result: Any,
    *,
    components: Any = None,
    order: Literal["given", "ratio"] = "given",
    ax: Axes | None = None,
) -> Axes:
    """Draw the ratio of the variance along each MCPC between two groups of contexts, with intervals.

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
    shown_ratios = ratios_of(table, "ratio", "lower", "upper")
    significant = table["significant"].to_numpy()
    shown = [names[j] for j in rows]
    ax = axes_or_new(ax, forest_size(shown))
    draw_ratios(ax, shown, shown_ratios, significant)
    reference, compared = (shorten(name, _LONGEST_GROUP) for name in result.groups)
    ax.set_xlabel(f"variance in {compared} / variance in {reference}", fontsize=FONT_SIZE)
    write_above(ax, ax.transAxes, 0, f"← more in {reference}", "left", BLUE)
    write_above(ax, ax.transAxes, 1, f"more in {compared} →", "right", MARK)
    p_texts = [p_text(p) for p in table[str(result.correction)].to_numpy(dtype=float)]
    heading = f"ratio ({100 * (1 - float(result.alpha)):.3g}% interval)"
    p_heading = "adj. p" if result.correction == "bonferroni" else "q"
    write_columns(ax, shown_ratios, p_texts, significant, (heading, p_heading))
    return ax
