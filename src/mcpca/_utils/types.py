"""Types that occur in nearly every signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Report = Callable[[str, int, int], None]  # called with (stage, done, total); see ``progress``
