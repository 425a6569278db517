"""Rows on a device: their covariances and scores are computed where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ._check import Array, Report, check_finite
from ._namespace import (
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
from .contexts import ContextCovariances, Contexts, named_blocks, read_contexts

_CHUNK = 2**24  # numbers in a centred copy of rows: 128 MB in float64


@dataclass(frozen=True)
class DeviceContexts(Contexts):
    """``Contexts`` whose values are ``arrays`` on a device; ``sources`` stand in for their shapes."""

    arrays: Sequence[Any] = ()

    def covariances(self, report: Report) -> ContextCovariances:
        """Return the covariances on the device and the means on the host.

        Cost O(sum_i n_i p^2). Memory the stack and 128 MB, with JAX twice the stack. Rows are centred before they are
        squared. float32 rows are multiplied in float32, some at a time, and added up in float64 where there is float64.
        """
        k, p = len(self.names), self.n_features
        first = self.arrays[0]
        xp = namespace(first)
        wide = widest_float(first)
        dtype = xp.float32 if self.dtype == np.float32 else xp.float64
        # Where entries can be set there is no second copy of the stack.
        S: Any = xp.empty((k, p, p), dtype=dtype, device=device_of(first)) if is_writeable(first) else [None] * k
        means = []
        for i in range(k):
            with np.errstate(invalid="ignore", over="ignore"):  # of libraries that compute by NumPy; looked for below
                mean, scatter = self._moments_of(i, wide, dtype)
            means.append(mean)
            found = xp.astype(scatter / int(self.n_samples[i] - 1), dtype, copy=False)
            if is_writeable(first):
                S[i, ...] = found
            else:
                S[i] = found
            if (i + 1) % max(1, k // 20) == 0 or i + 1 == k:
                report("covariances", i + 1, k)
        S = S if is_writeable(first) else xp.stack(S)
        host = np.asarray(to_host(xp.stack(means)), dtype=np.float64)
        for bad in np.flatnonzero(~np.isfinite(host).all(axis=1)).tolist():
            where = f"X, context {self.names.tolist()[bad]!r},"
            check_finite(to_host(take_rows(self.arrays[bad], self.rows[bad])), where, self.feature_names)
        if not bool(xp.isfinite(xp.sum(xp.linalg.diagonal(S), dtype=wide))):
            raise ValueError(
                f"X is too large for {self.dtype}: its squares overflow. Divide it by a constant, or pass float64."
            )
        return ContextCovariances(S, host.astype(self.dtype), self.n_samples, self.names, self.feature_names)

    def on_host(self) -> Contexts:
        """Return the same contexts with the rows on the host: a copy."""
        copies = {id(array): to_host(array) for array in self.arrays}
        plain = {field.name: getattr(self, field.name) for field in fields(Contexts)}
        return Contexts(**{**plain, "sources": [copies[id(array)] for array in self.arrays]})

    def _moments_of(self, i: int, wide: Any, dtype: Any) -> tuple[Any, Any]:
        """Return the mean (p,) and ``(X_i - mean)^T (X_i - mean)`` (p, p) in the ``wide`` precision."""
        xp, n = namespace(self.arrays[i]), int(self.n_samples[i])
        mean: Any = sum(xp.sum(x, axis=0, dtype=wide) for x in self._chunks(i)) / n
        middle = xp.astype(mean, dtype, copy=False)
        scatter: Any = 0
        for x in self._chunks(i):
            centred = xp.astype(x, dtype, copy=False) - middle
            scatter = scatter + xp.astype(centred.T @ centred, wide, copy=False)
        return mean, scatter

    def _chunks(self, i: int) -> Iterator[Any]:
        rows, n = self.rows[i], int(self.n_samples[i])
        step = max(1, _CHUNK // self.n_features)
        for j in range(0, n, step):
            stop = min(j + step, n)
            part = slice(rows.start + j, rows.start + stop) if isinstance(rows, slice) else rows[j:stop]
            yield take_rows(self.arrays[i], part)


def read_device_contexts(X: Any, y: Any) -> DeviceContexts:
    """Check a device array, or a list, tuple or mapping of them; shapes and labels as ``read_contexts`` does."""
    named = named_blocks(X)
    if named is None:
        plain = read_contexts(stand_in(X), y)
        arrays = [as_float(without_gradient(X))] * len(plain.names)
    else:
        names = named.names.tolist()
        _check_one_kind(names, named.blocks)
        shapes: Any = [stand_in(block) for block in named.blocks]
        plain = read_contexts(dict(zip(names, shapes, strict=True)) if named.by_name else shapes, y)
        arrays = [as_float(without_gradient(block)) for block in named.blocks]
    given = {field.name: getattr(plain, field.name) for field in fields(Contexts)}
    return DeviceContexts(**given, arrays=arrays)


def on_host(moments: ContextCovariances, contexts: Contexts | None) -> tuple[ContextCovariances, Contexts | None]:
    """Return both on the host, for a choice of rank; as they are where they are there already."""
    rows = contexts.on_host() if isinstance(contexts, DeviceContexts) else contexts
    return replace(moments, covariances=to_host(moments.covariances)), rows


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


def map_rows(X: Any, groups: Sequence[tuple[Any, Array, Array]], dtype: np.dtype[Any], *, inverse: bool = False) -> Any:
    """Return ``(x - mean) @ Q.T`` for groups (rows, mean, Q) that make up all rows of X; inverse: ``x @ Q.T + mean``.

    On the device, in float64 where ``dtype`` or X is and the device has it. Memory a copy of X and two of the result.
    """
    xp = namespace(X)
    work = widest_float(X) if X.dtype == xp.float64 or dtype == np.float64 else xp.float32
    means = from_host(np.stack([mean for _, mean, _ in groups]), X, work)
    matrices: dict[int, Any] = {}  # contexts share one, or have one each
    pieces = []
    for i, (rows, _, Q) in enumerate(groups):
        if id(Q) not in matrices:
            matrices[id(Q)] = from_host(Q.T, X, work)
        x, mean = xp.astype(take_rows(X, rows), work, copy=False), means[i, ...]
        pieces.append(x @ matrices[id(Q)] + mean if inverse else (x - mean) @ matrices[id(Q)])
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
