"""What runs on Dask's workers: pure functions, so that what is lost with a worker can be done again elsewhere."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import as_canonical, block_dtype, check_block, largest, times_power
from .context_sums import Sum
from .labels import Coded, read_labels
from .projection import scores_by_context
from .row_marks import marks_of
from .validation import check_rows

_PIECE = 2**26  # bytes of rows that a kernel is given at a time


@dataclass(frozen=True)
class Place:
    """What rows of a block should be like: rows ``first`` to ``first + n_rows`` of the matrix called ``where``.

    They are multiplied by ``2^-e``.
    """

    first: int
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    sparse: bool
    where: str
    e: int = 0


@dataclass(frozen=True)
class Projections:
    """Offsets (k, r) of scores, and the matrices (r, p) that give them: one for all contexts, or one for each."""

    offsets: Array
    projections: list[Array]


def _load(block: Any, place: Place) -> Any:
    """Return a block as dense or CSR rows of the right type, after a look at what it is."""
    sparse = scipy.sparse.issparse(block)
    if not sparse and (type(block) is not np.ndarray or block.dtype.kind not in "biuf"):
        block = check_rows(block, f"{place.where}, the block from row {place.first} on,")
    rows: Any = scipy.sparse.csr_array(block) if sparse else block
    expected = place.n_rows, place.n_features
    if rows.shape != expected:
        raise ValueError(
            f"{place.where} has a block of shape {rows.shape} in place of rows {place.first} to "
            f"{place.first + place.n_rows - 1}, where {expected} was announced; give every block the same features, "
            "and from_delayed and map_blocks the true shapes."
        )
    if not np.can_cast(block_dtype(rows.dtype, place.where), place.dtype):
        raise ValueError(
            f"{place.where} announces {place.dtype} and its block from row {place.first} on is {rows.dtype}: digits "
            "would be lost. Give from_delayed and map_blocks the true dtype, or call X.astype."
        )
    rows = rows.astype(place.dtype, copy=False)
    if sparse and not (rows.data.flags.aligned and rows.indices.flags.aligned and rows.indptr.flags.aligned):
        rows = rows.copy()
    elif not sparse:
        # Arrays from another worker may begin at any byte, for which NumPy takes another way to the same product: one
        # that rounds differently.
        rows = np.require(rows, requirements="A")
    if place.sparse:
        rows = as_canonical(rows) if sparse else scipy.sparse.csr_array(rows)
    elif sparse:
        rows = rows.toarray()
    return times_power(rows, -place.e) if place.e else rows


def _codes_of(codes: Any, n: int) -> Array:
    return np.full(n, codes, dtype=np.intp) if isinstance(codes, int) else codes.astype(np.intp)


class _Labelled(NamedTuple):
    """Rows of a block that are in a context, their contexts, and their numbers in the block."""

    X: Any
    codes: Array
    numbers: Array


def _labelled(block: Any, codes: Any, place: Place) -> _Labelled:
    X, codes = _load(block, place), _codes_of(codes, place.n_rows)
    kept = np.flatnonzero(codes >= 0)
    return _Labelled(X, codes, kept) if len(kept) == len(codes) else _Labelled(X[kept], codes[kept], kept)


def block_sums(kernel: Callable[[Any, Array], list[Sum]], block: Any, codes: Any, place: Place) -> list[Sum]:
    """Return what ``kernel`` makes of a block, some rows at a time. Raises where that is not finite."""
    own = _labelled(block, codes, place)
    n = len(own.codes)
    step = max(1, int(_PIECE // max(_bytes_of(own.X) / max(n, 1), 1)))
    sums: list[Sum] = []
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is looked for
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            sums = combined([sums, kernel(own.X[part], own.codes[part])])
    _check_sums(sums, own, place)
    return sums


def gram_parts(gram: Any, block: Any, codes: Any, place: Place, start: int, stop: int, before: Any) -> list[Sum]:
    """Return parts of ``X_i^T Z_i`` for contexts ``start`` to ``stop``; ``before`` is what had to be done first."""
    own = _labelled(block, codes, place)
    with np.errstate(invalid="ignore", over="ignore"):
        sums: list[Sum] = gram.parts(own.X, own.codes, start, stop)
    _check_sums(sums, own, place)
    return sums


def gram_images(gram: Any, parts: list[Sum]) -> Any:
    return gram.images(parts)


def gram_sums(gram: Any, block: Any, codes: Any, place: Place, images: Any) -> list[Sum]:
    own = _labelled(block, codes, place)
    with np.errstate(invalid="ignore", over="ignore"):
        sums: list[Sum] = gram.sums(own.X, own.codes, images)
    _check_sums(sums, own, place)
    return sums


def gram_norms(gram: Any, images: Any) -> list[Sum]:
    sums: list[Sum] = gram.norms(images)
    return sums


def block_scores(known: Projections, block: Any, codes: Any, place: Place) -> Array:
    """Return the scores of a block's rows."""
    X, codes = _load(block, place), _codes_of(codes, place.n_rows)
    check_block(X, place.first, place.where)
    dtype = np.result_type(place.dtype, known.projections[0])
    return scores_by_context(X, codes, known.projections, known.offsets, dtype)


def marked(block: Any, codes: Any, place: Place) -> tuple[Array, Array, int]:
    """Return the contexts of a block, what its rows add to their marks, and a checksum of whose rows they are."""
    codes = _codes_of(codes, place.n_rows)
    present = np.unique(codes)
    own = marks_of(_load(block, place), np.searchsorted(present, codes), len(present))
    return present, own, zlib.crc32(codes.astype(np.int64).tobytes())


def head(block: Any, n: int) -> Any:
    return (scipy.sparse.csr_array(block) if scipy.sparse.issparse(block) else np.asarray(block))[:n]


def matmul(block: Any, right: Array) -> Array:
    return np.asarray(block @ right)


def _check_sums(sums: list[Sum], own: _Labelled, place: Place) -> None:
    values = (s.value.data if scipy.sparse.issparse(s.value) else s.value for s in sums)
    if all(np.isfinite(value).all() for value in values):
        return
    # Rows between which others are in no context are told by their own numbers.
    bounds = [0, *(np.flatnonzero(np.diff(own.numbers) > 1) + 1).tolist(), len(own.numbers)]
    for start, stop in pairwise(bounds):
        check_block(own.X[start:stop], place.first + int(own.numbers[start]), place.where)
    raise ValueError(
        f"{place.where} is too large for {place.dtype}: its squares overflow in rows {place.first} to "
        f"{place.first + place.n_rows - 1}. Divide it by a constant, or pass float64."
    )


def _bytes_of(X: Any) -> float:
    return float(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if scipy.sparse.issparse(X) else X.nbytes)


def combined(parts: list[list[Sum]]) -> list[Sum]:
    """Return the sums in ``parts`` added up by total and key, in their order; ``parts`` stay as they are."""
    totals = dict.fromkeys(s.total for part in parts for s in part)
    return [_joined([s for part in parts for s in part if s.total == total]) for total in totals]


def _joined(sums: list[Sum]) -> Sum:
    if len(sums) == 1:
        return sums[0]
    number, key, value = sums[0]
    if key is ...:
        value = value.astype(np.float64)
        for other in sums[1:]:
            value += other.value
        return Sum(number, key, value)
    union = np.unique(np.concatenate([s.key for s in sums]))
    if scipy.sparse.issparse(value):
        joined: Any = scipy.sparse.csr_array((len(union), value.shape[1]))
        for s in sums:
            to = np.searchsorted(union, s.key), np.arange(len(s.key))
            joined = (
                joined + scipy.sparse.csr_array((np.ones(len(s.key)), to), shape=(len(union), len(s.key))) @ s.value
            )
        return Sum(number, union, joined)
    dense = np.zeros((len(union), *value.shape[1:]))
    for s in sums:
        dense[np.searchsorted(union, s.key)] += s.value
    return Sum(number, union, dense)


class Look(NamedTuple):
    """Number of rows, bytes and kind of a block, the size of its largest entry, and the type of its numbers."""

    n_rows: int
    nbytes: float
    sparse: bool
    size: float
    dtype: np.dtype[Any]


def look(block: Any) -> Look:
    """Return what is to be known of a block."""
    sparse = scipy.sparse.issparse(block)
    rows: Any = scipy.sparse.csr_array(block) if sparse else np.asarray(block)
    if rows.ndim != 2:
        raise ValueError(f"X has a block of shape {rows.shape}; blocks must be 2-D (rows, features).")
    dtype = rows.dtype if rows.dtype.kind in "biuf" else np.dtype(np.float64)  # all else is looked at where it is read
    size = largest(rows) if rows.dtype.kind in "biuf" else 1.0
    return Look(int(rows.shape[0]), _bytes_of(rows), sparse, size, dtype)


def gathered(items: Any) -> Any:
    return items


class Seen(NamedTuple):
    """Length, missing labels, and distinct labels of a block of labels."""

    n: int
    missing: int
    values: Array


def _read(block: Any) -> Coded:
    coded = read_labels(block)
    if coded.codes.ndim != 1:
        raise ValueError(f"y has a block of shape {coded.codes.shape}; pass one context label per row.")
    return coded


def see_labels(block: Any) -> Seen:
    coded = _read(block)
    return Seen(len(coded.codes), int((coded.codes < 0).sum()), coded.categories)


@dataclass(frozen=True)
class Coder:
    """The names of contexts, and the type of their numbers."""

    names: Array
    dtype: np.dtype[Any]


def encode(coder: Coder, block: Any) -> Array:
    coded = _read(block)
    position = {name: i for i, name in enumerate(coder.names.tolist())}
    own = np.array([position[name] for name in coded.categories.tolist()], dtype=coder.dtype)
    return own[coded.codes]


def count(codes: Array) -> tuple[Array, Array]:
    present, counts = np.unique(codes[codes >= 0], return_counts=True)
    return present.astype(np.intp), counts
