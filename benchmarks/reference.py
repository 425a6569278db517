"""The authors' implementation, loaded from a checkout beside ours and under another name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

NAME = "reference_mcpca"


def load_reference(directory: str) -> Callable[[np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]:
    """Return ``run(S, r, seed) -> (A, B)`` that calls the reference's ``MCPCA_decompose`` on a (k, p, p) stack.

    It takes the tensor as (p, p, k) and draws from NumPy's global generator, which is why it must be seeded here.
    """
    package = Path(directory) / "src" / "mcpca"
    if not (package / "__init__.py").is_file():
        raise SystemExit(f"--reference {directory}: no src/mcpca/__init__.py there; give a checkout of the reference.")
    sys.modules.setdefault("seaborn", types.ModuleType("seaborn"))  # imported there and never used
    # It compiles with numba where that is installed, and caches under its own name, which is not the one used here.
    os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp()
    spec = importlib.util.spec_from_file_location(
        NAME, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that numba is missing
        spec.loader.exec_module(module)
    decompose = importlib.import_module(f"{NAME}.MCPCA_core").MCPCA_decompose

    def run(S: np.ndarray, r: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        np.random.seed(seed)  # noqa: NPY002
        return decompose(np.ascontiguousarray(S.transpose(1, 2, 0)), r)

    run(np.stack([np.diag([1.0, 2, 3]), np.diag([3.0, 1, 1])]), 2, 0)  # compiles, outside any timing
    return run
