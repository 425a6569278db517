"""The picture and the report of a fitted model, with the evidence for it: ``mcpca fit`` and ``report`` write them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._estimator.mcpca import MCPCA, fitted_model
from .._inference.dependence_result import ContextDependence
from .._utils.optional import require
from ._evidence import Evidence
from ._model_tables import known_labels
from ._record import for_a_reader
from .tables import TableData


def write_loadings_picture(model: MCPCA, path: Path, evidence: Evidence | None = None) -> bool:
    """Write the heatmap of the loadings if Matplotlib is installed; return whether it is.

    Colours are those of the report's map: corrected loadings, each MCPC divided by its largest, as the bar says. MCPCs
    that do not come back in halves of the rows are in brackets.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return False
    # Optional, and slow to import: only when there is a picture to draw.
    import matplotlib.pyplot as plt

    from ..plotting import plot_loadings

    halves = None if evidence is None else evidence.replicability
    figure: Any = plot_loadings(model, normalize="component", corrected=True, replicability=halves).figure
    # Without the version of Matplotlib, which PNG files otherwise carry, so that equal pictures are equal files. Tight:
    # beside few contexts the words of the bar are longer than the heatmap is high.
    figure.savefig(path, dpi=150, metadata={"Software": None}, bbox_inches="tight", pad_inches=0.1)
    # pyplot keeps every figure alive until it is closed.
    plt.close(figure)
    return True


def missing_for_report(wanted: bool | None) -> str | None:
    """Return what a report lacks, before any work is done; raise if the report was asked for."""
    if wanted is False:
        return None
    try:
        require("plotly", "report")
    except ImportError as error:
        if wanted:
            raise
        return str(error)
    return None


def report_writer() -> Any:
    """Return the function that writes the report, or raise an ImportError that names the extra."""
    require("plotly", "report")
    from ..report import write_report

    return write_report


def write_model_report(
    model: MCPCA,
    path: Path,
    data: TableData | None,
    run: dict[str, Any] | None,
    title: str | None,
    test: ContextDependence | None,
    evidence: Evidence,
    corrected: bool = True,
    context_table: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the report of a model, with rows if there are any; ``test`` says whether MCPCs differ between contexts.

    Intervals are those of the bootstrap, if there is one of the loadings that are shown, and otherwise those of the
    likelihood. ``context_table`` is what is known of contexts where there are no rows; data bring their own.
    """
    content: dict[str, Any] = {"context_dependence": test, "replicability": evidence.replicability}
    # What errors and tests are taken from: the rows, if they are those of the fit, else the model alone.
    sources: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), {})]
    if data is not None and data.labels is not None:
        content |= {"X": data.source, "y": known_labels(model, data.labels)}
        sources.insert(0, ((content["X"], content["y"]), data.annotations))
    # Both need the numbers of rows; standard errors are those of a likelihood.
    if fitted_model(model).is_likelihood and model.n_samples_per_context_ is not None:
        for rows, annotations in sources:
            # Raised for other rows than those of the fit, and if the model leaves nothing to estimate errors from.
            with suppress(ValueError):
                content |= {
                    "standard_errors": model.standard_errors(*rows, **annotations),
                    "presence": model.presence(*rows, **annotations),
                }
                break
    # Loadings of a fit with noise are of one kind, and --as-fitted is refused for it.
    if evidence.bootstrap is not None and evidence.bootstrap.corrected == corrected:
        content["standard_errors"] = evidence.bootstrap
    content |= _metadata(model, data, context_table)
    shown_run = None if run is None else for_a_reader(run)
    report_writer()(model, path, **content, title=title, run=shown_run, corrected=corrected, overwrite=True)


def _metadata(
    model: MCPCA, data: TableData | None, context_table: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Return what the report is told of contexts and rows; what a table says goes before what is found in the rows."""
    names = [str(name) for name in model.contexts_.tolist()]
    known: dict[str, Any] = dict(context_table or {})
    told: dict[str, Any] = {}
    if data is not None:
        known = data.found_of_contexts() | data.context_metadata
    if data is not None and data.labels is not None:
        told = {"row_metadata": data.row_metadata, "row_names": data.row_names}
    columns = {name: [values.get(context) for context in names] for name, values in known.items()}
    return {"context_metadata": columns, **told}
