"""What the stages of ``ml`` hand to each other, and when they are done."""

from __future__ import annotations

from dataclasses import dataclass

from .._utils.types import Array
from .interface import Settings

# Root mean square distance to the maximum, in standard errors and units of ``tol``: 1e-3 standard errors by default,
# far below what the data can tell.
STANDARD_ERRORS_PER_TOL = 1e4
NOISE_FLOOR = 1e-9  # of the mean variance of a feature; below it rounding in the covariances would decide


@dataclass(frozen=True)
class Estimate:
    """Components (p, r), loadings (k, r), noise, the decrement left (``scoring.Maximum``) and the steps taken.

    Loadings and noise are in units of the mean variance of a feature, which is 1 for all stages.
    """

    A: Array
    B: Array
    noise: Array | None
    decrement: float
    n_iter: int


def largest_distance(settings: Settings) -> float:
    """Return the distance to the maximum, in standard errors, at which the likelihood counts as converged."""
    return STANDARD_ERRORS_PER_TOL * settings.tol


def largest_decrement(settings: Settings) -> float:
    """Return the same threshold as a decrement, which is the square of a distance."""
    return largest_distance(settings) ** 2
