"""Where versions are written down, and what each of these places says."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
_HEADING = re.compile(r"^## (?P<version>\d+\.\d+\.\d+\S*) \((?P<date>[^)]+)\)$", re.MULTILINE)
_CITED = re.compile(r"^version: (?P<version>\S+)$", re.MULTILINE)
_RELEASED = re.compile(r"^date-released: (?P<date>\S+)$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Heading:
    """A version in the changelog; ``date`` is "unreleased" for one that is being prepared."""

    version: str
    date: str

    @property
    def is_released(self) -> bool:
        """Whether it has a date."""
        return _DATE.fullmatch(self.date) is not None


def headings(root: Path = ROOT) -> list[Heading]:
    """Return the versions of the changelog, the newest first."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return [Heading(found["version"], found["date"]) for found in _HEADING.finditer(text)]


def fallback_version(root: Path = ROOT) -> str:
    """Return the version that clones without tags count towards, without ".dev0"."""
    with (root / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["tool"]["hatch"]["version"]["fallback-version"]).removesuffix(".dev0")


def disagreements(version: str, root: Path = ROOT) -> list[str]:
    """Return what in changelog, citation and pyproject does not go with ``version``, that of a build."""
    newest, *_ = headings(root)
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    cited, released = _CITED.search(citation), _RELEASED.search(citation)
    fallback = fallback_version(root)
    found = []
    if cited is None or cited["version"] != newest.version:
        found.append(f"CITATION.cff has version {cited and cited['version']}, CHANGELOG.md {newest.version}")
    if newest.is_released != (released is not None):
        found.append(f"CHANGELOG.md has {newest.version} ({newest.date}), and date-released in CITATION.cff is not so")
    elif released is not None and released["date"] != newest.date:
        found.append(f"CHANGELOG.md has the date {newest.date}, CITATION.cff {released['date']}")
    if newest.is_released != (Version(fallback) > Version(newest.version)):
        found.append(
            f"pyproject.toml has fallback-version {fallback}.dev0, CHANGELOG.md {newest.version} ({newest.date})"
        )
    if "dev" in version:
        if Version(Version(version).base_version) < Version(newest.version):
            found.append(f"the build has version {version}, CHANGELOG.md already {newest.version}")
    elif version != newest.version or not newest.is_released:
        found.append(f"the build has version {version}, CHANGELOG.md {newest.version} ({newest.date})")
    return found
