"""The command ``mcpca``.

``mcpca demo`` and ``mcpca benchmark`` are the ``main`` of modules of their own, and need no more than these do. All
others need the extra ``cli``; without it they say so.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from .. import __version__

MODULES = {
    "demo": ("mcpca.demo", "Find digits on photographs: loadings as a table, pictures in a folder."),
    "benchmark": ("mcpca.paper", "Repeat the paper's experiments with all of its methods: tables and figures."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; errors are one line on stderr.

    0 done; 1 a fault of mcpca itself; 2 wrong arguments, or a package that is not installed; 3 a file that cannot be
    used; 4 nothing above noise, or no stable rank; 5 the output cannot be written; 130 interrupted, 143 terminated.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in MODULES:
            return run_module(arguments[0], arguments[1:])
        from ._errors import run
    except KeyboardInterrupt:
        print("mcpca: interrupted.", file=sys.stderr)
        return 130
    except ImportError as error:
        if error.name != "click":
            raise
        return _without_click(arguments)
    return run(arguments)


def run_module(name: str, arguments: Sequence[str]) -> int:
    """Run the ``main`` of the module behind a command."""
    return int(importlib.import_module(MODULES[name][0]).main(list(arguments), prog=f"mcpca {name}"))


def _without_click(arguments: Sequence[str]) -> int:
    """Answer where click is not installed: the commands that there are, and how to get the others."""
    if list(arguments) == ["--version"]:
        print(f"mcpca {__version__}")
        return 0
    way_out = 'install it with: pip install "mcpca[cli]"'
    if arguments and arguments[0] not in ("-h", "--help"):
        print(f"mcpca: {arguments[0]!r} needs click, which is not installed; {way_out}", file=sys.stderr)
        return 2
    lines = [f"  {name:<10} {summary}" for name, (_, summary) in MODULES.items()]
    text = ["usage: mcpca COMMAND [options]", "", "commands:", *lines, "", f"All others need click; {way_out}"]
    print("\n".join(text), file=sys.stdout if arguments else sys.stderr)
    return 0 if arguments else 2
