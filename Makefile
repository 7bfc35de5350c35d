# make run       the embedded demo, from nothing to its report
# make test      what matters, in small: run it before each commit
# make test-all  all tests; DASKMETRICS_TEST_SLURM=1 and DASKMETRICS_PUBLISHED_DATA=DIR switch on what needs them
# make lint      format, lint, types, import contracts
# make docs      the documentation as a site, in docs/_build/html
# make notebooks the notebooks
# make benchmarks each benchmark that takes long, at its smallest (ten minutes): run it when one of them changes
# make faults    10,000 histories on a simulated disk, 1,000 broken inputs of each reader, and the fault scenarios at full
#                size: 200 workers killed over 500 units (ten to thirty minutes)
# All create the environment first, with the extras in EXTRAS: `make test-all EXTRAS=dev,mteb,trees` skips no test for want
# of a package.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
EXTRAS ?= dev
INSTALLED := $(VENV)/.installed-$(EXTRAS)
# tests run side by side on this many processes
JOBS ?= 2

.PHONY: run test test-all test-slurm test-rest lint docs notebooks benchmarks faults clean

run: $(INSTALLED)
	$(BIN)/python -m daskmetrics run

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow and not slurm and not browser" $(PYTEST_ARGS)

# the two at a time: tests of Slurm mostly wait
test-all: $(INSTALLED)
	$(MAKE) --no-print-directory -j 2 test-slurm test-rest

test-slurm: $(INSTALLED)
	$(BIN)/python -m pytest -m slurm $(PYTEST_ARGS)  # one Slurm serves all its tests, one at a time

test-rest: $(INSTALLED)
	DASKMETRICS_CASES=300 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder \
		-m "not slurm and not benchmark" $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(INSTALLED)
	$(BIN)/python docs/catalogue.py
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

# two notebooks need what not every machine has
MISSING := $(if $(SLURM_CONF),,notebooks/slurm_login_node.ipynb) \
	$(if $(DASKMETRICS_PUBLISHED_DATA),,notebooks/replay_published.ipynb)

SKIPPED := Skipped without SLURM_CONF or DASKMETRICS_PUBLISHED_DATA: $(strip $(MISSING))

notebooks: $(INSTALLED)
	@$(if $(strip $(MISSING)),echo "$(SKIPPED)",true)
	$(BIN)/python -m pytest -n $(JOBS) --nbmake notebooks --nbmake-timeout=600 -p no:cacheprovider -W default \
		$(addprefix --ignore=,$(MISSING))

benchmarks: $(INSTALLED)
	$(BIN)/python -m pytest -n $(JOBS) -m benchmark tests/benchmarks $(PYTEST_ARGS)

faults: $(INSTALLED)
	DASKMETRICS_FAULTS=full DASKMETRICS_SEEDS=10000 DASKMETRICS_CASES=1000 $(BIN)/python -m pytest --timeout 1800 \
		tests/faults tests/execution tests/fuzz tests/slurm $(PYTEST_ARGS)

$(INSTALLED): pyproject.toml ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	# torch first and alone: the others would ask for the newest build
	$(BIN)/python -m pip install --quiet --constraint ci/constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint ci/constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) runs docs/_build docs/generated .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
