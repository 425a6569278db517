"""Which MCPCs of real data are maxima of F on their own, and whether those come back more often.

python benchmarks/landscape.py --data DIR [--splits 5]

F is the objective of the paper's power method, and "own maximum" is ``MCPCA.landscape().own``. Cos in halves of the
rows is that of ``MCPCA.replicability``, mean over MCPCs; 0.9 is its threshold.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

import real_data
from mcpca import MCPCA, error_analysis
from run import as_markdown

SETS = ("tcga_mirna", "melanoma_patients", "text_human", "perturb_norman", "perturb_papalexi")
RANKS = (5, 10)


def measure(directory: str, splits: int) -> list[dict[str, Any]]:
    """Fit every set at every rank."""
    rows = []
    for name in SETS:
        data = real_data.load(name, directory)
        for r in RANKS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = MCPCA(r, random_state=0).fit(data.X, data.y)
                halves = model.replicability(data.X, data.y, n_splits=splits, random_state=1).agreement
            landscape = model.landscape()
            own = landscape.own
            rows.append(
                {
                    "set": name,
                    "p, k, r": f"{data.X.shape[1]}, {len(model.contexts_)}, {r}",
                    "F, median": float(np.median(landscape.F)),
                    "certified": int(landscape.certified.sum()),
                    "own maximum": int(own.sum()),
                    "cos in halves, own": float(halves[own].mean()) if own.any() else None,
                    "others": float(halves[~own].mean()) if not own.all() else None,
                    "(r-1) rho^2": error_analysis(model.components_, model.loadings_, 1000).condition,
                }
            )
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of data, see real_data.py")
    parser.add_argument("--splits", type=int, default=5)
    arguments = parser.parse_args()
    print(as_markdown(measure(arguments.data, arguments.splits)))
