"""Arrays in NumPy's .npz container from anybody: nothing is believed that the file itself does not bear out.

A container is a zip file with a header of a hundred bytes or so before each array. The size that follows from the shape
in that header, the size in the directory of the zip file, and what the bytes of the file can hold at most have to agree
before memory is taken. No pickle is read. All that can be wrong becomes an ``NpzError`` or an ``OSError``.
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
_LONGEST_HEADER = 10_000  # characters, as in NumPy
_MOST_DIMENSIONS = 32
_CHUNK = 2**20
_DEFLATE = 1032  # bytes that one packed byte can stand for at most
_ENCRYPTED = 0x1
# What damaged bytes make of their readers; RuntimeError is also "encrypted" and "compression not supported".
_DAMAGED = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, RuntimeError, EOFError),
    *(ValueError, KeyError, IndexError, AttributeError, TypeError, OverflowError, SyntaxError, RecursionError),
    *(MemoryError, AssertionError),
)


class NpzError(ValueError):
    """Something in an .npz is damaged, or is not what it says."""


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
    """The arrays of an .npz by name: headers are read first, values when asked for.

    ``stored`` refuses arrays that are packed, so that no more can be in the file than its bytes; packed ones are
    bounded by what deflate can hold, a thousand times as much, and by ``most`` of ``read``.
    """

    def __init__(self, path: Path, *, stored: bool = False) -> None:
        self._file = path.open("rb")
        self._size, self._stored = path.stat().st_size, stored
        self._left = self._size  # bytes that arrays which are not packed can still have
        try:
            with _named("its directory"):
                self._zip = zipfile.ZipFile(self._file)
            self._members: dict[str, zipfile.ZipInfo] = {}
            for member in self._zip.infolist():
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
        """Names of what is in the zip file."""
        return [member.filename for member in self._members.values()]

    def is_stored(self, name: str) -> bool:
        """Whether an array is not packed."""
        return self._members[name].compress_type == zipfile.ZIP_STORED

    def info(self, name: str) -> ArrayInfo:
        """Return shape and type of an array."""
        with self._open(name) as file:
            return self._checked(name, file)

    def read(self, name: str, most: int | None = None) -> Array:
        """Return an array; more than ``most`` bytes are refused before memory is taken for them."""
        with self._open(name) as file:
            info = self._checked(name, file)
            if most is not None and info.nbytes > most:
                raise NpzError(f"its array {name[:40]!r} takes {info.nbytes:,} bytes, and {most:,} are allowed")
            if info.dtype.hasobject:
                raise NpzError(f"its array {name[:40]!r} can only be read by pickle, which can run code")
            self._left -= info.nbytes
            if self._stored and self._left < 0:
                raise NpzError(f"its arrays share bytes: they have more than the {self._size:,} of the file")
            flat = np.empty(math.prod(info.shape), dtype=info.dtype)
            room: Any = memoryview(flat.view(np.uint8)) if info.nbytes else None  # type: ignore[arg-type]
            done = 0
            while done < info.nbytes:
                n = file.readinto(room[done : done + _CHUNK])  # type: ignore[attr-defined]
                if not n:
                    raise NpzError(f"its array {name[:40]!r} ends after {done:,} of {info.nbytes:,} bytes")
                done += n
            file.read(1)  # at its end the checksum is compared
            return flat.reshape(info.shape, order="F" if info.fortran_order else "C")

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        with _named(f"its array {name[:40]!r}"):
            member = self._members.get(name)
            if member is None:
                raise NpzError(f"it has no array {name[:40]!r}")
            packed = member.compress_type != zipfile.ZIP_STORED
            if member.flag_bits & _ENCRYPTED or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise NpzError(f"its array {name[:40]!r} is encrypted, or packed in a way that NumPy does not use")
            if packed and self._stored:
                raise NpzError(f"its array {name[:40]!r} is packed, which such files never are")
            most = member.compress_size * (_DEFLATE if packed else 1)
            if member.compress_size > self._size or member.file_size > most:
                raise NpzError(
                    f"its array {name[:40]!r} is said to have {member.file_size:,} bytes, which the {self._size:,} of "
                    "the file cannot hold"
                )
            with self._zip.open(member) as file:
                yield file

    def _checked(self, name: str, file: IO[bytes]) -> ArrayInfo:
        """Return what the header says, which the directory has to bear out."""
        info, read = read_array_header(file)
        held = self._members[name].file_size - read
        if not info.dtype.hasobject and info.nbytes != held:
            raise NpzError(
                f"its array {name[:40]!r} is said to be {info.dtype} of shape {info.shape}, {info.nbytes:,} bytes, and "
                f"has {held:,}"
            )
        return info


def read_array_header(file: IO[bytes]) -> tuple[ArrayInfo, int]:
    """Read the header of an array of NumPy, and return what it says and how many bytes it has."""
    start = _exactly(file, 8)
    if start[:6] != _MAGIC or start[6] not in (1, 2, 3):
        raise NpzError("an array does not begin as those of NumPy do")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(_exactly(file, width), "little")
    if length > _LONGEST_HEADER:
        raise NpzError(f"an array has a header of {length:,} bytes; at most {_LONGEST_HEADER:,} are read")
    text = _exactly(file, length).decode("utf-8" if start[6] == 3 else "latin-1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what damaged text makes of the parser
        header = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text).strip())  # 3L is how Python 2 wrote 3
        dtype = np.lib.format.descr_to_dtype(header["descr"])
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise NpzError("an array has a header that is none of NumPy's")
    shape, order = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or type(order) is not bool:
        raise NpzError(f"an array has the shape {str(shape)[:60]}")
    if len(shape) > _MOST_DIMENSIONS or (dtype.itemsize == 0 and math.prod(shape) > 0) or dtype.subdtype is not None:
        raise NpzError(f"an array is {str(dtype)[:60]} of shape {str(shape)[:60]}, which NumPy does not write")
    return ArrayInfo(shape, dtype, order), 8 + width + length


def _exactly(file: IO[bytes], n: int) -> bytes:
    content = file.read(n)
    if len(content) != n:
        raise NpzError("the header of an array is cut short")
    return content


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn whatever damaged bytes raise into an ``NpzError``; errors of the system stay what they are."""
    try:
        yield
    except NpzError:
        raise
    except _DAMAGED as error:
        raise NpzError(f"{what} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    except io.UnsupportedOperation as error:
        raise NpzError(f"{what} cannot be read: {error}") from error
    except OSError as error:
        if error.errno is None or error.errno == errno.EINVAL:  # raised by a reader, or a place before the file begins
            raise NpzError(f"{what} cannot be read: {error}") from error
        raise
