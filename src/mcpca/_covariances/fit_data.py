"""What a model is fitted to: covariances as an array, or by passes over the rows, whichever is the cheaper.

``MCPCA.fit`` and ``select_rank`` come here with checked rows, covariances or moments, and hand the ``FitData`` on to
the choice of rank and to the solvers, which ask its ``covariances`` for products and need not know which of the two
they have. All data are brought into the range of floating-point numbers on the way (``scaling.py``): solvers take
fourth powers of them.
"""

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
from .passes import Passes, check_rows_on_file
from .scaling import in_range, scaled_rows, stack_in_range
from .streamed import StreamedCovariances
from .subspace import width

# Numbers in a stack of covariances (k, p, p) that is formed, half a gigabyte in double precision; beyond it products
# are passes over the rows. With a larger bound more fits have exact squared norms and need more memory; with 0 all fits
# go by passes, which is how tests get there with small data. ``score`` forms no more numbers than that either.
MOST_NUMBERS = 2**26
# Passes are preferred to forming and squaring covariances when that would take more than 20 times their operations.
# Dense products are far faster for each operation than those with sparse rows, and read no file; with a smaller number
# fits of moderate size would go by passes and take longer, with a larger one wide sparse data would be made dense.
_DENSE_SPEED = 20
# What a fit is taken to need where its cost is estimated beforehand: passes over the rows, and a rank where none is
# given. They only move the point at which the way changes.
_TYPICAL_PASSES = 10
_TYPICAL_RANK = 50


@dataclass(frozen=True)
class FitData:
    """Covariances of named contexts, and what else is known of their rows.

    Attributes
    ----------
    covariances : Covariances
        The stack, or products by passes; the latter count and remember, and nothing else here changes.
    names : ndarray (k,)
        Of the contexts.
    means : ndarray (k, p) or None
        In the units of the rows as they were given; None where only covariances are known.
    counts : ndarray (k,) or None
        Rows of each context.
    contexts : Contexts or None
        The rows, where they are at hand.
    moments : ContextCovariances or None
        The covariances where they are an array, here or on a device.
    exponent : int
        All but ``means`` are of rows times ``2^-exponent``.
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
        """Return copies of covariances and rows on the host, for a choice of rank, which resamples rows."""
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
        # Powers of two are exact: the same digits, with another exponent.
        moments = replace(moments, covariances=S, means=np.ldexp(moments.means, -e))
        contexts = None if contexts is None else scaled_rows(contexts, e)
    return FitData(as_stack(S), moments.contexts, means, counts, contexts, moments, exponent=exponent + e)


def fit_data_of_rows(contexts: Contexts, r: int | None, tol: float, report: Report, checkpoint: Checkpoint) -> FitData:
    """Return the data of a fit from rows: after one pass over them, or after all where covariances are formed."""
    if is_on_device(contexts) or not by_passes(contexts, r):
        return formed(contexts, report)
    contexts, e = in_range(contexts)
    # The sketch of the first pass is as wide as the first block of the basis will be (``StreamedCovariances.basis``);
    # where the rank is not known yet it is filled up, or cut, there.
    rank = r or _TYPICAL_RANK
    q = width(rank, len(contexts.names))
    sketch_width = max(rank + eigenbasis.SPARE, -(-q // 2))
    passes = Passes(report, checkpoint, tol)
    check_rows_on_file(contexts, passes)
    return _after_first_pass(StreamedCovariances.of(contexts, sketch_width, passes), e)


def without_basis(contexts: Contexts, r: int | None, report: Report) -> FitData:
    """Return what ``fit_data_of_rows`` does where no basis will be asked for: the pass is for means alone."""
    if is_on_device(contexts) or not by_passes(contexts, r):
        return formed(contexts, report)
    contexts, e = in_range(contexts)
    passes = Passes(report, Checkpoint(None, {}), 1.0)  # the tolerance is of a basis
    return _after_first_pass(StreamedCovariances.with_means(contexts, passes), e)


def formed(contexts: Contexts, report: Report) -> FitData:
    """Return the data of a fit from rows by way of covariances as an array."""
    contexts, e = in_range(contexts)
    if is_on_device(contexts):
        return fit_data_of_covariances(device_covariances(contexts, report), contexts.n_samples, contexts, e)
    # Rows on other machines stay there: whatever else would be asked of rows is then answered by the covariances.
    rows_at_hand = contexts if contexts.engine is None else None
    return fit_data_of_covariances(covariances_of(contexts, report), contexts.n_samples, rows_at_hand, e)


def by_passes(contexts: Contexts, r: int | None) -> bool:
    """Whether products with covariances are to be passes over the rows.

    So where the covariances would have more than ``MOST_NUMBERS`` entries, and where forming and squaring them,
    O(n p^2 + k p^3), costs far more than some ten passes, O(nnz r) each.
    """
    k = len(contexts.names)
    p = contexts.n_features
    n = int(contexts.n_samples.sum())
    if k * p * p > MOST_NUMBERS:
        return True
    # An entry of sparse rows has an index beside it. A pass multiplies every entry four times: the rows with V, their
    # transpose with the scores, and both again with the image S_i V, at two operations each.
    bytes_per_entry = contexts.dtype.itemsize * np.where(contexts.sparse, 2, 1)
    n_entries = float((contexts.context_bytes() / bytes_per_entry).sum())
    columns = (r or _TYPICAL_RANK) + eigenbasis.SPARE
    by_rows = _TYPICAL_PASSES * 8.0 * n_entries * columns
    by_entries = 2.0 * n * p * p + 2.0 * k * p**3
    return by_entries > _DENSE_SPEED * by_rows


def _after_first_pass(rows: StreamedCovariances, e: int) -> FitData:
    """Return the data of a fit by passes over rows times ``2^-e``."""
    contexts = rows.contexts
    means = np.ldexp(rows.means, e).astype(contexts.dtype, copy=False)
    return FitData(rows, contexts.names, means, contexts.n_samples, contexts, exponent=e)
