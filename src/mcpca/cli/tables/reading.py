"""``read_data``: files become one matrix with labels.

Files are found and recognised, checked against the options, opened one by one as ``FilePart``, and put together by
``assembling``. Moments, which have contexts but no rows, take a way of their own.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..._covariances.moments import ContextMoments
from ..._data.doubtful_labels import alike, missing_by_name, told_alike
from ..._data.labels import MISSING_TEXTS, SEPARATOR
from ..._utils.natural_order import natural
from ..._utils.printing import counted
from ..._utils.progress import silent
from ..._utils.types import Report
from . import stdin
from ._errors import UnusableFileError, UselessOptionError, foreign_bytes, quoted_names, reason
from .annotated import Annotated
from .arrays import Npz, read_npy_part
from .assembling import assembled, n_features_of, stem_of
from .context_table import read_context_table
from .data import Budget, FilePart, Reading, TableData
from .duplicates import check_duplicates
from .foreign import refuse_foreign_folder
from .kinds import FileKind, file_kind
from .label_files import RowLabels, labels_from
from .labels import Labels, crossed_labels, same_label, stacked
from .options import ROWS, check_for_model, check_options, check_without_contexts
from .spoiled_names import spoiled_names
from .tabular import open_table, read_table
from .transposed import read_transposed

__all__ = ["doubtful_names", "load_moments", "no_context_error", "read_data", "stem_of"]

# Of files that are taken from a folder; files that are named themselves may have any ending.
_ENDINGS = (".csv", ".tsv", ".tab", ".parquet", ".pq", ".xlsx", ".xlsm", ".npy", ".h5ad", ".h5mu", ".zarr", ".npz")
_NEARLY_DONE = 0.99  # the most that is reported within a file: 100% is reported when it has been read


def read_data(
    paths: Sequence[Path],
    reading: Reading,
    *,
    features: Sequence[str] | None = None,
    need_context: bool = True,
    report: Report = silent,
) -> TableData:
    """Read one file, several, or a folder of them.

    Parameters
    ----------
    paths : sequence of Path
        Delimited text (also packed by gzip), Parquet, Excel, AnnData and MuData (.h5ad, .h5mu, .zarr), .npz, .npy, or
        saved moments, recognised by their content. Several files, or those in a folder, hold one context each, named
        after the file; with ``reading.context`` they are parts of one table.
    reading : Reading
    features : sequence of str or None
        Features that must be there, those of a model; columns are put into this order.
    need_context : bool
        Whether rows without any indication of their context are an error.
    report : callable
        Called with (stage, done, total), in percent of a file.

    Raises
    ------
    UnusableFileError
        If a file is not what was asked for.

    Notes
    -----
    Up to ``reading.max_bytes`` of rows are held in memory. Larger tables are parsed again at each pass of a fit.
    """
    # Whatever can be refused without parsing rows is refused first: to read large files takes minutes.
    paths = [stdin.opened(path) for path in paths]
    if reading.labels is not None:
        reading = replace(reading, labels=stdin.opened(reading.labels))
    files, notes = _files(paths)
    kinds = [file_kind(path) for path in files]
    if not reading.allow_duplicates:
        check_duplicates(files, kinds)
    says_context = bool(reading.context or reading.labels)
    # Names of files matter only where they become names of contexts.
    if not says_context:
        _check_stems(files)
    if "moments" in {kind.format for kind in kinds}:
        moments = _read_moments(files, kinds, reading, need_context)
        return _with_context_table(moments, [str(name) for name in moments.X.contexts], reading)
    check_options(reading, files, kinds)
    if features is not None:
        check_for_model(reading, files)
    # Raised here, before anything is read. An .npz may have contexts of its own.
    if need_context and len(files) == 1 and kinds[0].format != "npz" and not says_context:
        raise no_context_error(files[0]) if kinds[0].format in ROWS else _no_rows(files[0], kinds[0])
    parts = _read_parts(files, kinds, reading, features, report)
    _check_widths(parts, files)
    if features is not None and parts[0].others:
        others = parts[0].others
        notes.append(f"{counted(len(others), 'column')} that the model does not have: {quoted_names(others)}.")
    said = _labels(parts, files, kinds, reading, need_context)
    labels = None if said is None else said.labels
    if said is None:
        check_without_contexts(reading, files, kinds)
    else:
        notes += said.notes
        _hand_out(said, parts)
    data = assembled(parts, labels, reading, files, kinds, notes)
    if said is not None:
        data.says += said.says
    # The names of a model are what they are by now.
    if features is None and data.feature_names is not None:
        data.oddities += spoiled_names(data.feature_names, {k: v for part in parts for k, v in part.date_cells.items()})
    if labels is not None:
        # An AnnData keeps categories that no row has any more; they are no reason for a warning.
        in_use = [name for name, n in zip(labels.categories, labels.counts().tolist(), strict=True) if n]
        data.oddities = [*doubtful_names(in_use), *data.oddities]
        data = _with_context_table(data, [] if data.labels is None else data.labels.categories, reading)
    return data


def _with_context_table(data: TableData, contexts: Sequence[str], reading: Reading) -> TableData:
    """Return the data with what ``--context-table`` says of their contexts, if there is one."""
    if reading.context_table is None:
        return data
    table = read_context_table(reading.context_table, reading, contexts)
    files = [*data.files, *([] if reading.context_table in data.files else [reading.context_table])]
    return replace(
        data,
        files=files,
        context_metadata=table.columns,
        notes=[*data.notes, *table.notes],
        oddities=[*data.oddities, *table.oddities],
    )


def _read_parts(
    files: Sequence[Path],
    kinds: Sequence[FileKind],
    reading: Reading,
    features: Sequence[str] | None,
    report: Report,
) -> list[FilePart]:
    """Read all files; those after the first must have its features."""
    # One budget for all: if the first files fill it, later tables and AnnData are streamed.
    budget = Budget(reading.max_bytes)
    parts: list[FilePart] = []
    # From the second file on, the features of the first are asked for by name, so that columns may be in any order.
    wanted = None if features is None else list(features)
    report("reading", 0, 100 * len(files))
    for i, (path, kind) in enumerate(zip(files, kinds, strict=True)):
        with foreign_bytes(path, kind.format):
            part = open_part(path, kind, reading, wanted, budget, partial(_report_share, report, i, len(files)))
        if i == 0 and features is None:
            wanted = part.feature_names
        # Surplus columns are expected if the first file has some too, by --features say. If it has none, all of its
        # columns are features, and a column that is only here would be lost in silence.
        elif features is None and part.others and not parts[0].others:
            raise UnusableFileError(
                path,
                f"has {quoted_names(part.others)} in addition to the features of {files[0]}; all files must have the "
                "same features.",
            )
        if features is not None:
            # The features are those of a model: it is too late to ask whether one of them counts rows.
            part = replace(part, row_numbers=[])
        parts.append(part)
        report("reading", 100 * (i + 1), 100 * len(files))
    return parts


def _report_share(report: Report, done: int, files: int, share: float) -> None:
    report("reading", int(100 * (done + min(share, _NEARLY_DONE))), 100 * files)


def open_part(
    path: Path,
    kind: FileKind,
    reading: Reading,
    wanted: Sequence[str] | None,
    budget: Budget,
    report_share: Callable[[float], None],
) -> FilePart:
    """Read the rows of one file."""
    if kind.is_table:
        read = read_transposed if reading.transpose else read_table
        return read(open_table(path, kind, reading), reading, wanted, budget, report_share)
    if kind.is_anndata:
        return Annotated(path, kind.format, reading.mod).read(reading, wanted, budget)
    if kind.format == "npz":
        return Npz(path, budget).read(reading, wanted)
    if kind.format == "npy":
        return read_npy_part(path, reading, wanted)
    raise _no_rows(path, kind)


def _no_rows(path: Path, kind: FileKind) -> UnusableFileError:
    what = {"model": "a fitted model", "moments": "a file of moments", "folder": "a folder"}[kind.format]
    return UnusableFileError(path, f"is {what} and has no rows; pass the file with the rows.")


def _files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the files, those of a folder in the order of their names, and what was left out of folders."""
    files: list[Path] = []
    notes: list[str] = []
    for path in paths:
        # A Zarr store is a folder and one file of ours.
        if not path.is_dir() or file_kind(path).format == "zarr":
            files.append(path)
            continue
        refuse_foreign_folder(path)
        # Hidden files are those of the system; the natural order puts part2 before part10.
        inside = sorted((p for p in path.iterdir() if not p.name.startswith(".")), key=lambda p: natural(p.name))
        # By ending, unlike files that are named: nobody has vouched for what lies in a folder.
        tables = [p for p in inside if p.name.lower().removesuffix(".gz").endswith(_ENDINGS)]
        others = [p.name for p in inside if p not in tables]
        if not tables:
            content = f"only {quoted_names(others)}" if others else "nothing"
            raise UnusableFileError(
                path, f"is a folder without tables (.csv, .parquet, .npy and so on): there is {content} in it."
            )
        if others:
            notes.append(f"{quoted_names(others)} in {path}: not named like tables.")
        files += tables
    return files, notes


def _check_stems(files: Sequence[Path]) -> None:
    """Raise if two files would be contexts of the same name."""
    stems = [stem_of(path) for path in files]
    repeated = sorted(stem for stem, n in Counter(stems).items() if n > 1)
    if repeated:
        first, second = [path for path, stem in zip(files, stems, strict=True) if stem == repeated[0]][:2]
        raise UnusableFileError(
            second, f"gives a context the same name, {repeated[0]!r}, as {first} does; rename one of the files."
        )


def _check_widths(parts: list[FilePart], files: list[Path]) -> None:
    """Raise if files without names of features have different numbers of them."""
    # With names, features were matched as the files were read; here it is about .npy and .npz without any.
    expected = n_features_of(parts[0])
    for part in parts[1:]:
        p = n_features_of(part)
        if p != expected:
            raise UnusableFileError(
                part.where,
                f"has {counted(p, 'feature')} and {files[0]} has {expected}; all files must have the same features.",
            )


# Labels ------------------------------------------------------------------------------------------------------------


def _labels(
    parts: list[FilePart], files: list[Path], kinds: list[FileKind], reading: Reading, need_context: bool
) -> RowLabels | None:
    """Return the context of each row: from a file, from columns, or by the names of the files; None if not needed."""
    # The most explicit indication wins: a file of labels, then columns, then the names of the files.
    if reading.labels is not None:
        names = [part.row_names for part in parts if part.row_names is not None]
        # --sheet is about the rows, if these are in a workbook.
        sheet = None if "Excel" in {kind.format for kind in kinds} else reading.sheet
        return labels_from(
            reading.labels,
            sum(part.n_rows for part in parts),
            reading,
            [name for part in names for name in part] if len(names) == len(parts) else None,
            reading.annotation_columns if reading.transpose else (),
            sheet,
        )
    if all(part.labels for part in parts):
        return RowLabels(stacked([crossed_labels(part.labels) for part in parts]))
    if len(parts) > 1:
        by_file = [same_label(stem_of(p), part.n_rows) for p, part in zip(files, parts, strict=True)]
        return RowLabels(stacked(by_file))
    if need_context:
        raise no_context_error(files[0])
    return None


def _hand_out(said: RowLabels, parts: Sequence[FilePart]) -> None:
    """Give each part its rows of the columns that a file of labels has for all."""
    for name, labels in said.annotations.items():
        first = 0
        for part in parts:
            part.annotations[name] = Labels(labels.codes[first : first + part.n_rows], labels.categories)
            first += part.n_rows


def no_context_error(path: Path) -> UnusableFileError:
    """Return the error for rows without any indication of their context."""
    if path.suffix.lower() == ".npy":  # which has no columns to name
        ways = "--labels FILE with one label per row, or one file per context"
    else:
        command = shlex.join(["mcpca", "doctor", *as_words(stdin.as_typed(path))])
        ways = f"--context COLUMN, --labels FILE, or one file per context ({command} shows the columns)"
    return UnusableFileError(path, f"nothing says which context each row is from; pass {ways}.")


def as_words(path: Path) -> list[str]:
    """Return a path as words of a command line, in which it is not to be taken for an option."""
    return ["--", str(path)] if len(str(path)) > 1 and str(path).startswith("-") else [str(path)]


def doubtful_names(names: Sequence[str]) -> list[str]:
    """Say which names of contexts differ by blanks or case only, or read like a missing label."""
    doubts = [f"{told_alike(groups)}."] if (groups := alike(names)) else []
    if missing := missing_by_name(names):
        # A crossed name is missing in one of its parts, and --na-values takes that part.
        text = next(part.strip() for part in missing[0].split(SEPARATOR) if part.strip() in MISSING_TEXTS)
        doubts.append(
            f"{quoted_names(missing)} reads as a missing label and is kept as a context of its own; --na-values "
            f"{text} makes it missing."
        )
    return doubts


# Moments -----------------------------------------------------------------------------------------------------------


def _read_moments(files: list[Path], kinds: list[FileKind], reading: Reading, need_context: bool) -> TableData:
    if len(files) > 1 or not need_context:
        raise UnusableFileError(
            files[[kind.format for kind in kinds].index("moments")],
            "holds moments and no rows; mcpca merge puts several together, and mcpca fit takes one.",
        )
    if reading.context or reading.labels:
        raise UselessOptionError(files[0], "holds moments, which know their contexts; drop --context and --labels.")
    check_options(reading, files, kinds)
    X = load_moments(files[0])
    names = None if X.feature_names is None else [str(name) for name in X.feature_names]
    # No rows, and so no names of rows; labels are None, by which commands recognise moments.
    return TableData(X, None, names, [], X.means.shape[1], "moments", files)


def load_moments(path: Path) -> ContextMoments:
    """Read moments; whatever is wrong with the file becomes an ``UnusableFileError``."""
    kind = file_kind(path)
    if kind.format != "moments":
        raise UnusableFileError(path, f"holds no moments ({kind.format}); pass files that mcpca moments wrote.")
    try:
        return ContextMoments.load(path)
    except (ValueError, KeyError, OSError) as error:
        raise UnusableFileError(path, f"cannot be read as moments ({reason(error)}).") from error
