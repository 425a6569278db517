"""Print what the sessions of ``noxfile.py`` left in a folder: tests passed, failed, skipped, and what was not run.

``python .ci/matrix_table.py .nox/results``. Each session leaves the XML of pytest, or a note why it was not run. Below
the table are the tests that every session skipped which came across them: nothing has tried them.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}
_MOST = 20  # tests that are listed by name


def outcomes(path: Path) -> dict[str, str]:
    """Return "passed", "failed" or "skipped" by the name of the test."""
    found: dict[str, str] = {}
    for case in ET.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        what = next((_OUTCOMES[child.tag] for child in case if child.tag in _OUTCOMES), "passed")
        # A test that passes and whose fixture fails afterwards is there twice.
        found[name] = "failed" if "failed" in (what, found.get(name)) else what
    return found


def table(folder: Path) -> list[str]:
    """Return the lines that are printed."""
    sessions = {path.stem: outcomes(path) for path in sorted(folder.glob("*.xml"))}
    notes = {path.stem: path.read_text(encoding="utf-8").strip() for path in sorted(folder.glob("*.not-run"))}
    width = max(map(len, ["session", *sessions, *notes]))
    lines = [f"{'session':{width}}  passed  failed  skipped"]
    for name, found in sessions.items():
        counts = Counter(found.values())
        lines.append(f"{name:{width}}  {counts['passed']:6}  {counts['failed']:6}  {counts['skipped']:7}")
    lines += [f"{name:{width}}  NOT RUN: {why}" for name, why in notes.items()]
    everywhere = skipped_everywhere(list(sessions.values()))
    if everywhere:
        lines.append(f"Skipped in every session: {len(everywhere)}, such as")
        lines += [f"  {name}" for name in everywhere[:_MOST]]
    return lines


def skipped_everywhere(sessions: list[dict[str, str]]) -> list[str]:
    """Return the tests that no session has run, in the order of their names."""
    met = {name for found in sessions for name in found}
    run = {name for found in sessions for name, what in found.items() if what != "skipped"}
    return sorted(met - run)


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]))))
