"""``mcpca fit``: from files to a folder with tables, model, report and record.

The parts that other commands share are here too: printing what was left out, turning the library's errors into errors
about a file, and scores.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from .._data.labels import name_array
from .._estimator.fitting import feature_names
from .._estimator.mcpca import MCPCA
from .._inference.dependence_result import ContextDependence
from .._model.dominance import Dominance
from .._utils.component_names import component_names
from .._utils.printing import counted
from .._utils.types import Array
from ..exceptions import (
    DominantFeatureWarning,
    NoStableRankError,
    NothingAboveNoiseError,
    RankExceedsDataError,
)
from ._console import Console, json_text
from ._context_test import FILE, columns_of_test, summary_of_test, tested_contexts, words_of_test
from ._evidence import (
    Evidence,
    evidence_of,
    summary_of_evidence,
    tables_of_evidence,
    words_of_evidence,
    write_evidence,
)
from ._model_tables import diagnostics, known_labels, loadings_text, model_tables
from ._outputs import check_folder, checksum, checksums, new_folder
from ._policy import RESULTS_ARE_A_FOLDER, check_ending, check_moments, check_moments_for_refits, check_sheets
from ._record import FitOptions, check_same, record
from ._reporting import missing_for_report, write_loadings_picture, write_model_report
from ._top_features import TopFeatures, feature_columns, feature_lines, json_of_features, top_features
from ._words import in_words_of_the_command
from .tables import TableData, UnusableFileError, read_data, write_table
from .tables._errors import UselessOptionError
from .tables.writing import matrix_columns

_NOTHING_VARIES = "The covariances are all zero"  # how the library begins to say so
# What the library says of options rather than of data: formulas that are none, bounds, what a model was fitted without.
_WRONG_OPTION = re.compile(
    r"^--covariates '.*' (is not a formula|has |leaves |names no )|^--\S+ \S+ is out of bounds|"
    "model was fitted without "
)


def run_fit(
    options: FitOptions,
    out: Path,
    force: bool,
    console: Console,
    command: list[str],
    checkpoint: Path | None = None,
    expected: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Fit a model to files and write all results to the folder ``out``; return the JSON of the run.

    ``expected`` are checksums of the files: if others were read, nothing is written.
    """
    check_ending(out, RESULTS_ARE_A_FOLDER)
    # All that can be refused is refused before anything is read: a fit may take hours.
    check_folder(out, force)
    # Whoever gives the report a title wants one.
    missing = missing_for_report(True if options.title is not None else options.report)
    model, data = fit_files(options, console, checkpoint)
    # After the fit: what counts is that the file that was read is still the same at its end.
    with console.phase("checksums"):
        inputs = checksums(data.files)
        if expected is not None:
            check_same(expected, inputs)
    run = record(options, command, inputs, out)
    test = None
    if options.context_test:
        with console.phase("contexts"):
            labels = None if data.labels is None else known_labels(model, data.labels)
            test = tested_contexts(model, data, labels, options.seed, console)
    evidence = evidence_of(model, data, options, test, console)
    run["evidence"] = {
        "replicability": evidence.source,
        "bootstrap": None if evidence.bootstrap is None else options.bootstrap,
    }
    with console.phase("diagnostics"):
        summary = diagnostics(model, data, console.warnings)
        summary |= {"context_dependence": summary_of_test(model, test), **summary_of_evidence(model, evidence)}
        tops = top_features(model, summary["variance_explained_by_component"])
    scores = None
    with console.phase("scores"):
        # Moments have no rows. Before the folder is made: the rows are read again here, which can fail.
        if options.scores and data.labels is not None:
            scores = score_columns(model, data, row_scores(model, data, options.center))
    # All or nothing: the folder appears under its name once the last file is written.
    with new_folder(out, force) as folder:
        with console.phase("tables"):
            tables = {
                **model_tables(model),
                "features": feature_columns(model, tops),
                **tables_of_evidence(model, evidence),
            }
            for name, columns in tables.items():
                write_table(columns, folder / f"{name}.{options.format}", options.format)
            write_evidence(evidence, folder)
            if test is not None:
                columns = columns_of_test(model, test)
                write_table(columns, folder / f"context_dependence.{options.format}", options.format)
                (folder / FILE).write_text(test.to_json() + "\n", encoding="utf-8")
            if scores is not None:
                write_table(scores, folder / f"scores.{options.format}", options.format)
            (folder / "diagnostics.json").write_text(json_text(summary, indent=2) + "\n", encoding="utf-8")
            model.save(folder / "model.mcpca")
        if options.picture:
            with console.phase("picture"):
                write_loadings_picture(model, folder / "loadings.png", evidence)
        if options.report is not False and missing is None:
            with console.phase("report"):
                write_model_report(model, folder / "report.html", data, run, options.title, test, evidence)
        run["results"] = {
            name: summary[name]
            for name in ("rank", "rank_reason", "solver", "solver_reason", "contexts", "features", "rows")
        }
        # Of all files but run.json itself, which is written last: a folder that has one is complete.
        run["outputs"] = {path.name: checksum(path)["sha256"] for path in sorted(folder.iterdir())}
        run["warnings"] = console.warnings
        run["timings"] = console.timings
        (folder / "run.json").write_text(json_text(run, indent=2) + "\n", encoding="utf-8")
    if options.report is None and missing is not None:
        console.note(f"no report: {missing}")
    files = [*run["outputs"], "run.json"]
    _print_results(model, data, summary, test, evidence, tops, out, files, console)
    return {
        "out": str(out),
        "files": files,
        "diagnostics": summary,
        "features": json_of_features(tops),
        "timings": console.timings,
    }


def fit_files(options: FitOptions, console: Console, checkpoint: Path | None = None) -> tuple[MCPCA, TableData]:
    """Read files and fit a model, which gets the names of the features."""
    with console.phase("reading"), library_errors(options.data[0]):
        data = read_data(options.data, options.reading, report=console.progress)
    print_about(data, console)
    if data.labels is None:
        check_moments(options.center, checkpoint, options.robust, options.cross_fit, options.solver, options.preprocess)
        check_moments_for_refits(options.replicability, options.bootstrap)
    if options.format == "xlsx":
        check_sheets(data, options.scores)
    # Said in terms of the option; the library would speak of n_components.
    if isinstance(options.rank, int) and options.rank > data.n_features:
        raise click.BadParameter(
            f"{options.rank} exceeds the number of features, {data.n_features}.", param_hint="--rank"
        )
    model = MCPCA(
        options.rank,
        solver=options.solver,
        orthogonal=options.orthogonal,
        noise=options.noise,
        robust=options.robust,
        cross_fit=options.cross_fit,
        preprocess=options.preprocess,
        random_state=options.seed,
        tol=options.tol,
        max_iter=options.max_iter,
        verbose=console.progress,
    )
    with console.phase("fit"), library_errors(data.files[0]):
        if data.labels is None:
            model.fit(data.X)
        else:
            splits_rows = not isinstance(options.rank, int) or options.cross_fit or options.solver == "auto"
            annotations = data.annotations if splits_rows else data.nuisance
            model.fit(data.source, data.labels, checkpoint=checkpoint, **annotations)
    model.verbose = None  # the saved model must not hold this console
    # Set after the fit: the estimator was given bare arrays, which have no names it could have taken over.
    names = None if data.feature_names is None else feature_names(name_array(data.feature_names))
    if names is not None:
        steps = model.preprocess_
        if steps is not None:
            model.preprocess_ = replace(steps, feature_names_in=names)
            names = names if steps.columns is None else names[steps.columns]
        model.feature_names_in_ = names
    _warn_of_dominance(model, data, console)
    return model, data


def print_about(data: TableData, console: Console) -> None:
    """Print what was left out of the data, and what is odd about them."""
    for text in data.says:
        console.note(text)
    for text in data.notes:
        console.note(f"left out: {text}")
    for text in data.oddities:
        console.warn(text)


def _warn_of_dominance(model: MCPCA, data: TableData, console: Console) -> None:
    """Warn of a feature that is nearly all of most MCPCs, if the fit has done so, by its name in the file."""
    for warning in console.caught:
        # The library warns by the number of the column. Here the file's own name is known, and the option that helps.
        if not isinstance(warning, DominantFeatureWarning) or not isinstance(warning.dominance, Dominance):
            continue
        dominance = warning.dominance
        if data.feature_names is None:
            console.warn(
                dominance.sentence(f"column {dominance.feature + 1}", "Leave it out if it is not a measurement")
            )
            continue
        # Of the features of the model, which may be some of those of the file.
        name = str(model.feature_names_in_[dominance.feature])
        # From moments no column can be left out any more; that has to be done where the rows are.
        where = "of mcpca moments " if data.labels is None else ""
        way_out = f"Leave it out with --drop {shlex.quote(name)} {where}if it is not a measurement"
        console.warn(dominance.sentence(f"the feature {name!r}", way_out))


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Turn errors of the library about its data into errors about the file they came from."""
    try:
        yield
    # These have exit codes of their own (``_errors``) and are not about one file.
    except (NothingAboveNoiseError, NoStableRankError, UnusableFileError):
        raise
    except OSError as error:
        if "checkpoint=" in str(error):  # about a file that is written, not read
            raise
        told = in_words_of_the_command(error.strerror or str(error))
        raise UnusableFileError(path, f"could not be read to its end ({told}).") from error
    except ValueError as error:
        # ValueError is how the library speaks about its data; anything else is a bug and passes.
        text = in_words_of_the_command(str(error))
        # A rank beyond the data is a wrong option, but no rank fits data that do not vary.
        if isinstance(error, RankExceedsDataError) and _NOTHING_VARIES not in text:
            raise
        if _WRONG_OPTION.search(text):
            raise UselessOptionError(path, text) from error
        raise UnusableFileError(path, text + _way_out(text)) from error


def _way_out(text: str) -> str:
    """Return what to do about contexts that are too small, to follow a message of the library."""
    small = re.search(r"(\d+) of (\d+) contexts have fewer than 2 rows: ", text)
    if not small:
        return ""
    if small[1] == small[2]:
        return " None has two: are these all rows, and is it the column of contexts?"
    return " --min-samples 2 leaves them out."


# Scores ------------------------------------------------------------------------------------------------------------


def row_scores(model: MCPCA, data: TableData, center: str, *, posterior: bool = False) -> Array:
    """Return scores (n, r), centred "overall", by "context" as fitted, or by the "own" means of these rows.

    With batch or covariates, scores are of rows without them, centred by context and batch.
    """
    y = None if data.labels is None else known_labels(model, data.labels)
    # In Python None is the centring by context as fitted.
    parameter: Any = {"overall": "overall", "context": None, "own": "own"}[center]
    if data.nuisance and center == "overall":
        parameter = None
    with library_errors(data.files[0]):
        return np.asarray(model.transform(data.source, y, center=parameter, posterior=posterior, **data.nuisance))


def score_columns(model: MCPCA, data: TableData, scores: Array) -> dict[str, Any]:
    """Return the table of scores: the name of each row, its context if known, and its scores."""
    columns = matrix_columns("row", data.row_names, scores, component_names(model))
    if data.labels is None:
        return columns
    # Put back in front of the context: names of rows are the first column of every table.
    row = columns.pop("row")
    return {"row": row, "context": data.labels.names().tolist(), **columns}


# Words -----------------------------------------------------------------------------------------------------------


def _print_results(
    model: MCPCA,
    data: TableData,
    summary: dict[str, Any],
    test: ContextDependence | None,
    evidence: Evidence,
    tops: list[TopFeatures],
    out: Path,
    files: list[str],
    console: Console,
) -> None:
    sizes = f"{summary['contexts']:,} contexts, {summary['rows']:,} rows, {summary['features']:,} features"
    reason = summary["rank_reason"] if model.rank_choice_ else ""
    console.say(f"{sizes} ({data.format})\n{counted(model.n_components_, 'MCPC')}. {reason}".rstrip())
    if model.solver_choice_ is not None:
        console.say(f"Solver: {model.solver_choice_.reason}")
    if summary["variance_explained"] is not None:
        error = summary["variance_explained_error"]
        estimated = f" (an estimate, +- {error:.1%}: covariances were not formed)" if error else ""
        console.say(
            f"They explain {summary['variance_explained']:.0%}{estimated} of the squared covariance; scores are "
            f"correlated by {summary['score_correlation']:.2f} within contexts."
        )
    if model.preprocess_ is not None:
        console.say(model.preprocess_.summary())
    if model.nuisance_ is not None:
        removed = model.nuisance_
        console.say(
            f"Removed within contexts: {removed.what}, {removed.shares.min():.0%} to {removed.shares.max():.0%} of "
            "their variance (nuisance_share in diagnostics)."
        )
    table = next(name for name in files if name.startswith("features."))
    console.say(f"\n{loadings_text(model)}\n")
    console.say(
        f"{feature_lines(tops, table)}\n"
        "(share of squared covariance; contexts with half of its largest loading or more; its two poles)\n"
    )
    for line in words_of_evidence(model, evidence):
        console.say(line)
    if test is not None:
        of_choice = getattr(model.rank_choice_, "replicability", None)
        # What is said of axes that come back is said once, and of the same halves.
        console.say(words_of_test(test, None if of_choice is None else evidence.replicability or of_choice))
    console.say(f"Wrote {out}: {', '.join(files)}")
    if "report.html" in files:
        console.say(f"Open {out / 'report.html'} in a browser.")
    elif "loadings.png" in files:
        console.say(f"The picture is {out / 'loadings.png'}.")
