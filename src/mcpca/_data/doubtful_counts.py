"""Rows that are to be prepared as raw counts and do not look like them: a warning, since only the user knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.user_warnings import warn
from .._utils.wording import listed
from ..exceptions import NotCountsWarning
from .contexts import Contexts
from .row_steps import row_totals, stored_values

# Share of values that are no whole numbers from which on rows do not look like counts: a few may be corrected ones.
_FRACTIONS = 0.01


def warn_of_empty(n_empty: int, contexts: Contexts) -> None:
    """Warn of rows without counts."""
    n = sum({id(source): int(source.shape[0]) for source in contexts.sources}.values())
    if n_empty:
        warn(
            f"{n_empty:,} of {n:,} rows of X are without counts. They stay 0, far from all others, which can turn axes "
            "towards them: leave them out."
        )


def warn_unless_counts(block: Any, kind: str) -> None:
    """Warn if values are no whole numbers: they may have been normalised before."""
    share = _share_of_fractions(block)
    if share <= _FRACTIONS:
        return
    values = stored_values(block)
    # Logarithms of counts are below 15, and normalised totals are alike.
    totals = row_totals(block)
    alike = len(totals) > 1 and totals.min() > 0 and np.ptp(totals) < 1e-3 * totals.max()
    seems = "have been normalised" if alike else "are logarithms" if values.max() < 15 else "are corrected or scaled"
    warn(
        f"X does not look like raw counts: {share:.0%} of the values in its first {block.shape[0]} rows are no whole "
        f"numbers ({_examples(block)}), as though they {seems}. preprocess={kind} is for counts: "
        "pass these, or preprocess=None for rows that have been prepared.",
        NotCountsWarning,
    )


def _share_of_fractions(block: Any) -> float:
    """Return the share of the stored values, other than 0, that are no whole numbers."""
    values = stored_values(block)
    values = values[(values != 0) & np.isfinite(values)]
    return float((values != np.floor(values)).mean()) if values.size else 0.0


def _examples(block: Any) -> str:
    """Return some values that are no whole numbers, as text."""
    values = stored_values(block)
    values = values[np.isfinite(values)]
    return listed([f"{value:.3g}" for value in values[values != np.floor(values)][:3].tolist()])
