"""The answer to whether axes are of the contexts: ``ContextDependence``, with its words, its table and its JSON.

``context_dependence`` computes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.stats import false_discovery_control

from .._utils.printing import Shown, counted, listed_mcpcs, mcpcs, span
from .._utils.types import Array
from .._utils.wording import quoted
from .replication import Replicability
from .sampling import MIN_ROWS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.05  # of p-values and of the false discovery rate
SPLITS = 4
PERMUTATIONS = 999
_ARRAYS = ("p_values", "statistics", "null_means", "variances", "n_samples", "agreement")
_ALIKE = "in all contexts alike (pooled PCA would do)"


@dataclass(frozen=True, repr=False)
class ContextDependence(Shown):
    """Which axes differ between contexts, and which are the same in all of them.

    Attributes
    ----------
    p_value : float
        Of the whole, for the hypothesis that the covariances of all contexts are the same along these axes.
    p_values : ndarray (r,)
        Of each MCPC, in the order of the model: for the hypothesis that its variance is the same in all contexts.
    statistics, null_means : ndarray (r,)
        Dispersion of the variances over contexts, ``sum_i (n_i - 1) (v_ij - 1)^2``, and its mean with permuted labels.
    variances : ndarray (k, r)
        Variance of each axis in each context, in rows that the axis was not fitted to, over its mean of all contexts.
    contexts, n_samples : ndarray (k,)
        Names of the contexts that took part, and their rows.
    agreement : ndarray (r,)
        Mean ``|cos|`` between MCPCs and the axes of halves that were tested in their place.
    p_value_beyond_scale : float
        Of the whole, for the hypothesis that covariances differ by one factor a context at most; NaN where the whole is
        alike anyway, and for a single MCPC.
    n_splits, n_permutations : int
    by : str
        What was split into halves and permuted: "rows" or "groups".
    left_out : tuple
        Contexts that took no part, because they have fewer than 4 rows or a single group.
    cosines : ndarray (n_splits, r) or None
        ``|cos|`` between the axes that both halves of a split have found, in the order of the model; None for halves
        that were fitted at another rank, and where it was not stored.
    """

    p_value: float
    p_values: Array
    statistics: Array
    null_means: Array
    variances: Array
    contexts: Array
    n_samples: Array
    agreement: Array
    p_value_beyond_scale: float = float("nan")
    n_splits: int = SPLITS
    n_permutations: int = PERMUTATIONS
    by: str = "rows"
    left_out: tuple[Any, ...] = ()
    cosines: Array | None = None

    @property
    def replicability(self) -> Replicability | None:
        """Which MCPCs both halves find, from the same halves and so at no further cost; None if it is not known."""
        if self.cosines is None:
            return None
        # By rows, what is left out has too few of them, which ``notes`` of this result says.
        return Replicability(self.cosines, by=self.by, left_out=self.left_out if self.by == "groups" else ())

    @property
    def q_values(self) -> Array:
        """p-values adjusted for the number of MCPCs (r,), by Benjamini and Hochberg."""
        return np.asarray(false_discovery_control(self.p_values))

    @property
    def dependent(self) -> Array:
        """Which MCPCs differ between contexts (r,): ``q_values <= 0.05``, none unless the whole has ``p <= 0.05``."""
        return (self.q_values <= LEVEL) & (self.p_value <= LEVEL)

    @property
    def n_dependent(self) -> int:
        """How many MCPCs differ between contexts."""
        return int(self.dependent.sum())

    def of_components(self, which: Array) -> ContextDependence:
        """Return what was found of the MCPCs for which ``which`` (r,) is true; the whole stays that of all of them."""
        names = ("p_values", "statistics", "null_means", "agreement")
        some = {name: getattr(self, name)[which] for name in names}
        cosines = None if self.cosines is None else self.cosines[:, which]
        return replace(self, **some, variances=self.variances[:, which], cosines=cosines)

    @property
    def dispersion(self) -> Array:
        """How far variances differ between contexts (r,): their standard deviation as a share of their mean.

        What permuted labels lead to is taken off the squares, so that it is about 0 for an axis that is alike.
        """
        excess = np.maximum(self.statistics - self.null_means, 0)
        return np.asarray(np.sqrt(excess / (self.n_samples - 1).sum()))

    @property
    def outcome(self) -> str:
        """What was found, in a word.

        "dependent": some MCPCs differ between contexts. "scale": they do, but by one factor a context that all MCPCs
        have in common. "diffuse": the whole differs, and no single MCPC can be named. "alike": no difference between
        the covariances of contexts is seen.
        """
        if self.p_value > LEVEL:
            return "alike"
        if self.p_value_beyond_scale > LEVEL:
            return "scale"
        return "dependent" if self.n_dependent else "diffuse"

    def in_words(self, replicates: Any = None) -> str:
        """Return how many axes differ between contexts as part of a sentence.

        With ``replicates`` (r,), such as ``Replicability.replicates``, only of the axes that come back.
        """
        r = len(self.p_values)
        chosen = np.ones(r, dtype=bool) if replicates is None else np.asarray(replicates, dtype=bool)
        n = int(chosen.sum())
        m = int((chosen & self.dependent).sum())
        if n == 0:
            return "no axis comes back"
        if replicates is None:
            differ = "differs" if m == 1 else "differ"
            return f"{m} of {n} {'axis' if n == 1 else 'axes'} {differ} between contexts{_alike(n - m)}"
        if n == 1:
            return "1 axis comes back; it " + ("differs between contexts" if m else f"is {_ALIKE}")
        if m in (0, n):
            of = (
                f"none of them differs between contexts{_alike(n)}" if m == 0 else "all of them differ between contexts"
            )
            return f"{n} axes come back; {of}"
        return f"{n} axes come back; {m} of them differ{'s' if m == 1 else ''} between contexts{_alike(n - m)}"

    def _words(self) -> list[str]:
        p = _p(self.p_value, self.n_permutations)
        r = len(self.p_values)
        k = len(self.contexts)
        test = (
            f"The whole: {p}, by {self.n_permutations:,} permutations of {self.by} over {counted(k, 'context')}; axes "
            f"are from one half of the {self.by}, variances from the other."
        )
        outcome = self.outcome
        if outcome == "alike":
            words = [
                f"No difference between the covariances of the contexts is seen along {counted(r, 'MCPC')} ({p}): "
                "identical covariances in all contexts would look like this, and pooled PCA would do.",
                test,
            ]
        else:
            words = [f"{self.in_words()}.", test]
        if outcome == "scale":
            words.append(
                "Contexts differ by their overall scale only: one factor a context explains the differences of all "
                f"axes (p = {self.p_value_beyond_scale:.2g} for more than that), so pooled PCA of "
                "rows divided by the scale of their context would do."
            )
        elif outcome == "diffuse":
            words.append("Contexts differ as a whole, but no single MCPC can be named.")
        elif outcome == "dependent":
            words.append(
                f"Differ: {listed_mcpcs(self.dependent)}; alike: {listed_mcpcs(~self.dependent)}. Variances differ "
                f"between contexts by {span(self.dispersion, '.0%')} of their mean (standard deviation)."
            )
        return [*words, *self.notes()]

    def notes(self) -> list[str]:
        """Return sentences on what took no part."""
        if not self.left_out:
            return []
        why = f"fewer than {MIN_ROWS} rows" if self.by == "rows" else f"fewer than {MIN_ROWS} rows or a single group"
        verb = "takes no part, because it has" if len(self.left_out) == 1 else "take no part, because they have"
        return [f"{counted(len(self.left_out), 'context')} {verb} {why}: {quoted(self.left_out)}."]

    def _rows(self) -> dict[str, Any]:
        return {
            "": mcpcs(len(self.p_values)),
            "p": self.p_values,
            "q": self.q_values,
            "differs": ["yes" if one else "no" for one in self.dependent.tolist()],
            "sd of variances over contexts": self.dispersion,
            "|cos| with halves": self.agreement,
        }

    def plot(self) -> Figure:
        """Draw the variance of each axis in each context, with p-values."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_context_dependence

        return cast("Figure", plot_context_dependence(self).figure)

    def to_json(self) -> str:
        """Return everything as JSON text; unknown values are null."""
        content: dict[str, Any] = {name: getattr(self, name).tolist() for name in _ARRAYS}
        scale = self.p_value_beyond_scale
        content |= {
            "p_value": self.p_value,
            "p_value_beyond_scale": None if np.isnan(scale) else scale,
            "contexts": [str(name) for name in self.contexts.tolist()],
            "n_splits": self.n_splits,
            "n_permutations": self.n_permutations,
            "by": self.by,
            "left_out": [str(name) for name in self.left_out],
            "cosines": None if self.cosines is None else self.cosines.tolist(),
        }
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> ContextDependence:
        """Return the result that ``to_json`` wrote; names of contexts are text."""
        content = json.loads(text)
        for name in (*_ARRAYS, "contexts"):
            content[name] = np.array(content[name])
        # Files of earlier versions have none.
        if content.get("cosines") is not None:
            content["cosines"] = np.array(content["cosines"])
        if content["p_value_beyond_scale"] is None:
            content["p_value_beyond_scale"] = float("nan")
        return cls(**{**content, "left_out": tuple(content["left_out"])})


def _alike(n: int) -> str:
    return "" if n == 0 else f"; {n} {'is' if n == 1 else 'are'} {_ALIKE}"


def _p(p: float, n: int) -> str:
    """Return a p-value by n permutations in words: the least possible is a bound."""
    return f"p <= {1 / (n + 1):.1g}" if p < 1.5 / (n + 1) else f"p = {p:.2g}"
