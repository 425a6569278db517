"""``mcpca rank``: the choice of a rank with everything it rests on, as text, a table and a picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click
import numpy as np

from .._rank.selection import CRITERIA, RankSelection, select_rank
from ._console import Console, Failure
from ._fitting import library_errors, print_about
from ._outputs import check_folder, new_folder
from ._policy import RESULTS_ARE_A_FOLDER, check_ending
from .tables import Reading, TableData, UnusableFileError, read_data, write_table


def run_rank(
    paths: tuple[Path, ...],
    reading: Reading,
    ranks: list[int] | None,
    criteria: tuple[str, ...],
    seed: int,
    out: Path | None,
    force: bool,
    format: str,
    console: Console,
    preprocess: Any = None,
) -> dict[str, Any]:
    """Choose a rank for the rows in files, say why, and write the curves if a folder is named."""
    # Before the data are read: the choice of a rank may take long.
    if out is not None:
        check_ending(out, RESULTS_ARE_A_FOLDER)
        check_folder(out, force)
    with console.phase("reading"), library_errors(paths[0]):
        data = read_data(paths, reading, report=console.progress)
    print_about(data, console)
    if ranks and ranks[-1] > data.n_features:
        raise click.BadParameter(
            f"{ranks[-1]} exceeds the number of features, {data.n_features}.", param_hint="--ranks"
        )
    with console.phase("rank"), library_errors(data.files[0]):
        selection = _select(data, ranks, criteria, seed, console, preprocess)
    # Written before anything is printed, so that the words do not announce files that could not be written.
    files = _write(selection, out, force, format, console) if out is not None else []
    console.say(_in_words(selection))
    if out is not None:
        console.say(f"\nWrote {out}: {', '.join(files)}")
    result = {
        "rank": selection.rank,
        "reason": selection.reason,
        "votes": selection.votes,
        "table": {"rank": selection.ranks, **selection.columns},
        "out": None if out is None else str(out),
    }
    # Nothing above noise: the curves are written all the same, since they show why.
    if selection.rank == 0:
        raise Failure(selection.reason, 4, "rank", result)
    return result


def _select(
    data: TableData,
    ranks: list[int] | None,
    criteria: tuple[str, ...],
    seed: int,
    console: Console,
    preprocess: Any,
) -> RankSelection:
    if data.labels is None:
        raise UnusableFileError(data.files[0], "holds moments and no rows, which most criteria need; pass the rows.")
    # "none" leaves the noise test and the halves, which always run because they decide.
    wanted = CRITERIA if "all" in criteria else tuple(c for c in criteria if c != "none")
    return select_rank(
        data.source,
        data.labels,
        ranks=ranks,
        criteria=wanted,
        preprocess=preprocess,
        random_state=seed,
        verbose=console.progress,
        **data.annotations,
    )


def _write(selection: RankSelection, out: Path, force: bool, format: str, console: Console) -> list[str]:
    """Write the folder of results; return the names of its files."""
    with new_folder(out, force) as folder:
        write_table({"rank": selection.ranks, **selection.columns}, folder / f"rank.{format}", format)
        (folder / "rank.json").write_text(selection.to_json() + "\n", encoding="utf-8")
        # The picture is an extra: without Matplotlib the curves are in the table.
        if importlib.util.find_spec("matplotlib") is not None:
            import matplotlib.pyplot as plt

            with console.phase("pictures"):
                figure = selection.plot()
                figure.savefig(folder / "rank.png", dpi=150)
                plt.close(figure)
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
