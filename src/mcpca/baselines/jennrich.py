"""Jennrich's algorithm: two combinations of slices share the components, ``M_x M_y^-1 = C D_x D_y^-1 C^-1``.

For covariances one of the two can be the mean, ``M_y = R R^T``, which is positive definite; then the eigenvectors of
``M_x M_y^-1`` are ``R Z`` with Z the orthonormal eigenvectors of ``R^-1 M_x R^-T``: real, and found by ``eigh``.
"""

from __future__ import annotations

import numpy as np

from .._utils.types import Array
from ._interface import MethodOutput, Problem, method
from ._whitening import whiten


@method(
    "jennrich",
    title="Jennrich's algorithm (generalised eigenvalue decomposition)",
    citation="R. A. Harshman, UCLA Working Papers in Phonetics 16 (1970); S. E. Leurgans, R. T. Ross and R. B. Abel, "
    "SIAM J. Matrix Anal. Appl. 14 (1993)",
    assumptions="r linearly independent components; no two with proportional loadings; sensitive to noise.",
    cost="O(k p^3) to compress, O(k r^2 + r^3)",
    in_paper=True,
)
def jennrich(problem: Problem) -> MethodOutput:
    """Eigenvectors of a random combination of contexts relative to their mean.

    The weights of the combination are standard normal, from ``random_state``; with two contexts every combination has
    the same eigenvectors and the first is taken. Cost O(k r^2 + r^3).
    """
    C = jennrich_components(problem.small, problem.rng)
    note = "The pencil is a random combination of contexts and the mean."
    if len(problem.S) == 2:
        note = "The pencil is the two contexts'."
    return MethodOutput(problem.lift(C), notes=(*problem.compression, note))


def jennrich_components(M: Array, rng: np.random.Generator) -> Array:
    """Return components (r, r) of symmetric slices with a positive definite mean."""
    k = len(M)
    # A random combination separates all components whose loadings are not proportional, with probability one.
    mixing = np.array([1.0, 0.0]) if k == 2 else rng.standard_normal(k)
    pencil = np.stack([np.tensordot(mixing, M, axes=1), M.mean(axis=0)])
    # Weights (0, 1) whiten by the second matrix of the pencil alone, the mean.
    white, R = whiten(pencil, np.array([0.0, 1.0]))
    return np.asarray(R @ np.linalg.eigh(white[0])[1])
