"""Personalised PCA: axes that all contexts share, and others that each has for itself, orthogonal to the shared ones.

Shi and Kontar minimise ``sum_i ||X_i - X_i (U U^T + V_i V_i^T)||^2`` over U (p, r), V_i (p, m), all orthonormal and
``U^T V_i = 0``. With covariances that is to maximise

    f(U) = sum_i [tr U^T S_i U + (sum of the m largest eigenvalues of N^T S_i N)],

N a basis of what is orthogonal to U, since for given U the best V_i are eigenvectors: every context gets r + m
directions, of which r are the same for all. By the envelope theorem, with V_i held at their best, the gradient is
``2 sum_i (I - V_i V_i^T) S_i U``. f depends on the span of U only, so that axes within it are free; here they are the
principal axes of the mean covariance there. In the terms of MCPCA a component is in all contexts or in one, and scores
may be correlated within a context.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from .._utils.arguments import check_integer
from .._utils.types import Array
from ._interface import Limits, MethodOutput, Problem, method

_FLAT = 1e-12  # largest entry of the gradient of f, as a share of all variance, that counts as none


class _Split(NamedTuple):
    """f, its gradient by U (p, r), and the axes of contexts V (k, p, m)."""

    f: float
    gradient: Array
    own: Array


@method(
    "perpca",
    title="personalised PCA",
    citation="N. Shi and R. A. Kontar, Personalized PCA: decoupling shared and unique features, J. Mach. Learn. Res. "
    "25 (2024)",
    assumptions="A orthonormal, in all contexts, with distinct totals; what else varies is in one context each, and "
    "orthogonal to A.",
    cost="O(k p^3) a step",
)
def perpca(
    problem: Problem,
    *,
    unique: int | None = None,
    tol: float = 1e-9,
    max_iter: int = 500,
    time_limit: float | None = None,
) -> MethodOutput:
    """Find r shared components, and ``unique`` more of each context: ``extras["unique"]`` has them (p, unique) by name.

    ``unique=None`` is one, or none if r = p. Contexts count alike. The start is the directions that the r + unique
    leading ones of contexts agree on best, which is exact without noise; from there f is raised by L-BFGS, until a step
    gains less than ``tol`` of it. Cost O(k p^3) a step, memory O(k p^2).
    """
    limits = Limits(tol, 1e-15, "It is a share of the variance explained.", max_iter, time_limit)
    S, r = problem.S, problem.r
    p = S.shape[1]
    if unique is None:
        unique = min(1, p - r)
    unique = check_integer(
        unique, "unique", 0, p - r, f"Shared and unique components together are at most p={p}; lower it, or r={r}."
    )
    U = _agreed(S, r, unique)
    steps = 0
    converged = r == p
    if not converged:
        U, steps, converged = _climb(S, U, unique, limits)
    # Within the span: principal axes of the mean.
    U = U @ np.linalg.eigh(U.T @ S.mean(axis=0) @ U)[1]
    own = dict(zip(problem.names, _split(S, U, unique).own, strict=True))
    notes = limits.clock.ending(converged, steps, "steps")
    notes += (f"{r} shared components, principal axes of the mean covariance in their span; {unique} of each context.",)
    return MethodOutput(U, converged, notes, {"unique": own})


def _agreed(S: Array, r: int, unique: int) -> Array:
    """Return the r directions that the leading r + unique of contexts have most in common."""
    axes = np.linalg.eigh(S)[1][:, :, ::-1][:, :, : r + unique]
    # The mean of projections has eigenvalue 1 along what is in all of these spaces.
    common = np.tensordot(axes, axes, axes=([0, 2], [0, 2]))
    return np.asarray(np.linalg.eigh(common)[1][:, ::-1][:, :r])


def _split(S: Array, U: Array, unique: int) -> _Split:
    """Return f at U with its gradient, and the V_i at which it is attained."""
    r = U.shape[1]
    N = np.linalg.qr(U, mode="complete")[0][:, r:]
    w, E = np.linalg.eigh(N.T @ S @ N)
    w, E = w[:, ::-1][:, :unique], E[:, :, ::-1][:, :, :unique]
    own = N @ E
    SU = S @ U
    gradient = 2 * (SU - own @ (own.transpose(0, 2, 1) @ SU)).sum(axis=0)
    return _Split(float(np.vdot(U, SU.sum(axis=0)) + w.sum()), gradient, own)


def _climb(S: Array, U: Array, unique: int, limits: Limits) -> tuple[Array, int, bool]:
    """Raise f over spans of ``Y = U + N X``, X (p - r, r) free: all spans but those at right angles to U."""
    p, r = U.shape
    N = np.linalg.qr(U, mode="complete")[0][:, r:]
    total = float(np.einsum("kpp->", S))

    def negative(x: Array) -> tuple[float, Array]:
        # f does not change when U is turned within its span, so its gradient by Y is that by U off the span, times the
        # inverse of the triangle that makes Y orthonormal.
        Q, R = np.linalg.qr(U + N @ x.reshape(p - r, r))
        here = _split(S, Q, unique)
        across = here.gradient - Q @ (Q.T @ here.gradient)
        slope = N.T @ np.linalg.solve(R, across.T).T
        return -here.f / total, -slope.ravel() / total

    def watch(x: Array) -> None:
        if limits.clock.over:
            raise StopIteration

    options = {"maxiter": limits.max_iter, "ftol": limits.tol, "gtol": _FLAT}
    end = minimize(negative, np.zeros((p - r) * r), jac=True, method="L-BFGS-B", callback=watch, options=options)
    # SciPy's status: 0 is convergence, 1 a limit of iterations, 99 our own StopIteration. 2 is a line search that
    # cannot go higher, which means that only rounding is left.
    return np.linalg.qr(U + N @ end.x.reshape(p - r, r))[0], int(end.nit), end.status in (0, 2)
