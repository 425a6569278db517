"""What is asked of files (``Reading``), what one file gives (``FilePart``), and what all give together (``TableData``).

``cli._options`` makes the ``Reading`` of a command; modules by format return a ``FilePart``; ``assembling`` makes one
``TableData`` of all parts, whose ``source`` and ``labels`` the estimator takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..._data.sources import Source, as_source
from ..._utils.types import Array
from ..._utils.wording import LISTED
from ._errors import UnusableFileError, did_you_mean, quoted_names
from .labels import Labels
from .row_annotations import covariate_columns

ANNOTATION_OPTIONS = "--groups, --batch, --covariates or --row-metadata"  # that name columns beside contexts


@dataclass(frozen=True)
class Reading:
    """How to read files.

    Attributes
    ----------
    context : tuple of str
        Columns (of a table, of ``obs``, or 1-D arrays of an .npz) with the context of each row; several are crossed.
    labels : Path or None
        A file with the context of each row: one per line, an .npy, or a table with the columns ``context``, whose
        lines are matched to rows by name where both have names.
    features, drop : tuple of str
        Patterns such as ``"emb_*"`` of columns to take and to leave out; ``"@FILE"`` stands for the names in a file.
    index : str or None
        The column with names of rows.
    header, delimiter, decimal, encoding
        Of text; None is guessed.
    comment : str or None
        How lines of text begin that are skipped.
    sheet : str or None
        The sheet of a workbook; None is the only one with something in it.
    transpose : bool
        Whether lines of the file are features, and its columns are rows: genes x samples.
    mod : str or None
        The modality of a MuData to read; None is the only one.
    layer, obsm : str or None
        The matrix of an AnnData to read in place of ``X``.
    mask_var : str or None
        The column of ``var`` that says which features of an AnnData to take; None is "highly_variable" if there is
        such a column and features are not named, "all" takes all.
    na_values : tuple of str
        Labels that count as missing, besides blank ones; in text and workbooks also among numbers.
    min_samples : int
        Contexts with fewer rows are left out.
    drop_unlabelled : bool
        Leave out rows without a context, which are otherwise an error.
    allow_duplicates : bool
        Accept files that are the same or have the same content.
    max_bytes : int
        Memory for rows; larger data stay on disk and are read in blocks.
    groups, batch : tuple of str
        Columns that say which rows were sampled together, and the strata of rows; several are crossed.
    covariates : str or None
        Columns of covariates, separated by commas, or a formula over them.
    row_metadata : tuple of str
        Columns that the report shows of rows.
    context_table : Path or None
        A table with a line for each context, for the report.
    raw : bool
        Whether rows are to be prepared: raw counts, of all features.
    gaps : bool
        Whether values may be missing, which is otherwise an error; they are NaN.
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
    comment: str | None = None
    sheet: str | None = None
    transpose: bool = False
    mod: str | None = None
    layer: str | None = None
    obsm: str | None = None
    mask_var: str | None = None
    min_samples: int = 0
    drop_unlabelled: bool = False
    na_values: tuple[str, ...] = ()
    allow_duplicates: bool = False
    max_bytes: int = 2**31
    groups: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    covariates: str | None = None
    row_metadata: tuple[str, ...] = ()
    context_table: Path | None = None
    raw: bool = False
    gaps: bool = False

    @property
    def annotation_columns(self) -> list[str]:
        """Columns that say something else of rows than their context, each once; these are not features."""
        return list(dict.fromkeys([*self.groups, *self.batch, *covariate_columns(self.covariates), *self.row_metadata]))


@dataclass
class FilePart:
    """Rows of one file, in memory or not.

    Attributes
    ----------
    where : str
        The file, for errors.
    n_rows : int
    feature_names : list of str or None
    blocks : list of array or CSR matrix, or None
        The rows in memory, one block below the other.
    rows : object
        If ``blocks`` is None, the rows on disk, as anything that ``as_source`` reads.
    labels : list of Labels
        One for each column of contexts.
    annotations : dict of str to Labels
        The values of each of ``Reading.annotation_columns``, as text.
    row_names : list of str or None
    others : list of str
        Columns that could be features and were not asked for.
    others_of_rows : RowColumns or None
        Columns that are neither features nor contexts, for ``context_columns``.
    row_numbers : list of str
        Features that rise by whole numbers from each row to the next.
    notes, oddities, says : list of str
        As in ``TableData``.
    date_cells : dict of str to str
        Names of features that are dates in a workbook, with their cells.
    n_missing : int
        Values that are missing, of a table.
    """

    where: str
    n_rows: int
    feature_names: list[str] | None
    blocks: list[Any] | None = None
    rows: Any = None
    labels: list[Labels] = field(default_factory=list)
    row_names: list[str] | None = None
    others: list[str] = field(default_factory=list)
    row_numbers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)
    annotations: dict[str, Labels] = field(default_factory=dict)
    others_of_rows: Any = None
    says: list[str] = field(default_factory=list)
    date_cells: dict[str, str] = field(default_factory=dict)
    n_missing: int = 0


@dataclass
class TableData:
    """Rows as ``MCPCA.fit`` takes them.

    Attributes
    ----------
    X : array, CSR matrix, dataset, function of blocks, or ``ContextMoments``
    labels : Labels or None
        The context of each row; None for moments, and if none was asked for and none is needed.
    feature_names : list of str or None
    row_names : list of str
        From the index column, or numbers counted from 1.
    n_features : int
    format : str
    files : list of Path
        All files that were read, those of labels and lists of columns too.
    in_memory : bool
    notes : list of str
        What was left out, in words.
    dropped : dict of str to int
        Contexts that were left out because they are small, with their number of rows.
    oddities : list of str
        What looks like a mistake, in words.
    says : list of str
        How the files were understood, where that is not plain from the options.
    annotations : dict of str to array
        ``groups``, ``batch`` and ``covariates`` of the rows, as the estimator takes them; those that were asked for.
    row_metadata : dict of str to list
        The columns of ``Reading.row_metadata``: numbers or text, None where missing.
    context_metadata : dict of str to dict
        Columns of ``Reading.context_table``: values by the name of the context.
    found_of_contexts : function without arguments
        Returns the same of columns of the rows that are constant within contexts; reads the files once more.
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
    says: list[str] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    row_metadata: dict[str, list[Any]] = field(default_factory=dict)
    context_metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    found_of_contexts: Callable[[], dict[str, dict[str, Any]]] = dict

    @property
    def nuisance(self) -> dict[str, Any]:
        """Batch and covariates of the rows, those that were asked for."""
        return {name: value for name, value in self.annotations.items() if name != "groups"}

    @property
    def n_rows(self) -> int:
        """Number of rows, without those that were left out."""
        # Names are held for every row, also of data that are streamed and whose length no source knows beforehand.
        return len(self.row_names)

    @cached_property
    def source(self) -> Source:
        """The rows as the estimator reads them; opened once."""
        # Cached, since opening a source checks it, and fit, scores and report all read from it.
        return as_source(self.X, "X")


class Budget:
    """Bytes that may still be held in memory, shared by all files of one ``read_data``."""

    def __init__(self, max_bytes: int) -> None:
        # Counted as files ask for it, not measured: copies that are made on the way are not in it.
        self._left = max_bytes

    def take(self, n: int) -> bool:
        """Take n bytes; return False, and take none, if fewer are left."""
        # All or nothing: half a file in memory would have to be read again with the rest.
        if n > self._left:
            return False
        self._left -= n
        return True

    def give_back(self, n: int) -> None:
        """Give back bytes that were taken."""
        self._left += n


def column_positions(names: Sequence[str], wanted: Sequence[str], where: str, what: str) -> Array:
    """Return the positions (m,) of ``wanted`` among ``names``, or raise an error that names those that are missing.

    ``what`` is what these names are called in the error.
    """
    # A dict, so that finding thousands of features among thousands of columns stays linear.
    position = {name: i for i, name in enumerate(names)}
    missing = [name for name in wanted if name not in position]
    if missing:
        # Only where the list below is cut: the reader of a short one can count.
        of_all = f" ({len(missing):,} of {len(wanted):,})" if len(wanted) > LISTED else ""
        hint = did_you_mean(str(missing[0]), names)
        raise UnusableFileError(
            where, f"has no {what} {quoted_names(missing)}{of_all}; {hint}it has {quoted_names(names, 10)}."
        )
    return np.array([position[name] for name in wanted], dtype=np.intp)
