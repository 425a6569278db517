"""Options for reading that the files have no use for are refused: an ignored option reads like one that was obeyed.

The rules that depend on the files; those that follow from the command line alone are in ``cli/_policy.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ._errors import UselessOptionError
from .data import Reading
from .kinds import FileKind, file_kind

_ANNDATA = frozenset({"h5ad", "zarr"})
ROWS = frozenset({"text", "Excel", "Parquet", "npz", "npy"}) | _ANNDATA
_NOT_ANNDATA = ROWS - _ANNDATA
_CELLS = frozenset({"text", "Excel"})  # formats whose cells are what somebody typed
# For each field of ``Reading``: its option, the formats that have a use for it, and what these are in words.
# Not here: --allow-duplicates and --max-memory, a permission and a bound, which are obeyed by whatever is read.
_OPTIONS = {
    "context": ("--context", ROWS, "files of rows"),
    "labels": ("--labels", ROWS, "files of rows"),
    "index": ("--index", ROWS, "files of rows"),
    "features": ("--features", ROWS, "files of rows"),
    "drop": ("--drop", ROWS, "files of rows"),
    "mod": ("--mod", _ANNDATA, "MuData (.h5mu, .zarr)"),
    "layer": ("--layer", _ANNDATA, "AnnData (.h5ad, .zarr)"),
    "obsm": ("--obsm", _ANNDATA, "AnnData (.h5ad, .zarr)"),
    "mask_var": ("--mask-var", _ANNDATA, "AnnData (.h5ad, .zarr); choose columns with --features"),
    "header": ("--no-header", _CELLS, "text and workbooks"),
    "delimiter": ("--delimiter", frozenset({"text"}), "text"),
    "decimal": ("--decimal", _CELLS, "text and workbooks"),
    "encoding": ("--encoding", frozenset({"text"}), "text"),
    "comment": ("--comment", frozenset({"text"}), "text"),
    "sheet": ("--sheet", frozenset({"Excel"}), "workbooks (.xlsx)"),
    "transpose": ("--transpose", _NOT_ANNDATA, "tables and arrays: an AnnData says what is a row and what a feature"),
    "na_values": ("--na-values", ROWS, "files of rows"),
    "min_samples": ("--min-samples", ROWS, "files of rows"),
    "drop_unlabelled": ("--drop-unlabelled", ROWS, "files of rows"),
    "groups": ("--groups", ROWS, "files of rows"),
    "batch": ("--batch", ROWS, "files of rows"),
    "covariates": ("--covariates", ROWS, "files of rows"),
    "row_metadata": ("--row-metadata", ROWS, "files of rows"),
}
_ABOUT_CONTEXTS = ("na_values", "min_samples", "drop_unlabelled")


def options_given(reading: Reading) -> list[str]:
    """Return the options for reading that differ from their defaults."""
    return [_OPTIONS[f.name][0] for f in fields(Reading) if f.name in _OPTIONS and _is_given(reading, f.name)]


def option_words(reading: Reading) -> list[str]:
    """Return the words of a command line that stand for a reading; the inverse of ``cli._options.take_reading``."""
    words: list[str] = []
    for name, (option, _, _) in _OPTIONS.items():
        if not _is_given(reading, name):
            continue
        value = getattr(reading, name)
        if isinstance(value, bool):  # a flag
            words.append(option)
            continue
        for one in value if isinstance(value, tuple) else (value,):
            text = str(one).replace("\t", "tab") if name == "delimiter" else str(one)
            # A value that begins like an option is tied to its own.
            words += [f"{option}={text}"] if text.startswith("-") else [option, text]
    words += ["--allow-duplicates"] if reading.allow_duplicates else []
    words += ["--max-memory", str(reading.max_bytes // 2**20)] if reading.max_bytes != Reading.max_bytes else []
    return words


def check_options(reading: Reading, files: Sequence[Path], kinds: Sequence[FileKind]) -> None:
    """Raise if an option has no effect on any of the files."""
    formats = {kind.format for kind in kinds}
    if not formats & (ROWS | {"moments"}):
        return  # a model, say: the error of opening it says more
    for_labels = _used_by_labels(reading)
    for name, (option, uses, what) in _OPTIONS.items():
        # One file that has a use for the option is enough: files of several formats may be named together.
        if name in for_labels or not _is_given(reading, name) or formats & uses:
            continue
        raise UselessOptionError(
            files[0], f"is {_kind_in_words(kinds[0])}, and {option} is for {what}; drop the option."
        )
    if reading.obsm is not None and reading.mask_var is not None:
        raise UselessOptionError(
            files[0], f"--mask-var chooses features of var, which --obsm {reading.obsm} does not have; drop one."
        )


def check_for_model(reading: Reading, files: Sequence[Path]) -> None:
    """Raise if an option chooses features although a model with named features is applied, which has chosen them."""
    for name in ("features", "mask_var"):
        if _is_given(reading, name):
            raise UselessOptionError(
                files[0], f"the model takes its features by name, so {_OPTIONS[name][0]} has no effect; drop it."
            )


def check_without_contexts(reading: Reading, files: Sequence[Path], kinds: Sequence[FileKind]) -> None:
    """Raise if an option is about contexts and the rows have none."""
    text = any(kind.format in _CELLS for kind in kinds)  # --na-values is about their numbers too
    fields_given = [name for name in _ABOUT_CONTEXTS if _is_given(reading, name) and not (text and name == "na_values")]
    if fields_given:
        raise UselessOptionError(
            files[0],
            f"{_OPTIONS[fields_given[0]][0]} has no effect, since the rows have no contexts; pass --context or "
            "--labels, or drop the option.",
        )


def _used_by_labels(reading: Reading) -> frozenset[str]:
    """Return the fields that are about the file of labels, if there is one."""
    if reading.labels is None:
        return frozenset()
    format = file_kind(reading.labels).format
    if format == "Excel":
        return frozenset({"sheet"})
    # Encoding, comments and delimiter can only be about text; a delimiter, only where columns are named.
    if format != "text":
        return frozenset()
    return frozenset({"encoding", "comment", *(["delimiter"] if reading.context else [])})


def _is_given(reading: Reading, name: str) -> bool:
    # The defaults of a dataclass are attributes of the class. An option that is typed with its default is not noticed,
    # and does no harm.
    return bool(getattr(reading, name) != getattr(Reading, name))


def _kind_in_words(kind: FileKind) -> str:
    words = {"text": "a text table", "Parquet": "a Parquet table", "h5ad": "an .h5ad", "zarr": "a .zarr"}
    words |= {"Excel": "an Excel workbook"}
    words |= {"npy": "an .npy", "npz": "an .npz", "model": "a fitted model", "moments": "a file of moments"}
    return words.get(kind.format, kind.format)
