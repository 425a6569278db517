"""Claims: as accurate as the reference on planted problems, and independent of the seed.

The mean of 1 - Ascore is to be at most 1.05 times the reference's on the same data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mcpca import ascore, context_covariances, decompose
from problems import SHAPES


def measure(reference: Callable | None, trials: int, log: Callable[[str], None]) -> list[dict]:
    rows = []
    for shape in SHAPES:
        n = max(1, trials // 8) if shape.k > 1000 else trials
        ours = []
        theirs = []
        same = 0
        for seed in range(n):
            data = shape.draw(1000 + seed)
            S = context_covariances(data.X, data.y).covariances
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                first, second = (decompose(S, shape.r, random_state=s).components for s in (seed, n + seed))
            ours.append(1 - ascore(first, data.components))
            same += int(np.abs(first - second).max() < 1e-6)
            if reference:
                theirs.append(1 - ascore(reference(S, shape.r, seed)[0], data.components))
        ratio = np.mean(ours) / np.mean(theirs) if theirs else None
        rows.append(
            {
                "shape": shape.name,
                "trials": n,
                "1 - Ascore": np.mean(ours),
                "standard error": np.std(ours, ddof=1) / np.sqrt(n) if n > 1 else None,
                "reference": np.mean(theirs) if theirs else None,
                "ratio": ratio,
                "bar <=": 1.05,
                "two seeds agree to 1e-6": f"{same} of {n}",
            }
        )
        log(f"accuracy  {shape.name}: {np.mean(ours):.3e}, ratio {ratio}")
    return rows
