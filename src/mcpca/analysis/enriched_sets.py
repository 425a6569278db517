"""Which sets of features are enriched at the poles of an MCPC: over-representation, ranks, or Enrichr.

Scores come from ``features.scores_table``, sets from ``gene_sets.membership``; the table goes to the user and to
``describe``. The paper's analysis is ``method="enrichr"`` with 200 features at each pole.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.stats import hypergeom, norm, rankdata

from .._utils.arguments import check_integer, refuse_without_effect
from .._utils.optional import require
from .._utils.progress import shown
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import listed, quoted
from ..poles import poles
from ._tables import ANALYSIS_EXTRA, chosen_components, false_discoveries, pandas
from .features import scores_table
from .gene_sets import Membership, membership

ENRICHMENT_METHODS = ("over-representation", "ranked", "enrichr")
_POLES = ("positive", "negative")
_ENRICHR_COLUMNS = ["component", "pole", "collection", "set", "size", "overlap", "odds_ratio", "p", "q", "features"]


@shown("enrichment")
def enrichment(
    source: Any,
    sets: Any,
    *,
    method: Literal["over-representation", "ranked", "enrichr"] = "over-representation",
    n: int = 200,
    components: Any = None,
    background: Sequence[Any] | int | None = None,
    min_size: int = 3,
    max_size: int | None = None,
    by: Literal["components", "projection"] = "components",
    pca: Any = None,
    names: str | Sequence[Any] | None = None,
    organism: str = "human",
    key: str = "mcpca",
) -> Any:
    """Test which sets of features are enriched at each pole of MCPCs.

    Parameters
    ----------
    source : MCPCA, Pipeline, AnnData, or DataFrame (p, r) of ``feature_scores``
    sets : dict {name: members}; path of a GMT file; several paths; dict {collection: either}
        With ``method="enrichr"`` the names of Enrichr's libraries ("GO_Biological_Process_2023"), one or several.
    method : {"over-representation", "ranked", "enrichr"}
        - "over-representation": how many of the ``n`` features at a pole are in the set. By chance that number is
          hypergeometric: ``p = P(x >= overlap)`` if n of N features are drawn and the set has K among them.
        - "ranked": whether the scores of the set are larger (smaller, for the negative pole) than those of all other
          features, by the Wilcoxon-Mann-Whitney test in its normal approximation, corrected for ties; "auc" is the
          probability that a feature of the set is above one outside. It does not depend on n.
        - "enrichr": as in the paper; the ``n`` features at a pole are sent to Enrichr by GSEApy. Needs the network.
    n : int
        Number of features at each pole; the paper takes 200.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    background : sequence of names, or int, optional
        The features that count; others are left out before the poles are taken. By default all features of the fit,
        which is the right choice: a set is enriched compared with what could have been found. For over-representation
        also a number N of genes in all: the features then count as drawn from N, and a set has all of its members,
        measured or not. Enrichr does this with N = 20,000, and so does the paper; a fit on selected genes then finds
        whatever they were selected for.
    min_size, max_size : int
        Sets with fewer or more members among the features are left out.
    by, pca, names, key
        As for ``feature_scores``.
    organism : str
        For Enrichr.

    Returns
    -------
    DataFrame
        One row for each MCPC, pole and set, the most significant first: "component", "pole", "collection", "set",
        "size" (K: its members among the features, or all of them if ``background`` is a number), then "overlap",
        "expected", "fold" (their ratio) or "auc", "z"; "p", "q" (Benjamini and Hochberg over the sets of one pole and
        one collection, as Enrichr does; the paper requires q < 0.001) and "features", the members at the pole. Enrichr
        has "odds_ratio" instead of "expected" and "fold".

    Notes
    -----
    Both tests assume that features are independent. Genes of a set are correlated, so p-values are too small for a set
    that is one block of co-expressed genes; that there is such a block at the pole is often the question. Cost
    O(r (p log p + entries of the sets)).
    """
    if method not in ENRICHMENT_METHODS:
        raise ValueError(f"method={method!r} is unknown; choose one of {list(ENRICHMENT_METHODS)}.")
    n = check_integer(n, "n", 1)
    table = scores_table(source, by=by, pca=pca, names=names, key=key)
    # None: the features of the fit are the population.
    population = None
    # A number is the size of a population, names are a restriction of the features.
    if isinstance(background, numbers.Number):
        population = _population(background, method, len(table))
    elif background is not None:
        table = _restricted(table, background)
    chosen = chosen_components(components, list(table.columns))
    if method == "enrichr":
        for name, size, default in (("min_size", min_size, 3), ("max_size", max_size, None)):
            refuse_without_effect(name, size, default, "Enrichr takes its sets as they are", "drop it")
        return _enrichr(table, chosen, sets, n, organism, background)
    why = f"method={method!r} asks no server"
    refuse_without_effect("organism", organism, "human", why, "drop it, or pass method='enrichr'")
    member = membership(sets, list(table.index), min_size, max_size)
    if population is not None:
        _check_population(population, member, len(table))
    if 2 * n > len(table) and method == "over-representation":
        raise ValueError(
            f"n={n} features at each of two poles, but there are {len(table)}; n <= {len(table) // 2} is needed. Lower "
            "n, or take method='ranked'."
        )
    values = table.to_numpy()
    features = np.asarray(table.index, dtype=object)
    # K of the hypergeometric distribution must be counted in the same population as N.
    sizes = member.sizes if population is None else member.totals
    parts = []
    for j in chosen:
        ends = poles(values, list(table.index), j, n)
        # Once for both poles: the negative one is the other tail of the same test.
        ranks = rankdata(values[:, j]) if method == "ranked" else None
        for pole, end in zip(_POLES, (ends.positive, ends.negative), strict=True):
            if ranks is None:
                at_pole = np.zeros(len(features))
                at_pole[end.indices] = 1
                columns = _over_represented(member, at_pole, population)
            else:
                columns = _ranked(member, ranks, 1 if pole == "positive" else -1)
            names_at_pole = _members_at_pole(member, end.indices, features)
            parts.append(_as_table(table.columns[j], pole, member, sizes, columns, names_at_pole))
    return pandas().concat(parts, ignore_index=True)


def _over_represented(member: Membership, at_pole: Array, population: int | None) -> dict[str, Any]:
    """Count the members of each set at a pole, an indicator (N,), and compare with the hypergeometric distribution."""
    # member.matrix (s, N); fewer than n where fewer features have that sign.
    n_drawn = int(at_pole.sum())
    N = len(at_pole) if population is None else population
    sizes = member.sizes if population is None else member.totals
    # Sums of ones in floating point, which are whole numbers.
    overlap = np.rint(member.matrix @ at_pole).astype(np.int64)
    expected = sizes * n_drawn / N
    p = hypergeom.sf(overlap - 1, N, sizes, n_drawn)  # P(x > overlap - 1) = P(x >= overlap)
    fold = overlap / np.where(expected > 0, expected, 1)
    return {"overlap": overlap, "expected": expected, "fold": fold, "p": np.asarray(p)}


def _ranked(member: Membership, ranks: Array, sign: int) -> dict[str, Any]:
    """Compare the ranks (N,) of scores in each set with those outside; ``sign`` 1 tests whether they are larger."""
    # member.matrix (s, N), sizes, U and z (s,)
    N = len(ranks)
    sizes = member.sizes.astype(np.float64)
    pairs = sizes * (N - sizes)
    # Mann and Whitney's U, the number of pairs (inside, outside) in which the score inside is larger: the sum of ranks
    # less its smallest value. Its variance without a difference is pairs (N + 1) / 12, less for ties.
    U = member.matrix @ ranks - sizes * (sizes + 1) / 2
    ties = np.unique(ranks, return_counts=True)[1].astype(np.float64)
    variance = pairs / 12 * (N + 1 - (ties**3 - ties).sum() / (N * (N - 1)))
    # Without variance (a set of all features, or equal scores) U equals its expectation, and z is 0.
    z = (U - pairs / 2) / np.sqrt(np.where(variance > 0, variance, 1))
    # U over the number of pairs estimates P(inside > outside), with ties counted as half.
    auc = np.where(pairs > 0, U / np.where(pairs > 0, pairs, 1), 0.5)
    return {"auc": auc, "z": z, "p": norm.sf(sign * z)}


def _members_at_pole(member: Membership, indices: Array, features: Array) -> list[str]:
    """Return for each set its members at a pole, the strongest first, between semicolons.

    ``indices`` are the features at the pole in this order, so sorted columns of the matrix are too.
    """
    # (s, features at the pole), its columns in the order of their strength
    at_pole = member.matrix[:, indices].tocsr()
    at_pole.sort_indices()
    # CSR keeps the column numbers of each row, here a set, one after the other.
    by_set = np.split(at_pole.indices, at_pole.indptr[1:-1])
    return [";".join(features[indices[places]]) for places in by_set]


def _as_table(
    component: str, pole: str, member: Membership, sizes: Array, columns: dict[str, Any], features: list[str]
) -> Any:
    table = pandas().DataFrame(
        {
            "component": component,
            "pole": pole,
            "collection": member.collections,
            "set": member.names,
            "size": sizes,
            **columns,
        }
    )
    table["q"] = table.groupby("collection")["p"].transform(lambda p: false_discoveries(p.to_numpy()))
    # In the order of the sets, and so before sorting.
    table["features"] = features
    return table.sort_values(["p", "collection", "set"], kind="stable")


def _restricted(table: Any, background: Any) -> Any:
    """Return the scores of the features that ``background`` names."""
    if isinstance(background, str):
        raise TypeError(f"background={background!r} is a str; pass the names of the features that count.")
    # Before poles are taken, so that each pole has n features of the background.
    restricted = table[table.index.isin([str(name) for name in background])]
    if not len(restricted):
        raise ValueError(f"background names none of the features, which are {quoted(table.index, 3)}; use these names.")
    return restricted


def _population(background: Any, method: str, p: int) -> int:
    """Return the number N of genes in all, at least as many as the p features."""
    if method != "over-representation":
        why = "compares features of the fit alone" if method == "ranked" else "uses Enrichr's own 20,000"
        raise ValueError(
            f"background={background!r} is a number, which has no effect: method={method!r} {why}. Drop it, pass "
            "names, or take method='over-representation'."
        )
    return check_integer(background, "background", p, way_out=f"It counts the {p} features of the fit as well.")


def _check_population(population: int, member: Membership, p: int) -> None:
    """Raise if the population has no room for the p features and the members of a set that are not among them."""
    # N must hold every feature and every member of a set, measured or not.
    outside = member.totals - member.sizes
    worst = int(np.argmax(outside))
    if p + outside[worst] > population:
        raise ValueError(
            f"background={population} is too few: {p} features of the fit, and {outside[worst]} members of the set "
            f"{member.names[worst]!r} that are not among them; pass {p + outside[worst]} or more, or drop that set."
        )


# Enrichr


def _enrichr(table: Any, chosen: list[int], libraries: Any, n: int, organism: str, background: Any) -> Any:
    """Return the table of ``enrichment`` with what Enrichr's server answers for each pole."""
    names = [libraries] if isinstance(libraries, str) else libraries
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise TypeError("sets must name libraries of Enrichr with method='enrichr', such as 'MSigDB_Hallmark_2020'.")
    gseapy = require("gseapy", ANALYSIS_EXTRA)
    parts = []
    for j in chosen:
        ends = poles(table.to_numpy(), list(table.index), j, n)
        for pole, end in zip(_POLES, (ends.positive, ends.negative), strict=True):
            try:
                answer = gseapy.enrichr(
                    gene_list=list(end.names),
                    gene_sets=list(names),
                    organism=organism,
                    # The table has been restricted to the background by now.
                    background=None if background is None else list(table.index),
                    outdir=None,
                    no_plot=True,
                    verbose=False,
                ).results
            except Exception as error:  # GSEApy raises bare Exceptions, whatever went wrong
                raise ConnectionError(
                    f"Enrichr gave no answer for {table.columns[j]} ({type(error).__name__}: {error}). It needs the "
                    "network, and libraries that it knows; offline, pass GMT files and another method."
                ) from error
            # GSEApy gives an empty list where no library has a set with one of the features.
            if len(answer):
                parts.append(_enrichr_table(answer, table.columns[j], pole))
    results = pandas().concat(parts, ignore_index=True) if parts else pandas().DataFrame(columns=_ENRICHR_COLUMNS)
    empty = [name for name in names if name not in set(results["collection"])]
    if empty:
        warn(
            f"Enrichr has nothing for {listed(empty)}: either it has no library of that name, or none of the features "
            "is in it.",
        )
    return results


def _enrichr_table(answer: Any, component: str, pole: str) -> Any:
    """Return an answer of Enrichr in our columns."""
    genes = answer["Genes"].astype(str)
    # "3/200" is the overlap and the size of the set. With a background Enrichr returns neither: the overlap is then
    # counted, and the size is not known.
    overlap = answer["Overlap"].astype(str).str.split("/") if "Overlap" in answer else None
    results = pandas().DataFrame(
        {
            "component": component,
            "pole": pole,
            "collection": answer["Gene_set"],
            "set": answer["Term"],
            "size": np.nan if overlap is None else overlap.str[1].astype(int),
            "overlap": genes.str.split(";").str.len() if overlap is None else overlap.str[0].astype(int),
            "odds_ratio": answer["Odds Ratio"],
            "p": answer["P-value"],
            "q": answer["Adjusted P-value"],
            "features": genes,
        }
    )
    return results.sort_values(["p", "collection", "set"], kind="stable")
