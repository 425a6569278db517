"""A digest of the code that decides the numbers of a fit, by which a checkpoint is tied to it.

A fit that resumes takes finished passes from a file and makes the others itself: both must come from the same code, or
the answer is that of neither. A version number does not say so between releases; the source files do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable

# Rooms whose code decides which passes a fit makes and what is in them. ``_utils`` (files, progress, words) and what is
# above the estimator do not: a checkpoint outlives changes there.
_ROOMS = ("_linalg", "_data", "_covariances", "_solvers", "_model", "_rank", "_estimator")


@cache
def code_digest() -> str:
    """Return the digest, made once in a process; also of an installation within a zip file.

    Where there are no source files (only compiled ones), the version of the package takes their place, and says so.
    """
    package = resources.files(__package__.partition(".")[0])
    content = hashlib.blake2b(digest_size=16)
    n_files = 0
    for room in _ROOMS:
        for path, file in _sources(package / room, room):
            text = file.read_bytes().replace(b"\r\n", b"\n")
            content.update(f"{path} {len(text)}\n".encode())
            content.update(text)
            n_files += 1
    return content.hexdigest() if n_files else f"version {version('mcpca')}, without source files"


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the paths of Python files in a folder and below, and these, in the same order on every system."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry, f"{path}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{path}/{entry.name}", entry
