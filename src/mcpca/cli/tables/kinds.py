"""What a file is, told from its first bytes; the name is not asked, except for files that say nothing."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import NamedTuple

from ..._covariances.moments import FORMAT as MOMENTS_FORMAT
from ..._estimator.persistence import MODEL_FORMAT
from ..._utils.array_files import read_header
from ..._utils.npz import NpzArchive, NpzError
from ._errors import UnusableFileError, nearest

_MAGIC = {
    b"PAR1": "Parquet",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # a zip file with nothing in it
}
# Told by name only to say what is to be done with them.
_OTHERS = {
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"%PDF": "a PDF",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\x80\x04\x95": "a Python pickle, which can run code and is never opened",
    b"RDX": "an R workspace",
}
_ZARR = (".zgroup", "zarr.json", ".zattrs", ".zmetadata")


class Kind(NamedTuple):
    """Format of a file, one of "text", "Parquet", "h5ad", "zarr", "npy", "npz", "moments", "model" and "folder".

    ``compression`` is "gzip" or None.
    """

    format: str
    compression: str | None = None


def kind_of(path: Path) -> Kind:
    """Return what is at ``path``, or raise ``UnusableFileError`` with what to do about it."""
    try:
        if path.is_dir():
            return Kind("zarr" if any((path / name).exists() for name in _ZARR) else "folder")
        if not path.exists():
            near = _neighbour(path)
            raise UnusableFileError(path, f"there is no such file{near}.")
        if not path.is_file():
            raise UnusableFileError(path, "is neither a file nor a folder; save its content to a file first.")
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise UnusableFileError(path, f"cannot be opened ({error.strerror or error}).") from error
    if not head:
        raise UnusableFileError(path, "is empty (0 bytes).")
    if head[:2] == b"\x1f\x8b":
        inner = _format_of(path, _first_unpacked(path))
        if inner != "text":
            raise UnusableFileError(path, f"holds {inner} packed by gzip; unpack it first (gunzip).")
        return Kind("text", "gzip")
    found = _format_of(path, head)
    return Kind(_inside_zip(path) if found == "zip" else found)


def _neighbour(path: Path) -> str:
    try:
        hint = nearest(path.name, [other.name for other in path.parent.iterdir()])
    except OSError:
        return f", nor the folder {str(path.parent)!r}"
    return f"; {hint.rstrip('? ')}" if hint else ""


def _format_of(path: Path, head: bytes) -> str:
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return {"HDF5": "h5ad"}.get(name, name)
    for magic, name in _OTHERS.items():
        if head.startswith(magic):
            raise UnusableFileError(
                path, f"is {name}; pass delimited text (also .gz), Parquet, .h5ad, .zarr, .npz or .npy."
            )
    return "text"


def _first_unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path, "rb") as file:
            head = file.read(16)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged_gzip(path, error) from error
    if not head:
        raise UnusableFileError(path, "is empty once unpacked.")
    return head


def damaged_gzip(path: Path, error: BaseException) -> UnusableFileError:
    """Return the error for gzip data that end too early or do not agree with their checksum."""
    return UnusableFileError(path, f"is cut short or damaged gzip data ({error}); copy or download it again.")


def _inside_zip(path: Path) -> str:
    """Tell arrays of NumPy from our own files, and from other uses of zip."""
    try:
        header = read_header(path)
        if header is not None:
            kinds = {MODEL_FORMAT: "model", MOMENTS_FORMAT: "moments"}
            return kinds.get(str(header.get("format")), "npz")
        with NpzArchive(path) as archive:
            names = archive.files
    except (NpzError, OSError) as error:
        raise UnusableFileError(path, f"is a zip file cut short or damaged ({error}); copy it again.") from error
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    if any(name.startswith("xl/") for name in names):
        raise UnusableFileError(path, "is an Excel workbook; save the sheet as CSV.")
    raise UnusableFileError(path, "is a zip file without arrays of NumPy; unpack it first (unzip).")
