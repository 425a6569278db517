"""Newton's method for a function of many variables, some of which have lower bounds (Bertsekas' projected Newton).

The caller passes a function that evaluates a point: value, gradient, products with a Hessian, and a preconditioner.
Variables at their bound whose gradient would push them below it are held; the others take a truncated Newton step
(``newton.conjugate_gradients``), which is cut off at the bounds and shortened until the value falls. ``masked_lsq`` and
``masked_ml`` in ``_solvers`` go down by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from .._utils.types import Array
from .newton import conjugate_gradients

_CG_STEPS = 200
_BACKTRACKS = 30
_SUFFICIENT_DECREASE = 1e-4  # Armijo's share of the decrease that the slope promises


class Evaluated(Protocol):
    """A point of the function: ``x`` (m,), its ``value`` and its ``gradient`` (m,)."""

    x: Array
    value: float
    gradient: Array

    def hessian(self, d: Array) -> Array:
        """Return the product of a Hessian with d (m,)."""
        ...

    def preconditioner(self, free: Array) -> Callable[[Array], Array]:
        """Return an approximate inverse of the Hessian among the ``free`` variables, a mask (m,)."""
        ...


class Descent(NamedTuple):
    """Where a descent ended: the point, the Newton decrement ``-g . d`` left there, and the steps taken."""

    point: Evaluated
    decrement: float
    n_iter: int


def descend(
    evaluate: Callable[[Array], Evaluated], x: Array, lower: Array, goal: Callable[[Evaluated], float], max_iter: int
) -> Descent:
    """Go down from ``x`` until the decrement, about twice what is left to gain, is at most ``goal`` of the point.

    Every accepted step lowers the value. Also ends if no step along the direction does, at the precision of floats.
    ``evaluate`` may return a point with another, equivalent or better, x than it was given.
    """
    point = evaluate(np.maximum(x, lower))
    decrement = np.inf
    for step in range(max_iter):
        # At a bound, with a gradient that points below it: held. All other variables are free.
        free = (point.x > lower) | (point.gradient < 0)
        gradient = np.where(free, point.gradient, 0)
        precondition = point.preconditioner(free)
        d = conjugate_gradients(
            lambda v, point=point, free=free: np.where(free, point.hessian(np.where(free, v, 0)), 0),  # type: ignore[misc]
            gradient,
            lambda v, free=free, precondition=precondition: np.where(free, precondition(v), 0),  # type: ignore[misc]
            rtol=1e-3 if step else 1e-1,
            max_iter=_CG_STEPS,
        )
        decrement = -float(np.vdot(gradient, d))
        if decrement <= goal(point):
            return Descent(point, max(decrement, 0.0), step)
        lower_point = _line_search(evaluate, point, d, lower)
        if lower_point is None:
            return Descent(point, decrement, step)
        point = lower_point
    return Descent(point, decrement, max_iter)


def _line_search(evaluate: Callable[[Array], Evaluated], point: Evaluated, d: Array, lower: Array) -> Evaluated | None:
    """Halve the step until the value falls by a share of what the slope promises; None if it never does."""
    for t in 0.5 ** np.arange(_BACKTRACKS):
        x = np.maximum(point.x + t * d, lower)
        trial = evaluate(x)
        # The slope along the step as it is after it was cut off at the bounds.
        slope = float(np.vdot(point.gradient, x - point.x))
        if np.isfinite(trial.value) and slope < 0 and trial.value <= point.value + _SUFFICIENT_DECREASE * slope:
            return trial
    return None
