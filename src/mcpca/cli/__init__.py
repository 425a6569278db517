"""The command ``mcpca``. ``main`` is its entry point (by way of ``mcpca_command``, which is outside the package).

From top to bottom:

    ``_errors``         runs a command line and turns whatever happens into an exit code and one line on stderr
    ``_app``            the group of all commands, in the order of ``mcpca --help``
    ``_commands``       their arguments, options and help; ``_options`` has what several share, ``_help`` the layout
    ``_policy``         which options and names of outputs are refused
    ``_fitting``, ``_applying``, ``_ranking``, ``_doctor``   what the commands do: a function ``run_NAME`` each
    ``_repeating``, ``_comparing``                           what is done with runs: ``repeat`` and ``compare``
    ``_model_tables``, ``_record``, ``_suspects``            parts of the results: tables, ``run.json``, odd columns
    ``_top_features``, ``_evidence``, ``_context_test``      parts of the results: poles, what comes back, what differs
    ``_reporting``      the picture and the report
    ``_examining``, ``_findings``, ``_remedies``, ``_sample_sheets``   what ``doctor`` looks at, finds and suggests
    ``_library_errors``, ``_words``                          errors of the library, in words of the command line
    ``_located``        where the files of a recorded run are now
    ``_opening``        a page in the system's browser
    ``_outputs``        files and folders that are written whole or not at all, and never over something unasked
    ``_console``        what is printed: results on stdout, the rest on stderr, JSON
    ``tables``          reading and writing files of rows

``mcpca demo`` and ``mcpca benchmark`` are the ``main`` of modules of their own and run without the extra ``cli``; all
other commands need it, and say so if it is not installed.

How to add a command
--------------------
1. Write what it does as ``run_NAME(..., console)``, in the module above where it fits or in a new one. It knows nothing
   of click: it reads with ``tables.read_data``, writes with ``_outputs.new_file`` or ``new_folder``, prints with
   ``console.say`` (results), ``console.note`` and ``console.warn``, wraps long steps in ``console.phase(...)``, raises
   ``UnusableFileError`` (exit code 3) or ``Failure`` (any other), and returns a dict, which ``--json`` prints.
2. Declare it in ``_commands.py``: options, a docstring whose first sentence ``mcpca --help`` shows, and an example.
   Import ``run_NAME`` inside the function, so that ``--help`` and completion in the shell stay fast. End with
   ``console.result("NAME", run_NAME(...))``.
3. Add it to ``COMMANDS`` at the end of ``_commands.py``; the order there is that of ``mcpca --help``.
4. If an option can be without effect next to another one, refuse it in ``_policy.py``.
5. Test it in ``tests/cli`` by calling ``main([...])``, describe it in ``docs/cli.md``, and list it in
   ``tests/package/public_surface.json`` (``python tests/package/test_public_surface.py`` writes that anew).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from .. import __version__

# Commands that are modules of their own: the module whose ``main`` they are, and their line in ``mcpca --help``.
MODULES = {
    "demo": ("mcpca.demo", "Find digits on photographs: loadings as a table, pictures in a folder."),
    "benchmark": ("mcpca.paper", "Repeat the paper's experiments with all of its methods: tables and figures."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; errors are one line on stderr.

    0 done; 1 a bug in mcpca; 2 wrong arguments, or a package that is not installed; 3 a file that cannot be used;
    4 nothing above noise, or no stable rank; 5 the output cannot be written; 130 interrupted, 143 terminated.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        # Before click is imported, which these commands do without.
        if arguments and arguments[0] in MODULES:
            return run_module(arguments[0], arguments[1:])
        from ._errors import run_command_line
    # Ctrl-C in one of these, or during imports, before ``_errors`` is there to answer it.
    except KeyboardInterrupt:
        print("mcpca: interrupted.", file=sys.stderr)
        return 130
    except ImportError as error:
        # Any other import that fails is a bug, or a broken installation, and must not be hidden by this advice.
        if error.name != "click":
            raise
        return _without_click(arguments)
    return run_command_line(arguments)


def run_module(name: str, arguments: Sequence[str]) -> int:
    """Run the ``main`` of the module behind a command."""
    return int(importlib.import_module(MODULES[name][0]).main(list(arguments), prog=f"mcpca {name}"))


def _without_click(arguments: Sequence[str]) -> int:
    """Answer if click is not installed: list the commands that work, and say how to get the others."""
    if list(arguments) == ["--version"]:
        print(f"mcpca {__version__}")
        return 0
    way_out = 'install it with: pip install "mcpca[cli]"'
    if arguments and arguments[0] not in ("-h", "--help"):
        print(f"mcpca: {arguments[0]!r} needs click, which is not installed; {way_out}", file=sys.stderr)
        return 2
    lines = [f"  {name:<10} {summary}" for name, (_, summary) in MODULES.items()]
    text = ["usage: mcpca COMMAND [options]", "", "commands:", *lines, "", f"All others need click; {way_out}"]
    # As with click: --help is an answer, on stdout with code 0; no command at all is a mistake.
    print("\n".join(text), file=sys.stdout if arguments else sys.stderr)
    return 0 if arguments else 2
