"""Claim: where noise follows a covariate and loadings do not, ``associate`` finds nothing, since noise is taken out.

Two groups of ten contexts with noise of standard deviation 0.5 and 0.8, and the same distribution of loadings: strong
MCPCs, weak ones, weak ones that half of the contexts lack, and weak ones in which contexts hardly differ. Every
"significant" MCPC is a false positive; the bar is 0.05 +- 0.02 at level 0.05. Loadings as fitted have the noise in
them, and are shown beside it. Data sets have the seeds 1000, 1001, ...; none of them was used to choose anything.

The last two designs miss the bar by least squares: the angle of a weak MCPC to the truth is up to 40 degrees, axes
follow the noise of the contexts that they are fitted to, and loadings of these contexts on them are too large by a
little that grows with the noise. With the true axes there is no such bias; ``cross_fit=1``, which takes loadings in
other rows than axes, and ``solver="ml"``, which weighs contexts by their noise, have next to none.

With ``--data DIR`` also the correlation of loadings with the depth of sequencing, over the guides or perturbations of
real screens: floors follow depth, and loadings as fitted follow floors.

python benchmarks/association.py [--data-sets 100] [--power] [--data DIR]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from scipy.stats import binomtest, spearmanr
from sklearn.decomposition import PCA

from mcpca import MCPCA, match_components
from mcpca.analysis import associate
from mcpca.exceptions import UnequalNoiseWarning
from run import as_markdown

_FIRST_SEED = 1000
_SDS = (0.5, 0.8)  # of the noise, in the two groups
_K, _P, _ROWS = 20, 30, 300
_WEAK = np.array([0.8, 0.65, 0.5, 0.4, 0.3])
# Mean loadings of the MCPCs, the share of contexts that have each, and the shape of the gamma distribution they are
# drawn from: contexts differ by 1 / sqrt(shape) of the mean, which also tells the MCPCs apart.
DESIGNS = {
    "strong": (np.array([4.0, 3.0, 2.5, 2.0, 1.5]), 1.0, 4),
    "strong and weak": (np.array([4.0, 2.0, 1.0, 0.5, 0.25]), 0.7, 4),
    "weak": (_WEAK, 1.0, 4),
    "weak, absent in half": (_WEAK, 0.5, 4),
    "weak, nearly equal": (_WEAK, 1.0, 25),
}
# How loadings are obtained: parameters of the model, and whether they are corrected.
WAYS = {
    "mspm, as fitted": ({"solver": "mspm"}, False),
    "mspm, corrected": ({"solver": "mspm"}, True),
    "lsq, corrected": ({"solver": "lsq"}, True),
    "mspm, cross-fitted": ({"solver": "mspm", "cross_fit": 1}, True),
    "ml": ({"solver": "ml"}, True),
}


def draw(design: str, seed: int, effect: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, contexts, groups of contexts and A; loadings of the second group are ``effect`` times as large."""
    rng = np.random.default_rng(seed)
    means, density, shape = DESIGNS[design]
    r = len(means)
    A = rng.standard_normal((_P, r))
    A /= np.linalg.norm(A, axis=0)
    groups = rng.permutation(np.repeat([0, 1], _K // 2))
    B = rng.gamma(shape, means / shape, size=(_K, r)) * (rng.random((_K, r)) < density)
    B[groups == 1] *= effect
    sd = np.array(_SDS)[groups]
    Z = rng.standard_normal((_K, _ROWS, r)) * np.sqrt(B)[:, None, :]
    X = Z @ A.T + sd[:, None, None] * rng.standard_normal((_K, _ROWS, _P))
    return X.reshape(-1, _P), np.repeat(np.arange(_K), _ROWS), groups, A


def measure(n_data_sets: int, effect: float = 1.0) -> list[dict]:
    """Return the share of MCPCs with p <= 0.05 for each design and way, with its 95% interval."""
    rows = []
    for design in DESIGNS:
        rejected: dict[str, list[bool]] = {way: [] for way in WAYS}
        for seed in range(_FIRST_SEED, _FIRST_SEED + n_data_sets):
            X, y, groups, A = draw(design, seed, effect)
            covariate = np.where(groups == 1, "b", "a")
            models: dict[str, MCPCA] = {}
            for way, (parameters, corrected) in WAYS.items():
                fit = str(parameters)
                if fit not in models:
                    models[fit] = MCPCA(A.shape[1], random_state=seed, **parameters).fit(X, y)
                table = associate(models[fit], covariate, corrected=corrected).table
                order = match_components(models[fit].components_, A).indices
                rejected[way] += (table["p"].to_numpy()[order] <= 0.05).tolist()
        row: dict[str, object] = {"loadings": design, "MCPCs": len(rejected["ml"])}
        for way, values in rejected.items():
            low, high = binomtest(sum(values), len(values)).proportion_ci(method="wilson")
            row[way] = f"{np.mean(values):.3f} ({low:.3f} to {high:.3f})"
        rows.append(row | {"bar, corrected": "0.03 to 0.07" if effect == 1 else ""})
    return rows


def _guides_of_papalexi(directory: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log-normalised counts, the guide of each cell, and the counts of a cell."""
    data = np.load(directory / "perturb_papalexi" / "papalexi_thp1_counts.npz")
    shape = len(data["context"]), len(data["genes"])
    counts = csr_matrix((data["data"], data["indices"], data["indptr"]), shape=shape).toarray().astype(np.float64)
    sizes = counts.sum(axis=1)
    some = sizes > 0
    X = np.log1p(counts[some] * (np.median(sizes[some]) / sizes[some])[:, None])
    return X, data["grna"][some], sizes[some]


def _perturbations_of_norman(directory: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = np.load(directory / "perturb_norman" / "norman2019_k562_subset.npz")
    return data["X"].astype(np.float64), data["context"], data["ncounts"].astype(np.float64)


REAL = {"perturb_papalexi": _guides_of_papalexi, "perturb_norman": _perturbations_of_norman}


def depths(directory: Path, least_rows: int = 60, n_axes: int = 30, rank: int = 10) -> list[dict]:
    """Return rank correlations of loadings, and of the floor, with the mean depth of contexts."""
    rows = []
    for name, read in REAL.items():
        X, y, sizes = read(directory)
        names, counts = np.unique(y, return_counts=True)
        keep = np.isin(y, names[counts >= least_rows])
        X, y, sizes = X[keep], y[keep], sizes[keep]
        X = PCA(n_axes, svd_solver="full").fit_transform(X[:, np.ptp(X, axis=0) > 0])
        fits = {solver: MCPCA(rank, solver=solver, random_state=0).fit(X, y) for solver in ("mspm", "ml")}
        mspm = fits["mspm"]
        depth = np.array([sizes[y == context].mean() for context in mspm.contexts_])
        kinds = {
            "mspm, as fitted": mspm.loadings_,
            "mspm, corrected": mspm.corrected_loadings_,
            "ml": fits["ml"].loadings_,
        }
        floor = spearmanr(mspm.noise_variance_, depth)[0]
        for kind, B in kinds.items():
            rho = np.array([spearmanr(b, depth)[0] for b in B.T])
            p = associate(fits["ml" if kind == "ml" else "mspm"], depth, corrected=kind != "mspm, as fitted").table["p"]
            rows.append(
                {
                    "data": f"{name}, {len(depth)} contexts, depth {depth.min():.0f} to {depth.max():.0f}",
                    "loadings": kind,
                    "floor with depth": floor,
                    **{f"MCPC {j + 1}": f"{value:.2f}" for j, value in enumerate(rho)},
                    "median of absolute": float(np.median(np.abs(rho))),
                    "p <= 0.05": f"{int((p <= 0.05).sum())} of {rank}",
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=100)
    parser.add_argument("--power", action="store_true", help="also with loadings 1.5 times as large in one group")
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnequalNoiseWarning)  # it is what this is about
        print("Share of MCPCs with p <= 0.05, groups alike but for noise (95% interval)\n")
        print(as_markdown(measure(arguments.data_sets)))
        if arguments.power:
            print("\nThe same with loadings 1.5 times as large in the group with more noise\n")
            print(as_markdown(measure(arguments.data_sets, 1.5)))
            print("\n... in the group with less noise\n")
            print(as_markdown(measure(arguments.data_sets, 1 / 1.5)))
        if arguments.data is not None:
            print("\nSpearman's correlation with the mean depth of contexts\n")
            print(as_markdown(depths(arguments.data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
