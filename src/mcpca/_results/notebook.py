"""A fitted model in a notebook: its map as a small picture, and a line for each MCPC. A few kilobytes, without scripts.

``MCPCA._repr_mimebundle_`` imports it when a fitted model is shown; names are escaped, whatever they contain.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.printing import counted
from .._utils.types import Array
from ..poles import poles
from ..sharing import carrying_contexts
from .fitted import Fitted, fitted

MOST_CONTEXTS = 20  # rows of the map; the rest is counted
MOST_MCPCS = 12  # columns of the map, and lines
_NAME = 24  # characters of a name
_CARRIERS = 3  # contexts named as carrying an MCPC
_FEATURES = 3  # at each pole
_CELL = (22, 14)  # width and height in pixels
_LEVELS = 8  # shades: cells of one shade are one path, which keeps the picture small
_LETTER = 6.6  # pixels, of names beside the map


def model_html(model: Any) -> str:
    """Return a fitted model as HTML.

    Columns of the map are shaded by their own largest loading, as the report's are. Cost O(p r log p) for the MCPCs
    that are shown.
    """
    fit = fitted(model)
    compared = fit.compared()
    B = np.asarray(compared.values, dtype=np.float64)
    k, r = B.shape
    rows = "" if fit.n_samples is None else f", {counted(int(np.sum(fit.n_samples)), 'row')}"
    head = f"{counted(r, 'MCPC')} of {counted(k, 'context')}, {counted(len(fit.features), 'feature')}{rows}"
    return (
        '<div style="font-size:13px;line-height:1.4">'
        f"<p><code>{_safe(repr(model), 400)}</code><br><b>{head}</b>; solver {_safe(model.solver_)}. "
        f"The map and the lines are of {_safe(compared.words, 200)}.</p>"
        f"{_map(fit, B)}{_lines(fit, B)}</div>"
    )


def _map(fit: Fitted, B: Array) -> str:
    """Return the loadings (k, r) as a picture of the first contexts and MCPCs, darker for more."""
    k, r = (min(n, most) for n, most in zip(B.shape, (MOST_CONTEXTS, MOST_MCPCS), strict=True))
    largest = B.max(axis=0)
    shades = np.round(_LEVELS * B[:k, :r] / np.where(largest > 0, largest, 1)[:r]).clip(0, _LEVELS).astype(int)
    width, height = _CELL
    names = [_short(name, _NAME) for name in fit.contexts[:k]]
    left = round(_LETTER * max(map(len, names), default=0)) + 8
    paths = []
    for level in range(1, _LEVELS + 1):
        cells = "".join(
            f"M{left + width * j} {height * (i + 1)}h{width - 1}v{height - 1}h-{width - 1}z"
            for i, j in np.argwhere(shades == level).tolist()
        )
        if cells:
            paths.append(f'<path d="{cells}" fill-opacity="{level / _LEVELS:g}"/>')
    texts = "".join(
        f'<text x="{left - 6}" y="{height * (i + 2) - 4}" text-anchor="end">{_isolated(name)}</text>'
        for i, name in enumerate(names)
    )
    texts += "".join(
        f'<text x="{left + width * j + width // 2}" y="{height - 4}" text-anchor="middle">{j + 1}</text>'
        for j in range(r)
    )
    label = f"Loadings of {counted(k, 'context')} and {counted(r, 'MCPC')}, darker for more"
    return (
        f'<svg role="img" aria-label="{label}" width="{left + width * r + 2}" height="{height * (k + 1) + 2}" '
        'font-size="11" font-family="sans-serif" fill="currentColor">'
        f'{texts}<g fill="#2171b5">{"".join(paths)}</g></svg>' + _more(len(B) - k, "context")
    )


def _lines(fit: Fitted, B: Array) -> str:
    """Return a table with a line for each MCPC: its share, who carries it, the features at its poles."""
    total = B.sum(axis=0)
    shares = total / (total.sum() or 1)
    r = min(B.shape[1], MOST_MCPCS)
    lines = []
    for j in range(r):
        ends = poles(fit.components, fit.features, j, _FEATURES)
        carriers = [fit.contexts[i] for i in carrying_contexts(B[:, j]).tolist()]
        cells = [f"{shares[j]:.0%}", _listed(carriers, _CARRIERS), *(_listed(pole.names, _FEATURES) for pole in ends)]
        lines.append(f"<tr><th>{_safe(fit.names[j])}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    heads = ("", "share of variance", "carried by", "negative pole", "positive pole")
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>" + _more(
        B.shape[1] - r, "MCPC"
    )


def _more(n: int, what: str) -> str:
    return f"<p>... and {counted(n, f'more {what}')}</p>" if n > 0 else ""


def _listed(names: Sequence[str], most: int) -> str:
    told = ", ".join(f"<bdi>{_safe(name)}</bdi>" for name in names[:most]) or "none"
    return told + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _short(text: str, length: int) -> str:
    """Return at most ``length`` characters; those that are not seen, or turn the text around them, by their code."""
    text = text or "(empty)"
    seen = "".join(c if c.isprintable() else f"\u27e8U+{ord(c):04X}\u27e9" for c in text[: 2 * length])
    return seen if len(seen) <= length and len(text) <= 2 * length else f"{seen[: length - 1]}\u2026"


def _safe(text: str, length: int = _NAME) -> str:
    """Return text for HTML in plain ASCII, so that even lone surrogates can be written."""
    return html.escape(_short(str(text), length)).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _isolated(text: str) -> str:
    """Return a name for SVG, which has no ``bdi``: between isolates it does not reorder what is beside it."""
    return f"&#x2068;{_safe(text)}&#x2069;"
