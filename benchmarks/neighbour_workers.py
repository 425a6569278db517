"""One fit of one method, in a process of its own: ``python neighbour_workers.py METHOD INPUT.npz OUTPUT.npz``.

The interpreter is that of an environment in which the method is installed; ``neighbours.py`` starts it. Nothing but
NumPy is imported before the method is known, so that no environment needs more than its method.

INPUT has rows ``X`` (n, p) as all methods are judged by, contexts ``y`` (n,) from 0 to k - 1, ``r``, ``seed``, and
where there are any, ``counts`` (n, p), non-negative values on a linear scale. OUTPUT has

* ``axes`` (p, r): what a user reads, one column a component;
* ``scores`` (n, r) and ``basis`` (p, r): rows are ``scores basis^T``, but for noise and means;
* ``covariances`` (k, r, r) of scores by the method's formula, if it has one: ``S_i ~ basis covariances_i basis^T``;
* ``converged``, ``steps``, ``warned``, ``version``; ``wall`` and ``cpu`` seconds of the fit alone; ``peak`` and
  ``before`` in bytes: the largest resident memory of the process, and that before the fit, with everything imported.

Settings are those of the authors, by default or by their own example; the function of each method says which.
"""

from __future__ import annotations

import importlib.metadata
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

Answer = dict[str, object]


def centred(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return rows less the mean of their context."""
    means = np.array([X[y == i].mean(axis=0) for i in range(y.max() + 1)])
    return X - means[y]


def regressed(X: np.ndarray, Z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the (p, r) with which scores best predict rows within contexts, by least squares."""
    return np.linalg.lstsq(centred(Z, y), centred(X, y), rcond=None)[0].T


def _mcpca(X: np.ndarray, y: np.ndarray, r: int, seed: int, **options: str) -> Callable[[], Answer]:
    from sklearn.exceptions import ConvergenceWarning

    from mcpca import MCPCA

    def fit() -> Answer:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = MCPCA(r, random_state=seed, verbose=False, **options).fit(X, y)
        B = model.corrected_loadings_
        return {
            "axes": model.components_,
            "covariances": B[:, :, None] * np.eye(r),
            "scores": model.transform(X, y),
            "converged": not any(issubclass(w.category, ConvergenceWarning) for w in caught),
            "warned": "; ".join(sorted({w.category.__name__ for w in caught})),
        }

    return fit


def mcpca_mspm(X: np.ndarray, y: np.ndarray, r: int, seed: int, counts: None) -> Callable[[], Answer]:
    return _mcpca(X, y, r, seed)


def mcpca_auto(X: np.ndarray, y: np.ndarray, r: int, seed: int, counts: None) -> Callable[[], Answer]:
    return _mcpca(X, y, r, seed, solver="auto")


def pca(X: np.ndarray, y: np.ndarray, r: int, seed: int, counts: None) -> Callable[[], Answer]:
    from sklearn.decomposition import PCA

    def fit() -> Answer:
        U = PCA(r, random_state=seed).fit(X).components_.T
        return {"axes": U, "scores": X @ U}

    return fit


def parafac2_tensorly(X: np.ndarray, y: np.ndarray, r: int, seed: int, counts: None) -> Callable[[], Answer]:
    """Rows centred by context, as ours are; the correlations of scores are then those of the formula."""
    from tensorly.decomposition import parafac2

    n = np.bincount(y)
    most = 2000

    def fit() -> Answer:
        # Orthonormal P_i absorb any orthogonal matrix from the left: a triangle of each context serves for its rows.
        slices = [
            np.linalg.qr(part, mode="r") for part in (centred(X[y == i], 0 * y[y == i]) for i in range(y.max() + 1))
        ]
        norm = np.sqrt(sum((part**2).sum() for part in slices))
        (weights, (D, F, A), _), errors = parafac2(
            [part / norm for part in slices],
            r,
            n_iter_max=most,
            tol=1e-8,
            init="svd",
            normalize_factors=True,
            random_state=seed,
            return_errors=True,
        )
        D = D * weights * norm
        C = D[:, :, None] * (F.T @ F) * D[:, None, :] / (n - 1)[:, None, None]
        return {"axes": A, "covariances": C, "scores": X @ np.linalg.pinv(A).T, "steps": len(errors), "most": most}

    return fit


def rise(X: np.ndarray, y: np.ndarray, r: int, seed: int, counts: None) -> Callable[[], Answer]:
    """Rows less the mean of all, as ``prepare_dataset`` of the authors has them; tolerance as by default.

    The 100 iterations of the default end before that tolerance is met, so there are more.
    """
    import anndata
    import pandas as pd
    from scrise.factorization import pf2

    most = 5000
    steps = [0]
    data = anndata.AnnData(X, obs=pd.DataFrame({"condition_unique_idxs": y}, index=[str(i) for i in range(len(y))]))
    data.var["means"] = X.mean(axis=0)

    def count(iteration: int, error: float, factors: list) -> None:
        steps[0] = iteration + 1

    def fit() -> Answer:
        out = pf2(data, r, random_state=seed, doEmbedding=False, max_iter=most, parafac2_kwarg={"callback": count})
        # X_i ~ P_i B diag(a_i) C^T, with the norms of components in the weights.
        Z = out.obsm["projections"] @ out.uns["Pf2_B"] * (out.uns["Pf2_A"] * out.uns["Pf2_weights"])[y]
        axes = np.asarray(out.varm["Pf2_C"])
        return {"axes": axes, "scores": Z, "steps": steps[0], "most": most}

    return fit


def mofaflex(X: np.ndarray, y: np.ndarray, r: int, seed: int, counts: None) -> Callable[[], Answer]:
    """Take the authors' preset for MOFA: horseshoe weights, learning rate 0.05; contexts are groups."""
    import anndata
    import mofaflex
    import pandas as pd
    import torch

    torch.set_num_threads(1)
    k = y.max() + 1
    names = [f"f{j}" for j in range(X.shape[1])]
    groups = {}
    for i in range(k):
        rows = np.flatnonzero(y == i)
        about = pd.DataFrame(index=[str(row) for row in rows]), pd.DataFrame(index=names)
        groups[f"c{i}"] = {"rows": anndata.AnnData(X[rows].astype(np.float32), obs=about[0], var=about[1])}
    options = {"weight_prior": "Horseshoe", "factor_prior": "Normal", "likelihoods": "Normal"}
    most = 10_000

    def fit() -> Answer:
        fitted = mofaflex.MOFAFLEX(
            groups,
            mofaflex.DataOptions(plot_data_overview=False),
            mofaflex.ModelOptions(n_factors=r, **options),
            mofaflex.TrainingOptions(lr=0.05, device="cpu", max_epochs=most, seed=seed),
        )
        W = fitted.get_weights()["rows"].reindex(columns=names).fillna(0).to_numpy().T
        Z = np.empty((len(y), r))
        C = np.empty((k, r, r))
        means, deviations = fitted.get_factors(), fitted.get_factors(moment="std")
        for i in range(k):
            # Groups are divided by the root of their mean variance before the fit.
            size = np.sqrt(centred(X[y == i], 0 * y[y == i]).var())
            mine = means[f"c{i}"].to_numpy() * size
            Z[means[f"c{i}"].index.astype(int)] = mine
            # The variance of a factor is that of its means, and what is uncertain of each.
            unsure = (deviations[f"c{i}"].to_numpy() * size) ** 2
            C[i] = np.diag(mine.var(axis=0, ddof=1) + unsure.mean(axis=0))
        return {"axes": W, "covariances": C, "scores": Z, "steps": len(fitted.training_loss), "most": most}

    return fit


def cnmf(X: np.ndarray, y: np.ndarray, r: int, seed: int, counts: np.ndarray) -> Callable[[], Answer]:
    """Take counts, all genes, 100 runs and density threshold 0.5, by default; contexts are used after the fit only."""
    import anndata
    import matplotlib
    import pandas as pd
    from cnmf import cNMF
    from scipy.sparse import csr_matrix

    matplotlib.use("Agg")
    genes = np.flatnonzero(np.ptp(counts, axis=0) > 0)
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name) / "counts.h5ad"
    about = pd.DataFrame(index=[f"c{i}" for i in range(len(y))]), pd.DataFrame(index=[f"g{j}" for j in genes])
    anndata.AnnData(csr_matrix(counts[:, genes].astype(np.float64)), obs=about[0], var=about[1]).write_h5ad(file)

    def fit() -> Answer:
        run = cNMF(output_dir=folder.name, name="run")
        run.prepare(str(file), components=[r], n_iter=100, seed=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run.factorize()
        run.combine()
        run.consensus(k=r, density_threshold=0.5, show_clustering=False)
        usages, spectra, _, _ = run.load_results(K=r, density_threshold=0.5)
        Z = usages.loc[about[0].index].to_numpy()
        axes = np.zeros((counts.shape[1], r))
        axes[genes] = spectra.loc[about[1].index].to_numpy()
        unfinished = sum("onverge" in w.category.__name__ for w in caught)
        return {
            "axes": axes,
            # Spectra are not in the units of X: the same usages say best what X is, by regression.
            "basis": regressed(X, Z, y),
            "scores": Z,
            "converged": unfinished == 0,
            "warned": f"{unfinished} of 100 runs of NMF did not converge" if unfinished else "",
        }

    return fit


# The function, and the packages of its environment whose versions are told.
METHODS: dict[str, tuple[Callable[..., Callable[[], Answer]], tuple[str, ...]]] = {
    "mcpca": (mcpca_mspm, ("mcpca",)),
    "mcpca auto": (mcpca_auto, ("mcpca",)),
    "pca": (pca, ("scikit-learn",)),
    "parafac2": (parafac2_tensorly, ("tensorly",)),
    "rise": (rise, ("scrise", "parafac2")),
    "mofaflex": (mofaflex, ("mofaflex", "torch")),
    "cnmf": (cnmf, ("cnmf", "scikit-learn")),
}


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_bytes() -> int:
    """Return the largest resident memory so far; Linux counts it in KiB."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024


def main(method: str, source: str, target: str) -> None:
    prepare, packages = METHODS[method]
    with np.load(source) as file:
        data = dict(file)
    fit = prepare(data["X"], data["y"], int(data["r"]), int(data["seed"]), data.get("counts"))
    before = peak_bytes()
    wall, cpu = time.perf_counter(), cpu_seconds()
    answer = fit()
    answer |= {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu, "before": before, "peak": peak_bytes()}
    answer["version"] = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    answer.setdefault("basis", answer["axes"])
    answer.setdefault("warned", "")
    answer.setdefault("steps", 0)
    answer.setdefault("converged", int(answer["steps"]) < int(answer.pop("most", 1)))
    np.savez(target, **answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
