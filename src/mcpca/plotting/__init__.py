"""Pictures of a fitted model: plain functions that draw and return Matplotlib objects, and never show them.

Matplotlib is imported when a function is called; it comes with ``pip install "mcpca[plot]"``.
"""

from ._images import plot_component_images
from ._loadings import plot_loadings
from ._ranks import plot_rank_selection
from ._scree import plot_scree

__all__ = ["plot_component_images", "plot_loadings", "plot_rank_selection", "plot_scree"]
