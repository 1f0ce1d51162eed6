# make demo   set up, then: design the paper's masks, compile, run, compare, report        make lab   open the studio
# make test   everything that can run on this machine: linters, types, tests, coverage      make docs  build the site
# make lint   formatting, linters and types alone                                           make clean remove what make made

SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; print("$(name)") if sys.version_info >= (3, 11) else None' 2>/dev/null)))
BIN := $(VENV)/bin
PYTEST_ARGS ?=
INSTALLED_FROM := pyproject.toml constraints.txt .ci/install.py
FRONTEND := widgets/frontend

.DEFAULT_GOAL := demo
.PHONY: demo lab test lint docs clean

demo: $(VENV)/.installed-lab
	$(BIN)/cmask demo

lab: $(VENV)/.installed-lab
	$(BIN)/jupyter lab notebooks/studio.ipynb

test: $(VENV)/.installed-dev $(FRONTEND)/node_modules/.package-lock.json lint
	$(BIN)/pytest --cov --cov-report= $(PYTEST_ARGS)
	$(BIN)/coverage report --include='cmask_lab/masks/*' --fail-under=90
	$(BIN)/coverage report --include='cmask_lab/compiler/*' --fail-under=90

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	rm -rf build/typecheck
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/typecheck .
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The environment: made once, brought up to date only when a file that it is made from changes.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "cmask_lab needs Python 3.11 or newer: install it, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@# A PyTorch with CUDA that the interpreter already has (an image for GPUs) is used, not loaded again.
	@if $(PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; \
		then $(PYTHON) -m venv --system-site-packages $(VENV); else $(PYTHON) -m venv $(VENV); fi

$(VENV)/.installed-lab: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python .ci/install.py lab demo
	@touch $@

$(VENV)/.installed-dev: $(INSTALLED_FROM) | $(BIN)/python
	$(BIN)/python .ci/install.py lab,dev,docs test
	@touch $@ $(VENV)/.installed-lab

# What builds the front end: the tests check that the file which ships is the one built from the sources.
$(FRONTEND)/node_modules/.package-lock.json: $(FRONTEND)/package-lock.json
	@if command -v npm >/dev/null && npm ci --prefix $(FRONTEND) --silent --no-audit --no-fund; then touch $@; \
		else echo "npm ci in $(FRONTEND) did not work: the tests that build the front end are skipped and say so"; fi

clean:
	rm -rf $(VENV) build dist site .coverage report.html report.json exported
