"""The page on architecture shows the code as it is: modules that it names exist, and the picture is of the imports."""

import importlib.util
import re

import pytest
from pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "mcpca"


@pytest.fixture(scope="module")
def rooms():
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "rooms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_modules_and_names_on_the_page_exist():
    code = set(re.findall(r"`([^`\n]+)`", PAGE))
    paths = {text for text in code if re.fullmatch(r"_?[a-z_]+/[\w/.]*", text)}
    assert len(paths) > 30
    missing = [text for text in paths if not any((base / text).exists() for base in (PACKAGE, ROOT))]
    assert missing == []
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    names = {text for text in code if re.fullmatch(r"[A-Za-z_]\w*", text) and not (PACKAGE / text).exists()}
    unknown = [name for name in names if not re.search(rf"\b{name}\b", source)]
    assert unknown == []


def test_every_room_is_drawn_with_what_it_is_for(rooms, tmp_path):
    rooms.main(tmp_path)
    table = (tmp_path / "rooms.md").read_text(encoding="utf-8")
    for path in PACKAGE.iterdir():
        if (path.is_dir() and path.name != "__pycache__") or (path.suffix == ".py" and path.stem != "__init__"):
            assert re.search(rf"^\| `{path.stem}` \| \d+ \| \S.*\. \|$", table, re.MULTILINE), path.stem
    picture = (tmp_path / "rooms.svg").read_text(encoding="utf-8")
    assert picture.lstrip().startswith("<?xml")


def test_only_the_imports_that_the_contract_names_point_up(rooms):
    listed = rooms.read_rooms()
    layer = {room.name: room.layer for room in listed}
    upwards = [pair for pair in rooms.count_imports(listed) if layer[pair[0]] <= layer[pair[1]] and pair[0] != pair[1]]
    pointing_up = {pair for pair in rooms.count_imports(listed) if layer[pair[0]] > layer[pair[1]]}
    assert pointing_up == {("_rank", "plotting"), ("_inference", "plotting"), ("_estimator", "_results")}
    assert all(layer[importer] < layer[imported] for importer, imported in upwards)


def test_each_room_has_a_folder_of_tests():
    rooms = [path.name.lstrip("_") for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert [name for name in rooms if not (ROOT / "tests" / name).is_dir()] == []
