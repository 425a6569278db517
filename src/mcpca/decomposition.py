"""Covariances in, components and loadings out: the plain function under the estimator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ._check import Array, Report, as_generator, as_report, check_covariances, check_integer, check_rank, check_real
from .canonical import canonical_order
from .loadings import solve_loadings
from .quality import Facets, complete, score_moments
from .solvers import get_solver
from .subspace import Core, compress, numerical_rank, variances_along


@dataclass(frozen=True)
class Decomposition:
    """``S_i ~ components @ diag(loadings[i]) @ components.T``.

    Attributes
    ----------
    components : ndarray (p, r)
        A: unit columns, by decreasing total variance, the largest entry of each positive.
    loadings : ndarray (k, r)
        B >= 0.
    singular_values : ndarray
        The largest singular values of the flattening ``[S_1 ... S_k]``: the scree.
    n_iter : int
        Solver iterations, each a batch of starts.
    converged : bool
        Whether the solver met its tolerance.
    message : str
        What the solver has to say, in a sentence.
    """

    components: Array
    loadings: Array
    singular_values: Array
    n_iter: int
    converged: bool
    message: str


def decompose(
    S: Any,
    r: int,
    *,
    solver: str = "mspm",
    random_state: Any = None,
    tol: float = 1e-7,
    max_iter: int = 200,
    verbose: Any = False,
) -> Decomposition:
    """Decompose covariances of k contexts as ``S_i ~ A diag(b_i) A^T``.

    Parameters
    ----------
    S : array-like (k, p, p)
        Covariances: symmetric, positive semi-definite. float32 is kept in float32 and worked on in float64.
    r : int
        Rank, 1 <= r <= p and at most the numerical rank of ``[S_1 ... S_k]``.
    solver : {"mspm"}
        The multi-subspace power method, the paper's.
    random_state : int, Generator, RandomState or None
        Decides the starts. Where the model is identifiable the answer does not depend on it.
    tol, max_iter : float, int
        When a start is taken as converged, and after how many second-order steps it is given up.
    verbose : bool or callable
        True prints progress to stderr; a function is called with (stage, done, total).

    Returns
    -------
    Decomposition

    Notes
    -----
    Cost O(k p^3 + k p^2 r) and the solver's; memory O(p^2 + k r^2) beside S, which is not copied.
    One context is PCA: its eigenvectors, since a single covariance does not determine more.
    """
    get_solver(solver)
    S = check_covariances(S)
    r = check_rank(r, S.shape[1], "r")
    rng, report = as_generator(random_state), as_report(verbose)
    return decompose_checked(S, r, solver=solver, rng=rng, report=report, tol=tol, max_iter=max_iter)[0]


def decompose_checked(
    S: Array,
    r: int,
    *,
    solver: str,
    rng: np.random.Generator,
    report: Report,
    tol: float,
    max_iter: int,
    core: Core | None = None,
    with_facets: bool = False,
) -> tuple[Decomposition, Facets | None]:
    """``decompose`` for covariances known to be good; ``core`` is reused when given.

    The facets come at little more than the price of the loadings, from the same pass over the covariances.
    """
    tol = check_real(tol, "tol", 1e-15, 1e-2, "It is the length of a step on the unit sphere.")
    max_iter = check_integer(max_iter, "max_iter", 1)
    if core is None:
        report("basis", 0, 1)
        core = compress(S, r)
        report("basis", 1, 1)
    rank = numerical_rank(core.singular_values, S)
    if r > rank:
        raise ValueError(
            f"n_components={r} exceeds the numerical rank of the data, {rank}"
            f"{' or more' if rank == len(core.singular_values) else ''}: the covariances together vary in {rank} "
            f"directions only. Choose n_components <= {rank}."
            if rank
            else "The covariances are all zero: no feature varies in any context, so there is nothing to decompose."
        )
    if len(S) == 1:
        A, n_iter, converged, message = _principal_axes(S[0], r), 1, True, "One context: the answer is PCA's."
    else:
        part = core.leading(r)
        result = get_solver(solver)(part.tensor, r, rng=rng, tol=tol, max_iter=max_iter, report=report)
        A, n_iter, converged, message = part.lift(result.components), result.n_iter, result.converged, result.message
    if not converged:
        warnings.warn(message, ConvergenceWarning, stacklevel=4)
    report("loadings", 0, 1)
    moments = score_moments(S, A) if with_facets else None
    h = variances_along(S, A) if moments is None else moments.variances
    A, B, order = canonical_order(A, solve_loadings((A.T @ A) ** 2, h))
    measured = None if moments is None else complete(moments._replace(variances=h[:, order]), A, B)
    report("loadings", 1, 1)
    A, B = A.astype(S.dtype, copy=False), B.astype(S.dtype, copy=False)
    return Decomposition(A, B, core.singular_values, n_iter, converged, message), measured


def _principal_axes(S: Array, r: int) -> Array:
    """Top eigenvectors of one covariance, without squaring it."""
    vectors: Array = np.linalg.eigh(S.astype(np.float64))[1][:, ::-1][:, :r]
    return vectors
