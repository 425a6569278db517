"""The public question, which rank, and is it real: ``select_rank`` and its result, ``RankSelection``.

``select_rank`` validates its arguments, reads the data (``rank_data``), lets ``recommend`` decide, fits the model of
the recommended rank to say which of its components replicate, and puts everything into a ``RankSelection``. Models
fitted with ``n_components=None`` carry the same object as ``rank_choice_``, made by ``selection_from`` without that
extra fit.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._covariances.checkpoint import Checkpoint
from .._covariances.context_covariances import ContextCovariances
from .._covariances.fit_data import FitData, fit_data_of_covariances, fit_data_of_rows, without_basis
from .._covariances.interface import Covariances
from .._covariances.nuisance import check_nuisance
from .._covariances.stack import CovarianceStack
from .._covariances.validation import check_counts, check_covariances
from .._data.annotations import take_annotations
from .._inference.dependence_result import ContextDependence
from .._inference.replication import Replicability
from .._inference.sampling import checked_groups
from .._model.decomposition import check_weights, decompose_checked
from .._solvers import check_solver
from .._utils.arguments import as_generator, check_integer, check_real, one_random_state, refuse_without_effect
from .._utils.array_api import to_host
from .._utils.component_names import mcpc_name
from .._utils.deprecated import deprecated
from .._utils.optional import require
from .._utils.parallel import n_workers
from .._utils.printing import NAMED, Shown, around, counted, mcpcs, span
from .._utils.progress import reporting, silent
from .._utils.types import Array, Report
from .._utils.wording import listed
from .evidence import Evidence
from .null_draws import NULLS
from .rank_data import RankData, rank_data
from .recommendation import Recommendation, recommend
from .sample_fits import Method

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CRITERIA = ("scree", "seeds", "holdout", "contexts", "likelihood")
# Those of MCPCA: replicability is reported for the model that it would fit.
_MODEL_TOL = 1e-7
_MODEL_STEPS = 200


@dataclass(frozen=True, repr=False)
class RankSelection(Shown):
    """A recommended rank with its reason, which of its MCPCs are recommended, and the curves of every criterion.

    Attributes
    ----------
    rank : int
        The recommended rank; 0 if nothing is above noise.
    reason : str
        Why, in a sentence or two.
    n_above_noise : int
        Number of directions above noise, an upper bound of the recommended rank.
    ranks : ndarray (m,)
        The ranks that were examined.
    columns : dict of str to ndarray (m,)
        One curve per criterion; ``select_rank`` explains each.
    votes : dict of str to int
        The rank that each criterion alone would choose among ``ranks``.
    replicability : Replicability or None
        Which MCPCs of ``MCPCA(rank).fit(X, y)`` replicate, in their order; in ``rank_choice_``, those of the model
        itself. None at rank 0 and without rows.
    pairwise : dict of str to ndarray (m, m)
        The paper's measures between pairs of ranks: "projection similarity", "loading similarity", "context
        consistency".
    scree : dict of str to ndarray (p,)
        "singular value" of the flattening, and, for noise, their "null mean" and the "null upper" end of their band.
    threshold : float
        The bound on ``|cos|`` above which halves, or seeds, agree.
    outcome : str
        "agreed": halves of the rows agree. "at odds": they agree at no rank, and the best is recommended. "above
        noise": the noise test alone decided, because there are no rows to split. "noise": nothing is above noise, rank
        0. "untold": there are too few rows to tell, and rank 1, the smallest, is recommended. "one feature": rank 1,
        the only one.
    replicability_by_contexts : Replicability or None
        The same as ``replicability`` for halves of the contexts, with the criterion "contexts": would these MCPCs be
        found in other contexts? None if fewer than 4 contexts, or groups that tie them together, leave no halves.
    dependence : ContextDependence or None
        Which MCPCs differ between contexts, and which are in all alike; from some thousand rows. None where
        ``replicability`` is, and for a single context.
    kept_of : int or None
        The rank of the fit that the MCPCs were kept from (``n_components="replicating"``); None if all were kept.
    above_noise : ndarray (r,) or None
        How much of each MCPC, in units of noise, lies in the directions above noise, from 0 to 1. None where
        ``replicability`` is, and where covariances of all features would be too large.
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
    replicability_by_contexts: Replicability | None = None
    dependence: ContextDependence | None = None
    kept_of: int | None = None
    above_noise: Array | None = None

    @property
    @deprecated(
        "RankSelection.of_features",
        since="0.2.0",
        removed_in="0.4.0",
        instead="it is always None, since all features are looked at",
    )
    def of_features(self) -> None:
        """Deprecated since 0.2.0: always None, since all features are looked at."""

    @property
    def fitted_rank(self) -> int:
        """The rank at which halves were compared: ``rank``, unless some of its MCPCs were kept."""
        return self.rank if self.kept_of is None else self.kept_of

    @property
    def evidence(self) -> Evidence | None:
        """All that is known of single MCPCs; None where ``replicability`` is."""
        if self.replicability is None:
            return None
        return Evidence(
            self.replicability, self.threshold, self.replicability_by_contexts, self.dependence, self.above_noise
        )

    @property
    def recommended(self) -> Array | None:
        """Which MCPCs are recommended (r,): mean ``|cos|`` between halves above ``threshold``. None if not known."""
        return None if self.evidence is None else self.evidence.recommended

    @property
    def components(self) -> Any:
        """What is known about each MCPC: a pandas DataFrame with a row for each, or a dict of arrays without pandas.

        "recommended" (mean ``|cos|`` between halves above ``threshold``) and "replicates" (above 0.9), that mean as
        "agreement", its interval from "low" to "high", and whether it is "close" to the threshold; whether most of it
        is in directions "above noise"; "context agreement"
        for halves of the contexts; "context-dependent" with "context p" and "context q". None if nothing is known.
        """
        if self.evidence is None:
            return None
        columns = self.evidence.columns()
        try:
            frame = require("pandas", "pandas").DataFrame(columns)
        except ImportError:
            return columns
        frame.index = mcpcs(len(frame))
        return frame

    def kept(self, indices: Array) -> RankSelection:
        """Return the selection of a model that keeps the MCPCs ``indices``, in this order."""
        assert self.evidence is not None
        some = self.evidence.of_components(indices)
        names = listed([mcpc_name(j) for j in np.sort(indices).tolist()], NAMED)
        of = len(self.evidence.recommended)
        return replace(
            self,
            rank=len(indices),
            reason=f"{len(indices)} of {counted(of, 'MCPC')} were kept, {names} of the fit. {self.reason}",
            replicability=some.halves,
            replicability_by_contexts=some.by_contexts,
            dependence=some.dependence,
            above_noise=some.above_noise,
            kept_of=self.fitted_rank,
        )

    @property
    def table(self) -> Any:
        """The curves as a pandas DataFrame with one row per rank, or a dict of arrays if pandas is not installed."""
        content = {"rank": self.ranks, **self.columns}
        # pandas is an extra.
        try:
            return require("pandas", "pandas").DataFrame(content).set_index("rank")
        except ImportError:
            return content

    def times_power(self, e: int, n: int = 0, p: int = 0) -> RankSelection:
        """Return the result for the same n rows of p features multiplied by ``2^e``.

        Covariances are multiplied by ``4^e``, the density of a row by ``2^(-p e)``. All else is free of the unit.
        """
        if e == 0:
            return self
        # log density of x 2^e = log density of x - p e log 2; BIC has -2 times that, for each of n rows.
        change = dict.fromkeys(("singular value", "null mean", "null upper"), lambda v: np.ldexp(v, 2 * e))
        change["held-out log-likelihood"] = lambda v: v - p * e * np.log(2)
        change["BIC"] = lambda v: v + 2 * n * p * e * np.log(2)

        def rescaled(curves: dict[str, Array]) -> dict[str, Array]:
            return {name: change[name](values) if name in change else values for name, values in curves.items()}

        return replace(self, columns=rescaled(self.columns), scree=rescaled(self.scree))

    def plot(self) -> Figure:
        """Draw all curves with the choice marked, and rank x rank heatmaps of the pairwise measures, if any."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_rank_selection

        return plot_rank_selection(self)

    def to_json(self) -> str:
        """Return everything as JSON text; unknown values are null."""
        # The keys are the fields of the class: ``from_json`` passes them to the constructor.
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
                "replicability": _halves_to_json(self.replicability),
                "replicability_by_contexts": _halves_to_json(self.replicability_by_contexts),
                "outcome": self.outcome,
                "dependence": None if self.dependence is None else json.loads(self.dependence.to_json()),
                "kept_of": self.kept_of,
                "above_noise": None if self.above_noise is None else self.above_noise.tolist(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RankSelection:
        """Return the selection that ``to_json`` wrote."""
        content = json.loads(text)
        content.pop("of_features", None)  # of files from before 0.2.0
        for name in ("columns", "pairwise", "scree"):
            # As float64, null (None) becomes NaN again; infinities, which were null too, do not come back.
            content[name] = {key: np.array(values, dtype=np.float64) for key, values in content[name].items()}
        content["ranks"] = np.array(content["ranks"], dtype=np.intp)
        for name in ("replicability", "replicability_by_contexts"):
            content[name] = _halves_from_json(content.get(name))
        if content.get("above_noise") is not None:
            content["above_noise"] = np.array(content["above_noise"], dtype=np.float64)
        if content.get("dependence") is not None:
            content["dependence"] = ContextDependence.from_json(json.dumps(content["dependence"]))
        return cls(**content)

    def _words(self) -> list[str]:
        # The first sentence apart: it is all that a line has room for.
        words = [
            *re.split(r"(?<=[.)]) (?=[A-Z])", self.reason, maxsplit=1),
            f"Looked at: ranks {span(self.ranks, '.0f')}.",
        ]
        if self.votes:
            alone = ", ".join(f"{name} {rank}" for name, rank in self.votes.items())
            words.append(f"Each criterion alone would choose: {alone}.")
        found = (self.replicability, self.replicability_by_contexts, self.dependence)
        return [*words, *(str(result) for result in found if result is not None)]

    def _rows(self) -> dict[str, Any]:
        near = around(self.ranks, self.rank)
        return {"rank": self.ranks[near], **{name: values[near] for name, values in self.columns.items()}}


def _halves_to_json(found: Replicability | None) -> dict[str, Any] | None:
    if found is None:
        return None
    content: dict[str, Any] = {"threshold": found.threshold} | _to_lists({"cosines": found.cosines})
    # What is not said is the usual: rows.
    if found.by != "rows":
        content |= {"by": found.by, "n_ways": found.n_ways, "left_out": [str(name) for name in found.left_out]}
    return content


def _halves_from_json(content: dict[str, Any] | None) -> Replicability | None:
    if content is None:
        return None
    cosines = np.array(content["cosines"], dtype=np.float64)
    of_what = {name: content[name] for name in ("by", "n_ways") if name in content}
    return Replicability(cosines, content["threshold"], **of_what, left_out=tuple(content.get("left_out", ())))


def _to_lists(arrays: dict[str, Array]) -> dict[str, list[Any]]:
    """Return nested lists with None for NaN and infinity, which JSON does not have."""
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
    n_splits: int = 1,
    n_seed_pairs: int = 5,
    cos_sim_threshold: float = 0.8,
    n_jobs: int | None = None,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
    preprocess: Any = None,
    solver: str = "mspm",
    orthogonal: bool = False,
    noise: str | None = "auto",
    context_weights: Any = None,
    random_state: Any = None,
    rng: Any = None,
    verbose: Any = None,
) -> RankSelection:
    """Recommend a rank, and which of its components, or say that there is nothing above noise.

    Two questions decide. *Is it above noise?* What is left after r components is compared with noise: in closed form,
    and with the same rows under random signs where that does not hold or the decision is close. The smallest r after
    which the two cannot be told apart (4 standard deviations; 2 to 2.5 of a more exact law for an axis that all
    contexts share) is the number of directions above noise, and no larger rank is recommended. *Does it come back in
    other rows?* The recommendation is the largest rank up to that number at which halves of the rows agree on the
    components: their mean matched ``|cos|`` exceeds ``cos_sim_threshold``. This is the paper's rule with other rows in
    place of other seeds. All other criteria are reported but do not decide.

    At that rank each component is judged by itself (``RankSelection.components``): by its own ``|cos|`` between halves,
    and by whether contexts differ in it.

    Parameters
    ----------
    X, y
        Rows and contexts in any form that ``MCPCA.fit`` accepts, or a (k, p, p) stack of covariances with
        ``n_samples``. With covariances only criteria that need no rows are available, and the noise test alone decides.
    ranks : iterable of int, optional
        Ranks to examine, in any order. The recommendation is one of them, or the number of directions above noise if
        all of them exceed it. By default up to about 25 ranks, from 1 to slightly above that number, or to 100.
    criteria : "all" or iterable of {"scree", "seeds", "holdout", "contexts", "likelihood"}
        What to report in addition to the two criteria that decide. ``()`` only decides, as
        ``MCPCA(n_components=None)`` does.
    n_samples : int or array-like (k,), optional
        Number of rows behind each covariance.
    null : {"auto", "features", "isotropic"}
        What the noise preserves. "features": the variance of every feature in every context, so that features of
        unequal size are no evidence of structure. "isotropic": only the total variance of every context, for features
        that are principal components, whose unequal variances are what is to be explained. "auto" is "isotropic" if the
        features are uncorrelated over all rows to six digits, as PCA leaves them, and "features" otherwise.
    n_splits : int
        Number of random splits into halves at every rank that is looked at. Where a decision is close splits are
        added, up to 80 and fewer of large data: at ranks whose mean is near the threshold, and at the recommended rank
        until it is clear which components are recommended.
    n_seed_pairs, cos_sim_threshold : int, float
        The paper's parameters; the first is used by the criterion "seeds" only.
    n_jobs : int, optional
        Number of threads; None and -1 use as many as BLAS may use. The result does not depend on it.
    groups : labels (n,), str or list of str, optional
        Which rows were sampled together, such as the cells of a donor, as in ``MCPCA.fit``. Halves are then halves of
        the groups of each context, and noise has random signs for rows within groups and for the means of groups: what
        is particular to single groups is no evidence of a component. Contexts with a single group take no part in the
        halves.
    batch, covariates : optional
        Nuisance to be removed, as in ``MCPCA.fit``.
    preprocess : optional
        What is done to rows while they are read, as in ``MCPCA``.
    solver, orthogonal, noise, context_weights : optional
        The model that is to be fitted, as in ``MCPCA``: halves are fitted in the same way.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Determines signs, splits and starts.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    RankSelection
        With these ``columns``, one number per rank:

        * "spread", "noise spread", "noise sd", "excess": the noise test, the last in standard deviations. Known at the
          ranks that its search visited, and with "scree" at all ranks. ``docs/rank.md`` has the formula.
        * "split-half agreement", "replicating", "held-out error": mean ``|cos|`` between halves; number of components
          with ``|cos| > 0.9``, averaged over splits; squared error of one half's model in the other half's covariances,
          relative to their squared norm.
        * "singular value", "null mean", "null upper" ("scree"): singular values of the flattening, the mean of those of
          the rows with random signs at the same index, and 4 standard deviations above it. Signs preserve the sum of
          variances, so strong components raise the band and hide weak ones below it; the noise test removes them first.
        * "seed stability" ("seeds"): the paper's score for runs from different seeds.
        * "projection similarity", "loading similarity", "context consistency" ("holdout"): the paper's measures for
          its TCGA data, with a tenth of the rows held out; the last is averaged over all other ranks.
        * "context agreement" ("contexts"): mean ``|cos|`` between halves of the contexts, where there are at least 4.
        * "held-out log-likelihood", "BIC" ("likelihood"): of ``solver="ml"`` with isotropic noise; the first per row of
          the other half, the second for all rows.

    Notes
    -----
    One basis per set of rows serves all ranks. The noise test costs O(k p^3), and O(n p^2) for each draw where there
    are some (2 to 40 at a rank). A rank costs ``2 n_splits`` fits in the cores of halves, and with criteria one of all
    rows, ``2 n_seed_pairs`` plain runs, one more fit for "holdout", and three fits of ``solver="ml"`` for "likelihood",
    which dominate. Each further split costs the covariances, bases and fits of two halves. Memory: three stacks of
    covariances, the cores of halves (of further splits at most 256 MB), and two copies of a context's rows for a job.

    Contexts with fewer than 4 rows are left out, with a ``SmallContextsWarning``. An ``UncertainRankWarning`` is issued
    if there are too few rows to tell anything from noise, or if halves agree at no rank. Criteria are NaN at ranks for
    which a half has too few rows. Where covariances of all features would be too large, halves are fitted by passes,
    noise is looked for along leading directions of one half in the other, and ranks up to 30 are examined.

    Rows on Dask are split by the same random numbers, and halves fitted on the workers: the answer is that of the same
    rows in memory. What comes here, up to 512 MB, is what the noise test looks at, and scores of some thousand rows.
    Where covariances of all features would be too large these are coordinates of half of the rows along 30 directions,
    otherwise the rows, whose signs are drawn here. Of more rows than that the noise test sees a random sample; where
    these have more than 300 features, it is the one along leading directions.
    """
    random_state = one_random_state(rng, random_state)
    options = _check_options(ranks, criteria, null, n_splits, n_seed_pairs, cos_sim_threshold, n_jobs)
    method = Method(**check_solver(solver, orthogonal, noise))
    with reporting(verbose, "choice of the rank") as report:
        annotations = {"groups": groups, "batch": batch, "covariates": covariates, "preprocess": preprocess}
        return _select(to_host(X), y, n_samples, random_state, report, options, annotations, method, context_weights)


def _select(
    X: Any,
    y: Any,
    n_samples: Any,
    random_state: Any,
    report: Report,
    options: dict[str, Any],
    annotations: dict[str, Any],
    method: Method,
    context_weights: Any,
) -> RankSelection:
    rng = as_generator(random_state)
    if isinstance(X, np.ndarray) and X.ndim == 3:
        for name, value in annotations.items():
            refuse_without_effect(name, value, None, "it is about rows, and covariances have none", "drop it")
        whole = _read_covariances(X, y, n_samples, options)
    else:
        if n_samples is not None:
            raise ValueError("n_samples goes with a (k, p, p) stack of covariances; rows are counted. Drop it.")
        # No basis yet: the search makes one for all rows and one for every half.
        preprocess = annotations.pop("preprocess")
        annotated = take_annotations(X, y, **annotations)
        contexts = checked_groups(annotated.contexts(preprocess=preprocess, report=report))
        check_nuisance(contexts)
        whole = without_basis(contexts, None, report)
    assert whole.counts is not None
    if context_weights is not None:
        weights = check_weights(context_weights, whole.names)
        method = replace(method, weights=dict(zip(whole.names.tolist(), weights.tolist(), strict=True)))
    # From here on the same steps as in ``automatic_rank``, hence the same rank for the same data and seed.
    data = rank_data(whole, whole.counts, report)
    recommendation = recommend(data, method=method, rng=rng, report=report, **options)
    recommendation.issue_warnings()
    # What comes back is reported for the model that the user will fit, which need not be the sweep's less exact one.
    A = None
    if recommendation.decided_by_halves:
        A = _model_of_all_rows(data, recommendation.rank, method, random_state, int(rng.integers(2**62)))
    # Rows were scaled by a power of two to keep squares in range; results are in the unit of the data.
    n_rows = int(data.n_samples.sum())
    return selection_from(recommendation, A).times_power(whole.exponent, n_rows, data.n_features)


def _read_covariances(X: Array, y: Any, n_samples: Any, options: dict[str, Any]) -> FitData:
    """Validate a (k, p, p) stack with its ``n_samples``, and refuse options that need rows."""
    if y is not None:
        raise ValueError(f"X has shape {X.shape}, a stack of covariances, which takes no y; drop y.")
    if n_samples is None:
        raise ValueError(
            "n_samples is needed with covariances, because the size of the noise depends on it. Pass it, or the rows, "
            "or use choose_rank(S), which does not need it."
        )
    why = "covariances have no rows to split"
    # Refused rather than ignored: whoever sets an option expects it to matter.
    refuse_without_effect("n_splits", options["n_splits"], 1, why, "drop it, or pass the rows")
    if "seeds" not in options["criteria"]:
        way_out = "drop it, pass the rows, or ask for the criterion 'seeds'"
        refuse_without_effect("cos_sim_threshold", options["threshold"], 0.8, why, way_out)
    S = check_covariances(X, "X")
    k, p = S.shape[:2]
    counts = check_counts(n_samples, k)
    # Means are unknown and not used: contexts are numbered, as they have no names.
    moments = ContextCovariances(S, np.zeros((k, p)), counts, np.arange(k), None)
    return fit_data_of_covariances(moments, counts)


def _check_options(
    ranks: Any, criteria: Any, null: Any, n_splits: Any, n_seed_pairs: Any, threshold: Any, n_jobs: Any
) -> dict[str, Any]:
    """Return validated keyword arguments of ``recommend``; ranks are checked there, once p is known."""
    if isinstance(criteria, str):
        # A string is an iterable of characters: only "all" is meant as one.
        wanted = CRITERIA if criteria == "all" else (criteria,)
        unknown = [] if criteria == "all" else [criteria]
    else:
        wanted = tuple(criteria)
        unknown = [name for name in wanted if name not in CRITERIA]
    if unknown:
        raise ValueError(f"criteria={criteria!r}: {unknown[0]!r} is unknown; choose 'all' or some of {list(CRITERIA)}.")
    if null not in NULLS:
        raise ValueError(f"null={null!r} is unknown; choose one of {list(NULLS)}.")
    if "seeds" not in wanted:
        why = f"criteria={criteria!r} has no 'seeds'"
        refuse_without_effect("n_seed_pairs", n_seed_pairs, 5, why, "drop it, or ask for 'seeds'")
    if n_jobs is not None and n_jobs != -1:
        check_integer(n_jobs, "n_jobs", 1, way_out="None or -1 uses all cores.")
    return {
        "ranks": ranks,
        "criteria": wanted,
        "null": null,
        "n_splits": check_integer(n_splits, "n_splits", 1),
        "n_seed_pairs": check_integer(n_seed_pairs, "n_seed_pairs", 1),
        "threshold": check_real(threshold, "cos_sim_threshold", 0, 1, "It is a mean absolute cosine."),
        "workers": n_workers() if n_jobs in (None, -1) else int(n_jobs),
    }


def selection_from(recommendation: Recommendation, A: Array | None) -> RankSelection:
    """Return the public result; ``A`` (p, r) are the components of the model that is reported on, if there is one."""
    evidence = None if A is None else recommendation.evidence(A)
    curves = recommendation.curves
    if curves is None:  # too little data for any fit
        ranks = np.array([], dtype=np.intp)
        columns: dict[str, Array] = {}
        pairwise: dict[str, Array] = {}
        scree: dict[str, Array] = {}
    else:
        ranks = np.array(curves.ranks, dtype=np.intp)
        columns = curves.all_columns()
        pairwise = curves.pairwise
        scree = curves.scree
    return RankSelection(
        recommendation.rank,
        recommendation.reason(evidence),
        recommendation.above,
        ranks,
        columns,
        recommendation.votes,
        None if evidence is None else evidence.halves,
        pairwise=pairwise,
        scree=scree,
        threshold=recommendation.threshold,
        outcome=recommendation.outcome,
        replicability_by_contexts=None if evidence is None else evidence.by_contexts,
        dependence=None if evidence is None else evidence.dependence,
        above_noise=None if evidence is None else evidence.above_noise,
    )


def _model_of_all_rows(data: RankData, r: int, method: Method, random_state: Any, seed: int) -> Array:
    """Return the components of the ``MCPCA`` of rank r that the user would fit with this ``random_state``."""
    # An integer seed gives the very model that the user will fit; other random states have moved on by then.
    is_seed = isinstance(random_state, (int, np.integer, np.random.SeedSequence))
    rng = as_generator(random_state if is_seed else seed)
    if data.moments is not None:
        S: Covariances = CovarianceStack(data.moments.covariances)
    else:
        assert data.contexts is not None
        S = fit_data_of_rows(data.contexts, r, _MODEL_TOL, silent, Checkpoint(None, {})).covariances
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they concern whoever fits this model
        model, _ = decompose_checked(
            S,
            r,
            solver=method.solver,
            orthogonal=method.orthogonal,
            noise=method.noise,
            counts=data.n_samples,
            weights=None if method.weights is None else method.of_contexts(data.names),
            rng=rng,
            report=silent,
            tol=_MODEL_TOL,
            max_iter=_MODEL_STEPS,
        )
    return model.components
