"""Counts, means and scatters of contexts that can be updated, merged, saved and sent, so that rows need not be.

``ContextMoments`` is public. ``MCPCA.fit`` takes one in place of rows, and ``mcpca merge`` adds up files of them. The
rows of a chunk go through ``context_covariances.scatters``; this module only adds up.

For two sets of rows with counts n, m, means u, v and scatters ``M = sum (x - mean)(x - mean)^T``, both sets together
have (Chan, Golub and LeVeque, 1983)

    count n + m,   mean u + (v - u) m / (n + m),   scatter M_1 + M_2 + (v - u)(v - u)^T n m / (n + m).

No row is seen twice and no mean is subtracted from a sum of squares, so the order of chunks and of merging matters by
rounding only. Batch and covariates of rows are kept beside these, in ``nuisance_moments``, and add up in the same way.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from .._data.annotations import take_annotations
from .._data.columns import positions_of
from .._data.contexts import Contexts
from .._data.doubtful_labels import warn_of_doubtful
from .._data.label_kinds import checked_names, names_to_json
from .._data.labels import name_array, sorted_names
from .._utils.array_files import read_file, write_file
from .._utils.printing import Shown, contexts_in_words
from .._utils.progress import reporting
from .._utils.types import Array, Report
from .._utils.wording import quoted
from ..exceptions import DuplicateRowsError
from .context_covariances import ContextCovariances, scatters
from .moment_fingerprints import fingerprints_from_json, fingerprints_of, fingerprints_to_json, union
from .nuisance import NuisanceFactors
from .nuisance_moments import NUISANCE_ARRAYS, NuisanceMoments, merged_nuisance, nuisance_moments
from .plausible import check_moments
from .scaling import in_range

MOMENTS_FORMAT = "mcpca-moments"
# The attributes that moments consist of: arrays or None, and the moments of nuisance, a value that is never changed.
_ARRAYS = ("contexts", "counts", "means", "scatters", "feature_names", "fingerprints")
_STATE = (*_ARRAYS, "nuisance")


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
        Of what was added, context by context, to recognise the same rows if they are added again; the last 4,096.
    nuisance : NuisanceMoments or None
        What is kept of the batch and the covariates of the rows; None if they came without.

    Notes
    -----
    A chunk of n rows costs O(n p^2), merging O(k p^2); memory O(k p^2). Batch and covariates add O(p) numbers for each
    batch within a context and for each covariate of a context.

    Examples
    --------
    Two hospitals whose rows stay where they are:

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
        self.nuisance: NuisanceMoments | None = None

    # Not the "<ContextMoments: Moments of ...>" of ``Shown``: this text is older, and users may depend on it.
    def __repr__(self) -> str:
        """Return the numbers of contexts, features and rows."""
        k, p = self.means.shape
        beside = "" if self.nuisance is None else f", with {self.nuisance.in_words()}"
        return f"ContextMoments({k} contexts, {p} features, {int(self.counts.sum())} rows{beside})"

    def _words(self) -> list[str]:
        words = contexts_in_words("Moments", self.contexts, self.counts, self.means.shape[1])
        return words if self.nuisance is None else [*words, f"A fit removes {self.nuisance.in_words()}."]

    def _rows(self) -> dict[str, Any]:
        return {"context": self.contexts, "rows": self.counts}

    def update(
        self, X: Any, y: Any = None, *, batch: Any = None, covariates: Any = None, allow_duplicates: bool = False
    ) -> Self:
        """Add a chunk of rows, in any form that ``MCPCA.fit`` takes; contexts may be new and have a single row.

        A chunk that is refused (NaN, another number of features, rows that were added before) changes nothing.

        Parameters
        ----------
        X, y
            As in ``MCPCA.fit``.
        batch, covariates : optional
            Of these rows, as in ``MCPCA.fit``, but no formula: pass its columns. A fit to the moments removes them
            within contexts, as one to the rows does. All chunks need the same ones; batches, and levels of covariates
            that are labels, may differ from chunk to chunk.
        allow_duplicates : bool
            Whether rows that were added before may be added again, to count twice.
        """
        with reporting(None, "moments") as report:
            self._add(moments_of(X, y, report, batch=batch, covariates=covariates), allow_duplicates)
        return self

    def _add(self, chunk: ContextMoments, allow_duplicates: bool) -> None:
        """Replace these moments by those with ``chunk``; nothing changes if that raises."""
        # Of the chunk alone: the running total is not a set of rows that anybody would add again, and would only push
        # the marks of chunks off the list.
        fingerprints = union(self.fingerprints, _current(chunk))
        together = self._together(chunk, fingerprints, allow_duplicates)
        # Only assignments from here on, which cannot fail: either all attributes change or none.
        for name in _STATE:
            setattr(self, name, getattr(together, name))

    def merge(self, other: ContextMoments, *, allow_duplicates: bool = False) -> ContextMoments:
        """Return the moments of both sets of rows together; neither changes.

        Contexts are matched by name, and so are batches, covariates, and features where both sets have names for them.
        Batch and covariates have to be those of both or of neither. Rows of a context that both sets hold, as a whole
        or as one of the parts that were merged before, raise a ``DuplicateRowsError``: they would count twice.
        ``allow_duplicates=True`` merges them all the same.
        """
        if not isinstance(other, ContextMoments):
            raise TypeError(f"other is a {type(other).__name__}; merge takes ContextMoments.")
        # Both as they are now, and their parts: the result then recognises either of them if it is merged in again.
        known = union(self.fingerprints, _current(self), other.fingerprints, _current(other))
        return self._together(other, known, allow_duplicates)

    def _together(self, other: ContextMoments, fingerprints: Array, allow_duplicates: bool) -> ContextMoments:
        """Return the moments of both sets of rows, with the ``fingerprints`` of all their parts."""
        if not len(other.contexts) or not len(self.contexts):
            # The empty set has no features to align. A copy, so that neither set can change through the result.
            nonempty = _copy(self if len(self.contexts) else other)
            nonempty.fingerprints = fingerprints
            return nonempty
        # Before the comparison of rows: aligning raises the more telling error where the features differ.
        other = _aligned(other, self)
        if not allow_duplicates:
            _check_duplicates(self, other)
        # Sorted as ``MCPCA.fit`` sorts them, so that the order of contexts does not depend on that of merging.
        names = sorted_names([*self.contexts.tolist(), *other.contexts.tolist()])
        # Names that look alike can only have come in with new contexts: many chunks of the same ones warn once at most.
        if len(names) > len(self.contexts):
            warn_of_doubtful(names)
        both = ContextMoments()
        both.contexts = name_array(names)
        both.feature_names = self.feature_names
        both.fingerprints = fingerprints
        position = {name: i for i, name in enumerate(names)}
        in_first = np.array([position[name] for name in self.contexts.tolist()])
        in_second = np.array([position[name] for name in other.contexts.tolist()])
        both.nuisance = merged_nuisance(self.nuisance, other.nuisance, in_first, in_second, len(names))
        both._fill_with_sums(self, other, in_first, in_second)
        return both

    def _fill_with_sums(self, first: ContextMoments, second: ContextMoments, in_first: Array, in_second: Array) -> None:
        """Set counts, means and scatters to those of both sets together, by the formulas at the top of the module.

        ``contexts`` are the names of both, at places ``in_first`` and ``in_second``, and features are aligned.
        """
        # n, m (k,); means, difference, constant (k, p); scatters (k, p, p), all in the order of ``contexts``.
        k = len(self.contexts)
        p = first.means.shape[1]
        n = np.zeros(k, dtype=np.intp)
        n[in_first] = first.counts
        m = np.zeros(k, dtype=np.intp)
        m[in_second] = second.counts
        counts = n + m

        # u (k, p), 0 where only the second set has rows: v - u is then v, and the formula for the mean gives v.
        means = np.zeros((k, p))
        means[in_first] = first.means
        second_means = np.zeros((k, p))
        second_means[in_second] = second.means
        # Without rows in the second set v is not 0 but undefined: no difference, so that the mean stays u.
        difference = np.where((m > 0)[:, None], second_means - means, 0)
        # The means of a feature that is constant in both sets may differ by the rounding of their sums. It has to stay
        # constant: the outer product below would give it a tiny variance.
        constant = np.ones((k, p), dtype=bool)
        constant[in_first] &= np.einsum("kpp->kp", first.scatters) == 0
        constant[in_second] &= np.einsum("kpp->kp", second.scatters) == 0
        # A sum of n numbers may be off by n eps of its size.
        rounding = np.finfo(np.float64).eps * counts[:, None] * np.abs(means)
        difference[constant & (np.abs(difference) <= rounding)] = 0

        scatters = np.zeros((k, p, p))
        scatters[in_first] += first.scatters
        scatters[in_second] += second.scatters
        # The outer products are p x p for each context, so they are formed only where both sets have rows.
        shared = np.flatnonzero((n > 0) & (m > 0))
        # The product of two numbers of rows may exceed int64.
        weighted = difference[shared] * (n.astype(np.float64) * m / counts)[shared, None]
        scatters[shared] += weighted[:, :, None] * difference[shared, None, :]

        self.counts = counts
        self.means = means + difference * (m / counts)[:, None]
        self.scatters = scatters

    def covariances(self) -> ContextCovariances:
        """Return what ``context_covariances`` would have returned for all rows; every context needs two of them.

        Batch and covariates are removed, as there.
        """
        return reduced(self).covariances

    def save(self, path: Any) -> None:
        """Write one file of arrays and JSON, no pickle, atomically: after a crash the old file is still there."""
        # Names are JSON, not arrays: arrays of objects would need pickle.
        header: dict[str, Any] = {
            "contexts": names_to_json(self.contexts),
            "feature_names": names_to_json(self.feature_names),
        }
        header["fingerprints"] = fingerprints_to_json(self.fingerprints)
        arrays = {"counts": self.counts, "means": self.means, "scatters": self.scatters}
        if self.nuisance is not None:
            of_nuisance, header["nuisance"] = self.nuisance.to_state()
            arrays |= of_nuisance
        write_file(path, MOMENTS_FORMAT, arrays, header)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read what ``save`` wrote; the file cannot run code, and moments that no rows can have are refused.

        Cost O(k p^3), to see that every scatter is positive semi-definite.
        """
        names = ("counts", "means", "scatters")
        members = (*names, *NUISANCE_ARRAYS)
        arrays, header = read_file(
            path, MOMENTS_FORMAT, "set of moments", "ContextMoments.save", lambda header: members
        )
        try:
            moments = cls()
            moments.contexts = name_array(checked_names(header.get("contexts"), "contexts"))
            # Nothing in the file is trusted: ``check_moments`` below tests shapes, numbers and definiteness.
            moments.counts, moments.means, moments.scatters = (_member(arrays, name) for name in names)
            features = header.get("feature_names")
            moments.feature_names = None if features is None else name_array(checked_names(features, "feature_names"))
            moments.fingerprints = fingerprints_from_json(header.get("fingerprints"))
            check_moments(moments.contexts, moments.counts, moments.means, moments.scatters, moments.feature_names)
            if header.get("nuisance") is not None:
                of_nuisance = {name: _member(arrays, name) for name in NUISANCE_ARRAYS}
                moments.nuisance = NuisanceMoments.from_state(of_nuisance, header["nuisance"])
                moments.nuisance.check_plausible(moments.contexts, moments.counts, moments.means, moments.scatters)
        except ValueError as error:
            raise ValueError(
                f"path={str(path)!r} holds moments that no rows have: {error}. Ask whoever sent it for another."
            ) from error
        return moments


def _member(arrays: dict[str, Array], name: str) -> Array:
    """Return one array of a file, or raise where it is missing."""
    if name not in arrays:
        raise ValueError(f"{name} is missing")
    return arrays[name]


def _current(moments: ContextMoments) -> Array:
    """Return the fingerprints of the contexts as they are now."""
    return fingerprints_of(moments.contexts.tolist(), moments.counts, moments.means, moments.scatters)


def _check_duplicates(moments: ContextMoments, other: ContextMoments) -> None:
    """Raise where both hold the same rows of a context, as they are now or as a part that was merged before."""
    # Two ways to have rows twice: a context as it is now, or a part that went into both before. Only the first can be
    # named, since fingerprints do not tell their context.
    added = _current(other)
    known = union(moments.fingerprints, _current(moments))
    twice = [name for name, mark in zip(other.contexts.tolist(), added, strict=True) if mark in known]
    n_parts = int(np.isin(other.fingerprints, known).sum())
    if twice:
        which = f"{len(twice)} of {len(added)} contexts ({quoted(twice)})"
    elif n_parts:
        which = f"{n_parts} of the parts that were merged before"
    else:
        return
    raise DuplicateRowsError(
        f"These rows are in these moments already: {which}. They would count twice; leave them out, or pass "
        "allow_duplicates=True to add them again."
    )


class Reduced(NamedTuple):
    """Covariances without the nuisance, and its factors, which are None if there was none."""

    covariances: ContextCovariances
    factors: NuisanceFactors | None


def reduced(moments: ContextMoments, *, check: bool = True) -> Reduced:
    """Return the covariances of moments, without batch and covariates. Cost O(k p^2 + m p^2), m factors of nuisance.

    With ``check`` nuisance is refused or warned of where that of rows would be; more chunks may make it sound.
    """
    counts = moments.counts
    if not len(counts):
        raise ValueError("There are no rows yet; update(X, y) adds them.")
    too_few = moments.contexts[counts < 2]
    if len(too_few):
        raise ValueError(
            f"{len(too_few)} of {len(moments.contexts)} contexts have fewer than 2 rows so far: {quoted(too_few)}. A "
            "covariance needs 2; update with more."
        )
    factors = None
    freedom = counts - 1.0
    if moments.nuisance is not None:
        if check:
            moments.nuisance.check(moments.contexts)
        factors = moments.nuisance.factors()
        freedom = np.maximum(freedom - factors.ranks, 1.0)
    # A new array: the moments can be updated afterwards without changing these covariances.
    S = moments.scatters / freedom[:, None, None]
    if factors is not None:
        factors.remove_from(S, freedom)
    covariances = ContextCovariances(S, moments.means.copy(), counts.copy(), moments.contexts, moments.feature_names)
    return Reduced(covariances, factors)


def moments_of(X: Any, y: Any, report: Report, *, batch: Any = None, covariates: Any = None) -> ContextMoments:
    """Return the moments of rows, in any form that ``MCPCA.fit`` takes."""
    # A single row has a mean and a scatter of 0. Only ``covariances`` needs a second one, and more chunks may come.
    annotated = take_annotations(X, y, batch=batch, covariates=covariates)
    return moments_of_contexts(annotated.contexts(min_samples=1), report)


def moments_of_contexts(contexts: Contexts, report: Report) -> ContextMoments:
    """Return the moments of rows that have been read, with those of their batch and covariates."""
    # Rows far from 1 are multiplied by 2^-e, so that their squares are finite; means and scatters are scaled back.
    scaled, e = in_range(contexts)
    scaled_means, scaled_scatters = scatters(scaled, report)
    moments = ContextMoments()
    moments.contexts = contexts.names
    moments.counts = contexts.n_samples.astype(np.intp)
    moments.means = np.ldexp(scaled_means, e)
    moments.scatters = np.ldexp(scaled_scatters, 2 * e)
    moments.feature_names = contexts.feature_names
    nuisance = nuisance_moments(scaled, report)
    moments.nuisance = None if nuisance is None else nuisance.times_power(e)
    return moments


def _copy(moments: ContextMoments) -> ContextMoments:
    """Return moments that share no array with these."""
    copy = ContextMoments()
    for name in _ARRAYS:
        values = getattr(moments, name)
        setattr(copy, name, None if values is None else values.copy())
    copy.nuisance = moments.nuisance
    return copy


def _aligned(other: ContextMoments, like: ContextMoments) -> ContextMoments:
    """Return ``other`` with its features in the order of those of ``like``."""
    p = like.means.shape[1]
    q = other.means.shape[1]
    if p != q:
        raise ValueError(f"These rows have {q} features, and those before have {p}; select the same ones.")
    # Without names on both sides the position is all there is to go by.
    if like.feature_names is None or other.feature_names is None:
        return other
    wanted = like.feature_names.tolist()
    order = positions_of(
        wanted, other.feature_names.tolist(), "The set of rows to add", "of those before", "Select the same ones."
    )
    if order is None:
        return other
    reordered = _copy(other)
    reordered.means = other.means[:, order]
    reordered.scatters = other.scatters[:, order][:, :, order]
    reordered.feature_names = like.feature_names
    reordered.nuisance = None if other.nuisance is None else other.nuisance.of_features(order)
    return reordered
