"""array-api-strict moves arrays between devices by ``np.asarray(x, copy=True)``, which NumPy 1 does not know; here it does."""

from types import ModuleType

import numpy as np


class _NumPy(ModuleType):
    """NumPy 1 with the keyword ``copy`` of NumPy 2 for ``asarray``."""

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def asarray(x, dtype=None, *, copy=None):
        if copy is False:
            raise ValueError("NumPy 1 cannot promise not to copy")
        return np.array(x, dtype=dtype, copy=True) if copy else np.asarray(x, dtype=dtype)


def teach():
    """Let array-api-strict, where it is installed, find that ``asarray``."""
    try:
        from array_api_strict import _array_object
    except ImportError:
        return
    _array_object.np = _NumPy("numpy")
