"""The tests at every version that ``pyproject.toml`` claims: ``make test-matrix``, or ``nox -s SESSION -- WHAT``.

==================  ==============================================================================================
``lowest``          every dependency at its lower bound (``constraints/lowest.txt``), on the lowest Python
``highest(3.13)``   the newest of each, on each Python of the classifiers
``prerelease``      pre-releases too, on the highest Python
``core(lowest)``    NumPy, SciPy, scikit-learn and pytest alone; ``core(highest)`` likewise
``extra(plot)``     one extra and pytest alone, for each public extra
``constraints``     not a test: writes ``constraints/lowest.txt`` anew
==================  ==============================================================================================

``-- --fast`` runs the selection ``FAST`` only, and other arguments after ``--`` go to pytest. A session whose Python is
not on the machine is skipped with a line that names it, and is in the table at the end (``.ci/matrix_table.py``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False  # they are told by ``_on``, with the way to get them

ROOT = Path(__file__).parent
RESULTS = ROOT / ".nox" / "results"
LOWEST_VERSIONS = "constraints/lowest.txt"
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)  # from the classifiers
LOWEST, HIGHEST = PYTHONS[0], PYTHONS[-1]

# What the lower bounds need in turn is not taken newer than this: Matplotlib of 2023 with the pyparsing of today warns
# about itself. The second has those whose bound is newer.
UNTIL = "2025-12-01"
UNTIL_OF = {
    "array-api-strict": "2026-09-01",
    "pyriemann": "2026-11-01",
    "setuptools-scm": "2026-11-01",  # which builds the package, with what it is made of
    "vcs-versioning": "2026-11-01",
}

# About a minute on two cores: what depends most on versions, by one file or a few of each room.
FAST = (
    "tests/package",
    "tests/linalg",
    "tests/datasets",
    "tests/results",
    "tests/estimator/test_sklearn_checks.py",
    "tests/data/test_detect.py",
    "tests/data/test_disk.py",
    "tests/data/test_formulas.py",
    "tests/data/test_frames.py",
    "tests/data/test_label_kinds.py",
    "tests/tl/test_tl_lazy.py",
    "tests/analysis/test_designs.py",
    "tests/plotting/test_imports.py",
    "tests/cli/test_reading_workbooks.py",
)

# Rooms of the core. Tests in them that need more are skipped, and named, by --only-installed.
CORE = tuple(
    f"tests/{room}"
    for room in (
        "comparison",
        "covariances",
        "data",
        "datasets",
        "estimator",
        "inference",
        "linalg",
        "model",
        "package",
        "rank",
        "results",
        "solvers",
        "utils",
    )
)
CORE_PASSES = 1000  # at least; fewer would mean that tests which need no extra have come to import one

# What an extra promises to import, and the tests that concern it.
EXTRAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plot": (("matplotlib", "mcpca.plotting"), ("tests/plotting",)),
    "demo": (("matplotlib", "PIL", "plotly", "mcpca.demo"), ("tests/demo",)),
    "report": (("plotly", "mcpca.report"), ("tests/report",)),
    "baselines": (("tensorly", "mcpca.baselines"), ("tests/baselines",)),
    "devices": (("array_api_compat",), ("tests/covariances/test_device_stack.py",)),
    "anndata": (("anndata", "h5py", "zarr", "mcpca.tl"), ("tests/tl", "tests/data/test_disk.py")),
    "mudata": (("mudata", "mcpca.tl"), ("tests/tl/test_mudata.py",)),
    "xarray": (("xarray",), ("tests/data/test_xarray_rows.py",)),
    "compression": (
        ("deflate", "numcodecs", "imagecodecs"),
        ("tests/covariances/test_compressed_files.py", "tests/data/test_compressed_chunks.py"),
    ),
    "compiled": (
        ("numba", "mcpca._utils.vector_kernels"),
        ("tests/utils/test_vector_kernels.py", "tests/data/test_sparse_products.py"),
    ),
    "cli": (("click", "pyarrow", "matplotlib", "plotly", "mcpca.cli"), ("tests/cli",)),
    "excel": (("openpyxl",), ("tests/cli/test_reading_workbooks.py",)),
    "dask": (("dask.array", "dask.dataframe", "distributed"), ("tests/data/test_dask_rows.py", "tests/rank")),
    "pandas": (("pandas",), ("tests/data/test_alignment.py", "tests/data/test_contexts.py")),
    "analysis": (("pandas", "formulaic", "lifelines", "gseapy", "mcpca.analysis"), ("tests/analysis",)),
    "formula": (("pandas", "formulaic"), ("tests/data/test_formulas.py",)),
    "text": (("torch", "transformers"), ("tests/analysis/test_embeddings.py",)),
}
# What is installed beside an extra that is of use with another one only, or that its tests are made with.
BESIDE = {
    "devices": ("array-api-strict",),
    "compression": (".[anndata]",),
    "excel": (".[cli]", "pandas", "hypothesis"),
}


def _runs(candidate: str | Path, version: str) -> bool:
    """Whether this is a Python of that version: pyenv's shims exist for versions that are switched off, and fail."""
    ask = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        answer = subprocess.run([str(candidate), "-c", ask], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def find_python(version: str) -> str | None:
    """Return the path of a Python of this version: this one, on the path, of pyenv, or of uv; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [sys.executable, shutil.which(f"python{version}") or ""]
    candidates += map(str, sorted((pyenv / "versions").glob(f"{version}.*/bin/python")))
    for candidate in candidates:
        if _runs(candidate, version):
            return candidate
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    try:
        found = subprocess.run(
            [uv, "python", "find", "--no-python-downloads", "--system", version],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    path = found.stdout.strip()
    return path if found.returncode == 0 and _runs(path, version) else None


INTERPRETERS = {version: find_python(version) for version in PYTHONS}


def _on(version: str, *more: str, name: str | None = None) -> Any:
    """Return the parameters ``python``, ``version`` and others; without such a Python no environment is made."""
    return nox.param(INTERPRETERS[version] or False, version, *more, id=name or version)


def _check_python(session: nox.Session, version: str) -> None:
    """Skip the session, and leave a note for the table, if there is no such Python."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in (_results(session, "xml"), _results(session, "not-run")):
        old.unlink(missing_ok=True)
    if session.python is False:
        ways = f"uv python install {version}, or pyenv install {version}, brings it"
        why = f"Python {version} is not on this machine; {ways}"
        _results(session, "not-run").write_text(why + "\n", encoding="utf-8")
        session.skip(why)


def _results(session: nox.Session, suffix: str) -> Path:
    return RESULTS / f"{session.name}.{suffix}"


def _test(session: nox.Session, *options: str, least: int = 1) -> None:
    """Run pytest with one thread of BLAS for each process, and fail where fewer than ``least`` tests have passed."""
    path = _results(session, "xml")
    session.run("python", "-m", "pytest", "-q", f"--junitxml={path}", *options, env={"OPENBLAS_NUM_THREADS": "1"})
    suite = ET.parse(path).getroot().find("testsuite")
    assert suite is not None
    counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    if passed < least:
        session.error(f"{passed} tests passed and at least {least} should: too many were left out")


def _test_all(session: nox.Session) -> None:
    """Run all tests, those of ``FAST``, or what was asked for, in two processes."""
    asked = [option for option in session.posargs if option != "--fast"]
    if "--fast" in session.posargs:
        asked += FAST
    _test(session, "-n", "2", "--dist", "loadfile", *asked)


@nox.session
@nox.parametrize("python, version", [_on(LOWEST)])
def lowest(session: nox.Session, version: str) -> None:
    """Test with every dependency at its lower bound, on the lowest Python."""
    _check_python(session, version)
    session.install("--constraint", LOWEST_VERSIONS, "--group", "test", "--editable", ".")
    _test_all(session)


@nox.session
@nox.parametrize("python, version", [_on(version) for version in PYTHONS])
def highest(session: nox.Session, version: str) -> None:
    """Test with the newest version of everything."""
    _check_python(session, version)
    session.install("--group", "test", "--editable", ".")
    _test_all(session)


@nox.session
@nox.parametrize("python, version", [_on(HIGHEST)])
def prerelease(session: nox.Session, version: str) -> None:
    """Test with the newest version of everything, with alphas, betas and release candidates."""
    _check_python(session, version)
    session.install("--prerelease", "allow", "--group", "test", "--editable", ".")
    _test_all(session)


@nox.session
@nox.parametrize("python, version", [_on(LOWEST, name="lowest"), _on(HIGHEST, name="highest")])
def core(session: nox.Session, version: str) -> None:
    """Test the core without any extra, as a wheel."""
    _check_python(session, version)
    constraint = ("--constraint", LOWEST_VERSIONS) if version == LOWEST else ()
    session.install(*constraint, ".", "pytest")
    session.run("python", "-c", "import mcpca")
    _test(session, "--only-installed", *(session.posargs or CORE), least=1 if session.posargs else CORE_PASSES)


@nox.session
@nox.parametrize("python, version, name", [_on(HIGHEST, name, name=name) for name in EXTRAS])
def extra(session: nox.Session, version: str, name: str) -> None:
    """Test one extra alone, as a wheel: what it promises can be imported, and the tests that concern it pass."""
    _check_python(session, version)
    modules, tests = EXTRAS[name]
    session.install(f".[{name}]", "pytest", *BESIDE.get(name, ()))
    session.run("python", "-c", f"import {', '.join(modules)}")
    _test(session, "--only-installed", *(session.posargs or tests))


@nox.session(default=False, python=False)
def constraints(session: nox.Session) -> None:
    """Write constraints/lowest.txt from the lower bounds in pyproject.toml."""
    extras = ",".join(PROJECT["project"]["optional-dependencies"])
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    until = [f"--exclude-newer={UNTIL}", *(f"--exclude-newer-package={name}={day}" for name, day in UNTIL_OF.items())]
    command = [uv, "pip", "compile", "--quiet", "--upgrade", "--resolution=lowest-direct", *until]
    command += [
        f"--python-version={LOWEST}",
        "--python-platform=linux",
        "--annotation-style=line",
        "--no-emit-package=mcpca",
    ]
    command += ["--custom-compile-command=make constraints", f"--output-file={LOWEST_VERSIONS}", "--group=test", "-"]
    # The package is an argument of its own, so that the bounds of its extras count as direct ones.
    subprocess.run(command, input=f"--editable .[{extras}]\n", text=True, check=True, cwd=ROOT)
    session.log(f"wrote {LOWEST_VERSIONS}")
