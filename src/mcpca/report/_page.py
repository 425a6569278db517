"""One HTML file from the data of the page, our style sheet and scripts, and Plotly.

The last step of ``render`` and of ``render_comparison``. Nothing is loaded when the page is opened: all scripts are
inside it, and its Content-Security-Policy allows no others.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from .._utils.optional import require
from ._encode import as_json

# In this order: each script uses those before it.
_SCRIPTS = (
    "data.js",
    "dom.js",
    "address.js",
    "export.js",
    "names.js",
    "table.js",
    "charts.js",
    "marks.js",
    "orders.js",
    "map.js",
    "map_input.js",
    "list.js",
    "metadata.js",
    "points.js",
    "mcpc.js",
    "context.js",
    "features.js",
    "scatter.js",
    "rest.js",
    "map_svg.js",
    "print.js",
    "main.js",
)


def page_of(content: dict[str, Any]) -> str:
    """Return the report; the same content gives the same text."""
    return assembled(content, "page.html", _SCRIPTS, ("page.css",), with_plotly=True)


def assembled(
    content: dict[str, Any], template: str, scripts: Sequence[str], styles: Sequence[str], *, with_plotly: bool
) -> str:
    """Return a page of a template, scripts and styles in ``static``, with Plotly or without."""
    # The texts that are hashed for the policy must be those in the page, byte for byte.
    plotly = _plotly() if with_plotly else ""
    ours = _script("\n".join(_asset(name) for name in scripts))
    pieces = {
        "policy": _policy([ours, plotly] if with_plotly else [ours]),
        "title": _escaped(content["title"]),
        "style": "\n".join(_asset(name) for name in styles),
        "data": as_json(content),
        "ours": ours,
        "plotly": plotly,
    }
    # The template has @@name@@ for each piece, so every other part is a name. It is split once instead of replaced
    # piece by piece, because names of features could contain such marks too.
    parts = _asset(template).split("@@")
    return "".join(pieces[part] if i % 2 else part for i, part in enumerate(parts))


@cache
def _plotly() -> str:
    return _script(require("plotly.offline", "report").get_plotlyjs())


def _asset(name: str) -> str:
    return (files("mcpca.report") / "static" / name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """Return JavaScript that cannot end its script element early, as the browser will hash it.

    Browsers normalise line ends to line feeds before they compare hashes with the policy.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(scripts: list[str]) -> str:
    """Return a Content-Security-Policy that allows these scripts and no others, and no loading of anything.

    Styles may be inline because Plotly sets them on elements; it saves pictures from data: and blob: addresses.
    """
    hashes = [base64.b64encode(hashlib.sha256(s.encode("utf-8")).digest()).decode("ascii") for s in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _escaped(text: str) -> str:
    """Return text for HTML in plain ASCII, so that even lone surrogates can be written."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")
