"""The paper's theorem on sampling error (supplement, "Error analysis") in numbers, and whether it says anything.

The theorem: for n Gaussian rows of each of k contexts with covariances ``A diag(b_i) A^T``, if MCPCs and their loadings
are nearly orthogonal,

    cos(estimate, a_j) = 1 - O(kappa(M) sqrt(p k / n)),   M = [Sigma_1 ... Sigma_k],

with probability at least ``1 - 2 k exp(-p)``. Its proof is a chain, each link of which is a number here:

1. ``||S_i - Sigma_i|| <= (2 e + e^2) ||Sigma_i||`` with ``e = (1 + sqrt(2)) sqrt(p / n)``. The paper has
   ``O(sqrt(p / n))``; for Gaussian rows the constant is known (Davidson and Szarek), at that probability.
2. ``Delta_M = ||[S_1 ... S_k] - M|| <= sigma_1(M) sqrt(k) (2 e + e^2)``.
3. The projectors on the spans of the r leading right singular vectors differ by ``Delta <= Delta_M / (sigma_r -
   Delta_M)``.
4. With rho the largest ``|cos|`` between two columns of A or two of B, and ``(r - 1) rho^2 < 1/17``, F (``landscape``)
   has all eigenvalues of its Hessian below ``mu < -1`` at each MCPC, and below ``mu + w(Delta, delta)`` within a
   distance delta and after the perturbation, ``w = 2 D^2 + 18 d^2 + 8 sqrt(2) D d + 10 D + (4 + 14 sqrt(2)) d``. If
   ``w < 1/2``, the perturbed F has a maximum with ``|a - a_j|^2 + |b - b_j|^2 <= 8 Delta``, so ``1 - cos <= 4 Delta``.

**A local version**, which needs no rho, follows from the same chain by three changes. Link 2 without its last step:
``Delta_M <= (2 e + e^2) (sum_i ||Sigma_i||^2)^(1/2)``. Link 4 with the largest eigenvalue mu of the Hessian itself at
the MCPCs, which is below 0 wherever the model is identifiable. And ``1 - F <= Delta^2`` at a_j, b_j after the
perturbation where the paper has ``2 Delta``: ``a_j b_j^T = P a_j b_j^T``, so ``1 - F = |(P - P') a_j b_j^T|^2``. With
``c = -mu - w(Delta, delta)`` the maximum over the caps is within ``sqrt(2 / c) Delta``, and inside them, so a maximum
of its own, if that is below delta: ``1 - cos <= delta^2 / 2`` for the least such delta. That is of the order of Delta^2
and so of 1/n, as is what one sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from .._covariances.validation import check_counts
from .._model.landscape import PowerSpace
from .._utils.printing import Shown, counted, mcpcs, span
from .._utils.types import Array
from .planning import checked_axes

# (r - 1) rho^2 has to be below this.
CONDITION = 1 / 17
# What the proposition leaves for w, so that F stays concave by 1/2.
_ROOM = 0.5
_PER_DELTA = 4 + 14 * np.sqrt(2)  # coefficient of delta in w
_MIXED = 8 * np.sqrt(2)  # and of Delta delta
# Of link 1: sqrt(p / n) for the mean of the largest singular value, sqrt(2 p / n) for a tail of exp(-p).
_TAIL = 1 + np.sqrt(2)


@dataclass(frozen=True, repr=False)
class ErrorAnalysis(Shown):
    """The paper's error bound in numbers, and whether it says anything for this A, B and n.

    Attributes
    ----------
    n_samples : ndarray (k,)
        Rows per context.
    n_features : int
    singular_values : ndarray (r,)
        Of ``M = [Sigma_1 ... Sigma_k]``.
    rho_a, rho_b : float
        The largest ``|cos|`` between two columns of A, and of B.
    mu : float
        The lemma's bound on the eigenvalues of the Hessian of F at the MCPCs, from ``rho_a`` and ``rho_b``; below 0 it
        proves that F is concave there. Infinite where ``(r - 1) rho_a rho_b >= 1``.
    curvatures : ndarray (r,)
        The largest eigenvalue itself, at each MCPC: -2 for a peak without neighbours, 0 where axes are not determined.
    perturbation : float
        Bound on the distance of the two projectors, the theorem's Delta; 1, which every two have, if there is none.
    loss_bound : float
        Bound on ``1 - cos`` of each MCPC, ``4 Delta``; NaN where the theorem does not apply.
    n_needed : float
        Rows per context, the same in all, from which on it applies; infinite if it never does.
    certifying_F : float
        F that an output must reach so that the lemma on high values tells that it is near an MCPC. F is at most 1: if
        this is more, the lemma never applies. Infinite where Delta leaves no room.
    local_perturbation, local_loss_bound, local_n_needed : float
        The same three of the local version, which has the ``curvatures`` in the place of rho.
    """

    n_samples: Array
    n_features: int
    singular_values: Array
    rho_a: float
    rho_b: float
    mu: float
    curvatures: Array
    perturbation: float
    loss_bound: float
    n_needed: float
    certifying_F: float
    local_perturbation: float
    local_loss_bound: float
    local_n_needed: float

    @property
    def sigma_r(self) -> float:
        """The smallest singular value of M."""
        return float(self.singular_values[-1])

    @property
    def kappa(self) -> float:
        """The condition number of M, on its range."""
        return float(self.singular_values[0] / self.singular_values[-1])

    @property
    def rho(self) -> float:
        """The larger of ``rho_a`` and ``rho_b``."""
        return max(self.rho_a, self.rho_b)

    @property
    def condition(self) -> float:
        """``(r - 1) rho^2``, which the theorem asks to be below ``condition_bound``."""
        return (len(self.curvatures) - 1) * self.rho**2

    @property
    def condition_bound(self) -> float:
        """1/17."""
        return CONDITION

    @property
    def holds(self) -> bool:
        """Whether ``condition`` is below ``condition_bound``."""
        return self.condition < CONDITION

    @property
    def rate(self) -> float:
        """``kappa(M) sqrt(p k / n)``, without a constant; with unequal contexts k / n is the sum of the 1 / n_i."""
        return self.kappa * float(np.sqrt(self.n_features * np.sum(1 / self.n_samples)))

    @property
    def probability(self) -> float:
        """Probability with which the bounds hold at least, ``1 - 2 k exp(-p)``; 0 if that is negative."""
        return max(0.0, 1 - 2 * len(self.n_samples) * float(np.exp(-self.n_features)))

    @property
    def says_anything(self) -> bool:
        """Whether the theorem bounds the error at this number of rows."""
        return bool(np.isfinite(self.loss_bound))

    def _words(self) -> list[str]:
        r = len(self.curvatures)
        rows = span(self.n_samples, ",.0f")
        asked = f"(r - 1) rho^2 = {self.condition:.2g} where less than 1/17 = {CONDITION:.2g} is asked"
        if not self.holds:
            first = f"The theorem says nothing here, at any number of rows: {asked}."
        elif not self.says_anything:
            first = (
                f"The theorem says nothing at {rows} rows per context, and something from {self.n_needed:,.0f} on: the "
                f"bound on the projector is {self.perturbation:.2g}, and less than {_most_perturbation():.2g} is asked."
            )
        else:
            first = (
                f"The theorem applies: 1 - cos is at most {self.loss_bound:.2g} for each of {counted(r, 'MCPC')} at "
                f"{rows} rows per context, with probability {self.probability:.3g}."
            )
        words = [
            first,
            f"kappa(M) = {self.kappa:.3g} (sigma_r = {self.sigma_r:.3g}), rho = {self.rho:.2g} (A {self.rho_a:.2g}, B "
            f"{self.rho_b:.2g}), rate kappa sqrt(pk/n) = {self.rate:.2g}.",
            f"Largest eigenvalues of the Hessian of F at the MCPCs: {span(self.curvatures, '.2g')}; the lemma's bound "
            f"on them is {self.mu:.2g}.",
        ]
        if self.holds and self.certifying_F > 1:
            words.append(
                "It is about maxima near the truth; that an output is one of them no value of F, which is at most 1, "
                f"would show at this number of rows ({self.certifying_F:.5g} is asked)."
            )
        words.append(self._local_words())
        return words

    def _local_words(self) -> str:
        local = "With these eigenvalues in the place of rho, and 1 - F <= Delta^2 for 2 Delta, the bound "
        if not np.isfinite(self.local_n_needed):
            return local + "says nothing either: F is flat in some direction, so that the model is not identifiable."
        if np.isfinite(self.local_loss_bound):
            return f"{local}is {self.local_loss_bound:.2g}."
        return f"{local}says something from {self.local_n_needed:,.2g} rows per context on."

    def _rows(self) -> dict[str, Any]:
        return {
            "": mcpcs(len(self.curvatures)),
            "singular value of M": self.singular_values,
            "curvature of F": self.curvatures,
        }


def error_analysis(A: Any, B: Any, n: Any) -> ErrorAnalysis:
    """Return the paper's bound on the sampling error of MCPCs, with its conditions, for a given model.

    The theorem is about the order in n, and its conditions are strict: with A and B of independent entries
    ``(r - 1) rho^2`` is far above the 1/17 that it asks. This says by how much. For the accuracy to expect see
    ``cramer_rao_bound``; for that of a fit ``MCPCA.standard_errors`` and ``MCPCA.bootstrap``.

    Parameters
    ----------
    A : array-like (p, r)
        Linearly independent columns, which are scaled to unit length (B refers to unit columns).
    B : array-like (k, r)
        Loadings >= 0, no column of them zero. As in the theorem there is no noise besides.
    n : int or array-like (k,)
        Rows per context, >= 2. Bounds are those of rows whose mean is known.

    Returns
    -------
    ErrorAnalysis

    Notes
    -----
    Cost O(k r^3 + r^4 + p r^2), memory O(k r^2).
    """
    A, B = checked_axes(A, B)
    p, r = A.shape
    counts = check_counts(n, len(B), "n")
    lengths = np.linalg.norm(B, axis=0)
    if not (lengths > 0).all():
        raise ValueError(
            f"B has {counted(int((lengths == 0).sum()), 'column')} of zeros: an MCPC in no context has no error that a "
            "bound could be about. Drop it."
        )
    # All of it is in the span of A: R has the columns of A in an orthonormal basis of that.
    R = _triangle(A)
    norms = np.linalg.norm((R * B[:, None, :]) @ R.T, ord=2, axis=(1, 2))  # ||Sigma_i||
    # M = A (A o B)^T, and with both factors as QR it has the singular values of R R2^T: no square is taken.
    contexts = _triangle(B) if len(B) > r else B
    outer = np.einsum("ej,qj->eqj", contexts, R)
    Q, R2 = np.linalg.qr(outer.reshape(-1, r))
    sigma = np.linalg.svd(R @ R2.T, compute_uv=False)
    V = np.ascontiguousarray(Q.T).reshape(r, *outer.shape[:2])
    curvatures = np.minimum(PowerSpace(V, R).landscape.curvatures, 0)  # above 0 only by rounding: F is at its maximum
    rho_a, rho_b = (_coherence(columns) for columns in (A, B / lengths))
    condition = (r - 1) * max(rho_a, rho_b) ** 2
    errors = _covariance_errors(p, counts)
    delta = _of_projectors(float(sigma[0] * np.linalg.norm(errors)), float(sigma[-1]))
    local = _of_projectors(float(np.linalg.norm(norms * errors)), float(sigma[-1]))
    most = _most_perturbation()
    mu = float(curvatures.max())
    of_M = float(sigma[-1] / sigma[0]) / np.sqrt(len(B))
    applies = condition < CONDITION and delta < most
    return ErrorAnalysis(
        n_samples=counts,
        n_features=p,
        singular_values=sigma,
        rho_a=rho_a,
        rho_b=rho_b,
        mu=_mu(rho_a, rho_b, r),
        curvatures=curvatures,
        perturbation=delta,
        loss_bound=4 * delta if applies else np.nan,
        n_needed=_rows_for(most, p, of_M) if condition < CONDITION else np.inf,
        certifying_F=_certifying(rho_a, rho_b, r, delta),
        local_perturbation=local,
        local_loss_bound=_local_bound(mu, local),
        local_n_needed=_rows_for(_most_local(mu), p, float(sigma[-1] / np.linalg.norm(norms))),
    )


def _triangle(columns: Array) -> Array:
    """Return R (r, r) of ``columns = Q R``: the columns in an orthonormal basis of their span."""
    return np.asarray(np.linalg.qr(columns, mode="r"))


def _coherence(units: Array) -> float:
    """Return the largest ``|cos|`` between two of the unit columns; 0 for a single one."""
    cosines = np.abs(units.T @ units)
    np.fill_diagonal(cosines, 0)
    return float(cosines.max(initial=0))


def _mu(rho_a: float, rho_b: float, r: int) -> float:
    """Return the lemma's bound on the eigenvalues of the Hessian."""
    left = 1 - (r - 1) * rho_a * rho_b
    if left <= 0:
        return np.inf
    return 4 * (rho_a**2 + rho_b**2) * (1 + (r - 1) * (rho_a + rho_b)) / left - 2


def _covariance_errors(p: int, n: Array) -> Array:
    """Return the bound on ``||S_i - Sigma_i|| / ||Sigma_i||`` (k,)."""
    e = _TAIL * np.sqrt(p / n)
    return np.asarray(2 * e + e**2)


def _of_projectors(of_M: float, sigma_r: float) -> float:
    """Return the bound on the distance of the projectors, ``Delta_M / (sigma_r - Delta_M)``, and at most 1."""
    # From Delta_M = sigma_r / 2 on the lemma allows any distance.
    return of_M / (sigma_r - of_M) if of_M < sigma_r / 2 else 1.0


def _rows_for(delta: float, p: int, ratio: float) -> float:
    """Return the rows at which the bound on the projectors is ``delta``; ``ratio`` is sigma_r over the size of M."""
    if not delta > 0:
        return np.inf
    # Delta = x / (1 - x) for x = (2 e + e^2) / ratio, and 2 e + e^2 = (1 + e)^2 - 1.
    x = ratio * delta / (1 + delta)
    e = x / (np.sqrt(1 + x) + 1)
    return float(np.ceil(p * (_TAIL / e) ** 2))


def _most_perturbation() -> float:
    """Return the Delta below which some delta has ``w(Delta, delta) < 1/2``: the root of ``2 D^2 + 10 D = 1/2``."""
    return float((np.sqrt(100 + 8 * _ROOM) - 10) / 4)


def _certifying(rho_a: float, rho_b: float, r: int, delta: float) -> float:
    """Return ``(1 - d^2 / 2) C + 2 Delta`` of the lemma on high values, at the largest d that is allowed."""
    left = 1 - rho_a * rho_b
    room = _ROOM - 2 * delta**2 - 10 * delta
    if left <= 0 or room <= 0:
        return np.inf
    slope = _PER_DELTA + _MIXED * delta
    d = 2 * room / (slope + np.sqrt(slope**2 + 72 * room))  # 18 d^2 + slope d = room
    C = np.sqrt((1 + (r - 1) * rho_a) * (1 + (r - 1) * rho_b)) / left
    return float((1 - d**2 / 2) * C + 2 * delta)


# The local version --------------------------------------------------------------------------------------------------


def _reach(mu: float, delta: float) -> tuple[float, float, float]:
    """Return the d at which ``d^2 c`` is largest, for ``c = room - slope d - 18 d^2``, and room and slope."""
    room = -mu - 2 * delta**2 - 10 * delta
    slope = _PER_DELTA + _MIXED * delta
    # The derivative of d^2 c is d (2 room - 3 slope d - 72 d^2).
    d = 4 * room / (3 * slope + np.sqrt(9 * slope**2 + 576 * max(room, 0.0)))
    return d, room, slope


def _excess(d: float, mu: float, delta: float) -> float:
    """Return ``d^2 c - 2 Delta^2``: where it is positive, the maximum is within d."""
    _, room, slope = _reach(mu, delta)
    return d**2 * (room - slope * d - 18 * d**2) - 2 * delta**2


def _local_bound(mu: float, delta: float) -> float:
    """Return ``d^2 / 2`` for the least d within which there is a maximum; NaN if there is none."""
    d, room, _ = _reach(mu, delta)
    if room <= 0 or _excess(d, mu, delta) <= 0:
        return np.nan
    return float(brentq(_excess, 0, d, args=(mu, delta), xtol=1e-15, rtol=1e-12)) ** 2 / 2


def _most_local(mu: float) -> float:
    """Return the Delta below which the local version says something; 0 if F is flat."""
    if mu > -1e-12:
        return 0.0

    def left(delta: float) -> float:
        return _excess(max(_reach(mu, delta)[0], 0.0), mu, delta)

    # With Delta near 0 there is room, and at -mu / 10 there is none.
    return float(brentq(left, 1e-9 * mu**2, -mu / 10, rtol=1e-12))
