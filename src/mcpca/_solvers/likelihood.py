"""The Gaussian model ``x ~ N(mean_i, Sigma_i)``, ``Sigma_i = A B_i A^T + s_i I``: value, gradient and information.

This is the paper's Gaussian MCPCA (Definition SI-2.10) with a noise variance s_i per context, without which the model
has no density when r < p. ``scoring`` maximises it for solver "ml"; ``_model.gaussian`` and ``_inference`` use it for
scores, tests and standard errors.

Everything happens in r dimensions. With ``G = A^T A``, ``N = G^-1``, ``W = N A^T`` the pseudoinverse of A,

    Omega_i = B_i + s_i N,   P_i = Omega_i^-1 = A^T Sigma_i^-1 A,   R_i = W S_i W^T,
    log det Sigma_i   = log det Omega_i + log det G + (p - r) log s_i,
    tr Sigma_i^-1 S_i = tr P_i R_i + (tr S_i - tr G R_i) / s_i.

The first line is the Woodbury identity with ``B_i`` kept on its own side; the second is the matrix determinant lemma.
No power of B is taken, so loadings may be zero. Write a change of A as ``dA = A X + Z`` with ``A^T Z = 0``. The scale
of a column belongs to B, so ``X_jj = 0``. With ``D_i = P_i - P_i R_i P_i`` the negative log-likelihood
``L = sum_i n_i/2 (log det Sigma_i + tr Sigma_i^-1 S_i)`` has the derivatives

    X: sum_i n_i D_i B_i      b_i: n_i/2 diag D_i      log s_i: n_i/2 (s_i tr D_i N + p - r - rest_i / s_i)
    Z: - sum_i n_i/s_i S_i W^T P_i B_i, less its part in the span of A,

and Fisher's information is ``I(d, d') = sum_i n_i/2 tr(P_i dOmega_i P_i dOmega'_i)`` with
``dOmega_i = X B_i + B_i X^T + dB_i + s_i N dlog s_i`` (to which ``log s_i`` adds ``n_i/2 (p - r)``). Z is orthogonal to
all the rest in this metric, which is why the two are solved for separately: its information is
``sum_i n_i/s_i B_i P_i B_i`` (r, r) for each of the p - r directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._covariances.interface import Covariances, project
from .._utils.parallel import over_contexts
from .._utils.types import Array

_CONTEXT_STEPS = 100
_CONTEXT_BACKTRACKS = 20
_CONTEXT_GAIN = 1e-12  # a context is done when a step promises less than this in deviance
# Numbers in the precisions P (k, r, r) above which products with the information are taken in float32. They only make
# directions, which need few digits, and take half the memory.
_FLOAT32_NUMBERS = 10**6


@dataclass(frozen=True)
class Likelihood:
    """The model at one point, and the data that it is compared with.

    ``G`` (r, r) is ``A^T A``, ``B`` (k, r), ``s`` (k,) noise variances; ``R`` (k, r, r) is ``W S_i W^T``, ``rest`` (k,)
    the variance outside the span of A; ``n`` (k,) the weights of contexts and ``outside`` = p - r.
    """

    G: Array
    B: Array
    s: Array
    R: Array
    rest: Array
    n: Array
    outside: int

    @cached_property
    def N(self) -> Array:
        """Return ``(A^T A)^-1``."""
        inverse: Array = np.linalg.inv(self.G)
        # Omega_i, P_i and the information are taken to be symmetric, and rounding in the inverse would spoil that.
        return (inverse + inverse.T) / 2

    @cached_property
    def _inverses(self) -> tuple[Array, Array]:
        """Return ``Omega_i^-1`` (k, r, r) and ``log det Omega_i`` (k,), infinite where the model has no density."""
        k, r = self.B.shape
        N = self.N  # computed here, and not by the first of the threads
        diagonal = np.arange(r)
        P = np.empty((k, r, r))
        logdet = np.empty(k)

        def fill(part: slice) -> None:
            Omega = self.s[part, None, None] * N
            Omega[:, diagonal, diagonal] += self.B[part]
            P[part] = np.linalg.inv(Omega)
            try:
                # The determinant from a Cholesky factor, since that fails if Omega_i is not definite, where there is no
                # density.
                factors = np.linalg.cholesky(Omega)
            except np.linalg.LinAlgError:
                # Some context of the chunk is not positive definite, up to rounding: decide one by one.
                sign, value = np.linalg.slogdet(Omega)
                logdet[part] = np.where(sign > 0, value, np.inf)
            else:
                logdet[part] = 2 * np.log(np.einsum("kjj->kj", factors)).sum(axis=1)

        over_contexts(fill, k, r)
        return P, logdet

    @property
    def P(self) -> Array:
        """Precision of noisy scores (k, r, r)."""
        return self._inverses[0]

    @cached_property
    def _rounded(self) -> tuple[Array, Array]:
        """P and N P, in float32 if they are large: the information is for directions only."""
        P = self.P
        if P.size > _FLOAT32_NUMBERS and np.isfinite(P).all():
            P = P.astype(np.float32)
        N = self.N.astype(P.dtype, copy=False)
        N_P = np.empty_like(P)
        over_contexts(lambda part: np.matmul(N, P[part], out=N_P[part]), *self.B.shape)
        return P, N_P

    @cached_property
    def deviances(self) -> Array:
        """Return ``log det Sigma_i + tr Sigma_i^-1 S_i`` (k,); infinite where the model has no density."""
        P, logdet = self._inverses
        # tr P_i R_i as a sum over entries: both are symmetric.
        traces = over_contexts(lambda part: np.einsum("kab,kab->k", P[part], self.R[part]), *self.B.shape)
        sign, common = np.linalg.slogdet(self.G)
        terms = logdet + np.concatenate(traces) + (common if sign > 0 else np.inf)
        if self.outside:  # p - r directions that are noise only; none if r = p, where s may be zero
            terms = terms + self.outside * np.log(self.s) + self.rest / self.s
        return np.asarray(terms)

    @cached_property
    def value(self) -> float:
        """Return ``L`` without its constant ``n p log(2 pi) / 2``."""
        return float(self.n @ self.deviances) / 2

    @cached_property
    def D(self) -> Array:
        """Return ``P - P R P`` (k, r, r)."""
        P = self.P
        R = self.R
        out = np.empty_like(P)
        over_contexts(lambda part: np.subtract(P[part], P[part] @ R[part] @ P[part], out=out[part]), *self.B.shape)
        return out

    def gradient(self) -> tuple[Array, Array, Array]:
        """Return derivatives by X (r, r) with a zero diagonal, by b (k, r) and by log s (k,)."""
        n = self.n
        D = self.D
        # sum_i n_i D_i B_i. D_i is zero where the model fits exactly, P_i = R_i^-1, and so is the gradient by b_i.
        X = np.einsum("klj,kj->lj", D, n[:, None] * self.B)
        np.fill_diagonal(X, 0)  # scaling a column is a change of B
        b = n[:, None] / 2 * np.einsum("kjj->kj", D)
        log_s = n / 2 * (self.s * np.einsum("kab,ab->k", D, self.N))
        if self.outside:
            log_s = log_s + n / 2 * (self.outside - self.rest / self.s)
        return X, b, log_s

    def information(self, X: Array, b: Array, log_s: Array) -> tuple[Array, Array, Array]:
        """Return Fisher's information applied to a change (X, b, log s)."""
        P_all, N_P_all = self._rounded
        dtype = P_all.dtype
        X = X.astype(dtype, copy=False)
        b = b.astype(dtype, copy=False)
        N = self.N.astype(dtype, copy=False)
        B_all = self.B.astype(dtype, copy=False)
        nB = self.n[:, None] * self.B
        ds = self.s * log_s
        r = len(N)
        diagonal = np.arange(r)

        def of_contexts(part: slice) -> tuple[Array, Array, Array]:
            # Per context dOmega, half = P dOmega and P are (r, r).
            B = B_all[part]
            P = P_all[part]
            # X B_i + B_i X^T. NumPy sees that the operands overlap, and copies the transpose.
            dOmega = X * B[:, None, :]
            dOmega += dOmega.transpose(0, 2, 1)
            if log_s.any():
                dOmega += ds[part, None, None].astype(dtype) * N
            dOmega[:, diagonal, diagonal] += b[part]
            half = P @ dOmega
            # P dOmega P n B, summed over contexts, is one product; of P dOmega P alone only the diagonal is needed.
            right = (P * nB[part, None, :].astype(dtype)).reshape(-1, r)
            by_X = half.transpose(1, 0, 2).reshape(r, -1) @ right
            # The diagonal of half P and, for log s, the trace of half P N: sums over entries, as P and (N P)^T = P N
            # allow.
            by_b = self.n[part, None] / 2 * np.einsum("kja,kja->kj", half, P)
            by_s = self.s[part] * np.einsum("kab,kab->k", half, N_P_all[part])
            return by_X, by_b, self.n[part] / 2 * (by_s + self.outside * log_s[part])

        by_X, by_b, by_s = zip(*over_contexts(of_contexts, *self.B.shape), strict=True)
        # In double precision: float32 would lose digits in the sum over many parts.
        out = np.asarray(np.sum(by_X, axis=0, dtype=np.float64))
        np.fill_diagonal(out, 0)
        return out, np.concatenate(by_b), np.concatenate(by_s)

    def context_information(self) -> Array:
        """Fisher's information (k, r + 1, r + 1) of ``(b_i, log s_i)`` in each context."""
        k, r = self.B.shape
        out = np.empty((k, r + 1, r + 1))

        def fill(part: slice) -> None:
            P = self.P[part]
            s = self.s[part]
            block = out[part]
            PN = P @ self.N
            # tr(P dOmega P dOmega') for dOmega = e_a e_a^T and e_b e_b^T is P_ab^2; log s_i moves Omega_i by s_i N.
            block[:, :r, :r] = P**2
            block[:, :r, r] = block[:, r, :r] = s[:, None] * np.einsum("kab,kba->ka", PN, P)
            block[:, r, r] = s**2 * np.einsum("kab,kba->k", PN, PN) + self.outside
            block *= (self.n[part] / 2)[:, None, None]

        over_contexts(fill, k, r)
        return out

    def outside_information(self) -> Array:
        """Fisher's information (r, r) of the part of A in each direction outside its span."""
        # sum_i n_i/s_i B_i P_i B_i. The noise divides, because Z moves A where there is nothing else.
        weighted = (self.n / self.s)[:, None] * self.B

        def of_contexts(part: slice) -> Array:
            return np.asarray((weighted[part, :, None] * self.P[part] * self.B[part, None, :]).sum(axis=0))

        return np.asarray(np.sum(over_contexts(of_contexts, *self.B.shape), axis=0))

    def pair_information(self) -> tuple[Array, Array]:
        """Return H, K (r, r): were ``P_i`` diagonal, ``(X_lj, X_jl)`` would have ``[[H_lj, K_lj], [K_lj, H_jl]]``.

        A preconditioner: near the solution scores are nearly uncorrelated, so ``P_i`` is nearly diagonal.
        """
        # For diagonal P_i only X_lj and X_jl share an entry of dOmega_i = X B_i + B_i X^T, so the pairs decouple.
        precision = np.einsum("kjj->kj", self.P)
        weighted = self.n[:, None] * precision
        H = weighted.T @ (precision * self.B**2)
        K = (weighted * self.B).T @ (precision * self.B)
        return H, K


def unit_columns(A: Array, B: Array) -> tuple[Array, Array]:
    """Scale columns of A to length one, and loadings so that ``A B_i A^T`` stays."""
    size = np.linalg.norm(A, axis=0)
    return A / size, B * size**2


def likelihood_of(
    S: Covariances, A: Array, B: Array, s: Array, n: Array, *, scale: Array | None = None, unit: float = 1.0
) -> Likelihood:
    """Return the model at (A, B, s) with the covariances ``S`` as data.

    With ``scale`` (p,) features are multiplied by it first, and A is that of the scaled features. S is divided by
    ``unit``. Cost that of a projection, O(k p^2 r) of a stack; memory O(k r^2).
    """
    p = len(A)
    G = A.T @ A
    N = np.linalg.inv(G)
    # R_i = W (D S_i D) W^T with D = diag(scale), without a scaled copy of S.
    scaled = A if scale is None else scale[:, None] * A
    R = N @ (project(S, scaled) / unit) @ N
    variances = S.variances() / unit
    trace = variances.sum(axis=1) if scale is None else variances @ scale**2
    # tr(S_i) less the variance in the span of A, which is tr(G R_i); rounding may leave it below zero.
    rest = np.maximum(trace - np.einsum("kab,ab->k", R, G), 0)
    return Likelihood(G, B, s, R, rest, n, p - len(G))


def fit_contexts(
    model: Likelihood, *, allowed: Array | None = None, noise_free: bool = True, floor: float = 0.0
) -> Likelihood:
    """Maximise the likelihood over ``b_i >= 0`` and ``s_i`` in every context, for the A behind ``model``.

    ``allowed`` (k, r) says which loadings may differ from zero; ``noise_free=False`` keeps s; ``floor`` bounds s from
    below. Given A, contexts are independent: Fisher scoring for all at once, each with a step length of its own. Cost
    O(k r^3) a step.
    """
    k, r = model.B.shape
    allowed = np.ones((k, r), dtype=bool) if allowed is None else allowed
    # The weight of a context does not move its maximum; with n = 2 the value is the sum of deviances.
    model = replace(model, B=np.where(allowed, model.B, 0), n=np.full(k, 2.0))
    diagonal = np.arange(r + 1)
    todo = np.ones(k, dtype=bool)
    # L falls where the gradient is negative, so d = -I^-1 g. Contexts that are done have an empty mask and do not move.
    for _ in range(_CONTEXT_STEPS):
        _, gb, gs = model.gradient()
        g = np.column_stack([gb, gs])
        moving = noise_free & ((model.s > floor) | (gs < 0))
        # Unknowns at their bound that the gradient pushes further out are not free.
        mask = np.column_stack([allowed & ((model.B > 0) | (gb < 0)), moving]) & todo[:, None]
        block = np.where(mask[:, :, None] & mask[:, None, :], model.context_information(), 0)
        size = np.where(mask, np.einsum("kjj->kj", block), 1)
        # A ridge of 1e-10 of the diagonal keeps two proportional columns of P from making the block singular.
        block[:, diagonal, diagonal] = np.where(size > 0, size * (1 + 1e-10), 1)
        d = -np.linalg.solve(block, np.where(mask, g, 0)[:, :, None])[:, :, 0]
        gain = -np.einsum("kj,kj->k", np.where(mask, g, 0), d)  # twice what the quadratic model promises
        todo &= gain > _CONTEXT_GAIN
        if not todo.any():
            break
        model, improved = _line_search(model, d, gain, todo, floor)
        todo &= improved
    return model


def _line_search(model: Likelihood, d: Array, gain: Array, todo: Array, floor: float) -> tuple[Likelihood, Array]:
    """Halve the step of each context until its deviance falls; those that never do stay where they are."""
    # Deviances of contexts do not depend on one another, so that each accepts its own step length.
    t = np.where(todo, 1.0, 0.0)  # step length of each context
    improved = ~todo
    B = model.B.copy()
    s = model.s.copy()
    for _ in range(_CONTEXT_BACKTRACKS):
        # A new object, so that nothing cached at the old point survives. The noise moves on its logarithm and by a
        # bounded factor, as in ``scoring``.
        trial = replace(
            model,
            B=np.maximum(model.B + t[:, None] * d[:, :-1], 0),
            s=np.maximum(model.s * np.exp(np.clip(t * d[:, -1], -2, 2)), floor),
        )
        # With n = 2 the value is the sum of deviances, so ``gain`` is minus the slope of a context's deviance.
        better = ~improved & (trial.deviances < model.deviances - 1e-4 * t * gain)
        B[better] = trial.B[better]
        s[better] = trial.s[better]
        improved |= better
        if improved.all():
            break
        t = np.where(improved, 0, t / 2)
    return replace(model, B=B, s=s), improved
