"""The report: one HTML file to explore a fitted model, that works offline and can be sent by e-mail.

``write_report(model, "report.html", X=X, y=y)`` writes it, ``render`` returns its text. Needs the extra ``report``.
"""

from ._render import render, write_report

__all__ = ["render", "write_report"]
