# Two commands set up everything on a fresh machine: `make quickstart` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: quickstart test slow coverage check format docs bench clean

quickstart: $(VENV)/.installed
	$(BIN)/hilp quickstart --out runs/quickstart --overwrite

# As many workers as cores; each keeps to its own half of the files, whose tests share what is trained for them.
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal -m "not slow" tests

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow tests

# Apart from `test`, because counting lines costs half as much again on Python 3.11 (on 3.12 COVERAGE_CORE=sysmon
# is nearly free). Reported, not a gate.
coverage: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal -m "not slow" --cov --cov-report=term --cov-report=html:build/coverage tests

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_files.py
	$(BIN)/python tools/docs_tables.py --check
	$(BIN)/python tools/wrap_docs.py --check

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/docs_tables.py
	$(BIN)/python tools/wrap_docs.py

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) build dist site *.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "hilp needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) -c constraints.txt -e '.[play,serve]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -c constraints.txt -e '.[dev,formats,mujoco,plots]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) -c constraints.txt -e '.[docs]'
	touch $@
