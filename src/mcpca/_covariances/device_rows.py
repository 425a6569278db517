"""Rows on a device: their covariances and scores are computed where they are.

``MCPCA.fit`` reads such rows with ``read_device_contexts``; ``fit_data`` forms their covariances on the device with
``device_covariances`` and hands them on as a ``CovarianceStack``; ``transform`` and its inverse call ``map_rows``. What
needs rows on the host (resampling, passes) copies them with ``rows_on_host``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._data.blocks import check_matrix_shape, equal_blocks, times_power
from .._data.contexts import Contexts, named_blocks, read_contexts
from .._data.sources import DenseSource
from .._data.validation import check_finite
from .._utils.array_api import (
    as_float,
    device_of,
    from_host,
    indices,
    is_device_array,
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
        # NumPy's dtype, which is what the rest of ``Contexts`` compares; as_float has left float32 or float64.
        self.dtype = np.dtype(np.float32 if self.array.dtype == namespace(self.array).float32 else np.float64)
        self.nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize

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


def read_device_contexts(X: Any, y: Any) -> Contexts:
    """Check a device array, or a list, tuple or mapping of them, and its labels.

    ``read_contexts`` checks stand-ins, NumPy arrays of the same shapes that take no memory, so that rules and messages
    are the same for all arrays; the sources are then exchanged for those on the device.
    """
    named = named_blocks(X)
    if named is None:
        checked = read_contexts(stand_in(X), y)
        # One object for all contexts, as the reader of NumPy's arrays has it: identity tells that they share rows.
        return replace(checked, sources=[DeviceSource(X, "X")] * len(checked.names))
    names = named.names.tolist()
    # Before the shapes: arrays on two devices cannot be combined, whatever their shapes.
    _check_one_kind(names, named.blocks)
    shapes: Any = [stand_in(block) for block in named.blocks]
    # By name if the caller passed a mapping, so that contexts get these names, also in messages.
    checked = read_contexts(dict(zip(names, shapes, strict=True)) if named.by_name else shapes, y)
    pairs = zip(names, named.blocks, strict=True)
    return replace(checked, sources=[DeviceSource(block, f"X, context {name!r},") for name, block in pairs])


def is_on_device(contexts: Contexts) -> bool:
    """Whether the rows are on a device: those of all contexts are where those of the first are."""
    return isinstance(contexts.sources[0], DeviceSource)


def rows_on_host(contexts: Contexts) -> Contexts:
    """Return the same contexts with the rows on the host: a copy."""
    # Contexts of a labelled array share one source, which is copied once.
    copies = {id(source): DenseSource(source.gather(slice(None)), "X") for source in contexts.sources}
    return replace(contexts, sources=[copies[id(source)] for source in contexts.sources])


def device_covariances(
    contexts: Contexts, report: Report, factors: NuisanceFactors | None = None
) -> ContextCovariances:
    """Return the covariances on the device and the means on the host; ``factors`` of nuisance are removed.

    Cost O(sum_i n_i p^2). Memory the stack and 128 MB, with JAX twice the stack. Rows are centred before they are
    squared. float32 rows are multiplied in float32, some at a time, and added up in float64 where there is float64.
    """
    k = len(contexts.names)
    p = contexts.n_features
    # S (k, p, p) in the precision of the rows, means (k, p); sums are in ``wide``, float64 where the device has it.
    first = _array(contexts, 0)
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
            report("covariances", i + 1, k)
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
    xp = namespace(_array(contexts, i))
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
    array = _array(contexts, i)
    n = int(contexts.n_samples[i])
    for start, stop in equal_blocks(n, _ROW_CHUNK_NUMBERS // contexts.n_features):
        yield take_rows(array, contexts.row_numbers(i, start, stop))


def _array(contexts: Contexts, i: int) -> Any:
    """Return the device array that has the rows of context i."""
    source = contexts.sources[i]
    assert isinstance(source, DeviceSource)
    return source.array


def finite_rows(X: Any, A: Array, where: str, features: Array | None) -> Any:
    """Return the rows to work on, as floats, and raise where one is not finite: X if it is on a device, else A.

    A sum on the device tells whether there is a NaN or an infinite value; for the message X is copied to the host.
    """
    if not is_device_array(X):
        check_finite(A, where, features)
        return A
    X = as_float(without_gradient(X))
    xp = namespace(X)
    # Not finite if any entry is not. The sum may also have overflowed: the check on the host then finds nothing.
    if not bool(xp.isfinite(xp.sum(X, dtype=widest_float(X)))):
        check_finite(to_host(X), where, features)
    return X


def map_rows(
    X: Any,
    groups: Sequence[tuple[Any, Array]],
    matrices: Sequence[Array],
    dtype: np.dtype[Any],
    *,
    inverse: bool = False,
) -> Any:
    """Return ``(x - mean) @ Q.T`` for groups (rows, mean) that make up all rows of X and their matrices Q.

    With ``inverse``, return ``x @ Q.T + mean``.

    Computed on the device, in float64 if ``dtype`` or X is float64 and the device has it. Memory a copy of X and two of
    the result.
    """
    xp = namespace(X)
    # X (n, p) with Q (r, p), or scores (n, r) with their Q (p, r); means (groups, p).
    work = widest_float(X) if X.dtype == xp.float64 or dtype == np.float64 else xp.float32
    # All means in one transfer: one for each context would cost latency many times over.
    means = from_host(np.stack([mean for _, mean in groups]), X, work)
    on_device: dict[int, Any] = {}  # contexts share a matrix or have one each; each is sent once
    pieces = []
    for i, ((rows, _), Q) in enumerate(zip(groups, matrices, strict=True)):
        if id(Q) not in on_device:
            on_device[id(Q)] = from_host(Q.T, X, work)
        matrix = on_device[id(Q)]
        mean = means[i, ...]
        # Centred in the working precision: a large mean taken off in float32 would take digits with it.
        x = xp.astype(take_rows(X, rows), work, copy=False)
        pieces.append(x @ matrix + mean if inverse else (x - mean) @ matrix)
    # A single group is all rows, in order: gathering would be a copy for nothing.
    if len(pieces) == 1:
        return pieces[0]
    # Pieces are in the order of groups; ``argsort`` inverts that permutation of the rows.
    order = np.concatenate([np.arange(X.shape[0])[rows] for rows, *_ in groups])
    return xp.take(xp.concat(pieces), indices(np.argsort(order), X), axis=0)


def _check_one_kind(names: list[Any], blocks: list[Any]) -> None:
    """Raise where blocks are of different libraries or on different devices."""
    kinds = [kind_of(block) for block in blocks]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"X mixes arrays of different libraries or devices: context {names[0]!r} is a {kinds[0]} and context "
                f"{name!r} a {kind}. Move all contexts to one device."
            )
