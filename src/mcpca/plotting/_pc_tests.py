"""What PCA sees of a covariate: p-values of overall PCs with the line of an MCPC, as in the paper's Fig. 3J."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._utils.component_names import component_indices
from .._utils.optional import require
from .._utils.types import Array
from ._common import BLUE, CATEGORIES, FONT_SIZE, MARK, axes_or_new, shorten
from ._forest import p_text
from ._labels import place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 10  # PCs
_WHAT = {"sd": ("pc_sds", "PC standard deviations"), "mean": ("pc_means", "PC means")}


def plot_pc_p_values(
    result: Any,
    components: Any = None,
    *,
    of: Literal["auto", "sd", "mean"] = "auto",
    ax: Axes | None = None,
) -> Axes:
    """Draw the p-value of each overall PC against the covariate, and those of MCPCs as lines.

    An MCPC whose line is above all points goes with the covariate more closely than any PC does.

    Parameters
    ----------
    result : Association
        What ``mcpca.analysis.associate`` returned, given rows.
    components : int, str or sequence of them, optional
        The MCPCs whose p-values are drawn, by column or name, at most 8; by default those that are significant, or the
        one with the smallest p-value.
    of : {"auto", "sd", "mean"}
        Which p-values of PCs: of their standard deviations in the contexts, or of their means. "auto" takes those that
        the MCPCs were compared with: means if means of scores were tested, and otherwise standard deviations.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    p-values are those of one test each ("p" in the tables): with several tests the largest, as in the paper. The dotted
    line is what a PC needs to be significant after Bonferroni's correction for the number of PCs; PCs above it are
    filled and named. An MCPC needs less or more, by the number of MCPCs. PCs without a test are left out.
    """
    if not hasattr(result, "pc_sds") or not hasattr(result, "table"):
        raise TypeError(f"result is a {type(result).__name__}; pass what analysis.associate returned.")
    if of not in ("auto", *_WHAT):
        raise ValueError(f"of={of!r}; choose 'auto', 'sd' or 'mean'.")
    if result.pc_sds is None:
        raise ValueError("result has no tests of PCs; call associate with rows (X and y) and n_pcs > 0.")
    names = [str(name) for name in result.table.index]
    mcpc_p = result.table["p"].to_numpy(dtype=float)
    chosen = component_indices(components, names) if components is not None else _default(result, mcpc_p)
    if len(chosen) > len(CATEGORIES):
        raise ValueError(f"components has {len(chosen)} entries, and lines can be told apart for up to 8; draw some.")
    field, word = _WHAT[("mean" if result.of == "mean" else "sd") if of == "auto" else of]
    table = getattr(result, field)
    p = table["p"].to_numpy(dtype=float)
    known = np.isfinite(p)
    number = np.arange(1, len(p) + 1)
    heights = _heights(p)
    significant = known & table["significant"].to_numpy(dtype=bool)
    bound = float(_heights(np.array([result.alpha / len(p)]))[0])
    lines = _heights(mcpc_p[chosen])
    ax = axes_or_new(ax, (5.6, 3.4))
    style: dict[str, Any] = {"s": 20 if len(p) <= 100 else 9, "edgecolors": BLUE, "linewidths": 0.8, "zorder": 3}
    # Open below the bound, filled above it.
    for members, face in ((known & ~significant, "white"), (significant, BLUE)):
        ax.scatter(number[members], heights[members], facecolors=face, **style)
    ax.axhline(bound, color="0.5", linestyle=":", linewidth=1, zorder=1)
    colours = (MARK, *CATEGORIES[2:]) if len(chosen) > 1 else (MARK,)
    styles = ("-", "--", "-.", ":", *[(0, (1 + i, 1)) for i in range(4)])
    for i, (j, height) in enumerate(zip(chosen, lines, strict=True)):
        text = f"{names[j]}, p = {p_text(mcpc_p[j])}"
        ax.axhline(height, color=colours[i % len(colours)], linestyle=styles[i], linewidth=1.5, label=text, zorder=2)
    top = max([bound, *heights[known].tolist(), *lines[np.isfinite(lines)].tolist()])
    ax.set_ylim(-0.03 * top, 1.1 * top)
    ax.set_xlim(0, len(p) + 1)
    ax.xaxis.set_major_locator(require("matplotlib.ticker", "plot").MaxNLocator(8, integer=True, min_n_ticks=1))
    ax.set_xlabel("overall PC", fontsize=FONT_SIZE)
    ax.set_ylabel(f"-log10 p of {word}", fontsize=FONT_SIZE)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    n_below = int((p[known] <= np.nanmin(mcpc_p[chosen])).sum()) if np.isfinite(mcpc_p[chosen]).any() else 0
    ax.set_title(
        f"{shorten(str(result.covariate), 40)}: {n_below} of {len(p)} PCs have as small a p-value\n"
        f"dotted: {result.alpha:g} / {len(p)}",
        fontsize=FONT_SIZE,
    )
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, frameon=False, fontsize=FONT_SIZE)
    order = np.flatnonzero(significant)[np.argsort(-heights[significant], kind="stable")][:_MOST_NAMED]
    points = np.column_stack([number, np.where(known, heights, 0)])
    texts = [str(table.index[i]) for i in order]
    place_labels(ax, points[order], texts, obstacles=points[known], gaps=(4, 10), font_size=FONT_SIZE - 2)
    return ax


def _default(result: Any, p: Array) -> list[int]:
    """Return the MCPCs that are significant, or the one with the smallest p-value."""
    found = np.flatnonzero(result.table["significant"].to_numpy(dtype=bool))[: len(CATEGORIES)].tolist()
    return found or [int(np.argmin(np.where(np.isnan(p), np.inf, p)))]


def _heights(p: Array) -> Array:
    """Return -log10 of p-values; one that has underflowed is as high as the smallest number allows."""
    return np.asarray(-np.log10(np.maximum(p, np.finfo(float).tiny)))
