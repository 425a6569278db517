"""The report in a notebook: shown in a frame of its own, and a file when it is saved.

The page is the one that ``write_report`` writes. In a notebook it is the ``srcdoc`` of a sandboxed frame: its scripts
run, by its own Content-Security-Policy, and reach nothing of the notebook around it.
"""

from __future__ import annotations

import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._utils.arguments import check_integer
from .._utils.atomic_files import replace_file
from ._render import check_target, render

HEIGHT = 800
# Scripts of the page, saving of tables and pictures, and the dialogue of printing; not the notebook's origin.
_SANDBOX = "allow-scripts allow-downloads allow-modals"


@dataclass(frozen=True, repr=False)
class Report:
    """A report that a notebook shows inline.

    Attributes
    ----------
    html : str
        The page, as ``render`` returns it.
    path : Path or None
        The file that it was written to; None if it is in memory only.
    height : int
        Of the frame, in pixels.
    """

    html: str
    path: Path | None = None
    height: int = HEIGHT

    def save(self, path: Any, *, overwrite: bool = False) -> Path:
        """Write the page to a file, as ``write_report`` does, and return its path."""
        file = Path(path)
        check_target(file, overwrite)
        replace_file(file, lambda stream: stream.write(self.html.encode("utf-8")))
        return file

    def open(self) -> bool:
        """Open the page in the system's browser; return whether one has taken it.

        A report without a file is written to the folder of temporary files first.
        """
        file = self.path
        if file is None:
            file = self.save(Path(tempfile.mkdtemp(prefix="mcpca-")) / "report.html")
        return webbrowser.open(file.absolute().as_uri())

    def __repr__(self) -> str:
        """Return one line: the size, and where the file is."""
        where = "in memory; save(path) writes it" if self.path is None else f"in {str(self.path)!r}"
        return f"<Report: {len(self.html.encode('utf-8')) / 1e6:.1f} MB, {where}>"

    def _repr_html_(self) -> str:
        # In an attribute in double quotes nothing but these two can end it or stand for something else.
        page = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return (
            f'<iframe title="MCPCA report" sandbox="{_SANDBOX}" allow="clipboard-write" width="100%" '
            f'height="{self.height}" style="border:1px solid #8886" srcdoc="{page}"></iframe>'
        )


def report(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    path: Any = None,
    height: int = HEIGHT,
    overwrite: bool = False,
    **options: Any,
) -> Report:
    """Return the report of a fitted model, which notebooks show inline; with ``path`` also write it to a file.

    Parameters
    ----------
    model, X, y
        As in ``write_report``.
    path : path, optional
        Where to write the page; without it the report is in memory until ``save`` is called.
    height : int
        Of the frame in the notebook, in pixels.
    overwrite : bool
        Whether an existing file at ``path`` may be replaced.
    **options
        All others of ``write_report``: ``title``, ``selection``, ``replicability`` and so on.

    Returns
    -------
    Report
        With ``save(path)``, ``open()``, ``html`` and ``path``.

    Notes
    -----
    The page is in the notebook with all its scripts, about 5 MB for each time it is shown. The frame is sandboxed: the
    page has no access to the notebook. What is chosen is not kept in the address there.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.report import report
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> model = MCPCA(n_components=4, random_state=0).fit(truth.X, truth.y)
    >>> shown = report(model, truth.X, truth.y)  # doctest: +SKIP
    """
    height = check_integer(height, "height", 100)
    file = None if path is None else Path(path)
    if file is None and overwrite:
        raise ValueError("overwrite=True has no effect without path; pass path, or drop it.")
    # Before the page is made, which may take long.
    if file is not None:
        check_target(file, overwrite)
    text = render(model, X=X, y=y, **options)
    shown = Report(text, None, height)
    return shown if file is None else Report(text, shown.save(file, overwrite=overwrite), height)
