"""Contexts that are not in the table itself, for ``mcpca doctor``: sample sheets, and tables of genes x samples.

A table whose columns of text hold no contexts is often the transpose of what is fitted, one line per gene, and says
nothing of its samples. A sample sheet is another table beside it, or named by ``--labels``, with a column that has the
names of its columns, or of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .tables import Reading, UnusableFileError
from .tables.kinds import file_kind
from .tables.strays import Strays
from .tables.survey import Survey, survey
from .tables.tabular import Table, open_table

_GENE_NAMES = re.compile(
    r"(gene|symbol|feature|probe|transcript|ensembl|protein|peptide|hgnc|uniprot|entrez|otu|taxon|metabolite|cpg)s?"
    r"([_. ]?(id|name|symbol)s?)?|(id|name)_?ref",
    re.IGNORECASE,
)
_GENE_IDS = re.compile(r"ENS[A-Z]*[GTP]\d{6}|(hsa|mmu)-(mir|let)", re.IGNORECASE)
_SHEET_ENDINGS = (".csv", ".tsv", ".txt", ".tab", ".parquet", ".xlsx")
_MOST_SHEETS = 20  # tables beside the one in question that are looked at
_MOST_SHEET_BYTES = 2**23
_LEAST_SHARE = 0.9  # of the samples that a sheet has to name
_LEAST_SAMPLES = 4


@dataclass(frozen=True)
class SampleSheet:
    """A table that says which context rows are from.

    Attributes
    ----------
    path : Path
    names_column : str
    contexts : dict of str to dict of str to int
        Columns that could be contexts, with how often each of their values occurs.
    missing : bool
        Whether some samples are not named, or have no context in some column.
    """

    path: Path
    names_column: str
    contexts: dict[str, dict[str, int]]
    missing: bool


def find_sheet(path: Path, names: Sequence[str], reading: Reading) -> SampleSheet | None:
    """Return the sample sheet for rows of these names: the one that ``--labels`` names, or a table beside the file."""
    if len(names) < _LEAST_SAMPLES:
        return None
    if reading.labels is not None:
        return _sheet(reading.labels, names)
    try:
        beside = sorted(
            other
            for other in path.parent.iterdir()
            if other.name.lower().removesuffix(".gz").endswith(_SHEET_ENDINGS)
            and not other.name.startswith(".")
            and other.is_file()
            and not other.samefile(path)
            and other.stat().st_size <= _MOST_SHEET_BYTES
        )
    except OSError:
        return None
    sheets = (_sheet(other, names) for other in beside[:_MOST_SHEETS])
    return next((sheet for sheet in sheets if sheet is not None), None)


def _sheet(path: Path, names: Sequence[str]) -> SampleSheet | None:
    """Return what a table says of rows of these names, if it does."""
    try:
        kind = file_kind(path)
        if not kind.is_table:
            return None
        table = open_table(path, kind, Reading())
        texts = [name for name in table.columns if name in table.text - table.nested]
        if table.index is not None and table.index not in texts:
            texts.append(table.index)
        values = {name: _texts(table, name) for name in texts}
        surveyed = survey(table)
    # A table that cannot be read is not the one.
    except (UnusableFileError, OSError, ImportError):
        return None
    wanted = {name.strip() for name in names}
    share = {name: len(wanted.intersection(column)) / len(wanted) for name, column in values.items()}
    best = max(share, key=lambda name: share[name], default=None)
    if best is None or share[best] < _LEAST_SHARE:
        return None
    contexts = {
        name: counts
        for name, counts in surveyed.counts.items()
        if name != best and counts is not None and 2 <= len(counts) <= max(2, len(wanted) // 2)
    }
    # Text first, as in tables of rows.
    ordered = sorted(contexts, key=lambda name: name not in table.text)
    missing = share[best] < 1 or any(surveyed.missing.get(name, 0) for name in contexts)
    return SampleSheet(path, best, {name: contexts[name] for name in ordered}, missing) if contexts else None


def _texts(table: Table, name: str) -> set[str]:
    return {
        (text or "").strip() for batch in table.batches([], [name]) for text in batch.column(0).unique().to_pylist()
    }


def samples_of(table: Table) -> list[str]:
    """Return the columns that would be rows if the table was turned: all of numbers."""
    return [name for name in table.columns if name not in table.text and name != table.index]


def looks_turned(table: Table, surveyed: Survey) -> bool:
    """Whether lines are probably features: the first column names genes, or there are many more lines than columns."""
    first = table.columns[0]
    others = [name for name in table.columns[1:] if name in table.text]
    # Names in the first column, a different one in each line, and nothing but numbers behind them.
    names = surveyed.counts.get(first)
    named = first == table.index or (first in table.text and names is not None and len(names) == surveyed.n_rows)
    if others or not named or len(samples_of(table)) < _LEAST_SAMPLES:
        return False
    if _GENE_NAMES.fullmatch(first.strip()) or surveyed.n_rows > 2 * len(samples_of(table)):
        return True
    ids = _texts(table, first)
    return sum(bool(_GENE_IDS.match(name)) for name in ids) > len(ids) / 2


def line_of_contexts(table: Table, strays: dict[str, Strays]) -> str | None:
    """Return the name of the line that makes all columns text, if there is one: the contexts of genes x samples."""
    texts = [name for name in table.columns[1:] if name in table.text]
    rows = {stray.row for stray in strays.values() if stray.n_strays == 1}
    # One line, the same in all columns but the first, which has the names of lines.
    if len(texts) < max(_LEAST_SAMPLES, len(table.columns) - 1) or not set(texts) <= set(strays) or len(rows) != 1:
        return None
    row = rows.pop()
    names = [text for batch in table.batches([], [table.columns[0]]) for text in batch.column(0).to_pylist()]
    name = (names[row] or "").strip()
    # Otherwise it is a line of comments or of units that is the same everywhere.
    return name if name and len({stray.value for stray in strays.values()}) > 1 else None
