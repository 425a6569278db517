"""A fitted model and rows it has not seen: loadings of new contexts, and how well it predicts held-out rows.

``loadings_for`` keeps A and solves for b as the fit did: by non-negative least squares, or by likelihood; beside noise
unless told otherwise. New rows are rows that axes were not fitted to: a cross-fitted model knows what axes lose there,
and divides by it.
``predictive_score`` compares the covariance of the rows with the one that the model predicts. Both are methods of
``MCPCA``. They work on covariances of the rows times ``2^-e``, for which fourth powers of the data are in range, and
return results in the units of the data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._covariances.context_covariances import covariances_of, second_moments_about
from .._covariances.fit_data import MOST_NUMBERS, without_basis
from .._covariances.interface import Covariances, project
from .._covariances.nuisance import check_nuisance, degrees_of_freedom, nuisance_factors
from .._covariances.scaling import in_range, stack_in_range
from .._covariances.stack import CovarianceStack
from .._covariances.validation import check_covariances
from .._data.alignment import square_in_order
from .._data.contexts import Contexts, named_blocks, read_contexts
from .._data.detect import is_dask
from .._solvers.floor import outside_is_empty, own_floor
from .._solvers.loadings import solve_loadings
from .._utils.arguments import refuse_without_effect
from .._utils.array_api import to_host
from .._utils.types import Array, Report
from .facets import measure
from .fitted_model import FittedModel
from .new_rows import check_n_features, check_new_rows, read_new_contexts

# A square matrix is read as a covariance if it is symmetric up to this share of its largest entry: larger than rounding
# of any computed covariance in float64. Rows that are symmetric by accident would have to agree in p (p - 1) / 2 pairs.
_SYMMETRY_TOLERANCE = 1e-10


class _ScaledCovariances(NamedTuple):
    """Covariances of rows times ``2^-exponent``, and whether they are of a ``single`` context without a label."""

    covariances: Covariances
    exponent: int
    single: bool


def loadings_for(
    model: FittedModel, X: Any, y: Any, corrected: bool, report: Report, *, batch: Any = None, covariates: Any = None
) -> Array:
    """Return the loadings of new contexts, (r,) or (k, r); see ``MCPCA.loadings_for``."""
    if not corrected and model.noise is not None:
        raise ValueError(
            f"corrected=False: the loadings of this fit are beside noise={model.noise!r}, and so are those of new "
            "contexts. Drop it, or fit with noise=None."
        )
    scaled = _covariances_of(model, X, y, report, batch=batch, covariates=covariates)
    # Loadings are variances: rows times 2^-e have 4^-e times the loadings.
    B = np.ldexp(loadings_on(model, scaled.covariances, scaled.exponent, corrected), 2 * scaled.exponent)
    B = divided_by_attenuation(model, B, corrected)
    return np.asarray(B[0] if scaled.single else B)


def divided_by_attenuation(model: FittedModel, B: Array, corrected: bool) -> Array:
    """Return loadings of new rows as they would be in those of the fit, if the model knows what axes lose."""
    # The rows are new to the axes, which have kept this share of the loadings.
    return B / to_host(model.attenuation) if corrected and model.attenuation is not None else B


def loadings_on(model: FittedModel, S: Covariances, e: int, corrected: bool) -> Array:
    """Return the loadings (k, r) for covariances of rows times ``2^-e``, in the same units."""
    A = to_host(model.components).astype(np.float64)
    if model.is_likelihood:
        B = model.gaussian("loadings_for").times_power(-e).fit_new(S).B
    elif corrected:
        B = _beside_floor(model, S, A, e)
    else:
        # <a_j a_j^T, a_l a_l^T> = (a_j . a_l)^2 and <a_j a_j^T, S_i> = a_j^T S_i a_j: the whole problem is r x r.
        B = solve_loadings((A.T @ A) ** 2, S.variances_along(A))
    return B.astype(to_host(model.loadings).dtype, copy=False)


def _beside_floor(model: FittedModel, S: Covariances, A: Array, e: int) -> Array:
    """Return the loadings of new contexts by least squares beside noise, each with a level of its own.

    What features share, the profile of scaled noise and all of diagonal noise, stays as fitted.
    """
    p, r = A.shape
    # In one pass: A^T S_i A has the variances along A on its diagonal, and with A^T A the variance in its span.
    cross = project(S, A)
    along = np.einsum("kjj->kj", cross)
    G = (A.T @ A) ** 2
    if model.noise_variance is None or r == p:
        return solve_loadings(G, along)
    fitted = np.ldexp(to_host(model.noise_variance).astype(np.float64), -2 * e)
    if model.noise == "diagonal":
        return solve_loadings(G, along - fitted @ A**2)
    if model.noise == "scaled":
        profile = fitted.mean(axis=0)
        return own_floor(A, along, S.variances() @ profile, profile).loadings
    # A context of few rows may lie in the span of A; its noise is then taken to be the average one.
    traces = S.traces()
    inside = np.einsum("kab,ab->k", cross, np.linalg.pinv(A.T @ A, hermitian=True))
    hidden = outside_is_empty(traces - inside, traces)
    B = own_floor(A, along, traces).loadings
    B[hidden] = solve_loadings(G, along[hidden] - fitted.mean())
    return B


def _covariances_of(
    model: FittedModel, X: Any, y: Any, report: Report, *, batch: Any = None, covariates: Any = None
) -> _ScaledCovariances:
    """Return the covariances behind the argument of ``loadings_for``: rows, a covariance, or a stack of them."""
    X = to_host(X)
    nuisance = {"batch": batch, "covariates": covariates}
    # Rows are never 3-D, so this form needs no guess.
    if isinstance(X, np.ndarray) and X.ndim == 3:
        for name, value in nuisance.items():
            refuse_without_effect(name, value, None, "it is about rows, and covariances have none", "drop it")
        S = check_covariances(X, "X")
        check_n_features(S.shape[1], model.n_features)
        S, e = stack_in_range(S)
        return _ScaledCovariances(CovarianceStack(S), e, single=False)
    single = y is None and not isinstance(X, Contexts) and named_blocks(X) is None
    # Only rows have a batch, so there is then no covariance to be recognised.
    if not single or batch is not None or covariates is not None:
        contexts = read_new_contexts(model, X, y, min_samples=2, **nuisance)
    else:
        table = square_in_order(X, model.feature_names)
        # Of a model that prepares rows, a covariance is one of prepared rows, and is none to prepare.
        plain = model.preprocess is not None and (isinstance(table, np.ndarray) or hasattr(table, "loc"))
        is_prepared = plain and _is_covariance(np.asarray(table), model.n_features)
        rows = np.asarray(table) if is_prepared else check_new_rows(model, table)
        if _is_covariance(rows, model.n_features):
            S, e = stack_in_range(check_covariances(rows[None], "X"))
            return _ScaledCovariances(CovarianceStack(S), e, single=True)
        contexts = read_new_contexts(model, rows, None, min_samples=2) if is_dask(rows) else read_contexts(rows)
    check_nuisance(contexts)
    # A is given, so no leading subspace has to be found.
    data = without_basis(contexts, model.n_components, report)
    return _ScaledCovariances(data.covariances, data.exponent, single)


def _is_covariance(rows: Any, p: int) -> bool:
    if not isinstance(rows, np.ndarray) or rows.shape != (p, p):
        return False
    return np.allclose(rows, rows.T, rtol=_SYMMETRY_TOLERANCE, atol=_SYMMETRY_TOLERANCE * np.abs(rows).max())


def predictive_score(
    model: FittedModel,
    X: Any,
    y: Any,
    metric: str | None,
    report: Report,
    *,
    batch: Any = None,
    covariates: Any = None,
) -> float:
    """Return how well the model predicts rows; see ``MCPCA.score``."""
    if metric not in (None, "covariance", "likelihood"):
        raise ValueError(f"metric={metric!r}; choose None, 'covariance' or 'likelihood'.")
    # Raises for a model without noise before any row is read.
    if metric == "likelihood":
        model.gaussian("metric='likelihood'")
    contexts = read_new_contexts(model, X, y, min_samples=1, batch=batch, covariates=covariates)
    counts = contexts.n_samples
    # One matrix without labels belongs to no fitted context in particular, unless the model has a single one.
    is_new = not contexts.by_name and len(contexts.names) == 1 < len(model.contexts)
    if is_new:
        # A new context is centred by its own mean, and its loadings are fitted to the very rows that are scored.
        positions = None
        S, e, _ = _covariances_of(model, X, None, report, batch=batch, covariates=covariates)
    else:
        positions, means = _fitted_means(model, contexts)
        _check_room(len(means), model.n_features)
        # About the fitted means: rows are judged by what the fit knew, and a context may have a single row.
        scaled, e = in_range(contexts)
        if contexts.nuisance is not None:
            # What batches shift is estimated in these rows: about their own means, by degrees of freedom.
            check_nuisance(contexts)
            factors = nuisance_factors(scaled, report)
            S = CovarianceStack(covariances_of(scaled, report, factors).covariances)
            counts = degrees_of_freedom(scaled, factors)
        else:
            S = CovarianceStack(second_moments_about(scaled, [np.ldexp(mean, -e) for mean in means], report))
    if metric == "likelihood" or (metric is None and model.noise is not None):
        return mean_log_likelihood(model, S, e, counts, positions)
    return _predicted_share(model, S, e, positions)


def _fitted_means(model: FittedModel, contexts: Contexts) -> tuple[Array, list[Array]]:
    """Return the positions of ``contexts`` among the fitted ones, by name or in order, and their fitted means."""
    fitted = model.context_means
    if not contexts.by_name:
        return np.arange(len(contexts.names)), fitted.in_order(len(contexts.names))
    names = contexts.names.tolist()
    # The usual way to meet unknown contexts here is a fold of cross-validation that is not stratified.
    way_out = "Cross-validate with StratifiedKFold, so that every fold has rows of every context."
    means = fitted.of(names, way_out)
    positions = fitted.positions()
    return np.array([positions[name] for name in names]), means


def _check_room(k: int, p: int) -> None:
    if k * p**2 > MOST_NUMBERS:
        raise ValueError(
            f"score forms the covariances, and those of {k} contexts with {p} features have more than {MOST_NUMBERS} "
            "entries; score some of the contexts or features at a time."
        )


def mean_log_likelihood(model: FittedModel, S: Covariances, e: int, counts: Array, positions: Array | None) -> float:
    """Return the mean log-density of a row; with ``positions`` None, loadings and noise are fitted to S first."""
    gaussian = model.gaussian("score").times_power(-e)
    likelihood = gaussian.fit_new(S) if positions is None else gaussian.likelihood(S, counts, positions)
    # A density is per unit of volume, and rows were divided by 2^e in each of p directions.
    densities = gaussian.log_likelihoods(likelihood) - model.n_features * e * np.log(2)
    # Densities are means per context; weighted by rows, they give the mean over all rows.
    return float(np.average(densities, weights=counts))


def _predicted_share(model: FittedModel, S: Covariances, e: int, positions: Array | None) -> float:
    """Return ``1 - sum_i ||S_i - C_i||^2 / sum_i ||S_i||^2``, C_i being the covariance of the model.

    ``S`` is of rows times ``2^-e``; with ``positions`` None, the loadings are fitted to S first.
    """
    errors, total = predicted_errors(model, S, e, positions)
    return 1 - errors / total if total > 0 else 0.0


def predicted_errors(model: FittedModel, S: Covariances, e: int, positions: Array | None) -> tuple[float, float]:
    """Return ``sum_i ||S_i - C_i||^2`` and ``sum_i ||S_i||^2``, as in ``_predicted_share``."""
    A = to_host(model.components)
    noise = None  # its variances (k, p)
    if model.noise is not None:
        gaussian = model.gaussian("score").times_power(-e)
        if positions is None:
            new = gaussian.fit_new(S)
            B = new.B
            s = new.s
        else:
            B = gaussian.B[positions]
            s = gaussian.s[positions]
        noise = gaussian.feature_noise(s)
    elif positions is None:
        B = loadings_on(model, S, e, corrected=False)
    else:
        B = np.ldexp(to_host(model.loadings)[positions], -2 * e)
    # The facets have ||E||^2 with E = S - A B A^T; what noise changes about it is added below.
    facets = measure(S, A, B)
    errors = float(facets.reconstruction_errors.sum())
    total = float(facets.squared_norms.sum())
    if noise is not None:
        # With E = S - A B A^T and N diagonal, ||E - N||^2 = ||E||^2 - 2 <E, N> + ||N||^2: only diag(E) is needed.
        diagonal = S.variances() - B @ np.square(A.T)
        errors += float(np.vdot(noise, noise - 2 * diagonal))
    return errors, total
