"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from .tables import Reading, UnusableFileError
from .tables.columns_of import columns_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)


class RankType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """A positive integer, or "auto" for None."""

    name = "auto|R"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the rank, None for "auto"."""
        if value is None or value == "auto" or isinstance(value, int):
            return None if value == "auto" else value
        if not str(value).isdecimal() or int(value) < 1:
            self.fail(f"{value!r} is neither 'auto' nor a whole number from 1 on.", param, ctx)
        return int(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer "auto"."""
        return [CompletionItem("auto")] if "auto".startswith(incomplete) else []


def _complete_column(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the columns of the file that was named before."""
    try:
        # Arguments are not assigned yet where the option at the end still waits for its value.
        names = columns_of([Path(path) for path in ctx.params.get("data") or ctx.args])
    except (UnusableFileError, OSError, ImportError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:200]


data_argument = click.argument("data", nargs=-1, required=True, type=FILE)
_column: dict[str, Any] = {"metavar": "COLUMN", "shell_complete": _complete_column}
_context = click.option("-c", "--context", multiple=True, help="Context of each row; several are crossed.", **_column)
_labels = click.option("--labels", type=FILE, metavar="FILE", help="Contexts in a file of their own, one per row.")
_READING_OPTIONS = (
    click.option("--index", help="Names of rows.", **_column),
    click.option("--drop", multiple=True, metavar="PATTERN", help="Columns that are no features; @FILE lists them."),
    click.option("--features", multiple=True, metavar="PATTERN", help="Columns that are; @FILE lists them."),
    click.option("--layer", metavar="NAME", help="Layer of an AnnData, in place of X."),
    click.option("--obsm", metavar="NAME", help="Entry of obsm of an AnnData, in place of X: X_pca, say."),
    click.option(
        "--mask-var", metavar="COLUMN", help="Of var: features to take. highly_variable if there; all for all."
    ),
    click.option("--min-samples", type=click.IntRange(0), default=0, metavar="N", help="Leave out smaller contexts."),
    click.option("--drop-unlabelled", is_flag=True, help="Leave out rows without a context."),
    click.option(
        "--na-values", multiple=True, metavar="TEXT", help="What means 'no context', beside empty cells: NA, say."
    ),
    click.option("--allow-duplicates", is_flag=True, help="Take files of the same content; rows then count twice."),
    click.option("--no-header", "header", flag_value=False, default=True, help="Text without a line of names."),
    click.option("--delimiter", metavar="CHAR", help="Of text; guessed otherwise. 'tab' is a name for it."),
    click.option("--decimal", type=click.Choice([".", ","]), default=".", help="Decimal point of text."),
    click.option("--encoding", metavar="NAME", help="Of text; UTF-8 otherwise."),
    click.option(
        "--max-memory",
        type=click.IntRange(1),
        default=2048,
        show_default=True,
        metavar="MB",
        help="For rows; beyond, stream.",
    ),
)
_COMMON = (
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
    click.option("-q", "--quiet", is_flag=True, help="No progress and no notes."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)
READING = (
    *(
        "context",
        "labels",
        "index",
        "drop",
        "features",
        "layer",
        "obsm",
        "mask_var",
        "min_samples",
        "drop_unlabelled",
        "na_values",
        "allow_duplicates",
        "header",
    ),
    *("delimiter", "decimal", "encoding", "max_memory"),
)


def reading_options(function: _Function) -> _Function:
    """Add the options of how files are read."""
    return _add((_context, _labels, *_READING_OPTIONS), function)


def common_options(function: _Function) -> _Function:
    """Add the options of every command."""
    return _add(_COMMON, function)


def out_file(default_help: str) -> Callable[[_Function], _Function]:
    """Add ``--out FILE`` and ``--force``."""
    force = click.option("--force", is_flag=True, help="Replace a file that is there.")
    out = click.option("-o", "--out", type=FILE, metavar="FILE", help=default_help)
    return lambda function: _add((out, force), function)


def _add(options: tuple[Callable[[Any], Any], ...], function: _Function) -> _Function:
    for option in reversed(options):
        function = option(function)
    return function


def split_reading(params: dict[str, Any]) -> Reading:
    """Take the options of reading out of ``params``."""
    values = {name: params.pop(name) for name in READING}
    delimiter = {"tab": "\t", "\\t": "\t"}.get(values["delimiter"], values["delimiter"])
    if delimiter is not None and len(delimiter) != 1:
        raise click.BadParameter(f"{delimiter!r} is not one character.", param_hint="--delimiter")
    _check_encoding(values["encoding"])
    twice = [name for i, name in enumerate(values["context"]) if name in values["context"][:i]]
    if twice:
        raise click.BadParameter(f"{twice[0]!r} is named twice; name each column once.", param_hint="--context")
    values["na_values"] = tuple(text.strip() for text in values["na_values"])
    if "" in values["na_values"]:
        raise click.BadParameter("empty labels are missing without it; drop it.", param_hint="--na-values")
    max_bytes = int(values.pop("max_memory")) * 2**20
    return Reading(**{**values, "delimiter": delimiter}, max_bytes=max_bytes)


def _check_encoding(name: str | None) -> None:
    try:
        "".encode(name or "utf-8")
    except LookupError as error:
        raise click.BadParameter(f"{name!r} is no encoding that Python knows.", param_hint="--encoding") from error
