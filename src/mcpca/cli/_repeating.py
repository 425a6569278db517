"""``mcpca repeat``: the run that a ``run.json`` records once more, and whether the results are the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._console import Console
from ._fitting import run_fit
from ._located import locate
from ._outputs import RESULT_TABLES
from ._ranking import rank_files
from ._record import FitOptions, RankOptions, read_record

# Outputs that a repetition must reproduce to the last bit: report and pictures carry versions of other packages.
_REPRODUCED = {*RESULT_TABLES, "model"}


def run_repeat(
    path: Path, out: Path, force: bool, console: Console, command: list[str], data: Sequence[Path] = ()
) -> dict[str, Any]:
    """Repeat the run that a ``run.json`` records, and compare the results with those recorded there.

    ``data`` are files and folders where inputs are to be looked for that are not where they were.
    """
    before = read_record(path)
    with console.phase("checksums"):
        # Before the fit, which would be in vain if a file has changed; ``expected`` checks once more after it.
        located = locate(before, path, data)
    if before.get("kind", "fit") == "rank":
        ranking = RankOptions.from_json(before["options"], located)
        result = rank_files(ranking, out, force, console, command, expected=located.inputs)
        table_format = ranking.format
    else:
        options = FitOptions.from_json(before["options"], located)
        result = run_fit(options, out, force, console, command, expected=located.inputs)
        table_format = options.format
    after = read_record(out)
    differ = [
        name
        for name, digest in before["outputs"].items()
        # Only tables and model: the report has the date in it.
        if _is_reproduced(name, table_format) and after["outputs"].get(name) != digest
    ]
    changed = {
        name: [version, after["versions"].get(name)]
        for name, version in before["versions"].items()
        if after["versions"].get(name) != version
    }
    if changed:
        changes = ", ".join(f"{name} {old} then, {new} now" for name, (old, new) in changed.items())
        console.note(f"versions have changed: {changes}.")
    if differ:
        console.warn(f"the results differ from those of {path}: {', '.join(differ)}.")
    else:
        console.say(f"The same numbers as in {path}, to the last bit.")
    return {**result, "same": not differ, "differ": differ, "versions_changed": changed}


def _is_reproduced(file_name: str, table_format: str) -> bool:
    """Whether an output is a table or the model, or the choice of a rank."""
    if file_name == "rank.json":
        return True
    return file_name.split(".")[0] in _REPRODUCED and file_name.endswith((table_format, ".mcpca"))
