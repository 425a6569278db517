"""How the documentation is built: `make docs`. Nothing here or in the pages it makes needs the network."""

from __future__ import annotations

import hashlib
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

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_design"]
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

html_theme = "pydata_sphinx_theme"
html_title = "mcpca"
html_static_path = ["_static"]
html_css_files = ["mcpca.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "navbar_align": "left",
    "header_links_before_dropdown": 5,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "default",
}
html_sidebars = {"index": []}

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


def setup(app: Any) -> None:
    """Connect what is done before pages are read, and the check at the end of the build."""
    app.connect("builder-inited", _draw_rooms)
    app.connect("build-finished", _warn_of_network)
