"""``mcpca rank``: the choice of a rank with everything it rests on, as text, a table, a picture and a record."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click
import numpy as np

from .._rank.selection import CRITERIA, RankSelection, select_rank
from ._console import Console, Failure, json_text
from ._fitting import library_errors, print_about
from ._outputs import check_folder, checksum, checksums, new_folder
from ._policy import RESULTS_ARE_A_FOLDER, check_ending
from ._record import RankOptions, check_same, record
from .tables import TableData, UnusableFileError, read_data, write_table


def run_rank(
    options: RankOptions, out: Path | None, force: bool, console: Console, command: list[str]
) -> dict[str, Any]:
    """Choose a rank for the rows in files, say why, and write the curves if a folder is named."""
    result = rank_files(options, out, force, console, command)
    # Nothing above noise: the curves are written all the same, since they show why.
    if result["rank"] == 0:
        raise Failure(result["reason"], 4, "rank", result)
    return result


def rank_files(
    options: RankOptions,
    out: Path | None,
    force: bool,
    console: Console,
    command: list[str],
    expected: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Do the same without a failure where nothing is above noise.

    ``expected`` are checksums of the files: if others were read, nothing is written.
    """
    # Before the data are read: the choice of a rank may take long.
    if out is not None:
        check_ending(out, RESULTS_ARE_A_FOLDER)
        check_folder(out, force)
    with console.phase("reading"), library_errors(options.data[0]):
        data = read_data(options.data, options.reading, report=console.progress)
    print_about(data, console)
    ranks = options.ranks
    if ranks and ranks[-1] > data.n_features:
        raise click.BadParameter(
            f"{ranks[-1]} exceeds the number of features, {data.n_features}.", param_hint="--ranks"
        )
    with console.phase("rank"), library_errors(data.files[0]):
        selection = _select(data, options, console)
    # Written before anything is printed, so that the words do not announce files that could not be written.
    files = []
    if out is not None:
        with console.phase("checksums"):
            inputs = checksums(data.files)
            if expected is not None:
                check_same(expected, inputs)
        files = _write(selection, out, force, options, console, record(options, command, inputs, out))
    console.say(_in_words(selection))
    if out is not None:
        console.say(f"\nWrote {out}: {', '.join(files)}")
    return {
        "rank": selection.rank,
        "reason": selection.reason,
        "votes": selection.votes,
        "table": {"rank": selection.ranks, **selection.columns},
        "out": None if out is None else str(out),
    }


def _select(data: TableData, options: RankOptions, console: Console) -> RankSelection:
    if data.labels is None:
        raise UnusableFileError(data.files[0], "holds moments and no rows, which most criteria need; pass the rows.")
    # "none" leaves the noise test and the halves, which always run because they decide.
    criteria = options.criteria
    wanted = CRITERIA if "all" in criteria else tuple(c for c in criteria if c != "none")
    return select_rank(
        data.source,
        data.labels,
        ranks=None if options.ranks is None else list(options.ranks),
        criteria=wanted,
        preprocess=options.preprocess,
        random_state=options.seed,
        verbose=console.progress,
        **data.annotations,
    )


def _write(
    selection: RankSelection, out: Path, force: bool, options: RankOptions, console: Console, run: dict[str, Any]
) -> list[str]:
    """Write the folder of results; return the names of its files."""
    with new_folder(out, force) as folder:
        table = {"rank": selection.ranks, **selection.columns}
        write_table(table, folder / f"rank.{options.format}", options.format)
        (folder / "rank.json").write_text(selection.to_json() + "\n", encoding="utf-8")
        # The picture is an extra: without Matplotlib the curves are in the table.
        if importlib.util.find_spec("matplotlib") is not None:
            import matplotlib.pyplot as plt

            with console.phase("pictures"):
                figure = selection.plot()
                figure.savefig(folder / "rank.png", dpi=150)
                plt.close(figure)
        run["results"] = {"rank": selection.rank, "rank_reason": selection.reason}
        run["outputs"] = {path.name: checksum(path)["sha256"] for path in sorted(folder.iterdir())}
        run["warnings"] = console.warnings
        run["timings"] = console.timings
        # Last: a folder that has one is complete.
        (folder / "run.json").write_text(json_text(run, indent=2) + "\n", encoding="utf-8")
        return sorted(path.name for path in folder.iterdir())


def _in_words(selection: RankSelection) -> str:
    lines = [selection.reason, "", "What each criterion alone would choose:"]
    width = max(map(len, selection.votes))
    lines += [f"  {name:<{width}}  {vote}" for name, vote in selection.votes.items()]
    agreement = selection.columns.get("split-half agreement")
    if agreement is not None and np.isfinite(agreement).any():
        pairs = zip(selection.ranks.tolist(), agreement.tolist(), strict=True)
        shown = ", ".join(f"{r}: {a:.2f}" for r, a in pairs if np.isfinite(a))
        what = "rows" if selection.replicability is None else selection.replicability.by
        lines += ["", f"Agreement of halves of the {what}, by rank: {shown}"]
    return "\n".join(lines)
