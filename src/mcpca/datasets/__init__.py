"""Data with a known answer."""

from .digits import DigitContexts, load_digit_contexts
from .planted import PlantedContexts, make_contexts

__all__ = ["DigitContexts", "PlantedContexts", "load_digit_contexts", "make_contexts"]
