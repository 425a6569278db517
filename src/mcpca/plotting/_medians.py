"""Median scores of works, patients or other groups of rows over time, as in the paper's Fig. 4G."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._results.context_values import ContextValues, context_values
from .._utils.arguments import check_integer
from .._utils.component_names import component_index
from .._utils.optional import require
from .._utils.types import Array
from ._common import CATEGORIES, FONT_SIZE, MARKERS, axes_or_new, shorten, size_in_points
from ._covariates import side_by_side
from ._labels import place_labels
from ._loading_axes import LONGEST_LABEL, as_categories, axis_label, name_categories, room_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TIMES = 12  # different times that are drawn as categories, with boxes; more are an axis of numbers
_DIAMETER = 4.5  # points between the centres of neighbours
_BAND = 0.82  # of the distance between times, which the groups share


def plot_group_medians(
    medians: Any,
    component: Any,
    time: Any,
    group: Any = None,
    *,
    named: int = 1,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the median scores of works (or patients, or other groups of rows) on one MCPC over time, by kind.

    Parameters
    ----------
    medians : DataFrame
        What ``mcpca.analysis.group_medians`` returned: a row for each work.
    component : int or str
        The MCPC, by column (0 is MCPC 1) or name.
    time : dict or Series {work: value}, or array-like in the order of the rows of ``medians``
        Numbers, dates, or categories in their order. Up to 12 different times stand side by side with boxes; numbers
        and dates of more are points along an axis. Works without a value are left out.
    group : the same, optional
        At most 8 kinds of works (fiction, science), which have colours and markers of their own.
    named : int
        How many works are named at the upper and at the lower end.
    label : str, optional
        Label of the axis of time; by default the name of the Series, or "time".
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Boxes go from quartile to quartile of the works, with the median of medians in black; whiskers are at most 1.5 times
    their length. There are none for fewer than 3 works. A median of few rows is far out more easily than one of many:
    ``min_rows`` of ``group_medians`` leaves these out.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.analysis import group_medians
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_group_medians
    >>> truth = make_contexts(n_contexts=4, n_features=8, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> works = [f"work {i % 40}" for i in range(len(truth.y))]
    >>> medians = group_medians(model, works, X=truth.X, y=truth.y)
    >>> ax = plot_group_medians(medians, "MCPC 1", time=[1800 + 20 * (i % 4) for i in range(40)])
    """
    if not hasattr(medians, "columns") or "n" not in medians.columns:
        raise TypeError(f"medians is a {type(medians).__name__}; pass what analysis.group_medians returned.")
    named = check_integer(named, "named", 0)
    columns = [str(name) for name in medians.columns if name != "n"]
    mcpc = columns[component_index(component, columns)]
    works = [str(name) for name in medians.index]
    when = context_values(time, works, "time", missing="drop")
    if when.kind != "category" and len(np.unique(when.values[~when.missing])) <= _MOST_TIMES:
        when = as_categories(when)
    kinds = None if group is None else as_categories(context_values(group, works, "group", missing="drop"))
    absent = when.missing if kinds is None else when.missing | kinds.missing
    if absent.all():
        raise ValueError("No row of medians has both a time and a group; pass both for at least one.")
    if kinds is not None and len(kinds.categories) > len(MARKERS):
        raise ValueError(
            f"group has {len(kinds.categories)} values, and markers can be told apart for up to {len(MARKERS)}; draw "
            "some at a time."
        )
    m = medians[mcpc].to_numpy(dtype=float)
    drawn = np.flatnonzero(~absent)
    codes = np.zeros(len(works), dtype=int) if kinds is None else kinds.values
    labels = [""] if kinds is None else [shorten(name, LONGEST_LABEL) for name in kinds.categories]

    times = [shorten(name, LONGEST_LABEL) for name in when.categories]
    width = min(max(5.2, 0.9 * len(times)), 10)
    ax = axes_or_new(ax, (width, 3.6 + room_below(times, width)))
    # Before points are placed: distances are those on the page.
    low, high = float(m[drawn].min()), float(m[drawn].max())
    margin = 0.1 * ((high - low) or 1.0)
    ax.set_ylim(low - margin, high + margin)
    if when.kind == "category":
        ax.set_xlim(-0.6, len(times) - 0.4)
        name_categories(ax, times)
        places = _draw_categories(ax, m, when, codes, drawn, len(labels))
    else:
        places = when.values
        ax.plot(places[drawn], m[drawn], linestyle="none")  # sets the limits, also of dates
        ax.margins(x=0.04)
        if when.kind == "number":
            ax.xaxis.set_major_locator(require("matplotlib.ticker", "plot").MaxNLocator(7, steps=[1, 2, 5, 10]))
    for g, text in enumerate(labels):
        own = drawn[codes[drawn] == g]
        look: dict[str, Any] = {"color": CATEGORIES[g], "marker": MARKERS[g], "edgecolors": "white", "linewidths": 0.4}
        ax.scatter(places[own], m[own], s=20, label=text or None, zorder=3, **look)
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.set_xlabel(axis_label(label, time, "time"), fontsize=FONT_SIZE)
    ax.set_ylabel(f"median score on {mcpc}", fontsize=FONT_SIZE)
    left_out = f", {int(absent.sum())} without a value left out" if absent.any() else ""
    ax.set_title(f"medians of {len(drawn):,} groups of rows{left_out}", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    if kinds is not None:
        style: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "borderaxespad": 0}
        ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1), **style)
    order = drawn[np.argsort(m[drawn], kind="stable")]
    # Each once, where the ends meet; the highest first.
    extreme = list(dict.fromkeys([*order[::-1][:named].tolist(), *order[:named].tolist()]))
    points = np.column_stack([np.asarray(ax.convert_xunits(places), dtype=float), m])
    texts = [shorten(works[i]) for i in extreme]
    place_labels(ax, points[extreme], texts, obstacles=points[drawn], gaps=(4, 10, 18), font_size=FONT_SIZE - 2)
    return ax


def _draw_categories(ax: Any, m: Array, when: ContextValues, codes: Array, drawn: Array, n_groups: int) -> Array:
    """Draw a box for each time and group, and return where the points stand: side by side within their box."""
    width, height = size_in_points(ax)
    bottom, top = ax.get_ylim()
    n = len(when.categories)
    lane = _BAND / n_groups  # of the distance between times
    unit = width / n  # points of that distance
    places = np.full(len(m), np.nan)
    grey = {"color": "0.55", "linewidth": 0.8}
    for t in range(n):
        for g in range(n_groups):
            own = drawn[(when.values[drawn] == t) & (codes[drawn] == g)]
            centre = t + (g - (n_groups - 1) / 2) * lane
            offsets = side_by_side(m[own] * height / (top - bottom), _DIAMETER, 0.38 * lane * unit)
            places[own] = centre + offsets / unit
            if len(own) > 2:
                ax.boxplot(
                    [m[own]],
                    positions=[centre],
                    widths=0.85 * lane,
                    showfliers=False,
                    manage_ticks=False,
                    medianprops={"color": "black", "linewidth": 1.4},
                    boxprops=grey,
                    whiskerprops=grey,
                    capprops=grey,
                    zorder=1,
                )
    return places
