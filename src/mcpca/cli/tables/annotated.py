"""AnnData and MuData in HDF5 or Zarr: only what is asked for is read, and a matrix beyond the memory stays on disk.

anndata reads whole files; here its readers of single elements are used, on an open file of h5py or zarr. A modality of
a MuData is a group in the file that is laid out like an AnnData; mudata itself is not needed.
"""

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
from ..._data.mudata_rows import chosen_modality, joint_columns
from ..._data.sources import as_source
from ..._utils.optional import require
from ..._utils.printing import counted
from ._errors import UnusableFileError, UselessOptionError, did_you_mean, quoted_names, reason
from .columns import choose_features
from .constant_columns import ColumnsOfObs
from .data import ANNOTATION_OPTIONS, Budget, FilePart, Reading, column_positions
from .foreign import foreign_hdf5
from .labels import Labels, labels_of_texts

RAW_COUNTS = "the values look like raw counts; --normalize log1p prepares them, or name another matrix with --layer."


class Annotated:
    """An AnnData on disk, or the modality ``mod`` of a MuData, the only one if none is named.

    Attributes
    ----------
    n_obs, n_vars : int
    obs, var : DataFrame
        ``obs`` of a modality also has the columns of the MuData's ``obs`` that are not among its own.
    mod : str or None
        The modality, of a MuData.
    var_names : list of str
    layers, obsm : list of str
    """

    def __init__(self, path: Path, format: str, mod: str | None = None) -> None:
        self.path = path
        self.where = str(path)
        self.format = format
        self._read_elem, self._sparse_dataset = _readers()
        self._file = self._open(path)
        joint = self._enter_modality(mod)
        # The root of a Zarr store may be a single array, which has no keys.
        groups = self._groups()
        if not {"obs", "var"} <= groups:
            raise foreign_hdf5(path, sorted(groups), self._names_in_first(sorted(groups)))
        # Before anndata 0.7 elements did not say what they are; only the reader of whole files understands those.
        self._whole = None if "encoding-type" in self._file["obs"].attrs else self._read_whole()
        # Read whole: they are small beside the matrix, and any of their columns may be asked for.
        self.obs = self._element("obs") if self._whole is None else self._whole.obs
        self.var = self._element("var") if self._whole is None else self._whole.var
        if joint is not None:
            try:
                self.obs = self.obs.join(joint_columns(self.obs, joint, "the joint obs"))
            except ValueError as error:
                raise UnusableFileError(self.path, f"is a MuData that is not up to date: {error}") from error
        self.var_names = [str(name) for name in self.var.index]
        self.n_obs = len(self.obs)
        self.n_vars = len(self.var_names)
        self.layers = self._keys("layers")
        self.obsm = self._keys("obsm")

    def _groups(self) -> set[str]:
        return set(self._file.keys()) if hasattr(self._file, "keys") else set()

    def _enter_modality(self, mod: str | None) -> Any:
        """Go on with a modality, if this is a MuData, and return the table of its rows for all modalities."""
        self.mod: str | None = None
        if not {"mod", "obs"} <= self._groups():
            if mod is not None:
                raise UselessOptionError(self.where, f"is no MuData, and --mod {mod} is for one; drop the option.")
            return None
        joint = self._element("obs")
        modalities = self._file["mod"]
        # In the order of the MuData; a file lists them by the alphabet.
        names = [str(name) for name in modalities.attrs.get("mod-order", sorted(modalities.keys()))]
        if not names:
            raise UnusableFileError(self.where, "is a MuData without modalities; pass the file with the rows.")
        try:
            self.mod = chosen_modality(names, mod, "--mod")
        except ValueError as error:
            raise UnusableFileError(self.where, f"is a MuData: {error}") from None
        self._file = modalities[self.mod]
        return joint

    def _names_in_first(self, groups: list[str]) -> list[str]:
        first: Any = self._file[groups[0]] if groups else None
        return list(first) if hasattr(first, "keys") else []

    def _keys(self, name: str) -> list[str]:
        if self._whole is not None:
            return sorted(getattr(self._whole, name))
        return sorted(self._file[name].keys()) if name in self._file else []

    def _read_whole(self) -> Any:
        try:
            with warnings.catch_warnings():  # about the old format
                warnings.simplefilter("ignore")
                return require("anndata", "anndata").read_h5ad(self.path)
        except Exception as error:  # h5py and anndata raise many kinds
            raise UnusableFileError(self.path, f"is an AnnData that cannot be read ({reason(error)}).") from error

    def _open(self, path: Path) -> Any:
        library = require("h5py" if self.format == "h5ad" else "zarr", "anndata")
        try:
            return library.File(str(path), "r") if self.format == "h5ad" else library.open(str(path), mode="r")
        except Exception as error:  # h5py and zarr raise many kinds
            raise UnusableFileError(
                path, f"is a truncated or damaged {self.format} file ({reason(error)}); copy it again."
            ) from error

    def _element(self, name: str) -> Any:
        try:
            return self._read_elem(self._file[name])
        except Exception as error:  # h5py, zarr and anndata raise many kinds
            raise UnusableFileError(
                self.path, f"its {name} cannot be read ({reason(error)}); is the file complete?"
            ) from error

    def matrix(self, reading: Reading) -> tuple[Any, list[str]]:
        """Return the matrix that ``reading`` asks for, still on disk, and the names of its columns."""
        if reading.layer is not None and reading.obsm is not None:
            raise UselessOptionError(self.where, "--layer and --obsm both name the matrix; pass one.")
        if reading.layer is not None:
            self._check_key(reading.layer, self.layers, "layers", "--layer")
            stored = self._stored("layers", reading.layer)
        elif reading.obsm is not None:
            self._check_key(reading.obsm, self.obsm, "obsm", "--obsm")
            stored = self._stored("obsm", reading.obsm)
        else:
            # anndata writes X=None as an element of type null, so that the key alone says little.
            if "X" not in self._file or str(self._file["X"].attrs.get("encoding-type")) == "null":
                alternatives = f"the layers {quoted_names(self.layers)}" if self.layers else "no layers either"
                raise UnusableFileError(self.where, f"has no matrix X; it has {alternatives}.")
            stored = self._stored("X", None)
        if hasattr(stored, "columns"):  # a DataFrame in obsm
            # Small enough to have been read whole; its columns have names of their own.
            return stored.to_numpy(), [str(name) for name in stored.columns]
        if len(getattr(stored, "shape", ())) != 2:
            raise UnusableFileError(self.where, "what was asked for is not a matrix; pass another --layer or --obsm.")
        if reading.obsm is None:
            return stored, self.var_names
        # Arrays in obsm have no names: X_pca1, X_pca2 and so on, by which a model finds them again.
        return stored, [f"{reading.obsm}{j + 1}" for j in range(stored.shape[1])]

    def _stored(self, group: str, name: str | None) -> Any:
        """Return a matrix as it is stored: a dense or sparse dataset, or a DataFrame."""
        if self._whole is not None:
            whole = getattr(self._whole, group)
            return whole if name is None else whole[name]
        key = group if name is None else f"{group}/{name}"
        stored = self._file[key]
        # A sparse matrix is a group, and is wrapped so that it can be sliced by rows; a dense one can be already.
        encoding = str(stored.attrs.get("encoding-type", "array"))
        if encoding in ("csr_matrix", "csc_matrix"):
            return self._sparse_dataset(stored)
        return self._element(key) if encoding == "dataframe" else stored

    def _check_key(self, name: str, names: list[str], what: str, option: str) -> None:
        if name not in names:
            raise UnusableFileError(
                self.where,
                f"{option} {name!r} is not among its {what}; {did_you_mean(name, names)}it has {quoted_names(names)}.",
            )

    def labels(self, column: str, na_values: Collection[str] = (), option: str = "--context") -> Labels:
        """Return a column of ``obs``; categories keep their order."""
        column_positions([str(c) for c in self.obs.columns], [column], self.where, f"column of obs ({option})")
        values = self.obs[column]
        categories = getattr(getattr(values, "cat", None), "categories", None)
        if categories is None:
            return labels_of_texts(values.tolist(), na_values)
        # Codes are mapped to codes, which keeps the order of the categories and makes no text for any row.
        names = [str(c) for c in categories]
        code_of = [-1 if is_missing_text(name, na_values) else i for i, name in enumerate(names)]
        code_of.append(-1)  # pandas has -1, the last entry, for a missing value
        return Labels(np.array(code_of, dtype=np.int32)[np.asarray(values.cat.codes)], names)

    def read(self, reading: Reading, wanted: Sequence[str] | None, budget: Budget) -> FilePart:
        """Return the rows, in memory if ``budget`` allows (sparse ones as CSR), otherwise on disk."""
        stored, names = self.matrix(reading)
        labels = [self.labels(c, reading.na_values) for c in reading.context] if reading.labels is None else []
        part = FilePart(self.where, self.n_obs, names, labels=labels, row_names=self._row_names(reading))
        for column in reading.annotation_columns:
            part.annotations[column] = self.labels(column, reading.na_values, ANNOTATION_OPTIONS)
        part.others_of_rows = ColumnsOfObs(self.obs, [*reading.context, *([reading.index] if reading.index else [])])
        if len(set(names)) < len(names):
            raise UnusableFileError(
                self.where, "has features of the same name; make the names unique (adata.var_names_make_unique())."
            )
        # ``wanted`` are the features of a model or of the first file, which have chosen already: no mask then.
        features, others = choose_features(names, reading, wanted, self.where)
        if wanted is None and reading.obsm is None:
            masked = self._masked(features, reading, part.notes)
            others += sorted(set(features) - set(masked))
            features = masked
        part.feature_names = features
        part.others = others
        # None, not all positions: choosing all columns would copy the matrix.
        columns = None if features == names else column_positions(names, features, self.where, "features")
        try:
            source = as_source(stored, self.where)
            if source.shape[0] != self.n_obs:
                raise UnusableFileError(self.where, f"its matrix has {source.shape[0]} rows, and obs has {self.n_obs}.")
            # A guess from the first rows. Not for embeddings, and not for new rows of a model, which is fitted already.
            if reading.obsm is None and wanted is None and not reading.raw and counts_in(source) is not None:
                part.oddities.append(RAW_COUNTS)
            # All columns are read before some are chosen, so that is what has to fit.
            if budget.take(source.nbytes):
                X: Any = source.gather(slice(0, source.shape[0]))
                part.blocks = [X if columns is None else X[:, columns]]
            else:
                part.rows = source if columns is None else ColumnSource(source, np.asarray(columns))
        except UnusableFileError:
            raise
        except (OSError, ValueError, TypeError) as error:
            raise UnusableFileError(self.where, f"its matrix cannot be read ({reason(error)}).") from error
        return part

    def _masked(self, names: list[str], reading: Reading, notes: list[str]) -> list[str]:
        """Return the names for which a column of ``var`` is true."""
        column = reading.mask_var
        if column is None:
            # Features that are named are not masked on top: they are what was asked for.
            # Rows that are to be prepared have their totals over all features.
            column = (None if reading.features or reading.raw else default_mask(self.var)) or "all"
        if column == "all":
            return names
        column_positions([str(c) for c in self.var.columns], [column], self.where, "column of var (--mask-var)")
        if self.var[column].dtype.kind != "b":
            raise UnusableFileError(self.where, f"its column {column!r} of var is not true or false (--mask-var).")
        # By name, since ``names`` may have been thinned out by --drop or --features.
        is_chosen = dict(zip(self.var_names, self.var[column].tolist(), strict=True))
        chosen = [name for name in names if is_chosen[name]]
        if not chosen:
            raise UnusableFileError(
                self.where, f"its column {column!r} of var selects no feature; pass --mask-var all."
            )
        if len(chosen) < len(names):
            n_excluded = len(names) - len(chosen)
            notes.append(
                f"{n_excluded:,} of {counted(len(names), 'feature')} by var[{column!r}]; --mask-var all takes all."
            )
        return chosen

    def _row_names(self, reading: Reading) -> list[str]:
        if reading.index is None:
            return [str(name) for name in self.obs.index]
        column_positions([str(c) for c in self.obs.columns], [reading.index], self.where, "column of obs (--index)")
        return [str(name) for name in self.obs[reading.index]]


def _readers() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return ``read_elem`` and ``sparse_dataset``, which moved to ``anndata.io`` in version 0.11."""
    require("anndata", "anndata")
    try:
        module = importlib.import_module("anndata.io")
        return module.read_elem, module.sparse_dataset
    except (ImportError, AttributeError):
        module = importlib.import_module("anndata.experimental")
        return module.read_elem, module.sparse_dataset
