"""Whether MCPCs differ between contexts, as ``mcpca fit`` tests and stores it; ``mcpca report`` reads it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._estimator.mcpca import MCPCA
from .._inference.dependence_result import ContextDependence
from .._inference.replication import Replicability
from .._utils.component_names import component_names
from ._console import Console
from ._words import in_words_of_the_command
from .tables import TableData
from .tables.labels import Labels

FILE = "context_dependence.json"


def tested_contexts(
    model: MCPCA, data: TableData, labels: Labels | None, seed: int, console: Console
) -> ContextDependence | None:
    """Test the MCPCs of a model on the rows of its fit; None for one context, and where rows are not in memory.

    Where halves of the rows cannot be fitted, a note says why there is no test.
    """
    if labels is None or not data.in_memory or len(model.contexts_) < 2:
        return None
    try:
        return model.context_dependence(
            data.source, labels, random_state=seed, verbose=console.progress, **data.annotations
        )
    except ValueError as error:
        # The fit itself is fine: halves may have too few rows for its rank, or groups may be one in each context.
        console.note(f"not tested whether MCPCs differ between contexts: {in_words_of_the_command(str(error))}")
        return None


def columns_of_test(model: MCPCA, test: ContextDependence) -> dict[str, Any]:
    """Return a row for each MCPC, as columns by name."""
    return {
        "component": component_names(model),
        "p": test.p_values,
        "q": test.q_values,
        "dependent": test.dependent,
        "dispersion": test.dispersion,
        "statistic": test.statistics,
        "null_mean": test.null_means,
        "agreement_of_halves": test.agreement,
    }


def summary_of_test(model: MCPCA, test: ContextDependence | None) -> dict[str, Any] | None:
    """Return what ``diagnostics.json`` says of the test."""
    if test is None:
        return None
    names = component_names(model)
    return {
        "outcome": test.outcome,
        "p_value": test.p_value,
        "dependent": [name for name, differs in zip(names, test.dependent.tolist(), strict=True) if differs],
        "summary": test.summary(),
    }


def words_of_test(test: ContextDependence, replicability: Replicability | None) -> str:
    """Return a line for the terminal: how many axes come back, if halves of a choice of the rank say it, and differ."""
    if test.outcome != "dependent" or replicability is None:
        return test.summary()
    said = test.in_words(replicability.replicates)
    return f"{said[0].upper()}{said[1:]}."


def read_test(folder: Path, model: MCPCA) -> ContextDependence | None:
    """Return the test that lies beside a model; None if there is none, or if it is of another number of MCPCs."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        test = ContextDependence.from_json(path.read_text(encoding="utf-8"))
    # Not written by this program, or not to its end: the report says that there is none.
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return test if len(test.p_values) == model.n_components_ else None
