"""What the numbers mean, in plain words: findings and warnings, a glossary, and how to cite."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from .._inference.replication import Replicability
from .._model.identifiability import DEFAULT_DEGREES
from .._results.fitted import Fitted
from .._results.sharing import carrying_contexts
from .._utils.types import Array
from .._utils.wording import beside
from ._encode import shortened

_CLOSE_DEGREES = 5.0  # between loadings that are not proportional, but nearly
_COLLINEAR = 0.95  # |cos| between MCPCs from which on their scores get large
_HARDLY, _CORRELATED = 0.15, 0.3  # root mean square correlation of scores: up to that little, beyond that too much
_ROWS_PER_MCPC = 10
_NAMED = 5  # names in a sentence

AUTHORS = (
    "Kexin Wang",
    "Salil Bhate",
    "João M. Pereira",
    "Joe Kileel",
    "Matylda Figlerowicz",
    "Anna Seigal",
)
TITLE = "Multi-context principal component analysis"

GLOSSARY = {
    "Context": "A group of rows that belong together: a patient, a cancer type, a period, a market regime.",
    "MCPC": "A multi-context principal component: an axis in the space of the features, shared by all contexts. It is "
    "a column of A, of length 1. MCPCs need not be at right angles. Their order is by total variance, and which end is "
    "called positive is a convention.",
    "Loading": "How much variance a context has along an MCPC: an entry of B, at least 0. Zero says that the context "
    "does not vary along this axis.",
    "Model": "The covariance of context i is close to A diag(b_i) A^T: the same axes everywhere, in amounts that "
    "differ from context to context.",
    "Pole": "The features with the largest positive or the largest negative entries of an MCPC: as the score of a row "
    "grows, the former rise and the latter fall.",
    "Score": "Where a row lies on an MCPC, from the mean of its context: pinv(A) times the centred row.",
    "Squared covariance explained": "How much of the sum of squares of a covariance matrix the MCPCs account for. "
    "Large variances count more in it than in an ordinary share of variance.",
    "Replicability": "The rows of every context are split into halves, both halves are fitted, and their MCPCs are "
    "matched with each other and with those shown here: |cos| of 1 is the same axis twice.",
}


def citation() -> dict[str, str]:
    """Return how to cite: a sentence, and the same for BibTeX."""
    software = f"mcpca, version {version('mcpca')} (BSD 3-clause licence)"
    people = ", ".join(AUTHORS[:-1]) + f" and {AUTHORS[-1]}"
    bibtex = "\n".join(
        [
            "@article{mcpca,",
            f"  title  = {{{TITLE}}},",
            f"  author = {{{' and '.join(AUTHORS)}}},",
            f"  note   = {{Software: {software}}}",
            "}",
        ]
    )
    return {"text": f"{people}. {TITLE}. Software: {software}.", "bibtex": bibtex}


def findings(
    model: Any, fit: Fitted, shares: Array, reason: str, replicability: Replicability | None
) -> list[dict[str, str]]:
    """Say what a reader should know before trusting the picture, the gravest first.

    ``shares`` (k,) are of squared covariance explained. Levels are "warning", "note" and "good".
    """
    found = [
        *_identifiability(fit),
        *_replication(fit, replicability),
        *_fit_quality(model, fit, shares),
        *_rows(model, fit),
        *_numerics(model, fit),
        _finding("note", "Rank", reason),
    ]
    order = {"warning": 0, "note": 1, "good": 2}
    return sorted(found, key=lambda finding: order[finding["level"]])


def _finding(level: str, title: str, text: str) -> dict[str, str]:
    return {"level": level, "title": title, "text": text}


def _listed(names: Sequence[str]) -> str:
    shown = [shortened(name) for name in names[:_NAMED]]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(shown) + more


def _identifiability(fit: Fitted) -> list[dict[str, str]]:
    if len(fit.contexts) == 1:
        text = "There is one context, for which MCPCA is PCA: axes at right angles, the loadings are their variances."
        return [_finding("note", "One context", text)]
    pairs = fit.proportional_loadings(_CLOSE_DEGREES)
    kind = "equal" if fit.orthogonal else "proportional"
    empty = [fit.names[p.first] for p in pairs if p.first == p.second]
    same, near = (
        [
            f"{fit.names[p.first]} and {fit.names[p.second]} ({p.degrees:.2g}°)"
            for p in pairs
            if p.first != p.second and (p.degrees <= DEFAULT_DEGREES) is proportional
        ]
        for proportional in (True, False)
    )
    found = []
    if same:
        text = (
            f"The loadings of {_listed(same)} are {kind} up to {DEFAULT_DEGREES:g}°. The data determine the "
            "plane of such a pair and not the two axes in it: read them together, lower the rank, or add contexts in "
            "which they differ."
        )
        found.append(_finding("warning", "MCPCs that cannot be told apart", text))
    if empty:
        text = f"No context has a loading on {_listed(empty)}: these axes explain nothing. Lower the rank."
        found.append(_finding("warning", "Empty MCPCs", text))
    if near:
        text = (
            f"The loadings of {_listed(near)} are within {_CLOSE_DEGREES:g}° of {kind}: little tells these axes apart."
        )
        found.append(_finding("note", "MCPCs that are hard to tell apart", text))
    if not found:
        text = (
            f"The loadings of any two MCPCs are more than {_CLOSE_DEGREES:g}° from {kind}, so the data can tell "
            "the axes apart."
        )
        found.append(_finding("good", "Axes are identifiable", text))
    return found


def _replication(fit: Fitted, replicability: Replicability | None) -> list[dict[str, str]]:
    if replicability is None:
        text = (
            "It was not computed whether the MCPCs come back in other rows; "
            "model.replicability(X, y) does, and the report shows it."
        )
        return [_finding("note", "Replicability is not known", text)]
    back, agreement = replicability.replicates, replicability.agreement
    missing = [
        f"{name} ({beside(mean, replicability.threshold)})"
        for name, good, mean in zip(fit.names, back, agreement, strict=True)
        if not good
    ]
    what = replicability.in_words(" MCPCs")
    text = f"Rows were split into halves at random, and both were fitted: {what}."
    if not missing:
        return [_finding("good", "All MCPCs replicate", f"{text} All do on average.")]
    text += f" Not on average (mean |cos|, more than {replicability.threshold:g} is required): {_listed(missing)}."
    return [_finding("warning", "Some MCPCs do not replicate", text)]


def _fit_quality(model: Any, fit: Fitted, shares: Array) -> list[dict[str, str]]:
    overall, error = np.nan_to_num([model.explained_share(), model.explained_share_error()])
    errors = model.explained_share_error(per="context")
    estimated = [f" +- {e:.1%}" if e > 0 else "" for e in [error, *errors]]
    text = f"The MCPCs explain {overall:.1%}{estimated[0]} of the squared covariances of all contexts together"
    known = np.flatnonzero(np.isfinite(shares))
    if len(fit.contexts) > 1 and len(known):
        worst = known[np.argsort(shares[known], kind="stable")[:3]]
        each = ", ".join(f"{shortened(fit.contexts[i])} ({shares[i]:.1%}{estimated[i + 1]})" for i in worst)
        text += f", {np.median(shares[known]):.1%} in the median context. Fitted worst: {each}"
    found = [_finding("note", "How much is explained", text + ".")]
    if len(fit.names) > 1:
        correlation = float(model.offdiagonal_correlation(normalized=True))
        text = (
            f"Within a context the scores on two MCPCs are correlated by {correlation:.2f} (root mean square); the "
            "model says 0."
        )
        if correlation > _CORRELATED:
            text += " So the axes do not describe every context: look at the contexts that are fitted worst."
        level = "warning" if correlation > _CORRELATED else "note" if correlation > _HARDLY else "good"
        found.append(_finding(level, "Correlation left over", text))
    if error > 0:
        text = (
            "Covariances were not formed: their squared norms are estimates from random directions, and so are shares "
            "explained; +- is one standard error."
        )
        found.append(_finding("note", "Estimated shares", text))
    return found


def _rows(model: Any, fit: Fitted) -> list[dict[str, str]]:
    if fit.n_samples is None:
        text = "The model was fitted on covariances and the numbers of rows behind them are not known."
        return [_finding("note", "Numbers of rows", text)]
    r, n = len(fit.names), np.asarray(fit.n_samples)
    few = [i for i in np.argsort(n, kind="stable") if n[i] < _ROWS_PER_MCPC * r]
    if not few:
        text = f"Every context has at least {_ROWS_PER_MCPC} rows per MCPC; the smallest has {n.min():,} rows."
        return [_finding("good", "Enough rows", text)]
    names = [f"{shortened(fit.contexts[i])} ({n[i]:,})" for i in few]
    text = (
        f"{len(few)} of {len(n)} contexts have fewer than {_ROWS_PER_MCPC} rows per MCPC, so their loadings are "
        f"uncertain: {_listed(names)}."
    )
    return [_finding("warning" if n.min() <= r else "note", "Few rows", text)]


def _numerics(model: Any, fit: Fitted) -> list[dict[str, str]]:
    found = []
    cosines = np.abs(np.triu(fit.components.T @ fit.components, 1))
    pairs = np.argwhere(cosines > _COLLINEAR)
    if len(pairs):
        names = [f"{fit.names[i]} and {fit.names[j]} (|cos| {cosines[i, j]:.3f})" for i, j in pairs]
        text = f"{_listed(names)} nearly coincide; scores on such axes are large and of opposite signs."
        found.append(_finding("note", "MCPCs that are nearly the same", text))
    single = [fit.names[j] for j, b in enumerate(fit.loadings.T) if len(carrying_contexts(b)) == 1]
    if single and len(fit.contexts) > 2:
        text = f"No second context has half of the largest loading on {_listed(single)}."
        found.append(_finding("note", "MCPCs of a single context", text))
    residual = float(getattr(model, "basis_residual_", 0.0))
    if residual > 1e-2:
        text = (
            f"The leading directions are known up to a residual of {residual:.1e} after {model.n_passes_} passes over "
            "the rows; lower tol for more."
        )
        found.append(_finding("note", "Passes over the rows", text))
    return found
