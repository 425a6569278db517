"""The solvers: each takes the core and a rank, and returns components in core coordinates."""

from __future__ import annotations

from collections.abc import Callable

from . import mspm
from ._result import SolverResult

__all__ = ["SOLVERS", "SolverResult", "get_solver"]

SOLVERS: dict[str, Callable[..., SolverResult]] = {"mspm": mspm.solve}


def get_solver(name: object) -> Callable[..., SolverResult]:
    """Look a solver up by name."""
    if not isinstance(name, str) or name not in SOLVERS:
        raise ValueError(f"solver={name!r} is unknown; choose one of {sorted(SOLVERS)}.")
    return SOLVERS[name]
