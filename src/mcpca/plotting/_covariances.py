"""Covariances of contexts as heatmaps beside those of the model, as in the paper's Figures 1B, 3A and 4B."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse

from .._results.fitted import fitted, resolve_feature_names
from .._results.fitted_rows import RowsByContext, rows_of_fit, sampled_rows
from .._utils.arguments import check_integer
from .._utils.component_names import context_index
from .._utils.optional import require
from .._utils.types import Array
from ..context_tree import similar_order
from ._common import DIVERGING, FONT_SIZE, put_row_names, settle, shorten, width_of
from ._components import largest_features

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = 1.5  # inches
_MOST_CONTEXTS = 8
_MOST_ROWS = 20_000  # of a context, from which its covariance is taken
_LONGEST = 20  # characters of a context
_SCALE = 0.995  # quantile of the entries off the diagonal: single large ones would leave all others pale


def plot_covariances(
    source: Any,
    X: Any = None,
    y: Any = None,
    *,
    contexts: Sequence[Any] | None = None,
    n: int = 30,
    order: Literal["given", "cluster"] = "cluster",
    names: str | Sequence[str] | None = None,
    key: str = "mcpca",
    ax: Figure | None = None,
) -> Figure:
    """Draw the model's covariance of each context, ``A diag(b_i) A^T``, and below it that of the rows.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or an AnnData with a fit.
    X, y : optional
        For a model: rows with their contexts in any form that ``fit`` accepts, except Dask. An AnnData brings its own.
        Without rows the model's covariances are drawn alone, and so they are for a fit on principal components in an
        AnnData, where rows have other features than MCPCs.
    contexts : sequence of names, optional
        By default the first 8.
    n : int
        Largest number of features that are drawn: those with the largest absolute entry in any MCPC.
    order : {"given", "cluster"}
        The order of the features, or similar features next to each other (by their entries in A), in all panels alike.
    names : str or sequence of p str, optional
        Names of the features, or the column of an AnnData's ``var`` that has them; by default those of the fit.
    key : str
        Name of the fit in an AnnData.
    ax : matplotlib Figure, optional
        An empty figure to draw on; by default a new one whose size follows the number of contexts.

    Returns
    -------
    matplotlib Figure

    Notes
    -----
    All panels have one scale, symmetric around 0 (orange is positive). It ends where 0.5% of the absolute entries off
    the diagonal are beyond it: these, and larger variances, are as dark as its ends. A context with more than 20,000
    rows has the covariance of a random sample of them. Covariances of rows have noise in their diagonal, which those of
    the model have not.
    """
    fit = fitted(source, key).with_all_features()
    n = check_integer(n, "n", 2)
    if order not in ("given", "cluster"):
        raise ValueError(f"order={order!r}; choose 'given' or 'cluster'.")
    if ax is not None and not hasattr(ax, "set_layout_engine"):
        raise TypeError(f"ax is a {type(ax).__name__}; this needs a whole Figure, for a panel for each context.")
    features = resolve_feature_names(source, fit, names, key)
    wanted = fit.contexts[:_MOST_CONTEXTS] if contexts is None else contexts
    chosen = [context_index(name, fit.contexts, "contexts: entry") for name in wanted]
    if not chosen:
        raise ValueError("contexts is empty; pass at least one name, or None for the first 8.")
    kept = largest_features(fit.components, n)
    if order == "cluster":
        kept = kept[similar_order(fit.components[kept])]
    A = fit.components[kept]
    rows = [np.einsum("pr,kr,qr->kpq", A, fit.loadings[chosen], A)]
    if X is not None or y is not None or fit.labels is not None:
        space = rows_of_fit(source, fit, key, X, y)
        if np.array_equal(space.components, fit.components):
            rows.append(_sample_covariances(space, fit.contexts, chosen, kept))
    figure = ax
    if figure is None:
        size = (_PANEL * len(chosen) + width_of([features[i] for i in kept]) + 1.2, (_PANEL + 0.25) * len(rows) + 0.5)
        figure = require("matplotlib.pyplot", "plot").figure(figsize=size)
    assert figure is not None
    figure.set_layout_engine("compressed")
    grid: Any = figure.subplots(len(rows), len(chosen), squeeze=False)
    off = ~np.eye(len(kept), dtype=bool)
    entries = np.abs(np.concatenate([S[:, off].ravel() for S in rows]))
    bound = float(np.quantile(entries, _SCALE)) or float(entries.max()) or 1.0
    for line, (axes, S, word) in enumerate(zip(grid, rows, ("model", "rows"), strict=False)):
        for column, (panel, values) in enumerate(zip(axes, S, strict=True)):
            image = panel.imshow(values, cmap=DIVERGING, vmin=-bound, vmax=bound, interpolation="nearest")
            panel.set_xticks([])
            panel.set_yticks([])
            panel.spines[:].set_color("0.8")
            if line == 0:
                panel.set_title(shorten(fit.contexts[chosen[column]], _LONGEST), fontsize=FONT_SIZE)
        axes[0].set_ylabel(word, fontsize=FONT_SIZE)
    settle(grid[0, 0])
    for axes in grid:
        put_row_names(axes[0], [features[i] for i in kept], FONT_SIZE - 2)
        axes[0].tick_params(axis="y", length=0)
    bar: Any = figure.colorbar(image, ax=grid, shrink=0.8, pad=0.02, extend="both")
    bar.set_label("covariance", fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.outline.set_edgecolor("0.8")
    if len(kept) < len(features):
        figure.suptitle(f"{len(kept)} of {len(features):,} features", fontsize=FONT_SIZE)
    return figure


def _sample_covariances(space: RowsByContext, names: Sequence[str], chosen: Sequence[int], kept: Array) -> Array:
    """Return the covariances (contexts, m, m) of the rows of each context, of the features ``kept`` (m,)."""
    parts = []
    for i in chosen:
        rows = sampled_rows(space, [space.position(i, names)], _MOST_ROWS).rows
        # Selected before they are made dense: the features drawn are few.
        own = rows[:, kept]
        own = own.toarray() if scipy.sparse.issparse(own) else np.asarray(own)
        if len(own) < 2:
            raise ValueError(f"Context {names[i]!r} has {len(own)} row, and a covariance needs 2; leave it out.")
        parts.append(np.cov(own.astype(np.float64), rowvar=False))
    return np.stack(parts)
