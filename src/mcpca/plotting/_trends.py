"""Loadings of MCPCs over time, by groups of contexts: the paper's Figures 4C and 4D."""

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
from ._covariates import LONGEST, as_categories, axis_label, finish, from_zero, name_columns, room_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), (0, (1, 2)), (0, (3, 1, 1, 3)))


def plot_trends(
    source: Any,
    components: Any,
    time: Any,
    group: Any = None,
    *,
    normalize: Literal["component"] | None = None,
    label: str | None = None,
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw the loadings of MCPCs over time, a line for each MCPC and group of contexts.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model; or an AnnData with a fit.
    components : int, str, or sequence of them
        One MCPC or several, by column (0 is MCPC 1) or name; at most 8.
    time : dict or Series {context: value}; array-like (k,); or str
        Numbers, dates, or categories in their order; by context, in the order of contexts, or for an AnnData the name
        of a column of ``obs`` that is constant within contexts.
    group : the same, optional
        Categories, at most 8: a line for each.
    normalize : {None, "component"}
        "component" divides the loadings of each MCPC by its largest, so that strong and weak ones can be compared.
    label : str, optional
        Of the axis; by default the name of the column or Series, or "time".
    missing : {"error", "drop"}
        What to do when contexts have no time or group: raise, or leave them out.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Where a group has several contexts at one time, each is a point and the line goes through their mean. MCPCs differ
    in colour and marker, groups in the kind of line and in whether markers are filled; with one MCPC groups have
    colours and markers of their own.

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
    groups = np.zeros(len(fit.contexts), dtype=int)
    names, absent = [""], when.missing
    if group is not None:
        read = as_categories(context_values(group, fit.contexts, "group", source=source, key=key, missing=missing))
        groups, absent = read.values, when.missing | read.missing
        names = [shorten(name, LONGEST) for name in read.categories]
    for what, number in (("components", len(chosen)), ("group", len(names))):
        if number > len(MARKERS):
            raise ValueError(
                f"{what} has {number} entries, and lines are told apart for up to {len(MARKERS)}; draw some at a time."
            )
    if absent.all():
        raise ValueError("No context has both a time and a group; give them to at least one.")
    B = fit.loadings[:, chosen]
    if normalize == "component":
        largest = fit.loadings[:, chosen].max(axis=0)
        B = B / np.where(largest > 0, largest, 1)

    moments = [shorten(name, LONGEST) for name in when.categories]
    ax = axes_or_new(ax, (5.6, 3.6 + room_below(moments, 4)))
    for (at, j), (g, name) in itertools.product(enumerate(chosen), enumerate(names)):
        mine = np.flatnonzero((groups == g) & ~absent)
        text = ", ".join(part for part in (fit.names[j] if len(chosen) > 1 or not name else "", name) if part)
        if len(mine):
            _draw_line(ax, when.positions[mine], B[mine, at], _style(at, g, len(chosen), len(names)), text)
    if when.kind == "category":
        name_columns(ax, moments)
    ax.margins(x=0.05)
    ax.set_ylim(*from_zero(B[~absent]))
    ax.set_xlabel(axis_label(label, time, "time"), fontsize=FONT_SIZE)
    of = f" of {fit.names[chosen[0]]}" if len(chosen) == 1 else ""
    finish(ax, f"loading{of} / largest of its MCPC" if normalize else f"loading{of} (variance)")
    if absent.any():
        ax.set_title(f"{int(absent.sum())} contexts without a value left out", fontsize=FONT_SIZE)
    if len(chosen) > 1 or group is not None:
        columns = 1 + (len(ax.get_legend_handles_labels()[1]) - 1) // 12
        style: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0, "frameon": False}
        ax.legend(fontsize=FONT_SIZE, ncols=columns, handlelength=3.2, **style)
    return ax


def _style(at: int, g: int, n_components: int, n_groups: int) -> dict[str, Any]:
    """Return how the line of an MCPC and a group looks; no two are alike in black and white."""
    if n_components > 1 and n_groups > 1:
        face = CATEGORIES[at] if g % 2 == 0 else "white"
        return {"color": CATEGORIES[at], "marker": MARKERS[at], "linestyle": _LINES[g], "markerfacecolor": face}
    n = at if n_components > 1 else g
    return {"color": CATEGORIES[n], "marker": MARKERS[n], "linestyle": _LINES[n], "markerfacecolor": CATEGORIES[n]}


def _draw_line(ax: Any, t: Array, b: Array, style: dict[str, Any], label: str) -> None:
    times, index = np.unique(t, return_inverse=True)
    means = np.bincount(index, weights=b) / np.bincount(index)
    edge = {"markeredgecolor": "0.2" if style["markerfacecolor"] != "white" else style["color"], "markeredgewidth": 0.7}
    several = len(times) < len(t)
    ax.plot(times, means, linewidth=1.6, markersize=0 if several else 6, **style, **edge, zorder=2)
    line = ax.lines[-1]
    if several:
        ax.plot(t, b, **{**style, "linestyle": "none"}, **edge, markersize=4, alpha=0.6, zorder=3)
    # One entry of the legend for line and points.
    proxy = require("matplotlib.lines", "plot").Line2D(
        [], [], linewidth=1.6, markersize=6, label=label, **style, **edge
    )
    line.set_label("_line")
    ax.add_line(proxy)
