"""A digest of the code that determines the results of a fit, which ties a checkpoint to that code.

A resumed fit takes some passes from the file and runs the others itself. Both have to come from the same code, or the
result is that of neither. The version number does not change between releases, so the source files are hashed instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable

# The subpackages that determine which passes a fit runs, and their totals. ``_utils`` (files, progress, wording) and
# everything above the estimator do not, so that a checkpoint survives changes there.
_SUBPACKAGES = ("_linalg", "_data", "_covariances", "_solvers", "_model", "_rank", "_estimator")


@cache
def code_digest() -> str:
    """Return the digest, computed once per process. It also works for a package inside a zip file.

    Without source files, in an installation of compiled ones only, it is the package version, and says so.
    """
    package = resources.files(__package__.partition(".")[0])
    content = hashlib.blake2b(digest_size=16)
    n_files = 0
    for name in _SUBPACKAGES:
        for path, file in _sources(package / name, name):
            text = file.read_bytes().replace(b"\r\n", b"\n")  # as a checkout on Windows may have it
            # Path and length first: text that moves from one file to the next must not give the same bytes.
            content.update(f"{path} {len(text)}\n".encode())
            content.update(text)
            n_files += 1
    return content.hexdigest() if n_files else f"version {version('mcpca')}, without source files"


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the path and the content of every Python file below a folder, in the same order on every system."""
    # File systems list entries in any order, and the digest depends on it.
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry, f"{path}/{entry.name}")
        # Compiled files and caches differ between machines that run the same code.
        elif entry.name.endswith(".py"):
            yield f"{path}/{entry.name}", entry
