"""The Galaxy wrapper: its command is one that mcpca has, and leaves the files that the wrapper collects."""

import csv
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from pages import ROOT

from mcpca.cli import main

WRAPPER = ROOT / "workflows" / "galaxy" / "mcpca_fit.xml"
TEST_DATA = WRAPPER.parent / "test-data"
TOOL = ET.parse(WRAPPER).getroot()


def parameters():
    """Name and element of each input; an argument --min-samples is the parameter min_samples."""
    named = TOOL.findall("./inputs//param")
    return {p.get("name") or p.get("argument").lstrip("-").replace("-", "_"): p for p in named}


def defaults():
    """What a user leaves who changes nothing: text and absent data are empty, booleans are their words."""
    values = {}
    for name, p in parameters().items():
        chosen = p.find("./option[@selected='true']")
        if p.get("type") == "select":
            values[name] = chosen.get("value")
        elif p.get("type") == "boolean":
            values[name] = p.get("truevalue" if p.get("checked") == "true" else "falsevalue")
        else:
            values[name] = p.get("value") or ""
    return values


def fill(template, values):
    """Fill in the little of Cheetah that the command uses: $name, #if $name ... #end if, and escaped dollars."""
    lines, kept = [], [True]
    for line in template.splitlines():
        if match := re.fullmatch(r"#if \$(\w+)", line.strip()):
            kept.append(bool(values[match[1]]))
        elif line.strip() == "#end if":
            kept.pop()
        else:
            assert not line.lstrip().startswith("#"), f"not understood: {line}"
            if all(kept):
                filled = re.sub(r"(?<!\\)\$(\w+)", lambda match: str(values[match[1]]), line)
                lines.append(filled.replace("\\$", "$"))
    assert kept == [True]
    return " ".join(line.strip() for line in lines if line.strip())


def command_of(test):
    """The command of one of the wrapper's tests."""
    values = defaults()
    for given in test.findall("param"):
        name, value = given.get("name"), given.get("value")
        p = parameters()[name]
        if p.get("type") == "data":
            value = str(TEST_DATA / value)
        elif p.get("type") == "select":
            assert value in [option.get("value") for option in p.findall("option")]
        values[name] = value
    return fill(TOOL.find("command").text, values)


def run(command, folder):
    """Run a command by the shell, as Galaxy does, with this Python's mcpca; return its exit code."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "MCPCA_PROGRESS": "0"}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, timeout=900).returncode


def run_here(command, folder, monkeypatch):
    """The same in this process, which is faster; what is left to the shell is filled in."""
    monkeypatch.chdir(folder)
    setting, fit = command.split("&&")
    assert shlex.split(setting) == ["export", "OPENBLAS_NUM_THREADS=${GALAXY_SLOTS:-1}"]
    words = shlex.split(fit.replace('"$((${GALAXY_MEMORY_MB:-4096} / 2))"', "2048"))
    assert words[0] == "mcpca"
    return main(words[1:]) or 0


def options_of_fit(capsys):
    assert main(["fit", "--help"]) in (0, None)
    return capsys.readouterr().out


def test_options_are_those_of_the_command(capsys):
    text = options_of_fit(capsys)
    there = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    template = TOOL.find("command").text
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", template)) | {
        word for p in parameters().values() for word in (p.get("truevalue"), p.get("argument")) if word
    }
    assert len(used) > 20
    assert used - there == set()
    # Every choice is one that the option takes.
    for name, p in parameters().items():
        offered = {option.get("value") for option in p.findall("option")} - {""}
        if p.get("type") == "select":
            taken = re.search(rf"{p.get('argument')} \[([a-z0-9|\s]+)\]", text)
            assert offered == set(taken[1].split("|")), name


def test_every_parameter_is_in_the_command_and_none_else():
    template = TOOL.find("command").text
    assert set(re.findall(r"(?<!\\)\$(\w+)", template)) == set(parameters())


def test_all_options_filled_in_are_read():
    """Every #if taken, with what a shell makes of it."""
    values = defaults() | {name: f"the {name}" for name, p in parameters().items() if p.get("type") in ("text", "data")}
    values |= {"hvg": "5", "bootstrap": "10", "normalize": "log1p"}
    words = shlex.split(fill(TOOL.find("command").text, values).split("&&")[1])
    assert words[:3] == ["mcpca", "fit", "the data"]
    for option, value in {
        "--labels": "the labels",
        "--groups": "the groups",
        "--hvg": "5",
        "--bootstrap": "10",
    }.items():
        assert words[words.index(option) + 1] == value
    contexts = [words[i + 1] for i, word in enumerate(words) if word == "--context"]
    assert contexts == ["the context", "the context_2"]


@pytest.mark.parametrize("number", range(len(TOOL.findall("./tests/test"))))
def test_the_tests_of_the_wrapper_hold(number, tmp_path, monkeypatch, capfd):
    """Run the command of each test, and hold its outputs against what the test expects."""
    test = TOOL.findall("./tests/test")[number]
    code = run(command_of(test), tmp_path) if number == 0 else run_here(command_of(test), tmp_path, monkeypatch)
    said = capfd.readouterr().err
    if test.get("expect_failure"):
        assert code == int(test.get("expect_exit_code"))
        for text in test.findall("./assert_stderr/has_text"):
            assert text.get("text") in said
        assert not (tmp_path / "results").exists()
        return
    assert code == 0, said
    outputs = {data.get("name"): tmp_path / data.get("from_work_dir") for data in TOOL.findall("./outputs/data")}
    for name, path in outputs.items():
        assert path.stat().st_size > 0, name
    collected = TOOL.find("./outputs/collection/discover_datasets")
    for path in (tmp_path / collected.get("directory")).iterdir():
        if match := re.fullmatch(collected.get("pattern"), path.name):
            outputs[match["designation"]] = path
    assert int(test.get("expect_num_outputs")) == len(TOOL.findall("./outputs/*"))
    checked = 0
    for expected in test.iter():
        if expected.tag in ("output", "element"):
            content = outputs[expected.get("name")].read_bytes()
            for claim in expected.findall("./assert_contents/*"):
                checked += 1
                holds(claim, content)
    assert checked >= 2


def holds(claim, content):
    lines = content.splitlines()
    if claim.tag == "has_text":
        assert claim.get("text").encode() in content
    elif claim.tag == "has_line":
        assert claim.get("line").encode() in lines
    elif claim.tag == "has_n_lines":
        assert len(lines) == int(claim.get("n"))
    else:
        assert claim.tag == "has_size"
        assert len(content) >= int(claim.get("min"))


def test_the_data_are_those_of_the_script(tmp_path):
    spec = importlib.util.spec_from_file_location("make_test_data", WRAPPER.parent / "make_test_data.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    for name in ("tissues.csv", "counts.csv"):
        texts_of = [(folder / name).read_text(encoding="utf-8").splitlines() for folder in (tmp_path, TEST_DATA)]
        made, kept = ([*csv.reader(lines)] for lines in texts_of)
        texts = 1 + (name == "counts.csv")
        assert [line[:texts] for line in made] == [line[:texts] for line in kept]
        numbers = [np.array([line[texts:] for line in lines[1:]], dtype=float) for lines in (made, kept)]
        np.testing.assert_allclose(*numbers, atol=2e-3)  # the last digit may be rounded otherwise elsewhere


def test_the_version_is_the_one_that_is_cited():
    """Of a release, as a recipe of conda has one; between releases the package counts on."""
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert TOOL.find("./macros/token[@name='@TOOL_VERSION@']").text == cited[1]
    assert "2601.15239" in TOOL.find("./citations/citation").text


def test_the_linter_has_nothing_to_say():
    planemo = shutil.which("planemo")
    if planemo is None:
        pytest.skip("planemo is not installed")
    command = [planemo, "lint", "--fail_level", "warn", str(WRAPPER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
