"""Names along an axis that thin out where there is no room, at whatever size the axes come to be drawn.

Matplotlib is imported here at once: import this module inside functions that have an ``Axes`` at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, Locator


class SpacedLocator(Locator):
    """Places 0, 1, ..., n - 1, or every so many of them that labels of ``size`` points do not touch."""

    def __init__(self, n: int, size: float) -> None:
        self.n, self.size = n, size

    def __call__(self) -> Sequence[float]:
        """Return the places for the present size of the axes."""
        assert isinstance(self.axis, Axis)
        low, high = self.axis.get_view_interval()
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the places for a view."""
        assert isinstance(self.axis, Axis)
        axes = self.axis.axes
        box = axes.get_window_extent()
        length = (box.width if self.axis is axes.xaxis else box.height) * 72 / axes.figure.dpi
        # An axes that a layout has squeezed to nothing keeps one label.
        step = min(math.ceil(self.size * abs(vmax - vmin) / max(length, 1e-9)), self.n)
        return range(0, self.n, max(step, 1))


def put_names(axis: Axis, names: Sequence[str], size: float) -> None:
    """Label the places 0, 1, ... of an axis; ``size`` is what a label takes along it, in points."""
    axis.set_major_locator(SpacedLocator(len(names), size))
    axis.set_major_formatter(FuncFormatter(lambda x, _: names[round(x)] if 0 <= round(x) < len(names) else ""))
