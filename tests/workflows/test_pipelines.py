"""The rules for Snakemake run; the process for Nextflow has a command that runs and leaves what it emits."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import ROOT

from mcpca import MCPCA

pytest.importorskip("click", reason="click, of the extra cli, is not installed")

SNAKEMAKE = ROOT / "workflows" / "snakemake"
NEXTFLOW = ROOT / "workflows" / "nextflow"
ROWS = ROOT / "workflows" / "galaxy" / "test-data" / "tissues.csv"


def environment(folder):
    """This Python's mcpca first on the path, and caches in a folder of the test."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "MCPCA_PROGRESS": "0", "HOME": str(folder), "XDG_CACHE_HOME": str(folder)}


def run(command, folder):
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=900)


# Snakemake


def rules():
    return (SNAKEMAKE / "Snakefile").read_text(encoding="utf-8")


def test_options_in_the_rules_exist(capsys):
    from mcpca.cli import main

    for command in ("fit", "transform"):
        rule = re.search(rf"^rule mcpca_{command}:\n(.*?)(?=^rule|\Z)", rules(), re.MULTILINE | re.DOTALL)[1]
        assert main([command, "--help"]) in (0, None)
        there = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
        used = set(re.findall(r"--[a-z][a-z-]+", rule.split("shell:")[1]))
        assert used
        assert used - there == set()


@pytest.fixture
def workflow(tmp_path):
    if shutil.which("snakemake") is None:
        pytest.skip("snakemake is not installed")
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(SNAKEMAKE / name, tmp_path / name)
    shutil.copy(ROWS, tmp_path / "rows.csv")
    new = pd.read_csv(ROWS).iloc[::4, 1:]
    new.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


def test_snakemake_fits_transforms_and_fits_again(workflow):
    command = ["snakemake", "--configfile", "config.yaml", "--cores", "1"]
    done = run(command, workflow)
    assert done.returncode == 0, done.stderr + "".join(log.read_text() for log in workflow.glob("logs/**/*.log"))
    results = workflow / "results" / "mcpca"
    model = MCPCA.load(results / "tissues" / "model.mcpca")
    assert model.components_.shape == (6, 2)
    scores = pd.read_csv(results / "tissues.scores.csv")
    expected = model.transform(pd.read_csv(workflow / "new.csv"))
    np.testing.assert_allclose(scores[["MCPC 1", "MCPC 2"]], expected, atol=1e-12)
    # Without some rows the fit is made again, over the results that are there.
    kept = pd.read_csv(ROWS).iloc[:-1]
    kept.to_csv(workflow / "rows.csv", index=False)
    done = run(command, workflow)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(results / "tissues" / "scores.csv").shape[0] == len(kept)
    again = run([*command, "--dry-run"], workflow)
    assert "Nothing to be done" in again.stdout + again.stderr


# Nextflow, which is not run here: its command is.


def process():
    return (NEXTFLOW / "main.nf").read_text(encoding="utf-8")


def test_the_command_of_the_process_leaves_what_it_emits(tmp_path):
    script = re.search(r'"""\n(.*?)"""', process(), re.DOTALL)[1].replace("\\\\\n", "\\\n")
    values = {
        "data": str(ROWS),
        "context": "tissue",
        "options": "--rank 2 --no-context-test",
        "name": "tissues",
        "task.cpus": "1",
        "task.memory.toMega().intdiv(2)": "2048",
    }
    for name, value in values.items():
        script = script.replace(f"${{{name}}}", value)
    assert "${" not in script
    done = run(["bash", "-euo", "pipefail", "-c", script], tmp_path)
    assert done.returncode == 0, done.stderr
    emitted = re.findall(r'path\("\$\{name\}/([^"]+)"\), emit', process())
    assert len(emitted) == 5
    for pattern in emitted:
        assert [path for path in (tmp_path / "tissues").glob(pattern) if path.stat().st_size], pattern


def test_nextflow_runs_the_process(tmp_path):
    """Where Nextflow itself is installed and needs nothing more from the network."""
    if shutil.which("nextflow") is None:
        pytest.skip("nextflow is not installed")
    shutil.copytree(NEXTFLOW, tmp_path / "flow")
    command = ["nextflow", "run", "flow/main.nf", "--data", str(ROWS), "--context", "tissue", "--options", "--rank 2"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path) | {"HOME": os.environ["HOME"], "NXF_OFFLINE": "true"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "results" / "mcpca" / "tissues" / "report.html").exists()
