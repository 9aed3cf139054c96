# What CI runs, a developer runs: .ci/run calls `make test` and `make check`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Most tests wait for processes they started: three workers keep two cores busy.
WORKERS ?= 3
# The chaos run: how long, and which dice.
SECONDS ?= 600
SEED ?= 7

.DEFAULT_GOAL := help
.PHONY: help setup system demo test chaos check bench lock format clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## Create .venv with every extra (does nothing when nothing changed)

# The locked set is installed with hashes; the checkout itself is installed on top without resolving anything.
$(STAMP): requirements.lock pyproject.toml bridge/version.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "outbox-bridge needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another with: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python lacks venv; as root run: apt-get install -y python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

system:  ## As root: install the system programs that tests and demo use (Java, Maven, PostgreSQL 15, PgBouncer, Chromium, Prometheus, Go, Node.js)
	@sh .ci/system-packages

demo: setup  ## Run the whole thing on a real PostgreSQL and a real Kafka (MESSAGES=20000; CONSOLE=1 stays, with the console; or SCENARIO=shop ORDERS=200)
	@$(BIN)/outbox-bridge demo $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(ORDERS),--orders $(ORDERS)) $(if $(CONSOLE),--console)

test: system setup  ## Run the tests on a real PostgreSQL and a real Kafka (ARGS="-k name", WORKERS=0 for one process)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

chaos: system setup  ## Random faults on three Kafka nodes, then a table (SECONDS=600 SEED=7; ROUND=12 plays that one again)
	$(if $(ROUND)$(ARGS),,@OUTBOX_BRIDGE_TEST_OUTAGE_SECONDS=40 $(BIN)/python -m pytest -q tests/crash/test_promise_6_an_outage_costs_no_attempt.py)
	@$(BIN)/python -m tests.crash.chaos --seed $(SEED) --seconds $(SECONDS) $(if $(ROUND),--round $(ROUND)) $(ARGS)

check: setup  ## ruff, mypy --strict, import-linter, SQL lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/sqlfluff lint --disable-progress-bar schemas bridge

format: setup  ## Format and fix what the linters can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## Benchmarks as ratios within one run (QUICK=1 ends within 5 minutes)
	@$(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(ARGS)

lock: setup  ## Resolve requirements.lock anew: hashes, no index addresses
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --upgrade \
	  --python-version 3.11 --extra dev --custom-compile-command 'make lock' -o requirements.lock pyproject.toml

clean:  ## Remove the virtual environment and everything generated
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache bench-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
