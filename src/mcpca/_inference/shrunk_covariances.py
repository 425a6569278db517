"""One covariance for each context: its own, the pooled, the model's and the identity, weighted by what each gets wrong.

A context's own covariance S_i has no bias and much noise; the pooled one P, the model's C_i and a multiple of the
identity have little noise and a bias. For weights w >= 0 that add up to 1, the mixture T w of the parts
``T = (S_i, P, C_i, m_i I)`` has the squared error

    ||T w - Sigma_i||^2 = w^T G w - 2 w^T h + const,    G_ab = <T_a, T_b>,   h_a = <T_a, Sigma_i>.

G is known. S_i stands in for Sigma_i in h, and what a part has in common with the error of S_i is taken off:

    h = G_own - c,    c = v_i (1, share of context i in P, overlap of the model with the rows, 0),

where ``v_i = E||S_i - Sigma_i||^2`` (``covariance_errors``); the little that m_i has of it is left out, as Ledoit and
Wolf do. These are estimates from the rows of one context, and four weights are many for some dozens of them. ``K = G -
c e^T - e c^T + v e e^T``, e being the first unit vector, estimates the inner products of ``(Sigma_i, P, C_i, m_i I)``.
In units of ``||m_i I||^2`` these are much alike in all contexts, so each K is drawn towards their mean; what is known
of this context alone, its number of rows in the first place, comes back with c and v. A quadratic programme in four
unknowns gives the weights (``_linalg.simplex``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._covariances.context_covariances import covariances_of
from .._covariances.fit_data import MOST_NUMBERS
from .._covariances.nuisance import check_nuisance, degrees_of_freedom, nuisance_factors
from .._covariances.scaling import in_range
from .._data.contexts import Contexts
from .._linalg.simplex import least_on_simplex
from .._model.covariance_parts import PARTS, CovarianceParts, ModelCovariances
from .._model.fitted_model import FittedModel
from .._model.new_rows import read_fitted_contexts
from .._utils.arguments import as_generator, refuse_without_effect
from .._utils.array_api import to_host
from .._utils.optional import require
from .._utils.printing import Shown, counted, span
from .._utils.types import Array, Report
from .._utils.wording import quoted
from .covariance_errors import overlap_with_model, sampling_errors
from .replication import by_context, check_halves
from .row_scores import check_counts, check_labelled
from .sampling import GroupDesign, checked_groups

# How far inner products of a context are drawn towards the mean of all contexts. Between 0.5 and 0.9 held-out errors of
# 15 real data sets differ by less than 1% on average, and by 5% at most; without (0), contexts of few rows have larger
# errors, and with 1 contexts that differ.
_COMMON = 0.7


@dataclass(frozen=True, repr=False)
class ShrunkCovariances(Shown):
    """A covariance for each context, as a weighted sum of four. ``np.asarray`` of it is the stack (k, p, p).

    Attributes
    ----------
    covariances : ndarray (k, p, p)
        Symmetric, positive semi-definite; positive definite wherever the identity has weight, or the pooled covariance
        if that has full rank, or the model if it has noise.
    weights : ndarray (k, 4)
        Of the ``parts``, in their order.
    parts : tuple of str
        "own", the covariance of the context's rows; "pooled", the average over contexts by their degrees of freedom;
        "model"; and "identity", times the mean variance of the context.
    contexts : ndarray (k,)
        Names of the contexts.
    sampling_errors : ndarray (k,) or None
        The mean squared error of each context's own covariance, as a share of its squared norm: near 0 with many rows,
        1 or more with few. None where weights were given.
    overlap : float or None
        How much of that error the model shares, because it was fitted to the same rows: 0 for nothing, 1 for a model
        that reproduces their covariances. None where weights were given.
    """

    parts: ClassVar[tuple[str, ...]] = PARTS

    covariances: Array
    weights: Array
    contexts: Array
    sampling_errors: Array | None = None
    overlap: float | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the covariances, for NumPy."""
        if copy is None:  # NumPy 1 does not know None
            return np.asarray(self.covariances, dtype=dtype)
        return np.array(self.covariances, dtype=dtype, copy=copy)

    @property
    def table(self) -> Any:
        """A pandas DataFrame with the weights of each context, or a dict of arrays if pandas is not installed."""
        content = self._rows()
        # pandas is an extra.
        try:
            return require("pandas", "pandas").DataFrame(content).set_index("context")
        except ImportError:
            return content

    def _words(self) -> list[str]:
        k, p, _ = self.covariances.shape
        weights = ", ".join(
            f"{name} {mean:.2f}" + (f" ({span(column, '.2f')})" if k > 1 and column.max() > column.min() else "")
            for name, mean, column in zip(self.parts, self.weights.mean(axis=0), self.weights.T, strict=True)
            if column.any()
        )
        words = [
            f"Covariances of {counted(k, 'context')} and {counted(p, 'feature')}.",
            f"Mean weights: {weights}.",
        ]
        if self.sampling_errors is not None and self.overlap is not None:
            words.append(
                f"Sampling error of the own covariances: {span(self.sampling_errors, '.2g')} of their squared norm; "
                f"the model has {100 * self.overlap:.0f}% of it."
            )
        return words

    def _rows(self) -> dict[str, Any]:
        columns = dict(zip(self.parts, self.weights.T, strict=True))
        errors = {} if self.sampling_errors is None else {"sampling error": self.sampling_errors}
        return {"context": self.contexts, **columns, **errors}


def covariances_of_model(model: FittedModel) -> ShrunkCovariances:
    """Return the covariances ``A diag(b_i) A^T`` plus noise of a model, without any rows."""
    k = len(model.contexts)
    _check_room(k, model.n_features)
    stack = ModelCovariances.of_fit(model).stack().astype(to_host(model.loadings).dtype, copy=False)
    weights = np.tile([float(part == "model") for part in PARTS], (k, 1))
    return ShrunkCovariances(stack, weights, model.contexts)


def shrunk_covariances(
    model: FittedModel,
    unfitted: Any,
    X: Any,
    y: Any,
    shrink: Any,
    random_state: Any,
    report: Report,
    *,
    groups: Any = None,
    batch: Any = None,
    covariates: Any = None,
) -> ShrunkCovariances:
    """Return a covariance for each context; see ``MCPCA.covariances``. ``unfitted`` is fitted to halves of the rows."""
    said = {"groups": groups, "batch": batch, "covariates": covariates}
    if X is None:
        check_labelled(X, y, **said)
        refuse_without_effect(
            "shrink", shrink, None, "there are no rows to weigh against the model", "pass X, or drop it"
        )
        refuse_without_effect("random_state", random_state, None, "there are no rows to split", "pass X, or drop it")
        return covariances_of_model(model)
    k = len(model.contexts)
    automatic = shrink is None or (isinstance(shrink, str) and shrink == "auto")
    given = None if automatic else _checked_weights(shrink, k)
    if given is not None:
        why = "it is for weights that are found, and shrink has them"
        for name, value in (("groups", groups), ("random_state", random_state)):
            refuse_without_effect(name, value, None, why, "drop it, or pass shrink='auto'")
    model.refuse_missing("covariances with rows", "Fit complete rows, or leave X out for the covariances of the model.")
    _check_room(k, model.n_features)
    contexts = checked_groups(read_fitted_contexts(model, X, y, **said))
    if contexts.engine is not None:
        raise ValueError(
            "X is a Dask collection, and covariances are mixed in this process. Pass X.compute() if that fits into "
            "memory, or leave X out for the covariances of the model."
        )
    check_nuisance(contexts)
    if given is None:
        check_counts(model, contexts)
        _check_rows(contexts)
    scaled, e = in_range(contexts)
    overlap = None
    if given is None:
        # Halves first, before there is a stack for all rows: no more than two stacks at a time.
        rng = as_generator(random_state)
        overlap = overlap_with_model(by_context(unfitted, contexts), model.noise, contexts, e, rng, report)
    factors = nuisance_factors(scaled)
    moments = covariances_of(scaled, report, factors)
    freedom = degrees_of_freedom(scaled, factors)
    parts = CovarianceParts.of(moments.covariances, freedom, ModelCovariances.of_fit(model, e))
    errors = None
    if given is None:
        assert overlap is not None
        G = parts.gram()
        means = moments.means.astype(np.float64)
        v = sampling_errors(scaled, parts.own, means, freedom, factors, 0, report)
        given = weights_of(G, v, parts.shares, overlap)
        errors = np.divide(v, G[:, 0, 0], out=np.zeros(k), where=G[:, 0, 0] > 0)
    C = np.ldexp(parts.mixed(given), 2 * e)
    return ShrunkCovariances(C, given, model.contexts, errors, overlap)


def weights_of(G: Array, v: Array, shares: Array, overlap: float) -> Array:
    """Return the weights (k, 4) of the parts, from their inner products (k, 4, 4) and the errors v (k,) of the first.

    ``shares`` (k,) and ``overlap`` are what the second and the third part have of these errors.
    """
    k = len(G)
    # ||Sigma||^2 >= tr(Sigma)^2 / p = ||m I||^2: where the estimate is below, all that S_i has beside it is error.
    v = np.clip(v, 0, G[:, 0, 0] - G[:, 3, 3])
    c = v[:, None] * np.stack([np.ones(k), shares, np.full(k, overlap), np.zeros(k)], axis=1)
    sizes = np.where(G[:, 3, 3] > 0, G[:, 3, 3], 1.0)  # a constant context has none
    c /= sizes[:, None]
    e = np.array([1.0, 0, 0, 0])
    # c e^T + e c^T - v e e^T, with v the first entry of c: what errors add to the inner products.
    added = c[:, :, None] * e + c[:, None, :] * e[:, None]
    added[:, 0, 0] -= c[:, 0]
    K = G / sizes[:, None, None] - added
    varies = G[:, 3, 3] > 0
    K = (1 - _COMMON) * K + _COMMON * (K[varies].mean(axis=0) if varies.any() else 0)
    return least_on_simplex(K + added, K[:, 0])


def _check_rows(contexts: Contexts) -> None:
    """Raise if halves cannot be had of all contexts, or errors not be seen."""
    check_halves(contexts, "pass weights, such as shrink={'own': 0.5, 'pooled': 0.5}")
    if contexts.groups is not None:
        GroupDesign.of(contexts).check_several("shrink='auto'", "Drop these contexts, drop groups, or pass weights.")


def _check_room(k: int, p: int) -> None:
    if k * p**2 > MOST_NUMBERS:
        raise ValueError(
            f"covariances returns all of them, and those of {k:,} contexts with {p:,} features have more than "
            f"{MOST_NUMBERS:,} entries. Fit principal components of the rows, or fewer features or contexts; without "
            "such a stack, components_, corrected_loadings_ and noise_variance_ are the model's covariances."
        )


def _checked_weights(shrink: Any, k: int) -> Array:
    """Return given weights as (k, 4)."""
    way_out = f"Pass 'auto', a dict of weights for some of {quoted(PARTS)}, or an array (4,) or ({k}, 4) in this order."
    if isinstance(shrink, str):
        raise ValueError(f"shrink={shrink!r} is unknown. {way_out}")
    shape = (k, len(PARTS))
    try:
        if isinstance(shrink, Mapping):
            unknown = [name for name in shrink if name not in PARTS]
            if unknown:
                raise ValueError(f"shrink has weights for {quoted(unknown)}. {way_out}")
            # Each weight is a number, or one for each context.
            columns = [np.asarray(shrink.get(part, 0), dtype=np.float64) for part in PARTS]
            if any(column.shape not in ((), (k,)) for column in columns):
                raise ValueError(f"shrink has weights that are neither one number nor {k}, one a context. {way_out}")
            weights = np.stack([np.broadcast_to(column, k) for column in columns], axis=1)
        else:
            values = np.asarray(shrink, dtype=np.float64)
            if values.shape not in (shape[1:], shape):
                raise ValueError(f"shrink has shape {values.shape}. {way_out}")
            weights = np.array(np.broadcast_to(values, shape))
    except TypeError as error:
        raise TypeError(f"shrink={shrink!r} is not a set of weights. {way_out}") from error
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any(axis=1).all()):
        raise ValueError(f"shrink has weights below 0, none above 0, or values that are not finite. {way_out}")
    return weights
