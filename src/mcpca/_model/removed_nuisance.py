"""Batch and covariates that a fit has removed: how much they were, and their part in the scores of rows.

A row of context i in stratum s, with covariates z, has the nuisance ``m_s - m_i + (z - z_s)^T beta_i`` beside the mean
m_i of its context. Scores need only its projection ``pinv(A)``, which is what a model keeps: r numbers for each stratum
of a context, and r for each covariate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._covariances.fit_data import FitData
from .._data.annotations import Annotations
from .._data.labels import rows_by_context
from .._data.row_designs import Coding, NuisanceTerms
from .._utils.array_api import to_host
from .._utils.printing import Shown
from .._utils.types import Array
from .._utils.wording import listed, quoted

_ARRAYS = ("shares", "ranks", "cell_contexts", "cell_levels", "cell_counts", "shifts", "centres", "slopes")


@dataclass(frozen=True, repr=False)
class RemovedNuisance(Shown):
    """What ``batch`` and ``covariates`` removed from the covariances of a fit.

    Attributes
    ----------
    contexts : ndarray (k,)
        Names of the contexts.
    shares : ndarray (k,)
        Share of the variance of each context, summed over features, that was nuisance.
    ranks : ndarray (k,)
        Degrees of freedom that it took, beside that of the mean.
    levels : ndarray
        Names of the batches; a single None without ``batch``.
    columns : tuple of str
        Names of the c columns of covariates.
    coding : Coding
        How these came from the variables that were passed.
    cell_contexts, cell_levels, cell_counts : ndarray (m,)
        For each batch within a context: positions in ``contexts`` and ``levels``, and the number of rows.
    shifts : ndarray (m, r)
        Scores of the difference between the mean of the batch and that of its context.
    centres : ndarray (m, c)
        Means of the covariates.
    slopes : ndarray (k, c, r)
        Scores of the regression coefficients of each context.
    """

    contexts: Array
    shares: Array
    ranks: Array
    levels: Array
    columns: tuple[str, ...]
    coding: Coding
    cell_contexts: Array
    cell_levels: Array
    cell_counts: Array
    shifts: Array
    centres: Array
    slopes: Array

    @property
    def has_batch(self) -> bool:
        """Whether batches were removed."""
        return self._terms.has_batch

    @property
    def _terms(self) -> NuisanceTerms:
        return NuisanceTerms(self.levels, self.columns, self.coding)

    @property
    def what(self) -> str:
        """What was removed, as part of a sentence."""
        covariates = quoted(self.coding.names) if self.coding.names else ""
        return " and ".join(part for part in ("batch" if self.has_batch else "", covariates) if part)

    def _words(self) -> list[str]:
        k = len(self.contexts)
        return [
            f"Nuisance removed within {k} contexts: {self.what}. It was {100 * self.shares.min():.2g} to "
            f"{100 * self.shares.max():.2g}% of their variance."
        ]

    def _rows(self) -> dict[str, Any]:
        return {"context": self.contexts, "share of variance": self.shares, "degrees of freedom": self.ranks}

    def offsets(self, annotations: Annotations, contexts: Array) -> Array:
        """Return the nuisance in the scores of rows (n, r), whose ``contexts`` (n,) are positions among the fitted."""
        n = len(contexts)
        self.check_complete(annotations.batch is not None, annotations.variables is not None)
        annotations.check_lengths(n)
        strata = np.zeros(n, dtype=np.intp) if annotations.batch is None else self._strata(annotations)
        cells = self._cells(contexts, strata)
        out = self.shifts[cells].astype(np.float64)
        if self.columns:
            Z, _ = self.coding.columns_of(annotations.codes(), n)
            Z = Z - self.centres[cells]
            # By context, since each has its own slopes; rows are sorted once, and not looked for in every context.
            for members, slopes in zip(rows_by_context(contexts, len(self.slopes)), self.slopes, strict=True):
                out[members] += Z[members] @ slopes
        return out

    def check_complete(self, batch: bool, covariates: bool) -> None:
        """Raise unless all that the fit removed, and nothing else, is given for new rows."""
        for name, given, fitted in (
            ("batch", batch, self.has_batch),
            ("covariates", covariates, bool(self.coding.variables)),
        ):
            if given != fitted:
                verb = "was fitted without" if given else "has removed"
                way_out = "drop it" if given else f"pass it as well (it removed {self.what})"
                raise ValueError(f"This model {verb} {name}; {way_out}.")

    def _strata(self, annotations: Annotations) -> Array:
        assert annotations.batch is not None
        position = {name: i for i, name in enumerate(self.levels.tolist())}
        names = annotations.batch.categories.tolist()
        unknown = [name for name in names if name not in position]
        if unknown:
            raise ValueError(
                f"batch has labels that the fit does not have: {quoted(unknown)} (known: {quoted(self.levels)}). What "
                "they shift is not known: leave these rows out, or drop batch and covariates for scores that contain "
                "the nuisance."
            )
        return np.array([position[name] for name in names])[annotations.batch.codes]

    def _cells(self, contexts: Array, strata: Array) -> Array:
        n_levels = len(self.levels)
        known = self.cell_contexts.astype(np.int64) * n_levels + self.cell_levels
        wanted = contexts.astype(np.int64) * n_levels + strata
        order = np.argsort(known)
        places = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
        cells = order[places]
        unseen = known[cells] != wanted
        if unseen.any():
            pairs = sorted({divmod(int(pair), n_levels) for pair in wanted[unseen]})
            named = [f"{self.levels.tolist()[s]!r} in {self.contexts.tolist()[i]!r}" for i, s in pairs]
            raise ValueError(
                f"The fit has seen no rows of batch {listed(named)}; what it shifts there is not known. Leave these "
                "rows out."
            )
        return np.asarray(cells)

    # Names of the arrays of ``to_state``.
    array_names: ClassVar[tuple[str, ...]] = tuple(f"nuisance_{name}" for name in _ARRAYS)

    def to_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays by name, and JSON."""
        arrays = {f"nuisance_{name}": getattr(self, name) for name in _ARRAYS}
        return arrays, self._terms.to_json()

    @classmethod
    def from_state(cls, arrays: dict[str, Array], header: dict[str, Any], contexts: Array) -> RemovedNuisance:
        """Return what ``to_state`` was called with."""
        terms = NuisanceTerms.from_json(header)
        return cls(
            contexts,
            levels=terms.levels,
            columns=terms.columns,
            coding=terms.coding,
            **{name: arrays[f"nuisance_{name}"] for name in _ARRAYS},
        )


def removed_nuisance(data: FitData, projection: Array) -> RemovedNuisance | None:
    """Return what was removed from the data of a fit, for its ``projection`` (r, p); None if nothing was."""
    factors = data.nuisance
    if factors is None:
        return None
    P = np.asarray(to_host(projection), dtype=np.float64)
    k = len(data.names)
    r = len(P)
    design = factors.design
    c = len(design.columns)
    along = np.ldexp(factors.F @ P.T, data.exponent)  # (m, r), in the units of the rows
    slopes = np.zeros((k, c, r))
    shifts = []
    for i, basis in enumerate(factors.bases):
        part = along[factors.bounds[i] : factors.bounds[i + 1]]
        n_strata = len(basis.strata) if len(basis.strata) > 1 else 0
        roots = np.sqrt(basis.counts)[:, None]
        shifts.append(part[:n_strata] / roots if n_strata else np.zeros((1, r)))
        slopes[i] = basis.T @ part[n_strata:]
    explained = factors.squares().sum(axis=1)
    assert data.counts is not None
    left = np.maximum(data.counts - 1.0, 1.0) * data.covariances.traces()
    total = explained + left
    bases = factors.bases
    return RemovedNuisance(
        contexts=data.names,
        shares=np.divide(explained, total, out=np.zeros(k), where=total > 0),
        ranks=factors.ranks,
        levels=design.levels,
        columns=design.columns,
        coding=design.coding,
        cell_contexts=np.repeat(np.arange(k), [len(basis.strata) for basis in bases]),
        cell_levels=np.concatenate([basis.strata for basis in bases]),
        cell_counts=np.concatenate([basis.counts for basis in bases]),
        shifts=np.concatenate(shifts),
        centres=np.concatenate([basis.centres for basis in bases]),
        slopes=slopes,
    )
