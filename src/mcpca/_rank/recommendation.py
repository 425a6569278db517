"""Which rank is recommended? The two tests that decide, and the sentences that say why.

``recommend`` is where ``automatic_rank`` and ``select_rank`` meet: the same ``RankData`` and seed give both the same
answer. It runs the noise test (``noise_test``), which bounds the rank; searches the ranks below that bound for the
largest at which halves of the rows agree (``rank_curves``, with the fits of ``criteria``); adds the criteria that were
requested, which do not decide; and returns a ``Recommendation``, which ``selection`` turns into the public result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from .._data.contexts import Contexts
from .._inference.sampling import MIN_ROWS
from .._utils.parallel import blas_aside, n_workers
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from .._utils.wording import beside, listed
from ..exceptions import SmallContextsWarning, UncertainRankWarning
from .evidence import Evidence
from .far_rows import LONG_ROWS, NearRows, without_far_rows
from .halves import Halves
from .leading_directions import in_directions, largest_rank, noise_directions
from .noise_test import STANDARD_DEVIATIONS, ResidualTest
from .paper_rule import check_ranks, check_within_data
from .rank_curves import Curves, default_ranks, thinned
from .rank_data import RankData
from .sample_fits import Method, Sweep

# Rows of all contexts together beyond which "nothing above noise" is taken at its word. Up to here it is believed only
# if the test would have seen a planted factor (``has_power``), which takes ten more draws.
_ROWS_WITH_POWER = 100
# Share of variance between groups above which readers are told of it: axes with less are likely to be hidden.
_LARGE_SHARE_OF_GROUPS = 0.1
_TESTED_KEY = 6  # of the stream that picks rows for the noise test, if not all are looked at; others: ``halves``
_DECIDED_BY_HALVES = ("agreed", "at odds")  # outcomes for which components of halves were compared


@dataclass(frozen=True)
class Recommendation:
    """A rank before there is a model of it: which MCPCs come back is known only once the model is fitted.

    ``outcome`` is that of ``RankSelection``, and ``above`` its ``n_above_noise``. The reason consists of the sentences
    ``words``, then how many components replicate, then the sentences ``last``. ``notes`` are warnings for the caller.
    """

    rank: int
    outcome: str
    words: list[str]
    above: int = 0
    curves: Curves | None = None
    votes: dict[str, int] = field(default_factory=dict)
    threshold: float = 0.8
    last: list[str] = field(default_factory=list)
    notes: list[Warning] = field(default_factory=list)

    @property
    def decided_by_halves(self) -> bool:
        """Whether components of halves were compared."""
        return self.curves is not None and self.curves.halves is not None and self.outcome in _DECIDED_BY_HALVES

    def evidence(self, A: Array | None) -> Evidence | None:
        """Return what is known of each column of ``A`` (p, r), or of the fit of the search; None without halves."""
        if not self.decided_by_halves:
            return None
        curves = self.curves
        assert curves is not None
        A = None if A is None else np.asarray(A, dtype=np.float64)
        halves = curves.replicability(self.rank, A)
        assert halves is not None
        if A is None:
            return Evidence(halves, self.threshold, curves.replicability_by_contexts(self.rank))
        return Evidence(
            halves,
            self.threshold,
            curves.replicability_by_contexts(self.rank, A),
            curves.dependence(self.rank, A),
            # Without a stack the test is one of directions of a half.
            None if curves.moments is None else curves.test.share_above(A, self.above),
        )

    def reason(self, evidence: Evidence | None) -> str:
        """Return all sentences; without ``evidence`` on the user's model those on halves count the search's own fit."""
        evidence = self.evidence(None) if evidence is None else evidence
        return " ".join([*self.words, *([] if evidence is None else evidence.sentences()), *self.last])

    def issue_warnings(self) -> None:
        """Issue the warnings in ``notes``."""
        for note in self.notes:
            warn(note)


def recommend(
    data: RankData,
    *,
    ranks: Iterable[int] | None = None,
    criteria: tuple[str, ...] = (),
    null: str = "auto",
    n_splits: int = 1,
    n_seed_pairs: int = 5,
    threshold: float = 0.8,
    workers: int | None = None,
    method: Method,
    rng: np.random.Generator,
    report: Report,
) -> Recommendation:
    """Choose a rank for validated ``data``, for models fitted by ``method``; all else is that of ``select_rank``."""
    n = data.n_samples
    p = data.n_features
    candidates = None if ranks is None else check_ranks(ranks, p, "ranks")
    # One draw whatever follows: the caller's generator then moves on equally far for every outcome.
    seed = int(rng.integers(2**62))
    if not data.varies:
        raise ValueError(
            "The covariances are all zero: no feature varies in any context, so there is no rank to choose."
        )
    if p == 1:
        return Recommendation(1, "one feature", ["Rank 1: there is only one feature, which leaves no choice."])
    # Halves need two rows each for a covariance.
    large_enough = np.flatnonzero(n >= MIN_ROWS)
    last: list[str] = []
    notes: list[Warning] = []
    if len(large_enough) < len(n):
        text = _too_small(data, n)
        last = [text]
        notes = [SmallContextsWarning(text)]
    # The fit keeps all contexts; only the tests go without the small ones.
    tested = data.subset(large_enough)
    if not len(large_enough) or not tested.varies:
        return _cannot_tell("no context has enough rows to be tested.", threshold, last, notes)
    # Threads go over contexts and ranks: BLAS threads on top of them would compete for the same cores.
    sweep = Sweep(1, seed, workers or n_workers(), report, method)
    with blas_aside(sweep.workers):
        draft = _test_and_search(tested, candidates, criteria, null, n_splits, n_seed_pairs, threshold, sweep)
    return replace(draft, last=[*draft.last, *last], notes=[*notes, *draft.notes])


def _test_and_search(
    data: RankData,
    candidates: Array | None,
    criteria: tuple[str, ...],
    null: str,
    n_splits: int,
    n_seed_pairs: int,
    threshold: float,
    sweep: Sweep,
) -> Recommendation:
    halves = None
    contexts: Contexts | None
    stream = sweep.generator(_TESTED_KEY, 0)
    if data.moments is None:
        assert data.contexts is not None
        # Halves first: the test looks at the rows of one along directions of the other.
        sweep = replace(sweep, largest=largest_rank(data.n_features))
        halves = Halves(data.contexts, n_splits, sweep)
        first, second = halves.splits[0]
        assert second.contexts is not None
        moments, contexts = in_directions(second.contexts, noise_directions(first), stream)
        null = "isotropic"
    else:
        moments, contexts = data.for_noise_test(stream)
    test = ResidualTest(moments, contexts, null, sweep.seed, sweep.workers, sweep.report)
    above = test.directions_above_noise()
    # In order of cost: the power of the test takes draws, and matters only if nothing was found in few rows.
    conclusive = above > 0 or int(data.n_samples.sum()) > _ROWS_WITH_POWER or test.has_power()
    near = without_far_rows(data, test, above, null, n_splits, threshold, sweep)
    if candidates is None:
        most = above if near is None else max(above, near.rank)
        grid = default_ranks(most, test.data_rank, data.n_samples)
        grid = grid if halves is None else grid[grid <= sweep.largest]
        all_beyond = False
    else:
        check_within_data(candidates, test.data_rank if halves is None else sweep.largest, "ranks")
        # No rank beyond ``above`` is recommended: where all candidates are, ``above`` itself takes part.
        all_beyond = 0 < above < int(candidates[0])
        grid = np.concatenate([[above], candidates]) if all_beyond else candidates
    # The basis is made for the largest rank that may be asked for, so it is known before the first fit.
    sweep = sweep if halves is not None else replace(sweep, largest=int(grid[-1]))
    curves = Curves(data.contexts, data.moments, test, sweep, n_splits, grid, halves)
    if above:
        curves.search([int(r) for r in grid if r <= above], threshold, patient=candidates is not None)
    draft = _decide(test, above, curves, threshold, conclusive)
    if near is not None and near.rank in grid:
        draft = _with_near_rows(draft, near, curves, threshold)
    share = test.share_of_groups
    if draft.outcome == "agreed" and share > _LARGE_SHARE_OF_GROUPS:
        draft.last.append(
            f"Differences between groups are {share:.0%} of the variance in the median context, and may hide axes; "
            "batch= with the same labels removes them."
        )
    is_cut = draft.outcome in _DECIDED_BY_HALVES and draft.rank < draft.above
    # Robust fits refuse nuisance.
    takes_robust = data.contexts is not None and data.contexts.nuisance is None
    if is_cut and takes_robust and test.excess_of_lengths(above) > LONG_ROWS:
        draft.last.append(
            "Lengths of rows vary far more than those of Gaussian rows: where some rows are outliers, robust=True "
            "gives them less weight, and halves may agree on more."
        )
    if criteria:
        # A curve needs more ranks than a decision.
        if candidates is not None:
            curves.fit_at(grid.tolist())
        elif len(curves.ranks) < 2:
            curves.fit_at(thinned(grid, above))
    if curves.ranks:
        curves.progress.finish()
    if criteria:
        curves.add(criteria, n_seed_pairs)
    if candidates is not None and all_beyond:
        draft.last.append(f"All of the given ranks, {candidates[0]} and more, exceed what is above noise.")
    return replace(draft, votes=votes(above, curves, threshold), threshold=threshold)


def _decide(test: ResidualTest, above: int, curves: Curves, threshold: float, conclusive: bool) -> Recommendation:
    """Turn the two tests into a rank, one outcome after the other; ``conclusive``: whether 0 would mean noise."""
    allowed = [r for r in curves.ranks if r <= above]
    if not allowed:
        return replace(_not_above_noise(test, conclusive, curves.contexts is not None), curves=curves)
    if curves.halves is None:
        # Nothing speaks against the largest: only rows could tell whether its components replicate.
        rank = allowed[-1]
        words = [
            f"Rank {rank}: {_above(test, above)}",
            "Without rows it is not known whether components come back in other rows.",
        ]
        return Recommendation(rank, "above noise", words, above, curves)
    what = curves.halves.halving.by
    agreeing = curves.largest_agreeing(allowed, threshold)
    if agreeing is not None:
        rank = agreeing
        how = f"Halves of the {what} agree on the components,"
        if rank < above:
            how = f"It is the largest rank looked at where halves of the {what} agree,"
        cosine = f"mean |cos| {beside(curves.agreement(rank), threshold, 3)} > {threshold:g}."
        return Recommendation(rank, "agreed", [f"Rank {rank}: {_above(test, above)} {how} {cosine}"], above, curves)
    # NaN, for halves with too few rows, counts as no agreement.
    rank = max(allowed, key=lambda r: np.nan_to_num(curves.agreement(r)))
    curves.settle_components(rank, threshold)
    agreement = curves.agreement(rank)
    how = f"Halves of the {what} agree on the components at no rank that was looked at;"
    if np.isnan(agreement):
        how += " they have too few rows to be compared."
    else:
        how += f" best here, mean |cos| {beside(agreement, threshold, 3)}; more than {threshold:g} is required."
    if what == "groups":
        how += " Where groups differ more than axes do, batch= with the same labels removes their differences."
    note = UncertainRankWarning(f"Rank {rank}: {how} Treat its axes as a proposal; n_components=... sets a rank.")
    words = [f"Rank {rank}: {_above(test, above)} {how}"]
    return Recommendation(rank, "at odds", words, above, curves, notes=[note])


def _with_near_rows(draft: Recommendation, near: NearRows, curves: Curves, threshold: float) -> Recommendation:
    """Take the rank at which halves agree where far rows weigh less, unless far rows have axes that come back."""
    assert curves.halves is not None
    if draft.outcome == "agreed" and draft.rank >= near.rank:
        found = curves.replicability(draft.rank)
        assert found is not None
        if draft.rank == near.rank or int((found.agreement > threshold).sum()) > near.rank:
            return draft
    curves.fit_at([near.rank])
    curves.settle_components(near.rank, threshold)
    agreement = curves.agreement(near.rank)
    noun = "direction is" if near.rank == 1 else "directions are"
    words = (
        f"Rank {near.rank}: {near.rank} {noun} above noise where rows far from the rest of their context weigh less, "
        f"and halves of the {curves.halves.halving.by} then agree on the components, "
        f"mean |cos| {beside(near.agreement, threshold, 3)} > {threshold:g}."
    )
    alike = f"With all rows alike mean |cos| is {beside(agreement, threshold, 3)}"
    if agreement > threshold:
        return replace(draft, rank=near.rank, outcome="agreed", words=[words, f"{alike}."], above=near.rank, notes=[])
    way_out = "robust=True gives far rows less weight in the fit, too."
    note = UncertainRankWarning(
        f"Rank {near.rank}: halves of the {curves.halves.halving.by} agree on the components only where rows far from "
        f"the rest of their context weigh less. {alike}, and more than {threshold:g} is required. {way_out}"
    )
    words_of_fit = f"{alike}: lengths of rows vary far more than those of Gaussian rows. {way_out}"
    return replace(draft, rank=near.rank, outcome="agreed", words=[words, words_of_fit], above=near.rank, notes=[note])


def _not_above_noise(test: ResidualTest, conclusive: bool, has_rows: bool) -> Recommendation:
    if not conclusive:
        # ``freedom`` is one less than the rows of each context.
        n_rows = int(test.whole.freedom.sum()) + len(test.whole.freedom)
        return _cannot_tell(
            f"{n_rows:,} rows of {len(test.V)} features are too few: a factor that holds a tenth of the variance of "
            "every feature would not stand out."
        )
    noise = "the same rows with random signs" if has_rows else "independent Gaussian features"
    if not test.has_drawn:
        noise = "white noise"
    if test.data is not test.whole:
        noise = "the same rows with random signs, drawn for rows within groups and for groups"
    level = test.level(0)
    excess = beside(level.by_spread, STANDARD_DEVIATIONS, 1)
    pooled = ""
    if np.isfinite(level.shared):
        bound = level.shared_bound
        pooled = f"; for an axis that all share {beside(level.shared, bound, 1)}, more than {bound:g}"
    reason = (
        f"Nothing is above noise: the covariances spread no more than those of {noise} "
        f"({excess} standard deviations; more than {STANDARD_DEVIATIONS:.0f} are required{pooled})."
    )
    return Recommendation(0, "noise", [reason])


def _cannot_tell(
    why: str,
    threshold: float = 0.8,
    last: list[str] | None = None,
    notes: list[Warning] | None = None,
) -> Recommendation:
    words = f"Rank 1, the smallest: it cannot be told whether anything is above noise, since {why}"
    note = UncertainRankWarning(f"{words} n_components=... sets a rank.")
    return Recommendation(
        1,
        "untold",
        [words],
        threshold=threshold,
        last=last or [],
        notes=[*(notes or []), note],
    )


def _too_small(data: RankData, n: Array) -> str:
    small = np.flatnonzero(n < MIN_ROWS)
    names = data.names.tolist()
    small_contexts = listed([f"{names[i]!r} ({n[i]})" for i in small])
    return (
        f"{len(small)} of {len(n)} contexts have fewer than {MIN_ROWS} rows, too few for a say in the choice of the "
        f"rank; they stay in the fit: {small_contexts}."
    )


def _above(test: ResidualTest, above: int) -> str:
    noun = "direction is" if above == 1 else "directions are"
    # The levels of the search describe the spread of all contexts together, so they cannot explain directions of single
    # ones.
    if test.together < above:
        return f"{above} {noun} above noise, {above - test.together} of them in single contexts only."
    before = test.levels.get(above - 1)
    after = test.levels.get(above)
    if before is None or after is None:
        return f"{above} {noun} above noise."
    excess_before = beside(before.excess, STANDARD_DEVIATIONS, 0)
    excess_after = beside(after.excess, STANDARD_DEVIATIONS, 1)
    return (
        f"{above} {noun} above noise (before the last of them {excess_before} standard deviations are left, after it "
        f"{excess_after})."
    )


# How a column of the table becomes a vote. Columns that are in none of these have no vote of their own.
_LARGEST_PASSING = ("split-half agreement", "seed stability")  # the largest rank above the threshold
_SMALLEST_VALUE = ("held-out error", "BIC")
_HIGHEST_VALUE = ("projection similarity", "loading similarity", "context consistency", "held-out log-likelihood")


def votes(above: int, curves: Curves, threshold: float) -> dict[str, int]:
    """Return the rank that each criterion alone would choose among those that were examined."""
    ranks = np.array(curves.ranks, dtype=np.intp)
    scree = curves.scree
    by_criterion = {"noise test": above}
    if scree:
        # The first index inside the band is the number of singular values above it.
        inside = np.flatnonzero(scree["singular value"] <= scree["null upper"])
        by_criterion["scree"] = int(inside[0]) if len(inside) else len(scree["singular value"])
    for name, values in curves.all_columns().items():
        # Ranks at which the criterion could not be computed have no vote.
        known = np.flatnonzero(np.isfinite(values))
        if name in _LARGEST_PASSING:
            passing = ranks[known][values[known] > threshold]
            by_criterion[name] = int(passing[-1]) if len(passing) else 0
        # Similarities that are 0 at every rank prefer none.
        elif name in _SMALLEST_VALUE + _HIGHEST_VALUE and len(known) and values[known].any():
            signed = values[known] if name in _HIGHEST_VALUE else -values[known]
            # Of equally good ranks the largest, which keeps the most components.
            best = np.flatnonzero(signed >= signed.max())[-1]
            by_criterion[name] = int(ranks[known][best])
    return by_criterion
