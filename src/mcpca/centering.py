"""Which mean is taken off which row: by label where contexts are known, never by position in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._check import Array
from ._namespace import is_device_array, namespace, take_rows, to_host
from .contexts import encode_labels, rows_by_context

_OWN_MEAN = "Pass center='own' to centre new contexts by their own means, or give a mean."


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

    def by_rows(self, A: Array, y: Any, center: Any) -> list[tuple[Any, Array]]:
        """Pair groups of rows of ``A`` with the mean that goes with them; see ``MCPCA.transform``."""
        if center is not None and not isinstance(center, (str, Mapping)):
            return [(slice(None), self._check(center))]
        if isinstance(center, str) and center not in ("own", "overall"):
            raise ValueError(
                f"center={center!r}; choose None, 'overall', 'own', a mean (n_features,) or a dict of means by label."
            )
        if y is None and isinstance(center, Mapping):
            raise ValueError("center is a dict of means by context, which needs y; pass y, or one mean.")
        if y is None or center == "overall":
            return [(slice(None), _mean(A, slice(None)) if center == "own" else self.overall())]
        names, index = encode_labels(y, A.shape[0])
        groups = rows_by_context(index)
        if center == "own":
            return [(rows, _mean(A, rows)) for rows in groups]
        means = center if isinstance(center, Mapping) else {}
        given = {name: self._check(mean) for name, mean in means.items()}
        fitted = [name for name in names.tolist() if name not in given]
        if fitted:
            given |= zip(fitted, self.of(fitted), strict=True)
        return [(rows, given[name]) for rows, name in zip(groups, names.tolist(), strict=True)]

    def _known(self) -> Array:
        if self.means is None:
            raise ValueError(
                "This model was fitted on covariances and knows no means; pass center='own', or center=mean, an array "
                "(n_features,)."
            )
        return self.means.astype(np.float64, copy=False)

    def _check(self, mean: Any) -> Array:
        m = np.asarray(to_host(mean), dtype=np.float64)
        if m.shape != (self.n_features,) or not np.isfinite(m).all():
            raise ValueError(f"center has shape {m.shape}; a finite mean of shape ({self.n_features},) is needed.")
        return m


def _mean(A: Any, rows: Any) -> Array:
    """Mean of some rows (p,), on the host."""
    if not is_device_array(A):
        return np.asarray(A[rows].mean(axis=0))
    return np.asarray(to_host(namespace(A).mean(take_rows(A, rows), axis=0)))


def _shorten(names: list[Any]) -> str:
    return f"{names[:5]}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
