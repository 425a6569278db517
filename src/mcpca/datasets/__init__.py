"""Data sets that come with the truth behind them: planted Gaussian contexts, and digits on photographs."""

from .digits import DigitContexts, load_digit_contexts
from .planted import PlantedContexts, make_contexts

__all__ = ["DigitContexts", "PlantedContexts", "load_digit_contexts", "make_contexts"]
