# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv once and reinstalls nothing afterwards.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
export MPLBACKEND := Agg
export JUPYTER_PLATFORM_DIRS := 1
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test test-slow check lint format docs clean help

help:
	@echo "make demo       train a small network on MNIST, analyse its curvature, write out/demo/report.html"
	@echo "make test       the fast tests (minutes)"
	@echo "make check      format, lint, types, import contract, tests, docs"
	@echo "make test-slow  statistical and cross-library tests"

$(STAMP)-core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Eigenscape needs Python 3.11 or newer: make PYTHON=python3.12 demo")'
	$(BIN)/pip install --quiet -c constraints.txt -e '.[data]'
	touch $@

$(STAMP)-test: $(STAMP)-core
	$(BIN)/pip install --quiet -c constraints.txt -e '.[test]'
	touch $@

$(STAMP)-dev: $(STAMP)-test
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)-core
	$(BIN)/eigenscape demo --out out/demo

test: $(STAMP)-test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

test-slow: $(STAMP)-test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m slow

check: lint test
	$(BIN)/mkdocs build --strict --quiet

lint: $(STAMP)-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMP)-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)-dev
	$(BIN)/mkdocs serve

clean:
	rm -rf .venv site build out
