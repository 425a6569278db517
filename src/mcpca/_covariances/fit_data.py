"""What a model is fitted to: covariances as an array, or products by passes over the rows, whichever is cheaper.

``MCPCA.fit`` and ``select_rank`` pass validated rows, covariances or moments. They hand the resulting ``FitData`` to
the choice of rank and to the solvers, which need not know which of the two its ``covariances`` are. On the way data are
scaled by a power of two (``scaling.py``), since fourth powers of rows have to stay within the range of floats.
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
from .device_panels import panels_of
from .device_rows import device_covariances, device_reference, is_on_device, is_sparse_there, rows_on_host
from .interface import Covariances
from .nuisance import NuisanceFactors, nuisance_factors
from .passes import Passes, check_rows_on_file
from .row_groups import loaded_if_small
from .scaling import in_range, scaled_rows, stack_in_range
from .stack import as_stack
from .streamed import StreamedCovariances
from .subspace import width

# Most numbers in a stack of covariances (k, p, p) that is formed, half a gigabyte in double precision; beyond it
# products are passes over the rows. With a larger bound more fits have exact squared norms, and need more memory; with
# 0 all fits go by passes, which is how tests get there with small data. ``score`` refuses to form more numbers as well.
MOST_NUMBERS = 2**26
# Passes are also preferred if forming and squaring covariances takes more than this many times their operations. An
# operation of a large dense product is that much cheaper than one of a product with rows. With a smaller factor fits of
# moderate size go by passes and take longer; with a larger one wide sparse data go by covariances and take longer.
_DENSE_SPEED = 20
# Assumptions for the estimated cost of a fit: its passes, and its rank if none is given. They only shift the point at
# which passes are preferred; the rank is also the width of the first sketch, which is padded later if need be.
_TYPICAL_PASSES = 10
_TYPICAL_RANK = 50


@dataclass(frozen=True)
class FitData:
    """Covariances of named contexts, and what else is known of their rows.

    Attributes
    ----------
    covariances : Covariances
        The array, or products by passes. The latter keep a count and a memory; nothing else here changes.
    names : ndarray (k,)
        Names of the contexts.
    means : ndarray (k, p) or None
        In the units of the user's rows; None if only covariances are known.
    counts : ndarray (k,) or None
        Rows of each context, less the degrees of freedom that nuisance takes.
    contexts : Contexts or None
        The rows, in this process, on a device or on other machines; None if there are only covariances.
    moments : ContextCovariances or None
        The covariances, if they are an array on the host or on a device.
    exponent : int
        Everything but ``means`` is for rows times ``2^-exponent``.
    nuisance : NuisanceFactors or None
        What batch and covariates explain, which is not in the covariances.
    """

    covariances: Covariances
    names: Array
    means: Array | None
    counts: Array | None
    contexts: Contexts | None = None
    moments: ContextCovariances | None = None
    exponent: int = 0
    nuisance: NuisanceFactors | None = None

    @property
    def n_samples(self) -> Array | None:
        """Rows of each context (k,)."""
        return self.counts if self.counts is None or self.nuisance is None else self.counts + self.nuisance.ranks

    @property
    def n_passes(self) -> int | None:
        """Passes over the rows so far, which grow with each product that a solver needs; None for an array."""
        return self.covariances.passes.ledger.n_passes if isinstance(self.covariances, StreamedCovariances) else None

    @property
    def home(self) -> Any:
        """The covariances if they are an array, or of rows that are passed over on a device an array there.

        Results go to its device.
        """
        return device_reference(self.contexts) if self.moments is None else self.moments.covariances

    def on_host(self) -> FitData:
        """Return the same with copies of covariances and rows on the host, where a choice of rank resamples rows."""
        # Arrays of NumPy are on the host already, and so are most products by passes.
        if not is_device_array(self.home):
            return self
        contexts = None if self.contexts is None else rows_on_host(self.contexts)
        if self.moments is None:
            assert isinstance(self.covariances, StreamedCovariances)
            assert contexts is not None
            return replace(self, covariances=self.covariances.on_host(contexts), contexts=contexts)
        moments = replace(self.moments, covariances=to_host(self.home))
        return replace(self, covariances=as_stack(moments.covariances), contexts=contexts, moments=moments)


def fit_data_of_covariances(
    moments: ContextCovariances,
    counts: Array | None,
    contexts: Contexts | None = None,
    exponent: int = 0,
    nuisance: NuisanceFactors | None = None,
) -> FitData:
    """Return the data of a fit to an array of covariances, on the host or on a device, with means if there are any.

    They are those of rows times ``2^-exponent``, and are scaled further if they are not in range.
    """
    # Covariances that a user passes have no means: the array is (0, p).
    means = np.ldexp(moments.means, exponent) if len(moments.means) else None
    # S is times 4^-e, which is the same as rows times 2^-e; both exponents together lead back to the user's units.
    S, e = stack_in_range(moments.covariances)
    if e:
        # A power of two changes the exponents of floats and not their digits.
        moments = replace(moments, covariances=S, means=np.ldexp(moments.means, -e))
        contexts = None if contexts is None else scaled_rows(contexts, e)
    if nuisance is not None:
        nuisance = nuisance.times_power(-e)
        counts = None if counts is None else counts - nuisance.ranks
    return FitData(as_stack(S), moments.contexts, means, counts, contexts, moments, exponent + e, nuisance)


def fit_data_of_rows(
    contexts: Contexts, r: int | None, tol: float | None, report: Report, checkpoint: Checkpoint
) -> FitData:
    """Return the data of a fit to rows: after the first pass over them, or with covariances formed.

    ``tol`` is that of a basis found by passes, None for what the rows can tell.
    """
    if not _passed_over(contexts, r):
        return _with_formed_covariances(contexts, report)
    contexts, e = in_range(loaded_if_small(contexts, report))
    # The sketch is as wide as the first block of the basis will be. If the rank is not known yet, the sketch is cut or
    # padded once it is (``StreamedCovariances.basis``).
    rank = r or _TYPICAL_RANK
    q = width(rank, len(contexts.names))
    sketch_width = max(rank + eigenbasis.SPARE, -(-q // 2))
    passes = Passes(report, checkpoint, tol, device=panels_of(contexts))
    # Before the first pass, which would take its totals from the file without a look at the rows.
    check_rows_on_file(contexts, passes)
    return _after_first_pass(StreamedCovariances.of(contexts, sketch_width, passes), e)


def without_basis(contexts: Contexts, r: int | None, report: Report) -> FitData:
    """Return the same as ``fit_data_of_rows`` if no basis will be needed: the first pass finds the means only."""
    if not _passed_over(contexts, r):
        return _with_formed_covariances(contexts, report)
    contexts, e = in_range(contexts)
    # Without a basis the tolerance has no effect.
    passes = Passes(report, Checkpoint(None, {}), 1.0, device=panels_of(contexts))
    return _after_first_pass(StreamedCovariances.with_means(contexts, passes), e)


def _with_formed_covariances(contexts: Contexts, report: Report) -> FitData:
    """Return the data of a fit to rows by forming their covariances."""
    contexts, e = in_range(contexts)
    # Factors are few, and on the host wherever the rows are.
    nuisance = nuisance_factors(contexts, report)
    of_rows = device_covariances if is_on_device(contexts) else covariances_of
    moments = of_rows(contexts, report, nuisance)
    return fit_data_of_covariances(moments, contexts.n_samples, contexts, e, nuisance)


def _passed_over(contexts: Contexts, r: int | None) -> bool:
    """Whether a fit passes over the rows: of those on a device only over sparse ones."""
    return by_passes(contexts, r) and (is_sparse_there(contexts) or not is_on_device(contexts))


def by_passes(contexts: Contexts, r: int | None) -> bool:
    """Whether products with covariances should be passes over the rows.

    They should if the covariances would have more than ``MOST_NUMBERS`` entries, or if forming and squaring them,
    O(n p^2 + k p^3), costs far more than about ten passes, O(nnz r) each.
    """
    k = len(contexts.names)
    p = contexts.n_features
    n = int(contexts.n_samples.sum())
    # Memory first: beyond the bound covariances cannot be formed, however fast that would be.
    if k * p * p > MOST_NUMBERS:
        return True
    # A stored entry of sparse rows has an index too. For each column a pass uses every entry four times, at two
    # operations each: X V, X^T times the scores, and both again for the image S_i V.
    bytes_per_entry = contexts.dtype.itemsize * np.where(contexts.sparse, 2, 1)
    n_entries = float((contexts.context_bytes() / bytes_per_entry).sum())
    columns = (r or _TYPICAL_RANK) + eigenbasis.SPARE
    by_rows = _TYPICAL_PASSES * 8.0 * n_entries * columns
    by_entries = 2.0 * n * p * p + 2.0 * k * p**3
    return by_entries > _DENSE_SPEED * by_rows


def _after_first_pass(rows: StreamedCovariances, e: int) -> FitData:
    """Return the data of a fit by passes, where ``rows`` are the user's times ``2^-e``."""
    contexts = rows.contexts
    # Means are reported in the units and in the precision of the user's rows; passes keep theirs in float64.
    means = (np.ldexp(rows.means, e) if e else rows.means).astype(contexts.dtype, copy=False)
    nuisance = rows.nuisance
    counts = contexts.n_samples if nuisance is None else contexts.n_samples - nuisance.ranks
    return FitData(rows, contexts.names, means, counts, contexts, exponent=e, nuisance=nuisance)
