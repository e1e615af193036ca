# `make` alone explains itself. Everything installs into .venv; `make clean` forgets it.

PYTHON ?= python3
ENVIRONMENT := PYTHON="$(PYTHON)" sh scripts/environment.sh
BIN := .venv/bin
SAY = @printf '\n== %s\n'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help run test lint types contracts docs docs-check pytest test-long bench format clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/.installed ## See it work: a demo catalog and the console (ARGS="…" for its options)
	@$(BIN)/dalsegno demo $(ARGS)

test: lint types contracts docs-check pytest ## Everything CI checks: lint, types, contracts, docs, tests

lint: .venv/.installed-test ## Check style and formatting
	$(SAY) "ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv/.installed-test ## Check types (mypy, strict)
	$(SAY) "mypy"
	@$(BIN)/mypy

contracts: .venv/.installed-test ## Check that dependencies point one way
	$(SAY) "import-linter"
	@$(BIN)/lint-imports --no-logo

docs: .venv/.installed-test ## Regenerate the generated parts of the documentation
	@$(BIN)/python scripts/docs.py

docs-check: .venv/.installed-test ## Check that the documentation tells the truth
	$(SAY) "docs"
	@$(BIN)/python scripts/docs.py --check

pytest: .venv/.installed-test .venv/.installed-subsonic ## Run the tests only (ARGS="tests/store -k claim" for some)
	$(SAY) "pytest"
	@$(BIN)/pytest -n 2 --dist loadgroup $(ARGS)

test-long: .venv/.installed-test .venv/.installed-subsonic ## Run the tests that take minutes
	@$(BIN)/pytest -m long --timeout=3600 $(ARGS)

bench: .venv/.installed-bench ## Measure the engine beside its peers, in one run (ARGS="…")
	@$(BIN)/python -m bench.compare $(ARGS)

format: .venv/.installed-test ## Put the code in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean: ## Remove the environment, caches and builds; databases are left alone
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is as old as its installation: it is made again only when what it was made from has changed.
.venv/.installed: pyproject.toml constraints.txt scripts/environment.sh
	@$(ENVIRONMENT)

.venv/.installed-test: pyproject.toml constraints.txt scripts/environment.sh
	@$(ENVIRONMENT) test

.venv/.installed-bench: pyproject.toml constraints.txt scripts/environment.sh
	@$(ENVIRONMENT) test bench

# A Subsonic server for the tests. Its libraries are its own, so it gets an environment of its own.
.venv/.installed-subsonic: constraints.txt | .venv/.installed-test
	@$(BIN)/python -m venv .venv/subsonic
	@.venv/subsonic/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt supysonic waitress
	@touch $@
