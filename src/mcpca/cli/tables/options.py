"""Options of reading that a file has no use for are refused: one that is ignored reads as one that was followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ._errors import UnusableFileError
from .data import Reading
from .kinds import Kind, kind_of

_ANNDATA = frozenset({"h5ad", "zarr"})
_ROWS = frozenset({"text", "Parquet", "npz", "npy"}) | _ANNDATA
# The option of each field, the formats that have a use for it, and what these are.
_OPTIONS = {
    "context": ("--context", _ROWS, "files of rows"),
    "labels": ("--labels", _ROWS, "files of rows"),
    "index": ("--index", _ROWS, "files of rows"),
    "features": ("--features", _ROWS, "files of rows"),
    "drop": ("--drop", _ROWS, "files of rows"),
    "layer": ("--layer", _ANNDATA, "AnnData (.h5ad, .zarr)"),
    "obsm": ("--obsm", _ANNDATA, "AnnData (.h5ad, .zarr)"),
    "mask_var": ("--mask-var", _ANNDATA, "AnnData (.h5ad, .zarr); choose columns with --features"),
    "header": ("--no-header", frozenset({"text"}), "text"),
    "delimiter": ("--delimiter", frozenset({"text"}), "text"),
    "decimal": ("--decimal", frozenset({"text"}), "text"),
    "encoding": ("--encoding", frozenset({"text"}), "text"),
    "na_values": ("--na-values", _ROWS, "files of rows"),
    "min_samples": ("--min-samples", _ROWS, "files of rows"),
    "drop_unlabelled": ("--drop-unlabelled", _ROWS, "files of rows"),
}
_OF_LABELS = ("na_values", "min_samples", "drop_unlabelled")


def given(reading: Reading) -> list[str]:
    """Return the options of reading that are not at their defaults."""
    return [_OPTIONS[f.name][0] for f in fields(Reading) if f.name in _OPTIONS and _is_given(reading, f.name)]


def check_options(reading: Reading, files: Sequence[Path], kinds: Sequence[Kind]) -> None:
    """Raise where an option has no effect on any of the files."""
    formats = {kind.format for kind in kinds}
    if not formats & (_ROWS | {"moments"}):
        return  # what such a file is, is said where it is opened
    for_labels = _used_by_labels(reading)
    for name, (option, uses, what) in _OPTIONS.items():
        if name in for_labels or not _is_given(reading, name) or formats & uses:
            continue
        raise UnusableFileError(files[0], f"is {_what(kinds[0])}, and {option} is for {what}; drop the option.")
    if reading.obsm is not None and reading.mask_var is not None:
        raise UnusableFileError(
            files[0], f"--mask-var chooses features of var, which --obsm {reading.obsm} does not have; drop one."
        )


def check_for_model(reading: Reading, files: Sequence[Path]) -> None:
    """Raise where an option chooses features, and a model that has names for its own has chosen them."""
    for name in ("features", "mask_var"):
        if _is_given(reading, name):
            raise UnusableFileError(
                files[0], f"the model takes its features by name, so that {_OPTIONS[name][0]} has no effect; drop it."
            )


def check_without_contexts(reading: Reading, files: Sequence[Path], kinds: Sequence[Kind]) -> None:
    """Raise where an option is about contexts, and nothing says the context of any row."""
    text = any(kind.format == "text" for kind in kinds)  # whose numbers --na-values is about, too
    asked = [name for name in _OF_LABELS if _is_given(reading, name) and not (text and name == "na_values")]
    if asked:
        raise UnusableFileError(
            files[0],
            f"{_OPTIONS[asked[0]][0]} has no effect, since nothing says the context of a row; pass --context or "
            "--labels, or drop the option.",
        )


def _used_by_labels(reading: Reading) -> frozenset[str]:
    """Options that are about the file of labels, where there is one."""
    if reading.labels is None:
        return frozenset()
    if kind_of(reading.labels).format != "text":
        return frozenset()
    return frozenset({"encoding", "delimiter"} if reading.context else {"encoding"})


def _is_given(reading: Reading, name: str) -> bool:
    return bool(getattr(reading, name) != getattr(Reading, name))


def _what(kind: Kind) -> str:
    words = {"text": "a table of text", "Parquet": "a Parquet table", "h5ad": "an .h5ad", "zarr": "a .zarr"}
    words |= {"npy": "an .npy", "npz": "an .npz", "model": "a fitted model", "moments": "moments of contexts"}
    return words.get(kind.format, kind.format)
