"""Tables of the results: rows for JSON, and the same as Markdown."""

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

from .digits import CURVE
from .problems import DIGITS, Case
from .running import LABELS, Record

FAR_OFF = 1e-2  # 1 - Ascore of a run that has not found all components
_RATE_FROM = 1000  # rows per context from which the rate of the error is fitted
Row = dict[str, Any]


def accuracy_table(records: Sequence[Record]) -> list[Row]:
    """One row a method: error and time over the trials of a single case."""
    rows = []
    base = _median([r["seconds"] for r in _of(records, "mspm")])
    for name in _names(records):
        own = _of(records, name)
        errors, seconds = ([r[key] for r in own if r[key] is not None] for key in ("error", "seconds"))
        middle = _median(seconds)
        rows.append(
            {
                "method": LABELS.get(name, name),
                "trials": len(own),
                "median 1 - Ascore": _median(errors),
                "best": min(errors, default=None),
                "worst": max(errors, default=None),
                f"trials above {FAR_OFF:g}": sum(e > FAR_OFF for e in errors),
                "median seconds": middle,
                "times MCPCA's": middle / base if middle is not None and base else None,
                **endings(own),
            }
        )
    return rows


def cases_table(records: Sequence[Record], cases: Sequence[Case]) -> list[Row]:
    """One row a method, one column a case: median error; where N varies also the rate at which it falls."""
    rows = []
    for name in _names(records):
        own = _of(records, name)
        medians = {case.name: case_median(own, case) for case in cases}
        row: Row = {"method": LABELS.get(name, name), "trials": len({r["trial"] for r in own}), **medians}
        sizes = [case.x for case in cases]
        if all(x is not None for x in sizes):
            row["slope"] = slope(sizes, list(medians.values()))
        rows.append({**row, **endings(own)})
    return rows


def digits_table(records: Sequence[Record]) -> list[Row]:
    """One row a method: mean |correlation| with each mean digit, and how many digits were recovered."""
    rows = []
    for name in _names(records):
        if name == CURVE:
            continue
        own = _of(records, name)
        found = [r for r in own if "recovered" in r]
        counts = [sum(r["recovered"]) for r in found]
        row: Row = {"method": LABELS.get(name, name), "rank": own[0]["rank"], "draws": len(own)}
        row |= {f"corr {d}": _mean([r["correlations"][i] for r in found]) for i, d in enumerate(DIGITS)}
        row["digits recovered, mean"] = _mean(counts)
        row["all three"] = f"{sum(n == len(DIGITS) for n in counts)} of {len(own)}"
        row["median seconds"] = _median([r["seconds"] for r in own])
        rows.append({**row, **endings(own)})
    return rows


def endings(records: Sequence[Record]) -> Row:
    """Say how many runs were stopped at the cap and how many gave no answer; nothing is left out in silence."""
    capped, failed = sum(bool(r.get("capped")) for r in records), sum("failed" in r for r in records)
    return {
        "stopped at the cap": f"{capped} of {len(records)}" if capped else "",
        "no answer": f"{failed} of {len(records)}" if failed else "",
    }


def case_median(records: Sequence[Record], case: Case) -> float | None:
    """Return the median error of one method's records in a case."""
    key = case.describe()
    own = [r for r in records if all(r.get(name) == value for name, value in key.items())]
    return _median([r["error"] for r in own if r["error"] is not None])


def slope(sizes: Sequence[float | None], errors: Sequence[float | None]) -> float | None:
    """Fit ``log error = c + slope log N`` by least squares from N = 1000 on; -1 is an error like 1 / N."""
    pairs = [(x, e) for x, e in zip(sizes, errors, strict=True) if x is not None and x >= _RATE_FROM and e]
    if len(pairs) < 2:
        return None
    x, y = np.log(np.array(pairs)).T
    return float(np.polyfit(x, y, 1)[0])


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(r["method"] for r in records))


def _of(records: Sequence[Record], name: str) -> list[Record]:
    return [r for r in records if r["method"] == name]


def _median(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(median(numbers)) if numbers else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def as_markdown(rows: Sequence[Row]) -> str:
    """Write rows as a table; a column that is empty throughout is left out."""
    head = [name for name in rows[0] if any(row[name] not in ("", None) for row in rows)]
    lines = [head, ["---"] * len(head), *([_show(row[name]) for name in head] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _show(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def environment() -> dict[str, str]:
    """Return versions, and what decides how many threads are used."""
    names = ("mcpca", "numpy", "scipy", "scikit-learn")
    threads = {name: os.environ.get(name, "not set") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    found = {name: version(name) for name in names} | {"python": platform.python_version()}
    return found | {"cores": str(os.cpu_count()), **threads}


def write(path: Path, text: str) -> None:
    """Replace a file at once, so that a reader sees the old one or the new one."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def write_tables(output: Path, name: str, title: str, rows: Sequence[Row], about: dict[str, Any], notes: str) -> str:
    """Write ``name.json`` and ``name.md``; return the Markdown."""
    content = {"title": title, "settings": about, "environment": environment(), "rows": list(rows)}
    write(output / f"{name}.json", json.dumps(content, indent=1) + "\n")
    text = f"## {title}\n\n{as_markdown(rows)}\n\n{notes}\n"
    write(output / f"{name}.md", text)
    return text
