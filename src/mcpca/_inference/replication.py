"""Would an MCPC come back in other rows, in other groups, in other contexts? Both halves, fitted and matched.

``sampling`` makes the halves. ``replicate`` is ``MCPCA.replicability``. The choice of the rank asks the same question
at every rank, and takes ``agreement_of_halves`` and the ``Replicability`` that sums up cosines from here; ``bootstrap``
takes ``refit`` and ``refit_in_threads``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from .._data.contexts import Contexts
from .._linalg.canonical import match_components
from .._model.decomposition import check_weights
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._utils.arguments import as_generator, check_integer, check_real, refuse_without_effect
from .._utils.array_api import to_host
from .._utils.parallel import each, n_workers
from .._utils.printing import Shown, counted, extremes, listed_mcpcs, mcpcs
from .._utils.types import Array, Report
from .._utils.wording import listed, quoted
from .sampling import MIN_ROWS, WAYS, Halves, checked_groups

_Fit = TypeVar("_Fit")

# |cos| between halves above which a component replicates, 26 degrees: the bound of the paper's 10% hold-out experiment.
REPLICATES = 0.9


@dataclass(frozen=True, repr=False)
class Replicability(Shown):
    """Which components both halves find: of the rows, of the groups that rows were sampled in, or of the contexts.

    Attributes
    ----------
    cosines : ndarray (n_splits, r)
        ``|cos|`` between a component of one half and its match in the other, for each random split. Components of the
        two halves are matched with each other, and each pair with component j of the model of all rows.
    threshold : float
        ``|cos|`` above which a component counts as coming back.
    by : str
        What was split: "rows", "groups" or "contexts".
    n_ways : int or None
        How many different splits there are, if that is no more than were asked for; all of them were taken.
    left_out : tuple
        Contexts that could not be split by groups in some split, such as those with a single group.
    """

    cosines: Array
    threshold: float = REPLICATES
    by: str = "rows"
    n_ways: int | None = None
    left_out: tuple[Any, ...] = ()

    @property
    def agreement(self) -> Array:
        """Mean over splits (r,)."""
        return np.asarray(self.cosines.mean(axis=0))

    @property
    def spread(self) -> Array:
        """Standard deviation over splits (r,); NaN for a single one."""
        n, r = self.cosines.shape
        return np.asarray(self.cosines.std(axis=0, ddof=1)) if n > 1 else np.full(r, np.nan)

    @property
    def replicates(self) -> Array:
        """Whether each component comes back (r,): ``agreement > threshold``."""
        return self.agreement > self.threshold

    @property
    def n_replicating(self) -> int:
        """How many components come back by the mean over splits; ``counts`` shows how that varies."""
        return int(self.replicates.sum())

    @property
    def counts(self) -> Array:
        """How many components come back in each split (n_splits,)."""
        return np.asarray((self.cosines > self.threshold).sum(axis=1))

    @property
    def undecided(self) -> Array:
        """Whether other splits may change ``replicates`` (r,): the mean is within two standard errors of the threshold.

        The standard error of a component is taken as at least that of all components together, since a few splits may
        agree by chance.
        """
        n = len(self.cosines)
        if n < 2:
            return np.ones(self.cosines.shape[1], dtype=bool)
        # The root mean square over components pools (n - 1) r deviations, against n - 1 for one component.
        spread = np.maximum(self.spread, np.sqrt(np.mean(self.spread**2)))
        is_decided = np.abs(self.agreement - self.threshold) > 2 * spread / np.sqrt(n)
        return np.asarray(~is_decided)  # NaN, of halves that could not be compared, is not decided

    def in_words(self, what: str = "") -> str:
        """Return how many of ``what`` come back, from the fewest to the most in a split, as part of a sentence."""
        n, r = self.cosines.shape
        # One half without the rank leaves the whole split unknown.
        if np.isnan(self.cosines).any():
            return f"it is not known how many of {r}{what} come back: halves have too few rows"
        # Rows are the usual case, and need no mention.
        of = "" if self.by == "rows" else f" of the {self.by}"
        low = int(self.counts.min())
        high = int(self.counts.max())
        if low < high:
            mean = f"{self.counts.mean():.1f} on average"
            return (
                f"in {n} splits{of} between {low} and {high} of {r}{what} come back with |cos| > "
                f"{self.threshold:g}, {mean}"
            )
        where = f"in one split{of}" if n == 1 else f"in each of {n} splits{of}"
        return f"{where} {low} of {r}{what} come back with |cos| > {self.threshold:g}"

    def _words(self) -> list[str]:
        n, r = self.cosines.shape
        above = self.cosines > self.threshold
        always = above.all(axis=0)
        ever = above.any(axis=0)
        words = [
            f"{counted(r, 'MCPC')} in {counted(n, 'split')} of the {self.by} into halves: mean |cos| between halves "
            f"{extremes(self.agreement)}.",
            f"Above {self.threshold:g} in every split: {listed_mcpcs(always)}; in some: "
            f"{listed_mcpcs(ever & ~always)}; in none: {listed_mcpcs(~ever)}.",
        ]
        return [*words, *self.notes()]

    def notes(self) -> list[str]:
        """Return sentences on what limits a comparison of halves of groups or contexts: few ways, contexts left out."""
        notes = []
        if self.n_ways is not None:
            notes.append(
                f"There is only one way to divide these {self.by} into halves."
                if self.n_ways == 1
                else f"There are only {self.n_ways} ways to divide these {self.by} into halves; all were taken."
            )
        if self.left_out:
            notes.append(
                f"{counted(len(self.left_out), 'context')} could not be split by groups and took no part: "
                f"{quoted(self.left_out)}."
            )
        return notes

    def _rows(self) -> dict[str, Any]:
        return {
            "": mcpcs(self.cosines.shape[1]),
            "mean |cos|": self.agreement,
            "least": self.cosines.min(axis=0),
            "largest": self.cosines.max(axis=0),
        }


def check_halves(contexts: Contexts, way_out: str) -> None:
    """Raise if a context has too few rows for two covariances; ``way_out`` ends the error."""
    few = [
        f"{name!r} ({n})"
        for name, n in zip(contexts.names.tolist(), contexts.n_samples.tolist(), strict=True)
        if n < MIN_ROWS
    ]
    if few:
        raise ValueError(
            f"{len(few)} of {len(contexts.names)} contexts have fewer than {MIN_ROWS} rows, too few for two "
            f"halves of 2: {listed(few)}. Drop or merge them, or {way_out}."
        )


def agreement_of_halves(first: Array, second: Array, whole: Array) -> Array:
    """Return |cos| (r,) between matched columns of the components of two halves, in the order of the ``whole``'s.

    Columns of the halves are matched with each other first, so that their mean does not depend on the ``whole``; then
    the axes midway between the two of each pair are matched with the columns of the ``whole``.
    """
    between_halves = match_components(second, first)
    midway = first + between_halves.apply(second)  # apply also gives the second half the signs of the first
    # Cosines were fixed above; this only sorts them, so a poor match with the whole cannot lower them.
    order = match_components(midway, whole).indices
    return np.asarray(between_halves.cosines[order])


def refit(unfitted: Any, contexts: Contexts, rng: np.random.Generator) -> Any:
    """Return a model with the parameters of ``unfitted``, fitted to other rows; the caller silences its warnings.

    Batch and covariates go with the rows. ``contexts`` may be some of those of the model: see ``by_context``.
    """
    # A stream per refit: a shared generator would make the answer depend on the order of threads.
    parameters = {**unfitted.get_params(), "random_state": rng}
    weights = parameters["context_weights"]
    if isinstance(weights, Mapping):
        parameters["context_weights"] = {name: weights[name] for name in contexts.names.tolist()}
    # Groups were drawn or split already, and have no effect on the fit itself.
    return type(unfitted)(**parameters).fit(replace(contexts, groups=None))


def by_context(unfitted: Any, contexts: Contexts) -> Any:
    """Return ``unfitted`` with the weights of contexts by name, so that it can be fitted to some of them."""
    weights = unfitted.context_weights
    if weights is None:
        return unfitted
    weights = dict(zip(contexts.names.tolist(), check_weights(weights, contexts.names).tolist(), strict=True))
    return type(unfitted)(**{**unfitted.get_params(), "context_weights": weights})


def refit_in_threads(
    refit_one: Callable[[int], _Fit], n: int, stage: str, report: Report, workers: int | None = None
) -> list[_Fit]:
    """Return ``refit_one(i)`` for i = 0..n-1, in order and without warnings.

    As many at a time as there are ``workers``, or as BLAS has threads.
    """
    results = []
    # Around all threads, not within them: ``catch_warnings`` acts on the whole process.
    with warnings.catch_warnings():
        # Single refits may not converge or have nearly proportional loadings: how far they differ says that already.
        warnings.simplefilter("ignore")
        for result in each(refit_one, range(n), workers or n_workers()):
            results.append(result)
            report(stage, len(results), n)
    return results


def replicate(
    model: FittedModel,
    unfitted: Any,
    X: Any,
    y: Any,
    n_splits: Any,
    threshold: Any,
    random_state: Any,
    report: Report,
    *,
    by: str = "auto",
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
) -> Replicability:
    """Fit ``unfitted`` to both halves of ``n_splits`` random splits of the rows; see ``MCPCA.replicability``.

    Each split has its own stream of random numbers, so that the number of threads does not change the answer.
    """
    n_splits = check_integer(n_splits, "n_splits", 1)
    threshold = check_real(threshold, "threshold", 0, 1, "It is an absolute cosine.")
    if by not in WAYS:
        raise ValueError(f"by={by!r} is unknown; choose one of {list(WAYS)}.")
    if by == "rows":
        refuse_without_effect(
            "groups", groups, None, "by='rows' splits rows whatever their group", "drop one of the two"
        )
    contexts = checked_groups(read_fitted_contexts(model, X, y, groups=groups, batch=batch, covariates=covariates))
    if groups is not None and contexts.groups is None and by == "groups":
        by = "rows"  # every row is a group of its own
    A = to_host(model.components).astype(np.float64)
    rng = as_generator(random_state)
    halving = Halves(contexts, by, n_splits)
    if halving.by == "rows":
        check_halves(contexts, "resample with bootstrap, which needs 2")
    unfitted = by_context(unfitted, contexts)
    streams = rng.spawn(halving.n_splits)
    # Halves are index lists until they are fitted, so all fit in memory.
    pairs = [halving.split(i, stream) for i, stream in enumerate(streams)]
    # Halves 2 i and 2 i + 1 belong to split i.
    halves = [half for pair in pairs for half in pair]
    # A stream for each half, because halves are fitted in any order.
    seeds = [seed for stream in streams for seed in stream.spawn(2)]

    def fit_half(i: int) -> Array:
        try:
            return np.asarray(to_host(refit(unfitted, halves[i], seeds[i]).components_), dtype=np.float64)
        except ValueError as error:
            raise ValueError(
                f"Half of the {halving.by} cannot be fitted with {A.shape[1]} components: {error}"
            ) from error

    fits = refit_in_threads(fit_half, len(halves), "halves", report)
    # In order, so even positions are first halves.
    cosines = [agreement_of_halves(first, second, A) for first, second in zip(fits[::2], fits[1::2], strict=True)]
    return Replicability(np.stack(cosines), threshold, halving.by, halving.n_ways, halving.left_out(pairs))
