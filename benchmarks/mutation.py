"""Would a test notice? Small faults, put one at a time into the numerical core, against the tests that run that line.

``python benchmarks/mutation.py --modules _solvers/lsq.py _model --minutes 20`` draws ``--mutants`` places in each
module by ``--seed``, changes one operator, number or condition at each (by the operators of Cosmic Ray), and runs the
tests that execute the statement, the quick ones first, until one fails. It prints how many were killed, and every
change that survived; it exits with 1 if there are any but those that ``equivalent_mutants.toml`` explains.

Nothing is written to the source: a mutant is compiled in a process of its own, forked from one that has imported the
libraries. Limits are of CPU time, so that a busy machine changes no verdict. Needs ``fork``: Linux or macOS.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import coverage
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "mcpca"
KNOWN = Path(__file__).with_name("equivalent_mutants.toml")
KEPT = ROOT / ".mutation"
CORE = {
    "_linalg": "canonical diagonalise newton",
    "_solvers": "mspm lsq ml scoring loadings joint climbing",
    "_covariances": "kernels subspace flattening stack context_covariances moments scaling",
    "_model": "facets scores identifiability new_contexts landscape decomposition",
}
# The tests of a room are in the folder of its name; some of its code is asked through other rooms, too.
TESTS = {
    "_linalg": ["linalg", "solvers"],
    "_solvers": ["solvers"],
    "_covariances": ["covariances"],
    "_model": [
        "model",
        "estimator/test_mcpca.py",
        "estimator/test_preprocess_fits.py",
        "covariances/test_nuisance.py",
    ],
}
# Decorators are caches and dataclasses here, identity of numbers says nothing, and operations on bits fail for floats
# whatever the tests say; the last two need names.
BITS = ("BitAnd", "BitOr", "BitXor", "LShift", "RShift")
LEFT_OUT = ("RemoveDecorator", "_Is", "_IsNot", "_Invert", "VariableReplacer", "VariableInserter")
LEFT_OUT += tuple(f"{kind}_{bit}" for kind in ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow") for bit in BITS)
LIBRARIES = (
    "scipy.optimize",
    "scipy.sparse.linalg",
    "scipy.stats",
    "sklearn.decomposition",
    "pandas",
    "h5py",
    "anndata",
)


@dataclass
class Mutant:
    """One change of one module, and what became of it."""

    module: str
    line: int
    code: str
    before: str
    after: str
    tests: list[str] = field(default_factory=list)
    verdict: str = "no time left"


@dataclass(eq=False)
class Chosen:
    """A plugin of pytest: these tests only, in this order; or all, and the CPU time and the lines of each."""

    tests: list[str] | None = None
    measured: coverage.Coverage | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:  # noqa: D102
        if self.tests is not None:
            found = {item.nodeid: item for item in items}
            items[:] = [found[test] for test in self.tests]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:  # noqa: D102
        if self.measured is not None:
            self.measured.switch_context(item.nodeid)
        start = time.process_time()
        done = yield
        self.seconds[item.nodeid] = time.process_time() - start
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:  # noqa: D102
        if not report.passed:
            self.failed.add(report.nodeid)


def in_a_fork(work: Callable[[], int], seconds: float) -> int:
    """Start ``work`` in a silent child with so much CPU time, and return its number."""
    if pid := os.fork():
        return pid
    code = 2
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 3))
        signal.alarm(int(20 * seconds) + 60)  # One that sleeps for ever takes no CPU time.
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        code = work()
    finally:
        os._exit(code)


def run_pytest(paths: list[str], plugin: Chosen, *words: str) -> int:
    """Run these tests in this process, as they are configured."""
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *words, *paths], plugins=[plugin]))


def reached(name: str) -> list[dict[str, Any]]:
    """CPU time of every test in ``tests/name``, and which of them run which line; kept until a file changes.

    The second is by module, by line.
    """
    path = ROOT / "tests" / name
    tests = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    files = [*sorted(PACKAGE.rglob("*.py")), ROOT / "tests" / "twins.py", *tests]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    kept = KEPT / f"{path.stem}-{digest}.json"

    def work() -> int:
        measured = coverage.Coverage(data_file=None, config_file=False, source=[str(PACKAGE / room) for room in TESTS])
        plugin = Chosen(measured=measured)
        measured.start()
        run_pytest([str(path)], plugin)
        measured.stop()
        data = measured.get_data()
        lines = {str(Path(file).relative_to(PACKAGE)): data.contexts_by_lineno(file) for file in data.measured_files()}
        seconds = {test: spent for test, spent in plugin.seconds.items() if test not in plugin.failed}
        kept.write_text(json.dumps([seconds, lines]))
        return 0

    if not kept.exists():
        print(f"which tests in tests/{name} run which line ...", flush=True)
        os.waitpid(in_a_fork(work, 7200), 0)
    if not kept.exists():
        raise SystemExit(f"the tests could not be run; try python -m pytest {path}")
    return json.loads(kept.read_text())


def bare(code: str) -> str:
    """Dump the code without annotations, a change of which is none."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if hasattr(node, name):
                setattr(node, name, None)
    return ast.dump(tree)


def drawn(module: str, count: int, rng: random.Random) -> Iterator[Mutant]:
    """Mutants at ``count`` places of a module, one at each."""
    source = (PACKAGE / module).read_text()
    nodes = list(ast_nodes(get_ast(source)))
    places: dict[tuple[int, int], list[tuple[Any, int]]] = {}
    for operator in (get_operator(name)() for name in operator_names() if not name.endswith(LEFT_OUT)):
        for occurrence, start in enumerate(start for node in nodes for start, _ in operator.mutation_positions(node)):
            places.setdefault(start, []).append((operator, occurrence))
    order = sorted(places)
    rng.shuffle(order)
    original = bare(source)
    while order and count:
        start = order.pop()
        operator, occurrence = rng.choice(places[start])
        code = mutate_code(source, operator, occurrence)
        with contextlib.suppress(SyntaxError):  # As when the * of keyword-only arguments is changed.
            if bare(code) == original:
                continue
            count -= 1
            pairs = zip(source.splitlines(), code.splitlines(), strict=False)
            before, after = next((old.strip(), new.strip()) for old, new in pairs if old != new)
            yield Mutant(module, start[0], code, before, after)


def choose_tests(mutant: Mutant, seconds: dict[str, float], lines: dict[str, set[str]], most: float) -> None:
    """Give the mutant the tests that run its statement, the quick ones first, up to ``most`` seconds."""
    tree = ast.parse((PACKAGE / mutant.module).read_text())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    around = [node for node in statements if node.lineno <= mutant.line <= (node.end_lineno or 0)]
    inner = max(around, key=lambda node: node.lineno)
    last = inner.body[0].lineno - 1 if hasattr(inner, "body") else inner.end_lineno or 0
    tests = {test for line in range(inner.lineno, max(last, mutant.line) + 1) for test in lines.get(str(line), ())}
    if "" in tests:  # It runs when the module is imported, and so for all.
        tests = {test for of_line in lines.values() for test in of_line}
    total = 0.0
    for test in sorted(tests & seconds.keys(), key=lambda test: (seconds[test], test)):
        total += seconds[test]
        if mutant.tests and total > most:
            break
        mutant.tests.append(test)


def start(mutant: Mutant, seconds: dict[str, float]) -> int:
    """Run the tests of a mutant in a child."""
    changed, path = "mcpca." + mutant.module.removesuffix(".py").replace("/", "."), str(PACKAGE / mutant.module)

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str) -> Any:
            return compile(mutant.code, path, "exec", dont_inherit=True)

    def find_spec(name: str, *_: Any) -> Any:
        return (
            importlib.util.spec_from_file_location(name, path, loader=Loader(name, path)) if name == changed else None
        )

    def work() -> int:
        sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))  # type: ignore[arg-type]
        files = dict.fromkeys(test.split("::")[0] for test in mutant.tests)
        return run_pytest(list(files), Chosen(mutant.tests), "-x")

    return in_a_fork(work, 30 + 3 * sum(seconds[test] for test in mutant.tests))


def run_all(mutants: list[Mutant], seconds: dict[str, float], jobs: int, until: float) -> None:
    """Run mutants, ``jobs`` at a time, and note what became of each; none is started after ``until``."""
    waiting, running = list(mutants), dict[int, Mutant]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            if not mutant.tests:
                mutant.verdict = "not run"
            elif time.monotonic() < until:
                running[start(mutant, seconds)] = mutant
        if running:
            pid, status = os.wait()
            mutant, code = running.pop(pid), os.waitstatus_to_exitcode(status)
            late = -code in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
            mutant.verdict = "survived" if code == 0 else "timed out" if late else "killed"
            print(f"{mutant.verdict:9} {mutant.module}:{mutant.line}  {mutant.after}", flush=True)


def show(mutants: list[Mutant]) -> int:
    """Print the table and every survivor; return how many nobody has explained."""
    known = [(one["module"], one["before"], one["after"]) for one in tomllib.loads(KNOWN.read_text())["mutant"]]
    columns = ("killed", "timed out", "survived", "not run", "equivalent", "no time left")
    for mutant in mutants:
        if mutant.verdict in ("survived", "not run") and (mutant.module, mutant.before, mutant.after) in known:
            mutant.verdict = "equivalent"
    print(f"\n{'module':38} {'mutants':>8}", *(f"{column:>12}" for column in columns))
    for module in [*dict.fromkeys(mutant.module for mutant in mutants), "all"]:
        found = Counter(mutant.verdict for mutant in mutants if module in (mutant.module, "all"))
        print(f"{module:38} {found.total():8d}", *(f"{found[column]:12d}" for column in columns))
    left = [mutant for mutant in mutants if mutant.verdict in ("survived", "not run")]
    for one in left:
        print(f"\n{one.module}:{one.line} {one.verdict} ({len(one.tests)} tests)\n- {one.before}\n+ {one.after}")
    return len(left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    core = [f"{room}/{name}.py" for room, names in CORE.items() for name in names.split()]
    parser.add_argument("--modules", nargs="+", default=core, help="modules of src/mcpca, or rooms for all in them")
    parser.add_argument("--mutants", type=int, default=10, help="how many in each module (10)")
    parser.add_argument("--seed", type=int, default=0, help="draws the places (0)")
    parser.add_argument("--minutes", type=float, default=20, help="no mutant is started after so many (20)")
    parser.add_argument("--seconds", type=float, default=30, help="CPU time of the tests that one mutant is given (30)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at the same time (2)")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    paths = [path for name in given.modules for path in sorted((PACKAGE / name).glob("[!_]*.py")) or [PACKAGE / name]]
    if wrong := [str(path) for path in paths if not path.is_file() or path.parent.name not in TESTS]:
        parser.error(f"--modules: {', '.join(wrong)} is no module in {', '.join(TESTS)}; an example is _solvers/lsq.py")
    os.chdir(ROOT)
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    KEPT.mkdir(exist_ok=True)
    for name in LIBRARIES:
        importlib.import_module(name)
    names = {name: reached(name) for name in dict.fromkeys(name for path in paths for name in TESTS[path.parent.name])}
    seconds = {test: spent for times, _ in names.values() for test, spent in times.items()}
    mutants: list[Mutant] = []
    for path in paths:
        module = str(path.relative_to(PACKAGE))
        lines: dict[str, set[str]] = {}
        for name in TESTS[path.parent.name]:
            for line, tests in names[name][1].get(module, {}).items():
                lines.setdefault(line, set()).update(tests)
        for mutant in drawn(module, given.mutants, random.Random(f"{given.seed} {module}")):
            choose_tests(mutant, seconds, lines, given.seconds)
            mutants.append(mutant)
    # In random order, so that a budget that is too short leaves out some of each module.
    run_all(random.Random(given.seed).sample(mutants, len(mutants)), seconds, given.jobs, until)
    return 1 if show(mutants) else 0


if __name__ == "__main__":
    sys.exit(main())
