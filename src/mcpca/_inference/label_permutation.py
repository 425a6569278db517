"""Do variances differ between contexts more than labels that mean nothing would make them? Permutations of labels.

Rows n have scores ``z_nj`` on m axes j, centred within their context. The variance of axis j in context i,

    v_ij = [sum_n z^2 - (sum_n z)^2 / n_i] / (n_i - 1),    n in context i,

is compared with its mean over contexts: ``T_j = sum_i (n_i - 1) (v_ij / v_j - 1)^2``. Under the null, rows are
exchangeable between contexts up to their means, and labels are permuted. Two details keep small contexts from looking
unlike large ones:

* Residuals are a little too small, by ``1 - 1 / n_i``: what is permuted is residuals times ``sqrt(n_i / (n_i - 1))``.
* A context of permuted rows is centred again, so that it has lost a degree of freedom as the real one has.

What is permuted are *units*: rows, or rows that stay together (those of a donor in a context), of which the formulas
need only the number, the sums of z and the sums of squares. A unit's squares have a part within it and that of its
mean; only the mean lost something by centring, so only that part is enlarged. Units trade places within strata.

Cost of a permutation O(u m) for u units, as one product of a sparse matrix of labels with the (u, 1 + 2 m) sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import ndtr, ndtri

from .._data.contexts import Contexts
from .._utils.parallel import each
from .._utils.types import Array, Report
from .sampling import GroupDesign

# More rows than this are permuted in blocks of a few of the same context, drawn by chance. That is a test of the same
# level, by some of all permutations: given the blocks, any assignment of them to contexts is as likely as the real one.
# The sums of as many units stay in a core's cache, which makes a permutation several times as fast.
_MOST_UNITS = 4_000
_TURNS = 12  # between scales of contexts and means of axes: the error falls by some powers of ten
_LARGEST_P = 0.99
_BATCH_LABELS = 2**19  # labels in one product: some megabytes of indices
_BATCH_SUMS = 2**20  # sums of contexts that come out of it, and are passed over several times: they stay in a cache


class Units(NamedTuple):
    """What is permuted: for each row its unit (n,), and for each unit its stratum (u,).

    ``is_drawn`` (u,) says which units stand for draws from a population of their context, of which centring took one.
    """

    of_rows: Array
    strata: Array
    is_drawn: Array


def units_of_rows(contexts: Contexts, rng: np.random.Generator) -> Units:
    """Return rows as units of their own, or blocks of rows of a context by chance where there are very many.

    Rows are in the order of ``contexts``: those of the first context first.
    """
    n = contexts.n_samples
    size = -(-int(n.sum()) // _MOST_UNITS)
    if size <= 1:
        total = int(n.sum())
        return Units(np.arange(total), np.zeros(total, dtype=np.intp), np.ones(total, dtype=bool))
    members: list[Array] = []
    strata: list[Array] = []
    first = 0
    for count in n.tolist():
        # Blocks first, then what is left over as single rows, which trade places among themselves.
        blocks, rest = divmod(count, size)
        units = np.concatenate([np.repeat(np.arange(blocks), size), blocks + np.arange(rest)])
        members.append(first + rng.permutation(units))
        strata.append(np.repeat([0, 1], [blocks, rest]))
        first += blocks + rest
    return Units(np.concatenate(members), np.concatenate(strata), np.ones(first, dtype=bool))


def units_of_groups(contexts: Contexts) -> Units:
    """Return the rows of a group in a context as units.

    Those of a group that is in several contexts trade places with each other, those of all other groups among
    themselves: whole donors go from one context to another.
    """
    groups = contexts.groups
    assert groups is not None
    counts = GroupDesign.of(contexts).counts.tocsc()
    g = len(groups.names)
    codes = np.concatenate([i * g + of_context for i, of_context in enumerate(groups.codes)])
    cells, of_rows = np.unique(codes, return_inverse=True)
    is_crossed = np.diff(counts.indptr)[cells % g] > 1
    # A group in all contexts takes its own mean to all of them: recentring takes nothing that the fit did not.
    return Units(of_rows, np.where(is_crossed, 1 + cells % g, 0), ~is_crossed)


@dataclass(frozen=True)
class LabelTest:
    """Sums of units that are permuted over k contexts; ``sums`` (u, 1 + 2 m) has counts, squares and sums of z.

    ``observed`` (k, 1 + 2 m) are the sums of the contexts as they are. ``labels`` (u,) are contexts of the units, which
    stand in the order of their strata.
    """

    sums: Array
    labels: Array
    strata: Array
    observed: Array

    @classmethod
    def of(cls, Z: Array, contexts: Array, units: Units, k: int) -> LabelTest:
        """Add up scores Z (n, m), centred by context; ``contexts`` (n,) are positions among k."""
        n, m = Z.shape
        u = len(units.strata)
        rows = np.hstack([np.ones((n, 1)), Z**2, Z])
        observed = _indicator(contexts, k) @ rows
        sums = _indicator(units.of_rows, u) @ rows
        labels = np.empty(u, dtype=np.intp)
        labels[units.of_rows] = contexts
        counts = sums[:, :1]
        # 1 - sum (n_u / n_i)^2 is what is left of the squares of means of units; one unit alone has none.
        shares = np.bincount(labels, ((counts / observed[labels, :1]) ** 2)[:, 0], minlength=k)
        left = np.where(shares < 1, 1 - shares, 1.0)[labels]
        factor = np.where(units.is_drawn, 1 / left, 1.0)[:, None]
        sums[:, 1 : 1 + m] += (factor - 1) * sums[:, 1 + m :] ** 2 / counts
        sums[:, 1 + m :] *= np.sqrt(factor)
        by_stratum = np.argsort(units.strata, kind="stable")
        return cls(sums[by_stratum], labels[by_stratum], units.strata[by_stratum], observed)

    @staticmethod
    def variances(totals: Array) -> tuple[Array, Array]:
        """Return v (..., k, m) with a mean of 1 over contexts, and n_i - 1 (..., k), from sums of contexts."""
        m = totals.shape[-1] // 2
        counts = totals[..., :1]
        freedom = np.maximum(counts - 1, 0)
        squares = totals[..., 1 : 1 + m] - totals[..., 1 + m :] ** 2 / np.maximum(counts, 1)
        # Rounding may leave what vanishes below 0.
        squares = np.where(freedom > 0, np.maximum(squares, 0), 0.0)
        mean = squares.sum(axis=-2, keepdims=True) / freedom.sum(axis=-2, keepdims=True)
        relative = squares / np.maximum(freedom, 1) / np.where(mean > 0, mean, 1.0)
        # An axis without any variance is alike everywhere.
        return np.where(mean > 0, relative, 1.0), freedom[..., 0]

    def without_scale(self) -> LabelTest:
        """Return the test of rows divided by the overall scale of their context; see ``without_common_scale``."""
        _, scale = without_common_scale(*self.variances(self.observed))
        power = np.repeat([0.0, 1.0, 0.5], [1, *2 * [self.sums.shape[1] // 2]])
        by_context = scale**-power
        return LabelTest(self.sums * by_context[self.labels], self.labels, self.strata, self.observed * by_context)

    def permuted(
        self, statistic: Callable[[Array, Array], Array], n: int, rng: np.random.Generator, workers: int, report: Report
    ) -> Array:
        """Return ``statistic(v, n_i - 1)`` (n, ...) of n permutations, in batches with streams of their own.

        The answer does not depend on the number of ``workers``.
        """
        u = len(self.labels)
        size = max(1, min(n, _BATCH_LABELS // u, _BATCH_SUMS // self.observed.size))
        batches = [min(size, n - first) for first in range(0, n, size)]
        k = len(self.observed)
        # Places by context: the unit that comes to place i goes to the context of the unit that was there.
        places = np.argsort(self.labels, kind="stable")
        ends = np.cumsum(np.bincount(self.labels, minlength=k))

        def of_batch(piece: tuple[int, np.random.Generator]) -> Array:
            b, stream = piece
            if self.strata[0] == self.strata[-1]:
                order = stream.permuted(np.tile(np.arange(u), (b, 1)), axis=1)
            else:
                order = np.argsort(self.strata + stream.random((b, u)), axis=1)
            pointers = np.concatenate([[0], (ends + u * np.arange(b)[:, None]).ravel()])
            chosen = order[:, places].ravel()
            labels = scipy.sparse.csr_array((np.ones(b * u), chosen, pointers), shape=(b * k, u))
            return statistic(*self.variances((labels @ self.sums).reshape(b, k, -1)))

        found: list[Array] = []
        done = 0
        for part in each(of_batch, list(zip(batches, rng.spawn(len(batches)), strict=True)), workers):
            found.append(part)
            done += len(part)
            report("permutations", done, n)
        return np.concatenate(found)


def _indicator(codes: Array, m: int) -> scipy.sparse.csr_array:
    """Return the matrix (m, n) that adds up rows by their code (n,)."""
    n = len(codes)
    return scipy.sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(m, n))


def dispersion(v: Array, freedom: Array) -> Array:
    """Return ``T_j = sum_i (n_i - 1) (v_ij - 1)^2`` (..., m)."""
    return np.asarray((freedom[..., None] * (v - 1) ** 2).sum(axis=-2))


def without_common_scale(v: Array, freedom: Array) -> tuple[Array, Array]:
    """Return ``v_ij / (c_i m_j)`` (..., k, m) and c (..., k, 1): one factor a context and one an axis taken out.

    The mean over axes is then 1 in every context, and the mean over contexts, by freedom, for every axis. Found by
    turns, which converge fast where v is near such a product; the number of turns is fixed, so that cost is.
    """
    weights = freedom / freedom.sum(axis=-1, keepdims=True)
    scale = np.ones_like(weights)
    for _ in range(_TURNS):
        # m_j = sum_i w_i v_ij / c_i, then c_i = the mean over j of v_ij / m_j: a product with v each.
        means = _means_of_axes(v, weights / scale)
        now = (v @ (1 / means)[..., None])[..., 0] / v.shape[-1]
        scale = np.where(now > 0, now, scale)
    relative = v / scale[..., None]
    return relative / _means_of_axes(relative, weights)[..., None, :], scale[..., None]


def _means_of_axes(v: Array, weights: Array) -> Array:
    """Return ``sum_i w_i v_ij`` (..., m), or 1 for an axis without any variance."""
    means = (weights[..., None, :] @ v)[..., 0, :]
    return np.where(means > 0, means, 1.0)


def dispersion_beyond_scale(v: Array, freedom: Array) -> Array:
    """Return T_j of the variances that one factor a context leaves."""
    return dispersion(without_common_scale(v, freedom)[0], freedom)


def upper_tail(observed: Array, null: Array) -> Array:
    """Return ``(1 + #{null >= observed}) / (n + 1)``, for null (n, ...): the permutation as it was is one of them."""
    # Permutations that lead to the same statistic may differ in the last digits, and count as ties.
    above = null >= observed - 1e-9 * np.abs(observed)
    return np.asarray((1 + above.sum(axis=0)) / (len(null) + 1))


def tail_of_sum(observed: Array, null: Array) -> float:
    """Return the p-value of the sum over axes of statistics (m,), in standard deviations of their null (n, m)."""
    spread = null.std(axis=0)
    varies = spread > 1e-9 * np.abs(null).max(axis=0, initial=0)
    if not varies.any():
        return 1.0
    weights = 1 / spread[varies]
    return float(upper_tail(observed[varies] @ weights, null[:, varies] @ weights))


def over_splits(p: Array) -> Array:
    """Return one p-value from those of several tests of the same rows (s, ...): that of their mean normal score.

    The mean of standard normal scores has a variance of at most 1, however they depend on each other, and is compared
    with 1: the more splits agree, the less is lost by that.
    """
    # A p-value of 1, of which one permutation in n leads to one, would alone decide by a score of minus infinity.
    mean = ndtr(ndtri(np.minimum(p, _LARGEST_P)).mean(axis=0))
    # Where all are the same, rounding of scores must not move them.
    return np.asarray(np.clip(mean, p.min(axis=0), p.max(axis=0)))
