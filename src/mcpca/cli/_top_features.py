"""The features at the poles of each MCPC, as the table ``features`` and as a line each for a terminal.

The table has the ``N_FEATURES`` of the report at each pole. A line has as many as fit into 100 columns.
"""

from __future__ import annotations

import unicodedata
from typing import Any, NamedTuple

import numpy as np

from .._estimator.mcpca import MCPCA, fitted_model
from .._utils.array_api import to_host
from .._utils.component_names import component_names
from .._utils.types import Array
from ..poles import N_FEATURES, Poles, percentiles, poles
from ..sharing import carrying_contexts
from ._model_tables import feature_labels

_WIDTH = 100  # columns of a line
_SHOWN_MCPCS = 20
_SHOWN_FEATURES = 6  # at each pole
_NAME_WIDTH = 24  # columns of a name
_MORE = ", ..."


class TopFeatures(NamedTuple):
    """What is said of one MCPC: its name, its share of the squared covariance, who carries it, and its two poles.

    ``share`` is None if nothing varies; ``n_carrying`` of ``n_contexts`` have at least half of its largest loading.
    """

    name: str
    share: float | None
    n_carrying: int
    n_contexts: int
    ends: Poles


def top_features(model: MCPCA, shares: dict[str, float]) -> list[TopFeatures]:
    """Return the features at both poles of every MCPC; ``shares`` of the squared covariance are by name."""
    A = to_host(model.components_)
    features = feature_labels(model)
    B: Array = fitted_model(model).compared_loadings()
    return [
        TopFeatures(name, shares.get(name), len(carrying_contexts(b)), len(B), poles(A, features, j, N_FEATURES))
        for j, (name, b) in enumerate(zip(component_names(model), B.T, strict=True))
    ]


def feature_columns(model: MCPCA, tops: list[TopFeatures]) -> dict[str, Any]:
    """Return the table: a row for each feature at a pole, by MCPC, the positive pole first, the strongest first."""
    of_features = percentiles(model.components_)
    pole_of = [(j, sign) for j in range(len(tops)) for sign in ("positive", "negative")]
    ends = [getattr(tops[j].ends, sign) for j, sign in pole_of]
    sizes = [len(end.names) for end in ends]
    repeated = [entry for entry, size in zip(pole_of, sizes, strict=True) for _ in range(size)]
    return {
        "MCPC": [tops[j].name for j, _ in repeated],
        "pole": [sign for _, sign in repeated],
        "rank": np.array([rank for size in sizes for rank in range(1, size + 1)], dtype=np.int64),
        "feature": [name for end in ends for name in end.names],
        "weight": np.concatenate([end.values for end in ends]),
        "percentile": np.concatenate([of_features[end.indices, j] for (j, _), end in zip(pole_of, ends, strict=True)]),
    }


def json_of_features(tops: list[TopFeatures]) -> list[dict[str, Any]]:
    """Return what ``--json`` has: the names at both poles of every MCPC, as many as the table has."""
    return [
        {
            "component": top.name,
            "variance_explained": top.share,
            "carrying_contexts": top.n_carrying,
            "positive": top.ends.positive.names,
            "negative": top.ends.negative.names,
        }
        for top in tops
    ]


def feature_lines(tops: list[TopFeatures], file: str) -> str:
    """Return a line for each MCPC, of at most 100 columns; ``file`` has those that are not shown."""
    shown = tops[:_SHOWN_MCPCS]
    name_width = max(_columns(_cut(top.name)) for top in shown)
    count_width = len(str(tops[0].n_contexts))
    lines = []
    for top in shown:
        name = _cut(top.name)
        share = "" if top.share is None else f"{top.share:.0%}"
        head = f"{name}{' ' * (name_width - _columns(name))} {share:>5}  "
        head += f"in {top.n_carrying:>{count_width}} of {top.n_contexts} context{'s' if top.n_contexts > 1 else ''}  "
        lines.append(head + _both(top.ends, _WIDTH - _columns(head)))
    if len(tops) > len(shown):
        lines.append(f"... and {len(tops) - len(shown)} more in {file}")
    return "\n".join(lines)


def _both(ends: Poles, width: int) -> str:
    """Return both poles within so many columns: each has half, and what the other does not need."""
    room = width - len("+   - ")
    positive = _listed(ends.positive.names, room // 2)
    negative = _listed(ends.negative.names, room - _columns(positive))
    positive = _listed(ends.positive.names, room - _columns(negative))
    texts = [f"{sign} {text}" for sign, text in (("+", positive), ("-", negative)) if text]
    return "  ".join(texts)


def _listed(names: list[str], width: int) -> str:
    """Return the first names, as many as fit, and dots for the others; one name at least, cut to the width."""
    text = ""
    for i, name in enumerate(map(_cut, names[:_SHOWN_FEATURES])):
        longer = f"{text}, {name}" if text else name
        dots = _MORE if i + 1 < len(names) else ""
        if text and _columns(longer + dots) > width:
            return text + _MORE
        text = longer
    text = text + _MORE if len(names) > _SHOWN_FEATURES else text
    return text if _columns(text) <= width else _cut(names[0], width - len(_MORE)) + (_MORE if len(names) > 1 else "")


def _cut(name: str, width: int = _NAME_WIDTH) -> str:
    """Return a name for a terminal: one line without control characters, of so many columns at most."""
    # Names come from files that others wrote: an escape sequence in one could rewrite the terminal.
    line = "".join(c if c.isprintable() else "?" for c in name)
    if _columns(line) <= width:
        return line
    while line and _columns(line) > max(width - 3, 0):
        line = line[:-1]
    return line + "..."


def _columns(text: str) -> int:
    """Return how many columns a terminal needs: letters of East Asia take two, marks over letters none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1 for c in text
    )
