"""Which solver suits these rows: every candidate fitted to halves and judged on the other halves, and who is best.

``judge`` fits candidates, whatever they are, to both halves of some splits and measures them (``held_out``);
``solver_candidates`` makes candidates of solvers. ``MCPCA(solver="auto")`` takes these two, and ``compare_solvers``
(``_comparison``) adds baselines and naive covariances. ``SolverComparison`` is the result of both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._data.contexts import Contexts
from .._linalg.canonical import match_components
from .._model.decomposition import decompose_checked
from .._solvers import SOLVERS
from .._utils.array_api import to_host
from .._utils.optional import require
from .._utils.printing import NAMED, Shown, counted
from .._utils.progress import silent
from .._utils.types import Array, Report
from .._utils.wording import listed, quoted
from .held_out import ANISOTROPIC, OFF_DIAGONAL, Half, Prediction, SharedAxes, errors, log_likelihood
from .replication import refit_in_threads
from .sampling import Halves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_LIKELIHOOD = "log-likelihood"
AGREEMENT = "agreement of halves"
SECONDS = "seconds"
_COLUMNS = (OFF_DIAGONAL, ANISOTROPIC, LOG_LIKELIHOOD, AGREEMENT, SECONDS)
KINDS = ("solver", "baseline", "naive")


class Candidate(NamedTuple):
    """A way to predict covariances: ``fit`` takes a half and its random numbers.

    ``kind`` is one of ``KINDS``; only solvers are recommended. ``options`` are those of ``MCPCA`` for a solver.
    """

    name: str
    kind: str
    fit: Callable[[Half, np.random.Generator], Prediction]
    options: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class SolverComparison(Shown):
    """Solvers, and what they compete with, judged on rows that they were not fitted to.

    Attributes
    ----------
    names : tuple of str
        Names of the candidates, in the order in which they were given.
    kinds : tuple of str
        "solver", "baseline" or "naive".
    values : dict of str to ndarray (m, n_splits)
        Measures of the m candidates in every split, each a mean of both ways; NaN where there is none.
        ``compare_solvers`` explains each.
    judged_by : str
        The measure that decides.
    best : str
        The solver with the lowest error, among solvers only.
    options : dict
        What to pass to ``MCPCA`` for it: "solver", "noise" and, if it is set, "orthogonal".
    reason : str
        Why, in a sentence, and whether the difference is within its error.
    rank : int
        Number of components.
    by : str
        What was split: "rows" or "groups".
    left_out : tuple
        Contexts that could not be split by groups in some split.
    failures : dict of str to str
        Candidates that could not be fitted to some half, and why.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: dict[str, Array]
    judged_by: str
    best: str
    options: dict[str, Any]
    reason: str
    rank: int
    by: str = "rows"
    left_out: tuple[Any, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def n_splits(self) -> int:
        """How often the rows were split into halves."""
        return int(self.values[self.judged_by].shape[1])

    @property
    def means(self) -> dict[str, Array]:
        """Means over splits (m,) by measure."""
        return {name: np.asarray(values.mean(axis=1)) for name, values in self.values.items()}

    @property
    def standard_errors(self) -> dict[str, Array]:
        """Standard errors of the means (m,), from the spread over splits; NaN for a single split.

        Splits are of the same rows, so that these are how much other splits would change the means, and less than what
        other rows would.
        """
        n = self.n_splits
        spread = {name: np.full(len(v), np.nan) if n < 2 else v.std(axis=1, ddof=1) for name, v in self.values.items()}
        return {name: np.asarray(values / np.sqrt(n)) for name, values in spread.items()}

    @property
    def table(self) -> Any:
        """A pandas DataFrame with one row per candidate, the lowest error first; a dict without pandas."""
        order = self.order
        means, errors_ = self.means, self.standard_errors
        content: dict[str, Any] = {"candidate": [self.names[i] for i in order], "kind": [self.kinds[i] for i in order]}
        for name in means:
            content[name] = means[name][order]
            if name != SECONDS:
                content[f"{name}, s.e."] = errors_[name][order]
        # pandas is an extra.
        try:
            return require("pandas", "pandas").DataFrame(content).set_index("candidate")
        except ImportError:
            return content

    @property
    def order(self) -> Array:
        """Positions of the candidates by increasing error (m,); those without one last."""
        return np.argsort(self.means[self.judged_by], kind="stable")

    def plot(self) -> Figure:
        """Draw every measure of every candidate, with its standard error."""
        # Late, because Matplotlib is an extra.
        from ..plotting import plot_solver_comparison

        return plot_solver_comparison(self)

    def to_json(self) -> str:
        """Return everything as JSON text; unknown values are null."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content["values"] = {
            name: np.where(np.isfinite(values), values.astype(object), np.array(None)).tolist()
            for name, values in self.values.items()
        }
        # Names of contexts may be of any kind, which JSON has not.
        content["left_out"] = [str(name) for name in self.left_out]
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> SolverComparison:
        """Return the comparison that ``to_json`` wrote; names of contexts come back as text."""
        content = json.loads(text)
        # As float64, null (None) becomes NaN again.
        content["values"] = {name: np.array(v, dtype=np.float64) for name, v in content["values"].items()}
        for name in ("names", "kinds", "left_out"):
            content[name] = tuple(content[name])
        known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        made = cls(**known)
        made._check()
        return made

    def _check(self) -> None:
        """Raise if this is not a comparison: it may come from any file."""
        m = len(self.names)
        shapes = {values.shape for values in self.values.values()}
        if self.judged_by not in self.values or len(shapes) != 1 or len(self.kinds) != m or self.best not in self.names:
            raise ValueError("its comparison of solvers is not consistent")
        (shape,) = shapes
        if len(shape) != 2 or shape[0] != m or shape[1] < 1:
            raise ValueError(f"its comparison of {m} solvers has values of shape {shape}")
        if self.options.get("solver") not in SOLVERS:
            raise ValueError(f"its comparison recommends solver={str(self.options.get('solver'))[:40]!r}")

    def _words(self) -> list[str]:
        words = [self.reason]
        error = self.means[self.judged_by]
        below = [self.names[i] for i in self.order if self.kinds[i] != "solver" and error[i] < self._best_error()]
        if below:
            is_ = "has" if len(below) == 1 else "have"
            words.append(
                f"{listed(below, NAMED)} {is_} a lower error still: {_of_naive(below, self)}."
                if all(self.kinds[self.names.index(name)] == "naive" for name in below)
                else f"{listed(below, NAMED)} {is_} a lower error still."
            )
        if self.left_out:
            words.append(
                f"{counted(len(self.left_out), 'context')} could not be split by groups and took no part: "
                f"{quoted(self.left_out)}."
            )
        words += [f"{name} could not be fitted: {why}" for name, why in self.failures.items()]
        return words

    def _best_error(self) -> float:
        return float(self.means[self.judged_by][self.names.index(self.best)])

    def _rows(self) -> dict[str, Any]:
        order = self.order
        return {"": [self.names[i] for i in order]} | {name: values[order] for name, values in self.means.items()}


def _of_naive(below: list[str], comparison: SolverComparison) -> str:
    """Return what it means that covariances of full rank are closer, as part of a sentence."""
    it = "it predicts" if len(below) == 1 else "they predict"
    return (
        f"{it} covariances better than any model of {counted(comparison.rank, 'component')}, and "
        f"{'has' if len(below) == 1 else 'have'} no components"
    )


def solver_candidates(
    choices: Sequence[Mapping[str, Any]], r: int, *, tol: float, max_iter: int, weights: Mapping[Any, float] | None
) -> list[Candidate]:
    """Return candidates for some choices of "solver", "orthogonal" and "noise", each as ``check_solver`` returns them.

    They predict by loadings without noise: those of the fit if it has noise, and otherwise the corrected ones, beside
    an isotropic floor, by which contexts are compared. ``weights`` are by context.
    """

    def candidate(options: Mapping[str, Any]) -> Candidate:
        def fit(half: Half, rng: np.random.Generator) -> Prediction:
            data = half.data
            w = None if weights is None else np.array([weights[name] for name in half.names.tolist()])
            w = None if w is None else w / w.mean()
            result, measures = decompose_checked(
                data.covariances,
                r,
                **options,
                counts=data.counts,
                weights=w,
                rng=rng,
                # One core for all, except where weights change the covariances that it would be of.
                core=half.core if w is None or SOLVERS[options["solver"]].models_noise else None,
                names=half.names.tolist(),
                with_measures=True,
                report=silent,
                tol=tol,
                max_iter=max_iter,
            )
            assert measures is not None
            A = to_host(result.components).astype(np.float64)
            return SharedAxes(A, half.in_units(to_host(measures.corrected_loadings).astype(np.float64)))

        given = {name: value for name, value in options.items() if name != "orthogonal" or value}
        return Candidate(candidate_name(options), "solver", fit, given)

    return [candidate(options) for options in choices]


def candidate_name(options: Mapping[str, Any]) -> str:
    """Return the name of a solver with its noise: "mspm", "ml isotropic", "ml scaled", "lsq orthogonal"."""
    words = [options["solver"]]
    if options.get("noise") is not None:
        words.append(options["noise"])
    if options.get("orthogonal"):
        words.append("orthogonal")
    return " ".join(words)


def judge(
    contexts: Contexts,
    r: int,
    candidates: Sequence[Candidate],
    n_splits: int,
    rng: np.random.Generator,
    report: Report,
    *,
    judged_by: str,
    tol: float,
    weights: Mapping[Any, float] | None = None,
    in_full: bool = False,
    n_jobs: int | None = None,
) -> SolverComparison:
    """Fit each candidate to both halves of random splits, and judge each fit on the other half.

    Parameters
    ----------
    contexts
        Rows at hand, in the range of ``in_range``; with groups, these are split.
    candidates
        At least one of them a solver.
    judged_by : str
        ``OFF_DIAGONAL`` or ``ANISOTROPIC``, by which the best is chosen.
    weights
        Of contexts, by name.
    in_full : bool
        Whether to measure log-likelihoods, which takes O(k p^3) for each fit, and time, which differs from run to run.
    n_jobs : int, optional
        Splits at a time; as many as BLAS has threads if None.

    Notes
    -----
    ``2 n_splits`` fits to half of the rows for every candidate, with one basis for all solvers of a half. Every split
    has random numbers of its own, and every candidate the same ones, so that neither threads nor other candidates
    change a number. Memory: two stacks of covariances a thread, three more with likelihoods.
    """
    halving = Halves(contexts, "auto", n_splits)
    streams = rng.spawn(halving.n_splits)
    pairs = [halving.split(i, stream) for i, stream in enumerate(streams)]
    seeds = [stream.integers(2**63, size=2).tolist() for stream in streams]

    def measure(i: int) -> tuple[dict[str, Array], dict[str, str]]:
        halves = [Half(rows, r, tol) for rows in pairs[i]]
        found = {name: np.full(len(candidates), np.nan) for name in _COLUMNS}
        failed = {}
        for j, candidate in enumerate(candidates):
            try:
                measured = _both_ways(candidate, halves, seeds[i], weights, in_full)
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                failed[candidate.name] = str(error)
                continue
            for name, value in measured.items():
                found[name][j] = value
        return found, failed

    splits = refit_in_threads(measure, len(pairs), "halves", report, n_jobs)
    values = {name: np.stack([found[name] for found, _ in splits], axis=1) for name in _COLUMNS}
    # Of several splits the first, so that the answer does not depend on which thread came first.
    failures = {name: why for _, failed in reversed(splits) for name, why in failed.items()}
    if not in_full:
        del values[LOG_LIKELIHOOD], values[SECONDS]
    names = tuple(candidate.name for candidate in candidates)
    kinds = tuple(candidate.kind for candidate in candidates)
    best = _best(values[judged_by], candidates, failures, halving.by)
    return SolverComparison(
        names=names,
        kinds=kinds,
        values=values,
        judged_by=judged_by,
        best=names[best],
        options=dict(candidates[best].options),
        reason=_reason(values[judged_by], candidates, best, judged_by, halving.by),
        rank=r,
        by=halving.by,
        left_out=halving.left_out(pairs),
        # In the order of the candidates, not of threads.
        failures={name: failures[name] for name in names if name in failures},
    )


def _both_ways(
    candidate: Candidate,
    halves: list[Half],
    seeds: list[int],
    weights: Mapping[Any, float] | None,
    in_full: bool,
) -> dict[str, float]:
    """Return the measures of a candidate in one split."""
    predictions = []
    seconds = 0.0
    for half, seed in zip(halves, seeds, strict=True):
        if candidate.kind == "solver":
            seconds += half.core_seconds  # found once, and a part of every fit
        start = perf_counter()
        predictions.append(candidate.fit(half, np.random.default_rng(seed)))
        seconds += perf_counter() - start
    measured = []
    for fitted, other, prediction in zip(halves, halves[::-1], predictions, strict=True):
        w = None if weights is None else np.array([weights[name] for name in other.names.tolist()])
        measured.append(errors(other, prediction, w))
        if in_full:
            measured[-1][LOG_LIKELIHOOD] = log_likelihood(fitted, other, prediction)
    found = {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}
    first, second = (prediction.axes for prediction in predictions)
    if first is not None and second is not None:
        found[AGREEMENT] = float(match_components(first, second).cosines.mean())
    return found | {SECONDS: seconds / 2}


def _best(values: Array, candidates: Sequence[Candidate], failures: Mapping[str, str], by: str) -> int:
    """Return the index of the solver with the lowest mean error; the first of several that are alike."""
    means = [values[i].mean() if candidate.kind == "solver" else np.nan for i, candidate in enumerate(candidates)]
    if np.isnan(means).all():
        why = next((failures[c.name] for c in candidates if c.name in failures), "")
        raise ValueError(
            f"No solver could be fitted to halves of the {by} and judged on the others"
            + (f": {why}" if why else ", because covariances are nothing but noise.")
        )
    return int(np.nanargmin(means))


def _reason(values: Array, candidates: Sequence[Candidate], best: int, judged_by: str, by: str) -> str:
    """Say what the best solver has over the next one, and how sure that is."""
    n = values.shape[1]
    means = values.mean(axis=1)
    name = candidates[best].name
    where = f"in halves of the {by} that it was not fitted to ({counted(n, 'split')})"
    others = [
        i
        for i in np.argsort(means, kind="stable").tolist()
        if i != best and candidates[i].kind == "solver" and np.isfinite(means[i])
    ]
    if not others:
        return f"{name} is the only solver to judge: {judged_by} {means[best]:.3f} {where}."
    said = f"{name} has the lowest {judged_by} of {len(others) + 1} solvers, {means[best]:.3f} {where}"
    second = others[0]
    within = [candidates[i].name for i in others if not _is_clear(values[i] - values[best])]
    if n < 2:
        return (
            f"{said}; {candidates[second].name} has {means[second]:.3f}, and one split does not say how sure that is."
        )
    if not within:
        next_ = f"the next, {candidates[second].name}, has {means[second]:.3f}"
        return f"{said}; {next_}, more than two standard errors above."
    return f"{said}; within two standard errors of it: {listed(within, NAMED)}."


def _is_clear(gaps: Array) -> bool:
    """Whether paired differences (n_splits,) are more than two standard errors above zero."""
    return len(gaps) > 1 and float(gaps.mean()) > 2 * float(gaps.std(ddof=1)) / np.sqrt(len(gaps))


def in_units(comparison: SolverComparison, e: int) -> SolverComparison:
    """Return the comparison for the same rows times ``2^e``: log-densities per feature fall by ``e log 2``."""
    if e == 0 or LOG_LIKELIHOOD not in comparison.values:
        return comparison
    values = comparison.values | {LOG_LIKELIHOOD: comparison.values[LOG_LIKELIHOOD] - e * np.log(2)}
    return replace(comparison, values=values)
