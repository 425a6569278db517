"""Orthonormal axes of one matrix made of all contexts: plain SVD of the flattening, and weighted Stack-SVD.

* SVD: left singular vectors of ``[S_1 ... S_k]``, that is eigenvectors of ``sum_i S_i^2 = A (K o A^T A) A^T`` with
  ``K = B^T B``. They span what the components span, which is why most methods compress to them, and are the components
  only if these are orthonormal.
* Weighted Stack-SVD: right singular vectors of the rows of all contexts, those of context i times w_i. For rows with
  variance ``lambda_i`` along one shared axis v and ``sigma_i^2`` in every direction, the weights that bring the first
  singular vector closest to v are ``w_i^2 = lambda_i / (lambda_i + sigma_i^2) / sigma_i^2``: Baharav et al. write it as
  ``theta^2 / (theta^2 + c)`` with ``sigma^2 = 1 / p``, ``lambda = theta^2 / n`` and ``c = n / p``.

The same weights come from the likelihood. For ``Sigma_i = V diag(lambda_i) V^T + sigma_i^2 I``, V orthonormal,

    -2 log L(V) = const - sum_i n_i sum_j [1 / sigma_i^2 - 1 / (lambda_ij + sigma_i^2)] v_j^T S_i v_j,

and the bracket is ``lambda_ij / (sigma_i^2 (lambda_ij + sigma_i^2))``. So several axes have weights of their own each,
``w_ij``, and are found together as the V that maximises ``sum_ij n_i w_ij v_j^T S_i v_j``. Taken again and again, until
weights and axes agree, this would be ``MCPCA(solver="ml", orthogonal=True)``.
"""

from __future__ import annotations

import numpy as np

from .._linalg.stiefel import Landscape, complete_frame, maximise_over_frames
from .._utils.types import Array
from ._interface import MethodOutput, Problem, method

# Least noise of a context, in units of the mean variance of a feature. Below it noise is rounding, or is as good as
# absent, and ratios of weights would be ratios of rounding.
_LEAST_NOISE = 1e-6
_STEPS = 200
_TURN = 1e-10  # radians


@method(
    "svd",
    title="SVD of the flattening",
    citation="the paper's SVD (its Figure S2E)",
    assumptions="A orthonormal; sums over contexts of squared loadings distinct.",
    cost="O(k p^3)",
    contexts=(1, None),
    in_paper=True,
)
def svd(problem: Problem) -> MethodOutput:
    """Top r left singular vectors of ``[S_1 ... S_k]``. Cost O(k p^3), memory O(k p^2)."""
    S = problem.S
    w, V = np.linalg.eigh(np.matmul(S, S).sum(axis=0))
    note = "Left singular vectors of the flattening [S_1 ... S_k]."
    # Also the last that is taken and the first that is left out.
    ties = np.diff(w[-problem.r - 1 :]) if problem.r < len(w) else np.diff(w)
    if ties.size and ties.min() <= 1e-8 * w[-1]:
        note += " Some singular values are equal: within those the axes are arbitrary."
    return MethodOutput(V[:, ::-1][:, : problem.r], notes=(note,))


@method(
    "stack_svd",
    title="weighted Stack-SVD",
    citation="T. Z. Baharav, P. B. Nicol, R. A. Irizarry and R. Ma, Stacked SVD or SVD stacked? (2025), arXiv "
    "2507.22170; D. Hong, F. Yang, J. A. Fessler and L. Balzano, SIAM J. Math. Data Sci. 5 (2023)",
    assumptions="A orthonormal; weighted totals of components distinct; noise alike in all directions of a context.",
    cost="O(k p^2 r + p^3) a step, few steps",
    contexts=(1, None),
)
def stack_svd(problem: Problem, *, weights: str = "optimal") -> MethodOutput:
    """Find axes of the stacked rows, each context weighted by what it can say about an axis.

    ``weights="noise"`` divides the rows of a context by the standard deviation of its noise; ``"optimal"`` goes on from
    there, to ``lambda_ij / (sigma_i^2 (lambda_ij + sigma_i^2))`` for axis j. Noise is the mean variance outside the
    axes of the step before, of which the first is PCA of all rows; ``"rows"`` is that PCA. With r = p nothing is
    outside, and contexts weigh by rows. Cost O(k p^2 r + p^3) a step, memory O(k p r + p^2) beside the covariances.
    """
    if weights not in ("optimal", "noise", "rows"):
        raise ValueError(f"weights={weights!r} is unknown; choose 'optimal', 'noise' or 'rows'.")
    S, r, rows = problem.S, problem.r, problem.weights
    V = _top(np.tensordot(rows, S, axes=1), r)
    if weights == "rows":
        return MethodOutput(V, notes=("Contexts weigh by rows: PCA of all rows, centred by context.",))
    if r == S.shape[1]:
        return MethodOutput(V, notes=("With r = p no direction is left to measure noise in; contexts weigh by rows.",))
    noise, _ = _variances(S, V)
    V = _top(np.tensordot(rows / noise, S, axes=1), r)
    share = rows / noise
    note = f"Noise of contexts from {noise.min():.2g} to {noise.max():.2g} mean variances of a feature."
    if weights == "noise":
        return MethodOutput(V, notes=(note,), extras={"weights": _by_name(problem, share)})
    noise, signal = _variances(S, V)
    # (r, k); an axis that no context has signal along keeps the weights by noise.
    W = (rows / noise) * signal.T / (signal.T + noise)
    W = np.where(W.sum(axis=1, keepdims=True) > 0, W, rows / noise)
    # The scale of an axis' weights matters beside those of others, and is the likelihood's; one number for all is free.
    W = W / W.sum(axis=1).max()

    def objective(h: Array) -> Landscape:
        return Landscape(float((W * h).sum()), W, np.zeros_like(W), None)

    best = maximise_over_frames(S, complete_frame(V), r, objective, max_iter=_STEPS, tol=_TURN)
    return MethodOutput(best.frame[:, :r], notes=(note,), extras={"weights": _by_name(problem, W.sum(axis=0))})


def _top(M: Array, r: int) -> Array:
    return np.asarray(np.linalg.eigh(M)[1][:, ::-1][:, :r])


def _variances(S: Array, V: Array) -> tuple[Array, Array]:
    """Return the noise (k,) outside the axes, and the variances (k, r) along them less the noise."""
    along = np.einsum("pj,kpj->kj", V, S @ V)
    outside = np.einsum("kpp->k", S) - along.sum(axis=1)
    noise = np.maximum(outside / (S.shape[1] - V.shape[1]), _LEAST_NOISE)
    return noise, np.maximum(along - noise[:, None], 0)


def _by_name(problem: Problem, share: Array) -> dict[object, float]:
    """Return the weight of each context, in shares of their sum."""
    return dict(zip(problem.names, (share / share.sum()).tolist(), strict=True))
