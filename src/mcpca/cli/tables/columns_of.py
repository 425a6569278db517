"""Names that ``--context`` could take, from the first lines of a file: for completion in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .annotated import Annotated
from .arrays import Npz
from .data import Budget, Reading
from .delimited import DelimitedTable
from .kinds import kind_of
from .parquet import ParquetTable


def columns_of(paths: Sequence[Path]) -> list[str]:
    """Return the names of columns of the first file; of an AnnData, those of ``obs``."""
    if not paths:
        return []
    path = paths[0]
    kind = kind_of(path)
    if kind.format == "text":
        return [name for name in DelimitedTable(path, kind.compression, Reading()).columns if name]
    if kind.format == "Parquet":
        return ParquetTable(path).columns
    if kind.format in ("h5ad", "zarr"):
        return [str(name) for name in Annotated(path, kind.format).obs.columns]
    if kind.format == "npz":
        found = Npz(path, Budget(Reading().max_bytes))
        shape = found.shape()
        return [] if shape is None else found.vectors(shape[0])
    return []
