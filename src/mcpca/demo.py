"""``python -m mcpca.demo --output DIR``: MCPCA finds handwritten digits that were laid over photographs.

Three contexts of 8 x 8 images: patches of photographs; patches with the digits 0 and 2; patches with 1 and 2. MCPCA
knows neither the digits nor where they are. The results are a table of loadings, pictures and a report to explore.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._estimator.mcpca import MCPCA
from ._inference.sampling import MIN_ROWS
from ._results.fitted import fitted
from ._utils.atomic_files import prepare_folder
from ._utils.optional import require
from ._utils.types import Array
from .datasets import DigitContexts, load_digit_contexts
from .datasets.digits import SIDE
from .exceptions import IdentifiabilityWarning
from .plotting._common import FONT_SIZE, MARK
from .plotting._images import component_titles, draw_image, draw_image_grid, images_size
from .plotting._loadings import draw_loadings_heatmap, normalized, plot_loadings
from .report import write_report
from .sharing import carrying_contexts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Chosen among ranks 4 to 20, on 20 seeds: |correlation| with the mean digits 0, 1 and 2 is 0.996, 0.95 and 0.88 on
# average. At most other ranks the 2 is less stable: its many shapes are several MCPCs with proportional loadings, which
# the data hardly distinguish.
N_COMPONENTS = 7
N_SAMPLES = 10_000
REPORT = "report.html"
_SHAPE = (SIDE, SIDE)
_TABLE_COLUMNS = 10


@dataclass(frozen=True)
class DigitMatch:
    """The MCPC that matches a digit best, and where it varies.

    Attributes
    ----------
    digit, component : int
        The digit, and the column of ``components_``.
    sign : float
        -1 if the MCPC is the negative of the digit.
    correlation : float
        Absolute correlation with the mean digit.
    shares : array (k,)
        Loadings divided by their sum.
    planted, carrying : frozenset of int
        The contexts in which the digit was planted, and those with at least half of the MCPC's largest loading.
    """

    digit: int
    component: int
    sign: float
    correlation: float
    shares: Array
    planted: frozenset[int]
    carrying: frozenset[int]

    @property
    def agrees(self) -> bool:
        """Whether the contexts that carry the MCPC are those in which the digit was planted."""
        return self.planted == self.carrying


def match_digits(model: MCPCA, data: DigitContexts) -> list[DigitMatch]:
    """Find, for each digit, the MCPC with the highest absolute correlation with its mean image."""
    matches = []
    for digit, image in data.mean_digits.items():
        # image (p,) and components (p, r) are variables in columns: row 0 of the (1 + r, 1 + r) matrix is the image,
        # and its first entry the image with itself.
        correlations = np.corrcoef(image, model.components_, rowvar=False)[0, 1:]
        j = int(np.argmax(np.abs(correlations)))
        # Several digits may choose the same MCPC; ``describe_matches`` says so.
        b = model.loadings_[:, j]
        matches.append(
            DigitMatch(
                digit=digit,
                component=j,
                sign=float(np.sign(correlations[j])),
                correlation=float(np.abs(correlations[j])),
                # Without any loading the shares are 0, and not NaN.
                shares=b / (b.sum() or 1),
                planted=frozenset(i for i, name in enumerate(model.contexts_) if digit in data.planted[name]),
                carrying=frozenset(carrying_contexts(b).tolist()),
            )
        )
    return matches


# Words -----------------------------------------------------------------------------------------------------------


def loadings_table(model: MCPCA) -> str:
    """Return the loadings as aligned text: contexts are rows, MCPCs are columns, continued below if there are many."""
    contexts = [str(name) for name in model.contexts_]
    names = fitted(model).names
    width = max(map(len, contexts))
    blocks = []
    # In blocks of columns, so that lines of a terminal do not wrap at a large rank.
    for start in range(0, len(names), _TABLE_COLUMNS):
        part = slice(start, start + _TABLE_COLUMNS)
        lines = [" " * width + "".join(f"{name:>9}" for name in names[part])]
        for context, row in zip(contexts, model.loadings_[:, part], strict=True):
            lines.append(f"{context:<{width}}" + "".join(f"{value:9.4f}" for value in row))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def describe_matches(model: MCPCA, matches: Sequence[DigitMatch]) -> str:
    """Say which MCPC matches each digit, where it varies, and whether that is where the digit was planted."""
    contexts = [f'"{name}"' for name in model.contexts_]
    names = fitted(model).names
    lines = ["The MCPC that matches the mean of each digit best, and its loadings:"]
    for match in matches:
        shares = ", ".join(f"{share:.0%} in {context}" for share, context in zip(match.shares, contexts, strict=True))
        lines.append(
            f"  digit {match.digit}: {names[match.component]}, |correlation| {match.correlation:.3f}; {shares}."
        )
    n = len(matches)
    n_agreeing = sum(match.agrees for match in matches)
    how_many = f"All {n}" if n_agreeing == n else f"{n_agreeing} of {n}"
    lines.append(
        f"{how_many} vary in just the contexts in which the digit was planted, "
        "counting contexts with\nat least half of the MCPC's largest loading."
    )
    for match in matches:
        if not match.agrees:
            planted = " and ".join(contexts[i] for i in sorted(match.planted))
            carrying = " and ".join(contexts[i] for i in sorted(match.carrying))
            lines.append(
                f"Digit {match.digit} was planted in {planted}; {names[match.component]} varies in {carrying}."
            )
    for j, label in _digit_labels(matches).items():
        if "," in label:
            lines.append(f"{names[j]} matches {label}: at this rank they are not separated.")
    return "\n".join(lines)


def _digit_labels(matches: Sequence[DigitMatch]) -> dict[int, str]:
    """Return a label for each MCPC that matches a digit, or several: "digit 2", "digits 0, 2"."""
    digits_of: dict[int, list[str]] = {}
    for match in matches:
        digits_of.setdefault(match.component, []).append(str(match.digit))
    return {j: f"digit{'s' if len(digits) > 1 else ''} {', '.join(digits)}" for j, digits in digits_of.items()}


def describe_pairs(model: MCPCA) -> str:
    """Say which MCPCs have nearly proportional loadings or none, and what that means."""
    names = fitted(model).names
    pairs = [
        # An MCPC without loadings is reported as a pair with itself.
        f"{names[p.first]} and {names[p.second]}" if p.first != p.second else f"{names[p.first]} (no loadings)"
        for p in model.proportional_loadings()
    ]
    return (
        f"Note: nearly proportional loadings: {'; '.join(pairs)}.\n"
        "The data determine the plane of such a pair, not the two axes in it."
    )


# Pictures --------------------------------------------------------------------------------------------------------


def _new_figure(width: float, height: float) -> Figure:
    # Not by pyplot, which keeps figures alive and may want a display.
    figure: Figure = require("matplotlib.figure", "demo").Figure(figsize=(width, height), layout="constrained")
    return figure


def _draw_samples(figure: Any, contexts: Mapping[str, Array], n_columns: int, font_size: float = 10) -> None:
    """Draw rows of each context on one grey scale: evenly spaced by contrast, from the 65th to the 95th percentile."""
    shown = {}
    for name, X in contexts.items():
        places = np.linspace(0.65, 0.95, n_columns) * (len(X) - 1)
        shown[name] = X[np.argsort(X.std(axis=1))[places.astype(int)]]
    # A few pixels are far brighter than the rest and would leave the photographs black: clip them, and lift the shadows
    # with an exponent below 1.
    brightest = np.quantile(np.vstack(list(shown.values())), 0.99)
    grid = figure.subplots(len(shown), n_columns, squeeze=False)
    for axes, (name, rows) in zip(grid, shown.items(), strict=True):
        axes[0].set_ylabel(name, fontsize=font_size, rotation=0, ha="right", va="center")
        for ax, row in zip(axes, rows, strict=True):
            grey = (row / brightest).clip(0, 1) ** 0.7
            ax.imshow(grey.reshape(_SHAPE), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)


def example_rows_figure(data: DigitContexts) -> Figure:
    """Draw example rows of each context."""
    figure = _new_figure(9.5, 2.7)
    _draw_samples(figure, data.contexts, 10)
    return figure


def mcpcs_figure(model: MCPCA, matches: Sequence[DigitMatch]) -> Figure:
    """Draw all MCPCs as images; those that match a digit are framed."""
    r = model.n_components_
    names = fitted(model).names
    n_columns = math.ceil(r / math.ceil(r / 8))  # rows of equal length, of at most 8
    figure = _new_figure(*images_size(r, _SHAPE, n_columns))
    titles = component_titles(fitted(model), range(r))
    axes = draw_image_grid(figure, model.components_.T, _SHAPE, titles, n_columns)
    for j, label in _digit_labels(matches).items():
        axes[j].spines[:].set(color=MARK, linewidth=2.5)
        # A title is the name and, on a line below it, the contexts: the label goes behind the name, and they are kept.
        axes[j].set_title(titles[j].replace(names[j], f"{names[j]}: {label}"), fontsize=FONT_SIZE, color=MARK)
    return figure


def _mark_columns(ax: Any, labels: Mapping[int, str], font_size: float) -> None:
    """Write labels above columns of a heatmap, rotated like the names below it."""
    # The heatmap turns its names if they are many; labels of the same width have to turn with them.
    rotation = ax.get_xticklabels()[0].get_rotation()
    style = {"ha": "center", "va": "bottom", "fontsize": font_size, "color": MARK, "rotation": rotation}
    for j, label in labels.items():
        ax.annotate(label, (j, 1), (0, 3), ("data", "axes fraction"), "offset points", **style)


def loadings_figure(model: MCPCA, matches: Sequence[DigitMatch]) -> Figure:
    """Draw the loadings, each MCPC divided by its largest."""
    # As wide as the columns need, within what a page and a screen can show.
    figure = _new_figure(max(6.5, min(14, 0.75 * model.n_components_ + 2.2)), 2.6)
    ax = plot_loadings(model, ax=figure.add_subplot(), normalize="component")
    _mark_columns(ax, _digit_labels(matches), FONT_SIZE)
    return figure


def overview_figure(model: MCPCA, data: DigitContexts, matches: Sequence[DigitMatch]) -> Figure:
    """Draw side by side the contexts, the MCPCs that match the digits, and their loadings."""
    figure = _new_figure(13, 3.5)
    parts: Any = figure.subfigures(1, 3, width_ratios=[5.1, 3.8, 4.1], wspace=0.04)
    left, middle, right = parts
    for part, title in (
        (left, "Three contexts: example rows"),
        (middle, "MCPCs that match the digits"),
        (right, "Loadings: where they vary"),
    ):
        part.suptitle(title, fontsize=13, fontweight="bold")
    _draw_samples(left, data.contexts, 4, 12)
    names = [fitted(model).names[match.component] for match in matches]
    grid = middle.subplots(len(matches), 2, squeeze=False)
    for (mean_ax, ax), match, name in zip(grid, matches, names, strict=True):
        draw_image(mean_ax, data.mean_digits[match.digit], _SHAPE)
        # The sign of an MCPC is arbitrary; here it is that of the mean digit.
        draw_image(ax, match.sign * model.components_[:, match.component], _SHAPE)
        mean_ax.set_ylabel(f"mean {match.digit}", fontsize=12, rotation=0, ha="right", va="center")
        ax.yaxis.set_label_position("right")
        label = f"{name}\n|corr| {match.correlation:.3f}"
        ax.set_ylabel(label, fontsize=12, rotation=0, ha="left", va="center")
    B = normalized(model.loadings_, "component")[:, [match.component for match in matches]]
    ax = right.subplots()
    draw_loadings_heatmap(ax, B, [str(c) for c in model.contexts_], names, annotate=True, font_size=12)
    _mark_columns(ax, {j: f"digit {match.digit}" for j, match in enumerate(matches)}, 12)
    ax.set_xlabel("each divided by its largest loading", fontsize=12)
    return figure


# The report ------------------------------------------------------------------------------------------------------


def _write_report(model: MCPCA, data: DigitContexts, output: Path, options: argparse.Namespace) -> Path:
    """Write the report, with which MCPCs come back in halves of the rows, and which differ between contexts."""
    n = options.n_samples
    seed = options.seed
    # Contexts of fewer rows cannot be split; the report is then without these sections.
    halves = model.replicability(data.contexts, n_splits=3, random_state=seed) if n >= MIN_ROWS else None
    test = model.context_dependence(data.contexts, random_state=seed) if n >= MIN_ROWS else None
    return write_report(
        model,
        output / REPORT,
        X=data.contexts,
        corrected=False,  # the paper's loadings, as in the table and the pictures
        title="Digits on photographs",
        replicability=halves,
        context_dependence=test,
        run={"data": f"mcpca.datasets.load_digit_contexts({n}, random_state={seed})"},
        overwrite=True,
    )


# The command -----------------------------------------------------------------------------------------------------


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=(__doc__ or "").partition(": ")[2])
    parser.add_argument(
        "--output", metavar="DIR", type=Path, required=True, help="where pictures and report go; created"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="decides every random number (%(default)s)")
    parser.add_argument("--n-components", metavar="R", type=int, default=N_COMPONENTS, help="rank (%(default)s)")
    parser.add_argument("--n-samples", metavar="N", type=int, default=N_SAMPLES, help="rows per context (%(default)s)")
    return parser


def _fit(data: DigitContexts, n_components: int, seed: int) -> tuple[MCPCA, bool]:
    """Fit with progress on stderr; return the model, and whether MCPCs have nearly proportional loadings.

    That warning is turned into a note of the demo's own; all others are issued again.
    """
    with warnings.catch_warnings(record=True) as caught:
        # "always": Python's default shows a warning once per line, and a second fit in one process would have no note.
        warnings.simplefilter("always", IdentifiabilityWarning)
        model = MCPCA(n_components, random_state=seed, verbose=True).fit(data.contexts)
    others = [w for w in caught if not issubclass(w.category, IdentifiabilityWarning)]
    for w in others:
        # After the block, and from their own line: the user's filters decide about them as if nothing had been caught.
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return model, len(others) < len(caught)


class _DemoError(Exception):
    """Something that ends the demo with a message."""


def _check_before(output: Path) -> None:
    """Raise, before any work is done, if a package is missing or the folder cannot be written to."""
    try:
        # PIL decodes scikit-learn's photographs; the folder comes last, so that none is made in vain.
        for module in ("matplotlib", "PIL", "plotly"):
            require(module, "demo")
        prepare_folder(output)
    except ImportError as error:
        raise _DemoError(str(error)) from error
    except OSError as error:
        raise _DemoError(f"--output {output} cannot take the pictures ({error}); choose a directory.") from error


def _write_pictures(model: MCPCA, data: DigitContexts, matches: Sequence[DigitMatch], output: Path) -> None:
    # Drawn one by one, so that the first can be looked at while the next is drawn.
    pictures: dict[str, Callable[[], Figure]] = {
        "samples.png": lambda: example_rows_figure(data),
        "mcpcs.png": lambda: mcpcs_figure(model, matches),
        "loadings.png": lambda: loadings_figure(model, matches),
        "overview.png": lambda: overview_figure(model, data, matches),
    }
    for name, draw in pictures.items():
        try:
            draw().savefig(output / name, dpi=150)
        except OSError as error:
            raise _DemoError(f"{output / name} cannot be written ({error}).") from error
        print(f"Wrote {output / name}")


def _run(options: argparse.Namespace) -> None:
    output: Path = options.output
    _check_before(output)
    try:
        data = load_digit_contexts(options.n_samples, random_state=options.seed)
        model, proportional = _fit(data, options.n_components, options.seed)
    except ValueError as error:  # about --n-samples, --n-components or --seed
        raise _DemoError(str(error)) from error
    # Text before pictures: the answer is on the screen while they are drawn.
    matches = match_digits(model, data)
    print(f"{len(model.contexts_)} contexts of {options.n_samples} images, {model.n_components_} MCPCs. Loadings:\n")
    print(loadings_table(model), "", describe_matches(model, matches), sep="\n")
    if proportional:
        print(describe_pairs(model))
    print()
    _write_pictures(model, data, matches, output)
    try:
        path = _write_report(model, data, output, options)
    except OSError as error:
        raise _DemoError(f"{output / REPORT} cannot be written ({error}).") from error
    print(f"Open {path}")


def main(argv: Sequence[str] | None = None, prog: str = "python -m mcpca.demo") -> int:
    """Run the demo; return 0, or 2 after a message on stderr."""
    options = _parser(prog).parse_args(argv)
    try:
        _run(options)
    except _DemoError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
