"""From each form of input to a fitted model: rows, moments, covariances.

``fit_rows``, ``fit_moments`` and ``fit_covariances`` differ in how they arrive at a ``FitData`` (covariances behind one
interface, names, means, counts). ``fit_to`` then does the same for all: choose the rank if it is not given, decompose,
measure, and scale back to the units of the data. Nothing here touches the estimator, so a fit that fails leaves it as
it was.
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
from .._covariances.moments import ContextMoments, reduced
from .._covariances.nuisance import check_nuisance
from .._covariances.validation import check_counts
from .._data.alignment import are_positions, by_name, covariance_tables
from .._data.annotations import take_annotations
from .._data.contexts import Contexts, read_contexts
from .._data.detect import holds_device_arrays, holds_labels_apart
from .._data.doubtful_labels import warn_of_doubtful
from .._data.fitted_preprocess import FittedPreprocess
from .._data.labels import label_columns, name_array
from .._data.preprocessed import fit_and_preprocess, refuse_on_device
from .._data.union import refuse_nuisance
from .._inference.cross_fitting import check_cross_fit, cross_fitted
from .._inference.sampling import checked_groups
from .._inference.solver_comparison import SolverComparison
from .._model.decomposition import (
    Decomposition,
    check_tolerance,
    check_weights,
    decompose_checked,
    degrees_of_freedom,
)
from .._model.dominance import Dominance, dominant_feature
from .._model.facets import with_exponent
from .._model.fitted_loadings import Measures
from .._model.fitted_model import FittedModel
from .._model.gaussian import GaussianModel
from .._model.kept_components import Kept, keep_components
from .._model.removed_nuisance import removed_nuisance
from .._rank.automatic import AutomaticRank, automatic_rank
from .._rank.paper_rule import RankChoice
from .._rank.sample_fits import Method
from .._rank.selection import RankSelection
from .._solvers import SOLVERS, check_solver, resolved_noise
from .._utils.arguments import as_generator, check_rank, refuse_without_effect
from .._utils.array_api import like, to_host
from .._utils.progress import silent
from .._utils.types import Array, Report
from ..exceptions import NoStableRankError
from .automatic_solver import check_automatic, choose_solver
from .parameters import REPLICATING, Parameters
from .robust import robust_rows


class Fit(NamedTuple):
    """A fitted model, the feature that dominates it, if any, and the evidence behind what was chosen: rank, solver."""

    model: FittedModel
    rank_choice: RankSelection | RankChoice | None
    dominance: Dominance | None
    solver_choice: SolverComparison | None = None


class Features(NamedTuple):
    """The names of the features (p,), or None if they have none, columns that held labels, and what is done to rows."""

    names: Array | None
    label_columns: tuple[str, ...] = ()
    preprocess: FittedPreprocess | None = None


def fit_rows(
    parameters: Parameters, X: Any, y: Any, checkpoint: Any, report: Report, *, groups: Any, batch: Any, covariates: Any
) -> Fit:
    """Fit rows in any of the forms that ``MCPCA.fit`` documents."""
    splits_rows = parameters.cross_fit or parameters.is_automatic
    if not splits_rows and (parameters.n_components is not None or parameters.rank_range is not None):
        given = "the rank is given" if parameters.n_components is not None else "the paper's rule splits no rows"
        refuse_without_effect(
            "groups",
            groups,
            None,
            f"{given}, and nothing else of a fit splits rows",
            "drop it, and pass it to replicability, context_dependence, bootstrap, standard_errors and presence",
        )
    if parameters.missing != "error":
        from .missing import fit_incomplete  # here, because that module imports this one

        refuse_nuisance(parameters.missing, batch, covariates)
        return fit_incomplete(parameters, X, y, checkpoint, report)
    # Before columns are taken out of X.
    columns = label_columns(X, y)
    annotated = take_annotations(X, y, groups=groups, batch=batch, covariates=covariates)
    X = annotated.X
    columns += [name for name in annotated.columns if name not in columns]
    on_device = holds_device_arrays(X)
    if on_device:
        refuse_on_device(parameters.preprocess)
    read = read_device_contexts if on_device else read_contexts
    raw = read(X, annotated.y)
    contexts = checked_groups(annotated.attach(fit_and_preprocess(parameters.preprocess, raw, X, report)))
    check_nuisance(contexts)
    # Before the first pass over the rows, which may take long: a rank above p needs none to be refused.
    if parameters.n_components is not None:
        check_rank(parameters.n_components, contexts.n_features)
    names = feature_names(contexts.feature_names)
    features = Features(names, remembered_columns(X, columns), contexts.preprocess)
    tol = None if parameters.tol is None else check_tolerance(parameters.tol)
    if parameters.is_automatic:
        check_automatic(contexts)
    if parameters.cross_fit:
        check_cross_fit(contexts, parameters.cross_fit, parameters.n_components)
    if parameters.robust:
        refuse_without_effect(
            "checkpoint", checkpoint, None, "robust=True keeps no progress in files", "drop one of the two"
        )
        if contexts.nuisance is not None:
            raise ValueError(
                f"robust=True beside {contexts.nuisance.in_words()}: rows are weighted by their distances, which the "
                "nuisance would enter. Drop one of the two, or regress it out of the rows before the fit."
            )
        return _fit_robustly(parameters, contexts, features, report)
    # A fingerprint of rows, labels and parameters, by which a checkpoint of another fit is recognised.
    identity = {} if checkpoint is None else identity_of(contexts, vars(parameters))
    with Checkpoint(checkpoint, identity, parameters.random_state) as saved:
        data = fit_data_of_rows(contexts, parameters.n_components, tol, report, saved)
        # Without a random_state, a resumed fit has to continue with the seed that it began with.
        seed = saved.seed if checkpoint is not None else None
        fit = fit_to(parameters, data, features, report, seed)
        if parameters.cross_fit:
            fit = fit._replace(model=_cross_fitted(parameters, contexts, fit.model, seed, report))
        # Only now: whatever fails before leaves a checkpoint from which to resume.
        saved.finish()
    return fit


def _cross_fitted(
    parameters: Parameters, contexts: Contexts, model: FittedModel, seed: int | None, report: Report
) -> FittedModel:
    """Return the model with cross-fitted loadings."""
    check_cross_fit(contexts, parameters.cross_fit, model.n_components)  # of a rank that was chosen
    rng = as_generator(seed if parameters.random_state is None else parameters.random_state)
    once = replace(parameters, n_components=model.n_components, cross_fit=0)
    if parameters.is_automatic:
        once = replace(once, solver=model.solver, noise=model.noise)

    def refit(part: Contexts, stream: np.random.Generator) -> FittedModel:
        data = fit_data_of_rows(part, model.n_components, once.tol, silent, Checkpoint(None, {}))
        return fit_to(replace(once, random_state=stream), data, Features(None), silent).model

    return cross_fitted(model, contexts, parameters.cross_fit, rng, refit, report)


def _fit_robustly(parameters: Parameters, contexts: Contexts, features: Features, report: Report) -> Fit:
    """Fit rows that are weighted by their distances from the fit."""
    rng = as_generator(parameters.random_state)
    rows = robust_rows(parameters, contexts, report)
    choice = None
    rank = parameters.n_components
    if rank is None:
        choice = _chosen_rank(parameters, rows.for_rank(), rng, report)
        rank = choice.rank
    result = rows.reweighted(int(rank), rng, report)
    # Reweighting leaves the generator as it is: with infinite degrees of freedom this is the ordinary fit.
    fit = fit_to(replace(parameters, random_state=rng), result.data, features, report, choice=choice)
    return fit._replace(model=replace(fit.model, degrees_of_freedom=result.degrees_of_freedom))


def fit_moments(
    parameters: Parameters, moments: ContextMoments, columns: Sequence[str], report: Report, *, complete: bool = True
) -> Fit:
    """Fit the moments of contexts; ``columns`` held the labels of the rows that they are of.

    Unless they are ``complete``, nuisance that is void or collinear so far is neither refused nor warned of.
    """
    parameters.refuse_options_of_rows("moments")
    covariances, nuisance = reduced(moments, check=complete)
    if parameters.n_components is not None:
        check_rank(parameters.n_components, covariances.covariances.shape[1])
    features = Features(feature_names(covariances.feature_names), tuple(columns))
    data = fit_data_of_covariances(covariances, covariances.n_samples, nuisance=nuisance)
    return fit_to(parameters, data, features, report)


def fit_covariances(
    parameters: Parameters, S: Any, n_samples: Any, names_of_features: Any, names_of_contexts: Any, report: Report
) -> Fit:
    """Fit covariances as an array, a list or a dict; names that are passed override those of tables."""
    parameters.refuse_options_of_rows("covariances")
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
    # Numbered contexts have no names by which a Series could be aligned.
    if names_of_contexts is not None:
        n_samples = by_name(n_samples, contexts.tolist(), "n_samples", "contexts")
    counts = None if n_samples is None else check_counts(n_samples, k)
    # Covariances alone have neither means nor counts of rows: both are empty.
    moments = ContextCovariances(S, np.zeros((0, p)), np.zeros(0), contexts, features)
    return fit_to(parameters, fit_data_of_covariances(moments, counts), Features(feature_names(features)), report)


def fit_to(
    parameters: Parameters,
    data: FitData,
    features: Features,
    report: Report,
    seed: int | None = None,
    choice: AutomaticRank | None = None,
) -> Fit:
    """Fit data that have been read and checked.

    ``seed`` replaces a ``random_state`` that is None; ``choice`` is a rank that was chosen on other data.
    """
    # One generator, first for the choice of the rank and then for the fit: the choice is that of ``select_rank`` with
    # the same seed.
    rng = as_generator(seed if parameters.random_state is None else parameters.random_state)
    weights = None
    # Checked before a rank is chosen, which may take long.
    if parameters.context_weights is not None:
        weights = check_weights(parameters.context_weights, data.names)
    if parameters.n_components is None and choice is None:
        choice = _chosen_rank(parameters, data, rng, report)
    rank = parameters.n_components if choice is None else choice.rank
    assert rank is not None
    solver_choice = None
    if parameters.is_automatic:
        parameters, solver_choice = choose_solver(parameters, data, int(rank), weights, rng, report)
        # The rank was chosen for the power method; halves have to be fitted as the model is.
        if choice is not None and parameters.solver != "mspm" and parameters.rank_range is None:
            choice = _chosen_rank(parameters, data, rng, report)
            rank = choice.rank
    result, measures = decompose_checked(
        data.covariances,
        int(rank),
        **check_solver(parameters.solver, parameters.orthogonal, parameters.noise),
        counts=data.counts,
        weights=weights,
        rng=rng,
        # A core of the choice is one of other covariances if rows have been weighted since.
        core=None if choice is None or parameters.robust else choice.core,
        names=data.names.tolist(),
        with_measures=True,
        with_space=True,
        report=report,
        tol=parameters.tol,
        max_iter=parameters.max_iter,
    )
    assert measures is not None  # because of with_measures
    rank_choice = None
    if choice is not None:
        rank_choice = choice.told(to_host(result.components)).times_power(data.exponent)
    kept_of = None
    if parameters.keep is not None:
        assert isinstance(rank_choice, RankSelection)  # ``checked`` refuses the paper's rule
        kept_of = int(rank)
        kept = kept_of_fit(parameters, data, result, _replicating(rank_choice), weights)
        result, measures, indices = kept
        rank_choice = rank_choice.kept(indices)
    # Shares of variance have no unit, so scaled covariances will do.
    dominance = dominant_feature(result.components, data.covariances.variances)
    model = model_in_units(parameters, data, features, result, measures)
    return Fit(replace(model, kept_of=kept_of), rank_choice, dominance, solver_choice)


def _replicating(choice: RankSelection) -> Array:
    """Return the MCPCs that replicate, as indices; raise if there are none, or it is not known."""
    if choice.replicability is None:
        raise NoStableRankError(
            f'n_components="{REPLICATING}" keeps MCPCs that come back in halves of the rows, which were not compared '
            f"here. {choice.reason} Pass the rows in memory, or a number.",
            choice,
        )
    which = np.flatnonzero(choice.replicability.replicates)
    if not len(which):
        raise NoStableRankError(
            f'n_components="{REPLICATING}" keeps MCPCs that come back in halves of the rows, and none does. '
            f"{choice.reason} n_components=None fits them all the same.",
            choice,
        )
    return which


def kept_of_fit(
    parameters: Parameters, data: FitData, result: Decomposition, which: Array, weights: Array | None
) -> Kept:
    """Return some components of a fit, with loadings fitted again to the same data."""
    solver = parameters.solver
    return keep_components(
        data.covariances,
        result,
        which,
        solver=solver,
        noise=resolved_noise(solver, parameters.noise),
        freedom=degrees_of_freedom(
            data.counts, weights if SOLVERS[solver].models_noise else None, data.covariances.n_contexts
        ),
        names=data.names.tolist(),
    )


def _chosen_rank(parameters: Parameters, data: FitData, rng: np.random.Generator, report: Report) -> AutomaticRank:
    """Choose the rank for these data, by ``select_rank`` or the paper's rule."""
    parameters = parameters.for_rank()
    weights = None
    if parameters.context_weights is not None:
        values = check_weights(parameters.context_weights, data.names)
        weights = dict(zip(data.names.tolist(), values.tolist(), strict=True))
    return automatic_rank(
        data.on_host(),
        parameters.rank_range,
        parameters.n_seed_pairs,
        parameters.cos_sim_threshold,
        Method(**check_solver(parameters.solver, parameters.orthogonal, parameters.noise), weights=weights),
        rng,
        report,
    )


def model_in_units(
    parameters: Parameters, data: FitData, features: Features, result: Decomposition, measures: Measures
) -> FittedModel:
    """Return the model in the units of the data and on their device; ``result`` is of data times ``2^-exponent``."""
    noise = resolved_noise(parameters.solver, parameters.noise)
    # First, because it may take a pass over the rows, which ``n_passes`` below has to count.
    score_moments = _score_moments(data, result, measures, noise)
    if data.nuisance is not None:
        data.covariances.traces()
    in_units = result.times_power(data.exponent)
    unit = 2 * data.exponent  # of variances, as a power of two
    on_device = {
        "components": result.components,
        # Computed once: every ``transform`` needs it.
        "projection": np.linalg.pinv(result.components),
        "loadings": in_units.loadings,
        "corrected_loadings": np.ldexp(measures.corrected_loadings, unit).astype(in_units.loadings.dtype, copy=False),
        "means": data.means,
        "noise_variance": np.ldexp(measures.floor, unit).astype(in_units.loadings.dtype, copy=False),
        "singular_values": in_units.singular_values,
    }
    return FittedModel(
        **{name: like(array, data.home) for name, array in on_device.items()},
        contexts=data.names,
        n_samples=data.n_samples,
        n_iter=max(1, result.n_iter),  # scikit-learn's checks expect at least 1
        n_passes=data.n_passes,
        basis_residual=result.basis_residual,
        basis_error=result.basis_error,
        # Facets stay scaled: they are fourth powers of the data, which may be out of range in its units.
        facets=with_exponent(measures.facets, data.exponent),
        score_moments=score_moments,
        feature_names=features.names,
        label_columns=features.label_columns,
        solver=parameters.solver,
        noise=noise,
        orthogonal=parameters.orthogonal,
        missing=parameters.missing,
        nuisance=removed_nuisance(data, np.asarray(on_device["projection"])),
        space=result.space,
        preprocess=features.preprocess,
    )


def _score_moments(
    data: FitData, result: Decomposition, measures: Measures, noise: str | None
) -> tuple[Array, Array] | None:
    """Return the moments that tests of presence need, in the units of the data; None for a fit without noise.

    They are ``W S_i W^T`` (k, r, r) and the variance outside the span of A (k,). From them the likelihood can be
    computed without the covariances, which the model does not keep.
    """
    scores = measures.score_covariances
    rest = measures.rest
    # Noise by feature makes the likelihood one of scaled features, which have other scores.
    if noise in ("diagonal", "scaled"):
        assert result.noise is not None
        gaussian = GaussianModel.with_noise(
            result.components.astype(np.float64),
            result.loadings.astype(np.float64),
            result.noise.astype(np.float64),
            noise,
        )
        # The weights of contexts do not enter the moments.
        likelihood = gaussian.likelihood(data.covariances, np.ones(data.covariances.n_contexts))
        scores = likelihood.R
        rest = likelihood.rest
    if scores is None:
        return None
    # The largest array of a model, which is not copied for a factor of 1.
    if data.exponent == 0:
        return scores, rest
    return np.ldexp(scores, 2 * data.exponent), np.ldexp(rest, 2 * data.exponent)


def feature_names(names: Array | None) -> Array | None:
    """Return feature names as scikit-learn keeps them; None for columns called 0, 1, ..., p - 1."""
    # A DataFrame made from an array has such columns, which say no more than positions do.
    return None if names is None or are_positions(names.tolist()) else names.astype(object)


def remembered_columns(X: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a DataFrame that held labels; ``obs`` and coordinates are never among features."""
    return () if holds_labels_apart(X) else tuple(columns)


def _distinct(names: Any, n: int, argument: str) -> Array:
    """Return ``n`` distinct names as an array."""
    values = list(names)
    if len(values) != n or len(set(values)) < n:
        raise ValueError(
            f"{argument} has {len(values)} entries, {len(set(values))} of them distinct; {n} distinct are needed."
        )
    return name_array(values)
