"""How far the covariance of a context is from the truth, and how much of that a fitted model has taken over.

``E ||S_i - Sigma_i||^2`` is a matter of fourth moments, and seen in the rows: with ``z`` the rows about their mean (and
without their nuisance), nu_i degrees of freedom and ``M_i = S_i nu_i / n_i`` the mean of ``z z^T``,

    v_i = n_i / (nu_i (nu_i - 1) (n_i - 1)) sum_t ||z_t z_t^T - M_i||^2,
    sum_t ||z_t z_t^T - M_i||^2 = sum_t |z_t|^4 - n_i ||M_i||^2,

is without bias for Gaussian rows, however few, and close to it for others. Rows that were sampled in g groups are not
independent, but groups are: ``z_t z_t^T - M_i`` is summed over the rows of a group before it is squared, and
``g / (g - 1)`` takes the place of ``n_i / (n_i - 1)``.

A model that was fitted to the same rows follows their errors. In two halves of the rows, with covariances S_i and S_i'
and fitted models C_i and C_i', errors are independent, and to first order

    ||S_i - S_i'||^2 / 4 has the mean v_i,      <C_i - C_i', S_i - S_i'> / 4 has the mean Cov(C_i, S_i).

The ratio of the two, each summed over contexts, is the ``overlap``: 0 for a model that does not depend on these rows, 1
for one that reproduces their covariances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._covariances.context_covariances import covariances_of
from .._covariances.nuisance import NuisanceFactors
from .._covariances.nuisance_bases import context_bases
from .._covariances.scaling import scaled_rows
from .._covariances.stack import CovarianceStack
from .._data.contexts import Contexts
from .._model.covariance_parts import ModelCovariances
from .._utils.progress import silent
from .._utils.stages import uneven
from .._utils.types import Array, Report
from .replication import refit, refit_in_threads
from .row_scores import row_pieces, scores_of
from .sampling import Halves


def sampling_errors(
    contexts: Contexts,
    S: Array,
    means: Array,
    freedom: Array,
    factors: NuisanceFactors | None,
    e: int,
    report: Report,
) -> Array:
    """Return ``v_i`` (k,) for covariances S (k, p, p) and means (k, p) of rows times ``2^-e``.

    ``factors`` are those of the nuisance of these rows. One pass, sparse rows staying sparse; with groups a dense copy
    of one context at a time, and O(sum_g min(n_g, p) n_g p) operations.
    """
    n = contexts.n_samples.astype(np.float64)
    norms = CovarianceStack(S).squared_norms()
    if contexts.groups is None:
        sums = _fourth_powers(contexts, means, factors, e, report) - freedom**2 / n * norms
        units = n
    else:
        sums, units = _by_groups(contexts, S * (freedom / n)[:, None, None], means, factors, e, report)
    # At least 1: a context has two degrees of freedom or more, unless nuisance has taken nearly all of its rows.
    divisors = np.maximum(units - 1, 1) * freedom * np.maximum(freedom - 1, 1)
    return np.asarray(np.maximum(sums, 0) * units / divisors)


def _fourth_powers(contexts: Contexts, means: Array, factors: NuisanceFactors | None, e: int, report: Report) -> Array:
    """Return ``sum_t |z_t|^4`` (k,)."""
    p = contexts.n_features
    # Only squared lengths are wanted, and no scores.
    no_directions = np.zeros((p, 0))
    scale = np.ones(p)
    total = np.zeros(len(contexts.names))
    n_rows = int(contexts.n_samples.sum())
    done = 0
    columns = _nuisance_columns(contexts)
    for i, start, block in row_pieces(contexts, e):
        n = block.shape[0]
        explained = None
        if factors is not None:
            explained = (columns[i][start : start + n], factors.of(i))
        lengths = scores_of(block, means[i], no_directions, scale, explained)[1]
        total[i] += lengths @ lengths
        done += n
        report("rows", done, n_rows)
    return total


def _by_groups(
    contexts: Contexts, M: Array, means: Array, factors: NuisanceFactors | None, e: int, report: Report
) -> tuple[Array, Array]:
    """Return ``sum_g ||sum_t (z_t z_t^T - M_i)||^2`` (k,), t over the rows of group g, and numbers of groups (k,)."""
    groups = contexts.groups
    assert groups is not None
    k, p, _ = M.shape
    total = np.zeros(k)
    units = np.zeros(k)
    columns = _nuisance_columns(contexts)
    for i in range(k):
        Z = np.ldexp(contexts.dense_block(i).astype(np.float64), -e) - means[i]
        if factors is not None:
            Z -= columns[i] @ factors.of(i)
        codes = groups.codes[i]
        order = np.argsort(codes, kind="stable")
        starts = np.unique(codes[order], return_index=True)[1]
        sizes = np.diff([*starts, len(order)])
        for members in np.split(order, starts[1:]):
            Zg = Z[members]
            # Both products have the same norm; the smaller one is taken.
            product = Zg @ Zg.T if len(Zg) < p else Zg.T @ Zg
            total[i] += np.vdot(product, product)
        along = np.einsum("np,np->n", Z @ M[i].astype(np.float64), Z)
        sizes_of_rows = np.empty(len(order))
        sizes_of_rows[order] = np.repeat(sizes, sizes)
        # ||sum_g - n_g M||^2 = ||sum_g||^2 - 2 n_g <sum_g, M> + n_g^2 ||M||^2.
        total[i] += -2 * sizes_of_rows @ along + (sizes**2).sum() * float((M[i].astype(np.float64) ** 2).sum())
        units[i] = len(sizes)
        report(uneven("rows"), i + 1, k)
    return total, units


def _nuisance_columns(contexts: Contexts) -> list[Any]:
    """Return for each context the columns C (n_i, m_i) of its nuisance, which explains ``C F`` of its rows."""
    return [] if contexts.nuisance is None else [basis.columns() for basis in context_bases(contexts.nuisance)]


def overlap_with_model(
    unfitted: Any, noise: str | None, contexts: Contexts, e: int, rng: np.random.Generator, report: Report
) -> float:
    """Return the share of the sampling error of covariances that the model has too, from one split into halves.

    Halves are of the groups if rows have some. ``unfitted`` is fitted to both.
    Contexts count by their errors relative to the size of their covariance. Memory two stacks (k, p, p).
    """
    halving = Halves(contexts, "auto", 1, rng)
    halves = halving.split(0, rng)
    seeds = rng.spawn(2)

    def fit_half(i: int) -> ModelCovariances:
        try:
            fitted = refit(unfitted, halves[i], seeds[i])
        except ValueError as error:
            raise ValueError(
                f"shrink='auto' fits halves of the {halving.by}, and one cannot be fitted: {error} Or pass weights, "
                "such as shrink={'own': 0.5, 'pooled': 0.5}."
            ) from error
        return ModelCovariances.of(fitted.components_, fitted.corrected_loadings_, fitted.noise_variance_, noise, e)

    models = refit_in_threads(fit_half, 2, "halves", report)
    first, second = (covariances_of(scaled_rows(half, e), silent).covariances for half in halves)
    return overlap(models, first, second)


def overlap(models: Sequence[ModelCovariances], first: Array, second: Array) -> float:
    """Return ``sum_i <C_i - C_i', S_i - S_i'> / sum_i ||S_i - S_i'||^2``, each context in its own units; in [0, 1]."""
    sizes = (CovarianceStack(first).traces() + CovarianceStack(second).traces()) ** 2
    # Constant contexts have neither a size nor errors.
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    differences = CovarianceStack(first - second)
    total = float(inverse @ differences.squared_norms())
    shared = float(inverse @ (models[0].inner(differences) - models[1].inner(differences)))
    return min(max(shared / total, 0.0), 1.0) if total > 0 else 0.0
