"""What a choice of rank looks at: rows and covariances, of the most variable features where all are too many."""

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

FEATURES = 300  # kept where features are too many for covariances


@dataclass(frozen=True)
class RankData:
    """Covariances with numbers of rows; ``contexts`` are the rows, None where they are not at hand.

    ``of_features`` is the number of features that these were chosen from as the most variable ones, None where all are
    looked at.
    """

    moments: ContextCovariances
    contexts: Contexts | None
    of_features: int | None = None

    def only(self, kept: Array) -> RankData:
        """Return the same for some of the contexts."""
        m = self.moments
        means = m.means[kept] if len(m.means) else m.means
        moments = replace(
            m, covariances=m.covariances[kept], means=means, n_samples=m.n_samples[kept], contexts=m.contexts[kept]
        )
        return replace(self, moments=moments, contexts=None if self.contexts is None else _only(self.contexts, kept))


def rank_data(data: FitData, counts: Array, report: Report) -> RankData:
    """Return what is looked at: dense rows of 300 features O(n), or their covariances where rows are elsewhere."""
    contexts, rows = data.contexts, data.covariances
    if not isinstance(rows, StreamedCovariances):
        assert data.moments is not None
        return RankData(replace(data.moments, n_samples=counts), contexts)
    features = rows.most_variable(FEATURES)
    of_features = rows.n_features if rows.n_features > len(features) else None
    if rows.contexts.engine is not None:
        return RankData(covariances_among(rows, features), None, of_features)
    contexts = _of_features(rows.contexts, features)
    return RankData(covariances_of(contexts, report), contexts, of_features)


def _of_features(contexts: Contexts, features: Array) -> Contexts:
    """Return dense rows of some features: a pass."""
    kept: dict[int, Source] = {}
    for source in contexts.sources:
        if id(source) not in kept:
            parts: list[Any] = [block[:, features] for _, block in source.scan(2**26)]
            rows = [part.toarray() if source.sparse else part for part in parts]
            kept[id(source)] = as_source(np.concatenate(rows), "X")
    return replace(contexts, sources=[kept[id(source)] for source in contexts.sources], feature_names=None)


def _only(contexts: Contexts, kept: Array) -> Contexts:
    own = kept.tolist()
    return replace(
        contexts,
        names=contexts.names[kept],
        sources=[contexts.sources[i] for i in own],
        rows=[contexts.rows[i] for i in own],
        n_samples=contexts.n_samples[kept],
    )
