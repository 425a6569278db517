"""Heatmap of the loadings B: how much of each MCPC every context carries.

Rows and columns can be clustered (``mcpca.context_tree``), columns bracketed by how widely MCPCs are shared
(``mcpca.sharing``), and contexts annotated (``_annotations``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._inference.replication import Replicability
from .._results.anndata_inference import stored_replicability
from .._results.context_values import context_values
from .._results.fitted import fitted
from .._utils.arguments import refuse_without_effect
from .._utils.optional import require
from .._utils.types import Array
from ..context_tree import similar_order
from ..sharing import SHARING_KINDS, how_shared
from ._annotations import (
    add_legend,
    draw_strips,
    legend_width,
    read_annotations,
    strips_width,
    write_letters,
)
from ._common import (
    CATEGORIES,
    CHARACTER_WIDTH,
    FONT_SIZE,
    LINE_HEIGHT,
    SEQUENTIAL,
    axes_or_new,
    settle,
    size_in_points,
    width_of,
)
from ._heatmap import add_bar, check_annotate, draw_heatmap, write_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_BAR_WIDTH = 78  # points that a colour bar takes beside a heatmap, with its numbers and label
_SCALES = {  # as they follow the word "loading"
    None: "(variance)",
    "component": "/ largest of its MCPC",
    "context": "/ largest of its context",
}
_NOT_FOUND_AGAIN = "(MCPC): not found again\nin halves of the {by}"
_ORDERS = ("given", "cluster", "groups")
_BRACKET_COLOURS = dict(zip(SHARING_KINDS, (*CATEGORIES[:3], "0.5"), strict=True))


def plot_loadings(
    source: Any,
    *,
    order: Literal["given", "cluster", "groups"] = "given",
    groups: Any = None,
    normalize: Literal["component", "context"] | None = None,
    corrected: bool = False,
    annotations: Any = None,
    annotate: bool | Literal["auto"] = "auto",
    replicability: Replicability | Literal["auto"] | None = "auto",
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw B as a heatmap: contexts are rows, MCPCs are columns.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or data with the fit of ``mcpca.tl.mcpca``.
    order : {"given", "cluster", "groups"}
        "given" keeps the order of contexts and MCPCs. "cluster" puts similar rows next to each other, and similar
        columns too (average linkage by the cosine of what is shown). "groups" clusters the rows, and brackets the
        columns as specific to one context, shared by some, or broad, by the effective number of contexts
        ``(sum_i b_ij^2)^2 / sum_i b_ij^4``: 1 is specific, a third of all contexts (and at least 3) broad.
    groups : optional
        With ``order="groups"``, contexts of a group count as one, for example cancer types of one organ. A dict
        {context: group}, a Series, values in the order of the contexts, or the name of a column of an AnnData's
        ``obs``; a context without a group is a group of its own.
    normalize : {None, "component", "context"}
        None shows the loadings. "component" divides each column by its maximum, which makes weak MCPCs readable;
        "context" divides each row, for contexts that vary little. Zeros stay.
    corrected : bool
        Whether to show ``corrected_loadings_``, without the noise of their context, rather than ``loadings_``, which
        are the fit itself.
    annotations : optional
        What is known about the contexts, drawn as thin columns to their left with a legend: a DataFrame indexed by
        context, a Series, a dict {context: value}, values in the order of the contexts, or a dict {title: any of
        these}. For an AnnData also the name of a column of ``obs`` that is constant within contexts, or a list of
        such names. Categories (at most 26) have a colour and a letter, numbers and dates a scale. A context without
        a value stays white.
    annotate : bool or "auto"
        Write the numbers into the cells; "auto" does so if there are few and they fit.
    replicability : Replicability, "auto" or None
        MCPCs that do not come back in its halves are named in brackets, with a note. "auto" takes what
        ``mcpca.tl.replicability`` stored in an AnnData.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of contexts and MCPCs.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Clustering k contexts and r MCPCs costs O(k^2 r + r^2 k), and O(k^3 + r^3) for the best order of up to 500.
    """
    fit = fitted(source, key)
    check_normalize(normalize)
    check_annotate(annotate)
    if order not in _ORDERS:
        raise ValueError(f"order={order!r}; choose one of {list(_ORDERS)}.")
    if order != "groups":
        refuse_without_effect("groups", groups, None, f"order={order!r} knows none", "drop it, or pass order='groups'")
    halves = _halves(replicability, source, key, len(fit.names))
    replicates = np.ones(len(fit.names), dtype=bool) if halves is None else halves.replicates
    group_codes = None if groups is None else _group_codes(groups, fit.contexts, source, key)
    strip_values = read_annotations(annotations, fit.contexts, source, key)
    # What is shown is also what is clustered: neighbours must look alike.
    compared = fit.compared(corrected)
    B = normalized(compared.values, normalize)
    rows = np.arange(len(B)) if order == "given" else similar_order(B)
    columns = np.arange(B.shape[1])
    kinds = None
    if order == "cluster":
        columns = similar_order(B.T)
    elif order == "groups":
        # Kinds are those of the loadings themselves, whatever is shown.
        columns, kinds = _columns_by_kind(compared.values, rows, group_codes)
    contexts = [fit.contexts[i] for i in rows]
    names = [fit.names[j] if replicates[j] else f"({fit.names[j]})" for j in columns]
    width, height = _figure_size(contexts, len(names))
    if strip_values:
        width = width + strips_width(strip_values) / 72 + legend_width(strip_values, height) + 0.2
    ax = axes_or_new(ax, (width, height))
    # annotate=False: whether numbers fit is known only after the layout.
    image = draw_loadings_heatmap(ax, B[np.ix_(rows, columns)], contexts, names, annotate=False)
    # Words that are longer than few contexts are high go on two lines.
    space = " " if width_of([f"{compared.name} {_SCALES[normalize]}"]) <= size_in_points(ax)[1] / 72 else "\n"
    add_bar(ax, image, f"{compared.name}{space}{_SCALES[normalize]}")
    if halves is not None and not replicates.all():
        ax.set_xlabel(_NOT_FOUND_AGAIN.format(by=halves.by), fontsize=FONT_SIZE)
    if strip_values:
        strips = draw_strips(ax, strip_values, rows, "left")
        add_legend(ax, strip_values, _BAR_WIDTH)
    # What follows depends on the final size of the cells.
    settle(ax)
    write_numbers(ax, image, partial(_loading_text, largest=float(B.max())), annotate)
    if strip_values:
        write_letters(strips, strip_values, rows)
    if kinds is not None:
        _draw_brackets(ax, kinds)
    return ax


def _halves(replicability: Any, source: Any, key: str, r: int) -> Replicability | None:
    """Return which of r MCPCs come back in halves; None if that is not known."""
    if isinstance(replicability, str) and replicability == "auto":
        replicability = stored_replicability(source, key)
    if replicability is None:
        return None
    if not isinstance(replicability, Replicability):
        raise TypeError(
            f"replicability is a {type(replicability).__name__}; pass what MCPCA.replicability returned, 'auto' or "
            "None."
        )
    if replicability.cosines.shape[1] != r:
        raise ValueError(
            f"replicability is of {replicability.cosines.shape[1]} MCPCs, and the fit has {r}; pass that of this fit."
        )
    return replicability


def check_normalize(normalize: Any) -> None:
    """Raise if ``normalize`` is none of the choices."""
    if normalize not in list(_SCALES):
        raise ValueError(f"normalize={normalize!r}; choose None, 'component' or 'context'.")


def normalized(B: Array, normalize: str | None) -> Array:
    """Return B with each column ("component") or row ("context") divided by its maximum; zeros stay."""
    if normalize is None:
        return B
    maxima = B.max(axis=0 if normalize == "component" else 1, keepdims=True)
    return np.asarray(B / np.where(maxima > 0, maxima, 1))


def draw_loadings_heatmap(
    ax: Axes,
    B: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    annotate: bool | Literal["auto"] = "auto",
    font_size: float = FONT_SIZE,
) -> AxesImage:
    """Draw any non-negative B (k, r) with the names of its rows and columns; names that do not fit are thinned out."""
    largest = float(B.max())
    image = draw_heatmap(ax, B, rows, columns, colours=SEQUENTIAL, largest=largest or 1, font_size=font_size)
    write_numbers(ax, image, partial(_loading_text, largest=largest), annotate, font_size)
    return image


def _group_codes(groups: Any, contexts: Sequence[str], source: Any, key: str) -> list[int]:
    """Return a number for the group of each context: the position of the first context in it."""
    read = context_values(groups, contexts, "groups", source=source, key=key, missing="drop")
    first: dict[Any, int] = {}
    pairs = zip(read.values.tolist(), read.missing.tolist(), strict=True)
    # A context without a group has the key (i,), which no value equals.
    return [first.setdefault((i,) if missing else value, i) for i, (value, missing) in enumerate(pairs)]


def _columns_by_kind(B: Array, rows: Array, group_codes: Sequence[int] | None) -> tuple[Array, list[str]]:
    """Return an order of the columns by kind, and the kinds in that order.

    Within "specific" and "shared", columns follow the rows that carry them, so that blocks run down a diagonal; broad
    ones stay in the order of the model, by total variance.
    """
    labels = how_shared(B, groups=group_codes).labels
    # The centre of gravity of a column over the rows as they are drawn.
    # Squares, as in ``how_shared``: small loadings in many rows would pull all centres to the middle.
    weights = B[rows] ** 2
    centres = np.arange(len(rows)) @ weights / np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
    place = np.where(np.isin(labels, ("specific", "shared")), centres, 0)
    # The last key of lexsort counts first: kinds, then places. It is stable, which keeps broad ones in order.
    columns = np.lexsort((place, np.array([SHARING_KINDS.index(label) for label in labels])))
    return columns, [str(label) for label in labels[columns]]


def _draw_brackets(ax: Axes, kinds: Sequence[str]) -> None:
    """Draw a line with its name above each run of one kind, and a line between runs."""
    transforms = require("matplotlib.transforms", "plot")
    # 4 points above the heatmap, whatever its height.
    above = transforms.ScaledTranslation(0, 4 / 72, ax.figure.dpi_scale_trans)
    place = ax.get_xaxis_transform() + above
    column_width = size_in_points(ax)[0] / len(kinds)
    # First column and length of each run.
    runs = {kind: (kinds.index(kind), kinds.count(kind)) for kind in dict.fromkeys(kinds)}
    fits = all((len(kind) + 1) * CHARACTER_WIDTH * FONT_SIZE <= n * column_width for kind, (_, n) in runs.items())
    centres = [start + (n - 1) / 2 for start, n in runs.values()]
    if not fits:  # names are vertical, and must be a line apart
        centres = _moved_apart(centres, LINE_HEIGHT * FONT_SIZE / column_width, len(kinds) - 1)
    for (kind, (start, n)), centre in zip(runs.items(), centres, strict=True):
        ends = (start - 0.4, start + n - 0.6)
        ax.plot(
            ends,
            (1, 1),
            transform=place,
            color=_BRACKET_COLOURS[kind],
            linewidth=2.5,
            solid_capstyle="butt",
            clip_on=False,
        )
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": FONT_SIZE, "rotation": 0 if fits else 90}
        ax.annotate(kind, (centre, 1), (0, 8), ("data", "axes fraction"), "offset points", **style)
        if start:
            ax.axvline(start - 0.5, color="0.3", linewidth=0.8)


def _moved_apart(centres: Sequence[float], gap: float, last: float) -> list[float]:
    """Return increasing positions at least ``gap`` apart: moved to the right, then back from the end, ``last``."""
    moved = list(centres)
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    # The last name may not leave the plot, unless it was there to begin with.
    moved[-1] = min(moved[-1], max(last, centres[-1]))
    for i in range(len(moved) - 2, -1, -1):
        moved[i] = min(moved[i], moved[i + 1] - gap)
    return moved


def _loading_text(value: float, largest: float) -> str:
    """Return ``value`` with as many decimals as give the largest value three digits."""
    if value == 0:
        return "0"
    if not 1e-3 <= largest < 1e5:
        return f"{value:.1e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(largest)))}f}"


def _figure_size(rows: Sequence[str], r: int) -> tuple[float, float]:
    """Return width and height in inches: cells, names of the rows and colour bar; cells and names of the columns."""
    width = min(max(0.65 * r, 2.5), 9) + width_of(rows) + 1.2
    height = min(max(0.4 * len(rows), 1.6), 9) + 0.8
    return width, height
