"""How the scores on one MCPC are distributed in each context, as in the paper's Figures 3C and 3I.

Contexts are rows, at y = 0, -1, -2, ... from the top; the scores come from ``_results.fitted_rows``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import gaussian_kde

from .._results.context_values import context_values
from .._results.fitted import Fitted, fitted
from .._results.fitted_rows import scores_by_context
from .._utils.arguments import check_integer, refuse_without_effect
from .._utils.component_names import component_index, context_index
from .._utils.optional import require
from .._utils.types import Array
from ._common import CHARACTER_WIDTH, FONT_SIZE, SEQUENTIAL, axes_or_new, shorten_all, size_in_points
from ._labels import name_places
from ._loading_axes import as_categories

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Height of a density or a box, in rows: half of a violin or a box, all of a ridge, which rises into the row above.
_HEIGHTS = {"violin": 0.42, "ridge": 1.5, "box": 0.32}
_SMOOTHED = 2000  # values behind a density at most: a kernel estimate costs their number times _GRID
_GRID = 200  # points at which a density is evaluated
_WHISKER = 1.5  # greatest length of a whisker, in lengths of the box (Tukey's)
_DARK = "0.25"


def plot_scores(
    source: Any,
    component: Any,
    X: Any = None,
    y: Any = None,
    *,
    contexts: Sequence[Any] | None = None,
    groups: Any = None,
    kind: Literal["violin", "ridge", "box"] = "violin",
    center: Literal["context", "overall"] = "context",
    max_contexts: int = 20,
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw the distribution of the scores on one MCPC in each context, with its loading beside it.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or an AnnData with a fit, whose scores are drawn.
    component : int or str
        The MCPC, by column (0 is MCPC 1) or name.
    X, y
        For a model: rows with their contexts in any form that ``fit`` accepts, except Dask. An AnnData brings its own.
    contexts : sequence of names, optional
        The contexts to draw, from top to bottom. By default all, the largest loading first; if there are more than
        ``max_contexts``, half of these with the largest and half with the smallest loadings.
    groups : dict or Series {context: group}; array-like (k,); or str, optional
        Draw the rows of all contexts of a group together, as in the paper's Fig. 3I (stages of patients), with the mean
        of their loadings. Groups are in their order, the first at the top; ``contexts`` then names groups. For an
        AnnData also a column of ``obs`` that is constant within contexts. Contexts without a value are in no group.
    kind : {"violin", "ridge", "box"}
        "violin": a smoothed density, with a bar from the lower to the upper quartile and a dot at the median. "ridge":
        overlapping densities on base lines. "box": boxes from quartile to quartile, whiskers of at most 1.5 times
        their length, and all rows beyond as dots.
    center : {"context", "overall"}
        "context" subtracts the mean of each context, as the model does: the squared widths are what loadings measure.
        "overall" subtracts one mean of all rows, as in the paper's figures, and keeps differences between contexts.
    max_contexts : int
        Largest number of contexts that are drawn if ``contexts`` is None.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose height follows the number of contexts.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    One pass over the rows, none with an AnnData. Darker fills mean larger loadings. All densities have the same height
    and are smoothed by Scott's rule.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_scores
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> ax = plot_scores(model, "MCPC 1", truth.X, truth.y)
    """
    fit = fitted(source, key)
    j = component_index(component, fit.names)
    if kind not in _HEIGHTS:
        raise ValueError(f"kind={kind!r}; choose 'violin', 'ridge' or 'box'.")
    if center not in ("context", "overall"):
        raise ValueError(f"center={center!r}; choose 'context' or 'overall'.")
    max_contexts = check_integer(max_contexts, "max_contexts", 2)
    if contexts is not None:
        why = "contexts says which are drawn"
        refuse_without_effect("max_contexts", max_contexts, 20, why, "drop one of the two")
    b, all_names, members = fit.loadings[:, j], fit.contexts, [[i] for i in range(len(fit.contexts))]
    if groups is not None:
        all_names, members = _groups(groups, fit.contexts, source, key)
        b = np.array([fit.loadings[own, j].mean() for own in members])
    # Groups stay in their order, such as that of stages.
    by = b if groups is None else -np.arange(len(b), dtype=np.float64)
    chosen, left_out = _choose_contexts(contexts, all_names, by, max_contexts)
    scores = _scores_of(source, fit, key, j, X, y, [members[i] for i in chosen], center)

    names = shorten_all([all_names[i] for i in chosen])
    # The first context is at the top; those left out leave a gap, with room for a ridge that rises from below it.
    places = -np.arange(len(chosen), dtype=np.float64)
    half = (len(chosen) + 1) // 2
    if left_out:
        places[half:] -= 2 if kind == "ridge" else 1
    # Height in rows, with those of the gap.
    rows = 1 - places[-1]
    ax = axes_or_new(ax, (4.4 + max(map(len, names)) * CHARACTER_WIDTH * FONT_SIZE / 72, 1.1 + 0.3 * rows))
    top = places[0] + (1.7 if kind == "ridge" else 0.7)
    small = min(1.0, size_in_points(ax)[1] / (top - places[-1]) / 16)  # marks shrink in rows of less than 16 points
    # By the largest loading of all contexts, so that shades mean the same whichever are drawn.
    shades = _shades(b[chosen], float(b.max()))
    ax.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    for number, (z, place, shade) in enumerate(zip(scores, places, shades, strict=True)):
        if kind == "box":
            _draw_box(ax, z, place, shade)
        else:
            _draw_density(ax, z, place, shade, kind, number, small)
    # Before names, whose size follows the height of a row.
    ax.set_ylim(places[-1] - 0.7, top)
    name_places(ax, places, names, top - places[-1] + 0.7)
    _write_loadings(ax, places, b[chosen], "loading" if groups is None else "mean loading")
    if left_out:
        what = "context" if groups is None else "group"
        gap = f"{left_out} {what}{'s' if left_out > 1 else ''}{' with loadings' if groups is None else ''} in between"
        ax.annotate(
            f"… {gap} …",
            (0.5, places[half - 1] - (0.7 if kind == "ridge" else 1)),
            xycoords=("axes fraction", "data"),
            ha="center",
            va="center",
            fontsize=FONT_SIZE - 1,
            color="0.4",
        )
    mean = "each context's mean" if center == "context" else "the overall mean"
    ax.set_xlabel(f"score on {fit.names[j]}, about {mean}", fontsize=FONT_SIZE)
    ax.tick_params(axis="x", labelsize=FONT_SIZE)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax


def _groups(groups: Any, contexts: Sequence[str], source: Any, key: str) -> tuple[list[str], list[list[int]]]:
    """Return the names of groups of contexts in their order, and the contexts of each."""
    read = as_categories(context_values(groups, contexts, "groups", source=source, key=key, missing="drop"))
    return read.categories, [np.flatnonzero(read.values == g).tolist() for g in range(len(read.categories))]


def _scores_of(
    source: Any, fit: Fitted, key: str, j: int, X: Any, y: Any, members: Sequence[Sequence[int]], center: str
) -> list[Array]:
    """Return the scores on MCPC j of the rows of each group of contexts, in one pass over the rows."""
    wanted = [i for own in members for i in own]
    scores = scores_by_context(source, fit, key, j, X, y, wanted, center)
    ends = np.cumsum([len(own) for own in members])
    return [np.concatenate(scores[end - len(own) : end]) for own, end in zip(members, ends, strict=True)]


def _choose_contexts(wanted: Any, contexts: Sequence[str], b: Array, most: int) -> tuple[list[int], int]:
    """Return the contexts to draw, from top to bottom, and how many are left out between the two halves."""
    if wanted is not None:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        chosen = [context_index(name, contexts, "contexts: entry") for name in names]
        if not chosen:
            raise ValueError("contexts is empty; pass at least one name, or None for all.")
        return chosen, 0
    order = np.argsort(-b, kind="stable").tolist()
    if len(order) <= most:
        return order, 0
    return order[: (most + 1) // 2] + order[len(order) - most // 2 :], len(order) - most


def _shades(b: Array, largest: float) -> Array:
    """Return a colour for each loading, neither so light that it looks empty nor so dark that marks vanish."""
    colours = require("matplotlib", "plot").colormaps[SEQUENTIAL]
    return np.asarray(colours(0.12 + 0.68 * b / (largest or 1)))


def _draw_density(ax: Any, z: Array, place: float, shade: Any, kind: str, number: int, small: float) -> None:
    # Ridges rise into the rows above them, and so must be drawn after these.
    order = 1 + number * 0.01
    low, median, high = np.quantile(z, [0.25, 0.5, 0.75])
    spread = float(z.std())
    # A kernel estimate of equal values has a singular covariance.
    if len(z) > 2 and spread > 1e-9 * (np.abs(z).max() or 1):
        grid, density = _density(z)
        # Equal heights: with equal areas a narrow density would make all others flat.
        height = _HEIGHTS[kind] * density / density.max()
        below = place - height if kind == "violin" else np.full_like(grid, place)
        ax.fill_between(grid, below, place + height, facecolor=shade, edgecolor=_DARK, linewidth=0.7, zorder=order)
    else:  # too few values to smooth, or all the same: a tick for each
        ax.plot(z, np.full(len(z), place), "|", color=_DARK, markersize=8 * small, zorder=order)
    if kind == "violin":
        ax.plot([low, high], [place, place], color=_DARK, linewidth=3 * small, solid_capstyle="butt", zorder=3)
    ax.plot(
        median,
        place,
        "o",
        markersize=4 * small,
        color="white",
        markeredgecolor=_DARK,
        markeredgewidth=0.8 * small,
        zorder=4,
    )


def _density(z: Array) -> tuple[Array, Array]:
    """Return a grid and the smoothed density on it; many values are first reduced to evenly spaced quantiles."""
    values = z if len(z) <= _SMOOTHED else np.quantile(z, (np.arange(_SMOOTHED) + 0.5) / _SMOOTHED)
    # Scott's rule, n^(-1/5), for the number of all values, not of those that are left.
    bandwidth = len(z) ** -0.2
    kernel = gaussian_kde(values, bw_method=bandwidth)
    # Two bandwidths beyond the extremes, where the density has nearly vanished.
    margin = 2 * float(values.std()) * bandwidth
    grid = np.linspace(z.min() - margin, z.max() + margin, _GRID)
    return grid, np.asarray(kernel(grid))


def _draw_box(ax: Any, z: Array, place: float, shade: Any) -> None:
    half = _HEIGHTS["box"]
    low, median, high = np.quantile(z, [0.25, 0.5, 0.75])
    reach = _WHISKER * (high - low)
    # Never empty, as it holds the values around the median. Whiskers end at a value, not at the bound.
    inside = z[(z >= low - reach) & (z <= high + reach)]
    beyond = z[(z < inside.min()) | (z > inside.max())]
    line = {"color": _DARK, "linewidth": 0.8, "zorder": 2}
    for start, end in ((inside.min(), low), (high, inside.max())):
        ax.plot([start, end], [place, place], **line)
    for end in (inside.min(), inside.max()):
        ax.plot([end, end], [place - half / 2, place + half / 2], **line)
    style = {"facecolor": shade, "edgecolor": _DARK, "linewidth": 0.8, "zorder": 2}
    ax.barh(place, high - low, left=low, height=2 * half, **style)
    # White under black, so that the median is visible in dark boxes too.
    for width, colour in ((3.5, "white"), (1.6, "black")):
        ends = [place - half, place + half]
        ax.plot([median, median], ends, color=colour, linewidth=width, solid_capstyle="butt", zorder=3)
    ax.plot(beyond, np.full(len(beyond), place), ".", color=_DARK, markersize=2.5, markeredgewidth=0, zorder=2)


def _write_loadings(ax: Any, places: Array, b: Array, heading: str) -> None:
    """Write the loadings to the right of the rows that have a name, below a heading."""
    # Names may have been thinned out, and a number without a name would be puzzling.
    named = set(ax.get_yticks().tolist())
    size = ax.get_yticklabels()[0].get_fontsize()
    style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center", "fontsize": size}
    for place, value in zip(places.tolist(), b, strict=True):
        if place in named:
            ax.annotate(f"{value:.3g}", (1, place), (8, 0), color="0.25", **style)
    ax.annotate(
        heading,
        (1, 1),
        (8, 0),
        xycoords="axes fraction",
        textcoords="offset points",
        va="bottom",
        fontsize=FONT_SIZE - 1,
        color="0.4",
    )
