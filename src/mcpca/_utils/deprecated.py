"""What is on its way out: it still works, and says until when and what to write instead.

``deprecated`` stands before a function, a method or the getter of a property, ``renamed_parameter`` before a function
that calls an argument something else now, and ``renamed_names`` is the ``__getattr__`` of a module whose names have
changed. Each notes itself in ``DEPRECATIONS``: a test fails, and no version can be cut, once what should be gone is
still here. The page on the policy has the rules. The category is FutureWarning, which Python shows to users by default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from .user_warnings import warn

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Deprecation:
    """Something that goes in version ``removed_in``; ``instead`` is what to do, a sentence without its full stop."""

    what: str
    since: str
    removed_in: str
    instead: str

    def __str__(self) -> str:
        return (
            f"{self.what} is deprecated since mcpca {self.since} and goes in mcpca {self.removed_in}: {self.instead}."
        )


DEPRECATIONS: list[Deprecation] = []


def overdue(version: str) -> list[Deprecation]:
    """Return what should be gone in ``version``, "0.4.0" or a development version on the way to it."""
    return [noted for noted in DEPRECATIONS if release_of(noted.removed_in) <= release_of(version)]


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, (0, 4, 0) of "0.4.0rc1" and of "0.4.0.dev3+g1a2b3c"."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = len(part) - len(part.lstrip("0123456789"))
        if not digits:
            break
        numbers.append(int(part[:digits]))
        if digits < len(part):
            break
    return tuple(numbers)


def deprecated(what: str, *, since: str, removed_in: str, instead: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function warn whenever it is called; ``what`` is its public name."""
    notice = _noted(what, since, removed_in, instead)

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def warning(*args: P.args, **kwargs: P.kwargs) -> T:
            warn(str(notice), FutureWarning)
            return function(*args, **kwargs)

        return warning

    return decorate


def renamed_parameter(old: str, new: str, *, since: str, removed_in: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function take its argument ``new`` by its old name as well, with a warning; both at once are an error.

    The signature has the new name alone.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = signature(function).parameters
        assert new in known, f"{function.__qualname__} has no parameter {new!r}"
        assert old not in known, f"{function.__qualname__} has {old!r} still"
        notice = _noted(
            f"The argument {old!r} of {function.__qualname__}()", since, removed_in, f"it is called {new!r} now"
        )

        @wraps(function)
        def renaming(*args: P.args, **kwargs: P.kwargs) -> T:
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(
                        f"{function.__name__}() got both {new!r} and {old!r}, its old name; pass {new!r} alone."
                    )
                warn(str(notice), FutureWarning)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return renaming

    return decorate


def renamed_names(module: str, names: Mapping[str, str], *, since: str, removed_in: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of ``module``: it finds old names, the keys of ``names``, by new ones, and warns."""
    notices = {
        old: _noted(f"{module}.{old}", since, removed_in, f"it is called {module}.{new} now")
        for old, new in names.items()
    }

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(str(notices[name]), FutureWarning)
        return getattr(sys.modules[module], names[name])

    return find


def _noted(what: str, since: str, removed_in: str, instead: str) -> Deprecation:
    notice = Deprecation(what, since, removed_in, instead)
    assert release_of(since) < release_of(removed_in), f"{what} would go before it is deprecated"
    DEPRECATIONS.append(notice)
    return notice
