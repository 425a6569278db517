"""What does ``solver="auto"`` do? Candidates on halves of the rows, and the one with the lowest held-out error.

Candidates are "mspm", "lsq", and "ml" with isotropic and with scaled noise. Scaled noise contains diagonal and pooled
noise, and adding these changes nothing that matters (``benchmarks/auto_solver.py``). Where features are principal
axes, noise by feature is none of the candidates: it would take what contexts share for noise
(``_inference.held_out``). A ``noise`` that is given, or ``orthogonal``, is that of all candidates.

Random numbers of the choice are spawned, so that those of the fit stay what they are: the model is the one that the
chosen solver finds with the same ``random_state``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._covariances.fit_data import FitData
from .._data.contexts import Contexts
from .._inference.held_out import OFF_DIAGONAL, deciding_error
from .._inference.replication import check_halves
from .._inference.solver_comparison import SolverComparison, judge, solver_candidates
from .._model.decomposition import solver_tolerance
from .._solvers import SOLVERS, check_solver
from .._utils.types import Array, Report
from .parameters import AUTO, Parameters

# Both halves of two splits: one split chooses as well on average, and two say how sure the choice is.
_SPLITS = 2
# Noise of likelihoods among the candidates, if none is given.
_NOISES = ("isotropic", "scaled")


def check_automatic(contexts: Contexts) -> None:
    """Raise if no solver can be chosen on these rows; nothing has been read yet."""
    if contexts.groups is None:
        check_halves(contexts, "name a solver in place of 'auto'")


def choose_solver(
    parameters: Parameters, data: FitData, r: int, weights: Array | None, rng: np.random.Generator, report: Report
) -> tuple[Parameters, SolverComparison]:
    """Return parameters with the solver and the noise that suit the rows best, and the evidence.

    ``data`` have rows. Takes four fits of half of the rows for each of three or four candidates, as many at a time as
    BLAS has threads.
    """
    data = data.on_host()
    assert data.contexts is not None  # refused before
    judged_by = deciding_error(data)
    by_name = None if weights is None else dict(zip(data.names.tolist(), weights.tolist(), strict=True))
    comparison = judge(
        data.contexts,
        r,
        solver_candidates(
            _choices(parameters, by_feature=judged_by == OFF_DIAGONAL),
            r,
            tol=solver_tolerance(parameters.tol),
            max_iter=parameters.max_iter,
            weights=by_name,
        ),
        _SPLITS,
        rng,
        report,
        judged_by=judged_by,
        tol=solver_tolerance(parameters.tol),
        weights=by_name,
    )
    chosen = comparison.options
    return replace(parameters, solver=chosen["solver"], noise=chosen["noise"]), comparison


def _choices(parameters: Parameters, *, by_feature: bool) -> list[dict[str, Any]]:
    """Return the candidates as ``check_solver`` does."""
    choices = []
    for name, entry in SOLVERS.items():
        noises: tuple[str | None, ...] = (parameters.noise,)
        if parameters.noise == AUTO and entry.models_noise:
            noises = _NOISES if by_feature and not parameters.orthogonal else _NOISES[:1]
        choices += [check_solver(name, parameters.orthogonal, noise) for noise in noises]
    return choices
