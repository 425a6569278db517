"""What a file is, from its first bytes. Its name is ignored: endings are often missing, wrong or doubled."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..._covariances.moments import MOMENTS_FORMAT
from ..._estimator.persistence import MODEL_FORMAT
from ..._utils.array_files import read_header
from ..._utils.npz import NpzArchive, NpzError
from ._errors import UnusableFileError, did_you_mean

_HEAD_BYTES = 16  # as many as the longest of the marks below needs
_MAGIC = {
    b"PAR1": "Parquet",
    b"\x89HDF\r\n\x1a\n": "h5ad",  # HDF5; whether it is an AnnData is seen when it is opened
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # without entries
}
# Formats that are not read, recognised to say what to do about them.
_UNREADABLE = {
    b"BZh": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"%PDF": "a PDF",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook (.xls, or one with a password)",
    b"\x80\x04\x95": "a Python pickle, which can run code and is never opened",
    b"RDX": "an R workspace",
}
_GZIP_MAGIC = b"\x1f\x8b"
_ZARR_FILES = (".zgroup", "zarr.json", ".zattrs", ".zmetadata")  # of versions 2 and 3


class FileKind(NamedTuple):
    """Format of a file, one of "text", "Parquet", "Excel", "h5ad", "zarr", "npy", "npz", "moments", "model" and "folder".

    ``compression`` is "gzip" or None.
    """

    format: str
    compression: str | None = None

    @property
    def is_table(self) -> bool:
        """Whether ``tabular.open_table`` opens it."""
        return self.format in ("text", "Parquet", "Excel")

    @property
    def is_anndata(self) -> bool:
        """Whether ``annotated.Annotated`` opens it."""
        return self.format in ("h5ad", "zarr")


def file_kind(path: Path) -> FileKind:
    """Return what is at ``path``, or raise an ``UnusableFileError`` that says what to do about it."""
    try:
        if path.is_dir():
            # Zarr is a folder too, told from a folder of tables by the metadata in it.
            return FileKind("zarr" if any((path / name).exists() for name in _ZARR_FILES) else "folder")
        if not path.exists():
            raise UnusableFileError(path, f"there is no such file{_similar_file(path)}.")
        if not path.is_file():  # a pipe, say, which cannot be read twice
            raise UnusableFileError(path, "is neither a file nor a folder; save its content to a file first.")
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise UnusableFileError(path, f"cannot be opened ({error.strerror or error}).") from error
    if not head:
        raise UnusableFileError(path, "is empty (0 bytes).")
    # Only text is read packed: the libraries for the other formats open a file by its path.
    if head.startswith(_GZIP_MAGIC):
        inner = _format_of(path, _unpacked_head(path))
        if inner != "text":
            raise UnusableFileError(path, f"holds {inner} packed by gzip; unpack it first (gunzip).")
        return FileKind("text", "gzip")
    format = _format_of(path, head)
    return FileKind(_format_in_zip(path) if format == "zip" else format)


def _similar_file(path: Path) -> str:
    """Return a hint at a file of a similar name, or at a missing folder, to follow "there is no such file"."""
    try:
        # The folder itself may be missing or unreadable: then there is nothing to compare with.
        hint = did_you_mean(path.name, [other.name for other in path.parent.iterdir()])
    except OSError:
        return f", nor the folder {str(path.parent)!r}"
    return f"; {hint.rstrip('? ')}" if hint else ""


def _format_of(path: Path, head: bytes) -> str:
    for magic, format in _MAGIC.items():
        if head.startswith(magic):
            return format
    for magic, what in _UNREADABLE.items():
        if head.startswith(magic):
            raise UnusableFileError(
                path, f"is {what}; pass delimited text (also .gz), Parquet, .xlsx, .h5ad, .zarr, .npz or .npy."
            )
    return "text"  # or some other binary file, which is noticed by its zero bytes when it is read


def _unpacked_head(path: Path) -> bytes:
    with open_unpacked(path, "gzip") as file:
        head: bytes = file.read(_HEAD_BYTES)
    if not head:
        raise UnusableFileError(path, "is empty once unpacked.")
    return head


@contextmanager
def open_unpacked(path: Path, compression: str | None) -> Iterator[Any]:
    """Open a file, unpacked if it is packed by gzip; damage that is found while it is read names the file."""
    try:
        # Damage shows only while the body reads, perhaps at the very end: errors of the body are caught as well.
        with gzip.open(path, "rb") if compression else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged_gzip(path, error) from error


def damaged_gzip(path: Path, error: BaseException) -> UnusableFileError:
    """Return the error for gzip data that end too early or do not match their checksum."""
    return UnusableFileError(path, f"is truncated or damaged gzip data ({error}); copy or download it again.")


def _format_in_zip(path: Path) -> str:
    """Tell NumPy's archives from our own files, and from other uses of zip."""
    try:
        # Models and moments are .npz with a header of ours, so that has to be asked first.
        header = read_header(path)
        if header is not None:
            formats = {MODEL_FORMAT: "model", MOMENTS_FORMAT: "moments"}
            return formats.get(str(header.get("format")), "npz")
        with NpzArchive(path) as archive:
            names = archive.files
    except (NpzError, OSError) as error:
        raise UnusableFileError(path, f"is a truncated or damaged zip file ({error}); copy it again.") from error
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    if any(name.startswith("xl/") for name in names):
        return "Excel"
    raise UnusableFileError(path, "is a zip file without NumPy arrays; unpack it first (unzip).")
