"""Draw the rooms of the package from its imports, for the page on architecture: ``python docs/rooms.py FOLDER``.

Nothing is typed twice: layers come from the contract in pyproject.toml that ``make lint`` enforces, imports from the
source by grimp (the library under import-linter), and what a room is for from the first line of its docstring.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import grimp
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "mcpca"

_ROW, _CELL = 0.34, 0.30  # inches: the height of a room, and the width of a column of the matrix
_PUBLIC, _PRIVATE = "#d9e8f5", "#f1efe9"
_MARK, _UPWARDS = "#2b6ca3", "#d9822b"


class Room(NamedTuple):
    """A folder or module of the package: which layer it is in, what it is for, how many modules it has."""

    name: str
    layer: int
    purpose: str
    n_modules: int


def read_rooms() -> list[Room]:
    """Return the rooms from the roof to the ground."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    rooms = []
    for layer, names in enumerate(contract["layers"]):
        for name in names.replace("|", " ").replace(":", " ").split():
            folder = ROOT / "src" / PACKAGE / name
            top = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            docstring = ast.get_docstring(ast.parse(top.read_text(encoding="utf-8"))) or ""
            n_modules = len(list(folder.rglob("*.py"))) - 1 if folder.is_dir() else 1
            rooms.append(Room(name, layer, docstring.partition("\n")[0], n_modules))
    return rooms


def count_imports(rooms: list[Room]) -> Counter[tuple[str, str]]:
    """Return how many modules of one room import a module of another, by (importer, imported)."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    names = {room.name for room in rooms}
    counts: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        importer = _room_of(module)
        for target in graph.find_modules_directly_imported_by(module):
            imported = _room_of(target)
            if importer in names and imported in names and importer != imported:
                counts[importer, imported] += 1
    return counts


def _room_of(module: str) -> str:
    return f"{module}.".split(".")[1]


def draw(rooms: list[Room], counts: Counter[tuple[str, str]], path: Path) -> None:
    """Draw the rooms as a house, and beside it which room (row) imports from which (column).

    Imports that point down are to the right of the diagonal. Those to its left point up; the contract names each.
    """
    n = len(rooms)
    figure = Figure(figsize=(3.6 + n * _CELL, 1.5 + n * _ROW))
    FigureCanvasSVG(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, figure.get_figwidth())
    axes.set_ylim(n * _ROW + 1.4, 0)
    axes.axis("off")
    left, top = 3.0, 1.2
    largest = max(counts.values())
    for i, room in enumerate(rooms):
        y = top + i * _ROW
        colour = _PRIVATE if room.name.startswith("_") else _PUBLIC
        axes.add_patch(_box(0.1, y + 0.03, left - 0.3, _ROW - 0.06, colour))
        axes.text(0.2, y + _ROW / 2, room.name, va="center", fontsize=9, family="monospace")
        modules = "1 module" if room.n_modules == 1 else f"{room.n_modules} modules"
        axes.text(left - 0.3, y + _ROW / 2, modules, va="center", ha="right", fontsize=7, color="#555555")
        axes.text(
            left + (i + 0.5) * _CELL, top - 0.08, room.name, rotation=60, fontsize=7, family="monospace", va="bottom"
        )
        for j, other in enumerate(rooms):
            x = left + (j + 0.5) * _CELL
            if i == j:
                axes.plot(x, y + _ROW / 2, marker="s", markersize=9, color="#cccccc")
            elif count := counts[room.name, other.name]:
                colour = _MARK if j > i else _UPWARDS
                axes.scatter(x, y + _ROW / 2, s=15 + 110 * count / largest, color=colour, linewidths=0)
        if i and room.layer != rooms[i - 1].layer:
            axes.plot([0.1, left + n * _CELL], [y, y], color="#dddddd", linewidth=0.6, zorder=0)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _box(x: float, y: float, width: float, height: float, colour: str) -> object:
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch(
        (x, y), width, height, boxstyle="round,pad=0.02", facecolor=colour, edgecolor="#999999", linewidth=0.6
    )


def table(rooms: list[Room]) -> str:
    """Return the rooms as a table in Markdown."""
    lines = ["| room | modules | what it holds |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{room.name}` | {room.n_modules} | {room.purpose} |" for room in rooms)]) + "\n"


def main(folder: Path) -> None:
    """Write the picture and the table to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    rooms = read_rooms()
    draw(rooms, count_imports(rooms), folder / "rooms.svg")
    (folder / "rooms.md").write_text(table(rooms), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
