"""Results that are printed: words on one screen, a small table in a notebook, no arrays."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import mcpca
import mcpca.analysis as analysis
from mcpca import baselines
from mcpca.datasets import load_digit_contexts, make_contexts
from mcpca.sharing import how_shared

SCREEN = 24 * 80  # characters
K, R = 60, 30  # contexts and MCPCs of results that are large


def _fits():
    """Results of one small fit each."""
    data = make_contexts(5, 8, 3, n_samples=60, noise=0.2, random_state=0)
    X, y, S = data.X, data.y, data.covariances
    model = mcpca.MCPCA(3, solver="ml", random_state=0).fit(X, y)
    return {
        "RankSelection": mcpca.select_rank(X, y, random_state=0),
        "RankChoice": mcpca.choose_rank(S, ranks=range(1, 5), n_seed_pairs=2, random_state=0),
        "Replicability": model.replicability(X, y, random_state=0),
        "Bootstrap": model.bootstrap(X, y, n=8, random_state=0),
        "Presence": model.presence(),
        "Precision": model.standard_errors(),
        "Facets": mcpca.facets(S, model.components_, model.loadings_),
        "Decomposition": mcpca.decompose(S, 3, random_state=0),
        "Matching": mcpca.match_components(model.components_, model.components_[:, ::-1]),
        "CommonComponents": mcpca.common_principal_components(S, n_samples=[60] * 5),
        "OvercompleteDecomposition": mcpca.overcomplete(S, 3, random_state=0),
        "ContextCovariances": mcpca.context_covariances(X, y),
        "ContextMoments": mcpca.ContextMoments().update(X, y),
        "Sharing": how_shared(model.loadings_),
        "PCAComparison": analysis.compare_with_pca(model, X=X, y=y, n_pcs=3, n_top=10),
        "Association": analysis.associate(model, [1, 2, 3, 4, 5]),
        "DifferentialVariance": analysis.differential_variance(model, list("aabbb")),
        "ContextTree": analysis.context_tree(model),
        "BaselineResult": baselines.run("pca_stack", X, 3, y=y),
        "PlantedContexts": data,
        "DigitContexts": load_digit_contexts(30, random_state=0),
    }


def _large():
    """The same classes where there are many contexts and MCPCs."""
    rng = np.random.default_rng(0)
    B = rng.uniform(size=(K, R))
    ranks = np.arange(1, R + 1)
    halves = mcpca.Replicability(rng.uniform(0.7, 1, size=(4, R)))
    reason = "Rank 21: halves of the rows agree best there."
    columns = {"split-half agreement": rng.uniform(size=R), "seed stability": rng.uniform(size=R)}
    return {
        "RankSelection": mcpca.RankSelection(21, reason, 25, ranks, columns, {"seed stability": 9}, halves),
        "RankChoice": mcpca.RankChoice(21, "stable", reason, ranks, rng.uniform(size=(R, 5)), 0.8, np.ones(R)),
        "Replicability": halves,
        "Bootstrap": mcpca.Bootstrap(B, B, B, B, 90 * B[0], rng.uniform(size=(100, K, R)), 0.95, 3),
        "Presence": mcpca.Presence(B, B, B, B < 0.5, 0.05, "holm"),
        "Precision": mcpca.Precision(B[0], B, 0.01, np.full(K, 100)),
        "Facets": mcpca.Facets(*[B[:, 0]] * 3, B / R, *[B[:, 0]] * 3),
        "Decomposition": mcpca.Decomposition(rng.normal(size=(500, R)), B, np.ones(R), 3, False, ""),
        "Matching": mcpca.Matching(rng.permutation(R), np.ones(R), B[0]),
        "CommonComponents": mcpca.CommonComponents(np.eye(R), B, 3.2, 10, None, 4, True),
        "OvercompleteDecomposition": mcpca.OvercompleteDecomposition(
            rng.normal(size=(9, R)), B, B[0], B[0], 0.1, 1e-3, R - 2, False
        ),
        "ContextCovariances": mcpca.ContextCovariances(
            np.zeros((K, 2, 2)),
            np.zeros((K, 2)),
            np.arange(K) + 2,
            np.array([f"context <{i}>" for i in range(K)]),
            None,
        ),
        "Sharing": how_shared(B),
        "Survival": analysis.Survival(_cox(rng), None, None),
    }


def _cox(rng):
    """A table as ``survival`` makes it."""
    names = ["hazard_ratio", "lower", "upper", "p", "bonferroni"]
    table = pd.DataFrame(rng.uniform(size=(R, 5)), index=[f"MCPC {j + 1}" for j in range(R)], columns=names)
    return table.assign(n=80, events=35)


@pytest.fixture(scope="module")
def small():
    return _fits()


LARGE = _large()


def test_a_result_is_a_screenful_in_words(small):
    for name, result in [*small.items(), *LARGE.items()]:
        assert type(result).__name__ == name
        _check(result)


def _check(result):
    text = str(result)
    assert 15 < len(text) <= SCREEN
    assert result.summary() == text
    assert text.endswith(".")
    for form in (text, repr(result)):
        assert "array(" not in form
        assert "[[" not in form
        assert "\n" not in form
        assert not re.search(r"(\d[ ,]+){12}", form)  # no rows of numbers
    assert len(repr(result)) <= 400
    page = result._repr_html_()
    assert len(page) < 8000
    assert page.count("<tr>") <= 13
    assert page.count("<table>") == page.count("</table>") <= 1


def test_every_public_result_is_printed_so():
    """No class of results that the package gives out has a dataclass's own repr, which holds every array."""
    given = {name: getattr(module, name) for module in (mcpca, analysis, baselines) for name in module.__all__}
    results = {name for name, one in given.items() if hasattr(one, "__dataclass_fields__")}
    # Preprocess is what a user says, and is printed as the call that says it.
    assert {name for name in results if not hasattr(given[name], "_repr_html_")} <= {"Method", "Preprocess"}
    assert {"RankSelection", "Bootstrap", "Presence", "Precision", "Survival"} <= results


def test_words_tell_the_numbers():
    large = LARGE
    bounds = large["Bootstrap"].angle_bounds
    most = f"{bounds.max():.2g} (MCPC {bounds.argmax() + 1}) degrees of the 30 MCPCs of the model"
    assert most in str(large["Bootstrap"])
    assert "3 resamples could not be fitted" in str(large["Bootstrap"])
    present = large["Presence"].present
    assert str(large["Presence"]).startswith(f"{present.sum():,} of 1,800 loadings are above 0 (60 contexts, 30 MCPCs;")
    assert "corrected by Holm's method" in str(large["Presence"])
    assert str(large["RankSelection"]).startswith("Rank 21: halves of the rows agree best there.")
    assert "seed stability 9" in str(large["RankSelection"])
    assert str(large["Precision"]).startswith("30 MCPCs of 60 contexts with 100 samples each")
    assert "against survival of 80 rows with 35 events" in str(large["Survival"])
    assert "not converged after 3 iterations" in str(large["Decomposition"])
    nothing = mcpca.RankSelection(0, "Nothing is above noise.", 0, np.array([1]), {}, {}, None)
    assert str(nothing) == "Nothing is above noise. Looked at: ranks 1."


def test_halves_are_told_with_their_spread():
    """What passes in one split and fails in another is called neither."""
    found = mcpca.Replicability(np.array([[0.99, 0.95, 0.3], [0.97, 0.85, 0.5]]), threshold=0.9)
    assert "Above 0.9 in every split: MCPC 1; in some: MCPC 2; in none: MCPC 3." in str(found)
    assert "3 MCPCs in 2 splits of the rows into halves" in str(found)
    assert "mean |cos| between halves 0.4 (MCPC 3) to 0.98 (MCPC 1)." in str(found)


def test_tables_of_notebooks(small):
    page = LARGE["RankSelection"]._repr_html_()
    assert "<th>rank</th><th>split-half agreement</th>" in page
    assert "<td>21</td>" in page  # ranks around the one that was chosen
    assert "<td>1</td>" not in page
    names = LARGE["ContextCovariances"]._repr_html_()
    assert "context &lt;0&gt;" in names
    assert "<0>" not in names
    assert "and 48 more rows" in names
    page = small["Replicability"]._repr_html_()
    assert "<th></th><th>mean |cos|</th><th>least</th><th>largest</th>" in page
    assert "<td>MCPC 3</td>" in page


# Submodules ----------------------------------------------------------------------------------------------------------


def _python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_submodules_come_when_they_are_asked_for():
    code = (
        "import sys, mcpca\n"
        "late = ('analysis', 'baselines', 'datasets', 'report')\n"
        "print(*(name for name in late if f'mcpca.{name}' in sys.modules), 'then')\n"
        "data = mcpca.datasets.make_contexts(3, 5, 2, random_state=0)\n"
        "print(mcpca.baselines.run('pca_c', data.X, 2, y=data.y).name, mcpca.analysis.enrichment.__name__)\n"
        "print(mcpca.exceptions.RawCountsWarning.__name__, mcpca.plotting is mcpca.pl, mcpca.report.__name__)"
    )
    assert _python(code) == ["then", "pca_c", "enrichment", "RawCountsWarning", "True", "mcpca.report"]


def test_importing_costs_no_more_than_scikit_learn():
    """Nothing that scikit-learn and SciPy would not have loaded themselves, but mcpca and the standard library."""
    code = (
        "import sys\n"
        "import scipy.linalg, scipy.optimize, scipy.sparse.linalg, scipy.stats, scipy.cluster.hierarchy\n"
        "import sklearn.base, sklearn.pipeline, sklearn.utils.validation\n"
        "before = {name.partition('.')[0] for name in sys.modules}\n"
        "import mcpca\n"
        "after = {name.partition('.')[0] for name in sys.modules} - before - set(sys.stdlib_module_names)\n"
        "print(*sorted(name for name in after if not name.startswith('_')))"
    )
    assert _python(code) == ["mcpca"]


def test_dir_gives_public_names():
    names = dir(mcpca)
    assert set(names) == {*mcpca.__all__, "__version__"}
    assert {"analysis", "baselines", "datasets", "plotting", "pl", "tl", "report", "MCPCA"} <= set(names)
    assert all(hasattr(mcpca, name) for name in names)
    with pytest.raises(AttributeError, match="module 'mcpca' has no attribute 'fish'"):
        mcpca.fish  # noqa: B018
