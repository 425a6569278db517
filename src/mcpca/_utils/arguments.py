"""Checks of arguments, each raising an error that names the argument, its value, the bound and the way out.

Public functions call these first, before any work is done; what they return is the value in its plain Python type, so
that no NumPy integer or boolean travels further down.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

_SEED_WORDS = 4  # 31-bit words drawn from a RandomState: 124 bits, close to the 128 that NumPy recommends for a seed

FINITE = "pass finite numbers"


class _NotGiven:
    """The default of arguments for which None is a value of its own."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()


def as_generator(random_state: Any) -> np.random.Generator:
    """Return a Generator for ``random_state``; NumPy's global generator is neither read nor advanced."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.BitGenerator):
        return np.random.Generator(random_state)
    if isinstance(random_state, np.random.SeedSequence):
        # A copy: streams that are spawned would be counted in the user's, and the next call with it would differ.
        return np.random.default_rng(np.random.SeedSequence(**random_state.state))
    if isinstance(random_state, np.random.RandomState):
        # Drawing from the RandomState advances it, so that two calls with the same object differ, as in scikit-learn.
        return np.random.default_rng(random_state.randint(2**31, size=_SEED_WORDS))
    # True is an Integral, but never meant as a seed.
    if random_state is not None and (isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral)):
        raise ValueError(
            f"random_state={random_state!r} is a {type(random_state).__name__}; pass an integer, a "
            "numpy.random.Generator, a SeedSequence, a BitGenerator, a RandomState, or None."
        )
    if random_state is not None and random_state < 0:
        raise ValueError(f"random_state={random_state} is negative; pass an integer >= 0 or None.")
    return np.random.default_rng(None if random_state is None else int(random_state))


def one_random_state(rng: Any, random_state: Any, default: Any = None) -> Any:
    """Return what ``rng`` or ``random_state`` says, in a form that ``as_generator`` takes; ``default`` without either.

    ``rng`` is what ``numpy.random.default_rng`` takes (SPEC 7 of Scientific Python); an integer stays one, so that it
    can be stored, and means the same by either name. Where the default is None, None says nothing. Where it is a
    number, None asks for other numbers in every call, and an argument that was not given is ``NOT_GIVEN``.
    """
    if default is None:
        rng = NOT_GIVEN if rng is None else rng
        random_state = NOT_GIVEN if random_state is None else random_state
    if rng is not NOT_GIVEN and random_state is not NOT_GIVEN:
        raise TypeError("rng and random_state are both given, and are two names of the same thing; pass rng alone.")
    if rng is NOT_GIVEN:
        return default if random_state is NOT_GIVEN else random_state
    if rng is None or isinstance(rng, (np.random.Generator, np.random.SeedSequence, np.random.BitGenerator)):
        return rng
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool) and int(rng) >= 0:
        return int(rng)
    # NumPy would take True for 1; a RandomState only some of its versions take.
    if not isinstance(rng, (bool, np.random.RandomState)):
        try:
            return np.random.default_rng(rng)
        except (TypeError, ValueError):
            pass
    raise ValueError(
        f"rng={rng!r} is nothing that numpy.random.default_rng takes; pass an integer >= 0, a Generator, a "
        "SeedSequence, a BitGenerator, integers, or None. A RandomState goes to random_state."
    )


def as_seed(random_state: Any) -> int:
    """Return an integer that can be stored and repeats the run: an integer itself, or one drawn from anything else."""
    rng = as_generator(random_state)
    return int(random_state) if isinstance(random_state, numbers.Integral) else int(rng.integers(2**31))


def check_integer(value: Any, name: str, low: int, high: int | None = None, way_out: str = "") -> int:
    """Return ``value`` as an int in [low, high]; ``way_out`` is a sentence added to the error about the bounds."""
    # True would pass as 1: bool is a subclass of int. NumPy's integers are registered as Integral.
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name}={value!r} is not an integer (got {type(value).__name__}); pass a whole number.")
    bound = f"{name} >= {low}" if high is None else f"{low} <= {name} <= {high}"
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name}={value} is out of bounds: {bound} is needed. {way_out}".strip())
    return number


def check_integers(values: Any, name: str, low: int) -> list[int]:
    """Return one integer or a sequence of them as a list, each at least ``low``."""
    # Real and not Integral: a single 2.5 should be answered with "is not an integer", not with a wrong type.
    sequence = [values] if isinstance(values, numbers.Real) else values
    # A string is an iterable of characters, which is never meant.
    if isinstance(sequence, str) or not isinstance(sequence, Iterable):
        raise TypeError(f"{name} is a {type(values).__name__}; pass a whole number, or several.")
    integers = [check_integer(value, name, low) for value in sequence]
    if not integers:
        raise ValueError(f"{name} is empty; pass at least one number.")
    return integers


def check_real(value: Any, name: str, low: float, high: float, way_out: str = "") -> float:
    """Return ``value`` as a float in [low, high]; NaN is outside of any bounds."""
    # Written as ``not low <= value <= high``: NaN fails every comparison.
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not low <= float(value) <= high:
        raise ValueError(f"{name}={value!r} is out of bounds: {low} <= {name} <= {high} is needed. {way_out}".strip())
    return float(value)


def check_rank(r: Any, p: int, name: str = "n_components") -> int:
    """Return the rank as an int in [1, p]."""
    way_out = f"MCPCA needs 1 <= {name} <= n_features; choose a rank of at most {p}."
    # Only for those who asked for more components than features, and not for zero of them.
    if isinstance(r, numbers.Integral) and int(r) > p:
        way_out += " More components than features, from many contexts: mcpca.overcomplete(S, r)."
    return check_integer(r, name, 1, p, way_out)


def refuse_without_effect(name: str, value: Any, default: Any, why: str, way_out: str) -> None:
    """Raise if an option differs from its default although it cannot have an effect; ``why`` follows "because".

    This is for options that another option, or the kind of input, switches off: a silently ignored option reads like
    one that was obeyed. It is not for data (rows, counts), nor for options that merely happen to make no difference to
    these data (a checkpoint for few rows, a seed from which nothing is drawn).
    """
    # np.ndim first: comparing an array with the default would give an array.
    if value is default or (default is not None and np.ndim(value) == 0 and bool(value == default)):
        return
    # Only short values are shown; an array or a model would fill the screen.
    shown = f"={value!r}" if isinstance(value, (str, numbers.Number, range)) or value is None else ""
    raise ValueError(f"{name}{shown} has no effect, because {why}; {way_out}.")


def check_unmasked(X: Any, where: str, way_out: str = "fill them, or drop those rows") -> Any:
    """Return X, or raise if it has masked values: NumPy would compute with the numbers underneath the mask."""
    n_masked = int(np.ma.getmaskarray(X).sum()) if isinstance(X, np.ma.MaskedArray) else 0
    if n_masked:
        raise ValueError(f"{where} has {n_masked} masked values; {way_out}.")
    return X
