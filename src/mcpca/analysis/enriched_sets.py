"""Which sets of features gather at the poles of an MCPC: over-representation, ranks, or Enrichr."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.stats import hypergeom, norm, rankdata

from .._utils.arguments import check_integer, refuse_without_effect
from .._utils.optional import require
from .._utils.progress import shown
from .._utils.types import Array
from ..poles import poles
from ._tables import EXTRA, chosen_components, false_discoveries, pandas
from .features import scores_table
from .gene_sets import Membership, membership

METHODS = ("over-representation", "ranked", "enrichr")
_POLES = ("positive", "negative")
_OF_ENRICHR = ["component", "pole", "collection", "set", "size", "overlap", "odds_ratio", "p", "q", "features"]


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
        - "over-representation": of the ``n`` features at a pole, how many are in the set. By chance their number is
          hypergeometric: ``p = P(x >= overlap)`` when n of N features are drawn and the set has K among them.
        - "ranked": whether the scores of the set are larger (smaller, for the negative pole) than those of all other
          features, by the Wilcoxon-Mann-Whitney test in its normal approximation, with correction for ties; "auc" is
          the chance that a feature of the set is above one outside. No cut at n is needed.
        - "enrichr": the paper's, the ``n`` features at a pole sent to Enrichr by GSEApy. Needs the network.
    n : int
        Features at each pole; the paper's 200.
    components : int, str or sequence of them, optional
        MCPCs by column (0 is MCPC 1) or name; by default all.
    background : sequence of names, or int, optional
        The features that count; others are left out before the poles are taken. By default all features of the fit,
        which is the right choice: a set is enriched against what could have been found. A number N, for
        over-representation, is how many genes there are in all: the features count as drawn from N, and a set has all
        of its members, measured or not. Enrichr computes so with N = 20,000, and the paper with it; a fit on genes that
        were selected then finds whatever they were selected for.
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
        "size" (K: its members among the features, or all of them where ``background`` is a number), then "overlap",
        "expected", "fold" (their ratio) or "auc", "z"; "p", "q" (Benjamini and Hochberg over the sets of one pole and
        one collection, as Enrichr does; the paper asks for q < 0.001) and "features", the members at the pole. Enrichr
        tells "odds_ratio" in place of "expected" and "fold".

    Notes
    -----
    Both tests take features as independent. Genes of a set are correlated, so p-values are too small where a set is
    one block of genes that go together; the poles say that there is such a block, which is often the question. Cost
    O(r (p log p + entries of the sets)).
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is unknown; choose one of {list(METHODS)}.")
    n = check_integer(n, "n", 1)
    table = scores_table(source, by=by, pca=pca, names=names, key=key)
    population = None
    if isinstance(background, numbers.Number):
        population = _population(background, method, len(table))
    elif background is not None:
        table = _restricted(table, background)
    chosen = chosen_components(components, list(table.columns))
    if method != "enrichr":
        why, way_out = f"method={method!r} asks no server", "drop it, or pass method='enrichr'"
        refuse_without_effect("organism", organism, "human", why, way_out)
    else:
        for name, size, default in (("min_size", min_size, 3), ("max_size", max_size, None)):
            refuse_without_effect(name, size, default, "Enrichr takes its sets as they are", "drop it")
    if method == "enrichr":
        return _enrichr(table, chosen, sets, n, organism, background)
    member = membership(sets, list(table.index), min_size, max_size)
    if population is not None:
        _check_population(population, member, len(table))
    if 2 * n > len(table) and method == "over-representation":
        raise ValueError(
            f"n={n} features at each of two poles, but there are {len(table)}; n <= {len(table) // 2} is needed. Lower "
            "n, or take method='ranked'."
        )
    values, features = table.to_numpy(), np.asarray(table.index, dtype=object)
    parts = []
    for j in chosen:
        ends = poles(values, list(table.index), j, n)
        ranks = rankdata(values[:, j]) if method == "ranked" else None
        for pole, end in zip(_POLES, (ends.positive, ends.negative), strict=True):
            inside = np.zeros(len(features))
            inside[end.indices] = 1
            found: dict[str, Any] = (
                _over_represented(member, inside, population)
                if ranks is None
                else _ranked(member, ranks, 1 if pole == "positive" else -1)
            )
            found["features"] = _members(member, end.indices, features)
            sizes = member.sizes if population is None else member.totals
            parts.append(_as_table(table.columns[j], pole, member, sizes, found))
    return pandas().concat(parts, ignore_index=True)


def _over_represented(member: Membership, inside: Array, population: int | None) -> dict[str, Any]:
    drawn = int(inside.sum())
    N, sizes = (len(inside), member.sizes) if population is None else (population, member.totals)
    overlap = np.rint(member.matrix @ inside).astype(np.int64)
    expected = sizes * drawn / N
    p = hypergeom.sf(overlap - 1, N, sizes, drawn)
    fold = overlap / np.where(expected > 0, expected, 1)
    return {"overlap": overlap, "expected": expected, "fold": fold, "p": np.asarray(p)}


def _ranked(member: Membership, ranks: Array, sign: int) -> dict[str, Any]:
    """Compare the ranks (N,) of scores in each set with those outside; ``sign`` 1 asks whether they are larger."""
    N, sizes = len(ranks), member.sizes.astype(np.float64)
    pairs = sizes * (N - sizes)
    U = member.matrix @ ranks - sizes * (sizes + 1) / 2
    ties = np.unique(ranks, return_counts=True)[1].astype(np.float64)
    variance = pairs / 12 * (N + 1 - (ties**3 - ties).sum() / (N * (N - 1)))
    # Without variance (a set of all features, or equal scores) U is what is expected, and z is 0.
    z = (U - pairs / 2) / np.sqrt(np.where(variance > 0, variance, 1))
    auc = np.where(pairs > 0, U / np.where(pairs > 0, pairs, 1), 0.5)
    return {"auc": auc, "z": z, "p": norm.sf(sign * z)}


def _members(member: Membership, indices: Array, features: Array) -> list[str]:
    """Return the features at a pole that are in each set, the strongest first, between semicolons."""
    at_pole = member.matrix[:, indices].tocsr()
    at_pole.sort_indices()
    parts = np.split(at_pole.indices, at_pole.indptr[1:-1])
    return [";".join(features[indices[own]]) for own in parts]


def _as_table(component: str, pole: str, member: Membership, sizes: Array, found: dict[str, Any]) -> Any:
    features = found.pop("features")
    table = pandas().DataFrame(
        {
            "component": component,
            "pole": pole,
            "collection": member.collections,
            "set": member.names,
            "size": sizes,
            **found,
        }
    )
    table["q"] = table.groupby("collection")["p"].transform(lambda p: false_discoveries(p.to_numpy()))
    table["features"] = features
    return table.sort_values(["p", "collection", "set"], kind="stable")


def _restricted(table: Any, background: Any) -> Any:
    if isinstance(background, str):
        raise TypeError(f"background={background!r} is a str; pass the names of the features that count.")
    kept = table[table.index.isin([str(name) for name in background])]
    if not len(kept):
        raise ValueError(
            f"background names none of the features, which are {list(table.index[:3])}; use the same names."
        )
    return kept


def _population(background: Any, method: str, p: int) -> int:
    if method != "over-representation":
        why = "compares features of the fit alone" if method == "ranked" else "has Enrichr's own 20,000 without one"
        raise ValueError(
            f"background={background!r} is a number, which has no effect: method={method!r} {why}. Drop it, pass "
            "names, or take method='over-representation'."
        )
    return check_integer(background, "background", p, way_out=f"It counts the {p} features of the fit as well.")


def _check_population(population: int, member: Membership, p: int) -> None:
    """Raise where a set has more members that are no features than there are others in the population."""
    outside = member.totals - member.sizes
    at = int(np.argmax(outside))
    if p + outside[at] > population:
        raise ValueError(
            f"background={population} is too few: {p} features of the fit, and {outside[at]} members of the set "
            f"{member.names[at]!r} that are none; pass {p + outside[at]} or more, or leave that set out."
        )


# Enrichr


def _enrichr(table: Any, chosen: list[int], libraries: Any, n: int, organism: str, background: Any) -> Any:
    names = (
        [libraries] if isinstance(libraries, str) else list(libraries) if isinstance(libraries, (list, tuple)) else []
    )
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError("sets must name libraries of Enrichr with method='enrichr', such as 'MSigDB_Hallmark_2020'.")
    gseapy = require("gseapy", EXTRA)
    parts = []
    for j in chosen:
        ends = poles(table.to_numpy(), list(table.index), j, n)
        for pole, end in zip(_POLES, (ends.positive, ends.negative), strict=True):
            try:
                answer = gseapy.enrichr(
                    gene_list=list(end.names),
                    gene_sets=names,
                    organism=organism,
                    background=None if background is None else list(table.index),
                    outdir=None,
                    no_plot=True,
                    verbose=False,
                ).results
            except Exception as error:  # GSEApy raises bare Exceptions, whatever went wrong on the way
                raise ConnectionError(
                    f"Enrichr gave no answer for {table.columns[j]} ({type(error).__name__}: {error}). It needs the "
                    "network, and libraries that it knows; offline, pass GMT files and another method."
                ) from error
            # GSEApy gives an empty list where no library has a set with one of the features.
            if len(answer):
                parts.append(_of_enrichr(answer, table.columns[j], pole))
    found = pandas().concat(parts, ignore_index=True) if parts else pandas().DataFrame(columns=_OF_ENRICHR)
    silent = [name for name in names if name not in set(found["collection"])]
    if silent:
        warnings.warn(
            f"Enrichr has nothing for {', '.join(silent)}: either it knows no library of that name, or none of the "
            "features is in it.",
            UserWarning,
            stacklevel=3,
        )
    return found


def _of_enrichr(answer: Any, component: str, pole: str) -> Any:
    """Return an answer of Enrichr in our columns."""
    genes = answer["Genes"].astype(str)
    # "3/200" is the overlap and the size of the set; with a background Enrichr tells neither.
    told = answer["Overlap"].astype(str).str.split("/") if "Overlap" in answer else None
    found = pandas().DataFrame(
        {
            "component": component,
            "pole": pole,
            "collection": answer["Gene_set"],
            "set": answer["Term"],
            "size": np.nan if told is None else told.str[1].astype(int),
            "overlap": genes.str.split(";").str.len() if told is None else told.str[0].astype(int),
            "odds_ratio": answer["Odds Ratio"],
            "p": answer["P-value"],
            "q": answer["Adjusted P-value"],
            "features": genes,
        }
    )
    return found.sort_values(["p", "collection", "set"], kind="stable")
