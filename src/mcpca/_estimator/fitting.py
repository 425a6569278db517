"""From each form of input to a fitted model: rows, moments, covariances.

The three entrances differ in how they come to a ``FitData`` (covariances behind one interface, names, means, counts);
``fit_to`` then does the same for all: choose the rank if it is not given, decompose, measure, and scale back to the
units of the data. Nothing here touches the estimator: a fit that fails leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._covariances.checkpoint import Checkpoint
from .._covariances.context_covariances import ContextCovariances
from .._covariances.device_rows import read_device_contexts
from .._covariances.device_validation import check_stack
from .._covariances.fit_data import FitData, fit_data_of_covariances, fit_data_of_rows
from .._covariances.fit_identity import identity_of
from .._covariances.moments import ContextMoments
from .._covariances.validation import check_counts
from .._data.alignment import are_positions, by_name, covariance_tables
from .._data.contexts import read_contexts
from .._data.detect import holds_device_arrays, is_anndata
from .._data.doubtful_labels import warn_of_doubtful
from .._data.labels import label_columns, name_array, take_labels
from .._model.decomposition import Decomposition, check_tolerance, check_weights, decompose_checked
from .._model.dominance import Dominance, dominant_feature
from .._model.fitted_model import FittedModel
from .._model.gaussian import GaussianModel
from .._rank.automatic import automatic_rank
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._solvers import check_solver
from .._utils.arguments import as_generator, check_rank
from .._utils.array_api import like, to_host
from .._utils.types import Array, Report
from .parameters import Parameters


class Fit(NamedTuple):
    """A fitted model, what is behind its rank if that was chosen, and the feature that dominates it, if one does."""

    model: FittedModel
    rank_choice: RankSelection | RankChoice | None
    dominance: Dominance | None


class Features(NamedTuple):
    """The names of the features (p,), None where they have none, and the columns that were labels."""

    names: Array | None
    label_columns: tuple[str, ...] = ()


def fit_rows(parameters: Parameters, X: Any, y: Any, checkpoint: Any, report: Report) -> Fit:
    """Fit rows in any form that ``MCPCA.fit`` documents."""
    columns = label_columns(X, y)
    X, y = take_labels(X, y)
    contexts = read_device_contexts(X, y) if holds_device_arrays(X) else read_contexts(X, y)
    if parameters.n_components is not None:
        check_rank(parameters.n_components, contexts.n_features)
    features = Features(feature_names(contexts.feature_names), remembered_columns(X, columns))
    tol = check_tolerance(parameters.tol)
    identity = {} if checkpoint is None else identity_of(contexts, vars(parameters))
    with Checkpoint(checkpoint, identity, parameters.random_state) as saved:
        data = fit_data_of_rows(contexts, parameters.n_components, tol, report, saved)
        # Without a random_state a fit that is resumed has to go on with the seed that it began with.
        seed = saved.seed if checkpoint is not None else None
        fit = fit_to(parameters, data, features, report, seed)
        saved.finish()
    return fit


def fit_moments(parameters: Parameters, moments: ContextMoments, columns: Sequence[str], report: Report) -> Fit:
    """Fit moments of contexts, whoever computed them."""
    covariances = moments.covariances()
    if parameters.n_components is not None:
        check_rank(parameters.n_components, covariances.covariances.shape[1])
    features = Features(feature_names(covariances.feature_names), tuple(columns))
    return fit_to(parameters, fit_data_of_covariances(covariances, covariances.n_samples), features, report)


def fit_covariances(
    parameters: Parameters, S: Any, n_samples: Any, names_of_features: Any, names_of_contexts: Any, report: Report
) -> Fit:
    """Fit covariances as an array, a list or a dict; names given apart go before those of tables."""
    S, table_columns, table_keys = covariance_tables(S)
    S = check_stack(S)
    k, p, _ = S.shape
    names_of_features = table_columns if names_of_features is None else names_of_features
    names_of_contexts = table_keys if names_of_contexts is None else names_of_contexts
    if parameters.n_components is not None:
        check_rank(parameters.n_components, p)
    contexts = np.arange(k) if names_of_contexts is None else _distinct(names_of_contexts, k, "context_names")
    warn_of_doubtful(contexts.tolist())
    features = None if names_of_features is None else _distinct(names_of_features, p, "feature_names")
    if names_of_contexts is not None:
        n_samples = by_name(n_samples, contexts.tolist(), "n_samples", "contexts")
    counts = None if n_samples is None else check_counts(n_samples, k)
    moments = ContextCovariances(S, np.zeros((0, p)), np.zeros(0), contexts, features)
    return fit_to(parameters, fit_data_of_covariances(moments, counts), Features(feature_names(features)), report)


def fit_to(parameters: Parameters, data: FitData, features: Features, report: Report, seed: int | None = None) -> Fit:
    """Fit data that were read and checked. ``seed`` takes the place of a ``random_state`` that was not given."""
    S = data.covariances
    rng = as_generator(seed if parameters.random_state is None else parameters.random_state)
    weights = None
    if parameters.context_weights is not None:
        weights = check_weights(parameters.context_weights, data.names)
    choice = None
    rank = parameters.n_components
    if rank is None:
        choice = automatic_rank(
            data.on_host(),
            parameters.rank_range,
            parameters.n_seed_pairs,
            parameters.cos_sim_threshold,
            rng,
            report,
        )
        rank = choice.rank
    result, facets = decompose_checked(
        S,
        int(rank),
        **check_solver(parameters.solver, parameters.orthogonal, parameters.noise),
        counts=data.counts,
        weights=weights,
        rng=rng,
        core=None if choice is None else choice.core,
        with_facets=True,
        report=report,
        tol=parameters.tol,
        max_iter=parameters.max_iter,
    )
    assert facets is not None  # which with_facets asked for
    # Replicability is told of the model's own components where these are of the power method that judged the rank.
    is_plain = parameters.solver == "mspm" and not parameters.orthogonal and weights is None
    rank_choice = None
    if choice is not None:
        rank_choice = choice.told(to_host(result.components) if is_plain else None).times_power(data.exponent)
    dominance = dominant_feature(result.components, S.variances)
    score_moments = _score_moments(data, result, parameters.noise)
    scaled = result.times_power(data.exponent)
    on_device = {
        "components": result.components,
        "projection": np.linalg.pinv(result.components),
        "loadings": scaled.loadings,
        "means": data.means,
        "noise_variance": scaled.noise,
        "singular_values": scaled.singular_values,
    }
    model = FittedModel(
        **{name: like(array, data.home) for name, array in on_device.items()},
        contexts=data.names,
        n_samples=data.counts,
        n_iter=max(1, result.n_iter),
        n_passes=data.n_passes,
        basis_residual=result.basis_residual,
        facets=replace(facets, exponent=data.exponent),
        score_moments=score_moments,
        feature_names=features.names,
        label_columns=features.label_columns,
        noise=parameters.noise,
        orthogonal=parameters.orthogonal,
    )
    return Fit(model, rank_choice, dominance)


def _score_moments(data: FitData, result: Decomposition, noise: str | None) -> tuple[Array, Array] | None:
    """Return what tests of presence need of the data, in their units; None without a model of the noise."""
    if result.noise is None:
        return None
    A, B, variances = (array.astype(np.float64) for array in (result.components, result.loadings, result.noise))
    gaussian = GaussianModel(A, B, variances, noise == "diagonal")
    likelihood = gaussian.likelihood(data.covariances, np.ones(data.covariances.n_contexts))
    return np.ldexp(likelihood.R, 2 * data.exponent), np.ldexp(likelihood.rest, 2 * data.exponent)


def feature_names(names: Array | None) -> Array | None:
    """Return names of features as scikit-learn keeps them; columns called 0, 1, ..., p - 1 have none."""
    return None if names is None or are_positions(names.tolist()) else names.astype(object)


def remembered_columns(X: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """Return columns of a DataFrame that were labels; those of an AnnData are in ``obs`` and never among features."""
    return () if is_anndata(X) else tuple(columns)


def _distinct(names: Any, n: int, argument: str) -> Array:
    values = list(names)
    if len(values) != n or len(set(values)) < n:
        raise ValueError(
            f"{argument} has {len(values)} entries, {len(set(values))} of them distinct; {n} distinct are needed."
        )
    return name_array(values)
