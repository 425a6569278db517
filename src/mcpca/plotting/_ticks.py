"""Names along an axis that thin out where there is no room, at whatever size the axes are finally drawn.

This module imports Matplotlib at the top, to subclass its ``Locator``: import it only inside functions that already
have an ``Axes``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, Locator


class SpacedLocator(Locator):
    """Ticks at 0, 1, ..., n - 1, or at every second, third, ... of them if labels of ``size`` points would touch.

    It is asked each time the axes are drawn, so that ticks follow when a layout or the user changes their size.
    """

    def __init__(self, n: int, size: float) -> None:
        self.n = n
        self.size = size

    def __call__(self) -> Sequence[float]:
        """Return the ticks for the present limits of the axis."""
        assert isinstance(self.axis, Axis)
        low, high = self.axis.get_view_interval()
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks for an axis from ``vmin`` to ``vmax``."""
        assert isinstance(self.axis, Axis)
        axes = self.axis.axes
        box = axes.get_window_extent()
        length = (box.width if self.axis is axes.xaxis else box.height) * 72 / axes.figure.dpi
        # Axes that a layout has squeezed to nothing keep one label.
        step = min(math.ceil(self.size * abs(vmax - vmin) / max(length, 1e-9)), self.n)
        return range(0, self.n, max(step, 1))


def put_names(axis: Axis, names: Sequence[str], size: float) -> None:
    """Label 0, 1, ... on an axis; ``size`` is the length of a label along the axis, in points."""
    axis.set_major_locator(SpacedLocator(len(names), size))
    # The formatter is also asked for positions of the cursor, which are no integers and may be outside.
    axis.set_major_formatter(FuncFormatter(lambda x, _: names[round(x)] if 0 <= round(x) < len(names) else ""))
