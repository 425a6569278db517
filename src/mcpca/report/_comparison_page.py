"""The page of a comparison: two fitted models beside each other in one HTML file, without Plotly and so small.

``render_comparison`` returns its text, ``write_comparison`` writes its file. Style, safety and tables are those of the
report; the script is ``static/comparison.js``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._comparison.models import ModelComparison
from .._utils.arguments import check_integer
from .._utils.atomic_files import replace_file
from ._encode import rounded
from ._page import assembled
from ._render import check_target

_SCRIPTS = ("data.js", "dom.js", "address.js", "export.js", "table.js", "comparison.js")
_STYLES = ("page.css", "comparison.css")
_MOST_CELLS = 3600  # of the matrix of |cos|: 60 by 60 MCPCs; beyond that the table of pairs says more
N_FEATURES = 12  # of each of the two at a pair


def render_comparison(
    comparison: ModelComparison,
    *,
    title: str | None = None,
    changes: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
    n_features: int = N_FEATURES,
) -> str:
    """Return the page of a comparison as text; parameters as in ``write_comparison``."""
    if not isinstance(comparison, ModelComparison):
        raise TypeError(f"comparison is a {type(comparison).__name__}; pass what compare_models returned.")
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title is a {type(title).__name__}; pass text.")
    n_features = check_integer(n_features, "n_features", 1)
    a, b = comparison.names
    content = {
        "title": f"{a} and {b}, compared" if title is None else title,
        **_content(comparison, n_features),
        "changes": [{name: str(entry[name]) for name in ("what", "first", "second")} for entry in changes],
        "notes": [str(note) for note in notes],
    }
    return assembled(content, "comparison.html", _SCRIPTS, _STYLES, with_plotly=False)


def write_comparison(
    comparison: ModelComparison,
    path: Any,
    *,
    title: str | None = None,
    changes: Sequence[Mapping[str, Any]] = (),
    notes: Sequence[str] = (),
    n_features: int = N_FEATURES,
    overwrite: bool = False,
) -> Path:
    """Write the page of a comparison: one small HTML file that needs no network.

    Parameters
    ----------
    comparison : ModelComparison
        What ``mcpca.compare_models`` returned.
    path : path
        Where to write the file; its folder must exist. Written as a whole or not at all.
    title : str, optional
        By default the names of the two models.
    changes : sequence of dict
        What else differs between the two, such as options: entries with "what", "first" and "second".
    notes : sequence of str
        Sentences to put below these.
    n_features : int
        Number of features with the largest weights, of each of the two at a pair.
    overwrite : bool
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file that was written.
    """
    file = Path(path)
    check_target(file, overwrite, "comparison.html")
    text = render_comparison(comparison, title=title, changes=changes, notes=notes, n_features=n_features)
    replace_file(file, lambda stream: stream.write(text.encode("utf-8")))
    return file


def _content(comparison: ModelComparison, n_features: int) -> dict[str, Any]:
    """Return what the page shows of a comparison; ``contexts``, ``mcpcs`` and ``loadings`` are what data.js reads."""
    first, second = comparison.loadings
    cosines = comparison.all_cosines
    return {
        "contexts": comparison.contexts,
        "mcpcs": comparison.mcpcs[1],
        "loadings": rounded(second),
        "names": list(comparison.names),
        "called": list(comparison.called),
        "words": comparison._words(),
        "good": bool(comparison.same or comparison.returns.all()) and cosines.shape[0] == cosines.shape[1],
        "threshold": comparison.threshold,
        "ofFirst": {
            "mcpcs": comparison.mcpcs[0],
            "loadings": rounded(first),
            "share": rounded(comparison.shares[0]),
            "kept": rounded(comparison.kept[0]),
        },
        "ofSecond": {"share": rounded(comparison.shares[1]), "kept": rounded(comparison.kept[1])},
        "pairs": [
            {"first": i, "second": j, "sign": int(sign), "cosine": cosine, "returns": returns}
            for i, j, sign, cosine, returns in zip(
                comparison.first.tolist(),
                comparison.second.tolist(),
                comparison.signs.tolist(),
                # Six digits: those beside the threshold are on the right side of it.
                rounded(comparison.cosines, 6),
                comparison.returns.tolist(),
                strict=True,
            )
        ],
        "cosines": rounded(cosines, 6) if cosines.size <= _MOST_CELLS else None,
        "features": {
            "count": len(comparison.features),
            "alone": [len(names) for names in comparison.features_alone],
            "examples": [names[:200] for names in comparison.features_alone],
            "byName": comparison.by_name,
            "ofPairs": [_features_of_pair(comparison, n, n_features) for n in range(len(comparison.first))],
        },
        "alone": [list(names) for names in comparison.contexts_alone],
        "which": list(comparison.loadings_are),
    }


def _features_of_pair(comparison: ModelComparison, n: int, n_features: int) -> list[list[Any]]:
    """Return the features of largest weight in one or the other: name and both weights, the second's with its sign."""
    a = comparison.directions[0][:, comparison.first[n]]
    b = comparison.directions[1][:, comparison.second[n]] * comparison.signs[n]
    size = np.maximum(np.abs(a), np.abs(b))
    top = set(np.argsort(-np.abs(a), kind="stable")[:n_features].tolist())
    top |= set(np.argsort(-np.abs(b), kind="stable")[:n_features].tolist())
    order = sorted(top, key=lambda i: (-size[i], i))
    return [[comparison.features[i], *rounded([a[i], b[i]])] for i in order]
