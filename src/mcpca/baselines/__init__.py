"""Other methods for the components of several contexts, side by side: one call, one form of result.

``run(name, X, r)`` takes what ``MCPCA.fit`` takes, or a (k, p, p) stack of covariances. ``METHODS`` says what each
method is, what it assumes and whom to cite.
"""

from ._interface import BaselineResult, Method
from ._run import METHODS, run

__all__ = ["METHODS", "BaselineResult", "Method", "run"]
