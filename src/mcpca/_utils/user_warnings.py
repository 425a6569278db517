"""Warnings that point at the user's line, however deep inside the package they are issued."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PACKAGE = __name__.partition(".")[0]
# Whether warnings are held back in this thread. ``warnings.catch_warnings`` would do so in all threads at once.
_is_muted: ContextVar[bool] = ContextVar("is_muted", default=False)


@contextmanager
def muted() -> Iterator[None]:
    """Hold back the warnings of this module while the body runs: of work on the way to a result, and not of it."""
    token = _is_muted.set(True)
    try:
        yield
    finally:
        _is_muted.reset(token)


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Issue a warning on behalf of whoever called the package.

    A fixed ``stacklevel`` is wrong as soon as a function is called by another one of ours, so the frames are walked
    instead, up to the first that is not of this package. A ``Warning`` that is passed brings its own category.
    """
    if _is_muted.get():
        return
    level = 1
    frame = sys._getframe()
    # Known by the name of their module and not by a path: the package may be installed, editable or in a zip file. The
    # outermost frame ends the walk in any case.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
