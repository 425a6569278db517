"""Multi-context PCA: axes that explain variation in subsets of contexts, ``Cov(X_i) ~ A diag(b_i) A^T``."""

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

from . import plotting as pl
from . import tl
from ._comparison.models import ModelComparison, compare_models
from ._comparison.solvers import compare_solvers
from ._covariances.context_covariances import ContextCovariances, context_covariances
from ._covariances.moments import ContextMoments
from ._data.fitted_preprocess import FittedPreprocess
from ._data.preprocess import Preprocess
from ._estimator.context_dependence import context_dependence
from ._estimator.mcpca import MCPCA
from ._inference.bootstrap import Bootstrap
from ._inference.dependence_result import ContextDependence
from ._inference.error_analysis import ErrorAnalysis, error_analysis
from ._inference.planning import cramer_rao_bound
from ._inference.precision import Precision
from ._inference.presence import Presence
from ._inference.replication import Replicability
from ._inference.shrunk_covariances import ShrunkCovariances
from ._inference.solver_comparison import SolverComparison
from ._linalg.canonical import Matching, ascore, match_components
from ._model.common_components import CommonComponents, common_principal_components
from ._model.decomposition import Decomposition, decompose
from ._model.facets import Facets, facets
from ._model.identifiability import proportional_loadings
from ._model.landscape import Landscape
from ._model.overcomplete import OvercompleteDecomposition, overcomplete
from ._model.removed_nuisance import RemovedNuisance
from ._rank.paper_rule import RankChoice, choose_rank
from ._rank.selection import RankSelection, select_rank
from ._solvers.loadings import nonnegative_loadings
from ._utils.other_package import moved_name as _moved_name
from .exceptions import (
    DominantFeatureWarning,
    DoubtfulLabelsWarning,
    DroppedContextsWarning,
    DuplicateRowsError,
    ExtraFeaturesWarning,
    FewGroupsWarning,
    IdentifiabilityWarning,
    NoStableRankError,
    NotCountsWarning,
    NothingAboveNoiseError,
    NuisanceWarning,
    RankExceedsDataError,
    RawCountsWarning,
    SmallContextsWarning,
    UncertainRankWarning,
)

if TYPE_CHECKING:
    from . import analysis, baselines, datasets, exceptions, plotting, report

__all__ = [
    "MCPCA",
    "Bootstrap",
    "CommonComponents",
    "ContextCovariances",
    "ContextDependence",
    "ContextMoments",
    "Decomposition",
    "DominantFeatureWarning",
    "DoubtfulLabelsWarning",
    "DroppedContextsWarning",
    "DuplicateRowsError",
    "ErrorAnalysis",
    "ExtraFeaturesWarning",
    "Facets",
    "FewGroupsWarning",
    "FittedPreprocess",
    "IdentifiabilityWarning",
    "Landscape",
    "Matching",
    "ModelComparison",
    "NoStableRankError",
    "NotCountsWarning",
    "NothingAboveNoiseError",
    "NuisanceWarning",
    "OvercompleteDecomposition",
    "Precision",
    "Preprocess",
    "Presence",
    "RankChoice",
    "RankExceedsDataError",
    "RankSelection",
    "RawCountsWarning",
    "RemovedNuisance",
    "Replicability",
    "ShrunkCovariances",
    "SmallContextsWarning",
    "SolverComparison",
    "UncertainRankWarning",
    "analysis",
    "ascore",
    "baselines",
    "choose_rank",
    "common_principal_components",
    "compare_models",
    "compare_solvers",
    "context_covariances",
    "context_dependence",
    "cramer_rao_bound",
    "datasets",
    "decompose",
    "error_analysis",
    "exceptions",
    "facets",
    "match_components",
    "nonnegative_loadings",
    "overcomplete",
    "pl",
    "plotting",
    "proportional_loadings",
    "report",
    "select_rank",
    "tl",
]

__version__ = version("mcpca")

_SUBMODULES = frozenset({"analysis", "baselines", "datasets", "exceptions", "plotting", "report"})

if not TYPE_CHECKING:  # type checkers know them from above, and should go on to know what is not there

    def __getattr__(name: str) -> ModuleType:
        """Import a public submodule when it is first asked for: ``mcpca.analysis`` needs no import of its own."""
        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")
        moved = _moved_name(name)
        if moved is not None:
            # "from mcpca import NAME" asks from within importlib, and would hide the message of an AttributeError.
            importing = sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
            raise (ImportError if importing else AttributeError)(moved)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__version__"])
