"""Print the recipe of the conda package with version and hash of a source archive, as a release publishes it.

``python tools/fill_recipe.py dist/mcpca-0.2.0.tar.gz > recipe.yaml``
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[1] / "recipe" / "recipe.yaml"


def filled(sdist: Path) -> str:
    """Return the text of the recipe for this archive."""
    named = re.fullmatch(r"mcpca-(?P<version>\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)\.tar\.gz", sdist.name)
    if named is None:
        raise ValueError(
            f"sdist={sdist.name!r} is not named as one of a release, mcpca-0.2.0.tar.gz; build it on a tag."
        )
    text = RECIPE.read_text(encoding="utf-8")
    for pattern, value in (
        (r'(?m)^  version: "[^"]+"$', f'  version: "{named["version"]}"'),
        (r'(?m)^  sha256: "[0-9a-f]{64}"$', f'  sha256: "{hashlib.sha256(sdist.read_bytes()).hexdigest()}"'),
    ):
        text, times = re.subn(pattern, value, text)
        assert times == 1, f"{RECIPE} has {pattern!r} {times} times"
    lines = (line for line in text.splitlines() if "zeros until" not in line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sdist", type=Path)
    try:
        print(filled(parser.parse_args().sdist), end="")
    except ValueError as error:
        sys.exit(str(error))
