# Every target sets up what it needs by itself: .venv, and Java 17 (tools/setup.sh).
PYTHON := .venv/bin/python
TEST_PROCESSES ?= 2
PYTEST_ARGS ?=
BENCH_ARGS ?=

# Spark's Python workers are of the same environment as its driver.
export PYSPARK_PYTHON := $(CURDIR)/$(PYTHON)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench format clean setup setup-python

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

demo: setup ## two Spark writers on one Delta table, on real data
	@$(PYTHON) examples/demo.py

test: setup ## all tests, in parallel processes
	@tools/delta_jars.sh
	@$(PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)

check: setup-python ## format, lint, types, and the layers
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports --cache-dir .cache/import-linter

bench: setup ## txlake beside raw Spark and delta-rs
	@$(PYTHON) -m bench $(BENCH_ARGS)

format: setup-python ## puts the code into its format
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

clean: ## removes what the other targets made
	rm -rf .venv .cache .hypothesis spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@tools/setup.sh

setup-python:
	@tools/setup.sh --no-java
