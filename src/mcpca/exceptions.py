"""The errors and warnings that are ours alone; everything else is a ValueError or TypeError."""

__all__ = [
    "DroppedContextsWarning",
    "IdentifiabilityWarning",
    "NoStableRankError",
    "NothingAboveNoiseError",
    "RankExceedsDataError",
    "RawCountsWarning",
    "SmallContextsWarning",
    "UncertainRankWarning",
]


class DroppedContextsWarning(UserWarning):
    """Contexts with few rows, or rows without a context, were left out of a fit."""


class IdentifiabilityWarning(UserWarning):
    """Two MCPCs have proportional loadings, so the data cannot tell them apart.

    If ``b_j`` is proportional to ``b_l`` the pair ``(a_j, a_l)`` can be rotated without changing any
    covariance (the paper's Proposition on explicit identifiability): what the two axes span is
    meaningful, the axes themselves are not.
    """


class NoStableRankError(ValueError):
    """No candidate rank passed the stability rule; ``choice`` holds the whole curve."""

    def __init__(self, message: str, choice: object) -> None:
        super().__init__(message)
        self.choice = choice


class NothingAboveNoiseError(ValueError):
    """No rank was given and none is above noise; ``selection`` holds what was looked at."""

    def __init__(self, message: str, selection: object) -> None:
        super().__init__(message)
        self.selection = selection


class RankExceedsDataError(ValueError):
    """The rank asked for exceeds the number of directions in which the data vary."""


class RawCountsWarning(UserWarning):
    """The rows look like raw counts, whose largest variation is how much was counted in each row."""


class SmallContextsWarning(UserWarning):
    """Contexts have too few rows to have a say in the choice of a rank; they stay in the fit."""


class UncertainRankWarning(UserWarning):
    """A rank was asked for that the rows do not tell.

    They are too few to tell anything from noise, and the smallest model is taken; or directions are above noise, but
    halves of the rows agree on the components at no rank.
    """
