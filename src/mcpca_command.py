"""The script ``mcpca``: outside the package, so that Ctrl-C during the package's import is answered in one line too."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of ``mcpca.cli``."""
    try:
        from mcpca.cli import main as run
    except KeyboardInterrupt:
        print("mcpca: interrupted.", file=sys.stderr)
        return 130
    return run()
