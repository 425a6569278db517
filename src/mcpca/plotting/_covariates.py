"""Loadings of one MCPC against what is known about the contexts, as in the paper's Figure 3H.

Tests are those of ``mcpca.analysis.associate`` (``_results.context_tests``), so that the plot and the table agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._inference.bootstrap import Bootstrap
from .._results.anndata_inference import stored_bootstrap
from .._results.context_tests import compare_with_covariate
from .._results.context_values import ContextValues, context_values
from .._results.fitted import Fitted, fitted
from .._utils.component_names import component_index
from .._utils.types import Array
from ._common import CATEGORIES, FONT_SIZE, MARKERS, axes_or_new, shorten, size_in_points
from ._heatmap import check_annotate
from ._labels import place_labels
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

_MOST_LABELLED = 40  # contexts; beyond this points say more than names
_POINT_DIAMETER = 6.0  # points (1/72 inch) between the centres of neighbours in a group
_GROUP_HALF_WIDTH = 0.26  # of the distance between groups, within which points are spread


def plot_covariate(
    source: Any,
    component: Any,
    covariate: Any,
    *,
    kind: Literal["auto", "category"] = "auto",
    corrected: bool = True,
    intervals: Bootstrap | Literal["auto"] | None = "auto",
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
        A fitted model, or an AnnData with a fit.
    component : int or str
        The MCPC, by column (0 is MCPC 1) or name.
    covariate : dict or Series {context: value}; array-like (k,); or str
        Values by context, or in the order of the contexts; for an AnnData also the name of a column of ``obs`` that is
        constant within contexts. Numbers and dates are drawn as points, with Spearman's correlation. Everything else is
        a category, drawn as points and boxes, with Student's t-test for two categories and one-way analysis of variance
        (ANOVA) for more; an ordered pandas categorical also has Spearman's correlation with the order. These are the
        tests of ``mcpca.analysis.associate``.
    kind : {"auto", "category"}
        "category" draws each number as a category, in their order (stages 1 to 4, say).
    corrected : bool
        Whether to take the noise of each context out of its loadings, so that contexts with more noise do not seem to
        have more of the MCPC. False draws ``loadings_``.
    intervals : Bootstrap, "auto" or None
        Draws the interval of each loading as a line. "auto" takes what ``mcpca.tl.bootstrap`` stored in an AnnData, if
        it is of the loadings that are drawn.
    label : str, optional
        Label of the axis; by default the name of the column or Series, or "covariate".
    annotate : bool or "auto"
        Write the names of contexts beside their points where there is room, those with the largest loadings first;
        "auto" does so for up to 40 contexts.
    missing : {"error", "drop"}
        What to do if contexts have no value: raise, or leave them out and say how many above the plot.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    The p-value is that of this one test: for r MCPCs it should be below 0.05 / r. Tests treat contexts as independent.
    p is exact, from all ways to assign the covariate to the contexts, if there are at most 50,000 of these (always up
    to 8 contexts); otherwise it comes from the distributions of Student's t and F. Two groups are not tested if one of
    them has a single context, which has no spread.

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
    check_annotate(annotate)
    values = context_values(covariate, fit.contexts, "covariate", source=source, key=key, missing=missing)
    if kind == "category":
        values = as_categories(values)
    drawn = np.flatnonzero(~values.missing)  # contexts with a value
    # b and places have an entry for each context drawn, not for each of the fit.
    compared = fit.compared(corrected)
    b = compared.values[drawn, j]
    places = values.positions[drawn]
    bounds = _bounds(intervals, source, key, fit, corrected)
    test_result = _category_test(b, values, drawn) if values.kind == "category" else _trend_test(b, places)

    names = [shorten(name, LONGEST_LABEL) for name in values.categories]
    width = max(4.2, min(10, 0.9 * len(names) + 1.2))
    ax = axes_or_new(ax, (width, 3.4 + room_below(names, width)))
    if values.kind == "category":
        limits = limits_from_zero(_tops(b, bounds, drawn, j))
        places = _draw_groups(ax, b, values.values[drawn], len(names), limits, apart=bounds is not None)
        name_categories(ax, names)
    else:
        ax.scatter(places, b, s=28, color=CATEGORIES[0], edgecolor="white", linewidth=0.5, zorder=3)
        ax.margins(0.08)
    # Before labels are placed: their places are measured on the page.
    ax.set_ylim(*limits_from_zero(_tops(b, bounds, drawn, j)))
    if bounds is not None:
        # Lines from end to end, and not about the point: intervals are about loadings less a bias.
        lower, upper = bounds.lower[drawn, j], bounds.upper[drawn, j]
        codes = values.values[drawn] if values.kind == "category" else np.zeros(len(drawn), dtype=int)
        colours = [CATEGORIES[g % len(CATEGORIES)] for g in codes]
        ax.vlines(places, lower, upper, colors=colours, linewidth=1.2, alpha=0.6, zorder=2)
    ax.set_xlabel(axis_label(label, covariate, "covariate"), fontsize=FONT_SIZE)
    finish_loading_axes(ax, f"{compared.name} of {fit.names[j]} (variance)")
    n_missing = len(fit.contexts) - len(drawn)
    dropped = f", {n_missing} without a value left out" if n_missing else ""
    ax.set_title(f"{fit.names[j]}, {len(drawn)} contexts{dropped}\n{test_result}", fontsize=FONT_SIZE)
    if annotate is True or (annotate == "auto" and len(drawn) <= _MOST_LABELLED):
        # Labels are placed in turn, so the contexts that carry the MCPC are named before room runs out.
        order = np.argsort(-b, kind="stable")
        points = np.column_stack([_as_numbers(ax, places), b])[order]
        texts = [shorten(fit.contexts[drawn[i]], LONGEST_LABEL) for i in order]
        place_labels(ax, points, texts, obstacles=points, gaps=(4,), font_size=FONT_SIZE - 2, color="0.3")
    return ax


# Tests -----------------------------------------------------------------------------------------------------------


def _trend_test(b: Array, places: Array) -> str:
    """Return Spearman's correlation in words."""
    # Dates as nanoseconds, of which Spearman's correlation uses the order alone.
    x = places.astype(np.int64) if places.dtype.kind == "M" else places
    if len(b) < 3 or len(set(x.tolist())) < 2 or len(set(b.tolist())) < 2:
        return "too few different values for a correlation"
    tested = compare_with_covariate("spearman", b[:, None], x)
    rho = round(float(tested.statistics[0]), 2) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"Spearman's ρ = {rho:.2f}, p = {_p_value_text(tested.p_values)}"


def _category_test(b: Array, values: ContextValues, drawn: Array) -> str:
    """Return the test between categories in words, or why there is none."""
    codes = values.values[drawn]
    # Every category has a context: those that do not occur have been left out.
    parts = [b[codes == g] for g in range(len(values.categories))]
    if len(parts) < 2:
        return "one group, nothing to compare"
    if len(set(b.tolist())) < 2:
        return "all loadings are equal"
    if len(parts) == 2:
        if min(map(len, parts)) < 2 or all(len(set(part.tolist())) < 2 for part in parts):
            return "no test: a group has one context, or neither varies"
        return f"t-test p = {_p_value_text(compare_with_covariate('t-test', b[:, None], codes).p_values)}"
    # No degrees of freedom within groups.
    if len(parts) == len(b):
        result = "no test: every group has one context"
    else:
        result = f"ANOVA p = {_p_value_text(compare_with_covariate('anova', b[:, None], codes).p_values)}"
    return f"{_trend_test(b, codes)}; {result}" if values.ordered else result


def _p_value_text(p_values: Array) -> str:
    p = float(p_values[0])
    if p >= 1e-3:
        return f"{p:.2g}"
    return f"{p:.0e}" if p >= 1e-99 else "0"


# Drawing ---------------------------------------------------------------------------------------------------------


def _bounds(intervals: Any, source: Any, key: str, fit: Fitted, corrected: bool) -> Bootstrap | None:
    """Return the bootstrap whose intervals are drawn: the one given, or one that is stored and of these loadings."""
    is_auto = isinstance(intervals, str) and intervals == "auto"
    found = stored_bootstrap(source, key) if is_auto else intervals
    if found is None:
        return None
    if not isinstance(found, Bootstrap):
        raise TypeError(f"intervals is a {type(found).__name__}; pass what MCPCA.bootstrap returned, 'auto' or None.")
    if found.lower.shape != fit.loadings.shape:
        raise ValueError(
            f"intervals are of {found.lower.shape} loadings, and the fit has {fit.loadings.shape}; pass those of this "
            "fit."
        )
    if fit.same_loadings(found.corrected, corrected):
        return found
    if is_auto:
        return None
    raise ValueError(
        f"intervals are of loadings with corrected={found.corrected}, and corrected={corrected} draws others; pass "
        f"corrected={found.corrected}, or a bootstrap of the others."
    )


def _tops(b: Array, bounds: Bootstrap | None, drawn: Array, j: int) -> Array:
    """Return the largest value that is drawn for each context."""
    return b if bounds is None else np.maximum(b, bounds.upper[drawn, j])


def _draw_groups(ax: Any, b: Array, codes: Array, n: int, limits: tuple[float, float], *, apart: bool) -> Array:
    """Draw boxes, and points side by side where they are close; return the positions of the points on the axis.

    ``limits`` are those of the vertical axis. ``apart`` puts all points of a group side by side, for their intervals.
    """
    for g in range(n):
        part = b[codes == g]
        if len(part) > 2:  # quartiles of two values say no more than the values
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
    low, high = limits
    places = codes.astype(np.float64)
    for g in range(n):
        members = np.flatnonzero(codes == g)
        # Heights and offsets in points: distances must be those on the page. A group is width / n points wide.
        heights = np.zeros(len(members)) if apart else b[members] * height / (high - low)
        places[members] += side_by_side(heights, _POINT_DIAMETER, _GROUP_HALF_WIDTH * width / n) * n / width
        ax.scatter(
            places[members],
            b[members],
            s=24,
            color=CATEGORIES[g % len(CATEGORIES)],
            marker=MARKERS[g % len(MARKERS)],
            edgecolor="0.2",
            linewidth=0.5,
            zorder=3,
        )
    ax.set_xlim(-0.6, n - 0.4)
    return places


def side_by_side(heights: Array, diameter: float, most: float) -> Array:
    """Return offsets (m,) within [-most, most] that keep points of close heights apart, in the units of heights."""
    offsets = np.zeros(len(heights))
    # Candidates from the middle outwards, alternating sides.
    steps = np.arange(1, max(2, int(most // diameter) + 1)) * diameter
    candidates = np.concatenate([[0.0], np.column_stack([steps, -steps]).ravel()])
    candidates = candidates[np.abs(candidates) <= most]
    placed: list[int] = []
    for i in np.argsort(heights, kind="stable").tolist():
        # Points come from the lowest up, so only those below can be in the way.
        near = [d for d in placed if heights[i] - heights[d] < diameter]
        free = [x for x in candidates if all(abs(x - offsets[d]) >= diameter * 0.9 for d in near)]
        # If all candidates are taken, the one taken longest ago.
        offsets[i] = free[0] if free else candidates[len(placed) % len(candidates)]
        placed.append(i)
    return offsets


def _as_numbers(ax: Any, places: Array) -> Array:
    """Return positions as the axis has them: dates are days since 1970."""
    return np.asarray(ax.convert_xunits(places), dtype=np.float64)
