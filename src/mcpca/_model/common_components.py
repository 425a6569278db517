"""Flury's common principal components: all axes, orthogonal, by maximum likelihood.

The model says that covariances of k groups have the same eigenvectors, ``Sigma_i = A diag(lambda_i) A^T`` with A
orthogonal. It is orthogonal MCPCA at full rank. Where the rows of each group are Gaussian the likelihood is largest
where ``lambda_ij = a_j^T S_i a_j`` and A minimises

    Phi(A) = sum_i n_i [log det Diag(A^T S_i A) - log det(A^T S_i A)] >= 0,

with n_i the degrees of freedom of S_i. Hadamard's inequality makes Phi 0 exactly where A diagonalises every S_i, and
Phi at the minimum is minus twice the logarithm of the likelihood ratio against arbitrary covariances.

B. N. Flury, Common principal components in k groups, JASA 79 (1984); B. N. Flury and W. Gautschi, An algorithm for
simultaneous orthogonal transformation of several positive definite symmetric matrices to nearly diagonal form, SIAM
J. Sci. Stat. Comput. 7 (1986).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from .._covariances.validation import check_covariances
from .._linalg.canonical import canonical_order
from .._linalg.jacobi import jacobi_sweeps
from .._linalg.stiefel import Landscape, maximise_over_frames
from .._utils.arguments import check_integer, check_real
from .._utils.printing import Shown, counted
from .._utils.types import Array

_REWEIGHTINGS = 4
_SWEEPS = 15
# Contexts whose own axes are tried, for a pair and as starts; and k p^3 up to which every start is followed.
_CANDIDATES = 10
_SMALL = 10**5
# An eigenvalue this small, in eps * p of the largest, is zero.
_SINGULAR_ULPS = 8


@dataclass(frozen=True, repr=False)
class CommonComponents(Shown):
    """Common principal components and how well they fit.

    Attributes
    ----------
    components : ndarray (p, p)
        A: orthonormal columns, by decreasing total variance, the largest entry of each positive.
    variances : ndarray (k, p)
        ``a_j^T S_i a_j``, the variance of component j in context i.
    statistic : float
        Minus twice the log likelihood ratio of common components against arbitrary covariances, >= 0. Without sample
        sizes, per degree of freedom of a context.
    dof : int
        Degrees of freedom of its chi-square distribution, ``(k - 1) p (p - 1) / 2``.
    p_value : float or None
        Chance of a larger statistic where the components are common, for many samples and Gaussian rows. None
        without sample sizes.
    n_iter : int
        Sweeps of rotations and Newton steps, of all starts.
    converged : bool
        Whether the likelihood has settled.
    """

    components: Array
    variances: Array
    statistic: float
    dof: int
    p_value: float | None
    n_iter: int
    converged: bool

    def _words(self) -> list[str]:
        k, p = self.variances.shape
        test = "without sample sizes there is no test" if self.p_value is None else f"p = {self.p_value:.2g}"
        return [
            f"{counted(p, 'common component')} of {counted(k, 'context')}: likelihood ratio {self.statistic:.4g} with "
            f"{counted(self.dof, 'degree')} of freedom, {test}.",
            f"{'Converged' if self.converged else 'Not converged'} after {counted(self.n_iter, 'iteration')}.",
        ]

    def _rows(self) -> dict[str, Any]:
        total = self.variances.sum(axis=0)
        low, high = self.variances.min(axis=0), self.variances.max(axis=0)
        shares = {"share of the variance": total / (total.sum() or 1)}
        return {"component": range(1, len(total) + 1), **shares, "least variance": low, "largest": high}


def common_principal_components(
    S: Any, n_samples: Any = None, *, tol: float = 1e-10, max_iter: int = 200
) -> CommonComponents:
    """Fit common principal components by maximum likelihood and test them.

    Parameters
    ----------
    S : array-like (k, p, p)
        Positive definite covariances, one per context, with divisor n - 1.
    n_samples : array-like (k,) of int, optional
        Rows that each covariance comes from, at least 2. Contexts weigh ``n_samples - 1``; None weighs them alike.
    tol : float
        Converged when no axis turns by more than this, in radians, in one step.
    max_iter : int
        Most Newton steps.

    Returns
    -------
    CommonComponents

    Raises
    ------
    ValueError
        Where a covariance is singular: the likelihood then has no maximum.

    Notes
    -----
    Pairs of axes are turned together, as many as are disjoint, each by the fixed-point iteration of ``_pair_angle``;
    the last digits come from Newton steps. Phi never rises. Several starts where the problem is small, of which the
    best is returned: contexts far from sharing their axes make many minima. Cost O(k p^3) a sweep or step and
    O(10 k p^2) more for candidates; memory O(k p^2).
    """
    S = check_covariances(S)
    tol = check_real(tol, "tol", 1e-15, 1e-2, "It is an angle in radians.")
    max_iter = check_integer(max_iter, "max_iter", 1)
    k, p, _ = S.shape
    freedom = _degrees_of_freedom(n_samples, k)
    eps = float(np.finfo(S.dtype).eps)
    S = S.astype(np.float64)
    S = (S + S.transpose(0, 2, 1)) / 2
    size = np.einsum("ipp->i", S) / p
    # Phi does not change when a context is multiplied by a number, so each is brought to mean variance 1.
    scaled = S / np.where(size > 0, size, 1)[:, None, None]
    spectrum, axes = np.linalg.eigh(scaled)
    _check_regular(spectrum, eps, p)
    n = freedom / freedom.sum()

    def objective(h: Array) -> Landscape:
        return Landscape(-float(n @ np.log(h).sum(axis=0)), -n / h, n / h**2, None)

    def angle(mean: Array, half: Array, off: Array, kept: Array) -> Array:
        return _pair_angle(mean, half, off, n)

    ends = []
    n_iter = 0
    for start in _starts(scaled, spectrum, axes, n):
        frame, sweeps = jacobi_sweeps(scaled, start, p, angle, _SWEEPS)
        ends.append(maximise_over_frames(scaled, frame, p, objective, max_iter=max_iter, tol=tol))
        n_iter += sweeps + ends[-1].n_iter
    best = max(end.value for end in ends)
    end = next(end for end in ends if end.value >= best - 1e-12)  # the first where rounding decides
    A = end.frame
    variances = np.einsum("pj,ipj->ij", A, scaled @ A)
    loss = np.log(variances).sum(axis=1) - np.log(spectrum).sum(axis=1)
    statistic = max(float(freedom @ loss), 0.0)
    dof = (k - 1) * p * (p - 1) // 2
    # Without degrees of freedom there is nothing to test: the components always fit.
    p_value = None if n_samples is None else (float(chi2.sf(statistic, dof)) if dof else 1.0)
    # What rounding of the smallest variance does to Phi cannot be gained.
    converged = end.step <= tol or end.gain <= np.finfo(float).eps * p / variances.min()
    A, variances, _ = canonical_order(A, variances * size[:, None])
    return CommonComponents(A, variances, statistic, dof, p_value, n_iter, bool(converged))


def _degrees_of_freedom(n_samples: Any, k: int) -> Array:
    """Return ``n_samples - 1``, or ones."""
    if n_samples is None:
        return np.ones(k)
    n = np.asarray(n_samples)
    if n.shape != (k,):
        raise ValueError(
            f"n_samples has shape {n.shape} where S has {k} context(s); pass one number of samples for each, or None."
        )
    if n.dtype.kind not in "iu":
        raise ValueError(f"n_samples has dtype {n.dtype}; pass whole numbers, the rows of each context.")
    if (n < 2).any():
        i = int(np.argmax(n < 2))
        raise ValueError(f"n_samples[{i}]={n[i]}; a covariance needs at least 2 samples.")
    return np.asarray(n - 1, dtype=np.float64)


def _check_regular(spectrum: Array, eps: float, p: int) -> None:
    """Raise for the first context with an eigenvalue that is zero up to rounding."""
    singular = np.flatnonzero(spectrum[:, 0] <= _SINGULAR_ULPS * eps * p * spectrum[:, -1])
    if singular.size:
        i = int(singular[0])
        rank = int((spectrum[i] > _SINGULAR_ULPS * eps * p * max(spectrum[i, -1], 0)).sum())
        raise ValueError(
            f"S[{i}] is singular: it has rank {rank} and {p} features, and the likelihood of common principal "
            "components is unbounded there. Use fewer features, or MCPCA(orthogonal=True), which needs no inverse."
        )


def _starts(S: Array, spectrum: Array, axes: Array, n: Array) -> list[Array]:
    """Return frames to start from: eigenvectors of means, and of the contexts that weigh most.

    Means of S, of log S and of the inverse see the large, all, and the small variances. Where contexts are far from
    sharing their axes Phi has many minima, the deepest often near the axes of one of them. A large problem starts from
    where Phi is least.
    """
    k, p, _ = S.shape
    means = [np.tensordot(n, (axes * f[:, None, :]) @ axes.transpose(0, 2, 1), axes=1) for f in _functions(spectrum)]
    starts = [np.linalg.eigh(M)[1][:, ::-1] for M in means]
    starts += list(axes[np.argsort(-n, kind="stable")[:_CANDIDATES]])
    if k * p**3 <= _SMALL:
        return starts
    return [min(starts, key=lambda A: float(n @ np.log(np.einsum("pj,ipj->ij", A, S @ A)).sum(axis=1)))]


def _functions(spectrum: Array) -> tuple[Array, Array, Array]:
    inverse = 1 / spectrum
    return spectrum, np.log(spectrum), inverse / inverse.mean(axis=1, keepdims=True)


def _pair_angle(mean: Array, half: Array, off: Array, n: Array) -> Array:
    """Return the angles that minimise ``sum_i n_i log(R_jj R_ll)`` for m pairs, given as (m, k); see ``jacobi_sweeps``.

    With ``u = half cos 2 theta + off sin 2 theta`` the product is ``mean^2 - u^2``, and ``-log(mean^2 - x)`` is convex
    in x: maximising its tangent at the present u, ``sum_i w_i u_i^2`` with ``w_i = n_i / (mean_i^2 - u_i^2)``, cannot
    raise Phi. That is an eigenvector of a 2 x 2 matrix. (Flury and Gautschi's G iteration takes the tangent in u
    itself, a shorter step.) It starts from the best of the present axes, the angle for u = 0, and the axes of single
    contexts, each of which makes a minimum of its own where contexts are far from sharing them.
    """
    det = mean**2 - half**2 - off**2
    low = np.maximum(det, _SINGULAR_ULPS * np.finfo(float).eps * mean**2)  # of R restricted to the pair, > 0

    def product(theta: Array) -> Array:
        # mean^2 - u^2, by the part of (half, off) across u: no cancellation.
        angle = 2 * theta[..., None]
        return np.asarray(low + (half * np.sin(angle) - off * np.cos(angle)) ** 2)

    def reweighted(w: Array) -> Array:
        dd, oo, do = (w * half**2).sum(axis=1), (w * off**2).sum(axis=1), (w * half * off).sum(axis=1)
        return np.asarray(np.arctan2(2 * do, dd - oo) / 4)

    heavy = np.argsort(-n, kind="stable")[:_CANDIDATES]
    own = np.arctan2(off[:, heavy], half[:, heavy]).T / 2
    own -= np.round(own / (np.pi / 2)) * (np.pi / 2)  # a quarter turn only swaps the two
    candidates = np.vstack([np.zeros((1, len(mean))), reweighted(n / mean**2)[None], own])
    values = np.log(product(candidates)) @ n
    theta = np.take_along_axis(candidates, np.argmin(values, axis=0)[None], axis=0)[0]
    for _ in range(_REWEIGHTINGS):
        theta = reweighted(n / product(theta))
    return np.asarray(np.where(np.log(product(theta)) @ n < values[0], theta, 0))
