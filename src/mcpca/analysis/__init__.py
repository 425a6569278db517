"""What to do with A and B: poles, enrichment, association and designs, cards, survival, trees, links, PCA beside it.

Functions take a fitted model (or Pipeline, or AnnData with a fit) and return tables of pandas, or results that hold
such tables. None fits the model again, except ``trees_by_group``, which fits it to parts of the rows; those that need
rows take them beside the model, or find them in the AnnData.

Needs ``pip install "mcpca[analysis]"``; contextual embeddings of words need ``mcpca[text]``.
"""

from ._association_result import Association
from .against_pca import PCAComparison, compare_with_pca
from .association import associate
from .cards import describe
from .differential import DifferentialVariance, differential_variance
from .embeddings import contextual_embeddings
from .enriched_sets import enrichment
from .features import feature_scores, gene_scores, top_features
from .gene_sets import read_gmt
from .group_trees import GroupTrees, trees_by_group
from .hazards import Survival, survival
from .links import link_recall, links_of_sets
from .logistic import logistic_model
from .samples import group_medians, sample_scores, top_samples
from .temporal import TemporalOrder, temporal_order
from .trees import ContextTree, context_tree, tree_distances

__all__ = [
    "Association",
    "ContextTree",
    "DifferentialVariance",
    "GroupTrees",
    "PCAComparison",
    "Survival",
    "TemporalOrder",
    "associate",
    "compare_with_pca",
    "context_tree",
    "contextual_embeddings",
    "describe",
    "differential_variance",
    "enrichment",
    "feature_scores",
    "gene_scores",
    "group_medians",
    "link_recall",
    "links_of_sets",
    "logistic_model",
    "read_gmt",
    "sample_scores",
    "survival",
    "temporal_order",
    "top_features",
    "top_samples",
    "tree_distances",
    "trees_by_group",
]
