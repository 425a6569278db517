"""Pictures of a fitted model: plain functions that draw and return Matplotlib objects, and never show them.

Matplotlib is imported when a function is called; it comes with ``pip install "mcpca[plot]"``.
"""

from ._covariates import plot_covariate
from ._features import plot_top_features
from ._images import plot_component_images
from ._loadings import plot_loadings
from ._plane import plot_plane
from ._ranks import plot_rank_selection
from ._scores import plot_scores
from ._scree import plot_scree
from ._trends import plot_trends

__all__ = [
    "plot_component_images",
    "plot_covariate",
    "plot_loadings",
    "plot_plane",
    "plot_rank_selection",
    "plot_scores",
    "plot_scree",
    "plot_top_features",
    "plot_trends",
]
