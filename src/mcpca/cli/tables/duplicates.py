"""Files that are the same, under whatever name, or have the same content: their rows would count twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ._errors import UnusableFileError
from .kinds import FileKind, open_unpacked

_READ_CHUNK_BYTES = 2**20
_HEAD_BYTES = 2**16  # by which most files differ, so that few need to be read to their ends


def check_duplicates(files: Sequence[Path], kinds: Sequence[FileKind]) -> None:
    """Raise if two files are one, or have the same bytes once unpacked."""
    # Paths first, which costs nothing: links and ./ are resolved. Copies of a file are found by content below.
    by_resolved_path: dict[str, Path] = {}
    for path in files:
        first = by_resolved_path.setdefault(str(path.resolve()), path)
        if first is not path:
            raise _counted_twice(path, f"is {first} again" if path != first else "is given twice")
    heads: dict[bytes, list[tuple[Path, FileKind]]] = {}
    for path, kind in zip(files, kinds, strict=True):
        # A folder of Zarr is compared by its path alone, not by the many files in it.
        if not path.is_dir():
            heads.setdefault(_digest(path, kind, _HEAD_BYTES), []).append((path, kind))
    for group in heads.values():
        digests: dict[bytes, Path] = {}
        # A file whose beginning no other shares is read no further.
        for path, kind in group if len(group) > 1 else []:
            first = digests.setdefault(_digest(path, kind), path)
            if first is not path:
                raise _counted_twice(path, f"has the same content as {first}")


def _counted_twice(path: Path, what: str) -> UnusableFileError:
    return UnusableFileError(
        path, f"{what}: its rows would count twice; name it once, or pass --allow-duplicates if that is meant."
    )


def _digest(path: Path, kind: FileKind, most: int | None = None) -> bytes:
    """Return the SHA-256 of the first ``most`` bytes of a file, unpacked, or of all."""
    digest = hashlib.sha256()
    try:
        # Unpacked: the same table once plain and once as .gz has the same rows.
        with open_unpacked(path, kind.compression) as file:
            if most is not None:
                digest.update(file.read(most))
                return digest.digest()
            while block := file.read(_READ_CHUNK_BYTES):
                digest.update(block)
    except OSError as error:
        raise UnusableFileError(path, f"cannot be opened ({error.strerror or error}).") from error
    return digest.digest()
