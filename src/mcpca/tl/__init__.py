"""Multi-context PCA of an AnnData in the style of scanpy: results are stored in it.

A thin layer around ``MCPCA``, ``select_rank`` and ``analysis.associate``. ``_data.anndata_rows`` finds the matrix, its
features and the context of each row; what is computed is what the same rows give when they are passed to ``MCPCA``
itself; ``_results.anndata_layout`` and ``_results.anndata_inference`` define where results are stored, and read them
back for pictures, cards and reports. Needs ``pip install "mcpca[anndata]"``.

Functions that change an AnnData (``mcpca``, ``transform``) return nothing. Those that answer a question (``rank``,
``replicability``, ``context_dependence``, ``bootstrap``, ``associate``) return the answer, and store it beside the fit
as well.
"""

from ._fitting import mcpca, model, rank
from ._inference import associate, bootstrap, context_dependence, replicability
from ._new import loadings_for, transform

__all__ = [
    "associate",
    "bootstrap",
    "context_dependence",
    "loadings_for",
    "mcpca",
    "model",
    "rank",
    "replicability",
    "transform",
]
