"""What ``associate`` returns: tables of MCPCs and PCs, and the verdict in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .._utils.printing import Shown
from .._utils.wording import listed
from ._rows import NEEDS_ROWS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What is tested of the MCPCs, as a sentence begins.
QUANTITIES = {
    "loadings": "Loadings",
    "variance": "Variances of scores",
    "sd": "Standard deviations of scores",
    "mean": "Means of scores",
}
_TEST_NAMES = {"spearman": "Spearman's correlation", "t-test": "Student's t-test", "anova": "ANOVA"}
_MODEL_NAMES = {
    "linear": "a linear model",
    "logistic": "a logistic model",
    "ancova": "an analysis of covariance",
    "design": "the same design",
}


@dataclass(frozen=True, repr=False)
class Association(Shown):
    """MCPCs tested against a covariate of contexts.

    Attributes
    ----------
    table : DataFrame (one row per MCPC)
        For each test its statistic and p-value ("spearman", "spearman_p", ...); "p", the largest of these p-values;
        "bonferroni" and "fdr", corrected for the number of MCPCs; "significant". With rows also "adjusted_coefficient"
        and "adjusted_p" in the model that includes PC means, and "beyond_pca". In a design, the term of interest:
        "effect" with its interval, "lower" and "upper", where the term is one number; "partial F"; "r2", the share of
        variance that it explains beside confounders and blocks; "p".
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
    effects : DataFrame or None
        In a design, all of its terms: a row for each MCPC and each column of the design ("mcpc", "term", "column") with
        "effect", "lower", "upper", and the "partial F", "p", "bonferroni" and "fdr" of its term. None without a design.
    how : str or None
        How a design was tested, in words.
    notes : tuple of str
        What else there is to say about a design.
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
    effects: Any | None = None
    how: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def significant(self) -> list[str]:
        """MCPCs that are significant after correction."""
        return names_where(self.table, "significant")

    @property
    def beyond_pca(self) -> list[str] | None:
        """Those of them that PCA does not show; None if there were no rows to compute PCs from."""
        return None if self.pc_sds is None else names_where(self.table, "beyond_pca")

    def plot(self, components: Any = None) -> Figure:
        """Draw the p-values of overall PCs, with those of MCPCs as lines: the paper's Fig. 3J. It needs rows.

        ``mcpca.plotting.plot_pc_p_values`` has options, and ``plot_covariate`` draws the loadings themselves.
        """
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_pc_p_values

        return cast("Figure", plot_pc_p_values(self, components).figure)

    def _words(self) -> list[str]:
        """Say what is significant, and which of it is beyond PCA."""
        how = self.how or "by " + " and ".join(_TEST_NAMES[test] for test in self.tests)
        significant = self.significant
        n_mcpcs = len(self.table)
        words = [
            f"{QUANTITIES[self.of]} of {n_mcpcs} MCPCs in {self.n_contexts} contexts against {self.covariate}, "
            f"{how}, at level {self.alpha:g}: {', '.join(significant) or 'nothing'} {_is_or_are(significant)} "
            "significant after correction.",
        ]
        if self.loadings is not None:
            words.append(f"These are {self.loadings}.")
        words.extend(self.notes)
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
        significant_pcs = names_where(control, "significant")
        verdict = f"{listed(significant_pcs)} {_is_or_are(significant_pcs)}" if significant_pcs else "none is"
        words.append(f"Of the {what} of {len(control)} overall PCs {verdict} significant.")
        if significant:
            if control["p"].notna().any():
                smallest = control["p"].min()
                words.append(f"Their smallest p-value is that of {control['p'].idxmin()}, p = {smallest:.2g}.")
            in_model = names_where(self.pc_means, "in_model")
            means = f"with the mean{'s' if len(in_model) > 1 else ''} of {listed(in_model)}"
            adjusted = ", ".join(f"{name} p = {self.table.loc[name, 'adjusted_p']:.2g}" for name in significant)
            words.append(f"In {_MODEL_NAMES[str(self.model)]} {means if in_model else 'without PC means'}: {adjusted}.")
            words.append(f"Beyond PCA: {', '.join(self.beyond_pca or []) or 'none'}.")
        return words

    def _rows(self) -> dict[str, Any]:
        columns = ["effect", "lower", "upper"] if "effect" in self.table else []
        columns += ["p", "bonferroni", "fdr", "significant"]
        if self.beyond_pca is not None:
            columns.append("beyond_pca")
        return {"": list(self.table.index), **{name: list(self.table[name]) for name in columns}}


def names_where(table: Any, column: str) -> list[str]:
    return [str(name) for name in table.index[table[column]]]


def _is_or_are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"
