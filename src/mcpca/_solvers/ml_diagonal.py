"""Noise by feature for ``ml``: ``Sigma_i = A B_i A^T + s_i diag(psi)``, psi (p,) shared by all contexts.

With noise "diagonal" s is 1 in all contexts, with "scaled" each context has its own, and psi has mean 1. Features
divided by ``sqrt(psi)`` ("white" features below) have noise s_i I, the isotropic noise of ``scoring``. So A, B and s
take a few steps there, psi takes a scoring step given A, B and s, and so on in turn. With one context this is factor
analysis, and s_i is nothing of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._covariances.interface import Covariances, project
from .._covariances.subspace import ALL_FEATURES, compress, orthonormal
from .._utils.progress import Search
from .._utils.types import Array
from .interface import Settings
from .likelihood import Likelihood, likelihood_of, unit_columns
from .ml_estimate import NOISE_FLOOR, Estimate, largest_decrement
from .ml_starts import Start
from .scoring import ScoringData, maximise_likelihood, outside_gradient_in_features

_MOST_ROUNDS = 100
_WHITE_STEPS = 5  # for A, B and s between two steps of psi; more would polish what the next psi moves
_MOST_INVERTED_FEATURES = 4000  # whose pooled covariance is inverted for a first guess: O(p^3)
_FEATURE_FLOOR = 1e-4  # of the variance of a feature: less noise is a Heywood case, a likelihood without bound
_GUESS_RIDGE = 1e-3  # of the variance of a feature, in that inverse
_BACKTRACKS = 12
_LARGEST_LOG_STEP = 1.0  # of log psi in one step
_SUFFICIENT_GAIN = 1e-4  # Armijo's share of what the step promises


def guess_unique_variances(S: Covariances, n: Array, r: int) -> Array:
    """Return a first guess of psi (p,): the variance of each feature that the others do not predict.

    This is Joreskog's starting value for factor analysis, ``(1 - r / 2p) / (S^-1)_jj``, of the pooled covariance. With
    very many features it is their whole variance, times the same factor.
    """
    p = S.n_features
    variances = n @ S.variances() / n.sum()
    shrink = 1 - r / (2 * p)
    if p > _MOST_INVERTED_FEATURES:
        return np.asarray(np.maximum(variances, variances.max() * NOISE_FLOOR) * shrink)
    # (S^-1)_jj is one over the variance of feature j given all others. The ridge is for fewer rows than features, and
    # for features that others determine, where S is singular.
    pooled = S.pooled(n / n.sum())
    ridge = np.maximum(variances, variances.max() * NOISE_FLOOR) * _GUESS_RIDGE
    unique = 1 / np.diag(np.linalg.inv(pooled + np.diag(ridge)))
    return np.asarray(np.maximum(unique * shrink, ridge))


def _feature_floor(S: Covariances, unit: float, n: Array, s: Array) -> Array:
    """Return the smallest psi (p,) allowed, for contexts with noise s (k,)."""
    variances = (n / s) @ S.variances() / n.sum() / unit
    return np.asarray(np.maximum(_FEATURE_FLOOR * variances, NOISE_FLOOR))


def fit_feature_noise(
    S: Covariances, unit: float, start: Start, psi: Array, s_floor: Array | None, settings: Settings
) -> Estimate:
    """Alternate between A, B and s given psi, and psi given the others.

    ``start`` is in features as they are. ``s_floor`` (k,) bounds s from below; None holds s at 1, which is diagonal
    noise. The noise of the estimate is (p,) then, and else (k, p).
    """
    n = settings.degrees_of_freedom
    tol = largest_decrement(settings)
    is_scaled = s_floor is not None
    ones = np.ones(S.n_contexts)
    s = start.noise if is_scaled else ones
    bound = ones if s_floor is None else s_floor
    kind = "isotropic" if is_scaled else "fixed"
    floor = _feature_floor(S, unit, n, s)
    A = start.A
    B = start.B
    change = np.zeros((len(A), 0))
    n_iter = 0
    decrement = np.inf
    progress = Search(settings.report, "likelihood", _MOST_ROUNDS)
    for _ in range(_MOST_ROUNDS):
        progress.step()
        try:
            moved = _climb_in_white(S, unit, Start(A, B, s), psi, change, bound, kind, n, tol)
            psi_new, gain = noise_step(S, unit, moved.A, moved.B, moved.noise, psi, floor, n)
        except np.linalg.LinAlgError:  # components have become collinear: stay with those before
            break
        n_iter += moved.n_iter
        change = moved.A - A
        A = moved.A
        B = moved.B
        s = moved.noise
        # What is left to gain by A, B and s, and by psi at the new ones.
        decrement = moved.decrement + gain / (A.size + B.size + len(psi))
        if psi_new is None or decrement <= tol:
            break
        psi = psi_new
    progress.finish()
    # The product is the same whatever the scale of psi, so that nothing has to keep its mean at 1 in between.
    return Estimate(A, B, np.outer(s, psi) if is_scaled else psi, decrement, n_iter)


class _Climbed(NamedTuple):
    """Components (p, r) and loadings (k, r) in features as they are, s (k,), the decrement left, and the steps."""

    A: Array
    B: Array
    noise: Array
    decrement: float
    n_iter: int


def _climb_in_white(
    S: Covariances,
    unit: float,
    start: Start,
    psi: Array,
    change: Array,
    s_floor: Array,
    kind: str,
    n: Array,
    tol: float,
) -> _Climbed:
    """Take a few steps for A, B and s in features divided by ``sqrt(psi)``.

    With many features the steps are in a core of A, the gradient in all features and the last change of A.
    """
    p, r = start.A.shape
    scale = 1 / np.sqrt(psi)
    s = start.noise
    # In white features Sigma_i = A B_i A^T + s_i I, the model of ``likelihood``.
    white, B = unit_columns(scale[:, None] * start.A, start.B)
    # All features if they are few; else three blocks of r columns, as in ``subspace.grow``.
    basis = np.eye(p)
    if p > max(ALL_FEATURES, 3 * r):
        model = likelihood_of(S, white, B, s, n, scale=scale, unit=unit)
        gradient, _ = outside_gradient_in_features(S, unit, scale, white, model)
        basis = orthonormal(np.hstack([white, gradient, scale[:, None] * change]))
    # U^T diag(scale) S_i diag(scale) U, without a scaled copy of the covariances.
    T = project(S, scale[:, None] * basis) / unit
    trace = S.variances() @ scale**2 / unit
    data = ScoringData(T, trace, n, p, s_floor, kind)
    # Half of the tolerance is left to directions outside the basis.
    point, inside, steps = maximise_likelihood(data, basis.T @ white, B, s, tol / 2, _WHITE_STEPS)
    white = basis @ point.A
    _, outside = outside_gradient_in_features(S, unit, scale, white, point.model)
    A, B = unit_columns(white / scale[:, None], point.model.B)
    return _Climbed(A, B, point.model.s, inside + outside, steps)


def noise_step(
    S: Covariances, unit: float, A: Array, B: Array, s: Array, psi: Array, floor: Array, n: Array
) -> tuple[Array | None, float]:
    """Take a scoring step for log psi given A, B and s; return the new psi and twice the log-likelihood promised.

    The first is None if the likelihood does not rise. With C_i the inverse of Sigma_i in white features, the gradient
    is half of ``sum_i n_i s_i diag(C_i - C_i S_i C_i)``. Only the diagonal of the information is used, which is
    ``(sum_i n_i s_i diag C_i)^2 / (2 sum_i n_i)`` if contexts are alike.
    """
    scale = 1 / np.sqrt(psi)
    white = scale[:, None] * A
    model = likelihood_of(S, white, B, s, n, scale=scale, unit=unit)
    precision, fitted = _precision_diagonals(S, unit, white, scale, model)
    gradient = (precision - fitted) / 2
    # A diagonal in place of the (p, p) information: steps are only as good as that, but never need a p x p solve.
    information = precision**2 / (2 * n.sum())
    step = -gradient / np.maximum(information, np.finfo(float).tiny)
    # A feature at its floor that would go further down stays, and the length of a step is bounded: far from the maximum
    # the quadratic model says little about log psi.
    step = np.where((psi <= floor) & (step < 0), 0, np.clip(step, -_LARGEST_LOG_STEP, _LARGEST_LOG_STEP))
    gain = -float(gradient @ step)
    # Dividing features by sqrt(psi) changes the density by its determinant: n/2 sum log psi.
    value = model.value + n.sum() / 2 * np.log(psi).sum()
    for t in 0.5 ** np.arange(_BACKTRACKS):
        trial = np.maximum(psi * np.exp(t * step), floor)
        scale = 1 / np.sqrt(trial)
        # White columns are not of unit length here, and need not be: A B_i A^T is all that matters.
        moved = likelihood_of(S, scale[:, None] * A, B, s, n, scale=scale, unit=unit)
        if moved.value + n.sum() / 2 * np.log(trial).sum() < value - _SUFFICIENT_GAIN * t * gain:
            return trial, gain
    return None, gain


def _precision_diagonals(
    S: Covariances, unit: float, white: Array, scale: Array, model: Likelihood
) -> tuple[Array, Array]:
    """Return the diagonals (p,) of ``sum_i n_i s_i C_i`` and ``sum_i n_i s_i C_i S_i C_i``, in white features.

    ``s_i C_i = I + A J_i A^T`` with J_i (r, r), so the second is that of ``sum_i n_i / s_i (S_i + A J_i (A^T S_i A) J_i
    A^T)`` and twice the cross term ``S_i A J_i A^T``: one pass over the covariances, no p x p array.
    """
    n = model.n
    # Woodbury, as in ``observed``: s_i C_i = I - A N A^T + s_i A N P_i N A^T.
    J = model.s[:, None, None] * (model.N @ model.P @ model.N) - model.N
    precision = n.sum() + np.einsum("pa,ab,pb->p", white, np.tensordot(n, J, axes=1), white, optimize=True)
    weights = n / model.s
    cross = model.G @ model.R @ model.G  # A^T S_i A
    fitted = np.einsum("pa,ab,pb->p", white, np.einsum("k,kab->ab", weights, J @ cross @ J), white, optimize=True)
    fitted += weights @ S.variances() * scale**2 / unit
    # sum_i n_i/s_i S_i A J_i in white features. The diagonal of (S A J) A^T needs its product with A row by row only.
    SAJ = S.combine(scale[:, None] * white, weights[:, None, None] * J) * (scale[:, None] / unit)
    fitted += 2 * np.einsum("pa,pa->p", white, SAJ)
    return precision, fitted


def factor_analysis(S: Covariances, unit: float, r: int, settings: Settings) -> Estimate:
    """One context: psi by scoring steps, and A by probabilistic PCA in white features, where it has a closed form."""
    p = S.n_features
    n = settings.degrees_of_freedom
    one = np.ones(1)
    floor = _feature_floor(S, unit, n, one)
    psi = guess_unique_variances(S, n, r) / unit
    progress = Search(settings.report, "likelihood", _MOST_ROUNDS)
    steps = 0
    for _ in range(_MOST_ROUNDS):
        progress.step()
        steps += 1
        scale = 1 / np.sqrt(psi)
        # A new core in every round: dividing by another psi changes which directions are the top ones.
        part = compress(S.scaled(scale), r)
        w, C = np.linalg.eigh(part.tensor[0] / unit)
        w = w[::-1]
        V = part.lift(C[:, ::-1][:, :r])
        # In white features the noise is 1, and the rest of an eigenvalue is the component's.
        # Dividing by scale takes A back from white features to those of the data.
        A, B = unit_columns(V / scale[:, None], np.maximum(w[None, :r] - 1.0, 0))
        better, gain = noise_step(S, unit, A, B, one, psi, floor, n)
        decrement = gain / (A.size + B.size + p)
        if better is None or decrement <= largest_decrement(settings):
            break
        psi = better
    progress.finish()
    return Estimate(A, B, psi, decrement, steps)
