"""Fits to rows with missing features or values: ``MCPCA(missing=...)``.

``missing="union"``: whole features are missing in some contexts. Each context has a covariance of its own features, and
"lsq" and "ml" see only these (``_solvers.masked_start``). ``missing="em"``: values are missing within rows, too, and
"ml" maximises the likelihood of what is there (``_solvers.masked_em``). ``missing="pairwise"``: values are missing
within rows, and solvers of least squares are given pairwise covariances of complete contexts. The door is
``fit_incomplete``, which ``fitting.fit_rows`` calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._covariances.context_covariances import ContextCovariances
from .._covariances.fit_data import MOST_NUMBERS, fit_data_of_covariances
from .._covariances.observed import ObservedMoments, pairwise, whole_features
from .._covariances.overlap import LEAST_CONTEXTS, check_tied, shared_features, undetermined
from .._covariances.scaling import stack_in_range
from .._covariances.stack import as_stack
from .._covariances.subspace import compress
from .._data.contexts import Contexts
from .._data.labels import label_columns
from .._data.union import read_union, refuse_nuisance
from .._linalg.canonical import canonical_order
from .._model.decomposition import check_data_rank, check_weights, solver_tolerance
from .._model.dominance import dominant_feature
from .._model.fitted_model import FittedModel
from .._model.masked_facets import masked_facets
from .._solvers import SOLVERS, Settings, SolverResult, resolved_noise
from .._solvers.masked import Masked, masked_loadings
from .._solvers.masked_em import IncompleteRows, solve_em
from .._solvers.masked_start import completed, first_guess, solve_likelihood, solve_squares
from .._utils.arguments import as_generator, check_integer, check_rank, refuse_without_effect
from .._utils.types import Array, Report
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from ..exceptions import MissingFeaturesWarning
from .fitting import Features, Fit, feature_names, fit_to, remembered_columns
from .parameters import Parameters

# An MCPC counts as present in a context from this share of its largest loading on, for the warning of weights that
# nothing determines.
_PRESENT = 0.02
# Arrays as large as the covariances that the masked solvers hold at a time, about.
_STACKS = 4


def fit_incomplete(parameters: Parameters, X: Any, y: Any, checkpoint: Any, report: Report) -> Fit:
    """Fit rows of which features or values are missing, as ``parameters.missing`` says."""
    missing = parameters.missing
    refuse_without_effect(
        "checkpoint", checkpoint, None, f"missing={missing!r} keeps no progress in files", "drop one of the two"
    )
    columns = label_columns(X, y)
    contexts = read_union(X, y, missing)
    if contexts.nuisance is not None:  # rows that were read before bring it with them
        refuse_nuisance(missing, "batch" if contexts.nuisance.has_batch else None, contexts.nuisance.columns or None)
    k = len(contexts.names)
    p = contexts.n_features
    assert parameters.n_components is not None  # checked with the parameters
    check_rank(parameters.n_components, p)
    most = MOST_NUMBERS // (1 if missing == "pairwise" else _STACKS)
    if k * p * p > most:
        raise ValueError(
            f"missing={missing!r} forms the covariances, and those of {k} contexts with {p} features have more than "
            f"{most} entries; select fewer features."
        )
    features = Features(feature_names(contexts.feature_names), remembered_columns(X, columns))
    moments = (whole_features if missing == "union" else pairwise)(contexts, missing, report)
    if missing == "pairwise":
        return _fit_pairwise(parameters, contexts, moments, features, report)
    return _fit_masked(parameters, contexts, moments, features, report)


def _fit_pairwise(
    parameters: Parameters, contexts: Contexts, moments: ObservedMoments, features: Features, report: Report
) -> Fit:
    """Fit complete covariances from pairwise complete rows, as any covariances are."""
    lacking = np.flatnonzero(~moments.mask.all(axis=1))
    if len(lacking):
        i = int(lacking[0])
        names = _names(features, np.flatnonzero(~moments.mask[i]))
        raise ValueError(
            f"missing='pairwise' needs every feature in every context, and context {contexts.names.tolist()[i]!r} has "
            f"no value of {quoted(names)}. Pass missing='em' with solver='ml', which allows for that, or leave these "
            "features out."
        )
    S = moments.covariances.astype(contexts.dtype)
    stack = ContextCovariances(
        S, moments.means.astype(contexts.dtype), moments.counts, contexts.names, contexts.feature_names
    )
    return fit_to(parameters, fit_data_of_covariances(stack, moments.counts), features, report)


def _fit_masked(
    parameters: Parameters, contexts: Contexts, moments: ObservedMoments, features: Features, report: Report
) -> Fit:
    """Fit the covariances of the features that each context has; with "em", complete rows in rounds."""
    r = int(parameters.n_components or 0)
    missing = parameters.missing
    noise = resolved_noise(parameters.solver, parameters.noise, missing)
    names = contexts.names.tolist()
    kept = _shared(moments.mask, features, missing)
    moments = moments.features(kept)
    check_tied(moments.mask, names, r, noise=noise is not None, missing=missing)
    weights = np.ones(len(names))
    if parameters.context_weights is not None:
        weights = check_weights(parameters.context_weights, contexts.names)
    is_likelihood = SOLVERS[parameters.solver].models_noise
    freedom = (moments.counts - 1.0) * (weights if is_likelihood else 1.0)
    S, e = stack_in_range(moments.covariances)
    data = Masked(S, moments.mask, freedom if is_likelihood else weights, float((moments.counts - 1.0).mean()))
    settings = Settings(
        as_generator(parameters.random_state),
        solver_tolerance(parameters.tol),
        check_integer(parameters.max_iter, "max_iter", 1),
        report,
        freedom,
        noise,
    )
    start = as_stack(first_guess(data))
    check_data_rank(r, compress(start, r), start)
    means = moments.means
    try:
        if missing == "em":
            rows = [
                IncompleteRows.of(np.ldexp(contexts.dense_block(i)[:, kept].astype(np.float64), -e))
                for i in range(len(names))
            ]
            em = solve_em(rows, data, np.ldexp(means, -e), r, settings)
            result = em.result
            data = replace(data, S=em.moments.covariances)
            means = np.where(moments.mask, np.ldexp(em.moments.means, e), np.nan)
        elif is_likelihood:
            result, _ = solve_likelihood(data, r, settings)
        else:
            result = solve_squares(data, r, settings)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"solver={parameters.solver!r} broke down at rank {r} ({error}): the covariances of the features that "
            "contexts have are too close to singular for it. Lower n_components, or choose another solver."
        ) from error
    if not result.converged:
        warn(result.message, ConvergenceWarning)
    names_of_features = None if features.names is None else features.names[kept]
    model = _model(
        parameters,
        contexts,
        data,
        result,
        means,
        moments.counts,
        e,
        Features(names_of_features, features.label_columns),
    )
    _warn_of_undetermined(model, data.mask)
    variances = np.einsum("kff->kf", data.S)
    return Fit(model, None, dominant_feature(model.components, lambda: variances))


def _shared(mask: Array, features: Features, missing: str) -> Array:
    """Return which features (p,) enough contexts have; warn of the others."""
    kept = shared_features(mask)
    if not kept.all() and kept.any():
        left_out = _names(features, np.flatnonzero(~kept))
        # Without names, later rows could not be matched to the features that are left.
        if features.names is None:
            raise ValueError(
                f"missing={missing!r}: features {quoted(left_out)} (counted from 0) are in fewer than {LEAST_CONTEXTS} "
                "contexts, which does not determine their weights. Drop these columns, or pass DataFrames, of which "
                "they are left out by name."
            )
        warn(
            f"missing={missing!r}: {len(left_out)} of {len(kept)} features are in fewer than {LEAST_CONTEXTS} "
            f"contexts, which does not determine their weights, and were left out: {quoted(left_out)}.",
            MissingFeaturesWarning,
        )
    return kept


def _model(
    parameters: Parameters,
    contexts: Contexts,
    data: Masked,
    result: SolverResult,
    means: Array,
    counts: Array,
    e: int,
    features: Features,
) -> FittedModel:
    """Return the model in the units of the data; ``data`` and ``result`` are of rows times ``2^-e``."""
    assert result.loadings is not None
    A, B, _ = canonical_order(result.components, result.loadings)
    noise = result.noise
    corrected = B
    if noise is None:
        corrected, noise = masked_loadings(data, A, floor=True)
    dtype = contexts.dtype
    unit = 2 * e
    scree = compress(as_stack(completed(data, A, B)), A.shape[1]).singular_values
    return FittedModel(
        components=A.astype(dtype, copy=False),
        projection=np.linalg.pinv(A).astype(dtype, copy=False),
        loadings=np.ldexp(B, unit).astype(dtype, copy=False),
        corrected_loadings=np.ldexp(corrected, unit).astype(dtype, copy=False),
        contexts=contexts.names,
        means=means.astype(dtype, copy=False),
        n_samples=counts,
        noise_variance=np.ldexp(noise, unit).astype(dtype, copy=False),
        singular_values=np.ldexp(scree, unit),
        n_iter=result.n_iter,
        n_passes=None,
        basis_residual=0.0,
        basis_error=None,
        facets=masked_facets(data, A, B, e),
        # Tests without rows are of models in which contexts share their features.
        score_moments=None,
        feature_names=features.names,
        label_columns=features.label_columns,
        solver=parameters.solver,
        noise=resolved_noise(parameters.solver, parameters.noise, parameters.missing),
        orthogonal=False,
        missing=parameters.missing,
    )


def _warn_of_undetermined(model: FittedModel, mask: Array) -> None:
    unknown = undetermined(mask, model.loadings, _PRESENT)
    if not unknown.any():
        return
    names = model.feature_names
    found = [f"{(f if names is None else names[f])!r} in MCPC {j + 1}" for f, j in np.argwhere(unknown).tolist()]
    shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    warn(
        f"No context that has the feature has the MCPC, so that nothing determines the weight of {shown}; it is next "
        "to 0 by default and not by evidence.",
        MissingFeaturesWarning,
    )


def _names(features: Features, columns: Array) -> list[Any]:
    return list(columns.tolist() if features.names is None else features.names[columns].tolist())
