"""Counts, means and scatters of contexts: rows come in chunks or stay where they are, and only these travel.

For two sets of rows with counts n, m, means u, v and scatters ``M = sum (x - mean)(x - mean)^T``, both sets together
have (Chan, Golub and LeVeque, 1983)

    count n + m,   mean u + (v - u) m / (n + m),   scatter M_1 + M_2 + (v - u)(v - u)^T n m / (n + m).

No row is seen twice and no mean is subtracted from a sum of squares, so the order of chunks and of merging matters by
rounding only.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ._check import Array, as_report
from ._files import names_to_json, read_file, write_file
from .contexts import Contexts, read_contexts
from .label_kinds import labels_from_json
from .labels import name_array, sorted_names
from .scatters import ContextCovariances, scatters

FORMAT = "mcpca-moments"


class ContextMoments:
    """Second moments of contexts that can be updated by chunks of rows, merged, saved and loaded.

    Attributes
    ----------
    contexts : ndarray (k,)
        Names of the contexts, in the order in which ``MCPCA.fit`` would have them: sorted.
    counts : ndarray (k,) of int
    means : ndarray (k, p)
    scatters : ndarray (k, p, p)
        ``sum (x - mean)(x - mean)^T`` over the rows of each context, in float64.
    feature_names : ndarray (p,) or None

    Notes
    -----
    A chunk of n rows costs O(n p^2), merging O(k p^2); memory O(k p^2).

    Examples
    --------
    Two hospitals that keep their rows:

    >>> from mcpca import MCPCA, ContextMoments
    >>> from mcpca.datasets import make_contexts
    >>> data = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> here, there = data.X[::2], data.X[1::2]
    >>> ours = ContextMoments().update(here, data.y[::2])
    >>> theirs = ContextMoments().update(there, data.y[1::2])
    >>> MCPCA(4, random_state=0).fit(ours.merge(theirs)).loadings_.shape
    (6, 4)
    """

    def __init__(self) -> None:
        self.contexts: Array = np.zeros(0, dtype=np.intp)
        self.counts: Array = np.zeros(0, dtype=np.intp)
        self.means: Array = np.zeros((0, 0))
        self.scatters: Array = np.zeros((0, 0, 0))
        self.feature_names: Array | None = None

    def __repr__(self) -> str:
        """Say how much is in it."""
        k, p = self.means.shape
        return f"ContextMoments({k} contexts, {p} features, {int(self.counts.sum())} rows)"

    def update(self, X: Any, y: Any = None) -> Self:
        """Add a chunk of rows, in any form that ``MCPCA.fit`` takes; contexts may be new and have a single row.

        A chunk that is refused (NaN, another number of features) changes nothing.
        """
        self._become(self.merge(_of_rows(read_contexts(X, y, min_samples=1))))
        return self

    def merge(self, other: ContextMoments) -> ContextMoments:
        """Return the moments of both sets of rows together; neither changes.

        The same context is known by its name. Features are aligned by name where both have names.
        """
        if not isinstance(other, ContextMoments):
            raise TypeError(f"other is a {type(other).__name__}; merge takes ContextMoments.")
        if not len(other.contexts) or not len(self.contexts):
            return _copy(self if len(self.contexts) else other)
        other = _aligned(other, self)
        names = sorted_names([*self.contexts.tolist(), *other.contexts.tolist()])
        position = {name: i for i, name in enumerate(names)}
        mine, its = (np.array([position[name] for name in part.contexts.tolist()]) for part in (self, other))
        k, p = len(names), self.means.shape[1]
        both = ContextMoments()
        both.contexts, both.feature_names = name_array(names), self.feature_names
        n, m = np.zeros(k, dtype=np.intp), np.zeros(k, dtype=np.intp)
        n[mine], m[its] = self.counts, other.counts
        both.counts = n + m
        both.means, difference = np.zeros((k, p)), np.zeros((k, p))
        both.means[mine] = self.means
        difference[its] = other.means
        # Where only one side has rows its mean is the mean, and there is no difference between two.
        difference = np.where((m > 0)[:, None], difference - both.means, 0)
        both.means = both.means + difference * (m / both.counts)[:, None]
        both.scatters = np.zeros((k, p, p))
        both.scatters[mine] += self.scatters
        both.scatters[its] += other.scatters
        shared = np.flatnonzero((n > 0) & (m > 0))
        weighted = difference[shared] * (n * m / both.counts)[shared, None]
        both.scatters[shared] += weighted[:, :, None] * difference[shared, None, :]
        return both

    def covariances(self) -> ContextCovariances:
        """Return what ``context_covariances`` would have returned for all rows; every context needs two of them."""
        few = np.flatnonzero(self.counts < 2)
        if len(few) or not len(self.counts):
            names = [self.contexts.tolist()[i] for i in few[:5]]
            raise ValueError(
                f"{len(few)} contexts have fewer than 2 rows so far ({names}); a covariance needs 2. Update with more."
                if len(few)
                else "There are no rows yet; update(X, y) adds them."
            )
        S = self.scatters / (self.counts - 1.0)[:, None, None]
        return ContextCovariances(S, self.means.copy(), self.counts.copy(), self.contexts, self.feature_names)

    def save(self, path: Any) -> None:
        """Write one file of arrays and JSON, atomically: a crash on the way leaves the old file. No pickle is in it."""
        header = {"contexts": names_to_json(self.contexts), "feature_names": names_to_json(self.feature_names)}
        write_file(path, FORMAT, {"counts": self.counts, "means": self.means, "scatters": self.scatters}, header)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read what ``save`` wrote; no code can run from the file."""
        arrays, header = read_file(path, FORMAT, "set of moments", "ContextMoments.save")
        moments = cls()
        moments.contexts = name_array(labels_from_json(header["contexts"]))
        moments.counts, moments.means, moments.scatters = (arrays[n] for n in ("counts", "means", "scatters"))
        names = header["feature_names"]
        moments.feature_names = None if names is None else name_array(labels_from_json(names))
        return moments

    def _become(self, other: ContextMoments) -> None:
        self.__dict__.update(other.__dict__)


def _of_rows(contexts: Contexts) -> ContextMoments:
    moments = ContextMoments()
    moments.contexts, moments.counts = contexts.names, contexts.n_samples.astype(np.intp)
    moments.feature_names = contexts.feature_names
    moments.means, moments.scatters = scatters(contexts, as_report(False))
    return moments


def _copy(moments: ContextMoments) -> ContextMoments:
    copy = ContextMoments()
    copy.__dict__.update({name: None if value is None else value.copy() for name, value in vars(moments).items()})
    return copy


def _aligned(other: ContextMoments, like: ContextMoments) -> ContextMoments:
    """Return ``other`` with its features in the order of ``like``'s."""
    p, q = like.means.shape[1], other.means.shape[1]
    if p != q:
        raise ValueError(f"These rows have {q} features, and those before have {p}; select the same ones.")
    if like.feature_names is None or other.feature_names is None:
        return other
    mine, its = like.feature_names.tolist(), other.feature_names.tolist()
    if mine == its:
        return other
    missing = [name for name in mine if name not in its]
    if missing:
        raise ValueError(f"These rows lack the features {missing[:5]}, which those before have; select the same ones.")
    order = np.array([its.index(name) for name in mine])
    turned = _copy(other)
    turned.means = other.means[:, order]
    turned.scatters = other.scatters[:, order][:, :, order]
    turned.feature_names = like.feature_names
    return turned
