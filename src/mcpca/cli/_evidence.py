"""Is it real? Which MCPCs come back in halves of the rows, and how far loadings move from sample to sample.

``mcpca fit`` knows the first without further fits in two cases, and then says it unless told not to: a rank that was
chosen rests on it, and the test of contexts has fitted halves of the rows. ``--replicability`` asks for ten splits of
their own, ``--bootstrap N`` for intervals; both cost fits, and are done only if they are asked for. What is done
follows from the options and the data alone, never from the time that something took, so that a run can be repeated.

``evidence.json`` keeps both for ``mcpca report``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._estimator.mcpca import MCPCA, fitted_model
from .._inference.bootstrap import Bootstrap
from .._inference.dependence_result import ContextDependence
from .._inference.replication import Replicability
from .._rank.selection import RankSelection
from .._utils.component_names import component_names
from .._utils.printing import counted, extremes
from .._utils.wording import listed
from ._console import Console, in_words_of_the_command
from ._model_tables import known_labels
from ._record import FitOptions
from .tables import TableData

FILE = "evidence.json"
SPLITS = 10  # of --replicability, the default of the library
FROM_RANK = "the choice of the rank"
FROM_TEST = "the halves of the test of contexts"
FROM_SPLITS = "splits of its own"
_ARRAYS = ("lower", "upper", "standard_errors", "angles", "angle_bounds", "bias", "n_groups")
_NAMED = 8  # MCPCs in a sentence


@dataclass(frozen=True)
class Evidence:
    """What was found, each None if it was not looked at; ``source`` says what halves are from, or why there are none.

    ``bootstrap`` is of the corrected loadings.
    """

    replicability: Replicability | None = None
    bootstrap: Bootstrap | None = None
    source: str | None = None


def evidence_of(
    model: MCPCA, data: TableData, options: FitOptions, test: ContextDependence | None, console: Console
) -> Evidence:
    """Return what is known of a fit, after refits if the options ask for them; notes say what was not done, and why.

    Cost: ``2 SPLITS`` fits to halves of the rows for ``--replicability``, N fits for ``--bootstrap N``, none otherwise.
    """
    replicability, source = _halves_at_hand(model, options, test)
    if options.replicability and replicability is None:
        replicability = _refitted(model, data, options.seed, console, "halves", "replicability", n_splits=SPLITS)
        source = None if replicability is None else FROM_SPLITS
    elif options.replicability is None and replicability is None:
        source = f"not looked at: {_why_not(data, options)}"
        console.note(f"which MCPCs come back in halves of the rows was {source}.")
    bootstrap = None
    if options.bootstrap:
        bootstrap = _refitted(model, data, options.seed, console, "resamples", "bootstrap", n=options.bootstrap)
    return Evidence(replicability, bootstrap, source)


def _halves_at_hand(
    model: MCPCA, options: FitOptions, test: ContextDependence | None
) -> tuple[Replicability | None, str | None]:
    """Return which MCPCs come back as far as halves were fitted anyway, and where; nothing if that is not wanted."""
    if options.replicability is False:
        return None, None
    choice = model.rank_choice_
    of_choice = choice.replicability if isinstance(choice, RankSelection) else None
    of_test = None if test is None else test.replicability
    for halves, source in ((of_choice, FROM_RANK), (of_test, FROM_TEST)):
        if halves is None or halves.cosines.shape[1] != model.n_components_:
            continue
        # Ten splits were asked for; these may be one or four. There may be fewer ways to divide groups.
        if not options.replicability or len(halves.cosines) >= SPLITS or halves.n_ways is not None:
            return halves, source
    return None, None


def _why_not(data: TableData, options: FitOptions) -> str:
    """Say why halves were not compared unasked, and what to do about it."""
    if data.labels is None:
        return "moments have no rows to split"
    if not data.in_memory:
        return f"rows are streamed, and each of {2 * SPLITS} fits would read them again; --replicability does it"
    if not options.context_test:
        return f"it takes {2 * SPLITS} fits; --replicability does it"
    return "the test of contexts, which splits rows, was not made; --replicability asks for it alone"


def _refitted(
    model: MCPCA, data: TableData, seed: int, console: Console, phase: str, method: str, **numbers: int
) -> Any:
    """Return what a method of the model finds by fitting it again; None, with a warning, if that fails."""
    assert data.labels is not None  # refused for moments, by ``check_moments``
    with console.phase(phase):
        try:
            return getattr(model, method)(
                data.source,
                known_labels(model, data.labels),
                random_state=seed,
                verbose=console.progress,
                **numbers,
                **data.annotations,
            )
        except ValueError as error:
            # The fit is fine, and may have taken hours. It is the rows that are too few for parts of them.
            reason = in_words_of_the_command(str(error))
    option = "--replicability" if method == "replicability" else f"--bootstrap {numbers['n']}"
    console.warn(f"{option} could not be done, and the rest is as it would be without it: {reason}")
    return None


# Tables and words --------------------------------------------------------------------------------------------------


def tables_of_evidence(model: MCPCA, evidence: Evidence) -> dict[str, dict[str, Any]]:
    """Return the tables by the names of their files, each as columns by name."""
    names = component_names(model)
    tables: dict[str, dict[str, Any]] = {}
    halves = evidence.replicability
    if halves is not None:
        tables["replicability"] = {
            "component": names,
            "mean_cosine": halves.agreement,
            "spread": halves.spread,
            "least": halves.cosines.min(axis=0),
            "largest": halves.cosines.max(axis=0),
            "replicates": halves.replicates,
            "undecided": halves.undecided,
        }
    errors = evidence.bootstrap
    if errors is not None:
        contexts = [str(name) for name in model.contexts_]
        B = fitted_model(model).compared_loadings()
        tables["loading_intervals"] = {
            "context": [name for name in contexts for _ in names],
            "component": names * len(contexts),
            "loading": B.ravel(),
            "lower": errors.lower.ravel(),
            "upper": errors.upper.ravel(),
            "standard_error": errors.standard_errors.ravel(),
        }
    return tables


def summary_of_evidence(model: MCPCA, evidence: Evidence) -> dict[str, Any]:
    """Return what ``diagnostics.json`` says: entries "replicability" and "bootstrap", null where nothing is known."""
    names = component_names(model)
    halves = evidence.replicability
    errors = evidence.bootstrap
    content: dict[str, Any] = {"replicability": None, "bootstrap": None}
    if halves is not None:
        content["replicability"] = {
            "from": evidence.source,
            "by": halves.by,
            "splits": len(halves.cosines),
            "threshold": halves.threshold,
            "replicating": _named(names, halves.replicates),
            "undecided": _named(names, halves.undecided),
            "summary": halves.summary(),
        }
    if errors is not None:
        content["bootstrap"] = {
            "resamples": len(errors.angles),
            "failed": errors.n_failed,
            "confidence": errors.confidence,
            "angle_bounds": dict(zip(names, errors.angle_bounds.tolist(), strict=True)),
            "summary": errors.summary(),
        }
    return content


def words_of_evidence(model: MCPCA, evidence: Evidence) -> list[str]:
    """Return lines for the terminal."""
    lines = []
    halves = evidence.replicability
    if halves is not None:
        n, r = halves.cosines.shape
        # NaN, of halves that could not be compared, comes back nowhere.
        missing = _named(component_names(model), ~halves.replicates)
        of_splits = "" if n == 1 else f", mean of {n} splits"
        told = f"{halves.n_replicating} of {r} come back in halves of the {halves.by} (|cos| > {halves.threshold:g}"
        lines.append(f"{told}{of_splits}){f'; not {listed(missing, _NAMED)}' if 0 < len(missing) < r else ''}.")
    errors = evidence.bootstrap
    if errors is not None:
        above = int((errors.lower > 0).sum())
        lines.append(
            f"{counted(len(errors.angles), 'resample')}: {100 * errors.confidence:g}% of them stay within "
            f"{extremes(errors.angle_bounds)} degrees; {above:,} of {errors.lower.size:,} loadings are above 0."
        )
    return lines


def _named(names: list[str], which: Any) -> list[str]:
    return [name for name, chosen in zip(names, np.asarray(which).tolist(), strict=True) if chosen]


# The file ----------------------------------------------------------------------------------------------------------


def write_evidence(evidence: Evidence, folder: Path) -> None:
    """Write ``evidence.json``, if there is any; the loadings of single resamples are not kept."""
    content: dict[str, Any] = {}
    halves = evidence.replicability
    if halves is not None:
        content["replicability"] = {
            "cosines": halves.cosines.tolist(),
            "threshold": halves.threshold,
            "by": halves.by,
            "n_ways": halves.n_ways,
            "left_out": [str(name) for name in halves.left_out],
            "from": evidence.source,
        }
    errors = evidence.bootstrap
    if errors is not None:
        arrays = {name: getattr(errors, name) for name in _ARRAYS}
        content["bootstrap"] = {
            **{name: None if values is None else values.tolist() for name, values in arrays.items()},
            "confidence": errors.confidence,
            "n_failed": errors.n_failed,
            "corrected": errors.corrected,
        }
    if content:
        (folder / FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


def read_evidence(folder: Path, model: MCPCA) -> Evidence:
    """Return the evidence that lies beside a model; none if there is none, or if it is of a model of another shape."""
    path = folder / FILE
    k, r = model.loadings_.shape
    replicability = bootstrap = None
    fields: dict[str, Any]
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        halves = content.get("replicability")
        if halves is not None and np.shape(halves["cosines"])[1:] == (r,):
            fields = {name: halves[name] for name in ("threshold", "by", "n_ways")}
            replicability = Replicability(
                np.array(halves["cosines"], dtype=float), **fields, left_out=tuple(halves["left_out"])
            )
        errors = content.get("bootstrap")
        if errors is not None and np.shape(errors["lower"]) == (k, r):
            fields = {name: None if errors[name] is None else np.array(errors[name]) for name in _ARRAYS}
            fields |= {name: errors[name] for name in ("confidence", "n_failed", "corrected")}
            bootstrap = Bootstrap(**fields, loadings=None)
    # Not written by this program, or not to its end: the report says that there is none.
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Evidence()
    return Evidence(replicability, bootstrap)
