"""An MCPC among PCs, by two measures of similarity: every PC is a point, as in the paper's Fig. 4E-F."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._utils.component_names import component_index
from ._common import CATEGORIES, FONT_SIZE, MARK, MARKERS, axes_or_new, shorten
from ._labels import place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Measure = Literal["cosine", "variance_correlation", "overlap"]
_OVERALL = "all rows"
_NAMED = 3  # PCs that are closest to the MCPC
_LONGEST = 24  # characters of a set of rows
_LABELS = {
    "cosine": "|cos| of the axes",
    "variance_correlation": "correlation of variances over contexts",
    "overlap": "share of the {n} rows at an end",
}
_LOWEST = {"cosine": 0.0, "variance_correlation": -1.0, "overlap": 0.0}


def plot_pca_comparison(
    result: Any,
    component: Any = 0,
    *,
    x: Measure = "overlap",
    y: Measure = "variance_correlation",
    ax: Axes | None = None,
) -> Axes:
    """Draw how similar each PC is to one MCPC, by two measures; a PC that equals the MCPC would be at the star.

    Parameters
    ----------
    result : PCAComparison
        What ``mcpca.analysis.compare_with_pca`` returned.
    component : int or str
        The MCPC, by its place among those of the result or by name.
    x, y : {"cosine", "variance_correlation", "overlap"}
        The measures along the axes; the paper has those of the defaults.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    PCs of all rows and of each context or group have markers of their own; if there are more than 7 contexts, these
    share one. Dotted lines are the best PC of all rows by chance, by either measure: on average over random axes, or
    over loadings that contexts have exchanged. The three PCs closest to the star are named.
    """
    if not hasattr(result, "pairs") or not hasattr(result, "best"):
        raise TypeError(f"result is a {type(result).__name__}; pass what analysis.compare_with_pca returned.")
    for name, measure in (("x", x), ("y", y)):
        if measure not in _LABELS:
            raise ValueError(f"{name}={measure!r}; choose one of {list(_LABELS)}.")
    if x == y:
        raise ValueError(f"x and y are both {x!r}; choose two different measures.")
    names = list(dict.fromkeys(str(name) for name in result.pairs["component"]))
    mcpc = names[component_index(component, names)]
    pairs = result.pairs[result.pairs["component"] == mcpc]
    sets = list(dict.fromkeys(pairs["rows"]))
    others = [name for name in sets if name != _OVERALL]
    together = len(others) > len(MARKERS) - 1
    ax = axes_or_new(ax, (6.2, 3.9))
    labels = [f"{len(others)} contexts"] if together else [shorten(name, _LONGEST) for name in others]
    members = [pairs["rows"] != _OVERALL] if together else [pairs["rows"] == name for name in others]
    for i, (label, own) in enumerate(zip(["all rows", *labels], [pairs["rows"] == _OVERALL, *members], strict=True)):
        ax.scatter(
            pairs[x][own],
            pairs[y][own],
            s=22,
            # Black for all rows, which belong to no context; yellow, the lightest, is used last.
            color="0.15" if i == 0 else CATEGORIES[(i - 1) % (len(CATEGORIES) - 1)],
            marker=MARKERS[i % len(MARKERS)],
            edgecolors="white",
            linewidths=0.4,
            alpha=0.85,
            label=label,
            zorder=3 if i == 0 else 2,
        )
    ax.plot(1, 1, "*", color=MARK, markersize=13, markeredgecolor="white", label=mcpc, clip_on=False, zorder=4)
    _draw_chance(ax, result, mcpc, x, y)
    for set_limits, measure in ((ax.set_xlim, x), (ax.set_ylim, y)):
        # Correlations begin at 0 where none is below.
        low = _LOWEST[measure] if pairs[measure].min() < 0 else 0.0
        set_limits(low - 0.04 * (1 - low), 1.06)
    ax.set_xlabel(_LABELS[x].format(n=result.n_top), fontsize=FONT_SIZE)
    ax.set_ylabel(_LABELS[y].format(n=result.n_top), fontsize=FONT_SIZE)
    ax.set_title(f"PCs beside {mcpc}", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    style: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "title_fontsize": FONT_SIZE, "borderaxespad": 0}
    ax.legend(title="PCs of", loc="upper left", bbox_to_anchor=(1.02, 1), **style)
    known = pairs[np.isfinite(pairs[x]) & np.isfinite(pairs[y])]
    points = known[[x, y]].to_numpy(dtype=float)
    order = np.argsort(np.hypot(1 - points[:, 0], 1 - points[:, 1]), kind="stable")[:_NAMED]
    texts = [_name(known.iloc[i]) for i in order]
    # No name covers the star, which is larger than a point.
    star = 1 + np.array([[0, 0], [-0.02, 0], [0.02, 0], [0, -0.02], [0, 0.02]])
    blocked = np.vstack([points, star])
    place_labels(ax, points[order], texts, obstacles=blocked, gaps=(4, 10, 18), font_size=FONT_SIZE - 2, color="0.3")
    return ax


def _draw_chance(ax: Any, result: Any, mcpc: str, x: str, y: str) -> None:
    """Draw the best of all PCs by chance as a dotted line across either axis."""
    best = result.best[(result.best["component"] == mcpc) & (result.best["rows"] == _OVERALL)].iloc[0]
    if f"{x}_chance" not in best:  # n_random=0
        return
    style: dict[str, Any] = {"color": "0.5", "linestyle": ":", "linewidth": 1, "zorder": 1}
    if np.isfinite(best[f"{x}_chance"]):
        ax.axvline(best[f"{x}_chance"], label="best by chance", **style)
    if np.isfinite(best[f"{y}_chance"]):
        ax.axhline(best[f"{y}_chance"], **style)


def _name(row: Any) -> str:
    """Return what a PC is called: "PC 3", or "PC 3 of fiction"."""
    return f"PC {row['pc']}" + ("" if row["rows"] == _OVERALL else f" of {shorten(row['rows'], 16)}")
