# make demo    set up a virtual environment, train on the embedded corpus, show what the gates chose
# make test    set up and run every test
# make lint    ruff (format and rules) and mypy
# make clean   remove the virtual environment and the demo's run

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test fast lint notebooks clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gatedjax needs Python >= 3.11; $(PYTHON) is $$($(PYTHON) -V). Set it: make PYTHON=python3.12 ..."; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.plots: $(BIN)/python setup.cfg
	@echo "installing gatedjax[plots] into $(VENV) (about a minute)"
	@$(PIP) -e '.[plots]'
	@touch $@

$(VENV)/.dev: $(BIN)/python setup.cfg
	@echo "installing gatedjax[dev] into $(VENV) (about a minute)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.plots

demo: $(VENV)/.plots
	@$(BIN)/python -m experiments.ga_net.demo --workdir runs/demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or not slow" -n 2 --dist worksteal

fast: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) runs/demo
