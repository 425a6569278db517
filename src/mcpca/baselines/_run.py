"""One call for all methods: input to ``Problem``, method, output to ``BaselineResult``.

Everything that is not the method itself happens here, so that methods differ in their components only: covariances and
their scale, loadings by non-negative least squares, order and sign.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from .._covariances.context_covariances import covariances_of
from .._covariances.scaling import in_range, stack_in_range
from .._covariances.stack import variances_along
from .._covariances.validation import check_covariances
from .._data.contexts import read_contexts
from .._linalg.canonical import canonical_order
from .._solvers.loadings import solve_loadings
from .._utils.arguments import as_generator, check_rank, one_random_state
from .._utils.array_api import to_host
from .._utils.progress import reporting, silent
from .._utils.types import Array, Report
from . import (
    als,
    ffdiag,
    hogsvd,
    jennrich,
    minf,
    mspm,
    nls,
    orthogonal,
    parafac2,
    pca,
    perpca,
    pham,
    qrj1d,
    stablepca,
    stacks,
    two_contexts,
)
from ._interface import BaselineResult, Method, MethodOutput, Problem

# The competitors in the paper and its own method first, then those added here.
METHODS: dict[str, Method] = {
    entry.name: entry
    for entry in (
        pca.pca_stack,
        pca.pca_c,
        pca.pca_svd,
        hogsvd.hogsvd,
        ffdiag.ffdiag,
        qrj1d.qrj1d,
        orthogonal.jacobi,
        jennrich.jennrich,
        nls.nls,
        nls.nls_svd,
        nls.nls_jennrich,
        minf.minf,
        als.als,
        mspm.mspm,
        stacks.svd,
        pham.pham,
        ffdiag.uwedge,
        two_contexts.gsvd,
        orthogonal.cpc,
        two_contexts.cpca,
        two_contexts.gcpca,
        parafac2.parafac2,
        stacks.stack_svd,
        perpca.perpca,
        stablepca.stablepca,
    )
}


def run(
    name: str,
    X: Any,
    r: int,
    y: Any = None,
    random_state: Any = None,
    *,
    rng: Any = None,
    verbose: Any = None,
    **options: Any,
) -> BaselineResult:
    """Find r components of the contexts in X by the method ``name``.

    Parameters
    ----------
    name : str
        A key of ``METHODS``.
    X : list or tuple of arrays; dict or Series {name: array}; 2-D array or DataFrame; (k, p, p) stack
        Rows of each context, or one matrix of rows with ``y``, or a 3-D array of covariances, as ``MCPCA.fit`` takes.
    r : int
        Number of components, 1 <= r <= p and at most the numerical rank of the covariances together.
    y : array-like (n,), optional
        Context label of each row of a 2-D ``X``.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Decides random starts. NumPy's global generator is neither read nor moved.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.
    **options
        Of the method: ``METHODS[name].options`` lists their names, ``help(METHODS[name].function)`` their meaning.
        Those that iterate for long take ``time_limit``, seconds after which the best so far is returned.

    Returns
    -------
    BaselineResult

    Notes
    -----
    Cost O(n p^2) for covariances from rows, O(k p^2 r + k r^3) for the loadings, and the method's own; memory two
    stacks of covariances and what the method needs.

    Examples
    --------
    >>> from mcpca.baselines import run
    >>> from mcpca.datasets import make_contexts
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> result = run("ffdiag", truth.X, 4, y=truth.y)
    >>> result.components.shape, result.loadings.shape, result.converged
    ((20, 4), (6, 4), True)
    """
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"name={name!r} is unknown; choose one of {', '.join(METHODS)}.")
    random_state = one_random_state(rng, random_state)
    with reporting(verbose, name) as report:
        return _run(METHODS[name], X, r, y, random_state, options, report)


def _run(
    entry: Method, X: Any, r: int, y: Any, random_state: Any, options: dict[str, Any], report: Report
) -> BaselineResult:
    problem, size = _read(X, r, y, random_state, report)
    # After reading, since it needs k, and before the method does any work.
    entry.check(len(problem.S), options)
    report(entry.name, 0, 1)
    # ``problem.basis`` and ``problem.small`` are made when a method first asks for them, so that they count as its
    # time.
    start = perf_counter()
    output = entry.function(problem, **options)
    seconds = perf_counter() - start
    report(entry.name, 1, 1)
    A, notes = _unit_columns(output, problem, entry.name)
    # The same loadings for all: those of a method itself may be negative, or in other units.
    B = size * solve_loadings((A.T @ A) ** 2, variances_along(problem.S, A))
    A, B, order = canonical_order(A, B)
    # Arrays are by component and follow the order; single numbers stay.
    extras = {key: value[order] if np.ndim(value) else value for key, value in output.extras.items()}
    return BaselineResult(entry.name, A, B, seconds, output.converged, " ".join(notes), extras)


def _read(X: Any, r: int, y: Any, random_state: Any, report: Report = silent) -> tuple[Problem, float]:
    """Check the input; return it as a problem, with the factor by which its covariances were divided.

    They are divided by a power of two first, ``2^(2 e)``, which keeps squares of very large or small data in range, and
    then by their mean variance.
    """
    rows = None
    X = to_host(X)
    if isinstance(X, np.ndarray) and X.ndim == 3:
        if y is not None:
            raise ValueError(f"X has shape {X.shape}, a stack of covariances, which takes no y; drop y.")
        S, e = stack_in_range(check_covariances(X, "X"))
        names = list(range(len(S)))
        # Nothing is known about sample sizes: contexts weigh alike.
        freedom = np.ones(len(S))
    else:
        rows, e = in_range(read_contexts(X, y))
        S = covariances_of(rows, report).covariances
        names = rows.names.tolist()
        freedom = rows.n_samples - 1.0
    p = S.shape[1]
    r = check_rank(r, p, "r")
    eps = float(np.finfo(S.dtype).eps)  # of the data, which may be float32
    S = S.astype(np.float64)
    # One number for all contexts, so that their relative sizes, and with them the problem, stay as they are.
    size = float(np.einsum("kpp->", S)) / (len(S) * p)
    if size <= 0:
        raise ValueError("The covariances are all zero: no feature varies in any context, so there is nothing to find.")
    S /= size
    # The range of a sum of positive semi-definite matrices is the sum of their ranges.
    w = np.linalg.eigvalsh(S.mean(axis=0))
    rank = int((w > 10 * eps * p * w[-1]).sum())
    if r > rank:
        raise ValueError(
            f"r={r} exceeds the numerical rank of the data, {rank}: the covariances together vary in {rank} directions "
            f"only. Choose r <= {rank}."
        )
    problem = Problem(S, r, freedom / freedom.sum(), names, rows, as_generator(random_state))
    # What loadings are to be multiplied by to be in units of the data again.
    return problem, float(np.ldexp(size, 2 * e))


def _unit_columns(output: MethodOutput, problem: Problem, name: str) -> tuple[Array, tuple[str, ...]]:
    """Scale columns to length 1; one that has vanished becomes a random direction, and that is noted."""
    A = output.components
    notes = output.notes
    if not np.isfinite(A).all():
        raise FloatingPointError(
            f"{name} broke down: its components are not finite. Lower r={problem.r}, or choose another method."
        )
    # By the largest entry first: squares of tiny columns would vanish. After it only a zero column is short.
    A = A / np.maximum(np.abs(A).max(axis=0), np.finfo(float).tiny)
    lengths = np.linalg.norm(A, axis=0)
    gone = np.flatnonzero(lengths < 0.5)
    if gone.size:
        A[:, gone] = problem.rng.standard_normal((len(A), gone.size))
        lengths = np.linalg.norm(A, axis=0)
        notes += (f"{gone.size} component(s) had vanished and are random directions.",)
    return A / lengths, notes
