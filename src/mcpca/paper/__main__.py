"""``python -m mcpca.paper``."""

from ._command import main

if __name__ == "__main__":
    raise SystemExit(main())
