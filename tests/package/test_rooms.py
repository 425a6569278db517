"""Imports point one way, and the tool that `make lint` runs says so where they do not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

pytest.importorskip("importlinter")

LINTER = Path(sys.executable).with_name("lint-imports")


def lint(folder):
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [LINTER, "--config", ROOT / "pyproject.toml", "--no-cache"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(ROOT / "src" / "mcpca", tmp_path / "mcpca", ignore=shutil.ignore_patterns("__pycache__", "static"))
    return tmp_path


def test_rooms_are_layers(tree):
    code, text = lint(tree)
    assert code == 0, text
    assert "1 kept, 0 broken" in text


@pytest.mark.parametrize(
    ("module", "line", "told"),
    [
        (
            "_solvers/lsq.py",
            "from .._estimator.mcpca import MCPCA",
            "mcpca._solvers is not allowed to import mcpca._estimator",
        ),
        (
            "_data/labels.py",
            "from .._covariances import stack",
            "mcpca._data is not allowed to import mcpca._covariances",
        ),
        ("_utils/wording.py", "from .. import plotting", "mcpca._utils is not allowed to import mcpca.plotting"),
    ],
)
def test_an_import_that_points_up_is_an_error(tree, module, line, told):
    path = tree / "mcpca" / module
    path.write_text(f"{path.read_text()}\n\ndef late():\n    {line}\n")
    code, text = lint(tree)
    assert code == 1
    assert told in text


def test_a_module_outside_the_rooms_is_an_error(tree):
    (tree / "mcpca" / "somewhere.py").write_text("")
    code, text = lint(tree)
    assert code == 1
    assert "somewhere" in text
