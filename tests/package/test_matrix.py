"""Versions that are claimed: bounds, extras and Pythons agree with the sessions that test them."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("nox")
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, GROUPS = TOML["project"], TOML["dependency-groups"]
PUBLIC = PROJECT["optional-dependencies"]


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def noxfile():
    return load("noxfile", ROOT / "noxfile.py")


@pytest.fixture(scope="module")
def matrix_table():
    return load("matrix_table", ROOT / ".ci" / "matrix_table.py")


def requirements(*groups):
    """Return the requirements of groups, with those of groups that they include."""
    found = []
    for group in groups:
        for entry in GROUPS[group]:
            found += [Requirement(entry)] if isinstance(entry, str) else requirements(entry["include-group"])
    return found


def lower_bounds():
    """Return the lower bound of each package that users or the tests need, the highest where there are several."""
    named = [*PROJECT["dependencies"], *(entry for entries in PUBLIC.values() for entry in entries)]
    bounds = {}
    for requirement in [*map(Requirement, named), *requirements("test")]:
        if requirement.name == "mcpca":
            continue
        (bound,) = [Version(s.version) for s in requirement.specifier if s.operator == ">="]
        name = canonicalize_name(requirement.name)
        bounds[name] = max(bound, bounds.get(name, bound))
    return bounds


def pins():
    lines = (ROOT / "constraints" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    pairs = [re.fullmatch(r"([\w.-]+)==(\S+)(?: +#.*)?", line) for line in lines if line and not line.startswith("#")]
    assert all(pairs)
    return {canonicalize_name(pair[1]): Version(pair[2]) for pair in pairs}


def test_constraints_are_the_lower_bounds():
    pinned, bounds = pins(), lower_bounds()
    assert len(bounds) > 25
    differing = {
        name: (str(bound), str(pinned.get(name))) for name, bound in bounds.items() if pinned.get(name) != bound
    }
    assert not differing, "bound and constraint differ; run: make constraints"


def test_a_package_has_the_same_bound_wherever_it_is_public():
    seen = {}
    for extra, entries in PUBLIC.items():
        for requirement in map(Requirement, entries):
            assert seen.setdefault(requirement.name, requirement.specifier) == requirement.specifier, extra


def test_pythons_agree(noxfile):
    classifiers = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text) for text in PROJECT["classifiers"]]
    claimed = [match[1] for match in classifiers if match]
    assert claimed == sorted(claimed, key=Version)
    minors = [Version(version).minor for version in claimed]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    assert TOML["tool"]["mypy"]["python_version"] == claimed[0]
    assert claimed == noxfile.PYTHONS
    assert [claimed[0], claimed[-1]] == [noxfile.LOWEST, noxfile.HIGHEST]


def test_every_public_extra_has_a_session_and_tests(noxfile):
    assert set(noxfile.EXTRAS) == set(PUBLIC)
    for modules, tests in noxfile.EXTRAS.values():
        assert modules
        assert tests
    named = [test for _, tests in noxfile.EXTRAS.values() for test in tests]
    for path in (*named, *noxfile.FAST, *noxfile.CORE):
        assert (ROOT / path).exists(), path


def test_the_sessions_are_those_that_are_promised():
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "--list"], cwd=ROOT, capture_output=True, text=True, check=True, encoding="utf-8"
    ).stdout
    sessions = set(re.findall(r"^[*-] (\S+)", listed, re.MULTILINE))
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    expected = {f"lowest({pythons[0]})", f"prerelease({pythons[-1]})", "core(lowest)", "core(highest)", "constraints"}
    assert sessions == expected | {f"highest({p})" for p in pythons} | {f"extra({name})" for name in PUBLIC}
    # What .ci/run asks for is among them.
    (asked,) = re.findall(r"MATRIX='-s (\S+) \"(\S+)\" -- --fast'", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert asked == ("lowest", f"highest({pythons[-1]})")


def test_a_python_is_found_where_it_is_and_only_there(noxfile, tmp_path, monkeypatch):
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert noxfile.find_python(here) == sys.executable
    assert noxfile.find_python("3.999") is None
    # Of pyenv: a program of that name that answers with another version, or with an error, is none.
    for patch, answer in (("1", "exit 1"), ("2", "echo 3.998"), ("3", "echo 3.999")):
        program = tmp_path / "versions" / f"3.999.{patch}" / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert noxfile.find_python("3.999") == str(tmp_path / "versions" / "3.999.3" / "bin" / "python")


def test_extras_that_messages_name_exist():
    """``require("pandas", "pandas")`` tells users to install mcpca[pandas]."""
    constants, named = {}, set()
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.targets[0], ast.Name)
        ):
            constants.setdefault(node.targets[0].id, set()).add(node.value.value)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "require":
            extra = node.args[1] if len(node.args) > 1 else node.keywords[0].value
            named |= {extra.value} if isinstance(extra, ast.Constant) else constants[extra.id]
    assert named <= set(PUBLIC)
    assert {"plot", "pandas", "formula", "anndata"} <= named


def test_groups_are_no_extras():
    assert {"test", "test-torch", "test-scanpy", "matrix", "lint", "docs", "benchmark", "studies"} == set(GROUPS)
    assert not set(GROUPS) & set(PUBLIC)
    for requirement in requirements(*GROUPS):
        if requirement.name == "mcpca":
            assert requirement.extras <= set(PUBLIC)
    # The tests of a room need what its extra brings, all but PyTorch.
    (package,) = [requirement for requirement in requirements("test") if requirement.name == "mcpca"]
    assert package.extras == set(PUBLIC) - {"text"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(re.search(r"^GROUPS := (.*)$", makefile, re.MULTILINE)[1].split()) == set(GROUPS)


CASES = """<testsuites><testsuite>
<testcase classname="tests.a" name="one"/>
<testcase classname="tests.a" name="two"><{two}/></testcase>
<testcase classname="tests.a" name="three"><skipped/></testcase>
</testsuite></testsuites>"""


def test_the_table_counts_and_names_what_was_not_run(matrix_table, tmp_path):
    (tmp_path / "lowest(3.11).xml").write_text(CASES.format(two="failure"))
    (tmp_path / "highest(3.12).xml").write_text(CASES.format(two="skipped"))
    (tmp_path / "highest(3.13).not-run").write_text("Python 3.13 is not on this machine; get it\n")
    lines = matrix_table.table(tmp_path)
    assert [line.split() for line in lines[:3]] == [
        ["session", "passed", "failed", "skipped"],
        ["highest(3.12)", "1", "0", "2"],
        ["lowest(3.11)", "1", "1", "1"],
    ]
    assert lines[3] == "highest(3.13)  NOT RUN: Python 3.13 is not on this machine; get it"
    # A test that failed somewhere was run; one that was skipped everywhere was not.
    assert lines[4:] == ["Skipped in every session: 1, such as", "  tests.a::three"]


@pytest.fixture
def missing_extra(request):
    (conftest,) = [p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "missing_extra")]
    return conftest.missing_extra


def caught(source, name):
    try:
        exec(compile(source, "x", "exec"), {"__name__": name})
    except ImportError as error:
        return error
    raise AssertionError("it can be imported")


def test_only_installed_forgives_tests_and_messages_that_name_an_extra(missing_extra):
    wanted = "import nowhere_to_be_found.at_all"
    assert missing_extra(caught(wanted, "tests.test_x")) == "nowhere_to_be_found"
    named = "from mcpca._utils.optional import require\nrequire('nowhere_to_be_found', 'plot')"
    assert missing_extra(caught(named, "mcpca.plotting")) == "nowhere_to_be_found"
    # Neither an import in the package that names no extra, nor one of a package that is there, nor of what is needed.
    assert missing_extra(caught(wanted, "mcpca.plotting")) is None
    assert missing_extra(caught("import json.nothing", "tests.test_x")) is None
    assert missing_extra(caught("import numpy.nothing", "tests.test_x")) is None
    assert missing_extra(ValueError("nowhere_to_be_found")) is None
