"""Compare a figure with the picture that is kept in ``tests/baseline``.

Letters and layouts move by a pixel between versions of Matplotlib and FreeType, which says nothing of what is drawn. So
both pictures are averaged over small squares first: a letter that moves within its square changes nothing, a cell of
another colour or a curve in another place does. Draw with ``plain_style()``, so that a user's settings have no say.
"""

import os
from pathlib import Path

import matplotlib.image
import matplotlib.style
import numpy as np

BASELINE = Path(__file__).parent / "baseline"
TOLERANCE = 6.0  # root mean square over squares and colours, of 255
LARGEST = 25_000  # bytes of a picture
_DPI = 60
_SQUARE = 6  # pixels


def plain_style():
    """Matplotlib's own settings, as a context."""
    return matplotlib.style.context("default")


def check_picture(figure, name, folder=BASELINE):
    """Raise AssertionError where ``figure`` does not look like ``<name>.png``.

    What was drawn is then kept beside it as ``<name>-failed.png``. MCPCA_UPDATE_PICTURES=1 in the environment writes
    the picture instead: look at it before it is committed.
    """
    kept = folder / f"{name}.png"
    if os.environ.get("MCPCA_UPDATE_PICTURES") == "1":
        _save(figure, kept)
        assert kept.stat().st_size < LARGEST, f"{kept} has {kept.stat().st_size} bytes; draw a smaller figure."
        return
    assert kept.exists(), f"{kept} is missing; write it with MCPCA_UPDATE_PICTURES=1, look at it, and commit it."
    drawn = folder / f"{name}-failed.png"
    _save(figure, drawn)
    distance = picture_distance(drawn, kept)
    assert distance <= TOLERANCE, f"{drawn} differs from {kept}: {distance:.1f} > {TOLERANCE} of 255."
    drawn.unlink()


def picture_distance(first, second):
    """Root mean square difference of two PNG files after averaging over squares; infinite for different sizes."""
    a, b = (_squares(matplotlib.image.imread(path)[..., :3]) for path in (first, second))
    return 255 * float(np.sqrt(np.mean((a - b) ** 2))) if a.shape == b.shape else np.inf


def _save(figure, path):
    figure.savefig(path, dpi=_DPI, facecolor="white", metadata={"Software": None}, pil_kwargs={"optimize": True})


def _squares(pixels):
    height, width = (side // _SQUARE * _SQUARE for side in pixels.shape[:2])
    return pixels[:height, :width].reshape(height // _SQUARE, _SQUARE, width // _SQUARE, _SQUARE, 3).mean(axis=(1, 3))
