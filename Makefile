# `make demo` and `make test` set up all they need: python3 (3.10 or later) with venv, make and git are enough.
# Everything lands in .venv and in pip's cache folder.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints-dev.txt
INPUTS := pyproject.toml constraints-dev.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint cover bench clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

# The demo needs the package, its emulator and the kernels. amd-aiter is pure data here, so none of what it
# depends on is installed (--no-deps); its version is stated once, in pyproject.toml.
$(VENV)/.demo: $(INPUTS)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[emulator]'
	$(INSTALL) --no-deps "$$($(VENV)/bin/python -c "from importlib.metadata import requires; \
	print(next(r.split(';')[0] for r in requires('asmlaunch') if r.startswith('amd-aiter')))")"
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(INSTALL) --editable '.[emulator,hip,dev]'
	@touch $@

demo: $(VENV)/.demo ## Verify a real MI350 kernel on the CPU, after setting everything up
	$(VENV)/bin/asmlaunch verify a4w4

lint: $(VENV)/.test ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

cover: $(VENV)/.test ## pytest with coverage
	$(VENV)/bin/pytest --cov --cov-report=term --cov-fail-under=90

test: lint cover ## All checks: ruff, mypy, pytest with coverage

bench: $(VENV)/.test ## Time launches
	$(VENV)/bin/python benchmarks/first_launch.py

clean: ## Remove everything that make built
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks .coverage
