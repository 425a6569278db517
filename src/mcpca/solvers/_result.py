"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass

from .._check import Array


@dataclass(frozen=True)
class SolverResult:
    """Components in core coordinates, and how the solver got there.

    ``components`` (q, r) has unit columns; ``message`` is a sentence for the user.
    """

    components: Array
    n_iter: int
    converged: bool
    message: str
