"""What services run: actions are pinned, rights are few, and every command they call exists."""

import ast
import re
import tomllib

import pytest
from pages import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
each = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs_of(path):
    return yaml.safe_load(path.read_text())["jobs"]


def steps_of(path):
    return [step for job in jobs_of(path).values() for step in job["steps"]]


def matrices_of(path):
    """Yield the values that each matrix gives to its variables."""
    for job in jobs_of(path).values():
        matrix = job.get("strategy", {}).get("matrix", {})
        rows = matrix.get("include", [])
        yield {
            name: [*matrix.get(name, []), *(row[name] for row in rows if name in row)]
            for name in {*matrix, *(name for row in rows for name in row)} - {"include"}
        }


def test_there_are_workflows():
    assert [path.stem for path in WORKFLOWS] == ["docs", "lint", "release", "test"]


def test_actions_are_pinned_by_commit_and_alike():
    pins = {}
    for path in WORKFLOWS:
        for line in re.findall(r"uses: *(.*)", path.read_text()):
            pinned = re.fullmatch(r"([\w-]+/[\w./-]+)@([0-9a-f]{40}) # v(\d+\.\d+\.\d+)", line)
            assert pinned, f"{path.name}: {line}"
            pins.setdefault(pinned[1], set()).add(pinned.groups()[1:])
    assert all(len(versions) == 1 for versions in pins.values()), pins


@each
def test_rights_are_given_to_jobs_and_few(path):
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    for name, job in jobs_of(path).items():
        assert job["timeout-minutes"] <= 90, name
        written = {right for right, level in job["permissions"].items() if level == "write"}
        steps = [step.get("uses", step.get("run", "")) for step in job["steps"]]
        # Whoever can sign, publish or write runs no code of ours that was not built before.
        if written - {"id-token"} or "publish" in name:
            assert not any("checkout" in step or "make" in step or "pip " in step for step in steps), name
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False, name


def test_only_tags_are_published():
    jobs = jobs_of(ROOT / ".github" / "workflows" / "release.yaml")
    for name in ("attest", "publish", "announce"):
        assert jobs[name]["if"] == "github.ref_type == 'tag'"
    order = ["build", "install", "attest", "publish", "announce"]
    assert [jobs[name]["needs"] for name in order[1:]] == order[:-1]
    assert jobs["publish"]["environment"]["name"] == "pypi"


@each
def test_targets_and_scripts_exist(path):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {word for step in steps_of(path) for word in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    called |= {target for values in matrices_of(path) for target in values.get("target", [])}
    assert called <= targets, called - targets
    for step in steps_of(path):
        for file in re.findall(r"\b(?:tools|tests)/[\w/.]+", step.get("run", "")):
            assert (ROOT / file).exists(), file


@each
def test_sessions_exist_on_a_python_that_is_supported(path):
    supported = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    for values in matrices_of(path):
        assert set(values.get("python", [])) <= supported
    called = {word for step in steps_of(path) for word in re.findall(r"nox --session ([a-z]+)", step.get("run", ""))}
    called |= {session for values in matrices_of(path) for session in values.get("session", [])}
    if not called:
        return
    if not (ROOT / "noxfile.py").exists():
        pytest.skip("noxfile.py is not here")
    defined = {
        node.name
        for node in ast.parse((ROOT / "noxfile.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and any("nox.session" in ast.unparse(d) for d in node.decorator_list)
    }
    assert {session.partition("(")[0] for session in called} <= defined
    assert {session.partition("(")[2].rstrip(")") for session in called if session.startswith("highest")} == supported


def test_hooks_have_the_versions_of_the_tools():
    pinned = set(re.findall(r"^[\w-]+==[\d.]+$", (ROOT / "tools" / "requirements.txt").read_text(), re.MULTILINE))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    used = {pin for hook in hooks for pin in hook.get("additional_dependencies", [])}
    assert used
    assert used <= pinned


def test_what_is_updated_waits_some_days():
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}
    for update in updates:
        assert update["cooldown"]["default-days"] >= 7
        assert (ROOT / update["directory"].lstrip("/")).is_dir()


def test_metadata_is_complete():
    assert PROJECT["license"] == "BSD-3-Clause"
    assert {"Homepage", "Documentation", "Source", "Changelog", "Issues"} <= set(PROJECT["urls"])
    assert all(address.startswith("https://") for address in PROJECT["urls"].values())
    supported = sorted(int(c.rpartition(".")[2]) for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c))
    assert supported == [*range(supported[0], supported[-1] + 1)]
    assert PROJECT["requires-python"] == f">=3.{supported[0]}"
