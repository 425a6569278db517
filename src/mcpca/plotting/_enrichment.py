"""Gene sets at the poles of MCPCs: a dot for each set and pole, as the annotation in the paper's Fig. S3E."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.arguments import check_integer, check_real
from .._utils.component_names import component_indices
from .._utils.types import Array
from ._common import FONT_SIZE, SEQUENTIAL, axes_beside, axes_or_new, put_column_names, put_row_names, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIGNS = {"positive": "+", "negative": "−"}
_LARGEST_DOT = 150.0  # square points
_SMALLEST_DOT = 8.0


def plot_enrichment(table: Any, *, n: int = 3, q: float = 0.05, components: Any = None, ax: Axes | None = None) -> Axes:
    """Draw the gene sets that are enriched at the poles of MCPCs: sets are rows, poles are columns.

    Darker dots have smaller q-values, larger ones more genes of the set at the pole (a share of the set, or for ranked
    scores the probability that a gene of the set is nearer the pole than others). Dots without a frame are above ``q``.

    Parameters
    ----------
    table : DataFrame
        What ``mcpca.analysis.enrichment`` returned.
    n : int
        Sets of each pole that have a row, the most significant ones; a row shows all poles.
    q : float
        Largest q-value of a set that has a row. The paper requires 0.001.
    components : int, str or sequence of them, optional
        MCPCs by their place in the table or by name; by default all that have such a set.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of sets and poles.

    Returns
    -------
    matplotlib Axes
    """
    needed = {"component", "pole", "set", "size", "q"}
    if not hasattr(table, "columns") or not needed <= set(table.columns):
        raise TypeError(f"table is a {type(table).__name__} without gene sets; pass what analysis.enrichment returned.")
    n = check_integer(n, "n", 1)
    q = check_real(q, "q", 0, 1, "It is a q-value.")
    names = list(dict.fromkeys(str(name) for name in table["component"]))
    chosen = names if components is None else [names[j] for j in component_indices(components, names)]
    found = table[table["component"].isin(chosen) & (table["q"] <= q)]
    if found.empty:
        smallest = table["q"][table["component"].isin(chosen)].min()
        raise ValueError(f"q={q:g}: no set is as significant, the smallest q-value is {smallest:.2g}; raise q.")
    if components is None:
        chosen = [name for name in names if (found["component"] == name).any()]
    top = found.sort_values("q", kind="stable").groupby(["component", "pole"], sort=False).head(n)
    several = table["collection"].nunique() > 1 if "collection" in table.columns else False
    poles = [(name, pole) for name in chosen for pole in _SIGNS]
    # Sets in the order of the poles at which they are best, so that dots run down a diagonal.
    best = top.assign(column=[poles.index((c, p)) for c, p in zip(top["component"], top["pole"], strict=True)])
    best = best.sort_values(["column", "q"], kind="stable")
    sets = list(dict.fromkeys(_keys(best, several)))
    own = table[table["component"].isin(chosen)]
    kept = np.array([key in set(sets) for key in _keys(own, several)])
    own = own[kept]
    x = np.array([poles.index((c, p)) for c, p in zip(own["component"], own["pole"], strict=True)])
    y = np.array([sets.index(key) for key in _keys(own, several)])
    heights = -np.log10(np.maximum(own["q"].to_numpy(dtype=float), np.finfo(float).tiny))
    sizes, words = _sizes(own)
    labels = [f"{key[1]} ({key[0]})" if several else key[1] for key in sets]
    size = (min(max(0.36 * len(poles), 2.0), 10) + width_of(labels) + 2.2, min(max(0.28 * len(sets), 1.4), 10) + 1.1)
    ax = axes_or_new(ax, size)
    ax.set_xlim(-0.5, len(poles) - 0.5)
    ax.set_ylim(len(sets) - 0.5, -0.5)
    passes = own["q"].to_numpy(dtype=float) <= q
    areas = _SMALLEST_DOT + (_LARGEST_DOT - _SMALLEST_DOT) * sizes / (sizes.max() or 1)
    dots = ax.scatter(
        x,
        y,
        s=areas,
        c=heights,
        cmap=SEQUENTIAL,
        vmin=0,
        vmax=heights.max() or 1,
        edgecolors=np.where(passes, "black", "none").tolist(),
        linewidths=0.9,
        zorder=3,
    )
    put_row_names(ax, labels)
    put_column_names(ax, [f"{name} {_SIGNS[pole]}" for name, pole in poles])
    ax.grid(color="0.93", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(length=0)
    ax.spines[:].set_color("0.8")
    bar = ax.figure.colorbar(dots, cax=axes_beside(ax, 8, 12))
    bar.set_label("-log10 q", fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.outline.set_edgecolor("0.8")
    ax.set_title(f"frame: q ≤ {q:g}; larger: {words} (up to {sizes.max():.2g})", fontsize=FONT_SIZE)
    return ax


def _keys(table: Any, several: bool) -> list[tuple[str, str]]:
    """Return what a set is known by: its collection, if there are several, and its name."""
    names = [str(name) for name in table["set"]]
    collections = [str(name) for name in table["collection"]] if several else [""] * len(names)
    return list(zip(collections, names, strict=True))


def _sizes(table: Any) -> tuple[Array, str]:
    """Return what the size of a dot shows, and in words."""
    if "overlap" in table.columns:
        share = table["overlap"].to_numpy(dtype=float) / np.maximum(table["size"].to_numpy(dtype=float), 1)
        return share, "share of the set at the pole"
    # The negative pole is the other end of the same ranks.
    auc = table["auc"].to_numpy(dtype=float)
    flipped = np.where(table["pole"].to_numpy() == "negative", 1 - auc, auc)
    return flipped, "probability to be nearer the pole"
