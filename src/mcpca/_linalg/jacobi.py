"""Jacobi rotations of an orthogonal frame: all pairs of axes in turn, disjoint pairs at once.

The solvers for orthonormal components and ``_model.common_components`` start with a sweep or two of it, and leave the
last digits to Newton's method (``stiefel``); the baselines "jacobi" and "qrj1d" consist of it. The criterion comes in
as a function that gives the best angle of a pair. A rotation of axes (j, l) touches only rows and columns j and l, so
disjoint pairs do not disturb each other and a sweep is q - 1 rounds of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._utils.types import Array

_CALM = 0.05  # radians: a sweep whose largest rotation is below this leaves the rest to Newton's method
_GRID_ANGLES = 16  # at which a pair with an axis outside the components is looked at for the higher of two maxima
_GRID_NEWTON_STEPS = 3  # from the best of them to full precision


def round_robin(q: int, r: int) -> list[tuple[Array, Array]]:
    """Return rounds of disjoint pairs (j, l), j < l and j < r, in which every such pair occurs once.

    The circle method of tournaments: one player keeps the seat, the others move on by one.
    """
    even = q + q % 2  # with q odd, whoever meets the last one sits out
    circle = np.arange(1, even)
    rounds = []
    for shift in range(even - 1):
        # Seats in a row, folded in the middle: the first meets the last, the second the last but one, and so on.
        players = np.concatenate([[0], np.roll(circle, shift)])
        one = players[: even // 2]
        two = players[: even // 2 - 1 : -1]
        J = np.minimum(one, two)
        L = np.maximum(one, two)
        # Without the bye of an odd q, and without pairs outside the components: such a rotation changes no component.
        play = (r > J) & (q > L)
        if play.any():
            rounds.append((J[play], L[play]))
    return rounds


def jacobi_sweeps(
    T: Array,
    frame: Array,
    r: int,
    angle: Callable[[Array, Array, Array, Array], Array],
    max_sweeps: int,
) -> tuple[Array, int]:
    """Rotate pairs of axes of the orthogonal ``frame`` (q, q), each to its best angle, one round of pairs at a time.

    Axes from r on are not components: pairs of them stay. ``angle(mean, half, off, both)`` gets, for m pairs (j, l),
    ``(R_jj + R_ll)/2``, ``(R_jj - R_ll)/2`` and ``R_jl`` as (m, k), with R_i the slice in the frame, and whether l is a
    component like j (m,); rotating by theta makes R_jj ``mean + half cos 2 theta + off sin 2 theta``. Stops when the
    largest rotation of a sweep is small.
    """
    # T (k, q, q), R (q, q, k), J and L (m,) for the m pairs of a round, theta (m,).
    q = len(frame)
    frame = frame.copy()
    # Contexts last, so that rows and columns are gathered in contiguous pieces.
    R = np.ascontiguousarray((frame.T @ T @ frame).transpose(1, 2, 0))
    rounds = round_robin(q, r)
    sweeps = 0
    largest = np.inf
    while rounds and sweeps < max_sweeps and largest >= _CALM:
        sweeps += 1
        largest = 0.0
        for J, L in rounds:
            first = R[J, J]
            second = R[L, L]
            # Pairs of a round are disjoint, so that all angles are right for the R before any of its rotations.
            theta = angle((first + second) / 2, (first - second) / 2, R[J, L], r > L)
            largest = max(largest, float(np.abs(theta).max()))
            # R <- Q^T R Q and frame <- frame Q: rows, then columns of R, then columns of the frame. The last two are
            # views, so that one function turns rows in place for all three.
            for rows in (R, R.transpose(1, 0, 2), frame.T[:, :, None]):
                _turn_rows(rows, J, L, theta)
    return frame, sweeps


def _turn_rows(rows: Array, J: Array, L: Array, theta: Array) -> None:
    """Rotate rows J towards rows L, in place."""
    c = np.cos(theta)[:, None, None]
    s = np.sin(theta)[:, None, None]
    # Indexing by arrays copies, so the old rows survive the assignments below.
    first = rows[J]
    second = rows[L]
    rows[J] = c * first + s * second
    rows[L] = c * second - s * first


def squares_angle(mean: Array, half: Array, off: Array, both: Array) -> Array:
    """Return the angle that maximises the squares of both variances of a pair, or of the first if l is no component.

    With ``u = half cos 2 theta + off sin 2 theta`` they are the sum over contexts of ``2 u^2`` and a constant (Cardoso
    and Souloumiac, SIAM J. Matrix Anal. Appl. 17, 1996: an eigenvector of a 2 x 2 matrix), or of ``(mean + u)^2``.
    """
    dd = (half**2).sum(axis=1)
    oo = (off**2).sum(axis=1)
    do = (half * off).sum(axis=1)
    # In (-pi/4, pi/4]: the axes keep their places where they can.
    # sum_i u_i^2 is, up to a constant, (dd - oo)/2 cos 4 theta + do sin 4 theta.
    inner = np.arctan2(2 * do, dd - oo) / 4
    # With q = r all pairs are of this kind, and the grid is never needed.
    if both.all():
        return np.asarray(inner)
    outer = _first_square_angle(dd, oo, do, (mean * half).sum(axis=1), (mean * off).sum(axis=1))
    return np.asarray(np.where(both, inner, outer))


def _first_square_angle(dd: Array, oo: Array, do: Array, d: Array, o: Array) -> Array:
    """Return the angle that maximises ``sum_i (mean_i + u_i)^2``, from the sums over contexts of products (m,).

    A trigonometric polynomial of degree 2 in phi = 2 theta has two maxima at most: find the higher on a grid, polish it
    by Newton's method, and stay where nothing is gained.
    """

    # Up to the constant sum_i mean_i^2. With u = half C + off S the squares are sums that do not depend on phi, so that
    # contexts enter once and not for every angle.
    def gain(phi: Array) -> Array:
        C = np.cos(phi)
        S = np.sin(phi)
        return np.asarray(dd * C**2 + oo * S**2 + 2 * (do * C * S + d * C + o * S))

    grid = 2 * np.pi * np.arange(_GRID_ANGLES) / _GRID_ANGLES
    values = gain(grid[:, None])
    # Angle 0 wins ties: axes that cannot be told apart stay.
    phi = np.where(values.max(axis=0) > values[0], grid[np.argmax(values, axis=0)], 0)
    # The same rotation by the shorter way, so that theta is within a quarter turn.
    phi = np.where(phi > np.pi, phi - 2 * np.pi, phi)
    for _ in range(_GRID_NEWTON_STEPS):
        C = np.cos(phi)
        S = np.sin(phi)
        first = (oo - dd) * 2 * C * S + 2 * do * (C**2 - S**2) + 2 * (o * C - d * S)
        # Only downward curvature, and no farther than half a grid cell: otherwise the other maximum is in reach.
        second = 2 * (oo - dd) * (C**2 - S**2) - 8 * do * C * S - 2 * (o * S + d * C)
        step = np.divide(-first, second, out=np.zeros_like(first), where=second < 0)
        phi = phi + np.clip(step, -np.pi / _GRID_ANGLES, np.pi / _GRID_ANGLES)
    # A step that has not raised the criterion, by rounding or in a flat place, is not taken.
    return np.asarray(np.where(gain(phi) > values[0], phi, 0) / 2)
