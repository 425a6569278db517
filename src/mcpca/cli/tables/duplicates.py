"""The same file twice, by whatever name, and files of the same content: rows that would count twice."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path

from ._errors import UnusableFileError
from .kinds import Kind, damaged_gzip

_CHUNK = 2**20
_HEAD = 2**16  # bytes by which most files differ


def check_duplicates(files: Sequence[Path], kinds: Sequence[Kind]) -> None:
    """Raise where two files are one, or have the same bytes once unpacked.

    Only files whose first bytes agree are read to their ends.
    """
    seen: dict[str, Path] = {}
    for path in files:
        same = seen.setdefault(str(path.resolve()), path)
        if same is not path:
            raise _twice(path, f"is {same} again" if path != same else "is given twice")
    heads: dict[bytes, list[tuple[Path, Kind]]] = {}
    for path, kind in zip(files, kinds, strict=True):
        if not path.is_dir():
            heads.setdefault(_digest(path, kind, _HEAD), []).append((path, kind))
    for group in heads.values():
        digests: dict[bytes, Path] = {}
        for path, kind in group if len(group) > 1 else []:
            same = digests.setdefault(_digest(path, kind), path)
            if same is not path:
                raise _twice(path, f"has the same content as {same}")


def _twice(path: Path, what: str) -> UnusableFileError:
    return UnusableFileError(
        path, f"{what}: its rows would count twice; name it once, or pass --allow-duplicates if that is meant."
    )


def _digest(path: Path, kind: Kind, most: int | None = None) -> bytes:
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") if kind.compression else path.open("rb") as file:
            if most is not None:
                digest.update(file.read(most))
                return digest.digest()
            while block := file.read(_CHUNK):
                digest.update(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged_gzip(path, error) from error
    except OSError as error:
        raise UnusableFileError(path, f"cannot be opened ({error.strerror or error}).") from error
    return digest.digest()
