"""array-api-strict, whose arrays lie on devices of their own; tests are skipped where it is of no use."""

import numpy as np
import pytest


def strict_arrays():
    """Return the module; with NumPy 1 it cannot move arrays between devices, and its float32 becomes float64."""
    module = pytest.importorskip("array_api_strict")
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("array-api-strict moves arrays between devices with NumPy 2 only", allow_module_level=True)
    return module
