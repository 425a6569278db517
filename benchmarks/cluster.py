"""Claim: on Dask, with two worker processes, 1 GB of rows takes at most 1.5 times what it takes in memory.

In memory BLAS has two threads; each worker has one. The workers read the rows from a file and keep them (``persist``)
before time is taken, as they are in memory on the other side. Also: both give the same A and B, and two runs on Dask
the very same.

Run: python benchmarks/cluster.py [--gigabytes 1] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

# Before BLAS is loaded. Workers inherit the one thread; this process gets its two back below.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from threadpoolctl import threadpool_limits

import mcpca._covariances.fit_data
from mcpca import MCPCA, context_covariances

P = 500  # features
K = 10  # contexts
R = 10  # rank
BLOCK_BYTES = 2**26  # of a Dask block
BAR = 1.5  # times the seconds in memory
TOLERANCE = 1e-8  # between A and B of both


def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((P, R)) / np.sqrt(P)
    B = rng.gamma(0.5, 20.0, (K, R))
    y = rng.integers(0, K, n)
    X = np.empty((n, P))
    for start in range(0, n, 10_000):
        own = y[start : start + 10_000]
        Z = rng.standard_normal((len(own), R)) * np.sqrt(B[own])
        X[start : start + 10_000] = Z @ A.T + 0.1 * rng.standard_normal((len(own), P)) + 1
    return X, y


@dask.delayed
def read(path: str, start: int, stop: int) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[start:stop])


def timed(call, repeats: int) -> tuple[float, list]:
    times = []
    results = []
    for _ in range(repeats):
        start = time.perf_counter()
        results.append(call())
        times.append(time.perf_counter() - start)
    return float(np.median(times)), results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    n = int(options.gigabytes * 1e9 / (8 * P))
    X, y = draw(n)
    order = np.argsort(y, kind="stable")
    print(f"{n} x {P} float64, {X.nbytes / 1e9:.2f} GB, {K} contexts, rank {R}; medians of {options.repeats} runs")
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with tempfile.TemporaryDirectory() as folder, LocalCluster(**settings) as cluster, Client(cluster):
        for name, rows, labels in (("shuffled", X, y), ("sorted by context", X[order], y[order])):
            np.save(f"{folder}/rows.npy", rows)
            step = max(1, BLOCK_BYTES // (8 * P))
            parts = [
                da.from_delayed(read(f"{folder}/rows.npy", start, start + step), (min(step, n - start), P), float)
                for start in range(0, n, step)
            ]
            remote = da.concatenate(parts).persist()
            wait(remote)
            measures = {
                "covariances": lambda X, y: context_covariances(X, y),
                "fit": lambda X, y: MCPCA(R, random_state=0).fit(X, y),
                "fit by passes": lambda X, y: MCPCA(R, random_state=0).fit(X, y),
            }
            for measure, call in measures.items():
                most = mcpca._covariances.fit_data.MOST_NUMBERS
                mcpca._covariances.fit_data.MOST_NUMBERS = 0 if measure == "fit by passes" else most
                with threadpool_limits(2):
                    there, (first, *others) = timed(lambda call=call, r=remote, v=labels: call(r, v), options.repeats)
                    here, (twin, *_) = timed(lambda call=call, r=rows, v=labels: call(r, v), options.repeats)
                mcpca._covariances.fit_data.MOST_NUMBERS = most
                bar = "" if measure == "fit by passes" else f" (at most {BAR})"
                print(f"{name}, {measure}: in memory {here:.2f} s, Dask {there:.2f} s, ratio {there / here:.2f}{bar}")
                if measure != "covariances":
                    a = np.abs(first.components_ - twin.components_).max()
                    b = np.abs(first.loadings_ - twin.loadings_).max() / twin.loadings_.max()
                    same = all((first.components_ == other.components_).all() for other in others)
                    print(f"    A differs by {a:.1e}, B by {b:.1e} (at most {TOLERANCE}); runs identical: {same}")


if __name__ == "__main__":
    main()
