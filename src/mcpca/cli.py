"""The command ``mcpca``: each subcommand is the ``main`` of a module of its own, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from . import __version__

_COMMANDS = {
    "demo": ("mcpca.demo", "digits on photographs: loadings as a table, pictures in a folder"),
    "benchmark": ("mcpca.paper", "the paper's experiments with all of its methods: tables and figures"),
}


def _usage() -> str:
    lines = [f"  {name:<10} {summary}" for name, (_, summary) in _COMMANDS.items()]
    return "\n".join(
        ["usage: mcpca COMMAND [options]", "", "commands:", *lines, "", "mcpca COMMAND --help tells its options."]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; return its exit code, or 2 after a message on stderr where there is no such command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"mcpca {__version__}")
        return 0
    if arguments[0] not in _COMMANDS:
        print(f"mcpca: {arguments[0]!r} is unknown; choose one of {', '.join(_COMMANDS)}.", file=sys.stderr)
        return 2
    run = importlib.import_module(_COMMANDS[arguments[0]][0]).main
    return int(run(arguments[1:], prog=f"mcpca {arguments[0]}"))
