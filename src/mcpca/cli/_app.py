"""The commands, their options and their help; what they do is in the modules beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from .. import __version__
from .._rank.selection import CRITERIA
from .._solvers import NOISES, SOLVERS
from . import MODULES, run_module
from . import _policy as policy
from ._console import Console, Failure, ReaderGoneError
from ._options import (
    FILE,
    READING,
    RankType,
    common_options,
    data_argument,
    out_file,
    reading_options,
    split_reading,
)

_NOTES = (
    "Files: CSV and TSV (also .gz), Parquet, .h5ad, .zarr, .npz, .npy, or a folder with one of",
    "these per context; what a file is, is told from its content.",
    "",
    "Exit codes: 0 done, 1 fault of mcpca, 2 wrong arguments, 3 file unusable, 4 nothing above",
    "noise or no stable rank, 5 output not written, 130 interrupted.",
)
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Command(click.Command):
    """A command with examples below its options."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of this command, and below them those of how files are read."""
        records: dict[str, list[tuple[str, str]]] = {"Options": [], "Reading": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                records["Reading" if parameter.name in READING else "Options"].append(record)
        for title, listed in records.items():
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are."""
        _lines(formatter, "Examples", self.examples)


class _Commands(click.Group):
    """Commands in the order in which they are used, with examples and what files and exit codes mean."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were defined."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; ends for which click has ways of its own are turned into ours."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except KeyboardInterrupt:
            raise Failure("interrupted; nothing is half written.", 130, "interrupted") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the whole first sentence of its help."""
        with formatter.section("Commands"):
            listed = [(name, command.get_short_help_str(200)) for name, command in self.commands.items()]
            formatter.write_dl(listed)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples and notes as they are."""
        examples = (
            "mcpca doctor cells.h5ad                   what is in it, and what to type next",
            "mcpca fit cells.h5ad --context cell_type  tables, model and report in mcpca-output/",
        )
        _lines(formatter, "Examples", examples)
        _lines(formatter, "Notes", _NOTES)


def _lines(formatter: click.HelpFormatter, title: str, lines: tuple[str, ...]) -> None:
    if lines:
        with formatter.section(title):
            for line in lines:
                formatter.write(f"{' ' * formatter.current_indent}{line}\n" if line else "\n")


@click.group(cls=_Commands, context_settings=_SETTINGS, no_args_is_help=False, invoke_without_command=True)
@click.version_option(__version__, prog_name="mcpca", message="%(prog)s %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Multi-context PCA: axes that explain variation in subsets of contexts."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def _console(params: dict[str, Any]) -> Console:
    params.pop("debug")
    return Console(params.pop("as_json"), params.pop("quiet"))


def _words() -> list[str]:
    """Return what was typed."""
    return list(click.get_current_context().obj)


_MODEL_OPTIONS = (
    click.option("-r", "--rank", type=RankType(), default="auto", show_default=True, help="Number of MCPCs."),
    click.option(
        "--solver",
        type=click.Choice(list(SOLVERS)),
        default="mspm",
        show_default=True,
        help="See docs/solvers.md.",
    ),
    click.option("--orthogonal", is_flag=True, help="Orthonormal MCPCs."),
    click.option(
        "--noise",
        type=click.Choice([noise or "none" for noise in NOISES]),
        default="isotropic",
        show_default=True,
        help="For --solver ml.",
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides every random number."),
    click.option("--tol", type=float, default=1e-7, show_default=True, help="Convergence."),
    click.option("--max-iter", type=click.IntRange(1), default=200, show_default=True, help="Steps of the solver."),
)


def _model_options(function: Any) -> Any:
    for option in reversed(_MODEL_OPTIONS):
        function = option(function)
    return function


_FOLDER = click.option("-o", "--out", type=FILE, metavar="DIR", help="Where results go.")
_FORCE = click.option("--force", is_flag=True, help="Replace results that are there.")
_FORMAT = click.option(
    "--format", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True, help="Of tables."
)


@app.command(
    cls=_Command,
    examples=(
        "mcpca fit cells.h5ad --context cell_type",
        "mcpca fit embeddings.csv --context genre --context period --drop sentence --rank 8",
        "mcpca fit regions/*.csv --out regions-mcpca",
    ),
)
@data_argument
@reading_options
@_model_options
@click.option("-o", "--out", type=FILE, default=Path("mcpca-output"), show_default=True, metavar="DIR", help="Results.")
@_FORCE
@_FORMAT
@click.option("--center", type=click.Choice(["overall", "context"]), default="overall", help="Mean taken from scores.")
@click.option("--scores/--no-scores", default=True, help="Write scores of all rows.")
@click.option("--report/--no-report", default=None, help="Write report.html; by default where it can be.")
@click.option("--picture/--no-picture", default=True, help="Draw loadings.png, where Matplotlib is installed.")
@click.option("--title", metavar="TEXT", help="Of the report.")
@click.option("--checkpoint", type=FILE, metavar="FILE", help="Keep what a long fit has done; it goes on from there.")
@common_options
def fit(**params: Any) -> None:
    """Fit a model: tables, model file, report and a record of the run."""
    from ._fitting import fit as run
    from ._record import FitOptions

    console = _console(params)
    policy.check_fit(params)
    out, force, checkpoint = params.pop("out"), params.pop("force"), params.pop("checkpoint")
    params["noise"] = None if params["noise"] == "none" else params["noise"]
    options = FitOptions(reading=split_reading(params), **params)
    console.result("fit", run(options, out, force, console, _words(), checkpoint))


@app.command(
    cls=_Command,
    examples=(
        "mcpca rank cells.h5ad --context cell_type --out rank-output",
        "mcpca rank embeddings.csv --context genre --ranks 1-15 --criteria none",
    ),
)
@data_argument
@reading_options
@click.option("--ranks", metavar="A-B", help="Ranks to look at: 1-20, or 2,4,8.")
@click.option(
    "--criteria",
    multiple=True,
    type=click.Choice(["all", "none", *CRITERIA]),
    default=["all"],
    help="What to report beside the noise test and halves, which decide.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@_FOLDER
@_FORCE
@_FORMAT
@common_options
def rank(**params: Any) -> None:
    """Choose the rank: is anything above noise, and does it come back."""
    from ._ranking import rank as run

    console = _console(params)
    policy.check_criteria(params["criteria"])
    policy.check_needs_out(params["out"], force=params["force"], format=params["format"] != "csv")
    ranks, data = _ranks(params.pop("ranks")), params.pop("data")
    result = run(data, split_reading(params), ranks, console=console, **params)
    console.result("rank", result)


def _ranks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or int(first) < 1:
            raise click.BadParameter(f"{text!r} is no list of ranks; write 1-20 or 2,4,8.", param_hint="--ranks")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise click.BadParameter(f"{text!r} has no rank in it; write 1-20 or 2,4,8.", param_hint="--ranks")
    return sorted(set(found))


@app.command(
    cls=_Command,
    examples=("mcpca transform mcpca-output new-cells.h5ad --out scores.parquet",),
)
@click.argument("model", type=FILE)
@data_argument
@reading_options
@click.option(
    "--center",
    type=click.Choice(["overall", "context", "own"]),
    default="overall",
    show_default=True,
    help="Mean taken from rows: of all fitted rows, of the row's context as fitted, or of its context in DATA.",
)
@click.option("--posterior", is_flag=True, help="With --solver ml: expected scores given the noise.")
@out_file("Table of scores, .csv, .tsv or .parquet; stdout otherwise.")
@common_options
def transform(**params: Any) -> None:
    """Compute scores of rows on a fitted model; MODEL is a model file or a folder of results."""
    from ._applying import transform as run

    console = _console(params)
    reading = split_reading(params)
    policy.check_context(reading, len(params["data"]) > 1, params["center"])
    policy.check_needs_out(params["out"], force=params["force"])
    model, data = params.pop("model"), params.pop("data")
    console.result("transform", run(model, data, reading, console=console, **params))


@app.command(
    cls=_Command,
    examples=("mcpca loadings mcpca-output new-patients.csv --context patient",),
)
@click.argument("model", type=FILE)
@data_argument
@reading_options
@out_file("Table of loadings, .csv, .tsv or .parquet; stdout otherwise.")
@common_options
def loadings(**params: Any) -> None:
    """Compute loadings of new contexts on a fitted model."""
    from ._applying import loadings as run

    console = _console(params)
    model, data, reading = params.pop("model"), params.pop("data"), split_reading(params)
    policy.check_needs_out(params["out"], force=params["force"])
    console.result("loadings", run(model, data, reading, console=console, **params))


@app.command(
    cls=_Command,
    examples=("mcpca moments patients.csv --context diagnosis --min-samples 50 --out site-a.moments",),
)
@data_argument
@reading_options
@click.option("-o", "--out", type=FILE, metavar="FILE", required=True, help="For the moments.")
@_FORCE
@common_options
def moments(**params: Any) -> None:
    """Sum up rows without sharing them: counts, means and scatters of contexts."""
    from ._applying import moments as run

    console = _console(params)
    data, reading = params.pop("data"), split_reading(params)
    console.result("moments", run(data, reading, console=console, **params))


@app.command(
    cls=_Command,
    examples=(
        "mcpca merge site-a.moments site-b.moments --out all.moments",
        "mcpca fit all.moments --rank 10",
    ),
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("-o", "--out", type=FILE, metavar="FILE", required=True, help="For the moments of all rows.")
@_FORCE
@click.option("--allow-duplicates", is_flag=True, help="Merge the same rows twice; they then count twice.")
@common_options
def merge(**params: Any) -> None:
    """Put moments of several sites together; mcpca fit takes the result."""
    from ._applying import merge as run

    console = _console(params)
    console.result("merge", run(params.pop("files"), console=console, **params))


@app.command(
    cls=_Command,
    examples=("mcpca report mcpca-output cells.h5ad --context cell_type",),
)
@click.argument("model", type=FILE)
@click.argument("data", nargs=-1, type=FILE)
@reading_options
@click.option("--title", metavar="TEXT", help="Of the report.")
@click.option(
    "-o", "--out", type=FILE, default=Path("report.html"), show_default=True, metavar="FILE", help="HTML file."
)
@_FORCE
@common_options
def report(**params: Any) -> None:
    """Write the report of a fitted model: one HTML file that can be sent; with DATA, also with its rows."""
    from ._applying import report as run

    console = _console(params)
    model, data, reading = params.pop("model"), params.pop("data"), split_reading(params)
    if not data:
        policy.check_no_rows(reading)
    console.result("report", run(model, data, reading, console=console, **params))


@app.command(
    cls=_Command,
    examples=("mcpca repeat mcpca-output/run.json",),
)
@click.argument("run", type=FILE)
@click.option(
    "-o", "--out", type=FILE, default=Path("mcpca-repeated"), show_default=True, metavar="DIR", help="Results."
)
@_FORCE
@common_options
def repeat(**params: Any) -> None:
    """Run again what RUN, a run.json or the folder it is in, has recorded, and compare the results."""
    from ._fitting import repeat as run

    console = _console(params)
    console.result("repeat", run(params.pop("run"), console=console, command=_words(), **params))


@app.command(
    cls=_Command,
    examples=("mcpca doctor cells.h5ad",),
)
@click.argument("file", type=FILE)
@reading_options
@common_options
def doctor(**params: Any) -> None:
    """Say what is in FILE, whether MCPCA can use it, and with which command."""
    from ._doctor import doctor as run

    console = _console(params)
    file = params.pop("file")
    console.result("doctor", run(file, split_reading(params), console))


@app.command(
    cls=_Command,
    examples=(
        "mcpca completion bash >> ~/.bashrc",
        "mcpca completion zsh >> ~/.zshrc",
        "mcpca completion fish > ~/.config/fish/completions/mcpca.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options and names of columns."""
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(app, {}, "mcpca", "_MCPCA_COMPLETE").source())


def _module_command(name: str, summary: str) -> click.Command:
    """Return a command that hands its arguments on: help and options are those of the module."""

    def call(arguments: tuple[str, ...]) -> None:
        click.get_current_context().exit(run_module(name, arguments))

    return click.Command(
        name,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        callback=call,
        help=summary,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )


for _name, (_, _summary) in MODULES.items():
    app.add_command(_module_command(_name, _summary))
