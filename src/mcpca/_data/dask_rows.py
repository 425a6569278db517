"""Dask: rows stay on the workers, and every pass over them is one computation there.

A pass is a small graph: one task per block of rows computes its sums, a tree ordered by block number adds them up, and
only the total comes back. What a pass needs of the model (a kernel with its arrays) is in the graph once. Since sums
are added in the same order whatever the workers do, and tasks are pure functions, a block of a worker that died is
recomputed elsewhere and the result is the same to the last bit.

``read_dask`` makes ``Contexts`` of Dask collections, and ``DaskEngine`` makes the passes that covariances and scores
ask of them. The tasks are in ``dask_tasks``, graphs and clusters in ``dask_graph``, labels in ``dask_labels``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
import scipy.sparse

from .._utils.optional import require
from .._utils.types import Array
from .._utils.wording import listed
from . import context_sums
from .alignment import check_same_width, in_first_order
from .blocks import block_dtype, check_matrix_shape
from .context_sums import Sum
from .contexts import Contexts, NamedBlocks
from .dask_graph import Graph, are_persisted, check_announced, check_workers, computed, optimised
from .dask_labels import DaskLabels, codes_on_dask, kept_codes, labels_on_dask
from .dask_tasks import (
    Place,
    Projections,
    Steps,
    applied,
    block_products,
    block_rows,
    block_scores,
    block_sums,
    block_value,
    contexts_in,
    drawn_codes,
    gathered,
    gram_images,
    gram_norms,
    gram_parts,
    gram_sums,
    head,
    look,
    look_at_rows,
    marked,
    matmul,
)
from .detect import has_dask_rows
from .fitted_preprocess import keeps_sparse
from .labels import Coded, name_array, rows_of_codes, take_labels
from .low_rank_rows import LowRankRows, stacked

# Parts of ``X_i^T Z_i`` that one task adds up. They are large, (p, m) per context, and all are in the memory of one
# worker: more of them need more memory, fewer make the tree deeper.
_LARGE_SUMS_PER_TASK = 4
# Contexts of ``add_gram`` are done in groups whose ``S_i V`` take this many bytes. A larger group needs more memory on
# the workers (about eight times this), a smaller one more computations of blocks that are not persisted.
_GROUP_BYTES = 2**27
# Groups that may be under way at the same time: the second keeps workers busy while the first is added up.
_GROUPS_AT_A_TIME = 2
# Reads the labels of n rows in blocks of these lengths, and keeps them where the arrays are.
_LabelReader: TypeAlias = Callable[[int, tuple[int, ...], list[Any]], DaskLabels]


@dataclass(frozen=True)
class _Block:
    """Block ``number`` of matrix ``matrix``.

    ``present`` are the contexts of its rows; ``context`` is the one of all its rows, None if rows have codes.
    """

    matrix: int
    number: int
    place: Place
    present: Array
    context: int | None


@dataclass(frozen=True)
class _Stored:
    """The precision of blocks, and what the array itself has."""

    dtype: np.dtype[Any]
    stored_dtype: np.dtype[Any]


class DaskSource:
    """Shape and size of a matrix whose rows are on the workers; asking for its rows raises."""

    in_memory = False

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], sparse: bool, nbytes: int, matrix: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.sparse = sparse
        self.nbytes = nbytes
        self.matrix = matrix  # its number in the engine

    def scaled(self, e: int) -> DaskSource:
        """Return the source as it is: the engine multiplies rows as they are loaded."""
        return self

    def gather(self, rows: slice | Array) -> NoReturn:
        """Raise: rows stay on the workers."""
        raise _refused()

    def scan(self, max_bytes: int) -> Iterator[Any]:
        """Raise: rows stay on the workers."""
        raise _refused()


class _RowNumbers(Sequence[Any]):
    """The row numbers of k contexts of one matrix, from the codes on the workers when they are first asked for.

    A fit asks for none; what splits rows does, and gets 8 bytes a row.
    """

    def __init__(self, codes: Any, n: int, k: int) -> None:
        self._codes = codes
        self._n = n
        self._k = k
        self._known: list[slice | Array] | None = None

    def __len__(self) -> int:
        return self._k

    def __getitem__(self, i: Any) -> Any:
        if self._known is None:
            self._known = rows_of_codes(_codes_here(self._codes, self._n, 0), self._k)
        return self._known[i]


def _refused() -> ValueError:
    return ValueError(
        "X is a Dask collection, and this method needs its rows in the memory of this process, where they may not fit. "
        "Pass a sample of them: X.compute() of some blocks, say X[:10000].compute()."
    )


@dataclass(frozen=True)
class DaskEngine:
    """Passes over the blocks of Dask arrays; implements ``contexts.Engine``.

    Attributes
    ----------
    blocks : list of _Block
        Those with rows, in order.
    rows : list of Dask arrays
        The matrices, in blocks of whole rows.
    codes : list of Dask arrays or None
        For each matrix the contexts of its rows, kept on the workers; None if they are all in one.
    n_contexts : int
    size : float
        Largest absolute value seen so far.
    """

    blocks: list[_Block]
    rows: list[Any]
    codes: list[Any | None]
    n_contexts: int
    size: float

    def scaled(self, e: int) -> DaskEngine:
        """Return the engine for the same rows times ``2^-e``; they are multiplied as they are loaded."""
        blocks = [replace(block, place=replace(block.place, e=e + block.place.e)) for block in self.blocks]
        return replace(self, blocks=blocks)

    def add(self, kernel: Callable[[Any, Array], list[Sum]], totals: list[Array]) -> None:
        """Add what ``kernel`` makes of all rows to ``totals``: one computation, about 1.2 tasks per block."""
        graph = self._graph()
        # Under a key of its own, and not as an argument of every task: its arrays are in the graph once.
        known = graph.put(kernel)
        leaves = [graph.call(block_sums, known, *self._keys(block), block.place) for block in self.blocks]
        _add(totals, graph.compute(graph.tree(leaves)))

    def reduced(self, of_block: Callable[..., Any], merge: Callable[[list[Any]], Any]) -> Any:
        """Return what ``merge`` makes of ``of_block(rows, codes, first row, name in errors)`` of all blocks.

        One computation; results of blocks are merged some at a time, in order, on the workers.
        """
        graph = self._graph()
        known = graph.put(of_block)
        keys = [graph.call(block_value, known, *self._keys(block), block.place) for block in self.blocks]
        return graph.compute(graph.tree(keys, combine=merge))

    def add_gram(self, gram: Any, totals: list[Array]) -> None:
        """Add ``sum_i S_i S_i V`` and squared norms to ``totals``: one computation.

        Some contexts at a time: blocks give parts of ``X_i^T Z_i`` with ``Z_i`` the centred scores, whose sum makes
        ``Y_i = S_i V``, which goes back to the blocks and stays on the workers. Memory of a worker: some blocks, and
        about eight times the size of a group's ``Y_i``, 128 MB or one context.
        """
        graph = self._graph()
        known = graph.put(gram)
        # Blocks that are not persisted are computed again for the second half: to wait for ``Y_i`` with all of them in
        # memory would need room for all rows.
        rows_stay = are_persisted(self.rows)
        image_bytes = int(gram.directions.shape[0] * gram.directions.shape[1] * 8)
        # At least one context, however large its image (p, m) is.
        step = max(1, _GROUP_BYTES // max(image_bytes, 1))
        results: list[Any] = []
        for start in range(0, self.n_contexts, step):
            stop = min(start + step, self.n_contexts)
            blocks = [block for block in self.blocks if ((block.present >= start) & (block.present < stop)).any()]
            # A dependency on an earlier group's result, or Dask would start all groups at once.
            before = results[-_GROUPS_AT_A_TIME] if len(results) >= _GROUPS_AT_A_TIME else None
            rows = self.rows if rows_stay or before is None else graph.again(self.rows, before)
            parts = [
                graph.call(gram_parts, known, *self._keys(block, rows), block.place, start, stop, before)
                for block in blocks
            ]
            images = graph.call(gram_images, known, graph.tree(parts, _LARGE_SUMS_PER_TASK))
            rows = self.rows if rows_stay else graph.again(self.rows, images)
            sums = [graph.call(gram_sums, known, *self._keys(block, rows), block.place, images) for block in blocks]
            results.append(graph.tree([*sums, graph.call(gram_norms, known, images)]))
        _add(totals, graph.compute(graph.tree(results)))

    def fingerprint(self) -> tuple[Array, str]:
        """Return what distinguishes these rows from others: marks (k,), and a digest of which are in which context.

        One computation that loads all blocks, without products.
        """
        graph = self._graph()
        leaves = [graph.call(marked, *self._keys(block), block.place) for block in self.blocks]
        marks = np.zeros(self.n_contexts, dtype=np.uint64)
        checksums = []
        for present, block_marks, checksum in graph.compute(graph.call(gathered, leaves)):
            # Modulo 2^64, whose sums do not depend on the order of blocks.
            # Rows without a context have the code -1, which would index the last context.
            is_fitted = present >= 0
            marks[present[is_fitted]] += block_marks[is_fitted]
            checksums.append(checksum)
        table = [(block.matrix, block.place.first, block.place.n_rows) for block in self.blocks]
        return marks, hashlib.blake2b(repr([table, checksums]).encode(), digest_size=16).hexdigest()

    def scores(self, offsets: Array, projections: list[Array]) -> Any:
        """Return ``x P^T - offset`` of the rows of the one matrix as a Dask array (n, r), not computed yet.

        P and offset are those of each row's context, or the same for all; see ``projection.offset_scores_by_context``.
        """
        graph = self._graph()
        known = graph.put(Projections(offsets, projections))
        dtype = np.result_type(self.blocks[0].place.dtype, projections[0])
        # Blocks of the result are numbered anew: those of X without rows are not among ``self.blocks``.
        for j, block in enumerate(self.blocks):
            graph.tasks[graph.name, j, 0] = block_scores, known, *self._keys(block), block.place
        # A Dask array is its graph, the name of its blocks in it, and their shapes: nothing is computed here.
        da = require("dask.array", "dask")
        chunks = tuple(block.place.n_rows for block in self.blocks), (len(projections[0]),)
        return da.Array(graph.layers(), graph.name, chunks, dtype=dtype)

    def add_products(self, columns: Any, totals: Array) -> None:
        """Add ``W^T X`` (m, p) to ``totals``, for a sparse W (n, m); a block gets its own rows of W."""
        starts = np.cumsum([0, *(int(rows.shape[0]) for rows in self.rows)])
        graph = self._graph()
        leaves = []
        for block in self.blocks:
            first = int(starts[block.matrix]) + block.place.first
            part = columns[first : first + block.place.n_rows]
            # W ends with the last row that is in a context.
            part.resize((block.place.n_rows, part.shape[1]))
            leaves.append(graph.call(block_products, graph.put(part), self._keys(block)[0], block.place))
        _add([totals], graph.compute(graph.tree(leaves)))

    def context_codes(self) -> Array:
        """Return the context of every row (n,), in the order of the matrices and their blocks."""
        only = {block.matrix: block.context for block in self.blocks}
        parts = [
            _codes_here(codes, int(rows.shape[0]), only.get(matrix) or 0)
            for matrix, (codes, rows) in enumerate(zip(self.codes, self.rows, strict=True))
        ]
        return np.concatenate(parts)

    def chosen(self, sources: Sequence[Any], rows: Sequence[slice | Array]) -> DaskEngine:
        """Return the engine for contexts that have these rows of these sources; rows may repeat within a context.

        All other rows have no context. What is sent are codes, a byte or two a row, and as much again for how often
        each row was drawn if some were more than once; the tasks of a pass pick the rows.
        """
        k = len(rows)
        # Signed, as -1 is for rows without a context.
        small = np.min_scalar_type(-max(k, 1))
        codes = [np.full(int(matrix.shape[0]), -1, dtype=small) for matrix in self.rows]
        n = 0
        for i, (source, numbers) in enumerate(zip(sources, rows, strict=True)):
            codes[source.matrix][numbers] = i
            n += numbers.stop - numbers.start if isinstance(numbers, slice) else len(numbers)
        if n > sum(int((of_matrix >= 0).sum()) for of_matrix in codes):
            codes = self._with_times(codes, sources, rows)
        blocks = []
        for block in self.blocks:
            place = block.place
            present = np.unique(contexts_in(codes[block.matrix][place.first : place.first + place.n_rows]))
            present = present[present >= 0].astype(np.intp)
            if len(present):
                blocks.append(replace(block, present=present, context=None))
        # Matrices without any rows here are in no block, and their codes are not sent.
        used = {block.matrix for block in blocks}
        sent = [
            kept_codes(of_matrix, self.rows[m].chunks[0], self.rows) if m in used else None
            for m, of_matrix in enumerate(codes)
        ]
        return replace(self, blocks=blocks, codes=sent, n_contexts=k)

    def _with_times(self, codes: list[Array], sources: Sequence[Any], rows: Sequence[slice | Array]) -> list[Array]:
        """Return codes (n,) with how often each row was drawn; raise if two contexts have a row in common."""
        times = [np.zeros(len(of_matrix), dtype=np.intp) for of_matrix in codes]
        for i, (source, numbers) in enumerate(zip(sources, rows, strict=True)):
            # A row has one code: it cannot be in two contexts at once.
            if (codes[source.matrix][numbers] != i).any():
                raise _refused()
            if isinstance(numbers, slice):
                times[source.matrix][numbers] += 1
            else:
                times[source.matrix] += np.bincount(numbers, minlength=len(times[source.matrix]))
        return [drawn_codes(c, t) for c, t in zip(codes, times, strict=True)]

    def gathered(self, sources: Sequence[Any], directions: Array | None = None) -> list[Any]:
        """Return for each source its rows that are in contexts, in their order, or ``X W`` in float64 for W (p, m).

        One computation. Sources that are the same object get the same matrix.
        """
        graph = self._graph()
        known = None if directions is None else graph.put(directions)
        leaves = [graph.call(block_rows, known, *self._keys(block), block.place) for block in self.blocks]
        parts: dict[int, list[Any]] = {source.matrix: [] for source in sources}
        for block, part in zip(self.blocks, graph.compute(graph.call(gathered, leaves)), strict=True):
            parts[block.matrix].append(part)
        width = sources[0].shape[1] if directions is None else directions.shape[1]
        joined = {matrix: _joined_rows(of_matrix, width) for matrix, of_matrix in parts.items()}
        return [joined[source.matrix] for source in sources]

    def each_block(self, function: Callable[[Any], Any], most: int | None = None) -> list[Any]:
        """Return what ``function`` makes of each block that has rows, or of the first ``most``: one computation."""
        graph = self._graph()
        known = graph.put(function)
        leaves = [graph.call(applied, known, self._keys(block)[0], block.place) for block in self.blocks[:most]]
        return list(graph.compute(graph.call(gathered, leaves)))

    def prepared(
        self, sources: Sequence[Any], fitted: Any, factors: Sequence[Array | None]
    ) -> tuple[DaskEngine, list[Any]]:
        """Return the engine whose rows are prepared as tasks load them, and sources of their shape.

        Arrays, and blocks that are persisted, stay what they are. Cost: a look at the first block of each matrix.
        """
        by_matrix = {source.matrix: numbers for source, numbers in zip(sources, factors, strict=True)}
        stored = {source.matrix: _Stored(source.dtype, self.rows[source.matrix].dtype) for source in sources}
        dtypes = {matrix: fitted.dtype_of(one) for matrix, one in stored.items()}
        blocks = []
        first_of: dict[int, _Block] = {}
        for block in self.blocks:
            place = block.place
            numbers = by_matrix[block.matrix]
            part = None if numbers is None else numbers[place.first : place.first + place.n_rows]
            prepared = replace(
                place,
                n_features=fitted.n_features_out,
                dtype=dtypes[block.matrix],
                raw=place,
                steps=Steps(fitted, part),
            )
            blocks.append(replace(block, place=prepared))
            first_of.setdefault(block.matrix, blocks[-1])
        graph = self._graph()
        looks = [graph.call(look_at_rows, self._keys(block)[0], block.place) for block in first_of.values()]
        found = dict(zip(first_of, graph.compute(graph.call(gathered, looks)), strict=True))
        made: dict[int, DaskSource] = {}
        for source in sources:
            if source.matrix not in made:
                n = source.shape[0]
                row_bytes = found[source.matrix].nbytes / max(found[source.matrix].n_rows, 1)
                shape = n, fitted.n_features_out
                made[source.matrix] = DaskSource(
                    shape, dtypes[source.matrix], keeps_sparse(fitted, source.sparse), int(n * row_bytes), source.matrix
                )
        size = max((one.size for one in found.values()), default=0.0)
        return replace(self, blocks=blocks, size=size), [made[source.matrix] for source in sources]

    def _graph(self) -> Graph:
        return Graph([*self.rows, *(codes for codes in self.codes if codes is not None)])

    def _keys(self, block: _Block, rows: list[Any] | None = None) -> tuple[Any, Any]:
        """Return the keys of a block's rows and of their codes, or the one context of them all."""
        codes = self.codes[block.matrix]
        # The last 0 is the number of the block of columns: blocks hold whole rows, so there is only one.
        rows_key = (rows or self.rows)[block.matrix].name, block.number, 0
        return rows_key, block.context if codes is None else (codes.name, block.number)


def _codes_here(codes: Any, n: int, context: int) -> Array:
    """Return the contexts of n rows from a Dask array of codes, or ``context`` for all of them without one."""
    return np.full(n, context) if codes is None else contexts_in(computed(codes, [codes])).astype(np.intp)


def _joined_rows(parts: list[Any], width: int) -> Any:
    """Return blocks of rows one below the other, CSR if one of them is sparse."""
    if len(parts) < 2:
        return parts[0] if parts else np.empty((0, width))
    if all(isinstance(part, LowRankRows) for part in parts):
        return stacked(parts)
    if any(scipy.sparse.issparse(part) for part in parts):
        return scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)


def _add(totals: list[Array], sums: list[Sum]) -> None:
    for item in sums:
        context_sums.add(totals, item)


# Reading


def read_dask(X: Any, y: Any, named: NamedBlocks | None) -> Contexts:
    """Return Dask arrays, DataFrames, or AnnData with a Dask array, as ``Contexts`` with an engine.

    Either one matrix with labels ``y``, or the contexts in ``named``. Cost: one look at the first block of each matrix,
    or at all blocks if their lengths are not known; for labels that are a Dask collection two more, at labels alone.
    Labels become one small integer per row, kept on the workers.
    """
    if named is None:
        X, y = take_labels(X, y)
        arrays, feature_names = _arrays([X], ["X"])
        return _one_matrix(arrays[0], "X", feature_names, None if y is None else partial(labels_on_dask, y))
    wheres = [f"X, context {name!r}," for name in named.names.tolist()]
    arrays, feature_names = _arrays(named.blocks, wheres)
    check_same_width(named.names.tolist(), [array.shape[1] for array in arrays])
    layouts = layouts_of(arrays, wheres)
    rows = [_sized(array, layout.blocks) for array, layout in zip(arrays, layouts, strict=True)]
    blocks = [
        # All rows of matrix i are in context i: an integer in place of an array of codes.
        _Block(i, j, place, np.array([i]), context=i)
        for i, layout in enumerate(layouts)
        for j, place in layout.filled()
    ]
    engine = DaskEngine(blocks, rows, [None] * len(rows), len(rows), max(layout.size for layout in layouts))
    sources = [layout.source(i) for i, layout in enumerate(layouts)]
    counts = np.array([layout.n_rows for layout in layouts])
    rows_of_contexts: Sequence[Any] = [slice(0, n) for n in counts.tolist()]
    return Contexts(named.names, named.by_name, feature_names, sources, rows_of_contexts, counts, engine=engine)


def coded_contexts(X: Any, coded: Coded, feature_names: Array | None, where: str) -> Contexts:
    """Return a Dask array as ``Contexts``, with the contexts of its rows as codes; -1 for rows without one."""
    return _one_matrix(
        whole_rows(X, where), where, feature_names, lambda n, lengths, rows: codes_on_dask(coded, lengths, rows)
    )


def _one_matrix(array: Any, where: str, feature_names: Array | None, read_labels: _LabelReader | None) -> Contexts:
    """Return one matrix as ``Contexts``: those of the labels of its rows, or a single one if there are no labels."""
    (layout,) = layouts_of([array], [where])
    rows = [_sized(array, layout.blocks)]
    n = layout.n_rows
    if n == 0:
        raise ValueError(f"{where} has 0 samples (shape={layout.source(0).shape}) while a minimum of 2 is required.")
    if read_labels is None:
        # One context called 0, as ``contexts`` has it for rows in memory; there are no codes to send.
        labels = DaskLabels(np.array([0]), None, [np.array([0])] * len(layout.blocks), np.array([n]))
    else:
        labels = read_labels(n, tuple(place.n_rows for place in layout.blocks), rows)
    # With labels each row has a code; without, the integer 0 stands for all of them.
    by_name = read_labels is not None
    context = None if by_name else 0
    blocks = [_Block(0, j, place, labels.present[j], context) for j, place in layout.filled()]
    k = len(labels.names)
    engine = DaskEngine(blocks, rows, [labels.codes], k, layout.size)
    sources = [layout.source(0)] * k
    row_numbers = _RowNumbers(labels.codes, n, k)
    return Contexts(labels.names, by_name, feature_names, sources, row_numbers, labels.counts, engine=engine)


def _arrays(matrices: list[Any], wheres: list[str]) -> tuple[list[Any], Array | None]:
    """Return matrices as Dask arrays of whole rows with their features in the same order, and the names of these."""
    elsewhere = [where.rstrip(",") for M, where in zip(matrices, wheres, strict=True) if not has_dask_rows(M)]
    if elsewhere:
        raise ValueError(
            f"X has contexts on Dask and others that are not ({listed(elsewhere)}); make them Dask arrays with "
            "dask.array.from_array, or compute the others."
        )
    aligned, reference = in_first_order(matrices, wheres)
    arrays = [whole_rows(matrix.X, where) for matrix, where in zip(aligned, wheres, strict=True)]
    return arrays, None if reference is None else name_array(reference)


def dask_product(X: Any, right: Array) -> Any:
    """Return the product of a Dask array and a matrix (p, q)."""
    X = X.rechunk({1: -1})
    dtype = np.result_type(X.dtype, right)
    return X.map_blocks(matmul, right, chunks=(X.chunks[0], (right.shape[1],)), meta=np.zeros((0, 0), dtype))


def first_rows(X: Any, n: int) -> Any:
    """Return the first rows of a Dask array, at most n: only those in its first block that is not empty."""
    X = whole_rows(X, "X")
    graph = Graph([X])
    # Blocks may be empty after a filter, and would say nothing about the values.
    number = next((j for j, length in enumerate(X.chunks[0]) if length), 0)
    return graph.compute(graph.call(head, (X.name, number, 0), n))


def whole_rows(X: Any, where: str) -> Any:
    """Return a matrix as a Dask array whose blocks hold whole rows."""
    if hasattr(X, "columns"):
        non_numeric = [c for c, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "biuf"]
        if non_numeric:
            raise ValueError(
                f"{where} has non-numeric columns {non_numeric[:5]}; drop or encode them (y='name' takes one as the "
                "labels)."
            )
        # One type for all columns, or blocks would be arrays of objects; float32 only if all of them are.
        kinds = {(dtype.kind, dtype.itemsize) for dtype in X.dtypes}
        X = X.astype("float32" if kinds == {("f", 4)} else "float64").to_dask_array()
    if X.ndim != 2:
        raise ValueError(f"{where} must be 2-D (n_samples, n_features), got {X.ndim} dimensions; reshape it.")
    if np.isnan(X.shape[1]):
        raise ValueError(f"{where} has an unknown number of features; call compute_chunk_sizes() on it first.")
    # The number of rows may be NaN until ``layouts_of`` has counted them; only that of features is checked.
    check_matrix_shape((0, X.shape[1]), where)
    block_dtype(X.dtype, where)
    check_announced(X, where)
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    return optimised(X)


@dataclass(frozen=True)
class _Layout:
    """The blocks of one matrix, about how many bytes they take, and the largest absolute value seen."""

    blocks: list[Place]
    dtype: np.dtype[Any]
    sparse: bool
    nbytes: int
    size: float

    @property
    def n_rows(self) -> int:
        return sum(place.n_rows for place in self.blocks)

    def source(self, matrix: int) -> DaskSource:
        """Return shape and size of the matrix with this number as a ``Source``."""
        return DaskSource((self.n_rows, self.blocks[0].n_features), self.dtype, self.sparse, self.nbytes, matrix)

    def filled(self) -> list[tuple[int, Place]]:
        """Return the blocks that are not empty, with their numbers."""
        return [(j, place) for j, place in enumerate(self.blocks) if place.n_rows]


def layouts_of(arrays: list[Any], wheres: list[str]) -> list[_Layout]:
    """Look at the first block of each array, or at all if their lengths are not known: one small computation.

    Dask knows neither whether blocks are sparse nor, after ``from_delayed``, whether types are as announced.
    """
    check_workers(arrays)
    graph = Graph(arrays)
    looks = []
    for array in arrays:
        lengths = array.chunks[0]
        # NaN, for an unknown length, is true as well: the first such block counts as filled.
        first_filled = next((j for j, n in enumerate(lengths) if n), 0)
        # Blocks that are not persisted are loaded for a look, so no more of them than necessary.
        numbers = range(len(lengths)) if _has_unknown_lengths(array) else [first_filled]
        looks.append([graph.call(look, (array.name, j, 0)) for j in numbers])
    layouts = []
    for array, where, seen in zip(arrays, wheres, graph.compute(graph.call(gathered, looks)), strict=True):
        unknown = _has_unknown_lengths(array)
        lengths = [block.n_rows for block in seen] if unknown else [int(n) for n in array.chunks[0]]
        # One sparse block makes all CSR: a sparse block that is made dense may not fit in memory.
        sparse = any(block.sparse for block in seen)
        p = int(array.shape[1])
        # The wider of what is announced and what is found; ``_load`` refuses blocks that are wider still.
        dtypes = {array.dtype, *(block.dtype for block in seen)}
        dtype = np.result_type(*(block_dtype(one, where) for one in dtypes))
        starts = np.cumsum([0, *lengths]).tolist()
        blocks = [Place(starts[j], n, p, dtype, sparse, where) for j, n in enumerate(lengths)]
        # How many entries sparse rows have is extrapolated from the blocks that were looked at.
        row_bytes = sum(block.nbytes for block in seen) / max(sum(block.n_rows for block in seen), 1)
        nbytes = int(starts[-1] * (row_bytes if sparse else p * dtype.itemsize))
        layouts.append(_Layout(blocks, dtype, sparse, nbytes, max((block.size for block in seen), default=0.0)))
    return layouts


def _has_unknown_lengths(array: Any) -> bool:
    return bool(np.isnan(array.chunks[0]).any())


def _sized(array: Any, places: list[Place]) -> Any:
    """Return the array with the lengths of its blocks, which it may not have known."""
    # Same graph and same keys, so blocks that are persisted stay so; only the shape is new.
    chunks = tuple(place.n_rows for place in places), array.chunks[1]
    return require("dask.array", "dask").Array(array.dask, array.name, chunks, meta=array._meta)
