"""The script ``mcpca``: outside the package, so that Ctrl-C is answered in one line also while that is imported."""

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
