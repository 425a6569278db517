"""Results as figures, in the form of the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from ..plotting._common import FONT_SIZE, MARK, SEQUENTIAL
from ..plotting._images import draw_image
from .digits import CURVE
from .problems import PLANTED_DIGITS, Case
from .running import LABELS, Record, by_method
from .tables import case_median, endings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SMALL = FONT_SIZE - 1
_LEAST_ERROR = 1e-16  # an error of 0 is drawn here, since the axes are logarithmic


class _Look(NamedTuple):
    colour: str
    marker: str


# One hue for each community: orange MCPCA, grey PCA, green joint diagonalisation, purple tensors, blue added here.
_LOOKS = {
    "mspm": _Look(MARK, "*"),
    "pca_stack": _Look("#525252", "o"),
    "pca_c": _Look("#7a7a7a", "s"),
    "pca_svd": _Look("#9b9b9b", "^"),
    "hogsvd": _Look("#252525", "v"),
    "svd": _Look("#bdbdbd", "D"),
    "ffdiag": _Look("#006d2c", "o"),
    "qrj1d": _Look("#2ca25f", "s"),
    "jacobi": _Look("#74c476", "^"),
    "jennrich": _Look("#a1c935", "v"),
    "nls": _Look("#54278f", "o"),
    "nls_svd": _Look("#756bb1", "s"),
    "nls_jennrich": _Look("#9e9ac8", "^"),
    "minf": _Look("#c51b8a", "v"),
    "als": _Look("#f768a1", "D"),
    "pham": _Look("#08519c", "o"),
    "uwedge": _Look("#4292c6", "s"),
}


def _look(name: str) -> _Look:
    return _LOOKS.get(name, _Look("0.3", "x"))


def _figure(width: float, height: float) -> Figure:
    # Not by pyplot, which keeps figures alive and may want a display.
    figure: Figure = require("matplotlib.figure", "plot").Figure(figsize=(width, height), layout="constrained")
    return figure


def _plain(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=_SMALL)


def _label(name: str, records: Sequence[Record]) -> str:
    """Return the name of a method, with how many of its runs were stopped or gave no answer."""
    ends = endings(records)
    extra = [f"{ends['stopped at the cap']} at cap"] if ends["stopped at the cap"] else []
    extra += [f"{ends['no answer']} no answer"] if ends["no answer"] else []
    return LABELS.get(name, name) + (f", {'; '.join(extra)}" if extra else "")


def _legend(ax: Any) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=_SMALL, markerscale=1.1)


def runtime_figure(records: Sequence[Record], title: str, time_limit: float | None) -> Figure:
    """Draw seconds against 1 - Ascore, a point per trial; hollow points were stopped at the cap."""
    figure = _figure(7.6, 4.4)
    ax = figure.add_subplot()
    for name, of_method in by_method(records).items():
        look = _look(name)
        # Runs without an answer have no point; the legend counts them.
        points = [r for r in of_method if r["error"] is not None]
        x = [max(r["error"], _LEAST_ERROR) for r in points]
        y = [r["seconds"] for r in points]
        # A capped run would have gone on: its time is a lower bound, and its error might have become smaller.
        faces = ["white" if r["capped"] else look.colour for r in points]
        style: dict[str, Any] = {"marker": look.marker, "edgecolors": look.colour, "linewidths": 0.7}
        is_mcpca = name == "mspm"
        ax.scatter(x, y, s=8 if is_mcpca else 16, facecolors=faces, alpha=0.8, zorder=4 if is_mcpca else 3, **style)
        # A second scatter makes the entry of the legend, where no marker is hollow. For MCPCA, whose points others
        # cover, it also draws the median; for the others nothing.
        at = (float(np.median(x)), float(np.median(y))) if is_mcpca and points else (np.nan, np.nan)
        style["edgecolors"] = "white" if is_mcpca else look.colour
        size = 150 if is_mcpca else 16
        ax.scatter(*at, s=size, facecolors=look.colour, zorder=5, label=_label(name, of_method), **style)
    if time_limit is not None:
        ax.axhline(time_limit, color="0.4", linestyle="--", linewidth=0.8)
        ax.annotate(
            f"time cap, {time_limit:g} s (hollow: stopped there)",
            (1, time_limit),
            (-2, 3),
            ("axes fraction", "data"),
            "offset points",
            ha="right",
            fontsize=_SMALL,
            color="0.4",
        )
    ax.set(xscale="log", yscale="log")
    ax.set_xlabel("1 - Ascore", fontsize=FONT_SIZE)
    ax.set_ylabel("runtime in seconds", fontsize=FONT_SIZE)
    ax.set_title(title, fontsize=FONT_SIZE + 1)
    _plain(ax)
    _legend(ax)
    return figure


def sample_size_figure(
    records: Sequence[Record], cases: Sequence[Case], title: str, time_limit: float | None
) -> Figure:
    """Draw the median of 1 - Ascore against rows per context, with the range over trials for MCPCA."""
    figure = _figure(7.6, 4.4)
    ax = figure.add_subplot()
    sizes = np.array([case.x for case in cases], dtype=float)
    for name, of_method in by_method(records).items():
        look = _look(name)
        is_mcpca = name == "mspm"
        # NaN where a method gave no answer at a size, which leaves a gap in its line.
        medians = _medians(of_method, cases)
        style: dict[str, Any] = {
            "linewidth": 2.2 if is_mcpca else 1.1,
            "markersize": 9 if is_mcpca else 4,
            "zorder": 3 if is_mcpca else 2,
        }
        ax.plot(sizes, medians, marker=look.marker, color=look.colour, label=_label(name, of_method), **style)
        if is_mcpca:
            # For MCPCA only: bands of a dozen methods would cover one another.
            low, high = _range(of_method, cases)
            ax.fill_between(sizes, low, high, color=look.colour, alpha=0.2, linewidth=0)
    ax.set(xscale="log", yscale="log")
    ax.set_xlabel("rows per context", fontsize=FONT_SIZE)
    ax.set_ylabel("1 - Ascore, median", fontsize=FONT_SIZE)
    cap = f" (time cap {time_limit:g} s)" if time_limit is not None else ""
    ax.set_title(title + cap, fontsize=FONT_SIZE + 1)
    _plain(ax)
    _legend(ax)
    return figure


def _medians(records: Sequence[Record], cases: Sequence[Case]) -> Array:
    """Return the median error in each case, NaN if there is none."""
    values = [case_median(records, case) for case in cases]
    return np.array([np.nan if value is None else max(value, _LEAST_ERROR) for value in values])


def _range(records: Sequence[Record], cases: Sequence[Case]) -> tuple[Array, Array]:
    """Return the least and the largest error in each case, NaN if there is none."""
    errors: dict[str, list[float]] = {case.name: [] for case in cases}
    for record in records:
        if record["error"] is not None:
            errors[record["case"]].append(max(record["error"], _LEAST_ERROR))
    # In the order of ``cases``, by which ``errors`` was filled, and so that of the sizes on the axis.
    ends = [(min(e), max(e)) if e else (np.nan, np.nan) for e in errors.values()]
    low, high = np.array(ends).T
    return low, high


def robustness_figure(records: Sequence[Record], cases: Sequence[Case], title: str, time_limit: float | None) -> Figure:
    """Draw medians of 1 - Ascore as a coloured table, with a row per method and a column per case."""
    groups = by_method(records)
    values = np.array([_medians(of_method, cases) for of_method in groups.values()])
    figure = _figure(1.0 * len(cases) + 2.4, 0.27 * len(groups) + 1.3)
    ax = figure.add_subplot()
    # (methods, cases). Logarithms, since errors range over orders of magnitude; NaN stays NaN and is left blank.
    shades = np.log10(values)
    has_values = np.isfinite(shades).any()
    # nanmin of nothing but NaN would warn: if no method answered, any range will do.
    low = np.nanmin(shades) if has_values else -1
    high = np.nanmax(shades) if has_values else 0
    # A little more than the largest, so that the range of colours is not empty if all values are equal.
    ax.imshow(shades, cmap=SEQUENTIAL, vmin=low, vmax=high + 1e-9, aspect="auto")
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            # White letters on dark cells; a comparison with NaN is false, so that "none" is black on blank.
            dark = (shades[i, j] - low) > 0.6 * (high - low)
            text = "none" if np.isnan(value) else f"{value:.1e}".replace("e-0", "e-")
            ax.text(j, i, text, ha="center", va="center", fontsize=_SMALL, color="white" if dark else "black")
    ax.set_yticks(range(len(groups)), [_label(name, of_method) for name, of_method in groups.items()])
    ax.set_xticks(range(len(cases)), [case.title for case in cases])
    ax.tick_params(labelsize=_SMALL, length=0)
    ax.spines[:].set_visible(False)
    cap = f" (time cap {time_limit:g} s)" if time_limit is not None else ""
    ax.set_title(title + cap, fontsize=FONT_SIZE + 1)
    return figure


_CURVE_LABELS = {
    "authors": "to convergence, paired as the authors do",
    "cosine": "to convergence, paired by |cos|",
    "stopped": "stopped after 100 steps, paired by |cos|",
}


def rank_figure(record: Record) -> Figure:
    """Draw the curve by which the rank was chosen, and those of the two variants."""
    figure = _figure(5.2, 4)
    ax = figure.add_subplot()
    looks = {"authors": (MARK, "-", "o"), "cosine": ("0.15", "-", "s"), "stopped": ("0.6", ":", "^")}
    for name, (color, line, marker) in looks.items():
        (drawn,) = ax.plot(record["ranks"], record["curves"][name], label=_CURVE_LABELS[name], linewidth=1.2)
        drawn.set(color=color, linestyle=line, marker=marker, markersize=3.5)
    figure.legend(fontsize=_SMALL, frameon=False, loc="outside lower center")
    ax.axhline(record["threshold"], color="0.4", linestyle="--", linewidth=0.8)
    ax.axvline(record["rank"], color="0.7", linewidth=0.8)
    ax.annotate(
        f"rank {record['rank']}",
        (record["rank"], 0),
        (4, 4),
        ("data", "axes fraction"),
        "offset points",
        fontsize=_SMALL,
    )
    # The bottom is left to Matplotlib: on an axis from 0, curves that stay near 1 would look flat.
    ax.set_ylim(top=1.01)
    ax.set_xlabel("rank", fontsize=FONT_SIZE)
    ax.set_ylabel("agreement of runs (mean Ascore)", fontsize=FONT_SIZE)
    ax.set_title(f"Choice of the rank\n{record['source']}", fontsize=FONT_SIZE + 1)
    _plain(ax)
    return figure


def digits_figure(records: Sequence[Record]) -> Figure:
    """Draw, for each method, the components of the first draw that match the digits best, and their loadings."""
    truth = records[0]
    assert truth["method"] == CURVE
    # Only the first draw has images in its records; the truth, which is drawn like a method, is the first.
    shown = [r for r in records if r["trial"] == 0]
    n_columns = 2
    n_rows = math.ceil(len(shown) / n_columns)
    figure = _figure(9.4, 0.98 * n_rows + 0.9)
    figure.suptitle(f"{truth['source']}, rank {truth['rank']}", fontsize=FONT_SIZE + 2)
    width = len(PLANTED_DIGITS) + 1
    # A narrow empty column keeps the two halves apart.
    ratios = [*[1.0] * len(PLANTED_DIGITS), 1.25]
    grid: Any = figure.subplots(
        n_rows, n_columns * (width + 1) - 1, squeeze=False, width_ratios=[*ratios, 0.1, *ratios]
    )
    # Off until drawn on: the narrow column, and the last cells if the number of methods is odd, stay empty.
    for axes in grid.ravel():
        axes.set_axis_off()
    for i, record in enumerate(shown):
        # Down the left half first, then down the right one.
        first_column = (i // n_rows) * (width + 1)
        _draw_method(grid[i % n_rows, first_column : first_column + width], record, truth)
    return figure


def _draw_method(axes: Any, record: Record, truth: Record) -> None:
    """Draw three images, and the loadings of these components, each divided by its largest."""
    is_truth = record is truth
    label = LABELS.get(record["method"], str(record["method"]))
    name = "mean digits,\nplanted where" if is_truth else label.replace(" (", "\n(")
    axes[0].set_axis_on()
    axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=_SMALL)
    if "images" not in record:
        axes[0].set(xticks=[], yticks=[])
        axes[0].spines[:].set_visible(False)
        axes[0].set_xlabel("no answer", fontsize=_SMALL)
        return
    shape = (truth["side"], truth["side"])
    # Not strict: the last axes are for the loadings.
    for j, (ax, image) in enumerate(zip(axes, record["images"], strict=False)):
        ax.set_axis_on()
        draw_image(ax, np.array(image), shape)
        if not is_truth:
            good = record["recovered"][j]
            text = f"{record['correlations'][j]:.2f}" + (" at cap" if record["capped"] else "")
            ax.set_title(text, fontsize=_SMALL, pad=2, color=MARK if good else "0.5")
    loadings = np.array(truth["planted"] if is_truth else record["loadings"], dtype=float)
    # (k, 3), each column divided by its largest; a component without loadings stays 0 and is not NaN.
    loadings /= np.maximum(loadings.max(axis=0), np.finfo(float).tiny)
    ax = axes[-1]
    ax.set_axis_on()
    ax.imshow(loadings, cmap=SEQUENTIAL, vmin=0, vmax=1)
    ax.set_xticks(range(len(PLANTED_DIGITS)), [str(d) for d in PLANTED_DIGITS], fontsize=6)
    ax.set_yticks(range(len(loadings)), truth["contexts"], fontsize=6)
    ax.yaxis.tick_right()
    ax.tick_params(length=0, pad=1)
    ax.spines[:].set_color("0.8")
