# make run    the embedded demo, from nothing to its report
# make test   the tests
# make faults the fault scenarios at full size: 200 workers killed over 500 units (ten to thirty minutes)
# All create the environment first.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
EXTRAS ?= dev

.PHONY: run test faults docs notebooks clean

run: $(VENV)/.installed
	$(BIN)/python -m daskmetrics run

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

faults: $(VENV)/.installed
	DASKMETRICS_FAULTS=full DASKMETRICS_SEEDS=10000 $(BIN)/python -m pytest tests/faults tests/execution tests/slurm $(PYTEST_ARGS)

docs: $(VENV)/.installed
	$(BIN)/python docs/catalogue.py
	$(BIN)/python docs/reference.py

# two notebooks need what not every machine has
LACKING := $(if $(SLURM_CONF),,notebooks/slurm_login_node.ipynb) \
	$(if $(DASKMETRICS_PUBLISHED_DATA),,notebooks/replay_published.ipynb)

LEFT_OUT := Left out without SLURM_CONF or DASKMETRICS_PUBLISHED_DATA: $(strip $(LACKING))

notebooks: $(VENV)/.installed
	@$(if $(strip $(LACKING)),echo "$(LEFT_OUT)",true)
	$(BIN)/python -m pytest --nbmake notebooks --nbmake-timeout=600 -p no:cacheprovider -W default \
		$(addprefix --ignore=,$(LACKING))

$(VENV)/.installed: pyproject.toml ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	# torch first and alone: the others would ask for the newest build
	$(BIN)/python -m pip install --quiet --constraint ci/constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint ci/constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
