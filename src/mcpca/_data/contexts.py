"""The contexts of a fit: named groups of rows that share their features.

``read_contexts`` is the door through which all data come, in whatever form: one matrix with labels, a list or dict of
matrices, AnnData, Dask. It checks shapes, names and counts and returns ``Contexts``, which refer to the rows where they
are (``sources``) without a copy. Everything above, covariances and scores, works on ``Contexts`` only. Values are not
looked at here: those that are not finite are found by the first pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from .._utils.types import Array
from .._utils.wording import listed
from .alignment import check_same_width, in_first_order, matrix_and_names
from .context_sums import Sum
from .detect import InputKind, anndata_parts, has_dask_rows, input_kind
from .doubtful_labels import warn_of_doubtful
from .label_kinds import plain_label
from .labels import as_numbers, encode_labels, n_rows, name_array, rows_of_codes, take_labels
from .lazy_files import opened
from .low_rank_rows import dense_rows
from .row_designs import NuisanceDesign, SamplingGroups
from .sources import RowBlock, Source, as_source
from .validation import check_finite

if TYPE_CHECKING:
    from .fitted_preprocess import FittedPreprocess


class Engine(Protocol):
    """Makes passes over rows that are not in this process; implemented by ``dask_rows.DaskEngine``.

    A pass is a kernel, a function of some rows and their contexts, whose sums are added up over all rows.
    """

    @property
    def size(self) -> float:
        """The size of the largest entry seen so far."""

    def scaled(self, e: int) -> Engine:
        """Return the engine for the same rows times ``2^-e``."""

    def add(self, kernel: Callable[[Any, Array], list[Sum]], totals: list[Array]) -> None:
        """Add what ``kernel`` makes of all rows to ``totals``."""

    def add_gram(self, gram: Any, totals: list[Array]) -> None:
        """Add ``sum_i S_i S_i V`` and the squared norms of the columns of ``S_i V`` to ``totals``."""

    def reduced(self, of_block: Callable[..., Any], merge: Callable[[list[Any]], Any]) -> Any:
        """Return what ``merge`` makes of ``of_block(rows, codes, first row, name in errors)`` of all blocks."""

    def fingerprint(self) -> tuple[Array, str]:
        """Return the marks (k,) of the rows of each context, and a digest of which rows are in which context."""

    def scores(self, offsets: Array, projections: list[Array]) -> Any:
        """Return ``x P^T - offset`` of all rows, computed where the rows are."""

    def add_products(self, columns: Any, totals: Array) -> None:
        """Add ``W^T X`` (m, p) to ``totals``, for a sparse matrix W (n, m) of columns in the order of the rows."""

    def context_codes(self) -> Array:
        """Return the context of every row (n,), in the order of the matrices: one small number per row comes here."""

    def chosen(self, sources: Sequence[Source], rows: Sequence[slice | Array]) -> Engine:
        """Return the engine for contexts that have these rows of these sources; rows may repeat within a context."""

    def gathered(self, sources: Sequence[Source], directions: Array | None = None) -> list[Any]:
        """Return for each source its rows that are in contexts, or their products with ``directions`` (p, m)."""

    def each_block(self, function: Callable[[Any], Any], most: int | None = None) -> list[Any]:
        """Return what ``function`` makes of each block of rows, or of the first ``most``, in their order."""

    def prepared(
        self, sources: Sequence[Source], fitted: FittedPreprocess, factors: Sequence[Array | None]
    ) -> tuple[Engine, list[Source]]:
        """Return the engine whose rows are prepared as they are loaded, and what it has in place of ``sources``."""


@dataclass(frozen=True)
class Contexts:
    """Rows of k named contexts, held without a copy.

    Attributes
    ----------
    names : ndarray (k,)
    by_name : bool
        False where names are only positions: in a list, or one matrix without labels.
    feature_names : ndarray (p,) or None
    sources : sequence of k ``Source``
        Where the rows are; contexts of one labelled matrix share the same object.
    rows : sequence of k slices or ndarrays
        Which rows of its source each context has; row numbers where they do not stand together.
    n_samples : ndarray (k,)
    resampled : bool
        Whether ``take`` drew the rows from other ``Contexts``, so that some may occur twice or not at all.
    engine : Engine or None
        Makes the passes over rows that are on other machines; it has the same contexts, with the same rows.
    groups : SamplingGroups or None
        Which rows were sampled together, and so are resampled and split together.
    nuisance : NuisanceDesign or None
        Batch and covariates of the rows, whose part is removed from covariances.
    preprocess : FittedPreprocess or None
        What is done to rows as they are read; sources and engine give prepared rows already.
    """

    names: Array
    by_name: bool
    feature_names: Array | None
    sources: Sequence[Source]
    rows: Sequence[slice | Array]
    n_samples: Array
    resampled: bool = False
    engine: Engine | None = None
    groups: SamplingGroups | None = None
    nuisance: NuisanceDesign | None = None
    preprocess: FittedPreprocess | None = None

    @property
    def n_features(self) -> int:
        """Number of features, the same in every context."""
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

    @property
    def sparse_bytes(self) -> int:
        """About how many bytes all sparse rows take as blocks."""
        return sum(
            source.nbytes for source in {id(source): source for source in self.sources}.values() if source.sparse
        )

    @property
    def low_rank(self) -> bool:
        """Whether some contexts have rows that are sparse plus low rank."""
        return any(getattr(source, "low_rank", False) for source in self.sources)

    def take(self, rows: Sequence[Array]) -> Contexts:
        """Return the same contexts with these of their rows only: positions within each context, possibly repeated.

        Rows on other machines stay there.
        """
        # Slices of ``rows`` have step 1, so positions within one are row numbers less its start.
        taken = [
            positions + in_source.start if isinstance(in_source, slice) else in_source[positions]
            for positions, in_source in zip(rows, self.rows, strict=True)
        ]
        return replace(
            self,
            rows=taken,
            n_samples=np.array([len(positions) for positions in rows]),
            resampled=True,
            engine=None if self.engine is None else self.engine.chosen(self.sources, taken),
            groups=None if self.groups is None else self.groups.take(rows),
            nuisance=None if self.nuisance is None else self.nuisance.take(rows),
        )

    def without_annotations(self) -> Contexts:
        """Return the same rows without groups and nuisance."""
        return replace(self, groups=None, nuisance=None)

    def in_order(self, names: Sequence[Any]) -> Contexts:
        """Return the same contexts in the order of ``names``, a permutation of theirs."""
        present = self.names.tolist()
        if present == list(names):
            return self
        places = [present.index(name) for name in names]
        sources = [self.sources[i] for i in places]
        rows = [self.rows[i] for i in places]
        return replace(
            self,
            names=self.names[places],
            sources=sources,
            rows=rows,
            n_samples=self.n_samples[places],
            engine=None if self.engine is None else self.engine.chosen(sources, rows),
            groups=None if self.groups is None else self.groups.in_order(places),
            nuisance=None if self.nuisance is None else self.nuisance.in_order(places),
        )

    def here(self, directions: Array | None = None) -> Contexts:
        """Return the same contexts with rows that are on other machines in this process, or ``X W`` for W (p, m).

        One computation; memory for the rows, or for m numbers a row in float64.
        """
        assert self.engine is not None
        matrices = self.engine.gathered(self.sources, directions)
        sources = {id(source): as_source(matrix, "X") for source, matrix in zip(self.sources, matrices, strict=True)}
        numbers: dict[int, list[Array]] = {id(source): [] for source in self.sources}
        for source, rows in zip(self.sources, self.rows, strict=True):
            numbers[id(source)].append(as_numbers(rows))
        # Of each matrix the rows of all contexts came, in its order.
        came = {key: np.sort(np.concatenate(parts)) for key, parts in numbers.items()}
        places = [
            _together(np.searchsorted(came[id(source)], as_numbers(rows)))
            for source, rows in zip(self.sources, self.rows, strict=True)
        ]
        return replace(
            self,
            # Names of all features would no longer fit the columns.
            feature_names=self.feature_names if directions is None else None,
            sources=[sources[id(source)] for source in self.sources],
            rows=places,
            engine=None,
            nuisance=None if self.nuisance is None else replace(self.nuisance, rows=None),
        )

    def row_numbers(self, i: int, start: int, stop: int) -> slice | Array:
        """Return rows ``start`` to ``stop`` of context i, as numbers in its source."""
        rows = self.rows[i]
        return slice(rows.start + start, rows.start + stop) if isinstance(rows, slice) else rows[start:stop]

    def block(self, i: int) -> RowBlock:
        """Return all rows of context i, dense or CSR."""
        return self.sources[i].gather(self.rows[i])

    def block_rows(self, i: int, start: int, stop: int) -> Array:
        """Return rows ``start`` to ``stop`` of context i as a dense array."""
        rows: Any = self.sources[i].gather(self.row_numbers(i, start, stop))
        return dense_rows(rows)

    def dense_block(self, i: int) -> Array:
        """Return all rows of context i as a dense array."""
        return self.block_rows(i, 0, int(self.n_samples[i]))

    def codes(self, source: Source) -> Array:
        """Return the context of each row of ``source`` as an index (n,), -1 for rows without one."""
        # One number per row of what may be a very long matrix: int32 takes half of what intp would.
        codes = np.full(source.shape[0], -1, dtype=np.int32)
        for i, rows in enumerate(self.rows):
            # Identity, not equality: contexts of one labelled matrix share the object, and a context with a matrix of
            # its own has none of these rows.
            if self.sources[i] is source:
                codes[rows] = i
        return codes

    def row_bytes(self, i: int) -> float:
        """Return about how many bytes a row of context i takes in memory."""
        # The average over its source, which contexts may share: sparse rows of one may be longer than those of another.
        return self.sources[i].nbytes / max(self.sources[i].shape[0], 1)

    def context_bytes(self) -> Array:
        """Return about how many bytes the rows of each context take in memory (k,)."""
        return np.array([self.row_bytes(i) for i in range(len(self.names))]) * self.n_samples

    def check_finite(self, i: int) -> None:
        """Raise where context i has NaN or infinite values; the error says in which features."""
        check_finite(self.dense_block(i), f"X, context {self.names.tolist()[i]!r},", self.feature_names)


def _together(rows: Array) -> slice | Array:
    """Return row numbers as a slice, if they stand together and in order."""
    first = int(rows[0]) if len(rows) else 0
    return slice(first, first + len(rows)) if (np.diff(rows) == 1).all() else rows


def read_contexts(X: Any, y: Any = None, *, min_samples: int = 2) -> Contexts:
    """Check any form of input and return it as ``Contexts``, without a copy of the rows.

    Parameters
    ----------
    X, y
        As in ``MCPCA.fit``. ``Contexts`` are returned as they are: they were checked when they were made.
    min_samples : int
        Fewest rows that a context may have.
    """
    if isinstance(X, Contexts):
        return X
    # Still the same kind without its label columns: a frame stays a frame.
    kind = input_kind(X)
    X, y = take_labels(X, y, kind)
    # Labels came first: the columns that they are taken from are no features, and need not be numeric.
    named = named_blocks(X, kind)
    if named is not None:
        if y is not None:
            raise ValueError(
                "y labels the rows of one 2-D X, but X already holds separate contexts "
                f"({type(X).__name__} of {len(named.blocks)}); pass one or the other."
            )
        kinds = [input_kind(block) for block in named.blocks]
        # One context on Dask is enough: ``read_dask`` then has the error for the others, if these are in memory.
        any_on_dask = any(map(has_dask_rows, named.blocks, kinds))
        contexts = _from_dask(X, None, named) if any_on_dask else _from_blocks(named, kinds)
    elif has_dask_rows(X, kind) and not _is_on_file(X, kind):
        contexts = _from_dask(X, y, None)
    else:
        contexts = _from_labels(X, y, kind)
    # Counted here and not from the labels, because separate matrices and Dask collections know it only now.
    few = np.flatnonzero(contexts.n_samples < min_samples)
    if len(few):
        names = contexts.names.tolist()
        counted = [f"{names[i]!r} (n_samples = {contexts.n_samples[i]})" for i in few]
        raise ValueError(
            f"{len(few)} of {len(contexts.names)} contexts have fewer than {min_samples} samples: {listed(counted)}. "
            "A covariance needs at least 2; drop or merge these contexts."
        )
    warn_of_doubtful(contexts.names.tolist())
    return contexts


class NamedBlocks(NamedTuple):
    """Separate contexts as the user passed them: names (k,), rows unchecked, and whether the names are the user's."""

    names: Array
    blocks: list[Any]
    by_name: bool


def named_blocks(X: Any, kind: InputKind | None = None) -> NamedBlocks | None:
    """Split a list, tuple, mapping or Series of contexts; None for one matrix."""
    kind = input_kind(X) if kind is None else kind
    if kind is InputKind.MAPPING:
        names = list(X.keys())
        blocks = list(X.values())
    elif kind is InputKind.SERIES and X.dtype == object:  # of numbers it would be one column
        names = list(X.index)
        blocks = list(X)
        # Unlike the keys of a mapping, an index may repeat names.
        if len(set(names)) < len(names):
            repeated = sorted({str(n) for n in names if names.count(n) > 1})
            raise ValueError(f"X names contexts more than once: {repeated}; give every context a name of its own.")
    # Positions serve as names, and ``by_name`` says so: contexts of a list are not matched by these.
    elif kind is InputKind.SEQUENCE and not _is_nested_row_list(X):
        names = list(range(len(X)))
        blocks = list(X)
    else:
        return None
    if not blocks:
        raise ValueError(f"X is an empty {type(X).__name__}: 0 contexts. Pass at least one array of rows.")
    labels = name_array([plain_label(name, "X") for name in names])
    return NamedBlocks(labels, blocks, by_name=kind is not InputKind.SEQUENCE)


def _is_nested_row_list(X: Sequence[Any]) -> bool:
    """Whether a list is one matrix written as rows of plain numbers, and not several contexts."""
    # [[1, 2], [3, 4]] is a matrix. A list of such lists is several: its items hold lists and not numbers.
    return len(X) > 0 and all(isinstance(row, (list, tuple)) and all(np.isscalar(v) for v in row) for row in X)


def _from_blocks(named: NamedBlocks, kinds: list[InputKind]) -> Contexts:
    names = named.names.tolist()
    wheres = [f"X, context {name!r}," for name in names]
    # Names are matched before widths are compared: its error tells which features differ, and not only how many.
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
    rows = rows_of_codes(codes, k)
    counts = np.array([n_rows(part) for part in rows], dtype=np.intp)
    # The same object k times: ``Contexts.codes`` tells by it which contexts share a matrix.
    return Contexts(names, by_name, feature_names, [source] * k, rows, counts)


def _from_dask(X: Any, y: Any, named: NamedBlocks | None) -> Contexts:
    from .dask_rows import read_dask  # here, because that module imports this one

    return read_dask(X, y, named)


def _is_on_file(X: Any, kind: InputKind) -> bool:
    """Whether X is an AnnData that was read lazily, and its matrix is read from the file in this process."""
    if kind is not InputKind.ANNDATA:
        return False
    matrix = anndata_parts(X)[0]
    return opened(matrix) is not matrix


def _from_labels(X: Any, y: Any, kind: InputKind) -> Contexts:
    matrix = matrix_and_names(X, "X", kind)
    if matrix.kind is InputKind.DASK:
        source = as_source(opened(matrix.X), "X")
    else:
        source = as_source(matrix.X, "X", matrix.kind)
    feature_names = None if matrix.names is None else name_array(matrix.names)
    n = source.shape[0]
    # Without labels, a single context called 0; codes (n,).
    names, codes = (np.array([0]), np.zeros(n, dtype=np.intp)) if y is None else encode_labels(y, n)
    if n == 0:
        raise ValueError(f"X has 0 samples (shape={source.shape}) while a minimum of 2 is required.")
    return contexts_of_codes(source, codes, names, feature_names, by_name=y is not None)
