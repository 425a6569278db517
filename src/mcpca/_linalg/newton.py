"""Conjugate gradients for truncated Newton steps: the inner solver of ``lsq``, ``ml``, ``stiefel`` and ``nls``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._utils.types import Array

Operator = Callable[[Array], Array]


def conjugate_gradients(
    hessian: Operator, gradient: Array, precondition: Operator, *, rtol: float, max_iter: int
) -> Array:
    """Solve ``H d = -g`` far enough for a descent step (Steihaug's truncation).

    Stops at the relative residual ``rtol`` (in the norm of the preconditioner), and at the first direction of negative
    curvature, when the solution so far is already a descent direction. Arrays may have any shape. On a manifold the
    caller works in tangent vectors, and retracts what comes back.
    """
    # ``residual`` is H d + g throughout, updated and not recomputed: a product with H is the cost of an iteration.
    d = np.zeros_like(gradient)
    residual = gradient.copy()
    z = precondition(residual)
    direction = -z
    rho = float(np.vdot(residual, z))
    goal = rtol**2 * rho  # rho is the squared norm of the residual in the metric of the preconditioner
    for step in range(max_iter):
        # Also if the preconditioner is not definite or a product has overflowed: the solution so far is kept.
        if rho <= goal or not np.isfinite(rho):
            break
        # Any array shape: ``vdot`` flattens, and is all that the iteration needs of an inner product.
        image = hessian(direction)
        curvature = float(np.vdot(direction, image))
        if curvature <= 0:
            # In the first step there is no solution yet; minus the preconditioned gradient goes down all the same.
            return d if step else direction
        alpha = rho / curvature
        d += alpha * direction
        residual += alpha * image
        z = precondition(residual)
        previous_rho = rho
        rho = float(np.vdot(residual, z))
        # Conjugate to all earlier directions for a symmetric H and a fixed preconditioner.
        direction = -z + (rho / previous_rho) * direction
    return d
