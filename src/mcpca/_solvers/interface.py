"""What every solver takes and returns; the package's docstring says how to write one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._covariances.interface import Covariances
from .._covariances.subspace import Core
from .._utils.types import Array, Report


@dataclass(frozen=True)
class Settings:
    """How a solver is to work, and what it may know about the data besides the covariances.

    All values have been checked. ``rng`` is the only source of random numbers; ``tol`` and ``max_iter`` mean what the
    solver says they mean (see ``decompose``); ``report(stage, done, total)`` reports progress. ``degrees_of_freedom``
    (k,) are the weights of contexts in a likelihood; ``noise`` is the model of what the components leave, for solvers
    that have one. ``spare_numbers`` is the size of covariances up to which copies of them do not matter.
    """

    rng: np.random.Generator
    tol: float
    max_iter: int
    report: Report
    degrees_of_freedom: Array
    noise: str | None = "isotropic"
    spare_numbers: int = 0


@dataclass(frozen=True)
class SolverResult:
    """Components (p, r) with unit columns, and how the solver got there.

    ``message`` is a sentence for the user, and the text of the warning if ``converged`` is False. ``loadings`` (k, r)
    is None if they are to follow from the components by non-negative least squares; ``noise`` is the variance that
    components leave: (k,) by context, (p,) by feature, (k, p) by both, or None for a solver without a model of it.
    ``gradient`` is the certificate of a solver that has one: how far from a stationary point it ended, in the units of
    ``tol``. ``coordinates`` (q, r) are the components in the basis of the whole core that the solver was given, where
    they lie in its span; None where they do not, or it is not known. ``turned`` (k, r, r) are the covariances in the
    leading r directions of the core, if the solver has made them of the covariances themselves.
    """

    components: Array
    n_iter: int
    converged: bool
    message: str
    loadings: Array | None = None
    noise: Array | None = None
    gradient: float | None = None
    coordinates: Array | None = None
    turned: Array | None = None


Solve = Callable[[Covariances, Core, int, Settings], SolverResult]
