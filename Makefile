# All that a fresh Debian or Ubuntu machine with Python (>= 3.11) and make needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test coverage mutation test-torch test-scanpy browser lint docs demo benchmark paper studies clean

# A process for each of two cores, with one thread of BLAS: more would wait for each other. Threads have tests of their own.
test: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

# The same tests, and which lines and branches of src none of them runs, those of processes that tests start included.
# Fails below the floor in pyproject.toml, or below that of the numerical core.
coverage: $(VENV)/.test
	rm -f .coverage .coverage.*
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --cov --cov-report= --cov-fail-under=0
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

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

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
	rm -rf $(VENV) demo-output benchmark-output paper-output study-output docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
	  .mutation .coverage .coverage.*

# One stamp per set of extras: `make demo` installs no test tools and the other way round.
$(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# Debian and Ubuntu ship venv apart from Python.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
