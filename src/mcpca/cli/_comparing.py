"""``mcpca compare``: two runs beside each other, in words, as tables and as a page.

Models are compared by the library (``compare_models``). What else changed is read off the records of the runs: data by
their checksums, options, seed, versions, warnings. A model without a record tells what the model itself knows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._comparison.models import ModelComparison, compare_models
from .._estimator.mcpca import MCPCA
from ..report import write_comparison
from . import _opening
from ._applying import open_model
from ._console import Console, json_text
from ._fitting import library_errors
from ._outputs import check_file, check_folder, checksum, new_file, new_folder
from ._policy import RESULTS_ARE_A_FOLDER, check_ending, is_page
from ._record import FitOptions, read_record
from .tables import UnusableFileError, write_table

_DIGITS = 12  # of a checksum that a person compares
_MB = 2**20


@dataclass(frozen=True)
class Run:
    """A run to compare: what to call it, its model, and its record if there is one."""

    name: str
    model: MCPCA
    record: dict[str, Any] | None


def run_compare(
    first: Path,
    second: Path,
    threshold: float,
    title: str | None,
    out: Path | None,
    force: bool,
    console: Console,
    open_page: bool = False,
) -> dict[str, Any]:
    """Compare two runs, and write a page, or a folder with page and tables, if one is named."""
    as_page = out is not None and is_page(out)
    if out is not None and as_page:
        check_file(out, force)
    elif out is not None:
        check_ending(out, RESULTS_ARE_A_FOLDER)
        check_folder(out, force)
    names = _names(first, second)
    with console.phase("reading"):
        runs = [_read_run(path, name) for path, name in zip((first, second), names, strict=True)]
    with console.phase("comparison"), library_errors(second):
        comparison = compare_models(runs[0].model, runs[1].model, threshold=threshold, names=names)
    changes = changes_between(*runs)
    notes = [
        f"{run.name} is a model without its run.json: options, data and versions of its run are not known."
        for run in runs
        if run.record is None
    ]
    page: Path | None = None
    files: list[str] = []
    if out is not None and as_page:
        with new_file(out, force) as file:
            write_comparison(comparison, file, title=title, changes=changes, notes=notes, overwrite=True)
        page = out
    elif out is not None:
        files = _write_folder(comparison, out, force, title, changes, notes)
        page = out / "comparison.html"
    _say(comparison, changes, notes, console)
    if out is not None:
        console.say(f"\nWrote {out}" + (f": {', '.join(files)}" if files else ""))
    result = {
        "out": None if out is None else str(out),
        "first": str(first),
        "second": str(second),
        **_as_json(comparison),
        "changes": changes,
        "notes": notes,
    }
    if open_page and page is not None:
        result["opened"] = _opening.open_page(page, console)
    return result


def _names(first: Path, second: Path) -> tuple[str, str]:
    """Return what to call two runs: their folders, or more of their paths where these are alike."""
    paths = [
        path.absolute().parent if path.name in ("run.json", "model.mcpca") else path.absolute()
        for path in (first, second)
    ]
    if paths[0] == paths[1]:
        return "first", "second"
    if paths[0].name != paths[1].name:
        return paths[0].name, paths[1].name
    a, b = (path.parts for path in paths)
    # From the end up to the first part by which they differ.
    n = next((n for n in range(1, min(len(a), len(b)) + 1) if a[-n] != b[-n]), max(len(a), len(b)))
    return str(Path(*a[-n:])), str(Path(*b[-n:]))


def _read_run(path: Path, name: str) -> Run:
    """Read a run: a folder of results, its run.json, or a model file, with the record beside it if it is its own."""
    given = path.parent if path.name == "run.json" else path
    model = open_model(given)
    file = given / "model.mcpca" if given.is_dir() else given
    beside = file.parent / "run.json"
    if not beside.exists():
        return Run(name, model, None)
    try:
        record = read_record(file.parent)
    except UnusableFileError:
        # The record of another program, or of a later mcpca, is no reason not to compare models.
        return Run(name, model, None)
    # A model that was put beside the record of another one has none.
    own = record.get("outputs", {}).get("model.mcpca") == checksum(file)["sha256"]
    return Run(name, model, record if own else None)


# What changed --------------------------------------------------------------------------------------------------------


def changes_between(a: Run, b: Run) -> list[dict[str, str]]:
    """Return what differs between two runs: data, sizes, model, options, versions, warnings."""
    facts = [_facts(run) for run in (a, b)]
    found = [_change(what, facts[0][what], facts[1][what]) for what in facts[0] if facts[0][what] != facts[1][what]]
    if a.record is None or b.record is None:
        return found
    data = _changed_data(a.record["inputs"], b.record["inputs"])
    options = [_options(run.record["options"]) for run in (a, b) if run.record is not None]
    named = [
        _change(name, options[0][name], options[1][name]) for name in options[0] if options[0][name] != options[1][name]
    ]
    versions = [run.record["versions"] for run in (a, b) if run.record is not None]
    packages = [
        _change(f"version of {name}", versions[0].get(name, "not installed"), versions[1].get(name, "not installed"))
        for name in dict.fromkeys([*versions[0], *versions[1]])
        if versions[0].get(name) != versions[1].get(name)
    ]
    warnings = [run.record.get("warnings", []) for run in (a, b) if run.record is not None]
    told = [_change("warning", text, "not given") for text in warnings[0] if text not in warnings[1]]
    told += [_change("warning", "not given", text) for text in warnings[1] if text not in warnings[0]]
    # "rank" beside "--rank" of the same values would say the same twice.
    asked = {change["what"]: change for change in named}
    found = [
        change for change in found if {**change, "what": ""} != {**asked.get(f"--{change['what']}", {}), "what": ""}
    ]
    return [*data, *found, *named, *packages, *told]


def _change(what: str, first: Any, second: Any) -> dict[str, str]:
    return {"what": what, "first": str(first), "second": str(second)}


def _facts(run: Run) -> dict[str, str]:
    """Return what the model itself knows of its run."""
    model = run.model
    n = model.n_samples_per_context_
    return {
        "rows": "not known" if n is None else f"{int(n.sum()):,}",
        "features": f"{len(model.components_):,}",
        "contexts": f"{len(model.contexts_):,}",
        "rank": str(model.n_components_),
        "solver": str(model.solver_),
        "noise in the model": str(model.noise_ or "none"),
        "orthogonal": "yes" if model.orthogonal else "no",
        "rows prepared by": "nothing" if model.preprocess_ is None else model.preprocess_.summary(),
    }


def _changed_data(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the files that only one of two runs has read, by their checksums; those of one name side by side."""
    known = [{entry["sha256"] for entry in entries} for entries in (before, after)]
    gone = {Path(entry["path"]).name: entry for entry in before if entry["sha256"] not in known[1]}
    new = {Path(entry["path"]).name: entry for entry in after if entry["sha256"] not in known[0]}
    return [
        _change(f"data {name}", _file(gone.get(name)), _file(new.get(name))) for name in dict.fromkeys([*gone, *new])
    ]


def _file(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "not read"
    return f"{entry['bytes']:,} bytes, SHA-256 {entry['sha256'][:_DIGITS]}"


def _options(content: dict[str, Any]) -> dict[str, str]:
    """Return the options of a recorded run as a person types them, all of them."""
    options = FitOptions.from_json(content)
    values = {**asdict(options.reading), **{name: getattr(options, name) for name in options._simple_fields()}}
    # ``raw`` follows from --normalize.
    values.pop("raw")
    values["max_memory"] = f"{values.pop('max_bytes') // _MB} MB"
    values["no_header"] = not values.pop("header")
    if values["labels"] is not None:
        # Where the file was is no difference; what is in it is told by its checksum.
        values["labels"] = Path(values["labels"]).name
    return {f"--{name.replace('_', '-')}": _typed(value) for name, value in values.items()}


def _typed(value: Any) -> str:
    if value is None or value == () or value == []:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ", ".join(f"@{Path(text[1:]).name}" if str(text).startswith("@") else str(text) for text in value)
    return str(value)


# Words and files -----------------------------------------------------------------------------------------------------


def _say(comparison: ModelComparison, changes: list[dict[str, str]], notes: list[str], console: Console) -> None:
    console.say("\n".join(comparison._words()))
    if not comparison.identical:
        console.say(f"\n{_pairs_text(comparison)}")
    if changes:
        console.say("\nWhat changed:")
        for change in changes:
            console.say(f"  {change['what']}: {change['first']} -> {change['second']}")
    else:
        console.say("\nNothing that is known of the two runs differs.")
    for note in notes:
        console.note(note)


def _pairs_text(comparison: ModelComparison) -> str:
    """Return the pairs as a table of text."""
    columns = comparison.columns()
    a, b = comparison.names
    shown = [a, b, "|cos|", "comes back"]
    rows = [
        [
            str(columns[a][i] or "-"),
            str(columns[b][i] or "-"),
            "-" if columns["|cos|"][i] is None else f"{columns['|cos|'][i]:.3f}",
            "yes" if columns["comes back"][i] else "no",
        ]
        for i in range(len(columns[a]))
    ]
    widths = [max(len(row[c]) for row in [shown, *rows]) for c in range(len(shown))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in [shown, *rows]
    ]
    return "\n".join(lines)


def _as_json(comparison: ModelComparison) -> dict[str, Any]:
    columns = comparison.columns()
    return {
        "summary": comparison.summary(),
        "identical": comparison.identical,
        "same": comparison.identical or comparison.same,
        "threshold": comparison.threshold,
        "come_back": int(comparison.returns.sum()),
        "gone": [comparison.mcpcs[0][j] for j in comparison.gone.tolist()],
        "new": [comparison.mcpcs[1][j] for j in comparison.new.tolist()],
        "pairs": [
            {"first": comparison.mcpcs[0][i], "second": comparison.mcpcs[1][j], "cosine": cosine, "comes_back": back}
            for i, j, cosine, back in zip(
                comparison.first.tolist(),
                comparison.second.tolist(),
                comparison.cosines.tolist(),
                comparison.returns.tolist(),
                strict=True,
            )
        ],
        "mcpcs": columns,
        "features": {
            "common": len(comparison.features),
            "only_first": comparison.features_alone[0],
            "only_second": comparison.features_alone[1],
        },
        "contexts": {
            "common": comparison.contexts,
            "only_first": comparison.contexts_alone[0],
            "only_second": comparison.contexts_alone[1],
        },
    }


def _write_folder(
    comparison: ModelComparison,
    out: Path,
    force: bool,
    title: str | None,
    changes: list[dict[str, str]],
    notes: list[str],
) -> list[str]:
    """Write page and tables; return the names of the files."""
    with new_folder(out, force) as folder:
        write_table(comparison.columns(), folder / "matched_mcpcs.csv")
        write_table(comparison.loading_columns(), folder / "compared_loadings.csv")
        columns = {name: [change[name] for change in changes] for name in ("what", "first", "second")}
        write_table(columns, folder / "changes.csv")
        content = json_text(_as_json(comparison) | {"changes": changes, "notes": notes}, indent=2)
        (folder / "comparison.json").write_text(content + "\n", encoding="utf-8")
        write_comparison(comparison, folder / "comparison.html", title=title, changes=changes, notes=notes)
        return sorted(path.name for path in folder.iterdir())
