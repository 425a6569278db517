"""Write the pages of the studies: templates filled with the numbers of a run, so that none is typed by hand.

``python studies/write_up.py OUTPUT [--docs DIR]`` reads OUTPUT/STUDY/results.json of each study that was run, copies it
and its figures to DIR (docs/studies), and writes STUDY.md there from templates/STUDY.md. A run on the paper's own files
has a name of its own (patients_luca) and a template of that name; what pages share is in templates/parts.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studies.output import RESULTS

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "templates"
DOCS = HERE.parent / "docs" / "studies"
_PLACE = re.compile(r"\{([a-z_][a-z0-9_.]*)(?::([^{}]*))?\}")
_INCLUDED = re.compile(r"^<!-- include ([a-z0-9_]+) -->\n", re.MULTILINE)
_PART = re.compile(r"^<!-- if ([a-z_][a-z0-9_.]*) -->\n(.*?)^<!-- end -->\n", re.MULTILINE | re.DOTALL)
LARGEST = 150_000  # bytes of a figure that the repository keeps


def fill(template: str, results: Mapping[str, Any]) -> str:
    """Return a template with its places filled.

    ``{name}`` and ``{name:.2f}`` are numbers or texts of ``results``, in Python's format; ``{table.name}`` is a table,
    ``{figure.name}`` the file of a figure. An unknown name is an error: a page never shows an empty place. Lines
    between ``<!-- if name -->`` and ``<!-- end -->`` stay where the run has such a number, other than "none", or table.
    """

    def filled(place: re.Match[str]) -> str:
        name = place[1]
        form = place[2] or ""
        if name.startswith("table."):
            return markdown_table(_known(results["tables"], name[6:], "table", results))
        if name.startswith("figure."):
            file = f"{results['study']}_{name[7:]}.png"
            if file not in results["figures"]:
                raise ValueError(f"The template asks for {file}, which the run did not draw: {results['figures']}.")
            return file
        value = _known(results["numbers"], name, "number", results)
        if value is None:
            raise ValueError(f"The template asks for {name!r}, which is not known in this run; leave it out.")
        if form:
            return format(value, form)
        return short(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)

    return _PLACE.sub(filled, _PART.sub(lambda part: part[2] if _is_there(part[1], results) else "", template))


def markdown_table(table: Mapping[str, Any]) -> str:
    """Return a table of results.json in Markdown."""
    rows = [[_cell(value) for value in row] for row in table["rows"]]
    rule = ["---"] * len(table["columns"])
    return "\n".join(f"| {' | '.join(row)} |" for row in [table["columns"], rule, *rows])


def short(value: float) -> str:
    """Return a number to three significant digits, whole ones without a point."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"


def write(output: Path, docs: Path = DOCS) -> list[Path]:
    """Write the page of every study that has results in ``output``; return the pages.

    All pages are filled before the first is written.
    """
    found = {path.parent.name: path for path in sorted(Path(output).glob(f"*/{RESULTS}"))}
    if not found:
        raise FileNotFoundError(f"{output} has no STUDY/{RESULTS}; run studies/run.py with --output {output} first.")
    ready = []
    for name, path in found.items():
        results = json.loads(path.read_text(encoding="utf-8"))
        page = fill(read_template(name), results)
        figures = [path.parent / figure for figure in results["figures"] if figure in page]
        large = [figure.name for figure in figures if figure.stat().st_size > LARGEST]
        if large and docs == DOCS:
            raise ValueError(
                f"Figures of more than {LARGEST // 1000} kB do not go into {DOCS}: {large}; write to another --docs."
            )
        ready.append((name, page, results, figures))
    docs.mkdir(parents=True, exist_ok=True)
    pages = []
    for name, page, results, figures in ready:
        for figure in figures:
            shutil.copyfile(figure, docs / figure.name)
        (docs / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (docs / f"{name}.md").write_text(page, encoding="utf-8")
        pages.append(docs / f"{name}.md")
    return pages


def read_template(name: str) -> str:
    """Return the template of a study; a line ``<!-- include NAME -->`` stands for the text of parts/NAME.md."""
    path = TEMPLATES / f"{name}.md"
    if name.rsplit("_", 1)[-1] in ("authors", "text"):
        path = TEMPLATES / "methods.md"  # the paper's Methods, line by line, of any study
    if not path.is_file():
        known = sorted(one.stem for one in TEMPLATES.glob("*.md"))
        raise FileNotFoundError(f"{path} is missing: study {name!r} has no template. There are {known}.")
    text = path.read_text(encoding="utf-8")
    return _INCLUDED.sub(lambda place: (TEMPLATES / "parts" / f"{place[1]}.md").read_text(encoding="utf-8"), text)


def main(argv: Sequence[str] | None = None) -> int:
    """Write pages from the command line; return 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="studies/write_up.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("output", type=Path, help="folder with the results of runs")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="DIR", help="where pages go; docs/studies")
    arguments = parser.parse_args(argv)
    try:
        for page in write(arguments.output, arguments.docs):
            print(page)
    except (ValueError, OSError) as error:
        print(f"studies/write_up.py: {error}", file=sys.stderr)
        return 2
    return 0


def _is_there(name: str, results: Mapping[str, Any]) -> bool:
    if name.startswith("table."):
        return bool(results["tables"].get(name[6:], {}).get("rows"))
    return results["numbers"].get(name) not in (None, "none")


def _known(values: Mapping[str, Any], name: str, what: str, results: Mapping[str, Any]) -> Any:
    if name not in values:
        near = [known for known in values if known.split("_")[0] == name.split("_")[0]]
        raise ValueError(
            f"Results of {results['study']!r} have no {what} {name!r}; there are {near or sorted(values)}."
        )
    return values[name]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = short(value) if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    raise SystemExit(main())
