"""The higher-order GSVD: eigenvectors of the mean of all quotients ``D_i D_j^-1``, as one symmetric eigenproblem.

Ponnapalli et al. take ``S = (1 / (k (k - 1))) sum_{i<j} (D_i D_j^-1 + D_j D_i^-1)``, with ``D_i = X_i^T X_i``. Since

    sum_{i != j} D_i D_j^-1 = (sum_i D_i) (sum_j D_j^-1) - k I,

with ``sum_i D_i = k R R^T`` and ``D_i = R Q_i R^T`` the eigenvectors of S are ``R Z``, where Z are the orthonormal
eigenvectors of ``T = sum_j Q_j^-1 / k``: k inverses and one ``eigh`` in place of k (k - 1) quotients and an
unsymmetric problem. An eigenvalue of S is 1 for a component with the same share in all contexts (the common subspace)
and larger otherwise. Where a ``D_i`` is singular Kempf, Goulart and Duncan put ``D_i + pi sum_j D_j``. The paper's
supplement relates the method to MCPCA in "Coupled matrix decompositions".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._utils.arguments import check_real
from ._interface import MethodOutput, Problem, method
from ._whitening import Shrinkage, whiten

_SHRINKAGE = Shrinkage("hogsvd", "pi", 1e-3, of="sum")


@method(
    "hogsvd",
    title="higher-order generalised SVD",
    citation="S. P. Ponnapalli et al., PLoS ONE 6 (2011); I. Kempf, P. J. Goulart and S. R. Duncan, SIAM J. Matrix "
    "Anal. Appl. 44 (2023) for singular contexts",
    assumptions="r linearly independent components; the mean over contexts of 1 / loading differs between components "
    "(loadings in units of their mean, plus pi).",
    cost="O(k p^3) to compress, O(k r^3)",
    in_paper=True,
)
def hogsvd(
    problem: Problem, *, pi: float | None = None, common_tol: float = 1e-3, of: str = "covariances"
) -> MethodOutput:
    """Find the shared right basis V of ``X_i = U_i diag(s_i) V^T``.

    ``pi`` is the share of ``sum_j D_j`` that is added to each ``D_i``: None means 0, and 1e-3 if a context is
    singular in the r directions; 0 raises there. The eigenvalues of S are in ``extras["eigenvalues"]``, and
    ``extras["common"]`` marks components within ``common_tol`` of 1, the common subspace. Covariances stand in for
    ``X_i^T X_i``, so contexts count alike whatever their number of rows. Cost O(k r^3), memory O(k r^2).

    ``of="products"`` takes ``X_i^T X_i`` itself, of rows as they are, as the method was published: contexts then count
    by their numbers of rows, and means of contexts are variation. It needs rows; another O(N p^2).
    """
    common_tol = check_real(common_tol, "common_tol", 0, 1e6)
    if of not in ("covariances", "products"):
        raise ValueError(f"of={of!r} is unknown; choose 'covariances', or 'products' for X_i^T X_i.")
    if of == "products":
        problem = _of_products(problem)
    k = len(problem.S)
    white, R = whiten(problem.small, np.full(k, 1 / k))
    white, notes = _SHRINKAGE.apply(problem, white, pi)
    scale = float(np.trace(white.mean(axis=0))) / problem.r  # 1 + k pi
    # In whitened coordinates the sum of the D_i is k scale I, so S there is (k^2 scale T - k I) / (k (k - 1)).
    w, Z = np.linalg.eigh(np.linalg.inv(white).mean(axis=0))
    # Of S: all contexts alike gives w = 1 / scale and so 1.
    # The mean of inverses is at least the inverse of the mean, so none is below 1 but by rounding.
    eigenvalues = np.maximum((k * scale * w - 1) / (k - 1), 1)
    common = eigenvalues <= 1 + common_tol
    notes = (*problem.compression, *notes, f"{int(common.sum())} of {problem.r} components are in the common subspace.")
    return MethodOutput(problem.lift(R @ Z), notes=notes, extras={"eigenvalues": eigenvalues, "common": common})


def _of_products(problem: Problem) -> Problem:
    """Return the problem with ``X_i^T X_i`` in place of covariances, divided by one number for all contexts."""
    rows = problem.rows
    if rows is None:
        raise ValueError(
            "of='products' needs rows, and X is a stack of covariances, from which X_i^T X_i cannot be told; pass rows."
        )
    blocks = [rows.dense_block(i).astype(np.float64) for i in range(len(rows.names))]
    # Only axes are wanted, so the scale is free; this one keeps the squares of large numbers in range.
    largest = max(max(float(np.abs(block).max(initial=0)) for block in blocks), np.finfo(float).tiny)
    D = np.stack([(block / largest).T @ (block / largest) for block in blocks])
    # A new problem, whose basis is that of the products.
    return replace(problem, S=D * (len(D) * D.shape[1] / np.einsum("kpp->", D)))
