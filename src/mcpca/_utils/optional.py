"""Late import of packages that come with an extra: the core imports with NumPy, SciPy and scikit-learn alone."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import ``module`` now, or raise an ImportError that names the extra which installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{module} is needed here and cannot be imported ({error}); install it with: pip install "mcpca[{extra}]"'
        ) from error
