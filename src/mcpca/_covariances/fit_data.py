"""What a model is fitted to: covariances as an array, or by passes over the rows, whichever is the cheaper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._data.contexts import Contexts
from .._linalg import eigenbasis
from .._utils.array_api import is_device_array, to_host
from .._utils.types import Array, Report
from .checkpoint import Checkpoint
from .context_covariances import ContextCovariances, covariances_of
from .device_rows import device_covariances, is_on_device, rows_on_host
from .device_stack import as_stack
from .interface import Covariances
from .passes import Passes, compare
from .scaling import in_range, scaled_rows, stack_in_range
from .streamed import StreamedCovariances
from .subspace import width

MOST_NUMBERS = 2**26  # in a stack of covariances: half a gigabyte
_DEARER = 20  # times the operations at which passes are preferred all the same: dense products are that much faster
_TYPICAL_PASSES, _TYPICAL_RANK = 10, 50


@dataclass(frozen=True)
class FitData:
    """Covariances of named contexts, and what else is known of their rows.

    ``means`` (k, p) and ``counts`` (k,) are None where only covariances are known, ``contexts`` where rows are not at
    hand; ``moments`` are the covariances where they are an array, here or on a device. All but ``means`` are of rows
    times ``2^-exponent``.
    """

    covariances: Covariances
    names: Array
    means: Array | None
    counts: Array | None
    contexts: Contexts | None = None
    moments: ContextCovariances | None = None
    exponent: int = 0

    @property
    def n_passes(self) -> int | None:
        """Passes over the rows so far, more with every product that a solver asks for; None for an array."""
        return self.covariances.passes.ledger.n_passes if isinstance(self.covariances, StreamedCovariances) else None

    @property
    def home(self) -> Any:
        """The covariances where they are an array: results go to its device."""
        return None if self.moments is None else self.moments.covariances

    def on_host(self) -> FitData:
        """Return the same with covariances and rows on the host, for a choice of rank, which resamples rows: copies."""
        if self.moments is None or not is_device_array(self.home):
            return self
        contexts = None if self.contexts is None else rows_on_host(self.contexts)
        moments = replace(self.moments, covariances=to_host(self.home))
        return replace(self, covariances=as_stack(moments.covariances), contexts=contexts, moments=moments)


def fit_data_of_covariances(
    moments: ContextCovariances, counts: Array | None, contexts: Contexts | None = None, exponent: int = 0
) -> FitData:
    """Return the data of a fit from covariances as an array, here or on a device, with means where there are any.

    They are of rows times ``2^-exponent``, and are brought into range where they are not.
    """
    means = np.ldexp(moments.means, exponent) if len(moments.means) else None
    S, e = stack_in_range(moments.covariances)
    if e:
        moments = replace(moments, covariances=S, means=np.ldexp(moments.means, -e))
        contexts = None if contexts is None else scaled_rows(contexts, e)
    return FitData(as_stack(S), moments.contexts, means, counts, contexts, moments, exponent=exponent + e)


def fit_data_of_rows(contexts: Contexts, r: int | None, tol: float, report: Report, checkpoint: Checkpoint) -> FitData:
    """Return the data of a fit from rows: after one pass over them, or after all where covariances are formed."""
    if is_on_device(contexts) or not by_passes(contexts, r):
        return formed(contexts, report)
    contexts, e = in_range(contexts)
    rank, k = r or _TYPICAL_RANK, len(contexts.names)
    columns = max(rank + eigenbasis.SPARE, -(-width(rank, k) // 2))
    passes = Passes(report, checkpoint, tol)
    compare(contexts, passes)
    return _passed_over(StreamedCovariances.of(contexts, columns, passes), e)


def without_basis(contexts: Contexts, r: int | None, report: Report) -> FitData:
    """Return what ``fit_data_of_rows`` does where no basis will be asked for: the pass is for means alone."""
    if is_on_device(contexts) or not by_passes(contexts, r):
        return formed(contexts, report)
    contexts, e = in_range(contexts)
    return _passed_over(StreamedCovariances.with_means(contexts, Passes(report, Checkpoint(None, {}), 1.0)), e)


def formed(contexts: Contexts, report: Report) -> FitData:
    """Return the data of a fit from rows by way of covariances as an array."""
    contexts, e = in_range(contexts)
    if is_on_device(contexts):
        return fit_data_of_covariances(device_covariances(contexts, report), contexts.n_samples, contexts, e)
    # Rows that are elsewhere stay there: what is asked of rows beside the covariances is then answered by these.
    array_or_none = contexts if contexts.engine is None else None
    return fit_data_of_covariances(covariances_of(contexts, report), contexts.n_samples, array_or_none, e)


def _passed_over(rows: StreamedCovariances, e: int) -> FitData:
    contexts = rows.contexts
    means = np.ldexp(rows.means, e).astype(contexts.dtype, copy=False)
    return FitData(rows, contexts.names, means, contexts.n_samples, contexts, exponent=e)


def by_passes(contexts: Contexts, r: int | None) -> bool:
    """Whether products with covariances are to be passes over the rows.

    So where the covariances would take more than half a gigabyte, and where forming and squaring them,
    O(n p^2 + k p^3), costs far more than some ten passes, O(nnz r) each.
    """
    k, p, n = len(contexts.names), contexts.n_features, int(contexts.n_samples.sum())
    if k * p * p > MOST_NUMBERS:
        return True
    per_entry = contexts.dtype.itemsize * np.where(contexts.sparse, 2, 1)  # sparse ones have an index each
    entries = float((contexts.context_bytes() / per_entry).sum())
    passes = _TYPICAL_PASSES * 8.0 * entries * ((r or _TYPICAL_RANK) + eigenbasis.SPARE)
    return 2.0 * n * p * p + 2.0 * k * p**3 > _DEARER * passes
