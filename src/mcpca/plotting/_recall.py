"""Recall of known links by what contexts are described by and by rank, as in the paper's Fig. S4J."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from ._common import (
    CATEGORIES,
    FONT_SIZE,
    LINE_HEIGHT,
    SEQUENTIAL,
    axes_or_new,
    put_row_names,
    settle,
    shorten,
    size_in_points,
    width_of,
)
from ._heatmap import add_bar, draw_heatmap, write_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVEL = 0.05
_CHANCE = "95% of chance"
_HATCHES = ("", "////", "....", "xx", "\\\\\\\\", "||", "--", "oo")


def plot_link_recall(table: Any, *, kind: Literal["auto", "bars", "heatmap"] = "auto", ax: Axes | None = None) -> Axes:
    """Draw the recall of known links between contexts, by collection of links and by description of contexts.

    Parameters
    ----------
    table : DataFrame
        What ``mcpca.analysis.link_recall`` returned: the best number of loadings or PCs for each, or with
        ``best=False`` all of them.
    kind : {"auto", "bars", "heatmap"}
        "bars": a bar for each collection and description, with a mark at the 95% quantile of chance. "heatmap": cells,
        with a column for each description and number; a cell with p < 0.05 has a frame. "auto" draws bars where each
        description has one number, and cells where it has several.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of collections.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    In cells of a table of best numbers, the number is in brackets below the recall. p-values are those of one row of
    the table each. Without permutations there are no marks and no frames.
    """
    needed = {"links", "features", "number", "recall"}
    if not hasattr(table, "columns") or not needed <= set(table.columns):
        raise TypeError(f"table is a {type(table).__name__} without recalls; pass what link_recall returned.")
    if kind not in ("auto", "bars", "heatmap"):
        raise ValueError(f"kind={kind!r}; choose 'auto', 'bars' or 'heatmap'.")
    rows = _row_names(table)
    features = list(dict.fromkeys(str(name) for name in table["features"]))
    # The most numbers that one description has in one row.
    several = int(table.assign(row=rows).groupby(["row", "features"], sort=False).size().max()) > 1
    if kind == "bars" and several:
        raise ValueError("table has several numbers of one description; pass kind='heatmap', or link_recall's best.")
    if kind == "bars" or (kind == "auto" and not several):
        return _draw_bars(table, rows, features, ax)
    return _draw_cells(table, rows, features, several, ax)


def _row_names(table: Any) -> list[str]:
    """Return the name of the collection of each row, with the largest size of its sets where there are several."""
    sizes = table["max_size"] if "max_size" in table.columns else [None] * len(table)
    by_links: dict[str, set[Any]] = {}
    for links, size in zip(table["links"], sizes, strict=True):
        by_links.setdefault(str(links), set()).add(None if size != size else size)
    return [
        str(links) if len(by_links[str(links)]) == 1 or size is None or size != size else f"{links}, sets to {size:g}"
        for links, size in zip(table["links"], sizes, strict=True)
    ]


def _draw_bars(table: Any, rows: list[str], features: list[str], ax: Axes | None) -> Axes:
    names = list(dict.fromkeys(rows))
    place = {name: i for i, name in enumerate(names)}
    ax = axes_or_new(ax, (5.6 + width_of(names), min(max(0.17 * len(names) * (len(features) + 1), 1.6), 10) + 0.8))
    height = 0.82 / len(features)
    y = np.array([place[name] for name in rows], dtype=float)
    g = np.array([features.index(str(name)) for name in table["features"]])
    y += (g - (len(features) - 1) / 2) * height
    recall = table["recall"].to_numpy(dtype=float)
    for i, name in enumerate(features):
        own = g == i
        # Grey for means alone, which all others are compared with.
        colour = "0.62" if i == 0 else CATEGORIES[(i - 1) % len(CATEGORIES)]
        hatch = _HATCHES[i % len(_HATCHES)]
        look: dict[str, Any] = {"color": colour, "edgecolor": "white", "linewidth": 0, "hatch": hatch}
        ax.barh(y[own], recall[own], 0.92 * height, label=name, zorder=2, **look)
    upper = table["chance_upper"].to_numpy(dtype=float) if "chance_upper" in table.columns else np.full(len(y), np.nan)
    known = np.isfinite(upper)
    if known.any():
        length = max(3.0, 0.6 * size_in_points(ax)[1] / (len(y) + 1))
        # White under black, to be visible on hatched bars.
        for line, colour, label in ((3.6, "white", None), (1.4, "black", _CHANCE)):
            marks: dict[str, Any] = {"color": colour, "markersize": length, "markeredgewidth": line}
            ax.plot(upper[known], y[known], "|", label=label, zorder=3, **marks)
    ax.set_ylim(len(names) - 0.5, -0.5)
    put_row_names(ax, names)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=FONT_SIZE)
    ax.set_xlim(0, 1.08 * max([*recall, *upper[known]], default=1))
    ax.set_xlabel("recall of known links", fontsize=FONT_SIZE)
    ax.spines[["top", "right"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    # Lines come before bars; the mark of chance belongs below them.
    order = sorted(range(len(labels)), key=lambda i: labels[i] == _CHANCE)
    style: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0, "frameon": False}
    ax.legend([handles[i] for i in order], [labels[i] for i in order], fontsize=FONT_SIZE, **style)
    return ax


def _draw_cells(table: Any, rows: list[str], features: list[str], several: bool, ax: Axes | None) -> Axes:
    names = list(dict.fromkeys(rows))
    keys = [
        (str(name), int(number) if several else None)
        for name, number in zip(table["features"], table["number"], strict=True)
    ]
    columns = sorted(set(keys), key=lambda one: (features.index(one[0]), one[1] or 0))
    i = [names.index(name) for name in rows]
    j = [columns.index(one) for one in keys]
    # NaN where a collection was not examined with a number.
    recall = np.full((len(names), len(columns)), np.nan)
    recall[i, j] = table["recall"]
    p = np.full(recall.shape, np.nan)
    if "p" in table.columns:
        p[i, j] = table["p"]
    width = min(max((0.62 if several else 1.1) * len(columns), 2.4), 10) + width_of(names) + 1.2
    ax = axes_or_new(ax, (width, min(max(0.36 * len(names), 1.2), 9) + 1.3))
    colours = require("matplotlib", "plot").colormaps[SEQUENTIAL].with_extremes(bad="0.85")
    titles = ["" if number is None else str(number) for _, number in columns]
    largest = float(np.nanmax(recall)) or 1.0
    image = draw_heatmap(ax, recall, names, titles, colours=colours, largest=largest)
    add_bar(ax, image, "recall of known links")
    square = require("matplotlib.patches", "plot").Rectangle
    for a, b in np.argwhere(p < _LEVEL):
        ax.add_patch(square((b - 0.46, a - 0.44), 0.92, 0.88, fill=False, edgecolor="black", linewidth=1.4, zorder=3))
    notes = ["number of loadings or PCs added" if several else "in brackets: the best number"]
    notes += ["frame: p < 0.05 against exchanged names"] * bool(np.isfinite(p).any())
    ax.set_xlabel("\n".join(notes), fontsize=FONT_SIZE)
    _bracket_columns(ax, columns)
    settle(ax)
    if several:
        write_numbers(ax, image, lambda value: f"{value:.2f}", "auto")
    else:
        _write_best(ax, image, recall, _numbers(table, i, j, recall.shape))
    return ax


def _numbers(table: Any, i: list[int], j: list[int], shape: tuple[int, ...]) -> Array:
    numbers = np.zeros(shape, dtype=int)
    numbers[i, j] = table["number"]
    return numbers


def _write_best(ax: Any, image: Any, recall: Array, numbers: Array) -> None:
    """Write recalls into their cells, and below each the number that had it; 0 is none, of means alone."""
    two_lines = size_in_points(ax)[1] / len(recall) > 2 * LINE_HEIGHT * FONT_SIZE
    before = len(ax.texts)
    write_numbers(ax, image, lambda value: f"{value:.2f}", "auto")
    for text in ax.texts[before:]:
        b, a = (round(one) for one in text.get_position())
        if numbers[a, b]:
            text.set_text(text.get_text() + ("\n" if two_lines else " ") + f"({numbers[a, b]})")


def _bracket_columns(ax: Any, columns: list[tuple[str, int | None]]) -> None:
    """Write the name of each description above its columns, and a line between descriptions."""
    kinds = [name for name, _ in columns]
    for name in dict.fromkeys(kinds):
        start, n = kinds.index(name), kinds.count(name)
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": FONT_SIZE - 1}
        place = (start + (n - 1) / 2, 1)
        # "mean PCs + loadings" over few columns is cut after the plus.
        text = shorten(name, 40).replace(" + ", "\n+ ")
        ax.annotate(text, place, (0, 3), ("data", "axes fraction"), "offset points", **style)
        if start:
            ax.axvline(start - 0.5, color="0.2", linewidth=1.2)
