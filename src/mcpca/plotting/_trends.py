"""Loadings of MCPCs over time, by groups of contexts, as in the paper's Figures 4C and 4D."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.context_values import context_values
from .._results.fitted import fitted
from .._utils.component_names import component_indices
from .._utils.optional import require
from .._utils.types import Array
from ._common import CATEGORIES, FONT_SIZE, MARKERS, axes_or_new, shorten
from ._loading_axes import (
    LONGEST_LABEL,
    as_categories,
    axis_label,
    finish_loading_axes,
    limits_from_zero,
    name_categories,
    room_below,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEGEND_ROWS = 12  # entries in a column of the legend
# As many line styles as there are markers and colours; tuples are (offset, (on, off, ...)) in line widths.
_LINE_STYLES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    ":",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (7, 2)),
    (0, (1, 2)),
    (0, (3, 1, 1, 3)),
)


def plot_trends(
    source: Any,
    components: Any,
    time: Any,
    group: Any = None,
    *,
    normalize: Literal["component"] | None = None,
    corrected: bool = True,
    label: str | None = None,
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw the loadings of MCPCs over time, a line for each MCPC and group of contexts.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or an AnnData with a fit.
    components : int, str, or sequence of them
        One MCPC or several, by column (0 is MCPC 1) or name; at most 8.
    time : dict or Series {context: value}; array-like (k,); or str
        Numbers, dates, or categories in their order: by context, in the order of the contexts, or, for an AnnData, the
        name of a column of ``obs`` that is constant within contexts.
    group : the same, optional
        At most 8 categories, each of which gets a line.
    normalize : {None, "component"}
        "component" divides the loadings of each MCPC by its largest, so that strong and weak ones can be compared.
    corrected : bool
        Whether to take the noise of each context out of its loadings, so that contexts with more noise do not seem to
        have more of everything. False draws ``loadings_``.
    label : str, optional
        Label of the axis; by default the name of the column or Series, or "time".
    missing : {"error", "drop"}
        What to do if contexts have no time or group: raise, or leave them out.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    If a group has several contexts at one time, each is a point and the line goes through their mean. MCPCs differ in
    colour and marker, groups in line style and in whether markers are filled; with a single MCPC, groups have colours
    and markers of their own.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_trends
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> ax = plot_trends(model, ["MCPC 1", "MCPC 2"], time=[1800, 1850, 1900] * 2, group=["a"] * 3 + ["b"] * 3)
    """
    fit = fitted(source, key)
    chosen = component_indices(components, fit.names)
    if normalize not in (None, "component"):
        raise ValueError(f"normalize={normalize!r}; choose None or 'component'.")
    when = context_values(time, fit.contexts, "time", source=source, key=key, missing=missing)
    # Without groups all contexts are in one without a name.
    groups = np.zeros(len(fit.contexts), dtype=int)
    names = [""]
    absent = when.missing
    if group is not None:
        by_group = as_categories(context_values(group, fit.contexts, "group", source=source, key=key, missing=missing))
        groups = by_group.values
        names = [shorten(name, LONGEST_LABEL) for name in by_group.categories]
        absent = when.missing | by_group.missing
    for what, number in (("components", len(chosen)), ("group", len(names))):
        if number > len(MARKERS):
            raise ValueError(
                f"{what} has {number} entries, and lines can be told apart for up to {len(MARKERS)}; draw some at a "
                "time."
            )
    if absent.all():
        raise ValueError("No context has both a time and a group; pass both for at least one.")
    # (k, chosen); normalised by all contexts, also those without a time.
    compared = fit.compared(corrected)
    B = compared.values[:, chosen]
    if normalize == "component":
        largest = B.max(axis=0)
        B = B / np.where(largest > 0, largest, 1)

    time_names = [shorten(name, LONGEST_LABEL) for name in when.categories]
    ax = axes_or_new(ax, (5.6, 3.6 + room_below(time_names, 4)))
    for (column, j), (g, name) in itertools.product(enumerate(chosen), enumerate(names)):
        members = np.flatnonzero((groups == g) & ~absent)
        if not len(members):
            continue
        # The legend names the MCPC only if there are several, or no groups.
        # One of the two parts is always there.
        mcpc = fit.names[j] if len(chosen) > 1 or not name else ""
        text = ", ".join(part for part in (mcpc, name) if part)
        style = _style(column, g, len(chosen), len(names))
        _draw_trend(ax, when.positions[members], B[members, column], style, text)
    if when.kind == "category":
        name_categories(ax, time_names)
    ax.margins(x=0.05)
    ax.set_ylim(*limits_from_zero(B[~absent]))
    ax.set_xlabel(axis_label(label, time, "time"), fontsize=FONT_SIZE)
    of = f" of {fit.names[chosen[0]]}" if len(chosen) == 1 else ""
    unit = " / largest of its MCPC" if normalize else " (variance)"
    finish_loading_axes(ax, compared.name + of + unit)
    if absent.any():
        ax.set_title(f"{int(absent.sum())} contexts without a value left out", fontsize=FONT_SIZE)
    if len(chosen) > 1 or group is not None:
        n_entries = len(ax.get_legend_handles_labels()[1])
        ax.legend(
            loc="upper left",
            bbox_to_anchor=(1.01, 1),
            borderaxespad=0,
            frameon=False,
            fontsize=FONT_SIZE,
            ncols=1 + (n_entries - 1) // _LEGEND_ROWS,
            handlelength=3.2,
        )
    return ax


def _style(column: int, g: int, n_components: int, n_groups: int) -> dict[str, Any]:
    """Return the style of the line of an MCPC and a group; no two look the same, even in black and white."""
    if n_components > 1 and n_groups > 1:
        colour = CATEGORIES[column]
        face = colour if g % 2 == 0 else "white"
        return {"color": colour, "marker": MARKERS[column], "linestyle": _LINE_STYLES[g], "markerfacecolor": face}
    n = column if n_components > 1 else g
    colour = CATEGORIES[n]
    return {"color": colour, "marker": MARKERS[n], "linestyle": _LINE_STYLES[n], "markerfacecolor": colour}


def _draw_trend(ax: Any, t: Array, b: Array, style: dict[str, Any], label: str) -> None:
    # t, b (contexts of the line,); times sorted, so the line runs from left to right.
    times, index = np.unique(t, return_inverse=True)
    means = np.bincount(index, weights=b) / np.bincount(index)
    edge = {"markeredgecolor": "0.2" if style["markerfacecolor"] != "white" else style["color"], "markeredgewidth": 0.7}
    several = len(times) < len(t)
    ax.plot(times, means, linewidth=1.6, markersize=0 if several else 6, **style, **edge, zorder=2)
    line = ax.lines[-1]
    if several:
        ax.plot(t, b, **{**style, "linestyle": "none"}, **edge, markersize=4, alpha=0.6, zorder=3)
    # An empty line stands for both the line and its points in the legend, so that they share one entry.
    proxy = require("matplotlib.lines", "plot").Line2D(
        [], [], linewidth=1.6, markersize=6, label=label, **style, **edge
    )
    # Matplotlib leaves labels with an underscore in front out of legends.
    line.set_label("_line")
    ax.add_line(proxy)
