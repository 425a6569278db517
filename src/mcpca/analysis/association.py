"""Loadings, or the spread or mean of scores, against a covariate of contexts; and whether PCA would have seen it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from .._results.context_tests import MOST_ARRANGEMENTS, compare_with_covariate, n_arrangements
from .._results.context_values import context_values
from .._results.fitted import fitted
from .._utils.arguments import as_generator, check_integer, check_real, refuse_without_effect
from .._utils.printing import Shown
from .._utils.progress import shown
from .._utils.types import Array
from ._rows import NEEDS_ROWS, FittedRows, read_rows, rows_are_given
from ._tables import bonferroni, false_discoveries, pandas
from ._targets import Target, read_target

_WHAT = {
    "loadings": "Loadings",
    "variance": "Variances of scores",
    "sd": "Standard deviations of scores",
    "mean": "Means of scores",
}
_CALLED = {"spearman": "Spearman's correlation", "t-test": "Student's t-test", "anova": "ANOVA"}
_MODELS = {"linear": "a linear model", "logistic": "a logistic model", "ancova": "an analysis of covariance"}
_SHOWN = 5  # names in a sentence


@dataclass(frozen=True, repr=False)
class Association(Shown):
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
    covariate : str
        What it is called: the name of a column or Series, or "the covariate".
    tests : tuple of str
    of : str
        What was tested of the MCPCs.
    n_contexts : int
    alpha : float
    least_p : float
        The smallest p-value that so few contexts allow.
    model : str or None
        "linear", "logistic" or "ancova", the model with PC means.
    """

    table: Any
    pc_sds: Any | None
    pc_means: Any | None
    covariate: str
    tests: tuple[str, ...]
    of: str
    n_contexts: int
    alpha: float
    least_p: float
    model: str | None = None

    @property
    def significant(self) -> list[str]:
        """MCPCs that are significant after correction."""
        return _where(self.table, "significant")

    @property
    def beyond_pca(self) -> list[str] | None:
        """Those of them that PCA does not see; None where there were no rows to ask PCA."""
        return None if self.pc_sds is None else _where(self.table, "beyond_pca")

    def _words(self) -> list[str]:
        """Say what is significant, and what of it beyond PCA."""
        by = " and ".join(_CALLED[test] for test in self.tests)
        found = self.significant
        words = [
            f"{_WHAT[self.of]} of {len(self.table)} MCPCs in {self.n_contexts} contexts against {self.covariate}, by "
            f"{by}, at level {self.alpha:g}: {', '.join(found) or 'nothing'} {'are' if len(found) > 1 else 'is'} "
            "significant after correction.",
        ]
        if self.least_p * len(self.table) > self.alpha:
            words.append(
                f"So few contexts allow no p-value below {self.least_p:.2g}, and {len(self.table)} tests need "
                f"{self.alpha / len(self.table):.2g}: nothing can be significant."
            )
        if self.pc_sds is None or self.pc_means is None:
            words.append("PCA was not asked: for that " + NEEDS_ROWS + ".")
            return words
        control, what = (self.pc_means, "means") if self.of == "mean" else (self.pc_sds, "standard deviations")
        own = _where(control, "significant")
        words.append(
            f"Of the {what} of {len(control)} overall PCs "
            + (f"{_named(own)} {'are' if len(own) > 1 else 'is'} significant." if own else "none is significant.")
        )
        if found:
            if control["p"].notna().any():
                words.append(f"The smallest p-value of theirs is that of {_least(control)}.")
            means = _where(self.pc_means, "in_model")
            beside = f"with the mean{'s' if len(means) > 1 else ''} of {_named(means)}" if means else "without PC means"
            ps = ", ".join(f"{name} p = {self.table.loc[name, 'adjusted_p']:.2g}" for name in found)
            words.append(f"In {_MODELS[str(self.model)]} {beside}: {ps}.")
            words.append(f"Beyond PCA: {', '.join(self.beyond_pca or []) or 'none'}.")
        return words

    def _rows(self) -> dict[str, Any]:
        told = ["p", "bonferroni", "fdr", "significant", *(["beyond_pca"] if self.beyond_pca is not None else [])]
        return {"": list(self.table.index), **{name: list(self.table[name]) for name in told}}


@shown("associations")
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
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit, which brings its own rows.
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
        (Student's) for two categories; ANOVA for more.
    correction : {"bonferroni", "fdr"}
        Which corrected p-value ``significant`` goes by.
    alpha : float
        Level.
    n_pcs : int
        Overall PCs to compare with; fewer where there are fewer, and none with 0.
    X, y : optional
        Rows of the fitted contexts for a model, for ``of`` other than loadings and for the comparison with PCA.
    permutations : int
        Where there are up to 50,000 ways to give the covariate to contexts (always for up to 8 contexts), p-values of
        all tests come from all of them, and are exact. Where there are more, they come from this many random ones, or
        with 0 from the tests' tables, which give p-values too small where one group is small and loadings are skewed.
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
    *beyond PCA* when (1) it is significant after correction; (2) the standard deviation of no overall PC (the mean, for
    ``of="mean"``) is significant after Bonferroni's correction for the number of PCs, and none has as small a p-value
    as the MCPC; and (3) its ``adjusted_p`` is below ``alpha`` in a model with the means of those PCs whose own "p" is
    below ``alpha`` (the most significant ones, at most one for 5 contexts, of the smaller group in a logistic model).
    The model is logistic for two groups, by the likelihood ratio with Firth's penalty, which holds its level for few
    contexts and groups that are separated; linear for numbers and for ordered categories by their order (partial
    F-test); an analysis of covariance for other categories. Contexts are taken as independent of one another.

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
    alpha = check_real(alpha, "alpha", 1e-12, 1, "It is a probability.")
    n_pcs = check_integer(n_pcs, "n_pcs", 0)
    read = context_values(covariate, fit.contexts, "covariate", source=source, key=key, missing=missing)
    kept = np.flatnonzero(~read.missing)
    target = read_target(read, kept, split, tests)
    rng = as_generator(random_state)
    asked = n_pcs > 0 or of != "loadings"
    rows = read_rows(source, key, X, y) if asked and rows_are_given(source, X, y) else None
    if rows is None and n_pcs:  # 0 is what happens then
        refuse_without_effect(
            "n_pcs", n_pcs, 50, "PCs are those of rows, and none are given", f"drop it, or {NEEDS_ROWS}"
        )
    n_tests = len(fit.names) if rows is None else max(len(fit.names), min(n_pcs, len(rows.components)))
    many = any(n_arrangements(x) > MOST_ARRANGEMENTS for x in target.by_test.values())
    if check_integer(permutations, "permutations", 0) and many and (permutations + 1) * alpha < n_tests:
        raise ValueError(
            f"permutations={permutations} gives no p-value below {1 / (permutations + 1):.2g}, and the {n_tests} tests "
            f"of MCPCs or PCs at level {alpha:g} need {alpha / n_tests:.2g}; pass at least {int(n_tests / alpha)}."
        )
    if rows is None and of != "loadings":
        raise ValueError(f"of={of!r} needs rows; {NEEDS_ROWS}.")
    values = _values(fit.loadings, rows, of)
    named = covariate if isinstance(covariate, str) else getattr(covariate, "name", None)

    def tested(V: Array, names: Sequence[str], rule: str) -> Any:
        if not np.isfinite(V[kept]).all():
            first = fit.contexts[kept[~np.isfinite(V[kept]).all(axis=1)][0]]
            raise ValueError(f"Context {first!r} has fewer than 2 rows in the data given; pass more of its rows.")
        return _tested(pd, V[kept], names, target, rule, alpha, permutations, rng)

    table = tested(values, fit.names, correction)
    called = "the covariate" if named is None else str(named)
    result = Association(table, None, None, called, target.tests, of, len(kept), alpha, target.least_p)
    if rows is None or n_pcs == 0:
        return result
    W = rows.principal_directions(n_pcs).vectors
    means, variances = rows.moments(rows.project(W))
    pcs = [f"PC {j + 1}" for j in range(W.shape[1])]
    pc_sds, pc_means = (tested(V, pcs, "bonferroni") for V in (np.sqrt(variances), means))
    pc_means["in_model"] = _leading(pc_means["p"], pc_means[target.tests[0]].abs(), alpha, target.most_predictors)
    others = means[kept][:, pc_means["in_model"].to_numpy()]
    added = [target.added(values[kept, j], others) for j in range(len(fit.names))]
    table["adjusted_coefficient"] = [one.coefficient for one in added]
    table["adjusted_p"] = [one.p_value for one in added]
    table["beyond_pca"] = beyond_pca(table, pc_means if of == "mean" else pc_sds, alpha)
    return replace(result, pc_sds=pc_sds, pc_means=pc_means, model=target.model)


def beyond_pca(table: Any, control: Any, alpha: float) -> Any:
    """Return for each MCPC whether it is beyond PCA.

    It is significant; no PC of ``control`` is, or has as small a p-value; and PC means do not explain it.
    """
    least = control["p"].min() if control["p"].notna().any() else 1.0
    unseen = not control["significant"].any()
    return table["significant"] & unseen & (table["p"] < least) & (table["adjusted_p"] < alpha)


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
    target: Target,
    rule: str,
    alpha: float,
    permutations: int,
    rng: np.random.Generator,
) -> Any:
    columns: dict[str, Array] = {}
    for test, x in target.by_test.items():
        found = compare_with_covariate(test, V, x, permutations, rng)
        columns |= {test: found.statistics, f"{test}_p": found.p_values}
    # NaN, where a column is constant, is no evidence: the largest p is then NaN too.
    p = np.max([columns[f"{test}_p"] for test in target.tests], axis=0)
    table = pd.DataFrame({**columns, "p": p, "bonferroni": bonferroni(p), "fdr": false_discoveries(p)}, index=names)
    table["significant"] = table[rule] <= alpha
    return table


def _leading(p: Any, size: Any, alpha: float, most: int) -> Array:
    """Return which p-values are below alpha; of more than ``most`` the smallest, of equal ones by the statistic."""
    order = np.lexsort((-size.to_numpy(), p.to_numpy()))[:most]  # NaN comes last
    return np.asarray(np.isin(np.arange(len(p)), order) & (p.to_numpy() < alpha))


def _where(table: Any, column: str) -> list[str]:
    return [str(name) for name in table.index[table[column]]]


def _least(table: Any) -> str:
    return f"{table['p'].idxmin()}, p = {table['p'].min():.2g}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
