"""The squared error of a partially symmetric decomposition, and the starts of the methods that minimise it.

``nls`` and ``minf`` minimise it as it stands, ``als`` the same with the two factors A free to differ. It is the paper's
reconstruction error (Proposition SI-2.5), halved:

    f(A, B) = 1/2 sum_i ||T_i - A diag(b_i) A^T||^2,

B of any sign. With ``G = A^T A``, ``K = B^T B``, ``h_ij = a_j^T T_i a_j``, ``y_j = sum_i b_ij T_i a_j`` and o the
elementwise product

    2 f = sum_i ||T_i||^2 - 2 <B, h> + <B, B (G o G)>,   df/dA = 2 (A (G o K) - Y),   df/dB = B (G o G) - h,

so one evaluation is O(k q^2 r): the product ``T_i A``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._covariances.stack import CovarianceStack, images
from .._covariances.subspace import Core, compress
from .._utils.types import Array
from ._interface import Problem
from .jennrich import jennrich_components


class SquaredError(NamedTuple):
    """f and its gradient (q + k, r): dA above dB."""

    f: float
    gradient: Array


def squared_error(T: Array, A: Array, B: Array) -> SquaredError:
    """Return f and its gradient for slices T with ``sum_i ||T_i||^2 = 1``."""
    # T_i a_j as (r, k, q); h (k, r); Y (q, r).
    TA = images(T, A)
    h = np.einsum("rkq,qr->kr", TA, A)
    G = A.T @ A
    fitted = B @ G**2
    Y = np.matmul(B.T[:, None, :], TA)[:, 0].T
    # A difference of numbers near 1: at an exact fit it is rounding, and may be negative.
    f = 0.5 * (1 - 2 * float(np.vdot(B, h)) + float(np.vdot(B, fitted)))
    return SquaredError(f, np.vstack([2 * (A @ (G * (B.T @ B)) - Y), fitted - h]))


def core_of(problem: Problem) -> tuple[Core, tuple[str, ...]]:
    """Return the core that holds the r components with some room, scaled to norm 1, and the note about it.

    A mixture of contexts is taken as if it were contexts: B of any sign makes no difference between them.
    """
    core = compress(CovarianceStack(problem.S), problem.r)
    k, p, _ = problem.S.shape
    # Norm 1, so that tolerances on f are relative, and the constant in f is known.
    T = core.tensor / max(float(np.linalg.norm(core.tensor)), np.finfo(float).tiny)
    e, q, _ = T.shape
    note = () if (e, q) == (k, p) else (f"Worked in a core of {q} of p={p} directions and {e} of k={k} contexts.",)
    return replace(core, make=lambda: T, mixture=None, whole=None), note


def starting_point(problem: Problem, core: Core, kind: str) -> tuple[Array, Array]:
    """Return A (q, r) and B (e, r) to start from, balanced.

    "random" draws both from a normal distribution; "svd" takes the top singular vectors of the flattening, "jennrich"
    the components of Jennrich's algorithm, and B that fits them by least squares.
    """
    T = core.tensor
    r = problem.r
    e, q, _ = T.shape
    if kind == "random":
        A = problem.rng.standard_normal((q, r))
        B = problem.rng.standard_normal((e, r))
    else:
        # In r dimensions; ``lift`` takes it to features, the basis of the core from there to its q coordinates.
        C = np.eye(r) if kind == "svd" else jennrich_components(problem.small, problem.rng)
        A = problem.lift(C) if core.basis is None else core.basis.T @ problem.lift(C)
    A = A / np.linalg.norm(A, axis=0)
    h = np.einsum("rkq,qr->kr", images(T, A), A)
    G = (A.T @ A) ** 2
    if kind == "random":
        # Scaled as a whole to fit best; otherwise the first steps do nothing but find the scale.
        B *= float(np.vdot(B, h)) / max(float(np.vdot(B, B @ G)), np.finfo(float).tiny)
    else:
        # Columns are of unit length, so G has ones on its diagonal; the ridge is for two that coincide.
        B = np.linalg.solve(G + 1e-12 * np.eye(r), h.T).T
    s, t = balancing(A, B)
    return A * s, B * t


def balancing(A: Array, B: Array) -> tuple[Array, Array]:
    """Return factors (r,) that give column j of A and of B the same norm and leave ``b_ij a_j a_j^T`` as it is.

    The scale of a column is free. Balanced, A and B have curvatures of one size, which gradients and damping need.
    """
    tiny = np.finfo(float).tiny
    a = np.linalg.norm(A, axis=0)
    b = np.linalg.norm(B, axis=0)
    # The product a^2 b is what b_ij a_j a_j^T fixes, so both norms become its cube root.
    size = np.cbrt(a**2 * b)
    used = size > 1e-100  # a component that has vanished stays
    of_A = np.where(used, size / np.maximum(a, tiny), 1)
    of_B = np.where(used, size / np.maximum(b, tiny), 1)
    return of_A, of_B
