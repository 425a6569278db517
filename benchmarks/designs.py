"""Planted problems outside the model, as real rows are: skewed, heavy-tailed, with bad rows, unequal noise, few rows.

Every design has 12 contexts, 30 features and 5 components unless it says otherwise, noise of standard deviation 0.7
(a variance of 0.49, half of a typical loading) and a density of B of 0.6. ``draw`` returns the rows with the truth
behind them: loadings are variances of the scores, noise is by context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Drawn(NamedTuple):
    """Rows (n, p), contexts (n,), and the truth: components (p, r), loadings (k, r), noise (k, p), scores (n, r)."""

    X: np.ndarray
    y: np.ndarray
    components: np.ndarray
    loadings: np.ndarray
    noise: np.ndarray
    bad: np.ndarray  # which rows were spoilt (n,)
    scores: np.ndarray


@dataclass(frozen=True)
class Design:
    """How rows are drawn.

    ``noise_sd`` is a number, or (low, high) between which the standard deviations of contexts are spread evenly in the
    logarithm; ``rows`` is a number, or (few, many) spread in the same way. ``tails`` is "normal", "skewed" (scores are
    centred exponentials), "t3" or "t5" (whole rows are multiplied, so that all features of a row are large together).
    ``bad`` is a share of rows that are six times too large; ``by_feature`` spreads the noise of features, too;
    ``collinear`` is what each component has of one direction that all share.
    """

    k: int = 12
    p: int = 30
    r: int = 5
    rows: Any = 300
    noise_sd: Any = 0.7
    density: float = 0.6
    tails: str = "normal"
    bad: float = 0.0
    by_feature: bool = False
    collinear: float = 0.0


DESIGNS = {
    "base": Design(),
    "weak": Design(noise_sd=1.2),
    "noise by feature": Design(by_feature=True),
    "skewed": Design(tails="skewed"),
    "unequal n": Design(rows=(100, 1000)),
    "noise by context": Design(noise_sd=(0.3, 1.2)),
    "p=100, n=30": Design(p=100, rows=30),
    "row t5": Design(tails="t5"),
    "row t3": Design(tails="t3"),
    "1% bad rows": Design(bad=0.01),
    "noise sd 0.1 to 1.5": Design(noise_sd=(0.1, 1.5)),
    "noise by feature and context": Design(noise_sd=(0.3, 1.2), by_feature=True),
    "collinear": Design(collinear=0.8),
    "p=1000, n=40": Design(p=1000, rows=40),
    "p=2000, n=50": Design(p=2000, rows=50),
}


def _spread(value: Any, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``value`` k times, or k numbers between its two ends, evenly in the logarithm and in random order."""
    if np.ndim(value) == 0:
        return np.full(k, float(value))
    return rng.permutation(np.geomspace(*value, k))


def draw(design: Design, seed: int, truth_seed: int | None = None) -> Drawn:
    """Draw a data set; with ``truth_seed`` the truth is that of another seed, and only rows are new."""
    rng = np.random.default_rng([seed if truth_seed is None else truth_seed, 1])
    k, p, r = design.k, design.p, design.r
    A = rng.standard_normal((p, r))
    A /= np.linalg.norm(A, axis=0)
    if design.collinear:
        common = np.linalg.qr(rng.standard_normal((p, 1)))[0]
        A = np.sqrt(1 - design.collinear**2) * A + design.collinear * common
        A /= np.linalg.norm(A, axis=0)
    present = rng.random((k, r)) < design.density
    # Each component in two contexts at least, or its loadings are proportional to those of another too easily.
    for j in range(r):
        present[rng.choice(k, min(2, k), replace=False), j] = True
    B = (0.5 + rng.gamma(2.0, 0.5, size=(k, r))) * present
    sd = _spread(design.noise_sd, k, rng)
    counts = _spread(design.rows, k, rng).astype(int)
    features = np.exp(0.5 * rng.standard_normal(p)) if design.by_feature else np.ones(p)
    features /= np.sqrt(np.mean(features**2))
    rng = np.random.default_rng([seed, 2])
    blocks = []
    scores = []
    for i, n in enumerate(counts):
        Z = rng.exponential(size=(n, r)) - 1 if design.tails == "skewed" else rng.standard_normal((n, r))
        Z *= np.sqrt(B[i])
        X = Z @ A.T + sd[i] * features * rng.standard_normal((n, p))
        if design.tails in ("t3", "t5"):
            nu = int(design.tails[1])
            # Scaled so that the covariance stays that of the model: a t has nu / (nu - 2) times its scatter.
            lengths = np.sqrt((nu - 2) / rng.chisquare(nu, size=(n, 1)))
            X *= lengths
            Z *= lengths
        scores.append(Z)
        blocks.append(X)
    X = np.concatenate(blocks)
    bad = rng.random(len(X)) < design.bad
    X[bad] *= 6
    return Drawn(X, np.repeat(np.arange(k), counts), A, B, np.outer(sd**2, features**2), bad, np.concatenate(scores))
