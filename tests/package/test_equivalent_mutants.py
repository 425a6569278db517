"""The list of faults that no test has to notice speaks of lines that are there, and gives a reason for each."""

import ast
import tomllib

from pages import ROOT

LISTED = tomllib.loads((ROOT / "benchmarks" / "equivalent_mutants.toml").read_text(encoding="utf-8"))["mutant"]


def test_listed_lines_are_in_the_source():
    """A line that was rewritten takes its entry with it: the reason was for the old one."""
    for entry in LISTED:
        source = (ROOT / "src" / "mcpca" / entry["module"]).read_text(encoding="utf-8")
        lines = [line.strip() for line in source.splitlines()]
        assert entry["before"] in lines, entry
        ast.parse(source.replace(entry["before"], entry["after"]))


def test_listed_changes_are_changes_with_a_reason_and_listed_once():
    keys = [(entry["module"], entry["before"], entry["after"]) for entry in LISTED]
    assert len(set(keys)) == len(keys)
    for entry in LISTED:
        assert set(entry) == {"module", "before", "after", "reason"}
        assert entry["before"] != entry["after"]
        assert len(entry["reason"].split()) > 3, entry
