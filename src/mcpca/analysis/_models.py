"""Whether a column says something about a covariate that other columns do not: nested linear and logistic models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2
from scipy.stats import f as f_distribution

from .._utils.types import Array

_STEPS, _HALVINGS, _TOLERANCE = 60, 30, 1e-10
_FAR = 30.0  # log-odds; the penalty keeps fitted ones far below


class Added(NamedTuple):
    """What a column adds: its coefficient per standard deviation, the statistic (F or likelihood ratio), the p-value.

    The coefficient is NaN for categories, where there is one for each.
    """

    coefficient: float
    statistic: float
    p_value: float


def added_linear(v: Array, x: Array, others: Array) -> Added:
    """Test v (k,) in the linear model of x (k,) on v and ``others`` (k, c): the partial F-test, exact for normal x."""
    fixed = _with_ones(others)
    v_left, x_left = _residual(_scaled(v), fixed), _residual(_scaled(x), fixed)
    k, used = len(x), fixed.shape[1] + 1
    size = v_left @ v_left
    if size <= 1e-12 * k or k <= used:
        return Added(np.nan, np.nan, np.nan)
    beta = float(v_left @ x_left / size)
    rest = float(((x_left - beta * v_left) ** 2).sum())
    F = beta**2 * size / max(rest / (k - used), np.finfo(float).tiny)
    return Added(beta * float(np.std(x, ddof=1)), float(F), float(f_distribution.sf(F, 1, k - used)))


def added_categories(v: Array, codes: Array, others: Array) -> Added:
    """Test categories in the linear model of v (k,) on them and ``others``: analysis of covariance."""
    fixed = _with_ones(others)
    groups = (codes[:, None] == np.unique(codes)[1:]).astype(np.float64)
    full = np.column_stack([fixed, groups])
    k, added = len(v), groups.shape[1]
    v = _scaled(v)
    before, after = (float((_residual(v, D) ** 2).sum()) for D in (fixed, full))
    left = k - full.shape[1]
    if left < 1 or before <= 1e-12 * k:
        return Added(np.nan, np.nan, np.nan)
    F = (before - after) / added / max(after / left, np.finfo(float).tiny)
    return Added(np.nan, float(F), float(f_distribution.sf(F, added, left)))


def added_logistic(v: Array, x: Array, others: Array) -> Added:
    """Test v (k,) in the logistic model of x (k,) of 0 and 1 on v and ``others``, by the penalised likelihood ratio.

    Firth's penalty (Biometrika 80, 1993), half the log-determinant of the information, keeps coefficients finite where
    groups are separated completely, and the test at its level for few contexts, where the plain ratio and Wald's test
    err: with 12 contexts and one other column the plain ratio at 5% rejects in 14%.
    """
    fixed = _with_ones(others)
    v = _scaled(v)
    if _residual(v, fixed) @ _residual(v, fixed) <= 1e-12 * len(v):
        return Added(np.nan, np.nan, np.nan)
    # Columns without correlation: the ratio is the same, and nothing is singular where others follow from one another.
    D = np.column_stack([_basis(fixed), v])
    after, beta = penalised_likelihood(D, x, D.shape[1])
    before, _ = penalised_likelihood(D, x, D.shape[1] - 1)
    ratio = max(2 * (after - before), 0.0)
    return Added(float(beta[-1]), ratio, float(chi2.sf(ratio, 1)))


def penalised_likelihood(D: Array, x: Array, free: int) -> tuple[float, Array]:
    """Maximise the log-likelihood of a logistic model of x (k,) with design D (k, c) and Firth's penalty.

    Only the first ``free`` coefficients are; the others are 0, but have their say in the penalty. Newton's method,
    halved where it would go down. Returns the value and the coefficients (c,).
    """
    beta = np.zeros(D.shape[1])
    value = _penalised(D, x, beta)
    for _ in range(_STEPS):
        probability, information = _information(D, beta)
        weights = probability * (1 - probability)
        leverage = weights * np.einsum("ij,ji->i", D, np.linalg.solve(information, D.T))
        slope = D.T @ (x - probability + leverage * (0.5 - probability))
        step = np.zeros_like(beta)
        step[:free] = np.linalg.solve(information[:free, :free], slope[:free])
        for _ in range(_HALVINGS):
            reached = _penalised(D, x, beta + step)
            if reached >= value:
                break
            step = step / 2
        gain = reached - value
        if gain > 0:
            beta, value = beta + step, reached
        if gain <= _TOLERANCE * (1 + abs(value)):
            break
    return value, beta


def _information(D: Array, beta: Array) -> tuple[Array, Array]:
    probability = 1 / (1 + np.exp(-np.clip(D @ beta, -_FAR, _FAR)))
    return probability, (D * (probability * (1 - probability))[:, None]).T @ D


def _penalised(D: Array, x: Array, beta: Array) -> float:
    eta = D @ beta
    return float(x @ eta - np.logaddexp(0, eta).sum() + np.linalg.slogdet(_information(D, beta)[1])[1] / 2)


def _basis(D: Array) -> Array:
    """Return an orthogonal basis of the columns of D (k, c), each of length sqrt(k)."""
    left, values, _ = np.linalg.svd(D, full_matrices=False)
    return np.asarray(left[:, values > 1e-10 * values[0]] * np.sqrt(len(D)))


def _with_ones(others: Array) -> Array:
    scaled = [_scaled(column) for column in others.T]
    return np.column_stack([np.ones(len(others)), *scaled])


def _scaled(v: Array) -> Array:
    centred = v - v.mean()
    sd = float(np.std(v, ddof=1))
    return np.asarray(centred / sd if sd > 0 else centred)


def _residual(v: Array, D: Array) -> Array:
    return np.asarray(v - D @ np.linalg.lstsq(D, v, rcond=None)[0])
