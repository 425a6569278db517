"""One logistic model of two groups of contexts, with a line for every coefficient: the paper's Fig. S3H.

``associate`` tests one MCPC at a time beside PC means, by a penalised likelihood ratio. This is the model as it is
usually printed: coefficients in the units of their columns, Wald's tests, no correction.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.stats import norm

from .._utils.types import Array
from ._models import information_of, penalised_likelihood
from ._tables import pandas

INTERCEPT = "intercept"
_STEPS = 100
_TOLERANCE = 1e-10  # largest change of the log-odds of a context in the last step
_SEPARATED = 25.0  # log-odds beyond which a probability is 0 or 1 to all digits that matter
_COLLINEAR = 1e-10  # smallest singular value of the scaled design, relative to the largest


def logistic_model(outcome: Any, predictors: Any, *, penalty: Literal["firth"] | None = None) -> Any:
    """Fit ``P(x_i = 1) = 1 / (1 + exp(-beta_0 - sum_j beta_j v_ij))`` and return all coefficients.

    The paper's multivariate model of late against early stages, on the loading of an MCPC and means of PCs.

    Parameters
    ----------
    outcome : Series, or array-like (k,), of bool or of 0 and 1
        The group of each context. A Series is matched to ``predictors`` by its index.
    predictors : DataFrame (k, c)
        One column each: loadings of an MCPC, means of PCs. Contexts with a missing value, here or in ``outcome``, are
        left out.
    penalty : {"firth"} or None
        None is the plain maximum of the likelihood, as in the authors' code. It has none if the groups can be
        separated, and its p-values are too small for few contexts; Firth's penalty (half the log-determinant of the
        information) mends the first and most of the second.

    Returns
    -------
    DataFrame (1 + c rows)
        "coefficient", its standard error "se" from the inverse of Fisher's information, "z", "p" (Wald, two-sided),
        "lower" and "upper", the 95% interval, and "sd", the standard deviation of the predictor, NaN for the intercept.
        Attributes ``.attrs``: "n", "events", "log_likelihood", "null_log_likelihood" (of the intercept alone),
        "pseudo_r2" (McFadden's). ``mcpca.plotting.plot_forest`` draws it.

    Notes
    -----
    Newton's method; O(k c^2) a step. Predictors are scaled inside, and answers are in their own units.
    """
    pd = pandas()
    if penalty not in (None, "firth"):
        raise ValueError(f"penalty={penalty!r} is unknown; choose None or 'firth'.")
    table = pd.DataFrame(predictors)
    if INTERCEPT in table.columns:
        raise ValueError(f"predictors has a column {INTERCEPT!r}, which the model adds itself; rename it.")
    x = _aligned(pd, outcome, table)
    known = x.notna() & table.notna().all(axis=1)
    x, V = x[known].to_numpy(float), table[known].to_numpy(float)
    k, c = V.shape
    events = int(x.sum())
    if not 0 < events < k or k <= c + 1:
        raise ValueError(
            f"{k} contexts are known, {events} of them in the group, for {c + 1} coefficients; a model needs both "
            "groups and more contexts than coefficients."
        )
    means, sds = V.mean(axis=0), V.std(axis=0)
    D = np.column_stack([np.ones(k), (V - means) / np.where(sds > 0, sds, 1)])
    values = np.linalg.svd(D, compute_uv=False)
    if values[-1] <= _COLLINEAR * values[0]:
        raise ValueError(
            f"predictors has columns, {list(map(str, table.columns))}, of which one is constant or follows from the "
            "others; leave it out."
        )
    beta = penalised_likelihood(D, x, c + 1)[1] if penalty == "firth" else _plain(D, x)
    covariance = np.linalg.inv(information_of(D, beta)[1])
    # In the units of the columns: v = mean + sd u, so the slope is divided by sd and the intercept takes the means.
    T = np.diag(np.append(1.0, 1 / np.where(sds > 0, sds, 1)))
    T[0, 1:] = -means / np.where(sds > 0, sds, 1)
    coefficient = T @ beta
    se = np.sqrt(np.diag(T @ covariance @ T.T))
    z = coefficient / se
    half = norm.ppf(0.975) * se
    out = pd.DataFrame(
        {
            "coefficient": coefficient,
            "se": se,
            "z": z,
            "p": 2 * norm.sf(np.abs(z)),
            "lower": coefficient - half,
            "upper": coefficient + half,
            "sd": np.append(np.nan, sds),
        },
        index=[INTERCEPT, *map(str, table.columns)],
    )
    fitted = _log_likelihood(D, x, beta)
    share = events / k
    null = events * np.log(share) + (k - events) * np.log(1 - share)
    out.attrs = {
        "n": k,
        "events": events,
        "log_likelihood": fitted,
        "null_log_likelihood": float(null),
        "pseudo_r2": float(1 - fitted / null),
    }
    return out


def _aligned(pd: Any, outcome: Any, table: Any) -> Any:
    """Return the outcome as a Series of floats with the index of the predictors."""
    if isinstance(outcome, pd.Series):
        lost = [str(name) for name in table.index if name not in outcome.index]
        if lost:
            raise ValueError(f"outcome has no value for {lost[:3]} of predictors; give all, missing ones as None.")
        values = outcome.reindex(table.index)
    else:
        column = np.asarray(outcome)
        if column.shape != (len(table),):
            raise ValueError(f"outcome has shape {column.shape}; pass one value for each of {len(table)} contexts.")
        values = pd.Series(column, index=table.index)
    x = pd.to_numeric(values.astype(object).where(values.notna(), np.nan), errors="coerce").astype(float)
    odd = x[values.notna()][~x[values.notna()].isin([0, 1])]
    if len(odd):
        raise ValueError(f"outcome has the value {values[odd.index[0]]}; pass True or 1 for the group, else False.")
    return x


def _plain(D: Array, x: Array) -> Array:
    """Return the coefficients (c,) of the largest likelihood, by Newton's method from zero."""
    beta = np.zeros(D.shape[1])
    value = _log_likelihood(D, x, beta)
    for _ in range(_STEPS):
        probability, information = information_of(D, beta)
        step = np.linalg.lstsq(information, D.T @ (x - probability), rcond=None)[0]
        # The likelihood is concave: some half of a Newton step raises it.
        while _log_likelihood(D, x, beta + step) < value - 1e-12 * abs(value):
            step = step / 2
        beta = beta + step
        value = _log_likelihood(D, x, beta)
        if np.abs(D @ beta).min() > _SEPARATED or value > -1e-8:
            break
        if np.abs(D @ step).max() < _TOLERANCE:
            return np.asarray(beta)
    raise ValueError(
        "The two groups can be separated by the predictors, so that the likelihood has no maximum; pass "
        "penalty='firth', or fewer predictors."
    )


def _log_likelihood(D: Array, x: Array, beta: Array) -> float:
    log_odds = D @ beta
    return float(x @ log_odds - np.logaddexp(0, log_odds).sum())
