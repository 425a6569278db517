"""Checks of arguments: each error names the argument, the value, the bound and the way out."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np


def as_generator(random_state: Any) -> np.random.Generator:
    """Return a Generator of our own; NumPy's global generator is neither read nor moved."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, size=4))
    if random_state is not None and (isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral)):
        raise ValueError(
            f"random_state={random_state!r} is a {type(random_state).__name__}; pass an integer, a "
            "numpy.random.Generator, a RandomState, or None."
        )
    if random_state is not None and random_state < 0:
        raise ValueError(f"random_state={random_state} is negative; pass an integer >= 0 or None.")
    return np.random.default_rng(None if random_state is None else int(random_state))


def check_integer(value: Any, name: str, low: int, high: int | None = None, way_out: str = "") -> int:
    """Return ``value`` as an int within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name}={value!r} is not an integer (got {type(value).__name__}); pass a whole number.")
    bound = f"{name} >= {low}" if high is None else f"{low} <= {name} <= {high}"
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name}={value} is out of bounds: {bound} is needed. {way_out}".strip())
    return number


def check_integers(values: Any, name: str, low: int) -> list[int]:
    """Return one integer or a sequence of them as a list, each at least ``low``."""
    several = [values] if isinstance(values, numbers.Real) else values
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise TypeError(f"{name} is a {type(values).__name__}; pass a whole number, or several.")
    found = [check_integer(value, name, low) for value in several]
    if not found:
        raise ValueError(f"{name} is empty; pass at least one number.")
    return found


def check_real(value: Any, name: str, low: float, high: float, way_out: str = "") -> float:
    """Return ``value`` as a float within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not low <= float(value) <= high:
        raise ValueError(f"{name}={value!r} is out of bounds: {low} <= {name} <= {high} is needed. {way_out}".strip())
    return float(value)


def refuse_without_effect(name: str, value: Any, default: Any, why: str, way_out: str) -> None:
    """Raise where an option is not left at its default though it cannot have an effect; ``why`` completes "because".

    For options that other options, or the kind of input, leave without any. Data (rows, counts) are no option, and what
    these very data make no use of (a checkpoint of few rows, a seed that nothing is drawn from) is nobody's mistake.
    """
    if value is default or (default is not None and np.ndim(value) == 0 and bool(value == default)):
        return
    shown = f"={value!r}" if isinstance(value, (str, numbers.Number, range)) or value is None else ""
    raise ValueError(f"{name}{shown} has no effect, because {why}; {way_out}.")


def check_rank(r: Any, p: int, name: str = "n_components") -> int:
    """Return the rank as an int in [1, p]."""
    return check_integer(r, name, 1, p, f"MCPCA needs 1 <= {name} <= n_features; choose a rank of at most {p}.")


FINITE = "pass finite numbers"


def check_unmasked(X: Any, where: str, way_out: str = "fill them, or drop those rows") -> Any:
    """Return X; raise where it is an array with masked values, which NumPy would take for their numbers."""
    masked = int(np.ma.getmaskarray(X).sum()) if isinstance(X, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(f"{where} has {masked} masked values; {way_out}.")
    return X
