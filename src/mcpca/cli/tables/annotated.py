"""AnnData in HDF5 or Zarr: only what is asked for is read, and a matrix beyond memory stays on disk."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._data.anndata_rows import counts_in, default_mask
from ..._data.columns import ColumnSource
from ..._data.labels import is_missing_text
from ..._data.sources import as_source
from ..._utils.optional import require
from ._errors import UnusableFileError, nearest, plural, short, some
from .arrays import chosen_features
from .data import Budget, FilePart, Reading, columns_named
from .labels import Labels, labels_of_texts

COUNTS = "the values look like raw counts; normalise and take logarithms first, or name another matrix with --layer."


class Annotated:
    """An AnnData on disk.

    Attributes
    ----------
    n_obs, n_vars : int
    obs, var : DataFrame
    var_names : list of str
    layers, obsm : list of str
    """

    def __init__(self, path: Path, format: str) -> None:
        self.path, self.where, self.format = path, str(path), format
        self._read_elem, self._sparse_dataset = _readers()
        self._file = self._open(path)
        groups = set(self._file.keys()) if hasattr(self._file, "keys") else set()
        if not {"obs", "var"} <= groups:
            raise UnusableFileError(path, f"is no AnnData: it lacks obs and var; it has {some(sorted(groups))}.")
        # Before version 0.7 of anndata tables had no mark of what they are; only its reader of whole files knows them.
        self._whole = None if "encoding-type" in self._file["obs"].attrs else self._read_whole()
        self.obs = self._element("obs") if self._whole is None else self._whole.obs
        self.var = self._element("var") if self._whole is None else self._whole.var
        self.var_names = [str(name) for name in self.var.index]
        self.n_obs, self.n_vars = len(self.obs), len(self.var_names)
        self.layers, self.obsm = (
            self._keys(name) if self._whole is None else sorted(getattr(self._whole, name))
            for name in ("layers", "obsm")
        )

    def _keys(self, name: str) -> list[str]:
        return sorted(self._file[name].keys()) if name in self._file else []

    def _read_whole(self) -> Any:
        try:
            with warnings.catch_warnings():  # that the format is old
                warnings.simplefilter("ignore")
                return require("anndata", "anndata").read_h5ad(self.path)
        except Exception as error:  # of h5py and anndata
            raise UnusableFileError(self.path, f"is an AnnData that cannot be read ({short(error, 160)}).") from error

    def _open(self, path: Path) -> Any:
        library = require("h5py" if self.format == "h5ad" else "zarr", "anndata")
        try:
            return library.File(str(path), "r") if self.format == "h5ad" else library.open(str(path), mode="r")
        except Exception as error:  # h5py and zarr have many
            raise UnusableFileError(
                path, f"is {self.format} cut short or damaged ({short(error, 160)}); copy it again."
            ) from error

    def _element(self, name: str) -> Any:
        try:
            return self._read_elem(self._file[name])
        except Exception as error:  # of h5py, zarr and anndata
            raise UnusableFileError(
                self.path, f"its {name} cannot be read ({short(error, 160)}); is the file whole?"
            ) from error

    def matrix(self, reading: Reading) -> tuple[Any, list[str]]:
        """Return the matrix on disk that is asked for, and the names of its columns."""
        if reading.layer is not None and reading.obsm is not None:
            raise UnusableFileError(self.where, "--layer and --obsm both name the matrix; pass one.")
        if reading.layer is not None:
            self._check_key(reading.layer, self.layers, "layers", "--layer")
            stored = self._stored("layers", reading.layer)
        elif reading.obsm is not None:
            self._check_key(reading.obsm, self.obsm, "obsm", "--obsm")
            stored = self._stored("obsm", reading.obsm)
        else:
            if "X" not in self._file or str(self._file["X"].attrs.get("encoding-type")) == "null":
                have = f"layers {some(self.layers)}" if self.layers else "no layers either"
                raise UnusableFileError(self.where, f"has no matrix X; it has {have}.")
            stored = self._stored("X", None)
        if hasattr(stored, "columns"):
            return stored.to_numpy(), [str(name) for name in stored.columns]
        if len(getattr(stored, "shape", ())) != 2:
            raise UnusableFileError(self.where, "what was asked for is no matrix; pass another --layer or --obsm.")
        named = reading.obsm is None
        return stored, self.var_names if named else [f"{reading.obsm}{j + 1}" for j in range(stored.shape[1])]

    def _stored(self, group: str, name: str | None) -> Any:
        """Return a matrix as it is kept: a dataset, dense or sparse, or a DataFrame."""
        if self._whole is not None:
            whole = getattr(self._whole, group)
            return whole if name is None else whole[name]
        key = group if name is None else f"{group}/{name}"
        stored = self._file[key]
        encoding = str(stored.attrs.get("encoding-type", "array"))
        if encoding in ("csr_matrix", "csc_matrix"):
            return self._sparse_dataset(stored)
        return self._element(key) if encoding == "dataframe" else stored

    def _check_key(self, name: str, names: list[str], what: str, option: str) -> None:
        if name not in names:
            raise UnusableFileError(
                self.where, f"{option} {name!r} is not among its {what}; {nearest(name, names)}it has {some(names)}."
            )

    def labels(self, column: str, na_values: Collection[str] = ()) -> Labels:
        """Return a column of ``obs``; the order of categories is kept."""
        columns_named([str(c) for c in self.obs.columns], [column], self.where, "column of obs (--context)")
        values = self.obs[column]
        categories = getattr(getattr(values, "cat", None), "categories", None)
        if categories is None:
            return labels_of_texts(values.tolist(), na_values)
        names = [str(c) for c in categories]
        to = np.array(
            [-1 if is_missing_text(name, na_values) else i for i, name in enumerate(names)] + [-1], dtype=np.int32
        )
        return Labels(to[np.asarray(values.cat.codes)], names)

    def read(self, reading: Reading, wanted: Sequence[str] | None, budget: Budget) -> FilePart:
        """Return the rows: in memory where ``budget`` allows, sparse ones as CSR, else from disk."""
        stored, names = self.matrix(reading)
        labels = [self.labels(c, reading.na_values) for c in reading.context] if reading.labels is None else []
        part = FilePart(self.where, self.n_obs, names, labels=labels, row_names=self._row_names(reading))
        if len(set(names)) < len(names):
            raise UnusableFileError(
                self.where, "has names of features more than once; make them unique (adata.var_names_make_unique())."
            )
        chosen = chosen_features(names, reading, wanted, self.where)
        if wanted is None and reading.obsm is None:
            chosen = self._masked(chosen, reading, part.notes)
        kept = set(chosen)
        part.feature_names, part.others = chosen, [name for name in names if name not in kept]
        columns = None if chosen == names else columns_named(names, chosen, self.where, "features")
        try:
            source = as_source(stored, self.where)
            if source.shape[0] != self.n_obs:
                raise UnusableFileError(self.where, f"its matrix has {source.shape[0]} rows and obs {self.n_obs}.")
            if reading.obsm is None and wanted is None and counts_in(source) is not None:
                part.oddities.append(COUNTS)
            if budget.take(source.nbytes):
                X: Any = source.gather(slice(0, source.shape[0]))
                part.blocks = [X if columns is None else X[:, columns]]
            else:
                part.rows = source if columns is None else ColumnSource(source, np.asarray(columns))
        except UnusableFileError:
            raise
        except (OSError, ValueError, TypeError) as error:
            raise UnusableFileError(self.where, f"its matrix cannot be read ({short(error, 300)}).") from error
        return part

    def _masked(self, names: list[str], reading: Reading, notes: list[str]) -> list[str]:
        """Return the names that a column of ``var`` says to take."""
        column = reading.mask_var
        if column is None:
            column = (None if reading.features else default_mask(self.var)) or "all"
        if column == "all":
            return names
        columns_named([str(c) for c in self.var.columns], [column], self.where, "column of var (--mask-var)")
        if self.var[column].dtype.kind != "b":
            raise UnusableFileError(self.where, f"its column {column!r} of var is not true or false (--mask-var).")
        masked = {name for name, keep in zip(self.var_names, self.var[column].tolist(), strict=True) if keep}
        chosen = [name for name in names if name in masked]
        if not chosen:
            raise UnusableFileError(self.where, f"its column {column!r} of var takes no feature; pass --mask-var all.")
        if len(chosen) < len(names):
            left = len(names) - len(chosen)
            notes.append(f"{left:,} of {plural(len(names), 'feature')} by var[{column!r}]; --mask-var all takes all.")
        return chosen

    def _row_names(self, reading: Reading) -> list[str]:
        if reading.index is None:
            return [str(name) for name in self.obs.index]
        columns_named([str(c) for c in self.obs.columns], [reading.index], self.where, "column of obs (--index)")
        return [str(name) for name in self.obs[reading.index]]


def _readers() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return ``read_elem`` and ``sparse_dataset``, which moved to ``anndata.io`` in version 0.11."""
    require("anndata", "anndata")
    try:
        home = importlib.import_module("anndata.io")
        return home.read_elem, home.sparse_dataset
    except (ImportError, AttributeError):
        home = importlib.import_module("anndata.experimental")
        return home.read_elem, home.sparse_dataset
