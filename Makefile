# Two commands do everything on a fresh machine: `make demo` and `make test`. Each creates .venv when it is missing.
PYTHON ?= python3
BIN    := .venv/bin
# Worker processes share the cores: one thread each, and waiting threads sleep rather than spin.
SHARED := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE

.PHONY: setup demo test fast lint docs clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m unmask.demo

test: setup
	$(SHARED) $(BIN)/python -m pytest -n 2 --dist loadfile

fast: setup
	$(SHARED) $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	$(BIN)/python -m unmask.reference > docs/recipes.md

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
