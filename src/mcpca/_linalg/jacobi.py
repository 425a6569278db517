"""Jacobi rotations of an orthogonal frame: all pairs of axes in turn, disjoint pairs at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._utils.types import Array

_CALM = 0.05  # radians: a sweep whose largest rotation is below this leaves the rest to Newton's method
_ANGLES = 16


def round_robin(q: int, r: int) -> list[tuple[Array, Array]]:
    """Return rounds of disjoint pairs (j, l), j < l and j < r, in which every such pair occurs once."""
    even = q + q % 2
    circle = np.arange(1, even)
    rounds = []
    for shift in range(even - 1):
        players = np.concatenate([[0], np.roll(circle, shift)])
        one, two = players[: even // 2], players[: even // 2 - 1 : -1]
        J, L = np.minimum(one, two), np.maximum(one, two)
        play = (r > J) & (q > L)
        if play.any():
            rounds.append((J[play], L[play]))
    return rounds


def jacobi(
    T: Array,
    frame: Array,
    r: int,
    angle: Callable[[Array, Array, Array, Array], Array],
    max_sweeps: int,
) -> tuple[Array, int]:
    """Rotate pairs of axes of the orthogonal ``frame`` (q, q), each to its best angle, one round of pairs at a time.

    Axes from r on are not components: pairs of them stay. ``angle(mean, half, off, kept)`` gets, for m pairs (j, l),
    ``(R_jj + R_ll)/2``, ``(R_jj - R_ll)/2`` and ``R_jl`` as (m, k), with R_i the slice in the frame, and whether l is a
    component (m,); rotating by theta makes R_jj ``mean + half cos 2 theta + off sin 2 theta``. Stops where the
    largest rotation of a sweep is small.
    """
    q = len(frame)
    frame = frame.copy()
    # Contexts last, so that rows and columns are gathered in contiguous pieces.
    R = np.ascontiguousarray((frame.T @ T @ frame).transpose(1, 2, 0))
    rounds = round_robin(q, r)
    sweeps, largest = 0, np.inf
    while rounds and sweeps < max_sweeps and largest >= _CALM:
        sweeps, largest = sweeps + 1, 0.0
        for J, L in rounds:
            first, second = R[J, J], R[L, L]
            theta = angle((first + second) / 2, (first - second) / 2, R[J, L], r > L)
            largest = max(largest, float(np.abs(theta).max()))
            for rows in (R, R.transpose(1, 0, 2), frame.T[:, :, None]):
                _turn_rows(rows, J, L, theta)
    return frame, sweeps


def _turn_rows(rows: Array, J: Array, L: Array, theta: Array) -> None:
    """Rotate rows J towards rows L, in place."""
    c, s = np.cos(theta)[:, None, None], np.sin(theta)[:, None, None]
    first, second = rows[J], rows[L]
    rows[J] = c * first + s * second
    rows[L] = c * second - s * first


def squares_angle(mean: Array, half: Array, off: Array, kept: Array) -> Array:
    """Return the angle that maximises the squares of both variances of a pair, or of the first where l is dropped.

    With ``u = half cos 2 theta + off sin 2 theta`` they are the sum over contexts of ``2 u^2`` and a constant (Cardoso
    and Souloumiac, SIAM J. Matrix Anal. Appl. 17, 1996: an eigenvector of a 2 x 2 matrix), or of ``(mean + u)^2``.
    """
    dd, oo, do = (half**2).sum(axis=1), (off**2).sum(axis=1), (half * off).sum(axis=1)
    # In (-pi/4, pi/4]: the axes keep their places where they can.
    inner = np.arctan2(2 * do, dd - oo) / 4
    if kept.all():
        return np.asarray(inner)
    # A trigonometric polynomial of degree 2 in phi = 2 theta has two maxima at most: find the higher on a grid.
    d, o = (mean * half).sum(axis=1), (mean * off).sum(axis=1)

    def gain(phi: Array) -> Array:
        C, S = np.cos(phi), np.sin(phi)
        return np.asarray(dd * C**2 + oo * S**2 + 2 * (do * C * S + d * C + o * S))

    grid = 2 * np.pi * np.arange(_ANGLES) / _ANGLES
    values = gain(grid[:, None])
    phi = np.where(values.max(axis=0) > values[0], grid[np.argmax(values, axis=0)], 0)
    phi = np.where(phi > np.pi, phi - 2 * np.pi, phi)
    for _ in range(3):
        C, S = np.cos(phi), np.sin(phi)
        first = (oo - dd) * 2 * C * S + 2 * do * (C**2 - S**2) + 2 * (o * C - d * S)
        second = 2 * (oo - dd) * (C**2 - S**2) - 8 * do * C * S - 2 * (o * S + d * C)
        step = np.divide(-first, second, out=np.zeros_like(first), where=second < 0)
        phi = phi + np.clip(step, -np.pi / _ANGLES, np.pi / _ANGLES)
    phi = np.where(gain(phi) > values[0], phi, 0)
    return np.asarray(np.where(kept, inner, phi / 2))
