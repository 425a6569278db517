"""What does ``n_components=None`` do? The entry of ``MCPCA.fit`` to the choice of a rank.

With ``rank_range`` the paper's rule decides (``paper_rule``); without it ``recommend`` decides, as in ``select_rank``.
Unlike these two functions, which return whatever they find, a fit cannot go on without a rank: where there is none this
module raises, with the evidence attached to the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._covariances.fit_data import FitData
from .._covariances.subspace import Core
from .._utils.arguments import check_real
from .._utils.types import Array, Report
from ..exceptions import NoStableRankError, NothingAboveNoiseError
from .paper_rule import RankChoice, choose_rank_checked
from .rank_data import rank_data
from .recommendation import recommend
from .sample_fits import Method
from .selection import RankSelection, selection_from


class AutomaticRank(NamedTuple):
    """The rank, the core of the data if one was computed on the way, and a function that describes the choice.

    ``told`` maps the components (p, r) of the fitted model to ``rank_choice_``. It is called after the fit, since what
    comes back is reported per component of the model.
    """

    rank: int
    core: Core | None
    told: Callable[[Array], RankChoice | RankSelection]


def automatic_rank(
    data: FitData,
    rank_range: Any,
    n_seed_pairs: Any,
    cos_sim_threshold: Any,
    method: Method,
    rng: np.random.Generator,
    report: Report,
) -> AutomaticRank:
    """Choose the rank for models fitted by ``method`` as ``select_rank`` does, or by the paper's rule."""
    if rank_range is not None:
        # The paper's rule reads covariances only: no rows, no counts, and no question of noise.
        choice, core = choose_rank_checked(
            data.covariances,
            rank_range,
            n_seed_pairs=n_seed_pairs,
            cos_sim_threshold=cos_sim_threshold,
            rng=rng,
            report=report,
        )
        if choice.rank is None:
            raise NoStableRankError(choice.reason, choice)
        # The core holds the basis of the largest candidate, from which that of the chosen rank is cut.
        return AutomaticRank(choice.rank, core, lambda A: choice)
    if data.counts is None:
        raise ValueError(
            "n_components=None needs n_samples with covariances, because the size of the noise depends on it. Pass "
            "n_samples to fit_covariances, a rank as n_components, or rank_range for the paper's rule, which needs no "
            "n_samples."
        )
    threshold = check_real(cos_sim_threshold, "cos_sim_threshold", 0, 1, "It is a mean absolute cosine.")
    examined = rank_data(data, data.counts, report)
    recommendation = recommend(examined, threshold=threshold, method=method, rng=rng, report=report)
    # Before the error below, whose reader should know of contexts that were left out.
    recommendation.issue_warnings()
    if recommendation.rank == 0:
        selection = selection_from(recommendation, None)
        raise NothingAboveNoiseError(
            f"{selection.reason} n_components=None therefore finds no rank; to fit one all the same pass it, "
            "for example n_components=2. mcpca.select_rank(X, y).plot() shows every criterion.",
            selection,
        )
    # No core is handed on: that of the search may lack small contexts.
    return AutomaticRank(recommendation.rank, None, lambda A: selection_from(recommendation, A))
