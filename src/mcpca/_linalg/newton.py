"""Truncated Newton steps on a product of unit spheres or any space that the caller retracts to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._utils.types import Array

Operator = Callable[[Array], Array]


def conjugate_gradients(
    hessian: Operator, gradient: Array, precondition: Operator, *, rtol: float, max_iter: int
) -> Array:
    """Solve ``H d = -g`` far enough for a descent step.

    Stops at the relative residual ``rtol`` (in the norm of the preconditioner), and at the first direction of
    negative curvature, where what was gained so far is a descent direction already.
    """
    d = np.zeros_like(gradient)
    residual = gradient.copy()
    z = precondition(residual)
    direction = -z
    rho = float(np.vdot(residual, z))
    goal = rtol**2 * rho
    for step in range(max_iter):
        if rho <= goal or not np.isfinite(rho):
            break
        image = hessian(direction)
        curvature = float(np.vdot(direction, image))
        if curvature <= 0:
            return d if step else direction
        alpha = rho / curvature
        d += alpha * direction
        residual += alpha * image
        z = precondition(residual)
        rho, previous = float(np.vdot(residual, z)), rho
        direction = -z + (rho / previous) * direction
    return d
