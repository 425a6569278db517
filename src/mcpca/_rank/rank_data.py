"""Which rows, features and contexts the choice of a rank sees.

``rank_data`` turns the data of a fit into the data of a choice: the covariances with their row counts and, where rows
are within reach, the rows themselves, which the sign-flip null and the random halves resample. It is called by
``automatic_rank`` and ``select_rank`` right before ``recommend``, and is the only place that reduces the features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._covariances.context_covariances import ContextCovariances, covariances_among, covariances_of
from .._covariances.fit_data import FitData
from .._covariances.streamed import StreamedCovariances
from .._data.contexts import Contexts
from .._data.sources import Source, as_source
from .._utils.types import Array, Report

# Features that are examined where a stack of covariances of all of them would be too large. The noise test draws k
# matrices of this size some 20 to 100 times, O(k p^3) each; fewer features would miss components that live elsewhere.
RANK_FEATURES = 300
_SCAN_BYTES = 2**26  # of rows read at a time while features are picked from them


@dataclass(frozen=True)
class RankData:
    """Covariances with row counts; ``contexts`` holds the rows, or None where they are not available.

    ``of_features`` is the number of features from which the most variable ones were picked, None where all are used.
    """

    moments: ContextCovariances
    contexts: Contexts | None
    of_features: int | None = None

    def subset(self, chosen: Array) -> RankData:
        """Return the data of the contexts with these indices."""
        moments = self.moments
        if len(chosen) == len(moments.n_samples):
            return self  # indexing would copy the whole stack
        means = moments.means
        subset = replace(
            moments,
            covariances=moments.covariances[chosen],
            means=means[chosen] if len(means) else means,
            n_samples=moments.n_samples[chosen],
            contexts=moments.contexts[chosen],
        )
        contexts = self.contexts
        if contexts is not None:
            contexts = contexts.in_order(contexts.names[chosen].tolist())
        return replace(self, moments=subset, contexts=contexts)


def rank_data(data: FitData, counts: Array, report: Report) -> RankData:
    """Return the data for a choice of rank; ``counts`` (k,) are the rows of each context.

    Where the fit has no stack of covariances, this makes one for the most variable features, and a dense copy of the
    rows restricted to them: O(n) memory. Rows on a Dask cluster stay there, and only their covariances are fetched.
    """
    covariances = data.covariances
    if not isinstance(covariances, StreamedCovariances):
        assert data.moments is not None
        # Covariances that came without rows hold no counts of their own.
        return RankData(replace(data.moments, n_samples=counts), data.contexts)
    features = covariances.most_variable(RANK_FEATURES)
    of_features = covariances.n_features if covariances.n_features > len(features) else None
    if covariances.contexts.engine is not None:
        # The rows stay on the cluster: without them the null is Gaussian, and halves cannot be compared.
        return RankData(covariances_among(covariances, features), None, of_features)
    contexts = _restricted_to(features, covariances.contexts)
    return RankData(covariances_of(contexts, report), contexts, of_features)


def _restricted_to(features: Array, contexts: Contexts) -> Contexts:
    """Return the rows as dense arrays of these features only; costs one pass."""
    # Contexts given by labels share one source: it must be read once, not k times.
    restricted: dict[int, Source] = {}
    for source in contexts.sources:
        if id(source) in restricted:
            continue
        blocks: list[Any] = [block[:, features] for _, block in source.scan(_SCAN_BYTES)]
        # Random signs go to every entry of centred rows, which are dense whatever the rows were.
        if source.sparse:
            blocks = [block.toarray() for block in blocks]
        restricted[id(source)] = as_source(np.concatenate(blocks), "X")
    sources = [restricted[id(source)] for source in contexts.sources]
    # Names of all features would no longer fit the columns; nothing here uses them.
    return replace(contexts, sources=sources, feature_names=None)
