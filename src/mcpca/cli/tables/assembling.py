"""Rows of several files one below the other, without those to be left out: from ``FilePart`` to ``TableData``.

If all parts are in memory, so is the result. Otherwise it is an iterable of blocks that reads the files again at each
pass, which is what ``_data.sources.as_source`` expects of rows that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..._data.sources import as_source
from ..._data.validation import has_finite_sum
from ..._utils.printing import counted
from ..._utils.types import Array
from ..._utils.wording import listed
from ._errors import UnusableFileError, quoted_names, short
from .constant_columns import constant_columns, values_of
from .data import FilePart, Reading, TableData
from .kinds import FileKind
from .labels import Labels, stacked
from .row_annotations import annotations_of

ONE_CONTEXT = "there is only one context"
_SCAN_BYTES = 2**26  # of rows read from disk at a time
_MOST_VALUES = 500  # texts of a column of --row-metadata: a report names each of them
_CHECKED_NUMBERS = 2**22  # looked at at a time, so that the check for gaps needs little memory beside the rows


def assembled(
    parts: list[FilePart],
    labels: Labels | None,
    reading: Reading,
    files: list[Path],
    kinds: list[FileKind],
    notes: list[str],
) -> TableData:
    """Return the rows of all parts with their labels; ``notes`` say what was left out so far."""
    is_kept = np.ones(sum(part.n_rows for part in parts), dtype=bool)
    dropped: dict[str, int] = {}
    if labels is not None:
        is_kept, labels, dropped = _leave_out(labels, reading, str(files[0]), notes)
    # Names are made for all rows first, so that numbers are those of the rows in the file, whatever is left out.
    row_names = _row_names(parts)
    if not is_kept.all():
        row_names = [name for name, keep in zip(row_names, is_kept.tolist(), strict=True) if keep]
    # One part on disk makes the whole a stream: the source is either an array or something to iterate over.
    in_memory = all(part.blocks is not None for part in parts)
    feature_names = parts[0].feature_names
    n_features = n_features_of(parts[0])
    oddities = _oddities(parts, labels)
    # Once each: files of one kind have the same to say, and a dict keeps the order.
    notes += dict.fromkeys(text for part in parts for text in part.notes)
    # All that can change the result, for the checksums of the run: labels and lists of columns as well.
    files_read = [*files, *([] if reading.labels is None else [reading.labels])]
    files_read += [] if reading.context_table is None else [reading.context_table]
    files_read += [Path(entry[1:]) for entry in (*reading.features, *reading.drop) if entry.startswith("@")]
    return TableData(
        X=_stack(parts, is_kept, feature_names) if in_memory else _stream(parts, is_kept),
        labels=labels,
        feature_names=feature_names,
        row_names=row_names,
        n_features=n_features,
        format=" and ".join(dict.fromkeys(kind.format for kind in kinds)),
        files=files_read,
        in_memory=in_memory,
        notes=notes,
        dropped=dropped,
        oddities=oddities,
        says=list(dict.fromkeys(text for part in parts for text in part.says)),
        annotations=_annotations(parts, is_kept, reading),
        row_metadata=_row_metadata(parts, is_kept, reading),
        found_of_contexts=dict if labels is None else _finder(parts, is_kept, labels, reading),
    )


def _row_metadata(parts: list[FilePart], is_kept: Array, reading: Reading) -> dict[str, list[Any]]:
    """Return the columns of the kept rows that the report shows."""
    columns = {}
    for name in reading.row_metadata:
        labels = stacked([part.annotations[name] for part in parts])
        values = values_of(Labels(labels.codes[is_kept], labels.categories), reading.decimal)
        texts = {value for value in values if isinstance(value, str)}
        if len(texts) > _MOST_VALUES:
            raise UnusableFileError(
                parts[0].where,
                f"its column {short(name)!r} has {len(texts):,} different texts, and --row-metadata is for numbers and "
                f"up to {_MOST_VALUES} texts; name rows by it with --index, or drop the option.",
            )
        columns[name] = values
    return columns


def _finder(
    parts: list[FilePart], is_kept: Array, labels: Labels, reading: Reading
) -> Callable[[], dict[str, dict[str, Any]]]:
    """Return a function that finds columns which are constant within contexts."""
    codes = np.full(len(is_kept), -1, dtype=np.int32)
    codes[is_kept] = labels.codes
    columns = [part.others_of_rows for part in parts]
    return lambda: constant_columns(columns, codes, labels.categories, reading.decimal)


def _annotations(parts: list[FilePart], is_kept: Array, reading: Reading) -> dict[str, Any]:
    """Return groups, batch and covariates of the kept rows."""
    columns = {}
    for name in reading.annotation_columns:
        labels = stacked([part.annotations[name] for part in parts])
        columns[name] = Labels(labels.codes[is_kept], labels.categories)
    return annotations_of(columns, reading.groups, reading.batch, reading.covariates)


def stem_of(path: Path) -> str:
    """Return the name of a file without folder and endings: the name of the context it holds."""
    name = path.name.removesuffix(".gz")
    # A leading dot is no ending: .hidden stays as it is.
    return name.rsplit(".", 1)[0] if "." in name.lstrip(".") else name


def n_features_of(part: FilePart) -> int:
    """Return the number of features of a part."""
    if part.feature_names is not None:
        return len(part.feature_names)
    return int(part.blocks[0].shape[1] if part.blocks is not None else part.rows.shape[1])


def _oddities(parts: Sequence[FilePart], labels: Labels | None) -> list[str]:
    """Say what looks like a mistake."""
    # A column that rises in one file and not in another is a measurement.
    row_numbers = [name for name in parts[0].row_numbers if all(name in part.row_numbers for part in parts)]
    oddities = [
        f"the column {name!r} looks like row numbers; if it is not a measurement, leave it out with --drop."
        for name in row_numbers
    ]
    oddities += dict.fromkeys(text for part in parts for text in part.oddities)
    if labels is not None and len(labels.categories) == 1:
        oddities.append(f"{ONE_CONTEXT}, {short(labels.categories[0])!r}, for which MCPCA is PCA.")
    return oddities


def _row_names(parts: list[FilePart]) -> list[str]:
    """Return the names of all rows; rows of a file without names are numbered from 1."""
    names: list[str] = []
    for part in parts:
        if part.row_names is not None:
            names += part.row_names
        else:
            # Numbers alone would repeat from file to file.
            prefix = f"{stem_of(Path(part.where))}:" if len(parts) > 1 else ""
            names += [f"{prefix}{i + 1}" for i in range(part.n_rows)]
    return names


def _leave_out(labels: Labels, reading: Reading, where: str, notes: list[str]) -> tuple[Array, Labels, dict[str, int]]:
    """Return which rows are kept (n,), their labels, and the contexts that were too small."""
    # An error by default: rows that vanish because of an empty cell would go unnoticed.
    n_unlabelled = int((labels.codes < 0).sum())
    if n_unlabelled and not reading.drop_unlabelled:
        raise UnusableFileError(
            where,
            f"{n_unlabelled:,} of {counted(len(labels.codes), 'row')} have no context (empty, or one of "
            "--na-values); give them one, or leave them out with --drop-unlabelled.",
        )
    if n_unlabelled:
        notes.append(f"{counted(n_unlabelled, 'row')} without a context.")
    counts = labels.counts()
    # A category without rows (of an AnnData, say) is always left out, but not worth a note.
    is_large = counts >= max(reading.min_samples, 1)
    dropped = {labels.categories[i]: int(counts[i]) for i in np.flatnonzero(~is_large & (counts > 0)).tolist()}
    if dropped:
        shown = listed([f"{short(name)!r} ({n})" for name, n in dropped.items()])
        notes.append(f"{counted(len(dropped), 'context')} with fewer than {reading.min_samples} rows: {shown}.")
    if not is_large.any():
        raise UnusableFileError(where, f"no context has {reading.min_samples} rows or more; lower --min-samples.")
    new_code = np.full(len(counts) + 1, -1, dtype=np.int32)  # the last entry is for -1
    new_code[:-1][is_large] = np.arange(is_large.sum())
    # Codes are made consecutive again, since a category without rows would be a context without data.
    codes = new_code[labels.codes]
    is_kept = codes >= 0
    categories = [name for name, large in zip(labels.categories, is_large.tolist(), strict=True) if large]
    return is_kept, Labels(codes[is_kept], categories), dropped


# In memory ---------------------------------------------------------------------------------------------------------


def _stack(parts: list[FilePart], is_kept: Array, names: list[str] | None) -> Any:
    """Return all kept rows as one array or CSR matrix; a copy only if there is something to put together."""
    blocks: list[Any] = []
    first = 0
    for part in parts:
        for block in part.blocks or []:
            kept_here = is_kept[first : first + block.shape[0]]
            first += block.shape[0]
            # Here, where the file is still known: the estimator could only say that X has gaps.
            _check_block(block, part.where, names)
            blocks.append(block if kept_here.all() else block[np.flatnonzero(kept_here)])
        part.blocks = None  # so that a block is freed as soon as it has been copied below
    if len(blocks) == 1:
        return blocks[0]
    if any(scipy.sparse.issparse(block) for block in blocks):
        return scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))
    return np.concatenate(blocks)


def _check_block(block: Any, where: str, names: list[str] | None) -> None:
    """Raise if rows in memory have missing or infinite values; the error names their columns."""
    # Integers and booleans have neither NaN nor infinities.
    if block.dtype.kind not in "f":
        return
    if scipy.sparse.issparse(block):
        if not np.isfinite(block.data).all():
            # Entries that are not stored are 0, so that only stored ones need a look.
            columns = np.unique(block.indices[~np.isfinite(block.data)])
            named = [str(c + 1) if names is None else names[c] for c in columns.tolist()]
            raise UnusableFileError(
                where,
                f"has missing or infinite values in the features {quoted_names(named)}; fill them in, or leave the "
                "features out with --drop.",
            )
        return
    # Row ranges of about 4 million numbers, also of a memory map, which is then read once in order.
    step = max(1, _CHECKED_NUMBERS // max(block.shape[1], 1))
    for i in range(0, len(block), step):
        rows = np.asarray(block[i : i + step])
        if has_finite_sum(rows) or (finite := np.isfinite(rows)).all():
            continue
        row, column = np.argwhere(~finite)[0].tolist()
        feature = f"column {column + 1}" if names is None else repr(short(names[column]))
        n = int((~finite).sum())
        raise UnusableFileError(
            where,
            f"has {counted(n, 'missing or infinite value')} in rows {i + 1:,} to {i + len(rows):,}, the first in row "
            f"{i + row + 1:,}, {feature}; fill them in, or leave out their rows or columns.",
        )


# On disk -----------------------------------------------------------------------------------------------------------


def _stream(parts: list[FilePart], is_kept: Array) -> Any:
    """Return the kept rows as something that can be read again and again."""
    # As it is: a dataset can be read from any row on, filtered blocks only from the start.
    if len(parts) == 1 and is_kept.all():
        return parts[0].rows
    return _KeptBlocks(parts, is_kept)


class _KeptBlocks:
    """The kept rows of several parts, block by block, from the start at each iteration."""

    def __init__(self, parts: list[FilePart], is_kept: Array) -> None:
        self._parts = [replace(part) for part in parts]
        self._is_kept = is_kept

    def __iter__(self) -> Iterator[Any]:
        first = 0
        for part in self._parts:
            for block in _blocks_of(part):
                # ``first`` runs over rows of all parts, kept or not, in which ``is_kept`` is counted.
                kept_here = self._is_kept[first : first + block.shape[0]]
                first += block.shape[0]
                if kept_here.any():
                    yield block if kept_here.all() else block[np.flatnonzero(kept_here)]


def _blocks_of(part: FilePart) -> Iterator[Any]:
    # Parts in memory and on disk may be mixed, if the budget was used up on the way.
    if part.blocks is not None:
        yield from part.blocks
    elif hasattr(part.rows, "scan"):  # a source already
        yield from (block for _, block in part.rows.scan(_SCAN_BYTES))
    elif hasattr(part.rows, "__iter__"):  # blocks of a table
        yield from part.rows
    else:  # a dataset
        yield from (block for _, block in as_source(part.rows, part.where).scan(_SCAN_BYTES))
