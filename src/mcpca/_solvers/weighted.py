"""Joint diagonalisation with the weights of a Gaussian likelihood: stage 1 of ``ml``.

In the model the scores ``W x`` are uncorrelated in every context (Proposition SI-2.8): W diagonalises all covariances,
noise taken off. An off-diagonal entry ``R_i[l, j]`` of the sample covariance of scores has variance
``t_il t_ij / n_i``, t being the variances of scores with the noise left in. So a context in which two components are
quiet says most about the angle between them, and without noise says it exactly. Weighting each entry by its inverse
variance turns joint diagonalisation into the first step of maximum likelihood.
"""

from __future__ import annotations

import numpy as np

from .._covariances.stack import congruence
from .._linalg.diagonalise import pair_step
from .._utils.types import Array

# The unweighted steps only have to come near enough for the weights to be right.
_UNWEIGHTED_STEPS = 60
_UNWEIGHTED_TOL = 1e-3
# Lower bounds of the variances that weights are inverse to, in units of a component's mean variance, taken in turn.
# Small variances are the informative ones, but while the axes are still off they are mostly leakage from others.
_LEVELS = 10.0 ** -np.arange(1.0, 13, 2)
_STEPS_PER_LEVEL = 1
_MOST_CONTEXTS = 60  # seen by the unweighted steps; of more, they see random combinations
_WORST_CONDITION = 1e12  # of a diagonaliser that is not all rounding
_LONGEST_STEP = 0.5  # largest entry of E: (I + E)^-1 is only a first-order correction


def weighted_diagonaliser(M: Array, noise: Array, n: Array, rng: np.random.Generator) -> tuple[Array | None, bool]:
    """Return W (r, r) that nearly diagonalises all ``M_i - noise_i I``, and whether it converged (see ``_stages``).

    W is None if it came out singular up to rounding.
    """
    try:
        W, converged = _stages(M, noise, n, rng)
    except np.linalg.LinAlgError:
        return None, False
    if not np.isfinite(W).all() or np.linalg.cond(W) >= _WORST_CONDITION:
        return None, False
    return W, converged


def _stages(M: Array, noise: Array, n: Array, rng: np.random.Generator) -> tuple[Array, bool]:
    """Return a diagonaliser W (r, r) of the cores ``M`` (k, r, r) less ``noise`` (k,), and whether it converged.

    ``W (M_i - s_i I) W^T`` is nearly diagonal, and the columns of ``W^-1`` are the components. Unweighted first, on
    random combinations of contexts if there are many; then with weights, whose variances are bounded from below by less
    and less. Cost O(k r^3) a step, some 30 steps.
    """
    k, r, _ = M.shape
    weights = n / n.sum()
    # Whitened by the mean, in which the components are orthogonal if the model is exact; the eigenvectors of one random
    # combination are then all of them, up to noise.
    w, Q = np.linalg.eigh(np.tensordot(weights, M, axes=1))
    W = (Q / np.sqrt(np.maximum(w, 1e-14 * w[-1]))).T
    few = M
    few_noise = noise
    e = max(_MOST_CONTEXTS, 3 * r)
    if k > e:
        # On average mixing^T mixing is e diag(weights), so that sums of squares over the combinations estimate those
        # over contexts.
        mixing = rng.standard_normal((e, k)) * np.sqrt(weights)
        few = np.tensordot(mixing, M, axes=1)
        few_noise = mixing @ noise
    # Congruences are (r, e, r), contexts in the middle.
    mixed = np.tensordot(rng.standard_normal(len(few)), congruence(few, W.T), axes=(0, 1))
    W = np.linalg.eigh((mixed + mixed.T) / 2)[1].T @ W
    W, step = _diagonalise(few, W, few_noise, np.full(len(few), 1 / len(few)), None, _UNWEIGHTED_STEPS, _UNWEIGHTED_TOL)
    converged = step < _UNWEIGHTED_TOL
    for level in _LEVELS:
        better, step = _diagonalise(M, W, noise, weights, level, _STEPS_PER_LEVEL, 1e-9)
        if not np.isfinite(step) or step > _LONGEST_STEP:  # weights have become too unequal for the first-order step
            break
        # Steps that were too long are not kept: W is the last diagonaliser whose weights could be trusted.
        W = better
        if level < 0.1 * _least_variance(M, W, noise, weights):
            break  # the noise in the scores bounds the variances already
    return W, converged


def _least_variance(M: Array, W: Array, noise: Array, weights: Array) -> float:
    """Return the least variance that noise alone gives a score, in units of the component's mean variance."""
    mean = np.einsum("jq,ql,jl->j", W, np.tensordot(weights, M, axes=1), W, optimize=True)
    share = noise.min() * np.einsum("jq,jq->j", W, W) / np.maximum(mean, np.finfo(float).tiny)
    return float(share.min())


def _diagonalise(
    M: Array, W: Array, noise: Array, weights: Array, level: float | None, steps: int, tol: float
) -> tuple[Array, float]:
    """Take pair steps; ``level`` bounds from below the variances that weights are inverse to, None is unweighted."""
    r = len(W)
    step = np.inf
    for _ in range(steps):
        gram = W @ W.T
        # R (r, e, r) are the covariances of scores, d (e, r) their variances without noise.
        noise_gain = np.diag(gram)  # noise s_i has the variance s_i |w_j|^2 in score j
        R = congruence(M, W.T)
        d = np.einsum("jej->ej", R) - noise[:, None] * noise_gain
        # Absolute values: d is below zero where more noise is taken off than there was, and for combinations of either
        # sign.
        scale = weights @ np.abs(d)
        if not (scale > 0).all():
            return W, np.inf
        # pair_step divides rows and columns of R by the root, after which components have variance one on average.
        root = np.sqrt(scale)
        entry_weights = None
        if level is not None:
            # Entry (l, j) of context i gets the product of two of these, n_i / (t_il t_ij): one over its variance.
            noisy_variances = np.maximum(d + noise[:, None] * noise_gain, 0) / scale
            entry_weights = np.sqrt(weights)[:, None] / (noisy_variances + level)
        E = pair_step(R, d, root, entry_weights, noise, gram)
        step = float(np.abs(E).max(initial=0))
        if not np.isfinite(step):
            return W, np.inf
        E *= min(1, _LONGEST_STEP / max(step, _LONGEST_STEP))
        try:
            # E was found for rows divided by the root, so W takes the same scale.
            W = np.linalg.solve(np.eye(r) + E, W / root[:, None])
        except np.linalg.LinAlgError:
            return W, np.inf
        if step < tol:
            break
    return W, step


def correlation_left(M: Array, W: Array, noise: Array, n: Array) -> float:
    """Return what W leaves of correlation between scores: squared correlations, summed with weights n.

    By it ``ml`` compares two candidates for a start. The diagonal is in the sum as well: without noise it adds the same
    for every W, up to components that are absent.
    """
    # To second order -log det of a correlation matrix is half the sum of its squared entries off the diagonal, so that
    # without noise this measures the paper's common log-likelihood loss (Definition SI-2.12).
    R = congruence(M, W.T)
    t = np.einsum("jej->ej", R)
    t = np.maximum(t, 1e-12 * max(float(t.max()), np.finfo(float).tiny))  # absent components weigh no more than this
    R = R - noise[None, :, None] * (W @ W.T)[:, None, :]
    squares = np.einsum("lej,el,ej->e", R**2, 1 / t, 1 / t, optimize=True)
    return float(n @ squares)
