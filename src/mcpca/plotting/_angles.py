"""Angles between MCPCs, which need not be orthogonal, as a heatmap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._results.fitted import fitted
from .._utils.optional import require
from .._utils.types import Array
from ._common import SEQUENTIAL, axes_or_new, settle, width_of
from ._heatmap import add_bar, check_annotate, draw_heatmap, write_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_angles(
    source: Any, *, annotate: bool | Literal["auto"] = "auto", key: str = "mcpca", ax: Axes | None = None
) -> Axes:
    """Draw the angles between MCPCs as a heatmap, in degrees from 0 (the same axis) to 90 (orthogonal).

    Dark cells deserve attention: axes that are nearly the same have large scores that nearly cancel. The sign of an
    MCPC is a convention, so no angle exceeds 90. The diagonal is grey.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model, or data with the fit of ``mcpca.tl.mcpca``.
    annotate : bool or "auto"
        Write the degrees into the cells; "auto" does so if there are few and they fit.
    key : str
        Name of the fit in the AnnData.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure whose size follows the number of MCPCs.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    Cost O(p r^2). For a fit on principal components in an AnnData, the angles are those of the axes in ``var``.
    """
    fit = fitted(source, key).with_all_features()
    check_annotate(annotate)
    angles = angles_between(fit.components)
    np.fill_diagonal(angles, np.nan)  # drawn grey: 0 would be the darkest cell
    # Inches: large enough for a number in a cell, and never larger than a page.
    side = min(max(0.45 * len(angles), 2), 8)
    ax = axes_or_new(ax, (side + width_of(fit.names) + 1, side + 0.7))
    # Reversed: small angles are the ones to notice, so they are dark.
    colours = require("matplotlib", "plot").colormaps[f"{SEQUENTIAL}_r"].with_extremes(bad="0.8")
    image = draw_heatmap(ax, angles, fit.names, fit.names, colours=colours, largest=90)
    add_bar(ax, image, "angle (degrees)").set_ticks(range(0, 91, 15))
    settle(ax)
    write_numbers(ax, image, lambda angle: f"{angle:.0f}", annotate)
    return ax


def angles_between(A: Array) -> Array:
    """Return the angles (r, r) in degrees between the lines along the columns of A; 0 on the diagonal."""
    # 1 up to the precision in which A was stored, but 0 for a column of zeros, which stays one.
    norms = np.linalg.norm(A, axis=0)
    units = A / np.where(norms > 0, norms, 1)
    # Rounding may bring a cosine above 1, of which arccos is NaN.
    angles = np.degrees(np.arccos(np.minimum(np.abs(units.T @ units), 1)))
    np.fill_diagonal(angles, 0)
    return np.asarray(angles)
