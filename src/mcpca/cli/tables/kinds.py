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
from ._errors import UnusableFileError, did_you_mean, reason
from .foreign import HEAD_BYTES, foreign_zip, refuse_foreign

_MAGIC = {
    b"PAR1": "Parquet",
    b"\x89HDF\r\n\x1a\n": "h5ad",  # HDF5; whether it is an AnnData is seen when it is opened
    b"MuData (format-version=": "h5ad",  # HDF5 behind a block of text, which says what it is
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # without entries
}
_GZIP_MAGIC = b"\x1f\x8b"
_ZARR_FILES = (".zgroup", "zarr.json", ".zattrs", ".zmetadata")  # of versions 2 and 3


class FileKind(NamedTuple):
    """Format of a file; ``compression`` is "gzip" or None.

    One of "text", "Parquet", "Excel", "h5ad", "zarr", "npy", "npz", "moments", "model" and "folder".
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
            raise no_such_file(path)
        if not path.is_file():  # a pipe, say, which cannot be read twice
            raise UnusableFileError(path, "is neither a file nor a folder; save its content to a file first.")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
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


def no_such_file(path: Path) -> UnusableFileError:
    """Return the error for a path at which there is nothing, with a hint at what may have been meant."""
    if path.is_symlink():
        # What it points to as it is written in the link: that is what was moved, or misspelt.
        return UnusableFileError(
            path, f"is a link to {str(path.readlink())!r}, which is not there; mend the link, or pass the file itself."
        )
    try:
        # The folder itself may be missing or unreadable: then there is nothing to compare with.
        hint = did_you_mean(path.name, [other.name for other in path.parent.iterdir() if other.exists()])
    except OSError:
        return UnusableFileError(path, f"there is no such file, nor the folder {str(path.parent)!r}.")
    return UnusableFileError(path, f"there is no such file; {hint.rstrip()}" if hint else "there is no such file.")


def _format_of(path: Path, head: bytes) -> str:
    for magic, format in _MAGIC.items():
        if head.startswith(magic):
            return format
    refuse_foreign(path, head)
    return "text"  # or some other binary file, which is noticed by its zero bytes when it is read


def _unpacked_head(path: Path) -> bytes:
    with open_unpacked(path, "gzip") as file:
        head: bytes = file.read(HEAD_BYTES)
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
    return UnusableFileError(path, f"is truncated or damaged gzip data ({reason(error)}); copy or download it again.")


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
        raise UnusableFileError(
            path, f"is a truncated or damaged zip file ({reason(error)}); copy it again."
        ) from error
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    if any(name == "xl/workbook.bin" for name in names):
        raise UnusableFileError(path, "is a binary workbook (.xlsb); save it as .xlsx or CSV.")
    if any(name.startswith("xl/") for name in names):
        return "Excel"
    raise foreign_zip(path, names)
