# make gate    from nothing to a verdict: environment, install, run, judge
# make test    everything that CI checks: ruff, mypy --strict, pytest (T= picks tests)
# make help    the other targets

PYTHON ?= python3
VENV ?= .venv
# The exact build of torch to install. A plain `torch` may bring a CUDA build of several gigabytes;
# override it for a GPU machine: make gate TORCH="torch==2.5.1" DEVICE=cuda
TORCH ?= torch==2.13.0
DEVICE ?= cpu
T ?= tests
PUBLISHED ?= mnist-medium-a100
# Where freeze-mnist leaves its evidence; an interrupted qualification goes on there.
OUT ?= qualgate-runs
# Further torch releases for portability-check. INSTALL=1 downloads them, qemu and foreign Pythons into
# .portability/ and nothing into the system; without it, what is there is used and the rest said to be missing.
TORCHES ?= 2.5.1

BIN := $(VENV)/bin
.DEFAULT_GOAL := help
.PHONY: help install install-test gate test lint bench schemas freeze-shipped freeze-mnist mnist-draws device-check \
  picture planted-faults portability-check clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp per set of requirements, so that a second `make gate` installs nothing.
$(VENV)/.installed-$(TORCH): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[fixture]"
	@touch "$@"

$(VENV)/.installed-test: pyproject.toml $(VENV)/.installed-$(TORCH)
	$(BIN)/python -m pip install --quiet --editable ".[fixture,test]"
	@touch "$@"

install: $(VENV)/.installed-$(TORCH) ## Make the virtual environment and install qualgate with torch

install-test: $(VENV)/.installed-test ## The same, with what the tests need

gate: install ## Run the default case and judge it by the frozen record
	@$(BIN)/qualgate gate --device $(DEVICE)

test: install-test lint ## ruff, mypy --strict and pytest
	$(BIN)/python -m pytest $(T)

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy orchestrator schemas tests/orchestrator tests/*.py
	$(BIN)/mypy --config-file fixture/mypy.ini fixture tests/fixture tests/device

bench: install-test ## Speed and memory: ratios and medians, measured in one run
	$(BIN)/python -m tests.bench

schemas: install-test ## Write schemas/ from the models
	$(BIN)/qualgate schema --out schemas

freeze-shipped: install ## Freeze the default case into the package: REASON="..." [OLD=record]
	$(BIN)/qualgate freeze --records orchestrator/records --reason "$(REASON)" \
	  $(if $(OLD),--supersedes "$(OLD)")

freeze-mnist: install ## Qualify MNIST draws 0 to 5 and put the frozen records into the package: IDX=folder [OUT=folder]
	for numerics in portable native; do \
	  $(BIN)/qualgate qualify mnist-0-5-$$numerics --idx-dir "$(IDX)" --out "$(OUT)/mnist-0-5-$$numerics" || exit; \
	  cp "$(OUT)/mnist-0-5-$$numerics"/frozen/* orchestrator/records/ || exit; \
	done

mnist-draws: install ## Reproduce published MNIST draws: IDX=folder [PUBLISHED=file]
	$(BIN)/qualgate gate --published "$(PUBLISHED)" --idx-dir "$(IDX)"

device-check: install-test ## The checks that need a CUDA device, in one command
	$(BIN)/python -m pytest -m device tests/device

picture: install-test ## Run a passing and a failing gate and draw their verdicts into docs/
	@$(BIN)/python -m tests.picture

planted-faults: install-test ## Plant faults into single training steps; say where the trace finds each
	@$(BIN)/python -m tests.fixture.planted_faults

portability-check: install-test ## Portable bits under every setting, torch and machine: [INSTALL=1] [TORCHES=2.5.1]
	@$(BIN)/python -m tests.portability $(if $(INSTALL),--install) $(addprefix --torch ,$(TORCHES))

clean: ## Remove the virtual environment, caches and run folders
	rm -rf $(VENV) .portability qualgate-runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
