"""Claim: the answer does not depend on where the arrays are. How much faster or slower each place is than NumPy.

``python benchmarks/device.py`` times ``decompose`` from covariances and ``MCPCA.fit`` from rows, both on the device
already, with every library and device that is found: NumPy, PyTorch on the CPU and on GPUs, CuPy, JAX. The ratios are
NumPy's median time by the other's, from repetitions that alternate in one run: above 1 the device is faster. On a CPU
set OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to 1, or the threads of one library wait for those of the other.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcpca import MCPCA, ascore, context_covariances, decompose
from problems import SHAPES, Shape


@dataclass(frozen=True)
class Place:
    """A library on a device: ``send`` takes NumPy's array there."""

    name: str
    send: Callable[[np.ndarray], Any]
    double: bool = True


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def find_places() -> Iterator[Place]:
    torch = _module("torch")
    if torch is not None:
        yield Place("PyTorch, CPU", torch.tensor)
        for i in range(torch.cuda.device_count()):
            title = torch.cuda.get_device_name(i)
            yield Place(f"PyTorch, {title}", lambda x, i=i: torch.tensor(x, device=f"cuda:{i}"))
        if torch.backends.mps.is_available():
            yield Place("PyTorch, MPS", lambda x: torch.tensor(x, device="mps"), double=False)
    cupy = _module("cupy")
    if cupy is not None and cupy.cuda.runtime.getDeviceCount():
        yield Place("CuPy", cupy.asarray)
    jax = _module("jax")
    if jax is not None:
        jax.config.update("jax_enable_x64", True)
        for device in jax.devices():
            yield Place(f"JAX, {device}", lambda x, device=device: jax.device_put(x, device))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["TCGA", "primates", "text"], help="names, or 'all'")
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"], choices=["float64", "float32"])
    parser.add_argument("--solver", default="mspm", choices=["mspm", "lsq", "ml"])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    shapes = [s for s in SHAPES if "all" in options.shapes or s.name in options.shapes]
    places = list(find_places())
    print(f"{platform.machine()}, {os.cpu_count()} cores; {', '.join(p.name for p in places) or 'no other library'}")
    header = None
    for shape in shapes:
        for dtype in options.dtypes:
            for row in measure(shape, places, np.dtype(dtype).type, options.solver, options.repeats):
                if header is None:
                    header = list(row)
                    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
                cells = (f"{v:.2g}" if isinstance(v, float) else str(v) for v in row.values())
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
