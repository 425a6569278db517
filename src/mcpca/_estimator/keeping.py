"""``MCPCA.keep``: some MCPCs of a fitted model, with loadings fitted again to its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._covariances.fit_data import without_basis
from .._data.contexts import Contexts
from .._model.decomposition import Decomposition, check_weights
from .._model.dominance import dominant_feature
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._utils.array_api import to_host
from .._utils.types import Array, Report
from .fitting import Features, Fit, kept_of_fit, model_in_units
from .parameters import REPLICATING, Parameters

RECOMMENDED = "recommended"


def chosen_components(which: Any, r: int, choice: RankSelection | RankChoice | None) -> Array:
    """Return the MCPCs to keep as indices, each once, from words, a mask or indices."""
    if isinstance(which, str):
        which = _in_words(which, choice)
    values = np.asarray(to_host(which))
    if values.dtype == bool:
        if values.shape != (r,):
            raise ValueError(f"which has shape {values.shape}; a mask needs one value for each of the {r} MCPCs.")
        values = np.flatnonzero(values)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(
            f"which={which!r}: pass {REPLICATING!r}, {RECOMMENDED!r}, a mask of {r} values, or a list of indices."
        )
    outside = values[(values < 0) | (values >= r)]
    if len(outside) or len(set(values.tolist())) < len(values) or not len(values):
        what = f"{outside[0]} is not among 0 to {r - 1}" if len(outside) else "one at least, and each once, is needed"
        raise ValueError(f"which={which!r}: {what}; there are {r} MCPCs, counted from 0.")
    return np.sort(values)


def _in_words(which: str, choice: RankSelection | RankChoice | None) -> Array:
    if which not in (REPLICATING, RECOMMENDED):
        raise ValueError(f"which={which!r} is unknown; choose {REPLICATING!r}, {RECOMMENDED!r}, or pass indices.")
    if not isinstance(choice, RankSelection) or choice.replicability is None:
        raise ValueError(
            f"which={which!r} needs the evidence of a rank that was chosen with rows, and this model has none. Pass "
            "model.replicability(X, y).replicates, or indices."
        )
    chosen = choice.replicability.replicates if which == REPLICATING else choice.recommended
    assert chosen is not None
    if not chosen.any():
        raise ValueError(f"which={which!r}: no MCPC is. {choice.reason} Pass indices to keep some all the same.")
    return chosen


def read_for_keeping(model: FittedModel, parameters: Parameters, X: Any, y: Any, **nuisance: Any) -> Contexts:
    """Return the rows of the fit; raise for fits whose loadings are not those of all rows alike."""
    model.refuse_missing("keep()", "Fit rows without missing features.")
    for name in ("robust", "cross_fit"):
        if getattr(parameters, name):
            way_out = ' or pass n_components="replicating" to the fit' if name == "robust" else ""
            raise ValueError(
                f"keep() fits loadings to all rows alike, and this is a model of {name}={getattr(parameters, name)!r}; "
                f"fit without it{way_out}."
            )
    return read_fitted_contexts(model, X, y, **nuisance)


def fit_kept(
    parameters: Parameters,
    model: FittedModel,
    which: Array,
    contexts: Contexts,
    choice: RankSelection | RankChoice | None,
    report: Report,
) -> Fit:
    """Return a model of the MCPCs ``which`` (indices) of another, with loadings fitted again to its rows."""
    data = without_basis(contexts, None, report)
    weights = None
    if parameters.context_weights is not None:
        weights = check_weights(parameters.context_weights, data.names)
    # Of the other fit only components and what it took to find them; loadings are fitted again.
    before = Decomposition(
        components=to_host(model.components),
        loadings=to_host(model.loadings),
        singular_values=np.ldexp(to_host(model.singular_values), -2 * data.exponent),
        n_iter=model.n_iter,
        converged=True,
        message="",
        basis_residual=model.basis_residual,
        basis_error=model.basis_error,
        space=model.space,
    )
    result, measures, indices = kept_of_fit(parameters, data, before, which, weights)
    features = Features(model.feature_names, model.label_columns, model.preprocess)
    kept = model_in_units(parameters, data, features, result, measures)
    # The paper's rule says nothing of single MCPCs.
    has_evidence = isinstance(choice, RankSelection) and choice.evidence is not None
    choice = choice.kept(indices) if has_evidence else None  # type: ignore[union-attr]
    dominance = dominant_feature(result.components, data.covariances.variances)
    kept_of = model.n_components if model.kept_of is None else model.kept_of
    return Fit(replace(kept, n_passes=model.n_passes, kept_of=kept_of), choice, dominance)
