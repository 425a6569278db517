"""Loadings, or the spread or mean of scores, against a covariate of contexts; and whether PCA would have seen it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from .._check import Array, as_generator, check_integer, check_real
from ..adapters.anndata import is_anndata
from ..context_values import ContextValues, context_values
from ..fitted import fitted
from ._models import Added, added_categories, added_linear, added_logistic
from ._rows import NEEDS_ROWS, FittedRows, read_rows
from ._tables import bonferroni, false_discoveries, pandas
from ._tests import TESTS, permutation_p

_WHAT = {
    "loadings": "Loadings",
    "variance": "Variances of scores",
    "sd": "Standard deviations of scores",
    "mean": "Means of scores",
}
_CALLED = {"spearman": "Spearman's correlation", "t-test": "Welch's t-test", "anova": "ANOVA"}
_PER_CONTEXTS = 5  # contexts for each PC mean in a model with several


@dataclass(frozen=True)
class Association:
    """MCPCs against a covariate of contexts.

    Attributes
    ----------
    table : DataFrame (one row per MCPC)
        For each test its statistic and p-value ("spearman", "spearman_p", ...); "p", the largest of these p-values;
        "bonferroni" and "fdr", corrected for the number of MCPCs; "significant". With rows also "adjusted_coefficient"
        and "adjusted_p" in the model that has PC means too, and "beyond_pca".
    pc_sds : DataFrame or None
        The same tests for the standard deviation of each overall PC in the contexts, corrected for the number of PCs.
    pc_means : DataFrame or None
        The same tests for the means of PCs; "in_model" where the mean is in the model with several.
    tests : tuple of str
    of : str
        What was tested of the MCPCs.
    n_contexts : int
    alpha : float
    model : str or None
        "linear", "logistic" or "ancova", the model with PC means.
    """

    table: Any
    pc_sds: Any | None
    pc_means: Any | None
    tests: tuple[str, ...]
    of: str
    n_contexts: int
    alpha: float
    model: str | None = None

    @property
    def significant(self) -> list[str]:
        """MCPCs that are significant after correction."""
        return [str(name) for name in self.table.index[self.table["significant"]]]

    @property
    def beyond_pca(self) -> list[str] | None:
        """Those of them that PCA does not see; None where there were no rows to ask PCA."""
        return None if self.pc_sds is None else [str(name) for name in self.table.index[self.table["beyond_pca"]]]

    def summary(self) -> str:
        """Say in words what is significant, and what of it beyond PCA."""
        by = " and ".join(_CALLED[test] for test in self.tests)
        found = self.significant
        words = [
            f"{_WHAT[self.of]} of {len(self.table)} MCPCs in {self.n_contexts} contexts, by {by}, at level "
            f"{self.alpha:g}:",
            f"{_listed(found)} significant after correction." if found else "nothing is significant after correction.",
        ]
        if self.pc_sds is None or self.pc_means is None:
            words.append("PCA was not asked: for that " + NEEDS_ROWS + ".")
            return " ".join(words)
        own = [str(name) for name in self.pc_sds.index[self.pc_sds["significant"]]]
        words.append(
            f"Of the standard deviations of {len(self.pc_sds)} overall PCs "
            + (f"{_listed(own)} significant." if own else "none is significant.")
        )
        if found:
            best, most = self.pc_sds["p"].idxmin(), self.pc_sds["p"].min()
            words.append(f"The best of them is {best}, p = {most:.2g}.")
            means = [str(name) for name in self.pc_means.index[self.pc_means["in_model"]]]
            beside = f"with the mean{'s' if len(means) > 1 else ''} of {', '.join(means)}" if means else "alone"
            ps = ", ".join(f"{name} p = {self.table.loc[name, 'adjusted_p']:.2g}" for name in found)
            words.append(f"In a {self.model} model {beside}: {ps}.")
            words.append(f"Beyond PCA: {', '.join(self.beyond_pca or []) or 'none'}.")
        return " ".join(words)

    __str__ = summary


def associate(
    source: Any,
    covariate: Any,
    *,
    of: Literal["loadings", "variance", "sd", "mean"] = "loadings",
    split: Any = None,
    tests: Literal["auto"] | Sequence[str] = "auto",
    correction: Literal["bonferroni", "fdr"] = "bonferroni",
    alpha: float = 0.05,
    n_pcs: int = 50,
    X: Any = None,
    y: Any = None,
    permutations: int = 0,
    random_state: Any = None,
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
) -> Association:
    """Find the MCPCs that go with a covariate of contexts (a stage, a year, a form), and ask whether PCA sees it too.

    The paper's analysis of lung cancer: loadings against stage, by Spearman's correlation and by a t-test between early
    and late stages, Bonferroni-corrected; then the same for the standard deviation of each overall PC, and a logistic
    model of late against early stages with the loading and the means of PCs that go with stage.

    Parameters
    ----------
    source : MCPCA or AnnData
        A fitted model; or an AnnData with a fit, which brings its own rows.
    covariate : dict or Series {context: value}; array-like (k,); or str
        As for ``mcpca.plotting.plot_covariate``: numbers, dates, or categories, of which a categorical of pandas may be
        ordered; for an AnnData also a column of ``obs`` that is constant within contexts.
    of : {"loadings", "variance", "sd", "mean"}
        What to test of each MCPC: its loadings b_ij; or the variance, standard deviation or mean of the scores of a
        context's rows, which need rows.
    split : optional
        Contexts whose covariate is at least this are compared with all others by the t-test: stage "III" of an ordered
        categorical, or a number. It also makes the model with PC means a logistic one.
    tests : "auto" or sequence of {"spearman", "t-test", "anova"}
        "auto": Spearman for numbers, dates and ordered categories, and the t-test too with ``split``; the t-test
        (Welch's) for two categories; ANOVA for more.
    correction : {"bonferroni", "fdr"}
        Which corrected p-value ``significant`` goes by.
    alpha : float
        Level.
    n_pcs : int
        Overall PCs to compare with; fewer where there are fewer, and none with 0.
    X, y : optional
        Rows of the fitted contexts for a model, for ``of`` other than loadings and for the comparison with PCA.
    permutations : int
        0 takes the tests' distributions. Otherwise p-values of all tests come from this many random reassignments of
        the covariate to contexts: the honest way for few contexts or odd distributions.
    random_state : int, Generator, RandomState or None
        For permutations.
    missing : {"error", "drop"}
        What to do with contexts without a value.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    Association
        ``print`` tells it in words.

    Notes
    -----
    With several tests the largest of their p-values counts, as in the paper's Fig. 3J: all must agree. An MCPC is
    *beyond PCA* when (1) it is significant after correction; (2) the standard deviation of no overall PC is significant
    after Bonferroni's correction for the number of PCs, and none has as small a p-value as the MCPC; and (3) its
    ``adjusted_p`` is below ``alpha`` in a model with the means of those PCs whose own "p" is below ``alpha`` (the most
    significant ones, at most one for 5 contexts, of the smaller group in a logistic model). The model is logistic for
    two groups (tested by the likelihood ratio), linear for numbers and for ordered categories by their order (partial
    F-test), an analysis of covariance for other categories. Contexts are taken as independent of one another, and p in
    the model does not come from permutations.

    Cost: O(n p r) for scores, plus the PCs of the rows (at most 100,000 of them); tests O(k (r + n_pcs)), times
    ``permutations``.
    """
    pd = pandas()
    fit = fitted(source, key)
    options = {"loadings", "variance", "sd", "mean"}
    if of not in options:
        raise ValueError(f"of={of!r} is unknown; choose one of {sorted(options)}.")
    if correction not in ("bonferroni", "fdr"):
        raise ValueError(f"correction={correction!r}; choose 'bonferroni' or 'fdr'.")
    alpha = check_real(alpha, "alpha", 0, 1, "It is a probability.")
    n_pcs = check_integer(n_pcs, "n_pcs", 0)
    read = context_values(covariate, fit.contexts, "covariate", source=source, key=key, missing=missing)
    kept = np.flatnonzero(~read.missing)
    target = _target(read, kept, split, tests)
    rng = as_generator(random_state)
    given, asked = is_anndata(source) or X is not None, n_pcs > 0 or of != "loadings"
    rows = read_rows(source, key, X, y) if given and asked else None
    n_tests = len(fit.names) if rows is None else max(len(fit.names), min(n_pcs, len(rows.components)))
    if check_integer(permutations, "permutations", 0) and (permutations + 1) * alpha < n_tests:
        raise ValueError(
            f"permutations={permutations} gives no p-value below {1 / (permutations + 1):.2g}, and the {n_tests} tests "
            f"of MCPCs or PCs at level {alpha:g} need {alpha / n_tests:.2g}; pass at least {int(n_tests / alpha)}."
        )
    if rows is None and of != "loadings":
        raise ValueError(f"of={of!r} needs rows; {NEEDS_ROWS}.")
    values = _values(fit.loadings, rows, of)

    def tested(V: Array, names: Sequence[str], rule: str) -> Any:
        return _tested(pd, V[kept], names, target, rule, alpha, permutations, rng)

    table = tested(values, fit.names, correction)
    result = Association(table, None, None, target.tests, of, len(kept), alpha)
    if rows is None or n_pcs == 0:
        return result
    W = rows.principal_directions(n_pcs).vectors
    means, variances = rows.moments(rows.project(W))
    pcs = [f"PC {j + 1}" for j in range(W.shape[1])]
    pc_sds, pc_means = (tested(V, pcs, "bonferroni") for V in (np.sqrt(variances), means))
    pc_means["in_model"] = _leading(pc_means["p"].to_numpy(), alpha, target.most_predictors)
    others = means[kept][:, pc_means["in_model"].to_numpy()]
    added = [target.added(values[kept, j], others) for j in range(len(fit.names))]
    table["adjusted_coefficient"] = [one.coefficient for one in added]
    table["adjusted_p"] = [one.p_value for one in added]
    table["beyond_pca"] = beyond_pca(table, pc_sds, alpha)
    return replace(result, pc_sds=pc_sds, pc_means=pc_means, model=target.model)


def beyond_pca(table: Any, pc_sds: Any, alpha: float) -> Any:
    """Return for each MCPC whether it is beyond PCA.

    It is significant; no standard deviation of a PC is, or has as small a p-value; and PC means do not explain it.
    """
    least = np.nanmin(pc_sds["p"].to_numpy(), initial=1.0)
    unseen = not pc_sds["significant"].any()
    return table["significant"] & unseen & (table["p"] < least) & (table["adjusted_p"] < alpha)


@dataclass(frozen=True)
class _Target:
    """The covariate of the contexts that have one, as each test wants it."""

    tests: tuple[str, ...]
    by_test: dict[str, Array]
    model: str
    predicted: Array

    @property
    def most_predictors(self) -> int:
        """PC means that a model with several bears."""
        n = len(self.predicted)
        smaller = min(np.bincount(self.predicted.astype(int))) if self.model == "logistic" else n
        return int(smaller // _PER_CONTEXTS)

    def added(self, v: Array, others: Array) -> Added:
        test = {"linear": added_linear, "logistic": added_logistic, "ancova": added_categories}[self.model]
        return test(v, self.predicted, others)


def _target(read: ContextValues, kept: Array, split: Any, tests: Any) -> _Target:
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
        chosen = [tests] if isinstance(tests, str) else list(tests)
    unknown = [name for name in chosen if name not in TESTS]
    if unknown or not chosen:
        raise ValueError(f"tests={tests!r}; choose 'auto' or some of {list(TESTS)}.")
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
            by_test[name] = numbers
    if "anova" in chosen and len(kept) <= n_levels:
        raise ValueError(f"covariate has {n_levels} categories for {len(kept)} contexts; ANOVA needs more contexts.")
    if groups is not None:
        return _Target(tuple(chosen), by_test, "logistic", groups)
    return _Target(tuple(chosen), by_test, "linear" if ordered else "ancova", numbers.astype(np.float64))


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
        bound = np.datetime64(split) if read.kind == "date" else check_real(split, "split", -np.inf, np.inf)
        groups = values >= bound
    counts = int(groups.sum()), int((~groups).sum())
    if min(counts) < 2:
        raise ValueError(
            f"The t-test would compare {counts[0]} with {counts[1]} contexts, and needs 2 of each; choose another "
            "split, or join categories."
        )
    return np.asarray(groups, dtype=np.float64)


def _values(B: Array, rows: FittedRows | None, of: str) -> Array:
    """Return what is tested of the MCPCs (k, r)."""
    if of == "loadings" or rows is None:
        return B
    mean, variance = rows.moments(rows.scores())
    return {"mean": mean, "variance": variance, "sd": np.sqrt(variance)}[of]


def _tested(
    pd: Any,
    V: Array,
    names: Sequence[str],
    target: _Target,
    rule: str,
    alpha: float,
    permutations: int,
    rng: np.random.Generator,
) -> Any:
    if not np.isfinite(V).all():
        raise ValueError("A context has fewer than 2 rows in the data given, so that nothing varies there; pass more.")
    columns: dict[str, Array] = {}
    for test in target.tests:
        x = target.by_test[test]
        found = permutation_p(test, V, x, permutations, rng) if permutations else TESTS[test](V, x)
        columns |= {test: found.statistics, f"{test}_p": found.p_values}
    # NaN, where a column is constant, is no evidence: the largest p is then NaN too.
    p = np.max([columns[f"{test}_p"] for test in target.tests], axis=0)
    table = pd.DataFrame({**columns, "p": p, "bonferroni": bonferroni(p), "fdr": false_discoveries(p)}, index=names)
    table["significant"] = table[rule] <= alpha
    return table


def _leading(p: Array, alpha: float, most: int) -> Array:
    """Return which p-values are below alpha, of more than ``most`` the smallest."""
    chosen = np.zeros(len(p), dtype=bool)
    order = np.argsort(np.where(np.isnan(p), np.inf, p), kind="stable")[:most]
    chosen[order] = p[order] < alpha
    return chosen


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'are' if len(names) > 1 else 'is'}"
