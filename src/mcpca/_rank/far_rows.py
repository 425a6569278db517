"""Do rows far from the rest of their context decide on the rank? The two tests once more, with less weight on them.

Where lengths of rows vary far more than those of Gaussian rows, a few rows make directions of their own: covariances of
halves differ by the rows that happen to be in them, and the noise test sees a direction that one row has. Rows shrunk
by the roots of their ``first_weights`` have the same axes, if they are alike in all directions but for their lengths.
With them both tests are asked again, and the answer counts where it is clear: halves agree on as many components as
directions are above noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._covariances.checkpoint import Checkpoint
from .._covariances.context_covariances import covariances_of
from .._covariances.passes import Passes
from .._model.first_weights import first_weights
from .._utils.progress import silent
from .noise_test import ResidualTest
from .rank_curves import Curves
from .rank_data import RankData
from .sample_fits import Sweep

LONG_ROWS = 0.5  # ``excess_of_lengths`` from which on far rows may decide: 1 for a t distribution with 5 degrees


class NearRows(NamedTuple):
    """The directions above noise where far rows weigh less, and the mean |cos| of halves on so many components."""

    rank: int
    agreement: float


def without_far_rows(
    data: RankData, test: ResidualTest, above: int, null: str, n_splits: int, threshold: float, sweep: Sweep
) -> NearRows | None:
    """Return what both tests say where far rows weigh less, if that is one answer; None if it is not, or not needed.

    ``above`` are the directions above noise by ``test``, where all rows are alike. Cost: another noise test, and halves
    at one rank; memory: another stack of covariances.
    """
    contexts = data.contexts
    if not above or test.excess_of_lengths(above) <= LONG_ROWS:
        return None
    if data.moments is None or contexts is None or contexts.engine is not None or contexts.nuisance is not None:
        return None
    passes = Passes(silent, Checkpoint(None, {}), 1.0)
    near = first_weights(contexts, data.moments, passes).shrunk(contexts)
    moments = replace(covariances_of(near, silent), n_samples=data.n_samples)
    other = ResidualTest(moments, near, null, sweep.seed, sweep.workers, silent)
    rank = other.directions_above_noise()
    if not rank:
        return None
    curves = Curves(near, moments, other, replace(sweep, largest=rank, report=silent), n_splits, np.array([rank]))
    if not curves.is_informative(rank):
        return None
    curves.fit_at([rank])
    agrees = curves.largest_agreeing([rank], threshold) is not None
    return NearRows(rank, curves.agreement(rank)) if agrees else None
