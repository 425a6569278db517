"""Names that ``--context`` could take, from the first lines of a file: for completion in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .annotated import Annotated
from .arrays import Npz
from .data import Budget, Reading
from .kinds import file_kind
from .tabular import open_table


def context_names(paths: Sequence[Path], mod: str | None = None) -> list[str]:
    """Return the columns of the first file; for an AnnData those of ``obs``, for an .npz its 1-D arrays."""
    if not paths:
        return []
    # One file stands for all, since several have the same columns; a shell waits while this runs.
    path = paths[0]
    kind = file_kind(path)
    if kind.is_table:
        # A column without a name, the first of R's tables, cannot be typed.
        return [name for name in open_table(path, kind, Reading()).columns if name]
    if kind.is_anndata:
        return [str(name) for name in Annotated(path, kind.format, mod).obs.columns]
    if kind.format == "npz":
        npz = Npz(path, Budget(Reading().max_bytes))
        shape = npz.shape()
        return [] if shape is None else npz.vectors(shape[0])
    return []
