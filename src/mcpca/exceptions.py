"""Errors and warnings to catch or filter by name; all others are plain ValueErrors, TypeErrors and UserWarnings.

Each derives from the built-in class that it refines, so code that knows nothing of them works as before. Those that
carry a result (``choice``, ``selection``, ``dominance``) save the caller computing it again.
"""

__all__ = [
    "DominantFeatureWarning",
    "DoubtfulLabelsWarning",
    "DroppedContextsWarning",
    "DuplicateRowsError",
    "ExtraFeaturesWarning",
    "FewGroupsWarning",
    "IdentifiabilityWarning",
    "InflatedLoadingsWarning",
    "MissingFeaturesWarning",
    "NoStableRankError",
    "NotCountsWarning",
    "NothingAboveNoiseError",
    "RankExceedsDataError",
    "RawCountsWarning",
    "SmallContextsWarning",
    "UncertainRankWarning",
    "UnequalNoiseWarning",
]


class DominantFeatureWarning(UserWarning):
    """One feature makes up nearly all of most MCPCs: it is not a measurement, or is on a much larger scale.

    ``dominance`` says which feature it is, and how many MCPCs it dominates.
    """

    def __init__(self, message: str, dominance: object) -> None:
        super().__init__(message)
        self.dominance = dominance


class DoubtfulLabelsWarning(UserWarning):
    """Some contexts have names that differ only by spaces or case, or that look like a missing label ("NA")."""


class DroppedContextsWarning(UserWarning):
    """Contexts with few rows, or rows without a context, were left out of a fit."""


class DuplicateRowsError(ValueError):
    """Rows would count twice: moments were merged with rows that they already include."""


class ExtraFeaturesWarning(UserWarning):
    """New rows have features that are not in the fit; these were ignored."""


class FewGroupsWarning(UserWarning):
    """Errors by groups (``groups=``) rest on few groups in some contexts, and are rough there."""


class IdentifiabilityWarning(UserWarning):
    """Two MCPCs have proportional loadings, so the data cannot tell them apart.

    If ``b_j`` is proportional to ``b_l`` the pair ``(a_j, a_l)`` can be rotated without changing any covariance (the
    paper's Proposition on explicit identifiability): the plane that the two axes span is meaningful, the axes
    themselves are not. For orthogonal MCPCs this holds only if ``b_j = b_l``.
    """


class InflatedLoadingsWarning(UserWarning):
    """There are too few rows for the features: axes fit noise of their rows, and loadings in these are too large.

    ``MCPCA(cross_fit=5)`` takes loadings in rows that the axes were not fitted to. Also issued there, for MCPCs that
    parts of the rows do not find.
    """


class MissingFeaturesWarning(UserWarning):
    """Features are missing, and that costs something.

    Too few contexts have a feature, which was left out of a fit; no context determines a weight; or rows lack features
    of the fit, and their scores or loadings come from those that are there.
    """


class NoStableRankError(ValueError):
    """No candidate rank passed the paper's stability rule; ``choice`` holds the whole curve."""

    def __init__(self, message: str, choice: object) -> None:
        super().__init__(message)
        self.choice = choice


class NotCountsWarning(UserWarning):
    """The rows are to be prepared as raw counts but do not look like counts: they may already be normalised."""


class NothingAboveNoiseError(ValueError):
    """No rank was given and nothing is above noise; ``selection`` holds all that was computed."""

    def __init__(self, message: str, selection: object) -> None:
        super().__init__(message)
        self.selection = selection


class NuisanceWarning(UserWarning):
    """Batch or covariates do not vary within any context, so their effect cannot be told from that of contexts."""


class RankExceedsDataError(ValueError):
    """The requested rank exceeds the number of directions in which the data vary."""


class RawCountsWarning(UserWarning):
    """The rows look like raw counts, whose main variation is the total count of each row."""


class SmallContextsWarning(UserWarning):
    """Some contexts have too few rows to count in the choice of a rank; they stay in the fit."""


class UncertainRankWarning(UserWarning):
    """The rows do not determine a rank.

    Either they are too few to tell anything from noise, and the smallest model is taken; or directions are above noise,
    but halves of the rows do not agree on the components at any rank.
    """


class UnequalNoiseWarning(UserWarning):
    """Contexts differ in noise by enough to change their order in the loadings of a fit without noise.

    By least squares a loading contains about the noise variance of its context. ``corrected_loadings_`` do not.
    """
