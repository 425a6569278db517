"""Every form of input becomes one ``Contexts`` object: named blocks of rows with the same features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ._check import Array, Report, as_report, check_finite, check_rows

_CHUNK = 2**18  # numbers in a centred copy of rows: 2 MB


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

    Block i is ``sources[i]`` itself, or its rows ``rows[i]`` where all contexts share one unsorted matrix. ``by_name``
    is False where names are only positions: in a list, or a matrix without labels.
    """

    names: Array
    by_name: bool
    feature_names: Array | None
    sources: Sequence[Array]
    rows: Sequence[Array] | None

    @property
    def n_samples(self) -> Array:
        """Rows per context (k,)."""
        return np.array([len(b) for b in (self.sources if self.rows is None else self.rows)], dtype=np.intp)

    @property
    def n_features(self) -> int:
        """Features, the same in every context."""
        return int(self.sources[0].shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 when every context is, float64 otherwise."""
        return np.result_type(*{source.dtype for source in self.sources})

    def chunks(self, i: int) -> Iterator[Array]:
        """Rows of context i, a few megabytes at a time."""
        source = self.sources[i]
        step = max(1, _CHUNK // source.shape[1])
        index = None if self.rows is None else self.rows[i]
        for start in range(0, int(self.n_samples[i]), step):
            yield source[start : start + step] if index is None else source[index[start : start + step]]

    def mean(self, i: int) -> Array:
        """Mean of context i (p,) in float64; raises when it holds NaN or infinite values."""
        total = np.zeros(self.n_features)
        with np.errstate(invalid="ignore", over="ignore"):
            for chunk in self.chunks(i):
                total += chunk.sum(axis=0, dtype=np.float64)
        if not np.isfinite(total).all():
            whole = self.sources[i] if self.rows is None else self.sources[i][self.rows[i]]
            check_finite(whole, f"X, context {self.names.tolist()[i]!r},", self.feature_names)
        return np.asarray(total / self.n_samples[i])

    def scatter_about(self, i: int, mean: Array, out: Array) -> Array:
        """Write ``(X_i - mean)^T (X_i - mean)`` to ``out`` (p, p), centred before it is squared."""
        mean = mean.astype(self.dtype)
        for j, chunk in enumerate(self.chunks(i)):
            centred = chunk - mean
            if j == 0:
                np.matmul(centred.T, centred, out=out)
            else:
                out += centred.T @ centred
        return out

    def second_moment(self, i: int, mean: Array) -> Array:
        """``(X_i - mean)^T (X_i - mean) / n_i`` about a mean that was estimated elsewhere."""
        self.mean(i)  # raises on NaN and infinite values
        scatter = np.empty((self.n_features, self.n_features), dtype=self.dtype)
        return np.asarray(self.scatter_about(i, mean, scatter) / self.n_samples[i])

    def covariances(self, report: Report) -> ContextCovariances:
        """Return all moments. Cost O(sum_i n_i p^2); memory the stack and a few megabytes."""
        counts, p = self.n_samples, self.n_features
        k = len(counts)
        means = np.empty((k, p))
        S = np.empty((k, p, p), dtype=self.dtype)
        every = max(1, k // 20)
        for i in range(k):
            if i % every == 0:
                report("covariances", i, k)
            means[i] = self.mean(i)
            scatter = self.scatter_about(i, means[i], out=S[i])
            scatter /= counts[i] - 1
        report("covariances", k, k)
        if not np.isfinite(np.einsum("kpp->", S, dtype=np.float64)):
            raise ValueError(
                f"X is too large for {self.dtype}: its squares overflow. Divide it by a constant, or pass float64."
            )
        return ContextCovariances(S, means.astype(self.dtype), counts, self.names, self.feature_names)


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
    labels = np.asarray(y)
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
    return Contexts(named.names, named.by_name, reference, arrays, None)


def _from_labels(X: Any, y: Any) -> Contexts:
    A = check_rows(X, "X")
    names, index = (np.array([0]), np.zeros(len(A), dtype=np.intp)) if y is None else encode_labels(y, len(A))
    if len(A) == 0:
        raise ValueError(f"X has 0 samples (shape={A.shape}) while a minimum of 2 is required.")
    if len(names) == 1:
        return Contexts(names, y is not None, _column_names(X), [A], None)
    order = np.argsort(index, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(index))[:-1])
    return Contexts(names, True, _column_names(X), [A] * len(names), rows)


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
