"""What is known of each component of a model whose rank was chosen, and which of them are recommended.

A rank at which halves of the rows agree on average may hold components that do not come back. Each is therefore judged
by itself. It *replicates* if the mean ``|cos|`` between its two halves exceeds 0.9, as everywhere in this package, and
is *recommended* if that exceeds the threshold that the rank had to pass, 0.8. Errors of axes fall like one over the
rows, so that to first order

    1 - cos^2(two samples of all rows)  ~  (1 - cos^2(two halves)) / 2,

and 0.8 between halves is 0.91 between samples of the size at hand. Whether a component is found in other contexts, and
whether contexts differ in it, is reported and does not decide: an axis of a single context cannot come back in others,
and one that all contexts share is real, if not multi-context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._inference.dependence_result import ContextDependence
from .._inference.replication import Replicability
from .._utils.printing import counted, listed_mcpcs
from .._utils.types import Array
from .._utils.wording import listed

MOSTLY = 0.5  # share of an axis in directions above noise, from which on it is above noise
STANDARD_ERRORS = 2.0  # of the mean over splits: the half width of the interval of a component's agreement


@dataclass(frozen=True)
class Evidence:
    """Halves of the rows or groups, halves of the contexts, and differences between contexts, of r components.

    ``threshold`` is the mean ``|cos|`` above which a component is recommended. ``above_noise`` (r,) is how much of each
    is in directions above noise, or None where that is not known.
    """

    halves: Replicability
    threshold: float
    by_contexts: Replicability | None = None
    dependence: ContextDependence | None = None
    above_noise: Array | None = None

    @property
    def recommended(self) -> Array:
        """Which components are recommended (r,)."""
        return self.halves.agreement > self.threshold

    @property
    def close(self) -> Array:
        """Which of them other splits might decide otherwise (r,)."""
        return replace(self.halves, threshold=self.threshold).undecided

    def interval(self) -> tuple[Array, Array]:
        """Return the ends (r,) of an interval for the mean ``|cos|`` over all splits; NaN for a single one."""
        error = STANDARD_ERRORS * self.halves.spread / np.sqrt(len(self.halves.cosines))
        return np.asarray(self.halves.agreement - error), np.asarray(np.minimum(self.halves.agreement + error, 1))

    def columns(self) -> dict[str, Array]:
        """Return one column (r,) for each thing that is known of the components."""
        low, high = self.interval()
        columns = {
            "recommended": self.recommended,
            "replicates": self.halves.replicates,
            "agreement": self.halves.agreement,
            "low": low,
            "high": high,
            "close": self.close,
        }
        if self.above_noise is not None:
            columns["above noise"] = self.above_noise > MOSTLY
        if self.by_contexts is not None:
            columns["context agreement"] = self.by_contexts.agreement
        if self.dependence is not None:
            columns["context-dependent"] = self.dependence.dependent
            columns["context p"] = self.dependence.p_values
            columns["context q"] = self.dependence.q_values
        return columns

    def of_components(self, which: Array) -> Evidence:
        """Return the same of the components ``which`` (r,) is true for."""

        def some(halves: Replicability | None) -> Replicability | None:
            return None if halves is None else replace(halves, cosines=halves.cosines[:, which])

        halves = some(self.halves)
        assert halves is not None
        dependence = None if self.dependence is None else self.dependence.of_components(which)
        above = None if self.above_noise is None else self.above_noise[which]
        return Evidence(halves, self.threshold, some(self.by_contexts), dependence, above)

    def sentences(self) -> list[str]:
        """Return what a reader should know of the components, in full sentences."""
        halves = self.halves
        n, r = halves.cosines.shape
        if np.isnan(halves.cosines).any():
            return [_sentence(halves.in_words()), *halves.notes()]
        bound = f"> {self.threshold:g} in {counted(n, 'split')}"
        words = [f"{self._how_many()}, mean |cos| between halves of the {halves.by} {bound}"]
        kept = self.recommended
        if 0 < kept.sum() < r:
            words[0] += f": {listed_mcpcs(kept)}"
        words[0] += f"; {int(halves.replicates.sum())} replicate, > {halves.threshold:g}."
        if n > 1 and self.close.any():
            low, high = self.interval()
            each = [f"MCPC {j + 1} ({low[j]:.2f} to {high[j]:.2f})" for j in np.flatnonzero(self.close)]
            words.append(f"Close: {listed(each)}.")
        words += halves.notes()
        if self.by_contexts is not None:
            words.append(_sentence(self.by_contexts.in_words()))
        if self.dependence is not None:
            words.append(_sentence(self.dependence.in_words(kept)))
        return words

    def _how_many(self) -> str:
        kept = self.recommended
        n = int(kept.sum())
        r = len(kept)
        if n in (0, r):
            return f"{'All' if n else 'None'} of {counted(r, 'MCPC')} {'are' if n > 1 else 'is'} recommended"
        return f"{n} of {counted(r, 'MCPC')} {'is' if n == 1 else 'are'} recommended"


def _sentence(clause: str) -> str:
    return clause[0].upper() + clause[1:] + "."
