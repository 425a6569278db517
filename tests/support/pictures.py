"""Compare a figure with the picture that is kept in ``tests/baseline``.

Letters and layouts move by a pixel between versions of Matplotlib and FreeType, which says nothing of what is drawn. So
both pictures are averaged over small squares first: a letter that moves within its square changes nothing, a cell of
another colour or a curve in another place does. Draw with ``plain_style()``, so that a user's settings have no say, and
on axes at a fixed place: a layout moves with the width of letters. The same pictures by Matplotlib 3.8 and 3.11 are
then at most 5.1 apart, those of different numbers at least 8.
"""

import os
from pathlib import Path

import matplotlib.image
import matplotlib.pyplot as plt
import matplotlib.style
import numpy as np
import PIL.Image

BASELINE = Path(__file__).parents[1] / "plotting" / "baseline"
TOLERANCE = 6.0  # root mean square over squares and colours, of 255
LARGEST = 25_000  # bytes of a picture
_DPI = 60
_SQUARE = 9  # pixels


def plain_style():
    """Matplotlib's own settings, as a context; letters without hints, which versions follow differently."""
    return matplotlib.style.context(["default", {"text.hinting": "none"}])


def axes(left=0.8, right=0.9, below=0.7, above=0.3, width=4.0, height=3.0):
    """Axes at a fixed place, margins in inches: a layout would move them with the width of letters."""
    box = (left / width, below / height, 1 - (left + right) / width, 1 - (below + above) / height)
    return plt.figure(figsize=(width, height)).add_axes(box)


def check_picture(figure, name, folder=BASELINE):
    """Raise AssertionError where ``figure`` does not look like ``<name>.png``.

    What was drawn is then kept beside it as ``<name>-failed.png``. MCPCA_UPDATE_PICTURES=1 in the environment writes
    the picture instead: look at it before it is committed.
    """
    kept = folder / f"{name}.png"
    if os.environ.get("MCPCA_UPDATE_PICTURES") == "1":
        save_picture(figure, kept)
        _with_few_colours(kept)
        assert kept.stat().st_size < LARGEST, f"{kept} has {kept.stat().st_size} bytes; draw a smaller figure."
        return
    assert kept.exists(), f"{kept} is missing; write it with MCPCA_UPDATE_PICTURES=1, look at it, and commit it."
    drawn = folder / f"{name}-failed.png"
    save_picture(figure, drawn)
    distance = picture_distance(drawn, kept)
    assert distance <= TOLERANCE, f"{drawn} differs from {kept}: {distance:.1f} > {TOLERANCE} of 255."
    drawn.unlink()


def picture_distance(first, second):
    """Root mean square difference of two PNG files after averaging over squares; infinite for different sizes."""
    a, b = (_squares(matplotlib.image.imread(path)[..., :3]) for path in (first, second))
    return 255 * float(np.sqrt(np.mean((a - b) ** 2))) if a.shape == b.shape else np.inf


def save_picture(figure, path):
    """Write a figure as the kept pictures are written."""
    figure.savefig(path, dpi=_DPI, facecolor="white")


def _with_few_colours(path):
    """Write a picture again with a palette, in a third of the bytes."""
    PIL.Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def _squares(pixels):
    height, width = (side // _SQUARE * _SQUARE for side in pixels.shape[:2])
    return pixels[:height, :width].reshape(height // _SQUARE, _SQUARE, width // _SQUARE, _SQUARE, 3).mean(axis=(1, 3))
