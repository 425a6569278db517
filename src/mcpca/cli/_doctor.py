"""``mcpca doctor``: what is in a file, whether MCPCA can use it, and the command that fits it.

In three steps. ``_examining`` looks at the file and collects ``Findings``: facts to print, columns that could be
contexts, and a ``Reading`` that leaves out what cannot be a feature. ``_try`` then reads the file in just that way, so
that the verdict is an experiment and not a guess. ``tables.options.option_words`` writes the reading down as options.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from .._data.anndata_rows import counts_in
from .._utils.printing import counted
from ._console import Console, Failure
from ._examining import examine
from ._suspects import family_of
from .tables import Reading, TableData, UnusableFileError, read_data, stdin
from .tables._errors import UselessOptionError, foreign_bytes
from .tables.annotated import RAW_COUNTS
from .tables.kinds import FileKind, file_kind
from .tables.options import check_options, option_words, options_given

_SCAN_BYTES = 2**26  # of rows that are checked at a time
_SMALL_CONTEXT = 5  # rows, below which a covariance says little
_LEAST_COUNTED = 20  # features of a table of counts
_LEAST_ZEROS = 0.2  # of the values of a table of counts; scores from 0 to 100 have few
_COUNTS_TESTED = 200  # rows
_TABLE_OF_COUNTS = "the values look like raw counts; --normalize log1p prepares them."


def run_doctor(path: Path, reading: Reading, console: Console) -> dict[str, Any]:
    """Say what is in a file and how to fit it; raise a ``Failure`` if it cannot be fitted."""
    # A folder of results is looked at by its model.
    path = path / "model.mcpca" if (path / "run.json").is_file() and (path / "model.mcpca").is_file() else path
    kind = file_kind(path)
    if kind.format in ("model", "moments") and (options := options_given(reading)):
        raise UselessOptionError(path, f"has no rows, so {options[0]} has no effect; drop it.")
    # For a folder, options are checked against the files in it, when these are read (``_try``).
    if kind.format != "folder":
        check_options(reading, [path], [kind])
    with console.phase("reading"), foreign_bytes(path, kind.format):
        findings = examine(path, kind, reading)
    # Facts before the trial: they help most where the file turns out to be unusable.
    console.say(f"{path}: {findings.facts[0]}")
    for fact in findings.facts[1:]:
        console.say(f"  {fact}")
    content: dict[str, Any] = {"format": kind.format, "facts": findings.facts, "contexts": findings.contexts}
    content["no_features"] = findings.no_features
    if kind.format == "moments":
        command = _fit_command(path, Reading())
        console.say(f"MCPCA can use it.\n\n  {command}")
        return {**content, "usable": True, "command": command}
    # A model says in its facts what to do with it.
    if not findings.has_rows:
        return {**content, "usable": True}
    for text in findings.advice:
        console.say(f"  {text}")
    try:
        if findings.problem is not None:
            raise UnusableFileError(path, f"{findings.problem}.")
        with console.phase("trying"):
            data, tried = _try(path, kind, findings.reading)
    except UnusableFileError as error:
        raise Failure(str(error), 3, "input", {**content, "usable": False}) from error
    is_raw = _is_raw(data, tried)
    if is_raw and RAW_COUNTS not in data.oddities:
        data.oddities.append(_TABLE_OF_COUNTS)
    assert data.labels is not None  # read_data raises without contexts
    counts = data.labels.counts()
    n_small = int((counts < _SMALL_CONTEXT).sum())
    notes = [*(f"left out: {note}" for note in data.notes), *data.says, *data.oddities]
    if 0 < n_small < len(counts):
        notes.append(
            f"{counted(n_small, 'context')} with fewer than {_SMALL_CONTEXT} rows; --min-samples {_SMALL_CONTEXT} "
            "leaves such contexts out."
        )
    for text in notes:
        console.say(f"  {text}")
    command = _fit_command(path, tried, is_raw)
    console.say(
        f"MCPCA can use it: {counted(len(counts), 'context')} of {counts.min():,} to {counts.max():,} rows, "
        f"{counted(data.n_features, 'feature')}{'' if data.in_memory else ', streamed from the file'}.\n\n  {command}"
    )
    return {**content, "usable": True, "command": command, "rows": data.n_rows, "features": data.n_features}


def _try(path: Path, kind: FileKind, reading: Reading) -> tuple[TableData, Reading]:
    """Read the file as suggested, or raise what ``mcpca fit`` would; return how it was read in the end."""
    # The very function that ``mcpca fit`` calls, so that the verdict cannot differ from it.
    data = read_data([path], reading)
    # A single row has no covariance. Only now are the sizes known, of crossed columns and of files in a folder.
    counts = np.zeros(0, dtype=int) if data.labels is None else data.labels.counts()
    if (counts < 2).any():
        if (counts < 2).all():
            raise UnusableFileError(path, "no context has two rows; is this the column of contexts?")
        reading = replace(reading, min_samples=2)
        data = read_data([path], reading)
    # All other values were checked as they were read; a matrix on disk has not been read yet.
    if not data.in_memory and kind.is_anndata:
        for first, block in data.source.scan(_SCAN_BYTES):
            values = block.data if data.source.sparse else block
            if not np.isfinite(values).all():
                raise UnusableFileError(path, f"has missing or infinite values within rows {first + 1:,} onwards.")
    return data, reading


def _is_raw(data: TableData, reading: Reading) -> bool:
    """Whether rows are raw counts that are to be prepared."""
    # A mask is for prepared rows: totals of raw ones are over all features.
    if reading.mask_var not in (None, "all") or reading.obsm is not None:
        return False
    if RAW_COUNTS in data.oddities:
        return True
    # Of tables and arrays, which do not say what they hold: whole numbers may be scores, and pixels too.
    names = data.feature_names
    if names is None or data.n_features < _LEAST_COUNTED or counts_in(data.source) is None:
        return False
    size = Counter(map(family_of, names)).most_common(1)[0][1]
    block: Any = data.source.gather(slice(0, min(_COUNTS_TESTED, data.n_rows)))
    n_zero = block.shape[0] * block.shape[1] - (block.nnz if scipy.sparse.issparse(block) else np.count_nonzero(block))
    return 2 * size < len(names) and n_zero >= _LEAST_ZEROS * block.shape[0] * block.shape[1]


def _fit_command(path: Path, reading: Reading, is_raw: bool = False) -> str:
    """Return the command that reads a file in this way and fits it, and prepares raw counts."""
    typed = str(stdin.as_typed(path))
    # A name that begins like an option is told from one by its folder; "-" alone is stdin.
    file = f"./{typed}" if typed.startswith("-") and typed != "-" else typed
    # Only what differs from the defaults, and all of that: the command has to read the file in just this way.
    words = ["mcpca", "fit", file, *option_words(reading), *(["--normalize", "log1p"] if is_raw else [])]
    return shlex.join(words)
