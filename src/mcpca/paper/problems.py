"""The data of the benchmark: planted contexts as in the paper, harder variants, and digits on photographs.

A ``Case`` draws the data of a trial from a generator seeded by the trial's number, so that a trial is the same in every
run, whatever was run before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._covariances.context_covariances import context_covariances
from .._utils.types import Array
from ..datasets import load_digit_contexts, make_contexts

PLANTED_DIGITS = (0, 1, 2)
# The files of handwritten digits and of backgrounds that --data looks for, and the arrays that are read from them.
DATA_FILES = {"mnist.npz": ("x_train", "y_train"), "backgrounds_28x28.npz": ("grass", "cloud")}
_TRIAL_SEED = 20
_TAIL_DEGREES = 4.0  # of freedom of the heavy tails: few, but the variance is finite
# Rows of the smallest and the largest context, relative to N, if contexts differ in size.
_SMALLEST = 0.1
_LARGEST = 10.0
_RATIO_SD = 0.2  # standard deviation of log(ratio) of nearly proportional loadings; 0 would be unidentifiable


@dataclass(frozen=True)
class Sample:
    """What a method is given, and the truth.

    ``data`` is a stack of covariances (k, p, p), or a list of rows if contexts differ in size; ``rank`` is the one
    that the method is asked for; ``truth`` (p, r) are the planted components.
    """

    data: Any
    rank: int
    truth: Array


@dataclass(frozen=True)
class Shape:
    """p features, k contexts, r components, n rows per context; the paper's by default."""

    p: int = 100
    k: int = 50
    r: int = 60
    n: int = 1000
    density: float = 0.2

    def describe(self) -> dict[str, Any]:
        """Return the numbers by the names that they have in every record."""
        return {"p": self.p, "k": self.k, "r": self.r, "N": self.n, "density": self.density}


@dataclass(frozen=True)
class Case:
    """One column of an experiment: how to draw its data.

    ``name`` is unique within a section, ``title`` is for figures, ``about`` explains it; ``x`` is the number of rows
    per context if that is what varies.
    """

    name: str
    title: str
    shape: Shape
    draw: Callable[[Shape, np.random.Generator], Sample]
    x: float | None = None
    about: str = ""

    def sample(self, trial: int) -> Sample:
        """Draw the data of a trial."""
        # Seeded by the trial and not by the case: cases of one shape share A and B, and differ by their change alone.
        return self.draw(self.shape, np.random.default_rng([_TRIAL_SEED, trial]))

    def describe(self) -> dict[str, Any]:
        """Return what identifies the data, besides the trial."""
        return {"case": self.name, **self.shape.describe()}


# The paper's synthetic experiments ---------------------------------------------------------------------------------


def paper_case(shape: Shape, *, orthogonal: bool = False) -> Case:
    """Rows of the paper's model with a new A and B in every trial: Fig. 2B, and S2B if ``orthogonal``."""

    def draw(shape: Shape, rng: np.random.Generator) -> Sample:
        # Rows, as in the paper; the shortcut by Wishart matrices is for cases of up to 100,000 rows per context.
        made = make_contexts(
            shape.k,
            shape.p,
            shape.r,
            n_samples=shape.n,
            density=shape.density,
            orthogonal=orthogonal,
            random_state=rng,
        )
        return Sample(context_covariances(made.X, made.y).covariances, shape.r, made.components)

    return Case("orthonormal A" if orthogonal else "general A", "as in the paper", shape, draw)


def sample_size_cases(shape: Shape, sizes: tuple[int, ...], *, orthogonal: bool = False) -> list[Case]:
    """One case for each number of rows: Fig. 2C and S2C. A trial has the same A and B at every number of rows."""

    def draw(shape: Shape, rng: np.random.Generator) -> Sample:
        A, B = _truth(shape, rng, orthogonal)
        return Sample(_sampled_covariances(A, B, shape.n, rng), shape.r, A)

    return [Case(f"N = {n}", f"{n:,} rows", replace(shape, n=n), draw, x=float(n)) for n in sizes]


def _truth(shape: Shape, rng: np.random.Generator, orthogonal: bool = False) -> tuple[Array, Array]:
    # n_samples=1: rows are not wanted here, and one is the fewest. That A and B come first in the generator, and that
    # their number of draws does not depend on N, is what gives a trial the same truth at every N.
    made = make_contexts(
        shape.k, shape.p, shape.r, n_samples=1, density=shape.density, orthogonal=orthogonal, random_state=rng
    )
    return made.components, made.loadings


def _sampled_covariances(A: Array, B: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw the covariance of n Gaussian rows in each context (k, p, p).

    For n > p the scatter itself is drawn, as a Wishart matrix with n - 1 degrees of freedom: its distribution is that
    of the scatter of rows, and its cost does not depend on n. For n <= p rows are drawn.
    """
    # A (p, r), B (k, r). Rows are x = A diag(b)^(1/2) z; the scatter of n centred z is Wishart(I_r, n - 1).
    p, r = A.shape
    # Bartlett's chi-squares need n - 1 - j > 0 for all j < r, which n > p >= r ensures. So few rows are cheap to draw.
    if n <= p:
        rows = [(rng.standard_normal((n, r)) * np.sqrt(b)) @ A.T for b in B]
        return context_covariances(rows).covariances
    S = np.empty((len(B), p, p))
    for i, b in enumerate(B):
        # Bartlett: L L^T is Wishart(I, n - 1) if L is lower triangular with standard normals below the diagonal and
        # roots of chi-squares with n - 1, n - 2, ... degrees of freedom on it.
        L = np.tril(rng.standard_normal((r, r)), -1)
        np.fill_diagonal(L, np.sqrt(rng.chisquare(n - 1 - np.arange(r))))
        # F F^T is the scatter, never formed from rows; n - 1 for the unbiased covariance.
        F = (A * np.sqrt(b)) @ L
        S[i] = F @ F.T / (n - 1)
    return S


# What the paper does not test --------------------------------------------------------------------------------------


def robustness_cases(shape: Shape, off: int = 5) -> list[Case]:
    """Return the paper's experiment with one change in each case; ``off`` is by how much the rank is wrong."""
    return [
        Case("as in the paper", "as in\nthe paper", shape, _harder(), about="Nothing changed."),
        Case(
            "noise 0.1",
            "noise,\nsd 0.1",
            shape,
            _harder(noise=0.1),
            about="Independent noise of standard deviation 0.1 in every feature; the signal has about 0.3.",
        ),
        Case(
            "noise 0.3",
            "noise,\nsd 0.3",
            shape,
            _harder(noise=0.3),
            about="The same with 0.3: half of the variance is noise.",
        ),
        Case(
            "heavy tails",
            "heavy\ntails",
            shape,
            _harder(tails=True),
            about="Rows from a multivariate t distribution with 4 degrees of freedom, the same covariance.",
        ),
        Case(
            "unequal sizes",
            "unequal\nsizes",
            shape,
            _harder(unequal=True),
            about=f"Contexts of {_SMALLEST:g} to {_LARGEST:g} times N rows, evenly spaced on a logarithmic scale.",
        ),
        Case(
            f"rank +{off}",
            f"rank\n+{off}",
            shape,
            _harder(noise=0.1, off=off),
            about=f"The method is asked for {off} components too many, noise 0.1 (without noise the data have only r "
            "directions). Every planted component is matched.",
        ),
        Case(
            f"rank -{off}",
            f"rank\n-{off}",
            shape,
            _harder(noise=0.1, off=-off),
            about=f"The method is asked for {off} components too few, noise 0.1. Every component found is matched.",
        ),
        Case(
            "near-collinear loadings",
            "collinear\nloadings",
            shape,
            _harder(collinear=True),
            about="Components come in pairs that are present in the same contexts, with loadings whose ratio varies by "
            f"about {_RATIO_SD:.0%}.",
        ),
    ]


def _harder(
    *, noise: float = 0, tails: bool = False, unequal: bool = False, collinear: bool = False, off: int = 0
) -> Callable[[Shape, np.random.Generator], Sample]:
    """Return the function that draws data with these changes."""

    def draw(shape: Shape, rng: np.random.Generator) -> Sample:
        # The truth before anything else, so that all cases of a trial have the same A and, but for collinear ones, B.
        A, B = _truth(shape, rng)
        if collinear:
            # Every second column becomes the one before it, times a factor that varies from context to context.
            pairs = shape.r // 2
            factors = np.exp(_RATIO_SD * rng.standard_normal((shape.k, pairs)))
            # With a ratio that is constant, only the plane of a pair would be identifiable, and no method could find
            # its axes. If r is odd, the last column has no partner and is left as it is.
            B[:, 1 : 2 * pairs : 2] = B[:, : 2 * pairs : 2] * factors
        sizes = np.full(shape.k, shape.n)
        if unequal:
            # At least two rows, the fewest that have a covariance.
            sizes = rng.permutation(shape.n * np.geomspace(_SMALLEST, _LARGEST, shape.k)).astype(int).clip(2)
        rows = [_rows(A, b, int(n), noise, tails, rng) for b, n in zip(B, sizes, strict=True)]
        # Rows and not covariances if sizes differ: methods may weight contexts by their numbers of rows.
        data = rows if unequal else context_covariances(rows).covariances
        return Sample(data, shape.r + off, A)

    return draw


def _rows(A: Array, b: Array, n: int, noise: float, tails: bool, rng: np.random.Generator) -> Array:
    """Draw n rows with covariance ``A diag(b) A^T + noise^2 I``."""
    X = (rng.standard_normal((n, len(b))) * np.sqrt(b)) @ A.T
    if tails:
        # One factor for a whole row, which is an outlier or not. A t variable has variance nu / (nu - 2); this has 1.
        X *= np.sqrt((_TAIL_DEGREES - 2) / rng.chisquare(_TAIL_DEGREES, (n, 1)))
    # After the tails, so that noise stays Gaussian and its variance is noise^2 for every row.
    if noise:
        X += noise * rng.standard_normal(X.shape)
    return np.asarray(X)


# Digits on photographs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Images:
    """Contexts of images: covariances (3, p, p), names, the digits planted in each, and mean digits (3, p)."""

    source: str
    covariances: Array
    contexts: tuple[str, ...]
    planted: tuple[tuple[int, ...], ...]
    means: Array
    side: int

    @property
    def truth(self) -> Array:
        """1 where a digit (column) is planted in a context (row)."""
        # (contexts, digits), the form of the loadings (k, 3) of the three matched components.
        return np.array([[float(d in digits) for d in PLANTED_DIGITS] for digits in self.planted])


def load_images(directory: Path | None, n: int, rng: np.random.Generator) -> Images:
    """Return scikit-learn's digits on photographs, or those of the files in ``directory``, by the paper's recipe."""
    if directory is not None:
        return _images_from_files(directory, n, rng)
    data = load_digit_contexts(n, random_state=rng)
    return Images(
        "scikit-learn's digits on its photographs, 8 x 8",
        context_covariances(data.contexts).covariances,
        tuple(data.contexts),
        tuple(data.planted.values()),
        np.stack([data.mean_digits[d] for d in PLANTED_DIGITS]),
        8,
    )


def missing_files(directory: Path) -> list[str]:
    """Return the names of the files that ``load_images`` would not find."""
    return [name for name in DATA_FILES if not (directory / name).is_file()]


def _images_from_files(directory: Path, n: int, rng: np.random.Generator) -> Images:
    """MNIST's 0, 1 and 2 on grass and clouds: context 1 is background, 2 has 0 and 2, 3 has 1 and 2."""
    arrays: dict[str, Array] = {}
    for name, keys in DATA_FILES.items():
        # An archive reads an array on access: those that are not named, the test set say, stay unread.
        with np.load(directory / name) as file:
            arrays |= {key: file[key] for key in keys}
    labels = arrays["y_train"]
    digits, grass, cloud = (
        arrays[key].reshape(len(arrays[key]), -1) / np.float64(255) for key in ("x_train", "grass", "cloud")
    )
    # Share of grass among the backgrounds, and the digits on them.
    contexts = {"background": (0.5, ()), "0 and 2": (0.8, (0, 2)), "1 and 2": (0.2, (1, 2))}
    rows = {}
    for name, (share, planted) in contexts.items():
        n_grass = round(share * n)
        X = np.vstack([grass[rng.choice(len(grass), n_grass)], cloud[rng.choice(len(cloud), n - n_grass)]])
        for d in planted:
            # With replacement: MNIST has about 6,000 training images of each digit, fewer than the paper's 10,000.
            # Strengths are Uniform[0, 1], one for each image and digit, as in the paper.
            X += digits[rng.choice(np.flatnonzero(labels == d), n)] * rng.random((n, 1))
        rows[name] = X
    # Of all images of a digit, not of those drawn: the reference is the same for every trial.
    means = np.stack([digits[labels == d].mean(axis=0) for d in PLANTED_DIGITS])
    return Images(
        "MNIST on grass and clouds, 28 x 28",
        context_covariances(rows).covariances,
        tuple(contexts),
        tuple(planted for _, planted in contexts.values()),
        means,
        round(np.sqrt(digits.shape[1])),
    )
