"""The solvers: each takes covariances with their core and a rank, and returns components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.subspace import Core
from .._utils.arguments import refuse_without_effect
from . import lsq, ml, mspm
from . import orthogonal as orthonormal
from .interface import Settings, SolverResult
from .ml import NOISES

__all__ = ["NOISES", "SOLVERS", "Settings", "SolverResult", "check_solver", "get_solver"]

Solver = Callable[[Covariances, Core, int, Settings], SolverResult]

SOLVERS: dict[str, Solver] = {"mspm": mspm.solve, "lsq": lsq.solve, "ml": ml.solve}


def check_solver(solver: object, orthogonal: object, noise: object) -> dict[str, Any]:
    """Check the three choices that make a solver, and return them by name."""
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver={solver!r} is unknown; choose one of {sorted(SOLVERS)}.")
    if not isinstance(orthogonal, (bool, np.bool_)):
        raise ValueError(f"orthogonal={orthogonal!r}; choose True or False.")
    if noise not in NOISES:
        raise ValueError(f"noise={noise!r} is unknown; choose one of {list(NOISES)}.")
    if solver != "ml":
        why = f"solver={solver!r} has no model of the noise"
        refuse_without_effect("noise", noise, "isotropic", why, "drop it, or pass solver='ml'")
    if solver == "ml" and orthogonal and noise == "diagonal":
        raise ValueError(
            "orthogonal=True with noise='diagonal': axes that are orthogonal are not so once features are divided by "
            "their noise; choose noise='isotropic' or 'pooled', or standardise the features first."
        )
    return {"solver": solver, "orthogonal": bool(orthogonal), "noise": noise}


def get_solver(solver: str, orthogonal: bool, n_contexts: int) -> Solver:
    """Return the solver for choices that ``check_solver`` has passed."""
    if n_contexts == 1:
        return ml.solve_one if solver == "ml" else _principal_axes
    if orthogonal:
        return orthonormal.solve_ml if solver == "ml" else orthonormal.solve
    return SOLVERS[solver]


def _principal_axes(S: Covariances, core: Core, r: int, settings: Settings) -> SolverResult:
    """Top eigenvectors of one covariance: of the core, which holds them and more."""
    A = core.lift(np.linalg.eigh(core.tensor[0])[1][:, ::-1][:, :r])
    return SolverResult(A, 1, True, "One context: the answer is PCA's.")
