"""Which baselines a test can run here, and how to run them briefly."""

import pytest

from mcpca.baselines import METHODS

TIMED = [name for name, method in METHODS.items() if "time_limit" in method.options]
ANY_K = [name for name, method in METHODS.items() if method.contexts[1] is None]
FAST = {"parafac2": {"max_iter": 3}}  # where the answer does not matter


def skip_if_missing(name):
    """Skip the test if the method needs a package that is not installed."""
    if name == "parafac2":
        pytest.importorskip("tensorly")
