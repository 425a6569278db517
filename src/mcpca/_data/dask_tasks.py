"""The tasks that run on Dask's workers: pure functions, so that what is lost with a worker can be done again elsewhere.

``dask_rows`` and ``dask_labels`` put them into graphs. Everything here is sent to the workers by pickle, so tasks take
small immutable objects (``Place``, ``Projections``, ``Coder``) rather than the engine, and blocks as they come: nothing
about a block is certain before ``_load`` has looked at it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .blocks import as_canonical, block_dtype, check_block, largest, stored, times_power
from .context_sums import Sum
from .labels import Coded, read_labels
from .low_rank_rows import LowRankRows
from .projection import offset_scores_by_context, transposed_product
from .row_marks import marks_of
from .validation import check_rows

# Bytes of rows that a kernel gets at a time, which bounds its temporaries however large the user's chunks are. Sums of
# pieces are combined, so smaller pieces cost more additions of totals.
_KERNEL_BYTES = 2**26


@dataclass(frozen=True)
class Steps:
    """What is done to the rows of a block (``FittedPreprocess``), with their own size factors if these are given."""

    fitted: Any
    factors: Array | None


@dataclass(frozen=True)
class Place:
    """What a block should be: rows ``first`` to ``first + n_rows`` of the matrix called ``where`` in errors.

    ``dtype`` and ``sparse`` are what the rows are converted to; they are then multiplied by ``2^-e``. Rows that are
    prepared have a ``steps``, and the block is what ``raw`` says before these.
    """

    first: int
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    sparse: bool
    where: str
    e: int = 0
    raw: Place | None = None
    steps: Steps | None = None


@dataclass(frozen=True)
class Projections:
    """Offsets (k, r) of scores, and the matrices (r, p) that give them: one for all contexts, or one for each."""

    offsets: Array
    projections: list[Array]


def _load(block: Any, place: Place) -> Any:
    """Return a block as dense or CSR rows of the type in ``place``; raise if its shape or type is another."""
    if place.raw is not None and place.steps is not None:
        steps = place.steps
        raw = _load(block, place.raw)
        made = steps.fitted.apply(raw, place.dtype, rows=place.first, where=place.where, factors=steps.factors)
        return times_power(made, -place.e) if place.e else made
    sparse = scipy.sparse.issparse(block)
    # Exactly an ndarray: masked arrays and matrices are subclasses that behave differently.
    if not sparse and (type(block) is not np.ndarray or block.dtype.kind not in "biuf"):
        block = check_rows(block, f"{place.where}, the block from row {place.first} on,")
    # Any sparse layout becomes CSR here, since row blocks are sliced by rows from now on.
    rows: Any = scipy.sparse.csr_array(block) if sparse else block
    expected = place.n_rows, place.n_features
    if rows.shape != expected:
        raise ValueError(
            f"{place.where} has a block of shape {rows.shape} in place of rows {place.first} to "
            f"{place.first + place.n_rows - 1}, where {expected} was announced; give every block the same features, "
            "and from_delayed and map_blocks the true shapes."
        )
    # Not rounded silently: results would depend on which blocks happened to be looked at first.
    if not np.can_cast(block_dtype(rows.dtype, place.where), place.dtype):
        raise ValueError(
            f"{place.where} announces {place.dtype} and its block from row {place.first} on is {rows.dtype}: digits "
            "would be lost. Give from_delayed and map_blocks the true dtype, or call X.astype."
        )
    rows = rows.astype(place.dtype, copy=False)
    # Arrays from another worker may begin at any byte. For unaligned ones NumPy takes another code path, whose
    # products round differently: results would depend on where a block was computed.
    if sparse and not (rows.data.flags.aligned and rows.indices.flags.aligned and rows.indptr.flags.aligned):
        rows = rows.copy()
    elif not sparse:
        rows = np.require(rows, requirements="A")
    if place.sparse:
        rows = as_canonical(rows) if sparse else scipy.sparse.csr_array(rows)
    elif sparse:
        rows = rows.toarray()
    return times_power(rows, -place.e) if place.e else rows


def drawn_codes(codes: Array, times: Array) -> Array:
    """Return codes (n,) of rows and how often each was drawn as one array (n,) of two fields."""
    fields = [("code", codes.dtype), ("times", np.min_scalar_type(int(times.max(initial=0))))]
    both = np.empty(len(codes), dtype=fields)
    both["code"] = codes
    both["times"] = times
    return both


def contexts_in(codes: Array) -> Array:
    """Return the contexts of rows (n,), from codes or from those of ``drawn_codes``."""
    return codes if codes.dtype.names is None else codes["code"]


def _codes_of(codes: Any, n: int) -> Array:
    """Return the contexts of n rows: ``codes`` are those of a block, or one integer for all rows."""
    # Codes are stored in as few bytes as possible, perhaps unsigned; arithmetic on them needs a wide signed type.
    return np.full(n, codes, dtype=np.intp) if isinstance(codes, int) else contexts_in(codes).astype(np.intp)


class _Labelled(NamedTuple):
    """The rows of a block that are in a context, their contexts, and their positions in the block.

    Rows that were drawn more than once are there as often.
    """

    X: Any
    codes: Array
    numbers: Array


def _labelled(block: Any, codes: Any, place: Place, *, by_context: bool = False) -> _Labelled:
    """Return the rows of a block that are in a context, in the order of their contexts if that is wanted."""
    X = _load(block, place)
    times = None if isinstance(codes, int) or codes.dtype.names is None else codes["times"]
    codes = _codes_of(codes, place.n_rows)
    numbers = np.flatnonzero(codes >= 0)
    if times is not None:
        numbers = np.repeat(numbers, times[numbers])
    if by_context and (np.diff(codes[numbers]) < 0).any():
        numbers = numbers[np.argsort(codes[numbers], kind="stable")]
    elif len(numbers) == len(codes) and times is None:  # the usual case, without a copy of the rows
        return _Labelled(X, codes, numbers)
    return _Labelled(X[numbers], codes[numbers], numbers)


def block_sums(kernel: Callable[[Any, Array], list[Sum]], block: Any, codes: Any, place: Place) -> list[Sum]:
    """Return what ``kernel`` makes of a block, some rows at a time; raise if that is not finite."""
    rows = _labelled(block, codes, place)
    n = len(rows.codes)
    # At least a byte: a block without rows in any context has none, and the division below needs more than 0.
    row_bytes = max(_bytes_of(rows.X) / max(n, 1), 1)
    step = max(1, int(_KERNEL_BYTES // row_bytes))
    sums: list[Sum] = []
    with np.errstate(invalid="ignore", over="ignore"):  # ``_check_sums`` has an error that says more
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            sums = combined_sums([sums, kernel(rows.X[part], rows.codes[part])])
    _check_sums(sums, rows, place)
    return sums


def block_value(of_block: Callable[..., Any], block: Any, codes: Any, place: Place) -> Any:
    """Return ``of_block`` of all rows of a block, with their contexts, the number of the first, and a name."""
    return of_block(_load(block, place), _codes_of(codes, place.n_rows), place.first, place.where)


def block_products(columns: Any, block: Any, place: Place) -> list[Sum]:
    """Return ``W^T X`` of a block, to total 0, for the rows of a sparse W that are its own."""
    # W has entries in the columns of the contexts of this block only.
    present = np.unique(columns.indices)
    X = _load(block, place)
    with np.errstate(invalid="ignore", over="ignore"):
        product = transposed_product(columns[:, present], X)
    _check_sums([Sum(0, present, product)], _Labelled(X, np.zeros(0), np.arange(place.n_rows)), place)
    return [Sum(0, present, product)]


def block_rows(directions: Array | None, block: Any, codes: Any, place: Place) -> Any:
    """Return those rows X of a block that are in a context, or ``X W`` in float64; raise if they are not finite."""
    rows = _labelled(block, codes, place)
    with np.errstate(invalid="ignore", over="ignore"):
        found = rows.X if directions is None else np.asarray(rows.X @ directions, dtype=np.float64)
    _check_sums([Sum(0, ..., found)], rows, place)
    return found


def picked_rows(block: Any, place: Place, numbers: Array) -> Any:
    """Return the rows of a block at these positions, as ``Place`` says they are."""
    return _load(block, place)[numbers]


def loaded_block(block: Any, place: Place) -> Any:
    """Return all rows of a block, as ``Place`` says they are."""
    return _load(block, place)


def gram_parts(gram: Any, block: Any, codes: Any, place: Place, start: int, stop: int, before: Any) -> list[Sum]:
    """Return parts of ``X_i^T Z_i`` for contexts ``start`` to ``stop``.

    ``before`` is not used: as an argument it makes the task wait for an earlier group.
    """
    rows = _labelled(block, codes, place, by_context=True)
    with np.errstate(invalid="ignore", over="ignore"):
        sums: list[Sum] = gram.parts(rows.X, rows.codes, start, stop)
    _check_sums(sums, rows, place)
    return sums


def gram_images(gram: Any, parts: list[Sum]) -> Any:
    """Return ``S_i V`` from the parts of all blocks."""
    return gram.images(parts)


def gram_sums(gram: Any, block: Any, codes: Any, place: Place, images: Any) -> list[Sum]:
    """Return what a block adds to ``sum_i S_i S_i V``, given the images ``S_i V``."""
    rows = _labelled(block, codes, place, by_context=True)
    with np.errstate(invalid="ignore", over="ignore"):
        sums: list[Sum] = gram.sums(rows.X, rows.codes, images)
    _check_sums(sums, rows, place)
    return sums


def gram_norms(gram: Any, images: Any) -> list[Sum]:
    """Return what the images add without any rows: their squared norms."""
    sums: list[Sum] = gram.norms(images)
    return sums


def block_scores(known: Projections, block: Any, codes: Any, place: Place) -> Array:
    """Return the scores of a block's rows."""
    X = _load(block, place)
    codes = _codes_of(codes, place.n_rows)
    # Scores would carry NaN to the user without an error; sums of a fit are checked by themselves.
    check_block(X, place.first, place.where)
    dtype = np.result_type(place.dtype, known.projections[0])
    return offset_scores_by_context(X, codes, known.projections, known.offsets, dtype)


def marked(block: Any, codes: Any, place: Place) -> tuple[Array, Array, int]:
    """Return the contexts of a block, what its rows add to their marks, and a checksum of the codes of its rows."""
    codes = _codes_of(codes, place.n_rows)
    present = np.unique(codes)
    # searchsorted gives the position of each code among those present, so marks are (k',) and not (k,).
    marks = marks_of(_load(block, place), np.searchsorted(present, codes), len(present))
    return present, marks, zlib.crc32(codes.astype(np.int64).tobytes())


def applied(function: Callable[[Any], Any], block: Any, place: Place) -> Any:
    """Return what a function makes of the rows of a block."""
    return function(_load(block, place))


def look_at_rows(block: Any, place: Place) -> Look:
    """Return what a look at the rows of a block finds, as they are loaded."""
    return look(_load(block, place))


def head(block: Any, n: int) -> Any:
    """Return the first n rows of a block."""
    # COO blocks cannot be sliced.
    return (scipy.sparse.csr_array(block) if scipy.sparse.issparse(block) else np.asarray(block))[:n]


def matmul(block: Any, right: Array) -> Array:
    """Return the product of a block, dense or sparse, and a matrix."""
    return np.asarray(block @ right)


def _check_sums(sums: list[Sum], rows: _Labelled, place: Place) -> None:
    """Raise if sums are not finite: because rows are not, with their numbers, or because their squares overflow.

    Sums are small next to the rows, so testing these first makes the test of finite rows almost free.
    """
    values = (stored(s.value) for s in sums)
    if all(np.isfinite(value).all() for value in values):
        return
    # Sorted, and each row once.
    numbers, order = np.unique(rows.numbers, return_index=True)
    X = rows.X[order]
    # Rows without a context were left out: row numbers in the error are right only within runs of consecutive rows.
    bounds = [0, *(np.flatnonzero(np.diff(numbers) > 1) + 1).tolist(), len(numbers)]
    for start, stop in pairwise(bounds):
        check_block(X[start:stop], place.first + int(numbers[start]), place.where)
    raise ValueError(
        f"{place.where} is too large for {place.dtype}: its squares overflow in rows {place.first} to "
        f"{place.first + place.n_rows - 1}. Divide it by a constant, or pass float64."
    )


def _bytes_of(X: Any) -> float:
    if isinstance(X, LowRankRows):
        return float(X.nbytes)
    return float(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if scipy.sparse.issparse(X) else X.nbytes)


def combined_sums(parts: list[list[Sum]]) -> list[Sum]:
    """Return the sums in ``parts`` added up by total and key, in this order; ``parts`` are not changed."""
    # A dict keeps the order of first occurrence, so sums come out in the order of the kernel. Keys are never ``Flat``:
    # rows on workers are not added entry by entry (``kernels.adds_by_entry``).
    totals = dict.fromkeys(s.total for part in parts for s in part)
    return [_joined([s for part in parts for s in part if s.total == total]) for total in totals]


def _joined(sums: list[Sum]) -> Sum:
    """Add up sums that go to the same total: all of it (...), or some of its rows by index."""
    if len(sums) == 1:
        return sums[0]
    number, key, value = sums[0]
    if key is ...:
        value = value.astype(np.float64)  # a copy: results of tasks belong to Dask, and may be needed again
        for other in sums[1:]:
            value += other.value
        return Sum(number, key, value)
    # Blocks may have different contexts. The union is sorted, so searchsorted finds the places of each; keys within one
    # Sum are sorted and distinct, so += adds all of its rows.
    union = np.unique(np.concatenate([s.key for s in sums]))
    if scipy.sparse.issparse(value):
        joined: Any = scipy.sparse.csr_array((len(union), value.shape[1]))
        for s in sums:
            # A product with an indicator matrix moves the rows of a sparse matrix to their places in the union.
            n = len(s.key)
            to = np.searchsorted(union, s.key), np.arange(n)
            indicator = scipy.sparse.csr_array((np.ones(n), to), shape=(len(union), n))
            joined = joined + indicator @ s.value
        return Sum(number, union, joined)
    # Where the first has them all, as with rows in random order, there is nothing to fill with zeros.
    has_all = len(sums[0].key) == len(union)
    dense = value.astype(np.float64) if has_all else np.zeros((len(union), *value.shape[1:]))
    for s in sums[has_all:]:
        places = np.searchsorted(union, s.key)
        first = int(places[0]) if len(places) else 0
        # Places that stand together are a view, which is added to where it is.
        together = len(places) == 0 or int(places[-1]) - first + 1 == len(places)
        dense[slice(first, first + len(places)) if together else places] += s.value
    return Sum(number, union, dense)


class Look(NamedTuple):
    """What a first look at a block finds: rows, bytes, whether it is sparse, largest absolute value, and type."""

    n_rows: int
    nbytes: float
    sparse: bool
    size: float
    dtype: np.dtype[Any]


def look(block: Any) -> Look:
    """Return what has to be known of a block before any pass."""
    if isinstance(block, LowRankRows):
        return Look(block.shape[0], float(block.nbytes), True, largest(block), block.dtype)
    sparse = scipy.sparse.issparse(block)
    rows: Any = scipy.sparse.csr_array(block) if sparse else np.asarray(block)
    if rows.ndim != 2:
        raise ValueError(f"X has a block of shape {rows.shape}; blocks must be 2-D (rows, features).")
    # Objects may be numbers that ``_load`` can convert; if not, it has the error.
    is_number = rows.dtype.kind in "biuf"
    dtype = rows.dtype if is_number else np.dtype(np.float64)
    size = largest(rows) if is_number else 1.0
    return Look(int(rows.shape[0]), _bytes_of(rows), sparse, size, dtype)


def gathered(items: Any) -> Any:
    """Return ``items``: a task whose arguments are keys, which makes a list of their values."""
    return items


class SeenLabels(NamedTuple):
    """What a first look at a block of labels finds: its length, how many are missing, and the distinct ones."""

    n: int
    missing: int
    values: Array


def _read(block: Any) -> Coded:
    coded = read_labels(block)
    if coded.codes.ndim != 1:
        raise ValueError(f"y has a block of shape {coded.codes.shape}; pass one context label per row.")
    return coded


def see_labels(block: Any) -> SeenLabels:
    """Return the distinct labels of a block."""
    coded = _read(block)
    return SeenLabels(len(coded.codes), int((coded.codes < 0).sum()), coded.categories)


@dataclass(frozen=True)
class Coder:
    """The names of contexts, and the smallest integer type for their codes."""

    names: Array
    dtype: np.dtype[Any]


def encode(coder: Coder, block: Any) -> Array:
    """Return the codes of a block of labels among the names of all contexts."""
    coded = _read(block)
    position = {name: i for i, name in enumerate(coder.names.tolist())}
    # By the names in this block, and not label by label: they are few. No code is -1 here, which would pick the last
    # name: missing labels are refused after the first look.
    codes_of_categories = np.array([position[name] for name in coded.categories.tolist()], dtype=coder.dtype)
    return codes_of_categories[coded.codes]


def count(codes: Array) -> tuple[Array, Array]:
    """Return the contexts in a block of codes, and their numbers of rows."""
    # -1 is no context and not counted. As intp, for ``present`` is an index later.
    present, counts = np.unique(codes[codes >= 0], return_counts=True)
    return present.astype(np.intp), counts
