"""The paper's benchmark of context representations: whether contexts with known links are similar (Perturb-seq).

Contexts are described by means on overall PCs, alone or with loadings, PC standard deviations or PC variances. The most
and the least similar pairs are called, and recall is the share of known links among them. The best of several ranks is
taken, which is above the share of pairs called even if links have nothing to do with the contexts; so recall stands
beside that of the same links after contexts exchanged their names, of which the best is taken as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._utils.arguments import NOT_GIVEN, as_generator, check_integer, check_integers, check_real, one_random_state
from .._utils.progress import shown
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import quoted
from ..context_tree import context_distances
from ._rows import read_rows, same_contexts
from ._tables import pandas
from .gene_sets import read_sets

# Representations of contexts, as they are called in the table.
MEANS = "mean PCs"
LOADINGS = "mean PCs + loadings"
SDS = "mean PCs + PC sds"
VARIANCES = "mean PCs + PC variances"

_BLOCK_NUMBERS = 2**23  # permutations times links times numbers looked up at once, a byte each


def links_of_sets(sets: Any, contexts: Sequence[str], max_size: int | None = None) -> set[tuple[int, int]]:
    """Return the pairs (i, j), i < j, of contexts that are members of the same set.

    Parameters
    ----------
    sets : dict {name: members}, or the path of a GMT file
    contexts : sequence of k names
        Perturbed genes, say.
    max_size : int, optional
        Sets with more members among the contexts are left out: the paper takes 5, 10 and 20.
    """
    position = {name: i for i, name in enumerate(contexts)}
    # Each pair once, although several sets may link it.
    pairs: set[tuple[int, int]] = set()
    for members in read_sets(sets, "links").values():
        # Size is that among the contexts: members that were not perturbed make no links.
        linked = sorted({position[member] for member in members if member in position})
        if max_size is None or len(linked) <= max_size:
            pairs.update(itertools.combinations(linked, 2))
    return pairs


@shown("links")
def link_recall(
    source: Any,
    links: Any,
    *,
    corrected: bool = True,
    X: Any = None,
    y: Any = None,
    max_sizes: int | Sequence[int] | None = (5, 10, 20),
    n_pcs: int = 100,
    numbers: int | Sequence[int] | None = None,
    tail: float = 0.05,
    metric: str = "cosine",
    standardize: bool = False,
    permutations: int = 999,
    random_state: Any = NOT_GIVEN,
    rng: Any = NOT_GIVEN,
    best: bool = True,
    key: str = "mcpca",
) -> Any:
    """Measure how many known links between contexts are among the most and the least similar pairs.

    Contexts (perturbed genes) are described by (i) the mean of their rows on the overall PCs, (ii) these and their
    loadings, (iii) these and the standard deviations, or the variances, of PCs. The 5% of all pairs of contexts with
    the highest similarity and the 5% with the lowest are called; recall is the share of known links that are among
    them. One number of loadings or PCs, fixed beforehand, would have 10% by chance. The best of several, which is
    reported, has more: "chance" and "p" say how much, from contexts that exchanged their names.

    Parameters
    ----------
    source : MCPCA, Pipeline, AnnData, or sequence of them
        One fit, or several models of different ranks fitted to the same rows; the best rank is taken for each set of
        links, as in the paper.
    links : dict {collection: sets}
        For each collection a dict {name: members}, the path of a GMT file, or a sequence of pairs of contexts. Two
        contexts in one set are linked. Members that are not contexts are ignored, and there is a warning for
        collections without any link.
    corrected : bool
        Whether to take the noise of each context out of its loadings. With False, and a fit without noise, contexts
        are also similar because they have the same noise; the paper's loadings are these.
    X, y : optional
        Rows of the fitted contexts for models.
    max_sizes : int, sequence of int, or None
        Size of the largest sets that make links, counted among the contexts: each gives a row of the table. None takes
        all sets, as for REACTOME, CORUM and SIGNOR in the paper. Pairs have no size.
    n_pcs : int
        Number of overall PCs for the means, or as many as there are.
    numbers : int or sequence of int, optional
        Numbers of PC standard deviations or variances to try, of which the best is taken; by default the ranks of the
        models, so that both have the same choice. At most the number of PCs that there are.
    tail : float
        Share of pairs called at each end.
    metric : {"cosine", "correlation", "euclidean"}
        Similarity is 1 - distance.
    standardize : bool
        First centre every mean, loading or standard deviation over contexts and divide it by its standard deviation.
        The paper's text mentions no such step, and the authors' code does it twice; without it, what is added counts by
        its scale, and loadings are variances.
    permutations : int
        How many times contexts exchange their names, at random; 0 leaves chance out (NaN).
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        For permutations; by default 0.
    best : bool
        Whether to take the best number for each set of links, as the paper does. False has a row for each number, with
        the chance of that number alone; ``mcpca.plotting.plot_link_recall`` draws either.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    DataFrame
        "links", "max_size", "n_links", "features", "number" (of loadings or PCs added, the best), "tried" (how many
        numbers there were), "recall", "called" (the share of all pairs that was called: recall by chance of one
        number), "chance" and "chance_upper" (mean and 95% quantile of the best recall of permuted links), "p", and
        "loadings", which says what loadings were added and is missing where none were.

    Notes
    -----
    Permuted links have the shape of the known ones, the pairs that are called stay, and the best number is taken anew
    each time. ``p = (1 + permutations with as high a recall) / (1 + permutations)`` holds its level whatever was tried,
    for each row of the table; several rows are several tests. It does not say whether loadings find more than mean PCs
    do: for that, compare "recall" less "chance" of both.

    Cost: PCA of the rows, one pass, O(k^2 (n_pcs + r)) for each number, and O(links) for each number and permutation.
    """
    pd = pandas()
    permutations = check_integer(permutations, "permutations", 0)
    rng = as_generator(one_random_state(rng, random_state, 0))
    fits = _fits(source, key)[1]
    contexts = fits[0].contexts
    # Several fits are of one kind, unless their ranks differ in whether there is any noise: each is named once.
    which = "; ".join(dict.fromkeys(fit.compared(corrected).words for fit in fits))
    # Before the PCA, so that a mistake in the links is found at once.
    known = _known(links, contexts, max_sizes)
    called = pairs_called(
        source,
        corrected=corrected,
        X=X,
        y=y,
        n_pcs=n_pcs,
        numbers=numbers,
        tail=tail,
        metric=metric,
        standardize=standardize,
        key=key,
    )
    # The same exchanges for all links and features, so that rows of the table can be compared.
    exchanges = rng.permuted(np.tile(np.arange(len(contexts)), (permutations, 1)), axis=1)
    as_they_are = np.arange(len(contexts))[None]
    records = []
    for (collection, size), pairs in known.items():
        i, j = np.array(sorted(pairs)).T
        for name, versions in called.items():
            calls = np.stack([is_called for _, is_called in versions], axis=1)
            # Share of the known links that are called, for each number of loadings or PCs.
            recalls = recalls_of_exchanged(calls, i, j, as_they_are)[0]
            null = recalls_of_exchanged(calls, i, j, exchanges)
            about: dict[str, Any] = {"links": collection, "max_size": size, "n_links": len(pairs), "features": name}
            which_loadings = {"loadings": which if name == LOADINGS else None}
            # All numbers, of which the best is taken, or each by itself.
            for tried in [list(range(len(recalls)))] if best else [[v] for v in range(len(recalls))]:
                # The smallest number among equals.
                chosen = tried[int(np.argmax(recalls[tried]))]
                number, is_called = versions[chosen]
                found: dict[str, Any] = {"number": number, "tried": len(tried), "recall": float(recalls[chosen])}
                found |= {"called": float(is_called.mean())} | _chance(recalls[chosen], null[:, tried].max(axis=1))
                records.append(about | found | which_loadings)
    return pd.DataFrame(records)


def _chance(recall: float, null: Array) -> dict[str, float]:
    """Return mean, 95% quantile and p-value of a recall beside those by chance (B,); NaN where there are none."""
    if not len(null):
        return dict.fromkeys(("chance", "chance_upper", "p"), np.nan)
    # Both are counts over the same number of links: equal ones are equal to the last bit.
    p = float(1 + (null >= recall).sum()) / (1 + len(null))
    return {"chance": float(null.mean()), "chance_upper": float(np.quantile(null, 0.95)), "p": p}


def recalls_of_exchanged(calls: Array, i: Array, j: Array, exchanges: Array) -> Array:
    """Return the share of links that are called after contexts exchanged their names, (B, V).

    Parameters
    ----------
    calls : ndarray (k (k - 1) / 2, V) of bool
        Which pairs, in condensed order, each of V versions calls.
    i, j : ndarray (L,) of int
        Contexts that are linked.
    exchanges : ndarray (B, k) of int
        Permutations of the contexts: the link (i, j) becomes one of ``exchanges[b, i]`` and ``exchanges[b, j]``.
    """
    counts = np.empty((len(exchanges), calls.shape[1]))
    step = max(1, _BLOCK_NUMBERS // (len(i) * calls.shape[1]))
    for first in range(0, len(exchanges), step):
        places = exchanges[first : first + step]
        a = places[:, i]
        b = places[:, j]
        # (step, L, V), summed over the links
        moved = condensed_places(np.minimum(a, b), np.maximum(a, b), exchanges.shape[1])
        counts[first : first + step] = calls[moved].sum(axis=1)
    return counts / len(i)


def pairs_called(
    source: Any,
    *,
    corrected: bool = True,
    X: Any = None,
    y: Any = None,
    n_pcs: int = 100,
    numbers: int | Sequence[int] | None = None,
    tail: float = 0.05,
    metric: str = "cosine",
    standardize: bool = False,
    key: str = "mcpca",
) -> dict[str, list[tuple[int, Array]]]:
    """Return {features: [(number, which pairs of contexts are called)]}; arguments are those of ``link_recall``.

    Pairs are in SciPy's condensed order. Which pairs are called does not depend on the links, so the recall of many
    sets of links, and of permuted contexts (``recalls_of_exchanged``), takes one call of this.
    """
    sources, fits = _fits(source, key)
    tail = check_real(tail, "tail", 0.0001, 0.5, "It is a share of the pairs, at each end.")
    n_pcs = check_integer(n_pcs, "n_pcs", 1)
    ranks = [len(fit.names) for fit in fits]
    tried = sorted(set(check_integers(ranks if numbers is None else numbers, "numbers", 1)))
    # All models were fitted to the same rows.
    rows = read_rows(sources[0], key, X, y)
    rows.check_rows(2)
    # One PCA for all numbers: the first m PCs of many are the PCs of m.
    V = rows.principal_directions(max(n_pcs, *tried)).vectors
    tried = sorted({min(m, V.shape[1]) for m in tried})  # numbers beyond the PCs that there are count once
    Z = rows.project(V)
    means, variances = rows.moments(Z)
    # From the mean of all rows, where PCA centres: the cosine depends on the origin.
    means = (means - Z[rows.codes >= 0].mean(axis=0))[:, :n_pcs]
    added: dict[str, list[Array]] = {
        MEANS: [means[:, :0]],  # nothing: no columns
        LOADINGS: [fit.compared(corrected).values for fit in fits],
        SDS: [np.sqrt(variances[:, :m]) for m in tried],
        VARIANCES: [variances[:, :m] for m in tried],
    }
    return {
        name: [(F.shape[1], _called(np.hstack([means, F]), tail, metric, standardize)) for F in versions]
        for name, versions in added.items()
    }


def _fits(source: Any, key: str) -> tuple[list[Any], list[Any]]:
    """Return the sources and their fits, if there are enough contexts for shares of pairs."""
    sources, fits = same_contexts(source, key)
    if len(fits[0].contexts) < 4:
        raise ValueError(f"There are {len(fits[0].contexts)} contexts, and shares of pairs need at least 4.")
    return sources, fits


def _known(
    links: Any, contexts: list[str], max_sizes: int | Sequence[int] | None
) -> dict[tuple[str, int | None], set[tuple[int, int]]]:
    """Return the pairs of each collection and largest size; warn of those without a pair, which are left out."""
    if not isinstance(links, Mapping) or not links:
        raise TypeError(
            f"links is {'empty' if isinstance(links, Mapping) else 'a ' + type(links).__name__}; pass a dict "
            "{collection: sets}, where sets is a dict {name: members}, a GMT file, or a list of pairs."
        )
    sizes = [None] if max_sizes is None else check_integers(max_sizes, "max_sizes", 2)
    empty: dict[str, list[int | None]] = {}
    known: dict[tuple[str, int | None], set[tuple[int, int]]] = {}
    for collection, sets in links.items():
        # Pairs are sets of two, which no largest size applies to.
        is_pairs = not isinstance(sets, (str, Mapping)) and not hasattr(sets, "__fspath__")
        if is_pairs:
            sets = {f"pair {i}": _pair(pair, collection) for i, pair in enumerate(sets)}
        for size in [None] if is_pairs else sizes:
            pairs = links_of_sets(sets, contexts, size)
            if pairs:
                known[str(collection), size] = pairs
            else:
                empty.setdefault(str(collection), []).append(size)
    if not known:
        raise ValueError(
            f"links has no pair of contexts, which are {quoted(contexts, 3)}, in sets of at most {max_sizes}; use the "
            "names of the contexts, or raise max_sizes."
        )
    if empty:
        without = [
            name if len(empty_sizes) == len(sizes) else f"{name} (sets of at most {', '.join(map(str, empty_sizes))})"
            for name, empty_sizes in empty.items()
        ]
        warn(
            f"links has no pair of contexts in {', '.join(without)}; these are not in the table.",
        )
    return known


def _pair(pair: Any, collection: Any) -> list[str]:
    """Return the two names of a pair, which then counts as a set of two."""
    names = [] if isinstance(pair, str) else [str(name) for name in pair]
    if len(names) != 2:
        raise ValueError(f"links[{collection!r}] has {pair!r} among its pairs; each is two names of contexts.")
    return names


def _called(F: Array, tail: float, metric: str, standardize: bool) -> Array:
    """Return an indicator of the pairs of contexts, condensed, in the tails of similarity of features F (k, m)."""
    if standardize:
        # F (k, m); a constant column becomes 0 and drops out.
        sd = F.std(axis=0)
        F = (F - F.mean(axis=0)) / np.where(sd > 0, sd, 1)
    distances = context_distances(F, metric)
    # Ties at a quantile are all called, so the share called may exceed 2 tail.
    low, high = np.quantile(distances, [tail, 1 - tail])
    return np.asarray((distances <= low) | (distances >= high))


def condensed_places(i: Array, j: Array, k: int) -> Array:
    """Return the places of pairs (i < j) of k contexts in SciPy's condensed order: (0, 1), (0, 2), ..., (1, 2), ..."""
    return np.asarray(k * i - i * (i + 1) // 2 + j - i - 1)
