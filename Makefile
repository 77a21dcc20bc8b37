# make demo    set up a virtual environment, train on the embedded corpus, show what the gates chose
# make test    set up and run every test
# make lint    ruff (format and rules) and mypy
# make docs    the site, from the whole repository into docs/_build/html; a warning is an error
# make notebooks  run every notebook and keep its outputs (half an hour on two cores)
# make oldest  a quick part of the tests with the lower bounds of setup.cfg, on the oldest Python
# make newest  the same with the newest versions that setup.cfg allows, on the newest Python
# make clean   remove the virtual environments and the demo's run

PYTHON ?= python3
VENV ?= .venv
OLDEST_PYTHON ?= python3.11
NEWEST_PYTHON ?= python3.13
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# what a change of jax, flax, optax, orbax or grain breaks first
QUICK := tests/test_package.py tests/functional/test_softmax.py tests/nn tests/training/test_step.py \
  tests/training/test_train_data.py tests/data/test_batches.py
TIER_PIP := bin/python -m pip --disable-pip-version-check install --quiet

# a file stays with one worker, which trains and compiles what its tests share; longest files first
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test fast lint docs oldest newest notebooks clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gatedjax needs Python >= 3.11; $(PYTHON) is $$($(PYTHON) -V). Set it: make PYTHON=python3.12 ..."; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.plots: $(BIN)/python setup.cfg
	@echo "installing gatedjax and what its plots need into $(VENV) (about a minute)"
	@$(PIP) -e '.[plots]'
	@touch $@

$(VENV)/.dev: $(BIN)/python setup.cfg
	@echo "installing gatedjax and what its tests need into $(VENV) (about a minute)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.plots

$(VENV)/.docs: $(BIN)/python setup.cfg
	@echo "installing gatedjax and what its docs need into $(VENV) (about a minute)"
	@$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.plots

demo: $(VENV)/.plots
	@$(BIN)/python -m experiments.ga_net.demo --workdir runs/demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or not slow" $(WORKERS)

fast: $(VENV)/.dev
	$(BIN)/python -m pytest $(WORKERS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

notebooks: $(VENV)/.dev
	$(BIN)/python notebooks/build.py --execute

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html -c docs -d docs/_build/doctrees . docs/_build/html
	@echo "docs/_build/html/index.html is the start page"

.venv-oldest/.dev: setup.cfg tests/lower_bounds.py
	@echo "installing the oldest versions that gatedjax allows into .venv-oldest"
	@$(OLDEST_PYTHON) -m venv --clear .venv-oldest
	@$(OLDEST_PYTHON) -m tests.lower_bounds > .venv-oldest/constraints.txt
	@.venv-oldest/$(TIER_PIP) --upgrade pip
	@.venv-oldest/$(TIER_PIP) --constraint .venv-oldest/constraints.txt -e '.[dev]'
	@touch $@

oldest: .venv-oldest/.dev
	.venv-oldest/bin/python -m pytest -n 2 $(QUICK)

# always looks for newer versions: nothing here says which ones there are
newest:
	@$(NEWEST_PYTHON) -m venv .venv-newest
	@.venv-newest/$(TIER_PIP) --upgrade --upgrade-strategy eager -e '.[dev]'
	.venv-newest/bin/python -m pytest -n 2 $(QUICK)

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest runs/demo docs/_build docs/api/*/
