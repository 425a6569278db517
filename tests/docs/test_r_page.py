"""The R code on the page for users of R runs, where Rscript and the packages that it loads are found."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks

PAGE = ROOT / "docs" / "r.md"
CELLS = "suppressPackageStartupMessages(library(SingleCellExperiment))"  # the first line of the second half

chunks = [block.source for block in blocks(PAGE) if block.language == "r"]
of_cells = next(i for i, chunk in enumerate(chunks) if chunk.startswith(CELLS))


def run_in_r(code, folder):
    """Run code by Rscript with this Python's mcpca first on the path; return what it says."""
    (folder / "page.R").write_text(code, encoding="utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "OPENBLAS_NUM_THREADS": "1", "MCPCA_PROGRESS": "0"}
    command = ["Rscript", "--vanilla", "page.R"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


def need(packages, folder):
    """Skip, by name, what this machine's R lacks."""
    if shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed")
    names = ", ".join(f'"{package}"' for package in packages)
    asked = run_in_r(f"for (p in c({names})) if (!nzchar(system.file(package = p))) cat(p, '')", folder)
    if asked.stdout:
        pytest.skip(f"R packages are not installed: {asked.stdout}")


def test_tables_are_read_drawn_and_recomputed(tmp_path):
    """The page stops where R's own algebra differs from the tables, as it does with wrong loadings."""
    need(["ggplot2", "jsonlite"], tmp_path)
    check = next(chunk for chunk in chunks if "reconstruction_error" in chunk)
    wrong = f"B <- 1.01 * B\nerror <- tryCatch({{\n{check}\nNULL }}, error = conditionMessage)\ncat('Said:', error)\n"
    done = run_in_r("\n".join([*chunks[:of_cells], wrong]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "loadings-by-r.png").stat().st_size > 5000
    assert (tmp_path / "weights-by-r.png").stat().st_size > 5000
    assert "has no column (--context) 'organ'" in done.stdout
    assert "reconstruction_error" in done.stdout.partition("Said:")[2]


def test_cells_go_to_a_fit_and_back(tmp_path):
    need(["SingleCellExperiment", "rhdf5", "Seurat", "Matrix"], tmp_path)
    done = run_in_r("\n".join(chunks[of_cells:]), tmp_path)
    assert done.returncode == 0, done.stderr
    anndata = pytest.importorskip("anndata")
    cells = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert cells.shape == (600, 60)
    assert cells.obs["depth"].dtype.kind == "f"
    assert cells.obs["patient"].nunique() == 6
