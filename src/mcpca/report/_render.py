"""The two public functions of the report: ``render`` returns its text, ``write_report`` writes its file.

Arguments are checked here before any work is done; results such as replicability must be of this very model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._data.detect import is_anndata
from .._estimator.mcpca import MCPCA
from .._inference.bootstrap import Bootstrap
from .._inference.dependence_result import ContextDependence
from .._inference.precision import Precision
from .._inference.presence import Presence
from .._inference.replication import Replicability
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._results.anndata_inference import stored_bootstrap, stored_dependence, stored_replicability
from .._results.anndata_layout import keys_of, read_model
from .._results.anndata_refit import contexts_of_fit
from .._results.fitted import Fitted, fitted, rank_selection
from .._results.pipelines import split_steps, transformed_rows
from .._utils.arguments import NOT_GIVEN, as_generator, check_integer, one_random_state, refuse_without_effect
from .._utils.atomic_files import replace_file
from .._utils.optional import require
from .._utils.printing import counted
from .._utils.progress import shown
from ..poles import N_FEATURES
from ._content import content_of
from ._known import known_of_rows
from ._page import page_of
from ._rows import read_rows, sample_contexts

MAX_ROWS = 20_000  # in the page: 2 bytes for each score and coordinate, times 4/3 for base64


@shown("report")
def render(
    model: Any,
    *,
    X: Any = None,
    y: Any = None,
    title: str | None = None,
    selection: RankSelection | RankChoice | None = None,
    standard_errors: Precision | Bootstrap | None = None,
    replicability: Replicability | None = None,
    context_dependence: ContextDependence | None = None,
    presence: Presence | None = None,
    run: Mapping[str, Any] | None = None,
    max_rows: int = MAX_ROWS,
    n_features: int = N_FEATURES,
    context_metadata: Any = None,
    row_metadata: Any = None,
    row_names: Any = None,
    corrected: bool = True,
    random_state: Any = NOT_GIVEN,
    rng: Any = NOT_GIVEN,
    key: str = "mcpca",
) -> str:
    """Return the report of a fitted model as the text of one HTML page; parameters as in ``write_report``."""
    require("plotly", "report")  # before any work is done
    source = model
    if is_anndata(source):
        if X is not None or y is not None:
            raise ValueError("X and y go with a fitted model; an AnnData brings its own rows. Drop them.")
        model = read_model(MCPCA, source, key)
        X = contexts_of_fit(source, key, readable=True)
        # What is stored with the fit is shown, unless something else is passed.
        selection = rank_selection(source, key) if selection is None else selection
        replicability = stored_replicability(source, key) if replicability is None else replicability
        context_dependence = stored_dependence(source, key) if context_dependence is None else context_dependence
        standard_errors = _stored_errors(source, key, corrected) if standard_errors is None else standard_errors
    steps, model = split_steps(model)
    max_rows = check_integer(max_rows, "max_rows", 0, way_out="0 shows no rows, but their quantiles.")
    n_features = check_integer(n_features, "n_features", 1)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title is a {type(title).__name__}; pass text.")
    if run is not None and not isinstance(run, Mapping):
        raise TypeError(f"run is a {type(run).__name__}; pass a dict such as {{'date': '2026-11-16'}}.")
    if X is None and y is not None:
        raise ValueError("y labels rows, and X is None; pass X, or drop y.")
    if X is None:
        refuse_without_effect("max_rows", max_rows, MAX_ROWS, "no rows are given", "drop it, or pass X")
        refuse_without_effect("row_metadata", row_metadata, None, "no rows are given", "drop it, or pass X")
        refuse_without_effect("row_names", row_names, None, "no rows are given", "drop it, or pass X")
    fit = fitted(source, key)
    k, r = fit.loadings.shape
    # None again if the rank was given.
    selection = model.rank_choice_ if selection is None else selection
    # The evidence of the model's own choice is of its MCPCs, column by column. That of another selection is of those of
    # MCPCA(rank) with default settings: MCPCs of another solver, orthogonal or of weighted contexts are others.
    is_default = model.solver_ == "mspm" and not model.orthogonal and model.context_weights is None
    is_own = selection is model.rank_choice_
    if isinstance(selection, RankSelection) and selection.rank == r and (is_own or is_default):
        replicability = selection.replicability if replicability is None else replicability
        context_dependence = selection.dependence if context_dependence is None else context_dependence
    _check_result("selection", selection, (RankSelection, RankChoice), (k, r))
    _check_result("standard_errors", standard_errors, (Precision, Bootstrap), (k, r))
    _check_result("replicability", replicability, (Replicability,), (k, r))
    _check_result("context_dependence", context_dependence, (ContextDependence,), (k, r))
    _check_result("presence", presence, (Presence,), (k, r))
    compared = fit.compared(corrected)
    if isinstance(standard_errors, Bootstrap):
        _check_same_loadings(fit, standard_errors, corrected)
    # A number by default, so that the same call writes the same bytes.
    rng = as_generator(one_random_state(rng, random_state, 0))
    known = known_of_rows(source if is_anndata(source) else X, row_metadata, row_names)
    X = X if is_anndata(source) else known.X
    # The model knows only what comes out of the steps of its Pipeline.
    if steps is not None and X is not None:
        X, y = transformed_rows(steps, X, y)
    contexts = None if X is None else read_rows(model, X, y)
    samples = None
    if contexts is not None:
        known.check(contexts)
        samples = sample_contexts(model, contexts, max_rows, rng)
    metadata = known.content(model, contexts, samples, context_metadata, keys_of(key).context)
    content = content_of(
        model,
        fit,
        samples,
        metadata=metadata,
        title=f"{counted(r, 'MCPC')} of {counted(k, 'context')}" if title is None else title,
        selection=selection,
        standard_errors=standard_errors,
        replicability=replicability,
        context_dependence=context_dependence,
        presence=presence,
        run=run or {},
        n_features=n_features,
        compared=compared,
    )
    return page_of(content)


def write_report(
    model: Any,
    path: Any,
    *,
    X: Any = None,
    y: Any = None,
    title: str | None = None,
    selection: RankSelection | RankChoice | None = None,
    standard_errors: Precision | Bootstrap | None = None,
    replicability: Replicability | None = None,
    context_dependence: ContextDependence | None = None,
    presence: Presence | None = None,
    run: Mapping[str, Any] | None = None,
    max_rows: int = MAX_ROWS,
    n_features: int = N_FEATURES,
    context_metadata: Any = None,
    row_metadata: Any = None,
    row_names: Any = None,
    corrected: bool = True,
    random_state: Any = NOT_GIVEN,
    rng: Any = NOT_GIVEN,
    overwrite: bool = False,
    key: str = "mcpca",
) -> Path:
    """Write an interactive report of a fitted model: one HTML file that needs no network.

    Parameters
    ----------
    model : MCPCA, Pipeline or AnnData
        A fitted model, alone or at the end of a Pipeline, whose outputs are then the features; or an AnnData with a
        fit, which brings its own rows, in memory or backed, and what ``mcpca.tl.rank``, ``replicability``,
        ``context_dependence`` and ``bootstrap`` have stored with it.
    path : path
        Where to write the file; its folder must exist. Written as a whole or not at all.
    X, y : optional
        Rows and their contexts, in any form that ``MCPCA.transform`` takes, to show distributions of scores, and rows
        of a context along its principal components. Without them the report shows the model alone.
    title : str, optional
        By default the numbers of MCPCs and contexts.
    selection : RankSelection or RankChoice, optional
        How the rank was chosen; by default ``model.rank_choice_``.
    standard_errors : Precision or Bootstrap, optional
        Result of ``model.standard_errors()`` or ``model.bootstrap(X, y)``, for intervals of loadings.
    replicability : Replicability, optional
        Result of ``model.replicability(X, y)``; by default that of ``selection``, if it is of the same rank and solver.
    context_dependence : ContextDependence, optional
        Result of ``model.context_dependence(X, y)``: which MCPCs differ between contexts, and which are in all alike.
    presence : Presence, optional
        Result of ``model.presence()``, for tests of single loadings.
    run : dict, optional
        How the model was made: entries for the table at the end, such as a date, file names or a command.
    max_rows : int
        Largest number of rows in the file; drawn at random, the same number from every context and at most 500 of each.
        The page says how many there are.
    n_features : int
        Number of features at each pole of an MCPC.
    context_metadata : DataFrame or dict, optional
        What is known of contexts (tissue, sex, dose): a DataFrame indexed by context, or a dict of columns, each with
        one value per context in the order of ``contexts_``, or a dict by context. Shown beside the map. By default
        columns of an AnnData's ``obs`` that are constant within contexts, at most 20, of numbers or up to 50 names;
        ``{}`` shows none.
    row_metadata : DataFrame, dict or list of str, optional
        What is known of rows: a DataFrame or a dict of columns, in the order of the rows of X, or by index where both
        have one; or names of columns of X (of ``obs``), which are then no features. For a list or dict of contexts, one
        table of all rows or a table for each. Only values of rows in the file are kept, up to 2 MB. By default columns
        of an AnnData's ``obs``, bounded like those of contexts and to 1 MB; ``[]`` shows none.
    row_names : sequence of str, optional
        A name for each row; by default the index of DataFrames, or ``obs_names``.
    corrected : bool
        Whether the page shows loadings without the noise of their context, by which contexts can be compared; False
        shows ``loadings_``. The page says which.
    random_state, rng : int, Generator, SeedSequence, BitGenerator or None
        Determines which rows are drawn; by default 0.
    overwrite : bool
        Whether an existing file may be replaced.
    key : str
        Name of the fit in an AnnData.

    Returns
    -------
    Path
        The file that was written.

    Notes
    -----
    The same arguments give the same bytes: the page has no date unless ``run`` has one. Plotly, which is embedded,
    takes about 5 MB; rows take up to ``2 max_rows (r + 3)`` bytes, times 4/3. Names are shown as text whatever they
    contain, and the page's Content-Security-Policy forbids the network and any script but its own.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> from mcpca.report import write_report
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> model = MCPCA(n_components=4, random_state=0).fit(truth.X, truth.y)
    >>> path = write_report(model, "report.html", X=truth.X, y=truth.y)  # doctest: +SKIP
    """
    file = Path(path)
    # Before ``render``, which may take long.
    check_target(file, overwrite)
    text = render(
        model,
        X=X,
        y=y,
        title=title,
        selection=selection,
        standard_errors=standard_errors,
        replicability=replicability,
        context_dependence=context_dependence,
        presence=presence,
        run=run,
        max_rows=max_rows,
        n_features=n_features,
        context_metadata=context_metadata,
        row_metadata=row_metadata,
        row_names=row_names,
        corrected=corrected,
        random_state=random_state,
        rng=rng,
        key=key,
    )
    # A failure while writing leaves an earlier report as it was.
    replace_file(file, lambda stream: stream.write(text.encode("utf-8")))
    return file


def check_target(file: Path, overwrite: bool, name: str = "report.html") -> None:
    """Raise if a page cannot be written to ``file``; ``name`` is what such a file may be called."""
    if file.is_dir():
        raise IsADirectoryError(f"path={str(file)!r} is a folder; add the name of a file, such as {name}.")
    if file.exists() and not overwrite:
        raise FileExistsError(f"path={str(file)!r} exists; pass overwrite=True to replace it, or another path.")
    if not file.parent.is_dir():
        raise FileNotFoundError(f"path={str(file)!r}: the folder {str(file.parent)!r} does not exist; create it first.")


def _stored_errors(adata: Any, key: str, corrected: bool) -> Bootstrap | None:
    """Return the bootstrap that is stored with a fit, if it is of the loadings that the page shows."""
    errors = stored_bootstrap(adata, key)
    return errors if errors is not None and fitted(adata, key).same_loadings(errors.corrected, corrected) else None


def _check_same_loadings(fit: Fitted, errors: Bootstrap, corrected: bool) -> None:
    """Raise if intervals are of other loadings than those that the page shows."""
    of_corrected = errors.corrected
    if fit.same_loadings(of_corrected, corrected):
        return
    kinds = ("loadings as fitted", "corrected loadings")
    raise ValueError(
        f"standard_errors is of {kinds[of_corrected]}, and corrected={corrected} shows {kinds[corrected]}; pass "
        f"corrected={of_corrected}, or a bootstrap of the others."
    )


def _check_result(name: str, value: Any, kinds: tuple[type, ...], expected: tuple[int, int]) -> None:
    """Raise if a result is of the wrong kind, or of a model without (k, r) loadings."""
    if value is None:
        return
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is a {type(value).__name__}; pass a {names}.")
    # A wrong shape shows a result of another model; one of the same shape cannot be told apart.
    k, r = expected
    shape: tuple[int, ...] = expected  # a choice of rank has no shape of its own
    if isinstance(value, Precision):
        shape = value.loadings.shape
    elif isinstance(value, Bootstrap):
        shape = value.lower.shape
    elif isinstance(value, Presence):
        shape = value.adjusted.shape
    elif isinstance(value, Replicability):
        shape = (k, value.cosines.shape[1])
    elif isinstance(value, ContextDependence):
        # Contexts with few rows may have taken no part.
        shape = (k, len(value.p_values))
    if shape != expected:
        raise ValueError(
            f"{name} is of {shape[0]} contexts and {shape[1]} MCPCs, and the model has {k} and {r}; pass what was "
            "computed from this model."
        )
