"""Which mean is subtracted from which row: by label where contexts are known, never by position in a batch.

``ContextMeans`` resolves the ``center`` argument of ``transform`` and ``inverse_transform`` to groups of rows with one
mean each; ``scores_of`` and ``rows_of`` then apply ``z = P (x - m)`` and ``x = A z + m`` to these groups, for arrays in
memory, on a device, and for rows that are read in blocks. ``scores`` is their only caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._covariances.device_scores import map_rows, mean_of_rows
from .._data.labels import encode_labels, rows_by_context
from .._data.projection import offset_scores_by_context
from .._data.sources import Source, check_block
from .._utils.arguments import check_unmasked
from .._utils.array_api import is_device_array, to_host
from .._utils.types import Array, Report
from .._utils.wording import quoted

_OWN_MEAN = "Pass center='own' to centre new contexts by their own means, or give a mean."

# Bytes of rows that are read at a time. More only costs memory; far less makes products of few rows, which are slow.
_ROW_BLOCK_BYTES = 2**26


@dataclass(frozen=True)
class ContextMeans:
    """Means of the fitted contexts.

    ``names`` (k,), ``means`` (k, p) and ``counts`` (k,) of rows; the last two are None if only covariances were given.
    """

    names: Array
    means: Array | None
    counts: Array | None
    n_features: int

    def overall(self) -> Array:
        """Return the mean of all fitted rows (p,)."""
        means = self._known()
        counts = np.asarray(self.counts, dtype=np.float64)
        # (k,) @ (k, p), weighted by rows: the plain mean of k means would let small contexts count as much as large
        # ones.
        if np.isnan(means).any():
            # Of a feature that some contexts lack, the mean over the others.
            known = np.isfinite(means)
            return np.asarray(counts @ np.where(known, means, 0) / (counts @ known))
        return np.asarray(counts @ means / counts.sum())

    def of(self, names: list[Any], way_out: str = _OWN_MEAN) -> list[Array]:
        """Return the means of the named contexts; ``way_out`` ends the error if some of them were not fitted."""
        means = self._known()
        positions = self.positions()
        unknown = [name for name in names if name not in positions]
        if unknown:
            raise ValueError(
                f"Contexts {quoted(unknown)} were not seen in fit (known: {quoted(self.names)}). {way_out}"
            )
        return [means[positions[name]] for name in names]

    def in_order(self, n: int) -> list[Array]:
        """Return the means for a list of n contexts, which is matched by position and so must have all k of them."""
        if n != len(self.names):
            raise ValueError(
                f"X is a list of {n} contexts, but the model has {len(self.names)}: a list is matched by position. "
                "Pass a dict {name: rows}, rows with y=labels, or center='own' for new contexts."
            )
        return list(self._known())

    def positions(self) -> dict[Any, int]:
        """Return the index of each context by name."""
        return {name: i for i, name in enumerate(self.names.tolist())}

    def by_rows(self, rows: Any, y: Any, center: Any) -> list[tuple[Any, Array]]:
        """Return groups of ``rows``, each with the mean that centres it; see ``MCPCA.transform``.

        ``rows`` are an array, in memory or on a device, or a ``Source``. A group is a slice or an array of indices.
        """
        # One mean for all rows makes one group, even of labelled rows, and a slice needs no copy of them.
        names: list[Any] | None = None
        groups: list[Any] = [slice(None)]
        # The type comes first: comparing an array of means with a string would go entry by entry.
        is_own = isinstance(center, str) and center == "own"
        depends_on_label = center is None or is_own or isinstance(center, Mapping)
        if y is not None and depends_on_label:
            labels, codes = encode_labels(y, rows.shape[0])
            names = labels.tolist()
            groups = list(rows_by_context(codes))
        means = self.by_context(names, center, lambda: [_mean(rows, group) for group in groups])
        return list(zip(groups, means, strict=True))

    def by_context(
        self, names: list[Any] | None, center: Any, own_means: Callable[[], Sequence[Array]]
    ) -> Sequence[Array]:
        """Return the mean for each of the contexts ``names``, or a single one for all rows.

        Parameters
        ----------
        names : list or None
            Labels that the rows have; None for rows without labels.
        center
            As in ``MCPCA.transform``.
        own_means : function
            Computes the means of the rows themselves, which takes a pass over them: called for "own" only.
        """
        # An explicit mean holds for all rows. It needs neither labels nor fitted means, so models of covariances accept
        # it too.
        if center is not None and not isinstance(center, (str, Mapping)):
            return [self._check(center)]
        if isinstance(center, str) and center not in ("own", "overall"):
            raise ValueError(
                f"center={center!r}; choose None, 'overall', 'own', a mean (n_features,) or a dict of means by label."
            )
        if names is None and isinstance(center, Mapping):
            raise ValueError("center is a dict of means by context, which needs y; pass y, or one mean.")
        # Before any fitted mean is looked up: new contexts, and models of covariances, have none.
        if center == "own":
            return own_means()
        if names is None or center == "overall":
            return [self.overall()]
        # Means that are passed take precedence; the other labels have to be contexts of the fit.
        passed = center if isinstance(center, Mapping) else {}
        by_label = {name: self._check(mean) for name, mean in passed.items()}
        fitted = [name for name in names if name not in by_label]
        if fitted:
            by_label |= zip(fitted, self.of(fitted), strict=True)
        return [by_label[name] for name in names]

    def _known(self) -> Array:
        """Return the fitted means (k, p) in float64, or explain that there are none."""
        if self.means is None:
            raise ValueError(
                "This model was fitted to covariances and knows no means; pass center='own', or center=mean, an array "
                "(n_features,)."
            )
        return self.means.astype(np.float64, copy=False)

    def _check(self, mean: Any) -> Array:
        if isinstance(mean, bool):  # an option of the authors' package
            raise ValueError(
                f"center={mean} is no mean; None, the default, takes the fitted means, and numpy.zeros("
                f"{self.n_features}) leaves rows as they are."
            )
        unmasked = check_unmasked(to_host(mean), "center", "give a number for every feature")
        m = np.asarray(unmasked, dtype=np.float64)
        if m.shape != (self.n_features,) or not np.isfinite(m).all():
            raise ValueError(f"center has shape {m.shape}; a finite mean of shape ({self.n_features},) is needed.")
        return m


def _mean(rows: Any, group: slice | Array) -> Array:
    """Return the mean (p,) of a group of rows, on the host."""
    if isinstance(rows, np.ndarray):
        return np.asarray(rows[group].mean(axis=0))
    if is_device_array(rows):
        return mean_of_rows(rows, group)
    if isinstance(group, slice) and group.stop is None:
        group = slice(0, rows.shape[0])  # a source needs to know how many rows are wanted
    # The rows of one group are in memory at once, sparse ones as sparse. SciPy may return the mean of sparse rows as a
    # (1, p) matrix, hence ``ravel``.
    block: Any = rows.gather(group)
    return np.asarray(block.mean(axis=0)).ravel()


def scores_of(
    rows: Any, groups: list[tuple[Any, Array]], projections: list[Array], dtype: np.dtype[Any], report: Report
) -> Any:
    """Return ``(x - mean) P^T`` with the mean and the P (r, p) of each group of rows.

    The result has the wider of ``dtype`` and the dtype of the rows. Scores of rows on a device are on that device.
    """
    if is_device_array(rows):
        return map_rows(rows, groups, projections, dtype)
    if not isinstance(rows, np.ndarray):
        return _scores_of_source(rows, groups, projections, dtype, report)
    # rows (n, p), P (r, p), Z (n, r). Groups are disjoint and cover all rows, so every entry of Z is written once.
    Z = np.empty((len(rows), len(projections[0])), dtype=np.result_type(rows, dtype))
    for (group, mean), P in zip(groups, projections, strict=True):
        # The mean in the dtype of the rows: float32 rows would otherwise be copied to float64 as a whole.
        Z[group] = (rows[group] - mean.astype(rows.dtype, copy=False)) @ P.T
    return Z


def rows_of(Z: Any, groups: list[tuple[Any, Array]], components: Array) -> Any:
    """Return ``z A^T + mean`` for scores Z with the mean of each group; on a device if the scores are on one."""
    if is_device_array(Z):
        return map_rows(Z, groups, [components] * len(groups), components.dtype, inverse=True)
    # Z (n, r), components (p, r), X (n, p).
    X = np.empty((len(Z), len(components)), dtype=np.result_type(Z, components))
    for group, mean in groups:
        X[group] = Z[group] @ components.T + mean.astype(Z.dtype, copy=False)
    return X


def _scores_of_source(
    source: Source, groups: list[tuple[Any, Array]], projections: list[Array], dtype: np.dtype[Any], report: Report
) -> Array:
    """Return what ``scores_of`` does, reading the rows once; memory O(n r) plus a block of rows."""
    n = source.shape[0]
    # Blocks cut across groups, so each row carries the number of its group.
    group_of_row = np.empty(n, dtype=np.intp)
    for number, (members, _) in enumerate(groups):
        group_of_row[members] = number
    # Scores are centred and rows are not, so that sparse rows stay sparse; see ``offset_scores``.
    offsets = np.array([mean @ P.T for (_, mean), P in zip(groups, projections, strict=True)])
    # One product for a whole block unless expected scores give each context a projection of its own.
    # Identity, not equality: the caller repeats one object, and comparing k matrices (r, p) would be work for nothing.
    is_shared = all(P is projections[0] for P in projections)
    distinct = projections[:1] if is_shared else projections
    Z = np.empty((n, len(projections[0])), dtype=np.result_type(source.dtype, dtype))
    for first, block in source.scan(_ROW_BLOCK_BYTES):
        # Stored rows are checked as they are read; there is no earlier pass over them.
        check_block(block, first, "X")
        part = slice(first, first + block.shape[0])
        report("scores", part.stop, n)
        Z[part] = offset_scores_by_context(block, group_of_row[part], distinct, offsets, Z.dtype)
    return Z
