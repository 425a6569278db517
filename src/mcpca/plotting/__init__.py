"""Plots of a fitted model: plain functions that draw, return Matplotlib objects, and never show them.

Matplotlib is imported when a function is called; it comes with ``pip install "mcpca[plot]"``.

One module for each public function or pair of functions, and six that they share: ``_common`` (colours, sizes, names
that fit), ``_ticks`` (names along an axis), ``_labels`` (names beside points), ``_heatmap`` (matrices as colours),
``_annotations`` (columns of colour beside contexts) and ``_loading_axes`` (loadings against a covariate). A function
takes ``source`` and reads it by ``_results.fitted.fitted``, or takes what an analysis returned, which it knows by its
tables and attributes: ``analysis`` is a room above. It draws on ``ax`` or on a new figure, and returns it.
"""

from ._angles import plot_angles
from ._components import plot_components
from ._contexts import plot_contexts
from ._covariances import plot_covariances
from ._covariates import plot_covariate
from ._dependence import plot_context_dependence
from ._differential import plot_differential_variance
from ._enrichment import plot_enrichment
from ._explained import plot_variance_explained
from ._features import plot_top_features
from ._forest import plot_forest
from ._group_trees import plot_group_trees
from ._images import plot_component_images
from ._loadings import plot_loadings
from ._medians import plot_group_medians
from ._pc_tests import plot_pc_p_values
from ._pca_comparison import plot_pca_comparison
from ._plane import plot_plane
from ._rank_choice import plot_rank_choice
from ._ranks import plot_rank_heatmap, plot_rank_selection
from ._recall import plot_link_recall
from ._row_images import plot_row_images
from ._scores import plot_scores
from ._scree import plot_scree
from ._solvers import plot_solver_comparison
from ._survival import plot_survival
from ._temporal import plot_temporal_order
from ._tree import plot_context_tree
from ._tree_distances import plot_tree_distances
from ._trends import plot_trends

__all__ = [
    "plot_angles",
    "plot_component_images",
    "plot_components",
    "plot_context_dependence",
    "plot_context_tree",
    "plot_contexts",
    "plot_covariances",
    "plot_covariate",
    "plot_differential_variance",
    "plot_enrichment",
    "plot_forest",
    "plot_group_medians",
    "plot_group_trees",
    "plot_link_recall",
    "plot_loadings",
    "plot_pc_p_values",
    "plot_pca_comparison",
    "plot_plane",
    "plot_rank_choice",
    "plot_rank_heatmap",
    "plot_rank_selection",
    "plot_row_images",
    "plot_scores",
    "plot_scree",
    "plot_solver_comparison",
    "plot_survival",
    "plot_temporal_order",
    "plot_top_features",
    "plot_tree_distances",
    "plot_trends",
    "plot_variance_explained",
]
