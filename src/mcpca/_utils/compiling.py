"""Compilation by Numba, kept on disk where there is a folder that can be written to.

Importing this module imports Numba, which takes a while: ``_data.sparse_products`` knows when that pays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function, which runs without Python's lock."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that can be written to
        return njit(nogil=True)(function)
