"""The commands: arguments, options, help and examples. What they do is in ``run_NAME`` of the modules beside this one.

Each command function gets its parameters as a dict, takes out what is not meant for ``run_NAME``, and prints the result
as JSON if that was asked for. Modules that compute are imported when a command runs, so that help is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .._inference.replication import REPLICATES
from .._rank.selection import CRITERIA
from . import _policy as policy
from ._console import Console
from ._help import CommandWithExamples
from ._options import (
    FILE,
    annotation_options,
    as_raw,
    common_options,
    data_argument,
    force_option,
    format_option,
    metadata_options,
    model_options,
    nuisance_options,
    open_option,
    out_file_options,
    preprocess_options,
    reading_options,
    seed_option,
    take_reading,
)
from .tables import stdin


def _console(params: dict[str, Any]) -> Console:
    """Take the options of ``common_options`` out of ``params``."""
    params.pop("debug")  # read by ``_errors``, before options are parsed
    return Console(params.pop("as_json"), params.pop("quiet"))


def _typed_words() -> list[str]:
    """Return the command line as it was typed, for the record of a run."""
    # ``_errors`` has put it there: click itself keeps no trace of the words.
    return list(click.get_current_context().obj)


@click.command(
    cls=CommandWithExamples,
    examples=(
        "mcpca fit cells.h5ad --context cell_type",
        "mcpca fit cells.h5ad --context cell_type --groups donor --batch run --covariates log_counts",
        "mcpca fit atlas.h5ad --context cell_type --normalize log1p --hvg 2000 --rank 30",
        "mcpca fit embeddings.csv --context genre --context period --drop sentence --rank 8",
        "mcpca fit regions/*.csv --rank 8 --replicability --bootstrap 200 --out regions-mcpca",
    ),
)
@data_argument
@reading_options
@annotation_options
@preprocess_options
@model_options
@click.option(
    "-o", "--out", type=FILE, default=Path("mcpca-output"), show_default=True, metavar="DIR", help="For results."
)
@force_option
@format_option
@click.option(
    "--center", type=click.Choice(["overall", "context"]), default="overall", help="Mean subtracted from rows."
)
@click.option("--scores/--no-scores", default=True, help="Write the scores of all rows.")
@click.option("--report/--no-report", default=None, help="Write report.html; by default if plotly is installed.")
@click.option("--picture/--no-picture", default=True, help="Draw loadings.png if Matplotlib is installed.")
@click.option("--context-test/--no-context-test", default=True, help="Test which MCPCs differ between contexts.")
@click.option(
    "--replicability/--no-replicability",
    default=None,
    help="Which MCPCs come back in halves of the rows; by default as far as halves are fitted anyway.",
)
@click.option(
    "--bootstrap",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Intervals for loadings, from N fits to resamples; some hundreds.",
)
@metadata_options
@click.option("--title", metavar="TEXT", help="Title of the report.")
@click.option("--checkpoint", type=FILE, metavar="FILE", help="Save the state of a long fit; it resumes from there.")
@open_option
@common_options
def fit(**params: Any) -> None:
    """Fit a model: tables, model file, report and a record of the run."""
    from ._fitting import run_fit
    from ._opening import open_page
    from ._record import FitOptions

    console = _console(params)
    policy.check_fit(params)
    opening = params.pop("open_page")
    if opening:
        params["report"] = True  # whoever wants to see it wants one
    out = params.pop("out")
    force = params.pop("force")
    checkpoint = params.pop("checkpoint")
    # The word stands for None, which a command line cannot say.
    params["noise"] = None if params["noise"] == "none" else params["noise"]
    # What is left in ``params`` are fields of ``FitOptions``: options and fields have the same names.
    preprocess = policy.check_preprocess(params)
    options = FitOptions(reading=as_raw(take_reading(params), preprocess), **params)
    result = run_fit(options, out, force, console, _typed_words(), checkpoint)
    if opening:
        result["opened"] = open_page(out / "report.html", console)
    console.result("fit", result)


@click.command(
    cls=CommandWithExamples,
    examples=(
        "mcpca rank cells.h5ad --context cell_type --out rank-output",
        "mcpca rank embeddings.csv --context genre --ranks 1-15 --criteria none",
    ),
)
@data_argument
@reading_options
@annotation_options
@preprocess_options
@click.option("--ranks", metavar="A-B", help="Ranks to look at: 1-20, or 2,4,8.")
@click.option(
    "--criteria",
    multiple=True,
    type=click.Choice(["all", "none", *CRITERIA]),
    default=["all"],
    help="What to report besides the noise test and the halves, which decide.",
)
@seed_option
@click.option("-o", "--out", type=FILE, metavar="DIR", help="Where results go.")
@force_option
@format_option
@common_options
def rank(**params: Any) -> None:
    """Choose the rank: is anything above noise, and does it come back."""
    from ._ranking import run_rank
    from ._record import RankOptions

    console = _console(params)
    policy.check_criteria(params["criteria"])
    # csv is the default and so cannot be told from an option that was not given.
    policy.check_needs_out(params["out"], force=params["force"], format=params["format"] != "csv")
    ranks = _parse_ranks(params.pop("ranks"))
    preprocess = policy.check_preprocess(params)
    reading = as_raw(take_reading(params), preprocess)
    out = params.pop("out")
    force = params.pop("force")
    options = RankOptions(reading=reading, ranks=None if ranks is None else tuple(ranks), **params)
    console.result("rank", run_rank(options, out, force, console, _typed_words()))


def _parse_ranks(text: str | None) -> list[int] | None:
    """Return the ranks that "1-20" or "2,4,8" stands for."""
    if text is None:
        return None
    ranks: list[int] = []
    for part in text.split(","):
        # isdecimal refuses signs and blanks, which int() would accept.
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or int(first) < 1:
            raise click.BadParameter(f"{text!r} is not a list of ranks; write 1-20 or 2,4,8.", param_hint="--ranks")
        ranks += range(int(first), int(last or first) + 1)
    # "5-3" is a range without ranks.
    if not ranks:
        raise click.BadParameter(f"{text!r} has no rank in it; write 1-20 or 2,4,8.", param_hint="--ranks")
    return sorted(set(ranks))


@click.command(
    cls=CommandWithExamples,
    examples=("mcpca transform mcpca-output new-cells.h5ad --out scores.parquet",),
)
@click.argument("model", type=FILE)
@data_argument
@reading_options
@nuisance_options
@click.option(
    "--center",
    type=click.Choice(["overall", "context", "own"]),
    default="overall",
    show_default=True,
    help="Mean subtracted from rows: of all fitted rows, of the row's context as fitted, or of its context in DATA.",
)
@click.option("--posterior", is_flag=True, help="Expected scores given the noise, shrunk towards the mean.")
@out_file_options("Table of scores, .csv, .tsv, .parquet or .xlsx; stdout otherwise.")
@common_options
def transform(**params: Any) -> None:
    """Compute scores of rows on a fitted model; MODEL is a model file or a folder of results."""
    from ._applying import run_transform

    console = _console(params)
    reading = take_reading(params)
    # Several files are a context each, and need no option.
    policy.check_context(reading, len(params["data"]) > 1, params["center"])
    policy.check_needs_out(params["out"], force=params["force"])
    model = params.pop("model")
    data = params.pop("data")
    console.result("transform", run_transform(model, data, reading, console=console, **params))


@click.command(
    cls=CommandWithExamples,
    examples=("mcpca loadings mcpca-output new-patients.csv --context patient",),
)
@click.argument("model", type=FILE)
@data_argument
@reading_options
@nuisance_options
@click.option(
    "--as-fitted",
    is_flag=True,
    help="Leave the noise of the new contexts in, as loadings.csv of a model without noise has it.",
)
@out_file_options("Table of loadings, .csv, .tsv, .parquet or .xlsx; stdout otherwise.")
@common_options
def loadings(**params: Any) -> None:
    """Compute loadings of new contexts on a fitted model, without their noise; compare with corrected_loadings.csv."""
    from ._applying import run_loadings

    console = _console(params)
    policy.check_needs_out(params["out"], force=params["force"])
    model = params.pop("model")
    data = params.pop("data")
    console.result("loadings", run_loadings(model, data, take_reading(params), console=console, **params))


@click.command(
    cls=CommandWithExamples,
    examples=(
        "mcpca moments patients.csv --context diagnosis --min-samples 50 --out site-a.moments",
        "mcpca moments patients.csv --context diagnosis --batch run --covariates age,smokes --out site-a.moments",
    ),
)
@data_argument
@reading_options
@nuisance_options
@click.option("-o", "--out", type=FILE, metavar="FILE", required=True, help="For the moments.")
@force_option
@common_options
def moments(**params: Any) -> None:
    """Sum up rows without sharing them: counts, means and scatters of contexts."""
    from ._applying import run_moments

    console = _console(params)
    data = params.pop("data")
    console.result("moments", run_moments(data, take_reading(params), console=console, **params))


@click.command(
    cls=CommandWithExamples,
    examples=(
        "mcpca merge site-a.moments site-b.moments --out all.moments",
        "mcpca fit all.moments --rank 10",
    ),
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("-o", "--out", type=FILE, metavar="FILE", required=True, help="For the moments of all rows.")
@force_option
@click.option("--allow-duplicates", is_flag=True, help="Merge the same rows twice; they then count twice.")
@common_options
def merge(**params: Any) -> None:
    """Put moments of several sites together; mcpca fit takes the result."""
    from ._applying import run_merge

    console = _console(params)
    console.result("merge", run_merge(params.pop("files"), console=console, **params))


@click.command(
    cls=CommandWithExamples,
    examples=(
        "mcpca report mcpca-output cells.h5ad --context cell_type --row-metadata phase",
        "mcpca report mcpca-output --context-table patients.csv --open",
    ),
)
@click.argument("model", type=FILE)
@click.argument("data", nargs=-1, type=FILE)
@reading_options
@annotation_options
@metadata_options
@click.option("--title", metavar="TEXT", help="Title of the report.")
@click.option("--as-fitted", is_flag=True, help="Show loadings with the noise of their context in them.")
@click.option(
    "-o", "--out", type=FILE, default=Path("report.html"), show_default=True, metavar="FILE", help="HTML file."
)
@force_option
@open_option
@common_options
def report(**params: Any) -> None:
    """Write the report of a fitted model: one HTML file that can be sent; with DATA, also with its rows."""
    from ._applying import run_report

    console = _console(params)
    model = params.pop("model")
    data = params.pop("data")
    reading = take_reading(params)
    # DATA is optional here, so that options for reading can be without effect.
    if not data:
        policy.check_no_rows(reading)
    console.result("report", run_report(model, data, reading, console=console, **params))


@click.command(
    cls=CommandWithExamples,
    examples=("mcpca repeat mcpca-output/run.json", "mcpca repeat mcpca-output --data /archive/cells.h5ad"),
)
@click.argument("run", type=FILE)
@click.option(
    "--data",
    multiple=True,
    type=FILE,
    metavar="FILE|DIR",
    help="Where files of the run are now, if they were moved; recognised by their SHA-256.",
)
@click.option(
    "-o", "--out", type=FILE, default=Path("mcpca-repeated"), show_default=True, metavar="DIR", help="Results."
)
@force_option
@common_options
def repeat(**params: Any) -> None:
    """Repeat the run that RUN, a run.json or the folder it is in, has recorded, and compare the results."""
    from ._repeating import run_repeat

    console = _console(params)
    console.result("repeat", run_repeat(params.pop("run"), console=console, command=_typed_words(), **params))


@click.command(
    cls=CommandWithExamples,
    examples=(
        "mcpca compare mcpca-output mcpca-rank-8",
        "mcpca compare before/model.mcpca after/model.mcpca --out comparison.html --open",
    ),
)
@click.argument("first", type=FILE, metavar="RUN")
@click.argument("second", type=FILE, metavar="RUN")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=REPLICATES,
    show_default=True,
    help="|cosine| from which on an MCPC is the same.",
)
@click.option("--title", metavar="TEXT", help="Title of the page.")
@click.option("-o", "--out", type=FILE, metavar="FILE|DIR", help="A page (.html), or a folder for page and tables.")
@force_option
@open_option
@common_options
def compare(**params: Any) -> None:
    """Compare two runs: which MCPCs come back, how loadings differ, what changed; RUN is a folder or a model file."""
    from ._comparing import run_compare

    console = _console(params)
    policy.check_needs_out(
        params["out"], force=params["force"], title=params["title"] is not None, open=params["open_page"]
    )
    console.result("compare", run_compare(params.pop("first"), params.pop("second"), console=console, **params))


@click.command(
    cls=CommandWithExamples,
    examples=("mcpca doctor cells.h5ad",),
)
@click.argument("file", type=FILE)
@reading_options
@common_options
def doctor(**params: Any) -> None:
    """Say what is in FILE, whether MCPCA can use it, and with which command."""
    from ._doctor import run_doctor

    console = _console(params)
    file = params.pop("file")
    reading = take_reading(params)
    console.result("doctor", run_doctor(stdin.opened(file), reading, console))


# In the order of ``mcpca --help``; ``_app`` adds "completion" and the modules.
COMMANDS = (fit, rank, transform, loadings, moments, merge, report, repeat, compare, doctor)
