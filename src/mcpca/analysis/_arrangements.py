"""Rearrangements of residuals within blocks of contexts: all of them where they are few, random ones otherwise.

Where nothing goes with the covariate, what is left of a context after block and confounders could as well be that of
another context of its block. In a block of two, whose residuals are opposite, exchanging them is a flip of their sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from .._results.context_tests import MOST_ARRANGEMENTS, arrangements, n_arrangements
from .._utils.types import Array


@dataclass(frozen=True)
class Arrangements:
    """How residuals e (k,) are rearranged: ``signs * e[places]``.

    Attributes
    ----------
    blocks : ndarray (k,) of int
        The block of each context, 0, 1, ...; all zero if there are none.
    n : int
        How many rearrangements are looked at: all if ``listed``, otherwise random ones; 0 for none.
    listed : (ndarray (n, k), ndarray (n, k)) or None
        Places and signs of all of them, the identity among them; None if there are too many.
    """

    blocks: Array
    n: int
    listed: tuple[Array, Array] | None

    @property
    def exact(self) -> bool:
        """Whether all rearrangements are looked at."""
        return self.listed is not None

    @property
    def least_p(self) -> float:
        """A lower bound of p by random rearrangements; 0 if p comes from all of them, or from a distribution."""
        return 0.0 if self.exact or not self.n else 1 / (1 + self.n)

    def batches(self, step: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
        """Yield places and signs, (at most ``step``, k) each."""
        for first in range(0, self.n, step):
            if self.listed is not None:
                yield self.listed[0][first : first + step], self.listed[1][first : first + step]
            else:
                yield self._random(min(step, self.n - first), rng)

    def _random(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        k = len(self.blocks)
        # Sorted by block and, within it, by a random number: each slot of a block gets one of its members.
        order = np.argsort(rng.random((n, k)) + self.blocks, axis=1)
        places = np.empty((n, k), dtype=np.intp)
        places[:, np.argsort(self.blocks, kind="stable")] = order
        signs = np.ones((n, k))
        in_pair = np.bincount(self.blocks)[self.blocks] == 2
        if in_pair.any():
            places[:, in_pair] = np.flatnonzero(in_pair)
            flips = rng.integers(0, 2, size=(n, self.blocks.max() + 1)) * 2.0 - 1
            signs[:, in_pair] = flips[:, self.blocks[in_pair]]
        return places, signs


def plan(blocks: Array, values: Array | None, permutations: int) -> Arrangements:
    """Return all rearrangements within ``blocks`` (k,) if they are at most 50,000, or this many random ones.

    ``values`` (k,), numbers or codes: contexts with equal values count as one, as exchanging them changes nothing. None
    tells all contexts apart.
    """
    members = [np.flatnonzero(blocks == block) for block in range(blocks.max() + 1)]
    if math.prod(_n_ways(one, values) for one in members) > MOST_ARRANGEMENTS:
        return Arrangements(blocks, permutations, None)
    places = np.arange(len(blocks))[None]
    signs = np.ones((1, len(blocks)))
    for one in members:
        local_places, local_signs = _ways(one, values)
        # Every rearrangement so far with every one of this block.
        N, n_ways = len(places), len(local_places)
        places = np.repeat(places, n_ways, axis=0)
        signs = np.repeat(signs, n_ways, axis=0)
        places[:, one] = np.tile(one[local_places], (N, 1))
        signs[:, one] = np.tile(local_signs, N)[:, None]
    return Arrangements(blocks, len(places), (places, signs))


def _n_ways(members: Array, values: Array | None) -> int:
    return math.factorial(len(members)) if values is None else n_arrangements(values[members])


def _ways(members: Array, values: Array | None) -> tuple[Array, Array]:
    """Return places (N, n) within a block of n contexts, and a sign for each (N,)."""
    n = len(members)
    if n == 2:
        n_ways = _n_ways(members, values)
        return np.tile(np.arange(2), (n_ways, 1)), np.array([1.0, -1.0])[:n_ways]
    if values is None:
        places = np.array(list(permutations(range(n))), dtype=np.intp)
    else:
        # A permutation that takes the values to each of their orders: the i-th smallest to where it is in the order.
        orders = np.argsort(arrangements(values[members]), axis=1, kind="stable")
        places = np.empty_like(orders)
        places[:, np.argsort(values[members], kind="stable")] = orders
    return places, np.ones(len(places))
