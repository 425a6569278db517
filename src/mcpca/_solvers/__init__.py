"""The solvers, and how to add one.

A solver takes covariances ``S_i`` of k contexts and a rank r, and returns components A (p, r) with ``S_i ~ A diag(b_i)
A^T``. ``decompose_checked`` (``_model.decomposition``) is the only caller that users reach: it compresses the
covariances to a core, looks the solver up here, fits loadings if the solver returns none, and brings components to
their order and sign. To add the solver "new":

1. **Write** ``_solvers/new.py`` with one function, of the type ``Solve``::

       def solve(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult

   * ``S`` are the covariances through their products (``_covariances.interface``). They may be in memory, on disk, or
     on a device, and every product is a pass over them, so ask for few. ``S.whole()`` is for few features only. Units
     are the user's, and entries may be 1e-12 or 1e12: make every threshold relative. With ``context_weights``, S and
     core are those of ``sqrt(w_i) S_i``, unless the solver has ``models_noise``.
   * ``core`` holds ``T_i = U^T S_i U``, U being the top left singular vectors of ``[S_1 ... S_k]``
     (``_covariances.subspace``). It may have been made for a larger rank: begin with ``part = core.leading(r)``, work
     on ``part.tensor`` (e, q, q), and take components back to features with ``part.lift``. The other way is
     ``part.basis.T @ A``, or A itself if ``part.basis`` is None (all features); it loses what A has outside the core.
     If ``part.mixture`` is not None there are so many contexts that slices are combinations of them, and a solver that
     needs each context takes ``slices(S, part.basis)`` instead.
   * By passes over rows only the first r columns of U are known to ``tol``, the others roughly. A solver whose answer
     depends on those must end with a product in all features, as ``mspm`` does, or work through
     ``growing.GrowingCore``: fits in memory and by passes have to agree to 1e-6.
   * ``settings`` (``Settings``) brings tolerance, iterations, random numbers and progress, all checked. Use no other
     random numbers. Call ``settings.report(stage, done, total)``: within a stage ``done`` never falls, and ends at
     ``total``; if the length is not known, ``_utils.progress.Search`` keeps that promise. "basis" and "loadings" are
     stages of the caller and "components" is one of ``mspm``: choose another name. ``max_iter`` is meant for
     second-order steps; a solver with cheaper ones counts blocks of them.
   * To start from the power method call ``mspm.solve(S, core, r, settings)``, and add its ``n_iter`` to yours.
     Loadings within an iteration are ``solve_loadings((A.T @ A) ** 2, variances_along(T, A))`` (``loadings`` and
     ``_covariances.stack``); ``nonnegative_loadings`` is the same for users, with checks.
   * The ``SolverResult`` has unit columns in any order, with any sign. Leave ``loadings`` None unless the solver models
     noise: the caller fits them to the covariances themselves, without the weights. A solver does not warn: if
     ``converged`` is False, its ``message`` becomes a ConvergenceWarning (``_utils.wording.beside`` writes a number
     that missed its bound so that it shows). A LinAlgError becomes a ValueError that names the solver.

   ``lsq`` is the example to read: it does all of this.

2. **Register** it: one line at the end of ``SOLVERS`` below; the paper's stays first, and docstrings list solvers in
   this order. ``Solver`` has defaults for the special cases.

3. **Options** are checked before any solver runs: the choice of the solver, ``orthogonal`` and ``noise`` by
   ``check_solver`` below, ``tol`` and ``max_iter`` in ``decompose_checked``. Messages and the command line's choices
   come from the registry.

4. **Test** it: ``tests/solvers/test_every_solver.py`` runs over the registry and holds what every solver must satisfy:
   planted components, scale, permutations, weights, passes, float32, degenerate input, seeds, progress. What is special
   about yours (its objective against a slow twin, its certificate) belongs in ``tests/solvers/test_new.py``.

5. **Document** it: the docstrings of ``MCPCA``, ``decompose`` and ``tl.mcpca`` (a test names those that lack it),
   ``docs/solvers.md`` (when to use it) and ``docs/method.md`` (how it works); tests say what they miss. Then look for
   sentences that name solvers one by one, ``git grep '"lsq"' src docs README.md``: what ``orthogonal``, ``n_samples``,
   ``tol`` and ``gradient`` mean for each, the table in README.md, docs/large.md; and tell users in CHANGELOG.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.subspace import Core
from . import lsq, ml, mspm, orthogonal_ml
from . import orthogonal as orthonormal
from .floor import FLOORS
from .interface import Settings, Solve, SolverResult

__all__ = [
    "NOISES",
    "SOLVERS",
    "Settings",
    "Solve",
    "Solver",
    "SolverResult",
    "check_solver",
    "get_solver",
    "resolved_noise",
]


def _principal_axes(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Top eigenvectors of one covariance: those of the core, which holds them and more."""
    # ``eigh`` puts the largest last. In a basis of singular vectors the slice is nearly diagonal already; without one
    # it is the covariance itself.
    eigenvectors = np.linalg.eigh(core.tensor[0])[1][:, ::-1]
    return SolverResult(core.lift(eigenvectors[:, :r]), 1, True, "One context: the answer is PCA's.")


# All that the parameter ``noise`` may be; "auto" is resolved by ``resolved_noise``.
NOISES = ("auto", *FLOORS, None)


@dataclass(frozen=True)
class Solver:
    """An entry of the registry: the functions that a solver's name stands for.

    ``solve`` is for two contexts or more; ``orthogonal`` does the same with ``orthogonal=True``, and ``one_context``
    takes over when k = 1, where the model does not determine more than PCA does. ``models_noise`` says that the solver
    is a likelihood: it returns loadings and noise of its own, and context weights multiply degrees of freedom rather
    than covariances. For the others ``floor`` fits loadings beside the noise, if any is asked for.
    """

    solve: Solve
    orthogonal: Solve = orthonormal.solve
    one_context: Solve = _principal_axes
    models_noise: bool = False


SOLVERS: dict[str, Solver] = {
    "mspm": Solver(mspm.solve),
    "lsq": Solver(lsq.solve),
    "ml": Solver(ml.solve, orthogonal_ml.solve, ml.solve_one, models_noise=True),
}


def resolved_noise(solver: str, noise: str | None, missing: str = "error") -> str | None:
    """Return the kind of noise; "auto" is isotropic for a likelihood, and none for the paper's least squares.

    Where contexts lack features (``missing="union"``) noise would turn the axes of least squares, and "auto" is
    isotropic for these as well.
    """
    if noise != "auto":
        return noise
    return "isotropic" if SOLVERS[solver].models_noise or missing == "union" else None


def check_solver(solver: object, orthogonal: object, noise: object) -> dict[str, Any]:
    """Check the three choices that decide which solver runs, and return them by name, "auto" resolved."""
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver={solver!r} is unknown; choose one of {sorted(SOLVERS)}.")
    if not isinstance(orthogonal, (bool, np.bool_)):
        raise ValueError(f"orthogonal={orthogonal!r}; choose True or False.")
    # A tuple of allowed values compares by ==, at which an array would fail.
    if not (noise is None or isinstance(noise, str)) or noise not in NOISES:
        raise ValueError(f"noise={noise!r} is unknown; choose one of {list(NOISES)}.")
    if SOLVERS[solver].models_noise and orthogonal and noise in ("diagonal", "scaled"):
        raise ValueError(
            f"orthogonal=True with noise={noise!r}: orthogonal axes do not stay orthogonal when features are divided "
            "by their noise; choose noise='isotropic' or 'pooled', or standardise the features first."
        )
    return {"solver": solver, "orthogonal": bool(orthogonal), "noise": resolved_noise(solver, noise)}


def get_solver(solver: str, orthogonal: bool, n_contexts: int) -> Solve:
    """Return the function that solves for choices that ``check_solver`` has passed."""
    entry = SOLVERS[solver]
    # First, whatever ``orthogonal`` says: the axes of one context are orthogonal anyway, except for factor analysis,
    # and that combination of options has been refused.
    if n_contexts == 1:
        return entry.one_context
    return entry.orthogonal if orthogonal else entry.solve
