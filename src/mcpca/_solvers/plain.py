"""The power method as the paper has it, many runs side by side, to see how far chance decides.

Per component one random start, two more where that ends with F < 0.99, the best of them taken out of the space; no
block, no refinement (``mspm`` has the notation). Runs differ in their random numbers only, so that they share every
product with the core.

Where contexts are few F is flat along ridges, and power steps take thousands to come to the maximum that they are bound
for. So between blocks of them Newton steps are tried. They count only where F curves down in every direction at each of
them and none lowers F; each is at most ``_LONGEST`` long. On such a ridge there is one maximum, and they end where
power steps would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from .climbing import Layouts, ReducedNewton, layouts_of, unit
from .mspm import row_space

_GOOD_F, _MORE_STARTS = 0.99, 2
_SAME = 1e-9  # two starts that end as high have ended at one maximum: the first is taken, whose sign is its own
_CHECK = 4  # power steps between looks at who has settled
_BLOCK, _LONGER = 40, 1.5  # power steps before the first Newton steps, and how much longer each next block is
_NEWTON_STEPS, _LONGEST, _FLAT = 12, 0.1, 1e-9


class Runs(NamedTuple):
    """Components (m, q, r) of m runs, and for each run whether every component that it took had settled (m,)."""

    components: Array
    settled: Array


def plain_runs(T: Array, r: int, generators: Sequence[np.random.Generator], tol: float, max_iter: int) -> Runs:
    """Return r components of the slices ``T`` (e, q, q), one run for each of the m ``generators``.

    ``max_iter`` bounds the power steps of a start, ``tol`` is the length of the last step. Cost up to
    ``m r max_iter`` contractions of O(q^2 e); memory O(m q (q + e)).
    """
    m, q = len(generators), T.shape[1]
    U, D = row_space(T, r)
    space = FlatteningSpace.of(T, U / D)
    taken = np.zeros((m, 0, r))
    found, settled = np.empty((m, q, r)), np.ones(m, dtype=bool)
    for j in range(r):
        a, F, done = _best(space, taken, generators, 1, tol, max_iter)
        weak = np.flatnonzero(F < _GOOD_F)
        if len(weak):
            chosen = [generators[i] for i in weak.tolist()]
            again, better, others = _best(space, taken[weak], chosen, _MORE_STARTS, tol, max_iter)
            improved = better > F[weak] + _SAME
            a[weak[improved]] = again[improved]
            done[weak[improved]] = others[improved]
        found[:, :, j] = a
        settled &= done
        normal = (a @ space.P)[:, None, :]
        for _ in range(2):  # once more: rounding
            normal = unit(normal - normal @ taken.transpose(0, 2, 1) @ taken)
        taken = np.concatenate([taken, normal], axis=1)
    return Runs(found, settled)


class FlatteningSpace(NamedTuple):
    """The space of the flattening in the layouts that steps ask for; ``P`` (q, r) takes ``T a`` to coordinates."""

    P: Array
    by_context: Array  # T as (e, q q) and (q, e q)
    by_feature: Array
    layouts: Layouts

    @classmethod
    def of(cls, T: Array, P: Array) -> FlatteningSpace:
        e, q, _ = T.shape
        by_feature = np.ascontiguousarray(T.transpose(1, 0, 2)).reshape(q, e * q)
        return cls(P, T.reshape(e, q * q), by_feature, layouts_of(T, P))


class _Starts(NamedTuple):
    """A batch of n starts: a (n, q), b (n, e), F and last step (n,), and the directions they leave out (n, j, r)."""

    a: Array
    b: Array
    F: Array
    step: Array
    taken: Array

    def put(self, rows: Array, other: _Starts) -> None:
        for mine, its in zip(self[:4], other[:4], strict=True):
            mine[rows] = its

    def of(self, rows: Array) -> _Starts:
        return _Starts(*(x[rows] for x in self))


def _best(
    space: FlatteningSpace,
    taken: Array,
    generators: Sequence[np.random.Generator],
    starts: int,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array]:
    """Return for each run the best of ``starts`` maxima, a (m, q) and F (m,), and whether it has settled (m,)."""
    m, q, e = len(generators), len(space.P), len(space.by_context)
    drawn = np.concatenate([g.standard_normal((starts, q + e)) for g in generators])
    n = m * starts
    peaks = _Starts(
        unit(drawn[:, :q]), unit(drawn[:, q:]), np.zeros(n), np.full(n, np.inf), np.repeat(taken, starts, axis=0)
    )
    _climb(space, peaks, tol, max_iter)
    heights = peaks.F.reshape(m, starts)
    top = np.arange(m) * starts + (heights >= heights.max(axis=1, keepdims=True) - _SAME).argmax(axis=1)
    return peaks.a[top], peaks.F[top], peaks.step[top] <= tol


def _climb(space: FlatteningSpace, peaks: _Starts, tol: float, max_iter: int) -> None:
    """Take the starts to their maxima, in place."""
    going, block, left = np.arange(len(peaks.a)), _BLOCK, max_iter
    while len(going) and left > 0:
        peaks.put(going, _power_steps(space, peaks.of(going), tol, min(block, left)))
        left -= block
        block = int(_LONGER * block)
        going = going[peaks.step[going] > tol]
        if len(going):
            near = _newton_steps(space, peaks.of(going), tol)
            ended = near.step <= tol
            peaks.put(going[ended], near.of(ended))
            going = going[~ended]


def _power_steps(space: FlatteningSpace, starts: _Starts, tol: float, n_steps: int) -> _Starts:
    """Take up to ``n_steps`` power steps; F is that of the point before the last of them."""
    P, by_context, by_feature, _ = space
    e, q = len(by_context), len(P)
    out = _Starts(*(x.copy() for x in starts))
    a, b, _, _, taken = starts
    rows = np.arange(len(a))
    for n_iter in range(1, n_steps + 1):
        Tb = (b @ by_context).reshape(-1, q, q)
        c = _left_out(taken, (np.matmul(Tb, a[:, :, None])[:, :, 0] @ P)[:, :, None])[:, :, 0]
        w = c @ P.T
        a = unit(np.matmul(Tb, w[:, :, None])[:, :, 0])
        previous, b = b, unit(np.matmul((w @ by_feature).reshape(-1, e, q), a[:, :, None])[:, :, 0])
        if n_iter % _CHECK and n_iter < n_steps:
            continue
        step = np.linalg.norm(b - previous, axis=1)
        out.put(rows, _Starts(a, b, (c**2).sum(axis=1), step, taken))
        going = step > tol
        rows, a, b, taken = rows[going], a[going], b[going], taken[going]
        if not len(rows):
            break
    return out


def _newton_steps(space: FlatteningSpace, starts: _Starts, tol: float) -> _Starts:
    """Return the maxima that Newton's method climbs to; ``step`` stays infinite where it finds none."""
    by_context, by_matrix, by_feature = space.layouts
    r, q, e = len(by_matrix), starts.a.shape[1], starts.b.shape[1]
    out = _Starts(*(x.copy() for x in starts))
    out.step[:] = np.inf
    a, b, _, _, taken = starts
    rows, least = np.arange(len(a)), np.zeros(len(a))
    for _ in range(_NEWTON_STEPS):
        Vb = _left_out(taken, (b @ by_context).reshape(-1, r, q))
        Va = _left_out(taken, (a @ by_feature).reshape(-1, r, e))
        c = np.matmul(Vb, a[:, :, None])[:, :, 0]
        s = np.linalg.norm(c, axis=1)
        c = c / s[:, None]
        X = (c @ by_matrix).reshape(-1, e, q).transpose(0, 2, 1)
        da, db, down = _definite_step(ReducedNewton.at(a, b, c, s, X, Vb, Va))
        length = np.sqrt((da**2).sum(axis=1) + (db**2).sum(axis=1))
        short = np.minimum(1, _LONGEST / np.maximum(length, np.finfo(float).tiny))[:, None]
        a, b = unit(a + short * da), unit(b + short * db)
        good = down & (s >= least * (1 - 1e-12))
        ended = good & (length <= tol)
        out.put(rows[ended], _Starts(a[ended], b[ended], s[ended] ** 2, length[ended], taken[ended]))
        going = good & ~ended
        rows, a, b, taken, least = rows[going], a[going], b[going], taken[going], s[going]
        if not len(rows):
            break
    return out


def _definite_step(reduced: ReducedNewton) -> tuple[Array, Array, Array]:
    """Return da, db and where F curves down in every direction; elsewhere the steps mean nothing."""
    floor = _FLAT * reduced.S[:, 0, 0]
    down = np.linalg.eigvalsh(reduced.E)[:, 0] > floor
    K = np.linalg.solve(_where(down, reduced.E), reduced.Yy)
    H, rhs = reduced.in_c(K)
    down &= np.linalg.eigvalsh(H)[:, 0] > floor
    da, db = reduced.step(K, np.linalg.solve(_where(down, H), rhs))
    return da, db, down


def _where(good: Array, matrices: Array) -> Array:
    """Put the identity in place of matrices that are not positive definite."""
    return np.where(good[:, None, None], matrices, np.eye(matrices.shape[1]))


def _left_out(taken: Array, Z: Array) -> Array:
    """Project the rows of ``Z`` (n, r, .) off the orthonormal ``taken`` (n, j, r)."""
    return np.asarray(Z - np.matmul(taken.transpose(0, 2, 1), np.matmul(taken, Z)))
