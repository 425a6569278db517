"""Standard errors of a fitted model, and of a planned one.

``standard_errors_of`` is the method of ``MCPCA``; ``planning`` has the bound for planned studies. ``fisher`` has the
covariance of X, the change of A within its span, for Gaussian rows, and ``sandwich`` that of the rows at hand; here
they become angles of the MCPCs and errors of their loadings. Columns of A have unit length: ``da_j`` loses its part
along ``a_j``, and ``db_ij`` gains ``2 b_ij a_j . da_j`` in return. The change of A outside its span is independent of
all the rest for Gaussian rows, and across it for all others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from .._model.fitted_model import FittedModel
from .._model.gaussian import GaussianModel
from .._model.identifiability import indistinct_loadings
from .._utils.arguments import check_real, refuse_without_effect
from .._utils.component_names import mcpc_name
from .._utils.printing import Shown, counted, extremes, mcpcs, span
from .._utils.types import Array, Report
from .._utils.wording import listed
from .fisher import Information, covariance_of_rotations, covariance_of_X, information_chunks, without_data
from .row_scores import RowScores, check_labelled, read_rows_of_fit, reader_of
from .sandwich import Clusters, cluster_sandwich_of, sandwich_of
from .weighted_rows import rows_of_fit

# A loading is clearly positive if its standard error is below this share of it: its interval is then symmetric in the
# logarithm, as fits a variance. If this were larger, upper ends b exp(z se / b) would run away; if smaller, more
# loadings would get the plain interval b -+ z se.
_CLEAR_RELATIVE_ERROR = 0.4
# Degrees of freedom of a variance that is estimated from the spread of n squared scores. A sum of n squares of centred
# squares of Gaussian scores, whose kurtosis is 15, varies as chi-square with 2 n / (15 - 1) degrees does.
_ROWS_PER_DEGREE = 7
# With fewer, the ends of intervals would leave the range of numbers.
_FEWEST_DEGREES = 2


@dataclass(frozen=True, repr=False)
class Precision(Shown):
    """Standard errors: those of an estimate, or the least that any unbiased estimate can have.

    Attributes
    ----------
    angles : ndarray (r,)
        Root mean square angle, in degrees, between each MCPC and the truth.
    loadings : ndarray (k, r)
        Standard error of each loading, for MCPCs of unit length. For a loading of 0 it is what it would be without the
        constraint ``b >= 0``.
    ascore_loss : float
        Expected ``1 - Ascore``: the mean over MCPCs of half the squared angle (in radians).
    n_samples : ndarray (k,)
        Samples per context.
    kind : str
        "sandwich": the spread that the rows themselves show. "model": that of Gaussian rows.
    n_groups : ndarray (k,) or None
        Groups of each context, if the spread is that between groups of rows.
    """

    angles: Array
    loadings: Array
    ascore_loss: float
    n_samples: Array
    kind: str = "model"
    n_groups: Array | None = None

    def times_power(self, e: int) -> Precision:
        """Return the standard errors for data times ``2^e``."""
        # Loadings are variances; angles and sample sizes have no unit.
        return replace(self, loadings=np.ldexp(self.loadings, 2 * e))

    def intervals(self, loadings: Any, confidence: float = 0.95) -> tuple[Array, Array]:
        """Return the ends (k, r) of intervals for ``loadings``, which must be those that the standard errors belong to.

        Loadings are variances: intervals are symmetric in the logarithm for loadings clearly above 0, and cut off at 0
        for the others. Where the spread itself was estimated from the rows (``kind="sandwich"``), they are as much
        wider as Student's t is, with a seventh of a context's rows as degrees of freedom, or one less than its groups
        if these are fewer.
        """
        B = np.asarray(loadings, dtype=np.float64)
        degrees = None
        if self.kind == "sandwich":
            degrees = np.maximum(np.asarray(self.n_samples) / _ROWS_PER_DEGREE, _FEWEST_DEGREES)[:, None]
            if self.n_groups is not None:
                degrees = np.minimum(degrees, self.n_groups[:, None] - 1.0)
        return loading_intervals(B, self.loadings, confidence, degrees)

    def samples_for(self, degrees: float) -> Array:
        """Return how many samples per context bring each MCPC within ``degrees`` (r,), as a root mean square angle.

        Angles fall with the square root of the sample size if all contexts grow alike; the result is the mean over
        contexts.
        """
        # Written so that NaN is refused, too.
        if not degrees > 0:
            raise ValueError(f"degrees={degrees!r} must be a positive angle.")
        return np.asarray(np.ceil(self.n_samples.mean() * (self.angles / degrees) ** 2).astype(np.int64))

    def _words(self) -> list[str]:
        k, r = self.loadings.shape
        how = "as the spread of the rows shows" if self.kind == "sandwich" else "for Gaussian rows"
        if self.n_groups is not None:
            how = f"as the spread between the groups shows, {span(self.n_groups, ',.0f')} in a context"
        return [
            f"{counted(r, 'MCPC')} of {counted(k, 'context')} with {span(self.n_samples, ',.0f')} samples each are "
            f"expected {extremes(self.angles)} degrees from the truth (root mean square angle), {how}.",
            f"Expected 1 - Ascore: {self.ascore_loss:.2g}. Standard errors of loadings: {span(self.loadings)}.",
        ]

    def _rows(self) -> dict[str, Any]:
        errors = self.loadings
        return {
            "": mcpcs(len(self.angles)),
            "degrees from the truth": self.angles,
            "least standard error of a loading": errors.min(axis=0),
            "largest": errors.max(axis=0),
        }


def loading_intervals(B: Array, errors: Array, confidence: float, degrees: Array | None = None) -> tuple[Array, Array]:
    """Return ``B exp(-+ q se / B)`` where the error is small relative to B, else ``B -+ q se`` cut off at 0.

    q is the quantile of the normal distribution, or of Student's t with ``degrees`` of freedom.
    """
    confidence = check_real(confidence, "confidence", 0.5, 0.9999, "It is a probability, such as 0.95.")
    level = (1 + confidence) / 2
    q = norm.ppf(level) if degrees is None else student.ppf(level, degrees)
    # A loading of 0 has no logarithm; an infinite relative error sends it to the plain interval.
    relative = np.divide(errors, B, out=np.full_like(B, np.inf), where=B > 0)
    is_clear = relative < _CLEAR_RELATIVE_ERROR
    # By the delta method the standard error of log b is se / b.
    # 0 where the factor is not used, as exp would overflow there.
    factor = np.exp(q * np.where(is_clear, relative, 0))
    lower = np.where(is_clear, B / factor, np.maximum(B - q * errors, 0))
    upper = np.where(is_clear, B * factor, B + q * errors)
    return lower, upper


def standard_errors_of(
    model: FittedModel,
    X: Any,
    y: Any,
    kind: str | None,
    report: Report,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
) -> Precision:
    """Return the standard errors of a fitted model; see ``MCPCA.standard_errors``."""
    if kind not in (None, "sandwich", "model"):
        raise ValueError(f"kind={kind!r}; choose 'sandwich', 'model' or None.")
    check_labelled(X, y, groups=groups, batch=batch, covariates=covariates)
    if kind == "model":
        refuse_without_effect("groups", groups, None, "kind='model' takes rows to be independent", "drop one of them")
    model.refuse_missing("standard_errors()", "Call bootstrap(X, y), which fits resamples of such rows.")
    if kind == "sandwich" and X is None:
        raise ValueError(
            "kind='sandwich' measures the spread of the rows, and none are given; pass the rows that the model was "
            "fitted on, standard_errors(X, y), or kind='model'."
        )
    if not model.is_likelihood:
        fitted = "noise=None" if model.solver == "ml" else f"solver={model.solver!r}"
        raise ValueError(
            f"standard_errors() are those of the likelihood, and this model was fitted with {fitted}; fit with "
            "solver='ml' and noise, or call bootstrap(X, y), which is for every solver."
        )
    gaussian = model.gaussian("standard_errors()")
    # The information contains fourth powers of the data: it is computed at a scale where these are in range.
    e = gaussian.exponent
    scaled = gaussian.times_power(-e)
    pooled = model.noise == "pooled"
    if X is None or kind == "model":
        counts = model.counts("standard_errors()")
        precision = precision_of(scaled, counts, pooled=pooled, orthogonal=model.orthogonal)
    else:
        annotations = {"groups": groups, "batch": batch, "covariates": covariates}
        contexts = read_rows_of_fit(model, X, y, **annotations, what="standard_errors")
        reader = reader_of(model, scaled, contexts, e)
        rows = rows_of_fit(model, reader, report)
        clusters = None
        if contexts.groups is not None:
            squares_outside = partial(reader.squares_outside, rows)
            clusters = Clusters(contexts.groups.codes, len(contexts.groups.names), squares_outside)
        precision = sandwich_precision_of(
            scaled, rows, pooled=pooled, orthogonal=model.orthogonal, clusters=clusters, taken=reader.degrees_taken
        )
    return precision.times_power(e)


def precision_of(model: GaussianModel, counts: Array, *, pooled: bool, orthogonal: bool = False) -> Precision:
    """Return the standard errors of an efficient estimate of ``model``; parameters as for ``information_of``."""
    information = information_of(model, counts, pooled=pooled, orthogonal=orthogonal)
    variances = _loading_variances(model, information)
    return _precision(model, information.covariance, np.diag(information.outside), variances, counts, "model")


def sandwich_precision_of(
    model: GaussianModel,
    rows: list[RowScores],
    *,
    pooled: bool,
    orthogonal: bool = False,
    clusters: Clusters | None = None,
    taken: Array | int = 0,
) -> Precision:
    """Return the standard errors that the ``rows``, or their groups, show whatever their distribution.

    ``taken`` are the degrees of freedom of contexts that nuisance takes. Other parameters as for ``precision_of``.
    """
    counts = np.array([len(row.scores) for row in rows]) - taken
    information = information_of(model, counts, pooled=pooled, orthogonal=orthogonal)
    coefficients = partial(_coefficients, model)
    n_groups = None
    if clusters is None:
        spread = sandwich_of(information, rows, coefficients)
    else:
        spread = cluster_sandwich_of(information, rows, clusters, coefficients)
        n_groups = np.array([len(np.unique(codes)) for codes in clusters.codes])
    # Few groups may leave less than nothing of a variance that is a difference of sums.
    variances = np.maximum(spread.loadings, 0) + _variance_by_outside(model, spread.outside)
    precision = _precision(model, spread.covariance, spread.outside, variances, counts, "sandwich")
    return replace(precision, n_groups=n_groups)


def information_of(model: GaussianModel, counts: Array, *, pooled: bool, orthogonal: bool) -> Information:
    """Return Fisher's information at ``model``, inverted; raise a ``ValueError`` if it is singular.

    Parameters
    ----------
    counts : ndarray (k,)
        Rows per context.
    pooled : bool
        Whether all contexts share one unknown noise variance.
    orthogonal : bool
        Whether the estimate is restricted to orthonormal components.
    """
    r = model.B.shape[1]
    # In scaled features, where the noise is isotropic; angles are taken in the features as they are, further below.
    # Estimating the mean takes one degree of freedom of each context.
    likelihood = without_data(model, counts - 1.0)
    blocks = likelihood.context_information()  # (k, r + 1, r + 1), of (b_i, log s_i)
    # Noise that is known, or shared by all contexts, is not an unknown of a single context.
    without_noise = model.kind == "diagonal" or pooled
    if without_noise:
        blocks = blocks[:, :r, :r]
    try:
        inverse = np.linalg.inv(blocks)
        if orthogonal:
            covariance = covariance_of_rotations(likelihood, inverse, pooled)
        else:
            covariance = covariance_of_X(likelihood, inverse, without_noise, pooled)
        # (r, r), the same for each of the p - r directions outside the span of A.
        outside = np.linalg.inv(likelihood.outside_information())
    except np.linalg.LinAlgError:
        raise ValueError(_not_identifiable(model.B, orthogonal, len(model.A))) from None
    return Information(likelihood, inverse, covariance, outside, without_noise, pooled)


def _precision(
    model: GaussianModel, covariance: Array, outside: Array, variances: Array, counts: Array, kind: str
) -> Precision:
    """Return errors from the covariance of X, the variances of a_j outside the span (r,) and those of loadings."""
    squared_angles = _squared_angles(model, covariance, outside)
    return Precision(
        angles=np.degrees(np.sqrt(squared_angles)),
        loadings=np.sqrt(variances),
        ascore_loss=float(squared_angles.mean() / 2),  # 1 - cos t = t^2 / 2 for small angles
        n_samples=counts,
        kind=kind,
    )


def _not_identifiable(B: Array, orthogonal: bool, p: int) -> str:
    """Return the error for a singular information matrix, with the components that make it so if they can be named."""
    close = indistinct_loadings(B, orthogonal=orthogonal, n_features=p)
    pairs = [f"{mcpc_name(pair.first)} and {mcpc_name(pair.second)}" for pair in close]
    # Such components come first below: ``close`` pairs each of them with itself, which would be an odd sentence.
    absent = [mcpc_name(j) for j in np.flatnonzero(~(B > 0).any(axis=0)).tolist()]
    if absent:
        why = f"{listed(absent)} {'are' if len(absent) > 1 else 'is'} in no context"
    elif pairs:
        kind = "equal" if orthogonal else "proportional"
        why = f"{listed(pairs)} have {kind} loadings"
    else:
        why = "the information matrix is singular"
    return f"The model is not identifiable: {why}. Drop or merge components, or choose a smaller rank."


def _squared_angles(model: GaussianModel, covariance: Array, outside: Array) -> Array:
    """Return the mean squared angle (r,) of each column of A: the mean squared length of da_j across a_j."""
    p, r = model.A.shape
    # In the features as they are, not scaled by the noise: da_j = sum_l X_lj a_l, whose part across a_j has the squared
    # length x^T (G - g_j g_j^T) x, with x = X_.j and g_j the column of G = A^T A.
    G = model.A.T @ model.A
    # Index arrays with a slice between them put their common axis first, hence j in front.
    of_columns = covariance[: r * r, : r * r].reshape(r, r, r, r)[:, np.arange(r), :, np.arange(r)]  # (j, l, l')
    across = G[None] - G.T[:, :, None] * G.T[:, None, :]
    angles = np.einsum("jab,jab->j", of_columns, across)
    # Directions outside the span are independent of X, so variances add up.
    if p > r:
        angles = angles + outside * _outside_size(model)
    return np.asarray(angles)


def _outside_size(model: GaussianModel) -> Array:
    """Return the total variance across each a_j (r,), in features, of unit noise outside the span of A.

    Isotropic noise: p - r directions of unit length, all of them across. Diagonal noise: its standard deviations
    stretch these directions, which may then lean along a_j.
    """
    p, r = model.A.shape
    if model.scale is None:
        return np.full(r, float(p - r))
    sigma = 1 / model.scale
    Q = np.linalg.qr(model.white)[0]
    # tr(D (I - Q Q^T) D), with D = diag(sigma), less the part along a_j.
    total = float((sigma**2).sum() - ((sigma[:, None] * Q) ** 2).sum())
    return np.asarray(total - _outside_along(model, Q))


def _outside_along(model: GaussianModel, Q: Array) -> Array:
    """Return ``a_j^T D (I - Q Q^T) D a_j`` (r,), with D the noise's standard deviations and Q a basis of ``white``."""
    assert model.scale is not None
    sigma = 1 / model.scale
    stretched = sigma[:, None] * model.A
    return np.asarray((stretched**2).sum(axis=0) - ((Q.T @ stretched) ** 2).sum(axis=0))


def _loading_variances(model: GaussianModel, information: Information) -> Array:
    """Return the variance of every loading (k, r), for columns of unit length.

    Given X, b_i has the covariance ``I_i^-1`` and the mean ``-I_i^-1 C_i x``; rescaling columns to unit length adds
    ``2 b_ij a_j . da_j``, which is linear in X too.
    """
    k, r = model.B.shape
    out = np.empty((k, r))
    for part in information_chunks(k, r):
        coefficients = _coefficients(model, part, information.responses(part), information.pooled)
        # The law of total variance: what b_i varies by for a given X, plus the variance of its mean as X varies.
        by_X = np.einsum("kjx,kjx->kj", coefficients @ information.covariance, coefficients)
        out[part] = np.einsum("kjj->kj", information.inverse[part])[:, :r] + by_X
    return out + _variance_by_outside(model, np.diag(information.outside))


def _coefficients(model: GaussianModel, part: slice, responses: Array, pooled: bool) -> Array:
    """Return the coefficients of X in the loadings of some contexts (k', r, r^2), or (k', r, r^2 + 1) if ``pooled``."""
    r = model.B.shape[1]
    G = model.A.T @ model.A
    along = np.zeros((r, r, r))  # a_j . da_j = sum_l G_jl X_lj, as coefficients of X
    # along[j, l, j] = G_jl: only column j of X moves a_j. The shared log s, if there is one, moves no component.
    along[np.arange(r), :, np.arange(r)] = G
    along = np.concatenate([along.reshape(r, r * r), np.zeros((r, int(pooled)))], axis=1)
    # The last row of the responses, of log s_i if that is unknown, is not needed.
    return np.asarray(2 * model.B[part][:, :, None] * along - responses[:, :r])


def _variance_by_outside(model: GaussianModel, outside: Array) -> Array:
    """Return what the change of A outside its span, with variances ``outside`` (r,), adds to those of loadings (k, r).

    If noise is not isotropic, that change of a_j may lean along a_j, which rescaling to unit length undoes.
    """
    p, r = model.A.shape
    if model.scale is None or p == r:
        return np.zeros_like(model.B)
    size = _outside_along(model, np.linalg.qr(model.white)[0])
    return np.asarray(4 * model.B**2 * (size * outside))
