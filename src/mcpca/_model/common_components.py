"""Flury's common principal components: all p axes, orthogonal, by maximum likelihood.

In this model the covariances of k groups share their eigenvectors, ``Sigma_i = A diag(lambda_i) A^T`` with A
orthogonal: it is orthogonal MCPCA at full rank. A public function of its own (``mcpca.common_principal_components``),
on which nothing else depends. For Gaussian rows the likelihood is largest where ``lambda_ij = a_j^T S_i a_j`` and A
minimises

    Phi(A) = sum_i n_i [log det Diag(A^T S_i A) - log det(A^T S_i A)] >= 0,

with n_i the degrees of freedom of S_i. By Hadamard's inequality Phi is 0 exactly if A diagonalises every S_i, and its
minimum is minus twice the logarithm of the likelihood ratio against arbitrary covariances.

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

# Steps of the fixed-point iteration for a pair of axes. More would refine an angle that the next sweep changes anyway.
_REWEIGHTINGS = 4
# Most sweeps of rotations over all pairs; what they leave is for the Newton steps, which converge faster near the end.
_JACOBI_SWEEPS = 15
# Contexts whose own axes are candidates: for each pair of axes, and as frames to start from. Cost grows with it, and so
# does the chance of the deepest minimum where contexts are far from sharing their axes.
_CANDIDATE_CONTEXTS = 10
# k p^3 up to which every start is followed to its end, and the best of all ends taken.
_ALL_STARTS_COST = 10**5
# Eigenvalues up to this many eps * p times the largest are rounding, and the matrix is singular.
_SINGULAR_ULPS = 8


@dataclass(frozen=True, repr=False)
class CommonComponents(Shown):
    """Common principal components and how well they fit.

    Attributes
    ----------
    components : ndarray (p, p)
        A: orthonormal columns in decreasing order of total variance, the largest entry of each positive.
    variances : ndarray (k, p)
        ``a_j^T S_i a_j``, the variance of component j in context i.
    statistic : float
        Minus twice the log-likelihood ratio of common components against arbitrary covariances, >= 0. Without sample
        sizes, per degree of freedom of a context.
    dof : int
        Degrees of freedom of its chi-square distribution, ``(k - 1) p (p - 1) / 2``.
    p_value : float or None
        Probability of a larger statistic if the components are common, for many samples and Gaussian rows. None without
        sample sizes.
    n_iter : int
        Sweeps of rotations and Newton steps, summed over all starts.
    converged : bool
        Whether the axes, or the likelihood up to rounding, no longer change.
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
        return {
            "component": range(1, len(total) + 1),
            "share of the variance": total / (total.sum() or 1),
            "least variance": self.variances.min(axis=0),
            "largest": self.variances.max(axis=0),
        }


def common_principal_components(
    S: Any, n_samples: Any = None, *, tol: float = 1e-10, max_iter: int = 200
) -> CommonComponents:
    """Fit common principal components by maximum likelihood, and test whether they are common.

    Parameters
    ----------
    S : array-like (k, p, p)
        Positive definite covariances, one per context, with divisor n - 1.
    n_samples : array-like (k,) of int, optional
        Rows behind each covariance, at least 2. Contexts are weighted by ``n_samples - 1``, or equally if None.
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
        If a covariance is singular: the likelihood then has no maximum.

    Notes
    -----
    Disjoint pairs of axes are turned together, each by the fixed-point iteration of ``_pair_angle``; the last digits
    come from Newton steps. Phi never rises. Contexts far from sharing their axes give Phi many minima, so small
    problems are solved from several starts and the best end is returned. Cost O(k p^3) per sweep or step, and
    O(10 k p^2) more for candidates; memory O(k p^2).
    """
    S = check_covariances(S)
    tol = check_real(tol, "tol", 1e-15, 1e-2, "It is an angle in radians.")
    max_iter = check_integer(max_iter, "max_iter", 1)
    k, p, _ = S.shape
    freedom = _degrees_of_freedom(n_samples, k)
    # That of the input: a float32 covariance is singular up to the rounding of float32, even after conversion.
    eps = float(np.finfo(S.dtype).eps)
    S = S.astype(np.float64)
    # Input is symmetric only up to rounding, and ``eigh`` reads one triangle of it.
    S = (S + S.transpose(0, 2, 1)) / 2
    # Phi does not change when a context is multiplied by a number, so each is brought to mean variance 1.
    size = np.einsum("ipp->i", S) / p
    scaled = S / np.where(size > 0, size, 1)[:, None, None]
    spectrum, axes = np.linalg.eigh(scaled)
    _check_regular(spectrum, eps, p)
    # As shares, Phi is per degree of freedom: the margin for ties below then does not depend on sample sizes.
    n = freedom / freedom.sum()

    # Minus Phi up to a constant, and its derivatives, as functions of h (p, k), the variances a_j^T S_i a_j.
    def objective(h: Array) -> Landscape:
        return Landscape(-float(n @ np.log(h).sum(axis=0)), -n / h, n / h**2, None)

    # ``kept`` says whether the second axis is a component; at full rank all of them are.
    def angle(mean: Array, half: Array, off: Array, kept: Array) -> Array:
        return _pair_angle(mean, half, off, n)

    ends = []
    n_iter = 0
    for start in _starts(scaled, spectrum, axes, n):
        frame, sweeps = jacobi_sweeps(scaled, start, p, angle, _JACOBI_SWEEPS)
        end = maximise_over_frames(scaled, frame, p, objective, max_iter=max_iter, tol=tol)
        ends.append(end)
        n_iter += sweeps + end.n_iter
    best_value = max(end.value for end in ends)
    # Ends that are the same up to rounding: the first, so that the answer does not hang on the last digit.
    best = next(end for end in ends if end.value >= best_value - 1e-12)
    A = best.frame
    variances = np.einsum("pj,ipj->ij", A, scaled @ A)
    # log det(A^T S_i A) = log det S_i, from the spectrum.
    loss = np.log(variances).sum(axis=1) - np.log(spectrum).sum(axis=1)
    # Hadamard's inequality makes each loss >= 0; rounding may not.
    statistic = max(float(freedom @ loss), 0.0)
    # k p (p + 1) / 2 parameters of arbitrary covariances, less those of the model: p (p - 1) / 2 of A and k p
    # variances.
    dof = (k - 1) * p * (p - 1) // 2
    p_value = None
    if n_samples is not None:
        p_value = float(chi2.sf(statistic, dof)) if dof else 1.0  # one context, or one feature: nothing to test
    # A gain below what rounding of the smallest variance does to Phi is none.
    converged = best.step <= tol or best.gain <= np.finfo(float).eps * p / variances.min()
    A, variances, _ = canonical_order(A, variances * size[:, None])
    return CommonComponents(A, variances, statistic, dof, p_value, n_iter, bool(converged))


def _degrees_of_freedom(n_samples: Any, k: int) -> Array:
    """Return ``n_samples - 1`` (k,), or ones if None."""
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
    # ``eigh`` sorts ascending. "<=" also catches a context of zeros, whose largest eigenvalue is 0.
    singular = np.flatnonzero(spectrum[:, 0] <= _SINGULAR_ULPS * eps * p * spectrum[:, -1])
    if singular.size:
        i = int(singular[0])
        threshold = _SINGULAR_ULPS * eps * p * max(spectrum[i, -1], 0)
        rank = int((spectrum[i] > threshold).sum())
        raise ValueError(
            f"S[{i}] is singular: it has rank {rank} and {p} features, and the likelihood of common principal "
            "components is unbounded there. Use fewer features, or MCPCA(orthogonal=True), which needs no inverse."
        )


def _starts(S: Array, spectrum: Array, axes: Array, n: Array) -> list[Array]:
    """Return frames to start from: eigenvectors of means, and of the contexts that weigh most.

    The means of S, of log S and of the inverses are dominated by large, by all, and by small variances. If contexts are
    far from sharing their axes, Phi has many minima, and the deepest is often near the axes of one of them. A large
    problem is solved from a single start, the one with the least Phi.
    """
    k, p, _ = S.shape
    starts = []
    for values in _matrix_functions(spectrum):
        # f(S_i) = V_i f(D_i) V_i^T, (k, p, p).
        of_contexts = (axes * values[:, None, :]) @ axes.transpose(0, 2, 1)
        mean = np.tensordot(n, of_contexts, axes=1)
        starts.append(np.linalg.eigh(mean)[1][:, ::-1])
    # Stable: contexts of equal weight stay in their order, so the same data always give the same starts.
    heaviest = np.argsort(-n, kind="stable")[:_CANDIDATE_CONTEXTS]
    starts += list(axes[heaviest])
    if k * p**3 <= _ALL_STARTS_COST:
        return starts

    def phi(A: Array) -> float:
        """Return Phi without the terms that A does not change."""
        return float(n @ np.log(np.einsum("pj,ipj->ij", A, S @ A)).sum(axis=1))

    return [min(starts, key=phi)]


def _matrix_functions(spectrum: Array) -> tuple[Array, Array, Array]:
    """Return eigenvalues (k, p) of S, log S and the inverse; the last with mean 1, or one context would dominate."""
    inverse = 1 / spectrum
    return spectrum, np.log(spectrum), inverse / inverse.mean(axis=1, keepdims=True)


def _pair_angle(mean: Array, half: Array, off: Array, n: Array) -> Array:
    """Return the angles that minimise ``sum_i n_i log(R_jj R_ll)`` for m pairs, given as (m, k); see ``jacobi_sweeps``.

    With ``u = half cos 2 theta + off sin 2 theta`` the product is ``mean^2 - u^2``, and ``-log(mean^2 - x)`` is convex
    in x: maximising its tangent at the current u, ``sum_i w_i u_i^2`` with ``w_i = n_i / (mean_i^2 - u_i^2)``, cannot
    raise Phi. That maximum is an eigenvector of a 2 x 2 matrix. (Flury and Gautschi's G iteration takes the tangent in
    u itself, a shorter step.) The iteration starts from the best of the current axes, the angle for u = 0, and the axes
    of single contexts, each of which has a minimum of its own if contexts are far from sharing their axes.
    """
    # The determinant of each (2, 2) block, > 0; rounding of the difference must not make it 0.
    determinant = mean**2 - half**2 - off**2
    determinant = np.maximum(determinant, _SINGULAR_ULPS * np.finfo(float).eps * mean**2)

    def product(theta: Array) -> Array:
        # mean^2 - u^2 as the determinant plus the square of the part of (half, off) across u: no cancellation.
        angle = 2 * theta[..., None]
        return np.asarray(determinant + (half * np.sin(angle) - off * np.cos(angle)) ** 2)

    def reweighted(w: Array) -> Array:
        # The top eigenvector of sum_i w_i (half_i, off_i)^T (half_i, off_i), as an angle.
        half_half = (w * half**2).sum(axis=1)
        off_off = (w * off**2).sum(axis=1)
        half_off = (w * half * off).sum(axis=1)
        # arctan2 gives twice the angle of the eigenvector (cos 2 theta, sin 2 theta), hence four times theta.
        return np.asarray(np.arctan2(2 * half_off, half_half - off_off) / 4)

    heaviest = np.argsort(-n, kind="stable")[:_CANDIDATE_CONTEXTS]
    # The angle at which R_jl of one context vanishes, for each of these contexts: (at most 10, m).
    own_angles = np.arctan2(off[:, heaviest], half[:, heaviest]).T / 2
    own_angles -= np.round(own_angles / (np.pi / 2)) * (np.pi / 2)  # a quarter turn only swaps the two axes
    unturned = np.zeros((1, len(mean)))
    candidates = np.vstack([unturned, reweighted(n / mean**2)[None], own_angles])
    values = np.log(product(candidates)) @ n
    # ``argmin`` takes the first of equals: axes that no angle improves stay unturned.
    theta = np.take_along_axis(candidates, np.argmin(values, axis=0)[None], axis=0)[0]
    for _ in range(_REWEIGHTINGS):
        theta = reweighted(n / product(theta))
    # Turn only if that lowers Phi: in exact arithmetic it never raises it, with rounding it may.
    return np.asarray(np.where(np.log(product(theta)) @ n < values[0], theta, 0))
