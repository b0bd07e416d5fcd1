# GNU make and a POSIX shell. PYTHON names the interpreter that .venv is made with, PORT the web's port.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# Each package has its hash in the file, so pip takes nothing else; a wheel runs no code of others while it is installed.
# A terminal shows pip's own progress; a log has its errors alone.
LOCKED := $(PIP) `[ -t 2 ] || echo --quiet` --only-binary :all: -r
# Ourselves have none: built by the hatchling of the file, which would otherwise be fetched anew and unchecked.
OURSELVES := $(PIP) --quiet --no-deps --no-build-isolation -e .
UV ?= uv
LOCK := $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url

# Without byte code every process of the tests compiles all modules and assertions anew: half a minute of the unit tests.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest
# Three processes, also on two cores: whole systems, and who waits for one, leave a third of the time to others. They take
# one file after the other, in the order of tests/conftest.py: those that take longest first.
THREE_AT_A_TIME := -n 3 --dist loadfile --no-loadscope-reorder
# The other folders have none but heavy tests, and reading them takes seconds.
QUICK := -m 'not heavy and not long' $(wildcard tests/test_*.py) tests/unit tests/integration tests/journeys

CORE := answer worker_killed cancel approvals workflows tools webhook agents_together

.DEFAULT_GOAL := up
.PHONY: help up test test-all test-postgresql learn lint check bench chaos hostile lock

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
	  while IFS='|' read -r name does; do printf '  make %-10s %s\n' "$$name" "$$does"; done

# exec: make's only child is Loom itself, so Ctrl-C and SIGTERM reach it and make waits for its end.
up: $(VENV)/.installed  ## run everything on this machine until Ctrl-C; PORT=8001 chooses the port
	@exec $(BIN)/loom up $(if $(PORT),--port $(PORT))

test: $(VENV)/.installed-dev  ## run the tests but for the slow ones; ARGS="tests/unit/turn -x" runs others
	@exec $(PYTEST) $(or $(ARGS),$(THREE_AT_A_TIME) $(QUICK))

test-all: $(VENV)/.installed-dev  ## run all tests, with attacks and faults; those marked "long" are left out
	@exec $(PYTEST) $(THREE_AT_A_TIME) tests

# Whole systems that keep their store on a server; the others differ from these in what does not touch the store.
test-postgresql: $(VENV)/.installed-dev  ## run the core journeys on a PostgreSQL server
	@exec $(PYTEST) $(THREE_AT_A_TIME) --store postgresql $(or $(ARGS),$(patsubst %,tests/journeys/test_%.py,$(CORE)))

learn: $(VENV)/.installed-learn  ## run the tests with DSPy itself, which is installed for them
	@exec $(PYTEST) tests/integration/learned

lint: $(VENV)/.installed-dev  ## mend what ruff can mend, then check the rest and the types
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

check: $(VENV)/.installed-dev  ## the same, but change nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev  ## measure speed and memory; ARGS=--help tells what
	@exec $(BIN)/python -m bench $(ARGS)

chaos: $(VENV)/.installed-dev  ## kill processes by the dozen and look whether a promise broke; ARGS="--form long"
	@exec $(BIN)/python -m tests.chaos $(ARGS)

# What strangers do to a running Loom: floods, slow clients, full disks, bad messages, huge replies.
hostile: $(VENV)/.installed-dev  ## run the attacks alone; FORM=long adds those that take many minutes
	@SEARCH_S=600 exec $(PYTEST) $(if $(filter long,$(FORM)),-m 'long or not long') $(or $(ARGS),tests/hostile)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Loom into $(VENV); the first time takes a minute"
	@$(LOCKED) constraints.txt
	@$(OURSELVES)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints-dev.txt | $(BIN)/python
	@echo "installing Loom and its test tools into $(VENV); the first time takes a minute"
	@$(LOCKED) constraints-dev.txt
	@$(OURSELVES)
	@touch $@ $(VENV)/.installed

# DSPy brings some thirty packages; those that Loom has, too, have its versions, so that it changes nothing for other tests.
$(VENV)/.installed-learn: constraints-learn.txt $(VENV)/.installed-dev
	@echo "installing DSPy into $(VENV)"
	@$(LOCKED) constraints-learn.txt
	@touch $@

# The files of exact versions anew, for all systems and Pythons at once; what they hold is kept while pyproject.toml
# allows it. ARGS=--upgrade takes the newest, ARGS="--upgrade-package flask" one. Needs uv (pip install uv).
lock:  ## write the files of exact versions anew; ARGS=--upgrade takes the newest
	@printf '%s\n' 'hatchling>=1.26,<2' | $(LOCK) -o constraints.txt pyproject.toml - $(ARGS) >/dev/null
	@$(LOCK) --extra dev -c constraints.txt -o constraints-dev.txt pyproject.toml $(ARGS) >/dev/null
	@sed -n 's/^learn = \["\(.*\)"\].*/\1/p' pyproject.toml | $(LOCK) -c constraints-dev.txt -o constraints-learn.txt - $(ARGS) >/dev/null

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) not found: install Python 3.11 or newer, or name one: make up PYTHON=/path/of/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Loom needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) -V 2>&1`; name another: make up PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "this Python cannot make virtual environments; bring that with:" >&2; \
	    echo "  sudo apt-get install `$(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'`" >&2; exit 1; }
	@echo "making $(VENV) with `$(PYTHON) -V`"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
