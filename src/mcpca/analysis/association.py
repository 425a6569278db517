"""Loadings, or the spread or mean of scores, against a covariate of contexts; and whether PCA would have seen it.

The paper's analysis of lung cancer stages, and the same in a design with blocks, confounders and weights. One covariate
alone is tested as the paper does: ``_targets`` puts it into the form that each test needs, ``_results.context_tests``
tests, and ``_models`` asks what an MCPC adds to PC means. A design is read by ``_designs`` and tested by
``_design_target``. Both are a target, which tests columns of values of contexts: those of MCPCs, and those of PCs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from .._results.context_values import context_values
from .._results.fitted import Fitted, fitted
from .._utils.arguments import as_generator, check_integer, check_real, one_random_state, refuse_without_effect
from .._utils.progress import shown
from .._utils.types import Array
from ._association_result import QUANTITIES, Association
from ._design_target import DesignTarget
from ._designs import is_formula, read_design
from ._rows import NEEDS_ROWS, FittedRows, read_rows, rows_are_given
from ._tables import bonferroni, false_discoveries, pandas
from ._targets import Target, read_target
from ._weights import Sampled, check_scale, log_floor, on_scale, read_weights, spread_along_mcpcs

_DEFAULT_PCS = 50


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
    rng: Any = None,
    missing: Literal["error", "drop"] = "error",
    key: str = "mcpca",
    data: Any = None,
    test: str | None = None,
    block: Any = None,
    weights: Any = None,
    scale: Literal["linear", "log", "rank"] = "linear",
) -> Association:
    """Find the MCPCs associated with a covariate of contexts (a stage, a year, a form), and check if PCA shows it too.

    The paper's analysis of lung cancer: loadings against stage, by Spearman's correlation and by a t-test between early
    and late stages, Bonferroni-corrected; then the same for the standard deviation of each overall PC, and a logistic
    model of late against early stages with the loading and the means of the PCs that are associated with stage.

    With ``block``, ``weights`` or a formula of several covariates it is a design: the linear model of loadings on all
    of them, from which each term gets an effect, an interval and a p-value, and so do overall PCs.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one; or an AnnData with a fit, which brings its own rows.
    covariate : dict or Series {context: value}; array-like (k,); or str
        As for ``mcpca.plotting.plot_covariate``: numbers, dates, or categories, of which a categorical of pandas may be
        ordered; for an AnnData also a column of ``obs`` that is constant within contexts. Or a formula of columns of
        ``data``, or of ``obs``: "stage + age + depth" for stage beside confounders, "stage * sex" for an interaction,
        "trend(stage)" for the steps of an ordered categorical as one number, "log(depth)". See ``mcpca[formula]``.
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
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        For permutations.
    missing : {"error", "drop"}
        Whether contexts without a value are an error or are left out.
    key : str
        Name of the fit in an AnnData.
    data : DataFrame or dict of columns, optional
        The columns that a formula names: a DataFrame indexed by context, or {name: values} with values as for
        ``covariate``. An AnnData has them in ``obs``.
    test : str, optional
        The term of a formula that ``table`` and the comparison with PCA are about; by default its first one. All terms
        are in ``effects``.
    block : dict or Series {context: block}; array-like (k,); or str
        Contexts that belong together (a patient before and after, the samples of a batch), as for ``covariate``, or the
        name of a column of ``data``.
        Contexts are compared within blocks only: blocks may differ from each other in any way. p-values come from
        all flips of the sign within pairs and all rearrangements within larger blocks, if these are at most 50,000,
        otherwise from ``permutations`` random ones, by default 9,999 or more.
    weights : {"errors", "rows"}; dict or Series {context: weight}; array-like (k,); or str
        What contexts count. "errors": the inverse of the variance that contexts have between them plus that of the
        value of this one, which falls with its rows; "rows": their number of rows, right if contexts differed by errors
        alone. None: all alike.
    scale : {"linear", "log", "rank"}
        On which values are compared. "log": effects are then logarithms of ratios; values below 1% of the mean of
        their MCPC or PC, zeros among them, count as 1% of it; means of PCs stay linear. "rank": ranks of the contexts,
        for effects that need not be linear and for outliers.

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

    In a design, numbers and dates enter as they are, ordered categories as a linear trend (as factors in a formula,
    where ``trend`` makes them one), other categories as differences from the first. A term is tested beside all others
    but the interactions that contain it. Without blocks p is that of the partial F-test, unless ``permutations`` are
    asked for or at most 50,000 are possible; rearranged are the residuals of the model without the term (Freedman and
    Lane), and the statistic is the partial F, which holds its level with skewed loadings and with confounders that go
    with the covariate (``benchmarks/association_designs.py``). Intervals have level 1 - ``alpha``, for each effect by
    itself, and are those of Student's t. For (3) above, PC means are more confounders in the same design.

    Cost: O(n p r) for scores, plus the PCs of the rows (at most 100,000 of them); tests O(k (r + n_pcs)), times
    ``permutations``.
    """
    fit = fitted(source, key)
    if of not in QUANTITIES:
        raise ValueError(f"of={of!r} is unknown; choose one of {sorted(QUANTITIES)}.")
    if correction not in ("bonferroni", "fdr"):
        raise ValueError(f"correction={correction!r}; choose 'bonferroni' or 'fdr'.")
    alpha = check_real(alpha, "alpha", 1e-12, 1, "It is a probability.")
    n_pcs = check_integer(n_pcs, "n_pcs", 0)
    check_scale(scale, of)
    name = covariate if isinstance(covariate, str) else getattr(covariate, "name", None)
    name = "the covariate" if name is None else str(name)
    # Before rows are read: a covariate that cannot be tested is found at once.
    target: Target | DesignTarget
    formula = is_formula(covariate, data, source)
    if not formula:
        refuse_without_effect("test", test, None, "covariate is not a formula", "drop it")
    # with_value: positions of the contexts that are tested, among all k.
    if formula or block is not None or weights is not None:
        refuse_without_effect("tests", tests, "auto", "a design is tested by its linear model", "drop it")
        if formula:
            refuse_without_effect("split", split, None, "covariate is a formula", "write I(stage >= 3), say")
        where = {"data": data, "formula": formula, "test": test, "block": block, "split": split}
        design, with_value = read_design(
            covariate, name, fit.contexts, **where, source=source, key=key, missing=missing
        )
        name = design.tested
        rule = read_weights(weights, data, scale, fit, source, key, missing, with_value)
        target = DesignTarget(design, rule, level=1 - min(alpha, 1 - 1e-12))
    else:
        read = context_values(covariate, fit.contexts, "covariate", source=source, key=key, missing=missing)
        with_value = np.flatnonzero(~read.missing)
        target = read_target(read, with_value, split, tests)
    rng = as_generator(one_random_state(rng, random_state))
    # Rows are not read where nothing asks for them: that may take a pass over a file.
    uses_rows = n_pcs > 0 or of != "loadings"
    rows = read_rows(source, key, X, y) if uses_rows and rows_are_given(source, X, y) else None
    if rows is None and n_pcs:  # n_pcs=0 asks for what happens anyway
        why = "PCs are those of rows, and none are given"
        refuse_without_effect("n_pcs", n_pcs, _DEFAULT_PCS, why, f"drop it, or {NEEDS_ROWS}")
    # The larger of the two families of tests, each of which is corrected by itself.
    n_tests = len(fit.names) if rows is None else max(len(fit.names), min(n_pcs, len(rows.components)))
    target = target.prepared(check_integer(permutations, "permutations", 0), n_tests, alpha)
    if rows is None and of != "loadings":
        raise ValueError(f"of={of!r} needs rows; {NEEDS_ROWS}.")
    compared = fit.compared(corrected)
    if of != "loadings":
        why = f"it is about loadings, and of={of!r} tests scores"
        refuse_without_effect("corrected", corrected, True, why, "drop it")
    values, spread = _tested_values(source, key, fit, compared.values, rows, of)

    def on_tested(V: Array, spread: Array, what: str) -> tuple[Array, Sampled]:
        """Return V (k, m) on its scale in the contexts that have a value, and where it comes from."""
        V = V[with_value]
        # A variance with divisor n - 1 is NaN for a single row, and a mean for none.
        is_finite = np.isfinite(V).all(axis=1)
        if not is_finite.all():
            first = fit.contexts[with_value[~is_finite][0]]
            raise ValueError(f"Context {first!r} has fewer than 2 rows in the data given; pass more of its rows.")
        return on_scale(V, what, scale), Sampled(what, spread[with_value])

    # values (k, r); the order of the tables fixes which random permutations each gets.
    tested, sampled = on_tested(values, spread, of)
    columns, effects = target.of_mcpcs(tested, fit.names, sampled, rng)
    table = _tests_table(columns, fit.names, correction, alpha)
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
        effects=effects,
        how=target.how,
        notes=(*target.notes, *_notes_on_scale(values[with_value], scale)),
    )
    if rows is None or n_pcs == 0:
        return result
    # The same tests for what PCA sees of contexts: how much they vary along overall PCs, and where they are on them.
    # W (q, PCs) of all rows together, as the paper's overall PCs.
    W = rows.principal_directions(n_pcs).vectors
    means, variances = rows.moments(rows.project(W))  # (k, PCs) each
    pcs = [f"PC {j + 1}" for j in range(W.shape[1])]
    # Bonferroni for PCs, whatever ``correction`` is: the definition of "beyond PCA" says so.
    pc_sds = _tests_table(
        target.columns(*on_tested(np.sqrt(variances), variances, "sd"), rng), pcs, "bonferroni", alpha
    )
    pc_means = _tests_table(target.columns(*on_tested(means, variances, "mean"), rng), pcs, "bonferroni", alpha)
    pc_means["in_model"] = _most_significant(
        pc_means["p"], pc_means[target.tests[0]].abs(), alpha, target.most_predictors
    )
    # An MCPC must say more about the covariate than the PC means that are associated with it by themselves.
    others = means[with_value][:, pc_means["in_model"].to_numpy()]
    table["adjusted_coefficient"], table["adjusted_p"] = target.added(tested, others, sampled, rng)
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


def _tested_values(
    source: Any, key: str, fit: Fitted, B: Array, rows: FittedRows | None, of: str
) -> tuple[Array, Array]:
    """Return what is tested of the MCPCs (k, r), and the variance of rows along them (k, r)."""
    if of == "loadings" or rows is None:
        return B, spread_along_mcpcs(source, key, fit)
    mean, variance = rows.moments(rows.scores())  # not centred: the overall mean shifts all contexts alike
    return {"mean": mean, "variance": variance, "sd": np.sqrt(variance)}[of], variance


def _tests_table(columns: dict[str, Array], names: Sequence[str], rule: str, alpha: float) -> Any:
    """Return a row for each name with the columns of its tests, and the corrections of "p"."""
    p = columns["p"]
    table = pandas().DataFrame({**columns, "bonferroni": bonferroni(p), "fdr": false_discoveries(p)}, index=names)
    table["significant"] = table[rule] <= alpha
    return table


def _notes_on_scale(V: Array, scale: str) -> tuple[str, ...]:
    """Say what became of zeros and small values (k, r) on a logarithmic scale."""
    if scale == "linear":
        return ()
    if scale == "rank":
        return ("Ranks of the contexts were compared.",)
    n_low = int((log_floor(V) > V).sum())
    low = f"; {n_low} below 1% of the mean of their MCPC count as that" if n_low else ""
    return (f"Logarithms were compared{low}.",)


def _most_significant(p: Any, size: Any, alpha: float, most: int) -> Array:
    """Return an indicator of p-values below alpha: at most the ``most`` smallest, ties decided by the statistic.

    Exact p-values of few contexts have many ties.
    """
    # The last key of lexsort counts first: by p, then by the size of the statistic.
    order = np.lexsort((-size.to_numpy(), p.to_numpy()))[:most]  # NaN comes last
    return np.asarray(np.isin(np.arange(len(p)), order) & (p.to_numpy() < alpha))
