"""Claim: the peak of the dense path is at most the covariance stack and a quarter of it.

A fresh process per shape and path, and two readings of the peak above what the input holds: of NumPy's arrays
(tracemalloc), and of resident memory (/proc, after its high-water mark was reset), in which the buffers of BLAS and the
workspaces of LAPACK count too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from problems import SHAPES


def measure(log: Callable[[str], None]) -> list[dict]:
    rows = []
    for shape in SHAPES:
        stack = shape.k * shape.p**2 * 8
        row = {"shape": shape.name, "stack [MB]": stack / 1e6}
        for path in ("decompose", "fit"):
            arrays, resident = json.loads(
                subprocess.run(
                    [sys.executable, __file__, shape.name, path], capture_output=True, check=True, text=True
                ).stdout
            )
            made = 0 if path == "decompose" else stack  # decompose is given the stack, fit makes it
            row[f"{path}: arrays / stack"] = (arrays - made) / stack
            row[f"{path}: resident / stack"] = (resident - made) / stack
        row["bar <="] = 0.25
        rows.append(row)
        log(f"memory  {shape.name}: {row['decompose: arrays / stack']:.2f}, {row['fit: arrays / stack']:.2f}")
    return rows


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _child(name: str, path: str) -> None:
    from mcpca import MCPCA, context_covariances, decompose

    shape = next(s for s in SHAPES if s.name == name)
    # Warm up on a small problem, so that imports, threads and their buffers are not counted.
    from mcpca.datasets import make_contexts

    small = make_contexts(4, 30, 3, random_state=0)
    MCPCA(3, random_state=0).fit(small.X, small.y)
    data = shape.draw(0)
    S = context_covariances(data.X, data.y).covariances if path == "decompose" else None

    def run() -> None:
        if path == "decompose":
            decompose(S, shape.r, random_state=0)
        else:
            MCPCA(shape.r, random_state=0).fit(data.X, data.y)

    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    resident = _status("VmHWM") - before
    tracemalloc.start()
    run()
    print(json.dumps([tracemalloc.get_traced_memory()[1], resident]))


if __name__ == "__main__":
    _child(*sys.argv[1:])
