# All that a fresh Debian or Ubuntu machine with Python (>= 3.11) and make needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Of [dependency-groups] in pyproject.toml; demo is an extra that users have too.
GROUPS := test mutation test-torch test-scanpy matrix lint docs benchmark studies

.PHONY: test coverage mutation test-torch test-scanpy test-matrix constraints browser lint docs demo benchmark paper studies clean

# A process for each of two cores, with one thread of BLAS: more would wait for each other. Threads have tests of their own.
test: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile $(PYTEST)

# The same tests, and which lines and branches of src none of them runs, those of processes that tests start included.
# Fails below the floor in pyproject.toml, or below that of the numerical core.
coverage: $(VENV)/.test
	rm -f .coverage .coverage.*
	$(MAKE) test PYTEST="--cov --cov-report= --cov-fail-under=0"
# Of processes that ended after the last test.
	! ls .coverage.* >/dev/null 2>&1 || $(BIN)/python -m coverage combine -q --append
	$(BIN)/python -m coverage report
	@echo "the numerical core, at least 97:"
	$(BIN)/python -m coverage report --format=total --fail-under=97 --include='*/_linalg/*,*/_solvers/*,*/_covariances/*,*/_model/*'

# Faults put into the numerical core one at a time: does a test fail? MUTATION="--modules _solvers/lsq.py --minutes 5".
mutation: $(VENV)/.test $(VENV)/.mutation
	$(BIN)/python benchmarks/mutation.py $(MUTATION)

# Chromium for the tests of the report, which are skipped where it is not found.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq chromium chromium-driver >/dev/null; }

# Arrays on other devices and embeddings of words, with PyTorch, which is too large for `make test`.
test-torch: $(VENV)/.test-torch
	$(BIN)/python -m pytest -q tests/covariances/test_device_stack.py tests/covariances/test_device_sparse.py \
	  tests/analysis/test_embeddings.py

# Neighbours and UMAP of scanpy on scores, and what it does to raw counts; scanpy brings a compiler.
test-scanpy: $(VENV)/.test-scanpy
	$(BIN)/python -m pytest -q tests/tl/test_tl.py
# In a process of its own: the one above switches Numba's compiler off, without which scanpy's normalize_total fails.
	$(BIN)/python -m pytest -q tests/data/test_*_of_scanpy.py

# Every version that is claimed, in environments below .nox, about two hours: MATRIX="-s lowest" is one session of it, MATRIX="-l"
# lists them, MATRIX="-s highest -- --fast" has a selection of the tests. A Python that is missing is named in the table.
test-matrix: $(VENV)/.matrix
	@rm -rf .nox/results
	$(BIN)/nox $(MATRIX); status=$$?; $(BIN)/python .ci/matrix_table.py .nox/results && exit $$status

# The lower bounds of pyproject.toml, resolved: to be run when one of them changes.
constraints: $(VENV)/.matrix
	$(BIN)/nox -s constraints

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: lint-workflows changelog-draft changelog-check release-check release

# Workflows and the other files that services read. actionlint, which is no Python package, runs where it is found.
lint-workflows: $(VENV)/.tools
	$(BIN)/zizmor --offline --quiet --pedantic .github
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.readthedocs .readthedocs.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.codecov .codecov.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format --default-filetype yaml CITATION.cff
	@if command -v actionlint >/dev/null; then actionlint; else echo "actionlint is not on the path, and did not run."; fi

# What the next version will tell users, and whether a branch has a fragment for it: BASE is what it is compared with.
BASE ?= main
changelog-draft: $(VENV)/.tools
	$(BIN)/towncrier build --draft --version next
changelog-check: $(VENV)/.tools
	$(BIN)/towncrier check --compare-with $(BASE)

# Wheel and source archive in dist/, looked into, installed in empty environments and tried there. Nothing is uploaded.
# RELEASE="--tagged" asks for the version of a tag.
release-check: $(VENV)/.tools
	$(BIN)/python tools/release_check.py $(RELEASE)

# Changelog, citation and recipe for a version: make release VERSION=0.2.0. CONTRIBUTING.md says what comes after.
release: $(VENV)/.tools
	$(BIN)/python tools/cut_release.py $(VERSION)

# Pages go to docs/_build/html. Tutorials are executed; a warning or a cell that fails is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# Pictures and the report go to demo-output/.
demo: $(VENV)/.demo
	$(BIN)/python -m mcpca.demo --output demo-output

# BENCHMARK="--reference DIR" measures the authors' code beside ours; --help tells the rest.
benchmark: $(VENV)/.benchmark
	$(BIN)/python benchmarks/run.py $(BENCHMARK)

# The paper's comparison with other methods; PAPER="--quick" takes 3 minutes. The photographs need what the demo needs.
paper: $(VENV)/.demo
	$(BIN)/python -m mcpca.paper --output paper-output $(PAPER)

# Studies of real data, about two minutes each on one core: make studies DATA=DIR, or with STUDY=tcga one of them.
STUDY ?= all
# Said before anything is installed, which a recipe is too late for.
ifeq ($(DATA),)
$(if $(filter studies,$(MAKECMDGOALS)),$(error make studies needs DATA=DIR, the folder of data; docs/studies says what it holds))
endif
studies: $(VENV)/.studies
	$(BIN)/python studies/run.py $(STUDY) --data $(DATA) --output study-output

clean:
	rm -rf $(VENV) demo-output benchmark-output paper-output study-output docs/_build .nox .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
	  .mutation .coverage .coverage.*

$(VENV)/.tools: tools/requirements.txt pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --requirement tools/requirements.txt --editable .
	@touch $@

# One stamp per group: `make demo` installs no test tools and the other way round. uv reads groups, and is quick.
$(GROUPS:%=$(VENV)/.%): $(VENV)/.%: pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --group $* --editable .
	@touch $@

$(VENV)/.demo: pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[demo]'
	@touch $@

$(BIN)/uv: | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

# Debian and Ubuntu ship venv apart from Python.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
