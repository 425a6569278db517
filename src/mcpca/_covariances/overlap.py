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
    if len(mask) < LEAST_CONTEXTS:
        raise ValueError(
            f"missing={missing!r} needs at least {LEAST_CONTEXTS} contexts, and X has {len(mask)}; pass y, or "
            "missing='error'."
        )
    if not mask.shape[1]:
        raise ValueError(
            f"missing={missing!r}: no two contexts share a feature, so that nothing ties their axes together. Check "
            "the names of the features, or fit the contexts one by one."
        )
    needed = r + int(noise)
    starts = np.argsort(-mask.sum(axis=1), kind="stable").tolist()
    # Starts with fewer features are tried only if need be.
    most = 0
    for start in starts:
        most = max(most, _bottleneck(mask, start))
        if most >= needed:
            return
    beside = " and the noise" if noise else ""
    way_out = f"Choose n_components <= {most - int(noise)}" if most > int(noise) else ""
    left = min((_left_over(mask, start, needed) for start in starts), key=len)
    if len(left) >= len(names) - 1 and len(names) > 2:
        raise ValueError(
            f"n_components={r} needs contexts that share at least {needed} features, as many as MCPCs{beside}, and "
            f"there are only {most} that tie all contexts together. {way_out or 'Add contexts with more features'}."
        )
    shares = listed([f"{names[i]!r} ({n})" for i, n in left])
    raise ValueError(
        f"n_components={r} needs contexts that share at least {needed} features with the others, as many as "
        f"MCPCs{beside}, and {len(left)} of {len(names)} contexts share fewer (in brackets): {shares}. "
        f"{way_out + ', or leave' if way_out else 'Leave'} these contexts out."
    )


def _bottleneck(mask: Array, start: int) -> int:
    """Return the fewest features that a context shares with those before it, if whoever shares most is added first."""
    features = mask[start].copy()
    fewest = int(features.sum())
    waiting = [i for i in range(len(mask)) if i != start]
    while waiting:
        shared = mask[waiting].astype(np.int64) @ features
        j = int(shared.argmax())
        fewest = min(fewest, int(shared[j]))
        features |= mask[waiting.pop(j)]
    return fewest


def _left_over(mask: Array, start: int, needed: int) -> list[tuple[int, int]]:
    """Return contexts that cannot be added to ``start``, with the number of features that they share."""
    features = mask[start].copy()
    waiting = [i for i in range(len(mask)) if i != start]
    while True:
        shared = mask[waiting].astype(np.int64) @ features
        ready = [i for i, n in zip(waiting, shared.tolist(), strict=True) if n >= needed]
        if not ready:
            return list(zip(waiting, shared.tolist(), strict=True))
        features |= mask[ready].any(axis=0)
        waiting = [i for i in waiting if i not in ready]


def undetermined(mask: Array, B: Array, share: float) -> Array:
    """Return which weights (p, r) no context determines: no one that has the feature has the MCPC.

    An MCPC counts as present from ``share`` of its largest loading on.
    """
    present = share * B.max(axis=0, initial=0) <= B
    return np.asarray((mask.T.astype(np.int64) @ present.astype(np.int64)) == 0)
