"""What a study finds: numbers, tables, claims and figures, written to a folder as a whole or not at all."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

RESULTS = "results.json"
_DIGITS = 6  # significant, of numbers in results.json
METHOD_COLUMNS = ["in the paper's Methods", "as it was run here", "what came out"]
CLAIM_COLUMNS = ["claim", "in the paper", "here", "by chance", "holds here"]


class Report:
    """Collects what a study finds.

    Parameters
    ----------
    study : str
        Its name, which begins the names of its figures.
    log : callable
        Called with a line of text when something is known.
    """

    def __init__(self, study: str, log: Any = print) -> None:
        self.study = study
        self.numbers: dict[str, Any] = {}
        self._log = log
        self._tables: dict[str, pd.DataFrame] = {}
        self._on_page: list[str] = []
        self._figures: dict[str, bytes] = {}
        self._claims: list[list[str]] = []
        self._methods: list[list[str]] = []

    def say(self, line: str) -> None:
        """Tell progress."""
        self._log(f"{self.study}: {line}")

    def add(self, **numbers: Any) -> None:
        """Keep numbers, texts or flat lists under their names; a name is given once."""
        for name, value in numbers.items():
            if name in self.numbers:
                raise ValueError(f"The number {name!r} of study {self.study!r} is there already; give it another name.")
            self.numbers[name] = plain(value)

    def table(self, name: str, frame: pd.DataFrame, *, on_page: bool = True) -> None:
        """Keep a table, written as NAME.csv; ``on_page`` also for the write-up, so it should be short."""
        self._tables[name] = frame
        if on_page:
            self._on_page.append(name)

    def figure(self, name: str, drawn: Any, *, dpi: int = 100) -> None:
        """Keep a Matplotlib figure (or that of axes) as a PNG, and close it."""
        figure = getattr(drawn, "figure", drawn)
        content = io.BytesIO()
        figure.savefig(content, dpi=dpi, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)
        self._figures[f"{self.study}_{name}.png"] = content.getvalue()

    def claim(self, claim: str, paper: str, here: str, chance: str, holds: bool | str) -> None:
        """Keep what came of one claim: ``holds`` is True, False, or words."""
        word = holds if isinstance(holds, str) else ("yes" if holds else "no")
        self._claims.append([claim, paper, here, chance, word])

    def method(self, sentence: str, here: str, output: str) -> None:
        """Keep the line of one sentence of the paper's Methods: what was done for it, and what came out."""
        self._methods.append([sentence, here, output])

    def results(self) -> dict[str, Any]:
        """Return all that a write-up needs, as JSON has it."""
        shown = {name: _as_json(self._tables[name]) for name in self._on_page}
        claims = {"claims": {"columns": CLAIM_COLUMNS, "rows": self._claims}} if self._claims else {}
        methods = {"methods": {"columns": METHOD_COLUMNS, "rows": self._methods}} if self._methods else {}
        return {
            "study": self.study,
            "numbers": self.numbers,
            "tables": shown | claims | methods,
            "figures": sorted(self._figures),
        }

    def write(self, directory: str | Path) -> Path:
        """Write results.json, tables as CSV and figures as PNG to ``directory``; return the path of results.json.

        All files are complete in a folder of their own before the first of them is put in place, results.json last.
        """
        directory = Path(directory)
        if directory.exists() and not directory.is_dir():
            raise NotADirectoryError(f"--output {directory} is a file; name a folder.")
        text = json.dumps(self.results(), indent=1, allow_nan=False) + "\n"
        directory.mkdir(parents=True, exist_ok=True)
        parts = Path(tempfile.mkdtemp(dir=directory, prefix=".writing-"))
        try:
            for name, frame in self._tables.items():
                frame.to_csv(parts / f"{name}.csv", index=False, float_format=f"%.{_DIGITS}g")
            for name, content in self._figures.items():
                (parts / name).write_bytes(content)
            if self._claims:
                claims = pd.DataFrame(self._claims, columns=CLAIM_COLUMNS)
                claims.to_csv(parts / "claims.csv", index=False)
            if self._methods:
                pd.DataFrame(self._methods, columns=METHOD_COLUMNS).to_csv(parts / "methods.csv", index=False)
            (parts / RESULTS).write_text(text, encoding="utf-8")
            for part in sorted(parts.iterdir(), key=lambda path: path.name == RESULTS):
                os.replace(part, directory / part.name)
        finally:
            shutil.rmtree(parts, ignore_errors=True)
        return directory / RESULTS


def plain(value: Any) -> Any:
    """Return a value as JSON has it: floats to six significant digits, None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    raise TypeError(f"A {type(value).__name__} cannot be kept; pass numbers, texts, or lists of them.")


def _as_json(frame: pd.DataFrame) -> dict[str, Any]:
    rows = [[plain(None if _is_missing(one) else one) for one in row] for row in frame.itertuples(index=False)]
    return {"columns": [str(name) for name in frame.columns], "rows": rows}


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or value is pd.NA
