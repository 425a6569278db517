"""Rows of several contexts on one plane, with the PCs of each and the MCPCs of all: the paper's Figures 1A and 2A.

``plot_plane`` looks at one context and at scores; this looks at what differs between contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.fitted import fitted
from .._results.fitted_rows import RowsByContext, rows_of_fit, sampled_rows
from .._results.row_pca import principal_directions
from .._utils.arguments import check_integer, check_real
from .._utils.component_names import component_indices, context_index
from .._utils.types import Array
from ._common import CATEGORIES, FONT_SIZE, MARKERS, axes_or_new, shorten
from ._plane import check_pcs, default_length, draw_arrows, leading_directions, longest_arrows, set_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = len(MARKERS)  # contexts that can be told apart
_SMALLEST_AREA = 4.0  # of a marker, in square points
_LARGEST_AREA = 22.0
_INK = 7000  # area of all markers together, within these bounds
_LONGEST = 24  # characters of the name of a context


def plot_contexts(
    source: Any,
    X: Any = None,
    y: Any = None,
    *,
    contexts: Sequence[Any] | None = None,
    components: Any = None,
    pcs: tuple[int, int] = (0, 1),
    own_pcs: int = 2,
    center: Literal["context", "overall"] = "context",
    arrow: float | None = None,
    max_rows: int = 3000,
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw rows of several contexts along two overall PCs, with the PCs of each context and the MCPCs that vary there.

    Within-context PCs are lines in the colour of their context, at right angles in all features; MCPCs are black arrows
    and need not be. For one panel per context, as in the paper, draw each on axes of its own by ``contexts=[name]``:
    the plane is the same for all.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or an AnnData with a fit, whose rows are drawn in the space of the fit.
    X, y
        For a model: rows with their contexts in any form that ``fit`` accepts, except Dask. An AnnData brings its own.
    contexts : sequence of names, optional
        At most 8 contexts; by default all, or the 8 with the most rows.
    components : int, str or sequence of them, optional
        The MCPCs to draw, by column (0 is MCPC 1) or name. By default those with the longest arrows, at most 8, and
        none shorter than a fifth of the longest.
    pcs : (int, int)
        Which principal components of the rows of all contexts together; 0 is the first.
    own_pcs : int
        How many principal components of each context to draw; 0 for none.
    center : {"context", "overall"}
        Subtract the mean of each context, as the model does, or that of all rows, which keeps contexts apart; its PCs
        then cross at the mean of the context, and arrows start at that of all rows.
    arrow : float, optional
        Length of arrows and lines in standard deviations: the arrow of MCPC j ends at the projection of
        ``arrow sqrt(b_ij) a_j`` for the context drawn in which b_ij is largest. By default 2, or the larger whole
        number that brings the longest arrow near the rim of the points; it is written above the plot.
    max_rows : int
        If there are more rows, a random sample of about this size is drawn, always the same one, with each context's
        share of it. PCs are then those of the sample.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Both axes have the same scale, so angles are those of the projections. Contexts differ in colour and marker.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.plotting import plot_contexts
    >>> truth = make_contexts(n_contexts=3, n_features=6, n_components=3, random_state=0)
    >>> model = MCPCA(n_components=3, random_state=0).fit(truth.X, truth.y)
    >>> ax = plot_contexts(model, truth.X, truth.y, contexts=[0, 2])  # the contexts called 0 and 2
    """
    fit = fitted(source, key)
    first, second = check_pcs(pcs)
    own_pcs = check_integer(own_pcs, "own_pcs", 0)
    arrow = None if arrow is None else check_real(arrow, "arrow", 0, np.inf)
    max_rows = check_integer(max_rows, "max_rows", 3)
    if center not in ("context", "overall"):
        raise ValueError(f"center={center!r}; choose 'context' or 'overall'.")
    space = rows_of_fit(source, fit, key, X, y)
    drawn = _chosen_contexts(contexts, fit.contexts, space)
    picked = None if components is None else component_indices(components, fit.names)
    # The plane of all contexts, whichever are drawn: panels of single contexts can be compared.
    everything = sampled_rows(space, np.flatnonzero(space.contexts.n_samples).tolist(), max_rows)
    plane = leading_directions(everything.rows, max(first, second), "X")
    V = plane.vectors[:, [first, second]]
    sizes = np.array([space.contexts.n_samples[space.position(i, fit.contexts)] for i in drawn])
    shares = np.maximum(np.minimum(sizes, np.round(max_rows * sizes / sizes.sum())), np.minimum(sizes, 3)).astype(int)
    # points[i] (m_i, 2), lines[i] (own PCs, 2), of one standard deviation
    points, lines = [], []
    for i, most in zip(drawn, shares, strict=True):
        rows = sampled_rows(space, [space.position(i, fit.contexts)], int(most)).rows
        products = np.asarray(rows @ V, dtype=np.float64)
        points.append(products - (products.mean(axis=0) if center == "context" else plane.mean @ V))
        m = min(own_pcs, rows.shape[0] - 1, rows.shape[1])
        lines.append(_lines_of_one_sd(rows, m, V) if m > 0 else np.zeros((0, 2)))
    # Tips of one standard deviation in the context that varies most along the MCPC (r, 2).
    one_sd = np.sqrt(fit.loadings[drawn].max(axis=0))[:, None] * (space.components.T @ V)
    chosen = longest_arrows(one_sd) if picked is None else picked
    arrow = default_length(one_sd[chosen], np.vstack(points)) if arrow is None else arrow
    tips = arrow * one_sd[chosen]

    ax = axes_or_new(ax, (6.0, 4.6))
    names = [shorten(fit.contexts[i], _LONGEST) for i in drawn]
    # The look of a context is the same in every panel, unless there are more contexts than looks.
    looks = drawn if len(fit.contexts) <= _MOST else list(range(len(drawn)))
    _draw_points(ax, points, names, looks)
    ends = [p.mean(axis=0) + sign * arrow * own for p, own in zip(points, lines, strict=True) for sign in (-1, 1)]
    set_limits(ax, np.vstack([*points, *ends]), tips)
    for look, p, own in zip(looks, points, lines, strict=True):
        _draw_lines(ax, p.mean(axis=0), arrow * own, CATEGORIES[look])
    draw_arrows(ax, tips, [fit.names[j] for j in chosen])
    for set_label, index in ((ax.set_xlabel, first), (ax.set_ylabel, second)):
        share = plane.variances[index] / plane.total if plane.total > 0 else 0.0
        set_label(f"PC {index + 1} of all rows ({share:.0%} of variance)", fontsize=FONT_SIZE)
    n_drawn = sum(map(len, points))
    n_rows = f"{n_drawn:,} of {sizes.sum():,} rows" if n_drawn < sizes.sum() else f"{n_drawn:,} rows"
    what = ["arrows: MCPCs"] * bool(chosen) + ["lines: PCs of a context"] * bool(own_pcs)
    scale = f"{', '.join(what)}, {arrow:g} sd" if what else ""
    ax.set_title("\n".join(part for part in (n_rows, scale) if part), fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    style: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "title_fontsize": FONT_SIZE, "borderaxespad": 0}
    legend: Any = ax.legend(title="context", loc="upper left", bbox_to_anchor=(1.02, 1), **style)
    for handle in legend.legend_handles:
        handle.set_sizes([_LARGEST_AREA])
    return ax


def _chosen_contexts(contexts: Any, names: Sequence[str], space: RowsByContext) -> list[int]:
    """Return the positions of the contexts to draw: those asked for, or those with rows, the most at most."""
    if contexts is None:
        counts = [0 if place < 0 else int(space.contexts.n_samples[place]) for place in space.order]
        with_rows = [i for i, n in enumerate(counts) if n]
        largest = sorted(with_rows, key=lambda i: -counts[i])[:_MOST]
        return sorted(largest)
    wanted = [contexts] if isinstance(contexts, (str, int)) else list(contexts)
    chosen = list(dict.fromkeys(context_index(name, names, "contexts: entry") for name in wanted))
    if not 1 <= len(chosen) <= _MOST:
        raise ValueError(
            f"contexts names {len(chosen)} contexts, and 1 to {_MOST} can be told apart; draw some at a time."
        )
    return chosen


def _lines_of_one_sd(rows: Any, m: int, V: Array) -> Array:
    """Return the first m PCs of rows (n, q), one standard deviation long, on the plane V (q, 2): (m, 2)."""
    own = principal_directions(rows, m)
    return np.asarray(np.sqrt(own.variances)[:, None] * (own.vectors.T @ V))


def _draw_points(ax: Any, points: Sequence[Array], names: Sequence[str], looks: Sequence[int]) -> None:
    """Draw the rows of all contexts, in a fixed random order so that none hides the others."""
    n = sum(map(len, points))
    area = float(np.clip(_INK / n, _SMALLEST_AREA, _LARGEST_AREA))
    look: dict[str, Any] = {"s": area, "alpha": 0.6, "linewidths": 0, "rasterized": n > 2000}
    # In slices, one of each context after the other: a marker is one collection, and cannot be mixed with others.
    for piece in range(4):
        for k, own in enumerate(points):
            part = own[piece::4]
            label = names[k] if piece == 0 else None
            style: dict[str, Any] = {"color": CATEGORIES[looks[k]], "marker": MARKERS[looks[k]], "label": label}
            ax.scatter(part[:, 0], part[:, 1], zorder=2, **style, **look)
    for side in ("axvline", "axhline"):
        getattr(ax, side)(0, color="0.85", linewidth=0.8, zorder=1)


def _draw_lines(ax: Any, middle: Array, halves: Array, colour: str) -> None:
    """Draw a line through ``middle`` for each PC of a context; ``halves`` (m, 2) are from there to one end."""
    for half in halves:
        ends = np.stack([middle - half, middle + half])
        # White under the colour, to be visible on points of the same colour.
        for width, shade in ((4.2, "white"), (2.4, colour)):
            ax.plot(*ends.T, color=shade, linewidth=width, solid_capstyle="round", zorder=3)
