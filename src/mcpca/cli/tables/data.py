"""What is asked of files, and what comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..._data.sources import Source, as_source
from ..._utils.types import Array
from ._errors import UnusableFileError, nearest, some
from .labels import Labels


@dataclass(frozen=True)
class Reading:
    """How to read files.

    Attributes
    ----------
    context : tuple of str
        Columns (of a table, of ``obs``, or 1-D arrays of an .npz) with the context of each row; several are crossed.
    labels : Path or None
        A file with the context of each row: one per line, an .npy, or a table with the columns ``context``.
    features, drop : tuple of str
        Patterns such as ``"emb_*"`` of columns to take and to leave; ``"@FILE"`` has names, one per line.
    index : str or None
        The column with names of rows.
    header, delimiter, decimal, encoding
        Of text, where these are not to be guessed.
    layer, obsm : str or None
        The matrix of an AnnData that takes the place of ``X``.
    mask_var : str or None
        The column of ``var`` that says which features of an AnnData to take: None is "highly_variable" where there is
        one and features are not named, "all" takes all.
    na_values : tuple of str
        Labels that mean that there is none, beside blank ones; in text, also cells of numbers.
    min_samples : int
        Contexts with fewer rows are left out.
    drop_unlabelled : bool
        Leave out rows without a context, which are refused otherwise.
    allow_duplicates : bool
        Read files although two of them are the same, or have the same content.
    max_bytes : int
        Rows beyond this are not held in memory.
    """

    context: tuple[str, ...] = ()
    labels: Path | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    index: str | None = None
    header: bool = True
    delimiter: str | None = None
    decimal: str = "."
    encoding: str | None = None
    layer: str | None = None
    obsm: str | None = None
    mask_var: str | None = None
    min_samples: int = 0
    drop_unlabelled: bool = False
    na_values: tuple[str, ...] = ()
    allow_duplicates: bool = False
    max_bytes: int = 2**31


@dataclass
class FilePart:
    """Rows of one file, in memory or not.

    ``blocks`` are arrays or CSR matrices, one below the other; where it is None, ``rows`` is what ``as_source`` takes.
    ``labels`` has one entry per column of contexts, ``others`` are columns that could be features and were not asked
    for, ``counting`` are features that rise by whole numbers from row to row, as numbers of rows do.
    """

    where: str
    n_rows: int
    feature_names: list[str] | None
    blocks: list[Any] | None = None
    rows: Any = None
    labels: list[Labels] = field(default_factory=list)
    row_names: list[str] | None = None
    others: list[str] = field(default_factory=list)
    counting: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)


@dataclass
class TableData:
    """Rows as ``MCPCA.fit`` takes them.

    Attributes
    ----------
    X : array, CSR matrix, dataset, function of blocks, or ``ContextMoments``
    labels : Labels or None
        The context of each row; None where no column was asked for, and with moments.
    feature_names : list of str or None
    row_names : list of str
        From the index column, or numbers counted from 1.
    format : str
    files : list of Path
        All that was read, labels too.
    notes : list of str
        What was left out, in words.
    dropped : dict of str to int
        Contexts that were left out for having few rows, and how many they had.
    oddities : list of str
        What looks like a mistake, in words.
    """

    X: Any
    labels: Labels | None
    feature_names: list[str] | None
    row_names: list[str]
    n_features: int
    format: str
    files: list[Path]
    in_memory: bool = True
    notes: list[str] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    oddities: list[str] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        """Rows that are used."""
        return len(self.row_names)

    @cached_property
    def source(self) -> Source:
        """The rows as a fitted model takes them, whether it knows names of features or not; opened once."""
        return as_source(self.X, "X")


class Budget:
    """Bytes that may still be held in memory, shared by all files that are read."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def take(self, n: int) -> bool:
        """Take n bytes; False where they are more than what is left."""
        if n > self._left:
            return False
        self._left -= n
        return True

    def give_back(self, n: int) -> None:
        """Return bytes that were taken."""
        self._left += n


def columns_named(names: Sequence[str], wanted: Sequence[str], where: str, what: str) -> Array:
    """Return the positions (m,) of ``wanted`` among ``names``, or raise with those that are missing.

    ``what`` are these names, in the words of the error.
    """
    position = {name: i for i, name in enumerate(names)}
    missing = [name for name in wanted if name not in position]
    if missing:
        of_all = f" ({len(missing):,} of {len(wanted):,})" if len(wanted) > 5 else ""
        have = f"it has {some(names, 10)}" if len(names) else "it has none"
        raise UnusableFileError(
            where, f"has no {what} {some(missing)}{of_all}; {nearest(str(missing[0]), list(names))}{have}."
        )
    return np.array([position[name] for name in wanted], dtype=np.intp)
