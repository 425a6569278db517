"""How help is laid out: as click does it, with examples, and with a section for the options of reading files."""

from __future__ import annotations

from typing import Any

import click

from .._utils.wording import close_names
from ._console import Failure, ReaderGoneError
from ._options import READING_PARAMETERS

_GROUP_EXAMPLES = (
    "mcpca doctor cells.h5ad                   what is in it, and what to type next",
    "mcpca fit cells.h5ad --context cell_type  tables, model and report in mcpca-output/",
)
# Wrapped by hand, within the 100 columns of ``_app``: these lines are written as they are.
_GROUP_NOTES = (
    "Files: CSV and TSV (also .gz), Parquet, .xlsx, .h5ad, .h5mu, .zarr, .npz, .npy, or a folder with",
    "one of these per context; the content of a file decides what it is, not its name. - is stdin.",
    "",
    "Exit codes: 0 done, 1 bug in mcpca, 2 wrong arguments, 3 file unusable, 4 nothing above",
    "noise or no stable rank, 5 output not written, 130 interrupted.",
)


class CommandWithExamples(click.Command):
    """A command with examples below its options."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of this command, and below them those for reading files."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Reading": []}
        for parameter in self.get_params(ctx):
            # Arguments have no entry: they are in the line of usage.
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections["Reading" if parameter.name in READING_PARAMETERS else "Options"].append(record)
        # Commands that read no files have no section for that.
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_lines(formatter, "Examples", self.examples)


class CommandGroup(click.Group):
    """The commands in the order in which they were added, with examples and notes on files and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added; click would sort them."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a name that is not there is answered by a close one, which not every click does."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            close = close_names(args[0], list(self.commands), 1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}.{meant}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors that click would handle itself are handed on to ``_errors``."""
        try:
            return super().invoke(ctx)
        # click would end the program with code 1; ``_errors`` has the code that a shell gives for SIGPIPE.
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        # click would turn it into its Abort, after an empty line on stderr.
        except KeyboardInterrupt:
            raise Failure("interrupted; nothing is left half written.", 130, "interrupted") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the whole first sentence of its help; click would cut it at 45 characters."""
        with formatter.section("Commands"):
            # 200 characters are more than any first sentence has.
            formatter.write_dl([(name, command.get_short_help_str(200)) for name, command in self.commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples and notes."""
        _write_lines(formatter, "Examples", _GROUP_EXAMPLES)
        _write_lines(formatter, "Notes", _GROUP_NOTES)


def _write_lines(formatter: click.HelpFormatter, title: str, lines: tuple[str, ...]) -> None:
    """Write lines as they are: click's own method would join and wrap them."""
    if lines:
        with formatter.section(title):
            for line in lines:
                formatter.write(f"{' ' * formatter.current_indent}{line}\n" if line else "\n")
