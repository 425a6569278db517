"""The report: one HTML file for exploring a fitted model, which works offline and can be sent by e-mail.

``write_report(model, "report.html", X=X, y=y)`` writes it, ``render`` returns its text, and ``report(model, X, y)``
shows it in a notebook. Needs the extra ``report``.

``_render`` checks the arguments, ``_rows`` samples rows, ``_known`` gathers what is known of contexts and rows
(``_metadata`` from tables, ``_obs_metadata`` from an AnnData), ``_content`` gathers all that is shown in one dictionary
(with sentences from ``_words``, numbers from ``_encode``, all features from ``_features``), and ``_page`` puts it into
HTML beside the scripts in ``static``. ``write_comparison`` writes the page of two models compared
(``_comparison_page``), which needs no extra.
"""

from ._comparison_page import render_comparison, write_comparison
from ._inline import Report, report
from ._render import render, write_report

__all__ = ["Report", "render", "render_comparison", "report", "write_comparison", "write_report"]
