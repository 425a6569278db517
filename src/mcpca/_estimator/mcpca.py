"""MCPCA with scikit-learn's manners: parameters in, delegation, fitted attributes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._covariances.checkpoint import Checkpoint
from .._covariances.context_covariances import ContextCovariances
from .._covariances.device_rows import holds_device_arrays, read_device_contexts
from .._covariances.device_stack import check_stack
from .._covariances.fit_data import FitData, fit_data_of_covariances, fit_data_of_rows
from .._covariances.fit_identity import identity_of
from .._covariances.moments import ContextMoments
from .._covariances.validation import check_counts
from .._data.alignment import by_name, covariance_tables
from .._data.contexts import read_contexts
from .._data.doubtful_labels import warn_of_doubtful
from .._data.labels import label_columns, name_array, take_labels
from .._inference.presence import RANK_DEFAULTS, UncertaintyMethods
from .._model.decomposition import check_tolerance, check_weights, decompose_checked
from .._model.dominance import warn_if_dominated
from .._model.facets import FacetMethods
from .._model.gaussian import GaussianModel
from .._model.identifiability import DEFAULT_DEGREES, ProportionalPair, indistinct_loadings, warn_if_proportional
from .._model.new_contexts import NewContextMethods
from .._model.scores import ScoreMethods
from .._rank.automatic import automatic_rank
from .._solvers import check_solver
from .._utils.arguments import as_generator, check_rank, refuse_without_effect
from .._utils.array_api import is_device_array, like, to_host
from .._utils.component_names import component_names
from .._utils.progress import check_verbose, reporting
from .._utils.types import Array, Report
from .persistence import load_model, save_model
from .streaming import StreamingMethods, set_features, set_label_columns

# Fitted attributes that go to the device of the data.
_FLOATS = ("components_", "loadings_", "projection_", "means_", "singular_values_", "noise_variance_")


class MCPCA(
    FacetMethods,
    NewContextMethods,
    StreamingMethods,
    UncertaintyMethods,
    ClassNamePrefixFeaturesOutMixin,
    ScoreMethods,
    BaseEstimator,
):
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
            if y is not None:
                raise ValueError(f"X has shape {X.shape}, a stack of covariances, which takes no y; drop y.")
            refuse_without_effect("checkpoint", checkpoint, None, "covariances take no pass over rows", "drop it")
            return self.fit_covariances(X)
        if isinstance(X, ContextMoments):
            if y is not None:
                raise ValueError("X holds moments of contexts, which take no y; drop y.")
            refuse_without_effect("checkpoint", checkpoint, None, "moments take no pass over rows", "drop it")
            with reporting(self.verbose, "fit") as report:
                return self._fit_context_moments(X, report)
        self._check_parameters()
        with reporting(self.verbose, "reading rows") as report:
            return self._fit_rows(X, y, checkpoint, report)

    def _fit_rows(self, X: Any, y: Any, checkpoint: Any, report: Report) -> Self:
        columns = label_columns(X, y)
        X, y = take_labels(X, y)
        contexts = read_device_contexts(X, y) if holds_device_arrays(X) else read_contexts(X, y)
        if self.n_components is not None:
            check_rank(self.n_components, contexts.n_features)
        features = BaseEstimator()  # takes scikit-learn's attributes of the features
        set_features(features, contexts.n_features, contexts.feature_names)
        set_label_columns(features, X, columns)
        tol = check_tolerance(self.tol)
        identity = {} if checkpoint is None else identity_of(contexts, self.get_params(deep=False))
        with Checkpoint(checkpoint, identity, self.random_state) as saved:
            data = fit_data_of_rows(contexts, self.n_components, tol, report, saved)
            self._fit_to(data, report, features, saved.seed if checkpoint is not None else None)
            saved.finish()
        return self

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
        self._check_parameters()
        S, columns, keys = covariance_tables(S)
        S = check_stack(S)
        k, p, _ = S.shape
        feature_names = columns if feature_names is None else feature_names
        context_names = keys if context_names is None else context_names
        if self.n_components is not None:
            check_rank(self.n_components, p)
        contexts = np.arange(k) if context_names is None else _check_names(context_names, k, "context_names")
        warn_of_doubtful(contexts.tolist(), stacklevel=3)
        names = None if feature_names is None else _check_names(feature_names, p, "feature_names")
        if context_names is not None:
            n_samples = by_name(n_samples, contexts.tolist(), "n_samples", "contexts")
        counts = None if n_samples is None else check_counts(n_samples, k)
        features = BaseEstimator()
        set_features(features, p, names)
        moments = ContextCovariances(S, np.zeros((0, p)), np.zeros(0), contexts, names)
        with reporting(self.verbose, "fit") as report:
            return self._fit_to(fit_data_of_covariances(moments, counts), report, features)

    def _check_parameters(self) -> None:
        check_solver(self.solver, self.orthogonal, self.noise)
        check_verbose(self.verbose)
        if self.n_components is not None:
            for name, default in RANK_DEFAULTS.items():
                why = f"the rank is given, n_components={self.n_components!r}"
                refuse_without_effect(name, getattr(self, name), default, why, "drop it, or pass n_components=None")
        elif self.rank_range is None:
            why, way_out = "select_rank compares halves of the rows and not seeds", "drop it, or pass rank_range"
            refuse_without_effect("n_seed_pairs", self.n_seed_pairs, RANK_DEFAULTS["n_seed_pairs"], why, way_out)
        as_generator(self.random_state if not isinstance(self.random_state, np.random.RandomState) else None)

    def _fit_to(self, data: FitData, report: Report, features: Any, seed: int | None = None) -> Self:
        S, counts, e = data.covariances, data.counts, data.exponent
        rng = as_generator(seed if self.random_state is None else self.random_state)
        weights = None if self.context_weights is None else check_weights(self.context_weights, data.names)
        options: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "report": report}
        choice, core, r = None, None, self.n_components
        if r is None:
            rules = self.rank_range, self.n_seed_pairs, self.cos_sim_threshold
            choice = automatic_rank(data.on_host(), *rules, rng, report, stacklevel=3)
            r, core = choice.rank, choice.core
        result, measured = decompose_checked(
            S,
            int(r),
            **check_solver(self.solver, self.orthogonal, self.noise),
            counts=counts,
            weights=weights,
            rng=rng,
            core=core,
            with_facets=True,
            **options,
        )
        A, B = result.components, result.loadings
        beside = None
        if result.noise is not None:
            double_A, double_B, noise = (x.astype(np.float64) for x in (A, B, result.noise))
            model = GaussianModel(double_A, double_B, noise, self.noise == "diagonal")
            beside = model.likelihood(S, np.ones(S.n_contexts))
        plain = self.solver == "mspm" and not self.orthogonal and weights is None
        told = None if choice is None else choice.told(to_host(A) if plain else None)
        result = result.times_power(e)
        # All that can fail is behind us: from here on the object changes as a whole.
        self._forget()
        self.__dict__.update(vars(features))
        self.components_ = A
        self.loadings_ = result.loadings
        self.projection_ = np.linalg.pinv(A)
        self.n_components_ = int(r)
        self.rank_choice_ = None if told is None else told.times_power(e)
        self.contexts_ = data.names
        self.means_ = data.means
        self.n_samples_per_context_ = counts
        self.noise_variance_ = result.noise
        self.singular_values_ = result.singular_values
        self.n_iter_ = max(1, result.n_iter)
        self.n_passes_ = data.n_passes
        self.basis_residual_ = result.basis_residual
        assert measured is not None  # asked for above
        self._facets = replace(measured, exponent=e)
        self._score_moments = None if beside is None else (np.ldexp(beside.R, 2 * e), np.ldexp(beside.rest, 2 * e))
        for name in _FLOATS:
            setattr(self, name, like(getattr(self, name), data.home))
        warn_if_proportional(B, component_names(self), orthogonal=self.orthogonal, n_features=len(A))
        warn_if_dominated(A, S.variances, getattr(self, "feature_names_in_", None))
        return self

    def _forget(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)

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

    # Quality

    def proportional_loadings(self, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
        """Return pairs of MCPCs whose loadings are proportional up to ``max_degrees``: not identifiable apart.

        With ``orthogonal=True`` only those whose loadings are equal are, by the paper's proposition on the orthogonal
        model, and proportional ones are not listed. An MCPC without loadings is paired with itself.
        """
        check_is_fitted(self)
        options: Any = {"orthogonal": self.orthogonal, "n_features": self.n_features_in_}
        return indistinct_loadings(self.loadings_, max_degrees, **options)

    # Files

    def save(self, path: Any) -> None:
        """Write the fitted model to one file, atomically: a crash on the way leaves the old file.

        The file holds arrays and JSON and no pickle, so loading it can run no code. A ``random_state`` or ``verbose``
        that is an object is not kept.
        """
        check_is_fitted(self)
        save_model(self, path)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read a model that ``save`` wrote."""
        model: Self = load_model(cls, path)
        return model


def _check_names(names: Any, n: int, argument: str) -> Array:
    values = list(names)
    if len(values) != n or len(set(values)) < n:
        raise ValueError(
            f"{argument} has {len(values)} entries, {len(set(values))} of them distinct; {n} distinct are needed."
        )
    return name_array(values)
