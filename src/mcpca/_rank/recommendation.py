"""The two tests that decide on a rank, and what is said where they cannot."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from .._inference.replication import MIN_ROWS, Replicability
from .._utils.parallel import n_workers, one_thread_each
from .._utils.types import Array, Report
from .._utils.wording import beside, listed
from ..exceptions import SmallContextsWarning, UncertainRankWarning
from .criteria import Sweep
from .noise_test import STANDARD_DEVIATIONS, ResidualTest
from .paper_rule import check_ranks, check_within_data
from .rank_curves import Curves, default_ranks, thinned
from .rank_data import RankData

_FEW_ROWS = 100  # of all contexts together: beyond that "nothing above noise" is taken at its word


@dataclass(frozen=True)
class Recommendation:
    """A rank before there is a model of it: whose MCPCs come back is said once it is known which these are.

    ``outcome`` is that of ``RankSelection``; ``words`` are the sentences of its reason, and ``last`` those that follow
    on what comes back; ``notes`` are warnings for the caller.
    """

    rank: int
    outcome: str
    words: list[str]
    above: int = 0
    curves: Curves | None = None
    votes: dict[str, int] = field(default_factory=dict)
    threshold: float = 0.8
    of_features: int | None = None
    last: list[str] = field(default_factory=list)
    notes: list[Warning] = field(default_factory=list)

    def replicability(self, A: Array | None) -> Replicability | None:
        """Return which columns of ``A`` (p, r) come back; None where that was not looked at."""
        if A is None or self.curves is None or self.curves.halves is None or self.outcome not in ("agreed", "at odds"):
            return None
        return Replicability(self.curves.halves.cosines(self.rank, np.asarray(A, dtype=np.float64)))

    def reason(self, found: Replicability | None) -> str:
        """Return all sentences; where ``found`` is not known, on components of the power method for these features."""
        back = []
        if found is None and self.curves is not None and self.outcome in ("agreed", "at odds"):
            counted = Replicability(self.curves.cosines(self.rank)).in_words(" components of the power method")
            back = [counted[0].upper() + counted[1:] + "."]
        elif found is not None:
            counted = found.in_words()
            back = [counted[0].upper() + counted[1:] + "."]
        return " ".join([*self.words, *back, *self.last])

    def warn(self, stacklevel: int) -> None:
        """Tell what the caller should not miss."""
        for note in self.notes:
            warnings.warn(note, stacklevel=stacklevel + 1)


def recommend(
    data: RankData,
    *,
    ranks: Iterable[int] | None = None,
    criteria: tuple[str, ...] = (),
    null: str = "auto",
    n_splits: int = 2,
    n_seed_pairs: int = 5,
    threshold: float = 0.8,
    workers: int | None = None,
    rng: np.random.Generator,
    report: Report,
) -> Recommendation:
    """Choose a rank by ``data`` that was read and checked; the parameters are those of ``select_rank``."""
    S, n = data.moments.covariances, data.moments.n_samples
    p = S.shape[1]
    given = None if ranks is None else check_ranks(ranks, p, "ranks")
    seed = int(rng.integers(2**62))
    if not S.any():
        raise ValueError(
            "The covariances are all zero: no feature varies in any context, so there is no rank to choose."
        )
    if p == 1:
        return Recommendation(1, "one feature", ["Rank 1: there is one feature, which leaves no rank to choose."])
    kept = np.flatnonzero(n >= MIN_ROWS)
    last = _of_features(data, p)
    notes: list[Warning] = []
    if len(kept) < len(n):
        text = _too_small(data, n)
        last, notes = [*last, text], [SmallContextsWarning(text)]
    tested = data.only(kept)
    if not len(kept) or not tested.moments.covariances.any():
        return _cannot_tell("no context has rows enough to be tested.", threshold, data, last, notes)
    with one_thread_each():
        found = _tested(
            tested, given, criteria, null, n_splits, n_seed_pairs, threshold, workers or n_workers(), seed, report
        )
    return replace(found, last=[*found.last, *last], notes=[*notes, *found.notes], of_features=data.of_features)


def _tested(
    data: RankData,
    given: Array | None,
    criteria: tuple[str, ...],
    null: str,
    n_splits: int,
    n_seed_pairs: int,
    threshold: float,
    workers: int,
    seed: int,
    report: Report,
) -> Recommendation:
    moments, contexts = data.moments, data.contexts
    test = ResidualTest(moments, contexts, null, seed, workers, report)
    above = test.directions_above_noise()
    told = above > 0 or int(moments.n_samples.sum()) > _FEW_ROWS or test.has_power()
    if given is not None:
        check_within_data(given, test.data_rank, "ranks")
    grid = default_ranks(above, test.data_rank, moments.n_samples) if given is None else given
    if given is not None and 0 < above < given[0]:
        grid = np.concatenate([[above], given])
    curves = Curves(contexts, moments, test, Sweep(int(grid[-1]), seed, workers, report), n_splits, grid)
    if above:
        curves.search([int(r) for r in grid if r <= above], threshold, patient=given is not None)
    draft = _decide(test, above, curves, threshold, told)
    if criteria:
        if given is not None:
            curves.look_at(grid.tolist())
        elif len(curves.ranks) < 2:
            curves.look_at(thinned(grid, above))
    if curves.ranks:
        curves.told.finish()
    if criteria:
        curves.add(criteria, n_seed_pairs)
    if given is not None and 0 < above < given[0]:
        draft.last.append(f"All of the given ranks, {given[0]} and more, exceed what is above noise.")
    return replace(draft, votes=votes(above, curves, threshold), threshold=threshold)


def _decide(test: ResidualTest, above: int, curves: Curves, threshold: float, told: bool) -> Recommendation:
    allowed = [r for r in curves.ranks if r <= above]
    if not allowed and not told:
        n = int(test.freedom.sum()) + len(test.freedom)
        why = (
            f"{n:,} rows of {len(test.V)} features are too few: a factor that holds a tenth of the variance of every "
            "feature would not stand out."
        )
        return replace(_cannot_tell(why), curves=curves)
    if not allowed:
        rows = "the same rows with random signs" if test.contexts is not None else "independent Gaussian features"
        excess = beside(test.level(0).excess, STANDARD_DEVIATIONS, 1)
        reason = (
            f"Nothing is above noise: the covariances spread no more than those of {rows} "
            f"({excess} standard deviations; more than {STANDARD_DEVIATIONS:.0f} are asked for)."
        )
        return Recommendation(0, "noise", [reason], curves=curves)
    if curves.halves is None:
        rank = allowed[-1]
        words = [f"Rank {rank}: {_above(test, above)}", "Without rows it is not known whether components come back."]
        return Recommendation(rank, "above noise", words, above, curves)
    passing = [r for r in allowed if curves.agreement(r) > threshold]
    while passing and not curves.settle(passing[-1], threshold):
        passing.pop()
    if passing:
        rank = passing[-1]
        cosine = f"mean |cos| {beside(curves.agreement(rank), threshold, 3)} > {threshold:g}."
        how = "Halves of the rows agree on the components,"
        if rank < above:
            how = "It is the largest rank looked at where halves of the rows agree,"
        return Recommendation(rank, "agreed", [f"Rank {rank}: {_above(test, above)} {how} {cosine}"], above, curves)
    rank = max(allowed, key=lambda r: np.nan_to_num(curves.agreement(r)))
    curves.settle(rank, threshold)
    agreement = curves.agreement(rank)
    how = "Halves of the rows agree on the components at no rank that was looked at;"
    how += (
        " they have too few rows to be compared."
        if np.isnan(agreement)
        else f" best here, mean |cos| {beside(agreement, threshold, 3)}; more than {threshold:g} is asked for."
    )
    note = UncertainRankWarning(f"Rank {rank}: {how} Take its axes for a proposal; n_components=... passes a rank.")
    words = [f"Rank {rank}: {_above(test, above)} {how}"]
    return Recommendation(rank, "at odds", words, above, curves, notes=[note])


def _cannot_tell(
    why: str,
    threshold: float = 0.8,
    data: RankData | None = None,
    last: list[str] | None = None,
    notes: list[Warning] | None = None,
) -> Recommendation:
    words = f"Rank 1, the smallest: whether anything is above noise cannot be told, since {why}"
    note = UncertainRankWarning(f"{words} n_components=... passes a rank.")
    return Recommendation(
        1,
        "untold",
        [words],
        threshold=threshold,
        of_features=None if data is None else data.of_features,
        last=last or [],
        notes=[*(notes or []), note],
    )


def _of_features(data: RankData, p: int) -> list[str]:
    if data.of_features is None:
        return []
    return [f"This was looked at on the {p} most variable of {data.of_features:,} features."]


def _too_small(data: RankData, n: Array) -> str:
    few = np.flatnonzero(n < MIN_ROWS)
    names = data.moments.contexts.tolist()
    told = listed([f"{names[i]!r} ({n[i]})" for i in few])
    return (
        f"{len(few)} of {len(n)} contexts have fewer than {MIN_ROWS} rows, too few for a say in the choice of the "
        f"rank; they stay in the fit: {told}."
    )


def _above(test: ResidualTest, above: int) -> str:
    noun = "direction is" if above == 1 else "directions are"
    if test.together < above:
        return f"{above} {noun} above noise, {above - test.together} of them in single contexts only."
    before, after = (test.levels.get(r) for r in (above - 1, above))
    if before is None or after is None:
        return f"{above} {noun} above noise."
    left, rest = (beside(level.excess, STANDARD_DEVIATIONS, d) for level, d in ((before, 0), (after, 1)))
    return f"{above} {noun} above noise (before the last of them {left} standard deviations are left, after it {rest})."


_LARGEST_PASSING = ("split-half agreement", "seed stability")
_SMALLEST = ("held-out error", "BIC")
_HIGHEST = ("projection similarity", "loading similarity", "context consistency", "held-out log-likelihood")


def votes(above: int, curves: Curves, threshold: float) -> dict[str, int]:
    """Return the rank that each criterion alone would choose among those that were looked at."""
    columns, ranks, scree = curves.all_columns(), np.array(curves.ranks, dtype=np.intp), curves.scree
    out = {"noise test": above}
    if scree:
        inside = np.flatnonzero(scree["singular value"] <= scree["null upper"])
        out["scree"] = int(inside[0]) if len(inside) else len(scree["singular value"])
    for name, values in columns.items():
        known = np.flatnonzero(np.isfinite(values))
        if name in _LARGEST_PASSING:
            passing = ranks[known][values[known] > threshold]
            out[name] = int(passing[-1]) if len(passing) else 0
        elif name in _SMALLEST + _HIGHEST and len(known) and values[known].any():
            signed = values[known] if name in _HIGHEST else -values[known]
            # Of equals the largest rank, which says most.
            out[name] = int(ranks[known][np.flatnonzero(signed >= signed.max())[-1]])
    return out
