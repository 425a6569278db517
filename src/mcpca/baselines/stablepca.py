"""StablePCA: the r directions along which the context with least variance has most.

Wang et al. maximise ``min_i tr(P S_i)`` over projections P of rank r, a problem that is not convex, by way of the
Fantope ``{0 <= P <= I, tr P = r}``, the convex hull of these projections:

    max_P min_q sum_i q_i (tr(P S_i) - c_i)   =   min_q [sum of the r largest eigenvalues of sum_i q_i S_i] - <q, c>,

q non-negative with sum 1. ``c = 0`` is worst variance explained; ``c_i = tr S_i`` is worst error of reconstruction, the
form in which the method was first proposed. Any P is a lower bound and any q an upper one, so their difference
certifies the relaxed solution, and the value of the rounded P beside the upper bound tells what rounding has cost. q
are weights of contexts: where the relaxation is tight the axes are those of PCA with these weights. Only the span is
determined; axes within it are principal axes of ``sum_i q_i S_i``.

Both players move by closed forms: P to the projection on the Fantope of ``P + t sum_i q_i S_i``, q by exponential
weights with the extrapolated ``2 tr(P' S_i) - tr(P S_i)`` (the primal-dual method of Chambolle and Pock, in the
geometries of the authors' mirror-prox). Averages of both converge as 1 / steps; starting anew from an average that has
halved the gap is faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._utils.types import Array
from ._interface import Limits, MethodOutput, Problem, method

_STEPS_BETWEEN_CHECKS = 10
_RESTART = 0.5  # share of the gap at the last restart at which the next is made
_LOST = 0.01  # of the bound: a rounded solution this close to it is called tight


class _Pair(NamedTuple):
    """P (p, p) in the Fantope, q (k,) on the simplex, the values (k,) of P, and upper bound less lower bound."""

    P: Array
    q: Array
    values: Array
    gap: float
    bound: float


@method(
    "stablepca",
    title="StablePCA",
    citation="Z. Wang, M. Liu, J. Lei, F. Bach and Z. Guo, StablePCA (2025), arXiv 2505.00940",
    assumptions="A orthonormal, weighted totals of components distinct; the context with least variance has all of "
    "them.",
    cost="O(p^3 + k p^2) a step, many steps",
    contexts=(1, None),
)
def stablepca(
    problem: Problem,
    *,
    worst: str = "variance",
    tol: float = 1e-4,
    max_iter: int = 5000,
    time_limit: float | None = None,
) -> MethodOutput:
    """Find the span with the largest least variance (``worst="variance"``), or the least largest error (``"error"``).

    Converged when the gap between the bounds of the relaxed problem is at most ``tol`` times the mean of ``tr S_i``.
    ``extras`` has, in units of the mean variance of a feature, the ``value`` of the rounded solution for the worst
    context (an error with a minus sign) and its upper ``bound``; and ``weights`` q by name of context. Cost
    O(p^3 + k p^2) a step, memory O(p^2) beside the covariances.
    """
    if worst not in ("variance", "error"):
        raise ValueError(f"worst={worst!r} is unknown; choose 'variance' or 'error'.")
    limits = Limits(tol, 1e-12, "It is a share of the mean total variance of a context.", max_iter, time_limit)
    S, r = problem.S, problem.r
    k, p, _ = S.shape
    offset = np.einsum("kpp->k", S) if worst == "error" else np.zeros(k)
    flat = np.ascontiguousarray(S).reshape(k, p * p)
    pair, steps, converged = _saddle_point(flat, r, offset, limits)
    # Two ways to a projection; where the relaxation is tight they agree.
    mixed = (pair.q @ flat).reshape(p, p)
    spans = [np.linalg.eigh(M)[1][:, -r:] for M in (pair.P, mixed)]
    values = [float((flat @ (V @ V.T).ravel() - offset).min()) for V in spans]
    V = spans[int(np.argmax(values))]
    value = max(values)
    V = V @ np.linalg.eigh(V.T @ mixed @ V)[1]
    notes = limits.clock.ending(converged, steps, "steps")
    lost = (pair.bound - value) / p
    kind = "tight" if lost <= max(_LOST * abs(pair.bound) / p, limits.tol) else "not tight"
    notes += (f"The relaxation is {kind}: rounding costs {max(lost, 0):.1g} of a context's total variance at most.",)
    weights = dict(zip(problem.names, pair.q.tolist(), strict=True))
    return MethodOutput(V, converged, notes, {"value": value, "bound": pair.bound, "weights": weights})


def _saddle_point(flat: Array, r: int, offset: Array, limits: Limits) -> tuple[_Pair, int, bool]:
    """Return the best pair, the number of steps, and whether its gap is small; ``flat`` is S as (k, p p)."""
    k, pp = flat.shape
    p = round(pp**0.5)
    # |sum_i q_i <S_i, P>| <= |q|_1 |P|_F times this, which bounds the product of the two step sizes.
    size = float(np.linalg.norm(flat, axis=1).max())
    # Of the two step sizes, by the diameters of the two sets; either way the product is 1 / size^2.
    ratio = np.sqrt(min(r, p - r) + 1) / np.sqrt(np.log(k) + 1)

    def judged(P: Array, q: Array) -> _Pair:
        values = flat @ P.ravel() - offset
        bound = float(np.linalg.eigvalsh((q @ flat).reshape(p, p))[-r:].sum() - q @ offset)
        return _Pair(P, q, values, bound - float(values.min()), bound)

    q = np.full(k, 1 / k)
    V = np.linalg.eigh((q @ flat).reshape(p, p))[1][:, -r:]
    best = judged(V @ V.T, q)
    goal = limits.tol * p  # S has mean variance 1
    P, values = best.P, best.values
    mean_P, mean_q, n_mean, last_gap = np.zeros_like(P), np.zeros_like(q), 0, best.gap
    steps = 0
    converged = best.gap <= goal
    while limits.allow(steps, converged):
        P = _on_fantope(P + ratio / size * (q @ flat).reshape(p, p), r)
        new = flat @ P.ravel() - offset
        q = _reweighted(q, (2 * new - values) / (ratio * size))
        values = new
        mean_P, mean_q, n_mean = mean_P + P, mean_q + q, n_mean + 1
        steps += 1
        if steps % _STEPS_BETWEEN_CHECKS:
            continue
        now = min((judged(P, q), judged(mean_P / n_mean, mean_q / n_mean)), key=lambda pair: pair.gap)
        best = min((best, now), key=lambda pair: pair.gap)
        if now.gap <= _RESTART * last_gap:
            P, q, values, last_gap = now.P, np.maximum(now.q, np.finfo(float).tiny), now.values, now.gap
            mean_P, mean_q, n_mean = np.zeros_like(P), np.zeros_like(q), 0
        converged = best.gap <= goal
    return best, steps, converged


def _reweighted(q: Array, loss: Array) -> Array:
    """Return q times ``exp(-loss)``, with sum 1."""
    weight = np.log(np.maximum(q, np.finfo(float).tiny)) - loss
    weight = np.exp(weight - weight.max())
    return np.asarray(weight / weight.sum())


def _on_fantope(M: Array, r: int) -> Array:
    """Return the nearest matrix of the Fantope: eigenvalues ``min(max(w - t, 0), 1)`` with t such that their sum is r.

    The sum falls in t and is linear between the w and the w - 1, so that t is found by interpolation.
    """
    w, V = np.linalg.eigh((M + M.T) / 2)
    knots = np.sort(np.concatenate([w, w - 1]))
    sums = np.clip(w - knots[:, None], 0, 1).sum(axis=1)
    t = np.interp(-r, -sums, knots)
    return np.asarray((V * np.clip(w - t, 0, 1)) @ V.T)
