"""Is an MCPC visible to PCA? The PCs of all rows and of each context that come closest to it, by three measures.

The comparison of the paper's Fig. 4E-F. PCs come from ``_rows.FittedRows``; each set of rows (all, a context, a group
of contexts) costs one PCA and one pass to project every row on its PCs. The best of many PCs is similar to anything, so
that it stands beside the best by chance, from ``_random_axes``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from .._model.compared import AS_FITTED
from .._results.context_tests import rank_correlations
from .._results.context_values import ContextValues, context_values
from .._utils.arguments import NOT_GIVEN, as_generator, check_integer, one_random_state
from .._utils.printing import NAMED, Shown, counted, span
from .._utils.progress import shown
from .._utils.wording import listed
from ._random_axes import Best, by_chance, p_of_best
from ._rows import FittedRows, read_rows
from ._tables import chosen_components, pandas
from ._tails import ends, members

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERALL = "all rows"
MEASURES = Best._fields
_LEVEL = 0.05  # of what the summary names


@dataclass(frozen=True, repr=False)
class PCAComparison(Shown):
    """MCPCs compared with PCs.

    Attributes
    ----------
    best : DataFrame
        For each MCPC and each set of rows ("rows": "all rows", a context or a group) the best PC by each of three
        measures: "cosine" and its "cosine_pc", "variance_correlation" and "variance_correlation_pc", "overlap" and
        "overlap_pc". Beside each the mean of the best by chance, "cosine_chance", and "cosine_p", the chance of a best
        as high as that of the MCPC; the same for the other two.
    pairs : DataFrame
        The same three numbers for each MCPC and each PC, with "pc" from 1: the points of the paper's Fig. 4E-F.
    n_top : int
        Rows at each end that "overlap" counts.
    n_random : int
        Random axes, and exchanges of loadings, that chance was found from.
    loadings : str
        Which loadings "variance_correlation" is about, in words.
    """

    best: Any
    pairs: Any
    n_top: int
    n_random: int = 0
    loadings: str = AS_FITTED

    def plot(self, component: Any = 0) -> Figure:
        """Draw every PC compared with one MCPC, by overlap and correlation of variances: the paper's Fig. 4E-F."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_pca_comparison

        return cast("Figure", plot_pca_comparison(self, component).figure)

    def _words(self) -> list[str]:
        overall = self._overall()
        n_sets = self.best["rows"].nunique() - 1  # but for all rows
        words = [
            f"{counted(len(overall), 'MCPC')} compared with the PCs of all rows and of {counted(n_sets, 'other set')} "
            "of rows.",
            f"The best PC of all rows has |cos| {span(overall['cosine'], '.2f')}, variances correlated by "
            f"{span(overall['variance_correlation'], '.2f')}, and {span(overall['overlap'], '.0%')} of the "
            f"{self.n_top} rows at an end.",
        ]
        words.append(f"Variances are compared with {self.loadings}.")
        if self.n_random:
            n_pcs = int(self.pairs.loc[self.pairs["rows"] == OVERALL, "pc"].max())
            seen = [str(name) for name in overall["component"][overall["cosine_p"] < _LEVEL]]
            words.append(
                f"By chance the best of {n_pcs} has |cos| {span(overall['cosine_chance'], '.2f')} with a random axis, "
                f"variances correlated by {span(overall['variance_correlation_chance'], '.2f')} if contexts exchange "
                f"loadings, and {span(overall['overlap_chance'], '.0%')} of the rows at an end of a random axis."
            )
            words.append(f"Closer to a PC than 95% of random axes: {listed(seen, NAMED)}.")
        return words

    def _rows(self) -> dict[str, Any]:
        overall = self._overall()
        columns = ["cosine", "cosine_pc", "cosine_chance", "cosine_p", "variance_correlation", "overlap"]
        columns = [name for name in columns if name in overall]
        return {"": list(overall["component"]), **{name: list(overall[name]) for name in columns}}

    def _overall(self) -> Any:
        return self.best[self.best["rows"] == OVERALL]


@shown("comparison with PCA")
def compare_with_pca(
    source: Any,
    *,
    corrected: bool = True,
    X: Any = None,
    y: Any = None,
    groups: Any = None,
    components: Any = None,
    n_pcs: int = 50,
    n_top: int = 200,
    n_random: int = 199,
    random_state: Any = NOT_GIVEN,
    rng: Any = NOT_GIVEN,
    key: str = "mcpca",
    by: Literal["components", "projection"] = "components",
) -> PCAComparison:
    """Compare each MCPC with the PCs of all rows together and with those of each context.

    Three measures of similarity, each 1 for a PC that equals the MCPC: the paper's evidence that PCA does not show an
    MCPC (Fig. 4E-F).

    - "cosine": ``|a_j^T v|`` of the MCPC, or of its projection (``by``), and the PC's axis;
    - "variance_correlation": Spearman's correlation over contexts of the variance along the PC, ``v^T S_i v``, with the
      loadings b_ij;
    - "overlap": the share of the ``n_top`` rows with the highest (or lowest) MCPC scores that are also among the
      ``n_top`` at one end of the PC. The best of the two poles and the two signs of the PC counts, which favours PCA.

    The best of 50 PCs is high by any of these for whatever is compared with them, so it stands beside chance: the best
    of the same PCs for random axes, in place of the MCPC, that lie where rows vary (random mixtures of rows, less the
    means of their contexts), for "cosine" and "overlap"; and for loadings that contexts have exchanged at random, for
    "variance_correlation". PCA shows an MCPC if it is above chance. One that is not is as far from all PCs as an axis
    that was drawn by lot.

    Parameters
    ----------
    source : MCPCA, Pipeline or AnnData
        A fitted model, or a Pipeline that ends in one, with the rows in ``X`` and ``y``; or an AnnData with a fit,
        which brings its own rows.
    corrected : bool
        Whether to take the noise of each context out of its loadings, for "variance_correlation". The variances along
        PCs have it in them. With False, and a fit without noise, both have it, and it correlates.
    X, y : optional
        Rows of the fitted contexts, in any form that ``fit`` takes except Dask.
    groups : dict or Series {context: group}, array-like (k,), or str, optional
        Compute PCA for each group of contexts (all science, all fiction) instead of each context. Contexts with a
        missing value are in no group.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    n_pcs : int
        Number of PCs of each set of rows, or as many as it has.
    n_top : int
        Number of rows at each end.
    n_random : int
        Number of random axes and of exchanges of loadings: p-values are at least 1 / (n_random + 1). 0 leaves chance
        out of the result.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        For these; by default 0.
    key : str
        Name of the fit in an AnnData.
    by : {"components", "projection"}
        What "cosine" compares with PCs: the MCPC itself, a_j; or the direction along which its scores are measured, the
        j-th row of ``pinv(A)``, as the authors' code does. They are the same for orthonormal MCPCs.

    Returns
    -------
    PCAComparison

    Notes
    -----
    Cost O(n p n_pcs) for each set of rows: with many contexts, group them. Chance costs O(n p n_random) once, and
    O(n_random n_pcs (n_top + k r)) for each set. PCs of more than 100,000 rows are those of a random sample, and so are
    random axes. Sets of two rows or fewer, which have one PC at most, are left out.

    "cosine_p", "variance_correlation_p" and "overlap_p" are ``(1 + number as high by chance) / (1 + n_random)``, for
    the best of all PCs, of one MCPC, and are not corrected for the number of MCPCs.
    """
    pd = pandas()
    n_pcs = check_integer(n_pcs, "n_pcs", 1)
    n_top = check_integer(n_top, "n_top", 1)
    n_random = check_integer(n_random, "n_random", 0)
    rng = as_generator(one_random_state(rng, random_state, 0))
    if by not in ("components", "projection"):
        raise ValueError(f"by={by!r} is unknown; choose 'components' or 'projection'.")
    rows = read_rows(source, key, X, y)
    fit = rows.fit
    chosen = chosen_components(components, fit.names)
    # Only rows of fitted contexts compete for the ends.
    member = np.flatnonzero(rows.codes >= 0)
    if 2 * n_top > len(member):
        raise ValueError(
            f"n_top={n_top} rows at each of two ends, but there are {len(member)}; n_top <= {len(member) // 2}."
        )
    sets: dict[str, list[int] | None] = {OVERALL: None, **_sets_of_contexts(source, key, rows, groups)}
    A = rows.components if by == "components" else _projection_directions(rows)
    A = A[:, chosen]
    loadings = fit.compared(corrected)
    B = loadings.values[:, chosen]
    # Not centred: a shift of a whole column does not change which rows are at its ends.
    Z = rows.scores()[member][:, chosen]
    # Indicators (N, MCPCs) of the rows at either pole, computed once for all sets of rows.
    is_high, is_low = (members(end, len(member)) for end in ends(Z, n_top))
    counts = np.bincount(rows.codes[member], minlength=len(fit.contexts))
    has_variance = counts > 1  # contexts of a single row have none
    chance = by_chance(rows, member, B[has_variance], n_top, n_random, rng, n_pcs) if n_random else None
    parts = []
    best = []
    for name, among in sets.items():
        # V (q, PCs) from the rows of this set alone, but all rows are projected on it.
        V = rows.principal_directions(n_pcs, among).vectors
        scores = rows.project(V)
        variances = rows.moments(scores)[1][has_variance]  # (k, PCs): of every context along every PC
        pc_tails = ends(scores[member], n_top)
        # For each end of the PCs and each pole of the MCPCs the number of rows in common, (PCs, MCPCs): indexing
        # ``inside`` (N, MCPCs) with ``end`` (n_top, PCs) and summing over the rows counts all pairs at once.
        shared = [inside[end].sum(axis=0) for end in pc_tails for inside in (is_high, is_low)]
        cosines = np.minimum(np.abs(V.T @ A), 1)  # rounding may exceed 1
        found = Best(cosines, rank_correlations(variances, B[has_variance]), np.max(shared, axis=0) / n_top)
        null = None if chance is None else chance.best(V, variances, pc_tails, len(member))
        pc = np.arange(1, V.shape[1] + 1)
        for column, j in enumerate(chosen):
            own = Best(*(values[:, column] for values in found))
            # Long format: one frame for each MCPC and set, with a row for each PC.
            about = {"component": fit.names[j], "rows": name}
            parts.append((column, pd.DataFrame({**about, "pc": pc, **own._asdict()})))
            best.append((column, about | _best(own, None if null is None else _of_column(null, column))))
    # By MCPC, and within each in the order of the sets: sorting keeps it.
    pairs = pd.concat([part for _, part in sorted(parts, key=_first)], ignore_index=True)
    table = pd.DataFrame([record for _, record in sorted(best, key=_first)])
    return PCAComparison(table, pairs, n_top, n_random, loadings.words)


def _projection_directions(rows: FittedRows) -> Any:
    """Return the rows of ``pinv(A)`` as columns of unit length (q, r)."""
    W = rows.space.projection.T
    return W / np.linalg.norm(W, axis=0)


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _of_column(null: Best, column: int) -> Best:
    """Return chance for one MCPC: random axes are the same for all, exchanged loadings its own."""
    return null._replace(variance_correlation=null.variance_correlation[:, column])


def _sets_of_contexts(source: Any, key: str, rows: FittedRows, groups: Any) -> dict[str, list[int] | None]:
    """Return the positions of the contexts of each set of rows, by its name: a group, or each context by itself."""
    contexts = rows.fit.contexts
    group_of: list[str | None] = list(contexts)
    if groups is not None:
        read = context_values(groups, contexts, "groups", source=source, key=key, missing="drop")
        group_of = [
            None if missing else _group_name(value, read)
            for value, missing in zip(read.values, read.missing, strict=True)
        ]
    sets: dict[str, list[int] | None] = {}
    counts = np.bincount(rows.codes[rows.codes >= 0], minlength=len(contexts))
    for group in dict.fromkeys(name for name in group_of if name is not None):
        among = [i for i, name in enumerate(group_of) if name == group and counts[i] > 0]
        # Two rows or fewer have at most one PC, which says nothing.
        if counts[among].sum() > 2:
            # A context may be called "all rows" too.
            sets[group if group != OVERALL else f"{group} (context)"] = among
    return sets


def _group_name(value: Any, read: ContextValues) -> str:
    """Return what a group is called: its category, a date without its time of day, or a number."""
    if read.kind == "category":
        return str(read.categories[value])
    return str(value)[:10] if isinstance(value, np.datetime64) else f"{value:g}"


def _best(own: Best, null: Best | None) -> dict[str, float]:
    """Return the best PC by each measure (PCs,), the first where a measure is NaN, and what chance (B,) says of it."""
    record: dict[str, float] = {}
    for measure in MEASURES:
        values = getattr(own, measure)
        # nanargmax refuses nothing but NaN.
        best = int(np.nanargmax(values)) if np.isfinite(values).any() else 0
        record |= {measure: float(values[best]), f"{measure}_pc": best + 1}
        if null is not None:
            by_luck = getattr(null, measure)
            record |= {f"{measure}_chance": float(by_luck.mean()), f"{measure}_p": p_of_best(values[best], by_luck)}
    return record
