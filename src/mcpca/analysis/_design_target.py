"""A design as what ``associate`` tests against: the same interface as ``_targets.Target``, for linear models.

``_designs`` has read the design, ``_weights`` says what contexts count, ``_arrangements`` how residuals move, and
``_design_tests`` computes; here they are put together for one term, or for all terms in a table of effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._utils.printing import counted
from .._utils.types import Array
from .._utils.wording import listed, quoted
from ._arrangements import Arrangements, plan
from ._design_tests import Partial, partial_tests
from ._designs import ContextDesign
from ._tables import bonferroni, false_discoveries, pandas
from ._targets import check_permutations
from ._weights import Sampled, Weights

_CONTEXTS_PER_PREDICTOR = 5  # for each PC mean beside the design, as in ``_targets``
_DEFAULT_RANDOM = 9_999  # rearrangements within blocks, where there are too many to look at all
_BEYOND_BONFERRONI = 20  # times the number that just passes the correction, so that p is not coarse there


@dataclass(frozen=True)
class DesignTarget:
    """A design of contexts, with the rules by which columns are tested in it.

    Attributes
    ----------
    design : ContextDesign
    weights : Weights
    level : float
        Of intervals.
    permutations : int
        Number of random rearrangements where there are too many to look at all; 0 takes the F distribution.
    """

    design: ContextDesign
    weights: Weights
    level: float
    permutations: int = 0

    model = "design"
    tests = ("partial F",)

    def prepared(self, permutations: int, n_tests: int, alpha: float) -> DesignTarget:
        """Return the target with a number of random rearrangements that lets p-values pass the correction."""
        if self.ways(self.design.tested).exact:
            return self
        check_permutations(permutations, n_tests, alpha)
        if not permutations and self.design.block_names:
            # The F distribution knows nothing of blocks that are not alike.
            permutations = max(_DEFAULT_RANDOM, _BEYOND_BONFERRONI * math.ceil(n_tests / alpha) - 1)
        return replace(self, permutations=permutations)

    def ways(self, term: str, others: Array | None = None) -> Arrangements:
        """Return how residuals are rearranged in the test of a term, with ``others`` (k, c) as more confounders."""
        X, Z = self.design.beside(term)
        # Equal rows of X are the same to a test beside nothing; confounders and weights tell contexts apart.
        n_others = 0 if others is None else others.shape[1]
        alone = not Z.shape[1] + n_others and self.weights.kind == "none"
        codes = np.unique(X, axis=0, return_inverse=True)[1].reshape(-1) if alone else None
        return plan(self.design.blocks, codes, self.permutations)

    @property
    def least_p(self) -> float:
        """Smallest p-value that so few contexts allow: that of the covariate tested against itself."""
        ways = self.ways(self.design.tested)
        if not ways.exact:
            return ways.least_p
        X, Z = self.design.beside(self.design.tested)
        rng = np.random.default_rng(0)  # from which nothing is drawn
        return float(np.nanmin(partial_tests(X, X, Z, ways, None, rng).p_values))

    @property
    def most_predictors(self) -> int:
        """Largest number of PC means beside the design."""
        k, q = self.design.matrix.shape
        return int(max(k - q - max(len(self.design.block_names), 1), 0) // _CONTEXTS_PER_PREDICTOR)

    def test(
        self, term: str, V: Array, sampled: Sampled, rng: np.random.Generator, others: Array | None = None
    ) -> Partial:
        """Test a term in the model of each column of V (k, m), beside ``others`` (k, c) if given."""
        X, Z = self.design.beside(term)
        beside = Z if others is None else np.column_stack([Z, others])
        weights = self.weights.of(V, sampled, beside, self.design.blocks)
        return partial_tests(V, X, beside, self.ways(term, others), weights, rng, self.level)

    def columns(self, V: Array, sampled: Sampled, rng: np.random.Generator) -> dict[str, Array]:
        """Return the columns of a table of the tests of V (k, m): effect and interval if the term is one number."""
        return _columns(self.test(self.design.tested, V, sampled, rng))

    def of_mcpcs(
        self, V: Array, names: Sequence[str], sampled: Sampled, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Any]:
        """Return ``columns``, and a table of all terms: a row for each column of the design and each of V (k, m)."""
        pd = pandas()
        found = {term: self.test(term, V, sampled, rng) for term, _ in self.design.terms}
        # One MCPC after the other, each with its terms in their order. Levels of the index have that order, too, by
        # which pandas finds rows: sorted by name they would be searched one by one.
        terms = np.repeat(np.arange(len(self.design.terms)), [one.stop - one.start for _, one in self.design.terms])
        codes = np.array([(j, term, i) for j in range(len(names)) for i, term in enumerate(terms)]).T
        levels = [names, [term for term, _ in self.design.terms], self.design.columns]
        index = pd.MultiIndex(levels, codes, names=["mcpc", "term", "column"])
        columns = {
            name: np.concatenate([getattr(one, name) for one in found.values()]).T.ravel()
            for name in ("effects", "lower", "upper")
        }
        for name, of_term in {
            "partial F": [one.F for one in found.values()],
            "p": [one.p_values for one in found.values()],
            "bonferroni": [bonferroni(one.p_values) for one in found.values()],
            "fdr": [false_discoveries(one.p_values) for one in found.values()],
        }.items():
            # What is said of a term is said of each of its columns.
            columns[name] = np.array(of_term)[terms].T.ravel()
        table = pd.DataFrame(columns, index=index).rename(columns={"effects": "effect"})
        return _columns(found[self.design.tested]), table

    def added(self, V: Array, others: Array, sampled: Sampled, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return effects and p-values (m,) of the tested term with ``others`` (k, c) as more confounders."""
        found = self.test(self.design.tested, V, sampled, rng, others)
        one = len(found.effects) == 1
        return found.effects[0] if one else np.full(V.shape[1], np.nan), found.p_values

    # Words ----------------------------------------------------------------------------------------------------------

    @property
    def how(self) -> str:
        """How the test was made, as part of a sentence: "beside age, by a partial F-test"."""
        beside = self.design.confounders(self.design.tested)
        words = f"beside {listed(beside)}, by " if beside else "by "
        ways = self.ways(self.design.tested)
        if not ways.n:
            return words + "a partial F-test"
        return words + f"{'all' if ways.exact else 'random'} {self._moves(ways)}"

    def _moves(self, ways: Arrangements) -> str:
        """Say what is moved: "1,024 sign flips within pairs"."""
        sizes = np.bincount(self.design.blocks)
        if not self.design.block_names:
            return f"{ways.n:,} rearrangements"
        if (sizes <= 2).all():
            return f"{ways.n:,} sign flips within pairs"
        return f"{ways.n:,} rearrangements within blocks"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about blocks that say nothing, and about weights."""
        notes = []
        silent = self.design.silent_blocks
        if silent:
            verb = "has one value" if len(silent) == 1 else "have one value each"
            notes.append(
                f"{len(silent)} of {counted(len(self.design.block_names), 'block')} {verb} of {self.design.tested} and "
                f"{'says' if len(silent) == 1 else 'say'} nothing about it: {quoted(silent)}."
            )
        if self.weights.words is not None:
            notes.append(self.weights.words)
        return tuple(notes)


def _columns(found: Partial) -> dict[str, Array]:
    one = len(found.effects) == 1
    effect = {"effect": found.effects[0], "lower": found.lower[0], "upper": found.upper[0]} if one else {}
    return {**effect, "partial F": found.F, "r2": found.r2, "p": found.p_values}
