"""The paper's benchmark: MCPCA beside the methods it was compared with, on synthetic data and on digits.

``python -m mcpca.paper --output DIR`` draws the figures and writes the tables; ``main`` is the same as a function.
"""

from ._command import main

__all__ = ["main"]
