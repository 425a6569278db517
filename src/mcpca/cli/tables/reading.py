"""Files become one matrix with labels: opened by what they are, put one below the other, rows left out where asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..._covariances.moments import ContextMoments
from ..._data.doubtful_labels import alike, missing_by_name, told_alike
from ..._data.labels import MISSING_TEXTS, SEPARATOR
from ..._data.sources import as_source
from ..._data.validation import check_finite
from ..._utils.types import Array
from ._errors import UnusableFileError, foreign_bytes, plural, short, some
from .annotated import Annotated
from .arrays import Npz, read_npy_part
from .data import Budget, FilePart, Reading, TableData
from .delimited import DelimitedTable
from .duplicates import check_duplicates
from .kinds import Kind, kind_of
from .label_files import labels_from
from .labels import Labels, crossed, natural, same_label, stacked
from .options import check_for_model, check_options, check_without_contexts
from .parquet import ParquetTable
from .tabular import read_table

_SUFFIXES = (".csv", ".tsv", ".tab", ".parquet", ".pq", ".npy", ".h5ad", ".zarr", ".npz")
_SCAN = 2**26  # bytes of rows read at a time
_CHECKED = 2**22  # numbers looked at at a time

Told = Callable[[str, int, int], None]


def read_data(
    paths: Sequence[Path],
    reading: Reading,
    *,
    features: Sequence[str] | None = None,
    need_context: bool = True,
    report: Told = lambda stage, done, total: None,
) -> TableData:
    """Read one file, several, or a folder of them.

    Parameters
    ----------
    paths : sequence of Path
        Delimited text (also packed by gzip), Parquet, AnnData (.h5ad, .zarr), .npz, .npy, saved moments; told from
        their content. Several files, or those in a folder, hold one context each, called by the file's name; with
        ``reading.context`` their rows belong together.
    reading : Reading
    features : sequence of str or None
        Features that must be there, those of a model; columns are put into this order.
    need_context : bool
        Whether to refuse rows of which nothing says the context.
    report : callable
        Told (stage, done, total), in percent of a file.

    Raises
    ------
    UnusableFileError
        Where a file is not what was asked for.

    Notes
    -----
    Up to ``reading.max_bytes`` rows are held in memory. Tables beyond that are parsed again at each pass of a fit.
    """
    files, notes = _files(paths)
    kinds = [kind_of(path) for path in files]
    if not reading.allow_duplicates:
        check_duplicates(files, kinds)
    if not (reading.context or reading.labels):
        _check_stems(files)
    if "moments" in {kind.format for kind in kinds}:
        return _moments(files, kinds, reading, need_context)
    check_options(reading, files, kinds)
    if features is not None:
        check_for_model(reading, files)
    if need_context and len(files) == 1 and kinds[0].format != "npz" and not (reading.context or reading.labels):
        raise _no_context(files[0])
    budget = Budget(reading.max_bytes)
    parts: list[FilePart] = []
    wanted = None if features is None else list(features)
    report("reading", 0, 100 * len(files))
    for i, (path, kind) in enumerate(zip(files, kinds, strict=True)):
        with foreign_bytes(path, kind.format):
            part = open_part(path, kind, reading, wanted, budget, partial(_tell, report, i, len(files)))
        if i == 0 and features is None:
            wanted = part.feature_names
        elif features is None and part.others and not parts[0].others:
            raise UnusableFileError(
                path, f"has {some(part.others)} in addition to the features of {files[0]}; files must share them."
            )
        parts.append(part)
        report("reading", 100 * (i + 1), 100 * len(files))
    _check_widths(parts, files)
    if features is not None and parts[0].others:
        notes.append(f"{plural(len(parts[0].others), 'column')} that the model does not have: {some(parts[0].others)}.")
    labels = _labels(parts, files, reading, need_context)
    if labels is None:
        check_without_contexts(reading, files, kinds)
    return _assembled(parts, labels, reading, files, kinds, notes)


def _tell(report: Told, done: int, files: int, share: float) -> None:
    report("reading", int(100 * (done + min(share, 0.99))), 100 * files)


def open_part(
    path: Path,
    kind: Kind,
    reading: Reading,
    wanted: Sequence[str] | None,
    budget: Budget,
    tell: Callable[[float], None],
) -> FilePart:
    """Read the rows of one file."""
    if kind.format == "text":
        return read_table(DelimitedTable(path, kind.compression, reading), reading, wanted, budget, tell)
    if kind.format == "Parquet":
        return read_table(ParquetTable(path), reading, wanted, budget, tell)
    if kind.format in ("h5ad", "zarr"):
        return Annotated(path, kind.format).read(reading, wanted, budget)
    if kind.format == "npz":
        return Npz(path, budget).read(reading, wanted)
    if kind.format == "npy":
        return read_npy_part(path, reading, wanted)
    what = {"model": "a fitted model", "moments": "moments of rows", "folder": "a folder"}[kind.format]
    raise UnusableFileError(path, f"is {what} and has no rows; pass the file with the rows.")


def stem_of(path: Path) -> str:
    """Return the name of a file without folder and endings: the context it holds."""
    name = path.name.removesuffix(".gz")
    return name.rsplit(".", 1)[0] if "." in name.lstrip(".") else name


def _files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the files in the order of their names, folders opened, and what was left out of folders."""
    files, notes = [], []
    for path in paths:
        if not path.is_dir() or kind_of(path).format == "zarr":
            files.append(path)
            continue
        inside = sorted((p for p in path.iterdir() if not p.name.startswith(".")), key=lambda p: natural(p.name))
        known = [p for p in inside if p.name.lower().removesuffix(".gz").endswith(_SUFFIXES)]
        left = [p.name for p in inside if p not in known]
        if not known:
            have = f"only {some(left)}" if left else "nothing in it"
            raise UnusableFileError(path, f"is a folder without tables (.csv, .parquet, .npy and so on): {have}.")
        if left:
            notes.append(f"{some(left)} in {path}: no name of a table.")
        files += known
    return files, notes


def _check_stems(files: Sequence[Path]) -> None:
    """Raise where two files are contexts of the same name."""
    stems = [stem_of(path) for path in files]
    twice = sorted(stem for stem, n in Counter(stems).items() if n > 1)
    if twice:
        raise UnusableFileError(
            files[stems.index(twice[0])], f"another file gives a context the same name, {twice[0]!r}; rename one."
        )


def _moments(files: list[Path], kinds: list[Kind], reading: Reading, need_context: bool) -> TableData:
    if len(files) > 1 or not need_context:
        raise UnusableFileError(
            files[[kind.format for kind in kinds].index("moments")],
            "holds moments and no rows; mcpca merge puts several together, and mcpca fit takes one.",
        )
    if reading.context or reading.labels:
        raise UnusableFileError(files[0], "holds moments, which know their contexts; drop --context and --labels.")
    check_options(reading, files, kinds)
    X = load_moments(files[0])
    names = None if X.feature_names is None else [str(name) for name in X.feature_names]
    return TableData(X, None, names, [], X.means.shape[1], "moments", files)


def load_moments(path: Path) -> ContextMoments:
    """Read moments; what is wrong with the file becomes an ``UnusableFileError``."""
    kind = kind_of(path)
    if kind.format != "moments":
        raise UnusableFileError(path, f"holds no moments ({kind.format}); pass files that mcpca moments wrote.")
    try:
        return ContextMoments.load(path)
    except (ValueError, KeyError, OSError) as error:
        raise UnusableFileError(path, f"cannot be read as moments ({short(error, 300)}).") from error


def _check_widths(parts: list[FilePart], files: list[Path]) -> None:
    first = _width(parts[0])
    for part in parts[1:]:
        if _width(part) != first:
            raise UnusableFileError(
                part.where, f"has {plural(_width(part), 'feature')} and {files[0]} has {first}; files must share them."
            )


def _width(part: FilePart) -> int:
    if part.feature_names is not None:
        return len(part.feature_names)
    return int(part.blocks[0].shape[1] if part.blocks is not None else part.rows.shape[1])


def _labels(parts: list[FilePart], files: list[Path], reading: Reading, need_context: bool) -> Labels | None:
    if reading.labels is not None:
        return labels_from(reading.labels, sum(part.n_rows for part in parts), reading)
    if all(part.labels for part in parts):
        return stacked([crossed(part.labels) for part in parts])
    if len(parts) > 1:
        return stacked([same_label(stem_of(p), part.n_rows) for p, part in zip(files, parts, strict=True)])
    if need_context:
        raise _no_context(files[0])
    return None


def _no_context(path: Path) -> UnusableFileError:
    return UnusableFileError(
        path,
        "nothing says the context of each row; pass --context COLUMN, --labels FILE, or one file per context "
        f"(mcpca doctor {path.name} shows the columns).",
    )


def _assembled(
    parts: list[FilePart],
    labels: Labels | None,
    reading: Reading,
    files: list[Path],
    kinds: list[Kind],
    notes: list[str],
) -> TableData:
    n = sum(part.n_rows for part in parts)
    kept = np.ones(n, dtype=bool)
    dropped: dict[str, int] = {}
    odd: list[str] = []
    if labels is not None:
        odd = doubts([name for name, n in zip(labels.categories, labels.counts().tolist(), strict=True) if n])
        kept, labels, dropped = _leave_out(labels, reading, str(files[0]), notes)
    row_names = _row_names(parts)
    names = parts[0].feature_names
    p = _width(parts[0])
    in_memory = all(part.blocks is not None for part in parts)
    X = _stack(parts, kept, names) if in_memory else _stream(parts, kept)
    if not kept.all():
        row_names = [name for name, keep in zip(row_names, kept.tolist(), strict=True) if keep]
    used = [*files, *([] if reading.labels is None else [reading.labels])]
    used += [Path(entry[1:]) for entry in (*reading.features, *reading.drop) if entry.startswith("@")]
    formats = " and ".join(dict.fromkeys(kind.format for kind in kinds))
    counting = [name for name in parts[0].counting if all(name in part.counting for part in parts)]
    odd += [
        f"the column {name!r} counts rows; where it is no measurement, leave it out with --drop." for name in counting
    ]
    odd += dict.fromkeys(text for part in parts for text in part.oddities)
    if labels is not None and len(labels.categories) == 1:
        odd.append(f"there is one context, {short(labels.categories[0])!r}, for which MCPCA is PCA.")
    notes += dict.fromkeys(text for part in parts for text in part.notes)
    return TableData(X, labels, names, row_names, p, formats, used, in_memory, notes, dropped, odd)


def doubts(names: Sequence[str]) -> list[str]:
    """Say which names of contexts read as one, or as a missing one."""
    said = [f"{told_alike(groups)}."] if (groups := alike(names)) else []
    if missing := missing_by_name(names):
        text = next(part.strip() for part in missing[0].split(SEPARATOR) if part.strip() in MISSING_TEXTS)
        said.append(
            f"{some(missing)} reads as a missing label and is kept as a context of its own; --na-values {text} makes "
            "it missing."
        )
    return said


def _row_names(parts: list[FilePart]) -> list[str]:
    """Names of all rows; numbers, counted from 1 in each file, where a file has none."""
    several = len(parts) > 1
    names: list[str] = []
    for part in parts:
        own = part.row_names
        if own is None:
            prefix = f"{stem_of(Path(part.where))}:" if several else ""
            own = [f"{prefix}{i + 1}" for i in range(part.n_rows)]
        names += own
    return names


def _leave_out(labels: Labels, reading: Reading, where: str, notes: list[str]) -> tuple[Array, Labels, dict[str, int]]:
    """Return which rows are kept, their labels, and the contexts that were too small."""
    without = int((labels.codes < 0).sum())
    if without and not reading.drop_unlabelled:
        raise UnusableFileError(
            where,
            f"{without:,} of {plural(len(labels.codes), 'row')} have no context (empty, or one of "
            "--na-values); give them one, or leave them out with --drop-unlabelled.",
        )
    if without:
        notes.append(f"{plural(without, 'row')} without a context.")
    counts = labels.counts()
    small = [i for i, n in enumerate(counts.tolist()) if n < max(reading.min_samples, 1)]
    dropped = {labels.categories[i]: int(counts[i]) for i in small if counts[i]}
    if dropped:
        shown = ", ".join(f"{short(name)!r} ({n})" for name, n in list(dropped.items())[:5])
        more = f" and {len(dropped) - 5} more" if len(dropped) > 5 else ""
        notes.append(f"{plural(len(dropped), 'context')} with fewer than {reading.min_samples} rows: {shown}{more}.")
    if len(small) == len(counts):
        raise UnusableFileError(where, f"no context has {reading.min_samples} rows or more; lower --min-samples.")
    to = np.full(len(counts) + 1, -1, dtype=np.int32)
    to[[i for i in range(len(counts)) if i not in set(small)]] = np.arange(len(counts) - len(small))
    codes = to[labels.codes]
    kept = codes >= 0
    categories = [name for i, name in enumerate(labels.categories) if to[i] >= 0]
    return kept, Labels(codes[kept], categories), dropped


def _stack(parts: list[FilePart], kept: Array, names: list[str] | None) -> Any:
    """Return all kept rows as one array or CSR matrix; a copy only where there is something to put together."""
    blocks, first = [], 0
    for part in parts:
        for block in part.blocks or []:
            own = kept[first : first + block.shape[0]]
            first += block.shape[0]
            _check_block(block, part.where, names)
            blocks.append(block if own.all() else block[np.flatnonzero(own)])
        part.blocks = None  # what is copied below is not needed twice
    if len(blocks) == 1:
        return blocks[0]
    if any(scipy.sparse.issparse(block) for block in blocks):
        return scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))
    return np.concatenate(blocks)


def _check_block(block: Any, where: str, names: list[str] | None) -> None:
    """Raise where rows in memory have values that are missing or infinite, which names their columns."""
    if block.dtype.kind not in "f":
        return
    if scipy.sparse.issparse(block):
        if not np.isfinite(block.data).all():
            columns = np.unique(block.indices[~np.isfinite(block.data)])
            named = [str(c + 1) if names is None else names[c] for c in columns.tolist()]
            raise UnusableFileError(where, f"has missing or infinite values in the features {some(named)}; drop them.")
        return
    step = max(1, _CHECKED // max(block.shape[1], 1))
    features = None if names is None else np.array([short(name) for name in names], dtype=object)
    for i in range(0, len(block), step):
        try:
            check_finite(np.asarray(block[i : i + step]), f"rows {i + 1} to {min(i + step, len(block))}", features)
        except ValueError as error:
            raise UnusableFileError(where, str(error)) from error


def _stream(parts: list[FilePart], kept: Array) -> Any:
    """Return kept rows as something to be read again and again: the source itself, or blocks from all parts."""
    if len(parts) == 1 and kept.all():
        return parts[0].rows
    return _Chain(parts, kept)


class _Chain:
    """Kept rows of several parts, block by block."""

    def __init__(self, parts: list[FilePart], kept: Array) -> None:
        self._parts, self._kept = [replace(part) for part in parts], kept

    def __iter__(self) -> Iterator[Any]:
        first = 0
        for part in self._parts:
            for block in _blocks(part):
                own = self._kept[first : first + block.shape[0]]
                first += block.shape[0]
                if own.any():
                    yield block if own.all() else block[np.flatnonzero(own)]


def _blocks(part: FilePart) -> Iterator[Any]:
    if part.blocks is not None:
        yield from part.blocks
    elif hasattr(part.rows, "scan"):
        yield from (block for _, block in part.rows.scan(_SCAN))
    elif hasattr(part.rows, "__iter__"):
        yield from part.rows
    else:
        yield from (block for _, block in as_source(part.rows, part.where).scan(_SCAN))
