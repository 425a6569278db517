"""Claim: nominal 95% intervals cover between 92% and 98%, and tests of presence keep their level.

Planted problems; loadings that are present (above 0.05), and absent ones for the tests. The loadings of one data set
err together, so that data sets count and not loadings: standard errors, which cost little, are looked at in five times
as many as the bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mcpca import MCPCA, match_components
from mcpca.datasets import make_contexts

_MORE = 5
# name, contexts, features, rank, samples, noise sd, density
PROBLEMS = [
    ("small", 8, 15, 4, 300, 0.4, 0.6),
    ("noisy", 10, 30, 4, 400, 0.8, 0.6),
    ("many contexts", 30, 20, 6, 200, 0.3, 0.4),
    ("full rank", 8, 5, 5, 500, 0.3, 1.0),
]


def measure(trials: int, resamples: int, log: Callable[[str], None]) -> list[dict]:
    rows = []
    for name, k, p, r, n, noise, density in PROBLEMS:
        hits: dict[str, list[bool]] = {"Fisher": [], "bootstrap": [], "angle": [], "rejected": [], "found": []}
        for seed in range(_MORE * trials):
            data = make_contexts(k, p, r, n_samples=n, noise=noise, density=density, random_state=seed)
            model = MCPCA(r, solver="ml", random_state=seed).fit(data.X, data.y)
            match = match_components(model.components_, data.components)
            order = match.indices
            truth = data.loadings
            present = truth > 0.05
            absent = truth == 0
            errors = model.standard_errors()
            lower, upper = (end[:, order] for end in errors.intervals(model.loadings_))
            hits["Fisher"] += ((lower <= truth) & (truth <= upper))[present].tolist()
            tests = model.presence()
            hits["rejected"] += (tests.p_values[:, order] <= 0.05)[absent].tolist()
            hits["found"] += tests.present[:, order][truth > 0.2].tolist()
            if seed >= trials:
                continue
            spread = model.bootstrap(data.X, data.y, resamples, random_state=seed)
            inside = (spread.lower[:, order] <= truth) & (truth <= spread.upper[:, order])
            hits["bootstrap"] += inside[present].tolist()
            angles = np.degrees(np.arccos(np.minimum(match.cosines, 1)))
            hits["angle"] += (angles <= spread.angle_bounds[order]).tolist()
        share = {key: float(np.mean(values)) if values else None for key, values in hits.items()}
        rows.append(
            {
                "problem": f"{name} (k={k}, p={p}, r={r}, n={n}, noise {noise:g})",
                "data sets": f"{_MORE * trials}, {trials} for the bootstrap",
                "coverage of 95%: standard errors": share["Fisher"],
                "bootstrap": share["bootstrap"],
                "bootstrap cone of an MCPC": share["angle"],
                "bar": "0.92 to 0.98",
                "absent loadings with p <= 0.05": share["rejected"],
                "loadings > 0.2 found at 5% FDR": share["found"],
            }
        )
        log(f"intervals  {name}: {share}")
    return rows
