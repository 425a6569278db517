"""MCPCA with scikit-learn's manners: parameters in, delegation, fitted attributes out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from ._check import Array, Report, as_generator, as_report, check_covariances, check_finite, check_rank, check_rows
from .contexts import ContextCovariances, encode_labels, named_blocks, read_contexts
from .contexts import _name_array as name_array
from .decomposition import decompose_checked
from .exceptions import NoStableRankError
from .facets import Facets, measure
from .identifiability import DEFAULT_DEGREES, ProportionalPair, proportional_loadings, warn_if_proportional
from .loadings import solve_loadings
from .persistence import names_to_json, parameter_to_json, read_model, write_model
from .rank import RankChoice, choose_rank_checked
from .solvers import get_solver
from .subspace import Core, variances_along

_ARRAYS = (
    "components_",
    "loadings_",
    "projection_",
    "singular_values_",
    "n_samples_per_context_",
)
_FACETS = tuple(Facets.__dataclass_fields__)
_Class = TypeVar("_Class", bound=type)


def _over_contexts(cls: _Class) -> _Class:
    """Let ``transform`` and ``inverse_transform`` take a list or dict of contexts, one call for each.

    Applied to the finished class and so outside scikit-learn's ``set_output`` wrapper: with
    ``set_output(transform="pandas")`` a list gives a list of frames.
    """

    def spread(method: Any) -> Any:
        @functools.wraps(method)
        def over_contexts(self: Any, X: Any, y: Any = None, *, center: Any = None) -> Any:
            named = named_blocks(X)
            if named is None:
                return method(self, X, y, center=center)
            check_is_fitted(self)
            if y is not None:
                raise ValueError(f"y labels the rows of one 2-D X, but X is a {type(X).__name__} of contexts; drop y.")
            names, blocks = named
            by_name = isinstance(X, Mapping) or hasattr(X, "items")
            centers = [center] * len(blocks) if center is not None else self._centers_of(names, by_name)
            results = [method(self, block, center=c) for block, c in zip(blocks, centers, strict=True)]
            return dict(zip(names.tolist(), results, strict=True)) if by_name else results

        return over_contexts

    for name in ("transform", "inverse_transform"):
        setattr(cls, name, spread(getattr(cls, name)))
    return cls


@_over_contexts
class MCPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Multi-context principal component analysis.

    Finds axes that explain variation in subsets of contexts, and how much of each axis every context carries:
    ``Cov(X_i) ~ A diag(b_i) A^T`` for contexts i = 1..k, with A shared (unit columns, not orthogonal) and b_i >= 0.

    Parameters
    ----------
    n_components : int or None
        Rank r, 1 <= r <= n_features. None chooses it by ``choose_rank``.
    solver : {"mspm"}
        The multi-subspace power method, then non-negative least squares for the loadings.
    rank_range : iterable of int, optional
        Candidate ranks for ``n_components=None``; by default taken from the scree.
    n_seed_pairs, cos_sim_threshold : int, float
        The stability rule of ``choose_rank``.
    random_state : int, Generator, RandomState or None
        Decides every random number. NumPy's global generator is never touched.
    tol, max_iter : float, int
        Convergence of the solver: step on the unit sphere, and second-order steps.
    verbose : bool or callable
        True prints progress to stderr; a function is called with (stage, done, total).

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
    rank_choice_ : RankChoice or None
        The curve behind the rank when it was chosen.
    contexts_ : ndarray (k,)
        Names of the contexts, the rows of ``loadings_``.
    means_ : ndarray (k, n_features) or None
        Mean of each context; None after ``fit_covariances``.
    n_samples_per_context_ : ndarray (k,) or None
    singular_values_ : ndarray
        The scree: singular values of ``[S_1 ... S_k]``.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray (n_features,)
        When the input has names that are all strings.

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
        rank_range: Any = None,
        n_seed_pairs: int = 5,
        cos_sim_threshold: float = 0.8,
        random_state: Any = None,
        tol: float = 1e-7,
        max_iter: int = 200,
        verbose: Any = False,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.rank_range = rank_range
        self.n_seed_pairs = n_seed_pairs
        self.cos_sim_threshold = cos_sim_threshold
        self.random_state = random_state
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    # Fitting -----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : list or tuple of arrays; dict or Series {name: array}; 2-D array or DataFrame; (k, p, p) stack
            Rows of each context, all with the same features (DataFrames are aligned by name); or one matrix of rows,
            with ``y``; or a 3-D stack of covariances, as for ``fit_covariances``.
        y : array-like (n,), optional
            Context label of each row of a 2-D ``X``, in any order. Without it ``X`` is one context.
        """
        if isinstance(X, np.ndarray) and X.ndim == 3:
            if y is not None:
                raise ValueError(f"X has shape {X.shape}, a stack of covariances, which takes no y; drop y.")
            return self.fit_covariances(X)
        self._check_parameters()
        report = as_report(self.verbose)
        contexts = read_contexts(X, y)
        if self.n_components is not None:
            check_rank(self.n_components, contexts.n_features)
        moments = contexts.covariances(report)
        matrix = X if named_blocks(X) is None else None
        return self._fit_moments(moments, moments.means, report, matrix)

    def fit_covariances(
        self, S: Any, n_samples: Any = None, feature_names: Any = None, context_names: Any = None
    ) -> Self:
        """Fit from second moments only.

        Parameters
        ----------
        S : array-like (k, p, p)
            Covariances: finite, symmetric, positive semi-definite.
        n_samples : int or array-like (k,), optional
            Rows behind each; kept as ``n_samples_per_context_``.
        feature_names, context_names : sequences of length p and k, optional
        """
        self._check_parameters()
        S = check_covariances(S)
        k, p, _ = S.shape
        if self.n_components is not None:
            check_rank(self.n_components, p)
        contexts = np.arange(k) if context_names is None else _check_names(context_names, k, "context_names")
        features = None if feature_names is None else _check_names(feature_names, p, "feature_names")
        counts = None if n_samples is None else _check_counts(n_samples, k)
        moments = ContextCovariances(S, np.zeros((0, p)), np.zeros(0), contexts, features)
        self._fit_moments(moments, None, as_report(self.verbose), None)
        self.n_samples_per_context_ = counts
        return self

    def _check_parameters(self) -> None:
        get_solver(self.solver)
        as_generator(self.random_state if not isinstance(self.random_state, np.random.RandomState) else None)

    def _fit_moments(self, moments: ContextCovariances, means: Array | None, report: Report, matrix: Any) -> Self:
        S, rng = moments.covariances, as_generator(self.random_state)
        options = {"solver": self.solver, "tol": self.tol, "max_iter": self.max_iter, "report": report}
        choice: RankChoice | None = None
        core: Core | None = None
        r = self.n_components
        if r is None:
            choice, core = choose_rank_checked(
                S,
                self.rank_range,
                n_seed_pairs=self.n_seed_pairs,
                cos_sim_threshold=self.cos_sim_threshold,
                rng=rng,
                **options,
            )
            if choice.rank is None:
                raise NoStableRankError(choice.reason, choice)
            r = choice.rank
        result = decompose_checked(S, int(r), rng=rng, core=core, **options)
        A, B = result.components, result.loadings
        measured = measure(S, A, B)
        # All that can fail is behind us: from here on the object changes as a whole.
        self._forget()
        if matrix is not None:
            validate_data(self, matrix, reset=True, skip_check_array=True)
        else:
            self.n_features_in_ = S.shape[1]
            if moments.feature_names is not None and moments.feature_names.dtype.kind == "U":
                self.feature_names_in_ = moments.feature_names.astype(object)
        self.components_ = A
        self.loadings_ = B
        self.projection_ = np.linalg.pinv(A)
        self.n_components_ = int(r)
        self.rank_choice_ = choice
        self.contexts_ = moments.contexts
        self.means_ = means
        self.n_samples_per_context_ = None if means is None else moments.n_samples
        self.singular_values_ = result.singular_values
        self.n_iter_ = max(1, result.n_iter)
        self._facets = measured
        warn_if_proportional(B, self.get_feature_names_out())
        return self

    def _forget(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)

    @property
    def r_(self) -> int:
        """The rank, by the paper's name; known after ``fit``."""
        if not hasattr(self, "n_components_"):
            raise NotFittedError("MCPCA.r_ is known once the model has seen data: call fit(X_list) first.")
        return self.n_components_

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    # Scores ------------------------------------------------------------------------------------------------------

    def transform(self, X: Any, y: Any = None, *, center: Any = None) -> Any:
        """Return the scores of rows on the MCPCs: ``(x - mean) @ pinv(A).T``.

        Parameters
        ----------
        X : 2-D array or DataFrame; or a list or dict of contexts
            A list must have one entry per fitted context, in their order; a dict goes by name. They give a list or
            dict of scores.
        y : array-like (n,), optional
            Context label of each row: rows are centred by the mean of their own context, looked up by label.
        center : None, "overall", "own", array (n_features,) or dict {label: array}
            None is the context's fitted mean where contexts are known (by ``y``, list or dict), and the overall mean
            of the fitted rows otherwise, which keeps differences between contexts visible. "own" centres each context
            by its mean in ``X``: the way for contexts that ``fit`` has not seen, as is an explicit mean.

        Returns
        -------
        ndarray (n, r), or a list or dict of them
        """
        check_is_fitted(self)
        A = self._check_new_rows(X)
        Z = np.empty((len(A), self.n_components_), dtype=np.result_type(A, self.projection_))
        for rows, mean in self._means_by_rows(A, y, center):
            Z[rows] = (A[rows] - mean.astype(A.dtype, copy=False)) @ self.projection_.T
        return Z

    def inverse_transform(self, X: Any, y: Any = None, *, center: Any = None) -> Any:
        """Return rows with the given scores: ``z @ A.T + mean``; ``y`` and ``center`` as in ``transform``."""
        check_is_fitted(self)
        Z = check_rows(X, "X")
        if Z.shape[1] != self.n_components_:
            raise ValueError(f"X has {Z.shape[1]} columns, but scores of this model have {self.n_components_}.")
        check_finite(Z, "X", None)
        if isinstance(center, str) and center == "own":
            raise ValueError("center='own' is not known from scores; pass the mean itself.")
        rows_out = np.empty((len(Z), self.n_features_in_), dtype=np.result_type(Z, self.components_))
        for rows, mean in self._means_by_rows(Z, y, center):
            rows_out[rows] = Z[rows] @ self.components_.T + mean.astype(Z.dtype, copy=False)
        return rows_out

    def _means_by_rows(self, A: Array, y: Any, center: Any) -> list[tuple[Any, Array]]:
        """Pair groups of rows with the mean that goes with them."""
        if center is not None and not isinstance(center, (str, Mapping)):
            return [(slice(None), self._check_mean(center))]
        if isinstance(center, str) and center not in ("own", "overall"):
            raise ValueError(
                f"center={center!r}; choose None, 'overall', 'own', a mean (n_features,) or a dict of means."
            )
        if y is None:
            if isinstance(center, Mapping):
                raise ValueError("center is a dict of means by context, which needs y; pass y, or one mean.")
            return [(slice(None), A.mean(axis=0) if center == "own" else self._overall_mean())]
        names, index = encode_labels(y, len(A))
        if center == "overall":
            return [(slice(None), self._overall_mean())]
        groups = [np.flatnonzero(index == i) for i in range(len(names))]
        if center == "own":
            return [(rows, A[rows].mean(axis=0)) for rows in groups]
        given = {} if center is None else {name: self._check_mean(mean) for name, mean in center.items()}
        unknown = [name for name in names.tolist() if name not in given]
        known = dict(zip(unknown, self._centers_of(name_array(unknown), by_name=True), strict=True)) if unknown else {}
        return [(rows, {**known, **given}[name]) for rows, name in zip(groups, names.tolist(), strict=True)]

    def _overall_mean(self) -> Array:
        means = self._context_means()
        weights = self.n_samples_per_context_ / self.n_samples_per_context_.sum()
        return np.asarray(weights @ means.astype(np.float64))

    def _context_means(self) -> Array:
        if self.means_ is None:
            raise ValueError(
                "This model was fitted on covariances and knows no means; pass center='own', or center=mean (n_features,)."
            )
        return self.means_

    def _centers_of(self, names: Array, by_name: bool) -> list[Array]:
        """Fitted means of the named contexts, or of all of them in order for a list."""
        means = self._context_means()
        if not by_name:
            if len(names) != len(means):
                raise ValueError(
                    f"X is a list of {len(names)} contexts and the model has {len(means)}: a list is matched by position. "
                    "Pass a dict {name: rows}, rows with y=labels, or center='own' for new contexts."
                )
            return list(means)
        position = self._positions()
        unknown = [name for name in names.tolist() if name not in position]
        if unknown:
            raise ValueError(
                f"Contexts {unknown[:5]}{' and more' if len(unknown) > 5 else ''} were not seen in fit (known: "
                f"{self.contexts_[:5].tolist()}{' and more' if len(self.contexts_) > 5 else ''}). Pass center='own' to "
                "centre new contexts by their own means, or give a mean."
            )
        return [means[position[name]] for name in names.tolist()]

    def _positions(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.contexts_.tolist())}

    def _check_new_rows(self, X: Any) -> Array:
        validate_data(self, X, reset=False, skip_check_array=True) if _is_table(X) else None
        A = check_rows(X, "X")
        if A.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {A.shape[1]} features, but MCPCA is expecting {self.n_features_in_} features as input."
            )
        if len(A) == 0:
            raise ValueError(f"X has 0 samples (shape={A.shape}) while a minimum of 1 is required.")
        check_finite(A, "X", getattr(self, "feature_names_in_", None))
        return A

    def _check_mean(self, mean: Any) -> Array:
        m = np.asarray(mean, dtype=np.float64)
        if m.shape != (self.n_features_in_,) or not np.isfinite(m).all():
            raise ValueError(f"center has shape {m.shape}; a finite mean of shape ({self.n_features_in_},) is needed.")
        return m

    # New contexts and quality ------------------------------------------------------------------------------------

    def loadings_for(self, X: Any, y: Any = None) -> Array:
        """Return the loadings of new contexts on the fitted MCPCs.

        Parameters
        ----------
        X : rows (n, p), covariance (p, p), stack (k, p, p), or a list or dict of contexts
            A symmetric, positive semi-definite (p, p) matrix is read as a covariance, any other matrix as rows.
        y : array-like (n,), optional
            Context label of each row.

        Returns
        -------
        ndarray (r,) for one context, (k, r) for several (in the order given; sorted by label with ``y``)
        """
        check_is_fitted(self)
        S, single = self._covariances_of(X, y)
        A = self.components_.astype(np.float64)
        B = solve_loadings((A.T @ A) ** 2, variances_along(S, A)).astype(self.loadings_.dtype, copy=False)
        return np.asarray(B[0] if single else B)

    def _covariances_of(self, X: Any, y: Any) -> tuple[Array, bool]:
        p = self.n_features_in_
        if isinstance(X, np.ndarray) and X.ndim == 3:
            S, single = check_covariances(X, "X"), False
        elif named_blocks(X) is None and y is None:
            A = self._check_new_rows(X)
            if A.shape == (p, p) and np.allclose(A, A.T, rtol=1e-10, atol=1e-10 * np.abs(A).max()):
                S = check_covariances(A[None], "X")
            else:
                S = read_contexts(A).covariances(as_report(False)).covariances
            single = True
        else:
            S, single = read_contexts(X, y).covariances(as_report(False)).covariances, False
        if S.shape[1] != p:
            raise ValueError(f"X has {S.shape[1]} features, but MCPCA is expecting {p} features as input.")
        return S, single

    def score(self, X: Any, y: Any = None) -> float:
        """Return the share of squared covariance that the model predicts in these rows, 1 at best.

        ``1 - sum_i ||S_i - A diag(b_i) A^T||_F^2 / sum_i ||S_i||_F^2``, with ``S_i`` the second moment of the given rows
        about the fitted mean of their context, and A, b_i as fitted: on new rows an honest test, also with one row in a
        context. Without ``y``, where the model has several contexts, ``X`` is a new context, centred by its own mean, on
        which the loadings are fitted.
        """
        check_is_fitted(self)
        unlabelled = y is None and named_blocks(X) is None
        if unlabelled and len(self.contexts_) > 1:
            S, _ = self._covariances_of(X, None)
            B = self.loadings_for(S)
        else:
            contexts = read_contexts(self._check_new_rows(X) if unlabelled else X, y, min_samples=1)
            if contexts.n_features != self.n_features_in_:
                raise ValueError(
                    f"X has {contexts.n_features} features, but MCPCA is expecting {self.n_features_in_} features as input."
                )
            by_name = not (isinstance(X, (list, tuple)) and named_blocks(X) is not None)
            if unlabelled:
                means, B = self._context_means(), self.loadings_
            else:
                means = np.array(self._centers_of(contexts.names, by_name))
                position = self._positions()
                B = self.loadings_[[position[n] for n in contexts.names.tolist()]] if by_name else self.loadings_
            for i in range(len(means)):
                contexts.mean(i)  # raises on NaN
            S = np.stack([contexts.scatter_about(i, m) / contexts.n_samples[i] for i, m in enumerate(means)])
        result = measure(S, self.components_, B)
        total = float(result.squared_norms.sum())
        return 1 - float(result.reconstruction_errors.sum()) / total if total > 0 else 0.0

    def reconstruction_error(self, per: str | None = None) -> Any:
        """Return the average reconstruction error ``(1/k) sum_i ||S_i - A B_i A^T||_F^2`` of the fitted covariances.

        Minimising it is finding the closest rank-r partially symmetric tensor. ``per="context"`` gives the k terms
        ``||S_i - A B_i A^T||_F^2``; divide by ``squared_norms()`` for relative ones.
        """
        return _aggregate(self._measured().reconstruction_errors, per)

    def squared_norms(self) -> Array:
        """Return ``||S_i||_F^2`` of each context: the yardstick for the error and the variance explained."""
        return self._measured().squared_norms

    def variance_explained(self, per: str | None = None) -> Any:
        """Return the average squared variance explained, ``(1/k) sum_i ||P(S_i)||_F^2``.

        P is the projection on ``span{a_j a_j^T}``, and ``||S_i||^2 = ||S_i - P(S_i)||^2 + ||P(S_i)||^2``. ``per="context"``
        gives the k terms. ``per="component"`` gives r shares that add up to the average: with ``P(S_i) = sum_j beta_ij
        a_j a_j^T`` the share of MCPC j is the average over contexts of ``<S_i, beta_ij a_j a_j^T> = beta_ij a_j^T S_i a_j``.
        For orthogonal MCPCs this is ``(a_j^T S_i a_j)^2``. Otherwise variance that two MCPCs could both explain is divided
        between them by the least-squares coefficients, and a share can be negative where a coefficient is.
        """
        shares = self._measured().variance_shares
        if per == "component":
            return shares.mean(axis=0)
        return _aggregate(shares.sum(axis=1), per, also="'component'")

    def offdiagonal_correlation(self, per: str | None = None, *, normalized: bool = False) -> Any:
        """Return the correlation left after projection, ``sum_i ||offdiag(A^+ S_i A^+T)||_F^2``.

        Zero when the scores are uncorrelated in every context. ``per="context"`` gives the k terms. ``normalized=True`` gives
        instead the root mean square correlation between two different scores (average over contexts), which has no units.
        """
        measured = self._measured()
        if normalized:
            return _aggregate(measured.offdiagonal_correlations, per)
        return _aggregate(measured.offdiagonals, per, total=np.sum)

    def likelihood_loss(self, per: str | None = None) -> Any:
        """Return the common log-likelihood loss, ``sum_i log det Diag(A^+ S_i A^+T) - log det(A^+ S_i A^+T)``.

        Twice the Kullback-Leibler divergence between the Gaussian models of the scores with and without correlations; 0 when
        they are uncorrelated in every context. Infinite where the scores of a context have a singular covariance, as with
        fewer than r + 1 samples or an MCPC that does not vary there. ``per="context"`` gives the k terms.
        """
        return _aggregate(self._measured().likelihood_losses, per, total=np.sum)

    def proportional_loadings(self, max_degrees: float = DEFAULT_DEGREES) -> list[ProportionalPair]:
        """Return pairs of MCPCs whose loadings are proportional up to ``max_degrees``: not identifiable apart."""
        check_is_fitted(self)
        return proportional_loadings(self.loadings_, max_degrees)

    def _measured(self) -> Facets:
        check_is_fitted(self)
        return self._facets

    # Files -------------------------------------------------------------------------------------------------------

    def save(self, path: Any) -> None:
        """Write the fitted model to one file, atomically: a crash on the way leaves the old file.

        The file holds arrays and JSON and no pickle, so loading it can run no code. A ``random_state`` or ``verbose`` that is an
        object is not kept.
        """
        check_is_fitted(self)
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        arrays |= {f"facet_{name}": getattr(self._facets, name) for name in _FACETS}
        if self.means_ is not None:
            arrays["means_"] = self.means_
        header: dict[str, Any] = {
            "parameters": {k: parameter_to_json(v) for k, v in self.get_params(deep=False).items()},
            "contexts": names_to_json(self.contexts_),
            "feature_names": names_to_json(getattr(self, "feature_names_in_", None)),
            "n_iter": self.n_iter_,
        }
        choice = self.rank_choice_
        if choice is not None:
            arrays |= {
                "choice_ranks": choice.ranks,
                "choice_scores": choice.scores,
                "choice_scree": choice.singular_values,
            }
            header["choice"] = [choice.rank, choice.outcome, choice.reason, choice.threshold]
        write_model(path, arrays, header)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read a model that ``save`` wrote."""
        arrays, header = read_model(path)
        parameters = header["parameters"]
        model = cls(**{k: v for k, v in parameters.items() if k in cls().get_params(deep=False)})
        model.verbose = False if model.verbose is None else model.verbose
        missing = [name for name in _ARRAYS if name not in arrays and name != "n_samples_per_context_"]
        if missing:
            raise ValueError(f"path={str(path)!r} lacks {missing}; it is not a complete MCPCA model.")
        for name in _ARRAYS:
            setattr(model, name, arrays.get(name))
        model.means_ = arrays.get("means_")
        model.n_features_in_, model.n_components_ = map(int, model.components_.shape)
        model.contexts_ = name_array(header["contexts"])
        if header["feature_names"] is not None:
            model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        model.n_iter_ = header["n_iter"]
        model._facets = Facets(*(arrays[f"facet_{name}"] for name in _FACETS))
        model.rank_choice_ = None
        if "choice" in header:
            rank, outcome, reason, threshold = header["choice"]
            curve = arrays["choice_ranks"], arrays["choice_scores"]
            model.rank_choice_ = RankChoice(rank, outcome, reason, *curve, threshold, arrays["choice_scree"])
        return model


def _is_table(X: Any) -> bool:
    """Whether scikit-learn's checks of feature names and their number apply."""
    return hasattr(X, "shape") and len(X.shape) == 2


def _aggregate(values: Array, per: str | None, *, total: Any = np.mean, also: str = "") -> Any:
    if per is None:
        return float(total(values))
    if per == "context":
        return values
    raise ValueError(f"per={per!r}; choose None, 'context'{' or ' + also if also else ''}.")


def _check_names(names: Any, n: int, argument: str) -> Array:
    values = list(names)
    if len(values) != n or len(set(values)) < n:
        raise ValueError(
            f"{argument} has {len(values)} entries, {len(set(values))} of them distinct; {n} distinct are needed."
        )
    return name_array(values)


def _check_counts(n_samples: Any, k: int) -> Array:
    counts = np.asarray(n_samples)
    counts = np.full(k, counts) if counts.ndim == 0 else counts
    if counts.shape != (k,) or counts.dtype.kind not in "iu" or (counts < 2).any():
        raise ValueError(
            f"n_samples={n_samples!r}: one integer >= 2 per context is needed, {k} of them or one for all."
        )
    return counts
