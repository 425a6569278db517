"""Rows on a device: their covariances are computed where they are.

``MCPCA.fit`` reads such rows with ``read_device_contexts``; ``fit_data`` forms their covariances on the device with
``device_covariances`` and hands them on as a ``CovarianceStack``. Sparse rows whose covariances would be too large are
passed over on the device (``device_panels``). What needs rows on the host (resampling) copies them with
``rows_on_host``. Scores are in ``device_scores``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from .._data.blocks import check_block, check_matrix_shape, csr_blocks, equal_blocks, times_power
from .._data.contexts import Contexts, named_blocks, read_contexts
from .._data.sources import as_source
from .._utils.array_api import (
    as_float,
    device_of,
    from_host,
    is_sparse_on_device,
    is_writeable,
    kind_of,
    like,
    namespace,
    stand_in,
    take_rows,
    to_host,
    widest_float,
    without_gradient,
)
from .._utils.device_csr import DeviceCSR
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .context_covariances import ContextCovariances
from .nuisance import NuisanceFactors, degrees_of_freedom
from .passes import overflow

# Numbers in a centred copy of rows, 128 MB in float64. Larger copies take memory of the device that may be scarce;
# smaller ones do not fill it.
_ROW_CHUNK_NUMBERS = 2**24
# Reports of progress while covariances are formed.
_PROGRESS_REPORTS = 20


class DeviceSource:
    """Rows in an array on a device, which stay there; ``gather`` and ``scan`` copy the rows asked for to the host."""

    in_memory = True
    sparse = False

    def __init__(self, X: Any, where: str) -> None:
        # Detached: otherwise every product would be recorded for a backward pass, with its arguments kept in memory.
        self.array = as_float(without_gradient(X))
        self.shape = check_matrix_shape(self.array.shape, where)
        self.dtype = _numpy_dtype(self.array)
        self.nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def reference(self) -> Any:
        """An array on the device."""
        return self.array

    def dense_rows(self, rows: slice | Array) -> Any:
        """Return these rows as a dense array on the device."""
        return take_rows(self.array, rows)

    def transposed_product(self, rows: slice | Array, W: Array) -> Array:
        """Return ``W^T X`` (m, p) of these rows on the host, for W (n, m): products are made on the device."""
        wide = widest_float(self.array)
        xp = namespace(self.array)
        total: Any = 0
        numbers = np.arange(self.shape[0])[rows]
        for start, stop in equal_blocks(len(numbers), _ROW_CHUNK_NUMBERS // self.shape[1]):
            x = xp.astype(take_rows(self.array, numbers[start:stop]), wide, copy=False)
            total = total + from_host(W[start:stop].T, self.array, wide) @ x
        return np.asarray(to_host(total), dtype=np.float64)

    def scaled(self, e: int) -> DeviceSource:
        """Return the rows times ``2^-e``: a copy on the device."""
        return DeviceSource(times_power(self.array, -e), "X")

    def gather(self, rows: slice | Array) -> Array:
        """Return these rows in this order."""
        return np.asarray(to_host(take_rows(self.array, rows)))

    def scan(self, max_bytes: int) -> Iterator[tuple[int, Array]]:
        """Yield (number of the first row, block)."""
        for first, stop in equal_blocks(self.shape[0], max_bytes // (self.shape[1] * self.dtype.itemsize)):
            yield first, self.gather(slice(first, stop))


class SparseDeviceSource:
    """Sparse rows on a device, which stay there; ``gather`` and ``scan`` copy the rows asked for to the host as CSR."""

    in_memory = True
    sparse = True

    def __init__(self, X: Any, where: str) -> None:
        shape = check_matrix_shape(X.shape, where)
        self.csr = DeviceCSR.of(X, where)
        self.shape = shape
        self.dtype = _numpy_dtype(self.csr.values)
        # As SciPy's rows with indices of 4 bytes, so that the same rows are passed over, or not, wherever they are.
        self._entry_bytes = self.dtype.itemsize + 4
        self.nbytes = self.csr.nnz * self._entry_bytes + 4 * (shape[0] + 1)

    @property
    def reference(self) -> Any:
        """An array on the device."""
        return self.csr.values

    @cached_property
    def largest_entry(self) -> float:
        """The largest absolute value; that of finite ones is enough, since others are found by later checks."""
        values = self.csr.values
        xp = namespace(values)
        if not self.csr.nnz:
            return 0.0
        return float(xp.max(xp.abs(xp.where(xp.isfinite(values), values, xp.zeros_like(values)))))

    def dense_rows(self, rows: slice | Array) -> Any:
        """Return these rows as a dense array on the device."""
        return self.csr.rows(rows).toarray()

    def transposed_product(self, rows: slice | Array, W: Array) -> Array:
        """Return ``W^T X`` (m, p) of these rows on the host, for W (n, m): products are made on the device."""
        some = self.csr.rows(rows)
        wide = widest_float(some.values)
        columns = some.with_values(namespace(some.values).astype(some.values, wide, copy=False)).transposed()
        return np.asarray(to_host(columns @ from_host(W, some.values, wide)), dtype=np.float64).T

    def scaled(self, e: int) -> SparseDeviceSource:
        """Return the rows times ``2^-e``: a copy of the values on the device."""
        return SparseDeviceSource(self.csr.with_values(times_power(self.csr.values, -e)), "X")

    def gather(self, rows: slice | Array) -> Any:
        """Return these rows in this order."""
        return self.csr.rows(rows).to_host()

    def scan(self, max_bytes: int) -> Iterator[tuple[int, Any]]:
        """Yield (number of the first row, block)."""
        for first, stop in csr_blocks(self.csr.pointers, self._entry_bytes, max_bytes):
            yield first, self.gather(slice(first, stop))


def _numpy_dtype(array: Any) -> np.dtype[Any]:
    """Return NumPy's dtype, which is what the rest of ``Contexts`` compares; as_float has left float32 or float64."""
    return np.dtype(np.float32 if array.dtype == namespace(array).float32 else np.float64)


def _device_source(X: Any, where: str) -> DeviceSource | SparseDeviceSource:
    return SparseDeviceSource(X, where) if is_sparse_on_device(X) else DeviceSource(X, where)


def check_finite_entries(csr: DeviceCSR, where: str) -> None:
    """Raise if an entry is not finite; only then rows come to the host, for the message."""
    xp = namespace(csr.values)
    if not bool(xp.isfinite(xp.sum(csr.values, dtype=widest_float(csr.values)))):
        check_block(csr.to_host(), 0, where)


def read_device_contexts(X: Any, y: Any) -> Contexts:
    """Check a device array, or a list, tuple or mapping of them, and its labels.

    ``read_contexts`` checks stand-ins, NumPy arrays of the same shapes that take no memory, so that rules and messages
    are the same for all arrays; the sources are then exchanged for those on the device.
    """
    named = named_blocks(X)
    if named is None:
        checked = read_contexts(stand_in(X), y)
        # One object for all contexts, as the reader of NumPy's arrays has it: identity tells that they share rows.
        return replace(checked, sources=[_device_source(X, "X")] * len(checked.names))
    names = named.names.tolist()
    # Before the shapes: arrays on two devices cannot be combined, whatever their shapes.
    _check_one_kind(names, named.blocks)
    shapes: Any = [stand_in(block) for block in named.blocks]
    # By name if the caller passed a mapping, so that contexts get these names, also in messages.
    checked = read_contexts(dict(zip(names, shapes, strict=True)) if named.by_name else shapes, y)
    pairs = zip(names, named.blocks, strict=True)
    return replace(checked, sources=[_device_source(block, f"X, context {name!r},") for name, block in pairs])


def is_on_device(contexts: Contexts) -> bool:
    """Whether the rows are on a device: those of all contexts are where those of the first are."""
    return isinstance(contexts.sources[0], (DeviceSource, SparseDeviceSource))


def is_sparse_there(contexts: Contexts) -> bool:
    """Whether the rows of all contexts are sparse and on a device."""
    return all(isinstance(source, SparseDeviceSource) for source in contexts.sources)


def device_reference(contexts: Contexts | None) -> Any:
    """Return an array on the device of the rows, in their precision; None if they are on the host."""
    if contexts is None or not is_on_device(contexts):
        return None
    references = [_source(contexts, i).reference for i in range(len(contexts.names))]
    return next(r for r, source in zip(references, contexts.sources, strict=True) if source.dtype == contexts.dtype)


def rows_on_host(contexts: Contexts) -> Contexts:
    """Return the same contexts with the rows on the host: a copy."""
    # Contexts of a labelled array share one source, which is copied once.
    copies: dict[int, Any] = {}
    for source in contexts.sources:
        if id(source) not in copies:
            copies[id(source)] = as_source(source.gather(slice(0, source.shape[0])), "X")
    return replace(contexts, sources=[copies[id(source)] for source in contexts.sources])


def device_covariances(
    contexts: Contexts, report: Report, factors: NuisanceFactors | None = None
) -> ContextCovariances:
    """Return the covariances on the device and the means on the host; ``factors`` of nuisance are removed.

    Cost O(sum_i n_i p^2). Memory the stack and 128 MB, with JAX twice the stack. Rows are centred before they are
    squared, sparse ones made dense for it, 128 MB at a time. float32 rows are multiplied in float32, some at a time,
    and added up in float64 where there is float64.
    """
    k = len(contexts.names)
    p = contexts.n_features
    # S (k, p, p) in the precision of the rows, means (k, p); sums are in ``wide``, float64 where the device has it.
    first = _source(contexts, 0).reference
    xp = namespace(first)
    wide = widest_float(first)
    dtype = xp.float32 if contexts.dtype == np.float32 else xp.float64
    # Where entries can be set there is no second copy of the stack.
    in_place = is_writeable(first)
    S: Any = xp.empty((k, p, p), dtype=dtype, device=device_of(first)) if in_place else [None] * k
    device_means = []
    freedom = degrees_of_freedom(contexts, factors)
    for i in range(k):
        with np.errstate(invalid="ignore", over="ignore"):  # of libraries that compute by NumPy; looked for below
            mean, scatter = _moments_of(contexts, i, wide, dtype)
        device_means.append(mean)
        # ``int``: arrays of the standard combine with Python's numbers, not with NumPy's.
        if factors is not None and len(factors.of(i)):
            nuisance = factors.of(i).T @ factors.of(i)
            scatter = scatter - xp.astype(like(nuisance, first), wide, copy=False)
        covariance = xp.astype(scatter / int(freedom[i]), dtype, copy=False)
        if in_place:
            S[i, ...] = covariance
        else:
            S[i] = covariance
        # About twenty reports, however many contexts there are.
        if (i + 1) % max(1, k // _PROGRESS_REPORTS) == 0 or i + 1 == k:
            report(uneven("covariances"), i + 1, k)
    S = S if in_place else xp.stack(S)
    # NaN and infinite rows are found by their means, and only such contexts are copied to the host for the message.
    means = np.asarray(to_host(xp.stack(device_means)), dtype=np.float64)
    for bad in np.flatnonzero(~np.isfinite(means).all(axis=1)).tolist():
        contexts.check_finite(bad)
    # The trace bounds every entry of a covariance, so one number crosses over and not the stack.
    if not bool(xp.isfinite(xp.sum(xp.linalg.diagonal(S), dtype=wide))):
        raise overflow(contexts)
    return ContextCovariances(
        S, means.astype(contexts.dtype), contexts.n_samples, contexts.names, contexts.feature_names
    )


def _moments_of(contexts: Contexts, i: int, wide: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the mean (p,) and ``(X_i - mean)^T (X_i - mean)`` (p, p) in the ``wide`` precision.

    The formula for centred rows of ``_data.scatter``, without sums in place, which JAX does not have.
    """
    xp = namespace(_source(contexts, i).reference)
    n = int(contexts.n_samples[i])
    mean: Any = sum(xp.sum(x, axis=0, dtype=wide) for x in _row_chunks(contexts, i)) / n
    # As on the host: the mean is rounded to the precision of the rows, and ``shift``, the sum of the centred rows, says
    # by how much it is off.
    rounded_mean = xp.astype(mean, dtype, copy=False)
    scatter: Any = 0
    shift: Any = 0
    for x in _row_chunks(contexts, i):
        centred = xp.astype(x, dtype, copy=False) - rounded_mean
        shift = shift + xp.sum(centred, axis=0, dtype=wide)
        # Products are in the precision of the rows, their sum in the wide one: rounding does not grow with chunks.
        scatter = scatter + xp.astype(centred.T @ centred, wide, copy=False)
    scatter = scatter - shift[:, None] * (shift / n)[None, :]  # what the rounding of the mean has added
    # As ``clear_constant_features`` of the host: a feature is constant where it varies by the rounding of its mean
    # only. By a product with 0 and 1, since not all libraries can set entries.
    varies = xp.linalg.diagonal(scatter) > (n - 1) * (mean * float(np.finfo(contexts.dtype).eps)) ** 2
    varies = xp.astype(varies, wide)
    return mean, scatter * varies[:, None] * varies[None, :]


def _row_chunks(contexts: Contexts, i: int) -> Iterator[Any]:
    """Yield the rows of context i, 128 MB at a time."""
    source = _source(contexts, i)
    n = int(contexts.n_samples[i])
    for start, stop in equal_blocks(n, _ROW_CHUNK_NUMBERS // contexts.n_features):
        yield source.dense_rows(contexts.row_numbers(i, start, stop))


def _source(contexts: Contexts, i: int) -> DeviceSource | SparseDeviceSource:
    """Return the source on a device that has the rows of context i."""
    source = contexts.sources[i]
    assert isinstance(source, (DeviceSource, SparseDeviceSource))
    return source


def _check_one_kind(names: list[Any], blocks: list[Any]) -> None:
    """Raise where blocks are of different libraries or on different devices."""
    kinds = [kind_of(block) for block in blocks]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"X mixes arrays of different libraries or devices: context {names[0]!r} is a {kinds[0]} and context "
                f"{name!r} a {kind}. Move all contexts to one device."
            )
