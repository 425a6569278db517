"""The command line of the benchmark: which sections, how large, and what is written.

A section is a ``Job``: cases to run, and functions that make a table and figures of their records. ``main`` runs the
jobs one after the other; each writes its files as soon as it is done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._utils.atomic_files import prepare_folder
from .._utils.optional import require
from . import figures, tables
from .claims import check_claims
from .digits import RECOVERED, DigitsSection, run_digits
from .problems import Shape, missing_files, paper_case, robustness_cases, sample_size_cases
from .running import COMPARED, COMPARED_ON_DIGITS, Progress, Record, Section, Store, run_section, warm_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTIONS = ("2b", "2c", "s2b", "s2c", "digits", "robustness")
_INTERRUPTED = 130  # the exit code that a shell gives a program stopped by Ctrl-C
_DPI = 120


@dataclass(frozen=True)
class Size:
    """How large a run is.

    Attributes
    ----------
    accuracy_trials, sample_size_trials, robustness_trials : int
        Trials of each case in the sections 2b and s2b, 2c and s2c, and robustness.
    sizes : tuple of int
        Rows per context in 2c and s2c.
    images, draws : int
        Images per context, and draws of the data, in the section digits.
    ranks : tuple of int
        Candidates for the rank of the digits.
    shape, hard_shape : Shape
        Of the data in sections that compare time, and in those with many cases.
    time_limit : float
        Seconds after which methods that iterate for long are stopped.
    """

    accuracy_trials: int
    sample_size_trials: int
    robustness_trials: int
    sizes: tuple[int, ...]
    images: int
    draws: int
    ranks: tuple[int, ...]
    shape: Shape
    hard_shape: Shape
    time_limit: float


FULL = Size(
    accuracy_trials=40,
    sample_size_trials=5,
    robustness_trials=5,
    # The paper's range, 10 to 10^5 rows, in steps of a half decade.
    sizes=(10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    images=10_000,
    draws=5,
    ranks=tuple(range(2, 31)),
    shape=Shape(),
    hard_shape=Shape(),
    time_limit=20.0,
)
# The paper's shape wherever time is compared, since ratios of times depend on it; a smaller one for many cases.
QUICK = Size(
    accuracy_trials=2,
    sample_size_trials=1,
    robustness_trials=1,
    sizes=(10, 100, 1000, 10_000, 100_000),
    images=4000,
    draws=1,
    ranks=tuple(range(2, 17)),
    shape=Shape(),
    hard_shape=Shape(p=50, k=25, r=30, n=1000),
    time_limit=3.0,
)


@dataclass(frozen=True)
class Job:
    """A section, with the functions that make its table and figures."""

    section: Section | DigitsSection
    notes: str
    about: dict[str, Any]
    table: Callable[[Sequence[Record]], list[tables.Row]]
    pictures: Callable[[Sequence[Record]], dict[str, Figure]]

    def run(self, store: Store, time_limit: float | None, progress: Progress) -> list[Record]:
        """Return all records: those in the store, and those of the runs that are still missing."""
        if isinstance(self.section, DigitsSection):
            return run_digits(self.section, store, time_limit, progress)
        return run_section(self.section, store, time_limit, progress)


def jobs(
    size: Size,
    only: Sequence[str],
    *,
    trials: int | None = None,
    time_limit: float | None = None,
    data: Path | None = None,
    methods: Sequence[str] | None = None,
) -> list[Job]:
    """Return the sections named in ``only``, in their usual order, each with the paper's methods by default."""
    on_digits = COMPARED_ON_DIGITS if methods is None else methods
    methods = COMPARED if methods is None else methods
    makers: dict[str, Callable[[], Job]] = {
        "2b": lambda: _accuracy("2b", size, trials, time_limit, methods, orthogonal=False),
        "2c": lambda: _samples("2c", size, trials, time_limit, methods, orthogonal=False),
        "s2b": lambda: _accuracy("s2b", size, trials, time_limit, methods, orthogonal=True),
        "s2c": lambda: _samples("s2c", size, trials, time_limit, methods, orthogonal=True),
        "digits": lambda: _digits(size, trials, time_limit, data, on_digits),
        "robustness": lambda: _robustness(size, trials, time_limit, methods),
    }
    # Functions, so that only the sections asked for are made; in the order of SECTIONS, not in that of --only.
    return [makers[name]() for name in SECTIONS if name in only]


def _accuracy(
    name: str, size: Size, trials: int | None, limit: float | None, methods: Sequence[str], *, orthogonal: bool
) -> Job:
    case = paper_case(size.shape, orthogonal=orthogonal)
    kind = "orthonormal A" if orthogonal else "general A"
    title = f"Fig. {name.upper()}: runtime and error, {kind}, {_shape_in_words(size.shape, rows=True)}"
    # ``trials`` is positive if given, so that ``or`` takes the default for None alone.
    section = Section(name, title, [case], trials or size.accuracy_trials, methods)
    notes = (
        "Seconds are from the covariances to the components, one method at a time. Ascore is the paper's, by greedy "
        f"matching. {_cap_in_words(limit)}"
    )
    return Job(
        section,
        notes,
        {**case.describe(), "trials": section.trials, "time_limit": limit},
        tables.accuracy_table,
        lambda records: {name: figures.runtime_figure(records, title, limit)},
    )


def _samples(
    name: str, size: Size, trials: int | None, limit: float | None, methods: Sequence[str], *, orthogonal: bool
) -> Job:
    cases = sample_size_cases(size.hard_shape, size.sizes, orthogonal=orthogonal)
    kind = "orthonormal A" if orthogonal else "general A"
    title = f"Fig. {name.upper()}: error and rows per context, {kind}, {_shape_in_words(size.hard_shape)}"
    section = Section(name, title, cases, trials or size.sample_size_trials, methods)
    notes = (
        "Median 1 - Ascore. A trial has one A and B for all numbers of rows N. Where N > p, covariances are drawn as "
        "Wishart matrices, which have the distribution of covariances of Gaussian rows; otherwise rows are drawn. "
        "slope is that of log(1 - Ascore) over log N from N = 1000 on: -1 is an error like 1 / N. "
        f"{_cap_in_words(limit)}"
    )
    return Job(
        section,
        notes,
        # N is a list here, in the place of the one number of the shape.
        {**size.hard_shape.describe(), "N": list(size.sizes), "trials": section.trials, "time_limit": limit},
        lambda records: tables.cases_table(records, cases),
        lambda records: {name: figures.sample_size_figure(records, cases, title, limit)},
    )


def _robustness(size: Size, trials: int | None, limit: float | None, methods: Sequence[str]) -> Job:
    cases = robustness_cases(size.hard_shape)
    title = f"Robustness: median 1 - Ascore, {_shape_in_words(size.hard_shape, rows=True)}"
    section = Section("robustness", title, cases, trials or size.robustness_trials, methods)
    notes = "\n".join([*(f"- **{case.name}**: {case.about}" for case in cases), "", _cap_in_words(limit)])
    return Job(
        section,
        notes,
        {**size.hard_shape.describe(), "trials": section.trials, "time_limit": limit},
        lambda records: tables.cases_table(records, cases),
        lambda records: {"robustness": figures.robustness_figure(records, cases, title, limit)},
    )


def _digits(size: Size, trials: int | None, limit: float | None, data: Path | None, methods: Sequence[str]) -> Job:
    # Each source has files of its own, so that one does not replace the pictures of the other.
    name = "digits" if data is None else "digits_mnist"
    title = f"Digits on photographs, {'scikit-learn' if data is None else 'MNIST on grass and clouds'}"
    section = DigitsSection(name, title, size.images, size.ranks, trials or size.draws, data, methods)
    notes = (
        f"{size.images:,} images per context. corr is the largest |correlation| of a component with the mean digit, "
        f"mean over draws. A digit counts as recovered where corr >= {RECOVERED:g}, the component is closest to no "
        "other digit, and the contexts with at least half of its largest loading are those in which the digit was "
        "planted. The rank is the largest at which runs from random starts agree, on the first draw, with their "
        f"components paired as the authors do. {_cap_in_words(limit)}"
    )
    return Job(
        section,
        notes,
        {"N": size.images, "ranks": list(size.ranks), "draws": section.trials, "time_limit": limit},
        tables.digits_table,
        lambda records: {
            # records[0] is the choice of the rank: ``run_digits`` returns it first.
            name: figures.digits_figure(records),
            f"{name}_rank": figures.rank_figure(records[0]),
        },
    )


def _shape_in_words(shape: Shape, rows: bool = False) -> str:
    return f"p={shape.p}, k={shape.k}, r={shape.r}" + (f", N={shape.n}" if rows else "")


def _cap_in_words(limit: float | None) -> str:
    return "" if limit is None else f"Methods that iterate for long were stopped after {limit:g} s."


# The command line --------------------------------------------------------------------------------------------------


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Compare MCPCA with other methods as the paper does: figures, tables, and every single result. "
        "A run that was stopped is resumed.",
    )
    parser.add_argument("--quick", action="store_true", help="a small run of every section, about 3 minutes")
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help="folder with mnist.npz and backgrounds_28x28.npz, for the digits"
    )
    parser.add_argument("--output", metavar="DIR", type=Path, default=Path("paper-output"), help="default: %(default)s")
    parser.add_argument(
        "--only", metavar="SECTION", nargs="+", choices=SECTIONS, default=SECTIONS, help=", ".join(SECTIONS)
    )
    parser.add_argument(
        "--trials", metavar="N", type=_positive(int), help="data sets per case (40 for 2b and s2b, 5 for others)"
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=_positive(float),
        help=f"cap for methods that iterate for long ({FULL.time_limit:g}, with --quick {QUICK.time_limit:g})",
    )
    parser.add_argument(
        "--methods",
        metavar="NAME",
        nargs="+",
        choices=COMPARED_ON_DIGITS,
        help=f"{', '.join(COMPARED_ON_DIGITS)}; by default all, svd on the digits alone, as in the paper",
    )
    return parser


def _positive(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        # Written so that NaN, which float() accepts and which compares false with everything, is refused too.
        if not 0 < value < float("inf"):
            raise ValueError
        return value

    read.__name__ = f"positive {kind.__name__}"  # argparse says "invalid positive int value"
    return read


def _problem_with(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the options or their combination, or None."""
    data: Path | None = options.data
    # An option without effect is refused, as everywhere on the command line.
    if data is not None and "digits" not in options.only:
        return (
            f"--data has no effect: it is for the digits, and --only is {' '.join(options.only)}; drop one of the two."
        )
    if data is not None and not data.is_dir():
        return f"--data {data} is not a folder; pass the one that has mnist.npz and backgrounds_28x28.npz."
    if data is not None and missing_files(data):
        return f"--data {data} has no {' and no '.join(missing_files(data))}; pass the folder that has both files."
    try:
        # Before hours of work, not after them. The folder is last: it is made only if everything else is there.
        require("matplotlib.figure", "plot")
        if data is None and "digits" in options.only:
            require("PIL", "demo")  # decodes scikit-learn's photographs
        prepare_folder(options.output)
    except ImportError as error:
        return str(error)
    except OSError as error:
        return f"--output {options.output} cannot take the results ({error}); choose a directory."
    return None


def main(argv: Sequence[str] | None = None, prog: str = "python -m mcpca.paper") -> int:
    """Run the benchmark; return 0, 2 after a message on stderr, or 130 if it was interrupted."""
    options = _parser(prog).parse_args(argv)
    problem = _problem_with(options)
    if problem is not None:
        return _fail(prog, problem)
    size = QUICK if options.quick else FULL
    # Never None on the command line; as a function, ``jobs`` can be run without a cap.
    limit = options.time_limit or size.time_limit
    todo = jobs(size, options.only, trials=options.trials, time_limit=limit, data=options.data, methods=options.methods)
    progress = Progress()
    try:
        # Within the block, so that Ctrl-C is answered here too.
        warm_up(options.methods or COMPARED_ON_DIGITS)
        rows_of = {job.section.name: _carry_out(job, options.output, limit, progress) for job in todo}
        _write_claims(options.output, rows_of, limit)
    except KeyboardInterrupt:
        progress.say(f"\nInterrupted. What was done is in {options.output}; the same command resumes it.")
        return _INTERRUPTED
    # A full disk, or a line of results that is damaged; failures of methods are records and do not come here.
    except (OSError, ValueError) as error:
        return _fail(prog, str(error))
    progress.say(f"Written to {options.output}")
    return 0


def _carry_out(job: Job, output: Path, limit: float | None, progress: Progress) -> list[tables.Row]:
    """Run a section, write its table and figures, print the table and return its rows."""
    name = job.section.name
    # Every record is in its file as soon as it is made; table and figures are made anew from all of them each time.
    records = job.run(Store(output / f"{name}.jsonl"), limit, progress)
    rows = job.table(records)
    print(tables.write_tables(output, name, job.section.title, rows, job.about, job.notes), flush=True)
    for stem, figure in job.pictures(records).items():
        figure.savefig(output / f"{stem}.png", dpi=_DPI)
    return rows


def _write_claims(output: Path, rows_of: dict[str, list[tables.Row]], limit: float | None) -> None:
    """Check the paper's claims on the sections of this run."""
    rows = check_claims(rows_of)
    # With --only or --methods there may be no claim that can be checked.
    if rows:
        title = "The paper's claims on these data"
        about = {"sections": list(rows_of), "time_limit": limit}
        print(tables.write_tables(output, "claims", title, rows, about, "Checked on the tables of this run."))


def _fail(prog: str, message: str) -> int:
    print(f"{prog}: {message}", file=sys.stderr)
    return 2
