"""``mcpca fit`` and ``mcpca repeat``: from files to a folder with tables, model, report and record."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import numpy as np

from .._data.labels import name_array
from .._estimator.fitting import feature_names
from .._estimator.mcpca import MCPCA
from .._model.dominance import Dominance
from .._utils.component_names import component_names
from .._utils.optional import require
from .._utils.types import Array
from ..exceptions import (
    DominantFeatureWarning,
    NoStableRankError,
    NothingAboveNoiseError,
    RankExceedsDataError,
)
from ._console import Console, in_words_of_the_command, to_json
from ._model_tables import diagnostics, loadings_text, model_tables
from ._outputs import check_folder, checksum, checksums, new_folder
from ._policy import check_moments, check_no_ending
from ._record import FitOptions, check_inputs, check_same, for_a_reader, read_record, record
from .tables import TableData, UnusableFileError, read_data, write_table
from .tables._errors import plural
from .tables.labels import Labels
from .tables.writing import matrix_columns

_SAME = ("components", "loadings", "scores", "projection", "diagnostics", "scree", "rank", "noise", "model")


def fit(
    options: FitOptions,
    out: Path,
    force: bool,
    console: Console,
    command: list[str],
    checkpoint: Path | None = None,
    expected: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Fit a model to files and write all results to the folder ``out``; return what to tell of the run.

    ``expected`` are checksums of files: where others were read, nothing is written.
    """
    check_no_ending(out, "results are a folder")
    check_folder(out, force)
    missing = _missing_for_report(True if options.title is not None else options.report)
    model, data = fit_files(options, console, checkpoint)
    with console.phase("checksums"):
        inputs = checksums(data.files)
        if expected is not None:
            check_same(expected, inputs)
    run = record(options, command, inputs)
    found = diagnostics(model, data, console.warnings)
    with console.phase("scores"):
        scores = _scores_table(model, data, options) if options.scores and data.labels is not None else None
    console.progress("writing", 0, 1)
    with new_folder(out, force) as folder:
        with console.phase("tables"):
            for name, columns in model_tables(model).items():
                write_table(columns, folder / f"{name}.{options.format}", options.format)
            if scores is not None:
                write_table(scores, folder / f"scores.{options.format}", options.format)
            (folder / "diagnostics.json").write_text(to_json(found, indent=2) + "\n", encoding="utf-8")
            model.save(folder / "model.mcpca")
        if options.picture:
            with console.phase("picture"):
                draw_loadings(model, folder / "loadings.png")
        if options.report is not False and missing is None:
            with console.phase("report"):
                write_report(model, folder / "report.html", data, run, options.title)
        run["results"] = {name: found[name] for name in ("rank", "rank_reason", "contexts", "features", "rows")}
        run["outputs"] = {path.name: checksum(path)["sha256"] for path in sorted(folder.iterdir())}
        run["warnings"], run["timings"] = console.warnings, console.timings
        (folder / "run.json").write_text(to_json(run, indent=2) + "\n", encoding="utf-8")
    console.progress("writing", 1, 1)
    if options.report is None and missing is not None:
        console.note(f"no report: {missing}")
    _tell(model, data, found, out, [*run["outputs"], "run.json"], console)
    return {"out": str(out), "files": [*run["outputs"], "run.json"], "diagnostics": found, "timings": console.timings}


def repeat(path: Path, out: Path, force: bool, console: Console, command: list[str]) -> dict[str, Any]:
    """Run again what a ``run.json`` records, and compare the results with those recorded there."""
    before = read_record(path)
    with console.phase("checksums"):
        inputs = check_inputs(before, path)
    options = FitOptions.from_json(before["options"])
    result = fit(options, out, force, console, command, expected=inputs)
    after = read_record(out)
    differ = [
        name
        for name, digest in before["outputs"].items()
        if name.split(".")[0] in _SAME
        and name.endswith((options.format, ".mcpca"))
        and after["outputs"].get(name) != digest
    ]
    changed = {
        name: [version, after["versions"].get(name)]
        for name, version in before["versions"].items()
        if after["versions"].get(name) != version
    }
    if changed:
        told = ", ".join(f"{name} {old} then, {new} now" for name, (old, new) in changed.items())
        console.note(f"other versions: {told}.")
    if differ:
        console.warn(f"the results differ from those of {path}: {', '.join(differ)}.")
    else:
        console.say(f"The same numbers as in {path}, to the last bit.")
    return {**result, "same": not differ, "differ": differ, "versions_changed": changed}


def fit_files(options: FitOptions, console: Console, checkpoint: Path | None = None) -> tuple[MCPCA, TableData]:
    """Read files and fit a model; the names of features go into it."""
    with console.phase("reading"), data_errors(options.data[0]):
        data = read_data(options.data, options.reading, report=console.progress)
    tell_of(data, console)
    if data.labels is None:
        check_moments(options.center, checkpoint)
    if options.rank is not None and options.rank > data.n_features:
        raise click.BadParameter(
            f"{options.rank} exceeds the number of features, {data.n_features}.", param_hint="--rank"
        )
    model = MCPCA(
        options.rank,
        solver=options.solver,
        orthogonal=options.orthogonal,
        noise=options.noise,
        random_state=options.seed,
        tol=options.tol,
        max_iter=options.max_iter,
        verbose=console.progress,
    )
    with console.phase("fit"), data_errors(data.files[0]):
        if data.labels is None:
            model.fit(data.X)
        else:
            model.fit(data.source, data.labels, checkpoint=checkpoint)
    model.verbose = None
    names = None if data.feature_names is None else feature_names(name_array(data.feature_names))
    if names is not None:
        model.feature_names_in_ = names
    tell_of_dominance(data, console)
    return model, data


def tell_of(data: TableData, console: Console) -> None:
    """Tell what was left out of the data, and what is odd about them."""
    for text in data.notes:
        console.note(f"left out: {text}")
    for text in data.oddities:
        console.warn(text)


def tell_of_dominance(data: TableData, console: Console) -> None:
    """Tell which feature is nearly all of most MCPCs, where the fit has warned of one, by its name in the file."""
    for warning in console.caught:
        if isinstance(warning, DominantFeatureWarning) and isinstance(found := warning.dominance, Dominance):
            if data.feature_names is None:
                console.warn(found.sentence(f"column {found.feature + 1}", "Leave it out if it is no measurement"))
                continue
            name = data.feature_names[found.feature]
            where = "of mcpca moments " if data.labels is None else ""
            way_out = f"Leave it out with --drop {shlex.quote(name)} {where}if it is no measurement"
            console.warn(found.sentence(f"the feature {name!r}", way_out))


@contextmanager
def data_errors(path: Path) -> Iterator[None]:
    """Say of an error of the library which file it is about."""
    try:
        yield
    except (NothingAboveNoiseError, NoStableRankError, RankExceedsDataError, UnusableFileError):
        raise
    except OSError as error:
        if "checkpoint=" in str(error):  # written, not read
            raise
        raise UnusableFileError(path, f"could not be read to its end ({error}).") from error
    except ValueError as error:
        text = in_words_of_the_command(str(error))
        way_out = " --min-samples 2 leaves them out." if "have fewer than 2 samples" in text else ""
        raise UnusableFileError(path, text + way_out) from error


def scores_of(model: MCPCA, data: TableData, center: str, *, posterior: bool = False) -> Array:
    """Return scores (n, r), centred as asked: "overall", by "context" as fitted, or by the rows' "own" means."""
    y = None if data.labels is None else known_labels(model, data.labels)
    how: Any = {"overall": "overall", "context": None, "own": "own"}[center]
    with data_errors(data.files[0]):
        return np.asarray(model.transform(data.source, y, center=how, posterior=posterior))


def known_labels(model: MCPCA, labels: Labels) -> Labels:
    """Return labels by the names that the model has for them: 3 where a file says "3"."""
    names = {str(name): name for name in model.contexts_.tolist()}
    return Labels(labels.codes, [names.get(name, name) for name in labels.categories])


def scores_columns(model: MCPCA, data: TableData, scores: Array) -> dict[str, Any]:
    """Return the table of scores: the name of each row, its context where that is known, and its scores."""
    columns = matrix_columns("row", data.row_names, scores, component_names(model))
    if data.labels is None:
        return columns
    row = columns.pop("row")
    return {"row": row, "context": data.labels.names().tolist(), **columns}


def _scores_table(model: MCPCA, data: TableData, options: FitOptions) -> dict[str, Any]:
    return scores_columns(model, data, scores_of(model, data, options.center))


# Pictures and report ---------------------------------------------------------------------------------------------


def draw_loadings(model: MCPCA, path: Path) -> bool:
    """Write the heatmap of the loadings where Matplotlib is installed; return whether it is."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib.pyplot as plt

    from ..plotting import plot_loadings

    figure: Any = plot_loadings(model).figure
    # Without the date and the version of Matplotlib, which PNG files otherwise carry.
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)
    return True


def _missing_for_report(wanted: bool | None) -> str | None:
    """Return what a report lacks, before any work is done; raise where the report was asked for."""
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


def write_report(
    model: MCPCA, path: Path, data: TableData | None, run: dict[str, Any] | None, title: str | None
) -> None:
    """Write the report of a model, with rows where there are any."""
    rows: dict[str, Any] = {}
    if data is not None and data.labels is not None:
        rows = {"X": data.source, "y": known_labels(model, data.labels)}
    if model.noise_variance_ is not None and model.n_samples_per_context_ is not None:
        with suppress(ValueError):  # where the model leaves nothing to estimate errors from
            rows |= {"standard_errors": model.standard_errors(), "presence": model.presence()}
    report_writer()(model, path, **rows, title=title, run=None if run is None else for_a_reader(run), overwrite=True)


# Words -----------------------------------------------------------------------------------------------------------


def _tell(model: MCPCA, data: TableData, found: dict[str, Any], out: Path, files: list[str], console: Console) -> None:
    n = f"{found['contexts']:,} contexts, {found['rows']:,} rows, {found['features']:,} features ({data.format})"
    console.say(
        f"{n}\n{plural(model.n_components_, 'MCPC')}. {found['rank_reason'] if model.rank_choice_ else ''}".rstrip()
    )
    if found["variance_explained"] is not None:
        error = found["variance_explained_error"]
        estimated = f" (an estimate, +- {error:.1%}: covariances were not formed)" if error else ""
        console.say(
            f"They explain {found['variance_explained']:.0%}{estimated} of the squared covariance; scores are "
            f"correlated by {found['score_correlation']:.2f} within contexts."
        )
    console.say(f"\n{loadings_text(model)}\n")
    console.say(f"Wrote {out}: {', '.join(files)}")
    if "report.html" in files:
        console.say(f"Open {out / 'report.html'} in a browser.")
    elif "loadings.png" in files:
        console.say(f"The picture is {out / 'loadings.png'}.")
