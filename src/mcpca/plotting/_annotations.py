"""What is known about the contexts, as thin columns of colour beside a plot whose rows are contexts.

Categories have a colour and a letter, so that they can be told apart in black and white too; numbers and dates have a
scale from light to dark. One legend at the right explains all columns. ``plot_loadings`` and ``plot_context_tree`` read
``annotations=`` by ``read_annotations``, draw by ``draw_strips`` and ``add_legend``, and call ``write_letters`` once
the layout has given the columns their final height.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from .._data.detect import is_anndata
from .._results.context_values import ContextValues, context_values
from .._utils.optional import require
from .._utils.types import Array
from ._common import (
    CATEGORIES,
    FONT_SIZE,
    LINE_HEIGHT,
    axes_beside,
    points_from,
    shorten_all,
    size_in_points,
    width_of,
)
from ._heatmap import is_dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIP_WIDTH = 11  # points of a column
_STRIP_GAP = 3  # points between columns
_LETTERS = string.ascii_uppercase
_NUMBER_SCALE = "Purples"  # distinct from the blue of the loadings
_LIGHTEST = 0.2  # start of that scale: the smallest number must not look as if it were missing
_FILL_ORDER = (0, 1, 6, 7, 5, 2, 4, 3)  # indices into CATEGORIES; the first five differ in black and white too
_TINTS = (1, 0.55, 0.3, 0.15)  # saturation of the first eight categories, the next eight, ...
_MISSING = (1.0, 1.0, 1.0, 1.0)


class Annotation(NamedTuple):
    """A column: its title and the values of the contexts."""

    title: str
    values: ContextValues


def read_annotations(annotations: Any, contexts: Sequence[str], source: Any, key: str) -> list[Annotation]:
    """Read ``annotations=``; ``plot_loadings`` documents the forms it may have."""
    if annotations is None:
        return []
    parts = _titled_parts(annotations, contexts, is_anndata(source))
    if not parts:
        raise ValueError("annotations is empty; pass at least one value for each context, or None.")
    columns = []
    for title, values in parts:
        name = f"annotations[{title!r}]" if title else "annotations"
        # A context without a value stays white instead of making the plot fail.
        column = context_values(values, contexts, name, source=source, key=key, missing="drop")
        if len(column.categories) > len(_LETTERS):
            raise ValueError(
                f"{name} has {len(column.categories)} categories, and at most {len(_LETTERS)} can be told apart; merge "
                "some of them, or pass numbers."
            )
        columns.append(Annotation(title, column))
    return columns


def strips_width(annotations: Sequence[Annotation]) -> float:
    """Return the points that the columns take."""
    return len(annotations) * (_STRIP_WIDTH + _STRIP_GAP)


def draw_strips(
    ax: Axes, annotations: Sequence[Annotation], order: Array, side: Literal["left", "right"]
) -> list[Axes]:
    """Draw a column per annotation beside ``ax``, whose rows are the contexts in ``order``, and make room for them.

    The names of the rows are moved away from ``ax`` by the width of the columns.
    """
    # May be upside down, as rows of a heatmap count from the top.
    low, high = ax.get_ylim()
    strips = []
    for m, annotation in enumerate(annotations):
        # The first annotation is leftmost on either side.
        place = m if side == "right" else len(annotations) - 1 - m
        strip = axes_beside(ax, _STRIP_GAP + place * (_STRIP_WIDTH + _STRIP_GAP), _STRIP_WIDTH, side)
        # (k, 1, 4): one pixel for each context
        strip.imshow(_colours(annotation.values)[order][:, None], aspect="auto", interpolation="nearest")
        strip.set_ylim(low, high)
        strip.set_yticks([])
        strip.set_xticks([0], labels=shorten_all([annotation.title]), rotation=90, fontsize=FONT_SIZE)
        strip.tick_params(length=0)
        strip.spines[:].set_color("0.8")
        if side == "right":  # the numbers of the x axis are below
            strip.xaxis.tick_top()
        strips.append(strip)
    ax.tick_params(axis="y", pad=strips_width(annotations) + 3)
    return strips


def write_letters(strips: Sequence[Axes], annotations: Sequence[Annotation], order: Array) -> None:
    """Write the letter of a category once into each run of rows that is high enough for it."""
    for strip, (_, values) in zip(strips, annotations, strict=True):
        if values.kind != "category":
            continue
        # Runs of equal neighbours share a letter: with many contexts single rows are too low for one.
        row_height = size_in_points(strip)[1] / len(order)
        dark = is_dark(_palette(len(values.categories)))
        start = 0
        for code, run in itertools.groupby(values.values[order].tolist()):
            n = len(list(run))
            if code >= 0 and n * row_height >= FONT_SIZE:
                style: dict[str, Any] = {"fontsize": FONT_SIZE - 1, "color": "white" if dark[code] else "black"}
                strip.text(0, start + (n - 1) / 2, _LETTERS[code], ha="center", va="center_baseline", **style)
            start += n


def add_legend(ax: Axes, annotations: Sequence[Annotation], offset: float) -> None:
    """Explain the columns in a legend ``offset`` points to the right of ``ax``."""
    patch = require("matplotlib.patches", "plot").Patch
    handles = []
    labels = []
    for annotation in annotations:
        if annotation.title:
            handles.append(patch(alpha=0))  # titles have no colour, by which they are recognised below
            labels.append(annotation.title)
        for colour, label in _legend_entries(annotation.values):
            handles.append(patch(facecolor=colour, edgecolor="0.8", linewidth=0.8))
            labels.append(label)
    legend = ax.legend(
        handles,
        shorten_all(labels),
        loc="upper left",
        bbox_to_anchor=(offset, 1),
        bbox_transform=points_from(ax, "right"),
        borderaxespad=0,
        frameon=False,
        fontsize=FONT_SIZE,
        handlelength=1,
        # More columns rather than a legend that is higher than the plot.
        ncols=_legend_columns(labels, size_in_points(ax)[1]),
    )
    for text, handle in zip(legend.get_texts(), handles, strict=True):
        if handle.get_alpha() == 0:
            text.set_fontweight("bold")


def legend_width(annotations: Sequence[Annotation], height: float) -> float:
    """Return the inches that the legend takes beside axes of ``height`` inches."""
    labels = [a.title for a in annotations if a.title]
    labels += [label for a in annotations for _, label in _legend_entries(a.values)]
    return (width_of(labels) + 0.4) * _legend_columns(labels, 72 * height) if labels else 0


def _legend_columns(labels: Sequence[str], height: float) -> int:
    return math.ceil(len(labels) * (LINE_HEIGHT + 0.25) * FONT_SIZE / height)


def _titled_parts(annotations: Any, contexts: Sequence[str], of_anndata: bool) -> list[tuple[str, Any]]:
    """Return pairs of a title and values for ``context_values``; in an AnnData a list of str are columns."""
    if isinstance(annotations, str):
        return [(annotations, annotations)]
    if isinstance(annotations, Mapping):
        # {context: value} or {title: values}; a context may have the name of a title.
        by_name = any(str(name) in contexts for name in annotations) or not all(map(_is_several, annotations.values()))
        return [("", annotations)] if by_name else [(str(name), values) for name, values in annotations.items()]
    if hasattr(annotations, "columns"):  # a DataFrame
        return [(str(name), annotations[name]) for name in annotations.columns]
    if of_anndata and isinstance(annotations, (list, tuple)) and all(isinstance(name, str) for name in annotations):
        return [(name, name) for name in annotations]
    # A Series has a name, a list or an array has none.
    name = getattr(annotations, "name", None)
    return [("" if name is None else str(name), annotations)]


def _is_several(values: Any) -> bool:
    return isinstance(values, Mapping) or (hasattr(values, "__len__") and not isinstance(values, str))


def _colours(values: ContextValues) -> Array:
    """Return the RGBA colour of each context (k, 4)."""
    colours = np.tile(np.array(_MISSING), (len(values.values), 1))
    known = ~values.missing
    if values.kind == "category":
        colours[known] = _palette(len(values.categories))[values.values[known]]
    else:
        numbers = values.values[known].astype(np.float64)
        # "or 1": equal numbers all get the lightest colour, not NaN.
        scaled = (numbers - numbers.min()) / (np.ptp(numbers) or 1)
        colours[known] = _scale(scaled)
    return colours


def _scale(scaled: Array) -> Array:
    """Return the colours of numbers that were scaled to [0, 1]."""
    colours = require("matplotlib", "plot").colormaps[_NUMBER_SCALE]
    return np.asarray(colours(_LIGHTEST + (1 - _LIGHTEST) * scaled))


def _palette(n: int) -> Array:
    """Return the colours of n categories (n, 4): Okabe and Ito's, then these mixed with more and more white."""
    base = require("matplotlib.colors", "plot").to_rgba_array([CATEGORIES[c] for c in _FILL_ORDER])
    # Mixing with white on RGBA leaves alpha at 1, since 1 - (1 - 1) = 1.
    return np.concatenate([1 - share * (1 - base) for share in _TINTS])[:n]


def _legend_entries(values: ContextValues) -> list[tuple[Any, str]]:
    entries: list[tuple[Any, str]] = []
    if values.kind == "category":
        names = [f"{_LETTERS[c]} {name}" for c, name in enumerate(values.categories)]
        entries = list(zip(_palette(len(names)), names, strict=True))
    else:
        known = values.values[~values.missing]
        smallest = known.min()
        largest = known.max()
        # Half the difference is added, not the mean taken: dates can be subtracted but not added.
        shown = [smallest] if smallest == largest else [smallest, smallest + (largest - smallest) / 2, largest]
        positions = np.linspace(0, 1, len(shown))
        entries = list(zip(_scale(positions), [_value_text(value) for value in shown], strict=True))
    if values.missing.any():
        entries.append((_MISSING, "not known"))
    return entries


def _value_text(value: Any) -> str:
    return str(value.astype("datetime64[D]")) if isinstance(value, np.datetime64) else f"{value:.4g}"
