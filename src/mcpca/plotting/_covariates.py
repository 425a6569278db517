"""Loadings of one MCPC against what is known about the contexts: the paper's Figure 3H."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.context_tests import compare_with_covariate
from .._results.context_values import ContextValues, context_values
from .._results.fitted import fitted
from .._utils.component_names import component_index
from .._utils.types import Array
from ._common import CATEGORIES, CHARACTER, FONT_SIZE, MARKERS, axes_or_new, shorten, size_in_points
from ._labels import place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LABELS = 40  # contexts; beyond it points say more than names
LONGEST = 24  # characters of a name


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
        a category, drawn as points and boxes: with Student's t-test for two of them, one-way analysis of variance
        (ANOVA) for more, and, for an ordered categorical of pandas, Spearman's correlation with the order: the tests of
        ``mcpca.analysis.associate``.
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
    independent of one another. Each statistic is compared with all ways to give the covariate to contexts where these
    are 50,000 at most (always up to 8 contexts), and p is exact then; otherwise it is that of the tables of Student's t
    and of F. A group of one context has no spread, and then there is no test of two.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_covariate
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> ax = plot_covariate(model, "MCPC 1", ["I", "I", "II", "II", "III", "III"], label="stage")
    """
    fit = fitted(source, key)
    j = component_index(component, fit.names)
    if kind not in ("auto", "category"):
        raise ValueError(f"kind={kind!r}; choose 'auto' or 'category'.")
    if not isinstance(annotate, bool) and annotate != "auto":
        raise ValueError(f"annotate={annotate!r}; choose True, False or 'auto'.")
    read = context_values(covariate, fit.contexts, "covariate", source=source, key=key, missing=missing)
    if kind == "category":
        read = as_categories(read)
    kept = np.flatnonzero(~read.missing)
    b, places = fit.loadings[kept, j], read.positions[kept]
    words = _category_test(b, read, kept) if read.kind == "category" else _trend_test(b, places)

    names = [shorten(name, LONGEST) for name in read.categories]
    width = max(4.2, min(10, 0.9 * len(names) + 1.2))
    ax = axes_or_new(ax, (width, 3.4 + room_below(names, width)))
    if read.kind == "category":
        places = _draw_groups(ax, b, read.values[kept], len(names))
        name_columns(ax, names)
    else:
        ax.scatter(places, b, s=28, color=CATEGORIES[0], edgecolor="white", linewidth=0.5, zorder=3)
        ax.margins(0.08)
    ax.set_ylim(*from_zero(b))
    ax.set_xlabel(axis_label(label, covariate, "covariate"), fontsize=FONT_SIZE)
    finish(ax, f"loading of {fit.names[j]} (variance)")
    dropped = f", {len(fit.contexts) - len(kept)} without a value left out" if len(kept) < len(fit.contexts) else ""
    ax.set_title(f"{fit.names[j]}, {len(kept)} contexts{dropped}\n{words}", fontsize=FONT_SIZE)
    if annotate is True or (annotate == "auto" and len(kept) <= _MOST_LABELS):
        order = np.argsort(-b, kind="stable")
        points = np.column_stack([_as_numbers(ax, places), b])[order]
        texts = [shorten(fit.contexts[kept[i]], LONGEST) for i in order]
        place_labels(ax, points, texts, obstacles=points, gaps=(4,), font_size=FONT_SIZE - 2, color="0.3")
    return ax


# Tests -----------------------------------------------------------------------------------------------------------


def _trend_test(b: Array, places: Array) -> str:
    x = places.astype(np.int64) if places.dtype.kind == "M" else places
    if len(b) < 3 or len(set(x.tolist())) < 2 or len(set(b.tolist())) < 2:
        return "too few different values for a correlation"
    rho, p = (float(value[0]) for value in compare_with_covariate("spearman", b[:, None], x))
    return f"Spearman's ρ = {round(rho, 2) + 0.0:.2f}, p = {_p_value(p)}"


def _category_test(b: Array, read: ContextValues, kept: Array) -> str:
    codes = read.values[kept]
    parts = [b[codes == g] for g in range(len(read.categories))]
    if len(parts) < 2 or len(set(b.tolist())) < 2:
        return "one group, nothing to compare" if len(parts) < 2 else "all loadings are equal"
    if len(parts) > 2 and len(parts) < len(b):
        words = f"ANOVA p = {_p_value(float(compare_with_covariate('anova', b[:, None], codes).p_values[0]))}"
    elif len(parts) > 2:
        words = "no test: every group has one context"
    elif min(map(len, parts)) < 2 or all(len(set(part.tolist())) < 2 for part in parts):
        words = "no test: a group has one context, or neither varies"
    else:
        words = f"t-test p = {_p_value(float(compare_with_covariate('t-test', b[:, None], codes).p_values[0]))}"
    return f"{_trend_test(b, codes)}; {words}" if read.ordered and len(parts) > 2 else words


def _p_value(p: float) -> str:
    return f"{p:.2g}" if p >= 1e-3 else f"{p:.0e}" if p >= 1e-99 else "0"


# Drawing ---------------------------------------------------------------------------------------------------------


def as_categories(read: ContextValues) -> ContextValues:
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
    low, high = from_zero(b)
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


def _is_upright(names: Sequence[str], width: float) -> bool:
    return (max(map(len, names)) + 1) * CHARACTER * FONT_SIZE > width / len(names)


def room_below(names: Sequence[str], width: float) -> float:
    """Return the inches that names need which stand upright below an axis of about ``width`` inches."""
    upright = bool(names) and _is_upright(names, 60 * width)
    return max(map(len, names)) * CHARACTER * FONT_SIZE / 72 if upright else 0.0


def name_columns(ax: Any, names: Sequence[str]) -> None:
    """Name categories below the axis: upright where they are long, and thinned out where they are many."""
    n, width = len(names), size_in_points(ax)[0] * 0.85
    upright = _is_upright(names, width)
    step = max(1, int(np.ceil(1.25 * FONT_SIZE * n / width))) if upright else 1
    ax.set_xticks(range(0, n, step), labels=names[::step], rotation=90 if upright else 0)


def from_zero(b: Array) -> tuple[float, float]:
    """Limits of an axis of loadings: 0 is their end, not an arbitrary number."""
    largest = float(b.max(initial=0)) or 1.0
    return -0.04 * largest, 1.08 * largest


def _as_numbers(ax: Any, places: Array) -> Array:
    return np.asarray(ax.convert_xunits(places), dtype=np.float64)


def axis_label(label: str | None, given: Any, default: str) -> str:
    """Return what to write below an axis: ``label``, the name of the column or Series, or ``default``."""
    if label is not None:
        return label
    name = given if isinstance(given, str) else getattr(given, "name", None)
    return shorten(name, 60) if isinstance(name, str) else default


def finish(ax: Any, label: str) -> None:
    """Write what the vertical axis is, and leave the other sides open."""
    ax.set_ylabel(label, fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
