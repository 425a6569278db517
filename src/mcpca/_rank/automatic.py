"""What ``n_components=None`` means: which rule chooses the rank, and what is raised where none is found."""

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
from .selection import RankSelection, selected


class AutomaticRank(NamedTuple):
    """The rank, a core where one is at hand, and what is told of the choice once the model is known.

    ``told`` takes the components (p, r) of the model, or None where that is not of the power method on equal terms.
    """

    rank: int
    core: Core | None
    told: Callable[[Array | None], RankChoice | RankSelection]


def automatic_rank(
    data: FitData,
    rank_range: Any,
    n_seed_pairs: Any,
    cos_sim_threshold: Any,
    rng: np.random.Generator,
    report: Report,
    stacklevel: int = 2,
) -> AutomaticRank:
    """Choose the rank as ``select_rank`` does, or by the paper's rule where candidates are given."""
    if rank_range is not None:
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
        return AutomaticRank(choice.rank, core, lambda A: choice)
    if data.counts is None:
        raise ValueError(
            "n_components=None needs n_samples with covariances: how large noise is depends on it. Pass it to "
            "fit_covariances; or a rank, n_components; or rank_range, for the paper's rule, which does without."
        )
    threshold = check_real(cos_sim_threshold, "cos_sim_threshold", 0, 1, "It is a mean absolute cosine.")
    looked_at = rank_data(data, data.counts, report)
    found = recommend(looked_at, threshold=threshold, rng=rng, report=report)
    found.warn(stacklevel + 1)
    if found.rank == 0:
        selection = selected(found, None)
        raise NothingAboveNoiseError(
            f"{selection.reason} n_components=None therefore finds no rank; to fit one all the same pass it, "
            "for example n_components=2, and mcpca.select_rank(X, y).plot() shows every criterion.",
            selection,
        )
    all_features = looked_at.of_features is None
    return AutomaticRank(found.rank, None, lambda A: selected(found, A if all_features else None))
