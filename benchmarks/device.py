"""Claim: the answer does not depend on where the arrays are. How much faster or slower each place is than NumPy.

``python benchmarks/device.py`` times ``decompose`` from covariances and ``MCPCA.fit`` from rows, both on the device
already, with every library and device that is found: NumPy, PyTorch on the CPU and on GPUs, CuPy, JAX. The ratios are
NumPy's median time by the other's, from repetitions that alternate in one run: above 1 the device is faster. On a CPU
set OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to 1, or the threads of one library wait for those of the other.

``--sparse`` times fits of sparse rows by passes instead, CSR of PyTorch and CuPy against SciPy's: counts of cells after
log1p (``flat_cells.py``), so many ``--rows`` and ``--features`` that covariances would be too large.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from flat_cells import FlatCells, log1p_of
from mcpca import MCPCA, ascore, context_covariances, decompose
from problems import SHAPES, Shape


@dataclass(frozen=True)
class Place:
    """A library on a device: ``send`` takes NumPy's array there."""

    name: str
    send: Callable[[np.ndarray], Any]
    double: bool = True
    send_sparse: Callable[[Any], Any] | None = None


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def find_places() -> Iterator[Place]:
    torch = _module("torch")
    if torch is not None:
        yield Place("PyTorch, CPU", torch.tensor, send_sparse=partial(_torch_csr, torch, "cpu"))
        for i in range(torch.cuda.device_count()):
            title = torch.cuda.get_device_name(i)
            yield Place(
                f"PyTorch, {title}",
                lambda x, i=i: torch.tensor(x, device=f"cuda:{i}"),
                send_sparse=partial(_torch_csr, torch, f"cuda:{i}"),
            )
        if torch.backends.mps.is_available():
            yield Place("PyTorch, MPS", lambda x: torch.tensor(x, device="mps"), double=False)
    cupy = _module("cupy")
    if cupy is not None and cupy.cuda.runtime.getDeviceCount():
        sparse = _module("cupyx.scipy.sparse")
        yield Place("CuPy", cupy.asarray, send_sparse=lambda X: sparse.csr_matrix(scipy.sparse.csr_matrix(X)))
    jax = _module("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
        for device in jax.devices():
            yield Place(f"JAX, {device}", lambda x, device=device: jax.device_put(x, device))


def _torch_csr(torch: Any, device: str, X: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR of PyTorch is in beta
        parts = (torch.tensor(part, device=device) for part in (X.indptr, X.indices, X.data))
        return torch.sparse_csr_tensor(*parts, size=X.shape, check_invariants=False)


def _seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def measure(shape: Shape, places: list[Place], dtype: type, solver: str, repeats: int) -> list[dict]:
    data = shape.draw(0)
    X = data.X.astype(dtype)
    y = data.y
    S = context_covariances(X, y).covariances
    usable = [Place("NumPy", np.asarray), *(p for p in places if p.double or dtype == np.float32)]
    inputs = [(place.send(S), place.send(X)) for place in usable]
    times = np.empty((repeats, len(usable), 2))
    answers: list[Any] = [None] * len(usable)
    for i in range(-1, repeats):  # the first round warms up, and is not counted
        for j, (covariances, rows) in enumerate(inputs):
            # What is returned was computed on the host last, so no work is under way on the device any more.
            one, answers[j] = _seconds(lambda c=covariances: decompose(c, shape.r, solver=solver, random_state=0))
            two, _ = _seconds(lambda x=rows: MCPCA(shape.r, solver=solver, random_state=0).fit(x, y))
            if i >= 0:
                times[i, j] = one, two
    median = np.median(times, axis=0)
    return [
        {
            "shape": f"{shape.name} ({shape.p}, {shape.k}, {shape.r})",
            "place": place.name,
            "dtype": np.dtype(dtype).name,
            "decompose [s]": median[j, 0],
            "NumPy's / decompose": median[0, 0] / median[j, 0],
            "fit [s]": median[j, 1],
            "NumPy's / fit": median[0, 1] / median[j, 1],
            "1 - Ascore": 1 - ascore(answers[j].components, answers[0].components),
        }
        for j, place in enumerate(usable)
    ]


def measure_sparse(places: list[Place], rows: int, features: int, rank: int, repeats: int) -> list[dict]:
    """Time fits by passes of the same sparse rows in every place; ``tol`` is that of ``large.py``."""
    # As many programmes and contexts as 150,000 rows of 20,000 features have, in proportion.
    cells = FlatCells(rows, features, n_contexts=max(2, rows // 500), n_programmes=min(30, features // 40))
    X = log1p_of(cells.matrix())
    y = cells.labels()
    usable = [Place("SciPy", np.asarray, send_sparse=lambda x: x), *(p for p in places if p.send_sparse)]
    inputs = [place.send_sparse(X) for place in usable]
    times = np.empty((repeats, len(usable)))
    models: list[Any] = [None] * len(usable)
    for i in range(-1, repeats):  # the first round warms up, and is not counted
        for j, x in enumerate(inputs):
            seconds, models[j] = _seconds(lambda x=x: MCPCA(rank, random_state=0, tol=1e-2).fit(x, y))
            if i >= 0:
                times[i, j] = seconds
    if models[0].n_passes_ is None:
        raise SystemExit("Covariances were formed: pass more --rows or --features.")
    median = np.median(times, axis=0)
    return [
        {
            "rows": f"{rows:,} x {features:,}, {X.nnz / rows:.0f} non-zeros each, {cells.n_contexts} contexts",
            "place": place.name,
            "fit [s]": median[j],
            "passes": models[j].n_passes_,
            "SciPy's / fit": median[0] / median[j],
            "1 - Ascore": 1 - ascore(to_numpy(models[j].components_), models[0].components_),
        }
        for j, place in enumerate(usable)
    ]


def to_numpy(x: Any) -> np.ndarray:
    """Return an array of any library as NumPy's."""
    x = x.cpu() if hasattr(x, "cpu") else x
    return x.get() if hasattr(x, "get") else np.asarray(x)


def _print(rows: list[dict], header: list[str] | None) -> list[str]:
    for row in rows:
        if header is None:
            header = list(row)
            print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
        cells = (f"{v:.2g}" if isinstance(v, float) else str(v) for v in row.values())
        print("| " + " | ".join(cells) + " |", flush=True)
    return header or []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["TCGA", "primates", "text"], help="names, or 'all'")
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"], choices=["float64", "float32"])
    parser.add_argument("--solver", default="mspm", choices=["mspm", "lsq", "ml"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sparse", action="store_true", help="fits of sparse rows by passes, instead")
    parser.add_argument("--rows", type=int, default=50_000, help="with --sparse")
    parser.add_argument("--features", type=int, default=20_000, help="with --sparse")
    parser.add_argument("--rank", type=int, default=30, help="with --sparse")
    options = parser.parse_args()
    shapes = [s for s in SHAPES if "all" in options.shapes or s.name in options.shapes]
    places = list(find_places())
    print(f"{platform.machine()}, {os.cpu_count()} cores; {', '.join(p.name for p in places) or 'no other library'}")
    if options.sparse:
        _print(measure_sparse(places, options.rows, options.features, options.rank, options.repeats), None)
        return
    header: list[str] | None = None
    for shape in shapes:
        for dtype in options.dtypes:
            header = _print(measure(shape, places, np.dtype(dtype).type, options.solver, options.repeats), header)


if __name__ == "__main__":
    main()
