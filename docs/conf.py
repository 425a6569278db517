"""How the documentation is built: `make docs`. Nothing here or in the pages it makes needs the network.

Links into the pages of NumPy, pandas and others are added where these are published: on Read the Docs, or with
``MCPCA_INTERSPHINX=1`` in the environment. Their inventories are then fetched; one that cannot be is no error.
"""

from __future__ import annotations

import hashlib
import logging as standard_logging
import os
import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from sphinx.util import logging

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SOURCE = HERE.parent / "src" / "mcpca"

project = "mcpca"
author = "The mcpca developers"
project_copyright = "The mcpca developers"
version = release = installed_version("mcpca")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
nitpicky = False

# Pages are Markdown that also reads well in the repository. Their mathematics is text, so that no script renders it.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Tutorials run when the pages are built. A cell that fails or writes to stderr (a warning, say) fails the build.
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_in_temp = True
nb_output_stderr = "warn"
os.environ["MCPCA_PROGRESS"] = "0"  # of cells that take a few seconds
nb_merge_streams = True


def _source_digest() -> str:
    """Digest of the package: results are kept for the same cells and the same code only."""
    digest = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


nb_execution_cache_path = str(HERE / "_build" / "cells" / _source_digest())
os.environ["MATPLOTLIBRC"] = str(HERE / "matplotlibrc")
# tqdm, which UMAP imports, warns in every notebook that has no widgets; pages have none.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"

autosummary_generate = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False

LINKS_OUT = bool(os.environ.get("READTHEDOCS") or os.environ.get("MCPCA_INTERSPHINX"))
if LINKS_OUT:
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_timeout = 20
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3/", None),
        "numpy": ("https://numpy.org/doc/stable/", None),
        "scipy": ("https://docs.scipy.org/doc/scipy/", None),
        "sklearn": ("https://scikit-learn.org/stable/", None),
        "pandas": ("https://pandas.pydata.org/docs/", None),
        "matplotlib": ("https://matplotlib.org/stable/", None),
        "anndata": ("https://anndata.readthedocs.io/en/stable/", None),
        "scanpy": ("https://scanpy.readthedocs.io/en/stable/", None),
        "dask": ("https://docs.dask.org/en/stable/", None),
    }
    # Words such as "bool" point to labels of Python's inventory. If it is missing they stay words; the build without
    # links out warns of labels that are missing here.
    suppress_warnings = ["ref.ref", "ref.term"]
    # Types in docstrings become links: these names, and no other word of a type.
    numpydoc_xref_param_type = True
    numpydoc_xref_ignore = "all"
    numpydoc_xref_aliases = {
        "AnnData": "anndata.AnnData",
        "Axes": "matplotlib.axes.Axes",
        "Figure": "matplotlib.figure.Figure",
        "DataFrame": "pandas.DataFrame",
        "Series": "pandas.Series",
        "Generator": "numpy.random.Generator",
        "RandomState": "numpy.random.RandomState",
        "ndarray": "numpy.ndarray",
        "Path": "pathlib.Path",
        "Pipeline": "sklearn.pipeline.Pipeline",
    }

# A button copies what is typed, not the prompts and not what is printed.
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = "mcpca"
html_static_path = ["_static"]
html_css_files = ["mcpca.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "navbar_align": "left",
    "github_url": "https://github.com/mcpca/mcpca",
    "header_links_before_dropdown": 5,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
html_context = {"default_mode": "auto"}

_LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["'](?:https?:)?//[^"']+""")


def _warn_of_network(app: Any, exception: Exception | None) -> None:
    """Warn, which fails the build, of pages that would load anything from the network."""
    if exception is not None or app.builder.format != "html":
        return
    for page in sorted(Path(app.outdir).rglob("*.html")):
        for tag in _LOADED.findall(page.read_text(encoding="utf-8")):
            logging.getLogger(__name__).warning("%s loads from the network: %s", page.name, tag)


def _draw_rooms(app: Any) -> None:
    """Draw the architecture as it is, for the page that shows it."""
    import rooms

    rooms.main(HERE / "_build" / "architecture")


_EMPTY_HEADING = re.compile(r"<th((?: class=\"[^\"]*\")?)>(?:\s|<p>\s*</p>)*</th>")


_DRAWN = re.compile(r'(<img alt=")[^"]*\b[0-9a-f]{32,}\.(?:png|svg)(")')


def _say_what_is_meant(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend what screen readers would read out: the names of files of pictures drawn by cells, and empty headings.

    Empty headings, such as the corner of a table, become cells.
    """
    if "body" in context:
        body = _EMPTY_HEADING.sub(r"<td\1></td>", context["body"])
        context["body"] = _DRAWN.sub(r"\1Picture drawn by the code above\2", body)


def _is_no_error(record: standard_logging.LogRecord) -> bool:
    """Lower the warning of an inventory that cannot be fetched: pages then lack links out, and nothing else."""
    if record.levelno == standard_logging.WARNING and "inventories" in str(record.msg):
        record.levelno, record.levelname = standard_logging.INFO, "INFO"
    return True


def setup(app: Any) -> None:
    """Connect what is done before pages are read, and the check at the end of the build."""
    if LINKS_OUT:
        standard_logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(_is_no_error)
    app.connect("builder-inited", _draw_rooms)
    app.connect("html-page-context", _say_what_is_meant)
    app.connect("build-finished", _warn_of_network)
