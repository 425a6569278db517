"""Which mean is taken off which row: by label where contexts are known, never by position in a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._covariances.device_rows import map_rows
from .._data.labels import encode_labels, rows_by_context
from .._data.sources import Source, check_block
from .._utils.arguments import check_unmasked
from .._utils.array_api import is_device_array, namespace, take_rows, to_host
from .._utils.types import Array, Report

_OWN_MEAN = "Pass center='own' to centre new contexts by their own means, or give a mean."

_BLOCK = 2**26  # bytes of rows at a time


@dataclass(frozen=True)
class ContextMeans:
    """Means of the fitted contexts: ``names`` (k,), ``means`` (k, p), ``counts`` (k,); the last two None if unknown."""

    names: Array
    means: Array | None
    counts: Array | None
    n_features: int

    def overall(self) -> Array:
        """Mean of all fitted rows (p,)."""
        means, counts = self._known(), np.asarray(self.counts, dtype=np.float64)
        return np.asarray(counts @ means / counts.sum())

    def of(self, names: list[Any], way_out: str = _OWN_MEAN) -> list[Array]:
        """Means of the named contexts."""
        means, position = self._known(), self.positions()
        unknown = [name for name in names if name not in position]
        if unknown:
            raise ValueError(
                f"Contexts {_shorten(unknown)} were not seen in fit (known: {_shorten(self.names.tolist())}). {way_out}"
            )
        return [means[position[name]] for name in names]

    def in_order(self, n: int) -> list[Array]:
        """Means for a list of n contexts, which goes by position and so must have all k of them."""
        if n != len(self.names):
            raise ValueError(
                f"X is a list of {n} contexts and the model has {len(self.names)}: a list is matched by position. Pass "
                "a dict {name: rows}, rows with y=labels, or center='own' for new contexts."
            )
        return list(self._known())

    def positions(self) -> dict[Any, int]:
        """Index of each context by name."""
        return {name: i for i, name in enumerate(self.names.tolist())}

    def by_rows(self, A: Any, y: Any, center: Any) -> list[tuple[Any, Array]]:
        """Pair groups of rows of ``A`` with the mean that goes with them; see ``MCPCA.transform``.

        A is an array, here or on a device, or a ``Source``.
        """
        names: list[Any] | None = None
        groups: list[Any] = [slice(None)]
        by_label = center is None or isinstance(center, Mapping) or (isinstance(center, str) and center == "own")
        if y is not None and by_label:
            found, index = encode_labels(y, A.shape[0])
            names, groups = found.tolist(), list(rows_by_context(index))
        means = self.by_context(names, center, lambda: [_mean(A, rows) for rows in groups])
        return list(zip(groups, means, strict=True))

    def by_context(self, names: list[Any] | None, center: Any, own: Callable[[], Sequence[Array]]) -> Sequence[Array]:
        """Return the mean for each of the contexts ``names``, or one for all rows; ``own`` finds those of the rows."""
        if center is not None and not isinstance(center, (str, Mapping)):
            return [self._check(center)]
        if isinstance(center, str) and center not in ("own", "overall"):
            raise ValueError(
                f"center={center!r}; choose None, 'overall', 'own', a mean (n_features,) or a dict of means by label."
            )
        if names is None and isinstance(center, Mapping):
            raise ValueError("center is a dict of means by context, which needs y; pass y, or one mean.")
        if center == "own":
            return own()
        if names is None or center == "overall":
            return [self.overall()]
        means = center if isinstance(center, Mapping) else {}
        given = {name: self._check(mean) for name, mean in means.items()}
        fitted = [name for name in names if name not in given]
        if fitted:
            given |= zip(fitted, self.of(fitted), strict=True)
        return [given[name] for name in names]

    def _known(self) -> Array:
        if self.means is None:
            raise ValueError(
                "This model was fitted on covariances and knows no means; pass center='own', or center=mean, an array "
                "(n_features,)."
            )
        return self.means.astype(np.float64, copy=False)

    def _check(self, mean: Any) -> Array:
        way_out = "every feature needs its number"
        m = np.asarray(check_unmasked(to_host(mean), "center", way_out), dtype=np.float64)
        if m.shape != (self.n_features,) or not np.isfinite(m).all():
            raise ValueError(f"center has shape {m.shape}; a finite mean of shape ({self.n_features},) is needed.")
        return m


def _mean(A: Any, rows: slice | Array) -> Array:
    """Mean of some rows (p,), on the host."""
    if isinstance(A, np.ndarray):
        return np.asarray(A[rows].mean(axis=0))
    if is_device_array(A):
        return np.asarray(to_host(namespace(A).mean(take_rows(A, rows), axis=0)))
    block: Any = A.gather(rows if not isinstance(rows, slice) or rows.stop is not None else slice(0, A.shape[0]))
    return np.asarray(block.mean(axis=0)).ravel()


def scores_of(
    A: Any, groups: list[tuple[Any, Array]], projections: list[Array], dtype: np.dtype[Any], report: Report
) -> Any:
    """Return ``(x - mean) P^T`` for the mean and P of each group of rows, in the wider of ``dtype`` and that of A.

    Rows on a device have their scores there.
    """
    if is_device_array(A):
        return map_rows(A, groups, projections, dtype)
    if not isinstance(A, np.ndarray):
        return _scores_of_source(A, groups, projections, dtype, report)
    Z = np.empty((len(A), len(projections[0])), dtype=np.result_type(A, dtype))
    for (rows, mean), P in zip(groups, projections, strict=True):
        Z[rows] = (A[rows] - mean.astype(A.dtype, copy=False)) @ P.T
    return Z


def rows_of(Z: Any, groups: list[tuple[Any, Array]], components: Array) -> Any:
    """Return ``z A^T + mean`` for scores Z and the mean of each group; on a device where the scores are there."""
    if is_device_array(Z):
        return map_rows(Z, groups, [components] * len(groups), components.dtype, inverse=True)
    X = np.empty((len(Z), len(components)), dtype=np.result_type(Z, components))
    for rows, mean in groups:
        X[rows] = Z[rows] @ components.T + mean.astype(Z.dtype, copy=False)
    return X


def _scores_of_source(
    source: Source, groups: list[tuple[Any, Array]], projections: list[Array], dtype: np.dtype[Any], report: Report
) -> Array:
    """Return what ``scores_of`` does, in one reading of the rows.

    Rows are not centred but their scores are, so sparse rows stay sparse. Memory O(n r) and a block of rows.
    """
    of_row = np.empty(source.shape[0], dtype=np.intp)
    for number, (rows, _) in enumerate(groups):
        of_row[rows] = number
    first_projection = projections[0]
    same = all(projection is first_projection for projection in projections)
    offsets = np.array([mean @ P.T for (_, mean), P in zip(groups, projections, strict=True)])
    Z = np.empty((len(of_row), len(first_projection)), dtype=np.result_type(source.dtype, dtype))
    for first, block in source.scan(_BLOCK):
        check_block(block, first, "X")
        own, part = of_row[first : first + block.shape[0]], slice(first, first + block.shape[0])
        report("scores", part.stop, len(Z))
        if same:
            Z[part] = block @ first_projection.T - offsets[own]
            continue
        for number in np.unique(own).tolist():
            mine = np.flatnonzero(own == number)
            Z[first + mine] = block[mine] @ projections[number].T - offsets[number]
    return Z


def _shorten(names: list[Any]) -> str:
    return f"{names[:5]}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
