"""``MCPCA``, the estimator: parameters in, fitted attributes out, and every method a few lines over a plain function.

The functions take a ``FittedModel`` (``_model.fitted_model``). ``fitted_model`` reads one off an estimator and
``_publish`` sets an estimator's attributes from one, here and nowhere else, so that no other module touches private
attributes. ``fitting`` fits, ``parameters`` checks parameters, ``persistence`` reads and writes files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from .._covariances.moments import ContextMoments
from .._data.labels import take_labels
from .._data.xarray_rows import is_dataarray, rows_like, scores_like
from .._inference.bootstrap import Bootstrap, resample
from .._inference.context_dependence import context_dependence_of_fit
from .._inference.cross_fitting import warn_of_inflation
from .._inference.dependence_result import PERMUTATIONS, SPLITS, ContextDependence
from .._inference.precision import Precision, standard_errors_of
from .._inference.presence import Presence, presence_tests
from .._inference.replication import REPLICATES, Replicability, replicate
from .._inference.shrunk_covariances import ShrunkCovariances, shrunk_covariances
from .._inference.solver_comparison import SolverComparison
from .._model import facet_measures
from .._model.dominance import warn_of_dominance
from .._model.facets import Facets
from .._model.fitted_model import FittedModel
from .._model.identifiability import DEFAULT_DEGREES, ProportionalPair, indistinct_loadings, warn_if_proportional
from .._model.landscape import Landscape, landscape_of
from .._model.missing_rows import (
    loadings_of_present,
    outlyingness_of_present,
    score_of_present,
    scores_of_present,
    takes_missing,
)
from .._model.new_contexts import loadings_for, predictive_score
from .._model.outlyingness import outlyingness
from .._model.scores import for_each_context, rows_from_scores, scores
from .._model.unequal_noise import warn_of_unequal_noise
from .._model.xarray_model import dataset_of
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._utils.arguments import one_random_state, refuse_without_effect
from .._utils.array_api import is_device_array, to_host
from .._utils.component_names import component_names
from .._utils.other_package import FIT, TRANSFORM, knows_other_options
from .._utils.progress import reporting
from .._utils.types import Array
from .chunks_of_rows import add_chunk
from .fitting import Fit, feature_names, fit_covariances, fit_moments, fit_rows
from .keeping import chosen_components, fit_kept, read_for_keeping
from .parameters import RANK_RULE_DEFAULTS, Parameters
from .persistence import SavedModel, load_model, save_model

Estimator = TypeVar("Estimator", bound="MCPCA")


# ``auto_wrap_output_keys=None``: scikit-learn would wrap ``transform`` for one matrix only; see ``_InContainer``.
class MCPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Multi-context principal component analysis.

    Finds axes that explain variance in subsets of contexts, and how much variance each axis has in every context:
    ``Cov(X_i) ~ A diag(b_i) A^T`` for contexts i = 1..k. The columns of A, the MCPCs, are shared by all contexts; they
    have unit length and need not be orthogonal. The loadings b_i >= 0 are those of context i.

    Parameters
    ----------
    n_components : int, None or "replicating"
        Rank r, 1 <= r <= n_features. None chooses the rank as ``select_rank`` does, and raises
        ``NothingAboveNoiseError`` if nothing rises above the noise. Contexts with fewer than 4 rows are left out of the
        choice (``SmallContextsWarning``). If there are too few rows to tell anything from noise, the rank is 1; if
        halves of the rows agree at no rank, it is the one at which they agree best. Both come with an
        ``UncertainRankWarning``. With ``rank_range`` the paper's rule, ``choose_rank``, is used instead. Covariances
        without ``n_samples`` need ``rank_range`` or a rank. "replicating" keeps those MCPCs of the chosen rank that
        come back in halves of the rows, mean ``|cos|`` above 0.9, with loadings fitted again without the others.
    solver : {"mspm", "lsq", "ml", "auto"}
        "mspm": the paper's multi-subspace power method, then non-negative least squares for the loadings. "lsq": a
        stationary point of the squared error. "ml": maximum likelihood in a Gaussian model with noise. The guide in
        ``docs/solvers.md`` explains when to prefer which. "auto" takes the one with the lowest error of off-diagonal
        covariances in rows that it was not fitted to, among "mspm", "lsq", and "ml" with isotropic and with scaled
        noise (``noise`` and ``orthogonal`` that are given hold for all); see ``compare_solvers``, which also has the
        error for features that are principal components. ``solver_choice_`` is the evidence. It needs rows, at least 4
        in every context, and takes 12 to 16 fits of half of the rows besides, some tens of times the time
        of "mspm". A rank that is not given is chosen first, with "mspm", and again with the solver that was chosen at
        it. Not with ``robust`` or ``missing``.
    orthogonal : bool
        Make the MCPCs orthonormal: by least squares with "mspm" and "lsq", by likelihood with "ml".
    noise : {"auto", "isotropic", "pooled", "diagonal", "scaled", None}
        The variance that is not due to the MCPCs: one per context, one for all contexts, one per feature shared by all
        contexts, or one per feature times one per context. "ml" has it in its likelihood; for "mspm" and "lsq" it is a
        term of the least squares that gives the loadings. Without it (None) loadings are the paper's and contain the
        noise of their context. "auto" is "isotropic" for "ml" and None for the others.
    context_weights : array-like (k,) or dict {context: weight}, optional
        Positive weights of the contexts in the squared error. With "ml", which weights contexts by their numbers of
        rows, they multiply these. An array is in the order of ``contexts_``.
    rank_range : iterable of int, optional
        Candidate ranks for the paper's rule, ``choose_rank``; only with ``n_components=None``.
    n_seed_pairs, cos_sim_threshold : int, float
        Parameters of the paper's rule; ``select_rank`` also uses the second, for the agreement between halves of the
        rows. Setting one that the rule in use does not need is an error.
    robust : bool
        Give rows that are far from the rest of their context less weight: the likelihood of the multivariate t, whose
        degrees of freedom are estimated, in place of the Gaussian (``solver="ml"``), or covariances of rows weighted
        by it (other solvers). Means, loadings and noise are then those of the bulk of the rows: of the good rows where
        some are bad, and for heavy tails on the scale of a Gaussian with the same median distance, which is less than
        the variance. Where rows are Gaussian, the answer is that of an ordinary fit. A rank that is not given is chosen
        on rows shrunk by their first weights. What many bad rows have in common, such as a direction, may still be
        found as an MCPC. Needs rows, at least 5 in every context, and ``n_components < n_features``. Takes five to ten
        fits as a rule, at most 30, with a pass over the rows each. Rows that come later weigh alike: ``loadings_for``
        and ``score`` take them as any model does.
    cross_fit : int
        If above 0, ``corrected_loadings_`` are cross-fitted in as many random splits of the rows, 5 for instance: MCPCs
        are fitted to four fifths of the rows, loadings are taken in the rest, and divided by what axes lose there,
        which is measured, too. For about as many features as rows, or more: an ordinary fit then finds noise of its own
        rows in its axes, and loadings are too large by about the squared angle (in radians) of their MCPC to the truth.
        Needs rows, at least 4 in every context, and ``n_components < n_features``; takes five more fits a split.
    missing : {"error", "union", "pairwise", "em"}
        What to do where features or values are missing; NaN stands for a missing value.
        "error": refuse such rows.
        "union": contexts may lack whole features (columns of their DataFrames or AnnDatas, or NaN in all their rows),
        and each counts with those that it has; for "lsq" and "ml". The model is over all features that two contexts
        have, the others are named and left out, and contexts have to share at least as many features as MCPCs (one more
        beside noise). "auto" noise is then isotropic for "lsq" as well.
        "em": values may be missing within rows as well; "ml" maximises the likelihood of what is there.
        "pairwise": values may be missing within rows; "mspm" and "lsq" are given covariances of pairs of features over
        rows that have both.
        The last two take values to be missing at random, and no solver that is not named here takes them. All need a
        rank, and covariances (k, p, p) in memory; "em" also a dense copy of the rows. Dask and devices are refused.
    preprocess : {None, "log1p", "pearson"}, function or Preprocess
        What is done to each row as it is read, at the fit and by every method that takes rows later: None takes rows
        as they are; "log1p" brings raw counts to the same total and takes logarithms, as scanpy does by default;
        "pearson" turns them into analytic Pearson residuals, which stay sparse but for a low rank; a function prepares
        a block of rows; ``mcpca.Preprocess`` has all choices. Rows are prepared block by block in
        every pass, without a copy of the data. Needs rows in memory, in a file or on Dask, not on a device.
    random_state : int, Generator, SeedSequence, BitGenerator, RandomState or None
        Determines every random number. NumPy's global generator is never touched.
    tol : float or None
        Tolerance of the solver (see ``decompose``) and, where the fit goes by passes over the rows, of the leading
        directions. None is 1e-7 for covariances in memory. Passes then stop where more of them would change the leading
        directions by less than a tenth of their standard errors (``basis_error_``), and the solver at 1e-4.
    max_iter : int
        The most second-order steps of the solver.
    verbose : None, bool or callable
        Progress on stderr, for ``fit`` and for later methods of the model. None shows it in terminals and notebooks,
        once a call has taken two seconds; True always; False never. A function is called with (stage, done, total),
        where ``done`` never decreases within a stage. For ``clone`` the function must be copyable, which an object that
        holds a stream is not; for worker processes it must be defined in a module.

    Attributes
    ----------
    components_ : ndarray (n_features, r)
        A, the MCPCs: unit columns in decreasing order of total variance over contexts, the largest entry of each
        positive. This is the paper's orientation; what scikit-learn's PCA calls ``components_`` is ``projection_``.
    loadings_ : ndarray (k, r)
        B >= 0, the variance of each MCPC in each context. Fitted without noise, as by default, each contains about the
        noise variance of its context: compare contexts by ``corrected_loadings_``.
    corrected_loadings_ : ndarray (k, r)
        The loadings without the noise of their context, by which everything that compares contexts goes. The same as
        ``loadings_`` if the fit has noise; otherwise refitted beside an isotropic floor. With ``cross_fit``, those of
        rows that axes were not fitted to.
    attenuation_ : ndarray (r,) or None
        With ``cross_fit``: the share of a loading that the MCPCs keep in rows that they have not seen, about the
        squared cosine of their angle to the truth. ``loadings_for`` divides by it.
    projection_ : ndarray (r, n_features)
        ``pinv(A)``, which maps a centred row to its scores.
    n_components_, r_ : int
        The rank.
    rank_choice_ : RankSelection, RankChoice or None
        The evidence behind a rank that was chosen by ``select_rank`` or by ``choose_rank``; None for a given rank.
    solver_, noise_ : str, str or None
        The solver of the fit, and the noise in its model; None if loadings contain it.
    solver_choice_ : SolverComparison or None
        The evidence behind a solver that was chosen (``solver="auto"``); None for a given one.
    contexts_ : ndarray (k,)
        Names of the contexts, in the order of the rows of ``loadings_``.
    means_ : ndarray (k, n_features) or None
        Mean of each context, NaN for features that it lacks (``missing="union"``); None after ``fit_covariances``.
    n_samples_per_context_ : ndarray (k,) or None
        Rows of each context; None if ``fit_covariances`` was called without them.
    moments_ : ContextMoments
        After ``partial_fit``: the moments of all rows so far.
    noise_variance_ : ndarray
        The variance not due to the MCPCs: (k,) for isotropic and pooled noise (all equal if pooled), (p,) for diagonal
        noise, (k, p) for scaled noise. Of a fit without noise, the floor (k,) of ``corrected_loadings_``; 0 where the
        MCPCs leave no direction in which noise could be seen.
    singular_values_ : ndarray
        The scree: singular values of ``[S_1 ... S_k]``, the covariances side by side.
    n_iter_ : int
        Iterations of the solver.
    n_passes_ : int or None
        Passes over the rows, if the fit read them in passes; None if it worked on the covariances themselves.
    basis_residual_ : float
        How accurately the leading directions are known after these passes: the largest residual of an eigenvector of
        ``sum_i S_i S_i``, relative to the smallest of the leading eigenvalues; 0 if they were computed exactly.
    basis_error_ : float or None
        With ``tol=None`` and passes: about the largest error of the leading directions that comes from stopping, in
        their standard errors, of those that the rows determine at all. None otherwise.
    degrees_of_freedom_ : float or None
        With ``robust=True``: those of the rows, from 1 (heavy tails) to 1000, or infinite if rows are Gaussian.
    nuisance_ : RemovedNuisance or None
        What ``batch`` and ``covariates`` took out: the share of each context's variance, and their part in scores.
    kept_of_ : int or None
        The rank of the fit that the MCPCs were kept from (``n_components="replicating"``, ``keep``); None if it has no
        others.
    preprocess_ : FittedPreprocess or None
        What was done to rows, with what it took of them: the total, features, scales. Later rows are raw, too.
    n_features_in_ : int
        Number of features of the model; ``preprocess_.n_features_in`` are those of raw rows.
    feature_names_in_ : ndarray (n_features,)
        Set only if the input has feature names (of columns, or an AnnData's ``var``), by which later rows are then
        matched. Columns called 0, 1, ..., p - 1 count as unnamed.
    label_columns_ : list of str
        Set only if labels were columns of a DataFrame; these columns are ignored in later rows.

    Notes
    -----
    Cost O(n p^2) for the covariances and O(k p^3) for the basis; memory for the (k, p, p) stack and little more.
    float32 rows keep the stack in float32; the basis, the solver and the loadings are computed in float64, and the
    results are float32. With a single context the answer is PCA's, up to sign.

    References
    ----------
    Multi-context principal component analysis; see CITATION.cff.

    Examples
    --------
    >>> from mcpca import MCPCA
    >>> from mcpca.datasets import make_contexts
    >>> truth = make_contexts(n_contexts=6, n_features=20, n_components=4, random_state=0)
    >>> model = MCPCA(n_components=4, random_state=0).fit(truth.X, truth.y)
    >>> model.components_.shape, model.loadings_.shape
    ((20, 4), (6, 4))
    """

    # scikit-learn's metadata routing. Batch and covariates of ``transform`` need contexts of rows, which Pipelines do
    # not pass on to it; as requests they would be in the way of those of ``fit``, which ``fit_transform`` has, too.
    __metadata_request__transform: ClassVar = {"batch": UNUSED, "covariates": UNUSED}
    # ``Pipeline.score`` always passes ``sample_weight``, None by default, and refuses steps that know no such name.
    __metadata_request__score: ClassVar = {"sample_weight": True}

    def __init__(
        self,
        n_components: int | str | None = None,
        *,
        solver: str = "mspm",
        orthogonal: bool = False,
        noise: str | None = "auto",
        context_weights: Any = None,
        rank_range: Any = None,
        n_seed_pairs: int = 5,
        cos_sim_threshold: float = 0.8,
        robust: bool = False,
        cross_fit: int = 0,
        missing: str = "error",
        preprocess: Any = None,
        random_state: Any = None,
        tol: float | None = None,
        max_iter: int = 200,
        verbose: Any = None,
    ) -> None:
        # Stored as they are, as scikit-learn's ``clone`` requires; ``Parameters`` checks them at the start of a fit.
        self.n_components = n_components
        self.solver = solver
        self.orthogonal = orthogonal
        self.noise = noise
        self.context_weights = context_weights
        self.rank_range = rank_range
        self.n_seed_pairs = n_seed_pairs
        self.cos_sim_threshold = cos_sim_threshold
        self.robust = robust
        self.cross_fit = cross_fit
        self.missing = missing
        self.preprocess = preprocess
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    # Fitting

    @knows_other_options(FIT)
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        batch: Any = None,
        covariates: Any = None,
        checkpoint: Any = None,
    ) -> Self:
        """Fit the model to rows, moments or covariances.

        Parameters
        ----------
        X : list or tuple of arrays; dict or Series {name: array}; one matrix; (k, p, p) stack; ``ContextMoments``
            The rows of each context, all with the same features (DataFrames are aligned by name); or one matrix of
            rows, with ``y``; or a 3-D stack of covariances, as for ``fit_covariances``. A matrix is a 2-D array or
            memory map, a DataFrame, a SciPy sparse matrix, an AnnData (also backed), a DataArray of xarray (rows first,
            features second), an HDF5 or Zarr dataset, a function that returns an iterator over blocks of rows, or a
            Dask array or DataFrame, whose rows stay on the workers. PyTorch, CuPy and JAX arrays, and sparse matrices
            of the first two, stay on their device (extra ``devices``), and the fitted arrays are of the same kind.
        y : array-like (n,), str or list of str, optional
            Context label of each row of one matrix; for Dask rows also a Dask array or Series. A pandas Series or a
            DataArray is aligned by its index if the rows have one (that of a DataFrame or DataArray, or the
            ``obs_names`` of an AnnData). A string names a column of a DataFrame (pandas, polars, Dask), which is then
            not a feature, of an AnnData's ``obs``, or a coordinate along the rows of a DataArray; a list of names
            crosses these columns, and the contexts are called "a / b". Labels are text, numbers, dates, bytes, or
            tuples of these. Without ``y``, one matrix is one context.
        groups : labels (n,), str or list of str, optional
            Which rows were sampled together, such as the cells of a donor: they are split together where rows are
            split, in the choice of the rank and with ``cross_fit``; with a given rank and without ``cross_fit`` they
            would have no effect, and are refused. Given like ``y``: labels, a column, or several that are crossed; for
            a list or dict of contexts, a list or dict of these. A group may be in one context or in several.
        batch : labels (n,), str or list of str, optional
            Strata of the rows, such as runs or plates, given like ``groups``. Their means are removed within each
            context: covariances are those within strata, ``X_i^T (I - P) X_i / (n_i - rank P)``.
        covariates : array (n,) or (n, c), table, dict {name: values}, str or list of str, optional
            Nuisance that varies from row to row, such as depth or age, is regressed out within each context in the same
            way. Numbers, or labels, which become an indicator for each level but the first. Text names a column of a
            DataFrame or of ``obs``, or is a formula over them, ``"sex + np.log(depth)"`` (extra ``formula``); over a
            table of its own it is a pair (formula, table).
        checkpoint : path, optional
            A file that keeps the progress of a fit that reads the rows in passes. If the fit is interrupted, calling it
            again with the same arguments resumes it and gives the same answer; other rows, labels or parameters are
            refused. The file is deleted at the end. Data small enough to need no passes write none.
        """
        annotations = {"groups": groups, "batch": batch, "covariates": covariates}
        # Rows are never 3-D. A list of matrices is always rows, even if they happen to be square.
        if (isinstance(X, np.ndarray) or is_device_array(X)) and X.ndim == 3:
            _refuse_rows_options(
                f"X has shape {X.shape}, a stack of covariances,", "covariances", y, checkpoint, annotations
            )
            return self.fit_covariances(X)
        parameters = self._checked_parameters()
        if isinstance(X, ContextMoments):
            _refuse_rows_options("X holds moments of contexts,", "moments", y, checkpoint, annotations)
            with reporting(self.verbose, "fit") as report:
                return self._finish(fit_moments(parameters, X, (), report))
        with reporting(self.verbose, "reading rows") as report:
            fit = fit_rows(parameters, X, y, checkpoint, report, groups=groups, batch=batch, covariates=covariates)
            return self._finish(fit)

    def fit_covariances(
        self, S: Any, n_samples: Any = None, feature_names: Any = None, context_names: Any = None
    ) -> Self:
        """Fit the model to covariances alone.

        Parameters
        ----------
        S : array-like (k, p, p), list or dict {context: covariance}
            Covariances: finite, symmetric, positive semi-definite. pandas DataFrames are aligned by name.
        n_samples : int or array-like (k,), optional
            Rows behind each covariance, kept as ``n_samples_per_context_``. A Series is aligned by context name.
        feature_names, context_names : sequences of length p and k, optional
            Names; they override those of DataFrames and dicts.
        """
        parameters = self._checked_parameters()
        with reporting(self.verbose, "fit") as report:
            return self._finish(fit_covariances(parameters, S, n_samples, feature_names, context_names, report))

    def partial_fit(
        self, X: Any, y: Any = None, *, batch: Any = None, covariates: Any = None, allow_duplicates: bool = False
    ) -> Self:
        """Add a chunk of rows to those seen so far, and fit the model to all of them.

        Only moments are kept (``moments_``, O(k p^2)), so the rows may come in any number of chunks and in any order,
        and the model is the one that ``fit`` finds on all of them at once. New contexts may appear later. As long as a
        context has a single row only, or no more than batch and covariates take, or the rows vary in fewer than
        ``n_components`` directions, chunks are added without a fit. Each call costs O(n p^2) for its chunk plus a
        decomposition; to add many chunks before the first fit, update a ``ContextMoments`` and pass it to ``fit``.

        Parameters
        ----------
        X, y
            As for ``fit``. A chunk that is refused changes nothing.
        batch, covariates : optional
            Of these rows, as for ``fit``, but no formula. All chunks need the same ones; batches, and levels of
            covariates that are labels, may differ from chunk to chunk.
        allow_duplicates : bool
            Whether rows that were added before may be added again, to count twice.
        """
        parameters = self._checked_parameters()
        before = getattr(self, "moments_", None)
        columns = tuple(getattr(self, "label_columns_", ()))
        with reporting(self.verbose, "moments") as report:
            added = add_chunk(
                parameters, before, columns, X, y, allow_duplicates, report, batch=batch, covariates=covariates
            )
            if added.fit is not None:
                self._finish(added.fit)
            else:
                self._set_features(added.moments.means.shape[1], feature_names(added.moments.feature_names))
                self._set_label_columns(added.label_columns)
            # Last, because publishing a fit removes all fitted attributes, moments_ among them.
            self.moments_ = added.moments
        return self

    def _checked_parameters(self) -> Parameters:
        """Return the parameters as one value; raise before any row is read if they are invalid."""
        return Parameters(**self.get_params(deep=False)).checked()

    def _finish(self, fit: Fit) -> Self:
        """Set the fitted attributes, and warn of what makes the fit doubtful."""
        # Published first: the names of MCPCs in warnings need a fitted model, and it is there even if warnings are
        # errors.
        self._publish(fit.model, fit.rank_choice, fit.solver_choice)
        model = fit.model
        names = component_names(self)
        warn_if_proportional(to_host(model.loadings), names, orthogonal=model.orthogonal, n_features=model.n_features)
        warn_of_dominance(fit.dominance, model.feature_names)
        warn_of_unequal_noise(model, names)
        return self

    def _publish(
        self,
        model: FittedModel,
        rank_choice: RankSelection | RankChoice | None,
        solver_choice: SolverComparison | None,
    ) -> None:
        """Set all fitted attributes, and remove those of an earlier fit that this one does not have."""
        # Attributes such as ``feature_names_in_`` are not set by every fit, and an old one must not outlive its fit.
        fitted_before = [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]
        for name in fitted_before:
            delattr(self, name)
        self._set_features(model.n_features, model.feature_names)
        self._set_label_columns(model.label_columns)
        self.components_ = model.components
        self.loadings_ = model.loadings
        self.corrected_loadings_ = model.corrected_loadings
        self.projection_ = model.projection
        self.n_components_ = model.n_components
        self.rank_choice_ = rank_choice
        self.solver_ = model.solver
        self.noise_ = model.noise
        self.solver_choice_ = solver_choice
        self.contexts_ = model.contexts
        self.means_ = model.means
        self.n_samples_per_context_ = model.n_samples
        self.noise_variance_ = model.noise_variance
        self.singular_values_ = model.singular_values
        self.n_iter_ = model.n_iter
        self.n_passes_ = model.n_passes
        self.basis_residual_ = model.basis_residual
        self.basis_error_ = model.basis_error
        self.degrees_of_freedom_ = model.degrees_of_freedom
        self.attenuation_ = model.attenuation
        self.nuisance_ = model.nuisance
        self.kept_of_ = model.kept_of
        self.preprocess_ = model.preprocess
        # Without a trailing underscore, hence not removed above; every fit sets both.
        self._facets = model.facets
        self._score_moments = model.score_moments
        self._space = model.space

    def _set_features(self, p: int, names: Array | None) -> None:
        """Set what scikit-learn's ``validate_data`` would set, except that names need not be strings."""
        self.n_features_in_ = p
        if names is not None:
            self.feature_names_in_ = names

    def _set_label_columns(self, columns: tuple[str, ...]) -> None:
        if columns:
            self.label_columns_ = list(columns)

    def _repr_html_inner(self) -> str:
        """Return what a notebook shows: the map and a line per MCPC, or scikit-learn's diagram before a fit."""
        return str(self._repr_mimebundle_().get("text/html", ""))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Return what notebooks show, in the conventions of scikit-learn, whose setting ``display`` is obeyed."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and hasattr(self, "components_"):
            # Late: the room of results is above this one.
            from .._results.notebook import model_html

            bundle["text/html"] = model_html(self)
        return bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Sparse rows are centred implicitly, in covariances and in scores.
        tags.input_tags.sparse = True
        return tags

    @property
    def r_(self) -> int:
        """The rank, by the paper's name; known after ``fit``."""
        # NotFittedError is an AttributeError too, so ``hasattr(model, "r_")`` is False before a fit.
        if not hasattr(self, "n_components_"):
            raise NotFittedError("MCPCA.r_ is known once the model has seen data: call fit(X_list) first.")
        return self.n_components_

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    # Scores

    @knows_other_options(TRANSFORM)
    def transform(
        self,
        X: Any,
        y: Any = None,
        *,
        center: Any = None,
        posterior: bool = False,
        batch: Any = None,
        covariates: Any = None,
        missing: str | None = None,
    ) -> Any:
        """Return the scores of rows on the MCPCs, ``(x - mean) @ pinv(A).T``.

        Parameters
        ----------
        X : one matrix, in any form that ``fit`` takes; or a list or dict of contexts
            A list must have one entry per fitted context, in their order; a dict is matched by name. The result is then
            a list or dict of scores.
        y : array-like (n,), str or list of str, optional
            Context label of each row, or the name of a column of labels, as in ``fit`` (also aligned by index). Each
            row is centred by the mean of its own context, looked up by label.
        center : None, "overall", "own", array (n_features,) or dict {label: array}
            None takes the fitted mean of the context if contexts are known (from ``y``, a list or a dict), and
            otherwise the overall mean of the fitted rows, which keeps differences between contexts visible. "own"
            centres each context by its mean in ``X``; contexts that ``fit`` has not seen need this or an explicit mean.
        posterior : bool
            Return the expected scores given the row, ``B_i A^T Sigma_i^-1 (x - mean)`` with corrected loadings and
            ``Sigma_i`` the covariance of the model with its noise, which shrinks them towards 0 as in probabilistic
            PCA; without ``y``, for the average loadings and noise. They are nearer to the true scores than projections,
            most where MCPCs are similar. For every solver; not if there are as many MCPCs as features.
        batch, covariates : optional
            Those of these rows, as in ``fit``, for scores without the nuisance that the fit removed: rows are centred
            by their batch within their context, and less what its regression on the covariates predicts. Covariates go
            by name. Needs ``y`` and all that the fit has removed. Without them scores contain the nuisance.
        missing : {None, "error", "union"}
            Whether rows may lack features of the fit (columns, or NaN in some rows): "union" takes scores from those
            that are there, by least squares or expected given them, with a ``MissingFeaturesWarning`` that says what it
            costs; "error" refuses. None is "error" unless the model was fitted with ``missing``.

        Returns
        -------
        ndarray (n, r), or a list or dict of them; for rows on a device, arrays of the same kind on that device; for
        Dask rows, a lazy Dask array; for a DataArray, one with its rows and their coordinates and the dimension "mcpc"
        """
        model = fitted_model(self)

        # One matrix at a time through ``_InContainer``, since each has row names of its own.
        takes = takes_missing(model, missing, batch=batch, covariates=covariates)
        scores_of = scores_of_present if takes else scores

        def scores_of_matrix(rows: Any, labels: Any, mean: Any, **nuisance: Any) -> Any:
            result = _InContainer(scores_of(model, rows, labels, mean, posterior, report, **nuisance), self)
            return result.transform(rows) if result.is_chosen or not is_dataarray(rows) else result.of(rows)

        with reporting(self.verbose, "scores") as report:
            return for_each_context(
                model,
                X,
                y,
                center,
                scores_of_matrix,
                report,
                labels_needed=posterior,
                batch=batch,
                covariates=covariates,
            )

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container in which ``transform`` returns scores.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            Arrays, or pandas or polars DataFrames; one per context for a list or dict of contexts. None leaves the
            choice unchanged.
        """
        if transform is not None:
            # The attribute that scikit-learn's own set_output sets, and that ``clone`` copies.
            self._sklearn_output_config = {"transform": transform}
        return self

    def inverse_transform(self, X: Any, y: Any = None, *, center: Any = None) -> Any:
        """Return the rows that have given scores, ``z @ A.T + mean``, with ``y`` and ``center`` as in ``transform``.

        Scores on Dask give a lazy Dask array, those in a DataArray one with the dimension "feature".
        """
        model = fitted_model(self)

        def of_matrix(Z: Any, labels: Any, mean: Any) -> Any:
            if not is_dataarray(Z):
                return rows_from_scores(model, Z, labels, mean)
            _, labels = take_labels(Z, labels)
            return rows_like(Z, rows_from_scores(model, Z.data, labels, mean), model.feature_names)

        with reporting(self.verbose, "scores") as report:
            return for_each_context(
                model,
                X,
                y,
                center,
                of_matrix,
                report,
                labels_needed=False,
            )

    def outlyingness(self, X: Any, y: Any = None) -> Any:
        """Return how far each row is from what the model expects of its context, 1 on average where the model holds.

        The squared Mahalanobis distance ``(x - mean_i)^T Sigma_i^-1 (x - mean_i)``, divided by the number of features,
        for the fitted mean and ``Sigma_i = A B_i A^T`` plus noise. Bad rows stand out most in a model that was fitted
        with ``robust=True``, on which they have little influence. Needs a model of the noise.

        Parameters
        ----------
        X, y
            As for ``transform``. Contexts have to be fitted ones; without ``y``, rows are compared with the overall
            mean and the average loadings and noise.

        Returns
        -------
        ndarray (n,), or a list or dict of them; for rows on a device, an array of the same kind; for Dask rows, a lazy
        Dask array

        Notes
        -----
        Cost O(n p r), O(n p^2) on Dask; rows are read in blocks.
        """
        model = fitted_model(self)

        distances = outlyingness_of_present if takes_missing(model, None) else outlyingness

        def of_matrix(rows: Any, labels: Any, mean: Any) -> Any:
            return distances(model, rows, labels, mean, report)

        with reporting(self.verbose, "outlyingness") as report:
            return for_each_context(model, X, y, None, of_matrix, report, labels_needed=True)

    # New contexts

    def loadings_for(
        self,
        X: Any,
        y: Any = None,
        *,
        corrected: bool = True,
        batch: Any = None,
        covariates: Any = None,
        missing: str | None = None,
    ) -> Array:
        """Return the loadings of new contexts on the fitted MCPCs, comparable with ``corrected_loadings_``.

        Parameters
        ----------
        X : rows (n, p), covariance (p, p), stack (k, p, p), or a list or dict of contexts
            A symmetric (p, p) matrix is read as a covariance and has to be positive semi-definite; any other matrix is
            read as rows.
        y : array-like (n,), str or list of str, optional
            Context label of each row, or the name of a column of labels, as in ``fit``.
        corrected : bool
            Whether to take the noise of the new contexts out of their loadings, as in ``corrected_loadings_``. False
            gives loadings with noise in them, comparable with the ``loadings_`` of a fit without noise.
        batch, covariates : optional
            Of these rows, as in ``fit``: removed within each new context.
        missing : {None, "error", "union"}
            Whether contexts may lack features of the fit, or have NaN in some rows, as in ``transform``: with "union"
            loadings are those of the features that are there, from rows that have both of a pair.

        Returns
        -------
        ndarray (r,) for one context, (k, r) for several (in the order given; with ``y``, sorted by label)

        Notes
        -----
        By non-negative least squares; with ``solver="ml"`` by likelihood. Each new context has a noise of its own, also
        if that of the fit is pooled; what features share (diagonal noise, the profile of scaled noise) stays as fitted.
        With about as many features as rows or more, loadings in new rows are smaller than those in the rows of the fit;
        they are comparable if the model was fitted with ``cross_fit``.
        """
        model = fitted_model(self)
        with reporting(self.verbose, "loadings") as report:
            if takes_missing(model, missing, batch=batch, covariates=covariates):
                return loadings_of_present(model, X, y, corrected, report)
            return loadings_for(model, X, y, corrected, report, batch=batch, covariates=covariates)

    def score(
        self, X: Any, y: Any = None, *, metric: str | None = None, batch: Any = None, covariates: Any = None
    ) -> float:
        """Return how well the model predicts these rows; larger is better.

        Parameters
        ----------
        X, y : as in ``fit``
            Without ``y``, and if the model has several contexts, ``X`` is a new context: it is centred by its own mean,
            and its loadings (and isotropic noise) are fitted to these rows.
        metric : {"covariance", "likelihood"}, optional
            "covariance" is the share of squared covariance that is predicted, at most 1:
            ``1 - sum_i ||S_i - C_i||_F^2 / sum_i ||S_i||_F^2``. Here ``S_i`` is the second moment of the rows about the
            fitted mean of their context, and ``C_i`` the covariance of the model, ``A diag(b_i) A^T`` plus the fitted
            noise if it has any. On new rows this is a fair test, even with one row per context, and models of all
            solvers can be compared by it. "likelihood" is the mean log-likelihood of a row, given the fitted mean,
            corrected loadings and noise of its context; it needs fewer MCPCs than features. None means "likelihood" for
            a fit with noise and "covariance" for any other: two different quantities.
        batch, covariates : optional
            Of these rows, as in ``fit``: removed within each context of these rows. ``S_i`` is then their covariance
            about what that leaves, and contexts need as many rows as for a fit.

        Notes
        -----
        A model that was fitted with ``missing`` takes rows that lack features, and both metrics are over what is there.
        """
        model = fitted_model(self)
        with reporting(self.verbose, "score") as report:
            if takes_missing(model, None, batch=batch, covariates=covariates):
                return score_of_present(model, X, y, metric, report)
            return predictive_score(model, X, y, metric, report, batch=batch, covariates=covariates)

    # Covariances

    def covariances(
        self,
        X: Any = None,
        y: Any = None,
        *,
        shrink: Any = None,
        groups: Any = None,
        batch: Any = None,
        covariates: Any = None,
        random_state: Any = None,
        rng: Any = None,
    ) -> ShrunkCovariances:
        """Return a covariance for each context: the model's, or with rows the best mixture of it with theirs.

        The model has rank r and noise, which is for comparing contexts. Where a covariance itself is needed, as for
        Mahalanobis distances, discriminants or portfolios, ``covariances(X, y)`` is closer to that of new rows than the
        context's own covariance, the pooled one, the model or the identity: it is a weighted sum of these four, with
        weights for each context. They are those of least squared error, in closed form: the errors of own covariances
        are known from fourth moments of the rows, and how far the model follows them is measured in two halves of the
        rows.

        Parameters
        ----------
        X, y : optional
            The rows that the model was fitted on, in any form that ``fit`` takes, at least 4 in every context. Without,
            covariances are those of the model, ``A diag(b_i) A^T`` with corrected loadings, plus noise.
        shrink : {"auto"}, dict or array-like (4,) or (k, 4), optional
            Weights of the context's own covariance, the pooled one, the model and the identity times the context's mean
            variance: ``{"own": 0.5, "model": 0.5}``, or an array in this order. "auto", the default where rows are
            given, finds them for each context; they are not negative and add up to 1. For given weights rows may be
            others than those of the fit, but with its contexts.
        groups : labels (n,), str or list of str, optional
            Which rows were sampled together, as in ``fit``: halves and errors are then by groups. Every context needs
            two.
        batch, covariates : optional
            Those that the model was fitted with: what they explain is removed from the rows.
        random_state, rng : int, Generator, SeedSequence, BitGenerator or None
            Determines the split into halves.

        Returns
        -------
        ShrunkCovariances
            ``covariances`` (k, p, p) in the order of ``contexts_``, and the ``weights`` (k, 4).

        Notes
        -----
        Weights found take one fit to each half of the rows, two passes over all of them and O(k p^2 r): as long as two
        or three fits. Memory two stacks (k, p, p). Covariances of rows are about the mean of their context. They are as
        they are also where the model is robust: outlying rows count in full.
        """
        model = fitted_model(self)
        # Halves are fitted as this model was, also if its loadings were cross-fitted.
        unfitted = self._unfitted().set_params(cross_fit=self.cross_fit)
        with reporting(self.verbose, "covariances") as report:
            return shrunk_covariances(
                model,
                unfitted,
                X,
                y,
                shrink,
                one_random_state(rng, random_state),
                report,
                groups=groups,
                batch=batch,
                covariates=covariates,
            )

    # Quality

    def reconstruction_error(self, per: str | None = None) -> Any:
        """Return the average reconstruction error ``(1/k) sum_i ||S_i - A B_i A^T||_F^2`` of the fitted covariances.

        Minimising it amounts to finding the closest partially symmetric tensor of rank r. ``per="context"`` returns the
        k terms ``||S_i - A B_i A^T||_F^2``; divide them by ``squared_norms()`` for relative errors.
        """
        return facet_measures.reconstruction_error(self._measured(), per)

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` of each context, the yardstick for the error and the variance explained.

        If the fit read the rows in passes (``n_passes_``), these are estimates from random directions with the standard
        errors ``squared_norm_errors()``, and the reconstruction error, which is computed from them, is an estimate too.
        """
        return self._measured().in_units("squared_norms")

    def squared_norm_errors(self) -> Array:
        """Return the standard error of each of ``squared_norms()``; 0 if they are exact."""
        return self._measured().in_units("squared_norm_errors")

    def variance_explained(self, per: str | None = None) -> Any:
        """Return the average squared variance explained, ``(1/k) sum_i ||S_i||_F^2 - ||S_i - A B_i A^T||_F^2``.

        If the loadings are those of least squares and none is held at 0, this is the paper's average of
        ``||P(S_i)||_F^2``, P being the projection onto ``span{a_j a_j^T}``. Together with ``reconstruction_error`` it
        always adds up to the average of ``squared_norms``. ``per="context"`` returns the k terms. ``per="component"``
        returns r shares that add up to the average: the share of MCPC j is the average over contexts of
        ``b_ij a_j^T S_i a_j``, or ``(a_j^T S_i a_j)^2`` for orthogonal MCPCs. (With ``solver="ml"``, whose loadings are
        not those of least squares, it is ``b_ij (2 a_j^T S_i a_j - sum_l b_il (a_j . a_l)^2)``, which may be negative.)
        """
        return facet_measures.variance_explained(self._measured(), per)

    def explained_share(self, per: str | None = None) -> Any:
        """Return the share of squared covariance explained: in all contexts, or with ``per="context"`` in each (k,).

        ``1 - ||S_i - A B_i A^T||_F^2 / ||S_i||_F^2``, for all contexts with both norms summed over them; NaN if nothing
        varies. If the fit read the rows in passes, this is an estimate with the standard error
        ``explained_share_error``.
        """
        return facet_measures.explained_share(self._measured(), per)[0]

    def explained_share_error(self, per: str | None = None) -> Any:
        """Return the standard error of ``explained_share``; 0 if that is exact."""
        return facet_measures.explained_share(self._measured(), per)[1]

    def offdiagonal_correlation(self, per: str | None = None, *, normalized: bool = False) -> Any:
        """Return the correlation that projection leaves, ``sum_i ||offdiag(A^+ S_i A^+T)||_F^2``.

        It is 0 if the scores are uncorrelated in every context. ``per="context"`` returns the k terms.
        ``normalized=True`` returns instead the root mean square correlation between two different scores, averaged over
        contexts, which has no units.
        """
        return facet_measures.offdiagonal_correlation(self._measured(), per, normalized)

    def likelihood_loss(self, per: str | None = None) -> Any:
        """Return the common log-likelihood loss, ``sum_i log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``.

        Each term is twice the Kullback-Leibler divergence between the Gaussian models of the scores with and without
        correlations, and 0 if the scores are uncorrelated in that context. It is infinite if the covariance of the
        scores is singular, as with fewer than r + 1 samples or an MCPC that does not vary in the context.
        ``per="context"`` returns the k terms.
        """
        return facet_measures.likelihood_loss(self._measured(), per)

    def _measured(self) -> Facets:
        return fitted_model(self).facets

    def proportional_loadings(self, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
        """Return the pairs of MCPCs that the contexts cannot tell apart: their loadings are proportional.

        Loadings within ``max_degrees`` count as proportional. With ``orthogonal=True`` only equal loadings are
        ambiguous, by the paper's proposition on the orthogonal model, and only such MCPCs are listed. An MCPC without
        loadings is paired with itself.
        """
        model = fitted_model(self)
        return indistinct_loadings(
            model.loadings, max_degrees, orthogonal=model.orthogonal, n_features=model.n_features
        )

    def landscape(self) -> Landscape:
        """Return F, the objective of the paper's power method, at each MCPC, and whether it has a maximum there.

        ``F(a, b)`` is the squared cosine between ``a b^T`` and the span of the leading r right singular vectors of
        ``[S_1 ... S_k]`` (the paper's section "Error analysis"). Each MCPC is taken with the b that is best for it.
        Besides F there are the norm of its gradient on the unit spheres and the largest eigenvalue of its Hessian there
        (the paper's lemma). From the two follows, for each MCPC, whether a local maximum of F is certain to be near,
        and within how many degrees. Climbing from it says which maximum it belongs to, and whether it has one of its
        own: see ``Landscape``.

        For ``solver="mspm"`` this says how far each MCPC stands on its own. Where components depend on the order of
        deflation, or are those that all contexts together share best, they are near maxima of F and not at them, and
        the gradient says how near. Other solvers do not climb F: there it says whether the power method would return
        the same axes.

        No rows are needed: a model keeps the span. It is that of the covariances within the leading directions which
        the fit worked in, r to 3 r of them (all, if there are few features), with contexts combined where there are
        more than 200; and of weighted covariances if contexts were weighted. MCPCs that were kept from a fit of more
        are seen in the span of all of them.

        Returns
        -------
        Landscape

        Notes
        -----
        Cost O(r (q + k)^3) for q leading directions, memory O((q + k)^2); once a model. ``save``, AnnData and reports
        have it, too, unless that is more than a second or two; call this first, and they do.
        """
        return landscape_of(fitted_model(self).space)

    # Uncertainty

    def standard_errors(
        self,
        X: Any = None,
        y: Any = None,
        *,
        kind: str | None = None,
        groups: Any = None,
        batch: Any = None,
        covariates: Any = None,
    ) -> Precision:
        """Return standard errors of the MCPCs and of the loadings.

        For each MCPC, the root mean square angle to the truth, in degrees; for each loading, its standard error. They
        hold for ``solver="ml"`` (other solvers are less accurate: ``bootstrap`` is for them) and for many samples.
        Noise by feature is taken as known.

        Parameters
        ----------
        X, y : optional
            The rows that the model was fitted on, in any form that ``fit`` takes.
        kind : {"sandwich", "model"}, optional
            "sandwich", the default where rows are given: Fisher's information around the spread that the rows show.
            It holds for skewed and heavy-tailed rows, too, and with ``robust=True`` for rows as they were weighted.
            "model", the default without rows: Fisher's information alone, which is right as far as rows are Gaussian,
            and too sure if they have heavier tails.
        groups : labels (n,), str or list of str, optional
            Which rows were sampled together, as in ``fit``: errors are then by the spread between groups
            (cluster-robust), also where a group is in several contexts. Every context needs two groups, and should have
            r + 2 (``FewGroupsWarning``). If every row is a group of its own, this changes nothing.
        batch, covariates : optional
            Those that the model was fitted with.

        Returns
        -------
        Precision
            ``intervals`` makes intervals of the loadings of it.

        Notes
        -----
        Cost O(k r^5 + r^6), and O(n p r + n r^4) for a pass over n rows; memory O(r^4 + n r). With g groups a second
        pass and memory O(g p r).
        """
        model = fitted_model(self)
        with reporting(self.verbose, "standard errors") as report:
            result = standard_errors_of(model, X, y, kind, report, groups=groups, batch=batch, covariates=covariates)
        warn_of_inflation(model)
        return result

    def presence(
        self,
        X: Any = None,
        y: Any = None,
        *,
        alpha: float = 0.05,
        method: str = "fdr",
        groups: Any = None,
        batch: Any = None,
        covariates: Any = None,
    ) -> Presence:
        """Test for every MCPC and context whether the MCPC is present there at all.

        With rows, a one-sided score test of the hypothesis that the loading is zero, by the spread that the rows show:
        it holds for skewed and heavy-tailed rows. Without, a likelihood-ratio test, which takes rows to be Gaussian.
        The MCPCs stay as they are; the other loadings and the noise of the context are refitted. p-values are corrected
        for the number of tests. Needs fewer MCPCs than features, and either the rows or a fit with noise.

        Parameters
        ----------
        X, y : optional
            The rows that the model was fitted on, in any form that ``fit`` takes.
        alpha : float
            Level of ``present``: an MCPC is present if its corrected p-value is at most this.
        method : {"fdr", "holm"}
            Correction: controls the false discovery rate (Benjamini and Hochberg), or the probability of any false
            discovery (Holm).
        groups, batch, covariates : optional
            As in ``standard_errors``: with groups, the test is by the spread between groups and not between rows.

        Returns
        -------
        Presence

        Notes
        -----
        With n rows: cost O(n p r + n r^3), memory O(n r).
        """
        model = fitted_model(self)
        with reporting(self.verbose, "tests of MCPCs") as report:
            return presence_tests(model, X, y, alpha, method, report, groups=groups, batch=batch, covariates=covariates)

    def bootstrap(
        self,
        X: Any,
        y: Any = None,
        n: int = 200,
        *,
        confidence: float = 0.95,
        corrected: bool = True,
        groups: Any = None,
        batch: Any = None,
        covariates: Any = None,
        random_state: Any = None,
        rng: Any = None,
        verbose: Any = None,
    ) -> Bootstrap:
        """Resample the rows of each context, fit again, and measure how much the answer changes.

        Parameters
        ----------
        X, y
            The rows that the model was fitted on.
        n : int
            Number of resamples; intervals need some hundreds.
        confidence : float
            Level of the intervals.
        corrected : bool
            Whether loadings are those without noise, ``corrected_loadings_``; False takes ``loadings_``.
        groups : labels (n,), str or list of str, optional
            Which rows were sampled together, as in ``fit``: whole groups are drawn, within each context, or together in
            all contexts that they are in. Every context needs two groups, and should have r + 2 (``FewGroupsWarning``).
        batch, covariates : optional
            Those that the model was fitted with.
        random_state, rng : int, Generator, SeedSequence, BitGenerator or None
            Determines the resamples. The answer does not depend on the number of threads.
        verbose : None, bool or callable
            Progress, as in ``MCPCA``.

        Returns
        -------
        Bootstrap
            Intervals for the loadings, and for each MCPC the angle within which it stays. The MCPCs of each fit are
            matched to those of this model.

        Notes
        -----
        Costs n times as much as ``fit``, with as many fits at a time as BLAS has threads. The rank is not chosen again.
        Intervals for cross-fitted loadings come from subsamples without replacement, because repeated rows make the
        axes of few rows far worse.
        """
        model = fitted_model(self)
        with reporting(verbose, "resamples") as report:
            result = resample(
                model,
                self._unfitted(),
                X,
                y,
                n,
                confidence,
                corrected,
                one_random_state(rng, random_state),
                report,
                groups=groups,
                batch=batch,
                covariates=covariates,
            )
        warn_of_inflation(model)
        return result

    def replicability(
        self,
        X: Any,
        y: Any = None,
        n_splits: int = 10,
        *,
        threshold: float = REPLICATES,
        by: str = "auto",
        groups: Any = None,
        batch: Any = None,
        covariates: Any = None,
        random_state: Any = None,
        rng: Any = None,
        verbose: Any = None,
    ) -> Replicability:
        """Split the rows of each context into halves, fit both, and see which MCPCs both find.

        An MCPC that both halves find would be found again in as many new samples as a half has. At too high a rank,
        some MCPCs are found by one half only; more samples let more of them be found by both. What is new depends on
        what is split: other cells of the same donors, cells of other donors (``groups``), or other contexts
        (``by="contexts"``).

        Parameters
        ----------
        X, y
            The rows that the model was fitted on; at least 4 in every context.
        n_splits : int
            Number of random splits. If there are fewer different ones, all of these are taken, and the result says so.
        threshold : float
            ``|cos|`` between the halves above which an MCPC counts as replicating.
        by : {"auto", "rows", "groups", "contexts"}
            What is split. "auto": groups if they are given, otherwise rows. "groups": halves of the groups of each
            context, with a group on the same side in all contexts that it is in; contexts with a single group take no
            part. "contexts": half of the contexts against the other half, two at least in each; contexts that share a
            group stay together.
        groups : labels (n,), str or list of str, optional
            Which rows were sampled together, as in ``fit``. If every row is a group of its own, rows are split.
        batch, covariates : optional
            Those that the model was fitted with.
        random_state, rng, verbose
            As in ``bootstrap``.

        Returns
        -------
        Replicability
            ``|cos|`` of each MCPC between halves, in the order of ``components_``, with its spread over splits.

        Notes
        -----
        Takes ``2 n_splits`` fits to half of the rows, with the parameters of this model and as many at a time as BLAS
        has threads.
        """
        model = fitted_model(self)
        with reporting(verbose, "halves") as report:
            return replicate(
                model,
                self._unfitted(),
                X,
                y,
                n_splits,
                threshold,
                one_random_state(rng, random_state),
                report,
                by=by,
                groups=groups,
                batch=batch,
                covariates=covariates,
            )

    def keep(
        self,
        which: Any,
        X: Any,
        y: Any = None,
        *,
        batch: Any = None,
        covariates: Any = None,
        verbose: Any = None,
    ) -> Self:
        """Return a model of some of the MCPCs, with loadings fitted again; this one stays as it is.

        Axes stay what they are, beside which others were found; their loadings are those that they have without them.

        Parameters
        ----------
        which : {"replicating", "recommended"}, array of bool (r,), or indices
            The MCPCs to keep. In words: those that ``rank_choice_`` calls so, of a rank that was chosen.
        X, y, batch, covariates
            Those that the model was fitted with.
        verbose
            As in ``MCPCA``.

        Returns
        -------
        MCPCA
            In decreasing order of total variance, as always. Its ``kept_of_`` is the rank of this model: ``bootstrap``
            and ``replicability`` fit as many MCPCs and look for the kept ones among them.

        Notes
        -----
        Takes about two passes over the rows, and no fit.
        """
        model = fitted_model(self)
        indices = chosen_components(which, model.n_components, self.rank_choice_)
        # A solver that was chosen stays.
        parameters = replace(self._checked_parameters(), solver=self.solver_, noise=self.noise_)
        contexts = read_for_keeping(model, parameters, X, y, batch=batch, covariates=covariates)
        with reporting(verbose, "loadings") as report:
            fit = fit_kept(parameters, model, indices, contexts, self.rank_choice_, report)
        kept = type(self)(**{**self._unfitted().get_params(deep=False), "n_components": len(indices)})
        kept.verbose = self.verbose
        return kept._finish(fit)

    def context_dependence(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        batch: Any = None,
        covariates: Any = None,
        n_splits: int = SPLITS,
        n_permutations: int = PERMUTATIONS,
        random_state: Any = None,
        rng: Any = None,
        n_jobs: int | None = None,
        verbose: Any = None,
    ) -> ContextDependence:
        """Test which MCPCs differ between contexts, and which are the same in all of them.

        Axes that are in all contexts alike are what PCA of the pooled rows, centred by context, finds as well; and axes
        that were fitted to contexts without any difference look as if there were some. So axes are fitted to one half
        of the rows of each context, their variances in each context are taken from the other half, and how far these
        differ between contexts is compared with the same number for rows that are permuted over contexts.

        Parameters
        ----------
        X, y
            The rows that the model was fitted on. Contexts with fewer than 4 rows take no part, and the result names
            them.
        groups : labels (n,), str or list of str, optional
            Which rows were sampled together, as in ``fit``. Halves are then halves of the groups, and rows of a group
            are permuted together: a group that is in several contexts trades them among these, and one that is in a
            single context trades it with other such groups. Differences between single donors are then no evidence of
            differences between contexts. Contexts with a single group take no part.
        batch, covariates : optional
            Those that the model was fitted with.
        n_splits : int
            Number of random splits into halves, over which squares of scores are averaged.
        n_permutations : int
            Number of permutations, at least 19; no p-value is below ``1 / (n_permutations + 1)``.
        random_state, rng : int, Generator, SeedSequence, BitGenerator or None
            Determines splits and permutations. The answer does not depend on the number of threads.
        n_jobs : int, optional
            Number of threads for permutations; None and -1 use as many as BLAS may use.
        verbose : None, bool or callable
            Progress, as in ``MCPCA``.

        Returns
        -------
        ContextDependence
            ``p_value`` of the whole, ``p_values`` and ``q_values`` of MCPCs in the order of ``components_``, which are
            ``dependent``, and what that says in words.

        Notes
        -----
        Means of contexts do not matter: rows are centred by context. Their overall scale does, because it is a
        difference between covariances; ``outcome`` is "scale" if that is all. Takes ``2 n_splits`` fits to half of the
        rows, one product of the rows with their axes, and O(n r n_splits) for a permutation, without a fit. Memory
        O(n r n_splits).
        """
        model = fitted_model(self)
        with reporting(verbose, "halves") as report:
            return context_dependence_of_fit(
                model,
                self._unfitted(),
                X,
                y,
                n_splits,
                n_permutations,
                one_random_state(rng, random_state),
                report,
                groups=groups,
                batch=batch,
                covariates=covariates,
                n_jobs=n_jobs,
            )

    def _unfitted(self) -> Self:
        """Return an unfitted model with the same parameters and the rank found here, without progress or cross-fits."""
        # With a given rank, options of the choice are refused unless they are at their defaults. MCPCs that were kept
        # are looked for among as many as they were found with.
        rank = {**RANK_RULE_DEFAULTS, "n_components": self.kept_of_ or self.n_components_}
        # A solver that was chosen is not chosen again in resamples and halves.
        chosen = {} if self.solver_choice_ is None else {"solver": self.solver_, "noise": self.noise_}
        return type(self)(**{**self.get_params(deep=False), **rank, **chosen, "verbose": False, "cross_fit": 0})

    # Files

    def to_xarray(self, like: Any = None) -> Any:
        """Return the fitted model as a Dataset of xarray.

        Parameters
        ----------
        like : DataArray, optional
            Rows with the features of the fit, whose dimension and coordinates the features of the Dataset then have:
            where these were stacked, as ``da.stack(space=("lat", "lon"))``, ``unstack("space")`` makes maps of MCPCs.

        Returns
        -------
        Dataset
            "components" (feature, mcpc), "projection" (mcpc, feature), "loadings" and "corrected_loadings" (context,
            mcpc), "means" (context, feature) and "n_samples" (context,) if they are known, and "noise_variance". Names
            of features, contexts and MCPCs are coordinates. Needs the extra ``xarray``.
        """
        return dataset_of(fitted_model(self), component_names(self), like)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file, atomically: a crash on the way leaves the old file intact.

        The file holds arrays and JSON, no pickle, so loading it cannot run code. A ``random_state`` or ``verbose`` that
        is an object is not saved.
        """
        save_model(saved_model(self), path)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Return the model in a file that ``save`` wrote."""
        return load_model(path, lambda saved: restored(cls, saved, check=True))


def fitted_model(estimator: MCPCA) -> FittedModel:
    """Return the fitted model of an estimator; raise ``NotFittedError`` if it has none."""
    check_is_fitted(estimator)
    return FittedModel(
        components=estimator.components_,
        projection=estimator.projection_,
        loadings=estimator.loadings_,
        corrected_loadings=estimator.corrected_loadings_,
        contexts=estimator.contexts_,
        means=estimator.means_,
        n_samples=estimator.n_samples_per_context_,
        noise_variance=estimator.noise_variance_,
        singular_values=estimator.singular_values_,
        n_iter=estimator.n_iter_,
        n_passes=estimator.n_passes_,
        basis_residual=estimator.basis_residual_,
        basis_error=estimator.basis_error_,
        facets=estimator._facets,
        score_moments=estimator._score_moments,
        # These two attributes exist only if the data had names, or columns of labels.
        feature_names=getattr(estimator, "feature_names_in_", None),
        label_columns=tuple(getattr(estimator, "label_columns_", ())),
        solver=estimator.solver_,
        noise=estimator.noise_,
        orthogonal=bool(estimator.orthogonal),
        missing=estimator.missing,
        degrees_of_freedom=estimator.degrees_of_freedom_,
        attenuation=estimator.attenuation_,
        nuisance=estimator.nuisance_,
        kept_of=estimator.kept_of_,
        preprocess=getattr(estimator, "preprocess_", None),  # estimators pickled before there was one
        space=getattr(estimator, "_space", None),  # estimators pickled before there was one
    )


def saved_model(estimator: MCPCA) -> SavedModel:
    """Return everything about a fitted estimator that files and AnnData keep."""
    model = fitted_model(estimator)
    return SavedModel(estimator.get_params(deep=False), model, estimator.rank_choice_, estimator.solver_choice_)


def restored(cls: type[Estimator], saved: SavedModel, *, check: bool = False) -> Estimator:
    """Return the estimator that ``saved_model`` was called with; ``check`` also checks its parameters.

    Parameters that this version does not have, from a file of a later one, are left out.
    """
    known = cls().get_params(deep=False)
    estimator = cls(**{name: value for name, value in saved.parameters.items() if name in known})
    # No warnings here: those of the fit were issued when it was made.
    estimator._publish(saved.model, saved.rank_choice, saved.solver_choice)
    if check:
        estimator._checked_parameters()
    return estimator


class _InContainer(TransformerMixin, BaseEstimator):
    """Returns the scores of one matrix in the container that ``set_output`` or scikit-learn's configuration names.

    scikit-learn wraps the ``transform`` of every transformer, for one matrix in and one matrix out. ``MCPCA``, which
    also turns a list of contexts into a list of scores, opts out (``auto_wrap_output_keys=None``) and passes each
    matrix through this transformer, so that the wrapping itself remains scikit-learn's.
    """

    def __init__(self, scores: Any, model: MCPCA) -> None:
        self.scores = scores
        self.model = model
        # A model that never called ``set_output`` has no such attribute, and follows scikit-learn's global
        # configuration.
        config = getattr(model, "_sklearn_output_config", {})
        self.set_output(transform=config.get("transform"))
        self.is_chosen = config.get("transform", get_config()["transform_output"]) != "default"

    def transform(self, X: Any) -> Any:
        """Return the scores of ``X``, which is only there for the wrapping: it has the index of the rows."""
        return self.scores

    def of(self, X: Any) -> Any:
        """Return the scores of a DataArray as one."""
        return scores_like(X, self.scores, component_names(self.model))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        names: Array = self.model.get_feature_names_out(input_features)
        return names


def _refuse_rows_options(what: str, kind: str, y: Any, checkpoint: Any, annotations: dict[str, Any]) -> None:
    """Raise if options that concern rows are set for input that has no rows."""
    if y is not None:
        verb = "takes" if kind == "covariances" else "take"
        raise ValueError(f"{what} which {verb} no y; drop y.")
    refuse_without_effect("checkpoint", checkpoint, None, f"{kind} take no pass over rows", "drop it")
    for name, value in annotations.items():
        to_update = kind == "moments" and name != "groups"
        way_out = "pass it to ContextMoments.update, with the rows" if to_update else "drop it"
        refuse_without_effect(name, value, None, f"it is about rows, and {kind} have none", way_out)
