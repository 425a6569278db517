"""``compare_solvers``: solvers, baselines and naive covariances before one judge, on halves of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._covariances.device_rows import is_on_device, read_device_contexts, rows_on_host
from .._covariances.fit_data import MOST_NUMBERS, without_basis
from .._covariances.nuisance import check_nuisance
from .._covariances.scaling import in_range
from .._data.annotations import take_annotations
from .._data.contexts import Contexts, read_contexts
from .._data.detect import holds_device_arrays
from .._data.preprocessed import fit_and_preprocess, refuse_on_device
from .._inference.held_out import Half, Prediction, SharedAxes, deciding_error
from .._inference.replication import check_halves
from .._inference.sampling import checked_groups
from .._inference.solver_comparison import Candidate, SolverComparison, in_units, judge
from .._inference.solver_comparison import solver_candidates as of_solvers
from .._solvers import SOLVERS, check_solver
from .._solvers.floor import FLOORS, own_floor
from .._solvers.loadings import solve_loadings
from .._utils.arguments import as_generator, check_integer, check_rank, one_random_state
from .._utils.progress import reporting, silent
from .._utils.types import Report
from .naive import NAIVE

if TYPE_CHECKING:
    from ..baselines import Method

# Those of MCPCA.
_TOL = 1e-7
_MAX_ITER = 200
_BASELINES = ("pca_stack", "cpc", "ffdiag")


def compare_solvers(
    X: Any,
    y: Any = None,
    r: int | None = None,
    solvers: Any = None,
    groups: Any = None,
    *,
    batch: Any = None,
    covariates: Any = None,
    preprocess: Any = None,
    baselines: Sequence[str] = _BASELINES,
    n_splits: int = 3,
    random_state: Any = None,
    rng: Any = None,
    n_jobs: int | None = None,
    verbose: Any = None,
) -> SolverComparison:
    """Fit every solver to halves of the rows, judge it on the other halves, and recommend one for these data.

    The rows of each context, or its groups, are split into random halves. Each half is fitted and judged on the other,
    both ways, in several splits. All candidates predict covariances ``M_i`` without noise, and are judged on one scale.
    Only solvers of ``MCPCA`` are recommended; baselines and naive covariances are there to be compared with.

    Parameters
    ----------
    X, y
        Rows and contexts in any form that ``MCPCA.fit`` takes; at least 4 rows in every context.
    r : int
        Number of components.
    solvers : sequence of str or dict, optional
        Solvers to compare: a name such as "mspm", "ml" or "ml scaled", a solver with its noise; or a dict of the
        parameters "solver", "noise" and "orthogonal" of ``MCPCA``. By default "mspm", "lsq", and "ml" with every noise.
        Add ``{"solver": "lsq", "orthogonal": True}``, or "lsq orthogonal", for orthogonal axes.
    groups : labels (n,), str or list of str, optional
        Which rows were sampled together, as in ``MCPCA.fit``: halves are then halves of the groups of each context.
    batch, covariates : optional
        Nuisance to be removed, as in ``MCPCA.fit``.
    preprocess : optional
        What is done to rows while they are read, as in ``MCPCA``.
    baselines : sequence of str
        Other methods, keys of ``mcpca.baselines.METHODS``; ``()`` for none. Their loadings are those beside an
        isotropic floor, as for "mspm" and "lsq".
    n_splits : int
        Number of random splits; all of them where there are fewer, as with few groups.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Determines splits and starts.
    n_jobs : int, optional
        Splits at a time, each in a thread; None and -1 use as many as BLAS may use. The result does not depend on it,
        "seconds" apart.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    SolverComparison
        ``table``, ``best``, ``reason`` and ``plot()``, with these measures:

        * "off-diagonal error": ``sum_i ||off(S_i - M_i)||^2 / sum_i ||off(S_i)||^2``, off(.) being a matrix without its
          diagonal and S_i the covariances of the half that was not fitted. Noise is on diagonals, and so does not
          decide. The sampling error of S_i adds the same to all, so that differences count, not ratios. It decides,
          unless features are principal axes.
        * "error beside isotropic noise": the same but for a multiple of the identity in place of all diagonals. It
          decides if features are principal axes of the rows (a PCA was done before), or nearly: their diagonals hold
          what contexts have in common, and are not noise.
        * "log-likelihood": mean log-density per row and feature of the half that was not fitted, under ``M_i + D_i``,
          D_i being what M_i leaves of the diagonal of the fitted half, a percent of a feature's variance at least: one
          rule for all.
        * "agreement of halves": mean ``|cos|`` of the matched axes of the two halves; not for naive covariances.
        * "seconds": from the covariances of half of the rows to the model.

        The naive covariances are a context's own, its probabilistic PCA of rank r, the pooled one scaled to the trace
        of each context, and the average of own and pooled.

    Notes
    -----
    ``2 n_splits`` fits of half of the rows for each candidate, and O(k p^3) for each log-likelihood. Memory: five
    stacks of covariances (k, p, p) for each thread. Where these are too large, ``MCPCA(solver="auto")`` chooses by the
    same errors without them.

    Examples
    --------
    >>> from mcpca import compare_solvers
    >>> from mcpca.datasets import make_contexts
    >>> data = make_contexts(6, 15, 3, n_samples=200, noise=0.4, random_state=0)
    >>> comparison = compare_solvers(data.X, data.y, 3, ["mspm", "ml"], random_state=0)
    >>> comparison.best
    'ml isotropic'
    """
    if r is None:
        raise ValueError(
            "r is missing: solvers are compared at one number of components. Pass it, or choose one by select_rank."
        )
    n_splits = check_integer(n_splits, "n_splits", 1)
    if n_jobs is not None and n_jobs != -1:
        n_jobs = check_integer(n_jobs, "n_jobs", 1, way_out="None or -1 uses all cores.")
    choices = [_options(choice) for choice in (_default_solvers() if solvers is None else _listed(solvers, "solvers"))]
    methods = _methods(_listed(baselines, "baselines"))
    if not choices:
        raise ValueError("solvers is empty; name at least one, for example 'mspm', or drop it for all of them.")
    rng = as_generator(one_random_state(rng, random_state))
    with reporting(verbose, "comparison of solvers") as report:
        contexts = _contexts(X, y, groups, batch, covariates, preprocess, report)
        r = check_rank(r, contexts.n_features, "r")
        for method in methods.values():
            method.check(len(contexts.names), {})
        contexts, e = in_range(contexts)
        candidates = _distinct(of_solvers(choices, r, tol=_TOL, max_iter=_MAX_ITER, weights=None))
        candidates += [_baseline(name, r) for name in methods]
        candidates += [_naive(name, r) for name in NAIVE]
        # The covariances of all rows are needed for this only.
        judged_by = deciding_error(without_basis(contexts.without_annotations(), r, silent))
        compared = judge(
            contexts,
            r,
            candidates,
            n_splits,
            rng,
            report,
            judged_by=judged_by,
            tol=_TOL,
            in_full=True,
            n_jobs=None if n_jobs == -1 else n_jobs,
        )
    return in_units(compared, e)


def _contexts(X: Any, y: Any, groups: Any, batch: Any, covariates: Any, preprocess: Any, report: Report) -> Contexts:
    """Read the rows, on the host; raise where halves of them cannot be compared."""
    if isinstance(X, np.ndarray) and X.ndim == 3:
        raise ValueError(
            f"X has shape {X.shape}, a stack of covariances, and solvers are judged on rows that they were not fitted "
            "to; pass the rows."
        )
    annotated = take_annotations(X, y, groups=groups, batch=batch, covariates=covariates)
    on_device = holds_device_arrays(annotated.X)
    if on_device:
        refuse_on_device(preprocess)
    raw = (read_device_contexts if on_device else read_contexts)(annotated.X, annotated.y)
    contexts = checked_groups(annotated.attach(fit_and_preprocess(preprocess, raw, annotated.X, report)))
    check_nuisance(contexts)
    contexts = rows_on_host(contexts) if is_on_device(contexts) else contexts
    k, p = len(contexts.names), contexts.n_features
    if k * p * p > MOST_NUMBERS:
        raise ValueError(
            f"X has {k} contexts of {p:,} features, whose covariances have {k * p * p:,} entries; at most "
            f"{MOST_NUMBERS:,} are formed. Pass fewer features, for example the most variable, or fit "
            "MCPCA(solver='auto'), which chooses among solvers without them."
        )
    if contexts.groups is None:
        check_halves(contexts, "name a solver")
    return contexts


def _listed(values: Any, name: str) -> list[Any]:
    """Return several choices as a list; text alone would be taken letter by letter."""
    if isinstance(values, (str, Mapping)):
        return [values]
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"{name} is a {type(values).__name__}; pass a list of names.") from None


def _default_solvers() -> list[dict[str, Any]]:
    return [
        {"solver": name, "noise": noise}
        for name, entry in SOLVERS.items()
        for noise in (FLOORS if entry.models_noise else ("auto",))
    ]


def _options(choice: Any) -> dict[str, Any]:
    """Return a choice of a solver as ``check_solver`` does; text is a solver, and a noise or "orthogonal" after it."""
    options: dict[str, Any] = {"orthogonal": False, "noise": "auto"}
    if isinstance(choice, Mapping):
        unknown = [name for name in choice if name not in ("solver", *options)]
        if unknown or "solver" not in choice:
            raise ValueError(f"solvers has {dict(choice)!r}; a dict has 'solver', and may have 'noise', 'orthogonal'.")
        options |= choice
    elif isinstance(choice, str) and choice.split():
        options["solver"], *words = choice.split()
        for word in words:
            if word not in (*FLOORS, "orthogonal"):
                raise ValueError(
                    f"solvers has {choice!r}, and {word!r} is unknown; after the solver comes a noise, one of "
                    f"{list(FLOORS)}, or 'orthogonal'."
                )
            options |= {"orthogonal": True} if word == "orthogonal" else {"noise": word}
    else:
        raise ValueError(f"solvers has {choice!r}; pass names such as 'mspm' and 'ml scaled', or dicts.")
    return check_solver(options["solver"], options["orthogonal"], options["noise"])


def _distinct(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates without repetitions: "ml" and "ml isotropic" are one."""
    return list({candidate.name: candidate for candidate in candidates}.values())


def _methods(names: Sequence[Any]) -> dict[str, Method]:
    """Return the baselines of these names, each once."""
    from ..baselines import METHODS  # late: only who compares needs them

    unknown = [name for name in names if not isinstance(name, str) or name not in METHODS]
    if unknown:
        raise ValueError(f"baselines has {unknown[0]!r}, which is unknown; choose from {', '.join(METHODS)}.")
    return {name: METHODS[name] for name in names}


def _baseline(name: str, r: int) -> Candidate:
    from ..baselines import run  # late: only who compares needs them

    def fit(half: Half, rng: np.random.Generator) -> Prediction:
        # Covariances have nuisance removed, rows have not; with either a method finds the same otherwise.
        rows: Any = half.array if half.rows.nuisance is not None else half.rows.without_annotations()
        A = run(name, rows, r, random_state=rng, verbose=False).components
        along = half.variances_along(A)
        if r == len(A):
            return SharedAxes(A, solve_loadings((A.T @ A) ** 2, along))
        return SharedAxes(A, own_floor(A, along, half.variances.sum(axis=1)).loadings)

    # One of the baselines is a solver as well, with the options of a baseline.
    return Candidate(f"{name} (baseline)" if name in SOLVERS else name, "baseline", fit, {})


def _naive(name: str, r: int) -> Candidate:
    return Candidate(name, "naive", lambda half, rng: NAIVE[name](half, r), {})
