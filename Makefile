# Few verbs, the same at the desk and in CI. `make demo` and `make test` need nothing but make and Python >= 3.11.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test lint check chaos bench lock clean redis valgrind browser

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.runtime ## the package and what it needs to run, in .venv

demo: $(VENV)/.runtime ## replay recorded generations through an embedded worker and print the text
	$(BIN)/derender demo $(ARGS)

test: $(VENV)/.dev redis valgrind ## run the tests; ARGS goes to pytest
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: lint ## lint, and the types by mypy --strict
	$(BIN)/mypy --strict

chaos: $(VENV)/.dev redis ## the long tests that kill workers and servers; ARGS goes to pytest
	$(BIN)/python -m pytest -m chaos $(ARGS)

bench: $(VENV)/.dev redis ## run every benchmark, one after the other
	set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python -m "benchmarks.$$(basename "$$script" .py)" $(ARGS); done

# --- set-up ----------------------------------------------------------------------------------------------------------

# Debian packages are installed where that needs no answer from a person: as root, or by a sudo that asks for nothing.
apt_install = if [ "$$(id -u)" = 0 ]; then as_root=; elif sudo -n true 2>/dev/null; then as_root='sudo -n'; else false; fi \
	&& command -v apt-get >/dev/null \
	&& echo "installing $(1) with apt-get" \
	&& { $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) >/dev/null 2>&1 \
	|| { $$as_root apt-get update -qq >/dev/null \
	&& $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) >/dev/null; }; }

# Debian leaves ensurepip out of python3; its package python3-venv has it.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with PYTHON=…")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(call apt_install,python3-venv); } \
		|| { echo "python3 cannot make virtual environments: install the package python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# Every package comes from the lock with its hash; the project itself is linked, without a second look at dependencies.
$(VENV)/.runtime: requirements/worker.txt pyproject.toml $(VENV)/.created
	$(PIP) --require-hashes -r requirements/worker.txt
	$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml $(VENV)/.created
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

redis:
	@command -v redis-server >/dev/null || { $(call apt_install,redis-server); } \
		|| echo "redis-server is missing: install Debian's package redis-server, or Redis >= 7.0 in another way" >&2

valgrind:
	@command -v valgrind >/dev/null || { $(call apt_install,valgrind); } \
		|| echo "valgrind is missing: the test that counts instructions is skipped" >&2

browser: ## Debian's chromium, for the tests in a browser
	@command -v chromium >/dev/null || { $(call apt_install,chromium); } \
		|| echo "chromium is missing: the tests in a browser are skipped" >&2

# --- maintenance -----------------------------------------------------------------------------------------------------

# dev.txt is solved first; the others may only take versions from it, so one environment can hold all of them.
COMPILE = CUSTOM_COMPILE_COMMAND="make lock" $(VENV)-lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras \
	--allow-unsafe --no-emit-options --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

lock: ## solve the dependencies anew and write requirements/*.txt
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --disable-pip-version-check install --quiet pip-tools
	$(COMPILE) --all-extras --output-file requirements/dev.txt requirements/build.in pyproject.toml
	$(COMPILE) --extra worker --extra embedded --extra gateway --extra console --constraint requirements/dev.txt \
		--output-file requirements/worker.txt requirements/build.in pyproject.toml
	$(COMPILE) --constraint requirements/dev.txt --output-file requirements/base.txt requirements/build.in pyproject.toml
	rm -r $(VENV)-lock

clean: ## remove the environment and everything that tools left behind
	rm -rf $(VENV) $(VENV)-lock build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
