"""What ``n_components=None`` means: which rule chooses the rank, and what is raised where none is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ._check import Array, Report, check_real, refuse_without_effect
from .contexts import Contexts
from .evidence import Evidence, by_passes, without_basis
from .exceptions import NoStableRankError, NothingAboveNoiseError
from .rank import RankChoice, choose_rank_checked
from .replication import MIN_ROWS
from .rows import Rows
from .scatters import covariances_of
from .selection import RankSelection, select_rank_checked
from .subspace import Core

_FEATURES = 300  # kept for the choice of a rank where features are too many for covariances
_FEW_ROWS = 100  # of all contexts together: too few for "nothing above noise" to mean that nothing is there


def automatic_rank(
    evidence: Evidence,
    rank_range: Any,
    n_seed_pairs: Any,
    cos_sim_threshold: Any,
    rng: np.random.Generator,
    report: Report,
) -> tuple[RankChoice | RankSelection, Core | None]:
    """Return how the rank was chosen, and a core where one is at hand.

    By ``select_rank``, on the most variable ones where features are too many for covariances; by the paper's rule
    where candidates are given, and where noise cannot be told.
    """
    contexts, counts, moments = evidence.contexts, evidence.counts, evidence.moments
    if (
        rank_range is None
        and counts is not None
        and _noise_can_be_told(contexts, counts, evidence.covariances.n_features)
    ):
        why = "select_rank compares halves of the rows and not seeds"
        refuse_without_effect("n_seed_pairs", n_seed_pairs, 5, why, "drop it, or pass rank_range for the paper's rule")
        if isinstance(evidence.covariances, Rows):
            contexts = evidence.covariances.most_variable(_FEATURES)
            moments = covariances_of(contexts, report)
        assert moments is not None
        threshold = check_real(cos_sim_threshold, "cos_sim_threshold", 0, 1, "It is a mean absolute cosine.")
        selection = select_rank_checked(
            contexts, replace(moments, n_samples=counts), threshold=threshold, rng=rng, report=report
        )
        if selection.rank == 0:
            raise NothingAboveNoiseError(
                f"{selection.reason} n_components=None therefore finds no rank; to fit one all the same pass it, "
                "for example n_components=2, and mcpca.select_rank(X, y).plot() shows every criterion.",
                selection,
            )
        return selection, None
    choice, core = choose_rank_checked(
        evidence.covariances,
        rank_range,
        n_seed_pairs=n_seed_pairs,
        cos_sim_threshold=cos_sim_threshold,
        rng=rng,
        report=report,
    )
    if choice.rank is None:
        raise NoStableRankError(choice.reason, choice)
    return choice, core


def features_for_rank(contexts: Contexts, report: Report) -> Contexts:
    """Return the contexts, or their most variable features where they are too many for covariances: two passes."""
    if not by_passes(contexts, None):
        return contexts
    rows = without_basis(contexts, None, report).covariances
    assert isinstance(rows, Rows)
    return rows.most_variable(_FEATURES)


def _noise_can_be_told(contexts: Contexts | None, counts: Array, p: int) -> bool:
    """Whether there are rows enough, at hand unless covariances are, two features, and halves of every context."""
    at_hand = contexts is None or (contexts.engine is None and int(counts.min()) >= MIN_ROWS)
    return int(counts.sum()) > _FEW_ROWS and p > 1 and at_hand
