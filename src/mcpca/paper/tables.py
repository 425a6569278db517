"""Results as tables: one row per method, for JSON and as Markdown."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .._utils.atomic_files import replace_file
from .digits import CURVE
from .problems import PLANTED_DIGITS, Case
from .running import LABELS, Record, by_method

FAR_OFF = 1e-2  # a run with a larger 1 - Ascore has not found all components
_RATE_FROM = 1000  # rows per context from which the rate is fitted; 1 - Ascore is bounded, and flat at few rows
Row = dict[str, Any]
# Columns that ``claims`` reads.
ERROR_COLUMN = "median 1 - Ascore"
SECONDS_COLUMN = "median seconds"
RATIO_COLUMN = "times MCPCA's"
FAR_OFF_COLUMN = f"trials above {FAR_OFF:g}"
SLOPE_COLUMN = "slope"
ALL_DIGITS_COLUMN = "all three"


def accuracy_table(records: Sequence[Record]) -> list[Row]:
    """Return one row per method: error and time over the trials of a single case."""
    rows = []
    groups = by_method(records)
    # None if MCPCA was not among the methods; the column of ratios is then empty, and not shown.
    mcpca_seconds = _median([r["seconds"] for r in groups.get("mspm", [])])
    for name, of_method in groups.items():
        # A run without an answer has no error. It is counted by ``endings``, so that a method that fails on hard trials
        # does not look better for it.
        errors = [r["error"] for r in of_method if r["error"] is not None]
        seconds = _median([r["seconds"] for r in of_method])
        rows.append(
            {
                "method": LABELS.get(name, name),
                "trials": len(of_method),
                ERROR_COLUMN: _median(errors),
                "best": min(errors, default=None),
                "worst": max(errors, default=None),
                FAR_OFF_COLUMN: sum(e > FAR_OFF for e in errors),
                SECONDS_COLUMN: seconds,
                RATIO_COLUMN: seconds / mcpca_seconds if seconds is not None and mcpca_seconds else None,
                **endings(of_method),
            }
        )
    return rows


def cases_table(records: Sequence[Record], cases: Sequence[Case]) -> list[Row]:
    """Return one row per method with a column per case: the median error, and its rate if N varies."""
    rows = []
    for name, of_method in by_method(records).items():
        medians = {case.name: case_median(of_method, case) for case in cases}
        row: Row = {"method": LABELS.get(name, name), "trials": len({r["trial"] for r in of_method}), **medians}
        # A slope makes sense only where cases differ by the number of rows.
        sizes = [case.x for case in cases]
        if all(x is not None for x in sizes):
            row[SLOPE_COLUMN] = slope(sizes, list(medians.values()))
        rows.append({**row, **endings(of_method)})
    return rows


def digits_table(records: Sequence[Record]) -> list[Row]:
    """Return one row per method: mean |correlation| with each mean digit, and how many digits were recovered."""
    rows = []
    for name, of_method in by_method(records).items():
        if name == CURVE:
            continue
        # A draw without an answer counts against "all three"; the means are over the draws that have one.
        answered = [r for r in of_method if "recovered" in r]
        counts = [sum(r["recovered"]) for r in answered]
        row: Row = {"method": LABELS.get(name, name), "rank": of_method[0]["rank"], "draws": len(of_method)}
        row |= {f"corr {d}": _mean([r["correlations"][i] for r in answered]) for i, d in enumerate(PLANTED_DIGITS)}
        row["digits recovered, mean"] = _mean(counts)
        row[ALL_DIGITS_COLUMN] = f"{sum(n == len(PLANTED_DIGITS) for n in counts)} of {len(of_method)}"
        row[SECONDS_COLUMN] = _median([r["seconds"] for r in of_method])
        rows.append({**row, **endings(of_method)})
    return rows


def endings(records: Sequence[Record]) -> Row:
    """Return how many runs were stopped at the cap and how many gave no answer, so that none is left out silently."""
    capped = sum(bool(r.get("capped")) for r in records)
    failed = sum("failed" in r for r in records)
    return {
        "stopped at the cap": f"{capped} of {len(records)}" if capped else "",
        "no answer": f"{failed} of {len(records)}" if failed else "",
    }


def case_median(records: Sequence[Record], case: Case) -> float | None:
    """Return the median error of one method's records in a case."""
    # By all that describes the case, not by its name alone: a file may hold runs of other shapes.
    key = case.describe()
    of_method = [r for r in records if all(r.get(name) == value for name, value in key.items())]
    return _median([r["error"] for r in of_method if r["error"] is not None])


def slope(sizes: Sequence[float | None], errors: Sequence[float | None]) -> float | None:
    """Fit ``log error = c + slope log N`` by least squares from N = 1000 on; -1 is an error like 1 / N."""
    # An error of exactly 0 has no logarithm and is left out, like a missing one.
    pairs = [(x, e) for x, e in zip(sizes, errors, strict=True) if x is not None and x >= _RATE_FROM and e]
    if len(pairs) < 2:
        return None
    x, y = np.log(np.array(pairs)).T
    return float(np.polyfit(x, y, 1)[0])


def _median(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(median(numbers)) if numbers else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def as_markdown(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table, without columns that are empty throughout."""
    # Columns for caps and failures are empty in most runs; a table without them fits a page.
    head = [name for name in rows[0] if any(row[name] not in ("", None) for row in rows)]
    lines = [head, ["---"] * len(head), *([_cell(row[name]) for name in head] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    # Counts are int and are written whole; two digits are about what the medians of a few trials are good for.
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def environment() -> dict[str, str]:
    """Return versions, and the settings that decide how many threads are used."""
    names = ("mcpca", "numpy", "scipy", "scikit-learn")
    # How many threads BLAS may use decides the times, and so has to be beside them.
    threads = {name: os.environ.get(name, "not set") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    versions = {name: version(name) for name in names} | {"python": platform.python_version()}
    return versions | {"cores": str(os.cpu_count()), **threads}


def write_tables(output: Path, name: str, title: str, rows: Sequence[Row], about: dict[str, Any], notes: str) -> str:
    """Write ``name.json`` and ``name.md``; return the Markdown."""
    content = {"title": title, "settings": about, "environment": environment(), "rows": list(rows)}
    text = f"## {title}\n\n{as_markdown(rows)}\n\n{notes}\n"
    # Both files appear whole or not at all: a run that is interrupted here leaves no half table.
    json_text = json.dumps(content, indent=1) + "\n"
    replace_file(output / f"{name}.json", lambda file: file.write(json_text.encode()))
    replace_file(output / f"{name}.md", lambda file: file.write(text.encode()))
    return text
