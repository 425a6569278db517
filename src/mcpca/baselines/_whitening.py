"""Whitening by the mean, with which most methods of joint diagonalisation begin, and shrinkage towards it.

In the model ``M_i = C diag(b_i) C^T`` whitening makes C orthogonal, up to the scale of columns.

With ``mean M_i = R R^T`` the matrices ``R^-1 M_i R^-T`` have mean I, so they share orthonormal eigenvectors Z, and
``C = R Z``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._utils.arguments import check_real
from .._utils.types import Array
from ._interface import Problem

_SINGULAR = 1e-10  # smallest eigenvalue, of the mean's, of a context that is not inverted as it is


def whiten(M: Array, weights: Array) -> tuple[Array, Array]:
    """Return ``R^-1 M_i R^-T`` (k, r, r) and R (r, r). Cost O(k r^3)."""
    w, Q = np.linalg.eigh(np.tensordot(weights, M, axes=1))
    # Smaller eigenvalues are rounding, and dividing by them would blow it up.
    root = np.sqrt(np.maximum(w, np.finfo(float).eps * w[-1]))
    # R = Q diag(root), so R^-T = Q diag(1 / root): no linear system is solved.
    inverse = Q / root
    white = inverse.T @ M @ inverse
    return (white + white.transpose(0, 2, 1)) / 2, Q * root


@dataclass(frozen=True)
class Shrinkage:
    """How a method that inverts covariances makes singular ones regular: by a share of the mean or of the sum.

    ``M_i + s mean M_i = C diag(b_i + s mean b_i) C^T``: in the model no component moves. ``default`` is the share if
    the user leaves the option at None and some context is singular.
    """

    method: str
    option: str
    default: float
    of: str = "mean"

    def apply(self, problem: Problem, white: Array, share: float | None) -> tuple[Array, tuple[str, ...]]:
        """Return whitened covariances, whose mean is I, with the share added, and notes. Cost O(k r^3)."""
        way_out = f"It is a share of the {self.of} of covariances; None chooses."
        share = share if share is None else check_real(share, self.option, 0, 1e6, way_out)
        # Whitened, the mean is I: eigenvalues are shares of the mean's variance in the same direction.
        smallest = np.linalg.eigvalsh(white)[:, 0]
        singular = np.flatnonzero(smallest <= _SINGULAR)
        if share == 0 and singular.size:
            i = int(singular[0])
            raise ValueError(
                f"Context {problem.names[i]!r} has a singular covariance within the r={problem.r} directions that all "
                f"contexts vary in (smallest eigenvalue {max(smallest[i], 0):.1e} of the mean's), and {self.method} "
                f"with {self.option}=0 inverts it. Leave {self.option} at None or pass {self.option}={self.default:g}, "
                f"which adds that share of the {self.of} of covariances to every context; or lower r."
            )
        if not share and not singular.size:
            return white, ()
        share = self.default if share is None else share
        why = f" since {singular.size} of {len(white)} are singular there" if singular.size else ""
        note = (
            f"{self.option}={share:g} of the {self.of} of covariances was added to every context{why}; in the model "
            "that moves no component."
        )
        # In whitened coordinates the mean of the covariances is I, and their sum k I.
        amount = share * (len(white) if self.of == "sum" else 1)
        return white + amount * np.eye(white.shape[1]), (note,)
