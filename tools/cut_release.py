"""Cut a version: fragments become a section of the changelog, and every place that names the version names this one.

``python tools/cut_release.py 0.2.0`` changes files and nothing else; look at them, commit, and tag the commit. See
CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from packaging.version import Version

from tools.versions import ROOT, disagreements, fallback_version, headings


def main() -> None:
    """Check, then change the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="as 0.2.0; the tag will be v0.2.0")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the release, as 2026-11-20")
    options = parser.parse_args()
    wrong = refusals(options.version, options.date)
    if wrong:
        sys.exit("".join(f"{reason}\n" for reason in wrong))
    cut(options.version, options.date)
    print(f"Look at `git diff`, commit, then: git tag -s v{options.version} && git push origin v{options.version}")


def refusals(version: str, date: str, root: Path = ROOT) -> list[str]:
    """Return why this version cannot be cut; an empty list if it can."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return [f"version={version!r} is not of the form 0.3.0; write three numbers."]
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        return [f"date={date!r} is no date; write it as 2026-11-20."]
    newest, *_ = headings(root)
    found = []
    if newest.is_released and Version(version) <= Version(newest.version):
        found.append(f"version={version} is not after {newest.version}, the newest in CHANGELOG.md; take a higher one.")
    if not newest.is_released and version != newest.version:
        found.append(f"CHANGELOG.md prepares {newest.version}; cut that, or change its heading to {version}.")
    if not newest.is_released and not (root / "docs" / f"release-notes-{version}.md").exists():
        found.append(f"docs/release-notes-{version}.md is not there, and CHANGELOG.md links to it; write it.")
    return found + [f"{late} Remove it first." for late in _overdue(version)]


def _overdue(version: str) -> list[str]:
    """Return what was deprecated and should be gone in ``version``."""
    source = ROOT / "src"
    for path in sorted(source.rglob("*.py")):
        if "_utils.deprecated import" in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"))
    return [str(noted) for noted in importlib.import_module("mcpca._utils.deprecated").overdue(version)]


def cut(version: str, date: str, root: Path = ROOT) -> None:
    """Write the changelog by towncrier, and the version and the next one where they belong: all places that have it."""
    command = ["-m", "towncrier", "build", "--yes", "--version", version, "--date", date]
    subprocess.run([sys.executable, *command], cwd=root, check=True)
    _join_prepared(root / "CHANGELOG.md", version)
    cited = rf"version: {version}\ndate-released: {date}\n"
    _replace(root / "CITATION.cff", r"^version: \S+\n(?:date-released: \S+\n)?", cited)
    _replace(root / "recipe" / "recipe.yaml", r'^  version: "\S+"$', f'  version: "{version}"')
    _replace(root / "docs" / "cite.md", r"(?<=, version )\d+\.\d+\.\d+(?=, \d{4}\.)", version)
    _replace(root / "docs" / "cite.md", r"(?<=  version = \{)\d+\.\d+\.\d+(?=\},)", version)
    galaxy = root / "workflows" / "galaxy" / "mcpca_fit.xml"
    _replace(galaxy, r'(?<=<token name="@TOOL_VERSION@">)[^<]+', version)
    major, minor, patch = Version(version).release
    following = f'fallback-version = "{major}.{minor}.{patch + 1}.dev0"'
    _replace(root / "pyproject.toml", rf'^fallback-version = "{re.escape(fallback_version(root))}\.dev0"$', following)
    assert not disagreements(version, root), disagreements(version, root)


def _join_prepared(changelog: Path, version: str) -> None:
    """Put what was written by hand as "(unreleased)" at the beginning of the section that towncrier has made above."""
    text = changelog.read_text(encoding="utf-8")
    number = re.escape(version)
    sections = re.search(
        rf"^(?P<heading>## {number} \([\d-]+\)\n\n)(?P<made>.*?)"
        rf"^## {number} \(unreleased\)\n\n(?P<prepared>.*?)(?=^## |\Z)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    if sections is not None:
        joined = f"{sections['heading']}{sections['prepared'].strip()}\n\n{sections['made'].strip()}\n"
        following = text[sections.end() :]
        changelog.write_text(
            text[: sections.start()] + joined + ("\n" + following if following else ""), encoding="utf-8"
        )


def _replace(path: Path, pattern: str, text: str) -> None:
    changed, times = re.subn(pattern, text, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if times != 1:
        sys.exit(f"{path} has {pattern!r} {times} times, and should have it once.")
    path.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    main()
