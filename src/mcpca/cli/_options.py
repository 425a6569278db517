"""Arguments and options that several commands share, and their way from click's parameters to a ``Reading``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from .._data.preprocess import KINDS, Preprocess
from .._estimator.parameters import MISSING
from .._solvers import NOISES, SOLVERS
from .tables import Reading, UnusableFileError, stdin
from .tables.completion import context_names

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Decorator = Callable[[Any], Any]
FILE = click.Path(path_type=Path)
_RANK_WORDS = ("auto", "replicating")  # a rank that is chosen, and those of its MCPCs that come back
_MOST_ROW_METADATA = 10  # columns; each is up to 150 kB of a report
_MOST_COMPLETIONS = 200  # a shell shows no more, and a wide table has 100,000 columns


class RankType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """A positive integer, "replicating", or "auto" for None."""

    name = "auto|replicating|R"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the rank, None for "auto"."""
        # click also converts the default, and may convert a value that it has converted before.
        if value is None or value in _RANK_WORDS or isinstance(value, int):
            return None if value == "auto" else value
        if not str(value).isdecimal() or int(value) < 1:
            self.fail(f"{value!r} is neither 'auto', 'replicating' nor a whole number from 1 on.", param, ctx)
        return int(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the words."""
        return [CompletionItem(word) for word in _RANK_WORDS if word.startswith(incomplete)]


def _complete_column(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the columns of the file that was named before."""
    try:
        # While the last option still waits for its value, click has not assigned the arguments: they are in ctx.args.
        names = context_names([Path(path) for path in ctx.params.get("data") or ctx.args], ctx.params.get("mod"))
    # While a shell completes, an error has no place to go: offer nothing.
    except (UnusableFileError, OSError, ImportError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:_MOST_COMPLETIONS]


# Reading -----------------------------------------------------------------------------------------------------------

# "-" is stdin.
data_argument = click.argument("data", nargs=-1, required=True, type=FILE)
_column: dict[str, Any] = {"metavar": "COLUMN", "shell_complete": _complete_column}
# By the name of the parameter, which is also the field of ``Reading`` but for ``max_memory``.
_READING_OPTIONS: dict[str, _Decorator] = {
    "context": click.option(
        "-c", "--context", multiple=True, help="Context of each row; several are crossed.", **_column
    ),
    "labels": click.option(
        "--labels", type=FILE, metavar="FILE", help="Contexts in a separate file, one per row, or by names of rows."
    ),
    "index": click.option("--index", help="Names of rows.", **_column),
    "drop": click.option(
        "--drop", multiple=True, metavar="PATTERN", help="Columns that are not features; @FILE lists them."
    ),
    "features": click.option(
        "--features", multiple=True, metavar="PATTERN", help="Columns that are; @FILE lists them."
    ),
    "mod": click.option("--mod", metavar="NAME", help="Modality of a MuData (.h5mu): rna, say."),
    "layer": click.option("--layer", metavar="NAME", help="Layer of an AnnData, in place of X."),
    "obsm": click.option("--obsm", metavar="NAME", help="Entry of obsm of an AnnData, in place of X: X_pca, say."),
    "mask_var": click.option(
        "--mask-var",
        metavar="COLUMN",
        help="Column of var that selects features; highly_variable if there is one, or 'all'.",
    ),
    "min_samples": click.option(
        "--min-samples", type=click.IntRange(0), default=0, metavar="N", help="Leave out smaller contexts."
    ),
    "drop_unlabelled": click.option("--drop-unlabelled", is_flag=True, help="Leave out rows without a context."),
    "na_values": click.option(
        "--na-values", multiple=True, metavar="TEXT", help="Text that means 'missing', like empty cells: n.d., say."
    ),
    "allow_duplicates": click.option(
        "--allow-duplicates", is_flag=True, help="Accept files of the same content; their rows then count twice."
    ),
    "header": click.option(
        "--no-header", "header", flag_value=False, default=True, help="Text has no line with names of columns."
    ),
    "delimiter": click.option("--delimiter", metavar="CHAR", help="Delimiter of text, or 'tab'; guessed otherwise."),
    "decimal": click.option("--decimal", type=click.Choice([".", ","]), default=".", help="Decimal point of text."),
    "encoding": click.option("--encoding", metavar="NAME", help="Encoding of text; UTF-8 otherwise."),
    "comment": click.option("--comment", metavar="CHAR", help="Skip lines of text that begin so: '#', say."),
    "sheet": click.option("--sheet", metavar="NAME", help="Sheet of a workbook (.xlsx)."),
    "transpose": click.option(
        "--transpose", is_flag=True, help="Lines are features and columns are rows: genes x samples."
    ),
    "max_memory": click.option(
        "--max-memory",
        type=click.IntRange(1),
        default=2048,
        show_default=True,
        metavar="MB",
        help="For rows; larger data are streamed.",
    ),
}
_METADATA_OPTIONS = (
    click.option(
        "--context-table", type=FILE, metavar="FILE", help="What is known of contexts, one a line, for the report."
    ),
    click.option("--row-metadata", multiple=True, help="Column of rows to colour their scores by.", **_column),
)
READING_PARAMETERS = tuple(_READING_OPTIONS)
# Also fields of ``Reading``, but only of commands that have a use for them.
_GROUPS_OPTION = click.option(
    "--groups", multiple=True, help="Rows sampled together, such as donors: split together.", **_column
)
_NUISANCE_OPTIONS = (
    click.option("--batch", multiple=True, help="Strata whose means are removed within contexts.", **_column),
    click.option("--covariates", metavar="A,B|FORMULA", help="Columns that are regressed out within contexts."),
)


def reading_options(function: _Function) -> _Function:
    """Add the options for reading files."""
    return _decorated(function, *_READING_OPTIONS.values())


_PREPROCESS_OPTIONS = (
    click.option("--normalize", type=click.Choice(KINDS), help="Prepare raw counts as they are read."),
    click.option(
        "--hvg", type=click.IntRange(1), metavar="N", help="Fit the N features of the most variable counts only."
    ),
    click.option(
        "--target-sum",
        type=click.FloatRange(0, min_open=True),
        metavar="T",
        help="Total of each row, with --normalize log1p; the median otherwise.",
    ),
    click.option(
        "--scale", is_flag=True, help="Divide each feature by its standard deviation over all rows (after --normalize)."
    ),
)


missing_option = click.option(
    "--missing",
    type=click.Choice(list(MISSING)),
    default="error",
    show_default=True,
    help="Missing values: pairwise by --solver mspm or lsq, em by ml; union: whole features, by lsq or ml.",
)


def preprocess_options(function: _Function) -> _Function:
    """Add ``--normalize``, ``--hvg``, ``--target-sum`` and ``--scale``."""
    return _decorated(function, *_PREPROCESS_OPTIONS)


def nuisance_options(function: _Function) -> _Function:
    """Add ``--batch`` and ``--covariates``."""
    return _decorated(function, *_NUISANCE_OPTIONS)


def annotation_options(function: _Function) -> _Function:
    """Add ``--groups``, ``--batch`` and ``--covariates``."""
    return _decorated(function, _GROUPS_OPTION, *_NUISANCE_OPTIONS)


def metadata_options(function: _Function) -> _Function:
    """Add ``--context-table`` and ``--row-metadata``."""
    return _decorated(function, *_METADATA_OPTIONS)


def take_reading(params: dict[str, Any]) -> Reading:
    """Take the parameters of ``reading_options`` out of ``params``; return them checked, as a ``Reading``."""
    # Popped, so that what is left belongs to the command alone and can be passed on as it is.
    values = {name: params.pop(name) for name in READING_PARAMETERS}
    beside = ("groups", "batch", "covariates", "context_table", "row_metadata")
    values |= {name: params.pop(name) for name in beside if name in params}
    # A tab is hard to type in a shell, and "\t" in quotes arrives as two characters.
    delimiter = {"tab": "\t", "\\t": "\t"}.get(values["delimiter"], values["delimiter"])
    if delimiter is not None and len(delimiter) != 1:
        raise click.BadParameter(f"{delimiter!r} is not one character.", param_hint="--delimiter")
    _check_encoding(values["encoding"])
    # Crossed with itself, a column gives contexts such as "a / a".
    repeated = [name for i, name in enumerate(values["context"]) if name in values["context"][:i]]
    if repeated:
        raise click.BadParameter(f"{repeated[0]!r} is named twice; name each column once.", param_hint="--context")
    if len(values.get("row_metadata", ())) > _MOST_ROW_METADATA:
        raise click.BadParameter(
            f"{len(values['row_metadata'])} columns are named; a report takes up to {_MOST_ROW_METADATA}.",
            param_hint="--row-metadata",
        )
    # Labels are compared without blanks around them.
    values["na_values"] = tuple(text.strip() for text in values["na_values"])
    if "" in values["na_values"]:
        raise click.BadParameter("empty labels are missing without it; drop it.", param_hint="--na-values")
    if values["comment"] is not None and not values["comment"].strip():
        raise click.BadParameter("lines that begin with a blank are rows; name a character.", param_hint="--comment")
    _check_stdin(values["labels"])
    max_bytes = int(values.pop("max_memory")) * 2**20
    return Reading(**{**values, "delimiter": delimiter}, max_bytes=max_bytes)


def _check_stdin(labels: Path | None) -> None:
    """Raise if stdin is named twice, or nothing is piped in."""
    # What an earlier command in the same process has read is not what this one is given.
    stdin.forget()
    params = click.get_current_context().params
    data = params.get("data") or (params.get("file"),)
    n = [*data, labels].count(stdin.STDIN)
    if n > 1:
        raise click.UsageError("- stands for stdin, which can be read once; name a file for one of the two.")
    if n and stdin.is_terminal():
        raise click.UsageError("- stands for stdin, and nothing is piped in: zcat rows.csv.gz | mcpca fit - ..., say.")


def as_raw(reading: Reading, preprocess: Preprocess | None) -> Reading:
    """Return how rows are read that are to be prepared, if they are."""
    # Features that are only divided by their standard deviations need no others, and no counts.
    prepares = preprocess is not None and (preprocess.kind is not None or preprocess.n_top is not None)
    return replace(reading, raw=True) if prepares else reading


def _check_encoding(name: str | None) -> None:
    try:
        # Encoding nothing looks the codec up, and does no more.
        "".encode(name or "utf-8")
    except LookupError as error:
        raise click.BadParameter(
            f"{name!r} is not an encoding that is known; utf-8, utf-16 and latin-1 are.", param_hint="--encoding"
        ) from error


# The model, outputs, and every command --------------------------------------------------------------------------------


seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides every random number."
)
_MODEL_OPTIONS = (
    click.option(
        "-r",
        "--rank",
        type=RankType(),
        default="auto",
        show_default=True,
        help="Number of MCPCs; replicating: those that come back.",
    ),
    click.option(
        "--solver",
        type=click.Choice([*SOLVERS, "auto"]),
        default="mspm",
        show_default=True,
        help="See docs/solvers.md.",
    ),
    click.option("--orthogonal", is_flag=True, help="Orthonormal MCPCs."),
    click.option(
        "--noise",
        type=click.Choice([noise or "none" for noise in NOISES]),
        default="auto",
        show_default=True,
        help="What is left out of loadings.",
    ),
    click.option("--robust", is_flag=True, help="Rows far from their context count less."),
    click.option(
        "--cross-fit",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Splits of the rows, for features near or above rows.",
    ),
    seed_option,
    click.option(
        "--tol",
        type=float,
        default=None,
        help="Tolerance of convergence; by default 1e-7, or by passes over the rows a tenth of a standard error.",
    ),
    click.option("--max-iter", type=click.IntRange(1), default=200, show_default=True, help="Steps of the solver."),
)
force_option = click.option("--force", is_flag=True, help="Replace results that are there.")
open_option = click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
format_option = click.option(
    "--format",
    type=click.Choice(["csv", "parquet", "xlsx"]),
    default="csv",
    show_default=True,
    help="Format of tables.",
)
# ``--json`` and ``--debug`` are also looked for by ``_errors``, in the words as typed, for errors of parsing.
_COMMON_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
    click.option("-q", "--quiet", is_flag=True, help="No progress and no notes."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)


def model_options(function: _Function) -> _Function:
    """Add the parameters of the model."""
    return _decorated(function, *_MODEL_OPTIONS)


def out_file_options(out_help: str) -> Callable[[_Function], _Function]:
    """Add ``--out FILE`` and ``--force``."""
    out = click.option("-o", "--out", type=FILE, metavar="FILE", help=out_help)
    force = click.option("--force", is_flag=True, help="Replace a file that is there.")
    return lambda function: _decorated(function, out, force)


def common_options(function: _Function) -> _Function:
    """Add the options of every command."""
    return _decorated(function, *_COMMON_OPTIONS)


def _decorated(function: _Function, *options: _Decorator) -> _Function:
    """Apply decorators so that help lists the options in this order: as with ``@``, the last one is applied first."""
    for option in reversed(options):
        function = option(function)
    return function
