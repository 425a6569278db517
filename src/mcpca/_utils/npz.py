"""Arrays from untrusted .npz and .npy files: a damaged or malicious file raises an error, and never runs code.

An .npz is a zip file in which each array is preceded by a header of about a hundred bytes. Three statements about the
size of an array have to agree before memory is allocated for it: the shape and type in its header, the size in the
directory of the zip file, and what the bytes of the file can hold at most. Pickles are refused. Whatever is wrong with
a file becomes an ``NpzError``; errors of the system (no permission, no such file) stay ``OSError``.

``array_files`` reads our own files with it, ``cli/tables/arrays.py`` those of users.
"""

from __future__ import annotations

import ast
import errno
import io
import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, KeysView
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np

from .types import Array

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000  # characters; NumPy has the same limit, since literal_eval is slow on long text
_MOST_DIMENSIONS = 32  # of an array in NumPy 1
_READ_CHUNK_BYTES = 2**20
_MOST_UNPACKED = 1032  # bytes that one byte of deflate can stand for at most
_ENCRYPTED_FLAG = 0x1
# What zipfile, zlib and NumPy raise on damaged bytes; RuntimeError is also "encrypted" and "compression not supported".
_ERRORS_OF_DAMAGE = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, RuntimeError, EOFError),
    *(ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError, SyntaxError, RecursionError),
    *(MemoryError, AssertionError),
)


class NpzError(ValueError):
    """A file of arrays is damaged, or does not hold what it claims to."""


class NeedsPickleError(NpzError):
    """An array holds Python objects, which only pickle could read, and pickle can run code."""


class ArrayInfo(NamedTuple):
    """Shape and type of an array, without its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


class NpzArchive:
    """The arrays of an .npz by name: headers can be read alone, values are read when asked for.

    Parameters
    ----------
    path : Path
    stored : bool
        Refuse compressed arrays, so that the arrays cannot be larger than the file. Otherwise they are bounded by what
        deflate can hold, a thousand times as much, and by ``most`` of ``read``.
    """

    def __init__(self, path: Path, *, stored: bool = False) -> None:
        self._file = path.open("rb")
        self._size = path.stat().st_size
        self._stored = stored
        # Entries of a zip directory may point to the same bytes; arrays are subtracted from this as they are read, so
        # that a small file of overlapping arrays cannot fill the memory.
        self._unclaimed_bytes = self._size
        try:
            with _damage_as_npz_error("its directory"):
                self._zip = zipfile.ZipFile(self._file)
            self._members: dict[str, zipfile.ZipInfo] = {}
            for member in self._zip.infolist():
                # Readers would disagree on which of two arrays of one name counts, so that a file could show one and
                # hide the other.
                name = member.filename.removesuffix(".npy")
                if name in self._members:
                    raise NpzError(f"it has two arrays called {name[:40]!r}")
                self._members[name] = member
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    @property
    def names(self) -> KeysView[str]:
        """Names of the arrays."""
        return self._members.keys()

    @property
    def files(self) -> list[str]:
        """Names of the entries of the zip file."""
        return [member.filename for member in self._members.values()]

    def is_stored(self, name: str) -> bool:
        """Whether an array is not compressed."""
        return self._members[name].compress_type == zipfile.ZIP_STORED

    def info(self, name: str) -> ArrayInfo:
        """Return shape and type of an array."""
        # The header alone is read: the size of an array is known before memory is allocated for it.
        with self._open(name) as file:
            return self._checked_info(name, file)

    def read(self, name: str, most: int | None = None) -> Array:
        """Return an array; one of more than ``most`` bytes is refused before memory is allocated."""
        with self._open(name) as file:
            info = self._checked_info(name, file)
            if most is not None and info.nbytes > most:
                raise NpzError(f"its array {name[:40]!r} takes {info.nbytes:,} bytes, and {most:,} are allowed")
            # Before any byte of the values is read: unpickling is what runs code.
            if info.dtype.hasobject:
                raise NeedsPickleError(f"its array {name[:40]!r} can only be read by pickle, which can run code")
            # Counted before the array is allocated, which is where the memory would go.
            self._unclaimed_bytes -= info.nbytes
            if self._stored and self._unclaimed_bytes < 0:
                raise NpzError(f"its arrays share bytes: they have more than the {self._size:,} of the file")
            # Read piece by piece into the array itself: ``file.read()`` would hold the bytes a second time.
            flat = np.empty(math.prod(info.shape), dtype=info.dtype)
            buffer: Any = memoryview(flat.view(np.uint8)) if info.nbytes else None  # type: ignore[arg-type]
            done = 0
            while done < info.nbytes:
                n = file.readinto(buffer[done : done + _READ_CHUNK_BYTES])  # type: ignore[attr-defined]
                if not n:
                    raise NpzError(f"its array {name[:40]!r} ends after {done:,} of {info.nbytes:,} bytes")
                done += n
            file.read(1)  # zipfile compares the checksum when it comes to the end
            return flat.reshape(info.shape, order="F" if info.fortran_order else "C")

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        with _damage_as_npz_error(f"its array {name[:40]!r}"):
            member = self._members.get(name)
            if member is None:
                raise NpzError(f"it has no array {name[:40]!r}")
            # Deflate has a known bound on what a byte can unpack to; bzip2 and LZMA, which NumPy never writes, have
            # none that helps.
            known_method = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if member.flag_bits & _ENCRYPTED_FLAG or not known_method:
                raise NpzError(f"its array {name[:40]!r} is encrypted, or compressed in a way that NumPy does not use")
            compressed = not self.is_stored(name)
            if compressed and self._stored:
                raise NpzError(f"its array {name[:40]!r} is compressed, which such files never are")
            most_bytes = member.compress_size * (_MOST_UNPACKED if compressed else 1)
            # The directory may claim any size. What the file has bytes for is the bound.
            if member.compress_size > self._size or member.file_size > most_bytes:
                raise NpzError(
                    f"its array {name[:40]!r} is said to have {member.file_size:,} bytes, which the {self._size:,} of "
                    "the file cannot hold"
                )
            with self._zip.open(member) as file:
                yield file

    def _checked_info(self, name: str, file: IO[bytes]) -> ArrayInfo:
        """Return what the header says, if the directory of the zip file agrees."""
        info, header_bytes = read_array_header(file)
        # The header says what the values are, the directory how many bytes they take. If these differ, one is wrong.
        value_bytes = self._members[name].file_size - header_bytes
        # An array of objects is a pickle, whose size does not follow from its shape; it is never read.
        if not info.dtype.hasobject and info.nbytes != value_bytes:
            raise NpzError(
                f"its array {name[:40]!r} is said to be {info.dtype} of shape {info.shape}, {info.nbytes:,} bytes, and "
                f"has {value_bytes:,}"
            )
        return info


def map_array(path: Path) -> Array:
    """Return the array of an .npy as a read-only memory map; one that needs pickle is refused."""
    with _damage_as_npz_error("it"):
        with path.open("rb") as file:
            info, _ = read_array_header(file)
        if info.dtype.hasobject:
            raise NeedsPickleError("it can only be read by pickle, which can run code")
        # An empty file region cannot be mapped.
        array: Array = np.load(path, mmap_mode="r" if info.nbytes else None, allow_pickle=False)
        return array


def read_array_header(file: IO[bytes]) -> tuple[ArrayInfo, int]:
    """Read the header of an array in NumPy's format; return what it says and its length in bytes.

    The layout (NumPy Enhancement Proposal 1): magic bytes, a version, the length of a text, and the text, which is a
    Python literal such as ``{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2)}``.
    """
    # Six magic bytes, then the major and the minor version.
    start = _read_exactly(file, 8)
    version = start[6]
    if start[:6] != _MAGIC or version not in (1, 2, 3):
        raise NpzError("an array does not begin as those of NumPy do")
    # Version 1 has two bytes for the length of the text, later ones four, which could announce 4 GB: hence the limit.
    width = 2 if version == 1 else 4
    length = int.from_bytes(_read_exactly(file, width), "little")
    if length > _LONGEST_HEADER:
        raise NpzError(f"an array has a header of {length:,} bytes; at most {_LONGEST_HEADER:,} are read")
    # UTF-8 came with version 3, for names of fields in structured arrays.
    text = _read_exactly(file, length).decode("utf-8" if version == 3 else "latin-1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser's SyntaxWarnings about damaged text
        header = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text).strip())  # 3L is how Python 2 wrote 3
        dtype = np.lib.format.descr_to_dtype(header["descr"])
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise NpzError("an array has a header that NumPy does not write")
    # ``type(n) is int``: True is an int by isinstance, and a shape of (True, 2) is not NumPy's.
    shape = header["shape"]
    order = header["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or type(order) is not bool:
        raise NpzError(f"an array has the shape {str(shape)[:60]}")
    # Values without bytes would pass every comparison of sizes at any shape, however large.
    if len(shape) > _MOST_DIMENSIONS or (dtype.itemsize == 0 and math.prod(shape) > 0) or dtype.subdtype is not None:
        raise NpzError(f"an array is {str(dtype)[:60]} of shape {str(shape)[:60]}, which NumPy does not write")
    return ArrayInfo(shape, dtype, order), 8 + width + length


def _read_exactly(file: IO[bytes], n: int) -> bytes:
    content = file.read(n)
    if len(content) != n:
        raise NpzError("the header of an array is cut short")
    return content


@contextmanager
def _damage_as_npz_error(what: str) -> Iterator[None]:
    """Turn whatever damaged bytes raise into an ``NpzError``; errors of the system stay what they are."""
    try:
        yield
    except NpzError:
        raise
    except _ERRORS_OF_DAMAGE as error:
        raise NpzError(f"{what} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    except io.UnsupportedOperation as error:
        raise NpzError(f"{what} cannot be read: {error}") from error
    except OSError as error:
        # Without errno it was raised by a reader; EINVAL is a seek to before the beginning of the file.
        if error.errno is None or error.errno == errno.EINVAL:
            raise NpzError(f"{what} cannot be read: {error}") from error
        raise
