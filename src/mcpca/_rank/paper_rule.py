"""At which ranks do runs from different seeds agree? The paper's rule (its section "Choosing the rank").

The largest candidate at which they agree is chosen. This stands apart from ``select_rank``: ``choose_rank`` is the
public function, ``automatic_rank`` uses the rule if ``rank_range`` is set, and the criterion "seeds" of ``select_rank``
borrows ``seed_scores``. It needs covariances and no rows, and does not ask whether anything is above noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._covariances.interface import Covariances
from .._covariances.scaling import stack_in_range
from .._covariances.stack import CovarianceStack
from .._covariances.subspace import Core, compress, numerical_rank
from .._covariances.validation import check_covariances
from .._linalg.canonical import ascore
from .._solvers.plain import plain_runs
from .._utils.arguments import as_generator, check_integer, check_real, one_random_state
from .._utils.other_package import CHOOSE_RANK, knows_other_options
from .._utils.printing import Shown, around, counted, span
from .._utils.progress import reporting
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from .._utils.wording import beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Runs go to convergence. Stopped after 100 steps, or at a tolerance of 1e-4, scores measure how early runs were stopped
# (docs/rank.md has the numbers for the paper's digits).
PLAIN_TOL = 1e-9
PLAIN_STEPS = 20_000
MATCHINGS = ("greedy", "authors")
_STAGE = uneven("ranks")  # higher ones take longer
_MAX_CANDIDATES = 20  # each costs 2 n_seed_pairs runs
_SCREE_END = 50  # singular values among which an elbow is sought
_END_WITHOUT_ELBOW = 30
_ELBOW = 2.0  # a singular value this many times the next ends the candidates


@dataclass(frozen=True, repr=False)
class RankChoice(Shown):
    """A rank chosen by the paper's rule, and the curve behind it.

    Attributes
    ----------
    rank : int or None
        The largest rank whose mean score exceeds the threshold; None if ``outcome`` is "none stable".
    outcome : {"stable", "none stable"}
    reason : str
        Why, in a sentence.
    ranks : ndarray (m,)
        Candidates, ascending.
    scores : ndarray (m, n_seed_pairs)
        Mean matched ``|cos|`` of each pair of runs.
    threshold : float
    singular_values : ndarray
        The scree: singular values of the flattening.
    unsettled : ndarray (m,) or None
        How many of the ``2 n_seed_pairs`` runs at each rank have a component that had not converged. Such runs differ
        not only by their seeds but also by where they were stopped. None in files written by versions that did not
        count them.
    matching : {"greedy", "authors"}
        How components of two runs were paired.
    """

    rank: int | None
    outcome: str
    reason: str
    ranks: Array
    scores: Array
    threshold: float
    singular_values: Array
    unsettled: Array | None = None
    matching: str = "greedy"

    @property
    def mean_scores(self) -> Array:
        """Mean over pairs of runs (m,), the curve that is compared with the threshold."""
        return np.asarray(self.scores.mean(axis=1))

    def plot(self) -> Figure:
        """Draw the scores of all ranks with their mean, the threshold and the choice: the paper's Fig. S2F."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_rank_choice

        return cast("Figure", plot_rank_choice(self).figure)

    def times_power(self, e: int) -> RankChoice:
        """Return the choice for covariances times ``4^e``."""
        return replace(self, singular_values=np.ldexp(self.singular_values, 2 * e))

    def _words(self) -> list[str]:
        pairs = counted(self.scores.shape[1], "pair")
        return [
            self.reason,
            f"Looked at: ranks {span(self.ranks, '.0f')}, by {pairs} of runs each, mean scores "
            f"{span(self.mean_scores)}.",
        ]

    def _rows(self) -> dict[str, Any]:
        near = around(self.ranks, self.rank)
        return {
            "rank": self.ranks[near],
            "mean score": self.mean_scores[near],
            "least": self.scores.min(axis=1)[near],
            "largest": self.scores.max(axis=1)[near],
        }


@knows_other_options(CHOOSE_RANK)
def choose_rank(
    S: Any,
    ranks: Iterable[int] | None = None,
    *,
    n_seed_pairs: int = 5,
    cos_sim_threshold: float = 0.8,
    random_state: Any = None,
    rng: Any = None,
    tol: float = PLAIN_TOL,
    max_iter: int = PLAIN_STEPS,
    matching: str = "greedy",
    verbose: Any = None,
) -> RankChoice:
    """Choose the rank by the paper's stability rule.

    For each candidate rank, ``n_seed_pairs`` pairs of runs start from different random numbers. The score of a pair is
    the mean absolute cosine between matched components, and the largest rank whose mean score exceeds
    ``cos_sim_threshold`` is chosen. Agreement between seeds means that these data determine the components well. It
    does not mean that the components are above noise.

    Parameters
    ----------
    S : array-like (k, p, p)
        Covariances.
    ranks : iterable of int, optional
        Candidates. By default up to 20 ranks, from 1 to the largest relative drop among the first 50 singular values
        of the flattening, from the second on, if that is a drop to less than half. Otherwise they end at 30, or at the
        numerical rank if that is smaller.
    n_seed_pairs, cos_sim_threshold : int, float
        The paper's parameters.
    random_state, rng, verbose
        As in ``decompose``. For the same data the choice depends on these only.
    tol, max_iter : float, int
        Length of the last step, and the largest number of power steps per start: runs of the plain power method go to
        convergence. If ``max_iter`` steps are not enough, ``unsettled`` and ``reason`` say at which ranks, and a
        ``ConvergenceWarning`` is issued.
    matching : {"greedy", "authors"}
        How components of two runs are paired before their cosines are averaged. "greedy" pairs by ``|cos|``, each
        component with the best one left. "authors" does what the code behind the paper's ranks does: the distance of
        two components is the L1 norm of their difference if their angle is acute, else the squared L2 norm of their
        sum, and each is paired with the nearest one left. With p features the first is up to ``sqrt(p)`` times the L2
        norm, so a pair that is close but not equal may lose to a wrong one of opposite sign, and scores are lower.

    Returns
    -------
    RankChoice
        If no rank is stable, ``outcome`` is "none stable" and ``rank`` None; this is not an error.

    Notes
    -----
    Cost: one basis, O(k p^3), and ``2 n_seed_pairs`` runs per candidate in the compressed space, side by side.
    """
    # Runs take products of covariances, fourth powers of the data; scores have no unit, and the scree is scaled back.
    S, e = stack_in_range(check_covariances(S))
    with reporting(verbose, "choice of the rank") as report:
        choice, _ = choose_rank_checked(
            CovarianceStack(S),
            ranks,
            n_seed_pairs=n_seed_pairs,
            cos_sim_threshold=cos_sim_threshold,
            rng=as_generator(one_random_state(rng, random_state)),
            tol=tol,
            max_iter=max_iter,
            matching=matching,
            report=report,
        )
    return choice.times_power(e)


def choose_rank_checked(
    S: Covariances,
    ranks: Iterable[int] | None,
    *,
    n_seed_pairs: int,
    cos_sim_threshold: float,
    rng: np.random.Generator,
    report: Report,
    tol: float = PLAIN_TOL,
    max_iter: int = PLAIN_STEPS,
    matching: str = "greedy",
) -> tuple[RankChoice, Core]:
    """``choose_rank`` for validated covariances; also returns the core, which serves a fit at any candidate."""
    tol = check_real(tol, "tol", 1e-15, 1e-2, "It is the length of a step on the unit sphere.")
    max_iter = check_integer(max_iter, "max_iter", 1)
    n_seed_pairs = check_integer(n_seed_pairs, "n_seed_pairs", 1)
    threshold = check_real(cos_sim_threshold, "cos_sim_threshold", 0, 1, "It is a mean absolute cosine.")
    if matching not in MATCHINGS:
        raise ValueError(f"matching={matching!r}; choose 'greedy' or 'authors'.")
    p = S.n_features
    if ranks is None:
        # One basis for all candidates: the scree is needed anyway, and smaller ranks are cut from it.
        core = compress(S, min(p, _SCREE_END))
        candidates = _candidates_from_scree(core.singular_values, numerical_rank(core.singular_values, S))
    else:
        candidates = check_ranks(ranks, p)
        # Ascending, so the last candidate needs the widest basis, which serves all others.
        core = compress(S, int(candidates[-1]))
        check_within_data(candidates, numerical_rank(core.singular_values, S))
    # (candidates, pairs); the ones stay only with a single context.
    scores = np.ones((len(candidates), n_seed_pairs))
    unsettled = np.zeros(len(candidates), dtype=int)
    # One number, from which every run is seeded: the generator moves on equally far for any list of candidates.
    seed = int(rng.integers(2**62))
    for i, r in enumerate(candidates):
        report(_STAGE, i, len(candidates))
        if S.n_contexts == 1:
            continue  # PCA: every run gives the same axes, with score 1
        scores[i], unsettled[i] = seed_scores(core, int(r), n_seed_pairs, seed, tol, max_iter, matching)
    report(_STAGE, len(candidates), len(candidates))
    choice = _largest_stable(candidates, scores, threshold, core.singular_values)
    not_converged = _not_converged(candidates, unsettled, 2 * n_seed_pairs, tol, max_iter)
    if not_converged:
        warn(not_converged, ConvergenceWarning)
    # In the reason as well as in a warning, since the choice is kept and saved, and warnings are not.
    reason = f"{choice.reason} {not_converged}".strip()
    return replace(choice, reason=reason, unsettled=unsettled, matching=matching), core


class SeedScores(NamedTuple):
    """Mean matched ``|cos|`` of each pair of runs, and how many of the runs had not converged."""

    scores: Array
    unsettled: int


def seed_scores(
    core: Core,
    r: int,
    n_seed_pairs: int,
    seed: int,
    tol: float = PLAIN_TOL,
    max_iter: int = PLAIN_STEPS,
    matching: str = "greedy",
) -> SeedScores:
    """Return how well ``n_seed_pairs`` pairs of plain runs at rank ``r`` agree.

    Runs are seeded by rank and number, so that a candidate's score does not depend on the other candidates. Nor does
    it depend on the unit, or on the arbitrary signs of the singular vectors in whose coordinates runs start.
    """
    streams = [np.random.default_rng((seed, r, j)) for j in range(2 * n_seed_pairs)]
    # The core that this rank would have got on its own, so that scores do not depend on the largest candidate.
    part = core.leading(r)
    signs = _basis_signs(part)
    # Runs are made in coordinates of a basis with fixed signs and turned back: D T_i D for D = diag(signs), D^2 = I.
    runs, settled = plain_runs(signs[:, None] * part.tensor * signs, r, streams, tol, max_iter)
    runs *= signs[:, None]
    pairs = [(runs[2 * j], runs[2 * j + 1]) for j in range(n_seed_pairs)]
    if matching == "authors":
        # Unlike cosines, L1 distances change with the coordinates: they must be taken in features.
        scores = [authors_score(part.lift(first), part.lift(second)) for first, second in pairs]
    else:
        # The basis is orthonormal, so cosines in its coordinates are those in features: nothing has to be lifted.
        scores = [ascore(first, second) for first, second in pairs]
    return SeedScores(np.array(scores), int((~settled).sum()))


def _basis_signs(core: Core) -> Array:
    """Return the sign of the largest entry of each column of the basis (q,)."""
    if core.basis is None:
        return np.ones(core.tensor.shape[1])
    # LAPACK may return a singular vector with either sign, depending on the machine; starts are random numbers in its
    # coordinates.
    peaks = np.abs(core.basis).argmax(axis=0)
    return np.where(core.basis[peaks, np.arange(len(peaks))] < 0, -1.0, 1.0)


def authors_score(A: Array, A_ref: Array) -> float:
    """Return the mean |cos| of the columns (p, r), each of ``A_ref`` paired with the nearest of ``A`` that is left.

    Distances are ``|a - b|_1`` where ``a . b > 0``, else ``|a + b|_2^2``: the published ranks rest on this.
    """
    r = A_ref.shape[1]
    # (r, r), a row for each column of A_ref.
    cosines = A_ref.T @ A
    distances = 2 + 2 * cosines  # |a + b|_2^2 for unit columns
    for j in range(r):
        acute = cosines[j] > 0
        distances[j, acute] = np.abs(A[:, acute] - A_ref[:, [j]]).sum(axis=0)
    matched = np.empty(r)
    # In the order of the columns of ``A_ref``, which is not the best overall: the authors' code does so.
    for j in range(r):
        nearest = int(np.argmin(distances[j]))
        matched[j] = abs(cosines[j, nearest])
        distances[:, nearest] = np.inf
    return float(matched.mean())


def _not_converged(ranks: Array, unsettled: Array, n_runs: int, tol: float, max_iter: int) -> str:
    """Say at which ranks runs were stopped before they had converged; "" if none were."""
    affected = [f"{r} ({n} of {n_runs})" for r, n in zip(ranks, unsettled, strict=True) if n]
    if not affected:
        return ""
    return (
        f"Runs had not converged to tol={tol:g} after max_iter={max_iter} steps at rank{'s' * (len(affected) > 1)} "
        f"{', '.join(affected)}, where scores may be too low; raise either."
    )


def _largest_stable(ranks: Array, scores: Array, threshold: float, singular_values: Array) -> RankChoice:
    means = scores.mean(axis=1)
    # "Exceeds", as the paper has it. Scores need not fall with the rank: the largest that passes, not the last before a
    # failure.
    passing = np.flatnonzero(means > threshold)
    if len(passing):
        best = passing[-1]
        rank = int(ranks[best])
        reason = (
            f"Rank {rank} is the largest of {len(ranks)} candidates at which runs from different seeds agree: mean "
            f"|cos| {beside(means[best], threshold, 3)} > {threshold:g}."
        )
        return RankChoice(rank, "stable", reason, ranks, scores, threshold, singular_values)
    best = np.argmax(means)
    reason = (
        f"No candidate rank passed: the best, {ranks[best]}, has mean |cos| {beside(means[best], threshold, 3)} <= "
        f"{threshold:g} between seeds. Try smaller ranks, lower cos_sim_threshold, or force one with n_components."
    )
    return RankChoice(None, "none stable", reason, ranks, scores, threshold, singular_values)


def _candidates_from_scree(sigma: Array, rank: int) -> Array:
    if rank == 0:
        raise ValueError(
            "The covariances are all zero: no feature varies in any context, so there is no rank to choose."
        )
    # The drop after the last feature is no evidence, and neither is the one after the first singular value: most data
    # have a direction far above all others. A drop to rounding error, at the numerical rank, is evidence.
    end = min(rank, _SCREE_END, len(sigma) - 1)
    # drops[i] is the ratio of the singular values with indices i + 1 and i + 2, that is the drop after rank i + 2. The
    # floor keeps zeros from dividing.
    drops = sigma[1:end] / np.maximum(sigma[2 : end + 1], np.finfo(float).eps * sigma[0])
    elbow = int(np.argmax(drops)) + 2 if drops.max(initial=0) > _ELBOW else None  # + 2: the first drop is that at 2
    last = min(rank, _END_WITHOUT_ELBOW) if elbow is None else elbow
    # Evenly spread and rounded; ``unique`` drops what rounding made equal.
    return np.unique(np.linspace(1, last, min(last, _MAX_CANDIDATES)).round().astype(int))


def check_ranks(ranks: Iterable[int], p: int, name: str = "rank_range") -> Array:
    """Return candidate ranks within 1 to p, ascending and each once."""
    try:
        # A list, since a generator can be gone through only once.
        values = list(ranks)
    except TypeError:
        raise ValueError(f"{name}={ranks!r} is not a list of ranks; pass for example range(2, 20).") from None
    if not values:
        raise ValueError(f"{name} is empty; pass at least one candidate rank, for example range(2, 20).")
    return np.unique(
        [check_integer(v, f"{name} entry", 1, p, f"Keep candidates within 1 to {p} features.") for v in values]
    )


def check_within_data(candidates: Array, rank: int, name: str = "rank_range", data: str = "the data") -> None:
    """Raise if a candidate exceeds the numerical rank of the data."""
    if candidates[-1] > rank:
        raise ValueError(
            f"{name} reaches {candidates[-1]}, above the numerical rank of {data}, {rank}; keep candidates <= {rank}."
        )
