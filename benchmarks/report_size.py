"""Size of the report, and seconds to write and to open it: 200 contexts, 50 MCPCs, 20,000 features, 100,000 rows.

``python benchmarks/report_size.py`` prints one line per number, with its bar. The time to open is that of headless
Chromium in a new process, from the start of the navigation until the map can be used, and until all charts in view are
painted too; it needs selenium and chromedriver, and is left out where they are missing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from mcpca import MCPCA
from mcpca.report import write_report

# Bounds that the numbers are printed beside.
MEGABYTES = 15.0
SECONDS = 3.0


def sparse_rows(k: int, r: int, p: int, n: int, density: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Sparse rows in which each of r programmes moves p / r features, in a third of the contexts each."""
    X = scipy.sparse.random_array((n, p), density=density, format="csr", dtype=np.float32, rng=rng)
    y = np.sort(rng.integers(k, size=n))
    present = rng.random((k, r)) < 1 / 3
    strength = np.exp(rng.standard_normal((n, r))) * present[y]
    rows = np.repeat(np.arange(n), np.diff(X.indptr))
    X.data *= 1 + strength[rows, X.indices % r].astype(np.float32)
    return X, y


def seconds_to_open(path: Path) -> tuple[float, float] | None:
    """Seconds until the map and until the charts are there, in a browser that was just started; None without one."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None
    if binary is None or driver is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser.get(path.as_uri())
        while browser.execute_script("return document.documentElement.dataset.ready") != "yes":
            time.sleep(0.05)
        script = "return ['map', 'charts'].map((name) => performance.getEntriesByName(name)[0].startTime / 1000)"
        to_map, to_charts = browser.execute_script(script)
        return float(to_map), float(to_charts)
    finally:
        browser.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--contexts", type=int, default=200)
    parser.add_argument("--components", type=int, default=50)
    parser.add_argument("--features", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--density", type=float, default=0.02)
    parser.add_argument("--output", type=Path, help="keep the report at this path")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X, y = sparse_rows(options.contexts, options.components, options.features, options.rows, options.density, rng)
    began = time.perf_counter()
    model = MCPCA(options.components, random_state=0, tol=1e-3).fit(X, y)
    print(f"fit: {time.perf_counter() - began:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        path = (options.output or Path(folder) / "report.html").resolve()
        began = time.perf_counter()
        write_report(model, path, X=X, y=y, overwrite=True)
        print(f"write_report: {time.perf_counter() - began:.1f} s")
        size = path.stat().st_size / 1e6
        print(f"size: {size:.1f} MB (bar {MEGABYTES:g}): {'met' if size < MEGABYTES else 'missed'}")
        opened = [seconds_to_open(path) for _ in range(3)]
        if None in opened:
            print("open: no Chromium, chromedriver or selenium found")
        else:
            for what, middle in zip(("map", "charts"), np.median(np.array(opened, dtype=float), axis=0), strict=True):
                met = "met" if middle < SECONDS else "missed"
                print(f"open, {what}: {middle:.2f} s, median of 3 (bar {SECONDS:g}): {met}")


if __name__ == "__main__":
    main()
