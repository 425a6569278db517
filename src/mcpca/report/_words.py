"""What the numbers mean, in plain words: findings and warnings, a glossary, and how to cite.

Findings are what a reader should know before trusting the pictures. Each check returns a list of them; ``findings``
sorts them by gravity for the top of the page.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from .._inference.dependence_result import ContextDependence
from .._inference.replication import Replicability
from .._model.compared import Compared
from .._model.identifiability import DEFAULT_DEGREES
from .._results.fitted import Fitted
from .._utils.types import Array
from .._utils.wording import beside, listed
from ..sharing import carrying_contexts

# Bounds of the findings: they decide what is mentioned, and how gravely, not what is computed.
_CLOSE_DEGREES = 5.0  # angle between loadings that are nearly proportional, a note; up to DEFAULT_DEGREES, a warning
_COLLINEAR = 0.95  # |cos| between MCPCs; beyond it scores are large: they are pinv(A) times rows
_LITTLE_CORRELATION = 0.15  # root mean square correlation of scores within contexts, which the model says is 0
_MUCH_CORRELATION = 0.3
_ROWS_PER_MCPC = 10  # fewer in a context make its loadings uncertain
_MOST_CHARACTERS = 60  # of a name in a sentence
_UNCONVERGED = 1e-2  # residual of the leading directions after passes over rows

ARXIV = "2601.15239"
YEAR = 2026
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
    "a column of A, of length 1. MCPCs need not be at right angles. They are ordered by total variance, and which end "
    "is called positive is a convention.",
    "Loading": "How much variance a context has along an MCPC: an entry of B, at least 0. Zero means that the context "
    "does not vary along this axis. Corrected loadings are without the noise of the context, which least squares would "
    "leave in all of them: by these, contexts with different noise can be compared.",
    "Model": "The covariance of context i is close to A diag(b_i) A^T: the same axes everywhere, in amounts that "
    "differ from context to context.",
    "Pole": "The features with the largest positive or the largest negative entries of an MCPC: as the score of a row "
    "grows, the former rise and the latter fall.",
    "Score": "Where a row lies on an MCPC, relative to the mean of its context: pinv(A) times the centred row.",
    "Squared covariance explained": "How much of the sum of squares of a covariance matrix the MCPCs account for. "
    "Large variances count more than in an ordinary share of variance.",
    "Replicability": "The rows of every context are split into halves, both halves are fitted, and their MCPCs are "
    "matched with each other and with those shown here: |cos| of 1 is the same axis twice.",
    "F": "The objective of the paper's power method at an MCPC, at most 1: the squared cosine between the axis with "
    "its contexts, as one matrix, and the span of the leading singular vectors of all covariances side by side. An "
    "MCPC without a local maximum of F of its own is less certain: it is there because others were found before it.",
    "Of the contexts": "Axes of one half of the rows are looked at in the other half: does their variance differ "
    "between contexts more than it would if rows were dealt out to contexts by chance? An axis that is in all contexts "
    "alike is found by PCA of the pooled rows as well.",
}


def citation() -> dict[str, str]:
    """Return how to cite: a sentence, and the same in BibTeX."""
    software = f"mcpca, version {version('mcpca')} (BSD 3-clause licence)"
    people = ", ".join(AUTHORS[:-1]) + f" and {AUTHORS[-1]}"
    bibtex = "\n".join(
        [
            "@article{mcpca,",
            f"  title  = {{{TITLE}}},",
            f"  author = {{{' and '.join(AUTHORS)}}},",
            f"  journal = {{arXiv preprint arXiv:{ARXIV}}},",
            f"  year   = {{{YEAR}}},",
            f"  note   = {{Software: {software}}}",
            "}",
        ]
    )
    return {"text": f"{people}. {TITLE}. arXiv {ARXIV}, {YEAR}. Software: {software}.", "bibtex": bibtex}


def findings(
    model: Any,
    fit: Fitted,
    compared: Compared,
    shares: Array,
    reason: str,
    replicability: Replicability | None,
    context_dependence: ContextDependence | None = None,
) -> list[dict[str, str]]:
    """Return what a reader should know before trusting the pictures, the gravest first.

    ``compared`` are the loadings that the page shows, ``shares`` (k,) those of squared covariance explained. Levels
    are "warning", "note" and "good".
    """
    all_findings = [
        *_identifiability(fit),
        *_replication(fit, replicability),
        *_dependence(fit, replicability, context_dependence),
        *_fit_quality(model, fit, shares),
        *_rows(fit),
        *_numerics(model, fit, compared.values),
        _finding("note", "Rank", reason),
    ]
    # sorted is stable: within a level findings keep the order above.
    order = {"warning": 0, "note": 1, "good": 2}
    return sorted(all_findings, key=lambda finding: order[finding["level"]])


def _finding(level: str, title: str, text: str) -> dict[str, str]:
    return {"level": level, "title": title, "text": text}


def _cut(name: str) -> str:
    """Return a name that fits into a sentence, with an ellipsis for what is cut off."""
    return name if len(name) <= _MOST_CHARACTERS else name[: _MOST_CHARACTERS - 1] + "…"


def _identifiability(fit: Fitted) -> list[dict[str, str]]:
    """Check that no two columns of B are proportional (equal, for orthogonal MCPCs), up to an angle.

    Axes with proportional loadings can be rotated in their plane without changing any covariance.
    """
    # All columns of a single row are proportional; what identifies the axes is that they are orthogonal.
    if len(fit.contexts) == 1:
        text = "With one context MCPCA is PCA: the axes are at right angles, and loadings are the variances along them."
        return [_finding("note", "One context", text)]
    # The wider angle, once; pairs are then divided by the narrower one.
    pairs = fit.proportional_loadings(_CLOSE_DEGREES)
    kind = "equal" if fit.orthogonal else "proportional"
    # A pair of an MCPC with itself stands for loadings that are all 0, which are proportional to any.
    empty = [fit.names[pair.first] for pair in pairs if pair.first == pair.second]
    same: list[str] = []
    near: list[str] = []
    for pair in pairs:
        if pair.first != pair.second:
            text = f"{fit.names[pair.first]} and {fit.names[pair.second]} ({pair.degrees:.2g}°)"
            (same if pair.degrees <= DEFAULT_DEGREES else near).append(text)
    results = []
    if same:
        text = (
            f"The loadings of {listed(same)} are {kind} up to {DEFAULT_DEGREES:g}°. The data determine the plane of "
            "such a pair but not the two axes in it: read them together, lower the rank, or add contexts in which they "
            "differ."
        )
        results.append(_finding("warning", "MCPCs that cannot be told apart", text))
    if empty:
        text = f"No context has a loading on {listed(empty)}: these axes explain nothing. Lower the rank."
        results.append(_finding("warning", "Empty MCPCs", text))
    if near:
        text = (
            f"The loadings of {listed(near)} are within {_CLOSE_DEGREES:g}° of {kind}: little tells these axes apart."
        )
        results.append(_finding("note", "MCPCs that are hard to tell apart", text))
    if not results:
        text = (
            f"The loadings of any two MCPCs are more than {_CLOSE_DEGREES:g}° from {kind}, so the data can tell "
            "the axes apart."
        )
        results.append(_finding("good", "Axes are identifiable", text))
    return results


def _replication(fit: Fitted, replicability: Replicability | None) -> list[dict[str, str]]:
    """Report whether the MCPCs come back in halves of the rows, of groups or of contexts."""
    if replicability is None:
        text = (
            "Whether the MCPCs come back in other rows was not computed; pass the result of model.replicability(X, y) "
            "to the report."
        )
        return [_finding("note", "Replicability is not known", text)]
    # Halves of few rows have no fit of this rank, which is no failure to come back.
    if np.isnan(replicability.cosines).any():
        text = f"{replicability.by.capitalize()} were split into halves at random: {replicability.in_words(' MCPCs')}."
        return [_finding("note", "Replicability is not known", text)]
    # r entries each
    results = zip(fit.names, replicability.replicates, replicability.agreement, strict=True)
    threshold = replicability.threshold
    not_replicated = [f"{name} ({beside(mean, threshold)})" for name, replicates, mean in results if not replicates]
    what = replicability.in_words(" MCPCs")
    text = f"{replicability.by.capitalize()} were split into halves at random, and both were fitted: {what}."
    text = " ".join([text, *replicability.notes()])
    if not not_replicated:
        return [_finding("good", "All MCPCs replicate", f"{text} All do on average.")]
    text += f" Not on average (mean |cos|, more than {threshold:g} is required): {listed(not_replicated)}."
    return [_finding("warning", "Some MCPCs do not replicate", text)]


def _dependence(
    fit: Fitted, replicability: Replicability | None, test: ContextDependence | None
) -> list[dict[str, str]]:
    """Report whether the MCPCs differ between contexts, or are in all contexts alike."""
    if test is None:
        # A single context cannot differ from others.
        if len(fit.contexts) == 1:
            return []
        text = (
            "Whether the MCPCs differ between contexts was not tested; pass the result of "
            "model.context_dependence(X, y) to the report."
        )
        return [_finding("note", "Whether it is of the contexts is not known", text)]
    if test.outcome == "alike":
        return [_finding("warning", "Contexts are alike: pooled PCA would do", str(test))]
    if test.outcome == "scale":
        return [_finding("warning", "Contexts differ by their scale only", str(test))]
    known = replicability is not None and not np.isnan(replicability.cosines).any()
    back = f" Of those that come back: {test.in_words(replicability.replicates)}." if known and replicability else ""
    if test.outcome == "diffuse":
        return [_finding("note", "Contexts differ, but no single MCPC does", str(test) + back)]
    n_alike = len(test.dependent) - test.n_dependent
    title = (
        f"{n_alike} of {len(test.dependent)} MCPCs are in all contexts alike"
        if n_alike
        else "MCPCs differ between contexts"
    )
    return [_finding("note" if n_alike else "good", title, str(test) + back)]


def _fit_quality(model: Any, fit: Fitted, shares: Array) -> list[dict[str, str]]:
    """Report how much of the covariances is explained, and what correlation of scores is left."""
    # NaN where nothing varies: nothing is explained then.
    overall, error = np.nan_to_num([model.explained_share(), model.explained_share_error()])
    errors = model.explained_share_error(per="context")

    def with_error(share: float, standard_error: float) -> str:
        # Shares are exact unless squared norms were estimated from random directions.
        return f"{share:.1%} +- {standard_error:.1%}" if standard_error > 0 else f"{share:.1%}"

    text = f"The MCPCs explain {with_error(overall, error)} of the squared covariances of all contexts together"
    known = np.flatnonzero(np.isfinite(shares))  # contexts without any variance have no share
    if len(fit.contexts) > 1 and len(known):
        # Three are enough to look at; the page has a table of all.
        worst = known[np.argsort(shares[known], kind="stable")[:3]]
        each = ", ".join(f"{_cut(fit.contexts[i])} ({with_error(shares[i], errors[i])})" for i in worst)
        text += f", {np.median(shares[known]):.1%} in the median context. The worst fit is for {each}"
    results = [_finding("note", "How much is explained", text + ".")]
    if model.preprocess_ is not None:
        results.append(_finding("note", "What was done to the rows", model.preprocess_.summary()))
    removed = model.nuisance_
    if removed is not None:
        most = int(np.argmax(removed.shares))
        text = (
            f"Covariances are without {removed.what}, which took {removed.shares.min():.1%} to "
            f"{removed.shares.max():.1%} of a context's variance, most in {_cut(fit.contexts[most])}. Scores on this "
            "page contain it."
        )
        results.append(_finding("note", "Nuisance removed", text))
    # One MCPC has no other to be correlated with.
    if len(fit.names) > 1:
        correlation = float(model.offdiagonal_correlation(normalized=True))
        text = (
            f"Within a context the scores on two MCPCs are correlated by {correlation:.2f} (root mean square); the "
            "model says 0."
        )
        level = "note" if correlation > _LITTLE_CORRELATION else "good"
        if correlation > _MUCH_CORRELATION:
            level = "warning"
            text += " So the axes do not describe every context: look at the contexts with the worst fit."
        results.append(_finding(level, "Correlation left over", text))
    if error > 0:
        text = (
            "Covariances were not formed: their squared norms are estimated from random directions, and so are the "
            "shares explained; +- is one standard error."
        )
        results.append(_finding("note", "Estimated shares", text))
    return results


def _rows(fit: Fitted) -> list[dict[str, str]]:
    """Report contexts with few rows for the rank."""
    if fit.n_samples is None:
        text = "The model was fitted on covariances, and the numbers of rows behind them are not known."
        return [_finding("note", "Numbers of rows", text)]
    r = len(fit.names)
    n = np.asarray(fit.n_samples)
    few = [i for i in np.argsort(n, kind="stable") if n[i] < _ROWS_PER_MCPC * r]
    if not few:
        text = f"Every context has at least {_ROWS_PER_MCPC} rows per MCPC; the smallest has {n.min():,} rows."
        return [_finding("good", "Enough rows", text)]
    names = [f"{_cut(fit.contexts[i])} ({n[i]:,})" for i in few]
    text = (
        f"{len(few)} of {len(n)} contexts have fewer than {_ROWS_PER_MCPC} rows per MCPC, so their loadings are "
        f"uncertain: {listed(names)}."
    )
    # The covariance of n <= r rows has a rank below r, which r positive loadings cannot match.
    return [_finding("warning" if n.min() <= r else "note", "Few rows", text)]


def _numerics(model: Any, fit: Fitted, B: Array) -> list[dict[str, str]]:
    """Report MCPCs that nearly coincide or are of one context alone, and passes that did not converge."""
    results = []
    # Each pair once, and none of an MCPC with itself.
    cosines = np.abs(np.triu(fit.components.T @ fit.components, 1))
    pairs = np.argwhere(cosines > _COLLINEAR)
    if len(pairs):
        names = [f"{fit.names[i]} and {fit.names[j]} (|cos| {cosines[i, j]:.3f})" for i, j in pairs]
        text = f"{listed(names)} nearly coincide; scores on such axes are large and of opposite signs."
        results.append(_finding("note", "MCPCs that are nearly the same", text))
    single = [fit.names[j] for j, b in enumerate(B.T) if len(carrying_contexts(b)) == 1]
    # That one of two contexts carries an MCPC is nothing to remark on.
    if single and len(fit.contexts) > 2:
        text = f"No second context has half of the largest loading on {listed(single)}."
        results.append(_finding("note", "MCPCs of a single context", text))
    residual = float(getattr(model, "basis_residual_", 0.0))
    error = getattr(model, "basis_error_", None)
    if error is not None and error > 1:
        text = (
            f"The leading directions are known to {error:.1f} of their standard errors after {model.n_passes_} passes "
            "over the rows: those that follow are nearly as large. Fewer MCPCs would be better determined."
        )
        results.append(_finding("note", "Passes over the rows", text))
    elif error is None and residual > _UNCONVERGED:
        text = (
            f"The leading directions have a residual of {residual:.1e} after {model.n_passes_} passes over the rows; "
            "lower tol for more passes."
        )
        results.append(_finding("note", "Passes over the rows", text))
    return results
