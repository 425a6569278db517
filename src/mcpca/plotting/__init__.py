"""Pictures of a fitted model: plain functions that draw and return Matplotlib objects, and never show them.

Matplotlib is imported when a function is called; it comes with ``pip install "mcpca[plot]"``.
"""

from ._angles import plot_angles
from ._covariates import plot_covariate
from ._explained import plot_variance_explained
from ._features import plot_top_features
from ._images import plot_component_images
from ._loadings import plot_loadings
from ._plane import plot_plane
from ._ranks import plot_rank_heatmap, plot_rank_selection
from ._scores import plot_scores
from ._scree import plot_scree
from ._tree import plot_context_tree
from ._trends import plot_trends

__all__ = [
    "plot_angles",
    "plot_component_images",
    "plot_context_tree",
    "plot_covariate",
    "plot_loadings",
    "plot_plane",
    "plot_rank_heatmap",
    "plot_rank_selection",
    "plot_scores",
    "plot_scree",
    "plot_top_features",
    "plot_trends",
    "plot_variance_explained",
]
