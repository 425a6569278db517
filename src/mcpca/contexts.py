"""Every form of input becomes one ``Contexts`` object: named blocks of rows with the same features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ._check import Array, Report, as_report, check_finite, check_rows
from ._namespace import to_host
from ._parallel import each, n_workers

_OUTER_ROWS = 128
_MIN_CHUNK = 2**16  # numbers in a centred copy of rows: 0.5 MB
_SAFE_RATIO = 1e-12 / np.finfo(np.float64).eps


@dataclass(frozen=True)
class ContextCovariances:
    """Second moments of each context.

    Attributes
    ----------
    covariances : ndarray (k, p, p)
        ``S_i = (X_i - mean_i)^T (X_i - mean_i) / (n_i - 1)``.
    means : ndarray (k, p)
    n_samples : ndarray (k,) of int
    contexts : ndarray (k,)
        Names of the contexts, in the order of the first axis.
    feature_names : ndarray (p,) or None
    """

    covariances: Array
    means: Array
    n_samples: Array
    contexts: Array
    feature_names: Array | None


@dataclass(frozen=True)
class Contexts:
    """Rows of k named contexts, held without a copy.

    Context i is the rows ``rows[i]`` (a slice, or indices where rows are not in order) of ``sources[i]``. ``by_name``
    is False where names are only positions: in a list, or a matrix without labels.
    """

    names: Array
    by_name: bool
    feature_names: Array | None
    sources: Sequence[Array]
    rows: Sequence[slice | Array]
    n_samples: Array

    @property
    def n_features(self) -> int:
        """Features, the same in every context."""
        return int(self.sources[0].shape[1])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """float32 when every context is, float64 otherwise."""
        return np.result_type(*{source.dtype for source in self.sources})

    def take(self, rows: Sequence[Array]) -> Contexts:
        """Return the same contexts with only these of their rows: indices within each context, also repeated ones."""
        own = (
            kept + mine.start if isinstance(mine, slice) else mine[kept]
            for kept, mine in zip(rows, self.rows, strict=True)
        )
        return replace(self, rows=list(own), n_samples=np.array([len(kept) for kept in rows]))

    def second_moment(self, i: int, mean: Array) -> Array:
        """``(X_i - mean)^T (X_i - mean) / n_i`` about a mean that was estimated elsewhere."""
        moment = np.empty((self.n_features, self.n_features), dtype=self.dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinite values are looked for below
            own = self._mean(i)
        self._check_finite(i, own)
        self._scatter(i, own, moment, None)
        moment /= self.n_samples[i]
        _add_outer(moment, 1, own - mean)
        return moment

    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, r) from the rows, without covariances. Cost O(n p r)."""
        own = zip(self.sources, self.rows, strict=True)
        return np.array([np.var(source[rows] @ A, axis=0, ddof=1, dtype=np.float64) for source, rows in own])

    def covariances(self, report: Report) -> ContextCovariances:
        """Return all moments. Cost O(sum_i n_i p^2); memory the stack and an eighth of it."""
        means, S = self.scatters(report, self.n_samples - 1)
        return ContextCovariances(S, means.astype(self.dtype), self.n_samples, self.names, self.feature_names)

    def scatters(self, report: Report, divisors: Array | None = None) -> tuple[Array, Array]:
        """Return means (k, p) in float64 and ``sum (x - mean)(x - mean)^T`` (k, p, p), each divided by its divisor."""
        k, p = len(self.names), self.n_features
        means = np.empty((k, p))
        S = np.empty((k, p, p), dtype=self.dtype)
        in_place = self.dtype == np.float64 and all(isinstance(rows, slice) for rows in self.rows)
        # With fewer contexts the threads of BLAS are better used inside a product, and temporaries count.
        available = n_workers()
        workers = available if k >= 8 * available else 1

        def fill(indices: Array) -> None:
            work = None if in_place else self._work(workers)
            with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinite values are looked for below
                for i in indices.tolist():
                    means[i] = self._mean(i)
                    self._scatter(i, means[i], S[i], work)
                    if divisors is not None:
                        S[i] /= divisors[i]

        pieces = np.array_split(np.arange(k), min(k, 20))
        for piece, _ in zip(pieces, each(fill, pieces, workers), strict=True):
            report("covariances", int(piece[-1]) + 1, k)
        for bad in np.flatnonzero(~np.isfinite(means).all(axis=1)):
            self._check_finite(int(bad), means[bad])
        if not np.isfinite(np.einsum("kpp->", S, dtype=np.float64)):
            raise ValueError(
                f"X is too large for {self.dtype}: its squares overflow. Divide it by a constant, or pass float64."
            )
        return means, S

    @property
    def _step(self) -> int:
        """Rows taken at a time where they are copied: an eighth of the covariance stack, or half a megabyte."""
        p = self.n_features
        return max(_MIN_CHUNK // p, len(self.names) * p // 8, 1)

    def _work(self, workers: int = 1) -> Array:
        """Room for centred rows, used again and again."""
        rows = min(max(self._step // workers, 1), int(self.n_samples.max()))
        return np.empty((rows, self.n_features), dtype=self.dtype)

    def _mean(self, i: int) -> Array:
        """Mean of context i (p,) in float64."""
        n = int(self.n_samples[i])
        step = n if isinstance(self.rows[i], slice) else self._step
        parts = (self._rows(i, j, min(j + step, n)) for j in range(0, n, step))
        # In float64 a product with ones is the faster sum; float32 is summed in float64.
        sums = (np.ones(len(x)) @ x if x.dtype == np.float64 else x.sum(axis=0, dtype=np.float64) for x in parts)
        return np.asarray(sum(sums) / n)

    def _scatter(self, i: int, mean: Array, out: Array, work: Array | None) -> None:
        """Write ``(X_i - mean)^T (X_i - mean)`` to ``out`` (p, p), for the mean of these very rows.

        ``X^T X - n mean mean^T`` needs no copy of the rows, and loses as many digits as ``1 + mean^2 / variance`` has:
        that is taken where the loss leaves 12 digits. Otherwise rows are centred before they are squared.
        """
        n = int(self.n_samples[i])
        if isinstance(self.rows[i], slice) and self.sources[i].dtype == np.float64:
            X = self._rows(i, 0, n)
            np.matmul(X.T, X, out=out)
            squares = np.diagonal(out)
            if (squares <= _SAFE_RATIO * (squares - n * mean**2)).all():
                _add_outer(out, -n, mean)
                return
        mean = mean.astype(self.dtype)
        work = self._work() if work is None else work
        for j in range(0, n, len(work)):
            centred = work[: min(len(work), n - j)]
            np.subtract(self._rows(i, j, j + len(centred)), mean, out=centred)
            if j == 0:
                np.matmul(centred.T, centred, out=out)
            else:
                out += centred.T @ centred

    def _rows(self, i: int, start: int, stop: int) -> Array:
        rows = self.rows[i]
        if isinstance(rows, slice):
            return self.sources[i][rows.start + start : rows.start + stop]
        return self.sources[i][rows[start:stop]]

    def _check_finite(self, i: int, mean: Array) -> None:
        if not np.isfinite(mean).all():
            where = f"X, context {self.names.tolist()[i]!r},"
            check_finite(self.sources[i][self.rows[i]], where, self.feature_names)


def _add_outer(out: Array, factor: float, x: Array) -> None:
    """Add ``factor x x^T`` to ``out`` (p, p), some rows at a time: a whole p x p array would count."""
    for i in range(0, len(x), _OUTER_ROWS):
        out[i : i + _OUTER_ROWS] += np.outer(factor * x[i : i + _OUTER_ROWS], x)


def context_covariances(X: Any, y: Any = None, *, verbose: Any = False) -> ContextCovariances:
    """Return the covariance of each context, for any form of input that ``MCPCA.fit`` takes.

    Parameters
    ----------
    X : list of arrays, dict or Series {name: array}, or one 2-D array or DataFrame
        Rows of each context. Features that differ in order between DataFrames are aligned by name.
    y : array-like (n,), optional
        Context label of each row, for a 2-D ``X``. Without it ``X`` is one context.
    verbose : bool or callable
        True prints progress; a function gets (stage, done, total).

    Returns
    -------
    ContextCovariances

    Notes
    -----
    Cost O(n p^2), memory O(k p^2). Rows are centred before they are squared, so a large mean costs no accuracy.
    float32 rows give float32 covariances (half the memory, about six digits), with means summed in float64.
    """
    return read_contexts(X, y).covariances(as_report(verbose))


def read_contexts(X: Any, y: Any = None, *, min_samples: int = 2) -> Contexts:
    """Check any form of input and return it as ``Contexts``; the rows are not copied."""
    named = named_blocks(X)
    if named is not None:
        if y is not None:
            raise ValueError(
                "y labels the rows of one 2-D X, but X already holds separate contexts "
                f"({type(X).__name__} of {len(named.blocks)}); pass one or the other."
            )
        contexts = _from_blocks(named)
    else:
        contexts = _from_labels(X, y)
    few = np.flatnonzero(contexts.n_samples < min_samples)
    if len(few):
        names = contexts.names.tolist()
        shown = ", ".join(f"{names[i]!r} (n_samples = {contexts.n_samples[i]})" for i in few[:5])
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        raise ValueError(
            f"{len(few)} of {len(contexts.names)} contexts have fewer than {min_samples} samples: {shown}{more}. "
            "A covariance needs at least 2; drop or merge these contexts."
        )
    return contexts


class NamedBlocks(NamedTuple):
    """Separate contexts as given: names (k,), their rows unchecked, and whether the names were the caller's."""

    names: Array
    blocks: list[Any]
    by_name: bool


def named_blocks(X: Any) -> NamedBlocks | None:
    """Split a list, tuple, mapping or Series of contexts; None for one matrix."""
    by_name = not isinstance(X, (list, tuple))
    if scipy.sparse.issparse(X):
        return None  # one of its formats is also a Mapping
    if isinstance(X, Mapping):
        names, blocks = list(X.keys()), list(X.values())
    elif hasattr(X, "items") and hasattr(X, "index") and getattr(X, "ndim", 0) == 1 and X.dtype == object:
        names, blocks = list(X.index), list(X)
        if len(set(names)) < len(names):
            twice = sorted({str(n) for n in names if names.count(n) > 1})
            raise ValueError(f"X names contexts more than once: {twice}; give every context a name of its own.")
    elif isinstance(X, (list, tuple)) and not _is_nested_row_list(X):
        names, blocks = list(range(len(X))), list(X)
    else:
        return None
    if not blocks:
        raise ValueError(f"X is an empty {type(X).__name__}: 0 contexts. Pass at least one array of rows.")
    return NamedBlocks(name_array(names), blocks, by_name)


def encode_labels(y: Any, n: int) -> tuple[Array, Array]:
    """Return the context names that occur in y, and the index of each row's name among them.

    Names are sorted, or in the order of a categorical's categories; unused categories are left out.
    """
    accessor = getattr(y, "cat", y)
    codes, categories = getattr(accessor, "codes", None), getattr(accessor, "categories", None)
    if codes is not None and categories is not None:
        codes = np.asarray(codes)
        _check_labels(codes.shape, n, missing=int((codes < 0).sum()))
        used, index = np.unique(codes, return_inverse=True)
        return name_array([categories[c] for c in used]), index
    labels = np.asarray(to_host(y))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    missing = _count_missing(labels)
    _check_labels(labels.shape, n, missing)
    if labels.dtype != object:
        names, index = np.unique(labels, return_inverse=True)
        return names, index
    # Mixed types cannot be sorted with one another: by type first, then by value.
    ordered = sorted(set(labels.tolist()), key=lambda v: (type(v).__name__, v))
    position = {name: i for i, name in enumerate(ordered)}
    return name_array(ordered), np.array([position[v] for v in labels.tolist()], dtype=np.intp)


def rows_by_context(index: Array) -> Sequence[slice | Array]:
    """Group rows by the index of their context: slices where rows are in order, lists of rows otherwise."""
    counts = np.bincount(index)
    ends = np.cumsum(counts)
    if (np.diff(index) >= 0).all():
        return [slice(end - n, end) for end, n in zip(ends.tolist(), counts.tolist(), strict=True)]
    return np.split(np.argsort(index, kind="stable"), ends[:-1])


def _is_nested_row_list(X: Sequence[Any]) -> bool:
    """Whether a list is a matrix written as rows of plain numbers, and not contexts."""
    return len(X) > 0 and all(isinstance(row, (list, tuple)) and all(np.isscalar(v) for v in row) for row in X)


def _from_blocks(named: NamedBlocks) -> Contexts:
    blocks, names = named.blocks, named.names.tolist()
    columns = [_column_names(block) for block in blocks]
    reference = next((c for c in columns if c is not None), None)
    arrays = []
    for name, block, own in zip(names, blocks, columns, strict=True):
        if own is not None and reference is not None:
            block = _align(block, own, reference, name)
        arrays.append(check_rows(block, f"X, context {name!r},"))
    p = arrays[0].shape[1]
    for name, A in zip(names, arrays, strict=True):
        if A.shape[1] != p:
            raise ValueError(
                f"Contexts must share their features: context {names[0]!r} has {p} and context {name!r} has "
                f"{A.shape[1]}. Select the common ones, or pass DataFrames to have them aligned by name."
            )
    rows = [slice(0, len(A)) for A in arrays]
    return Contexts(named.names, named.by_name, reference, arrays, rows, np.array([len(A) for A in arrays]))


def _from_labels(X: Any, y: Any) -> Contexts:
    A = check_rows(X, "X")
    names, index = (np.array([0]), np.zeros(len(A), dtype=np.intp)) if y is None else encode_labels(y, len(A))
    if len(A) == 0:
        raise ValueError(f"X has 0 samples (shape={A.shape}) while a minimum of 2 is required.")
    counts = np.bincount(index, minlength=len(names))
    return Contexts(names, y is not None, _column_names(X), [A] * len(names), rows_by_context(index), counts)


def _align(block: Any, own: Array, reference: Array, name: Any) -> Any:
    """Put a DataFrame's columns into the order of the first one's."""
    if len(own) == len(reference) and all(own == reference):
        return block
    missing, extra = (
        sorted(set(map(str, reference)) - set(map(str, own))),
        sorted(set(map(str, own)) - set(map(str, reference))),
    )
    if missing or extra or len(set(own)) < len(own):
        raise ValueError(
            f"Contexts must share their features: context {name!r} lacks {missing[:5]} and has {extra[:5]} in addition"
            f"{' (first 5 shown)' if max(len(missing), len(extra)) > 5 else ''}, or names one twice. Select the common "
            "columns."
        )
    return block[list(reference)]


def _column_names(X: Any) -> Array | None:
    return name_array(list(X.columns)) if hasattr(X, "columns") else None


def name_array(names: Sequence[Any]) -> Array:
    """Keep strings as strings and integers as integers; anything else as objects."""
    for kinds in (str, (int, np.integer)):
        if all(isinstance(n, kinds) and not isinstance(n, bool) for n in names):
            return np.array(names)
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def _count_missing(labels: Array) -> int:
    if labels.dtype.kind == "f":
        return int(np.isnan(labels).sum())
    if labels.dtype == object:
        return sum(v is None or v != v for v in labels.ravel().tolist())
    return 0


def _check_labels(shape: tuple[int, ...], n: int, missing: int) -> None:
    if len(shape) != 1 or shape[0] != n:
        raise ValueError(f"y has shape {shape} and X has {n} rows; pass one context label per row.")
    if missing:
        raise ValueError(f"y has {missing} missing labels; drop those rows, or give them a context of their own.")
