"""The version, told from tags: in a clone with and without them, in an archive, and in a source distribution."""

import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import warnings
from importlib.metadata import version as installed

import pytest
from packaging.requirements import Requirement
from pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

build = pytest.importorskip("hatchling.build", reason="hatchling, which builds the package, is not installed")
metadata = pytest.importorskip("hatchling.metadata.core")
plugins = pytest.importorskip("hatchling.plugin.manager")
pytest.importorskip("hatch_vcs", reason="hatch-vcs, which tells the version, is not installed")
pytest.importorskip(
    "hatch_fancy_pypi_readme", reason="hatch-fancy-pypi-readme, which the build needs, is not installed"
)
(SCM,) = (line for line in PROJECT["build-system"]["requires"] if line.startswith("setuptools-scm"))
pytestmark = [
    pytest.mark.skipif(
        not Requirement(SCM).specifier.contains(installed("setuptools-scm")),
        reason=f"setuptools-scm {installed('setuptools-scm')} is installed, and the build takes {SCM}",
    ),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(not (ROOT / ".git_archival.txt").exists(), reason=".git_archival.txt is in the repository only"),
]

FILES = ("pyproject.toml", "README.md", "LICENSE", ".git_archival.txt", ".gitattributes")
NEXT = PROJECT["tool"]["hatch"]["version"]["fallback-version"].removesuffix(".dev0")


def git(folder, *words):
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | identity
    command = ["git", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def version_in(folder):
    # Of shallow clones and copies without history the tool warns; what it says of them is what is tested here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return metadata.ProjectMetadata(str(folder), plugins.PluginManager()).version


@pytest.fixture(autouse=True)
def _not_told_from_outside(monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("GIT_", "SETUPTOOLS_SCM", "VCS_VERSIONING")):
            monkeypatch.delenv(name)


@pytest.fixture
def clone(tmp_path):
    """A repository with the files that matter for the version, and three commits."""
    folder = tmp_path / "clone"
    (folder / "src" / "mcpca").mkdir(parents=True)
    (folder / "src" / "mcpca" / "__init__.py").write_text("")
    (folder / "src" / "mcpca_command.py").write_text("")
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    for message in ("one", "two", "three"):
        git(folder, "commit", "--quiet", "--allow-empty", f"--message={message}")
    return folder


def archive_of(clone, commit):
    folder = clone.parent / f"archive-{commit}"
    folder.mkdir()
    git(clone, "archive", f"--output={folder}.tar", commit)
    with tarfile.open(f"{folder}.tar") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_without_a_tag_it_counts_towards_the_next_version(clone):
    assert re.fullmatch(rf"{re.escape(NEXT)}\.dev3\+g[0-9a-f]+", version_in(clone))
    for other in ("backup-2026", "v2-of-the-pages"):  # of no version
        git(clone, "tag", other)
    assert version_in(clone).startswith(f"{NEXT}.dev3+g")
    (clone / "README.md").write_text("Changed.")
    assert re.fullmatch(rf"{re.escape(NEXT)}\.dev3\+g[0-9a-f]+\.d\d{{8}}", version_in(clone))


def test_a_shallow_clone(clone):
    shallow = clone.parent / "shallow"
    git(clone, "clone", "--quiet", "--depth=1", clone.as_uri(), str(shallow))
    assert version_in(shallow).startswith(f"{NEXT}.dev1+g")


def test_on_a_tag_it_is_that_of_the_tag(clone):
    git(clone, "tag", "v0.2.0")
    assert version_in(clone) == "0.2.0"
    git(clone, "commit", "--quiet", "--allow-empty", "--message=four")
    assert re.fullmatch(r"0\.2\.1\.dev1\+g[0-9a-f]+", version_in(clone))
    git(clone, "tag", "v0.3.0rc1")
    assert version_in(clone) == "0.3.0rc1"


def test_an_archive_has_the_version_of_its_commit(clone):
    assert version_in(archive_of(clone, "HEAD")) == f"{NEXT}.dev0"
    git(clone, "tag", "v0.2.0")
    git(clone, "commit", "--quiet", "--allow-empty", "--message=four")
    assert version_in(archive_of(clone, "v0.2.0")) == "0.2.0"
    assert re.fullmatch(r"0\.2\.1\.dev1\+g[0-9a-f]+", version_in(archive_of(clone, "main")))


def test_a_copy_without_history(clone):
    shutil.rmtree(clone / ".git")
    assert version_in(clone) == f"{NEXT}.dev0"


@pytest.mark.parametrize("tag", [None, "v0.2.0"])
def test_a_source_distribution_keeps_its_version(clone, monkeypatch, tag):
    if tag:
        git(clone, "tag", tag)
    expected = version_in(clone)
    monkeypatch.chdir(clone)
    name = build.build_sdist(str(clone.parent))
    assert name == f"mcpca-{expected}.tar.gz"
    with tarfile.open(clone.parent / name) as archive:
        archive.extractall(clone.parent, filter="data")
    assert version_in(clone.parent / f"mcpca-{expected}") == expected
