"""Covariances in, components and loadings out: the plain function under the estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._covariances.device_validation import check_stack
from .._covariances.interface import Covariances
from .._covariances.scaling import stack_in_range
from .._covariances.stack import as_stack
from .._covariances.subspace import Core, compress, numerical_rank
from .._covariances.validation import check_counts
from .._data.alignment import by_name
from .._linalg.canonical import canonical_order
from .._solvers import SOLVERS, Settings, SolverResult, check_solver, get_solver
from .._solvers.loadings import solve_loadings
from .._utils.arguments import as_generator, check_integer, check_rank, check_real, check_unmasked
from .._utils.array_api import like, to_host
from .._utils.printing import Shown, counted, mcpcs
from .._utils.progress import reporting
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from ..exceptions import RankExceedsDataError
from .facets import Facets, complete, score_moments


@dataclass(frozen=True, repr=False)
class Decomposition(Shown):
    """``S_i ~ components @ diag(loadings[i]) @ components.T``, with ``solver="ml"`` plus noise.

    Attributes
    ----------
    components : ndarray (p, r)
        A: unit columns, by decreasing total variance, the largest entry of each positive.
    loadings : ndarray (k, r)
        B >= 0.
    singular_values : ndarray
        The largest singular values of the flattening ``[S_1 ... S_k]``: the scree.
    n_iter : int
        Solver iterations, each a batch of starts or a second-order step.
    converged : bool
        Whether the solver met its tolerance.
    message : str
        What the solver has to say, in a sentence.
    noise : ndarray or None
        Variance beside the components, from ``solver="ml"``: (k,) for isotropic and pooled noise, (p,) for diagonal.
    gradient : float or None
        How far from a stationary point: of "lsq" the norm of the projected gradient in all features, as a share of
        ``sum_i ||S_i||_F^2``; of "ml" the distance to the maximum in standard errors (root mean square over
        parameters, from Newton's decrement); None of the others.
    basis_residual : float
        How well the leading directions are known; 0 for exactly (see ``MCPCA``).
    """

    components: Array
    loadings: Array
    singular_values: Array
    n_iter: int
    converged: bool
    message: str
    noise: Array | None = None
    gradient: float | None = None
    basis_residual: float = 0.0

    def times_power(self, e: int) -> Decomposition:
        """Return the decomposition of covariances times ``4^e``."""
        noise = None if self.noise is None else np.ldexp(self.noise, 2 * e)
        scaled = np.ldexp(self.loadings, 2 * e), np.ldexp(self.singular_values, 2 * e)
        return replace(self, loadings=scaled[0], singular_values=scaled[1], noise=noise)

    def _words(self) -> list[str]:
        (p, r), k = self.components.shape, len(self.loadings)
        return [
            f"{counted(r, 'MCPC')} of {counted(k, 'context')} and {counted(p, 'feature')}, "
            f"{'converged' if self.converged else 'not converged'} after {counted(self.n_iter, 'iteration')}.",
            *([self.message] if self.message else []),
        ]

    def _rows(self) -> dict[str, Any]:
        B = np.asarray(to_host(self.loadings))
        total = B.sum(axis=0)
        shares = {"share of the variance": total / (total.sum() or 1)}
        return {"": mcpcs(len(total)), **shares, "largest loading": B.max(axis=0)}


def decompose(
    S: Any,
    r: int,
    *,
    solver: str = "mspm",
    orthogonal: bool = False,
    noise: str | None = "isotropic",
    n_samples: Any = None,
    context_weights: Any = None,
    random_state: Any = None,
    tol: float = 1e-7,
    max_iter: int = 200,
    verbose: Any = None,
) -> Decomposition:
    """Decompose covariances of k contexts as ``S_i ~ A diag(b_i) A^T``.

    Parameters
    ----------
    S : array-like (k, p, p)
        Covariances: symmetric, positive semi-definite. float32 is kept in float32 and worked on in float64. An array of
        PyTorch, CuPy or JAX stays on its device (extra ``devices``), and the arrays of the result are of its kind.
    r : int
        Rank, 1 <= r <= p and at most the numerical rank of ``[S_1 ... S_k]``.
    solver : {"mspm", "lsq", "ml"}
        "mspm": the multi-subspace power method, the paper's. "lsq": a stationary point of the squared error, the
        paper's definition. "ml": maximum likelihood in a Gaussian model with noise.
    orthogonal : bool
        Orthonormal components: by least squares with "mspm" and "lsq", by likelihood with "ml".
    noise : {"isotropic", "pooled", "diagonal", None}
        For "ml": one variance per context, one for all, one per feature shared by all contexts, or none.
    n_samples : int or array-like (k,), optional
        Rows behind each covariance: the weights of contexts in the likelihood, where they are alike when not given. Of
        no consequence with "mspm" and "lsq".
    context_weights : array-like (k,), optional
        Positive weights of contexts in the squared error (in the likelihood they multiply ``n_samples``). With them a
        weighted copy of S is made.
    random_state : int, Generator, RandomState or None
        Decides the starts. Where the model is identifiable the answer does not depend on it.
    tol, max_iter : float, int
        When a solver is taken as converged: the length of a step on the unit sphere for "mspm", ``gradient`` of the
        result for "lsq", and for "ml" a ten-thousandth of it; and after how many second-order steps it is given up.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    Decomposition

    Notes
    -----
    Cost O(k p^3 + k p^2 r) and the solver's; memory O(p^2 + k r^2) beside S, which is not copied.
    One context is PCA: its eigenvectors, since a single covariance does not determine more.
    """
    options = check_solver(solver, orthogonal, noise)
    S = check_stack(S)
    k, p, _ = S.shape
    r = check_rank(r, p, "r")
    counts = None if n_samples is None else check_counts(n_samples, k)
    weights = None if context_weights is None else check_weights(context_weights, np.arange(k))
    scaled, e = stack_in_range(S)
    options |= {"counts": counts, "weights": weights, "rng": as_generator(random_state), "tol": tol}
    with reporting(verbose, "decomposition") as report:
        found, _ = decompose_checked(as_stack(scaled), r, **options, report=report, max_iter=max_iter)
    return _on_device(found.times_power(e), S)


def decompose_checked(
    S: Covariances,
    r: int,
    *,
    solver: str,
    orthogonal: bool,
    noise: str | None,
    counts: Array | None,
    weights: Array | None,
    rng: np.random.Generator,
    report: Report,
    tol: float,
    max_iter: int,
    core: Core | None = None,
    with_facets: bool = False,
) -> tuple[Decomposition, Facets | None]:
    """``decompose`` for covariances known to be good; ``core`` is reused when given and no weights are.

    The facets come at little more than the price of the loadings, from the same pass over the covariances.
    """
    tol = check_tolerance(tol)
    max_iter = check_integer(max_iter, "max_iter", 1)
    likelihood = SOLVERS[solver].models_noise
    seen = S
    if weights is not None and not likelihood:
        seen, core = S.weighted(np.sqrt(weights)), None
    if core is None:
        report("basis", 0, 1)
        core = compress(seen, r)
        report("basis", 1, 1)
    if core.residual > max(100 * tol, 100 * float(np.finfo(S.dtype).eps)):
        warn(
            f"The leading {r} directions are known to {core.residual:.1e} only (as a share of the smallest of their "
            f"eigenvalues, tol={tol:.1e}): the next ones are nearly as large. Lower the rank to where the scree, "
            "singular_values_, falls, or accept directions that data of this size do not tell apart.",
            ConvergenceWarning,
        )
    rank = numerical_rank(core.singular_values, S)
    if r > rank:
        raise RankExceedsDataError(
            f"n_components={r} exceeds the numerical rank of the data, {rank}"
            f"{' or more' if rank == len(core.singular_values) else ''}: the covariances together vary in {rank} "
            f"directions only. Choose n_components <= {rank}."
            if rank
            else "The covariances are all zero: no feature varies in any context, so there is nothing to decompose."
        )
    # How many samples is not known: only their ratios matter, and when the likelihood counts as converged.
    freedom = np.full(S.n_contexts, 1000.0) if counts is None else counts - 1.0
    if weights is not None and likelihood:
        freedom = freedom * weights
    settings = Settings(rng, tol, max_iter, report, freedom, noise)
    try:
        result = get_solver(solver, orthogonal, S.n_contexts)(seen, core, r, settings)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"solver={solver!r} broke down at rank {r} ({error}): covariances are too close to singular for it. Lower "
            "n_components, or choose another solver."
        ) from error
    if not result.converged:
        warn(result.message, ConvergenceWarning)
    report("loadings", 0, 1)
    A, B, measured = _loadings_and_facets(S, result, with_facets)
    report("loadings", 1, 1)
    if measured is not None and measured.variance_shares.sum() < 0:
        worse = float(measured.reconstruction_errors.sum() / measured.squared_norms.sum())
        warn(
            f"What the model leaves of the covariances is {worse:.2g} times as large as they are (squared): the "
            f"likelihood of covariances that are singular can be largest far from them. Lower n_components={r}, or "
            "take solver='lsq'.",
            ConvergenceWarning,
        )
    A, B = A.astype(S.dtype, copy=False), B.astype(S.dtype, copy=False)
    found = result.noise if result.noise is None else result.noise.astype(S.dtype, copy=False)
    return Decomposition(
        A,
        B,
        core.singular_values,
        result.n_iter,
        result.converged,
        result.message,
        found,
        result.gradient,
        core.residual,
    ), measured


def _loadings_and_facets(S: Covariances, result: SolverResult, with_facets: bool) -> tuple[Array, Array, Facets | None]:
    """Order components; loadings are the solver's own or follow by least squares."""
    A, B = result.components, result.loadings
    if B is not None and not with_facets:
        return *canonical_order(A, B)[:2], None
    moments = score_moments(S, A) if with_facets else None
    h = S.variances_along(A) if moments is None else moments.variances
    A, B, order = canonical_order(A, solve_loadings((A.T @ A) ** 2, h) if B is None else B)
    return A, B, None if moments is None else complete(moments._replace(variances=h[:, order]), A, B)


def check_tolerance(tol: Any) -> float:
    """Return ``tol`` as a float within bounds."""
    return check_real(tol, "tol", 1e-15, 1e-2, "It is the length of a step on the unit sphere, or a relative gradient.")


def check_weights(context_weights: Any, contexts: Array) -> Array:
    """Return positive weights (k,) from an array in the order of ``contexts``, or a dict or Series by name."""
    names = contexts.tolist()
    context_weights = by_name(context_weights, names, "context_weights", "the contexts")
    if isinstance(context_weights, Mapping):
        missing = [name for name in names if name not in context_weights]
        unknown = [name for name in context_weights if name not in names]
        if missing or unknown:
            raise ValueError(
                f"context_weights lacks {missing[:5]} and has unknown contexts {unknown[:5]}; give one weight to each "
                f"of the {len(names)} contexts."
            )
        context_weights = [context_weights[name] for name in names]
    check_unmasked(context_weights, "context_weights", "give one positive number to each context")
    try:
        weights = np.asarray(to_host(context_weights), dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != (len(names),) or not np.isfinite(weights).all() or not (weights > 0).all():
        raise ValueError(
            f"context_weights={context_weights!r}: one positive number per context is needed, {len(names)} of them."
        )
    return np.asarray(weights / weights.mean())


def _on_device(result: Decomposition, S: Any) -> Decomposition:
    """Return a decomposition with arrays like the covariances ``S``."""
    arrays = ("components", "loadings", "singular_values", "noise")
    return replace(result, **{name: like(getattr(result, name), S) for name in arrays})
