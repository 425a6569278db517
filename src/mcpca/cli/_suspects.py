"""Columns of numbers that are hardly features: among others of one kind, they would be all that a fit finds.

Each rule compares a column with the others, so that data which are all of one kind have no suspects: names of known
metadata, numbers in order, few whole numbers among measurements, and a variance beyond that of all others together.
Columns of a numbered family (``emb_0``, ``emb_1``, ...) that most columns belong to are features.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from .tables._errors import some
from .tables.survey import Survey

_TIMES = 10  # the variance of all others together: more than nine tenths of everything
_KEPT = 2  # features that must be left
# What single-cell tools and tables call counts of what was measured, its quality, and names by number.
_METADATA = re.compile(
    r"(n_?(counts?|genes?|cells?|umis?|features?|reads)(_.*)?|ncount_.*|nfeature_.*|(log1p_)?(total|n_genes_by)_counts.*|"
    r"(pct|percent)[_.](counts|mt|mito|ribo|hb).*|size_?factors?|doublet_?scores?|(s|g2m)[_.]score|"
    r"(.*_)?(id|idx|index|barcode)|unnamed: ?\d+|rownames?|row_?(number|nr|id)?|timestamp|latitude|longitude|lat|lon)",
    re.IGNORECASE,
)
# Also measurements, where they are no whole numbers.
_METADATA_IF_WHOLE = re.compile(
    r"(year|period|month|week|day|hour|date|time|age|batch|plate|lane|replicate|rep|run|fold|split|cluster|leiden|louvain|"
    r"group|class|label|target|sex|gender|patient|donor|subject|sample)",
    re.IGNORECASE,
)


def no_features(names: Sequence[str], seen: Survey) -> dict[str, str]:
    """Return columns of numbers that are hardly features, with what speaks against them."""
    families = Counter(map(_stem, names))
    stem, size = families.most_common(1)[0] if names else ("", 0)
    family = stem if 2 * size >= len(names) and size > 2 else None
    asked = [name for name in names if family is None or _stem(name) != family]
    found: dict[str, str] = {}
    for name in asked:
        if _METADATA.fullmatch(name) or (name in seen.whole and _METADATA_IF_WHOLE.fullmatch(name)):
            found[name] = "a name of metadata"
        elif name in seen.ordered:
            found[name] = "whole numbers in order"
        elif seen.counts.get(name) and _others_are_measured(name, names, seen):
            found[name] = "few whole numbers among measurements"
    left = [name for name in names if name not in found]
    found |= {
        name: f"its variance is {times:,.3g} times that of all others together"
        for name, times in _of_another_scale(left, seen).items()
        if name in asked
    }
    return found if len(names) - len(found) >= _KEPT else {}


def _others_are_measured(name: str, names: Sequence[str], seen: Survey) -> bool:
    others = [other for other in names if other != name]
    return sum(other not in seen.whole for other in others) >= 2 * len(others) / 3


def _of_another_scale(names: Sequence[str], seen: Survey) -> dict[str, float]:
    """Return the columns each of which varies more than all that follow together; a quarter of them at most."""
    variances = np.array([seen.variances[name] for name in names])
    order = np.argsort(-variances, kind="stable")
    after = np.append(np.cumsum(variances[order][::-1])[::-1][1:], 0.0)  # of all that vary less
    most = min(max(1, (len(names) - 1) // 4), len(names) - _KEPT)
    above = [t for t in range(1, most + 1) if variances[order[t - 1]] > _TIMES * after[t - 1] > 0]
    if not above:
        return {}
    rest = after[above[-1] - 1]
    return {names[i]: float(variances[i] / rest) for i in order[: above[-1]]}


def _stem(name: str) -> str:
    return re.sub(r"\d+", "#", name) if re.search(r"\d", name) else name


def told(found: dict[str, str]) -> str:
    """Say which columns are left out, and why."""
    reasons: dict[str, list[str]] = {}
    for name, reason in found.items():
        reasons.setdefault(reason, []).append(name)
    parts = "; ".join(f"{some(names, 12)} ({why})" for why, names in reasons.items())
    return f"hardly features, and left out below: {parts}. Without their --drop they are fitted."
