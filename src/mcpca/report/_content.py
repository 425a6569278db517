"""What the page shows, as one dictionary of plain lists.

Keys are those that ``static/data.js`` and the other scripts read. Numbers are rounded (``_encode.rounded``) or packed;
names stay as they are, since ``_page`` escapes everything at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from .._estimator.mcpca import fitted_model
from .._inference.bootstrap import Bootstrap
from .._inference.dependence_result import ContextDependence
from .._inference.precision import Precision
from .._inference.presence import Presence
from .._inference.replication import Replicability
from .._model.compared import Compared
from .._model.landscape import landscape_on_the_way
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._results.fitted import Fitted
from .._utils.types import Array
from .._utils.wording import beside
from ..context_tree import similar_order
from ..plotting._loadings import normalized
from ..poles import poles
from ..sharing import carrying_contexts
from ._encode import packed, rounded
from ._features import all_features
from ._rows import N_AXES, QUANTILES, ContextSample
from ._words import GLOSSARY, citation, findings

_CONFIDENCE = 0.95  # of intervals from standard errors; a bootstrap has its own
_MOST_SINGULAR_VALUES = 200  # in the scree plot; its end is flat, and the file grows with each
_MOST_CLUSTERED = 5000  # contexts: their distances take 100 MB, growing with the square
_PACKAGES = ("mcpca", "numpy", "scipy", "scikit-learn")  # whose versions are in the table at the end


def content_of(
    model: Any,
    fit: Fitted,
    samples: list[ContextSample | None] | None,
    *,
    title: str,
    metadata: dict[str, Any],
    compared: Compared,
    selection: RankSelection | RankChoice | None,
    standard_errors: Precision | Bootstrap | None,
    replicability: Replicability | None,
    context_dependence: ContextDependence | None,
    presence: Presence | None,
    run: Mapping[str, Any],
    n_features: int,
) -> dict[str, Any]:
    """Return everything that the page shows."""
    B = compared.values
    relative = normalized(B, "component")  # by the largest loading of each MCPC, as the map of loadings is coloured
    # NaN for a context without variance, which ``rounded`` turns into null.
    shares = model.explained_share(per="context")
    reason = _reason(model, selection)
    return {
        "title": title,
        "contexts": fit.contexts,
        "mcpcs": fit.names,
        "loadings": rounded(B),
        "loading": {"name": compared.name, "words": f"Shown are {compared.words}."},
        "intervals": _intervals(B, standard_errors),
        "presence": None if presence is None else {"adjusted": rounded(presence.adjusted, 3), "alpha": presence.alpha},
        "ofContexts": _of_contexts(model, fit, shares),
        "ofMcpcs": {
            **_of_mcpcs(model, fit, B, standard_errors, replicability),
            "dependence": None if context_dependence is None else _dependence(context_dependence),
        },
        "orders": {"contexts": _clustered(relative), "mcpcs": _clustered(relative.T)},
        "features": {**_poles(fit, n_features), "all": all_features(fit)},
        "rows": _rows(samples),
        "metadata": metadata,
        "scree": rounded(fit.singular_values[:_MOST_SINGULAR_VALUES]),
        "rank": _rank(model, selection, reason),
        "findings": findings(model, fit, compared, shares, reason, replicability, context_dependence),
        "glossary": GLOSSARY,
        "citation": citation(),
        "run": _run(model, run),
    }


def _intervals(B: Array, errors: Precision | Bootstrap | None) -> dict[str, Any] | None:
    """Return confidence intervals of the loadings (k, r), and where they come from."""
    if errors is None:
        return None
    if isinstance(errors, Bootstrap):
        lower = errors.lower
        upper = errors.upper
        level = errors.confidence
        source = f"{len(errors.angles)} bootstrap resamples of the {'rows' if errors.n_groups is None else 'groups'}"
    else:
        # Not simply plus and minus: loadings are variances, and end at 0.
        lower, upper = errors.intervals(B, _CONFIDENCE)
        level = _CONFIDENCE
        of_what = "of the rows" if errors.n_groups is None else "between groups of rows"
        by_rows = f"sandwich standard errors, by the spread {of_what}"
        source = by_rows if errors.kind == "sandwich" else "Fisher's information of the fitted Gaussian model"
    return {"lower": rounded(lower), "upper": rounded(upper), "words": f"{level:.0%} intervals from {source}"}


def _of_contexts(model: Any, fit: Fitted, shares: Array) -> dict[str, Any]:
    """Return one number for each context: its rows, and how well the model fits it."""
    # All lists below have k entries, in the order of the fit.
    noise = fitted_model(model).noise_by_context
    return {
        "rows": None if fit.n_samples is None else [int(n) for n in fit.n_samples],
        "explained": rounded(shares),
        "error": rounded(1 - shares),
        "correlation": rounded(model.offdiagonal_correlation(per="context", normalized=True)),
        "loss": rounded(model.likelihood_loss(per="context")),
        # Noise by feature has no one number for a context.
        "noise": None if noise is None else rounded(noise),
    }


def _of_mcpcs(
    model: Any, fit: Fitted, B: Array, errors: Precision | Bootstrap | None, replicability: Replicability | None
) -> dict[str, Any]:
    """Return what is known of each MCPC: its variance, its neighbour, its error, whether it replicates."""
    # B (k, r); all lists below have r entries.
    total = B.sum(axis=0)  # variance along each MCPC, summed over contexts
    r = len(total)
    cosines = fit.components.T @ fit.components  # A has unit columns
    np.fill_diagonal(cosines, 0)  # an MCPC is not its own neighbour
    # By |cos|, since the sign of an MCPC is a convention.
    nearest = np.abs(cosines).argmax(axis=1)
    angles = None
    if isinstance(errors, Precision):
        angles = {"degrees": rounded(errors.angles), "words": "root mean square angle to the truth"}
    elif isinstance(errors, Bootstrap):
        words = f"angle within which {errors.confidence:.0%} of the resamples stay"
        angles = {"degrees": rounded(errors.angle_bounds), "words": words}
    # "or 1": shares of nothing are 0, not NaN.
    return {
        "share": rounded(total / (total.sum() or 1)),
        "explained": rounded(model.variance_explained(per="component") / (fit.squared_norms.mean() or 1)),
        "carrying": [len(carrying_contexts(b)) for b in B.T],
        "nearest": None if r == 1 else nearest.tolist(),
        "cosine": None if r == 1 else rounded(cosines[np.arange(r), nearest]),
        "angles": angles,
        "replicability": None if replicability is None else _replicability(replicability),
        "landscape": _landscape(model),
    }


def _landscape(model: Any) -> dict[str, Any] | None:
    """Return F of the power method at each MCPC; None for models that have not kept it, or are very large."""
    landscape = landscape_on_the_way(fitted_model(model).space)
    if landscape is None:
        return None
    return {
        "F": rounded(landscape.F),
        "gradient": rounded(landscape.gradients, 3),
        "curvature": rounded(landscape.curvatures, 3),
        "certified": landscape.certified.tolist(),
        "peak": rounded(landscape.peaks, 3),
        "degrees": rounded(landscape.degrees, 2),
        "own": landscape.own.tolist(),
    }


def _replicability(replicability: Replicability) -> dict[str, Any]:
    threshold = replicability.threshold
    return {
        "by": replicability.by,
        "cosines": rounded(replicability.cosines.T),
        "mean": rounded(replicability.agreement),
        # As text with enough digits to be on the right side of the threshold.
        "said": [beside(mean, threshold, 3, "g") for mean in replicability.agreement],
        "spread": rounded(replicability.spread),
        "replicates": replicability.replicates.tolist(),
        "threshold": threshold,
    }


def _dependence(test: ContextDependence) -> dict[str, Any]:
    return {
        "p": rounded(test.p_values, 3),
        "q": rounded(test.q_values, 3),
        "dependent": test.dependent.tolist(),
        "dispersion": rounded(test.dispersion),
        "outcome": test.outcome,
        "by": test.by,
        "permutations": test.n_permutations,
    }


def _clustered(rows: Array) -> list[int] | None:
    """Return an order in which rows of similar direction are neighbours; None for too many to cluster."""
    return similar_order(rows).tolist() if len(rows) <= _MOST_CLUSTERED else None


def _poles(fit: Fitted, n_features: int) -> dict[str, Any]:
    """Return the features at both poles of each MCPC; each name is written once, and referred to by its place."""
    # Features recur at the poles of several MCPCs, and names of thousands of genes would fill the file.
    places: dict[int, int] = {}  # of features in the list of names, in the order in which they are first needed
    both_poles = []
    # Row j of pinv(A), beside column j of A: what a feature weighs in the score, and how it moves with it.
    for j, weights in enumerate(fit.projection):
        negative, positive = poles(fit.components, fit.features, j, n_features)
        both_poles.append(
            {
                name: {
                    "features": [places.setdefault(i, len(places)) for i in pole.indices.tolist()],
                    "entries": rounded(pole.values),
                    "weights": rounded(weights[pole.indices]),
                }
                for name, pole in (("positive", positive), ("negative", negative))
            }
        )
    return {"count": len(fit.features), "names": [fit.features[i] for i in places], "poles": both_poles}


def _rows(samples: list[ContextSample | None] | None) -> dict[str, Any] | None:
    """Return the samples of rows, and a sentence that says how many of all rows they are."""
    if samples is None:
        return None
    n_shown = sum(len(sample.scores) for sample in samples if sample is not None)
    n_rows = sum(sample.n for sample in samples if sample is not None)
    words = "All rows are in this file."
    if n_shown < n_rows:
        words = f"{n_shown:,} rows of {n_rows:,}, drawn at random within contexts, are in this file."
    return {
        "words": words,
        "quantiles": list(QUANTILES),
        "axes": N_AXES,
        "contexts": [None if sample is None else _sample(sample) for sample in samples],
    }


def _sample(sample: ContextSample) -> dict[str, Any]:
    return {
        "n": sample.n,
        "used": sample.n_used,
        "shown": len(sample.scores),
        # (r, 5): the page reads them by MCPC.
        "quantiles": rounded(sample.quantiles.T, 4),
        "scores": packed(sample.scores),
        "coordinates": packed(sample.coordinates),
        "axes": rounded(sample.axes, 4),
        "shares": rounded(sample.shares, 3),
    }


def _reason(model: Any, selection: RankSelection | RankChoice | None) -> str:
    """Say why the model has its rank."""
    r = int(model.n_components_)
    if selection is None:
        return f"Rank {r} was set by the analyst; no criterion was computed."
    # A selection may have been computed for the record, and another rank fitted.
    if selection.rank == r:
        return selection.reason
    return f"Rank {r} was set by the analyst. The criteria say: {selection.reason}"


def _rank(model: Any, selection: RankSelection | RankChoice | None, reason: str) -> dict[str, Any]:
    """Return the curves of the criteria for the rank and what each of them recommends."""
    content: dict[str, Any] = {"rank": int(model.n_components_), "reason": reason, "ranks": [], "columns": {}}
    if selection is None:
        return content
    if isinstance(selection, RankChoice):
        # The paper's rule has a single criterion.
        columns = {"seed stability": selection.mean_scores}
        votes = {} if selection.rank is None else {"seed stability": selection.rank}
        scree: Mapping[str, Array] = {}
    else:
        columns = selection.columns
        votes = selection.votes
        scree = selection.scree
    # Criteria that were not computed are all NaN; an empty panel would say nothing.
    curves = {name: rounded(values) for name, values in columns.items() if np.isfinite(values).any()}
    return content | {
        "ranks": [int(r) for r in selection.ranks],
        "columns": curves,
        # Votes are drawn on curves, so those without one are left out.
        "votes": {name: int(vote) for name, vote in votes.items() if name in curves},
        "threshold": selection.threshold,
        "scree": {name: rounded(values[:_MOST_SINGULAR_VALUES]) for name, values in scree.items()},
    }


def _run(model: Any, run: Mapping[str, Any]) -> list[list[str]]:
    """Return the table at the end of the page: pairs of text that say how the model was made."""
    table = [[str(key), _text(value)] for key, value in run.items()]
    # verbose has no effect on results.
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name != "verbose"}
    table += [[f"parameter {name}", _text(value)] for name, value in parameters.items()]
    if model.solver_choice_ is not None:
        table.append(["solver chosen", model.solver_choice_.reason])
    table.append(["iterations", str(model.n_iter_)])
    if model.n_passes_ is not None:
        table.append(["passes over the rows", str(model.n_passes_)])
    return table + [[f"report written with {name}", version(name)] for name in _PACKAGES]


def _text(value: Any) -> str:
    """Return a value as text that is the same in every run: no address of an object in memory."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if value is None or isinstance(value, (str, int, float, bool, np.generic)):
        return str(value)
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return ", ".join(_text(item) for item in value)
    return type(value).__name__
