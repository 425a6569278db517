"""Which rows, features and contexts the choice of a rank sees.

``rank_data`` turns the data of a fit into the data of a choice: the covariances with their row counts and, where rows
are within reach, the rows themselves, which random halves and the null of the noise test resample. It is called by
``automatic_rank`` and ``select_rank`` right before ``recommend``.

Where a stack of all covariances would be too large, there is none: halves are fitted by passes over the rows, and the
noise test is one of ``leading_directions``. Only rows on a cluster, which cannot be split, are reduced to the most
variable features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._covariances.context_covariances import ContextCovariances, covariances_among, covariances_of
from .._covariances.fit_data import FitData
from .._covariances.streamed import StreamedCovariances
from .._data.contexts import Contexts
from .._utils.types import Array, Report

# Features of which covariances are formed where the stack of all would be too large: the most variable ones of rows on
# a cluster; of other rows up to so many. With more of them the noise test, O(k p^3), takes longer; with fewer it misses
# components that live elsewhere.
RANK_FEATURES = 300


@dataclass(frozen=True)
class RankData:
    """Covariances with row counts; ``contexts`` holds the rows, or None where they are not available.

    ``moments`` is None where the stack would be too large; there are rows then. ``names`` and ``n_samples`` (k,) are
    those of the contexts, ``n_features`` is p. ``of_features`` is the number of features from which the most variable
    ones were picked, None where all are used.
    """

    moments: ContextCovariances | None
    contexts: Contexts | None
    names: Array
    n_samples: Array
    n_features: int
    of_features: int | None = None

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


def rank_data(data: FitData, counts: Array, report: Report) -> RankData:
    """Return the data for a choice of rank; ``counts`` (k,) are the rows of each context.

    Rows on a Dask cluster stay there, and only covariances of their most variable features are fetched.
    """
    covariances = data.covariances
    p = covariances.n_features
    if not isinstance(covariances, StreamedCovariances):
        assert data.moments is not None
        # Covariances that came without rows hold no counts of their own.
        return RankData(replace(data.moments, n_samples=counts), data.contexts, data.names, counts, p)
    if covariances.contexts.engine is None:
        # Of few features, however many contexts there are, the stack is formed after all: there is no outside of their
        # leading directions to speak of.
        moments = None if p > RANK_FEATURES else covariances_of(covariances.contexts, report)
        if moments is not None:
            moments = replace(moments, n_samples=counts)
        return RankData(moments, covariances.contexts, data.names, counts, p)
    # The rows stay on the cluster: without them the null is Gaussian, and halves cannot be compared.
    features = covariances.most_variable(RANK_FEATURES)
    moments = covariances_among(covariances, features)
    return RankData(moments, None, data.names, counts, len(features), p if p > len(features) else None)
