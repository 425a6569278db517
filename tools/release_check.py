"""Everything that can be known of a release before it is one: ``make release-check``. Nothing is uploaded.

Wheel and source archive are built once, into ``dist/``, the wheel from the archive. Then: what an index would say of
their metadata; what is in them, compared with what git knows; each installed in an empty environment, where the first
lines of README.md and some of the tests run; and whether changelog, citation and pyproject have the files' version.
"""

from __future__ import annotations

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rattler_build
from packaging.version import Version

from tools.versions import ROOT, disagreements

DIST = ROOT / "dist"
NEWEST_PYTHON = "3.13"
# Of the repository alone: archives need none of them.
LEFT_OUT = (".git_archival.txt", ".gitattributes")
# Quick ones that need nothing but pytest, from several rooms.
TESTS = ("tests/linalg", "tests/solvers/test_lsq.py", "tests/utils/test_deprecated.py")
MOST_BYTES = {"wheel": 3_000_000, "sdist": 12_000_000}


def main() -> None:
    """Run all checks, the quick ones first, and say at the end what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tagged", action="store_true", help="ask for the version of a tag, without any changes since")
    options = parser.parse_args()
    wheel, sdist = build()
    version = Version(wheel.name.split("-")[1])
    step("What an index would say of the metadata")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    wrong = [*wheel_contents(wheel), *sdist_contents(sdist), *long_description(wheel), *disagreements(str(version))]
    if options.tagged and (version.is_devrelease or version.local):
        wrong.append(f"the version is {version}, and not that of a tag; tag the commit, and build without changes")
    step("The recipe of the conda package")
    (variant,) = rattler_build.Stage0Recipe.from_file(ROOT / "recipe" / "recipe.yaml").render()
    print(", ".join(variant.recipe.to_dict()["requirements"]["run"]))
    with tempfile.TemporaryDirectory(prefix="mcpca-release-") as folder:
        wrong += installed_wheel(wheel, Path(folder))
        wrong += installed_sdist(sdist, Path(folder))
    step("Result")
    for reason in wrong:
        print(f"wrong: {reason}")
    if wrong:
        sys.exit(1)
    print(f"mcpca {version} can be released." if options.tagged else f"mcpca {version}: nothing is wrong.")


def build() -> tuple[Path, Path]:
    """Build the source archive, and the wheel from it."""
    step("Build")
    for old in DIST.glob("mcpca-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", str(DIST))
    (wheel,), (sdist,) = DIST.glob("mcpca-*.whl"), DIST.glob("mcpca-*.tar.gz")
    return wheel, sdist


def wheel_contents(wheel: Path) -> list[str]:
    """Return what the wheel lacks of the package, and what else is in it."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    told("wheel", wheel, sizes)
    about = {name for name in sizes if PurePosixPath(name).parts[0].endswith(".dist-info")}
    expected = {name.removeprefix("src/") for name in tracked() if name.startswith("src/")}
    return [*differences("the wheel", set(sizes) - about, expected), *too_large("wheel", wheel)]


def sdist_contents(sdist: Path) -> list[str]:
    """Return what the archive lacks of what git knows, baselines of pictures for example, and what else is in it."""
    with tarfile.open(sdist) as archive:
        sizes = {member.name.partition("/")[2]: member.size for member in archive.getmembers() if member.isfile()}
    told("sdist", sdist, sizes)
    expected = {name for name in tracked() if not name.startswith(LEFT_OUT)}
    return [*differences("the source archive", set(sizes) - {"PKG-INFO"}, expected), *too_large("sdist", sdist)]


def long_description(wheel: Path) -> list[str]:
    """Return what in the description would not work on the page of an index."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = str(email.message_from_bytes(archive.read(name)).get_payload())
    relative = re.findall(r"\]\((?!https://|#)([^)]*)\)", text)
    found = [f"the description links to {link}, which an index does not have" for link in relative]
    return found + (["the description has code of the tests in it"] if "<!-- test" in text else [])


def installed_wheel(wheel: Path, folder: Path) -> list[str]:
    """Install the wheel where nothing else is, and run the first lines of README.md."""
    python = newest_python()
    step(f"The wheel in an empty environment of {shown_version(python)}, and the first lines of README.md")
    inside = environment(python, folder / "wheel", str(wheel))
    run(inside, "-m", "pip", "check", cwd=folder)
    run(inside, "-m", "pip", "list", "--disable-pip-version-check", cwd=folder)
    run(inside.with_name("mcpca"), "--version", cwd=folder)
    lines = first_lines()
    print(f"{lines}\n")
    run(inside, "-W", "error", "-c", lines, cwd=folder)
    return (
        [] if shown_version(python).startswith(f"Python {NEWEST_PYTHON}.") else [f"there is no Python {NEWEST_PYTHON}"]
    )


def installed_sdist(sdist: Path, folder: Path) -> list[str]:
    """Install the source archive, and run some of the tests that come with it."""
    step(f"The source archive in an empty environment of {shown_version(sys.executable)}, and tests that are in it")
    inside = environment(sys.executable, folder / "sdist", str(sdist), "pytest", "hypothesis")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    command = [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=unpacked, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, check=False)
    return [] if done.returncode == 0 else [f"tests of the source archive fail: {' '.join(TESTS)}"]


def first_lines() -> str:
    """Return the first block of Python in README.md after its hidden preparation, and lines that print what it made."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    hidden = re.search(r"<!-- test setup\n(.*?)-->", text, re.DOTALL)
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    needed = hidden[1] if hidden and hidden.start() < block.start() else ""
    return f"{needed.strip()}\n\n{block[1].strip()}\n\nprint(model)\nprint(A.shape)\nprint(B.round(1))"


def environment(python: Path | str, path: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages alone, and return its Python."""
    run(python, "-m", "venv", path)
    inside = path / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return inside


def newest_python() -> Path | str:
    """Return the newest Python that is supported: this one, on the path, or of pyenv; else this one, whatever it is."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        sys.executable,
        shutil.which(f"python{NEWEST_PYTHON}"),
        *sorted(pyenv.glob(f"{NEWEST_PYTHON}.*/bin/python")),
    ]
    fitting = [c for c in candidates if c and shown_version(c).startswith(f"Python {NEWEST_PYTHON}.")]
    return fitting[0] if fitting else sys.executable


def shown_version(python: Path | str) -> str:
    """Return "Python 3.13.0", or nothing for what does not run, as shims of pyenv for a version that is off."""
    return subprocess.run([str(python), "--version"], capture_output=True, text=True, check=False).stdout.strip()


def tracked() -> set[str]:
    """Return the files that git knows."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).exists()}


def told(kind: str, path: Path, sizes: dict[str, int]) -> None:
    """Print how large a file and the largest of its contents are."""
    step(f"The {kind}: {path.name}, {path.stat().st_size:,} bytes, {len(sizes)} files")
    for name in sorted(sizes, key=lambda name: -sizes[name])[:5]:
        print(f"{sizes[name]:>10,}  {name}")


def differences(what: str, found: set[str], expected: set[str]) -> list[str]:
    """Return sentences on what is missing and what is there without being known."""
    lacking = [f"{what} lacks {name}" for name in sorted(expected - found)]
    return lacking + [f"{what} has {name}, which is not expected there" for name in sorted(found - expected)]


def too_large(kind: str, path: Path) -> list[str]:
    """Return a sentence if a file is larger than it should be."""
    size = path.stat().st_size
    return [f"{path.name} has {size:,} bytes, more than {MOST_BYTES[kind]:,}"] if size > MOST_BYTES[kind] else []


def step(words: str) -> None:
    """Print a heading."""
    print(f"\n== {words}", flush=True)


def run(*command: Path | str, cwd: Path = ROOT) -> None:
    """Run a command, and end here if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, check=False)
    if done.returncode:
        sys.exit(f"This failed, with exit code {done.returncode}: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
