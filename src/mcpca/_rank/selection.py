"""Which rank, and is it real: two tests that decide, and what every other criterion says beside them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._covariances.context_covariances import ContextCovariances
from .._covariances.fit_data import fit_data_of_covariances, without_basis
from .._covariances.stack import CovarianceStack
from .._covariances.validation import check_counts, check_covariances
from .._data.contexts import read_contexts
from .._inference.replication import Replicability
from .._model.decomposition import decompose_checked
from .._utils.arguments import as_generator, check_integer, check_real, refuse_without_effect
from .._utils.array_api import to_host
from .._utils.optional import require
from .._utils.parallel import n_workers
from .._utils.printing import Shown, around, span
from .._utils.progress import reporting, silent
from .._utils.types import Array, Report
from .noise_test import NULLS
from .rank_data import rank_data
from .recommendation import Recommendation, recommend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CRITERIA = ("scree", "seeds", "holdout", "likelihood")
_TOL, _MAX_ITER = 1e-7, 200  # as in MCPCA


@dataclass(frozen=True, repr=False)
class RankSelection(Shown):
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
        Of each MCPC of ``MCPCA(rank).fit(X, y)``, in its order; in ``rank_choice_`` of that model itself. None at rank
        0, without rows, and where that model is another: one of all features where some were looked at, or of
        another solver. ``model.replicability(X, y)`` is for those.
    pairwise : dict of str to ndarray (m, m)
        The paper's measures between pairs of ranks: "projection similarity", "loading similarity", "context
        consistency".
    scree : dict of str to ndarray (p,)
        "singular value" of the flattening, and of noise the "null mean" and the "null upper" end of its band.
    threshold : float
        The ``|cos|`` that agreement between halves and between seeds is compared with.
    outcome : str
        "agreed": halves of the rows agree. "at odds": they do at no rank, and the best is recommended. "above noise":
        there are no rows to ask. "noise": nothing is above it, rank 0. "untold": rows are too few to tell, rank 1, the
        smallest. "one feature": rank 1, the only one.
    of_features : int or None
        Number of features, where the 300 most variable of them were looked at; None where all were.
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
    outcome: str = "agreed"
    of_features: int | None = None

    @property
    def table(self) -> Any:
        """The curves as a pandas DataFrame, one row per rank; without pandas a dict of arrays."""
        content = {"rank": self.ranks, **self.columns}
        try:
            return require("pandas", "pandas").DataFrame(content).set_index("rank")
        except ImportError:
            return content

    def times_power(self, e: int, n: int = 0, p: int = 0) -> RankSelection:
        """Return the choice for the n rows of p features times ``2^e``: densities per row fall by ``2^(p e)``."""
        if e == 0:
            return self
        change = dict.fromkeys(("singular value", "null mean", "null upper"), lambda v: np.ldexp(v, 2 * e))
        change["held-out log-likelihood"] = lambda v: v - p * e * np.log(2)
        change["BIC"] = lambda v: v + 2 * n * p * e * np.log(2)
        columns, scree = (
            {name: change[name](values) if name in change else values for name, values in curves.items()}
            for curves in (self.columns, self.scree)
        )
        return replace(self, columns=columns, scree=scree)

    def plot(self) -> Figure:
        """Draw all curves with the choice marked, and the rank x rank heatmaps where they were asked for."""
        from ..plotting import plot_rank_selection

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
                "outcome": self.outcome,
                "of_features": self.of_features,
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

    def _words(self) -> list[str]:
        words = [self.reason, f"Looked at: ranks {span(self.ranks, '.0f')}."]
        if self.votes:
            alone = ", ".join(f"{name} {rank}" for name, rank in self.votes.items())
            words.append(f"Each criterion alone would choose: {alone}.")
        return words if self.replicability is None else [*words, str(self.replicability)]

    def _rows(self) -> dict[str, Any]:
        kept = around(self.ranks, self.rank)
        return {"rank": self.ranks[kept], **{name: values[kept] for name, values in self.columns.items()}}


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
    verbose: Any = None,
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
        Random splits into halves, over which agreement is averaged; at the recommended rank more are made, up to ten,
        until others would hardly change which components come back.
    n_seed_pairs, cos_sim_threshold : int, float
        The paper's parameters; the first is for the criterion "seeds" alone.
    n_jobs : int, optional
        Threads; None and -1 take as many as BLAS may use. The answer does not depend on it.
    random_state : int, Generator, RandomState or None
        Decides signs, splits and starts.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    RankSelection
        With these ``columns``, one number per rank:

        * "spread", "noise spread", "noise sd", "excess": the noise test (module ``residual`` has the formula); the last
          in standard deviations. Known at the ranks that the search came to, and with "scree" at all of them.
        * "split-half agreement", "replicating", "held-out error": mean ``|cos|`` between halves; how many components
          have ``|cos| > 0.9``, mean over splits; squared error of one half's model in the other half's covariances,
          relative to their squared norm.
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
    two copies of a context's rows for each job. Contexts with fewer than 4 rows are left out of all of it, with a
    ``SmallContextsWarning``; where rows are too few to tell anything from noise, or halves agree at no rank, there is
    an ``UncertainRankWarning``. A half with too few rows for a rank has NaN there. Where covariances of all features
    would be too large the 300 most variable ones are looked at.
    """
    options = _check_options(ranks, criteria, null, n_splits, n_seed_pairs, cos_sim_threshold, n_jobs)
    with reporting(verbose, "choice of the rank") as report:
        return _select(to_host(X), y, n_samples, random_state, report, options)


def _select(
    X: Any, y: Any, n_samples: Any, random_state: Any, report: Report, options: dict[str, Any]
) -> RankSelection:
    rng = as_generator(random_state)
    if isinstance(X, np.ndarray) and X.ndim == 3:
        if y is not None:
            raise ValueError(f"X has shape {X.shape}, a stack of covariances, which takes no y; drop y.")
        if n_samples is None:
            raise ValueError(
                "n_samples is needed with covariances: how large noise is depends on it. Pass it, or the rows; "
                "choose_rank(S) does without."
            )
        why = "covariances have no rows to split"
        refuse_without_effect("n_splits", options["n_splits"], 2, why, "drop it, or pass the rows")
        if "seeds" not in options["criteria"]:
            way_out = "drop it, pass the rows, or ask for the criterion 'seeds'"
            refuse_without_effect("cos_sim_threshold", options["threshold"], 0.8, why, way_out)
        S = check_covariances(X, "X")
        counts = check_counts(n_samples, len(S))
        moments = ContextCovariances(S, np.zeros((len(S), S.shape[1])), counts, np.arange(len(S)), None)
        whole = fit_data_of_covariances(moments, counts)
        data = rank_data(whole, counts, report)
    else:
        if n_samples is not None:
            raise ValueError("n_samples goes with a (k, p, p) stack of covariances; rows are counted. Drop it.")
        contexts = read_contexts(X, y)
        whole = without_basis(contexts, None, report)
        data = rank_data(whole, contexts.n_samples, report)
    found = recommend(data, rng=rng, report=report, **options)
    found.warn(stacklevel=3)
    A, S = None, data.moments.covariances
    if data.contexts is not None and found.outcome in ("agreed", "at odds") and data.of_features is None:
        A = _model_of_all_rows(S, found.rank, random_state, int(rng.integers(2**62)))
    # Chosen in the units of the fit, and told in those of the data.
    return selected(found, A).times_power(whole.exponent, int(data.moments.n_samples.sum()), S.shape[1])


def _check_options(
    ranks: Any, criteria: Any, null: Any, n_splits: Any, n_seed_pairs: Any, threshold: Any, n_jobs: Any
) -> dict[str, Any]:
    wanted = CRITERIA if isinstance(criteria, str) and criteria == "all" else criteria
    wanted = wanted if isinstance(wanted, str) else tuple(wanted)
    unknown = [wanted] if isinstance(wanted, str) else [name for name in wanted if name not in CRITERIA]
    if unknown:
        raise ValueError(f"criteria={criteria!r}: {unknown[0]!r} is unknown; choose 'all' or some of {list(CRITERIA)}.")
    if null not in NULLS:
        raise ValueError(f"null={null!r} is unknown; choose one of {list(NULLS)}.")
    if "seeds" not in wanted:
        why = f"criteria={criteria!r} has no 'seeds'"
        refuse_without_effect("n_seed_pairs", n_seed_pairs, 5, why, "drop it, or ask for 'seeds'")
    if n_jobs is not None and n_jobs != -1:
        check_integer(n_jobs, "n_jobs", 1, way_out="None or -1 takes all cores.")
    return {
        "ranks": ranks,
        "criteria": wanted,
        "null": null,
        "n_splits": check_integer(n_splits, "n_splits", 1),
        "n_seed_pairs": check_integer(n_seed_pairs, "n_seed_pairs", 1),
        "threshold": check_real(threshold, "cos_sim_threshold", 0, 1, "It is a mean absolute cosine."),
        "workers": n_workers() if n_jobs in (None, -1) else int(n_jobs),
    }


def selected(found: Recommendation, A: Array | None) -> RankSelection:
    """Return what is told of a recommendation; ``A`` (p, r) are the components of the model that is taken.

    None where that is another than the power method's on the features that were looked at.
    """
    curves, replicability = found.curves, found.replicability(A)
    told: dict[str, Any] = {"replicability": replicability, "threshold": found.threshold}
    if curves is not None:
        told |= {"pairwise": curves.pairwise, "scree": curves.scree}
    return RankSelection(
        found.rank,
        found.reason(replicability),
        found.above,
        np.array([] if curves is None else curves.ranks, dtype=np.intp),
        {} if curves is None else curves.all_columns(),
        found.votes,
        outcome=found.outcome,
        of_features=found.of_features,
        **told,
    )


def _model_of_all_rows(S: Array, r: int, random_state: Any, seed: int) -> Array:
    """Return the components of ``MCPCA(r, random_state=random_state)``, which replicability is told of."""
    rng = np.random.default_rng(random_state if isinstance(random_state, (int, np.integer)) else seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are for whoever fits this model
        found, _ = decompose_checked(
            CovarianceStack(S),
            r,
            solver="mspm",
            orthogonal=False,
            noise=None,
            counts=None,
            weights=None,
            rng=rng,
            report=silent,
            tol=_TOL,
            max_iter=_MAX_ITER,
        )
    return found.components
