"""One HTML file from the data of the page, our style sheet and scripts, and Plotly."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib.resources import files
from typing import Any

from .._utils.optional import require
from ._encode import as_json

# In this order: each uses what is above it.
_SCRIPTS = ("data.js", "dom.js", "table.js", "charts.js", "map.js", "mcpc.js", "context.js", "rest.js", "main.js")


def page_of(content: dict[str, Any]) -> str:
    """Return the page; the same content gives the same text."""
    plotly = _plotly()
    ours = _script("\n".join(_asset(name) for name in _SCRIPTS))
    pieces = {
        "policy": _policy([ours, plotly]),
        "title": _escaped(content["title"]),
        "style": _asset("page.css"),
        "data": as_json(content),
        "ours": ours,
        "plotly": plotly,
    }
    page = []
    # Split at the marks, not replaced one by one: what is filled in is never looked at for marks.
    for i, part in enumerate(_asset("page.html").split("@@")):
        page.append(pieces[part] if i % 2 else part)
    return "".join(page)


@cache
def _plotly() -> str:
    return _script(require("plotly.offline", "report").get_plotlyjs())


def _asset(name: str) -> str:
    return (files("mcpca.report") / "static" / name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """Return JavaScript that does not end its element early; browsers hash it with line feeds alone."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(scripts: list[str]) -> str:
    """Return a Content-Security-Policy under which these scripts run, no other does, and nothing is loaded.

    Plotly sets styles of elements, which is why styles may be inline; its pictures are saved from data: and blob:.
    """
    hashes = [base64.b64encode(hashlib.sha256(s.encode("utf-8")).digest()).decode("ascii") for s in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _escaped(text: str) -> str:
    """Return text for HTML in plain ASCII, so that lone surrogates can be written too."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")
