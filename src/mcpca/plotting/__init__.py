"""Plots of a fitted model: plain functions that draw, return Matplotlib objects, and never show them.

Matplotlib is imported when a function is called; it comes with ``pip install "mcpca[plot]"``.

One module for each public function or pair of functions, and six that they share: ``_common`` (colours, sizes, names
that fit), ``_ticks`` (names along an axis), ``_labels`` (names beside points), ``_heatmap`` (matrices as colours),
``_annotations`` (columns of colour beside contexts) and ``_loading_axes`` (loadings against a covariate). Every
function takes ``source``, reads it by ``_results.fitted.fitted``, draws on ``ax`` or on a new figure, and returns it.
"""

from ._angles import plot_angles
from ._covariates import plot_covariate
from ._dependence import plot_context_dependence
from ._differential import plot_differential_variance
from ._explained import plot_variance_explained
from ._features import plot_top_features
from ._images import plot_component_images
from ._loadings import plot_loadings
from ._plane import plot_plane
from ._ranks import plot_rank_heatmap, plot_rank_selection
from ._scores import plot_scores
from ._scree import plot_scree
from ._solvers import plot_solver_comparison
from ._tree import plot_context_tree
from ._trends import plot_trends

__all__ = [
    "plot_angles",
    "plot_component_images",
    "plot_context_dependence",
    "plot_context_tree",
    "plot_covariate",
    "plot_differential_variance",
    "plot_loadings",
    "plot_plane",
    "plot_rank_heatmap",
    "plot_rank_selection",
    "plot_scores",
    "plot_scree",
    "plot_solver_comparison",
    "plot_top_features",
    "plot_trends",
    "plot_variance_explained",
]
