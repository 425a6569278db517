"""Which rank, and is it real: two tests that decide, and what every other criterion says beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ._check import (
    Array,
    Report,
    as_generator,
    as_report,
    check_counts,
    check_covariances,
    check_integer,
    check_real,
)
from ._namespace import to_host
from ._optional import require
from ._parallel import n_workers, one_thread_each
from .contexts import Contexts, read_contexts
from .criteria import Sweep
from .curves import Curves, default_ranks, thinned
from .rank import check_ranks, check_within_data
from .replication import Replicability, check_halves
from .residual import NULLS, STANDARD_DEVIATIONS, ResidualTest
from .scatters import ContextCovariances, covariances_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CRITERIA = ("scree", "seeds", "holdout", "likelihood")


@dataclass(frozen=True)
class RankSelection:
    """A recommended rank with its reason, and the curves of every criterion.

    Attributes
    ----------
    rank : int
        The recommendation; 0 where nothing is above noise.
    reason : str
        In a sentence or two.
    n_above_noise : int
        Directions above noise: the recommendation is at most that.
    ranks : ndarray (m,)
        Ranks that were looked at.
    columns : dict of str to ndarray (m,)
        One curve per criterion; ``select_rank`` explains each.
    votes : dict of str to int
        The rank that each criterion alone would choose among ``ranks``.
    replicability : Replicability or None
        Of each component at the recommended rank; None at rank 0 and without rows.
    pairwise : dict of str to ndarray (m, m)
        The paper's measures between pairs of ranks: "projection similarity", "loading similarity", "context
        consistency".
    scree : dict of str to ndarray (p,)
        "singular value" of the flattening, and of noise the "null mean" and the "null upper" end of its band.
    threshold : float
        The ``|cos|`` that agreement between halves and between seeds is compared with.
    """

    rank: int
    reason: str
    n_above_noise: int
    ranks: Array
    columns: dict[str, Array]
    votes: dict[str, int]
    replicability: Replicability | None
    pairwise: dict[str, Array] = field(default_factory=dict)
    scree: dict[str, Array] = field(default_factory=dict)
    threshold: float = 0.8

    @property
    def table(self) -> Any:
        """The curves as a pandas DataFrame, one row per rank; without pandas a dict of arrays."""
        content = {"rank": self.ranks, **self.columns}
        try:
            return require("pandas", "pandas").DataFrame(content).set_index("rank")
        except ImportError:
            return content

    def plot(self) -> Figure:
        """Draw all curves with the choice marked, and the rank x rank heatmaps where they were asked for."""
        from .plotting import plot_rank_selection

        return plot_rank_selection(self)

    def to_json(self) -> str:
        """Return everything as JSON text; what is not known is null."""
        return json.dumps(
            {
                "rank": self.rank,
                "reason": self.reason,
                "n_above_noise": self.n_above_noise,
                "threshold": self.threshold,
                "ranks": self.ranks.tolist(),
                "votes": self.votes,
                "columns": _to_lists(self.columns),
                "pairwise": _to_lists(self.pairwise),
                "scree": _to_lists(self.scree),
                "replicability": None
                if self.replicability is None
                else {"threshold": self.replicability.threshold} | _to_lists({"cosines": self.replicability.cosines}),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RankSelection:
        """Return what ``to_json`` wrote."""
        content = json.loads(text)
        for name in ("columns", "pairwise", "scree"):
            content[name] = {key: np.array(values, dtype=np.float64) for key, values in content[name].items()}
        content["ranks"] = np.array(content["ranks"], dtype=np.intp)
        found = content["replicability"]
        content["replicability"] = found and Replicability(
            np.array(found["cosines"], dtype=np.float64), found["threshold"]
        )
        return cls(**content)


def _to_lists(arrays: dict[str, Array]) -> dict[str, list[Any]]:
    """Nested lists; JSON has no NaN."""
    return {
        name: np.where(np.isfinite(values), values.astype(object), np.array(None)).tolist()
        for name, values in arrays.items()
    }


def select_rank(
    X: Any,
    y: Any = None,
    *,
    ranks: Iterable[int] | None = None,
    criteria: str | Iterable[str] = "all",
    n_samples: Any = None,
    null: str = "auto",
    n_splits: int = 2,
    n_seed_pairs: int = 5,
    cos_sim_threshold: float = 0.8,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: Any = False,
) -> RankSelection:
    """Recommend a rank, or say that there is nothing above noise.

    Two questions decide. *Is it above noise?* What r components leave is compared with the same rows under random
    signs; the least r after which the two cannot be told apart (5 standard deviations) is the number of directions
    above noise, and no rank beyond it is recommended. *Does it come back?* The recommendation is the largest rank up to
    there at which halves of the rows agree on the components: mean matched ``|cos|`` above ``cos_sim_threshold``. That
    is the paper's rule with other rows in place of other seeds. All other criteria are reported, and do not decide.

    Parameters
    ----------
    X, y
        Rows and contexts in any form that ``MCPCA.fit`` takes; or a (k, p, p) stack of covariances with ``n_samples``.
        For these, and for rows on Dask, which stay there, only criteria that need no rows are known and the noise test
        alone decides.
    ranks : iterable of int, optional
        Ranks to look at, in any order; the recommendation is one of them, or the number of directions above noise where
        all of them exceed it. By default up to some 25, from 1 to a little above that number or to 100.
    criteria : "all" or iterable of {"scree", "seeds", "holdout", "likelihood"}
        What to report beside the two that decide; ``()`` decides and stops there, which is what
        ``MCPCA(n_components=None)`` does.
    n_samples : int or array-like (k,), optional
        Rows behind each covariance.
    null : {"auto", "features", "isotropic"}
        What noise keeps. "features": the variance of every feature in every context, so that features of unequal size
        are no evidence. "isotropic": only the total variance of every context, for features that are principal
        components, whose unequal variances are what is to be explained. "auto" is "isotropic" where the features are
        uncorrelated over all rows to six digits, as PCA leaves them, and "features" otherwise.
    n_splits : int
        Random splits into halves, over which agreement is averaged.
    n_seed_pairs, cos_sim_threshold : int, float
        The paper's parameters.
    n_jobs : int, optional
        Threads; None and -1 take as many as BLAS may use. The answer does not depend on it.
    random_state : int, Generator, RandomState or None
        Decides signs, splits and starts.
    verbose : bool or callable
        True shows progress on stderr; a function is called with (stage, done, total).

    Returns
    -------
    RankSelection
        With these ``columns``, one number per rank:

        * "spread", "noise spread", "noise sd", "excess": the noise test (module ``residual`` has the formula); the last
          in standard deviations. Known at the ranks that the search came to, and with "scree" at all of them.
        * "split-half agreement", "replicating", "held-out error": mean ``|cos|`` between halves; components with
          ``|cos| > 0.9``; squared error of one half's model in the other half's covariances, relative to their squared
          norm.
        * "singular value", "null mean", "null upper" ("scree"): of the flattening, beside those of the rows with random
          signs at the same index, and 5 standard deviations above. The sum of variances is kept by the signs, so strong
          components hide weak ones behind this band; the noise test takes them out first.
        * "seed stability" ("seeds"): the paper's score of runs from different seeds.
        * "projection similarity", "loading similarity", "context consistency" ("holdout"): the paper's measures for
          its TCGA data, with a tenth of the rows held out; the last is averaged over all other ranks.
        * "held-out log-likelihood", "BIC" ("likelihood"): of ``solver="ml"`` with isotropic noise, per row of the other
          half; and with all rows.

    Notes
    -----
    One basis per set of rows serves all ranks. The noise test costs some 20 to 100 products O(n p^2); a rank
    ``2 n_splits + 1`` fits in the core, ``2 n_seed_pairs`` plain runs, one more fit for "holdout", and three of
    ``solver="ml"`` for "likelihood", which dominate. Memory three stacks of covariances, ``2 n_splits + 2`` cores, and
    two copies of a context's rows for each job. At least 2 features and 4 rows in every context are needed. A half with
    too few rows for a rank has NaN there.
    """
    options = _check_options(ranks, criteria, null, n_splits, n_seed_pairs, cos_sim_threshold, n_jobs)
    rng, report = as_generator(random_state), as_report(verbose)
    X = to_host(X)
    if isinstance(X, np.ndarray) and X.ndim == 3:
        if y is not None:
            raise ValueError(f"X has shape {X.shape}, a stack of covariances, which takes no y; drop y.")
        if n_samples is None:
            raise ValueError(
                "n_samples is needed with covariances: how large noise is depends on it. Pass it, or the rows; "
                "choose_rank(S) does without."
            )
        S = check_covariances(X, "X")
        counts = check_counts(n_samples, len(S))
        moments = ContextCovariances(S, np.zeros((len(S), S.shape[1])), counts, np.arange(len(S)), None)
        return select_rank_checked(None, moments, rng=rng, report=report, **options)
    if n_samples is not None:
        raise ValueError("n_samples goes with a (k, p, p) stack of covariances; rows are counted. Drop it.")
    contexts = read_contexts(X, y)
    check_halves(contexts, "choose a rank yourself")
    moments = covariances_of(contexts, report)
    at_hand = contexts if contexts.engine is None else None  # rows that are elsewhere stay there
    return select_rank_checked(at_hand, moments, rng=rng, report=report, **options)


def _check_options(
    ranks: Any, criteria: Any, null: Any, n_splits: Any, n_seed_pairs: Any, threshold: Any, n_jobs: Any
) -> dict[str, Any]:
    wanted = CRITERIA if isinstance(criteria, str) and criteria == "all" else criteria
    unknown = [wanted] if isinstance(wanted, str) else [name for name in wanted if name not in CRITERIA]
    if unknown:
        raise ValueError(f"criteria={criteria!r}: {unknown[0]!r} is unknown; choose 'all' or some of {list(CRITERIA)}.")
    if null not in NULLS:
        raise ValueError(f"null={null!r} is unknown; choose one of {list(NULLS)}.")
    if n_jobs is not None and n_jobs != -1:
        check_integer(n_jobs, "n_jobs", 1, way_out="None or -1 takes all cores.")
    return {
        "ranks": ranks,
        "criteria": tuple(wanted),
        "null": null,
        "n_splits": check_integer(n_splits, "n_splits", 1),
        "n_seed_pairs": check_integer(n_seed_pairs, "n_seed_pairs", 1),
        "threshold": check_real(threshold, "cos_sim_threshold", 0, 1, "It is a mean absolute cosine."),
        "workers": n_workers() if n_jobs in (None, -1) else int(n_jobs),
    }


def select_rank_checked(
    contexts: Contexts | None,
    moments: ContextCovariances,
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
) -> RankSelection:
    """``select_rank`` for rows, or covariances alone (``contexts`` None), that were read and checked."""
    p = moments.covariances.shape[1]
    if p < 2:
        raise ValueError("X has 1 feature, which leaves no rank to choose; pass n_components=1.")
    given = None if ranks is None else check_ranks(ranks, p, "ranks")
    seed = int(rng.integers(2**62))
    workers = n_workers() if workers is None else workers
    with one_thread_each():
        report("noise test", 0, 1)
        test = ResidualTest(moments, contexts, null, seed, workers)
        above = test.directions_above_noise()
        report("noise test", 1, 1)
        if test.data_rank == 0:
            raise ValueError(
                "The covariances are all zero: no feature varies in any context, so there is no rank to choose."
            )
        if given is not None:
            check_within_data(given, test.data_rank, "ranks")
        grid = default_ranks(above, test.data_rank, moments.n_samples) if given is None else given
        if given is not None and 0 < above < given[0]:
            grid = np.concatenate([[above], given])
        sweep = Sweep(int(grid[-1]), seed, workers, report)
        curves = Curves(contexts, moments, test, sweep, n_splits)
        if above:
            curves.search([int(r) for r in grid if r <= above], threshold, patient=given is not None)
        if criteria:
            if given is not None:
                curves.look_at(grid.tolist())
            elif len(curves.ranks) < 2:
                curves.look_at(thinned(grid, above))
            curves.add(criteria, n_seed_pairs)
        return _conclude(test, above, curves, threshold, given)


def _conclude(test: ResidualTest, above: int, curves: Curves, threshold: float, given: Array | None) -> RankSelection:
    allowed = [r for r in curves.ranks if r <= above]
    rank, replicability = 0, None
    if not allowed:
        rows = "the same rows with random signs" if test.contexts is not None else "independent Gaussian features"
        reason = (
            f"Nothing is above noise: the covariances spread no more than those of {rows} "
            f"({test.level(0).excess:+.1f} standard deviations; more than {STANDARD_DEVIATIONS:.0f} are asked for)."
        )
    elif curves.halves is None:
        rank = allowed[-1]
        reason = f"Rank {rank}: {_above(test, above)} Without rows it is not known whether components come back."
    else:
        agreement = {r: curves.agreement(r) for r in allowed}
        passing = [r for r in allowed if agreement[r] > threshold]
        rank = passing[-1] if passing else max(allowed, key=lambda r: np.nan_to_num(agreement[r]))
        replicability = Replicability(curves.cosines(rank))
        cosine = f"mean |cos| {agreement[rank]:.3f}"
        if not passing:
            how = f"Halves of the rows agree on the components at no rank that was looked at; best here, {cosine}."
        elif rank == above:
            how = f"Halves of the rows agree on the components, {cosine} > {threshold:g}."
        else:
            how = f"It is the largest rank looked at where halves of the rows agree, {cosine} > {threshold:g}."
        reason = (
            f"Rank {rank}: {_above(test, above)} {how} {replicability.n_replicating} of {rank} come back with |cos| > "
            f"{replicability.threshold:g}."
        )
    if given is not None and 0 < above < given[0]:
        reason += f" All of the given ranks, {given[0]} and more, exceed what is above noise."
    columns, ranks = curves.all_columns(), np.array(curves.ranks, dtype=np.intp)
    votes = _votes(above, ranks, columns, curves.scree, threshold)
    return RankSelection(
        rank, reason, above, ranks, columns, votes, replicability, curves.pairwise, curves.scree, threshold
    )


def _above(test: ResidualTest, above: int) -> str:
    noun = "direction is" if above == 1 else "directions are"
    if test.together < above:
        return f"{above} {noun} above noise, {above - test.together} of them in single contexts only."
    before, after = (test.levels.get(r) for r in (above - 1, above))
    if before is None or after is None:
        return f"{above} {noun} above noise."
    return (
        f"{above} {noun} above noise (before the last of them {before.excess:.0f} standard deviations are left, after "
        f"it {after.excess:.1f})."
    )


_LARGEST_PASSING = ("split-half agreement", "seed stability")
_SMALLEST = ("held-out error", "BIC")
_HIGHEST = ("projection similarity", "loading similarity", "context consistency", "held-out log-likelihood")


def _votes(
    above: int, ranks: Array, columns: dict[str, Array], scree: dict[str, Array], threshold: float
) -> dict[str, int]:
    votes = {"noise test": above}
    if scree:
        inside = np.flatnonzero(scree["singular value"] <= scree["null upper"])
        votes["scree"] = int(inside[0]) if len(inside) else len(scree["singular value"])
    for name, values in columns.items():
        known = np.flatnonzero(np.isfinite(values))
        if name in _LARGEST_PASSING:
            passing = ranks[known][values[known] > threshold]
            votes[name] = int(passing[-1]) if len(passing) else 0
        elif name in _SMALLEST + _HIGHEST and len(known) and values[known].any():
            signed = values[known] if name in _HIGHEST else -values[known]
            # Of equals the largest rank, which says most.
            votes[name] = int(ranks[known][np.flatnonzero(signed >= signed.max())[-1]])
    return votes
