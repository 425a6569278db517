"""Differential variance: how many times as much of each MCPC one group of contexts has as another.

A loading is a variance, so that the ratio of mean loadings says how much wider one group spreads along an MCPC. With
group means m_1, m_0 and to first order, the logarithm of the ratio varies as the mean of v / m_1 over one group less
that of v / m_0 over the other, from which its standard error follows: of contexts within groups, or of differences
within blocks, where each block counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from scipy.stats import t as t_distribution

from .._results.context_values import ContextValues, context_values
from .._results.fitted import fitted
from .._utils.arguments import as_generator, check_integer, check_real, one_random_state
from .._utils.component_names import context_index
from .._utils.printing import NAMED, Shown, counted
from .._utils.progress import shown
from .._utils.types import Array
from .._utils.wording import listed, quoted
from ._arrangements import Arrangements, plan
from ._tables import bonferroni, false_discoveries, names_of_values, pandas
from ._targets import check_permutations, groups_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEFAULT_RANDOM = 9_999
_BLOCK_NUMBERS = 2**22  # in a batch of rearrangements of all columns: 32 MB
_EQUAL_UP_TO_ROUNDING = 1e-9


@dataclass(frozen=True, repr=False)
class DifferentialVariance(Shown):
    """MCPCs compared between two groups of contexts.

    Attributes
    ----------
    table : DataFrame (one row per MCPC)
        "mean_reference" and "mean_compared", the mean loadings of the groups; "ratio", the second over the first, with
        its interval, "lower" and "upper"; "log2_ratio"; "p", and corrected for the number of MCPCs "bonferroni" and
        "fdr"; "significant".
    groups : tuple of 2 str
        The group of reference, and the one compared with it.
    n_contexts : tuple of 2 int
        Contexts in each.
    how : str
        How p-values were found, in words.
    notes : tuple of str
        Blocks that say nothing.
    alpha : float
        Level; intervals have level 1 - alpha, for each MCPC by itself.
    loadings : str
        Which loadings were compared, in words.
    correction : {"bonferroni", "fdr"}
        The corrected p-value that decides what is significant.
    """

    table: Any
    groups: tuple[str, str]
    n_contexts: tuple[int, int]
    how: str
    notes: tuple[str, ...]
    alpha: float
    loadings: str
    correction: str

    @property
    def significant(self) -> list[str]:
        """MCPCs that differ after correction."""
        return [str(name) for name in self.table.index[self.table["significant"]]]

    def plot(self) -> Figure:
        """Draw the ratios with their intervals, as ``mcpca.plotting.plot_differential_variance`` does."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_differential_variance

        return cast("Figure", plot_differential_variance(self).figure)

    def _words(self) -> list[str]:
        reference, compared = self.groups
        found = [f"{name} by a factor of {self.table.loc[name, 'ratio']:.2g}" for name in self.significant]
        verdict = f"{listed(found, NAMED)} after correction" if found else "no MCPC differs after correction"
        return [
            f"Variance along {counted(len(self.table), 'MCPC')} in {counted(self.n_contexts[1], 'context')} of "
            f"{compared} over that in {self.n_contexts[0]} of {reference}, by {self.how}, at level {self.alpha:g}: "
            f"{verdict}.",
            f"These are {self.loadings}.",
            *self.notes,
        ]

    def _rows(self) -> dict[str, Any]:
        columns = ["ratio", "lower", "upper", "p", "fdr", "significant"]
        return {"": list(self.table.index), **{name: list(self.table[name]) for name in columns}}


@shown("differential variance")
def differential_variance(
    source: Any,
    groups: Any,
    *,
    split: Any = None,
    reference: Any = None,
    block: Any = None,
    corrected: bool = True,
    correction: Literal["bonferroni", "fdr"] = "bonferroni",
    alpha: float = 0.05,
    permutations: int = _DEFAULT_RANDOM,
    random_state: Any = None,
    rng: Any = None,
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
) -> DifferentialVariance:
    """Compare the variance along each MCPC between two groups of contexts: ratio, interval, p-value.

    ``mcpca.plotting.plot_differential_variance`` draws the result.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit.
    groups : dict or Series {context: group}; array-like (k,); str; or dict {group: list of contexts}
        Two groups, as ``covariate`` in ``associate``; or two lists of contexts by the name of their group, the one of
        reference first, in which case other contexts are left out.
    split : optional
        Groups are contexts whose value is at least this, and all others.
    reference : optional
        The group that the other is divided by; by default the first category.
    block : dict or Series {context: block}; array-like (k,); or str
        Contexts that belong together, a patient before and after. Loadings are averaged by group within each block, and
        blocks that have both groups are compared.
    corrected : bool
        Whether to compare loadings without the noise of their context.
    correction : {"bonferroni", "fdr"}
        The corrected p-value that decides what is ``significant``.
    alpha : float
        Level.
    permutations : int
        Number of random rearrangements of contexts, within blocks, if there are more than 50,000; otherwise all are
        looked at, and p is exact.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        For permutations.
    missing : {"error", "drop"}
        Whether contexts without a group or block are an error or are left out.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    DifferentialVariance
        ``print`` it for a summary in words.

    Notes
    -----
    The interval is that of the logarithm of the ratio by Student's t, with Welch's degrees of freedom, or one less than
    the number of blocks. p is the share of rearrangements in which the logarithm of the ratio is as many of its own
    standard errors from zero. For confounders, weights and the comparison with PCA see ``associate``, with
    ``scale="log"`` for ratios. Cost O(k r) times the number of rearrangements.
    """
    fit = fitted(source, key)
    if correction not in ("bonferroni", "fdr"):
        raise ValueError(f"correction={correction!r}; choose 'bonferroni' or 'fdr'.")
    alpha = check_real(alpha, "alpha", 1e-12, 1, "It is a probability.")
    permutations = check_integer(permutations, "permutations", 1)
    if isinstance(groups, Mapping) and any(isinstance(one, (list, tuple, set)) for one in groups.values()):
        groups = _by_context(groups, fit.contexts)
        missing = "drop"
    where = {"source": source, "key": key, "missing": missing}
    read = context_values(groups, fit.contexts, "groups", **where)
    read_block = None if block is None else context_values(block, fit.contexts, "block", **where)
    used = np.flatnonzero(~read.missing & (~read_block.missing if read_block else True))
    second, names = _two_groups(read, used, split, reference)
    notes: tuple[str, ...] = ()
    blocks = np.zeros(len(used), dtype=np.intp)
    if read_block is not None:
        labels, blocks = np.unique(read_block.values[used], return_inverse=True)
        # A block of one group has nothing to be compared with.
        both = (np.bincount(blocks, second) > 0) & (np.bincount(blocks, ~second) > 0)
        if both.sum() < 2:
            raise ValueError(
                f"block: {int(both.sum())} of {len(labels)} blocks have contexts of both groups, and 2 are needed; "
                "pass other blocks, or leave block out."
            )
        if not both.all():
            block_names = names_of_values(read_block, labels[~both])
            notes = (f"{len(block_names)} of {len(labels)} blocks have one group only: {quoted(block_names)}.",)
        used, second, blocks = (one[both[blocks]] for one in (used, second, blocks))
        blocks = np.unique(blocks, return_inverse=True)[1]
    n_contexts = int((~second).sum()), int(second.sum())
    if block is None and min(n_contexts) < 2:
        raise ValueError(
            f"groups has {n_contexts[0]} contexts of {names[0]!r} and {n_contexts[1]} of {names[1]!r}, and 2 of each "
            "are needed; choose other groups."
        )
    ways = plan(blocks, second.astype(np.float64), permutations)
    r = len(fit.names)
    if not ways.exact:
        check_permutations(permutations, r, alpha)
    compared = fit.compared(corrected)
    V = compared.values[used]
    ratios = _Ratios(V, second, None if block is None else blocks)
    p = ratios.p_values(ways, as_generator(one_random_state(rng, random_state)))
    log_ratio, errors, freedom = ratios.observed
    with np.errstate(over="ignore", invalid="ignore"):
        half = t_distribution.ppf(1 - alpha / 2, freedom) * errors
        # Of a group without any of the MCPC the ratio is 0 or infinite, and no interval is known.
        half = np.where(np.isfinite(log_ratio), half, np.nan)
        columns = {
            "mean_reference": ratios.means[0],
            "mean_compared": ratios.means[1],
            "ratio": np.exp(log_ratio),
            "lower": np.exp(log_ratio - half),
            "upper": np.exp(log_ratio + half),
            "log2_ratio": log_ratio / np.log(2),
            "p": p,
            "bonferroni": bonferroni(p),
            "fdr": false_discoveries(p),
        }
    table = pandas().DataFrame(columns, index=fit.names)
    table["significant"] = table[correction] <= alpha
    within = "" if block is None else " within pairs" if (np.bincount(blocks) == 2).all() else " within blocks"
    how = f"{'all' if ways.exact else 'random'} {ways.n:,} rearrangements{within}"
    return DifferentialVariance(table, names, n_contexts, how, notes, alpha, compared.words, correction)


class _Ratios:
    """Logarithms of ratios of mean values between two groups, and of the same values rearranged.

    With blocks, ``second`` and ``first`` (n, k) average each group within each of n blocks, and blocks are the units:
    the errors are those of their differences. Without, contexts are the units, independent in both groups.
    """

    def __init__(self, V: Array, second: Array, blocks: Array | None) -> None:
        self._V = V
        self._averages = []
        self._blocked = blocks is not None
        codes = np.zeros(len(V), dtype=np.intp) if blocks is None else blocks
        for members in (~second, second):
            indicator = (codes == np.arange(codes.max() + 1)[:, None]) * members
            self._averages.append(indicator / indicator.sum(axis=1, keepdims=True))
        self._sizes = (int((~second).sum()), int(second.sum()))
        self.means = [(one @ V).mean(axis=0) for one in self._averages]
        self.observed = self._log_ratios(V)

    def _log_ratios(self, V: Array) -> tuple[Array, Array, Array]:
        """Return the logarithms of the ratios (m,) of columns V (k, m), their standard errors, degrees of freedom."""
        parts = [one @ V for one in self._averages]  # (n, m) each; n is 1 without blocks
        low, high = (one.mean(axis=0) for one in parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_ratio = np.log(high) - np.log(low)
            # Values relative to the mean of their group; a group of zeros has none, and no variance.
            relative = [np.where(mean > 0, one / mean, 0.0) for one, mean in zip(parts, (low, high), strict=True)]
            if self._blocked:
                n = len(parts[0])
                variance = ((relative[1] - relative[0]) ** 2).sum(axis=0) / (n * (n - 1))
                return log_ratio, np.sqrt(variance), np.full(V.shape[1], n - 1.0)
            shares = []
            for average, mean, n in zip(self._averages, (low, high), self._sizes, strict=True):
                squares = np.maximum((average @ V**2)[0] - mean**2, 0) / (n - 1)
                shares.append(np.where(mean > 0, squares / mean**2, 0.0))
            variance = shares[0] + shares[1]
            # Welch and Satterthwaite; at least that of the smaller group.
            welch = variance**2 / sum(share**2 / (n - 1) for share, n in zip(shares, self._sizes, strict=True))
        freedom = np.where(np.isfinite(welch), welch, min(self._sizes) - 1.0)
        return log_ratio, np.sqrt(variance), freedom

    def _sizes_of(self, V: Array) -> Array:
        """Return by how many standard errors the logarithm of each ratio differs from 0; infinite for equal values."""
        log_ratio, errors, _ = self._log_ratios(V)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.abs(log_ratio) / errors
        # NaN: the groups are equal without any spread, or neither has anything of the MCPC.
        return np.where(np.isnan(size), 0.0, size)

    def p_values(self, ways: Arrangements, rng: np.random.Generator) -> Array:
        """Return the share of rearrangements with as large a ratio, (m,); NaN for columns that do not vary."""
        k, m = self._V.shape
        # Through the same function as rearranged values, so that equal ones differ by rounding at most.
        bound = self._sizes_of(self._V) * (1 - _EQUAL_UP_TO_ROUNDING)
        n_as_large = np.zeros(m)
        partner = _partners(ways.blocks)
        for places, signs in ways.batches(max(1, _BLOCK_NUMBERS // (k * m)), rng):
            # A flip of the sign of a difference within a pair exchanges its values.
            moved = np.where(signs < 0, partner, places)
            sizes = self._sizes_of(self._V[moved.T].reshape(k, -1)).reshape(-1, m)
            n_as_large += (sizes >= bound).sum(axis=0)
        p = n_as_large / ways.n if ways.exact else (1 + n_as_large) / (1 + ways.n)
        return np.where(np.ptp(self._V, axis=0) == 0, np.nan, p)


def _partners(blocks: Array) -> Array:
    """Return for each context the other one of its pair, and itself where its block is no pair."""
    partner = np.arange(len(blocks))
    for block in np.flatnonzero(np.bincount(blocks) == 2):
        members = np.flatnonzero(blocks == block)
        partner[members] = members[::-1]
    return partner


def _by_context(groups: Mapping[Any, Any], contexts: list[str]) -> Any:
    """Return a Series {context: group} for {group: contexts}, with the groups in their order."""
    pd = pandas()
    if len(groups) != 2:
        raise ValueError(f"groups names {len(groups)} groups, {quoted(list(groups))}; pass two.")
    by_context: dict[str, str] = {}
    for name, members in groups.items():
        for member in [members] if isinstance(members, str) else members:
            context = contexts[context_index(member, contexts, f"groups[{name!r}]")]
            if context in by_context:
                raise ValueError(f"groups names context {context!r} more than once; a context belongs to one group.")
            by_context[context] = str(name)
    names = [str(name) for name in groups]
    return pd.Series(pd.Categorical(list(by_context.values()), names), index=list(by_context))


def _two_groups(read: ContextValues, used: Array, split: Any, reference: Any) -> tuple[Array, tuple[str, str]]:
    """Return which contexts are of the group that is compared (k,), and the names of both groups."""
    values = read.values[used]
    if split is not None:
        second = np.asarray(groups_of(read, used, split), dtype=bool)
        names = [f"< {split}", f">= {split}"]
    else:
        levels = np.unique(values)
        names = names_of_values(read, levels[:6])
        if len(levels) != 2:
            raise ValueError(
                f"groups has {len(levels)} values, {quoted(names)}; pass two groups, or split numbers and ordered "
                "categories."
            )
        second = values == levels[1]
    if reference is not None:
        if str(reference) not in names:
            raise ValueError(f"reference={reference!r} is none of the two groups, {quoted(names)}; pass one of them.")
        if str(reference) == names[1]:
            second, names = ~second, names[::-1]
    return second, (names[0], names[1])
