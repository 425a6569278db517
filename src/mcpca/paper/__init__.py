"""The paper's benchmark: MCPCA and the methods it was compared with, on synthetic data and on digits.

``python -m mcpca.paper --output DIR`` (or ``mcpca benchmark``) draws the figures and writes the tables; ``main`` is the
same as a function.

    ``_command``   the command line: which sections, how large, and what is written
    ``problems``   the data sets: planted contexts, harder variants, digits on photographs
    ``running``    runs methods on cases, and stores every result as a line of a file, so that a run can be resumed
    ``digits``     the section on digits, which chooses a rank first
    ``tables``     results as rows for JSON and Markdown;   ``figures``  results as pictures
    ``claims``     the paper's claims, checked on the tables
"""

from ._command import main

__all__ = ["main"]
