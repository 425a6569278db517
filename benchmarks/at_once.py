"""Claim: components that are found all at once are those that deflation ends with.

python benchmarks/at_once.py [--problems 400]

Random planted problems with sampling error, many of them hard: 2 to 39 contexts, 4 to 59 features, ranks up to 20, 30
to 1000 rows, noise up to 1. Each is solved twice by the power method, as it is and by deflation alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from unittest import mock

import numpy as np

from mcpca import ascore, context_covariances, decompose, match_components
from mcpca.datasets import make_contexts
from mcpca.exceptions import RankExceedsDataError


def compare(problems: int, seed: int = 1) -> tuple[Counter[str], list[str]]:
    """Return how often answers came at once and were the same, and a line for each that was another."""
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    others = []
    for trial in range(problems):
        k = int(rng.integers(2, 40))
        p = int(rng.integers(4, 60))
        r = int(rng.integers(2, min(p, 20) + 1))
        n = int(rng.choice([30, 60, 200, 1000]))
        noise = float(rng.choice([0, 0.1, 0.3, 1.0]))
        density = float(rng.choice([0.3, 1.0]))
        data = make_contexts(k, p, r, n_samples=n, noise=noise, density=density, random_state=trial)
        S = context_covariances(data.X, data.y).covariances
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ours = decompose(S, r, random_state=0)
            except RankExceedsDataError:
                counts["no such rank"] += 1
                continue
            with mock.patch("mcpca._solvers.mspm._at_once", return_value=None):
                deflated = decompose(S, r, random_state=0)
        if "do not depend on an order" not in ours.message:
            counts["by deflation"] += 1
            continue
        same = match_components(ours.components, deflated.components).cosines.min() > 1 - 1e-8
        counts["at once, the same" if same else "at once, others"] += 1
        if not same:
            errors = [1 - ascore(one.components, data.components) for one in (ours, deflated)]
            others.append(f"{k=} {p=} {r=} {n=} {noise=}: errors {errors[0]:.3f} and, deflated, {errors[1]:.3f}")
    return counts, others


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--problems", type=int, default=400)
    counts, others = compare(parser.parse_args().problems)
    for name, count in counts.most_common():
        print(f"{count:5d}  {name}")
    print(*others, sep="\n")
