"""Loadings, or the spread or mean of scores, against a covariate of contexts; and whether PCA would have seen it.

The paper's analysis of lung cancer stages. ``_results.context_values`` reads the covariate, ``_targets`` puts it into
the form that each test needs, ``_results.context_tests`` tests, and ``_models`` asks what an MCPC adds to PC means.
"""

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
from .._utils.wording import listed
from ._rows import NEEDS_ROWS, FittedRows, read_rows, rows_are_given
from ._tables import bonferroni, false_discoveries, pandas
from ._targets import Target, read_target

# What is tested of the MCPCs, as a sentence begins.
_QUANTITIES = {
    "loadings": "Loadings",
    "variance": "Variances of scores",
    "sd": "Standard deviations of scores",
    "mean": "Means of scores",
}
_TEST_NAMES = {"spearman": "Spearman's correlation", "t-test": "Student's t-test", "anova": "ANOVA"}
_MODEL_NAMES = {"linear": "a linear model", "logistic": "a logistic model", "ancova": "an analysis of covariance"}
_DEFAULT_PCS = 50


@dataclass(frozen=True, repr=False)
class Association(Shown):
    """MCPCs tested against a covariate of contexts.

    Attributes
    ----------
    table : DataFrame (one row per MCPC)
        For each test its statistic and p-value ("spearman", "spearman_p", ...); "p", the largest of these p-values;
        "bonferroni" and "fdr", corrected for the number of MCPCs; "significant". With rows also "adjusted_coefficient"
        and "adjusted_p" in the model that includes PC means, and "beyond_pca".
    pc_sds : DataFrame or None
        The same tests for the standard deviation of each overall PC in the contexts, corrected for the number of PCs.
    pc_means : DataFrame or None
        The same tests for the means of PCs; "in_model" marks the means that the model includes.
    covariate : str
        Name of the covariate: that of a column or Series, or "the covariate".
    tests : tuple of str
    of : str
        What was tested of the MCPCs.
    n_contexts : int
        Contexts that have a value.
    alpha : float
    least_p : float
        The smallest p-value that so few contexts allow.
    model : str or None
        Kind of the model with PC means: "linear", "logistic" or "ancova".
    loadings : str or None
        Which loadings were tested, in words; None if they were not what was tested.
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
    loadings: str | None = None

    @property
    def significant(self) -> list[str]:
        """MCPCs that are significant after correction."""
        return _names_where(self.table, "significant")

    @property
    def beyond_pca(self) -> list[str] | None:
        """Those of them that PCA does not show; None if there were no rows to compute PCs from."""
        return None if self.pc_sds is None else _names_where(self.table, "beyond_pca")

    def _words(self) -> list[str]:
        """Say what is significant, and which of it is beyond PCA."""
        tests = " and ".join(_TEST_NAMES[test] for test in self.tests)
        significant = self.significant
        n_mcpcs = len(self.table)
        words = [
            f"{_QUANTITIES[self.of]} of {n_mcpcs} MCPCs in {self.n_contexts} contexts against {self.covariate}, by "
            f"{tests}, at level {self.alpha:g}: {', '.join(significant) or 'nothing'} {_is_or_are(significant)} "
            "significant after correction.",
        ]
        if self.loadings is not None:
            words.append(f"These are {self.loadings}.")
        # Otherwise "nothing is significant" would read as a finding about the data.
        if self.least_p * n_mcpcs > self.alpha:
            words.append(
                f"So few contexts allow no p-value below {self.least_p:.2g}, and {n_mcpcs} tests need "
                f"{self.alpha / n_mcpcs:.2g}: nothing can be significant."
            )
        if self.pc_sds is None or self.pc_means is None:
            words.append(f"PCs were not tested: for that {NEEDS_ROWS}.")
            return words
        # What PCA has to set against it: for means of scores those of PCs, for all else the spread along PCs.
        control = self.pc_means if self.of == "mean" else self.pc_sds
        what = "means" if self.of == "mean" else "standard deviations"
        significant_pcs = _names_where(control, "significant")
        verdict = f"{listed(significant_pcs)} {_is_or_are(significant_pcs)}" if significant_pcs else "none is"
        words.append(f"Of the {what} of {len(control)} overall PCs {verdict} significant.")
        if significant:
            if control["p"].notna().any():
                smallest = control["p"].min()
                words.append(f"Their smallest p-value is that of {control['p'].idxmin()}, p = {smallest:.2g}.")
            in_model = _names_where(self.pc_means, "in_model")
            means = f"with the mean{'s' if len(in_model) > 1 else ''} of {listed(in_model)}"
            adjusted = ", ".join(f"{name} p = {self.table.loc[name, 'adjusted_p']:.2g}" for name in significant)
            words.append(f"In {_MODEL_NAMES[str(self.model)]} {means if in_model else 'without PC means'}: {adjusted}.")
            words.append(f"Beyond PCA: {', '.join(self.beyond_pca or []) or 'none'}.")
        return words

    def _rows(self) -> dict[str, Any]:
        columns = ["p", "bonferroni", "fdr", "significant"]
        if self.beyond_pca is not None:
            columns.append("beyond_pca")
        return {"": list(self.table.index), **{name: list(self.table[name]) for name in columns}}


@shown("associations")
def associate(
    source: Any,
    covariate: Any,
    *,
    of: Literal["loadings", "variance", "sd", "mean"] = "loadings",
    corrected: bool = True,
    split: Any = None,
    tests: Literal["auto"] | Sequence[str] = "auto",
    correction: Literal["bonferroni", "fdr"] = "bonferroni",
    alpha: float = 0.05,
    n_pcs: int = _DEFAULT_PCS,
    X: Any = None,
    y: Any = None,
    permutations: int = 0,
    random_state: Any = None,
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
) -> Association:
    """Find the MCPCs associated with a covariate of contexts (a stage, a year, a form), and check if PCA shows it too.

    The paper's analysis of lung cancer: loadings against stage, by Spearman's correlation and by a t-test between early
    and late stages, Bonferroni-corrected; then the same for the standard deviation of each overall PC, and a logistic
    model of late against early stages with the loading and the means of the PCs that are associated with stage.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit, which brings its own rows.
    covariate : dict or Series {context: value}; array-like (k,); or str
        As for ``mcpca.plotting.plot_covariate``: numbers, dates, or categories, of which a categorical of pandas may be
        ordered; for an AnnData also a column of ``obs`` that is constant within contexts.
    of : {"loadings", "variance", "sd", "mean"}
        What to test of each MCPC: its loadings b_ij; or the variance, standard deviation or mean of the scores of a
        context's rows, which need rows. Variances of scores have the noise of their context in them.
    corrected : bool
        Whether to test loadings without the noise of their context. With False, and a fit without noise, a covariate
        that goes with the noise (depth, batch, machine) is associated with every MCPC.
    split : optional
        The t-test compares contexts whose covariate is at least this (stage "III" of an ordered categorical, or a
        number) with all others. It also makes the model with PC means logistic.
    tests : "auto" or sequence of {"spearman", "t-test", "anova"}
        "auto": Spearman for numbers, dates and ordered categories, and the t-test too with ``split``; the t-test
        (Student's) for two categories; ANOVA for more.
    correction : {"bonferroni", "fdr"}
        The corrected p-value that decides what is ``significant``.
    alpha : float
        Level.
    n_pcs : int
        Number of overall PCs to compare with, or as many as there are; 0 for none.
    X, y : optional
        Rows of the fitted contexts for a model, for ``of`` other than loadings and for the comparison with PCA.
    permutations : int
        If there are at most 50,000 ways to assign the covariate to contexts (always with up to 8 contexts), p-values
        of all tests come from all of them and are exact. If there are more, they come from this many random ones, or
        with 0 from the usual distributions, which make p-values too small if one group is small and loadings are
        skewed.
    random_state : int, Generator, RandomState or None
        For permutations.
    missing : {"error", "drop"}
        Whether contexts without a value are an error or are left out.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    Association
        ``print`` it for a summary in words.

    Notes
    -----
    With several tests the largest of their p-values counts, as in the paper's Fig. 3J: all must agree. An MCPC is
    *beyond PCA* if (1) it is significant after correction; (2) the standard deviation of no overall PC (the mean, for
    ``of="mean"``) is significant after Bonferroni's correction for the number of PCs, and none has as small a p-value
    as the MCPC; and (3) its ``adjusted_p`` is below ``alpha`` in a model with the means of those PCs whose own "p" is
    below ``alpha`` (the most significant ones, at most one for every 5 contexts, or for every 5 of the smaller group in
    a logistic model). The model is logistic for two groups, tested by the likelihood ratio with Firth's penalty, which
    keeps its level with few contexts and with separated groups; linear for numbers and for ordered categories by their
    order (partial F-test); an analysis of covariance for other categories. Contexts are assumed to be independent.

    Cost: O(n p r) for scores, plus the PCs of the rows (at most 100,000 of them); tests O(k (r + n_pcs)), times
    ``permutations``.
    """
    pd = pandas()
    fit = fitted(source, key)
    if of not in _QUANTITIES:
        raise ValueError(f"of={of!r} is unknown; choose one of {sorted(_QUANTITIES)}.")
    if correction not in ("bonferroni", "fdr"):
        raise ValueError(f"correction={correction!r}; choose 'bonferroni' or 'fdr'.")
    alpha = check_real(alpha, "alpha", 1e-12, 1, "It is a probability.")
    n_pcs = check_integer(n_pcs, "n_pcs", 0)
    read = context_values(covariate, fit.contexts, "covariate", source=source, key=key, missing=missing)
    # Positions of the contexts that are tested, among all k.
    with_value = np.flatnonzero(~read.missing)
    # Before rows are read: a covariate that cannot be tested is found at once.
    target = read_target(read, with_value, split, tests)
    rng = as_generator(random_state)
    # Rows are not read where nothing asks for them: that may take a pass over a file.
    uses_rows = n_pcs > 0 or of != "loadings"
    rows = read_rows(source, key, X, y) if uses_rows and rows_are_given(source, X, y) else None
    if rows is None and n_pcs:  # n_pcs=0 asks for what happens anyway
        why = "PCs are those of rows, and none are given"
        refuse_without_effect("n_pcs", n_pcs, _DEFAULT_PCS, why, f"drop it, or {NEEDS_ROWS}")
    # The larger of the two families of tests, each of which is corrected by itself.
    n_tests = len(fit.names) if rows is None else max(len(fit.names), min(n_pcs, len(rows.components)))
    # Random permutations give p >= 1 / (permutations + 1), which must be able to pass Bonferroni's correction.
    at_random = any(n_arrangements(x) > MOST_ARRANGEMENTS for x in target.by_test.values())
    if check_integer(permutations, "permutations", 0) and at_random and (permutations + 1) * alpha < n_tests:
        raise ValueError(
            f"permutations={permutations} gives no p-value below {1 / (permutations + 1):.2g}, and the {n_tests} tests "
            f"of MCPCs or PCs at level {alpha:g} need {alpha / n_tests:.2g}; pass at least {int(n_tests / alpha)}."
        )
    if rows is None and of != "loadings":
        raise ValueError(f"of={of!r} needs rows; {NEEDS_ROWS}.")
    compared = fit.compared(corrected)
    if of != "loadings":
        why = f"it is about loadings, and of={of!r} tests scores"
        refuse_without_effect("corrected", corrected, True, why, "drop it")
    values = _tested_values(compared.values, rows, of)

    def tested(V: Array, names: Sequence[str], rule: str) -> Any:
        """Test the columns of V (k, m), in the contexts that have a value."""
        V = V[with_value]
        # A variance with divisor n - 1 is NaN for a single row, and a mean for none.
        is_finite = np.isfinite(V).all(axis=1)
        if not is_finite.all():
            first = fit.contexts[with_value[~is_finite][0]]
            raise ValueError(f"Context {first!r} has fewer than 2 rows in the data given; pass more of its rows.")
        return _tests_table(pd, V, names, target, rule, alpha, permutations, rng)

    # values (k, r); the order of the calls of ``tested`` fixes which random permutations each gets.
    table = tested(values, fit.names, correction)
    name = covariate if isinstance(covariate, str) else getattr(covariate, "name", None)
    name = "the covariate" if name is None else str(name)
    result = Association(
        table,
        None,
        None,
        name,
        target.tests,
        of,
        len(with_value),
        alpha,
        target.least_p,
        loadings=compared.words if of == "loadings" else None,
    )
    if rows is None or n_pcs == 0:
        return result
    # The same tests for what PCA sees of contexts: how much they vary along overall PCs, and where they are on them.
    # W (q, PCs) of all rows together, as the paper's overall PCs.
    W = rows.principal_directions(n_pcs).vectors
    means, variances = rows.moments(rows.project(W))  # (k, PCs) each
    pcs = [f"PC {j + 1}" for j in range(W.shape[1])]
    # Bonferroni for PCs, whatever ``correction`` is: the definition of "beyond PCA" says so.
    pc_sds = tested(np.sqrt(variances), pcs, "bonferroni")
    pc_means = tested(means, pcs, "bonferroni")
    pc_means["in_model"] = _most_significant(
        pc_means["p"], pc_means[target.tests[0]].abs(), alpha, target.most_predictors
    )
    # An MCPC must say more about the covariate than the PC means that are associated with it by themselves.
    others = means[with_value][:, pc_means["in_model"].to_numpy()]
    added = [target.added(values[with_value, j], others) for j in range(len(fit.names))]
    table["adjusted_coefficient"] = [mcpc.coefficient for mcpc in added]
    table["adjusted_p"] = [mcpc.p_value for mcpc in added]
    table["beyond_pca"] = beyond_pca(table, pc_means if of == "mean" else pc_sds, alpha)
    return replace(result, pc_sds=pc_sds, pc_means=pc_means, model=target.model)


def beyond_pca(table: Any, control: Any, alpha: float) -> Any:
    """Return for each MCPC whether it is beyond PCA.

    It is, if it is significant; no PC of ``control`` is, or has as small a p-value; and PC means do not explain it.
    """
    # Without any test of a PC nothing contradicts the MCPC.
    smallest = control["p"].min() if control["p"].notna().any() else 1.0
    # One bool for all MCPCs: a single significant PC means that PCA does see the covariate.
    no_pc = not control["significant"].any()
    return table["significant"] & no_pc & (table["p"] < smallest) & (table["adjusted_p"] < alpha)


def _tested_values(B: Array, rows: FittedRows | None, of: str) -> Array:
    """Return what is tested of the MCPCs (k, r)."""
    if of == "loadings" or rows is None:
        return B
    mean, variance = rows.moments(rows.scores())  # not centred: the overall mean shifts all contexts alike
    return {"mean": mean, "variance": variance, "sd": np.sqrt(variance)}[of]


def _tests_table(
    pd: Any,
    V: Array,
    names: Sequence[str],
    target: Target,
    rule: str,
    alpha: float,
    permutations: int,
    rng: np.random.Generator,
) -> Any:
    """Return a row for each column of V (k, m) with all tests, the largest p-value, and its corrections."""
    columns: dict[str, Array] = {}
    for test, x in target.by_test.items():
        # statistics and p_values (m,)
        result = compare_with_covariate(test, V, x, permutations, rng)
        columns[test] = result.statistics
        columns[f"{test}_p"] = result.p_values
    # A constant column has NaN in one test and is no evidence in any: the maximum keeps the NaN.
    p = np.max([columns[f"{test}_p"] for test in target.tests], axis=0)
    table = pd.DataFrame({**columns, "p": p, "bonferroni": bonferroni(p), "fdr": false_discoveries(p)}, index=names)
    table["significant"] = table[rule] <= alpha
    return table


def _most_significant(p: Any, size: Any, alpha: float, most: int) -> Array:
    """Return an indicator of p-values below alpha: at most the ``most`` smallest, ties decided by the statistic.

    Exact p-values of few contexts have many ties.
    """
    # The last key of lexsort counts first: by p, then by the size of the statistic.
    order = np.lexsort((-size.to_numpy(), p.to_numpy()))[:most]  # NaN comes last
    return np.asarray(np.isin(np.arange(len(p)), order) & (p.to_numpy() < alpha))


def _names_where(table: Any, column: str) -> list[str]:
    return [str(name) for name in table.index[table[column]]]


def _is_or_are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"
