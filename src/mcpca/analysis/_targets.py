"""The covariate of contexts as each test wants it: ranks, two groups, or several; and the model with PC means.

``associate`` reads the covariate (``_results.context_values``), has it put in these forms here, and then tests loadings
and PCs against it with ``_results.context_tests``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._results.context_tests import COVARIATE_TESTS, MOST_ARRANGEMENTS, compare_with_covariate, n_arrangements
from .._results.context_values import ContextValues
from .._utils.types import Array
from ._models import added_categories, added_linear, added_logistic
from ._weights import Sampled

# Contexts (of the smaller group, in a logistic model) for each PC mean in the model. With fewer the model would fit
# anything; with more it would leave out means that explain the covariate.
_CONTEXTS_PER_PREDICTOR = 5


@dataclass(frozen=True)
class Target:
    """The covariate of the contexts that have one, as each test wants it.

    Attributes
    ----------
    by_test : dict {test: ndarray (k,)}
        Numbers, codes of categories in their order, or 0 and 1 for the two groups of the t-test.
    model : {"linear", "logistic", "ancova"}
        Kind of model in which an MCPC is tested beside PC means.
    predicted : ndarray (k,)
        The covariate in that model: numbers, groups, or codes of categories.
    permutations : int
        Number of random arrangements where there are too many to enumerate; 0 takes the usual distributions.
    """

    by_test: dict[str, Array]
    model: str
    predicted: Array
    permutations: int = 0

    # What a design has to say beside the names of its tests.
    how = None
    notes = ()

    @property
    def tests(self) -> tuple[str, ...]:
        """Names of the tests."""
        return tuple(self.by_test)

    @property
    def least_p(self) -> float:
        """Smallest p-value that so few contexts allow: that of the covariate tested against itself."""
        # No column can follow the covariate more closely than it follows itself; of several tests the largest p counts.
        return max(float(compare_with_covariate(test, x[:, None], x).p_values[0]) for test, x in self.by_test.items())

    @property
    def most_predictors(self) -> int:
        """Largest number of PC means in the model."""
        is_logistic = self.model == "logistic"
        # A logistic model is limited by the rarer outcome, not by the number of contexts.
        n_effective = min(np.bincount(self.predicted.astype(int))) if is_logistic else len(self.predicted)
        return int(n_effective // _CONTEXTS_PER_PREDICTOR)

    def prepared(self, permutations: int, n_tests: int, alpha: float) -> Target:
        """Return the target with random arrangements, or raise if these are too few to find anything by them."""
        if any(n_arrangements(x) > MOST_ARRANGEMENTS for x in self.by_test.values()):
            check_permutations(permutations, n_tests, alpha)
        return replace(self, permutations=permutations)

    def columns(self, V: Array, sampled: Sampled, rng: np.random.Generator) -> dict[str, Array]:
        """Return the columns of a table of the tests of V (k, m); "p" is the largest p-value of all tests."""
        columns: dict[str, Array] = {}
        for test, x in self.by_test.items():
            # statistics and p_values (m,)
            result = compare_with_covariate(test, V, x, self.permutations, rng)
            columns[test] = result.statistics
            columns[f"{test}_p"] = result.p_values
        # A constant column has NaN in one test and is no evidence in any: the maximum keeps the NaN.
        return {**columns, "p": np.max([columns[f"{test}_p"] for test in self.tests], axis=0)}

    def of_mcpcs(
        self, V: Array, names: Sequence[str], sampled: Sampled, rng: np.random.Generator
    ) -> tuple[dict[str, Array], None]:
        """Return ``columns``; there are no other terms with effects of their own."""
        return self.columns(V, sampled, rng), None

    def added(self, V: Array, others: Array, sampled: Sampled, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return coefficients and p-values (m,) of the columns of V (k, m) beside ``others`` (k, c)."""
        test = {"linear": added_linear, "logistic": added_logistic, "ancova": added_categories}[self.model]
        tested = [test(v, self.predicted, others) for v in V.T]
        return np.array([one.coefficient for one in tested]), np.array([one.p_value for one in tested])


def read_target(read: ContextValues, with_value: Array, split: Any, tests: Any) -> Target:
    """Return the covariate of the contexts ``with_value`` (their positions), as the tests asked for want it.

    ``tests="auto"`` chooses those that fit the kind of covariate.
    """
    values = read.values[with_value]
    is_ordered = read.kind != "category" or read.ordered
    # Dates as nanoseconds since 1970, which float64 holds to a fraction of a microsecond.
    numbers = (values.astype(np.int64) if read.kind == "date" else values).astype(np.float64)
    groups = groups_of(read, with_value, split)  # None unless there are two
    n_levels = len(np.unique(values))
    chosen = _chosen_tests(tests, read, is_ordered, n_levels, groups is not None)
    if n_levels < 2:
        raise ValueError("covariate has the same value in all contexts; there is nothing to compare.")
    if len(with_value) < 4:
        raise ValueError(f"covariate has values for {len(with_value)} contexts, and tests need at least 4.")
    by_test: dict[str, Array] = {}
    for name in chosen:
        if name == "spearman":
            if not is_ordered and n_levels > 2:  # two categories are ordered either way round
                raise ValueError(
                    f"tests has 'spearman', but covariate has categories without an order, {read.categories[:5]}; pass "
                    "numbers or an ordered categorical of pandas, or take 'anova'."
                )
            # Codes of ordered categories count as their ranks.
            by_test[name] = numbers
        elif name == "t-test":
            if groups is None:
                raise ValueError(f"tests has 't-test', but covariate has {n_levels} values; pass split, or 2 groups.")
            by_test[name] = groups
        else:
            if read.kind != "category":
                raise ValueError("tests has 'anova', but covariate has numbers; pass them as text for categories.")
            by_test[name] = numbers
    # As many groups as contexts leave no degrees of freedom within groups.
    if "anova" in chosen and len(with_value) <= n_levels:
        raise ValueError(
            f"covariate has {n_levels} categories for {len(with_value)} contexts; ANOVA needs more contexts."
        )
    # Two groups are predicted even if Spearman's correlation uses all values: the paper's model of late against early.
    if groups is not None:
        return Target(by_test, "logistic", groups)
    return Target(by_test, "linear" if is_ordered else "ancova", numbers)


def check_permutations(permutations: int, n_tests: int, alpha: float) -> None:
    """Raise if random permutations, which give p >= 1 / (permutations + 1), cannot pass Bonferroni's correction."""
    if permutations and (permutations + 1) * alpha < n_tests:
        raise ValueError(
            f"permutations={permutations} gives no p-value below {1 / (permutations + 1):.2g}, and the {n_tests} tests "
            f"of MCPCs or PCs at level {alpha:g} need {alpha / n_tests:.2g}; pass at least {int(n_tests / alpha)}."
        )


def _chosen_tests(tests: Any, read: ContextValues, is_ordered: bool, n_levels: int, has_groups: bool) -> list[str]:
    """Return the names of the tests asked for, or those that "auto" stands for."""
    if tests == "auto":
        automatic = []
        if is_ordered and (read.kind != "category" or n_levels > 2):
            automatic.append("spearman")
        if has_groups:
            automatic.append("t-test")
        return automatic or ["anova"]
    names = [tests] if isinstance(tests, str) else tests
    if not isinstance(names, (list, tuple)) or not names or any(name not in COVARIATE_TESTS for name in names):
        raise ValueError(f"tests={tests!r}; choose 'auto' or some of {list(COVARIATE_TESTS)}.")
    return list(names)


def groups_of(read: ContextValues, with_value: Array, split: Any) -> Array | None:
    """Return 0 and 1 for the two groups of a t-test, or None if there are not two."""
    values = read.values[with_value]
    if split is None:
        if read.kind != "category" or len(np.unique(values)) != 2:
            return None
        # Which of the two is 1 only decides the sign of t.
        groups = values == values.max()
    elif read.kind == "category":
        if not read.ordered and len(read.categories) > 2:
            raise ValueError(
                f"split={split!r} needs an order, and covariate has categories without one, {read.categories[:5]}; "
                "pass numbers, or an ordered categorical of pandas."
            )
        if str(split) not in read.categories:
            raise ValueError(f"split={split!r} is not one of the categories, which are {read.categories}; pass one.")
        groups = values >= read.categories.index(str(split))
    else:
        groups = values >= _bound(split, read.kind)
    n_in = int(groups.sum())
    n_out = int((~groups).sum())
    # A single context has no spread to compare a difference with.
    if min(n_in, n_out) < 2:
        raise ValueError(
            f"The t-test would compare {n_in} with {n_out} contexts, and needs 2 of each; choose another split, or "
            "merge categories."
        )
    return np.asarray(groups, dtype=np.float64)


def _bound(split: Any, kind: str) -> Any:
    """Return ``split`` as a number or a date, whichever the covariate has."""
    try:
        return np.datetime64(split) if kind == "date" else float(split)
    except (TypeError, ValueError) as error:
        raise ValueError(f"split={split!r} is not a {kind}, and covariate has {kind}s; pass a {kind}.") from error
