"""What every solver takes and returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._utils.types import Array, Report


@dataclass(frozen=True)
class Settings:
    """How a solver is to work, and what it may know of the data beside the covariances.

    ``degrees_of_freedom`` (k,) are the weights of contexts in a likelihood; ``noise`` is its model of what the
    components leave.
    """

    rng: np.random.Generator
    tol: float
    max_iter: int
    report: Report
    degrees_of_freedom: Array
    noise: str | None = "isotropic"


@dataclass(frozen=True)
class SolverResult:
    """Components (p, r) with unit columns, and how the solver got there; ``message`` is a sentence for the user.

    ``loadings`` (k, r) is None where they follow from the components by least squares; ``noise`` is the variance
    beside the components, (k,), (p,) or a number; ``gradient`` the certificate of a solver that has one.
    """

    components: Array
    n_iter: int
    converged: bool
    message: str
    loadings: Array | None = None
    noise: Array | None = None
    gradient: float | None = None
