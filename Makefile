# `make demo` and `make test` set up all they need: python3 (3.10 or later) with venv, make, git and a C compiler are
# enough. Everything lands in .venv and in the user's cache folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints-dev.txt
INPUTS := pyproject.toml constraints-dev.txt
HIP72 := $(VENV)/hip-python-7.2
DEBIAN := build/debian

.DEFAULT_GOAL := help
.PHONY: help demo test lint cover test-hip72 test-debian-runtime bench clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 24

# The demo needs the package, its emulator and the kernels. amd-aiter is pure data here, so none of what it
# depends on is installed (--no-deps); its version is stated once, in pyproject.toml.
$(VENV)/.demo: $(INPUTS)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[emulator]'
	$(INSTALL) --no-deps "$$($(BIN)/python -c "from importlib.metadata import requires; \
	print(next(r.split(';')[0] for r in requires('asmlaunch') if r.startswith('amd-aiter')))")"
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(INSTALL) --editable '.[emulator,hip,torch,triton,dev]'
	@touch $@

# The older hip-python, whose module comes before the installed one where this folder is on PYTHONPATH.
$(HIP72): $(VENV)/.test
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --target $@ 'hip-python>=7.2,<8'

# A real AMD runtime, unpacked and not installed: it finds no GPU, and must say so well.
$(DEBIAN):
	mkdir -p $@/packages
	cd $@/packages && apt-get -qq download libamdhip64-5 libamd-comgr2 libhsa-runtime64-1 libhsakmt1 libnuma1
	for package in $@/packages/*.deb; do dpkg-deb -x $$package $@; done

demo: $(VENV)/.demo ## Verify a real MI350 kernel on the CPU, after setting everything up
	$(BIN)/asmlaunch verify a4w4

test: lint cover test-hip72 ## All checks: ruff, mypy, pytest with coverage, both hip-python versions

lint: $(VENV)/.test ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

cover: $(VENV)/.test ## pytest with coverage, a process a core
	$(BIN)/pytest --numprocesses auto --dist loadfile --cov --cov-report=term --cov-fail-under=90

test-hip72: $(HIP72) ## The HIP device through hip-python 7.2
	PYTHONPATH=$(HIP72) $(BIN)/pytest --quiet tests/devices

test-debian-runtime: $(VENV)/.test $(DEBIAN) ## The HIP device through Debian's HIP runtime (needs apt)
	LD_LIBRARY_PATH="$$(echo $(CURDIR)/$(DEBIAN)/usr/lib/*-linux-gnu)" $(BIN)/pytest -m debian_runtime tests/devices

bench: $(VENV)/.test ## Time launches
	$(BIN)/python benchmarks/first_launch.py
	$(BIN)/python benchmarks/hip_overhead.py

clean: ## Remove everything that make built
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks .coverage
