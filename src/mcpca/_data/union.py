"""Contexts that lack features: rows over the union of all features, with NaN where a context has none.

``read_union`` is ``read_contexts`` for ``missing="union"`` and its like: tables of different columns are matched by
name to the union of these, in the order in which names are first seen, and what a table lacks is NaN. A matrix in which
NaN stands for missing values needs no more than ``read_contexts``, which does not look at values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from ..exceptions import ExtraFeaturesWarning
from .alignment import NamedMatrix, are_positions, matrix_and_names, with_columns
from .blocks import RowBlock, Source
from .columns import positions_of
from .contexts import Contexts, NamedBlocks, named_blocks, read_contexts
from .detect import has_dask_rows, holds_device_arrays, input_kind, is_anndata
from .labels import take_labels
from .sources import as_source


class PaddedSource:
    """Rows of another source in the columns ``places`` of p features, and NaN in all others; blocks are dense."""

    sparse = False

    def __init__(self, source: Source, places: Array, feature_names: list[Any] | None, p: int) -> None:
        self._source = source
        self._places = places
        n = source.shape[0]
        self.shape = n, p
        self.dtype = source.dtype
        self.in_memory = source.in_memory
        self.nbytes = n * p * source.dtype.itemsize
        self.feature_names = feature_names

    def gather(self, rows: slice | Array) -> RowBlock:
        """Return these rows in this order."""
        return self._padded(self._source.gather(rows))

    def scan(self, max_bytes: int) -> Iterator[tuple[int, RowBlock]]:
        """Yield (number of the first row, block); ``max_bytes`` bounds what is read, before it is padded."""
        for first, block in self._source.scan(max_bytes):
            yield first, self._padded(block)

    def _padded(self, block: Any) -> Array:
        out = np.full((block.shape[0], self.shape[1]), np.nan, dtype=self.dtype)
        out[:, self._places] = block.toarray() if scipy.sparse.issparse(block) else block
        return out


def read_union(
    X: Any, y: Any, missing: str, features: Sequence[Any] | None = None, *, min_samples: int = 2
) -> Contexts:
    """Return contexts over the union of their features, NaN where one is missing.

    Parameters
    ----------
    X, y
        As in ``MCPCA.fit``, not on Dask or on a device.
    missing : str
        The option behind this, for errors.
    features : sequence of names, optional
        Those of a fit, which take the place of the union; others are left out.
    min_samples : int
        Fewest rows that a context may have.
    """
    if isinstance(X, Contexts):
        return X
    X, y = take_labels(X, y)
    named = named_blocks(X)
    blocks = [X] if named is None else named.blocks
    if any(has_dask_rows(block) for block in blocks) or holds_device_arrays(X):
        raise TypeError(
            f"missing={missing!r} needs rows in the memory of this process, and X is on Dask or on a device. Compute "
            "them first, or select the features that all contexts have and pass missing='error'."
        )
    if named is None:
        padded: Any = _padded([X], ["X"], missing, features)[0]
    else:
        wheres = [f"X, context {name!r}," for name in named.names.tolist()]
        padded = _named(named, _padded(named.blocks, wheres, missing, features))
    return read_contexts(padded, y, min_samples=min_samples)


def _named(named: NamedBlocks, blocks: list[Any]) -> Any:
    return dict(zip(named.names.tolist(), blocks, strict=True)) if named.by_name else blocks


def _padded(blocks: list[Any], wheres: list[str], missing: str, features: Sequence[Any] | None) -> list[Any]:
    """Return the matrices over the union of their features; those that need no change as they are."""
    matrices = [matrix_and_names(block, where, input_kind(block)) for block, where in zip(blocks, wheres, strict=True)]
    has_names = [matrix.names is not None and not are_positions(matrix.names) for matrix in matrices]
    if not any(has_names):
        # By position: widths are compared by ``read_contexts``.
        return [matrix.X for matrix in matrices]
    if not all(has_names):
        raise ValueError(
            f"missing={missing!r} matches features by name, and {wheres[has_names.index(False)]} has no names, while "
            "others have. Pass DataFrames or AnnDatas throughout, or arrays of the same width with NaN for what is "
            "missing."
        )
    union = (
        list(dict.fromkeys(name for matrix in matrices for name in matrix.names or []))
        if features is None
        else (list(features))
    )
    if features is not None:
        _warn_of_others(blocks, matrices, wheres, set(union))
    return [_over(matrix, union, where) for matrix, where in zip(matrices, wheres, strict=True)]


def _warn_of_others(blocks: list[Any], matrices: list[NamedMatrix], wheres: list[str], known: set[Any]) -> None:
    """Warn of features that the fit does not have, as ``in_fitted_order`` does: an AnnData usually has more."""
    for block, matrix, where in zip(blocks, matrices, wheres, strict=True):
        others = [name for name in matrix.names or [] if name not in known]
        if others and not is_anndata(block):
            warn(
                f"{where} has {len(others)} features that the fit does not have; they are left out: {quoted(others)}.",
                ExtraFeaturesWarning,
            )


def _over(matrix: NamedMatrix, union: list[Any], where: str) -> Source:
    """Return one matrix over the features ``union``."""
    assert matrix.names is not None
    own = set(matrix.names)
    present = [name for name in union if name in own]
    if not present:
        raise ValueError(f"{where} has none of the features {quoted(union)}; pass the same features under one name.")
    # Repeated names are refused there, and columns put in order.
    chosen = with_columns(matrix, positions_of(present, matrix.names, where, "of all contexts", ""), where)
    place = {name: j for j, name in enumerate(union)}
    source = as_source(chosen.X, where, chosen.kind)
    return PaddedSource(source, np.array([place[name] for name in present], dtype=np.intp), union, len(union))


def refuse_nuisance(missing: str, batch: Any, covariates: Any) -> None:
    """Raise if nuisance is to be removed from rows that may lack features or values."""
    for name, value in (("batch", batch), ("covariates", covariates)):
        if value is not None:
            raise ValueError(
                f"{name} with missing={missing!r}: nuisance is removed from complete rows. Drop {name}, or select the "
                "features that all contexts have."
            )
