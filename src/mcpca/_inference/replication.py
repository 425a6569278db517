"""Would it come back in other rows? Halves of every context, fitted apart and matched."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.contexts import Contexts
from .._linalg.canonical import match_components
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._utils.arguments import as_generator, check_integer, check_real
from .._utils.array_api import to_host
from .._utils.parallel import each, n_workers
from .._utils.printing import Shown, counted, extremes, listed_mcpcs, mcpcs
from .._utils.types import Array, Report
from .._utils.wording import listed

MIN_ROWS = 4  # of a context: each half then has two, the fewest that a covariance can be computed from
REPLICATES = 0.9  # |cos| between halves, 26 degrees; the bound of the paper's 10% hold-out experiment


@dataclass(frozen=True, repr=False)
class Replicability(Shown):
    """Which components two halves of the rows both find.

    Attributes
    ----------
    cosines : ndarray (n_splits, r)
        For each random split ``|cos|`` between two components, one of each half: components of the halves are matched
        with each other, and the pairs with the components j of the model of all rows.
    threshold : float
        What counts as coming back.
    """

    cosines: Array
    threshold: float = REPLICATES

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
        """How many components come back by the mean over splits; ``counts`` says how that varies."""
        return int(self.replicates.sum())

    @property
    def counts(self) -> Array:
        """How many components come back in each split (n_splits,)."""
        return np.asarray((self.cosines > self.threshold).sum(axis=1))

    @property
    def undecided(self) -> Array:
        """Whether other splits may change ``replicates`` (r,): the mean is within two standard errors of the threshold.

        That of a component is taken as no less than that of all together, since splits are few.
        """
        n = len(self.cosines)
        if n < 2:
            return np.ones(self.cosines.shape[1], dtype=bool)
        spread = np.maximum(self.spread, np.sqrt(np.mean(self.spread**2)))
        return np.asarray(~(np.abs(self.agreement - self.threshold) > 2 * spread / np.sqrt(n)))

    def in_words(self, what: str = "") -> str:
        """Return how many of ``what`` come back, from the fewest to the most in a split, as part of a sentence."""
        n, r = self.cosines.shape
        if np.isnan(self.cosines).any():
            return f"it is not known how many of {r}{what} come back: halves have too few rows"
        low, high = int(self.counts.min()), int(self.counts.max())
        if low < high:
            mean = f"{self.counts.mean():.1f} on average"
            return (
                f"in {n} splits between {low} and {high} of {r}{what} come back with |cos| > {self.threshold:g}, {mean}"
            )
        where = "in one split" if n == 1 else f"in each of {n} splits"
        return f"{where} {low} of {r}{what} come back with |cos| > {self.threshold:g}"

    def _words(self) -> list[str]:
        n, r = self.cosines.shape
        above = self.cosines > self.threshold
        always, ever = above.all(axis=0), above.any(axis=0)
        return [
            f"{counted(r, 'MCPC')} in {counted(n, 'split')} of the rows into halves: mean |cos| between halves "
            f"{extremes(self.agreement)}.",
            f"Above {self.threshold:g} in every split: {listed_mcpcs(always)}; in some: "
            f"{listed_mcpcs(ever & ~always)}; in none: {listed_mcpcs(~ever)}.",
        ]

    def _rows(self) -> dict[str, Any]:
        found = self.cosines
        return {"": mcpcs(found.shape[1]), "mean |cos|": self.agreement} | {
            "least": found.min(axis=0),
            "largest": found.max(axis=0),
        }


def check_halves(contexts: Contexts, way_out: str) -> None:
    """Raise where a context has too few rows for two covariances."""
    few = [
        f"{name!r} ({n})"
        for name, n in zip(contexts.names.tolist(), contexts.n_samples.tolist(), strict=True)
        if n < MIN_ROWS
    ]
    if few:
        raise ValueError(
            f"{len(few)} of {len(contexts.names)} contexts have fewer than {MIN_ROWS} rows, which do not make two "
            f"halves of 2: {listed(few)}. Drop or merge them, or {way_out}."
        )


def split_rows(contexts: Contexts, share: float, rng: np.random.Generator) -> tuple[Contexts, Contexts]:
    """Return two parts that share no row: at random ``share`` of every context (at least 2 rows), and the rest."""
    first, second = [], []
    for n in contexts.n_samples.tolist():
        order = rng.permutation(n)
        cut = max(2, int(n * share))
        first.append(np.sort(order[:cut]))
        second.append(np.sort(order[cut:]))
    return contexts.take(first), contexts.take(second)


def agreement_of_halves(first: Array, second: Array, whole: Array) -> Array:
    """Return |cos| (r,) between matched columns of two halves' components, in the order of the ``whole``'s.

    Columns of the halves are matched with each other, so that the mean does not depend on the ``whole``; of the pairs
    the axes midway between the two are then matched with its columns.
    """
    found = match_components(second, first)
    midway = first + found.apply(second)
    return np.asarray(found.cosines[match_components(midway, whole).indices])


def refit(unfitted: Any, contexts: Contexts, rng: np.random.Generator) -> Any:
    """Return a model with the parameters of ``unfitted`` for other rows; warnings are the caller's to silence."""
    blocks: Any = [contexts.block(i) for i in range(len(contexts.names))]
    if contexts.by_name:  # which context_weights may go by
        blocks = dict(zip(contexts.names.tolist(), blocks, strict=True))
    return type(unfitted)(**{**unfitted.get_params(), "random_state": rng}).fit(blocks)


def replicate(
    model: FittedModel,
    unfitted: Any,
    X: Any,
    y: Any,
    n_splits: Any,
    threshold: Any,
    random_state: Any,
    report: Report,
) -> Replicability:
    """Fit both halves of ``n_splits`` splits of the rows by ``unfitted``; see ``MCPCA.replicability``.

    Each split has a stream of random numbers of its own, so that threads change nothing.
    """
    n_splits = check_integer(n_splits, "n_splits", 1)
    threshold = check_real(threshold, "threshold", 0, 1, "It is an absolute cosine.")
    contexts = read_fitted_contexts(model, X, y)
    A = to_host(model.components).astype(np.float64)
    rng = as_generator(random_state)
    check_halves(contexts, "resample with bootstrap, which needs 2")
    streams = rng.spawn(n_splits)
    halves = [half for stream in streams for half in split_rows(contexts, 0.5, stream)]
    seeds = [seed for stream in streams for seed in stream.spawn(2)]

    def fit_half(i: int) -> Array:
        try:
            return np.asarray(refit(unfitted, halves[i], seeds[i]).components_, dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"Half of the rows cannot be fitted with {A.shape[1]} components: {error}") from error

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single halves: convergence, near-proportional loadings
        for components in each(fit_half, range(2 * n_splits), n_workers()):
            found.append(components)
            report("halves", len(found), 2 * n_splits)
    cosines = [agreement_of_halves(first, second, A) for first, second in zip(found[::2], found[1::2], strict=True)]
    return Replicability(np.stack(cosines), threshold)
