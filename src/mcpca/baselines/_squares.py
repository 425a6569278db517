"""The squared error of a partially symmetric decomposition, shared by the tensor methods.

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


class Value(NamedTuple):
    """f and its gradient (q + k, r): dA above dB."""

    f: float
    gradient: Array


def evaluate(T: Array, A: Array, B: Array) -> Value:
    """Return f and its gradient where ``sum_i ||T_i||^2`` is 1."""
    TA = images(T, A)
    h = np.einsum("rkq,qr->kr", TA, A)
    G = A.T @ A
    fitted = B @ G**2
    Y = np.matmul(B.T[:, None, :], TA)[:, 0].T
    f = 0.5 * (1 - 2 * float(np.vdot(B, h)) + float(np.vdot(B, fitted)))
    return Value(f, np.vstack([2 * (A @ (G * (B.T @ B)) - Y), fitted - h]))


def core_of(problem: Problem) -> tuple[Core, tuple[str, ...]]:
    """Return the core that holds the r components with some room, scaled to norm 1, and the note about it."""
    core = compress(CovarianceStack(problem.S), problem.r)
    k, p, _ = problem.S.shape
    T = core.tensor / max(float(np.linalg.norm(core.tensor)), np.finfo(float).tiny)
    e, q, _ = T.shape
    note = () if (e, q) == (k, p) else (f"Worked in a core of {q} of p={p} directions and {e} of k={k} contexts.",)
    return replace(core, make=lambda: T, mixture=None, whole=None), note


def start(problem: Problem, core: Core, kind: str) -> tuple[Array, Array]:
    """Return A (q, r) and B (e, r) to start from, balanced.

    "random" draws both from a normal distribution; "svd" takes the top singular vectors of the flattening, "jennrich"
    the components of Jennrich's algorithm, and B that fits them by least squares.
    """
    T, r = core.tensor, problem.r
    e, q, _ = T.shape
    if kind == "random":
        A, B = problem.rng.standard_normal((q, r)), problem.rng.standard_normal((e, r))
    else:
        C = np.eye(r) if kind == "svd" else jennrich_components(problem.small, problem.rng)
        A = problem.lift(C) if core.basis is None else core.basis.T @ problem.lift(C)
    A = A / np.linalg.norm(A, axis=0)
    h = np.einsum("rkq,qr->kr", images(T, A), A)
    G = (A.T @ A) ** 2
    if kind == "random":
        # Of the best size as a whole, or the first steps do nothing but find it.
        B *= float(np.vdot(B, h)) / max(float(np.vdot(B, B @ G)), np.finfo(float).tiny)
    else:
        B = np.linalg.solve(G + 1e-12 * np.eye(r), h.T).T
    s, t = balancing(A, B)
    return A * s, B * t


def balancing(A: Array, B: Array) -> tuple[Array, Array]:
    """Return factors (r,) that give column j of A and of B the same norm and leave ``b_ij a_j a_j^T`` as it is."""
    tiny = np.finfo(float).tiny
    a, b = np.linalg.norm(A, axis=0), np.linalg.norm(B, axis=0)
    size = np.cbrt(a**2 * b)
    used = size > 1e-100  # a component that has vanished stays
    return np.where(used, size / np.maximum(a, tiny), 1), np.where(used, size / np.maximum(b, tiny), 1)
