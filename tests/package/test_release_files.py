"""Changelog, fragments, citation and recipe: what they say of versions, and what cutting a version makes of them."""

import re
import shutil
import tarfile
import tomllib

import pytest
from packaging.requirements import Requirement
from pages import ROOT

from tools import cut_release, fill_recipe, release_notes
from tools.versions import disagreements, fallback_version, headings

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TYPES = [kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]]


def test_fragments_are_named_and_filled_as_towncrier_reads_them():
    assert TYPES == ["added", "changed", "deprecated", "removed", "fixed"]
    fragments = [path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    for path in fragments:
        assert re.fullmatch(rf"(\d+|\+[a-z0-9-]+)\.({'|'.join(TYPES)})\.md", path.name), path.name
        text = path.read_text(encoding="utf-8").strip()
        assert text.endswith((".", "`", ")")), path.name
        assert not text.startswith(("-", "*", "#")), f"{path.name}: towncrier makes the list"


def test_files_agree_on_the_version():
    assert disagreements(f"{fallback_version()}.dev0") == []


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("CITATION.cff", "version: 0.2.0", "version: 0.1.0", "CITATION.cff has version 0.1.0"),
        ("CITATION.cff", "date-released: 2026-11-20\n", "", "date-released"),
        ("CITATION.cff", "2026-11-20", "2026-11-21", "has the date 2026-11-20"),
        ("CHANGELOG.md", "## 0.2.0 (2026-11-20)", "## 0.2.0 (unreleased)", "unreleased"),
        ("pyproject.toml", '"0.2.1.dev0"', '"0.2.0.dev0"', "fallback-version 0.2.0.dev0"),
    ],
)
def test_files_that_do_not_agree_are_told(cut, file, old, new, told):
    assert disagreements("0.2.0", cut) == []
    assert disagreements("0.2.1.dev4+g1a2b3c", cut) == []
    text = (cut / file).read_text()
    assert old in text
    (cut / file).write_text(text.replace(old, new))
    assert any(told in reason for reason in disagreements("0.2.0", cut))


def test_every_place_that_names_the_version_names_the_next_one(cut):
    cut_release.cut("0.4.2", "2027-05-01", cut)
    cite = (cut / "docs" / "cite.md").read_text()
    assert "version 0.4.2, 20" in cite
    assert "version = {0.4.2}," in cite
    assert ">0.4.2</token>" in (cut / "workflows" / "galaxy" / "mcpca_fit.xml").read_text()


def test_a_build_of_another_version_is_told(cut):
    assert "the build has version 0.3.0" in disagreements("0.3.0", cut)[0]
    assert "already 0.2.0" in disagreements("0.1.9.dev3", cut)[0]


def prepare(tmp_path):
    """The files that cutting a version changes, as they are before the first one, and two fragments."""
    for name in ("recipe", "changelog.d"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "workflows" / "galaxy").mkdir(parents=True)
    for name in ("CHANGELOG.md", "CITATION.cff", "pyproject.toml", "docs/cite.md", "workflows/galaxy/mcpca_fit.xml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "release-notes-0.2.0.md").write_text("# mcpca 0.2.0\n\nThe [first](ten-minutes.md#fit).\n")
    (tmp_path / "src" / "mcpca").mkdir(parents=True)
    for path in (tmp_path / "changelog.d").glob("*.*.md"):
        path.unlink()
    text = (tmp_path / "CHANGELOG.md").read_text()
    before, _, _ = text.partition("## ")
    text = f"{before}## 0.2.0 (unreleased)\n\nThe first.\n\n### In this version\n\n- `MCPCA`.\n"
    (tmp_path / "CHANGELOG.md").write_text(text)
    cited = (tmp_path / "CITATION.cff").read_text()
    changed = re.sub(r"(?m)^version: \S+\n(date-released: \S+\n)?", "version: 0.2.0\n", cited)
    (tmp_path / "CITATION.cff").write_text(changed)
    pyproject = (tmp_path / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(
        re.sub(r'(?m)^fallback-version = ".*"$', 'fallback-version = "0.2.0.dev0"', pyproject)
    )
    (tmp_path / "changelog.d" / "+faster.changed.md").write_text("Fits are faster.\n")
    (tmp_path / "changelog.d" / "12.fixed.md").write_text("Ties are broken.\n")
    assert disagreements("0.2.0.dev0", tmp_path) == []
    return tmp_path


@pytest.fixture
def prepared(tmp_path):
    return prepare(tmp_path)


@pytest.fixture(scope="module")
def cut_once(tmp_path_factory):
    pytest.importorskip("towncrier", reason="towncrier is not installed")
    folder = prepare(tmp_path_factory.mktemp("cut"))
    cut_release.cut("0.2.0", "2026-11-20", folder)
    return folder


@pytest.fixture
def cut(cut_once, tmp_path):
    return shutil.copytree(cut_once, tmp_path / "cut")


def test_cutting_the_first_version(cut):
    text = (cut / "CHANGELOG.md").read_text()
    _, _, section = text.partition("## 0.2.0 (2026-11-20)\n")
    assert "unreleased" not in text
    order = [
        "The first.",
        "### In this version",
        "### Changed",
        "Fits are faster.",
        "### Fixed",
        "Ties are broken. ([#12]",
    ]
    places = [section.index(words) for words in order]
    assert places == sorted(places)
    assert sorted(path.name for path in (cut / "changelog.d").iterdir()) == ["README.md"]
    assert [(h.version, h.date) for h in headings(cut)] == [("0.2.0", "2026-11-20")]
    assert fallback_version(cut) == "0.2.1"
    assert yaml.safe_load((cut / "recipe" / "recipe.yaml").read_text())["context"]["version"] == "0.2.0"


def test_later_versions_come_on_top(cut):
    (cut / "changelog.d" / "+more.added.md").write_text("More.\n")
    cut_release.cut("0.3.0", "2027-02-01", cut)
    assert [(h.version, h.date) for h in headings(cut)] == [("0.3.0", "2027-02-01"), ("0.2.0", "2026-11-20")]
    assert disagreements("0.3.0", cut) == []
    assert release_notes.notes(cut) == "### Added\n\n- More.\n"


def test_notes_have_links_that_work_from_anywhere(cut):
    assert release_notes.notes(cut) == f"The [first]({release_notes.PAGES}/ten-minutes.html#fit).\n"


@pytest.mark.parametrize(
    ("version", "date", "told"),
    [
        ("0.2", "2026-11-20", "not of the form"),
        ("v0.2.0", "2026-11-20", "not of the form"),
        ("0.2.0", "20.11.2026", "no date"),
        ("0.3.0", "2026-11-20", "prepares 0.2.0"),
    ],
)
def test_what_cannot_be_cut(prepared, version, date, told):
    assert told in cut_release.refusals(version, date, prepared)[0]


def test_what_can_be_cut_and_when_not(prepared):
    assert cut_release.refusals("0.2.0", "2026-11-20", prepared) == []
    (prepared / "docs" / "release-notes-0.2.0.md").unlink()
    assert "release-notes-0.2.0.md is not there" in cut_release.refusals("0.2.0", "2026-11-20", prepared)[0]


def test_a_version_in_which_something_should_be_gone_cannot_be_cut(cut):
    assert cut_release.refusals("0.3.0", "2027-01-01", cut) == []
    assert "is not after 0.2.0" in cut_release.refusals("0.2.0", "2027-01-01", cut)[0]
    assert "RankSelection.of_features" in cut_release.refusals("0.4.0", "2027-01-01", cut)[0]


def test_the_recipe_needs_what_the_package_needs():
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    lowest = recipe["context"]["python_min"]
    needs = {
        place: [line.replace("${{ python_min }}", lowest) for line in recipe["requirements"][place]]
        for place in ("host", "run")
    }
    asked = {
        place: {Requirement(line.replace(".*", "")).name: line for line in lines if "python" not in line.split()[0]}
        for place, lines in needs.items()
    }
    for place, listed in (("run", PROJECT["project"]["dependencies"]), ("host", PROJECT["build-system"]["requires"])):
        expected = {Requirement(line).name: str(Requirement(line).specifier) for line in listed}
        found = {name: line.partition(" ")[2] for name, line in asked[place].items() if name != "pip"}
        assert found == expected
    assert f">={lowest}" == PROJECT["project"]["requires-python"]
    assert f"python >={lowest}" in needs["run"]
    assert f"python {lowest}.*" in needs["host"]
    scripts = [f"{name} = {target}" for name, target in PROJECT["project"]["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    about = recipe["about"]
    assert about["license"] == PROJECT["project"]["license"]
    assert about["summary"] == PROJECT["project"]["description"]
    assert about["homepage"] == PROJECT["project"]["urls"]["Homepage"]


def test_the_recipe_renders_with_the_hash_of_an_archive(tmp_path):
    rattler_build = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    sdist = tmp_path / "mcpca-0.2.0.tar.gz"
    with tarfile.open(sdist, "w:gz"):
        pass
    text = fill_recipe.filled(sdist)
    (variant,) = rattler_build.Stage0Recipe.from_yaml(text).render()
    rendered = variant.recipe.to_dict()
    (source,) = rendered["source"]
    assert source["url"].endswith("/mcpca-0.2.0.tar.gz")
    assert set(source["sha256"]) != {"0"}
    assert rendered["requirements"]["run"][0] == "python >=3.11"
    with pytest.raises(ValueError, match="not named as one of a release"):
        fill_recipe.filled(tmp_path / "mcpca-0.2.0.dev3+g1a2b3c.tar.gz")
