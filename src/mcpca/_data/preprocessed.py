"""Rows that are prepared while they are read: the state that a fit finds, a ``Source`` of prepared rows, ``Contexts``.

``fit_preprocess`` finds from raw contexts what the steps of a ``Preprocess`` take of the data, and returns it as a
``FittedPreprocess``. ``preprocessed`` returns the same contexts with prepared rows, wherever they are: blocks of a
source are prepared as they are read (``PreprocessedSource``), those on Dask as tasks load them (``dask_tasks.Place``).
Nothing above knows of it, except that a model keeps the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import scipy.sparse

from .._utils.arguments import check_integer
from .._utils.parallel import blas_aside
from .._utils.progress import silent
from .._utils.types import Array, Report
from .alignment import are_positions
from .blocks import SCAN_BYTES, RowBlock, check_block, in_asked_order, row_numbers
from .contexts import Contexts
from .disk import CSCDiskSource, CSRDiskSource, DenseDiskSource
from .doubtful_counts import warn_of_empty, warn_unless_counts
from .fitted_preprocess import FittedPreprocess, keeps_sparse, prepared_rows
from .held_rows import RowsRead, TotalledSource, held, memory_limit
from .low_rank_rows import LowRankRows, stacked
from .pearson import CountSums, PearsonResiduals
from .preprocess import LOG1P, PEARSON, Preprocess, as_preprocess, function_name
from .read_ahead import blocks_ahead
from .row_steps import (
    check_counts,
    check_row_wise,
    row_totals,
)
from .size_factors import factors_of_sources
from .sources import CSRSource, DenseSource
from .variable_features import variable_features

T = TypeVar("T")

# Rows that are looked at for whether they are counts, and by which a function is tried: 200, as for raw counts without
# any preprocess.
_ROWS_LOOKED_AT = 200
_ROWS_TRIED = 64


class PreprocessedSource:
    """Prepared rows of another source, made block by block as they are read. Memory: one block beside the raw one.

    ``factors`` are given size factors (n,), ``totals`` those of all rows, where an earlier pass has found and checked
    them.
    """

    def __init__(
        self,
        source: Any,
        fitted: FittedPreprocess,
        where: str,
        factors: Array | None = None,
        totals: Array | None = None,
    ) -> None:
        self.raw = source
        self._fitted = fitted
        self._where = where
        self._factors = factors
        self._totals = totals
        self.shape = int(source.shape[0]), fitted.n_features_out
        self.dtype = fitted.dtype_of(source)
        self.sparse = keeps_sparse(fitted, bool(source.sparse))
        self.low_rank = self.sparse and fitted.residuals is not None
        self.in_memory = bool(source.in_memory)
        if self.sparse:
            # Indices of sparse blocks stay what they are, so this is an upper bound of their bytes.
            self.nbytes = int(source.nbytes * (fitted.n_features_out / fitted.n_features_in))
        else:
            self.nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize
        if fitted.residuals is not None and self.low_rank:
            self.nbytes += self.shape[0] * fitted.residuals.n_terms(self.dtype) * self.dtype.itemsize

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order.

        Memory: twice the result, and some 32 MB of raw rows, of which there may be far more than of prepared ones.
        """
        n = self.shape[0]
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(n)) if rows.indices(n)[2] != 1 else slice(*rows.indices(n)[:2])
        wanted = max(rows.stop - rows.start, 0) if isinstance(rows, slice) else len(rows)
        if self.raw.in_memory or wanted * (self.raw.nbytes / max(n, 1)) <= SCAN_BYTES:
            block = self.raw.gather(rows)
            return self._prepared(block, rows.start if isinstance(rows, slice) else np.asarray(rows))
        numbers = row_numbers(rows, n, self._where)
        order = np.argsort(numbers, kind="stable")
        pieces = list(self._parts(numbers[order]))
        if self.low_rank:
            return stacked(pieces)[np.argsort(order, kind="stable")]
        return in_asked_order(pieces, order)

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block); ``max_bytes`` bounds what is read, with all features."""
        if self.raw.sparse and not self.sparse:
            # Rows grow as they become dense.
            max_bytes = int(max_bytes * min(1.0, self.raw.nbytes / max(self.nbytes, 1)))
        for first, block in blocks_ahead(self.raw, max_bytes):
            yield first, self._prepared(block, first)

    def _parts(self, ordered: Array) -> Iterator[Any]:
        """Yield prepared rows of sorted numbers, some at a time, as the file has them."""
        if reads_single_rows(self.raw):
            step = max(1, int(SCAN_BYTES / max(self.raw.nbytes / self.shape[0], 1)))
            for start in range(0, len(ordered), step):
                part = ordered[start : start + step]
                yield self._prepared(self.raw.gather(part), part)
            return
        # Any other is read from the beginning to the end for every ``gather``: once is enough.
        for first, block in self.raw.scan(SCAN_BYTES):
            a, b = np.searchsorted(ordered, [first, first + block.shape[0]])
            if a < b:
                yield self._prepared(block[ordered[a:b] - first], ordered[a:b])

    def _prepared(self, block: RowBlock, rows: int | Array) -> Any:
        wanted: Any = slice(rows, rows + block.shape[0]) if isinstance(rows, int) else rows
        factors, totals = (None if of is None else of[wanted] for of in (self._factors, self._totals))
        return prepared_rows(self._fitted, block, self.dtype, rows, self._where, factors, totals)


def reads_single_rows(source: Any) -> bool:
    """Whether single rows can be had without reading all of them."""
    return isinstance(_before_steps(source), (DenseSource, CSRSource, CSRDiskSource, DenseDiskSource))


def is_file(source: Any) -> bool:
    """Whether rows are read from a file, whatever is done to them afterwards."""
    return isinstance(_before_steps(source), (CSRDiskSource, CSCDiskSource, DenseDiskSource))


def expect_rereads(source: Any, n_bytes: int) -> None:
    """Let a compressed file keep up to so many decoded bytes, since its rows will be read several times."""
    file = _before_steps(source)
    if isinstance(file, CSRDiskSource):
        file.expect_rereads(n_bytes)


def _before_steps(source: Any) -> Any:
    return source.raw if isinstance(source, PreprocessedSource) else source


def preprocessed(
    contexts: Contexts,
    fitted: FittedPreprocess | None,
    X: Any = None,
    *,
    hold: bool = False,
    report: Report = silent,
    totals: Mapping[int, Array] = MappingProxyType({}),
) -> Contexts:
    """Return the contexts with prepared rows, read through the steps of a fit; those that are prepared already as is.

    ``X`` is what the user passed, to which size factors that are given belong. ``hold`` is for what passes over the
    rows many times: where at most half of the features are used, these are prepared once, and held in memory, those of
    files if they fit into scikit-learn's ``working_memory``. ``totals`` has those of the rows of some sources, by
    ``id``, where a pass has found them.
    """
    if fitted is None or contexts.preprocess is not None:
        return contexts
    if all(isinstance(source, PreprocessedSource) for source in contexts.sources):
        return replace(contexts, feature_names=fitted.feature_names_out, preprocess=fitted)
    factors = factors_of_sources(fitted.spec, contexts, X)
    if contexts.engine is not None:
        engine, sources = contexts.engine.prepared(contexts.sources, fitted, factors)
    else:
        engine = None
        wrapped: dict[int, Any] = {}  # contexts of a labelled matrix share one source
        hold = hold and 2 * fitted.n_features_out <= fitted.n_features_in
        room = memory_limit()
        for source, numbers, where in zip(contexts.sources, factors, _wheres(contexts), strict=True):
            if id(source) not in wrapped:
                made = PreprocessedSource(source, fitted, where, numbers, totals.get(id(source)))
                # What is taken from raw rows in memory is a part of them, whatever they take; a map is on disk.
                is_here = source.in_memory and not isinstance(getattr(source, "array", None), np.memmap)
                few = held(made, source.nbytes if is_here else room, report) if hold else None
                room -= few.nbytes if few is not None and not is_here else 0
                wrapped[id(source)] = made if few is None else few
        sources = [wrapped[id(source)] for source in contexts.sources]
    return replace(contexts, sources=sources, engine=engine, feature_names=fitted.feature_names_out, preprocess=fitted)


def _wheres(contexts: Contexts) -> list[str]:
    if len({id(source) for source in contexts.sources}) == 1:
        return ["X"] * len(contexts.names)
    return [f"X, context {name!r}," for name in contexts.names.tolist()]


def prepared_source(source: Any, fitted: FittedPreprocess, X: Any = None) -> PreprocessedSource:
    """Return prepared rows of one matrix that is not on Dask."""
    contexts = Contexts(np.array([0]), False, None, [source], [slice(0, source.shape[0])], np.array(source.shape[:1]))
    result: PreprocessedSource = preprocessed(contexts, fitted, X).sources[0]  # type: ignore[assignment]
    return result


@blas_aside()
def fit_and_preprocess(
    preprocess: Any, contexts: Contexts, X: Any = None, report: Report = silent, *, columns: Array | None = None
) -> Contexts:
    """Return the contexts with rows prepared as the parameter ``preprocess`` says; None leaves them as they are."""
    spec = as_preprocess(preprocess)
    if spec is None or contexts.preprocess is not None:
        return contexts
    fitted, totals = _fitted(spec, contexts, X, report, columns)
    return preprocessed(contexts, fitted, X, hold=True, report=report, totals=totals)


def refuse_on_device(preprocess: Any) -> None:
    """Raise if rows on a device are to be prepared."""
    spec = as_preprocess(preprocess)
    if spec is not None:
        raise ValueError(
            f"preprocess={spec.kind_in_words()} with rows on a device: rows are prepared on the host. Pass them as "
            "NumPy or SciPy arrays, or prepare them on the device and pass preprocess=None."
        )


def fit_preprocess(
    spec: Preprocess, contexts: Contexts, X: Any = None, report: Report = silent, *, columns: Array | None = None
) -> FittedPreprocess:
    """Find what the steps take of raw rows; ``columns``, positions in increasing order, are all that is used of them.

    Cost: a look at 200 rows; one pass for the median of totals unless ``target_sum`` is given, one for the most
    variable features, and one for scales.
    Memory: a block, 8 bytes a row for totals, and some vectors of features.
    """
    return _fitted(spec, contexts, X, report, columns)[0]


def _fitted(
    spec: Preprocess, contexts: Contexts, X: Any, report: Report, columns: Array | None
) -> tuple[FittedPreprocess, dict[int, Array]]:
    """Return what ``fit_preprocess`` does, and the totals of all rows of sources whose rows a pass has checked."""
    # Columns called 0, 1, ... are positions, and no names by which later rows could be matched.
    unnamed = contexts.feature_names is None or are_positions(contexts.feature_names.tolist())
    names = None if unnamed else np.asarray(contexts.feature_names).astype(object)
    fitted = FittedPreprocess(spec, contexts.n_features, names, spec.target_sum, columns)
    first = first_block(contexts)
    if spec.takes_counts:
        warn_unless_counts(first, spec.kind_in_words())
    elif callable(spec.kind):
        check_block(first, 0, "X")
        check_row_wise(spec.kind, function_name(spec.kind), first[:_ROWS_TRIED], "X")
    totals: dict[int, Array] = {}
    if spec.n_top is not None:
        if columns is not None:
            raise ValueError(f"n_top={spec.n_top} beside features that are selected already; drop one of the two.")
        chosen, totals = _most_variable(contexts, spec.n_top, report)
        fitted = replace(fitted, columns=chosen)
    if spec.divides_by_totals and spec.kind == LOG1P and spec.target_sum is None:
        parts = [*totals.values()] or list(over_blocks(contexts, row_totals, report, "totals of rows"))
        together = np.concatenate(parts)
        n_empty = int((together == 0).sum())
        fitted = replace(fitted, target_sum=median_total(together, contexts, fitted), n_empty=n_empty)
        warn_of_empty(fitted.n_empty or 0, contexts)
    if spec.kind == PEARSON:
        sums = _count_sums(contexts, report)
        residuals = PearsonResiduals.fitted(sums, fitted.columns, spec.theta, spec.clip)
        fitted = replace(fitted, residuals=residuals, n_empty=sums.n_empty)
    if spec.scale:
        fitted = replace(fitted, scales=_scales(preprocessed(contexts, fitted, X, totals=totals), report))
    return fitted, totals


def _count_sums(contexts: Contexts, report: Report) -> CountSums:
    """Return the sums of counts over all rows, with or without a context. Cost: one pass."""
    if contexts.engine is not None:
        sums: CountSums = contexts.engine.reduced(_sums_of_block, CountSums.merged)
        return sums
    blocks = numbered_blocks(contexts, report, "sums of counts")
    return CountSums.merged([_checked_sums(block, first, where) for first, block, where in blocks])


def _sums_of_block(block: Any, codes: Array, first: int, where: str) -> CountSums:
    return _checked_sums(block, first, where)


def _checked_sums(block: Any, first: int, where: str) -> CountSums:
    totals = row_totals(block)
    check_counts(block, totals, first, where)
    return CountSums.of(block, totals)


def _most_variable(contexts: Contexts, n_top: int, report: Report) -> tuple[Array | None, dict[int, Array]]:
    """Return the columns of the most variable counts, in increasing order, and the totals of rows by ``id`` of source.

    None for all columns; no totals if no pass over rows in this process has left them behind.
    """
    p = contexts.n_features
    check_integer(n_top, "n_top", 1, p, f"X has {p} features; choose fewer of them, or drop n_top for all.")
    if n_top == p:
        return None, {}
    everything = _of_all_rows(contexts)
    if contexts.engine is not None:
        return variable_features(everything, n_top).chosen, {}
    # A second pass, which numbers that are no counts take, is told of no more: what is done never falls.
    n = sum({id(source): int(source.shape[0]) for source in everything.sources}.values())
    progress = RowsRead(report, "variable features", n)
    totalled = {id(source): TotalledSource(source, progress) for source in everything.sources}
    sources = [totalled[id(source)] for source in everything.sources]
    chosen = variable_features(replace(everything, sources=sources), n_top).chosen
    return chosen, {key: source.totals for key, source in totalled.items()}


def _of_all_rows(contexts: Contexts) -> Contexts:
    """Return contexts with every row of the matrices, also those without a context: one for each matrix."""
    sources = list({id(source): source for source in contexts.sources}.values())
    counts = np.array([source.shape[0] for source in sources])
    if counts.sum() == contexts.n_samples.sum():
        return contexts
    rows: list[Any] = [slice(0, n) for n in counts.tolist()]
    engine = None if contexts.engine is None else contexts.engine.chosen(sources, rows)
    return Contexts(np.arange(len(sources)), False, contexts.feature_names, sources, rows, counts, engine=engine)


def median_total(totals: Array, contexts: Contexts, fitted: FittedPreprocess) -> float:
    """Return the median of the totals of rows that are not empty, as scanpy has it; raise if it is not a total."""
    if not np.isfinite(totals).all() or totals.min(initial=0) < 0:
        # To prepare the rows finds what is wrong again, and says where.
        for _ in over_blocks(preprocessed(contexts, replace(fitted, target_sum=1.0)), _head):
            pass
    positive = totals[totals > 0]
    if not len(positive):
        raise ValueError("X has no counts at all: every row is 0. Pass another matrix or layer.")
    return float(np.median(positive))


def over_blocks(
    contexts: Contexts, function: Callable[[RowBlock], T], report: Report = silent, stage: str = "reading rows"
) -> Iterator[T]:
    """Yield what ``function`` makes of each block of rows, once for every row of the matrices, in their order.

    Rows without a context are among them. On Dask it is one computation, whose results all come here: they should be
    small. Cost: one pass over the rows.
    """
    if contexts.engine is not None:
        yield from contexts.engine.each_block(function)
        return
    for _, block, _ in numbered_blocks(contexts, report, stage):
        yield function(block)


def numbered_blocks(contexts: Contexts, report: Report, stage: str) -> Iterator[tuple[int, RowBlock, str]]:
    """Yield every block of rows that are in this process, with the number of its first row, and its name in errors."""
    sources = dict(zip(map(id, contexts.sources), zip(contexts.sources, _wheres(contexts), strict=True), strict=True))
    total = sum(source.shape[0] for source, _ in sources.values())
    done = 0
    for source, where in sources.values():
        for first, block in blocks_ahead(source, SCAN_BYTES):
            yield first, block, where
            done += block.shape[0]
            report(stage, done, total)


def first_block(contexts: Contexts) -> Any:
    """Return the first rows of the first matrix, 200 at most."""
    if contexts.engine is not None:
        return next(iter(contexts.engine.each_block(_head, most=1)))
    source = contexts.sources[0]
    return source.gather(slice(0, min(_ROWS_LOOKED_AT, source.shape[0])))


def _head(block: Any) -> Any:
    return block[:_ROWS_LOOKED_AT]


def _scales(contexts: Contexts, report: Report) -> Array:
    """Return the standard deviation (p,) of each feature over all rows, 1 where that is 0.

    Means and sums of squares about them are merged block by block (Chan, Golub and LeVeque), in order.
    """
    n = 0
    mean = np.zeros(contexts.n_features)
    squares = np.zeros(contexts.n_features)
    for m, block_mean, block_squares in over_blocks(contexts, _column_moments, report, "scales of features"):
        if not m:
            continue
        delta = block_mean - mean
        squares += block_squares + delta**2 * (n * m / (n + m))
        mean += delta * (m / (n + m))
        n += m
    deviations = np.sqrt(squares / max(n - 1, 1))
    # A feature without variation has rounding errors of its mean only.
    constant = deviations <= 1e-7 * np.abs(mean)
    return np.where(constant | (deviations == 0), 1.0, deviations)


def _column_moments(block: Any) -> tuple[int, Array, Array]:
    """Return the number of rows, the mean of each column, and its sum of squares about it, in float64."""
    n, p = block.shape
    if isinstance(block, np.ndarray):
        mean = block.mean(axis=0, dtype=np.float64)
        centred = block - mean
        return n, mean, np.einsum("ij,ij->j", centred, centred)
    if isinstance(block, LowRankRows):
        everything = scipy.sparse.csr_array(np.ones((1, n)))
        mean = (everything @ block)[0] / max(n, 1)
        return n, mean, np.maximum(block.squares_by(everything)[0] - n * mean**2, 0)
    sums = np.bincount(block.indices, weights=block.data, minlength=p)
    squared = np.bincount(block.indices, weights=np.square(block.data, dtype=np.float64), minlength=p)
    # Rows with an entry are few in a sparse column, so nothing is lost in the difference.
    return n, sums / max(n, 1), np.maximum(squared - sums**2 / max(n, 1), 0)
