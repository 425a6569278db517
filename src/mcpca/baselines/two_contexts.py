"""Methods for two contexts, all of them eigenproblems of the symmetric pencil ``(S_1, S_2)``.

The paper's supplement compares MCPCA with the first two in "Two-context methods".

* GSVD: ``X_1 = U_1 C V^T``, ``X_2 = U_2 S V^T``, so ``S_1 = V C^2 V^T`` and ``S_2 = V S^2 V^T``: the model at k = 2;
* contrastive PCA: top eigenvectors of ``S_1 - alpha S_2``;
* generalised contrastive PCA: ``max x^T (S_1 - S_2) x / x^T (S_1 + S_2) x``, with no alpha to choose.
"""

from __future__ import annotations

import numpy as np

from .._utils.arguments import check_integer, check_real
from .._utils.types import Array
from ._interface import MethodOutput, Problem, method
from ._whitening import whiten


@method(
    "gsvd",
    title="generalised SVD",
    citation="O. Alter, P. O. Brown and D. Botstein, PNAS 100 (2003); C. C. Paige and M. A. Saunders, SIAM J. Numer. "
    "Anal. 18 (1981)",
    assumptions="Two contexts; r linearly independent components; ratios b_1j / b_2j distinct (0 and infinity allowed, "
    "once each).",
    cost="O(p^3) to compress, O(r^3)",
    contexts=(2, 2),
)
def gsvd(problem: Problem) -> MethodOutput:
    """Find V of the generalised SVD by ``S_1 + S_2 = R R^T`` and an eigendecomposition of ``R^-1 S_1 R^-T``.

    Neither covariance is inverted, so both may be singular. ``extras["share"]`` is ``b_1j / (b_1j + b_2j)``, the
    squared cosine of the generalised singular value's angle. Cost O(r^3).
    """
    # The two whitened matrices add up to 2 I, so the eigenvectors of one are those of the other.
    white, R = whiten(problem.small, np.full(2, 0.5))
    # w_j = 2 b_1j / (b_1j + b_2j), between 0 and 2.
    w, Z = np.linalg.eigh(white[0])
    return MethodOutput(problem.lift(R @ Z), notes=problem.compression, extras={"share": np.clip(w / 2, 0, 1)})


@method(
    "cpca",
    title="contrastive PCA",
    citation="A. Abid, M. J. Zhang, V. K. Bagaria and J. Zou, Nat. Commun. 9 (2018)",
    assumptions="Two contexts; A orthonormal; contrasts b_1j - alpha b_2j distinct, and positive if r < p.",
    cost="O(p^3)",
    contexts=(2, 2),
)
def cpca(problem: Problem, *, alpha: float = 1.0, foreground: int = 0) -> MethodOutput:
    """Top r eigenvectors of ``S_foreground - alpha S_background``.

    ``foreground`` is the position, 0 or 1, of the context of interest. ``extras["contrast"]`` are the eigenvalues, in
    units of the mean variance of a feature. Cost O(p^3).
    """
    alpha = check_real(alpha, "alpha", 0, 1e12, "It weighs the background against the foreground.")
    front, back = _sides(problem.S, foreground)
    # Indefinite: the top eigenvalues are the most positive ones, not the largest in size.
    w, V = np.linalg.eigh(front - alpha * back)
    w = w[::-1][: problem.r]
    V = V[:, ::-1][:, : problem.r]
    note = f"Foreground is context {problem.names[int(foreground)]!r}, alpha={alpha:g}."
    if w[-1] <= 0:
        note += f" {int((w <= 0).sum())} of the {problem.r} contrasts are not positive."
    return MethodOutput(V, notes=(note,), extras={"contrast": w})


@method(
    "gcpca",
    title="generalised contrastive PCA",
    citation="E. F. de Oliveira, P. Garg, J. Hjerling-Leffler, R. Batista-Brito and L. Sjulson, PLoS Comput. Biol. 21 "
    "(2025), version 4",
    assumptions="Two contexts; A orthonormal (any independent columns with patterns=True); ratios b_1j / b_2j "
    "distinct.",
    cost="O(p^3)",
    contexts=(2, 2),
)
def gcpca(problem: Problem, *, foreground: int = 0, patterns: bool = False) -> MethodOutput:
    """Top r directions by ``x^T (S_1 - S_2) x / x^T (S_1 + S_2) x``, within the range of ``S_1 + S_2``.

    The x are directions to project on, rows of ``A^-1`` in the model; with ``patterns=True`` the components are
    ``(S_1 + S_2) x``, which are the columns of A, as of the GSVD. ``extras["contrast"]`` are the ratios, between -1 and
    1. Cost O(p^3).
    """
    if not isinstance(patterns, (bool, np.bool_)):
        raise ValueError(f"patterns={patterns!r}; choose True or False.")
    front, back = _sides(problem.S, foreground)
    w, Q = np.linalg.eigh(front + back)
    # Outside the range of the sum both variances are zero, and the ratio is 0 / 0.
    in_range = w > 10 * np.finfo(float).eps * len(w) * w[-1]
    Q = Q[:, in_range]
    root = np.sqrt(w[in_range])
    inverse = Q / root
    # With y = R^T x and S_1 + S_2 = R R^T the ratio is y^T R^-1 (S_1 - S_2) R^-T y over y^T y.
    contrast, Z = np.linalg.eigh(inverse.T @ (front - back) @ inverse)
    contrast = contrast[::-1][: problem.r]
    Z = Z[:, ::-1][:, : problem.r]
    # (S_1 + S_2) x = R R^T R^-T y = R y.
    A = (Q * root) @ Z if patterns else inverse @ Z
    note = f"Foreground is context {problem.names[int(foreground)]!r}; components are "
    note += "patterns, (S_1 + S_2) x." if patterns else "directions to project on; patterns=True gives columns of A."
    return MethodOutput(A, notes=(note,), extras={"contrast": np.clip(contrast, -1, 1)})


def _sides(S: Array, foreground: int) -> tuple[Array, Array]:
    """Return foreground and background."""
    front = check_integer(foreground, "foreground", 0, 1, "It is the position of the context of interest.")
    return S[front], S[1 - front]
