"""Which features and contexts an incomplete fit can take: rules about the mask (k, p) of who has what.

A weight of a feature in an MCPC shows in covariances with other features, in contexts where the MCPC is present. One
context alone has some of the MCPCs only, as a rule, and says nothing of the others; so a feature has to be in two.

The axes of two sets of contexts are tied to each other by features that they share. If those are as many as there are
MCPCs, the MCPCs are linearly independent on them, and the loadings of a context (and with one more, its noise) follow
from its covariances on shared features alone; the axes then are the same ones in all. ``check_tied`` therefore grows a
set of contexts, from the one with most features, by contexts that share as many with those in the set; what cannot be
added is named in the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._utils.types import Array
from .._utils.wording import listed

LEAST_CONTEXTS = 2


def shared_features(mask: Array) -> Array:
    """Return which features (p,) enough contexts have."""
    return np.asarray(mask.sum(axis=0) >= LEAST_CONTEXTS)


def check_tied(mask: Array, names: Sequence[Any], r: int, *, noise: bool, missing: str) -> None:
    """Raise, naming contexts, unless shared features tie the axes of all contexts together at rank r.

    ``mask`` (k, p) has features of two contexts or more only; ``noise`` says that each context has noise beside its
    loadings, which takes one more feature.
    """
    if not mask.shape[1]:
        raise ValueError(
            f"missing={missing!r}: no two contexts share a feature, so that nothing ties their axes together. Check the "
            "names of the features, or fit the contexts one by one."
        )
    needed = r + int(noise)
    best, left = _growth(mask, needed)
    if best >= needed:
        return
    most = best - int(noise)
    shares = [f"{names[i]!r} ({n})" for i, n in left]
    beside = " and the noise" if noise else ""
    way_out = f"Choose n_components <= {most}, or leave" if most >= 1 else "Leave"
    raise ValueError(
        f"n_components={r} needs contexts that share at least {needed} features with the others, as many as MCPCs"
        f"{beside}: {listed(shares)} of {len(names)} contexts share fewer (in brackets). {way_out} these contexts out."
        if len(left) < len(names)
        else f"n_components={r} needs at least {needed} features that contexts share, as many as MCPCs{beside}, and "
        f"there are {best}. Choose n_components <= {max(most, 1)}."
    )


def _growth(mask: Array, needed: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the fewest features that a context shares when it is added, and who shares too few, with how many.

    Whoever shares most is added first, which is the best order; starts with fewer features are tried only if need be.
    """
    counts = mask.astype(np.int64)
    best = -1
    left: list[tuple[int, int]] = []
    for start in np.argsort(-counts.sum(axis=1), kind="stable").tolist():
        features = mask[start].copy()
        fewest = int(counts[start].sum())
        too_few = [(start, fewest)] if fewest < needed else []
        waiting = [i for i in range(len(mask)) if i != start]
        while waiting:
            shared = counts[waiting] @ features
            j = int(shared.argmax())
            fewest = min(fewest, int(shared[j]))
            if shared[j] < needed:
                too_few.append((waiting[j], int(shared[j])))
            else:
                features |= mask[waiting[j]]
            del waiting[j]
        if fewest > best or (fewest == best and len(too_few) < len(left)):
            best, left = fewest, too_few
        if best >= needed:
            break
    return best, left


def undetermined(mask: Array, B: Array, share: float) -> Array:
    """Return which weights (p, r) no context determines: no one that has the feature has the MCPC.

    An MCPC counts as present from ``share`` of its largest loading on.
    """
    present = B >= share * B.max(axis=0, initial=0)
    return np.asarray((mask.T.astype(np.int64) @ present.astype(np.int64)) == 0)

