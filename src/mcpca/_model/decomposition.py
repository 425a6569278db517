"""Covariances in, components and loadings out: ``decompose``, the plain function under the estimator.

``decompose`` checks what users pass; ``decompose_checked`` is the same for covariances behind the ``Covariances``
protocol, and is what ``_estimator.fitting`` and ``_rank.selection`` call. Its steps, in order:

1. ``_leading_subspace``: compress S to the core ``U^T S_i U``, U the top left singular vectors of ``[S_1 ... S_k]``;
2. ``check_data_rank``: refuse a rank that the data do not have;
3. ``_solve``: hand the core to a solver (MSPM in the paper's algorithm);
4. ``fitted_loadings``: B by non-negative least squares if the solver has none (the last step of the paper's algorithm),
   beside a floor of noise if that is asked for; the canonical order and signs; and, from the same pass over the
   covariances, what an estimator keeps of a fit (``Measures``): facets, corrected loadings, moments of the scores.

Warnings on the way name what makes the answer doubtful: directions that are poorly known, a solver that has not
converged, a residual larger than the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._covariances.device_validation import check_stack
from .._covariances.interface import Covariances
from .._covariances.packed import InCore
from .._covariances.scaling import stack_in_range
from .._covariances.stack import as_stack
from .._covariances.subspace import ALL_FEATURES, Core, are_many, compress, numerical_rank
from .._covariances.validation import check_counts
from .._data.alignment import by_name
from .._solvers import SOLVERS, Settings, SolverResult, check_solver, get_solver
from .._utils.arguments import as_generator, check_integer, check_rank, check_real, check_unmasked, one_random_state
from .._utils.array_api import like, to_host
from .._utils.parallel import blas_aside
from .._utils.printing import Shown, counted, mcpcs
from .._utils.progress import reporting
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from ..exceptions import RankExceedsDataError
from .facets import Facets
from .fitted_loadings import Measures, check_outside, loadings_of_fit
from .landscape import Landscape, PowerSpace, landscape_of, power_space

# Degrees of freedom of every context if the number of rows behind the covariances is unknown. For the place of the
# maximum only ratios matter; the level matters for convergence, which is judged in standard errors.
_ASSUMED_FREEDOM = 1000.0
# Numbers in covariances, 4 MB, of which a solver may make copies in a fit, which has the rows beside them in any case.
_SPARE_NUMBERS = 2**19
# Tolerances of a solver if none is given: for covariances in memory, and for those by passes over rows, whose leading
# directions are known to a tenth of a standard error: angles that are far smaller than that will do.
_TOL = 1e-7
_TOL_OF_PASSES = 1e-4


@dataclass(frozen=True, repr=False)
class Decomposition(Shown):
    """``S_i ~ components @ diag(loadings[i]) @ components.T``, plus noise if it was asked for.

    Attributes
    ----------
    components : ndarray (p, r)
        A: unit columns in decreasing order of total variance, the largest entry of each positive.
    loadings : ndarray (k, r)
        B >= 0.
    singular_values : ndarray
        The largest singular values of the flattening ``[S_1 ... S_k]``: the scree.
    n_iter : int
        Solver iterations; each is a batch of starts or a second-order step.
    converged : bool
        Whether the solver met its tolerance.
    message : str
        The solver's report, in one sentence.
    noise : ndarray or None
        The variance not due to the components: (k,) for isotropic and pooled noise, (p,) for diagonal noise, (k, p)
        for scaled noise; None if the loadings were fitted without noise.
    gradient : float or None
        Distance from a stationary point. For "lsq", the norm of the projected gradient over all features, relative to
        ``sum_i ||S_i||_F^2``; for "ml", the distance to the maximum in standard errors (root mean square over the
        parameters, from the Newton decrement). None for the other solvers.
    basis_residual, basis_error : float, float or None
        How accurately the leading directions are known; 0 and None if they were computed exactly (see ``MCPCA``).
    space : PowerSpace, Landscape or None
        What ``F`` and ``landscape`` are computed from when they are asked for; None if it was not kept.
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
    basis_error: float | None = None
    space: PowerSpace | Landscape | None = None

    @property
    def F(self) -> Array | None:
        """F of the paper at each MCPC (r,), at most 1; None if it was not kept. See ``landscape``.

        The squared cosine between ``a b^T``, with the b that is best for a, and the span of the leading r right
        singular vectors of ``[S_1 ... S_k]``.
        """
        return None if self.space is None else self.space.F

    def landscape(self) -> Landscape:
        """Return F at each MCPC, its slope and its curvature, and which MCPCs are certified local maxima of it.

        See ``MCPCA.landscape``. Cost O(r (q + k)^3) for the q directions that the fit worked in, r <= q <= 3 r.
        """
        return landscape_of(self.space)

    def times_power(self, e: int) -> Decomposition:
        """Return the decomposition of the covariances times ``4^e``, that is of data times ``2^e``."""
        # A has unit columns and hence no unit; all else are variances. ``ldexp`` changes exponents only, so nothing is
        # rounded.
        return replace(
            self,
            loadings=np.ldexp(self.loadings, 2 * e),
            singular_values=np.ldexp(self.singular_values, 2 * e),
            noise=None if self.noise is None else np.ldexp(self.noise, 2 * e),
        )

    def _words(self) -> list[str]:
        p, r = self.components.shape
        k = len(self.loadings)
        outcome = "converged" if self.converged else "not converged"
        words = [
            f"{counted(r, 'MCPC')} of {counted(k, 'context')} and {counted(p, 'feature')}, "
            f"{outcome} after {counted(self.n_iter, 'iteration')}."
        ]
        if self.message:
            words.append(self.message)
        return words

    def _rows(self) -> dict[str, Any]:
        B = np.asarray(to_host(self.loadings))
        total = B.sum(axis=0)
        return {
            "": mcpcs(len(total)),
            "share of the variance": total / (total.sum() or 1),
            "largest loading": B.max(axis=0),
        }


def decompose(
    S: Any,
    r: int,
    *,
    solver: str = "mspm",
    orthogonal: bool = False,
    noise: str | None = "auto",
    n_samples: Any = None,
    context_weights: Any = None,
    random_state: Any = None,
    rng: Any = None,
    tol: float = 1e-7,
    max_iter: int = 200,
    verbose: Any = None,
) -> Decomposition:
    """Decompose the covariances of k contexts as ``S_i ~ A diag(b_i) A^T``.

    Parameters
    ----------
    S : array-like (k, p, p)
        Covariances: symmetric and positive semi-definite. float32 input is kept as float32; the computation is in
        float64. A PyTorch, CuPy or JAX array stays on its device (extra ``devices``), and the result holds arrays of
        the same kind.
    r : int
        Rank, 1 <= r <= p and at most the numerical rank of ``[S_1 ... S_k]``.
    solver : {"mspm", "lsq", "ml"}
        "mspm": the paper's multi-subspace power method. "lsq": a stationary point of the squared error, the paper's
        definition of MCPCA. "ml": maximum likelihood in a Gaussian model with noise.
    orthogonal : bool
        Make the components orthonormal: by least squares with "mspm" and "lsq", by likelihood with "ml".
    noise : {"auto", "isotropic", "pooled", "diagonal", "scaled", None}
        The variance that is not due to the components: one per context, one for all contexts, one per feature shared
        by all contexts, or one per feature times one per context. "ml" has it in its likelihood; for "mspm" and "lsq"
        it is a term of the least squares that gives the loadings, which without it (None) contain the noise of their
        context. "auto" is "isotropic" for "ml", and None, the paper's answer, for the others.
    n_samples : int or array-like (k,), optional
        Rows behind each covariance, which weight the contexts in the likelihood; without them all contexts weigh the
        same. "mspm" and "lsq" do not use them.
    context_weights : array-like (k,), optional
        Positive weights of the contexts in the squared error; in the likelihood they multiply ``n_samples``. For the
        squared error a weighted copy of S is made.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Determines the random starts. If the model is identifiable the answer does not depend on it.
    tol, max_iter : float, int
        A solver has converged when the step on the unit sphere ("mspm"), the ``gradient`` of the result ("lsq") or a
        ten-thousandth of it ("ml") is at most ``tol``; it stops after ``max_iter`` second-order steps.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    Decomposition

    Notes
    -----
    Cost O(k p^3 + k p^2 r) plus that of the solver; memory O(p^2 + k r^2) on top of S, which is not copied.
    For a single context the result is PCA, the eigenvectors: one covariance determines no more than these.
    """
    # Options first: checking them costs nothing, checking covariances a factorisation of each.
    options = check_solver(solver, orthogonal, noise)
    S = check_stack(S)
    k, p, _ = S.shape
    r = check_rank(r, p, "r")
    counts = None if n_samples is None else check_counts(n_samples, k)
    # Covariances in an array have no names: contexts are numbered.
    weights = None if context_weights is None else check_weights(context_weights, np.arange(k))
    # Solvers take fourth powers of the data; the power of two that keeps these finite is undone without rounding.
    scaled, e = stack_in_range(S)
    with reporting(verbose, "decomposition") as report:
        result, _ = decompose_checked(
            as_stack(scaled),
            r,
            **options,
            counts=counts,
            weights=weights,
            rng=as_generator(one_random_state(rng, random_state)),
            report=report,
            tol=tol,
            max_iter=max_iter,
            with_space=True,
        )
    return _on_device(result.times_power(e), S)


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
    tol: float | None,
    max_iter: int,
    core: Core | None = None,
    names: Sequence[Any] | None = None,
    with_measures: bool = False,
    with_space: bool = False,
) -> tuple[Decomposition, Measures | None]:
    """``decompose`` for covariances that have been checked, with what else a fit keeps if asked for.

    A ``core`` that was computed before (by the choice of the rank) is reused, unless weights change the covariances
    that it was computed from. The measures cost little more than the loadings, since one pass over the covariances
    yields both. ``noise`` has been resolved; ``names`` of contexts are for errors. ``with_space`` keeps what F at the
    components is computed from.
    """
    if tol is not None:
        tol = check_tolerance(tol)
    max_iter = check_integer(max_iter, "max_iter", 1)
    if not SOLVERS[solver].models_noise:
        check_outside(r, S.n_features, noise)
    is_likelihood = SOLVERS[solver].models_noise
    S_weighted = S
    if weights is not None and not is_likelihood:
        # sum_i w_i ||S_i - A B_i A^T||^2 is the plain error of sqrt(w_i) S_i, with the same A.
        S_weighted = S.weighted(np.sqrt(weights))
        core = None
    with _steady_threads(S, r, solver):
        if core is None:
            core = _leading_subspace(S_weighted, r, report)
        tol = solver_tolerance(tol, _TOL if core.error is None else _TOL_OF_PASSES)
        _warn_of_uncertain_directions(core, r, tol, S.dtype)
        check_data_rank(r, core, S)
        # Weights enter once: here in the likelihood, or above in the squared error.
        freedom = degrees_of_freedom(counts, weights if is_likelihood else None, S.n_contexts)
        settings = Settings(rng, tol, max_iter, report, freedom, noise, _SPARE_NUMBERS if with_measures else 0)
        result = _solve(S_weighted, core, r, solver, orthogonal, settings)
        if not result.converged:
            warn(result.message, ConvergenceWarning)
        # From here on S itself: weights decide which A is found, but loadings and facets describe the data.
        report("loadings", 0, 1)
        within = None
        # With weights the slices of the core are those of the weighted covariances, and say nothing of the data.
        if core.packed is not None and result.coordinates is not None and S_weighted is S:
            within = InCore(core.packed, result.coordinates)
        loadings = loadings_of_fit(S, result, noise, freedom, names, with_measures, within)
        report("loadings", 1, 1)
    if loadings.measures is not None:
        _warn_of_large_error(loadings.measures.facets, r)
    # Solvers compute in float64; the answer gets the precision of the data.
    decomposition = Decomposition(
        components=loadings.A.astype(S.dtype, copy=False),
        loadings=loadings.B.astype(S.dtype, copy=False),
        singular_values=core.singular_values,
        n_iter=result.n_iter,
        converged=result.converged,
        message=result.message,
        noise=None if loadings.noise is None else loadings.noise.astype(S.dtype, copy=False),
        gradient=result.gradient,
        basis_residual=core.residual,
        basis_error=core.error,
        space=power_space(core, loadings.A, result.turned) if with_space else None,
    )
    return decomposition, loadings.measures


def _steady_threads(S: Covariances, r: int, solver: str) -> AbstractContextManager[None]:
    """Return what to fit many contexts of few features in: one pool of threads, beside which those of BLAS stay idle.

    Work on contexts is then cut into pieces for threads of our own. Those of BLAS, woken by a product in between, would
    go on spinning beside these for as long as all of it takes.
    """
    is_small = S.n_features <= ALL_FEATURES and solver == "mspm" and are_many(S.n_contexts, r)
    return blas_aside() if is_small else nullcontext()


def _leading_subspace(S: Covariances, r: int, report: Report) -> Core:
    """Return the core for rank ``r``. Its basis takes O(k p^3) of a stack, hence a stage of progress of its own."""
    report("basis", 0, 1)
    core = compress(S, r)
    report("basis", 1, 1)
    return core


def _warn_of_uncertain_directions(core: Core, r: int, tol: float, dtype: np.dtype[Any]) -> None:
    """Warn if the leading directions are not known to within a hundred times the tolerance, or the data's rounding."""
    # A stack in memory certifies its directions and reports 0; only a bounded number of passes over rows leaves more.
    if core.residual <= max(100 * tol, 100 * float(np.finfo(dtype).eps)):
        return
    if core.error is not None:
        if core.error > 1:
            warn(
                f"The leading {r} directions are known only to {core.error:.1f} times their standard errors, because "
                "the next ones are nearly as large. Lower the rank to where the scree, singular_values_, drops, or "
                "accept directions that data of this size cannot separate.",
                ConvergenceWarning,
            )
        return
    warn(
        f"The leading {r} directions are known only to {core.residual:.1e} (relative to the smallest of their "
        f"eigenvalues, tol={tol:.1e}), because the next ones are nearly as large. Lower the rank to where the scree, "
        "singular_values_, drops, or accept directions that data of this size cannot separate.",
        ConvergenceWarning,
    )


def check_data_rank(r: int, core: Core, S: Covariances) -> None:
    """Raise if ``[S_1 ... S_k]`` has fewer than ``r`` singular values above rounding."""
    rank = numerical_rank(core.singular_values, S)
    if r <= rank:
        return
    if rank == 0:
        raise RankExceedsDataError(
            "The covariances are all zero: no feature varies in any context, so there is nothing to decompose."
        )
    # Only as many singular values were computed as the core has directions: if all count, there may be more.
    or_more = " or more" if rank == len(core.singular_values) else ""
    raise RankExceedsDataError(
        f"n_components={r} exceeds the numerical rank of the data, {rank}{or_more}: the covariances together vary in "
        f"only {rank} directions. Choose n_components <= {rank}."
    )


def degrees_of_freedom(counts: Array | None, weights: Array | None, k: int) -> Array:
    """Return the weights (k,) of the contexts in the likelihood, ``n_i - 1`` times ``weights``."""
    # The mean of a context is estimated from the same rows, which takes one degree of freedom.
    freedom = np.full(k, _ASSUMED_FREEDOM) if counts is None else counts - 1.0
    return freedom if weights is None else freedom * weights


def _solve(S: Covariances, core: Core, r: int, solver: str, orthogonal: bool, settings: Settings) -> SolverResult:
    """Run the solver for these choices; a failure of its linear algebra becomes an error that names the rank."""
    # Depends on k, too: one covariance determines no more than PCA, so each solver has a special case for it.
    run = get_solver(solver, orthogonal, S.n_contexts)
    try:
        return run(S, core, r, settings)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"solver={solver!r} broke down at rank {r} ({error}): the covariances are too close to singular for it. "
            "Lower n_components, or choose another solver."
        ) from error


def _warn_of_large_error(facets: Facets, r: int) -> None:
    """Warn if the model explains less than nothing, which least squares cannot do but likelihood can."""
    # At the B of least squares, ``||S - A B A^T||^2 <= ||S||^2``, since B = 0 is allowed; the B of likelihood has no
    # such bound.
    if facets.variance_shares.sum() >= 0:
        return
    error = float(facets.reconstruction_errors.sum() / facets.squared_norms.sum())
    warn(
        f"The residual of the model is {error:.2g} times as large as the covariances themselves (squared norms): if "
        f"covariances are singular, the likelihood can be largest far from them. Lower n_components={r}, or choose "
        "solver='lsq'.",
        ConvergenceWarning,
    )


def solver_tolerance(tol: float | None, default: float = _TOL) -> float:
    """Return the tolerance of a solver: ``tol``, checked, or the default for None."""
    return default if tol is None else check_tolerance(tol)


def check_tolerance(tol: Any) -> float:
    """Return ``tol`` as a float within bounds."""
    return check_real(tol, "tol", 1e-15, 1e-2, "It is the length of a step on the unit sphere, or a relative gradient.")


def check_weights(context_weights: Any, contexts: Array) -> Array:
    """Return positive weights (k,) with mean 1.

    Parameters
    ----------
    context_weights : array-like (k,) in the order of ``contexts``, or a dict or Series by name
    contexts : ndarray (k,)
        Names of the contexts.
    """
    names = contexts.tolist()
    context_weights = by_name(context_weights, names, "context_weights", "the contexts")
    if isinstance(context_weights, Mapping):
        # Both ways: a misspelt name would be one that is missing and one that is unknown.
        missing = [name for name in names if name not in context_weights]
        unknown = [name for name in context_weights if name not in names]
        if missing or unknown:
            raise ValueError(
                f"context_weights lacks {quoted(missing)}; unknown contexts: {quoted(unknown)}. Give one weight to "
                f"each of the {len(names)} contexts."
            )
        context_weights = [context_weights[name] for name in names]
    check_unmasked(context_weights, "context_weights", "give one positive number to each context")
    try:
        weights = np.asarray(to_host(context_weights), dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)  # no numbers at all: fails the check of the shape below
    if weights.shape != (len(names),) or not np.isfinite(weights).all() or not (weights > 0).all():
        raise ValueError(
            f"context_weights={context_weights!r}: one positive number per context is needed, {len(names)} of them."
        )
    # Mean 1 leaves the size of the objective, and with it the meaning of tolerances, as it is.
    return np.asarray(weights / weights.mean())


def _on_device(result: Decomposition, S: Any) -> Decomposition:
    """Return a decomposition whose arrays are of the kind, and on the device, of the covariances ``S``."""
    # ``like`` passes on None, as of the noise, and leaves NumPy arrays alone.
    arrays = ("components", "loadings", "singular_values", "noise")
    return replace(result, **{name: like(getattr(result, name), S) for name in arrays})
