"""What every baseline takes and returns, how it describes itself, and when it stops.

A method is a function of a ``Problem`` and keyword-only options that returns a ``MethodOutput``; the decorator
``method`` adds its description. ``_run`` makes the problem from the user's input and a ``BaselineResult`` from the
output.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from .._covariances.interface import project
from .._covariances.stack import CovarianceStack
from .._data.contexts import Contexts
from .._utils.arguments import check_integer, check_real
from .._utils.printing import NAMED, Shown, counted
from .._utils.types import Array
from .._utils.wording import listed


@dataclass(frozen=True, repr=False)
class BaselineResult(Shown):
    """The components that a method found, in the same form for all methods.

    Attributes
    ----------
    name : str
        Key of the method in ``METHODS``.
    components : ndarray (p, r)
        A: unit columns, by decreasing total variance, the largest entry of each positive.
    loadings : ndarray (k, r)
        B >= 0, by least squares given A, whatever loadings the method itself would have.
    seconds : float
        From the covariances to A. Covariances and loadings are the same for all methods and not counted.
    converged : bool
        Whether the iteration met its tolerance; True for methods without one.
    notes : str
        What was assumed, compressed, or went wrong, in a sentence or more.
    extras : mapping
        What the method returns besides A, by name; arrays (r,) are in the order of the components.
    """

    name: str
    components: Array
    loadings: Array
    seconds: float
    converged: bool
    notes: str
    extras: Mapping[str, Any] = field(default_factory=dict)

    def _words(self) -> list[str]:
        p, r = self.components.shape
        k = len(self.loadings)
        end = "" if self.converged else ", not converged"
        lines = [
            f"{counted(r, 'component')} of {counted(k, 'context')} and {counted(p, 'feature')} by {self.name}, in "
            f"{self.seconds:.2g} s{end}."
        ]
        if self.notes:
            lines.append(self.notes)
        if self.extras:
            lines.append(f"Beside these: {listed(list(self.extras), NAMED)}.")
        return lines

    def _rows(self) -> dict[str, Any]:
        total = self.loadings.sum(axis=0)
        # A sum of zero means that no component has variance anywhere; then there are no shares to divide.
        shares = {"share of the variance": total / (total.sum() or 1)}
        return {"component": range(1, len(total) + 1), **shares, "largest loading": self.loadings.max(axis=0)}


@dataclass(frozen=True)
class MethodOutput:
    """Components (p, r) as a method leaves them: any scale, order and sign."""

    components: Array
    converged: bool = True
    notes: tuple[str, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Covariances as methods see them.

    ``S`` (k, p, p) in float64, divided by one number so that the mean variance of a feature is 1; ``weights`` (k,) are
    shares of the degrees of freedom, or equal; ``rows`` is None if only covariances were given. Most methods of joint
    diagonalisation are for r = p: they work on ``small`` and take their components back by ``lift``.
    """

    S: Array
    r: int
    weights: Array
    names: list[Any]
    rows: Contexts | None
    rng: np.random.Generator

    @cached_property
    def basis(self) -> Array | None:
        """The top r left singular vectors (p, r) of ``[S_1 ... S_k]``; None, the identity, if r = p."""
        return None if self.r == self.S.shape[1] else CovarianceStack(self.S).basis(self.r, self.r).vectors

    @cached_property
    def small(self) -> Array:
        """``U^T S_i U`` (k, r, r): in the model all of the covariances, for methods that need r = p."""
        M = self.S if self.basis is None else project(CovarianceStack(self.S), self.basis)
        # Products leave rounding off symmetry, which iterations on all entries would amplify.
        return np.ascontiguousarray((M + M.transpose(0, 2, 1)) / 2)

    def lift(self, C: Array) -> Array:
        """Take columns from r dimensions back to features."""
        return C if self.basis is None else self.basis @ C

    @property
    def compression(self) -> tuple[str, ...]:
        """The note of a method that works on ``small``."""
        p = self.S.shape[1]
        if self.r == p:
            return ()
        return (
            f"Full-rank method: worked in the top r={self.r} singular directions of the flattening, not all p={p}.",
        )


class Clock:
    """Says when ``time_limit`` seconds are over: never, if it is None."""

    def __init__(self, time_limit: float | None) -> None:
        way_out = "Pass seconds, or None for no limit."
        self.limit = None if time_limit is None else check_real(time_limit, "time_limit", 0, 1e9, way_out)
        self.start = perf_counter()

    @property
    def over(self) -> bool:
        """Whether to stop now."""
        return self.limit is not None and perf_counter() - self.start >= self.limit

    def ending(self, converged: bool, steps: int, unit: str) -> tuple[str, ...]:
        """Return the note on how an iteration ended; ``unit`` is a plural."""
        unit = unit.removesuffix("s") if steps == 1 else unit
        if converged:
            return (f"Converged after {steps} {unit}.",)
        if self.over:
            return (f"Stopped by time_limit={self.limit:g} s after {steps} {unit}: this is as far as it had come.",)
        return (f"Not converged after {steps} {unit}; raise max_iter or tol.",)


class Limits:
    """When an iteration is to end: its tolerance, largest number of steps and time, all checked.

    ``meaning`` is a sentence on what ``tol`` measures, for the error message.
    """

    def __init__(
        self, tol: float, smallest_tol: float, meaning: str, max_iter: int, time_limit: float | None = None
    ) -> None:
        self.tol = check_real(tol, "tol", smallest_tol, 1, meaning)
        self.max_iter = check_integer(max_iter, "max_iter", 1)
        self.clock = Clock(time_limit)

    def allow(self, steps: int, converged: bool) -> bool:
        """Whether to take another step."""
        return steps < self.max_iter and not converged and not self.clock.over


class End(NamedTuple):
    """Where an iteration from one start ended: columns, relative squared error, number of steps, whether converged."""

    components: Array
    error: float
    steps: int
    converged: bool


def best_of(n_starts: Any, clock: Clock, attempt: Callable[[], End]) -> End:
    """Return the end with the least error; the first start is always taken, the others while there is time."""
    n_starts = check_integer(n_starts, "n_starts", 1)
    # Errors alone decide: a start that was cut short may still be the best.
    best = attempt()
    for _ in range(n_starts - 1):
        if clock.over:
            break
        best = min(best, attempt(), key=lambda end: end.error)
    # The error is a difference, which rounding may leave below zero for an exact fit.
    return best._replace(error=max(best.error, 0.0))


@dataclass(frozen=True)
class Method:
    """A method and what to know before using it.

    ``contexts`` is how many contexts it can take, least and most (None: any number); ``in_paper`` tells the
    competitors of the paper from those added here.
    """

    name: str
    title: str
    function: Callable[..., MethodOutput]
    citation: str
    assumptions: str
    cost: str
    contexts: tuple[int, int | None] = (2, None)
    in_paper: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword arguments that ``run`` passes on."""
        # From the signature, so that there is no second list of options that could fall behind.
        parameters = inspect.signature(self.function).parameters
        return tuple(name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY)

    def check(self, k: int, options: Mapping[str, Any]) -> None:
        """Raise if the method cannot take k contexts or does not know an option."""
        least, most = self.contexts
        if most is not None and k > most:
            raise ValueError(
                f"X has k={k} contexts, and {self.name} ({self.title}) compares exactly {most}; pass the two that you "
                "want compared, or choose a method for any number, for example 'mspm'."
            )
        if k < least:
            raise ValueError(
                f"X has k={k} context(s), and {self.name} ({self.title}) needs {least} or more: fewer do not determine "
                "its components. Pass more contexts, or choose 'pca_stack', which is PCA for one."
            )
        unknown = [name for name in options if name not in self.options]
        if unknown:
            raise TypeError(f"option(s) {unknown} are unknown to {self.name}; it takes {list(self.options) or 'none'}.")


def method(name: str, **description: Any) -> Callable[[Callable[..., MethodOutput]], Method]:
    """Make a function of a ``Problem`` and keyword-only options into a ``Method``."""

    def wrap(function: Callable[..., MethodOutput]) -> Method:
        return Method(name=name, function=function, **description)

    return wrap
