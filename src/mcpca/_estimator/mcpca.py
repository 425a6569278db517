"""``MCPCA``, the estimator: parameters in, fitted attributes out, and every method a few lines over a plain function.

The functions take a ``FittedModel`` (``_model.fitted_model``): an estimator is taken apart by ``fitted_model`` and put
together by ``_publish``, here and nowhere else, so that no other module reads its private attributes. Fitting is in
``fitting``, parameters are checked in ``parameters``, files are in ``persistence``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._covariances.moments import ContextMoments
from .._inference.bootstrap import Bootstrap, resample
from .._inference.precision import Precision, standard_errors_of
from .._inference.presence import Presence, presence_tests
from .._inference.replication import REPLICATES, Replicability, replicate
from .._model import facet_measures
from .._model.dominance import warn_of_dominance
from .._model.facets import Facets
from .._model.fitted_model import FittedModel
from .._model.identifiability import DEFAULT_DEGREES, ProportionalPair, indistinct_loadings, warn_if_proportional
from .._model.new_contexts import loadings_for, predictive_score
from .._model.scores import over_contexts, rows_from_scores, scores
from .._rank.paper_rule import RankChoice
from .._rank.selection import RankSelection
from .._utils.arguments import refuse_without_effect
from .._utils.array_api import is_device_array, to_host
from .._utils.component_names import component_names
from .._utils.progress import reporting
from .._utils.types import Array
from .chunks_of_rows import add_chunk
from .fitting import Fit, feature_names, fit_covariances, fit_moments, fit_rows
from .parameters import RANK_RULE_DEFAULTS, Parameters
from .persistence import SavedModel, load_model, save_model

Estimator = TypeVar("Estimator", bound="MCPCA")


class MCPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Multi-context principal component analysis.

    Finds axes that explain variation in subsets of contexts, and how much of each axis every context carries:
    ``Cov(X_i) ~ A diag(b_i) A^T`` for contexts i = 1..k, with A shared (unit columns, not orthogonal) and b_i >= 0.

    Parameters
    ----------
    n_components : int or None
        Rank r, 1 <= r <= n_features. None chooses it as ``select_rank`` does, and raises ``NothingAboveNoiseError``
        where nothing is above noise. Contexts with fewer than 4 rows have no say in it (``SmallContextsWarning``).
        Where rows are too few to tell anything from noise the rank is 1, and where halves of the rows agree at no rank
        it is that at which they agree best, both with an ``UncertainRankWarning``. With ``rank_range`` the paper's
        rule, ``choose_rank``, takes its place; covariances without ``n_samples`` need that, or a rank.
    solver : {"mspm", "lsq", "ml"}
        "mspm": the paper's multi-subspace power method, then non-negative least squares for the loadings. "lsq": a
        stationary point of the squared error. "ml": maximum likelihood in a Gaussian model with noise. The guide in
        ``docs/solvers.md`` says when to prefer which.
    orthogonal : bool
        Orthonormal MCPCs: by least squares with "mspm" and "lsq", by likelihood with "ml".
    noise : {"isotropic", "pooled", "diagonal", None}
        For "ml": one variance per context, one for all, one per feature shared by all contexts, or none. Refused with
        other solvers: a grid over both is a list of dicts, one without ``noise`` and one with ``solver=["ml"]``.
    context_weights : array-like (k,) or dict {context: weight}, optional
        Positive weights of contexts in the squared error; with "ml", whose weights are the numbers of rows, they
        multiply those. In the order of ``contexts_``.
    rank_range : iterable of int, optional
        Candidates for the paper's rule, ``choose_rank``, with ``n_components=None``; refused with a rank.
    n_seed_pairs, cos_sim_threshold : int, float
        The paper's rule; the second also of ``select_rank``, for agreement between halves of the rows. Refused where no
        rule asks for them.
    random_state : int, Generator, RandomState or None
        Decides every random number. NumPy's global generator is never touched.
    tol, max_iter : float, int
        Convergence of the solver (see ``decompose``), and its second-order steps.
    verbose : None, bool or callable
        Progress on stderr, of ``fit`` and of what the model does later. None: on a terminal and in a notebook, from the
        third second of a call on. True: always. False: never. A function is called with (stage, done, total), ``done``
        never falling in a stage. For ``clone`` it must be one that can be copied, as functions can and objects with a
        stream cannot; for worker processes one of a module.

    Attributes
    ----------
    components_ : ndarray (n_features, r)
        A, the MCPCs: unit columns, ordered by total variance over contexts, the largest entry of each positive.
        (The paper's orientation; ``projection_`` is what scikit-learn's PCA calls ``components_``.)
    loadings_ : ndarray (k, r)
        B >= 0, the variance of each MCPC in each context.
    projection_ : ndarray (r, n_features)
        ``pinv(A)``, which turns a centred row into scores.
    n_components_, r_ : int
        The rank.
    rank_choice_ : RankSelection, RankChoice or None
        What is behind the rank when it was chosen, by ``select_rank`` or by ``choose_rank``.
    contexts_ : ndarray (k,)
        Names of the contexts, the rows of ``loadings_``.
    means_ : ndarray (k, n_features) or None
        Mean of each context; None after ``fit_covariances``.
    n_samples_per_context_ : ndarray (k,) or None
    moments_ : ContextMoments
        After ``partial_fit``: what is known of all rows so far.
    noise_variance_ : ndarray or None
        With ``solver="ml"``: the variance beside the MCPCs, (k,) for isotropic and pooled noise (then all alike), (p,)
        for diagonal noise.
    singular_values_ : ndarray
        The scree: singular values of ``[S_1 ... S_k]``.
    n_iter_ : int
    n_passes_ : int or None
        Passes over the rows, where the fit went by passes; None where covariances were an array.
    basis_residual_ : float
        How well the leading directions are known after these passes: the largest residual of an eigenvector of
        ``sum_i S_i S_i``, as a share of the smallest eigenvalue that counts; 0 where they were computed exactly.
    n_features_in_ : int
    feature_names_in_ : ndarray (n_features,)
        When the input has names, of columns or of an AnnData's ``var``: features go by them wherever rows are met
        again. Columns called 0, 1, ..., p - 1 have none.
    label_columns_ : list of str
        When labels were columns of a DataFrame: these are left out wherever they are met again.

    Notes
    -----
    Cost O(n p^2) for the covariances, O(k p^3) for the basis; memory the (k, p, p) stack and little more. float32
    rows keep the stack in float32; the basis, the solver and the loadings work in float64, and the results are float32.
    One context gives PCA's answer, up to sign.

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

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: str = "mspm",
        orthogonal: bool = False,
        noise: str | None = "isotropic",
        context_weights: Any = None,
        rank_range: Any = None,
        n_seed_pairs: int = 5,
        cos_sim_threshold: float = 0.8,
        random_state: Any = None,
        tol: float = 1e-7,
        max_iter: int = 200,
        verbose: Any = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.orthogonal = orthogonal
        self.noise = noise
        self.context_weights = context_weights
        self.rank_range = rank_range
        self.n_seed_pairs = n_seed_pairs
        self.cos_sim_threshold = cos_sim_threshold
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    # Fitting

    def fit(self, X: Any, y: Any = None, *, checkpoint: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : list or tuple of arrays; dict or Series {name: array}; one matrix; (k, p, p) stack; ``ContextMoments``
            Rows of each context, all with the same features (DataFrames are aligned by name); or one matrix of rows,
            with ``y``; or a 3-D stack of covariances, as for ``fit_covariances``. A matrix is a 2-D array or memory
            map, DataFrame, SciPy sparse matrix, AnnData (also backed), dataset of HDF5 or Zarr, a function that
            returns an iterator of blocks of rows, or a Dask array or DataFrame, whose rows stay on the workers. Arrays
            of PyTorch, CuPy or JAX stay on their device (extra ``devices``), and the fitted arrays are of their kind.
        y : array-like (n,), str or list of str, optional
            Context label of each row of one matrix; with Dask also a Dask array or Series. A Series of pandas goes by
            its index where the rows have one (a DataFrame's, an AnnData's ``obs_names``). The name of a
            column of a DataFrame (pandas, polars, Dask), which is then no feature, or of an AnnData's ``obs``; a list
            of names crosses columns, and contexts are then called "a / b". Labels are text, numbers, dates, bytes, or
            tuples of these. Without it ``X`` is one context.
        checkpoint : path, optional
            A file for what has been done, where the fit goes by passes over the rows: a fit that was killed goes on
            from there when called again with the same arguments, and gives the same answer; other rows, labels or
            parameters are refused. The file is deleted at the end. Where data are so small that there are no passes it
            is not needed, and none is written.
        """
        if (isinstance(X, np.ndarray) or is_device_array(X)) and X.ndim == 3:
            _refuse_rows_options(f"X has shape {X.shape}, a stack of covariances,", "covariances", y, checkpoint)
            return self.fit_covariances(X)
        parameters = self._checked_parameters()
        if isinstance(X, ContextMoments):
            _refuse_rows_options("X holds moments of contexts,", "moments", y, checkpoint)
            with reporting(self.verbose, "fit") as report:
                return self._finish(fit_moments(parameters, X, (), report))
        with reporting(self.verbose, "reading rows") as report:
            return self._finish(fit_rows(parameters, X, y, checkpoint, report))

    def fit_covariances(
        self, S: Any, n_samples: Any = None, feature_names: Any = None, context_names: Any = None
    ) -> Self:
        """Fit from second moments only.

        Parameters
        ----------
        S : array-like (k, p, p), list or dict {context: covariance}
            Covariances: finite, symmetric, positive semi-definite. Tables of pandas are aligned by name.
        n_samples : int or array-like (k,), optional
            Rows behind each; kept as ``n_samples_per_context_``. A Series goes by the names of contexts.
        feature_names, context_names : sequences of length p and k, optional
        """
        parameters = self._checked_parameters()
        with reporting(self.verbose, "fit") as report:
            return self._finish(fit_covariances(parameters, S, n_samples, feature_names, context_names, report))

    def partial_fit(self, X: Any, y: Any = None, *, allow_duplicates: bool = False) -> Self:
        """Add a chunk of rows to those seen so far, and fit the model to all of them.

        Only moments are kept (``moments_``, O(k p^2)), so that rows come in any number of chunks, in any order, and the
        model is that of ``fit`` on all of them. Contexts may appear later. While a context has a single row, or the
        rows vary in fewer directions than ``n_components``, chunks are only added. Every call costs O(n p^2) for its
        chunk and a decomposition; to add many chunks first, update a ``ContextMoments`` and pass it to ``fit``.

        Parameters
        ----------
        X, y
            As for ``fit``; a chunk that is refused changes nothing.
        allow_duplicates : bool
            Whether rows that were added before may be added again; they then count twice.
        """
        parameters = self._checked_parameters()
        before = getattr(self, "moments_", None)
        columns = tuple(getattr(self, "label_columns_", ()))
        with reporting(self.verbose, "moments") as report:
            added = add_chunk(parameters, before, columns, X, y, allow_duplicates, report)
            if added.fit is not None:
                self._finish(added.fit)
            else:
                self._set_features(added.moments.means.shape[1], feature_names(added.moments.feature_names))
                self._set_label_columns(added.label_columns)
            self.moments_ = added.moments
        return self

    def _checked_parameters(self) -> Parameters:
        return Parameters(**self.get_params(deep=False)).checked()

    def _finish(self, fit: Fit) -> Self:
        """Become the fitted model, and warn of what makes it doubtful."""
        self._publish(fit.model, fit.rank_choice)
        model = fit.model
        names = component_names(self)
        warn_if_proportional(to_host(model.loadings), names, orthogonal=model.orthogonal, n_features=model.n_features)
        warn_of_dominance(fit.dominance, model.feature_names)
        return self

    def _publish(self, model: FittedModel, rank_choice: RankSelection | RankChoice | None) -> None:
        """Set all fitted attributes; those of an earlier fit are gone, also where this one has none of the kind."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self._set_features(model.n_features, model.feature_names)
        self._set_label_columns(model.label_columns)
        self.components_ = model.components
        self.loadings_ = model.loadings
        self.projection_ = model.projection
        self.n_components_ = model.n_components
        self.rank_choice_ = rank_choice
        self.contexts_ = model.contexts
        self.means_ = model.means
        self.n_samples_per_context_ = model.n_samples
        self.noise_variance_ = model.noise_variance
        self.singular_values_ = model.singular_values
        self.n_iter_ = model.n_iter
        self.n_passes_ = model.n_passes
        self.basis_residual_ = model.basis_residual
        self._facets = model.facets
        self._score_moments = model.score_moments

    def _set_features(self, p: int, names: Array | None) -> None:
        """Set what scikit-learn's ``validate_data`` would set; unlike it, names need not be strings."""
        self.n_features_in_ = p
        if names is not None:
            self.feature_names_in_ = names

    def _set_label_columns(self, columns: tuple[str, ...]) -> None:
        if columns:
            self.label_columns_ = list(columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def r_(self) -> int:
        """The rank, by the paper's name; known after ``fit``."""
        if not hasattr(self, "n_components_"):
            raise NotFittedError("MCPCA.r_ is known once the model has seen data: call fit(X_list) first.")
        return self.n_components_

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    # Scores

    def transform(self, X: Any, y: Any = None, *, center: Any = None, posterior: bool = False) -> Any:
        """Return the scores of rows on the MCPCs: ``(x - mean) @ pinv(A).T``.

        Parameters
        ----------
        X : one matrix, in any form that ``fit`` takes; or a list or dict of contexts
            A list must have one entry per fitted context, in their order; a dict goes by name. They give a list or
            dict of scores.
        y : array-like (n,), str or list of str, optional
            Context label of each row, or the name of a column with them, as in ``fit`` (also by index): rows are
            centred by the mean of their own context, looked up by label.
        center : None, "overall", "own", array (n_features,) or dict {label: array}
            None is the context's fitted mean where contexts are known (by ``y``, list or dict), and the overall mean
            of the fitted rows otherwise, which keeps differences between contexts visible. "own" centres each context
            by its mean in ``X``: the way for contexts that ``fit`` has not seen, as is an explicit mean.
        posterior : bool
            With ``solver="ml"``: the expected scores given the row, ``B_i A^T Sigma_i^-1 (x - mean)``, which shrink
            towards 0 by the noise as in probabilistic PCA; without ``y``, by the average loadings and noise.

        Returns
        -------
        ndarray (n, r), or a list or dict of them; for rows on a device arrays of the same kind there, for rows on Dask
        a Dask array that is computed when asked for
        """
        model = fitted_model(self)

        def scores_of_matrix(rows: Any, labels: Any, mean: Any) -> Any:
            in_container = _InContainer(lambda X: scores(model, X, labels, mean, posterior, report), self)
            return in_container.transform(rows)

        with reporting(self.verbose, "scores") as report:
            return over_contexts(model, X, y, center, scores_of_matrix, report, labels_needed=posterior)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` returns scores in.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            Arrays, or DataFrames of pandas or polars; for a list or dict of contexts one for each. None leaves the
            choice as it is.
        """
        if transform is not None:
            # The attribute that scikit-learn's own set_output has, and that ``clone`` copies.
            self._sklearn_output_config = {"transform": transform}
        return self

    def inverse_transform(self, X: Any, y: Any = None, *, center: Any = None) -> Any:
        """Return rows with the given scores: ``z @ A.T + mean``; ``y`` and ``center`` as in ``transform``.

        Scores on Dask give a Dask array, which is computed when asked for.
        """
        model = fitted_model(self)
        with reporting(self.verbose, "scores") as report:
            return over_contexts(
                model,
                X,
                y,
                center,
                lambda Z, labels, mean: rows_from_scores(model, Z, labels, mean),
                report,
                labels_needed=False,
            )

    # New contexts

    def loadings_for(self, X: Any, y: Any = None) -> Array:
        """Return the loadings of new contexts on the fitted MCPCs.

        Parameters
        ----------
        X : rows (n, p), covariance (p, p), stack (k, p, p), or a list or dict of contexts
            A symmetric, positive semi-definite (p, p) matrix is read as a covariance, any other matrix as rows.
        y : array-like (n,), str or list of str, optional
            Context label of each row, or the name of a column with them, as in ``fit``.

        Returns
        -------
        ndarray (r,) for one context, (k, r) for several (in the order given; sorted by label with ``y``)

        Notes
        -----
        By non-negative least squares, or with ``solver="ml"`` by likelihood, each new context with a noise of its own
        (diagonal noise stays as fitted).
        """
        model = fitted_model(self)
        with reporting(self.verbose, "loadings") as report:
            return loadings_for(model, X, y, report)

    def score(self, X: Any, y: Any = None, *, metric: str | None = None) -> float:
        """Return how well the model predicts these rows; larger is better.

        Parameters
        ----------
        X, y : as in ``fit``
            Without ``y``, where the model has several contexts, ``X`` is a new context, centred by its own mean, on
            which the loadings (and isotropic noise) are fitted.
        metric : {"covariance", "likelihood"}, optional
            "covariance" is the share of squared covariance that is predicted, 1 at best:
            ``1 - sum_i ||S_i - C_i||_F^2 / sum_i ||S_i||_F^2``, with ``S_i`` the second moment of the given rows about
            the fitted mean of their context and ``C_i`` the covariance of the model, ``A diag(b_i) A^T`` and, where it
            has noise, the noise as fitted: on new rows an honest test, also with one row in a context, and one number
            by which models of any solver compare. "likelihood" is the mean log-likelihood of a row, given the fitted
            mean, loadings and noise of its context; for ``solver="ml"`` with noise. None takes "likelihood" there and
            "covariance" elsewhere: two quantities.
        """
        model = fitted_model(self)
        with reporting(self.verbose, "score") as report:
            return predictive_score(model, X, y, metric, report)

    # Quality

    def reconstruction_error(self, per: str | None = None) -> Any:
        """Return the average reconstruction error ``(1/k) sum_i ||S_i - A B_i A^T||_F^2`` of the fitted covariances.

        Minimising it is finding the closest rank-r partially symmetric tensor. ``per="context"`` gives the k terms
        ``||S_i - A B_i A^T||_F^2``; divide by ``squared_norms()`` for relative ones.
        """
        return facet_measures.reconstruction_error(self._measured(), per)

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` of each context: the yardstick for the error and the variance explained.

        Where the fit went by passes over the rows (``n_passes_``) these are estimates from random directions, with the
        standard errors ``squared_norm_errors()``, and so is what is made of them, the reconstruction error.
        """
        return self._measured().in_units("squared_norms")

    def squared_norm_errors(self) -> Array:
        """Return the standard error of each of ``squared_norms()``; 0 where they are exact."""
        return self._measured().in_units("squared_norm_errors")

    def variance_explained(self, per: str | None = None) -> Any:
        """Return the average squared variance explained, ``(1/k) sum_i ||S_i||_F^2 - ||S_i - A B_i A^T||_F^2``.

        Where the loadings are those of least squares and none is held at 0, this is the paper's ``||P(S_i)||_F^2``, P
        being the projection on ``span{a_j a_j^T}``; it adds up with ``reconstruction_error`` to ``squared_norms``
        always. ``per="context"`` gives the k terms. ``per="component"`` gives r shares that add up to the average:
        MCPC j has the average over contexts of ``b_ij a_j^T S_i a_j``, for orthogonal MCPCs ``(a_j^T S_i a_j)^2``.
        (With ``solver="ml"``, whose loadings are not those of least squares,
        ``b_ij (2 a_j^T S_i a_j - sum_l b_il (a_j . a_l)^2)``, which may be negative.)
        """
        return facet_measures.variance_explained(self._measured(), per)

    def explained_share(self, per: str | None = None) -> Any:
        """Return the share of squared covariance that is explained: of all contexts, or ``per="context"`` of each (k,).

        ``1 - ||S_i - A B_i A^T||_F^2 / ||S_i||_F^2``, in total with sums above and below; NaN for what does not vary.
        An estimate with the standard error ``explained_share_error`` where the fit went by passes over the rows.
        """
        return facet_measures.explained_share(self._measured(), per)[0]

    def explained_share_error(self, per: str | None = None) -> Any:
        """Return the standard error of ``explained_share``; 0 where that is exact."""
        return facet_measures.explained_share(self._measured(), per)[1]

    def offdiagonal_correlation(self, per: str | None = None, *, normalized: bool = False) -> Any:
        """Return the correlation left after projection, ``sum_i ||offdiag(A^+ S_i A^+T)||_F^2``.

        Zero when the scores are uncorrelated in every context. ``per="context"`` gives the k terms. ``normalized=True``
        gives instead the root mean square correlation between two different scores (average over contexts), which has
        no units.
        """
        return facet_measures.offdiagonal_correlation(self._measured(), per, normalized)

    def likelihood_loss(self, per: str | None = None) -> Any:
        """Return the common log-likelihood loss, ``sum_i log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``.

        Twice the Kullback-Leibler divergence between the Gaussian models of the scores with and without correlations;
        0 when they are uncorrelated in every context. Infinite where the scores of a context have a singular
        covariance, as with fewer than r + 1 samples or an MCPC that does not vary there. ``per="context"`` gives the k
        terms.
        """
        return facet_measures.likelihood_loss(self._measured(), per)

    def _measured(self) -> Facets:
        return fitted_model(self).facets

    def proportional_loadings(self, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
        """Return pairs of MCPCs whose loadings are proportional up to ``max_degrees``: not identifiable apart.

        With ``orthogonal=True`` only those whose loadings are equal are, by the paper's proposition on the orthogonal
        model, and proportional ones are not listed. An MCPC without loadings is paired with itself.
        """
        model = fitted_model(self)
        return indistinct_loadings(
            model.loadings, max_degrees, orthogonal=model.orthogonal, n_features=model.n_features
        )

    # Uncertainty

    def standard_errors(self) -> Precision:
        """Return standard errors from Fisher's information of the fitted model.

        For each MCPC the root mean square angle to the truth, in degrees; for each loading its standard error. They
        hold for ``solver="ml"`` (others are less accurate than that), for many samples, and as far as the Gaussian
        model does; ``bootstrap`` asks the rows instead. Diagonal noise is taken as known.

        Notes
        -----
        Cost O(k r^5 + r^6), memory O(r^4).
        """
        model = fitted_model(self)
        with reporting(self.verbose, "standard errors"):
            return standard_errors_of(model)

    def presence(self, *, alpha: float = 0.05, method: str = "fdr") -> Presence:
        """Test for every MCPC and context whether the MCPC is there at all.

        A likelihood-ratio test of a zero loading, the end of its range, with the other loadings and the noise of the
        context fitted anew and the MCPCs as they are; corrected for the number of tests. Needs ``solver="ml"``.

        Parameters
        ----------
        alpha : float
            Level at which ``present`` is told.
        method : {"fdr", "holm"}
            Correction: the share of false discoveries (Benjamini and Hochberg), or the chance of a single one (Holm).
        """
        model = fitted_model(self)
        with reporting(self.verbose, "tests of MCPCs") as report:
            return presence_tests(model, alpha, method, report)

    def bootstrap(
        self,
        X: Any,
        y: Any = None,
        n: int = 200,
        *,
        confidence: float = 0.95,
        random_state: Any = None,
        verbose: Any = None,
    ) -> Bootstrap:
        """Resample the rows of each context, fit again, and see how far the answer moves.

        Parameters
        ----------
        X, y
            The rows that the model was fitted on.
        n : int
            Resamples. Intervals need some hundreds.
        confidence : float
            Level of the intervals.
        random_state : int, Generator, RandomState or None
            Decides the resamples; the answer does not depend on the number of threads.
        verbose : None, bool or callable
            Progress, as in ``MCPCA``.

        Returns
        -------
        Bootstrap
            Intervals for the loadings, and for each MCPC the angle within which it stays. Fits are matched to this
            model's MCPCs.

        Notes
        -----
        n times the cost of ``fit``, as many fits at a time as BLAS has threads. The rank stays as it is.
        """
        model = fitted_model(self)
        with reporting(verbose, "resamples") as report:
            return resample(model, self._unfitted(), X, y, n, confidence, random_state, report)

    def replicability(
        self,
        X: Any,
        y: Any = None,
        n_splits: int = 10,
        *,
        threshold: float = REPLICATES,
        random_state: Any = None,
        verbose: Any = None,
    ) -> Replicability:
        """Split the rows of each context into halves, fit both, and see which MCPCs both find.

        An MCPC that comes back in the other half would come back in as many new samples as a half has. At a rank that
        is too high some do not, and the more samples, the more do.

        Parameters
        ----------
        X, y
            The rows that the model was fitted on; at least 4 in every context.
        n_splits : int
            Random splits.
        threshold : float
            ``|cos|`` between the halves from which on an MCPC counts as replicating.
        random_state, verbose
            As in ``bootstrap``.

        Returns
        -------
        Replicability
            ``|cos|`` of each MCPC between halves, in the order of ``components_``, with its spread over splits.

        Notes
        -----
        ``2 n_splits`` fits of half the rows with this model's parameters, as many at a time as BLAS has threads.
        """
        model = fitted_model(self)
        with reporting(verbose, "halves") as report:
            return replicate(model, self._unfitted(), X, y, n_splits, threshold, random_state, report)

    def _unfitted(self) -> Self:
        """Return a model with the same parameters and this rank, to be fitted to other rows in silence."""
        rank = {**RANK_RULE_DEFAULTS, "n_components": self.n_components_}
        return type(self)(**{**self.get_params(deep=False), **rank, "verbose": False})

    # Files

    def save(self, path: Any) -> None:
        """Write the fitted model to one file, atomically: a crash on the way leaves the old file.

        The file holds arrays and JSON and no pickle, so loading it can run no code. A ``random_state`` or ``verbose``
        that is an object is not kept.
        """
        save_model(saved_model(self), path)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read a model that ``save`` wrote."""
        return load_model(path, lambda saved: restored(cls, saved, check=True))


def fitted_model(estimator: MCPCA) -> FittedModel:
    """Return what an estimator was fitted to, or raise where it was not: the one way to a model's insides."""
    check_is_fitted(estimator)
    return FittedModel(
        components=estimator.components_,
        projection=estimator.projection_,
        loadings=estimator.loadings_,
        contexts=estimator.contexts_,
        means=estimator.means_,
        n_samples=estimator.n_samples_per_context_,
        noise_variance=estimator.noise_variance_,
        singular_values=estimator.singular_values_,
        n_iter=estimator.n_iter_,
        n_passes=estimator.n_passes_,
        basis_residual=estimator.basis_residual_,
        facets=estimator._facets,
        score_moments=estimator._score_moments,
        feature_names=getattr(estimator, "feature_names_in_", None),
        label_columns=tuple(getattr(estimator, "label_columns_", ())),
        noise=estimator.noise,
        orthogonal=bool(estimator.orthogonal),
    )


def saved_model(estimator: MCPCA) -> SavedModel:
    """Return all of a fitted estimator that files and AnnData keep."""
    model = fitted_model(estimator)
    return SavedModel(estimator.get_params(deep=False), model, estimator.rank_choice_)


def restored(cls: type[Estimator], saved: SavedModel, *, check: bool = False) -> Estimator:
    """Return the estimator that ``saved_model`` was given; parameters of later versions are left out."""
    known = cls().get_params(deep=False)
    estimator = cls(**{name: value for name, value in saved.parameters.items() if name in known})
    estimator._publish(saved.model, saved.rank_choice)
    if check:
        estimator._checked_parameters()
    return estimator


class _InContainer(TransformerMixin, BaseEstimator):
    """Puts the scores of one matrix into the container that ``set_output`` or scikit-learn's configuration names.

    scikit-learn wraps the method ``transform`` of every transformer once, for one matrix in and one out. ``MCPCA``, of
    which a list of contexts gives a list of scores, opts out (``auto_wrap_output_keys=None``) and sends each matrix
    through this one, so that the wrapping itself stays scikit-learn's.
    """

    def __init__(self, compute: Callable[[Any], Any], model: MCPCA) -> None:
        self.compute = compute
        self.model = model
        config = getattr(model, "_sklearn_output_config", {})
        self.set_output(transform=config.get("transform"))

    def transform(self, X: Any) -> Any:
        return self.compute(X)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        names: Array = self.model.get_feature_names_out(input_features)
        return names


def _refuse_rows_options(what: str, kind: str, y: Any, checkpoint: Any) -> None:
    """Raise for options of rows beside input that has none."""
    if y is not None:
        verb = "takes" if kind == "covariances" else "take"
        raise ValueError(f"{what} which {verb} no y; drop y.")
    refuse_without_effect("checkpoint", checkpoint, None, f"{kind} take no pass over rows", "drop it")
