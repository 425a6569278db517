"""Scores of rows on a device, and rows from scores, computed where they are.

``transform`` and ``inverse_transform`` call ``finite_rows`` for the check and ``map_rows`` for the products; in between
sparse rows are a ``DeviceCSR``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._data.validation import check_finite
from .._utils.array_api import (
    as_float,
    device_of,
    from_host,
    indices,
    is_device_array,
    is_sparse_on_device,
    namespace,
    take_rows,
    to_host,
    widest_float,
    without_gradient,
)
from .._utils.device_csr import DeviceCSR
from .._utils.types import Array
from .device_rows import check_finite_entries


def finite_rows(X: Any, A: Array, where: str, features: Array | None) -> Any:
    """Return the rows to work on, as floats, and raise where one is not finite: X if it is on a device, else A.

    Sparse rows on a device are returned as ``DeviceCSR``. A sum on the device tells whether there is a NaN or an
    infinite value; for the message X is copied to the host.
    """
    if not is_device_array(X):
        check_finite(A, where, features)
        return A
    if is_sparse_on_device(X):
        csr = DeviceCSR.of(X, where)
        check_finite_entries(csr, where)
        return csr
    X = as_float(without_gradient(X))
    xp = namespace(X)
    # Not finite if any entry is not. The sum may also have overflowed: the check on the host then finds nothing.
    if not bool(xp.isfinite(xp.sum(X, dtype=widest_float(X)))):
        check_finite(to_host(X), where, features)
    return X


def mean_of_rows(X: Any, rows: slice | Array) -> Array:
    """Return the mean (p,) of some rows on a device, dense or ``DeviceCSR``, on the host."""
    if not isinstance(X, DeviceCSR):
        return np.asarray(to_host(namespace(X).mean(take_rows(X, rows), axis=0)))
    xp = namespace(X.values)
    wide = widest_float(X.values)
    some = X.rows(rows)
    columns = some.with_values(xp.astype(some.values, wide, copy=False)).transposed()
    ones = xp.ones((some.shape[0], 1), dtype=wide, device=device_of(X.values))
    return np.asarray(to_host(columns @ ones), dtype=np.float64)[:, 0] / some.shape[0]


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
    the result. Of sparse rows, ``DeviceCSR``, the scores are centred and not the rows.
    """
    if isinstance(X, DeviceCSR):
        return _scores_of_sparse(X, groups, matrices, dtype)
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


def _scores_of_sparse(
    X: DeviceCSR, groups: Sequence[tuple[Any, Array]], matrices: Sequence[Array], dtype: np.dtype[Any]
) -> Any:
    """Return ``x Q^T - mean Q^T`` of sparse rows: one product if all groups share Q, else one for each."""
    xp = namespace(X.values)
    work = widest_float(X.values) if X.dtype == xp.float64 or dtype == np.float64 else xp.float32
    X = X.with_values(xp.astype(X.values, work, copy=False))
    group_of_row = np.empty(X.shape[0], dtype=np.intp)
    for number, (rows, _) in enumerate(groups):
        group_of_row[rows] = number
    # In float64 on the host: the two terms of a score cancel where means are large.
    offsets = np.stack([mean @ Q.T for (_, mean), Q in zip(groups, matrices, strict=True)])
    shift = xp.take(from_host(offsets, X.values, work), indices(group_of_row, X.values), axis=0)
    if all(Q is matrices[0] for Q in matrices):
        return X @ from_host(matrices[0].T, X.values, work) - shift
    pieces = [X.rows(rows) @ from_host(Q.T, X.values, work) for (rows, _), Q in zip(groups, matrices, strict=True)]
    # Pieces are in the order of groups, and go back to that of the rows.
    order = np.argsort(group_of_row, kind="stable")
    return xp.take(xp.concat(pieces), indices(np.argsort(order), X.values), axis=0) - shift
