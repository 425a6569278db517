"""Handwritten digits on patches of photographs: the paper's semi-synthetic experiment, on data that scikit-learn ships.

The paper has MNIST on images of grass and clouds, 28 x 28; ``paper.problems`` follows its recipe on those files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_sample_images

from .._utils.arguments import as_generator, check_integer, check_real, one_random_state
from .._utils.printing import Shown, counted
from .._utils.types import Array

SIDE = 8  # pixels of an image; scikit-learn's digits are 8 x 8
_DIGIT_LEVELS = 16  # their pixels are 0 to 16
_CONTEXTS: dict[str, tuple[int, ...]] = {"background": (), "0 and 2": (0, 2), "1 and 2": (1, 2)}
# Share of patches from the first photograph, where the paper has grass: the background differs between contexts too, so
# that digits are not simply the difference of two contexts.
_FIRST_PHOTO = {"background": 0.5, "0 and 2": 0.8, "1 and 2": 0.2}


@dataclass(frozen=True, repr=False)
class DigitContexts(Shown):
    """Images of three contexts, and the truth behind them.

    Attributes
    ----------
    contexts : dict of str to array (n, 64)
        The images of each context, as rows.
    planted : dict of str to tuple of int
        The digits superimposed in each context.
    mean_digits : dict of int to array (64,)
        The mean image of each of the digits 0, 1, 2.
    """

    contexts: dict[str, Array]
    planted: dict[str, tuple[int, ...]]
    mean_digits: dict[int, Array]

    def _words(self) -> list[str]:
        sizes = [f"{name!r} ({counted(len(X), 'row')})" for name, X in self.contexts.items()]
        return [f"Images of {counted(len(sizes), 'context')}: {', '.join(sizes)}."]

    def _rows(self) -> dict[str, Any]:
        rows = [len(X) for X in self.contexts.values()]
        return {"context": list(self.contexts), "rows": rows, "digits": [self.planted[name] for name in self.contexts]}


def load_digit_contexts(
    n_samples: int = 4000, *, strength: float = 1.0, random_state: Any = None, rng: Any = None
) -> DigitContexts:
    """Superimpose digits on photographs in three contexts, as in the paper.

    The first context is background alone: 8 x 8 patches of scikit-learn's two sample photographs, half from each. In
    the second, the digits 0 and 2 are added to patches of which four fifths are from the first photograph; in the
    third, the digits 1 and 2 to patches of which four fifths are from the second. Pixels of patches and digits are in
    [0, 1].

    Parameters
    ----------
    n_samples : int
        Images per context.
    strength : float
        Each digit is multiplied by a number drawn uniformly between 0 and this.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None

    Returns
    -------
    DigitContexts
    """
    n = check_integer(n_samples, "n_samples", 2)
    strength = check_real(strength, "strength", 0, 100)
    rng = as_generator(one_random_state(rng, random_state))
    images, labels = load_digits(return_X_y=True)
    # On the scale of the photographs, so that ``strength`` 1 is as bright as the brightest of their pixels can be.
    images = images / _DIGIT_LEVELS
    # Grey photographs (height, width) in [0, 1], the mean of the three colours.
    photos = [np.asarray(photo, dtype=np.float64).mean(axis=2) / 255 for photo in load_sample_images().images]
    contexts = {}
    for name, digits in _CONTEXTS.items():
        n_first = round(_FIRST_PHOTO[name] * n)
        rows = np.vstack([_patches(photos[0], n_first, rng), _patches(photos[1], n - n_first, rng)])
        for digit in digits:
            # With replacement: scikit-learn has fewer than 200 images of a digit. Each image has a strength of its own,
            # so that the digit is an axis of variation and not a constant shift of the mean.
            chosen = images[rng.choice(np.flatnonzero(labels == digit), n)]
            rows += chosen * rng.uniform(0, strength, (n, 1))
        contexts[name] = rows
    mean_digits = {d: images[labels == d].mean(axis=0) for d in (0, 1, 2)}
    return DigitContexts(contexts, dict(_CONTEXTS), mean_digits)


def _patches(photo: Array, n: int, rng: np.random.Generator) -> Array:
    """Cut n random SIDE x SIDE patches (n, SIDE * SIDE) from a grey photograph."""
    # All patches, overlapping ones too, as a view (height - 7, width - 7, 8, 8); only those chosen below are copied.
    windows = np.lib.stride_tricks.sliding_window_view(photo, (SIDE, SIDE))
    rows, columns = (rng.integers(size, size=n) for size in windows.shape[:2])
    return windows[rows, columns].reshape(n, SIDE * SIDE)
