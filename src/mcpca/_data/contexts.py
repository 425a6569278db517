"""Every form of input becomes one ``Contexts`` object: named blocks of rows with the same features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .alignment import check_same_width, in_first_order, matrix_and_names
from .context_sums import Sum
from .detect import Kind, has_dask_rows, input_kind
from .doubtful_labels import warn_of_doubtful
from .label_kinds import plain_label
from .labels import encode_labels, name_array, rows_by_context, take_labels
from .sources import RowBlock, Source, as_source
from .validation import check_finite


class Engine(Protocol):
    """Who makes passes over rows that are not in this process."""

    @property
    def size(self) -> float:
        """The size of the largest entry seen so far."""

    def scaled(self, e: int) -> Engine:
        """Return the engine for the same rows times ``2^-e``."""

    def add(self, kernel: Callable[[Any, Array], list[Sum]], totals: list[Array]) -> None:
        """Add what ``kernel`` makes of all rows to ``totals``."""

    def add_gram(self, gram: Any, totals: list[Array]) -> None:
        """Add ``sum_i S_i S_i V`` and the squared lengths of columns of ``S_i V`` to ``totals``."""

    def fingerprint(self) -> tuple[Array, str]:
        """Return the marks (k,) of the rows of each context, and a digest of which rows are whose."""

    def scores(self, offsets: Array, projections: list[Array]) -> Any:
        """Return ``x P^T - offset`` of all rows, where they are."""


@dataclass(frozen=True)
class Contexts:
    """Rows of k named contexts, held without a copy.

    Context i is the rows ``rows[i]`` (a slice, or row numbers where rows are not in order) of ``sources[i]``.
    ``by_name`` is False where names are only positions: in a list, or a matrix without labels. ``resampled`` is True
    where rows were taken from others, and may come twice or not at all. ``engine`` makes the passes over rows that are
    on other machines, and is None for all others.
    """

    names: Array
    by_name: bool
    feature_names: Array | None
    sources: Sequence[Source]
    rows: Sequence[slice | Array]
    n_samples: Array
    resampled: bool = False
    engine: Engine | None = None

    @property
    def n_features(self) -> int:
        """Features, the same in every context."""
        return int(self.sources[0].shape[1])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """float32 when every context is, float64 otherwise."""
        return np.result_type(*{source.dtype for source in self.sources})

    @property
    def dense(self) -> bool:
        """Whether all rows are arrays in memory (or memory maps)."""
        return all(source.in_memory and not source.sparse for source in self.sources)

    @property
    def sparse(self) -> Array:
        """Which contexts are sparse (k,)."""
        return np.array([source.sparse for source in self.sources])

    def take(self, rows: Sequence[Array]) -> Contexts:
        """Return the same contexts with only these of their rows: indices within each context, also repeated ones."""
        own = (
            kept + mine.start if isinstance(mine, slice) else mine[kept]
            for kept, mine in zip(rows, self.rows, strict=True)
        )
        return replace(self, rows=list(own), n_samples=np.array([len(kept) for kept in rows]), resampled=True)

    def in_order(self, names: Sequence[Any]) -> Contexts:
        """Return the same contexts in the order of these names, which are theirs."""
        own = self.names.tolist()
        if own == list(names):
            return self
        places = [own.index(name) for name in names]
        sources, rows = ([part[i] for i in places] for part in (self.sources, self.rows))
        return replace(self, names=self.names[places], sources=sources, rows=rows, n_samples=self.n_samples[places])

    def row_numbers(self, i: int, start: int, stop: int) -> slice | Array:
        """Rows ``start`` to ``stop`` of context i, as numbers in its source."""
        rows = self.rows[i]
        return slice(rows.start + start, rows.start + stop) if isinstance(rows, slice) else rows[start:stop]

    def block(self, i: int) -> RowBlock:
        """All rows of context i, dense or CSR."""
        return self.sources[i].gather(self.rows[i])

    def block_rows(self, i: int, start: int, stop: int) -> Array:
        """Rows ``start`` to ``stop`` of context i as a dense array."""
        rows: Any = self.sources[i].gather(self.row_numbers(i, start, stop))
        return np.asarray(rows.toarray() if scipy.sparse.issparse(rows) else rows)

    def dense_block(self, i: int) -> Array:
        """All rows of context i as a dense array."""
        return self.block_rows(i, 0, int(self.n_samples[i]))

    def codes(self, source: Source) -> Array:
        """Return the index of the context of each row of ``source``, -1 where it has none."""
        codes = np.full(source.shape[0], -1, dtype=np.int32)
        for i, rows in enumerate(self.rows):
            if self.sources[i] is source:
                codes[rows] = i
        return codes

    def row_bytes(self, i: int) -> float:
        """About what a row of context i takes in memory."""
        return self.sources[i].nbytes / max(self.sources[i].shape[0], 1)

    def context_bytes(self) -> Array:
        """About what the rows of each context take in memory (k,)."""
        return np.array([self.row_bytes(i) for i in range(len(self.names))]) * self.n_samples

    def check_finite(self, i: int) -> None:
        """Raise where context i has NaN or infinite values, which names them."""
        check_finite(self.dense_block(i), f"X, context {self.names.tolist()[i]!r},", self.feature_names)


def read_contexts(X: Any, y: Any = None, *, min_samples: int = 2) -> Contexts:
    """Check any form of input and return it as ``Contexts``; the rows are not copied. ``Contexts`` were checked."""
    if isinstance(X, Contexts):
        return X
    kind = input_kind(X)
    X, y = take_labels(X, y, kind)
    named = named_blocks(X, kind)
    if named is not None:
        if y is not None:
            raise ValueError(
                "y labels the rows of one 2-D X, but X already holds separate contexts "
                f"({type(X).__name__} of {len(named.blocks)}); pass one or the other."
            )
        kinds = [input_kind(block) for block in named.blocks]
        any_on_dask = any(map(has_dask_rows, named.blocks, kinds))
        contexts = _from_dask(X, None, named) if any_on_dask else _from_blocks(named, kinds)
    elif has_dask_rows(X, kind):
        contexts = _from_dask(X, y, None)
    else:
        contexts = _from_labels(X, y, kind)
    few = np.flatnonzero(contexts.n_samples < min_samples)
    if len(few):
        names = contexts.names.tolist()
        shown = ", ".join(f"{names[i]!r} (n_samples = {contexts.n_samples[i]})" for i in few[:5])
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        raise ValueError(
            f"{len(few)} of {len(contexts.names)} contexts have fewer than {min_samples} samples: {shown}{more}. "
            "A covariance needs at least 2; drop or merge these contexts."
        )
    warn_of_doubtful(contexts.names.tolist())
    return contexts


class NamedBlocks(NamedTuple):
    """Separate contexts as given: names (k,), their rows unchecked, and whether the names were the caller's."""

    names: Array
    blocks: list[Any]
    by_name: bool


def named_blocks(X: Any, kind: Kind | None = None) -> NamedBlocks | None:
    """Split a list, tuple, mapping or Series of contexts; None for one matrix."""
    kind = input_kind(X) if kind is None else kind
    if kind is Kind.MAPPING:
        names = list(X.keys())
        blocks = list(X.values())
    elif kind is Kind.SERIES and X.dtype == object:
        names = list(X.index)
        blocks = list(X)
        if len(set(names)) < len(names):
            twice = sorted({str(n) for n in names if names.count(n) > 1})
            raise ValueError(f"X names contexts more than once: {twice}; give every context a name of its own.")
    elif kind is Kind.SEQUENCE and not _is_nested_row_list(X):
        names = list(range(len(X)))
        blocks = list(X)
    else:
        return None
    if not blocks:
        raise ValueError(f"X is an empty {type(X).__name__}: 0 contexts. Pass at least one array of rows.")
    labels = name_array([plain_label(name, "X") for name in names])
    return NamedBlocks(labels, blocks, by_name=kind is not Kind.SEQUENCE)


def _is_nested_row_list(X: Sequence[Any]) -> bool:
    """Whether a list is a matrix written as rows of plain numbers, and not contexts."""
    return len(X) > 0 and all(isinstance(row, (list, tuple)) and all(np.isscalar(v) for v in row) for row in X)


def _from_blocks(named: NamedBlocks, kinds: list[Kind]) -> Contexts:
    names = named.names.tolist()
    wheres = [f"X, context {name!r}," for name in names]
    matrices, reference = in_first_order(named.blocks, wheres, kinds)
    sources = [as_source(matrix.X, where, matrix.kind) for matrix, where in zip(matrices, wheres, strict=True)]
    check_same_width(names, [source.shape[1] for source in sources])
    counts = [source.shape[0] for source in sources]
    features = None if reference is None else name_array(reference)
    return Contexts(named.names, named.by_name, features, sources, [slice(0, n) for n in counts], np.array(counts))


def contexts_of_codes(
    source: Source, codes: Array, names: Array, feature_names: Array | None, *, by_name: bool = True
) -> Contexts:
    """Return the rows of one source by their context: ``codes`` (n,) are positions in ``names``, -1 for no context."""
    k = len(names)
    labelled = np.flatnonzero(codes >= 0)
    if len(labelled) == len(codes):
        rows = rows_by_context(codes, k)
    else:
        rows = [labelled[part] for part in rows_by_context(codes[labelled], k)]
    counts = np.bincount(codes[labelled], minlength=k)
    return Contexts(names, by_name, feature_names, [source] * k, rows, counts)


def _from_dask(X: Any, y: Any, named: NamedBlocks | None) -> Contexts:
    from .dask_rows import read_dask  # needs this module

    return read_dask(X, y, named)


def _from_labels(X: Any, y: Any, kind: Kind) -> Contexts:
    matrix = matrix_and_names(X, "X", kind)
    source = as_source(matrix.X, "X", matrix.kind)
    feature_names = None if matrix.names is None else name_array(matrix.names)
    n = source.shape[0]
    names, codes = (np.array([0]), np.zeros(n, dtype=np.intp)) if y is None else encode_labels(y, n)
    if n == 0:
        raise ValueError(f"X has 0 samples (shape={source.shape}) while a minimum of 2 is required.")
    return contexts_of_codes(source, codes, names, feature_names, by_name=y is not None)
