"""Do halves of the rows find the same components? Random splits, fitted at the ranks in question.

The first splits are fitted at all ranks that are examined, more of them only where a decision is close
(``rank_curves``). Halves of groups or of contexts take the place of halves of the rows where these are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._covariances.interface import Covariances
from .._data.contexts import Contexts
from .._inference import sampling
from .._inference.context_dependence import FittedHalves
from .._inference.replication import Replicability, agreement_of_halves
from .._linalg.canonical import match_components
from .._utils.parallel import each
from .._utils.progress import Search
from .._utils.types import Array
from .criteria import maximum_likelihood
from .sample_fits import FitAtRank, SampleFits, Sweep

# Keys of the streams of random numbers that split the rows; fits are keyed by their rank.
_HALVES_KEY = 1
_CONTEXTS_KEY = 3
_ORDER_KEY = 4
# Numbers in the bases and cores of all splits that are kept for other ranks, 256 MB.
_KEPT_NUMBERS = 2**25
MOST_SPLITS = 80  # that the choice of a rank takes, unless more are asked for

Pair = tuple[FitAtRank | None, FitAtRank | None]


class Halves:
    """Random splits of the rows, of their groups or of contexts into halves that share none, and their fits.

    The first ``n_splits`` splits are fitted at all ranks, others at single ones (``fit_more``). If there are fewer
    different splits, it is these. ``by`` is that of ``MCPCA.replicability``.
    """

    def __init__(self, contexts: Contexts, n_splits: int, sweep: Sweep, by: str = "auto") -> None:
        self.sweep = sweep
        most = max(n_splits, MOST_SPLITS)
        self.halving = sampling.Halves(contexts, by, most, sweep.generator(_ORDER_KEY))
        self._key = _CONTEXTS_KEY if by == "contexts" else _HALVES_KEY
        self._left_out: set[Any] = set()
        n_splits = min(n_splits, self.halving.n_splits)
        progress = Search(sweep.report, "halves of contexts" if by == "contexts" else "halves", 2 * n_splits)
        self.splits = [self._split(i, progress) for i in range(n_splits)]
        # Fits of other splits by rank. The halves themselves, with their bases, are kept while these are small.
        self._more: dict[int, list[Pair]] = {}
        self._kept: dict[int, list[SampleFits]] = {}
        self._cosines: dict[int, list[Array]] = {}
        self._errors: dict[int, float] = {}

    def _split(self, i: int, progress: Search) -> list[SampleFits]:
        # By the number of the split, not by the rank: a split is the same whatever ranks it is fitted at.
        halves = self.halving.split(i, self.sweep.generator(self._key, i))
        self._left_out |= set(self.halving.left_out([halves]))
        parts = []
        # Both at a time, if there are threads for two.
        for part in each(lambda half: SampleFits(half, self.sweep), halves, self.sweep.workers):
            parts.append(part)
            progress.step()
        return parts

    def fit(self, ranks: Sequence[int], progress: Search) -> None:
        """Fit both halves of the first ``n_splits`` splits."""
        for split in self.splits:
            self._fit_both(split, ranks, progress)

    def _fit_both(self, split: list[SampleFits], ranks: Sequence[int], progress: Search) -> None:
        for part in each(lambda part: part.fitted(ranks), split, self.sweep.workers):
            progress.step(part)

    def fit_more(self, r: int, n_splits: int) -> None:
        """Bring the number of splits at rank ``r`` up to ``n_splits``."""
        # Each more split costs covariances and a basis of both halves: only a rank in question gets them.
        more = self._more.setdefault(r, [])
        have = len(self.splits) + len(more)
        wanted = range(have, min(n_splits, self.halving.n_splits))
        progress = Search(self.sweep.report, f"{n_splits} splits at rank {r}", 2 * len(wanted) * (r + 1))
        for i in wanted:
            parts = self._kept.get(i) or self._split(i, progress)
            self._fit_both(parts, [r], progress)
            more.append((parts[0].fits[r], parts[1].fits[r]))
            if sum(part.size for part in parts) * MOST_SPLITS <= _KEPT_NUMBERS:
                self._kept[i] = parts
        progress.finish()

    def pairs(self, r: int) -> list[Pair]:
        """Return the fits of both halves, for all splits that were fitted at rank ``r``."""
        first = [(a.fits[r], b.fits[r]) for a, b in self.splits if r in a.fits and r in b.fits]
        return first + self._more.get(r, [])

    def unordered(self, r: int) -> Array:
        """Return |cos| of the matched components of both halves (splits, r), in no particular order."""
        known = self._cosines.setdefault(r, [])
        for first, second in self.pairs(r)[len(known) :]:
            # NaN, rather than a cosine of 0, where a half does not have the rank: "not known" is not "does not
            # replicate".
            unknown = first is None or second is None
            known.append(np.full(r, np.nan) if unknown else match_components(second.A, first.A).cosines)  # type: ignore[union-attr]
        return np.stack(known) if known else np.full((1, r), np.nan)

    def cosines(self, r: int, A: Array | None) -> Array:
        """Return |cos| of each component between halves (splits, r'), in the order of the columns of ``A`` (p, r')."""
        pairs = self.pairs(r)
        cosines = np.full((len(pairs), r if A is None else A.shape[1]), np.nan)
        for i, (first, second) in enumerate(pairs):
            if first is not None and second is not None and A is not None:
                cosines[i] = agreement_of_halves(first.A, second.A, A)
        return cosines

    def replicability(self, r: int, A: Array | None) -> Replicability:
        """Return the cosines at rank ``r`` with what was split."""
        cosines = self.cosines(r, A)
        n_ways = self.halving.n_ways if self.halving.n_ways == len(cosines) else None
        names = self.halving.contexts.names.tolist()
        left_out = tuple(name for name in names if name in self._left_out)
        return Replicability(cosines, by=self.halving.by, n_ways=n_ways, left_out=left_out)

    def fitted(self, r: int) -> list[FittedHalves]:
        """Return the first splits with their rows and axes, those that have a fit of rank ``r``."""
        found = []
        for first, second in self.splits:
            fits = (first.fits.get(r), second.fits.get(r))
            if fits[0] is not None and fits[1] is not None:
                assert first.contexts is not None
                assert second.contexts is not None
                found.append(FittedHalves(first.contexts, second.contexts, (fits[0].A, fits[1].A)))
        return found

    def held_out_errors(self, ranks: Sequence[int]) -> Array:
        """Return ``sum_i ||S_i - A B_i A^T||^2 / sum_i ||S_i||^2`` (m,) in the half that was not fitted, on average."""
        new = [r for r in ranks if r not in self._errors]
        errors: dict[int, list[float]] = {r: [] for r in new}
        for split in self.splits:
            # Both ways, so that each half is predicted once.
            for fitted, other in (split, split[::-1]):
                fits = {r: fitted.fits[r] for r in new}
                known = {r: fit for r, fit in fits.items() if fit is not None and other.squared_norm > 0}
                for r in new:
                    errors[r] += [] if r in known else [np.nan]
                for (r, (A, B)), along in zip(
                    known.items(), other.variances_along([fit.A for fit in known.values()]), strict=True
                ):
                    # ||S - A B A'||^2 = ||S||^2 - gain, with <S, A B A'> = sum_j b_j a_j' S a_j: no p x p residual.
                    gain = 2 * np.vdot(along, B) - np.vdot(B @ (A.T @ A) ** 2, B)
                    errors[r].append(1 - float(gain) / other.squared_norm)
        self._errors |= {r: float(np.mean(of_rank)) for r, of_rank in errors.items()}
        return np.array([self._errors[r] for r in ranks])

    def held_out_likelihoods(self, ranks: Sequence[int], progress: Search) -> Array:
        """Return the mean log-density (m,) of a row of the first split's other half, about the mean of its context."""
        # Only one split: three fits of solver="ml" at each rank cost more than everything else together. Covariances of
        # halves that were released are computed again once for all ranks.
        first, second = self.splits[0]
        S = (first.covariances(), second.covariances())
        curves = [
            _likelihoods_in_other_half(first, second, *S, ranks, progress),
            _likelihoods_in_other_half(second, first, *S[::-1], ranks, progress),
        ]
        return np.asarray(np.mean(curves, axis=0))


def _likelihoods_in_other_half(
    half: SampleFits, other: SampleFits, S: Covariances, S_other: Covariances, ranks: Sequence[int], progress: Search
) -> list[Any]:
    """Return the mean log-density of a row of ``other`` under models of ``half``, for the covariances of both."""
    n = other.n_samples

    def mean_log_density(r: int) -> float:
        if r > half.rank:
            return np.nan
        # The covariances of the other half are about its own means: the criterion judges covariances, and leaves means
        # aside.
        model = maximum_likelihood(S, half.n_samples, half, r)
        return float(np.average(model.log_likelihoods(model.likelihood(S_other, n)), weights=n))

    return half.sweep.over(progress, mean_log_density, ranks, half.core)
