"""Numeric columns that are probably not features, for ``mcpca doctor``.

A single column of metadata with a large variance is all that a fit would find. Each rule compares a column with the
others, so that a table of one kind has no suspects: names of known metadata, whole numbers in order, few whole numbers
among measurements, and a variance beyond that of all others together. Columns of a numbered family (``emb_0``,
``emb_1``, ...) to which most columns belong are never suspects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from .tables._errors import quoted_names
from .tables.survey import Survey

# A column is on another scale if its variance is more than this many times that of all smaller ones together, that is,
# ten elevenths of everything. A lower factor would suspect the first of a few strongly correlated measurements.
_VARIANCE_RATIO = 10
_LEAST_FEATURES = 2  # that the rules must leave
# Counts of what was measured, measures of quality, and identifiers, as single-cell tools and tables call them.
_METADATA = re.compile(
    r"(n_?(counts?|genes?|cells?|umis?|features?|reads)(_.*)?|ncount_.*|nfeature_.*|(log1p_)?(total|n_genes_by)_counts.*|"
    r"(pct|percent)[_.](counts|mt|mito|ribo|hb).*|size_?factors?|doublet_?scores?|(s|g2m)[_.]score|"
    r"(.*_)?(id|idx|index|barcode)|unnamed: ?\d+|rownames?|row_?(number|nr|id)?|timestamp|latitude|longitude|lat|lon)",
    re.IGNORECASE,
)
# These may be measurements too, unless they are whole numbers.
METADATA_IF_WHOLE = re.compile(
    r"(year|period|month|week|day|hour|date|time|age|batch|plate|lane|replicate|rep|run|fold|split|cluster|leiden|louvain|"
    r"group|class|label|target|sex|gender|patient|donor|subject|sample)",
    re.IGNORECASE,
)


def suspect_columns(names: Sequence[str], surveyed: Survey) -> dict[str, str]:
    """Return the numeric columns that are probably not features, each with the reason."""
    families = Counter(map(family_of, names))
    family, size = families.most_common(1)[0] if names else ("", 0)
    # More than two of a family, and at least half of all columns: then the family is what was measured.
    features_family = family if 2 * size >= len(names) and size > 2 else None
    candidates = [name for name in names if features_family is None or family_of(name) != features_family]
    suspects: dict[str, str] = {}
    for name in candidates:
        # From the surest sign to the weakest, since a column gets one reason.
        if _METADATA.fullmatch(name) or (name in surveyed.whole and METADATA_IF_WHOLE.fullmatch(name)):
            suspects[name] = "a name of metadata"
        elif name in surveyed.ordered:
            suspects[name] = "whole numbers in order"
        elif surveyed.counts.get(name) and _others_are_measured(name, names, surveyed):
            suspects[name] = "few whole numbers among measurements"
    # Without those found so far, whose variance would hide that of the next.
    unsuspected = [name for name in names if name not in suspects]
    suspects |= {
        name: f"its variance is {ratio:,.3g} times that of all others together"
        for name, ratio in _on_another_scale(unsuspected, surveyed).items()
        if name in candidates
    }
    # A table in which nearly everything is suspect is of another kind than these rules are made for.
    return suspects if len(names) - len(suspects) >= _LEAST_FEATURES else {}


def _others_are_measured(name: str, names: Sequence[str], surveyed: Survey) -> bool:
    """Whether at least two thirds of the other columns are not whole numbers."""
    others = [other for other in names if other != name]
    return sum(other not in surveyed.whole for other in others) >= 2 * len(others) / 3


def _on_another_scale(names: Sequence[str], surveyed: Survey) -> dict[str, float]:
    """Return the columns, at most a quarter, that vary far more than all smaller ones together, with the ratio."""
    # variances (p,); ``order`` has the largest first.
    variances = np.array([surveyed.variances[name] for name in names])
    order = np.argsort(-variances, kind="stable")
    # sum_of_smaller[t]: the sum of the variances that come after position t in decreasing order.
    sum_of_smaller = np.append(np.cumsum(variances[order][::-1])[::-1][1:], 0.0)
    # Columns on another scale are exceptions: if they were more than a quarter, they would be the data.
    most = min(max(1, (len(names) - 1) // 4), len(names) - _LEAST_FEATURES)
    # A cut after the t largest; > 0 since every column is infinitely larger than columns without any variance.
    cuts = [t for t in range(1, most + 1) if variances[order[t - 1]] > _VARIANCE_RATIO * sum_of_smaller[t - 1] > 0]
    if not cuts:
        return {}
    # The last cut leaves out the most; all columns above it are compared with the same rest.
    rest = sum_of_smaller[cuts[-1] - 1]
    return {names[i]: float(variances[i] / rest) for i in order[: cuts[-1]]}


def family_of(name: str) -> str:
    """Return a name with its numbers replaced: "emb_12" and "emb_7" are of the family "emb_#"."""
    return re.sub(r"\d+", "#", name) if re.search(r"\d", name) else name


def suspects_in_words(suspects: dict[str, str]) -> str:
    """Say which columns are left out, and why."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in suspects.items():
        by_reason.setdefault(reason, []).append(name)
    parts = "; ".join(f"{quoted_names(names, 12)} ({reason})" for reason, names in by_reason.items())
    return f"probably not features, and left out below: {parts}. Remove their --drop to fit them."
