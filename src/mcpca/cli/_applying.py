"""Commands that take a fitted model or moments: transform, loadings, moments, merge, report."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .._covariances.moments import ContextMoments
from .._estimator.mcpca import MCPCA
from .._utils.array_api import to_host
from .._utils.component_names import component_names
from ._console import Console, output_failure
from ._fitting import (
    data_errors,
    known_labels,
    report_writer,
    scores_columns,
    scores_of,
    tell_of,
    write_report,
)
from ._outputs import check_file, new_file
from ._policy import check_no_ending, check_page, table_format
from ._record import read_record
from .tables import Reading, TableData, UnusableFileError, read_data, write_table
from .tables.duplicates import check_duplicates
from .tables.kinds import kind_of
from .tables.reading import doubts, load_moments, stem_of
from .tables.writing import matrix_columns


def load_model(path: Path) -> MCPCA:
    """Read a model, from its file or from a folder of results."""
    file = path / "model.mcpca" if path.is_dir() else path
    if not file.exists():
        inside = " in it: pass a folder that mcpca fit wrote" if path.is_dir() else ""
        raise UnusableFileError(path, f"there is no model{inside}." if inside else "there is no such file.")
    kind = kind_of(file)
    if kind.format != "model":
        raise UnusableFileError(file, f"is no fitted model ({kind.format}); pass a model.mcpca or the folder it is in.")
    try:
        model: MCPCA = MCPCA.load(file)
    except (ValueError, KeyError, OSError) as error:
        raise UnusableFileError(file, f"cannot be read as a model ({error}).") from error
    return model


def read_for(model: MCPCA, paths: tuple[Path, ...], reading: Reading, console: Console) -> TableData:
    """Read rows with the features of a model, by name where it has names."""
    names = getattr(model, "feature_names_in_", None)
    wanted = None if names is None else [str(name) for name in names]
    with console.phase("reading"), data_errors(paths[0]):
        data = read_data(paths, reading, features=wanted, need_context=False, report=console.progress)
    tell_of(data, console)
    if data.n_features != model.n_features_in_:
        raise UnusableFileError(
            data.files[0], f"has {data.n_features} features, and the model has {model.n_features_in_}."
        )
    return data


def transform(
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
    _check_target(out, force, console)
    model = load_model(model_path)
    data = read_for(model, paths, reading, console)
    with console.phase("scores"):
        scores = scores_of(model, data, center, posterior=posterior)
    _put(scores_columns(model, data, scores), out, force, console)
    return {"out": None if out is None else str(out), "rows": len(scores), "components": scores.shape[1]}


def loadings(
    model_path: Path,
    paths: tuple[Path, ...],
    reading: Reading,
    out: Path | None,
    force: bool,
    console: Console,
) -> dict[str, Any]:
    """Write the loadings of new contexts on a fitted model."""
    if out is not None:
        table_format(out)
        check_file(out, force)
    model = load_model(model_path)
    data = read_for(model, paths, reading, console)
    with console.phase("loadings"), data_errors(data.files[0]):
        if data.labels is None:
            names, B = [stem_of(paths[0])], np.atleast_2d(to_host(model.loadings_for(data.source)))
        else:
            names = data.labels.categories
            B = np.atleast_2d(to_host(model.loadings_for(data.source, known_labels(model, data.labels))))
    columns = matrix_columns("context", names, B, component_names(model))
    if out is not None or not console.as_json:
        _put(columns, out, force, console)
    return {
        "out": None if out is None else str(out),
        "contexts": names,
        "components": component_names(model),
        "loadings": B.tolist(),
    }


def moments(paths: tuple[Path, ...], reading: Reading, out: Path, force: bool, console: Console) -> dict[str, Any]:
    """Write counts, means and scatters of contexts: all that a fit needs, and no row."""
    check_no_ending(out, "moments are a file of their own kind")
    check_file(out, force)
    with console.phase("reading"), data_errors(paths[0]):
        data = read_data(paths, reading, report=console.progress)
    tell_of(data, console)
    if data.labels is None:
        raise UnusableFileError(paths[0], "holds moments already; mcpca merge puts several together.")
    with console.phase("moments"), data_errors(data.files[0]):
        found = ContextMoments().update(data.source, data.labels)
    if data.feature_names is not None:
        found.feature_names = np.array(data.feature_names)
    few = [str(name) for name, n in zip(found.contexts, found.counts, strict=True) if n <= data.n_features]
    if few:
        console.warn(
            f"{len(few)} of {len(found.contexts)} contexts have no more rows than features ({few[0]!r} for one): their "
            "moments tell much of single rows. --min-samples leaves small contexts out."
        )
    return _save_moments(found, out, force, console)


def merge(paths: tuple[Path, ...], out: Path, force: bool, allow_duplicates: bool, console: Console) -> dict[str, Any]:
    """Write the moments of all rows together."""
    check_no_ending(out, "moments are a file of their own kind")
    check_file(out, force)
    if not allow_duplicates:
        check_duplicates(paths, [kind_of(path) for path in paths])
    whole = load_moments(paths[0])
    for path in paths[1:]:
        with console.phase("merge"), data_errors(path):
            whole = whole.merge(load_moments(path), allow_duplicates=allow_duplicates)
    for text in doubts(whole.contexts.tolist()):
        console.warn(text)
    return _save_moments(whole, out, force, console)


def report(
    model_path: Path,
    paths: tuple[Path, ...],
    reading: Reading,
    title: str | None,
    out: Path,
    force: bool,
    console: Console,
) -> dict[str, Any]:
    """Write the report of a model, with pictures of rows where files of rows are given."""
    check_page(out)
    check_file(out, force)
    report_writer()
    model = load_model(model_path)
    folder = model_path if model_path.is_dir() else model_path.parent
    run = read_record(folder) if (folder / "run.json").exists() else None
    data = read_for(model, paths, reading, console) if paths else None
    if data is not None and data.labels is None:
        raise UnusableFileError(paths[0], "nothing says the context of each row; pass --context or --labels.")
    with new_file(out, force) as file, console.phase("report"):
        write_report(model, file, data, run, title)
    console.say(f"Wrote {out}; open it in a browser.")
    return {"out": str(out)}


def _save_moments(found: ContextMoments, out: Path, force: bool, console: Console) -> dict[str, Any]:
    with new_file(out, force) as file:
        found.save(file)
    k, p = found.means.shape
    n = int(found.counts.sum())
    console.say(f"Wrote {out}: {k} contexts, {p} features, sums over {n:,} rows and no row.")
    return {"out": str(out), "contexts": [str(name) for name in found.contexts], "features": p, "rows": n}


def _check_target(out: Path | None, force: bool, console: Console) -> None:
    if out is not None:
        table_format(out)
        check_file(out, force)
    elif console.as_json:
        raise output_failure("--json goes to stdout, and so does the table; name a file with --out.")


def _put(columns: dict[str, Any], out: Path | None, force: bool, console: Console) -> None:
    """Write a table to a file, in the format of its name, or as CSV to stdout."""
    if out is None:
        text = io.BytesIO()
        write_table(columns, text)
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(text.getvalue())  # UTF-8, whatever the terminal has
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise output_failure(f"stdout cannot be written ({error.strerror}).") from error
        return
    with new_file(out, force) as file:
        write_table(columns, str(file), table_format(out))
    console.say(f"Wrote {out}")
