"""Gaussian contexts with planted components: the paper's model and its synthetic experiment (Fig. 2B)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._utils.arguments import as_generator, check_integer, check_rank, check_real, one_random_state
from .._utils.printing import Shown, counted
from .._utils.types import Array


@dataclass(frozen=True, repr=False)
class PlantedContexts(Shown):
    """Rows, their contexts, and the truth behind them.

    Attributes
    ----------
    X : array (n, p)
        Rows, those of a context together.
    y : array (n,)
        Contexts, numbered from 0.
    components : array (p, r)
    loadings : array (k, r)
    noise : float
        Standard deviation of the noise that was added to every feature.
    """

    X: Array
    y: Array
    components: Array
    loadings: Array
    noise: float

    def _words(self) -> list[str]:
        (n, p), (k, r) = self.X.shape, self.loadings.shape
        return [
            f"{counted(n, 'row')} of {counted(k, 'context')} and {counted(p, 'feature')}, with {counted(r, 'MCPC')} "
            f"planted and noise of standard deviation {self.noise:g}."
        ]

    @property
    def covariances(self) -> Array:
        """The population covariances ``A diag(b_i) A^T + noise^2 I`` (k, p, p)."""
        A = self.components
        # A (p, r) scaled by each row of loadings is (k, p, r): one product for all contexts, and no diagonal matrix.
        return (A * self.loadings[:, None, :]) @ A.T + self.noise**2 * np.eye(len(A))


def make_contexts(
    n_contexts: int = 10,
    n_features: int = 30,
    n_components: int = 5,
    *,
    n_samples: int = 200,
    density: float = 1.0,
    noise: float = 0.0,
    orthogonal: bool = False,
    random_state: Any = None,
    rng: Any = None,
) -> PlantedContexts:
    """Draw rows from ``N(0, A diag(b_i) A^T + noise^2 I)`` in each context.

    Parameters
    ----------
    n_contexts, n_features, n_components : int
        k, p and r.
    n_samples : int
        Rows per context.
    density : float
        Probability with which an entry of B is not zero; every component is present in at least one context. Entries
        that are not zero are absolute values of standard normals.
    noise : float
        Standard deviation of the noise.
    orthogonal : bool
        Whether A, a Gaussian matrix with columns of norm 1, is orthonormalised.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None

    Returns
    -------
    PlantedContexts

    Notes
    -----
    The paper's experiment is ``make_contexts(50, 100, 60, n_samples=1000, density=0.2)``.
    """
    k = check_integer(n_contexts, "n_contexts", 1)
    p = check_integer(n_features, "n_features", 1)
    r = check_rank(n_components, p)
    n = check_integer(n_samples, "n_samples", 1)
    density = check_real(density, "density", 0, 1)
    noise = check_real(noise, "noise", 0, np.inf)
    rng = as_generator(one_random_state(rng, random_state))
    # A (p, r), B (k, r). Drawn before the rows: a seed gives the same truth whatever n_samples and noise are.
    A = rng.standard_normal((p, r))
    # Columns of norm 1 either way, as the model asks for: the scale of a component is in its loadings.
    A = np.linalg.qr(A)[0] if orthogonal else A / np.linalg.norm(A, axis=0)
    # Drawn for absent entries too, so that the size of one does not depend on which others are present.
    sizes = np.abs(rng.standard_normal((k, r)))
    is_present = rng.random((k, r)) < density
    # A component that is in no context would not be in the data at all: give it one at random.
    absent = np.flatnonzero(~is_present.any(axis=0))
    is_present[rng.integers(k, size=len(absent)), absent] = True
    B = sizes * is_present
    # x = A diag(b_i)^(1/2) z with z ~ N(0, I_r) has covariance A diag(b_i) A^T.
    X = np.empty((k * n, p))
    # Context by context: the standard normals of all rows at once would take up to as much memory again as X.
    for i in range(k):
        X[i * n : (i + 1) * n] = (rng.standard_normal((n, r)) * np.sqrt(B[i])) @ A.T
    # Noise last, and none drawn if there is none: the signal is the same with and without it.
    if noise:
        X += noise * rng.standard_normal(X.shape)
    return PlantedContexts(X, np.repeat(np.arange(k), n), A, B, noise)
