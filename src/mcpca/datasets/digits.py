"""Handwritten digits on patches of photographs: the paper's semi-synthetic experiment, on data scikit-learn ships."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_sample_images

from .._utils.arguments import as_generator, check_integer, check_real
from .._utils.printing import Shown, counted
from .._utils.types import Array

SIDE = 8
_CONTEXTS: dict[str, tuple[int, ...]] = {"background": (), "0 and 2": (0, 2), "1 and 2": (1, 2)}
# Share of patches from the first photograph, as the paper's share of grass.
_FIRST_PHOTO = {"background": 0.5, "0 and 2": 0.8, "1 and 2": 0.2}


@dataclass(frozen=True, repr=False)
class DigitContexts(Shown):
    """Rows, and the truth behind them.

    ``contexts`` maps each context's name to rows (n, 64), ``planted`` to the digits superimposed there; ``mean_digits``
    maps 0, 1, 2 to their mean image (64,).
    """

    contexts: dict[str, Array]
    planted: dict[str, tuple[int, ...]]
    mean_digits: dict[int, Array]

    def _words(self) -> list[str]:
        each = [f"{name!r} ({counted(len(X), 'row')})" for name, X in self.contexts.items()]
        return [f"Images of {counted(len(each), 'context')}: {', '.join(each)}."]

    def _rows(self) -> dict[str, Any]:
        rows = [len(X) for X in self.contexts.values()]
        return {"context": list(self.contexts), "rows": rows, "digits": [self.planted[name] for name in self.contexts]}


def load_digit_contexts(n_samples: int = 4000, *, strength: float = 1.0, random_state: Any = None) -> DigitContexts:
    """Superimpose digits on photographs in three contexts, as in the paper.

    The first context is background: 8 x 8 patches of scikit-learn's two sample photographs, half from each. The second
    has digits 0 and 2 on patches that come to four fifths from the first photograph, the third 1 and 2 with four fifths
    from the second. Each digit is added with its own strength, uniform between 0 and ``strength``; pixels of both are
    in [0, 1].
    """
    n = check_integer(n_samples, "n_samples", 2)
    strength = check_real(strength, "strength", 0, 100)
    rng = as_generator(random_state)
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    photos = [np.asarray(photo, dtype=np.float64).mean(axis=2) / 255 for photo in load_sample_images().images]
    contexts = {}
    for name, digits in _CONTEXTS.items():
        first = round(_FIRST_PHOTO[name] * n)
        rows = np.vstack([_patches(photos[0], first, rng), _patches(photos[1], n - first, rng)])
        for digit in digits:
            chosen = images[rng.choice(np.flatnonzero(labels == digit), n)]
            rows += chosen * rng.uniform(0, strength, (n, 1))
        contexts[name] = rows
    return DigitContexts(contexts, dict(_CONTEXTS), {d: images[labels == d].mean(axis=0) for d in (0, 1, 2)})


def _patches(photo: Array, n: int, rng: np.random.Generator) -> Array:
    """Cut n random SIDE x SIDE patches (n, SIDE * SIDE) from a grey photograph."""
    windows = np.lib.stride_tricks.sliding_window_view(photo, (SIDE, SIDE))
    rows, columns = (rng.integers(size, size=n) for size in windows.shape[:2])
    return windows[rows, columns].reshape(n, SIDE * SIDE)
