"""The power method as the paper has it, many runs side by side, to see how far chance decides.

``_rank.paper_rule`` calls it for the paper's rule of choosing the rank ("Choosing the rank" in Methods), which compares
the components of runs that differ in their random numbers. Per component there is one random start, two more if that
one ends with F < 0.99, and the best of them is deflated; no blocks, no refinement, both of which would hide the
dependence on chance that the rule measures (``mspm`` has the notation). The runs share every product with the core.

Where contexts are few, F is flat along ridges, and it takes thousands of power steps to reach the maximum that they are
bound for. So Newton steps are tried between blocks of power steps. They count only where F curves down in every
direction at each of them and none lowers F, and each is at most ``_LONGEST_NEWTON_STEP`` long. On such a ridge there is
one maximum, and they end where power steps would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from .climbing import Layouts, ReducedNewton, layouts_of, unit
from .mspm import row_space

# F is 1 at the components of an exact model (Lemma SI-5.4), and a high F means that one of them is near (Lemma SI-5.8).
_GOOD_F = 0.99
_MORE_STARTS = 2  # for a component whose first start ends below _GOOD_F
# Two starts whose F differ by less have ended at one maximum. The first is taken, so that rounding does not decide the
# sign of the component.
_SAME_F = 1e-9
_STEPS_BETWEEN_CHECKS = 4  # power steps between checks of who has settled
# Power steps before the first Newton steps, and how much longer each next block is: Newton steps that were refused are
# repeated ever more rarely, so that they cost a bounded share of the time.
_FIRST_BLOCK = 40
_BLOCK_GROWTH = 1.5
_NEWTON_STEPS = 12
_LONGEST_NEWTON_STEP = 0.1
_FLAT = 1e-9  # curvature, as a share of the root of F, that is not told from zero


class Runs(NamedTuple):
    """Components (m, q, r) of m runs, and for each run whether every component that it took had settled (m,)."""

    components: Array
    settled: Array


class FlatteningSpace(NamedTuple):
    """The space of the flattening in the layouts that steps ask for.

    ``P`` (q, r) takes ``T a`` to coordinates; T itself is held as ``by_context`` (e, q q) and ``by_feature`` (q, e q).
    """

    P: Array
    by_context: Array
    by_feature: Array
    layouts: Layouts

    @classmethod
    def of(cls, T: Array, P: Array) -> FlatteningSpace:
        e, q, _ = T.shape
        by_feature = np.ascontiguousarray(T.transpose(1, 0, 2)).reshape(q, e * q)
        return cls(P, T.reshape(e, q * q), by_feature, layouts_of(T, P))


class _Starts(NamedTuple):
    """A batch of n starts: a (n, q), b (n, e), F and last step (n,), and the directions deflated for each (n, j, r)."""

    a: Array
    b: Array
    F: Array
    step: Array
    deflated: Array

    def put(self, rows: Array, other: _Starts) -> None:
        """Overwrite the given rows in place, all but ``deflated``, which does not change."""
        for stored, new in zip(self[:4], other[:4], strict=True):
            stored[rows] = new

    def rows(self, which: Array) -> _Starts:
        return _Starts(*(part[which] for part in self))


def plain_runs(T: Array, r: int, generators: Sequence[np.random.Generator], tol: float, max_iter: int) -> Runs:
    """Return r components of the slices ``T`` (e, q, q), one run for each of the m ``generators``.

    ``max_iter`` bounds the power steps of a start, ``tol`` is the length of the last step. Cost up to
    ``m r max_iter`` contractions of O(q^2 e); memory O(m q (q + e)).
    """
    m = len(generators)
    q = T.shape[1]
    U, D = row_space(T, r)
    space = FlatteningSpace.of(T, U / D)
    # (m, j, r) after j components: orthonormal rows, in coordinates of V, to which coefficients have to be orthogonal.
    deflated = np.zeros((m, 0, r))
    components = np.empty((m, q, r))
    settled = np.ones(m, dtype=bool)
    for j in range(r):
        a, F, done = _best_maxima(space, deflated, generators, 1, tol, max_iter)
        weak = np.flatnonzero(F < _GOOD_F)
        if len(weak):
            # Only these runs draw again, each from its own generator.
            theirs = [generators[i] for i in weak.tolist()]
            again, F_again, done_again = _best_maxima(space, deflated[weak], theirs, _MORE_STARTS, tol, max_iter)
            improved = F_again > F[weak] + _SAME_F
            a[weak[improved]] = again[improved]
            done[weak[improved]] = done_again[improved]
        components[:, :, j] = a
        settled &= done
        normal = (a @ space.P)[:, None, :]  # n_j = D^-1 U^T a_j, see mspm
        for _ in range(2):  # Gram-Schmidt twice: once leaves rounding that grows with j
            normal = unit(normal - normal @ deflated.transpose(0, 2, 1) @ deflated)
        deflated = np.concatenate([deflated, normal], axis=1)
    return Runs(components, settled)


def _best_maxima(
    space: FlatteningSpace,
    deflated: Array,
    generators: Sequence[np.random.Generator],
    starts: int,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array]:
    """Return for each run the best of ``starts`` maxima, a (m, q) and F (m,), and whether it has settled (m,)."""
    m = len(generators)
    q = len(space.P)
    e = len(space.by_context)
    # Each run draws from its own generator, whatever the others need, so that runs do not depend on their company.
    drawn = np.concatenate([g.standard_normal((starts, q + e)) for g in generators])
    # The starts of a run are neighbours in the batch, here, in ``np.repeat`` and in the reshape of F below.
    n = m * starts
    peaks = _Starts(
        unit(drawn[:, :q]), unit(drawn[:, q:]), np.zeros(n), np.full(n, np.inf), np.repeat(deflated, starts, axis=0)
    )
    _climb_in_place(space, peaks, tol, max_iter)
    heights = peaks.F.reshape(m, starts)
    first_of_the_best = (heights >= heights.max(axis=1, keepdims=True) - _SAME_F).argmax(axis=1)
    top = np.arange(m) * starts + first_of_the_best
    return peaks.a[top], peaks.F[top], peaks.step[top] <= tol


def _climb_in_place(space: FlatteningSpace, peaks: _Starts, tol: float, max_iter: int) -> None:
    """Take the starts to their maxima, in place: blocks of power steps with tries of Newton's method between."""
    going = np.arange(len(peaks.a))
    block = _FIRST_BLOCK
    left = max_iter
    while len(going) and left > 0:
        peaks.put(going, _power_steps(space, peaks.rows(going), tol, min(block, left)))
        # Newton steps do not count: they shorten the way to where power steps are bound, and no more.
        left -= block
        block = int(_BLOCK_GROWTH * block)
        going = going[peaks.step[going] > tol]
        if len(going):
            near = _newton_steps(space, peaks.rows(going), tol)
            # The others go on by power steps from where those left them, so that a try that fails leaves no trace.
            ended = near.step <= tol
            peaks.put(going[ended], near.rows(ended))
            going = going[~ended]


def _power_steps(space: FlatteningSpace, starts: _Starts, tol: float, n_steps: int) -> _Starts:
    """Take up to ``n_steps`` power steps; F is that of the point before the last of them."""
    P = space.P
    e, q = len(space.by_context), len(P)
    out = _Starts(*(part.copy() for part in starts))
    a, b, _, _, deflated = starts
    rows = np.arange(len(a))
    for n_iter in range(1, n_steps + 1):
        # c = V(a, b, .) less what is deflated, a = V(., b, c), b = V(a, ., c); w = P c as in ``climbing``.
        # sum_i b_i T_i (n, q, q), for c and a; symmetric, so that either index may be contracted.
        Tb = (b @ space.by_context).reshape(-1, q, q)
        c = _project_off(deflated, (np.matmul(Tb, a[:, :, None])[:, :, 0] @ P)[:, :, None])[:, :, 0]
        w = c @ P.T
        a = unit(np.matmul(Tb, w[:, :, None])[:, :, 0])
        previous = b
        b = unit(np.matmul((w @ space.by_feature).reshape(-1, e, q), a[:, :, None])[:, :, 0])
        if n_iter % _STEPS_BETWEEN_CHECKS and n_iter < n_steps:
            continue
        step = np.linalg.norm(b - previous, axis=1)
        # c is that of a and b before this step. F of those after it would take another contraction, and F has settled
        # when they have.
        out.put(rows, _Starts(a, b, (c**2).sum(axis=1), step, deflated))
        going = step > tol
        rows = rows[going]
        if not len(rows):
            break
        a = a[going]
        b = b[going]
        deflated = deflated[going]
    return out


def _newton_steps(space: FlatteningSpace, starts: _Starts, tol: float) -> _Starts:
    """Return the maxima that Newton's method climbs to; ``step`` stays infinite if it finds none."""
    by_context, by_matrix, by_feature = space.layouts
    r = len(by_matrix)
    q, e = starts.a.shape[1], starts.b.shape[1]
    out = _Starts(*(part.copy() for part in starts))
    out.step[:] = np.inf
    a, b, _, _, deflated = starts
    rows = np.arange(len(a))
    lowest_s = np.zeros(len(a))  # s = sqrt(F) must not fall
    for _ in range(_NEWTON_STEPS):
        # What is deflated differs from run to run, so that V cannot be restricted once for all: its contractions are
        # projected.
        Vb = _project_off(deflated, (b @ by_context).reshape(-1, r, q))
        Va = _project_off(deflated, (a @ by_feature).reshape(-1, r, e))
        c = np.matmul(Vb, a[:, :, None])[:, :, 0]
        s = np.linalg.norm(c, axis=1)
        c = c / s[:, None]
        # No projection here: c is orthogonal to what is deflated since Vb is.
        X = (c @ by_matrix).reshape(-1, e, q).transpose(0, 2, 1)
        da, db, curves_down = _definite_step(ReducedNewton.at(a, b, c, s, X, Vb, Va))
        length = np.sqrt((da**2).sum(axis=1) + (db**2).sum(axis=1))
        shrink = np.minimum(1, _LONGEST_NEWTON_STEP / np.maximum(length, np.finfo(float).tiny))[:, None]
        a = unit(a + shrink * da)
        b = unit(b + shrink * db)
        # A step that was taken where F does not curve down, or that has lowered F, may have left the ridge: give up.
        # s is that of the point before the step, so that a step which has lowered F shows in the next iteration.
        good = curves_down & (s >= lowest_s * (1 - 1e-12))
        ended = good & (length <= tol)
        out.put(rows[ended], _Starts(a[ended], b[ended], s[ended] ** 2, length[ended], deflated[ended]))
        going = good & ~ended
        rows = rows[going]
        if not len(rows):
            break
        a = a[going]
        b = b[going]
        deflated = deflated[going]
        lowest_s = s[going]
    return out


def _definite_step(equations: ReducedNewton) -> tuple[Array, Array, Array]:
    """Return da, db, and for which starts F curves down in every direction; the other steps mean nothing."""
    floor = _FLAT * equations.S[:, 0, 0]
    # Elimination leaves the blocks s, E and H of minus the Hessian in (a, b, c): all of them are positive definite
    # exactly when F curves down in every direction.
    down = np.linalg.eigvalsh(equations.E)[:, 0] > floor
    K = np.linalg.solve(_identity_unless(down, equations.E), equations.Yy)
    H, rhs = equations.in_c(K)
    down &= np.linalg.eigvalsh(H)[:, 0] > floor
    da, db = equations.step(K, np.linalg.solve(_identity_unless(down, H), rhs))
    return da, db, down


def _identity_unless(good: Array, matrices: Array) -> Array:
    """Put the identity in place of matrices that are not positive definite, so that a batch can be solved."""
    return np.where(good[:, None, None], matrices, np.eye(matrices.shape[1]))


def _project_off(deflated: Array, Z: Array) -> Array:
    """Project the columns of ``Z`` (n, r, .) off the orthonormal rows of ``deflated`` (n, j, r)."""
    return np.asarray(Z - np.matmul(deflated.transpose(0, 2, 1), np.matmul(deflated, Z)))
