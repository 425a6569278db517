"""Products with the exact Hessian of the negative log-likelihood, in a core; ``likelihood`` has the notation.

``scoring`` turns to it after a few steps of Fisher scoring. Fisher's information is the mean of the Hessian under the
model. If the model is not true, as for real data, the two differ at the maximum: scoring then converges linearly and
slowly, and Newton's method with the Hessian itself does not. With ``C_i = Sigma_i^-1``, ``Q_i = C_i - C_i T_i C_i``,
``F_i = C_i A``, ``H_i = Q_i A`` and a change ``dSigma_i``, the gradient ``sum_i n_i H_i B_i`` by A changes by

    sum_i n_i C_i [dA B_i + A dB_i - dSigma_i H_i B_i + T_i C_i (dSigma_i F_i B_i - dA B_i - A dB_i)],

the one by b_ij by ``n_i/2 (f_j^T dSigma_i f_j - 2 h_j^T dSigma_i f_j + 2 da_j^T h_j)``, and the one by log s_i by the
change of ``n_i/2 s_i tr Q_i``. By Woodbury ``C_i = (I + A J_i A^T) / s_i`` with J_i (r, r), so applying it costs
O(q r^2) and no (q, q) inverse is made.
"""

from __future__ import annotations

import numpy as np

from .._utils.types import Array
from .likelihood import Likelihood


class ObservedHessian:
    """The Hessian at one point: A (q, r), the model there, slices ``T`` (k, q, q), ``TA`` (r, k, q).

    Memory O(k q r); a product costs O(k q^2 r).
    """

    def __init__(self, T: Array, A: Array, model: Likelihood, TA: Array) -> None:
        self.T = T
        self.A = A
        self.model = model
        P = model.P
        N = model.N
        s = model.s
        PN = P @ N
        # Sigma^-1 = (I - A N A^T) / s + A N P N A^T: the first is the noise outside the span, the second within it.
        self.J = s[:, None, None] * (N @ PN) - N
        # C_i maps the span of A to itself and A^T C_i A = P_i, so that F_i = C_i A = A N P_i. Hence T_i C_i A = T_i A N
        # P_i comes from the images T_i A at hand.
        NP = PN.transpose(0, 2, 1)
        self.F = A @ NP  # (k, q, r)
        self.H = self.F - self._C(np.matmul(TA.transpose(1, 2, 0), NP))
        # E_i is the derivative of Q_i by s_i. Only E_i A and the trace of E_i are needed; what the trace has outside
        # the span of A follows from the variance there.
        # dC_i/ds_i = -C_i C_i gives E = -C C + C C T C + C T C C, and so E A = C (T C F - H).
        CF = self._C(self.F)
        self.EA = self._C(T @ CF - self.H)
        self.AEA = np.einsum("qj,kqj->kj", A, self.EA)
        outside = model.outside
        rest = model.rest
        PNPN = PN @ PN
        # Within the span tr Q = tr(A^T Q A N) = tr(D N); outside it C is 1 / s and T has the variance ``rest``.
        self.trace_Q = np.einsum("kab,ab->k", model.D, N)
        self.trace_E = -np.einsum("kaa->k", PNPN) + 2 * np.einsum("kab,kba->k", PNPN, P @ model.R)
        if outside:
            self.trace_Q = self.trace_Q + outside / s - rest / s**2
            self.trace_E = self.trace_E - outside / s**2 + 2 * rest / s**3

    def _C(self, M: Array) -> Array:
        """Apply ``Sigma_i^-1`` to (k, q, r)."""
        A = self.A
        return np.asarray((M + A @ (self.J @ (A.T @ M))) / self.model.s[:, None, None])

    def __call__(self, dA: Array, db: Array, dlog_s: Array) -> tuple[Array, Array, Array]:
        """Return the change of the gradient by A (q, r), b (k, r) and log s (k,)."""
        A, F, H, model = self.A, self.F, self.H, self.model
        n = model.n
        B = model.B
        ds = (model.s * dlog_s)[:, None, None]
        dAB = dA * B[:, None, :]
        # dSigma_i F_i and dSigma_i H_i, (k, q, r), with dSigma_i = dA B_i A^T + A B_i dA^T + A dB_i A^T + ds_i I; by
        # A^T F_i = P_i and A^T H_i = D_i its first and third term need no product in q dimensions.
        dSF = dAB @ model.P + A @ (B[:, :, None] * (dA.T @ F) + db[:, :, None] * model.P) + ds * F
        dSH = dAB @ model.D + A @ (B[:, :, None] * (dA.T @ H) + db[:, :, None] * model.D) + ds * H
        change = dAB + A * db[:, None, :]
        U = self.T @ self._C(dSF * B[:, None, :] - change)
        dY = self._C(change - dSH * B[:, None, :] + U)
        # h_j^T dSigma f_j = (dSigma f_j)^T h_j, so that dSF serves both products.
        out_b = np.einsum("kqj,kqj->kj", F - 2 * H, dSF) + 2 * np.einsum("qj,kqj->kj", dA, H)
        # tr dQ_i = tr(E_i dSigma_i), of which the part of ds_i is ds_i tr E_i.
        inner = 2 * np.einsum("kqj,kqj->k", dAB, self.EA) + np.einsum("kj,kj->k", db, self.AEA)
        out_s = model.s * (dlog_s * (self.trace_Q + model.s * self.trace_E) + inner)
        return np.tensordot(n, dY, axes=1), n[:, None] / 2 * out_b, n / 2 * out_s
