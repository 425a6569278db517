"""The parameters of ``MCPCA`` as one value, checked as a whole before any row is read.

scikit-learn wants ``__init__`` to store parameters and do nothing else; every kind of fit therefore starts with
``Parameters(...).checked()``, which raises with the name of what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from .._data.preprocess import as_preprocess
from .._solvers import SOLVERS, check_solver, resolved_noise
from .._utils.arguments import as_generator, check_integer, refuse_without_effect
from .._utils.progress import check_verbose

REPLICATING = "replicating"
# The solver that stands for a choice among solvers.
AUTO = "auto"


@dataclass(frozen=True)
class Parameters:
    """The arguments of the constructor of ``MCPCA``, which documents them.

    The three defaults repeat those of the constructor: options that only a choice of the rank uses are refused with a
    given rank, unless they are at their defaults.
    """

    n_components: int | None
    solver: str
    orthogonal: bool
    noise: str | None
    robust: bool
    cross_fit: int
    missing: str
    preprocess: Any
    context_weights: Any
    random_state: Any
    tol: float | None
    max_iter: int
    verbose: Any
    rank_range: Any = None
    n_seed_pairs: int = 5
    cos_sim_threshold: float = 0.8
    # Not an argument: which MCPCs of a chosen rank are kept, for ``n_components="replicating"``; None keeps all.
    keep: str | None = None

    def checked(self) -> Parameters:
        """Return these parameters; raise if one of them is invalid, has no effect, or contradicts another.

        ``n_components="replicating"`` becomes a rank to be chosen, None, of which some MCPCs are to be kept.
        """
        given: Any = self.n_components
        if isinstance(given, str):
            return replace(self, n_components=None, keep=_checked_keep(self)).checked()
        if self.is_automatic:
            self._check_automatic()
        else:
            _check_named(self.solver)
            check_solver(self.solver, self.orthogonal, self.noise)
        check_verbose(self.verbose)
        if not isinstance(self.robust, (bool, np.bool_)):
            raise ValueError(f"robust={self.robust!r} is a {type(self.robust).__name__}; pass True or False.")
        check_integer(self.cross_fit, "cross_fit", 0, way_out="It is the number of splits; 0 does not cross-fit.")
        if self.cross_fit and self.robust:
            raise ValueError(
                f"cross_fit={self.cross_fit} with robust=True: loadings in unseen rows are variances, which bad rows "
                "spoil. Drop rows that outlyingness finds to be far out and pass robust=False, or cross_fit=0."
            )
        check_missing(self)
        _check_preprocess(self)
        # Options without effect are refused: whoever sets one believes that it changes the answer.
        if self.n_components is not None:
            reason = f"the rank is given, n_components={self.n_components!r}"
            for name, default in RANK_RULE_DEFAULTS.items():
                refuse_without_effect(name, getattr(self, name), default, reason, "drop it, or pass n_components=None")
        elif self.rank_range is None:
            reason = "select_rank compares halves of the rows and not seeds"
            default = RANK_RULE_DEFAULTS["n_seed_pairs"]
            refuse_without_effect("n_seed_pairs", self.n_seed_pairs, default, reason, "drop it, or pass rank_range")
        # A RandomState is valid; turning it into a Generator would draw from it, which a check must not do.
        if not isinstance(self.random_state, np.random.RandomState):
            as_generator(self.random_state)
        return self

    @property
    def is_automatic(self) -> bool:
        """Whether the solver is to be chosen."""
        return isinstance(self.solver, str) and self.solver == AUTO

    def _check_automatic(self) -> None:
        """Raise if options do not go with a solver that is chosen."""
        # Whatever is chosen, the options have to go with it: they are those of a likelihood as well.
        check_solver("ml", self.orthogonal, self.noise)
        if self.robust:
            raise ValueError(
                "solver='auto' with robust=True: rows are weighted by the fit of one solver, and bad rows would decide "
                "on which. Name a solver, or pass robust=False."
            )
        if self.missing != "error":
            raise ValueError(
                f"solver='auto' with missing={self.missing!r}: solvers are compared on complete rows. Name a solver; "
                "mcpca.compare_solvers on complete rows helps to choose."
            )

    def for_rank(self) -> Parameters:
        """Return the parameters by which a rank is chosen: by the default solver, if the solver is chosen after it."""
        return replace(self, solver="mspm", noise="auto") if self.is_automatic else self

    def refuse_options_of_rows(self, what: str) -> None:
        """Raise if an option needs the rows, and the fit is of ``what`` (plural), which does not have them."""
        if self.is_automatic:
            raise ValueError(
                f"solver='auto' fits halves of the rows, and {what} cannot be divided into halves; pass the rows to "
                f"fit, or name a solver, one of {sorted(SOLVERS)}."
            )
        if self.missing != "error":
            raise ValueError(
                f"missing={self.missing!r} looks for missing values among rows, and {what} no longer have them; pass "
                "the rows to fit, or missing='error'."
            )
        if self.preprocess is not None:
            spec = as_preprocess(self.preprocess)
            kind = None if spec is None else spec.kind_in_words()
            raise ValueError(
                f"preprocess={kind} is applied to rows, and {what} no longer have them; prepare the rows before "
                "they are summed up, and pass preprocess=None."
            )
        if self.robust:
            raise ValueError(
                f"robust=True weighs single rows, and {what} no longer have them; pass the rows to fit, or "
                "robust=False."
            )
        if self.cross_fit:
            raise ValueError(
                f"cross_fit={self.cross_fit} fits parts of the rows, and {what} cannot be divided into parts; pass the "
                "rows to fit, or cross_fit=0."
            )


def _checked_keep(parameters: Parameters) -> str:
    """Return which MCPCs are kept, for ``n_components`` in words; raise if that is unknown or cannot be known."""
    word = str(parameters.n_components)
    if word != REPLICATING:
        raise ValueError(
            f"n_components={word!r} is unknown; pass a number, None for a rank that is chosen, or {REPLICATING!r} for "
            "those of its MCPCs that come back."
        )
    if parameters.rank_range is not None:
        raise ValueError(
            f"n_components={word!r} with rank_range={parameters.rank_range!r}: the paper's rule compares seeds, and "
            "does not say which MCPCs come back in other rows. Drop rank_range, or pass n_components=None."
        )
    if parameters.cross_fit:
        raise ValueError(
            f"n_components={word!r} with cross_fit={parameters.cross_fit}: parts of the rows are fitted with a rank, "
            "and not with some MCPCs of one. Pass cross_fit=0, or a number."
        )
    return word


def _check_preprocess(parameters: Parameters) -> None:
    """Raise if ``preprocess`` is no way to prepare rows, or does not go with ``missing``."""
    spec = as_preprocess(parameters.preprocess)
    if spec is not None and parameters.missing != "error":
        raise ValueError(
            f"preprocess={spec.kind_in_words()} with missing={parameters.missing!r}: totals of rows that lack features "
            "are not comparable. Prepare the rows before the fit and pass preprocess=None, or select the features that "
            "all rows have."
        )


def _check_named(solver: object) -> None:
    """Raise if there is no such solver; "auto" is one of the answers."""
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise ValueError(f"solver={solver!r} is unknown; choose one of {sorted([*SOLVERS, AUTO])}.")


# What ``missing`` may be, and the solvers that each way has.
MISSING: dict[str, tuple[str, ...]] = {
    "error": tuple(SOLVERS),
    "union": ("lsq", "ml"),
    "pairwise": ("mspm", "lsq"),
    "em": ("ml",),
}


def check_missing(parameters: Parameters) -> None:
    """Raise if ``missing`` is unknown, or does not go with the other parameters."""
    missing = parameters.missing
    solver = parameters.solver
    if not isinstance(missing, str) or missing not in MISSING:
        raise ValueError(f"missing={missing!r} is unknown; choose one of {list(MISSING)}.")
    if missing == "error":
        return
    allowed = MISSING[missing]
    if solver not in allowed:
        needs = "needs all features in all contexts" if missing == "union" else "does not have this way"
        raise ValueError(
            f"missing={missing!r} with solver={solver!r}: {solver} {needs}. Pass "
            f"{' or '.join(f'solver={name!r}' for name in allowed)}."
        )
    if parameters.orthogonal and missing != "pairwise":
        raise ValueError(
            f"missing={missing!r} with orthogonal=True: orthogonal axes need all features in all contexts. Pass "
            "orthogonal=False, or select the features that all contexts have."
        )
    noise = resolved_noise(solver, parameters.noise, missing)
    if solver == "ml" and noise is None:
        raise ValueError(f"missing={missing!r} with noise=None: the likelihood of some features needs noise; drop it.")
    if solver == "lsq" and missing == "union" and noise not in (None, "isotropic"):
        raise ValueError(
            f"missing='union' with noise={noise!r}: solver='lsq' has noise='isotropic' or None there. Pass one of "
            "these, or solver='ml'."
        )
    if parameters.n_components is None:
        raise ValueError(
            f"missing={missing!r} needs n_components: ranks are chosen on complete rows. Choose one by select_rank on "
            "the features that all contexts have, or on complete rows."
        )
    for name in ("robust", "cross_fit"):
        if getattr(parameters, name):
            raise ValueError(
                f"missing={missing!r} with {name}={getattr(parameters, name)!r}, which is for complete rows; drop one "
                "of the two."
            )


# Parameters that only a choice of the rank uses, with their defaults.
RANK_RULE_DEFAULTS = {
    field.name: field.default
    for field in fields(Parameters)
    if field.name in ("rank_range", "n_seed_pairs", "cos_sim_threshold")
}
