"""The covariate of contexts as each test wants it: ranks, two groups, or several; and the model with PC means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._results.context_tests import COVARIATE_TESTS, compare_with_covariate
from .._results.context_values import ContextValues
from .._utils.types import Array
from ._models import Added, added_categories, added_linear, added_logistic

_PER_CONTEXTS = 5  # contexts for each PC mean in a model with several


@dataclass(frozen=True)
class Target:
    """The covariate of the contexts that have one, as each test wants it.

    ``by_test`` has ranks or groups for each test, ``predicted`` (k,) what the ``model`` with PC means predicts.
    """

    by_test: dict[str, Array]
    model: str
    predicted: Array

    @property
    def tests(self) -> tuple[str, ...]:
        """Names of the tests."""
        return tuple(self.by_test)

    @property
    def least_p(self) -> float:
        """Smallest p-value that so few contexts allow: that of the covariate with itself."""
        return max(float(compare_with_covariate(test, x[:, None], x).p_values[0]) for test, x in self.by_test.items())

    @property
    def most_predictors(self) -> int:
        """PC means that a model with several bears."""
        n = len(self.predicted)
        smaller = min(np.bincount(self.predicted.astype(int))) if self.model == "logistic" else n
        return int(smaller // _PER_CONTEXTS)

    def added(self, v: Array, others: Array) -> Added:
        """Test what v (k,) says of the covariate beyond ``others`` (k, c)."""
        test = {"linear": added_linear, "logistic": added_logistic, "ancova": added_categories}[self.model]
        return test(v, self.predicted, others)


def read_target(read: ContextValues, kept: Array, split: Any, tests: Any) -> Target:
    """Return the covariate of the contexts ``kept``, for the tests asked for or, by "auto", for those that fit it."""
    values = read.values[kept]
    ordered = read.kind != "category" or read.ordered
    numbers = values.astype(np.int64) if read.kind == "date" else values
    groups = _groups(read, kept, split)
    n_levels = len(np.unique(numbers))
    if tests == "auto":
        chosen = ["spearman"] if ordered and (read.kind != "category" or n_levels > 2) else []
        chosen += ["t-test"] if groups is not None else []
        chosen = chosen or ["anova"]
    else:
        chosen = [tests] if isinstance(tests, str) else list(tests) if isinstance(tests, (list, tuple)) else []
    if not chosen or any(name not in COVARIATE_TESTS for name in chosen):
        raise ValueError(f"tests={tests!r}; choose 'auto' or some of {list(COVARIATE_TESTS)}.")
    if n_levels < 2:
        raise ValueError("covariate has the same value in all contexts; there is nothing to compare.")
    if len(kept) < 4:
        raise ValueError(f"covariate has values for {len(kept)} contexts, and tests need at least 4.")
    by_test: dict[str, Array] = {}
    for name in chosen:
        if name == "spearman":
            if not ordered and n_levels > 2:
                raise ValueError(
                    f"tests has 'spearman', but covariate has categories without an order, {read.categories[:5]}; pass "
                    "numbers or an ordered categorical of pandas, or take 'anova'."
                )
            by_test[name] = numbers.astype(np.float64)
        elif name == "t-test":
            if groups is None:
                raise ValueError(f"tests has 't-test', but covariate has {n_levels} values; pass split, or 2 groups.")
            by_test[name] = groups
        else:
            if read.kind != "category":
                raise ValueError("tests has 'anova', but covariate has numbers; pass them as text for categories.")
            by_test[name] = numbers.astype(np.float64)
    if "anova" in chosen and len(kept) <= n_levels:
        raise ValueError(f"covariate has {n_levels} categories for {len(kept)} contexts; ANOVA needs more contexts.")
    if groups is not None:
        return Target(by_test, "logistic", groups)
    return Target(by_test, "linear" if ordered else "ancova", numbers.astype(np.float64))


def _groups(read: ContextValues, kept: Array, split: Any) -> Array | None:
    """Return 0 and 1 for the two groups of a t-test, or None where there are not two."""
    values = read.values[kept]
    if split is None:
        if read.kind != "category" or len(np.unique(values)) != 2:
            return None
        groups = values == values.max()
    elif read.kind == "category":
        if not read.ordered and len(read.categories) > 2:
            raise ValueError(
                f"split={split!r} needs an order, and covariate has categories without one, {read.categories[:5]}; "
                "pass numbers, or an ordered categorical of pandas."
            )
        if str(split) not in read.categories:
            raise ValueError(f"split={split!r} is none of the categories, which are {read.categories}; pass one.")
        groups = values >= read.categories.index(str(split))
    else:
        groups = values >= _bound(split, read.kind)
    counts = int(groups.sum()), int((~groups).sum())
    if min(counts) < 2:
        raise ValueError(
            f"The t-test would compare {counts[0]} with {counts[1]} contexts, and needs 2 of each; choose another "
            "split, or join categories."
        )
    return np.asarray(groups, dtype=np.float64)


def _bound(split: Any, kind: str) -> Any:
    """Return ``split`` as a number or a date, as the covariate is."""
    try:
        return np.datetime64(split) if kind == "date" else float(split)
    except (TypeError, ValueError) as error:
        raise ValueError(f"split={split!r} is no {kind}, and covariate has {kind}s; pass a {kind}.") from error
