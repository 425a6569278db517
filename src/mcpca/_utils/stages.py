"""What is known beforehand of a stage of a long call: how long it is, and whether its parts take equal times.

A stage is a text, and whoever gets it as one need not know more. ``progress`` draws a bar and says the time left where
both are known; it shows what can be said otherwise, and never a time that is made up.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["even", "uneven", "bounded", "pass"]


class Stage(str):
    """The name of a stage, and of which kind it is.

    "even": parts take about equal times. "uneven": they do not, as components that are found several at a time.
    "bounded": the total is the most that can come, of which little may be needed. "pass": one of several passes over
    the rows, of which the number is not known; its parts are rows.
    """

    __slots__ = ("kind",)
    kind: Kind

    def __new__(cls, name: str, kind: Kind = "even") -> Stage:
        """Return the name with its kind."""
        stage = super().__new__(cls, name)
        stage.kind = kind
        return stage

    def __reduce__(self) -> tuple[type[Stage], tuple[str, Kind]]:
        """Return what copies and pickles are made of."""
        return Stage, (str(self), self.kind)


def kind_of(stage: str) -> Kind:
    """Return the kind of a stage; that of plain text is "even"."""
    return stage.kind if isinstance(stage, Stage) else "even"


def uneven(name: str) -> Stage:
    """Return a stage whose parts take unequal times."""
    return Stage(name, "uneven")
