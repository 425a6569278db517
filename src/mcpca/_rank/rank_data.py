"""Which rows, features and contexts the choice of a rank sees.

``rank_data`` turns the data of a fit into the data of a choice: the covariances with their row counts and the rows
themselves, which random halves and the null of the noise test resample. It is called by ``automatic_rank`` and
``select_rank`` right before ``recommend``.

Where a stack of all covariances would be too large, there is none: halves are fitted by passes over the rows, wherever
these are, and the noise test is one of ``leading_directions``.

Rows on other machines come here if all of them take no more than half a gigabyte, as a stack may: the choice is then
that of rows in memory. A choice goes over the rows many times, and most of it would be waiting for small sums, the more
so where contexts are spread over all blocks. More rows stay where they are, and halves are fitted there. Where there is
a stack the noise test draws signs for each entry of the rows, and a sample of them comes here for it; with many
features there is no stack then, as above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._covariances.context_covariances import ContextCovariances, covariances_of
from .._covariances.fit_data import FitData
from .._covariances.streamed import StreamedCovariances
from .._data.contexts import Contexts
from .._inference.sampling import some_rows
from .._utils.progress import silent
from .._utils.types import Array, Report

# Features up to which covariances are formed in any case, however many contexts there are: there is no outside of their
# leading directions to speak of.
RANK_FEATURES = 300
# Bytes of rows on other machines that come here.
_MOST_BYTES = 2**29


@dataclass(frozen=True)
class RankData:
    """Covariances with row counts; ``contexts`` holds the rows, or None where they are not available.

    ``moments`` is None where the stack would be too large; there are rows then. ``names`` and ``n_samples`` (k,) are
    those of the contexts, ``n_features`` is p.
    """

    moments: ContextCovariances | None
    contexts: Contexts | None
    names: Array
    n_samples: Array
    n_features: int

    @property
    def varies(self) -> bool:
        """Whether any covariance is not zero; without a stack that is seen when the leading directions are."""
        return self.moments is None or bool(self.moments.covariances.any())

    def subset(self, chosen: Array) -> RankData:
        """Return the data of the contexts with these indices."""
        if len(chosen) == len(self.names):
            return self  # indexing would copy the whole stack
        contexts = self.contexts
        if contexts is not None:
            contexts = contexts.in_order(contexts.names[chosen].tolist())
        moments = self.moments
        if moments is not None:
            moments = replace(
                moments,
                covariances=moments.covariances[chosen],
                means=moments.means[chosen] if len(moments.means) else moments.means,
                n_samples=moments.n_samples[chosen],
                contexts=moments.contexts[chosen],
            )
        return replace(
            self, moments=moments, contexts=contexts, names=self.names[chosen], n_samples=self.n_samples[chosen]
        )

    def for_noise_test(self, rng: np.random.Generator) -> tuple[ContextCovariances, Contexts | None]:
        """Return the stack and the rows that the noise test looks at: all, or a sample of rows on other machines."""
        assert self.moments is not None
        if self.contexts is None or self.contexts.engine is None:
            return self.moments, self.contexts
        sample = sample_here(self.contexts, _bytes(self.contexts) / float(self.contexts.n_samples.sum()), rng)
        of_sample = covariances_of(sample, silent)
        # What nuisance takes from the rows of a context it takes from a sample of them.
        taken = self.contexts.n_samples - self.n_samples
        return replace(of_sample, n_samples=sample.n_samples - taken), sample


def rank_data(data: FitData, counts: Array, report: Report) -> RankData:
    """Return the data for a choice of rank; ``counts`` (k,) are the rows of each context, less what nuisance takes."""
    covariances = data.covariances
    p = covariances.n_features
    contexts = data.contexts
    moments = data.moments
    if isinstance(covariances, StreamedCovariances):
        contexts = covariances.contexts
        moments = None if p > RANK_FEATURES else covariances_of(contexts, report)
    if contexts is not None and contexts.engine is not None:
        if fits_here(contexts):
            contexts = contexts.here()
        elif p > RANK_FEATURES:
            moments = None
    if moments is not None:
        # Covariances that came without rows hold no counts of their own.
        moments = replace(moments, n_samples=counts)
    return RankData(moments, contexts, data.names, counts, p)


def fits_here(contexts: Contexts) -> bool:
    """Whether rows on other machines are few enough to come here."""
    return _bytes(contexts) <= _MOST_BYTES


def sample_here(
    contexts: Contexts, row_bytes: float, rng: np.random.Generator, directions: Array | None = None
) -> Contexts:
    """Return rows on other machines, or their products with ``directions``: a sample, if all would take too much."""
    return some_rows(contexts, int(_MOST_BYTES / max(row_bytes, 1)), rng).here(directions)


def _bytes(contexts: Contexts) -> float:
    return float(contexts.context_bytes().sum())
