"""Other methods for the components of several contexts: one call, and one form of result for all of them.

``run(name, X, r)`` takes what ``MCPCA.fit`` takes, or a (k, p, p) stack of covariances. ``METHODS`` says what each
method is, what it assumes and whom to cite. They are the competitors of the paper ("Comparison to prior work" in its
supplement, Figure 2) and others added here.

To add a method, write a module with a function that takes a ``Problem`` and keyword-only options, decorate it with
``method`` (``_interface``), and list it in ``METHODS`` (``_run``). Options, their checks, the time limit, scaling,
order and sign of components, and loadings are then those of all methods; ``tests/baselines`` asks for a model that the
method recovers exactly.
"""

from ._interface import BaselineResult, Method
from ._run import METHODS, run

__all__ = ["METHODS", "BaselineResult", "Method", "run"]
