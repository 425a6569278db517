"""Commands that take a fitted model or moments: transform, loadings, moments, merge, report."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .._covariances.moments import ContextMoments
from .._estimator.mcpca import MCPCA, fitted_model
from .._utils.array_api import to_host
from .._utils.component_names import component_names
from . import _opening
from ._console import Console, output_failure, stdout_failures
from ._context_test import read_test
from ._evidence import read_evidence
from ._fitting import library_errors, print_about, row_scores, score_columns
from ._model_tables import known_labels
from ._options import as_raw
from ._outputs import check_file, new_file
from ._policy import MOMENTS_ARE_THEIR_OWN_FORMAT, check_ending, check_page, table_format, without_effect
from ._record import read_record
from ._reporting import report_writer, write_model_report
from .tables import Reading, TableData, UnusableFileError, read_data, write_table
from .tables._errors import reason
from .tables.assembling import ONE_CONTEXT
from .tables.context_table import read_context_table
from .tables.duplicates import check_duplicates
from .tables.kinds import file_kind, no_such_file
from .tables.reading import doubtful_names, load_moments, no_context_error, stem_of
from .tables.row_annotations import with_computed_columns
from .tables.workbook_writing import too_large
from .tables.writing import matrix_columns


def open_model(path: Path) -> MCPCA:
    """Read a model, from its file or from a folder of results."""
    file = path / "model.mcpca" if path.is_dir() else path
    if not file.exists():
        if not path.is_dir():
            raise no_such_file(path)
        raise UnusableFileError(path, "there is no model in it: pass a folder that mcpca fit wrote.")
    # By content before it is opened: whoever passes a table should read that, and not that a model is damaged.
    kind = file_kind(file)
    if kind.format != "model":
        raise UnusableFileError(
            file, f"is not a fitted model ({kind.format}); pass a model.mcpca or the folder it is in."
        )
    try:
        model: MCPCA = MCPCA.load(file)
    except (ValueError, KeyError, OSError) as error:
        raise UnusableFileError(file, f"cannot be read as a model ({reason(error)}).") from error
    return model


def read_for(model: MCPCA, paths: tuple[Path, ...], reading: Reading, console: Console) -> TableData:
    """Read rows with the features of a model, by name if it has names for them."""
    # scikit-learn's convention: the attribute exists only if there were names.
    names = getattr(model, "feature_names_in_", None)
    n_features = model.n_features_in_
    if model.preprocess_ is not None:
        names = model.preprocess_.feature_names_in
        n_features = model.preprocess_.n_features_in
    reading = as_raw(reading, None if model.preprocess_ is None else model.preprocess_.spec)
    features = None if names is None else [str(name) for name in names]
    with console.phase("reading"), library_errors(paths[0]):
        data = read_data(paths, reading, features=features, need_context=False, report=console.progress)
    # One context is nothing odd where the axes are known already.
    data.oddities = [text for text in data.oddities if not text.startswith(ONE_CONTEXT)]
    print_about(data, console)
    # Only for files or models without names; by name, a missing feature was an error of reading.
    if data.n_features != n_features:
        raise UnusableFileError(data.files[0], f"has {data.n_features} features, and the model has {n_features}.")
    return data


def run_transform(
    model_path: Path,
    paths: tuple[Path, ...],
    reading: Reading,
    center: str,
    posterior: bool,
    out: Path | None,
    force: bool,
    console: Console,
) -> dict[str, Any]:
    """Write the scores of rows on a fitted model."""
    # What is wrong with the target is said before the data are read.
    _check_table_target(out, force)
    if out is None and console.as_json:
        raise output_failure("--json goes to stdout, and so does the table; name a file with --out.")
    # The model before the data: its features decide which columns are read.
    model = open_model(model_path)
    data = read_for(model, paths, reading, console)
    with console.phase("scores"):
        scores = row_scores(model, data, center, posterior=posterior)
    _write_or_print(score_columns(model, data, scores), out, force, console)
    return {"out": None if out is None else str(out), "rows": len(scores), "components": scores.shape[1]}


def run_loadings(
    model_path: Path,
    paths: tuple[Path, ...],
    reading: Reading,
    as_fitted: bool,
    out: Path | None,
    force: bool,
    console: Console,
) -> dict[str, Any]:
    """Write the loadings of new contexts on a fitted model, without their noise unless they are to be ``as_fitted``."""
    _check_table_target(out, force)
    model = open_model(model_path)
    _check_as_fitted(model, as_fitted)
    data = read_for(model, paths, reading, console)
    with console.phase("loadings"), library_errors(data.files[0]):
        if data.labels is None:  # the file is one context, called by its name
            names = [stem_of(paths[0])]
            # One context gives a vector (r,); the table has one row for it.
            B = np.atleast_2d(to_host(model.loadings_for(data.source, corrected=not as_fitted, **data.nuisance)))
        else:
            # loadings_for orders contexts as the categories are, so that names and rows of B (k, r) match.
            names = data.labels.categories
            labels = known_labels(model, data.labels)
            B = np.atleast_2d(
                to_host(model.loadings_for(data.source, labels, corrected=not as_fitted, **data.nuisance))
            )
    which = fitted_model(model).loadings_in_words(not as_fitted)
    console.note(f"these are {which}.")
    # The loadings are few, and in the JSON itself.
    if out is not None or not console.as_json:
        _write_or_print(matrix_columns("context", names, B, component_names(model)), out, force, console)
    return {
        "out": None if out is None else str(out),
        "contexts": names,
        "components": component_names(model),
        "loadings": B.tolist(),
        "which": which,
    }


def run_moments(paths: tuple[Path, ...], reading: Reading, out: Path, force: bool, console: Console) -> dict[str, Any]:
    """Write counts, means and scatters of contexts: all that a fit needs, and no row."""
    check_ending(out, MOMENTS_ARE_THEIR_OWN_FORMAT)
    check_file(out, force)
    with console.phase("reading"), library_errors(paths[0]):
        data = read_data(paths, reading, report=console.progress)
    print_about(data, console)
    if data.labels is None:
        raise UnusableFileError(paths[0], "holds moments already; mcpca merge puts several together.")
    with console.phase("moments"), library_errors(data.files[0]):
        # The source is read in blocks: rows that do not fit into memory are no obstacle.
        moments = ContextMoments().update(data.source, data.labels, **with_computed_columns(data.nuisance))
    if data.feature_names is not None:
        moments.feature_names = np.array(data.feature_names)
    # With n <= p rows their span, and with a few of them the rows themselves, can be read off the scatter.
    small = [str(name) for name, n in zip(moments.contexts, moments.counts, strict=True) if n <= data.n_features]
    if small:
        console.warn(
            f"{len(small)} of {len(moments.contexts)} contexts have no more rows than features ({small[0]!r} for one): "
            "their moments reveal much about single rows. --min-samples leaves small contexts out."
        )
    _warn_of_single_rows(moments, console)
    return _save_moments(moments, out, force, console)


def _warn_of_single_rows(moments: ContextMoments, console: Console) -> None:
    """Warn of batches whose mean is a row."""
    nuisance = moments.nuisance
    if nuisance is None or not nuisance.terms.has_batch:
        return
    alone = np.flatnonzero((nuisance.cell_counts == 1) & (moments.counts[nuisance.cell_contexts] > 1))
    if len(alone):
        first = alone[0]
        batch = nuisance.terms.levels[nuisance.cell_levels[first]]
        context = moments.contexts[nuisance.cell_contexts[first]]
        console.warn(
            f"{len(alone)} of {len(nuisance.cell_counts)} batches within contexts are a single row ({str(batch)!r} in "
            f"{str(context)!r} for one), which the mean of the batch reveals. Join batches, or leave these rows out."
        )


def run_merge(
    paths: tuple[Path, ...], out: Path, force: bool, allow_duplicates: bool, console: Console
) -> dict[str, Any]:
    """Write the moments of all rows together."""
    check_ending(out, MOMENTS_ARE_THEIR_OWN_FORMAT)
    check_file(out, force)
    if not allow_duplicates:
        check_duplicates(paths, [file_kind(path) for path in paths])
    # One file at a time: moments are (k, p, p), and those of many sites need not be in memory together.
    merged = load_moments(paths[0])
    for path in paths[1:]:
        with console.phase("merge"), library_errors(path):
            merged = merged.merge(load_moments(path), allow_duplicates=allow_duplicates)
    # Sites spell names differently: contexts that should be one show up here.
    for text in doubtful_names(merged.contexts.tolist()):
        console.warn(text)
    return _save_moments(merged, out, force, console)


def run_report(
    model_path: Path,
    paths: tuple[Path, ...],
    reading: Reading,
    title: str | None,
    as_fitted: bool,
    out: Path,
    force: bool,
    console: Console,
    open_page: bool = False,
) -> dict[str, Any]:
    """Write the report of a model, with pictures of rows if files of rows are named; open it if told so."""
    check_page(out)
    check_file(out, force)
    report_writer()  # raises before any work is done if plotly is missing
    model = open_model(model_path)
    _check_as_fitted(model, as_fitted)
    # The record of the run lies beside the model; a model that was copied elsewhere has none.
    folder = model_path if model_path.is_dir() else model_path.parent
    run = read_record(folder) if (folder / "run.json").exists() else None
    # Without rows the report has all that is in the model.
    data = read_for(model, paths, reading, console) if paths else None
    if data is not None and data.labels is None:
        raise no_context_error(paths[0])
    known = None
    if data is None and reading.context_table is not None:
        table = read_context_table(reading.context_table, reading, [str(name) for name in model.contexts_.tolist()])
        for text in table.notes:
            console.note(f"left out: {text}")
        for text in table.oddities:
            console.warn(text)
        known = table.columns
    # What the fit has found lies beside the model; it is not tested again, since these may be other rows.
    test = read_test(folder, model)
    evidence = read_evidence(folder, model)
    with new_file(out, force) as file, console.phase("report"):
        write_model_report(model, file, data, run, title, test, evidence, not as_fitted, known)
    if not open_page:
        console.say(f"Wrote {out}; open it in a browser.")
        return {"out": str(out)}
    console.say(f"Wrote {out}")
    return {"out": str(out), "opened": _opening.open_page(out, console)}


def _save_moments(moments: ContextMoments, out: Path, force: bool, console: Console) -> dict[str, Any]:
    with new_file(out, force) as file:
        moments.save(file)
    k, p = moments.means.shape
    n = int(moments.counts.sum())
    beside = "" if moments.nuisance is None else f", with {moments.nuisance.in_words()}"
    console.say(f"Wrote {out}: {k} contexts, {p} features{beside}; sums over {n:,} rows, without the rows themselves.")
    return {"out": str(out), "contexts": [str(name) for name in moments.contexts], "features": p, "rows": n}


def _check_as_fitted(model: MCPCA, as_fitted: bool) -> None:
    if as_fitted and fitted_model(model).noise is not None:
        raise without_effect("--as-fitted", "the model was fitted with noise, which is not part of its loadings")


def _check_table_target(out: Path | None, force: bool) -> None:
    if out is not None:
        table_format(out)
        check_file(out, force)


def _write_or_print(columns: dict[str, Any], out: Path | None, force: bool, console: Console) -> None:
    """Write a table to a file, in the format of its name, or as CSV to stdout."""
    if out is not None:
        why = too_large(len(next(iter(columns.values()))), len(columns)) if table_format(out) == "xlsx" else None
        if why:
            raise output_failure(f"--out {out} would have {why}; choose a name that ends in .parquet or .csv.")
        with new_file(out, force) as file:
            write_table(columns, str(file), table_format(out))
        console.say(f"Wrote {out}")
        return
    # Whole before any of it is printed: an error in between leaves no half table on stdout.
    text = io.BytesIO()
    write_table(columns, text)
    with stdout_failures():
        # The buffer below is another layer: what print has left above it would come out after the table.
        sys.stdout.flush()
        sys.stdout.buffer.write(text.getvalue())  # bytes: UTF-8, whatever encoding the terminal has
        sys.stdout.buffer.flush()
