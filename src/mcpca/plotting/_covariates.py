"""Loadings of MCPCs against what is known about the contexts: the paper's Figures 3H, 4C and 4D."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import kruskal, spearmanr, ttest_ind

from .._check import Array
from .._names import component_index, component_indices
from .._optional import require
from ..context_values import ContextValues, context_values
from ..fitted import fitted
from ._common import CATEGORIES, FONT_SIZE, MARKERS, axes_or_new, size_in_points
from ._labels import CHARACTER, place_labels, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), (0, (1, 2)), (0, (3, 1, 1, 3)))
_MOST_LABELS = 40  # contexts; beyond it points say more than names
_LONGEST = 24  # characters of a name


def plot_covariate(
    source: Any,
    component: Any,
    covariate: Any,
    *,
    kind: Literal["auto", "category"] = "auto",
    label: str | None = None,
    annotate: bool | Literal["auto"] = "auto",
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw the loadings of one MCPC against a covariate of the contexts, with a test of association.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model; or an AnnData with a fit.
    component : int or str
        The MCPC, by column (0 is MCPC 1) or name.
    covariate : dict or Series {context: value}; array-like (k,); or str
        Values by context or in the order of contexts; for an AnnData also the name of a column of ``obs`` that is
        constant within contexts. Numbers and dates are drawn as points with Spearman's correlation. Everything else is
        a category, drawn as points and boxes: with Welch's t-test for two of them, the Kruskal-Wallis test for more,
        and, for an ordered categorical of pandas, Spearman's correlation with the order.
    kind : {"auto", "category"}
        "category" draws numbers as categories, each value one, in their order (stages 1 to 4, say).
    label : str, optional
        Of the axis; by default the name of the column or Series, or "covariate".
    annotate : bool or "auto"
        Write the names of contexts beside their points, those with the largest loadings first, where there is room;
        "auto" does so for up to 40 contexts.
    missing : {"error", "drop"}
        What to do when contexts have no value: raise, or leave them out and say how many above the picture.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    The p-value is of this one test: look at r MCPCs, and it should be below 0.05 / r. Tests treat contexts as
    independent of one another. A group of one context has no spread, and then there is no test of two.
    """
    fit = fitted(source, key)
    j = component_index(component, fit.names)
    if kind not in ("auto", "category"):
        raise ValueError(f"kind={kind!r}; choose 'auto' or 'category'.")
    if not isinstance(annotate, bool) and annotate != "auto":
        raise ValueError(f"annotate={annotate!r}; choose True, False or 'auto'.")
    read = context_values(covariate, fit.contexts, "covariate", source=source, key=key, missing=missing)
    if kind == "category":
        read = _as_categories(read)
    kept = np.flatnonzero(~read.missing)
    b, places = fit.loadings[kept, j], read.positions[kept]
    words = _category_test(b, read, kept) if read.kind == "category" else _trend_test(b, places)

    names = [shorten(name, _LONGEST) for name in read.categories]
    width = max(4.2, min(10, 0.9 * len(names) + 1.2))
    ax = axes_or_new(ax, (width, 3.4 + _room_below(names, width)))
    if read.kind == "category":
        places = _draw_groups(ax, b, read.values[kept], len(names))
        _name_columns(ax, names)
    else:
        ax.scatter(places, b, s=28, color=CATEGORIES[0], edgecolor="white", linewidth=0.5, zorder=3)
        ax.margins(0.08)
    ax.set_ylim(*_from_zero(b))
    ax.set_xlabel(_label(label, covariate, "covariate"), fontsize=FONT_SIZE)
    _finish(ax, f"loading of {fit.names[j]} (variance)")
    dropped = f", {len(fit.contexts) - len(kept)} without a value left out" if len(kept) < len(fit.contexts) else ""
    ax.set_title(f"{fit.names[j]}, {len(kept)} contexts{dropped}\n{words}", fontsize=FONT_SIZE)
    if annotate is True or (annotate == "auto" and len(kept) <= _MOST_LABELS):
        order = np.argsort(-b, kind="stable")
        points = np.column_stack([_as_numbers(ax, places), b])[order]
        texts = [shorten(fit.contexts[kept[i]], _LONGEST) for i in order]
        place_labels(ax, points, texts, obstacles=points, gaps=(4,), font_size=FONT_SIZE - 2, color="0.3")
    return ax


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
    """
    fit = fitted(source, key)
    chosen = component_indices(components, fit.names)
    if normalize not in (None, "component"):
        raise ValueError(f"normalize={normalize!r}; choose None or 'component'.")
    when = context_values(time, fit.contexts, "time", source=source, key=key, missing=missing)
    groups = np.zeros(len(fit.contexts), dtype=int)
    names, absent = [""], when.missing
    if group is not None:
        read = _as_categories(context_values(group, fit.contexts, "group", source=source, key=key, missing=missing))
        groups, names, absent = read.values, read.categories, when.missing | read.missing
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

    moments = [shorten(name, _LONGEST) for name in when.categories]
    ax = axes_or_new(ax, (5.6, 3.6 + _room_below(moments, 4)))
    for (at, j), (g, name) in itertools.product(enumerate(chosen), enumerate(names)):
        mine = np.flatnonzero((groups == g) & ~absent)
        text = ", ".join(part for part in (fit.names[j] if len(chosen) > 1 or not name else "", name) if part)
        if len(mine):
            _draw_line(ax, when.positions[mine], B[mine, at], _style(at, g, len(chosen), len(names)), text)
    if when.kind == "category":
        _name_columns(ax, moments)
    ax.margins(x=0.05)
    ax.set_ylim(*_from_zero(B[~absent]))
    ax.set_xlabel(_label(label, time, "time"), fontsize=FONT_SIZE)
    of = f" of {fit.names[chosen[0]]}" if len(chosen) == 1 else ""
    _finish(ax, f"loading{of} / largest of its MCPC" if normalize else f"loading{of} (variance)")
    if absent.any():
        ax.set_title(f"{int(absent.sum())} contexts without a value left out", fontsize=FONT_SIZE)
    if len(chosen) > 1 or group is not None:
        columns = 1 + (len(ax.get_legend_handles_labels()[1]) - 1) // 12
        style: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0, "frameon": False}
        ax.legend(fontsize=FONT_SIZE, ncols=columns, handlelength=3.2, **style)
    return ax


# Tests -----------------------------------------------------------------------------------------------------------


def _trend_test(b: Array, places: Array) -> str:
    x = places.astype(np.int64) if places.dtype.kind == "M" else places
    if len(b) < 3 or len(set(x.tolist())) < 2 or len(set(b.tolist())) < 2:
        return "too few different values for a correlation"
    rho, p = spearmanr(x, b)
    return f"Spearman's ρ = {round(float(rho), 2) + 0.0:.2f}, p = {_p_value(p)}"


def _category_test(b: Array, read: ContextValues, kept: Array) -> str:
    codes = read.values[kept]
    parts = [b[codes == g] for g in range(len(read.categories))]
    if len(parts) < 2 or len(set(b.tolist())) < 2:
        return "one group, nothing to compare" if len(parts) < 2 else "all loadings are equal"
    if len(parts) > 2:
        words = f"Kruskal-Wallis p = {_p_value(kruskal(*parts).pvalue)}"
    elif min(map(len, parts)) < 2 or all(len(set(part.tolist())) < 2 for part in parts):
        words = "no test: a group has one context, or neither varies"
    else:
        words = f"Welch's t-test p = {_p_value(ttest_ind(*parts, equal_var=False).pvalue)}"
    return f"{_trend_test(b, codes)}; {words}" if read.ordered and len(parts) > 2 else words


def _p_value(p: float) -> str:
    return f"{p:.2g}" if p >= 1e-3 else f"{p:.0e}"


# Drawing ---------------------------------------------------------------------------------------------------------


def _as_categories(read: ContextValues) -> ContextValues:
    """Turn numbers and dates into categories, in their order."""
    if read.kind == "category":
        return read
    known = np.unique(read.values[~read.missing])
    codes = np.where(read.missing, -1, np.searchsorted(known, read.values))
    names = [f"{value:g}" for value in known] if read.kind == "number" else [str(day)[:10] for day in known]
    return ContextValues("category", codes, read.missing, names, ordered=True)


def _draw_groups(ax: Any, b: Array, codes: Array, n: int) -> Array:
    """Draw boxes, and points side by side where they are close; return where the points are on the axis."""
    for g in range(n):
        part = b[codes == g]
        if len(part) > 2:
            ax.boxplot(
                [part],
                positions=[g],
                widths=0.6,
                showfliers=False,
                medianprops={"color": "black", "linewidth": 1.6},
                boxprops={"color": "0.5"},
                whiskerprops={"color": "0.5"},
                capprops={"color": "0.5"},
                manage_ticks=False,
                zorder=1,
            )
    width, height = size_in_points(ax)
    low, high = _from_zero(b)
    places = codes.astype(np.float64)
    for g in range(n):
        mine = np.flatnonzero(codes == g)
        places[mine] += _side_by_side(b[mine] * height / (high - low), 6.0, 0.26 * width / n) * n / width
        colour, marker = CATEGORIES[g % len(CATEGORIES)], MARKERS[g % len(MARKERS)]
        style = {"s": 24, "color": colour, "marker": marker, "edgecolor": "0.2", "linewidth": 0.5, "zorder": 3}
        ax.scatter(places[mine], b[mine], **style)
    ax.set_xlim(-0.6, n - 0.4)
    return places


def _side_by_side(heights: Array, diameter: float, most: float) -> Array:
    """Return offsets (m,) within [-most, most] that keep points of close heights apart, in the units of heights."""
    offsets = np.zeros(len(heights))
    steps = np.arange(1, max(2, int(most // diameter) + 1)) * diameter
    tried = np.concatenate([[0.0], np.column_stack([steps, -steps]).ravel()])
    tried = tried[np.abs(tried) <= most]
    done: list[int] = []
    for i in np.argsort(heights, kind="stable").tolist():
        near = [d for d in done if heights[i] - heights[d] < diameter]
        free = [x for x in tried if all(abs(x - offsets[d]) >= diameter * 0.9 for d in near)]
        # Where all places are taken, the one taken longest ago.
        offsets[i] = free[0] if free else tried[len(done) % len(tried)]
        done.append(i)
    return offsets


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


def _is_upright(names: Sequence[str], width: float) -> bool:
    return (max(map(len, names)) + 1) * CHARACTER * FONT_SIZE > width / len(names)


def _room_below(names: Sequence[str], width: float) -> float:
    """Return the inches that names need which stand upright below an axis of about ``width`` inches."""
    upright = bool(names) and _is_upright(names, 60 * width)
    return max(map(len, names)) * CHARACTER * FONT_SIZE / 72 if upright else 0.0


def _name_columns(ax: Any, names: Sequence[str]) -> None:
    """Name categories below the axis: upright where they are long, and thinned out where they are many."""
    n, width = len(names), size_in_points(ax)[0] * 0.85
    upright = _is_upright(names, width)
    step = max(1, int(np.ceil(1.25 * FONT_SIZE * n / width))) if upright else 1
    ax.set_xticks(range(0, n, step), labels=names[::step], rotation=90 if upright else 0)


def _from_zero(b: Array) -> tuple[float, float]:
    """Limits of an axis of loadings: 0 is their end, not an arbitrary number."""
    largest = float(b.max(initial=0)) or 1.0
    return -0.04 * largest, 1.08 * largest


def _as_numbers(ax: Any, places: Array) -> Array:
    return np.asarray(ax.convert_xunits(places), dtype=np.float64)


def _label(label: str | None, given: Any, default: str) -> str:
    if label is not None:
        return label
    if isinstance(given, str):
        return given
    name = getattr(given, "name", None)
    return name if isinstance(name, str) else default


def _finish(ax: Any, label: str) -> None:
    ax.set_ylabel(label, fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
