"""How well a model of one half of the rows says the covariances of the other half: errors that noise does not decide.

A model predicts covariances ``M_i``, without noise; the other half has ``S_i``. Noise, whatever its kind, is in the
diagonals only, so they are left aside: with ``off(M)`` the matrix without its diagonal,

    off-diagonal error = sum_i ||off(S_i - M_i)||^2 / sum_i ||off(S_i)||^2.

Halves are independent given the truth C_i, so the expected numerator is ``sum_i ||off(C_i - M_i)||^2`` plus the
sampling variance of ``off(S_i)``, which is the same for every model: differences between models are those of their
errors.

This asks for features as they were measured. **After a PCA** the pooled covariance is diagonal. What contexts share is
then *on* the diagonals, where this error does not look: a model that takes them for noise of each feature loses
nothing by it. Noise that was alike in all features is alike in all principal axes, too, so all that need be left aside
there is a multiple of the identity: with ``dev(M) = M - tr(M)/p I``,

    error beside isotropic noise = sum_i ||dev(S_i - M_i)||^2 / sum_i ||dev(S_i)||^2.

Both leave out the span of what noise can be, all diagonals or the identity alone. ``deciding_error`` says which of them
is meant, by whether features correlate less than chance allows.

For ``M_i = A diag(b_i) A^T`` no p x p matrix is needed: ``<S_i, M_i> = sum_j b_ij a_j^T S_i a_j`` and
``||M_i||^2 = b_i^T (A^T A)^2 b_i`` (entrywise square), so that rows on disk are judged by passes.

The log-likelihood asks the same of the diagonals, by one rule for all models: ``C_i = M_i + D_i`` with D_i what M_i
leaves of the diagonal of the *fitted* half, so that every model has the variances of the fitted half, and covariances
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np

from .._covariances.checkpoint import Checkpoint
from .._covariances.fit_data import FitData, fit_data_of_rows, without_basis
from .._covariances.subspace import Core, compress
from .._data.contexts import Contexts
from .._utils.array_api import to_host
from .._utils.progress import silent
from .._utils.types import Array

# Mean squared correlation of features, in units of what chance gives, below which they are principal axes: 0 for those
# of the rows themselves, 0.5 to 0.8 where half of the rows were dropped after the PCA, 1.3 and more for measured
# features (benchmarks/auto_solver.py prints them).
_BELOW_CHANCE = 0.9
# Least noise of a feature in the log-likelihood, as a share of its variance in an average context: without it a
# feature that does not vary in one half of a context would decide.
_LEAST_NOISE = 0.01
_MOST_AXES = 2000
_ROUNDING = 1000.0  # of standard deviations, in units of the precision of the rows
_LEAST_OF_ALL = 1e-6  # the same for features that vary nowhere, of the mean variance of features

OFF_DIAGONAL = "off-diagonal error"
ANISOTROPIC = "error beside isotropic noise"


class Half:
    """The covariances of one half, with what every model is judged by; all numbers are in the units of the rows.

    Fourth powers of these have to be in range (``_covariances.scaling.in_range``).

    Attributes
    ----------
    rows : Contexts
    data : FitData
        Of rows times ``2^-data.exponent``.
    """

    def __init__(self, rows: Contexts, r: int, tol: float) -> None:
        """Form the covariances, O(n p^2), or read the rows once if these would be too large."""
        self.rows = rows
        self.data: FitData = fit_data_of_rows(rows, r, tol, silent, Checkpoint(None, {})).on_host()
        self._r = r

    @property
    def names(self) -> Array:
        """Names of the contexts (k,)."""
        return self.data.names

    @property
    def counts(self) -> Array:
        """Rows of the contexts (k,), less what nuisance takes."""
        assert self.data.counts is not None
        return self.data.counts

    @property
    def core(self) -> Core:
        """The core for the rank, O(k p^3) once for all solvers."""
        return self._timed_core[0]

    @property
    def core_seconds(self) -> float:
        """The time that it took."""
        return self._timed_core[1]

    @cached_property
    def _timed_core(self) -> tuple[Core, float]:
        start = perf_counter()
        core = compress(self.data.covariances, self._r)
        return core, perf_counter() - start

    def in_units(self, values: Array) -> Array:
        """Return variances of ``data`` in the units of the rows."""
        return np.asarray(np.ldexp(values, 2 * self.data.exponent))

    @cached_property
    def variances(self) -> Array:
        """Diagonals of the covariances (k, p)."""
        return self.in_units(self.data.covariances.variances().astype(np.float64))

    @cached_property
    def squared_norms(self) -> Array:
        """``||S_i||^2`` (k,); by passes they are estimates, the same for all models."""
        return self.in_units(self.in_units(self.data.covariances.squared_norms()))

    @cached_property
    def array(self) -> Array:
        """All entries (k, p, p), in float64."""
        return self.in_units(self.data.covariances.whole().astype(np.float64))

    def variances_along(self, A: Array) -> Array:
        """Return ``a_j^T S_i a_j`` (k, r)."""
        return self.in_units(self.data.covariances.variances_along(A))


class Products(NamedTuple):
    """``<S_i, M_i>`` and ``||M_i||^2`` (k,), and the diagonals of M_i (k, p)."""

    with_half: Array
    with_itself: Array
    diagonals: Array


class Prediction(Protocol):
    """Covariances without noise that a model predicts for the contexts of a half."""

    @property
    def axes(self) -> Array | None:
        """Components (p, r) that contexts share, if there are any."""

    def products(self, half: Half) -> Products:
        """Return what the errors in ``half`` need."""

    def matrices(self) -> Array:
        """Return all entries (k, p, p)."""


@dataclass(frozen=True)
class SharedAxes:
    """``M_i = A diag(b_i) A^T``: A (p, r) and B (k, r) in the units of the rows."""

    A: Array
    B: Array

    @property
    def axes(self) -> Array | None:
        """A."""
        return self.A

    def products(self, half: Half) -> Products:
        """Cost O(k r^2 + k p r) and that of ``a_j^T S_i a_j``."""
        with_half = (self.B * half.variances_along(self.A)).sum(axis=1)
        with_itself = ((self.B @ (self.A.T @ self.A) ** 2) * self.B).sum(axis=1)
        return Products(with_half, with_itself, self.B @ (self.A**2).T)

    def matrices(self) -> Array:
        """Cost O(k p^2 r)."""
        return np.asarray((self.A * self.B[:, None, :]) @ self.A.T)


@dataclass(frozen=True)
class Matrices:
    """Any covariances M (k, p, p)."""

    M: Array

    @property
    def axes(self) -> Array | None:
        """None: contexts need not share any."""
        return None

    def products(self, half: Half) -> Products:
        """Cost O(k p^2)."""
        S = half.array
        return Products(
            np.einsum("kab,kab->k", S, self.M), np.einsum("kab,kab->k", self.M, self.M), np.einsum("kpp->kp", self.M)
        )

    def matrices(self) -> Array:
        """M itself."""
        return self.M


def errors(other: Half, prediction: Prediction, weights: Array | None = None) -> dict[str, float]:
    """Return both errors of a prediction in the half that was not fitted; ``weights`` (k,) of contexts, 1 if None.

    NaN if nothing is left of the covariances once noise is left aside.
    """
    w = np.ones(len(other.names)) if weights is None else weights
    with_half, with_itself, diagonals = prediction.products(other)
    V = other.variances
    p = V.shape[1]
    noise = {
        # <off(S), off(M)> = <S, M> - <diag S, diag M>, and <dev(S), dev(M)> = <S, M> - tr S tr M / p.
        OFF_DIAGONAL: ((V**2).sum(axis=1), (V * diagonals).sum(axis=1), (diagonals**2).sum(axis=1)),
        ANISOTROPIC: tuple(
            first.sum(axis=1) * second.sum(axis=1) / p for first, second in ((V, V), (V, diagonals), (diagonals,) * 2)
        ),
    }
    found = {}
    for name, (of_half, of_both, of_model) in noise.items():
        size = float(w @ (other.squared_norms - of_half))
        error = float(w @ (other.squared_norms - of_half - 2 * (with_half - of_both) + with_itself - of_model))
        # Rounding is all that one feature, or covariances that are noise exactly, leave.
        some = size > 1e-12 * float(w @ other.squared_norms)
        found[name] = error / size if some else np.nan
    return found


def log_likelihood(fitted: Half, other: Half, prediction: Prediction) -> float:
    """Return the mean log-density per row and feature of the other half, rows taken about their own means.

    Under ``N(0, M_i + D_i)`` with ``D_i`` what the model leaves of the diagonal of the fitted half, one percent of the
    variance of a feature at least. Cost O(k p^3), memory three stacks of covariances.
    """
    M = prediction.matrices()
    p = M.shape[1]
    mean = np.average(fitted.variances, axis=0, weights=fitted.counts)
    least = np.maximum(_LEAST_NOISE * mean, _LEAST_OF_ALL * mean.mean())
    if not least.all():
        return np.nan  # no feature varies
    C = M.copy()
    diagonal = np.arange(p)
    C[:, diagonal, diagonal] += np.maximum(fitted.variances - C[:, diagonal, diagonal], least)
    # M is positive semi-definite but for rounding, which is far below the least noise.
    L = np.linalg.cholesky(C)
    # tr C^-1 S = ||L^-1 R||^2 with S = R R^T would need a factor of S; tr L^-1 S L^-T does without.
    white = np.linalg.solve(L, np.linalg.solve(L, other.array).transpose(0, 2, 1))
    deviances = 2 * np.log(L[:, diagonal, diagonal]).sum(axis=1) + np.einsum("kpp->k", white)
    each = -(np.log(2 * np.pi) + deviances / p) / 2
    return float(np.average(each, weights=other.counts))


def deciding_error(data: FitData) -> str:
    """Return the error that is meant for these features: see the module. ``data`` have rows.

    Principal axes are uncorrelated over all rows. Features that were measured are correlated, by chance if by nothing
    else: squared correlations of n independent rows have the mean ``1 / (n - 1)``. Less than that, on average over all
    pairs, is what only a PCA of these rows leaves, or of these and some others. Correlations have no unit, and neither
    has the answer.
    """
    if data.nuisance is not None:
        # A PCA was of rows that had the nuisance in them.
        assert data.contexts is not None
        data = without_basis(data.contexts.without_annotations(), None, silent)
    return ANISOTROPIC if _are_principal_axes(data) else OFF_DIAGONAL


def _are_principal_axes(data: FitData) -> bool:
    """Whether features correlate less than by chance.

    Cost one sum of covariances; more than 2,000 features are taken for measured ones, since O(p^2) memory may be too
    much where rows are read by passes.
    """
    p = data.covariances.n_features
    if p < 2 or p > _MOST_AXES or data.counts is None:
        return False
    n = data.counts
    T = data.covariances.pooled(n - 1.0).astype(np.float64)
    # Axes were found about one mean of all rows; within contexts alone they are correlated.
    if data.means is not None:
        # Means are in the units of the user, whose squares may be out of range.
        means = np.ldexp(to_host(data.means).astype(np.float64), -data.exponent)
        centred = np.sqrt(n)[:, None] * (means - np.average(means, axis=0, weights=n))
        T = T + centred.T @ centred
    # Axes without variance are rounding, whose correlations mean nothing.
    rounding = (_ROUNDING * float(np.finfo(data.covariances.dtype).eps)) ** 2
    varying = np.diag(T) > rounding * np.diag(T).max()
    T = T[np.ix_(varying, varying)]
    scale = 1 / np.sqrt(np.diag(T))
    R = scale[:, None] * T * scale
    pairs = len(R) * (len(R) - 1)
    squares = float((R**2).sum() - (np.diag(R) ** 2).sum())
    return squares < _BELOW_CHANCE * pairs / max(float(n.sum()) - 1, 1)
