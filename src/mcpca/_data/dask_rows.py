"""Dask: rows stay on the workers, and every pass over them is one computation there.

A pass is a small graph: one task for each block of rows makes its sums, a tree by block number adds them up, and only
the total comes back. What a pass needs to know of the model (functions with their arrays) is in the graph once. Sums
are added in the same order whatever the workers do, and tasks are pure functions, so that a block on a worker that died
is done again elsewhere and the answer stays the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from .._utils.optional import require
from .._utils.types import Array
from .._utils.wording import listed
from . import context_sums
from .alignment import check_same_width, in_first_order
from .blocks import block_dtype, check_shape
from .context_sums import Sum
from .contexts import Contexts, NamedBlocks
from .dask_graph import Graph, check_announced, check_workers, kept, optimised
from .dask_labels import DaskLabels, codes_there, labels_there
from .dask_tasks import (
    Place,
    Projections,
    block_scores,
    block_sums,
    gathered,
    gram_images,
    gram_norms,
    gram_parts,
    gram_sums,
    head,
    look,
    marked,
    matmul,
)
from .detect import has_dask_rows
from .labels import Coded, name_array, take_labels

_GATHERED = 4  # sums that one task adds where they are large: those of ``X_i^T Z_i``
_GROUP = 2**27  # bytes of ``S_i V`` of the contexts of a group
_ABREAST = 2  # groups under way at a time
_Reader: TypeAlias = Callable[[int, tuple[int, ...], list[Any]], DaskLabels]


@dataclass(frozen=True)
class _Block:
    """Block ``number`` of matrix ``matrix``; ``present`` are its contexts, ``context`` the one of all its rows."""

    matrix: int
    number: int
    place: Place
    present: Array
    context: int | None


class DaskSource:
    """What is known of a matrix whose rows are not here: its shape and size. Its rows are refused."""

    in_memory = False

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], sparse: bool, nbytes: int) -> None:
        self.shape, self.dtype, self.sparse, self.nbytes = shape, dtype, sparse, nbytes

    def gather(self, rows: slice | Array) -> NoReturn:
        """Raise: rows stay on the workers."""
        raise _refused()

    def scan(self, max_bytes: int) -> Iterator[Any]:
        """Raise: rows stay on the workers."""
        raise _refused()


class _RowsElsewhere(Sequence[Any]):
    """In place of the row numbers of k contexts, which are not known here."""

    def __init__(self, k: int) -> None:
        self._k = k

    def __len__(self) -> int:
        return self._k

    def __getitem__(self, i: Any) -> NoReturn:
        raise _refused()

    def __iter__(self) -> Iterator[Any]:
        raise _refused()


def _refused() -> ValueError:
    return ValueError(
        "X is a Dask collection, and this method needs its rows in the memory of this process, where they may not fit. "
        "Pass a sample of them: X.compute() of some blocks, say X[:10000].compute()."
    )


@dataclass(frozen=True)
class DaskEngine:
    """Passes over the blocks of Dask arrays; ``codes`` (one array for each matrix, or none) are kept on the workers."""

    blocks: list[_Block]
    rows: list[Any]
    codes: list[Any | None]
    n_contexts: int
    size: float

    def scaled(self, e: int) -> DaskEngine:
        """Return the engine for the same rows times ``2^-e``, multiplied as they are loaded."""
        blocks = [replace(block, place=replace(block.place, e=e + block.place.e)) for block in self.blocks]
        return replace(self, blocks=blocks)

    def add(self, kernel: Callable[[Any, Array], list[Sum]], totals: list[Array]) -> None:
        """Add what ``kernel`` makes of all rows to ``totals``: one computation, about 1.2 tasks for each block."""
        graph = self._graph()
        known = graph.put(kernel)
        leaves = [graph.call(block_sums, known, *self._keys(block), block.place) for block in self.blocks]
        _add(totals, graph.compute(graph.tree(leaves)))

    def add_gram(self, gram: Any, totals: list[Array]) -> None:
        """Add ``sum_i S_i S_i V`` and squared lengths to ``totals``: one computation.

        Some contexts at a time: blocks give parts of ``X_i^T Z_i``, whose sum makes ``Y_i = S_i V``, which goes back to
        the blocks and stays on the workers. Blocks that are not kept there are made again for that: to wait for ``Y_i``
        with all blocks in memory would need room for all rows. Memory of a worker: some blocks, and about eight times
        the size of a group's ``Y_i``, 128 MB or one context.
        """
        graph = self._graph()
        known = graph.put(gram)
        array_or_none = kept(self.rows)
        size = int(gram.directions.shape[0] * gram.directions.shape[1] * 8)
        step = max(1, _GROUP // max(size, 1))
        results: list[Any] = []
        for start in range(0, self.n_contexts, step):
            stop = min(start + step, self.n_contexts)
            own = [block for block in self.blocks if ((block.present >= start) & (block.present < stop)).any()]
            before = results[-_ABREAST] if len(results) >= _ABREAST else None
            rows = self.rows if array_or_none or before is None else graph.again(self.rows, before)
            parts = [
                graph.call(gram_parts, known, *self._keys(block, rows), block.place, start, stop, before)
                for block in own
            ]
            images = graph.call(gram_images, known, graph.tree(parts, _GATHERED))
            rows = self.rows if array_or_none else graph.again(self.rows, images)
            sums = [graph.call(gram_sums, known, *self._keys(block, rows), block.place, images) for block in own]
            results.append(graph.tree([*sums, graph.call(gram_norms, known, images)]))
        _add(totals, graph.compute(graph.tree(results)))

    def fingerprint(self) -> tuple[Array, str]:
        """Return what tells these rows from others: marks (k,) of contexts, and a digest of which rows are whose.

        One computation that makes all blocks, without products.
        """
        graph = self._graph()
        leaves = [graph.call(marked, *self._keys(block), block.place) for block in self.blocks]
        marks, labels = np.zeros(self.n_contexts, dtype=np.uint64), []
        for present, own, codes in graph.compute(graph.call(gathered, leaves)):
            marks[present] += own
            labels.append(codes)
        table = [(block.matrix, block.place.first, block.place.n_rows) for block in self.blocks]
        return marks, hashlib.blake2b(repr([table, labels]).encode(), digest_size=16).hexdigest()

    def scores(self, offsets: Array, projections: list[Array]) -> Any:
        """Return ``x P^T - offset`` of the one matrix's rows as a Dask array (n, r): each row's context has its own."""
        graph = self._graph()
        known = graph.put(Projections(offsets, projections))
        dtype = np.result_type(self.blocks[0].place.dtype, projections[0])
        for j, block in enumerate(self.blocks):
            graph.tasks[graph.name, j, 0] = block_scores, known, *self._keys(block), block.place
        da = require("dask.array", "dask")
        chunks = tuple(block.place.n_rows for block in self.blocks), (len(projections[0]),)
        return da.Array(graph.layers(), graph.name, chunks, dtype=dtype)

    def _graph(self) -> Graph:
        return Graph([*self.rows, *(codes for codes in self.codes if codes is not None)])

    def _keys(self, block: _Block, rows: list[Any] | None = None) -> tuple[Any, Any]:
        """Return the keys of a block's rows and of their contexts, or the context of them all."""
        codes = self.codes[block.matrix]
        key = (rows or self.rows)[block.matrix].name, block.number, 0
        return key, block.context if codes is None else (codes.name, block.number)


def _add(totals: list[Array], sums: list[Sum]) -> None:
    for item in sums:
        context_sums.add(totals, item)


# Reading


def read_dask(X: Any, y: Any, named: NamedBlocks | None) -> Contexts:
    """Return Dask arrays, DataFrames or AnnData with a Dask array as ``Contexts`` whose passes are made on the workers.

    One matrix with labels ``y``, or the contexts in ``named``. One look at the first block of each matrix, or at all
    blocks where their lengths are not known; with labels that are a Dask collection two more, at labels alone. Labels
    become one small integer for each row, kept on the workers.
    """
    if named is None:
        X, y = take_labels(X, y)
        arrays, feature_names = _arrays([X], ["X"])
        return _one_matrix(arrays[0], "X", feature_names, None if y is None else partial(labels_there, y))
    wheres = [f"X, context {name!r}," for name in named.names.tolist()]
    arrays, feature_names = _arrays(named.blocks, wheres)
    check_same_width(named.names.tolist(), [array.shape[1] for array in arrays])
    places = _places(arrays, wheres)
    rows = [_sized(array, own.blocks) for array, own in zip(arrays, places, strict=True)]
    blocks = [_Block(i, j, place, np.array([i]), i) for i, own in enumerate(places) for j, place in own.filled()]
    engine = DaskEngine(blocks, rows, [None] * len(rows), len(rows), max(own.size for own in places))
    sources = [own.source() for own in places]
    counts = np.array([own.n_rows for own in places])
    known: Sequence[Any] = [slice(0, n) for n in counts.tolist()]
    return Contexts(named.names, named.by_name, feature_names, sources, known, counts, engine=engine)


def coded_contexts(X: Any, coded: Coded, feature_names: Array | None, where: str) -> Contexts:
    """Return a Dask array as ``Contexts``: of the rows whose codes are not -1."""
    return _one_matrix(
        whole_rows(X, where), where, feature_names, lambda n, lengths, rows: codes_there(coded, lengths, rows)
    )


def _one_matrix(array: Any, where: str, feature_names: Array | None, read: _Reader | None) -> Contexts:
    """Return one matrix as ``Contexts``; ``read`` finds the labels of its rows, None is one context of all of them."""
    (own,) = _places([array], [where])
    rows = [_sized(array, own.blocks)]
    if own.n_rows == 0:
        raise ValueError(f"{where} has 0 samples (shape={own.source().shape}) while a minimum of 2 is required.")
    labels = DaskLabels(np.array([0]), None, [np.array([0])] * len(own.blocks), np.array([own.n_rows]))
    if read is not None:
        labels = read(own.n_rows, tuple(place.n_rows for place in own.blocks), rows)
    context = 0 if read is None else None
    blocks = [_Block(0, j, place, labels.present[j], context) for j, place in own.filled()]
    k, by_name = len(labels.names), read is not None
    engine = DaskEngine(blocks, rows, [labels.codes], k, own.size)
    elsewhere = _RowsElsewhere(k)
    sources = [own.source()] * k
    return Contexts(labels.names, by_name, feature_names, sources, elsewhere, labels.counts, engine=engine)


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


def product_there(X: Any, right: Array) -> Any:
    """Return the product of a Dask array and a matrix (p, q)."""
    X = X.rechunk({1: -1})
    dtype = np.result_type(X.dtype, right)
    return X.map_blocks(matmul, right, chunks=(X.chunks[0], (right.shape[1],)), meta=np.zeros((0, 0), dtype))


def first_rows(X: Any, n: int) -> Any:
    """Return the first rows of a Dask array, n at most: those that are in its first block with any."""
    graph = Graph([X := whole_rows(X, "X")])
    number = next((j for j, length in enumerate(X.chunks[0]) if length), 0)
    return graph.compute(graph.call(head, (X.name, number, 0), n))


def whole_rows(X: Any, where: str) -> Any:
    """Return a matrix as a Dask array whose blocks hold whole rows."""
    if hasattr(X, "columns"):
        others = [c for c, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "biuf"]
        if others:
            raise ValueError(
                f"{where} has non-numeric columns {others[:5]}; drop or encode them (y='name' takes one as the labels)."
            )
        kinds = {(dtype.kind, dtype.itemsize) for dtype in X.dtypes}
        X = X.astype("float32" if kinds == {("f", 4)} else "float64").to_dask_array()
    if X.ndim != 2:
        raise ValueError(f"{where} must be 2-D (n_samples, n_features), got {X.ndim} dimensions; reshape it.")
    if np.isnan(X.shape[1]):
        raise ValueError(f"{where} has an unknown number of features; call compute_chunk_sizes() on it first.")
    check_shape((0, X.shape[1]), where)
    block_dtype(X.dtype, where)
    check_announced(X, where)
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    return optimised(X)


@dataclass(frozen=True)
class _Places:
    """The blocks of one matrix, about what they take in memory, and the size of the largest entry seen."""

    blocks: list[Place]
    dtype: np.dtype[Any]
    sparse: bool
    nbytes: int
    size: float

    @property
    def n_rows(self) -> int:
        return sum(place.n_rows for place in self.blocks)

    def source(self) -> DaskSource:
        """Return what is told of rows that are elsewhere."""
        return DaskSource((self.n_rows, self.blocks[0].n_features), self.dtype, self.sparse, self.nbytes)

    def filled(self) -> list[tuple[int, Place]]:
        """Blocks with rows in them, and their numbers."""
        return [(j, place) for j, place in enumerate(self.blocks) if place.n_rows]


def _places(arrays: list[Any], wheres: list[str]) -> list[_Places]:
    """Look at the first block of each array, or at all where their lengths are not known: one small computation."""
    check_workers(arrays)
    graph = Graph(arrays)
    looks = []
    for array in arrays:
        lengths = array.chunks[0]
        which = range(len(lengths)) if _unknown(array) else [next((j for j, n in enumerate(lengths) if n), 0)]
        looks.append([graph.call(look, (array.name, j, 0)) for j in which])
    places = []
    for array, where, seen in zip(arrays, wheres, graph.compute(graph.call(gathered, looks)), strict=True):
        lengths = [found.n_rows for found in seen] if _unknown(array) else [int(n) for n in array.chunks[0]]
        sparse, p = any(found.sparse for found in seen), int(array.shape[1])
        dtype = np.result_type(*(block_dtype(one, where) for one in {array.dtype, *(found.dtype for found in seen)}))
        firsts = np.cumsum([0, *lengths]).tolist()
        blocks = [Place(firsts[j], n, p, dtype, sparse, where) for j, n in enumerate(lengths)]
        row = sum(found.nbytes for found in seen) / max(sum(found.n_rows for found in seen), 1)
        nbytes = int(firsts[-1] * (row if sparse else p * dtype.itemsize))
        places.append(_Places(blocks, dtype, sparse, nbytes, max((found.size for found in seen), default=0.0)))
    return places


def _unknown(array: Any) -> bool:
    return bool(np.isnan(array.chunks[0]).any())


def _sized(array: Any, places: list[Place]) -> Any:
    """Return the array with the lengths of its blocks, where they were not known."""
    chunks = tuple(place.n_rows for place in places), array.chunks[1]
    return require("dask.array", "dask").Array(array.dask, array.name, chunks, meta=array._meta)
