"""Rows on a device: their covariances and scores are computed where they are."""

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
    namespace,
    stand_in,
    take_rows,
    to_host,
    widest_float,
    without_gradient,
)
from .._utils.types import Array, Report
from .context_covariances import ContextCovariances

_CHUNK = 2**24  # numbers in a centred copy of rows: 128 MB in float64


class DeviceSource:
    """Rows in an array on a device, used as they are; ``gather`` and ``scan`` copy what is asked for to the host."""

    in_memory = True
    sparse = False

    def __init__(self, X: Any, where: str) -> None:
        self.array = as_float(without_gradient(X))
        self.shape = check_matrix_shape(self.array.shape, where)
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
    """Check a device array, or a list, tuple or mapping of them; shapes and labels as ``read_contexts`` does."""
    named = named_blocks(X)
    if named is None:
        plain = read_contexts(stand_in(X), y)
        return replace(plain, sources=[DeviceSource(X, "X")] * len(plain.names))
    names = named.names.tolist()
    _check_one_kind(names, named.blocks)
    shapes: Any = [stand_in(block) for block in named.blocks]
    plain = read_contexts(dict(zip(names, shapes, strict=True)) if named.by_name else shapes, y)
    pairs = zip(names, named.blocks, strict=True)
    return replace(plain, sources=[DeviceSource(block, f"X, context {name!r},") for name, block in pairs])


def is_on_device(contexts: Contexts) -> bool:
    """Whether the rows are on a device: those of all contexts are where those of the first are."""
    return isinstance(contexts.sources[0], DeviceSource)


def rows_on_host(contexts: Contexts) -> Contexts:
    """Return the same contexts with the rows on the host: a copy."""
    copies = {id(source): DenseSource(source.gather(slice(None)), "X") for source in contexts.sources}
    return replace(contexts, sources=[copies[id(source)] for source in contexts.sources])


def device_covariances(contexts: Contexts, report: Report) -> ContextCovariances:
    """Return the covariances on the device and the means on the host.

    Cost O(sum_i n_i p^2). Memory the stack and 128 MB, with JAX twice the stack. Rows are centred before they are
    squared. float32 rows are multiplied in float32, some at a time, and added up in float64 where there is float64.
    """
    k, p = len(contexts.names), contexts.n_features
    first = _array(contexts, 0)
    xp, wide = namespace(first), widest_float(first)
    dtype = xp.float32 if contexts.dtype == np.float32 else xp.float64
    # Where entries can be set there is no second copy of the stack.
    S: Any = xp.empty((k, p, p), dtype=dtype, device=device_of(first)) if is_writeable(first) else [None] * k
    means = []
    for i in range(k):
        with np.errstate(invalid="ignore", over="ignore"):  # of libraries that compute by NumPy; looked for below
            mean, scatter = _moments_of(contexts, i, wide, dtype)
        means.append(mean)
        found = xp.astype(scatter / int(contexts.n_samples[i] - 1), dtype, copy=False)
        if is_writeable(first):
            S[i, ...] = found
        else:
            S[i] = found
        if (i + 1) % max(1, k // 20) == 0 or i + 1 == k:
            report("covariances", i + 1, k)
    S = S if is_writeable(first) else xp.stack(S)
    host = np.asarray(to_host(xp.stack(means)), dtype=np.float64)
    for bad in np.flatnonzero(~np.isfinite(host).all(axis=1)).tolist():
        contexts.check_finite(bad)
    if not bool(xp.isfinite(xp.sum(xp.linalg.diagonal(S), dtype=wide))):
        raise ValueError(
            f"X is too large for {contexts.dtype}: its squares overflow. Divide it by a constant, or pass float64."
        )
    return ContextCovariances(
        S, host.astype(contexts.dtype), contexts.n_samples, contexts.names, contexts.feature_names
    )


def _moments_of(contexts: Contexts, i: int, wide: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the mean (p,) and ``(X_i - mean)^T (X_i - mean)`` (p, p) in the ``wide`` precision."""
    xp, n = namespace(_array(contexts, i)), int(contexts.n_samples[i])
    mean: Any = sum(xp.sum(x, axis=0, dtype=wide) for x in _chunks(contexts, i)) / n
    middle = xp.astype(mean, dtype, copy=False)
    scatter: Any = 0
    left: Any = 0
    for x in _chunks(contexts, i):
        centred = xp.astype(x, dtype, copy=False) - middle
        left = left + xp.sum(centred, axis=0, dtype=wide)
        scatter = scatter + xp.astype(centred.T @ centred, wide, copy=False)
    scatter = scatter - left[:, None] * (left / n)[None, :]  # what the rounding of the mean has added
    varies = xp.linalg.diagonal(scatter) > (n - 1) * (mean * float(np.finfo(contexts.dtype).eps)) ** 2
    varies = xp.astype(varies, wide)  # not so where a feature is constant up to the rounding of its mean
    return mean, scatter * varies[:, None] * varies[None, :]


def _chunks(contexts: Contexts, i: int) -> Iterator[Any]:
    array, n = _array(contexts, i), int(contexts.n_samples[i])
    for start, stop in equal_blocks(n, _CHUNK // contexts.n_features):
        yield take_rows(array, contexts.row_numbers(i, start, stop))


def _array(contexts: Contexts, i: int) -> Any:
    source = contexts.sources[i]
    assert isinstance(source, DeviceSource)
    return source.array


def finite_rows(X: Any, A: Array, where: str, features: Array | None) -> Any:
    """Return rows on a device, X, as floats, or those on the host, A; raise where one is not finite."""
    if not is_device_array(X):
        check_finite(A, where, features)
        return A
    X = as_float(without_gradient(X))
    xp = namespace(X)
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

    ``inverse`` asks for ``x @ Q.T + mean``.

    On the device, in float64 where ``dtype`` or X is and the device has it. Memory a copy of X and two of the result.
    """
    xp = namespace(X)
    work = widest_float(X) if X.dtype == xp.float64 or dtype == np.float64 else xp.float32
    means = from_host(np.stack([mean for _, mean in groups]), X, work)
    sent: dict[int, Any] = {}  # contexts share a matrix, or have one each
    pieces = []
    for i, ((rows, _), Q) in enumerate(zip(groups, matrices, strict=True)):
        if id(Q) not in sent:
            sent[id(Q)] = from_host(Q.T, X, work)
        x, mean = xp.astype(take_rows(X, rows), work, copy=False), means[i, ...]
        pieces.append(x @ sent[id(Q)] + mean if inverse else (x - mean) @ sent[id(Q)])
    if len(pieces) == 1:
        return pieces[0]
    order = np.concatenate([np.arange(X.shape[0])[rows] for rows, *_ in groups])
    return xp.take(xp.concat(pieces), indices(np.argsort(order), X), axis=0)


def _check_one_kind(names: list[Any], blocks: list[Any]) -> None:
    kinds = [kind_of(block) for block in blocks]
    for name, kind in zip(names, kinds, strict=True):
        if kind != kinds[0]:
            raise ValueError(
                f"X mixes arrays of different libraries or devices: context {names[0]!r} is a {kinds[0]} and context "
                f"{name!r} a {kind}. Move all contexts to one device."
            )
