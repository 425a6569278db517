"""What is split and resampled together: rows, the groups they were sampled in, or whole contexts.

Cells of a donor resemble each other. Halves that share a donor agree on what is particular to it, and resampled cells
vary less than resampled donors. With groups, all rows of a group go the same way, in all contexts that it is in:

* Nested groups (each in one context) are divided context by context; crossed groups (a donor under every treatment) for
  all of these contexts together. Both are one rule: ``GroupDesign.component`` joins groups that meet in a context, and
  each component is divided by itself.
* Groups are dealt out in order of their size: two neighbours go to different halves, which of them is a coin's choice.
  Halves then have equal numbers of groups, and nearly of rows.
* A context counts in a split if both halves have rows of it. One with a single group cannot.

``Halves`` gives splits into halves by rows, by groups or by contexts, all of them where there are few. ``split_parts``
divides groups for cross-fitting, ``draw_groups`` and ``subsample_groups`` draw them for the bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice, product
from math import comb, prod

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import connected_components

from .._data.contexts import Contexts
from .._utils.types import Array
from .._utils.user_warnings import warn
from .._utils.wording import listed, quoted
from ..exceptions import FewGroupsWarning

WAYS = ("auto", "rows", "groups", "contexts")
# Rows of a context that can be split: each half then has two, the fewest that have a covariance.
MIN_ROWS = 4
_LEAST_ROWS = 2
# Contexts in a half: two covariances are the fewest that tell non-orthogonal axes apart.
_LEAST_CONTEXTS = 2
_TRIES = 50  # for groups that are in some contexts and not in others, to get both halves into as many as possible


def checked_groups(contexts: Contexts) -> Contexts:
    """Return the contexts with groups that make a difference: without, if every row is a group of its own."""
    groups = contexts.groups
    if groups is None:
        return contexts
    sizes = np.bincount(np.concatenate(list(groups.codes)), minlength=len(groups.names))
    present = np.flatnonzero(sizes)
    if len(present) == 1:
        raise ValueError(
            f"groups has the one label {groups.names.tolist()[present[0]]!r} for all {sizes.sum():,} rows, and one "
            "group can be neither split nor resampled; pass a label for each unit that was sampled, such as a donor, "
            "or drop groups."
        )
    return replace(contexts, groups=None) if sizes.max() == 1 else contexts


@dataclass(frozen=True)
class GroupDesign:
    """Which groups are in which contexts: ``counts`` (k, g), sparse, the rows of each group in each context."""

    contexts: Contexts
    counts: scipy.sparse.csr_array

    @classmethod
    def of(cls, contexts: Contexts) -> GroupDesign:
        """Count the groups of contexts that have some."""
        groups = contexts.groups
        assert groups is not None
        k = len(contexts.names)
        places = np.repeat(np.arange(k), [len(codes) for codes in groups.codes])
        codes = np.concatenate(list(groups.codes))
        shape = (k, len(groups.names))
        counts = scipy.sparse.coo_array((np.ones(len(codes), dtype=np.int64), (places, codes)), shape=shape).tocsr()
        counts.sum_duplicates()
        return cls(contexts, counts)

    @cached_property
    def sizes(self) -> Array:
        """Rows of each group (g,)."""
        return np.asarray(self.counts.sum(axis=0)).ravel()

    @cached_property
    def groups_of_contexts(self) -> Array:
        """Number of groups in each context (k,)."""
        return np.diff(self.counts.indptr)

    @cached_property
    def groups_to_draw(self) -> Array:
        """Number of groups in the component of each context (k,): those that are drawn together."""
        counts = np.bincount(self.component[self.sizes > 0], minlength=int(self.component_of_contexts.max()) + 1)
        return np.asarray(counts[self.component_of_contexts])

    @cached_property
    def component(self) -> Array:
        """Label of the component of each group (g,): groups that share a context, directly or by way of others."""
        return self._components[1]

    @cached_property
    def component_of_contexts(self) -> Array:
        """Label of the component of each context (k,)."""
        return self._components[0]

    @cached_property
    def _components(self) -> tuple[Array, Array]:
        k, _ = self.counts.shape
        graph = scipy.sparse.block_array([[None, self.counts], [self.counts.T, None]])
        labels = connected_components(graph, directed=False)[1]
        return labels[:k], labels[k:]

    @property
    def crossed(self) -> bool:
        """Whether a group is in several contexts."""
        return bool((np.diff(self.counts.tocsc().indptr) > 1).any())

    def check_several(self, what: str, way_out: str) -> None:
        """Raise if a context has a single group, from which the spread between groups cannot be seen."""
        alone = np.flatnonzero(self.groups_of_contexts < 2)
        if len(alone):
            names = self.contexts.names[alone].tolist()
            raise ValueError(
                f"{what} by groups needs two groups in every context, and {len(alone)} of {len(self.contexts.names)} "
                f"contexts have one: {quoted(names)}. {way_out}"
            )

    def warn_of_few(self, r: int) -> None:
        """Warn of contexts with fewer groups than r + 2, where the spread between groups is hardly known itself."""
        few = np.flatnonzero(self.groups_of_contexts < r + 2)
        if len(few):
            names = self.contexts.names.tolist()
            said = [f"{names[i]!r} ({self.groups_of_contexts[i]})" for i in few]
            warn(
                f"{len(few)} of {len(names)} contexts have fewer than {r + 2} groups, r + 2 for {r} MCPCs: "
                f"{listed(said)}. Errors by groups are rough there; intervals take that into account by Student's t.",
                FewGroupsWarning,
            )

    def rows_of(self, chosen: Array) -> list[Array]:
        """Return the rows of each context whose group is among those with ``chosen`` (g,) true, as positions."""
        assert self.contexts.groups is not None
        return [np.flatnonzero(chosen[codes]) for codes in self.contexts.groups.codes]

    def deal(self, n_parts: int, rng: np.random.Generator) -> Array:
        """Return a part (g,) for each group, by chance, such that as many contexts as possible are in all parts.

        Within a component parts have equal numbers of groups, up to one, and nearly equal numbers of rows.
        """
        several = self.groups_of_contexts >= n_parts
        best, most = np.empty(0, dtype=np.intp), -1
        for _ in range(_TRIES):
            parts = _dealt(self.component, self.sizes, n_parts, rng)
            covered = int(self.in_all_parts(parts, n_parts).sum())
            if covered > most:
                best, most = parts, covered
            # Nested and fully crossed groups come here the first time.
            if most >= several.sum():
                break
        return best

    def in_all_parts(self, parts: Array, n_parts: int) -> Array:
        """Whether each context has at least two rows in every part (k,)."""
        members = parts[:, None] == np.arange(n_parts)
        return np.asarray((self.counts @ members.astype(np.int64) >= _LEAST_ROWS).all(axis=1))


def _dealt(component: Array, sizes: Array, n_parts: int, rng: np.random.Generator) -> Array:
    """Deal units out to parts, within components and in the order of their sizes; return a part (u,) for each."""
    # Equal sizes in random order; the largest first.
    order = np.lexsort([rng.random(len(sizes)), -sizes, component])
    in_order = component[order]
    starts = np.flatnonzero(np.diff(in_order, prepend=-1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    # Rounds of n_parts units: each gives one to every part, in an order of its own.
    is_first = place % n_parts == 0
    rounds = np.cumsum(is_first) - 1
    deals = rng.permuted(np.tile(np.arange(n_parts), (int(is_first.sum()), 1)), axis=1)
    parts = np.empty(len(order), dtype=np.intp)
    parts[order] = deals[rounds, place % n_parts]
    return parts


def split_rows(contexts: Contexts, share: float, rng: np.random.Generator) -> tuple[Contexts, Contexts]:
    """Return two parts that share no row: a random ``share`` of every context (at least 2 rows), and the rest."""
    first = []
    second = []
    for n in contexts.n_samples.tolist():
        order = rng.permutation(n)
        # Two rows at least, or the part has no covariance; from ``MIN_ROWS`` rows on, both halves have them.
        cut = max(2, int(n * share))
        # In the order of the rows, in which stored data are read fastest.
        first.append(np.sort(order[:cut]))
        second.append(np.sort(order[cut:]))
    return contexts.take(first), contexts.take(second)


def some_rows(contexts: Contexts, n_rows: int, rng: np.random.Generator, least: int = 10) -> Contexts:
    """Return about ``n_rows`` rows by chance, the same share of every context but ``least`` at least; or all rows."""
    n = contexts.n_samples
    share = n_rows / float(n.sum())
    if share >= 1:
        return contexts
    taken = np.maximum(np.ceil(share * n).astype(int), np.minimum(n, least))
    return contexts.take(
        [np.sort(rng.permutation(of)[:some]) for of, some in zip(n.tolist(), taken.tolist(), strict=True)]
    )


def without_some_groups(contexts: Contexts, share: float, rng: np.random.Generator) -> Contexts:
    """Return the contexts without some of their groups, about ``share`` of the rows of each.

    At least one group of a context goes, and at least one stays: contexts with a single group stay as they are.
    """
    design = GroupDesign.of(contexts)
    columns = design.counts.tocsc()
    left = contexts.n_samples.astype(np.int64).copy()
    held = np.zeros(len(left), dtype=np.int64)
    kept = np.ones(len(design.sizes), dtype=bool)
    for g in rng.permutation(len(design.sizes)).tolist():
        part = slice(columns.indptr[g], columns.indptr[g + 1])
        places = columns.indices[part]
        rows = columns.data[part]
        within = (held[places] == 0) | (held[places] + rows <= share * contexts.n_samples[places])
        if len(places) and (within & (left[places] - rows >= _LEAST_ROWS)).all():
            kept[g] = False
            left[places] -= rows
            held[places] += rows
    return contexts.take(design.rows_of(kept))


class Halves:
    """Splits of the rows into halves, by rows, by groups or by contexts.

    Attributes
    ----------
    by : str
        "rows", "groups" or "contexts".
    n_splits : int
        How many splits there are: as many as were asked for, or all that differ if these are fewer.
    n_ways : int or None
        How many different splits there are, if no more than were asked for.
    """

    def __init__(self, contexts: Contexts, by: str, n_splits: int, rng: np.random.Generator | None = None) -> None:
        """Check that the rows can be split; the order in which few splits are taken is from ``rng``."""
        self.contexts = contexts
        self.by = ("rows" if contexts.groups is None else "groups") if by == "auto" else by
        self.n_ways: int | None = None
        self._all: list[Array] | None = None
        if self.by == "rows":
            self.n_splits = n_splits
            return
        self._component, self._sizes = self._groups() if self.by == "groups" else self._contexts()
        n_ways = _n_ways(self._component)
        self.n_splits = min(n_splits, n_ways)
        if n_ways <= n_splits:
            self.n_ways = n_ways
            self._all = list(islice(_all_sides(self._component), n_ways))
            if rng is not None:
                self._all = [self._all[i] for i in rng.permutation(n_ways)]

    def _groups(self) -> tuple[Array, Array]:
        """Return the component and the size of each unit of a split: the groups."""
        if self.contexts.groups is None:
            raise ValueError("by='groups' splits groups of rows, and none are given; pass groups=..., or by='rows'.")
        self.design = GroupDesign.of(self.contexts)
        if (self.design.groups_of_contexts < 2).all():
            raise ValueError(
                "groups: every context has a single group, so that no context can be split by groups. Whether axes "
                "come back in other contexts is replicability(..., by='contexts')."
            )
        # Groups that are alone in their component stay out: their contexts have no other.
        alone = np.bincount(self.design.component)[self.design.component] == 1
        return np.where(alone, -1, self.design.component), self.design.sizes

    def _contexts(self) -> tuple[Array, Array]:
        """Return the same for contexts: those that share a group are one unit."""
        k = len(self.contexts.names)
        self._unit = np.arange(k)
        if self.contexts.groups is not None:
            self._unit = GroupDesign.of(self.contexts).component_of_contexts
            self._unit = np.unique(self._unit, return_inverse=True)[1]
        sizes = np.bincount(self._unit)
        # The smaller half of all ways: the units that are fewest contexts.
        fewest = np.sort(sizes)[: max(len(sizes) // 2, 1)].sum()
        if len(sizes) < 2:
            raise ValueError(
                f"by='contexts': groups tie all {k} contexts together, since contexts that share a group stay on the "
                "same side; split by='groups', or drop groups."
            )
        if k < 2 * _LEAST_CONTEXTS or fewest < _LEAST_CONTEXTS:
            of = f"{k} contexts" if len(sizes) == k else f"{k} contexts of {len(sizes)} separate sets of groups"
            raise ValueError(
                f"by='contexts' needs at least {2 * _LEAST_CONTEXTS} contexts, two for each half, and there are {of}; "
                "split by='rows' or by='groups'."
            )
        return np.zeros(len(sizes), dtype=np.intp), sizes

    def split(self, i: int, rng: np.random.Generator) -> tuple[Contexts, Contexts]:
        """Return the halves of split ``i``, drawn from ``rng`` unless all splits are taken."""
        if self.by == "rows":
            return split_rows(self.contexts, 0.5, rng)
        if self.by == "contexts":
            sides = self._all[i] if self._all is not None else _dealt(self._component, self._sizes, 2, rng)
            names = self.contexts.names
            first, second = ((sides == side)[self._unit] for side in (0, 1))
            return self.contexts.in_order(names[first].tolist()), self.contexts.in_order(names[second].tolist())
        sides = self._all[i] if self._all is not None else self.design.deal(2, rng)
        counts = self.design.in_all_parts(sides, 2) & (self.design.groups_of_contexts > 1)
        if not counts.any():
            raise ValueError(
                f"groups: in a split of {len(self._sizes)} groups into halves, no context has two rows in both; pass "
                "larger groups, or split by='contexts'."
            )
        rows = [self.design.rows_of(sides == side) for side in (0, 1)]
        names = self.contexts.names[counts].tolist()
        kept = self.contexts.in_order(names)
        first, second = ([part[j] for j in np.flatnonzero(counts)] for part in rows)
        return kept.take(first), kept.take(second)

    def left_out(self, halves: list[tuple[Contexts, Contexts]]) -> tuple[object, ...]:
        """Return the names of contexts that do not count in some of these splits by groups."""
        if self.by != "groups":
            return ()
        counted = [set(first.names.tolist()) for first, _ in halves]
        return tuple(name for name in self.contexts.names.tolist() if any(name not in names for names in counted))


def _n_ways(component: Array) -> int:
    """Return the number of different splits into halves with equal numbers of units, up to one, in each component."""
    counts = np.bincount(component[component >= 0])
    # Python's integers: there may be astronomically many.
    return int(prod(comb(n, n // 2) * (1 + n % 2) for n in counts[counts > 0].tolist()) // 2)


def _all_sides(component: Array) -> Iterator[Array]:
    """Yield all splits as sides (u,); the first unit is always on side 0, so that none comes twice."""
    members = [np.flatnonzero(component == c) for c in np.unique(component[component >= 0])]
    # Sizes of side 1 within a component.
    choices = [
        [chosen for size in {len(m) // 2, -(-len(m) // 2)} for chosen in combinations(m.tolist(), size)]
        for m in members
    ]
    for chosen in product(*choices):
        sides = np.zeros(len(component), dtype=np.intp)
        sides[[unit for part in chosen for unit in part]] = 1
        if sides[members[0][0]] == 0:
            yield sides


def split_parts(contexts: Contexts, most: int, rng: np.random.Generator) -> list[list[Array]]:
    """Divide groups into at most ``most`` parts; return for each part its rows, as positions in every context.

    Every context has at least two rows in every part and outside of it.
    """
    design = GroupDesign.of(contexts)
    n_parts = min(most, int(design.groups_of_contexts.min()))
    while n_parts >= 2:
        parts = design.deal(n_parts, rng)
        if design.in_all_parts(parts, n_parts).all():
            return [design.rows_of(parts == q) for q in range(n_parts)]
        n_parts -= 1
    raise ValueError(
        "groups cannot be divided into two parts that both have two rows of every context; pass larger groups, drop "
        "contexts with few rows, or pass cross_fit=0."
    )


def draw_groups(contexts: Contexts, rng: np.random.Generator) -> Contexts:
    """Draw as many groups as there are, with replacement, within components; one drawn twice counts as two."""
    design = GroupDesign.of(contexts)
    members, starts, counts = _by_component(design)

    for _ in range(_TRIES):
        drawn = members[starts + rng.integers(counts)]
        times = np.bincount(drawn, minlength=len(design.sizes))
        # Of crossed groups that are not in all contexts, a draw may have none of a context.
        if (design.counts @ times >= _LEAST_ROWS).all():
            break
    else:
        raise ValueError("groups: resamples of groups leave contexts without rows; drop contexts with few groups.")
    assert contexts.groups is not None
    rows = []
    for of_context in contexts.groups.codes:
        order = np.argsort(of_context, kind="stable")
        ends = np.cumsum(np.bincount(of_context, minlength=len(design.sizes)))
        begins = np.concatenate([[0], ends[:-1]])
        lengths = (ends - begins)[drawn]
        number = np.repeat(np.arange(len(drawn)), lengths)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows.append(order[begins[drawn][number] + within])
    return contexts.take(rows)


def subsample_groups(contexts: Contexts, share: float, rng: np.random.Generator) -> Contexts:
    """Draw about a ``share`` of the groups of every component without replacement, all but one at most."""
    design = GroupDesign.of(contexts)
    members, starts, counts = _by_component(design)
    for _ in range(_TRIES):
        order = np.lexsort([rng.random(len(members)), design.component[members]])
        # ``order`` shuffles within components, which stay where they are.
        place = np.arange(len(members)) - starts
        chosen = np.zeros(len(design.sizes), dtype=bool)
        chosen[members[order][place < subsample_size(counts, share)]] = True
        if (design.counts @ chosen.astype(np.int64) >= _LEAST_ROWS).all():
            return contexts.take(design.rows_of(chosen))
    raise ValueError("groups: subsamples of groups leave contexts without rows; drop contexts with few groups.")


def subsample_size(n: Array, share: float, least: int = 1) -> Array:
    """Return how many of ``n`` are a ``share``: ``least`` or more, and at least one is left out."""
    return np.clip(np.round(share * n).astype(np.int64), least, n - 1)


def _by_component(design: GroupDesign) -> tuple[Array, Array, Array]:
    """Return groups by component (g,), and for each where its component starts among them and how many it has."""
    present = np.flatnonzero(design.sizes)
    members = present[np.argsort(design.component[present], kind="stable")]
    labels = design.component[members]
    _, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    return members, first[inverse], counts[inverse]
