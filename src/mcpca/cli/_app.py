"""The group of all commands, which ``_errors.run_command_line`` runs. How to add one is said in ``cli/__init__.py``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .. import __version__
from . import MODULES, run_module
from ._commands import COMMANDS
from ._help import CommandGroup, CommandWithExamples

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=CommandGroup, context_settings=_SETTINGS, no_args_is_help=False, invoke_without_command=True)
@click.version_option(__version__, prog_name="mcpca", message="%(prog)s %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Multi-context PCA: axes that explain variation in subsets of contexts."""
    # No command is wrong usage: the help goes to stderr, so that a pipe does not take it for a result.
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


for _command in COMMANDS:
    app.add_command(_command)


# Here and not in ``_commands``, since the script is made of the whole group.
@app.command(
    cls=CommandWithExamples,
    examples=(
        "mcpca completion bash >> ~/.bashrc",
        "mcpca completion zsh >> ~/.zshrc",
        "mcpca completion fish > ~/.config/fish/completions/mcpca.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options and names of columns."""
    script_class = get_completion_class(shell)
    assert script_class is not None
    # The variable has the name that click derives from the command and looks for when the shell asks.
    click.echo(script_class(app, {}, "mcpca", "_MCPCA_COMPLETE").source())


def _module_command(name: str, summary: str) -> click.Command:
    """Return a command that hands its arguments to a module, which has its own help and options."""

    def call(arguments: tuple[str, ...]) -> None:
        click.get_current_context().exit(run_module(name, arguments))

    # Everything after the name is passed on as it is, --help included: the module parses it with argparse.
    return click.Command(
        name,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        callback=call,
        help=summary,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )


# ``cli.main`` runs these before click is imported; here they are listed in the help.
for _name, (_, _summary) in MODULES.items():
    app.add_command(_module_command(_name, _summary))
