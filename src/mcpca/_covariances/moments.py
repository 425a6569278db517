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

from .._data.columns import positions_of
from .._data.contexts import read_contexts
from .._data.doubtful_labels import warn_of_doubtful
from .._data.label_kinds import checked_names, names_to_json
from .._data.labels import name_array, sorted_names
from .._utils.array_files import read_file, write_file
from .._utils.printing import Shown, contexts_in_words
from .._utils.progress import reporting
from .._utils.types import Array, Report
from ..exceptions import DuplicateRowsError
from .context_covariances import ContextCovariances, scatters
from .moment_fingerprints import fingerprints_of, from_json, to_json, union
from .scaling import in_range

FORMAT = "mcpca-moments"
_MOST_ROWS = 10**12  # of a context: more are a mistake
_ROUNDING = 1e-5  # of scatters that were summed in float32


class ContextMoments(Shown):
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
    fingerprints : ndarray (m,) of uint64
        Of what was added, context by context, by which the same rows are known when they come again; the last 4,096.

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
        self.fingerprints: Array = union()

    def __repr__(self) -> str:
        """Say how much is in it."""
        k, p = self.means.shape
        return f"ContextMoments({k} contexts, {p} features, {int(self.counts.sum())} rows)"

    def _words(self) -> list[str]:
        return contexts_in_words("Moments", self.contexts, self.counts, self.means.shape[1])

    def _rows(self) -> dict[str, Any]:
        return {"context": self.contexts, "rows": self.counts}

    def update(self, X: Any, y: Any = None, *, allow_duplicates: bool = False) -> Self:
        """Add a chunk of rows, in any form that ``MCPCA.fit`` takes; contexts may be new and have a single row.

        A chunk that is refused (NaN, another number of features, rows that were added before) changes nothing.
        """
        with reporting(None, "moments") as report:
            self._add(moments_of(X, y, report), allow_duplicates)
        return self

    def _add(self, chunk: ContextMoments, allow_duplicates: bool) -> None:
        self._become(self._together(chunk, union(self.fingerprints, _current(chunk)), allow_duplicates))

    def merge(self, other: ContextMoments, *, allow_duplicates: bool = False) -> ContextMoments:
        """Return the moments of both sets of rows together; neither changes.

        The same context is known by its name. Features are aligned by name where both have names. Rows of a context
        that both sets hold, as a whole or as one of the parts that were merged before, raise a ``DuplicateRowsError``:
        they would count twice. ``allow_duplicates=True`` merges them.
        """
        if not isinstance(other, ContextMoments):
            raise TypeError(f"other is a {type(other).__name__}; merge takes ContextMoments.")
        known = union(self.fingerprints, _current(self), other.fingerprints, _current(other))
        return self._together(other, known, allow_duplicates)

    def _together(self, other: ContextMoments, fingerprints: Array, allow_duplicates: bool) -> ContextMoments:
        """Return both sets of rows together, with what is known of their parts."""
        if not len(other.contexts) or not len(self.contexts):
            only = _copy(self if len(self.contexts) else other)
            only.fingerprints = fingerprints
            return only
        other = _aligned(other, self)
        if not allow_duplicates:
            _check_duplicates(self, other)
        names = sorted_names([*self.contexts.tolist(), *other.contexts.tolist()])
        if len(names) > len(self.contexts):
            warn_of_doubtful(names)
        position = {name: i for i, name in enumerate(names)}
        mine, its = (np.array([position[name] for name in part.contexts.tolist()]) for part in (self, other))
        k, p = len(names), self.means.shape[1]
        both = ContextMoments()
        both.contexts, both.feature_names, both.fingerprints = name_array(names), self.feature_names, fingerprints
        n, m = np.zeros(k, dtype=np.intp), np.zeros(k, dtype=np.intp)
        n[mine], m[its] = self.counts, other.counts
        both.counts = n + m
        both.means, difference = np.zeros((k, p)), np.zeros((k, p))
        both.means[mine] = self.means
        difference[its] = other.means
        # Where only one side has rows its mean is the mean, and there is no difference between two.
        difference = np.where((m > 0)[:, None], difference - both.means, 0)
        # Nor where both sides are constant, and their means differ by the rounding of sums.
        still = np.ones((k, p), dtype=bool)
        for part, places in ((self, mine), (other, its)):
            still[places] &= np.einsum("kpp->kp", part.scatters) == 0
        rounding = np.finfo(np.float64).eps * both.counts[:, None] * np.abs(both.means)
        difference[still & (np.abs(difference) <= rounding)] = 0
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
        header["fingerprints"] = to_json(self.fingerprints)
        write_file(path, FORMAT, {"counts": self.counts, "means": self.means, "scatters": self.scatters}, header)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read what ``save`` wrote; no code can run from the file, and what no rows can have is refused.

        Cost O(k p^3): a scatter is symmetric and positive semi-definite.
        """
        names = ("counts", "means", "scatters")
        arrays, header = read_file(path, FORMAT, "set of moments", "ContextMoments.save", lambda header: names)
        try:
            moments = cls()
            moments.contexts = name_array(checked_names(header.get("contexts"), "contexts"))
            moments.counts, moments.means, moments.scatters = (_member(arrays, name) for name in names)
            features = header.get("feature_names")
            moments.feature_names = None if features is None else name_array(checked_names(features, "feature_names"))
            moments.fingerprints = from_json(header.get("fingerprints"))
            _check(moments)
        except ValueError as error:
            raise ValueError(
                f"path={str(path)!r} holds moments that no rows have: {error}. Ask whoever sent it for another."
            ) from error
        return moments

    def _become(self, other: ContextMoments) -> None:
        self.__dict__.update(other.__dict__)


def _member(arrays: dict[str, Array], name: str) -> Array:
    if name not in arrays:
        raise ValueError(f"{name} is missing")
    return arrays[name]


def _check(moments: ContextMoments) -> None:
    """Raise where moments cannot be those of rows, by what is wrong with them."""
    k, p = len(moments.contexts), moments.means.shape[-1]
    for name, values, shape, kind in (
        ("counts", moments.counts, (k,), "iu"),
        ("means", moments.means, (k, p), "f"),
        ("scatters", moments.scatters, (k, p, p), "f"),
    ):
        if values.shape != shape or values.dtype.kind not in kind:
            raise ValueError(f"{name} is {values.dtype} of shape {values.shape} where {shape} is needed")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are NaN or infinite")
    if moments.feature_names is not None and len(moments.feature_names) != p:
        raise ValueError(f"it has {len(moments.feature_names)} names for {p} features")
    names, counts = moments.contexts.tolist(), [int(n) for n in moments.counts]
    for name, n, M in zip(names, counts, moments.scatters, strict=True):
        if not 1 <= n <= _MOST_ROWS:
            raise ValueError(f"context {name!r} has a count of {n:,}, where 1 to {_MOST_ROWS:,} rows are plausible")
        size = float(np.abs(M).max(initial=0.0))
        gap = float(np.abs(M - M.T).max(initial=0.0))
        if gap > _ROUNDING * size:
            raise ValueError(f"the scatter of context {name!r} is not symmetric: |M - M^T| is {gap:.3g} of {size:.3g}")
        try:
            np.linalg.cholesky(M / max(size, np.finfo(M.dtype).tiny) + _ROUNDING * np.sqrt(p) * np.eye(p))
        except np.linalg.LinAlgError:
            smallest = float(np.linalg.eigvalsh(M)[0])
            raise ValueError(
                f"the scatter of context {name!r} is not positive semi-definite: its smallest eigenvalue is "
                f"{smallest:.3g} and its largest entry {size:.3g}"
            ) from None


def _current(moments: ContextMoments) -> Array:
    """Return the fingerprints of the contexts as they are now."""
    return fingerprints_of(moments.contexts.tolist(), moments.counts, moments.means, moments.scatters)


def _check_duplicates(moments: ContextMoments, other: ContextMoments) -> None:
    """Raise where rows of a context are in both."""
    its = _current(other)
    known = union(moments.fingerprints, _current(moments))
    twice = [name for name, own in zip(other.contexts.tolist(), its, strict=True) if own in known]
    parts = np.isin(other.fingerprints, known).sum()
    if twice or parts:
        names = f" {twice[:5]}{' and more' if len(twice) > 5 else ''}" if twice else ""
        which = f"{len(twice)} of {len(its)} contexts{names}" if twice else f"{parts} parts that were merged before"
        raise DuplicateRowsError(
            f"These rows are in these moments already: {which}. They would count twice; leave them out, or pass "
            "allow_duplicates=True if that is meant."
        )


def moments_of(X: Any, y: Any, report: Report) -> ContextMoments:
    """Return the moments of rows, in any form that ``MCPCA.fit`` takes."""
    contexts, moments = read_contexts(X, y, min_samples=1), ContextMoments()
    moments.contexts, moments.counts = contexts.names, contexts.n_samples.astype(np.intp)
    moments.feature_names = contexts.feature_names
    scaled, e = in_range(contexts)
    means, found = scatters(scaled, report)
    moments.means, moments.scatters = np.ldexp(means, e), np.ldexp(found, 2 * e)
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
    order = positions_of(mine, its, "The set of rows to add", "of those before", "Select the same ones.")
    if order is None:
        return other
    turned = _copy(other)
    turned.means = other.means[:, order]
    turned.scatters = other.scatters[:, order][:, :, order]
    turned.feature_names = like.feature_names
    return turned
