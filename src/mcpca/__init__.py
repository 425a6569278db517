"""Multi-context PCA: axes that explain variation in subsets of contexts, ``Cov(X_i) ~ A diag(b_i) A^T``."""

from importlib.metadata import version

from . import plotting as pl
from . import tl
from .bootstrap import Bootstrap
from .canonical import Matching, ascore, match_components
from .common_components import CommonComponents, common_principal_components
from .decomposition import Decomposition, decompose
from .estimator import MCPCA
from .exceptions import (
    DroppedContextsWarning,
    IdentifiabilityWarning,
    NoStableRankError,
    NothingAboveNoiseError,
    RankExceedsDataError,
    RawCountsWarning,
    SmallContextsWarning,
    UncertainRankWarning,
)
from .identifiability import proportional_loadings
from .inference import Presence
from .loadings import nonnegative_loadings
from .moments import ContextMoments
from .precision import Precision, cramer_rao_bound
from .quality import Facets, facets
from .rank import RankChoice, choose_rank
from .replication import Replicability
from .scatters import ContextCovariances, context_covariances
from .selection import RankSelection, select_rank

__all__ = [
    "MCPCA",
    "Bootstrap",
    "CommonComponents",
    "ContextCovariances",
    "ContextMoments",
    "Decomposition",
    "DroppedContextsWarning",
    "Facets",
    "IdentifiabilityWarning",
    "Matching",
    "NoStableRankError",
    "NothingAboveNoiseError",
    "Precision",
    "Presence",
    "RankChoice",
    "RankExceedsDataError",
    "RankSelection",
    "RawCountsWarning",
    "Replicability",
    "SmallContextsWarning",
    "UncertainRankWarning",
    "ascore",
    "choose_rank",
    "common_principal_components",
    "context_covariances",
    "cramer_rao_bound",
    "decompose",
    "facets",
    "match_components",
    "nonnegative_loadings",
    "pl",
    "proportional_loadings",
    "select_rank",
    "tl",
]

__version__ = version("mcpca")
