"""Heatmap of the MCPCs A: what each feature contributes to each axis, as in the paper's Fig. 1B."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.fitted import fitted, resolve_feature_names
from .._utils.arguments import check_integer
from .._utils.component_names import component_indices
from .._utils.types import Array
from ..context_tree import similar_order
from ._common import DIVERGING, FONT_SIZE, axes_or_new, settle, width_of
from ._heatmap import add_bar, check_annotate, draw_heatmap, write_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_FEATURES = 40


def plot_components(
    source: Any,
    *,
    components: Any = None,
    n: int = _MOST_FEATURES,
    order: Literal["given", "cluster"] = "given",
    names: str | Sequence[str] | None = None,
    annotate: bool | Literal["auto"] = "auto",
    key: str = "mcpca",
    ax: Axes | None = None,
) -> Axes:
    """Draw A as a heatmap: features are rows, MCPCs are columns; orange is positive, purple negative.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or data with the fit of ``mcpca.tl.mcpca``.
    components : int, str or sequence of them, optional
        The MCPCs, by column (0 is MCPC 1) or name; by default all.
    n : int
        Largest number of features that are drawn: those with the largest absolute entry in any of these MCPCs. How many
        are left out is written above.
    order : {"given", "cluster"}
        The order of the features, or similar features next to each other (average linkage by the cosine of their
        entries, with their sign).
    names : str or sequence of p str, optional
        Names of the features, or the column of an AnnData's ``var`` that has them; by default those of the fit.
    annotate : bool or "auto"
        Write the numbers into the cells; "auto" does so if there are few and they fit.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of features and MCPCs.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Columns of A have length 1, so an entry is between -1 and 1, and its square is the share of the feature. The sign of
    an MCPC is a convention. Cost O(p r), and O(n^2 r + n^3) to cluster.
    """
    fit = fitted(source, key).with_all_features()
    check_annotate(annotate)
    n = check_integer(n, "n", 1)
    if order not in ("given", "cluster"):
        raise ValueError(f"order={order!r}; choose 'given' or 'cluster'.")
    features = resolve_feature_names(source, fit, names, key)
    chosen = list(range(len(fit.names))) if components is None else component_indices(components, fit.names)
    A = fit.components[:, chosen]
    rows = largest_features(A, n)
    if order == "cluster" and len(rows) > 2:
        rows = rows[similar_order(A[rows])]
    shown = [features[i] for i in rows]
    width = min(max(0.65 * len(chosen), 2.2), 9) + width_of(shown) + 1.2
    ax = axes_or_new(ax, (width, min(max(0.24 * len(rows), 1.6), 9) + 0.9))
    largest = float(np.abs(A[rows]).max()) or 1.0
    columns = [fit.names[j] for j in chosen]
    image = draw_heatmap(ax, A[rows], shown, columns, colours=DIVERGING, largest=largest, smallest=-largest)
    add_bar(ax, image, "entry of the axis, of length 1")
    if len(rows) < len(A):
        ax.set_title(f"{len(rows)} of {len(A):,} features", fontsize=FONT_SIZE)
    settle(ax)
    write_numbers(ax, image, lambda value: f"{value + 0.0:.2f}", annotate)
    return ax


def largest_features(A: Array, n: int) -> Array:
    """Return the rows of A (p, r) with the n largest absolute entries, in their order."""
    if len(A) <= n:
        return np.arange(len(A))
    return np.sort(np.argsort(-np.abs(A).max(axis=1), kind="stable")[:n])
